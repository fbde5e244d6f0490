"""Starts, parts and interruptions that are not as they should be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import MAP, DataError, Gibbs, Model, Ratings, Scale, Variational, kfold, load, split
from bayesmf.cli.main import main
from bayesmf.data.io.atomic import to_json
from bayesmf.data.split import carve
from bayesmf.errors import OverfittingWarning
from bayesmf.inference.loop import Progress
from bayesmf.model.designs import RatedSet
from oracle.variants import VARIANTS, small_ratings

NO_SIDE, SIDE = VARIANTS["no side"], VARIANTS["both sides, joint bias"]
KINDS = [
    pytest.param(lambda model: Gibbs(model, sweeps=8, burn_in=2, chains=1), id="gibbs"),
    pytest.param(lambda model: Variational(model, sweeps=8), id="vi"),
    pytest.param(lambda model: MAP(model, penalty=5.0, sweeps=8), id="map"),
]


def test_carving_keeps_the_numbers_of_users_and_items():
    train = small_ratings(30, 20)
    part, rest = carve(train, 0.1, seed=0)
    assert part.users == rest.users == train.users
    assert part.items == rest.items == train.items
    assert len(part) + len(rest) == len(train)
    with pytest.raises(DataError, match="too few to hold out"):
        carve(train.select(np.arange(len(train)) < 2), 0.1)
    with pytest.raises(DataError, match="validation=1"):
        carve(train, 1.0)


@pytest.mark.parametrize("method", ["coordinate", "momentum"])
def test_users_without_training_ratings_do_no_harm(method):
    """A random split leaves some: the penalty's own validation set must not renumber the rest."""
    train, test = split(load("demo"), "random", seed=0)
    assert (train.by_user.counts == 0).any() or (train.by_item.counts == 0).any()
    fit = MAP(Model.paper("no-side", rank=3), method=method, sweeps=40).fit(train, test)
    assert fit.test_rmse < 0.90
    assert max(fit.trace["test rmse"]) < 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_parts_with_other_ids_are_refused(kind):
    train, other = small_ratings(30, 20), small_ratings(40, 25)
    with pytest.raises(DataError, match="the test ratings have other users or items"):
        kind(NO_SIDE).fit(train, other)
    with pytest.raises(DataError, match="the validation ratings have other users or items"):
        kind(NO_SIDE).fit(train, validation=other)
    with pytest.raises(DataError, match="there are no validation ratings"):
        kind(NO_SIDE).fit(train, validation=train.select(np.zeros(len(train), bool)))


@pytest.mark.parametrize("kind", KINDS[:2])
def test_starts_of_another_shape_are_refused(kind):
    train = small_ratings(30, 20)
    state = Gibbs(NO_SIDE, sweeps=2, burn_in=0, chains=1).fit(train).states[0]
    for model, ratings, told in (
        (NO_SIDE, small_ratings(40, 25), "other data: user.x has shape"),
        (SIDE, train, "its users have 0 designs, not 1"),
        (Model.paper("no-side", rank=12), train, "other data: user.x has shape"),
    ):
        with pytest.raises(DataError, match=f"the start is of another model.*{told}"):
            kind(model).fit(ratings, start=state)
    with pytest.raises(DataError, match="start='mapp': choose"):
        kind(NO_SIDE).fit(train, start="mapp")


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_kept_draw_is_a_start(kind):
    train = small_ratings(30, 20)
    kept = Gibbs(SIDE, sweeps=8, burn_in=2, keep=3, chains=1).fit(train).draws
    assert np.isfinite(kind(SIDE).fit(train, train, start=kept[-1]).test_rmse)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_start_of_a_richer_model_leaves_nothing_behind(kind):
    train = small_ratings(30, 20)
    rich = Gibbs(VARIANTS["no side, robust"], sweeps=4, burn_in=0, chains=1).fit(train).states[0]
    tailed = (
        Gibbs(VARIANTS["no side, student-t"], sweeps=4, burn_in=0, chains=1).fit(train).states[0]
    )
    for start in (rich, tailed):
        fit = kind(NO_SIDE).fit(train, start=start)
        state = fit.states[0] if hasattr(fit, "states") else fit.state
        assert (state.user.alpha == 1).all()
        assert (state.item.scale == 1).all()
    assert not (rich.user.alpha == 1).any()


def interrupting(stage: str):
    def callback(progress: Progress) -> None:
        if progress.stage.startswith(stage):
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("penalty", [5, 10, 20, 40])
def test_an_interruption_in_the_start_is_the_end(penalty):
    """Whether or not the penalty that is interrupted is the best so far."""
    train = small_ratings(30, 20)
    for algorithm in (
        Gibbs(NO_SIDE, sweeps=5, burn_in=1, chains=1),
        Variational(NO_SIDE, sweeps=5),
    ):
        with pytest.raises(KeyboardInterrupt):
            algorithm.fit(train, start="map", callbacks=[interrupting(f"MAP, penalty {penalty}")])


def test_an_interrupted_map_keeps_what_is_done():
    train = small_ratings(30, 20)
    fit = MAP(NO_SIDE).fit(train, train, callbacks=[interrupting("MAP, penalty 20")])
    assert fit.stopped == "interrupted"
    assert fit.sweeps > 0
    assert np.isfinite(fit.test_rmse)


def test_what_ends_the_start_ends_the_run():
    train = small_ratings(30, 20)
    one = Variational(NO_SIDE, sweeps=9).fit(train, budget=0.0)
    assert (one.sweeps, one.stopped) == (1, "the time was up")
    ends = [True]
    fit = Variational(NO_SIDE, sweeps=9).fit(train, callbacks=[lambda p: ends.pop() if ends else 0])
    assert (fit.sweeps, fit.stopped) == (1, "a callback ended it")


def test_an_interrupted_update_agrees_with_its_predictions():
    train = small_ratings(30, 20)
    fit = Variational(NO_SIDE, sweeps=9).fit(
        train, train, start="random", callbacks=[interrupting("updating")]
    )
    values = np.asarray(train.by_user.values, float)
    assert fit.test_rmse == pytest.approx(np.sqrt(np.mean((fit.predictions - values) ** 2)))


@pytest.mark.parametrize("at", [(0, 1), (1, 1), (0, 3), (1, 3), (2, 8)])
def test_an_early_end_has_all_chains(at):
    """Their lengths differ by one sweep at most, and the traces end with the shortest."""

    def end(progress: Progress) -> bool:
        return (progress.chain, progress.sweep) == at

    train = small_ratings(30, 20)
    fit = Gibbs(NO_SIDE, sweeps=30, burn_in=5, chains=3).fit(train, train, callbacks=[end])
    chain, sweep = at
    done = [sweep - (k > chain) for k in range(3)]
    done = [n for n in done if n]
    assert [state.sweep for state in fit.states] == done
    assert fit.sweeps == sum(done)
    assert fit.traces["noise precision"].shape == (len(done), min(done))
    assert fit.burn_in == (5 if min(done) > 5 else 0)
    assert fit.predict(train)["mean"].to_numpy().shape == (len(train),)


def test_overfitting_is_told_however_the_run_ends():
    train, _ = split(load("demo"), "paper", seed=0)
    part, judge = carve(train, 0.1)
    algorithm = Variational(Model.paper("no-side", rank=20), sweeps=8, prior="map-driven")
    start = MAP(algorithm.model, penalty=10.0, sweeps=10).fit(part, validation=judge).state
    with pytest.warns(OverfittingWarning, match="Q overfits"):
        fit = algorithm.fit(part, validation=judge, start=start)
    assert fit.best < 8


def test_the_bound_of_clamped_precisions_is_no_better_than_the_right_one():
    train = small_ratings(60, 40)
    model = VARIANTS["no side, truncated"]
    start = Gibbs(model, sweeps=3, burn_in=0, chains=1).fit(train).states[0]
    bounds = [
        Variational(model, sweeps=60, clamp=clamp).fit(train, start=start).trace["bound"][-1]
        for clamp in (False, True)
    ]
    assert bounds[0] >= bounds[1]


BOTH = Model.paper("side-only", rank=2, item_designs=(RatedSet(1.0),))


@pytest.mark.parametrize("model", [BOTH, Model.paper("side-only", rank=2)])
def test_a_map_driven_prior_without_own_features(model):
    fit = Variational(model, sweeps=4, prior="map-driven").fit(small_ratings(30, 20))
    assert np.isfinite(fit.trace["bound"]).all()


def test_three_ratings_are_enough_to_fit():
    few = Ratings.from_triplets(users=["a", "b", "c"], items=["x", "x", "y"], ratings=[1, 2, 5])
    model = Model.paper("no-side", rank=2)
    for kind in (MAP(model), Variational(model, sweeps=3)):
        assert np.isfinite(kind.fit(few, few).test_rmse)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--penalty", "nan", "--inference", "map"], "penalty=nan: choose a finite number above 0"),
        (["--penalty", "inf", "--inference", "map"], "penalty=inf: choose a finite number above 0"),
        (["--sweeps", "0", "--inference", "map"], "sweeps=0: choose 1 or more"),
        (["--user-designs", "rated:nan"], "write 'none', or 'rated:P'"),
        (["--bounds", "0:inf"], "bounds=inf: choose a finite number"),
        (["--bounds", "1:2:3"], "write LOW:HIGH, or N"),
    ],
)
def test_numbers_that_make_no_sense(args, told):
    done = CliRunner().invoke(main, ["fit", "demo", "--quiet", *args])
    assert done.exit_code == 2
    assert told in done.output


def test_json_has_no_numbers_that_other_readers_refuse():
    facts = {"bound": float("nan"), "curve": [1.0, float("inf")], "pair": (1, 2.5), "name": "x"}
    found = json.loads(to_json(facts))
    assert found == {"bound": None, "curve": [1.0, None], "pair": [1, 2.5], "name": "x"}


def test_validation_works_with_a_random_holdout():
    done = CliRunner().invoke(
        main, ["fit", "demo", "--quiet", "--rank", "2", "--paper", "no-side", "--holdout", "random",
               "--validation", "0.1", "--sweeps", "30", "--json"]
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["test_rmse"] < 0.95


def scaled(factor, shift=0.0, one=None):
    """Small ratings in other units, of which one may be another number."""
    rows = small_ratings(30, 20).by_user
    values = shift + factor * np.array(rows.values, float)
    values[7] = values[7] if one is None else one
    return Ratings.from_triplets(users=rows.row_index, items=rows.index, ratings=values)


ALGORITHMS = (
    Gibbs(NO_SIDE, sweeps=4, chains=1), Variational(NO_SIDE, sweeps=2), MAP(NO_SIDE, penalty=5.0),
    Gibbs(Model(rank=2), sweeps=4, chains=1),
)  # fmt: skip


@pytest.mark.parametrize("factor", [1e30, 1e-30, 1e300])
def test_ratings_beyond_all_measure_are_refused(factor):
    for algorithm in ALGORITHMS:
        with np.errstate(over="ignore"), pytest.raises(DataError, match="give them in other units"):
            algorithm.fit(scaled(factor))
    with pytest.raises(DataError, match="the training ratings have a mean of 1e"):
        ALGORITHMS[0].fit(scaled(0.0, 1e30))


@pytest.mark.parametrize(
    "case", ["one of 10^12", "large", "larger", "small", "one user", "one item", "one"]
)
def test_odd_ratings_are_fitted_and_their_model_is_read_again(case, tmp_path):
    """With numbers for everybody, strangers too."""
    ratings = {"large": scaled(1e10), "larger": scaled(5e5), "small": scaled(1e-10)}.get(
        case, scaled(1.0, one=1e12)
    )
    stars = [1, 5, 2, 3]
    if case == "one user":
        ratings = Ratings.from_triplets(users=[1] * 4, items=range(4), ratings=stars)
    if case == "one item":
        ratings = Ratings.from_triplets(users=range(4), items=[1] * 4, ratings=stars)
    if case == "one":
        ratings = Ratings.from_triplets(users=[1], items=[1], ratings=[3])
    for number, algorithm in enumerate(ALGORITHMS):
        if algorithm.model.unit is not None and case in ("one of 10^12", "large"):
            with pytest.raises(DataError, match="the priors of this model are in units of 1; give"):
                algorithm.fit(ratings)
            continue
        algorithm.fit(ratings).save(tmp_path / f"{number}")
        table = bayesmf.load_model(tmp_path / f"{number}").predict(
            [(1, 1), (1, 99), (99, 1), (99, 99)]
        )
        assert np.isfinite(table["mean"].to_numpy()).all()
        assert (table["sd"].to_numpy() > 0).all()


def test_a_model_with_values_that_are_no_numbers_is_not_saved(tmp_path):
    fit = MAP(NO_SIDE, penalty=5.0, sweeps=2).fit(SMALL)
    fit.posterior.draws["tau"][:] = np.inf
    with pytest.raises(DataError, match="the tau of this fit holds values that are no numbers"):
        fit.save(tmp_path / "fit")
    assert list(tmp_path.iterdir()) == []


NAN, SMALL = float("nan"), small_ratings(30, 20)
SETTINGS = [
    (Gibbs, {"seed": 2**64}, "seed=18446744073709551616: choose 0 to 18446744073709551615"),
    (Gibbs, {"sweeps": 10**15}, "sweeps=1000000000000000: choose 1 to 4294967295"),
    (Gibbs, {"sweeps": 5.0}, "sweeps=5.0: give a whole number, not float"),
    (Gibbs, {"chains": 10**6}, "chains=1000000: choose 1 to 65536"),
    (Gibbs, {"threads": "2"}, "threads='2': give a whole number, not str"),
    (Gibbs, {"threads": True}, "threads=True: give a whole number, not bool"),
    (Variational, {"seed": 1.5}, "seed=1.5: give a whole number, not float"),
    (Variational, {"sweeps": 10**15}, "sweeps=1000000000000000"),
    (Variational, {"clamp": 3}, "clamp is of type int; give True or False"),
    (MAP, {"seed": 2**65}, "seed="),
    (MAP, {"sweeps": 10**15}, "sweeps="),
    (MAP, {"penalty": NAN}, "penalty=nan: choose a finite number above 0"),
]


@pytest.mark.parametrize(("kind", "settings", "match"), SETTINGS)
def test_settings_are_checked_at_the_call(kind, settings, match):
    with pytest.raises((DataError, TypeError), match=match):
        kind(NO_SIDE, **settings)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"budget": NAN}, "budget=nan: choose a finite number, 0 or more"),
        ({"budget": -1}, "budget=-1: choose a finite number, 0 or more"),
        ({"budget": "a"}, "budget='a': give a number, not str"),
        ({"patience": 0}, "patience=0: choose 1 or more"),
        ({"patience": 1.5}, "patience=1.5: give a whole number, not float"),
        ({"callbacks": 3}, "callbacks: give a list of functions"),
        ({"callbacks": [3]}, "callbacks: give a list of functions"),
        ({"every": -1}, "every=-1: choose a finite number, 0 or more"),
        ({"every": NAN}, "every=nan"),
        ({"every": "a"}, "every='a': give a number, not str"),
    ],
)
def test_options_of_a_run_are_checked_at_the_call(options, match):
    for algorithm in (Gibbs(NO_SIDE), Variational(NO_SIDE), MAP(NO_SIDE)):
        if "every" not in options or isinstance(algorithm, Gibbs):
            with pytest.raises((DataError, TypeError), match=match):
                algorithm.fit(SMALL, **options)


def test_questions_are_checked_at_the_call():
    fit = MAP(NO_SIDE, penalty=5.0, sweeps=2).fit(SMALL)
    for call, match in (
        (lambda: fit.predict([(1, 1)], quantiles=["a"]), "quantiles='a': give a number, not str"),
        (lambda: fit.recommend([1], n=1.5), "n=1.5: give a whole number"),
        (lambda: fit.recommend([1], seed=1.5), "seed=1.5: give a whole number"),
        (lambda: fit.fold_in(SMALL, seed=1.5), "seed=1.5: give a whole number"),
        (lambda: fit.update(SMALL, seed=NAN), "seed=nan: give a whole number"),
        (lambda: split(SMALL, "random", seed=1.5), "seed=1.5: give a whole number"),
        (lambda: split(SMALL, "random", test_fraction="a"), "test_fraction='a': give a number"),
        (lambda: split(SMALL, "cold-start", given=1.5), "given=1.5: give a whole number"),
        (lambda: kfold(SMALL, folds=2.5), "folds=2.5: give a whole number"),
        (lambda: Scale("a", 1), "low='a': give a number"),
        (lambda: bayesmf.fit(SMALL, model=3), "model is of type int; give a Model"),
    ):
        with pytest.raises((DataError, TypeError), match=match):
            call()


def test_what_no_model_knows_is_unknown_and_no_error():
    """Items that are in no training, and ids above the largest signed number."""
    fit = MAP(NO_SIDE, penalty=5.0, sweeps=2).fit(SMALL)
    for items in ([10**6], []):
        assert fit.recommend([1], items=items).num_rows == 0
    large = np.array([[2**63 + 1, 1]], np.uint64)
    assert fit.predict(large)["known"].to_pylist() == ["new user"]
    assert fit.recommend(large[0, :1], 2).num_rows == 2
    with pytest.raises(DataError, match="the time 9223372036854775813 is neither"):
        Ratings.from_triplets(users=[1], items=[1], ratings=[1], times=large[:, 0] + np.uint64(4))


def test_a_scale_of_a_million_steps_has_no_probabilities():
    rows = SMALL.by_user
    stars = 1 + np.arange(len(SMALL)) % 5
    ratings = Ratings.from_triplets(users=rows.row_index, items=rows.index, ratings=stars,
                                    scale=Scale(1, 10**6, 1))  # fmt: skip
    fit = MAP(NO_SIDE, penalty=5.0, sweeps=2).fit(ratings)
    with pytest.raises(DataError, match="has 1,000,000 steps, .* ask for quantiles instead"):
        fit.probabilities([(1, 1)])
