"""Models as values: what is refused, what a change leaves alone, and how they are written down."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from bayesmf import DataError
from bayesmf.model.conditionals import alpha_prior
from bayesmf.model.designs import PARTS, RatedSet
from bayesmf.model.likelihood import Gaussian
from bayesmf.model.spec import Hyper, Model
from bayesmf.random.draws import Draws
from oracle.designs import Labelled
from oracle.variants import VARIANTS

MEANS = ("feature_mean", "bias_mean")  # the only numbers of Hyper that may be negative or zero
POSITIVE = [one.name for one in fields(Hyper) if one.name not in MEANS]


# Hyper


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0])
def test_a_hyper_parameter_that_makes_no_sense_is_refused(name, value):
    with pytest.raises(DataError, match=f"{name}={value}: choose a finite number above 0"):
        Hyper(**{name: value})


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_is_any_finite_number(name):
    for value in (-3.0, 0, 2):
        assert getattr(Hyper(**{name: value}), name) == value
    for value in (math.nan, -math.inf):
        with pytest.raises(DataError, match=f"{name}={value}: choose a finite number"):
            Hyper(**{name: value})


def test_scales_of_single_features_are_checked_too():
    assert Hyper(feature_scale=(0.5, 2.0)).feature_scale == (0.5, 2.0)
    for wrong in (math.nan, -1.0, 0.0):
        with pytest.raises(DataError, match=f"feature_scale={wrong}"):
            Hyper(feature_scale=(0.5, wrong))


@pytest.mark.parametrize("name", [*MEANS, *POSITIVE])
@pytest.mark.parametrize("value", ["1", True, [1.0]])
def test_a_hyper_parameter_that_is_no_number_is_refused(name, value):
    with pytest.raises(TypeError, match=f"{name}="):
        Hyper(**{name: value})


# Model


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"rank": -1}, "rank=-1: choose 0 or more"),
        ({"rank": 255}, "rank=255: choose 0 to 254"),
        ({"rank": 10**6}, "rank=1000000: choose 0 to 254"),
        ({"precision": "loose"}, "precision='loose': choose one of constant, robust, truncated"),
        ({"prior": "flat"}, "prior='flat': choose one of gaussian, student-t"),
        ({"bias": "none"}, "bias='none': choose one of"),
        ({"bounds": (2, 1)}, "bounds="),
        ({"bounds": (-1, 1)}, "bounds="),
        ({"bounds": (math.nan, 1)}, "bounds="),
        ({"bounds": (1, math.inf)}, "bounds="),
        ({"bounds": [1]}, r"bounds=\[1\]: give two numbers"),
        ({"precision_prior": (2.0,)}, "precision_prior=.*: give two numbers"),
        ({"precision_prior": (2.0, 0.0)}, "precision_prior=0.0: choose a finite number above 0"),
        ({"precision_prior": (math.nan, 2.0)}, "precision_prior=nan"),
        ({"user_designs": (RatedSet(),) * 4}, "4 user_designs: choose 3 at most"),
        ({"rank": 0, "bias": "learned"}, "rank=0 with this bias leaves a design nothing to shift"),
        ({"own_features": False}, "choose bias='learned' or 'fixed'"),
        ({"rank": 3, "hyper": Hyper(feature_degrees=3)}, "feature_degrees=3: choose more than 3"),
        ({"hyper": Hyper(feature_scale=(1.0, 2.0))}, "feature_scale has 2 numbers: .* tuple of 21"),
    ],
)
def test_models_that_make_no_sense(wrong, match):
    with pytest.raises(DataError, match=match):
        Model(**wrong)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"rank": 4.0}, "rank=4.0: give a whole number, not float"),
        ({"rank": True}, "rank=True: give a whole number, not bool"),
        ({"rank": "20"}, "rank='20': give a whole number, not str"),
        ({"bounds": 1.0}, "bounds is of type float; give a pair of numbers"),
        ({"bounds": ("low", "high")}, "bounds='low': give a number, not str"),
        ({"precision_prior": 2.0}, "precision_prior is of type float; give a pair of numbers"),
        ({"user_designs": RatedSet()}, "user_designs is of type RatedSet; give a tuple"),
        (
            {"user_designs": ("rated-set",)},
            r"user_designs\[0\] is of type str; give a tuple of designs",
        ),
        ({"item_designs": (RatedSet,)}, r"item_designs\[0\] is the class RatedSet: give a tuple"),
        ({"own_features": "yes"}, "own_features is of type str; give True or False"),
        ({"likelihood": "gaussian"}, "likelihood is of type str; give an object, such as Gaussian"),
        ({"likelihood": Gaussian}, "likelihood is the class Gaussian: give an object"),
        ({"effects": 3}, "effects is of type int; give a tuple"),
        ({"hyper": {"noise_shape": 1}}, r"hyper is of type dict; give a Hyper, such as Hyper\("),
    ],
)
def test_arguments_of_another_type_are_refused_at_the_call(wrong, match):
    with pytest.raises(TypeError, match=match):
        Model(**wrong)


def test_whole_numbers_and_lists_of_any_kind_are_taken():
    model = Model(rank=np.int64(3), bounds=[1, 2], user_designs=[RatedSet(1.0)])
    assert (model.rank, model.bounds, model.user_designs) == (3, (1.0, 2.0), (RatedSet(1.0),))
    assert type(model.rank) is int
    json.dumps(model.to_dict())
    assert Hyper(noise_shape=np.float32(0.5)) == Hyper(noise_shape=0.5)
    json.dumps(Model(hyper=Hyper(noise_shape=np.int64(2))).to_dict())
    assert hash(model) == hash(Model(rank=3, bounds=(1.0, 2.0), user_designs=(RatedSet(1.0),)))


def test_the_degrees_and_scales_that_a_prior_needs_are_taken():
    """A Wishart in d dimensions needs more than d - 1 degrees; a joint bias is one more."""
    for rank, bias, size in ((3, "joint", 4), (3, "learned", 3), (0, "joint", 1)):
        given = Hyper(feature_degrees=size - 0.9, feature_scale=(1.0,) * size)
        model = Model(rank, (), (), bias=bias, hyper=given)
        for group in model.groups("user"):
            if group.hyper is not None:
                _, precision = group.hyper.sample(Draws(1))
                assert np.linalg.eigvalsh(precision).min() > 0


@pytest.mark.parametrize("power", [-0.1, 2.1, math.nan])
def test_powers_that_make_no_sense(power):
    with pytest.raises(DataError, match=f"power={power}"):
        RatedSet(power)


def test_the_papers_models():
    with pytest.raises(DataError, match="features='all': choose one of none, no-side, side, side-"):
        Model.paper("all")
    none, without, side, only = (Model.paper(f) for f in ("none", "no-side", "side", "side-only"))
    assert (none.rank, none.user_designs, none.item_designs) == (0, (), ())
    assert (without.rank, without.user_designs, without.item_designs) == (20, (), ())
    assert (side.user_designs, side.item_designs) == ((RatedSet(1.0),), ())
    assert replace(only, own_features=True) == side
    for model in (none, without, side, only):
        assert (model.bias, model.precision, model.precision_prior) == (
            "learned", "constant", (2.0, 2.0)
        )  # fmt: skip
    assert Model.paper(rank=3, bias="fixed") == replace(side, rank=3, bias="fixed")


@pytest.mark.parametrize(
    "model",
    [
        Model(),
        Model.paper(),
        Model.paper("no-side", "robust"),
        Model.paper("side-only", "truncated", bounds=(0.1, 9.0)),
        Model(hyper=Hyper(bias_rate=3.0), precision_prior=(7.0, 8.0)),
    ],
    ids=str,
)
def test_one_hyper_parameter_changes_no_other_prior(model):
    """The precisions' prior was once part of Hyper, and another Hyper reset it."""
    changed = replace(model, hyper=Hyper(noise_shape=1))
    assert replace(changed, hyper=model.hyper) == model
    assert changed.precision_prior == model.precision_prior
    one, other = alpha_prior(changed, 2), alpha_prior(model, 2)
    np.testing.assert_array_equal([one.shape, one.rate], [other.shape, other.rate])
    kept = replace(model, hyper=replace(model.hyper, noise_shape=1.0)).hyper
    assert {**asdict(kept), "noise_shape": model.hyper.noise_shape} == asdict(model.hyper)


# Written down


@pytest.mark.parametrize("name", VARIANTS)
def test_a_model_comes_back_from_json(name):
    model = VARIANTS[name]
    back = Model.from_dict(json.loads(json.dumps(model.to_dict())))
    assert back == model
    assert hash(back) == hash(model)
    assert back.to_dict() == model.to_dict()


@pytest.mark.parametrize(
    "model",
    [Model(), Model.paper("side-only"), Model(rank=1, hyper=Hyper(feature_scale=(0.5, 2.0)))],
)
def test_the_defaults_come_back_too(model):
    assert Model.from_dict(json.loads(json.dumps(model.to_dict()))) == model


def test_a_design_that_is_not_registered_is_named(monkeypatch):
    facts = Model(user_designs=(Labelled(),)).to_dict()
    monkeypatch.delitem(PARTS, "design labelled")
    with pytest.raises(DataError, match="the design 'labelled', which is not known here; import"):
        Model.from_dict(facts)


def test_a_model_shows_what_differs_from_the_default():
    assert repr(Model()) == "Model()"
    assert repr(Model(rank=5, bias="fixed")) == "Model(rank=5, bias='fixed')"
    shown = "Model(rank=3, user_designs=(RatedSet(power=1.0),))"
    assert repr(Model(rank=3, user_designs=(RatedSet(1.0),))) == shown
    names = {"Model": Model, "RatedSet": RatedSet, "Labelled": Labelled, "Hyper": Hyper}
    for model in VARIANTS.values():
        assert eval(repr(model), names) == model
