"""Mean-field variational inference: from every conditional it takes the moments."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, OverfittingWarning
from bayesmf.fit.fitted import Fitted
from bayesmf.fit.posterior import Posterior, affordable
from bayesmf.inference.loop import Callback, Clock, Patience, Progress, check_parts, record
from bayesmf.inference.map.fit import map_start
from bayesmf.inference.target import Target
from bayesmf.inference.variational.bound import Beliefs, lower_bound
from bayesmf.inference.variational.draws import draws_from
from bayesmf.kernels.designs import expected_errors
from bayesmf.kernels.rows import OtherSide
from bayesmf.machine import check_threads, using
from bayesmf.model.distributions import LOG_2PI, Gamma, NormalWishart, TruncatedGamma
from bayesmf.model.spec import Model
from bayesmf.model.state import Data, Name, State, checked_start, random_start
from bayesmf.random.draws import Draws
from bayesmf.random.philox import Counter
from bayesmf.sweep.algorithm import Covariances, Form
from bayesmf.sweep.sweep import sweep

Array = NDArray[np.float64]
KEPT = 50
NO_DRAWS = Draws(0).counter()


class MeanField:
    """Q = product over rows, side features, hyper-parameters and precisions.

    A row's bias and features are one Gaussian. ``moments="first"`` leaves every covariance out of
    the others' updates, as the paper prints them. ``clamp`` replaces the mean of a truncated
    precision by shape / rate cut to the bounds, as the paper does.
    """

    sample = False
    form: Form = "non-centred"

    def __init__(self, model: Model, data: Data, moments: str = "second", clamp: bool = False):
        self.second, self.clamp = moments == "second", clamp
        self.beliefs: dict[Name, Beliefs] = {}
        self.tau = Gamma(np.ones(1), np.ones(1))
        for mine, other in ((data.user, data.item), (data.item, data.user)):
            cells = model.size * (model.size + 1) // 2
            rows, others = len(mine.counts), len(other.counts)
            own = np.zeros((rows, cells))
            cov = Covariances(own=own, logdet=np.zeros(rows), total=own)
            if model.has_side(mine.name):
                cov.total, cov.offset = np.zeros((rows, cells)), np.zeros((rows, cells))
                cov.W, cov.W_logdet = np.zeros((others, cells)), np.zeros(others)
            self.beliefs[mine.name] = Beliefs(cov)

    def take(self, side: Name | None, what: str, conditional: Any, group: int = 0) -> Any:
        """The means, and the distribution is kept."""
        if side is None:
            self.tau = conditional
            return conditional.mean()
        q = self.beliefs[side]
        if isinstance(conditional, NormalWishart):
            if what == "hyper":
                q.hyper[group] = conditional
            else:
                q.W_hyper = conditional
            return conditional.mean, conditional.expected_precision()
        setattr(q, what, conditional)
        if self.clamp and isinstance(conditional, TruncatedGamma):
            return np.clip(conditional.shape / conditional.rate, conditional.low, conditional.high)
        return conditional.mean()

    def counter(self, side: Name, what: str) -> Counter:
        """Nothing is drawn."""
        return NO_DRAWS

    def covariances(self, side: Name) -> Covariances:
        """Kept for every row."""
        return self.beliefs[side].cov

    def known(self, side: Name) -> Covariances:
        """What the others' updates see of them."""
        return self.beliefs[side].cov if self.second else Covariances()

    def noise(self, side: Name) -> Array:
        """The mean of the rows' noise precisions under Q, whatever the updates use for it."""
        q = self.beliefs[side]
        return np.ones(len(q.cov.own)) if q.noise is None else q.noise.mean()

    def updated(self, what: str) -> None:
        """Called after each block."""


@dataclass
class VariationalFit(Fitted):
    """What variational inference leaves: the moments of Q, and what happened at every update."""

    model: Model  # with the prior that was used
    state: State  # the means
    q: MeanField  # covariances, and the distributions of everything else
    trace: dict[str, list[float]]  # by update: bound, errors, ranges of the precisions
    test_rmse: float | None
    sweeps: int  # updates done
    best: int  # the update, counted from 1, whose state this is
    seconds: float
    stopped: str  # why it ended before its time, or nothing
    predictions: Array | None = None  # of the test ratings
    made: Callable[[VariationalFit], Posterior] | None = None

    @cached_property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """The means, and draws from Q for what means do not tell."""
        assert self.made is not None
        return self.made(self)

    def _facts(self) -> Mapping[str, Any]:
        return {"inference": "vi", "updates": self.best, "stopped": self.stopped}


@dataclass(frozen=True)
class Variational:
    """Mean-field variational inference: ``Variational(model).fit(train, test)``.

    Starts from a MAP estimate unless another start is given. ``prior="map-driven"`` sets the
    scale of the Gaussian-Wishart priors from that start, as the paper does. Ends when the bound
    rises by less than ``tolerance`` of itself, or when the validation error has risen for long.
    """

    model: Model = field(default_factory=Model.best)
    updates: int = 100  # at most
    tolerance: float = 1e-6  # of the bound's rise, as a share of it
    prior: Literal["default", "map-driven"] = "default"  # scale of the features' hyperprior
    moments: Literal["second", "first"] = "second"  # first: without covariances, as printed
    clamp: bool = False  # truncated precisions by clamping, as printed
    seed: int = 0  # of the start, and of the draws from Q
    threads: int | None = None  # None: all
    keep: int | None = None  # draws from Q; 50, or fewer on large data

    def __post_init__(self) -> None:
        check_threads(self.threads)
        for name, allowed in (
            ("prior", ("default", "map-driven")),
            ("moments", ("second", "first")),
        ):
            if getattr(self, name) not in allowed:
                raise DataError(
                    f"{name}={getattr(self, name)!r}: choose one of {', '.join(allowed)}"
                )
        if self.keep is not None and self.keep < 2:
            raise DataError(f"keep={self.keep}: draw 2 or more from Q")
        if self.updates < 1:
            raise DataError(f"updates={self.updates}: choose 1 or more")

    def fit(
        self,
        train: Ratings,
        test: Ratings | None = None,
        *,
        start: State | Literal["map", "random"] = "map",
        validation: Ratings | None = None,
        patience: int = 10,
        callbacks: Sequence[Callback] = (),
        budget: float | None = None,
    ) -> VariationalFit:
        """Optimise Q, and return its moments.

        - ``test``: its error is recorded at every update.
        - ``start``: a state, a MAP estimate made for it, or random values.
        - ``validation``, ``patience``: the run ends when the error on these ratings has not fallen
          for so many updates, and the result is the update with the least error there.
        - ``callbacks``, ``budget``: as for ``Gibbs.fit``.
        """
        check_parts(train, test=test, validation=validation)
        with using(self.threads):
            clock = Clock(callbacks, budget)
            if start == "map":
                start = map_start(self.model, self.seed, self.threads, train, validation, clock,
                                  clock.left)  # fmt: skip
            data = Data.of(train, self.model)
            state = (
                random_start(self.model, data, self.seed)
                if start == "random"
                else checked_start(start, self.model, data)
            )
            model = self.model
            if self.prior == "map-driven":
                model = map_driven(model, state)
            fit = self._run(model, data, state, train, test, validation, patience, clock)
        fit.threads = self.threads
        keep = self.keep or affordable(self.model, train, KEPT)
        fit.made = lambda done: Posterior.of(
            done.model, train, draws_from(done.model, done.state, done.q.beliefs, done.q.tau,
                                          keep, self.seed), done.state,
        )  # fmt: skip
        return fit

    def _run(
        self, model: Model, data: Data, state: State, train: Ratings, test: Ratings | None,
        validation: Ratings | None, patience: int, clock: Clock,
    ) -> VariationalFit:  # fmt: skip
        q = MeanField(model, data, self.moments, self.clamp)
        sets = {"train": train, "test": test, "validation": validation}
        targets = {name: Target(r, data) for name, r in sets.items() if r is not None and len(r)}
        held = Data.of(test, model, data.mean) if test is not None and len(test) else None
        trace: dict[str, list[float]] = {}
        waiting = Patience(patience, least=0.0)
        best: tuple[int, State, MeanField] | None = None
        done = 0
        try:
            for update in range(1, self.updates + 1):
                total = sweep(model, data, state, q)
                record(trace, self._facts(model, data, state, q, total, held))
                record(trace, {f"{name} rmse": t.error(state) for name, t in targets.items()})
                done = update
                judged = trace.get("validation rmse")
                progress = Progress(0, 1, update, self.updates, clock.seconds,
                                    trace["test rmse"][-1] if held else None,
                                    judged[-1] if judged else None, "updating", state)  # fmt: skip
                if judged:
                    ends = waiting.ends(judged[-1])
                    if waiting.at == waiting.seen:
                        best = (update, copy.deepcopy(state), copy.deepcopy(q))
                    if ends:
                        clock.reason = "the validation error has stopped falling"
                if clock.reason or clock.stops(progress):
                    break
                if self.moments == "second" and _settled(trace["bound"], self.tolerance):
                    clock.reason = "the bound has settled"
                    break
        except KeyboardInterrupt:
            if not done:
                raise
            clock.reason = "interrupted"
        number, state, q = best or (done, state, q)
        _warn_of_overfitting(trace["bound"], number)
        rmse = targets["test"].error(state) if held else None  # an update may be half done
        shown = targets["test"].predict(state) if held else None
        return VariationalFit(model, state, q, trace, rmse, done, number, clock.seconds,
                              clock.reason, shown)  # fmt: skip

    def _facts(
        self, model: Model, data: Data, state: State, q: MeanField, total: float, held: Data | None
    ) -> dict[str, float]:
        if not q.second or q.clamp:  # the updates' errors are not those of Q
            total = expected_total(data, state, q)
        bound = lower_bound(model, data, state, q.beliefs, q.tau, total)
        facts = {"bound": bound, "noise precision": state.tau}
        if held is not None:
            facts["test bound"] = (
                bound + _log_likelihood(held, state, q) - _log_likelihood(data, state, q, total)
            )
        if model.precision != "constant":
            for name, side in (("user", state.user), ("item", state.item)):
                facts[f"{name} precision, least"] = float(side.noise.min())
                facts[f"{name} precision, most"] = float(side.noise.max())
        return facts


def expected_total(data: Data, state: State, q: MeanField) -> float:
    """sum <alpha_i><beta_j> E_ij over any ratings of the same users and items."""
    out = np.empty(len(state.user.x))
    known = OtherSide.of(state.item.x, q.noise("item"), q.beliefs["item"].cov.total)
    expected_errors(data.user.observed, state.user.x, q.beliefs["user"].cov.total, known,
                    state.user.size, state.width(), out)  # fmt: skip
    return float(q.noise("user") @ out)


def _log_likelihood(data: Data, state: State, q: MeanField, total: float | None = None) -> float:
    """E_Q log p(R | parameters)."""
    if total is None:
        total = expected_total(data, state, q)
    logs = data.size * (float(q.tau.mean_log()[0]) - LOG_2PI) - state.tau * total
    for side in (data.user, data.item):
        noise = q.beliefs[side.name].noise
        if noise is not None:
            logs += float(side.counts @ noise.mean_log())
    return 0.5 * logs


def map_driven(model: Model, state: State) -> Model:
    """The model whose prior scale has the features' sizes at ``state``.

    scale_0^-1 = 1/2 diag(sum_i U_i U_i') + 1/2 diag(sum_j V_j V_j')
    """
    columns = slice(model.first_side, model.size)
    names: tuple[Name, Name] = ("user", "item")
    sides = [(state.sides(name)[0], model.has_own(name)) for name in names]
    # a row without features of its own has those of its side features
    rows = [(side.own if own else side.x)[:, columns] for side, own in sides]
    squares = sum((values**2).sum(axis=0) for values in rows)
    scale = tuple(float(v) for v in 2 / np.maximum(squares, np.finfo(float).tiny))
    if not scale:
        return model
    return replace(model, hyper=replace(model.hyper, feature_scale=scale))


def _settled(bounds: list[float], tolerance: float) -> bool:
    return len(bounds) > 1 and abs(bounds[-1] - bounds[-2]) <= tolerance * abs(bounds[-1])


def _warn_of_overfitting(bounds: list[float], turned: int) -> None:
    if bounds[-1] > bounds[turned - 1]:
        warnings.warn(
            f"the validation error was least at update {turned} and has risen since, while the "
            "lower bound still rises: Q overfits; the result is that of the best update",
            OverfittingWarning,
            stacklevel=2,
        )
