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
from bayesmf.kernels.designs import draw_centred, draw_non_centred, store_grams
from bayesmf.kernels.rows import OtherSide, draw_rows
from bayesmf.model import conditionals
from bayesmf.model.conditionals import POINTS
from bayesmf.model.data import Data, SideData
from bayesmf.model.designs import RatedSet
from bayesmf.model.spec import Model
from bayesmf.model.state import Shift, Side, State
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep import algorithm, designs, rows, sweep
from oracle import conditionals as readable
from oracle import joint
from oracle.checkpoints import arrays
from oracle.designs import Labelled
from oracle.joint import log_joint
from oracle.variants import VARIANTS, random_state, small_ratings

USERS, ITEMS = 7, 6
ROUNDING = {"rel": 1e-9, "abs": 1e-9}  # sums of at most a hundred terms, in another order


@pytest.fixture(params=VARIANTS, ids=str)
def world(request):
    model = VARIANTS[request.param]
    ratings = small_ratings(USERS, ITEMS, seed=4)
    return model, ratings, random_state(model, Data.of(ratings, model), seed=5)


class Orders:
    """Permutations, new number -> old, in which old number ``first`` comes to the top."""

    def __init__(self, first: int = 0) -> None:
        self.rng, self.first = np.random.default_rng(first), first
        self.user, self.item = self.make(USERS), self.make(ITEMS)
        self.labels = self.make(len(Labelled().labels))

    def make(self, count: int) -> np.ndarray:
        rest = [k for k in range(count) if k != self.first % count]
        return np.array([self.first % count, *self.rng.permutation(rest)])

    def columns(self, model: Model, name: str) -> list[np.ndarray]:
        """Of the columns of each design: the rows of the other side, or the labels."""
        others = self.item if name == "user" else self.user
        return [others if isinstance(design, RatedSet) else self.labels
                for design in model.designs(name)]  # fmt: skip


def relabelled(ratings: Ratings, orders: Orders) -> Ratings:
    """The same ratings, where row ``a`` is what row ``users[a]`` was, and has its id."""
    users, items = orders.user, orders.item
    user = np.argsort(users)[ratings.by_user.row_index]
    item = np.argsort(items)[ratings.by_user.index]
    order = np.lexsort((item, user))
    return Ratings.from_sorted(
        Ids(users.copy()), Ids(items.copy()), user[order].astype(np.int32),
        item[order].astype(np.int32), ratings.values[order], None, Scale(-9, 9),
    )  # fmt: skip


def reordered(model: Model, state: State, orders: Orders) -> tuple[Model, State]:
    """The same parameters under new numbers of rows and of the columns of designs."""

    def turn(name: str) -> Side:
        side, mine = getattr(state, name), getattr(orders, name)
        columns = zip(side.shifts, orders.columns(model, name), strict=True)
        shifts = [Shift(s.W[order], s.mu, s.Lambda, s.offset[mine]) for s, order in columns]
        return copy.deepcopy(replace(side, x=side.x[mine], alpha=side.alpha[mine],
                                     scale=side.scale[mine], shifts=shifts))  # fmt: skip

    def turn_design(design):
        if isinstance(design, RatedSet):
            return design
        return Labelled(tuple(np.array(design.labels)[orders.labels].tolist()))

    given = {name: tuple(map(turn_design, getattr(model, name)))
             for name in ("user_designs", "item_designs")}  # fmt: skip
    return replace(model, **given), State(turn("user"), turn("item"), state.tau)


def transposed(model: Model, state: State) -> tuple[Model, State]:
    """Users for items and items for users."""
    new = State(copy.deepcopy(state.item), copy.deepcopy(state.user), state.tau)
    return replace(model, user_designs=model.item_designs, item_designs=model.user_designs), new


def summary(model: Model, data: Data, state: State, name: str) -> dict[str, np.ndarray]:
    """Every conditional of one side, by its parameters; rows first wherever there are rows."""
    mine = data.user if name == "user" else data.item
    me, others = state.sides(name)
    out = {}
    if model.has_own(name):
        each = [readable.row(state, mine, i, model) for i in range(len(me.x))]
        out["row precision"] = np.array([c.precision for c in each])
        out["row mean"] = np.array([c.mean() for c in each])
        out["kernel mean"], errors = row_kernel(model, mine, me, others, state)
        out["kernel errors"] = errors
        if model.precision != "constant":
            found = conditionals.alpha(model, mine.counts, errors, state.tau)
            out["alpha"] = np.stack([found.shape, found.rate], 1)
        found = model.likelihood.tau(model.hyper, data.size, float(me.alpha @ errors))
        out["tau rate, all"] = found.rate
    for number, group in enumerate(model.groups(name)):
        if group.hyper is not None:
            weights = me.scale if group.end > 1 else np.ones(len(me.x))
            found = conditionals.hyper(group, me.own, weights)
            out[f"hyper {number}, all"] = numbers(found)
        if group.end > 1 and model.prior == "student-t":
            out["scale"] = conditionals.student_scale(model, me, group).rate
    for number, shift in enumerate(me.shifts):
        for form in (readable.free_side, readable.centred_side)[: 1 + model.has_own(name)]:
            each = [form(state, mine, k, model, number) for k in range(len(shift.W))]
            out[f"{form.__name__} precision, W {number}"] = np.array([c.precision for c in each])
            out[f"{form.__name__} mean, W {number}"] = np.array([c.mean() for c in each])
        found = conditionals.hyper(model.design_group(), shift.W, np.ones(len(shift.W)))
        out[f"W {number} hyper, all"] = numbers(found)
    return out


def numbers(found) -> np.ndarray:
    return np.concatenate([found.mean, [found.beta, found.nu], found.inverse_scale.ravel()])


def row_kernel(model: Model, mine: SideData, me: Side, others: Side, state: State):
    x, errors = me.x.copy(), np.empty(len(me.x))
    draw_rows(mine.observed, OtherSide.of(others.x, others.alpha, POINTS), state.tau * me.alpha,
              rows.row_prior(model, mine, me), Draws(0).counter(), False, x, errors, POINTS,
              algorithm.NO_VALUES, state.width())  # fmt: skip
    return x, errors


def first_column(model: Model, data: Data, state: State, name: str, number: int, form: str):
    """What the kernel makes of W_0, before any other W_k has moved, without noise."""
    mine = data.user if name == "user" else data.item
    state = copy.deepcopy(state)
    me, others = state.sides(name)
    first, shift = model.first_shifted, me.shifts[number]
    if form == "centred":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(designs, "draw_centred", lambda *a: draw_centred(*a[:-4], False, *a[-3:]))
            designs._draw_centred(model, mine, me, number, algorithm.Sampling(Draws(0)))
    else:
        Lambda_W = shift.Lambda[first:, first:]
        grams = np.empty((len(me.x), me.x.shape[1], me.x.shape[1]))
        known = OtherSide.of(others.x, others.alpha, POINTS)
        store_grams(mine.observed, known, me.size, state.width(), grams)
        draw_non_centred(mine.columns[number], mine.matrices[number].scale, state.tau * me.alpha,
                         grams, Lambda_W, Lambda_W @ shift.mu[first:], first, Draws(0).counter(),
                         False, me.x, shift.W)  # fmt: skip
    return shift.W[0, first:]


def differences(model, ratings, state, first: int = 3) -> list[str]:
    """The conditionals that change with the labels."""
    orders = Orders(first)
    new_model, new_state = reordered(model, state, orders)
    data, new_data = Data.of(ratings, model), Data.of(relabelled(ratings, orders), new_model)
    out = []
    for name in ("user", "item"):
        turns = {f"W {number}": order for number, order in enumerate(orders.columns(model, name))}
        turns["all"] = slice(None)
        before = summary(model, data, state, name)
        after = summary(new_model, new_data, new_state, name)
        for key, value in before.items():
            turn = turns.get(key.partition(", ")[2], getattr(orders, name))
            if after[key] != pytest.approx(value[turn], **ROUNDING):
                out.append(f"{name} {key}")
    if log_joint(new_model, new_data, new_state) != pytest.approx(
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
    for mine in (data.user, data.item):
        forms = {"non-centred": readable.free_side, "centred": readable.centred_side}
        if not model.has_own(mine.name):
            forms.pop("centred")
        for number, counts in enumerate(mine.column_counts):
            for k in range(len(counts)):
                orders = Orders(k)
                new_model, new_state = reordered(model, state, orders)
                new = new_model, Data.of(relabelled(ratings, orders), new_model), new_state
                for form, conditional in forms.items():
                    right = conditional(state, mine, k, model, number).mean()
                    found = first_column(*new, mine.name, number, form)
                    if found != pytest.approx(right, **ROUNDING):
                        out.append(f"{mine.name} W_{k} of design {number}, {form}")
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
        for key, value in arrays(one.sides(old)[0]).items():
            if arrays(two.sides(new)[0])[key] != pytest.approx(value, **ROUNDING):
                out.append(f"{old} draws of {key}")
    if log_joint(new_model, new_data, new_state) != pytest.approx(
        log_joint(model, data, state), rel=1e-12, abs=1e-9
    ):
        out.append("log joint")
    return out


def draw_side_of(model: Model, data: Data, state: State, name: str) -> None:
    """The part of a sweep that belongs to one side, but for the noise."""
    mine = data.user if name == "user" else data.item
    me, others = state.sides(name)
    sampling = algorithm.Sampling(Draws(6), "interwoven")
    for number in range(len(me.shifts)):
        designs.update_design_hyper(model, mine, me, number, sampling)
        designs.update_design(model, mine, me, others, number, state, sampling)
    sweep.update_hyper(model, mine, me, sampling)
    rows.update_rows(model, mine, me, others, state, sampling)


def test_transposing_changes_no_conditional_and_no_draw(world, monkeypatch):
    assert turned(*world, monkeypatch) == []


def small_world(name: str):
    model, ratings = VARIANTS[name], small_ratings(USERS, ITEMS, seed=4)
    return model, ratings, random_state(model, Data.of(ratings, model), seed=5)


def test_a_weight_by_row_number_is_noticed(monkeypatch):
    """c_i that grows with i: the conditionals then depend on the labels."""
    right = RatedSet.matrix

    def matrix(self, side):
        found = right(self, side)
        return replace(found, scale=found.scale * (1 + np.arange(len(found.scale))))

    monkeypatch.setattr(RatedSet, "matrix", matrix)
    assert {"user W_0 of design 0, centred", "user W_0 of design 0, non-centred"} <= set(
        kernel_differences(*small_world("user side"))
    )
    found = differences(*small_world("user side"))
    assert {"user free_side mean, W 0", "user centred_side mean, W 0"} <= set(found)
    assert "item row mean" not in found


def test_rows_of_the_wrong_order_are_noticed(monkeypatch):
    """Offsets that belong to the rows in order of their ratings, not to the rows."""
    right = rows.row_prior

    def row_prior(model, data, me, *rest):
        found = right(model, data, me, *rest)
        return found._replace(offset=np.sort(found.offset, axis=0))

    monkeypatch.setattr(rows, "row_prior", row_prior)
    assert "user kernel mean" in differences(*small_world("user side"))


def test_a_rule_for_users_alone_is_noticed(monkeypatch):
    """An item's prior without its offset, a user's with: the transposed model is another."""
    right = rows.row_prior

    def row_prior(model, data, me, *rest):
        found = right(model, data, me, *rest)
        if data.name == "item" and len(found.offset):
            found = found._replace(offset=np.zeros_like(found.offset))
        return found

    monkeypatch.setattr(rows, "row_prior", row_prior)
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
