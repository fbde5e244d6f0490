"""Posterior propagation: blocks of the ratings sampled apart, and their posteriors multiplied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_choice, check_kind, check_whole
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.fitted.base import Fitted
from bayesmf.fitted.explore.judge import test_error
from bayesmf.fitted.posterior import Posterior, affordable
from bayesmf.inference.engine import Engine, find_engine
from bayesmf.inference.gibbs import Gibbs
from bayesmf.inference.loop import INTERRUPTED, Callback, Clock, Progress, check_parts
from bayesmf.inference.propagation.block import SIDES, BlockPosterior, Job, run_block
from bayesmf.inference.propagation.row_gaussians import RowGaussians, product
from bayesmf.inference.variational.draws import add_noise
from bayesmf.kernels.gram import padded
from bayesmf.machine import check_threads, using
from bayesmf.model import conditionals
from bayesmf.model.designs import Name
from bayesmf.model.spec import Model, check_gaussian
from bayesmf.model.state import Side, State, to_arrays
from bayesmf.random.draws import Draws
from bayesmf.random.streams import stream
from bayesmf.sweep.sweep import fix_hyper

Array = NDArray[np.float64]
Grid = tuple[int, int]
Order = Literal["dense", "even"]
KEPT = 50  # draws from the product
AVERAGED = 25  # sweeps of a block whose conditionals are; twice as many predict no better
BURN_IN = 50  # sweeps of a block, or half of a run that is shorter than twice as many
MOST_BLOCKS = 1 << 16


@dataclass(repr=False)
class PropagationFit(Fitted):
    """What posterior propagation leaves: an approximate posterior, and the grid it was made on."""

    model: Model
    grid: Grid
    posterior: Posterior
    test_rmse: float | None
    sweeps: int  # of each block
    seconds: float
    threads: int | None = None

    @property
    def approximate(self) -> bool:
        """Whether it is: one block alone is sampled exactly."""
        return self.grid != (1, 1)

    def __repr__(self) -> str:
        what = "approximate" if self.approximate else "exact"
        error = "" if self.test_rmse is None else f", test RMSE {self.test_rmse:.4f}"
        return (
            f"PropagationFit({what}: {self.grid[0]} x {self.grid[1]} blocks, "
            f"{self.sweeps} sweeps each{error})"
        )

    def _facts(self) -> Mapping[str, Any]:
        return {
            "inference": "propagation",
            "approximate": self.approximate,
            "grid": list(self.grid),
            "sweeps": self.sweeps,
        }


@dataclass(frozen=True)
class Deal:
    """Rows dealt into groups: the group of each, and its place there."""

    group: NDArray[np.int32]
    place: NDArray[np.int32]

    @classmethod
    def of(cls, counts: NDArray[np.int64], groups: int, order: Order = "dense") -> Deal:
        """Groups with as many rows as the others, within one; they depend on the counts alone.

        "dense" gives the rows with the most ratings to the first group, the next to the second:
        then block (0, 0), which all others build on, has by far the most ratings to learn from.
        "even" deals the rows, by descending counts, to and fro (0 1 2 2 1 0 0 1 ...), so that all
        blocks have about as many ratings and take the same time; the first knows less.
        """
        number = np.arange(len(counts))
        turn = number % (2 * groups)
        even = np.minimum(turn, 2 * groups - 1 - turn)
        group = np.empty(len(counts), np.int32)
        dense = number * groups // max(len(counts), 1)
        group[np.argsort(-counts, kind="stable")] = dense if order == "dense" else even
        place = np.empty(len(counts), np.int32)
        for k in range(groups):
            place[group == k] = np.arange(np.sum(group == k))
        return cls(group, place)


def cut(train: Ratings, users: Deal, items: Deal, i: int, j: int) -> Ratings:
    """Block (i, j): the ratings of group j's items by group i's users, numbered within these."""
    rows = train.by_user
    user = rows.row_index
    keep = (users.group[user] == i) & (items.group[rows.index] == j)
    return Ratings.from_sorted(
        train.users.take(users.group == i),
        train.items.take(items.group == j),
        users.place[user[keep]],
        items.place[rows.index[keep]],
        rows.values[keep],
        None,
        train.scale,
        train.name,
        None if rows.weights is None else rows.weights[keep],
    )


@dataclass(frozen=True)
class Propagation:
    """Approximate inference in blocks: ``Propagation(model, grid=(2, 2)).fit(train, test)``.

    The users are dealt into I groups and the items into J. Block (0, 0) is sampled first; then
    those of its users and those of its items, with what it said of them as their prior; then all
    others, with priors for both. Blocks of a phase know nothing of each other and can run anywhere.
    At the end each row has the product of its blocks' posteriors, with what was their prior
    counted once. One block alone is ``Gibbs``, bit by bit.

    It is an approximation: a posterior is passed on as one Gaussian for each row, rows independent,
    and a block never hears what later ones learn. Each block does ``sweeps`` sweeps. ``order`` says
    how rows are dealt (see ``Deal``): "dense" for the least error, "even" for blocks of one size.
    """

    model: Model = field(default_factory=lambda: Model.paper("no-side"))
    _: KW_ONLY
    grid: Grid = (2, 2)
    order: Order = "dense"
    sweeps: int = 200
    burn_in: int | None = None  # sweeps that are not averaged; None: 50, or half of a short run
    seed: int = 0
    threads: int | None = None
    keep: int | None = None  # draws from the product; 50, or fewer on large data
    engine: Literal["threads", "ray"] | Engine = "threads"  # where blocks run

    def __post_init__(self) -> None:
        model = self.model
        check_kind("model", model, Model, "a Model, such as Propagation(Model.paper('no-side'))")
        model = check_gaussian(model, "posterior propagation")
        object.__setattr__(self, "model", model)
        for bad, what, remedy in (
            (bool(model.user_designs or model.item_designs), "designs", "Model.paper('no-side')"),
            (
                model.precision != "constant",
                f"precision={model.precision!r}",
                "precision='constant'",
            ),
            (model.prior != "gaussian", f"prior={model.prior!r}", "prior='gaussian'"),
        ):
            if bad:
                raise DataError(
                    f"posterior propagation has no {what}; choose {remedy}, or fit with Gibbs"
                )
        check_whole("sweeps", self.sweeps, 3)
        if self.burn_in is None:
            object.__setattr__(self, "burn_in", min(BURN_IN, self.sweeps // 2))
        if len(self.grid) != 2 or min(self.grid) < 1 or np.prod(self.grid) > MOST_BLOCKS:
            raise DataError(
                f"grid={self.grid}: choose two numbers from 1, of at most {MOST_BLOCKS} blocks"
            )
        check_choice("order", self.order, get_args(Order))
        if not 0 <= self.burn_in <= self.sweeps - 2:  # type: ignore[operator]
            raise DataError(
                f"burn_in={self.burn_in} of sweeps={self.sweeps}: keep at least two sweeps"
            )
        if self.keep is not None:
            check_whole("keep", self.keep, 2)
        check_threads(self.threads)
        find_engine(self.engine)

    def fit(
        self, train: Ratings, test: Ratings | None = None, *, callbacks: Sequence[Callback] = ()
    ) -> PropagationFit:
        """Sample the blocks in three phases and multiply; ``test`` is predicted at the end.

        ``callbacks`` are called with a ``Progress`` after every phase, which counts blocks.
        """
        check_parts(train, self.model, test=test)
        self._check_grid(train)
        self = replace(self, model=self.model.settle(train))
        clock = Clock(callbacks, None)
        with using(self.threads):
            exact = self.grid == (1, 1)
            posterior = self._exact(train) if exact else self.propagate(train, clock)
            posterior = replace(posterior, held_out=test)
        fit = PropagationFit(
            self.model, self.grid, posterior, None, self.sweeps, clock.seconds, self.threads
        )
        fit.test_rmse = test_error(fit.posterior, test, self.threads)
        return fit

    def _check_grid(self, train: Ratings) -> None:
        """A row should have, on the average, as many ratings in a block as it has unknowns."""
        sides = (("user", train.by_user, self.grid[1]), ("item", train.by_item, self.grid[0]))
        for name, rows, blocks in sides:
            rated = max(int(np.sum(rows.counts > 0)), 1)
            average, least = len(train) / rated / blocks, self.model.size
            if self.grid != (1, 1) and average < least:
                raise DataError(
                    f"grid={self.grid}: {name}s have {average:.1f} ratings in a block on the "
                    f"average, fewer than the {least} unknowns of each; choose a coarser grid or "
                    "a lower rank, or fit with Gibbs"
                )

    def _exact(self, train: Ratings) -> Posterior:
        assert self.burn_in is not None
        keep = None if self.keep is None else min(self.keep, self.sweeps - self.burn_in)
        sampler = Gibbs(
            self.model,
            sweeps=self.sweeps,
            burn_in=self.burn_in,
            chains=1,
            until="sweeps",
            seed=self.seed,
            threads=self.threads,
            keep=keep,
        )
        fit = sampler.fit(train)
        if fit.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        return fit.posterior

    def propagate(self, train: Ratings, clock: Clock) -> Posterior:
        """The three phases, and draws from the product."""
        users = Deal.of(train.by_user.counts, self.grid[0], self.order)
        items = Deal.of(train.by_item.counts, self.grid[1], self.order)
        mean, burn_in, engine = train.mean, self.burn_in, find_engine(self.engine)
        assert burn_in is not None

        def job(i: int, j: int) -> Job:
            # column 0 is where users begin, row 0 where items do
            return Job(
                self.model,
                i * self.grid[1] + j,
                cut(train, users, items, i, j),
                mean,
                self.seed,
                self.sweeps,
                burn_in,
                min(AVERAGED, self.sweeps - burn_in),
                done[i, 0].user if j else None,
                done[0, j].item if i else None,
            )

        done: dict[Grid, BlockPosterior] = {}
        blocks = int(np.prod(self.grid))
        with engine.shared():
            for phase in phases(self.grid):
                found = engine.map(run_block, (job(i, j) for i, j in phase))
                done.update(zip(phase, found, strict=True))
                clock.stops(Progress(0, 1, len(done), blocks, clock.seconds, None, stage="blocks"))
        rows = multiply(done, self.grid, users, items)
        keep = self.keep or affordable(self.model, train, KEPT)
        noise_variance = np.average(
            [b.noise_variance for b in done.values()],
            axis=0,
            weights=[b.size for b in done.values()],
        )
        draws, centre = draw_product(self.model, rows, noise_variance, keep, self.seed)
        return Posterior.of(self.model, train, draws, centre)


def phases(grid: Grid) -> list[list[Grid]]:
    """The blocks of each phase: the first; its row and its column; all others."""
    rows, columns = range(1, grid[0]), range(1, grid[1])
    beside = [(i, 0) for i in rows] + [(0, j) for j in columns]
    return [[(0, 0)], beside, [(i, j) for i in rows for j in columns]]


def multiply(
    done: Mapping[Grid, BlockPosterior], grid: Grid, users: Deal, items: Deal
) -> dict[Name, RowGaussians]:
    """Each row's product over its blocks, in the order of the ratings' rows."""
    out: dict[Name, RowGaussians] = {}
    for name, deal, (groups, others) in (("user", users, grid), ("item", items, grid[::-1])):
        size = done[0, 0].user.mean.shape[1]
        mean = np.empty((len(deal.group), size))
        cov = np.empty((len(deal.group), size * (size + 1) // 2))
        for k in range(groups):
            line = [done[(k, m) if name == "user" else (m, k)] for m in range(others)]
            rows = [block.user if name == "user" else block.item for block in line]
            whole = product(rows[0], rows[1:])
            mean[deal.group == k], cov[deal.group == k] = whole.mean, whole.cov
        out[name] = RowGaussians(mean, cov)  # type: ignore[index]
    return out


def draw_product(
    model: Model, rows: Mapping[Name, RowGaussians], noise_variance: Array, count: int, seed: int
) -> tuple[dict[str, NDArray[np.float32]], State]:
    """Draw rows, the priors that such rows have, and tau; returns draws and the means of all."""
    sides = {name: _centre_side(model, name, rows[name]) for name in SIDES}
    centre = State(sides["user"], sides["item"], float(1 / noise_variance.mean()))
    out = {
        name: np.repeat(np.asarray(values, np.float32)[None], count, axis=0)
        for name, values in to_arrays(centre).items()
    }
    draws = [Draws(seed, number) for number in range(count)]
    out["tau"][:, 0] = 1 / noise_variance[np.arange(count) * len(noise_variance) // count]
    for name in SIDES:
        add_noise(
            out[f"{name}.x"], rows[name].cov, [stream(d, name, "product_rows") for d in draws]
        )
        for k, one in enumerate(draws):
            x = out[f"{name}.x"][k].astype(float)
            for number, group in enumerate(model.groups(name)):
                if group.hyper is not None:
                    columns = slice(group.first, group.end)
                    learned = conditionals.hyper(group, x, np.ones(len(x)))
                    mu, Lambda = learned.sample(stream(one, name, "hyper", number))
                    out[f"{name}.mu"][k, columns] = mu
                    out[f"{name}.Lambda"][k, columns, columns] = Lambda
    return out, centre


def _centre_side(model: Model, name: Name, rows: RowGaussians) -> Side:
    """The means of one side, and of the prior that rows like these have."""
    n, size = rows.mean.shape
    x = np.zeros((n, padded(size + 1)))
    x[:, :size] = rows.mean
    side = Side(x, np.zeros(size), np.eye(size), np.ones(n), np.ones(n))
    for group in model.groups(name):
        columns = slice(group.first, group.end)
        if group.hyper is None:
            fix_hyper(model, side, group)
        else:
            learned = conditionals.hyper(group, rows.mean, np.ones(n), rows.cov)
            side.mu[columns] = learned.mean
            side.Lambda[columns, columns] = learned.expected_precision()
    return side
