"""The names of users and items mean nothing: relabelled or transposed, the model is the same.

Draws are numbered by row, so their bits differ between labellings; conditionals may not.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from bayesmf.data.ids import Ids
from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.kernels.designs import draw_centred, draw_non_centred, pattern, store_grams
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model import conditionals
from bayesmf.model.spec import Group, Model
from bayesmf.model.state import Data, Side, SideData, State
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep import algorithm, sweep
from oracle import conditionals as readable
from oracle import joint
from oracle.joint import log_joint
from oracle.variants import VARIANTS, random_state, small_ratings

USERS, ITEMS = 7, 6
ROUNDING = {"rel": 1e-9, "abs": 1e-9}  # sums of at most a hundred terms, in another order


@pytest.fixture(params=VARIANTS, ids=str)
def world(request):
    model = VARIANTS[request.param]
    ratings = small_ratings(USERS, ITEMS, seed=4)
    return model, ratings, random_state(model, Data.of(ratings, model), seed=5)


def orders(first: int = 0):
    """Two permutations: new row number -> old; old row ``first`` of each side comes to the top."""
    rng = np.random.default_rng(first)
    for count in (USERS, ITEMS):
        rest = [k for k in range(count) if k != first % count]
        yield np.array([first % count, *rng.permutation(rest)])


def relabelled(ratings: Ratings, users, items) -> Ratings:
    """The same ratings, where row ``a`` is what row ``users[a]`` was."""
    user = np.argsort(users)[ratings.by_user.row_index]
    item = np.argsort(items)[ratings.by_user.index]
    order = np.lexsort((item, user))
    return Ratings.from_sorted(
        Ids(np.arange(len(users))), Ids(np.arange(len(items))), user[order].astype(np.int32),
        item[order].astype(np.int32), ratings.values[order], None, Scale(-9, 9),
    )  # fmt: skip


def reordered(state: State, users, items) -> State:
    """The same parameters under new row numbers; W has the rows of the other side."""

    def turn(side: Side, mine, others) -> Side:
        W, offset = (side.W[others], side.offset[mine]) if len(side.W) else (side.W, side.offset)
        return replace(copy.deepcopy(side), x=side.x[mine], noise=side.noise[mine],
                       spread=side.spread[mine], W=W.copy(), offset=offset.copy())  # fmt: skip

    return State(turn(state.user, users, items), turn(state.item, items, users), state.tau)


def transposed(model: Model, state: State) -> tuple[Model, State]:
    """Users for items and items for users."""
    side_of = {"user": "item", "item": "user", "both": "both"}[model.side_of]
    new = State(copy.deepcopy(state.item), copy.deepcopy(state.user), state.tau)
    return replace(model, side_of=side_of), new


def summary(model: Model, data: Data, state: State, name: str) -> dict[str, np.ndarray]:
    """Every conditional of one side, by its parameters; rows first wherever there are rows."""
    mine, raters = (data.user, data.item) if name == "user" else (data.item, data.user)
    me, others = state.sides(name)
    out = {}
    if model.has_own(name) or model.features == "none":
        each = [readable.row(state, mine, i, model) for i in range(len(me.x))]
        out["row precision"] = np.array([c.precision for c in each])
        out["row mean"] = np.array([c.mean() for c in each])
        out["kernel mean"], errors = row_kernel(model, mine, me, others, state)
        out["kernel errors"] = errors
        if model.precision != "constant":
            found = conditionals.noise(model, mine.counts, errors, state.tau)
            out["noise"] = np.stack([found.shape, found.rate], 1)
        found = conditionals.tau(model, data.size, float(me.noise @ errors))
        out["tau rate, all"] = found.rate
    for number, group in enumerate(model.groups(name)):
        if group.hyper is not None:
            weights = me.spread if group.end > 1 else np.ones(len(me.x))
            found = conditionals.hyper(group, me.own, weights)
            out[f"hyper {number}, all"] = numbers(found)
        if group.end > 1 and model.prior == "student-t":
            out["spread"] = conditionals.spread(model, me, group).rate
    if model.has_side(name):
        for form in (readable.free_side, readable.centred_side)[: 1 + model.has_own(name)]:
            each = [form(state, mine, raters, k, model) for k in range(len(me.W))]
            out[f"{form.__name__} precision, W"] = np.array([c.precision for c in each])
            out[f"{form.__name__} mean, W"] = np.array([c.mean() for c in each])
        first = model.first_side
        group = Group(first, me.size, model.wishart(me.size - first))
        found = conditionals.hyper(group, me.W, np.ones(len(me.W)))
        out["W hyper, all"] = numbers(found)
    return out


def numbers(found) -> np.ndarray:
    return np.concatenate([found.mean, [found.beta, found.nu], found.inverse_scale.ravel()])


def row_kernel(model: Model, mine: SideData, me: Side, others: Side, state: State):
    x, errors = me.x.copy(), np.empty(len(me.x))
    draw_rows(mine.observed, OtherSide.of(others.x, others.noise, sweep.POINTS),
              state.tau * me.noise, sweep.prior_of(model, mine, me), Draws(0).counter(), False, x,
              errors, sweep.POINTS, sweep.NO_VALUES, state.width())  # fmt: skip
    return x, errors


def first_side_features(model: Model, data: Data, state: State, name: str, form: str):
    """What the kernel makes of W_0, before any other W_k has moved, without noise."""
    mine, raters = (data.user, data.item) if name == "user" else (data.item, data.user)
    state = copy.deepcopy(state)
    me, others = state.sides(name)
    first, counter = model.first_side, Draws(0).counter()
    if form == "centred":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sweep, "draw_centred", lambda *a: draw_centred(*a[:-4], False, *a[-3:]))
            sweep._draw_centred(model, mine, raters, me, sweep.Sampling(Draws(0)))
    else:
        precision = me.W_precision[first:, first:]
        grams = np.empty((len(me.x), me.x.shape[1], me.x.shape[1]))
        known = OtherSide.of(others.x, others.noise, sweep.POINTS)
        store_grams(mine.observed, known, me.size, state.width(), grams)
        draw_non_centred(pattern(raters.observed), mine.shrink, state.tau * me.noise, grams,
                         precision, precision @ me.W_mean[first:], first, counter, False, me.x,
                         me.W)  # fmt: skip
    return me.W[0, first:]


def differences(model, ratings, state, first: int = 3) -> list[str]:
    """The conditionals that change with the labels."""
    users, items = orders(first)
    data, new_data = (Data.of(r, model) for r in (ratings, relabelled(ratings, users, items)))
    new_state = reordered(state, users, items)
    out = []
    for name, mine, others in (("user", users, items), ("item", items, users)):
        before = summary(model, data, state, name)
        after = summary(model, new_data, new_state, name)
        for key, value in before.items():
            turn = slice(None) if key.endswith("all") else others if key.endswith("W") else mine
            if after[key] != pytest.approx(value[turn], **ROUNDING):
                out.append(f"{name} {key}")
    if log_joint(model, new_data, new_state) != pytest.approx(
        log_joint(model, data, state), rel=1e-12, abs=1e-9
    ):
        out.append("log joint")
    return out


def test_relabelling_changes_no_conditional(world):
    assert differences(*world) == []


def kernel_differences(model, ratings, state) -> list[str]:
    """Each k is brought to the top in turn, where its draw depends on no other's."""
    data = Data.of(ratings, model)
    out = []
    for name, count in (("user", ITEMS), ("item", USERS)):
        mine, raters = (data.user, data.item) if name == "user" else (data.item, data.user)
        forms = {"non-centred": readable.free_side, "centred": readable.centred_side}
        if not model.has_own(name):
            forms.pop("centred")
        for k in range(count if model.has_side(name) else 0):
            users, items = orders(k)
            new = Data.of(relabelled(ratings, users, items), model), reordered(state, users, items)
            for form, conditional in forms.items():
                right = conditional(state, mine, raters, k, model).mean()
                found = first_side_features(model, *new, name, form)
                if found != pytest.approx(right, **ROUNDING):
                    out.append(f"{name} W_{k}, {form}")
    return out


def test_relabelling_changes_no_side_feature_kernel(world):
    assert kernel_differences(*world) == []


def turned(model, ratings, state, monkeypatch) -> list[str]:
    """What changes when users and items, and the model with them, trade places.

    Random numbers are numbered by side, so for this both sides are given the same ones: then a
    side's draws, side features and hyper-parameters included, must agree. To rounding: the mean
    that is taken off the ratings is summed in their order.
    """
    new_model, new_state = transposed(model, state)
    data, new_data = Data.of(ratings, model), Data.of(ratings.T, new_model)
    monkeypatch.setattr(algorithm, "stream", lambda draws, side, *a: stream(draws, "user", *a))
    out = []
    for old, new in (("user", "item"), ("item", "user")):
        after = summary(new_model, new_data, new_state, new)
        for key, value in summary(model, data, state, old).items():
            if after[key] != pytest.approx(value, **ROUNDING):
                out.append(f"{old} {key}")
        one, two = copy.deepcopy(state), copy.deepcopy(new_state)
        draw_side_of(model, data, one, old)
        draw_side_of(new_model, new_data, two, new)
        for key, value in vars(one.sides(old)[0]).items():
            if vars(two.sides(new)[0])[key] != pytest.approx(value, **ROUNDING):
                out.append(f"{old} draws of {key}")
    if log_joint(new_model, new_data, new_state) != pytest.approx(
        log_joint(model, data, state), rel=1e-12, abs=1e-9
    ):
        out.append("log joint")
    return out


def draw_side_of(model: Model, data: Data, state: State, name: str) -> None:
    """The part of a sweep that belongs to one side, but for the noise."""
    mine, raters = (data.user, data.item) if name == "user" else (data.item, data.user)
    me, others = state.sides(name)
    sampling = sweep.Sampling(Draws(6), "interwoven")
    if model.has_side(name):
        sweep.update_side_hyper(model, mine, me, sampling)
        sweep.update_side(model, mine, raters, me, others, state, sampling)
    sweep.update_hyper(model, mine, me, sampling)
    sweep.update_rows(model, mine, me, others, state, sampling)


def test_transposing_changes_no_conditional_and_no_draw(world, monkeypatch):
    assert turned(*world, monkeypatch) == []


def small_world(name: str):
    model, ratings = VARIANTS[name], small_ratings(USERS, ITEMS, seed=4)
    return model, ratings, random_state(model, Data.of(ratings, model), seed=5)


def test_a_weight_by_row_number_is_noticed(monkeypatch):
    """c_i that grows with i: the conditionals then depend on the labels."""
    right = SideData.shrink.fget
    monkeypatch.setattr(
        SideData, "shrink", property(lambda s: right(s) * (1 + np.arange(len(s.counts))))
    )
    assert {"user W_0, centred", "user W_0, non-centred"} <= set(
        kernel_differences(*small_world("user side"))
    )
    found = differences(*small_world("user side"))
    assert {"user free_side mean, W", "user centred_side mean, W"} <= set(found)
    assert "item row mean" not in found


def test_rows_of_the_wrong_order_are_noticed(monkeypatch):
    """Offsets that belong to the rows in order of their ratings, not to the rows."""
    right = sweep.prior_of

    def prior_of(model, data, me, *rest):
        found = right(model, data, me, *rest)
        return found._replace(offset=np.sort(found.offset, axis=0))

    monkeypatch.setattr(sweep, "prior_of", prior_of)
    assert "user kernel mean" in differences(*small_world("user side"))


def test_a_rule_for_users_alone_is_noticed(monkeypatch):
    """An item's prior without its offset, a user's with: the transposed model is another."""
    right = sweep.prior_of

    def prior_of(model, data, me, *rest):
        found = right(model, data, me, *rest)
        if data.name == "item" and len(found.offset):
            found = found._replace(offset=np.zeros_like(found.offset))
        return found

    monkeypatch.setattr(sweep, "prior_of", prior_of)
    found = turned(*small_world("both sides"), monkeypatch)
    assert {"user kernel mean", "user draws of x", "item draws of x"} <= set(found)
    assert "log joint" not in found


@pytest.mark.parametrize("of", ["row", "side"])
def test_a_joint_density_that_knows_names_is_noticed(of, monkeypatch):
    """A prior precision that grows with the row number, or is another for items."""
    right = joint.row_precision

    def row_precision(me, i, model, data):
        return right(me, i, model, data) * (1 + (i if of == "row" else data.name == "item"))

    monkeypatch.setattr(joint, "row_precision", row_precision)
    assert ("log joint" in differences(*small_world("no side"))) == (of == "row")
    assert ("log joint" in turned(*small_world("no side"), monkeypatch)) == (of == "side")
