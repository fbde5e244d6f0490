"""Mean-field variational inference: from every conditional it takes the moments."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import (
    check_choice,
    check_kind,
    check_length,
    check_number,
    check_seed,
    check_whole,
)
from bayesmf.choices import MOMENTS, PRIOR_SCALES, Form, Moments, PriorScale
from bayesmf.data.ratings import Ratings
from bayesmf.errors import OverfittingWarning
from bayesmf.fitted.base import Fitted
from bayesmf.fitted.explore.judge import test_error
from bayesmf.fitted.posterior import Posterior, affordable, draws_of
from bayesmf.inference import loop
from bayesmf.inference.loop import Callback, Clock, Patience, Progress, check_parts, record
from bayesmf.inference.map.fit import map_start
from bayesmf.inference.target import Target
from bayesmf.inference.variational.bound import Beliefs, log_weights, lower_bound
from bayesmf.inference.variational.draws import draw_from_q
from bayesmf.kernels.designs import expected_errors
from bayesmf.kernels.rows import OtherSide
from bayesmf.machine import check_threads, using
from bayesmf.model.data import Data
from bayesmf.model.designs import Name
from bayesmf.model.distributions import LOG_2PI, Gamma, NormalWishart, TruncatedGamma
from bayesmf.model.spec import Model, check_gaussian
from bayesmf.model.state import State, check_start, random_start
from bayesmf.random.philox import Counter
from bayesmf.sweep.algorithm import NO_DRAWS, Covariances
from bayesmf.sweep.sweep import sweep

Array = NDArray[np.float64]
KEPT = 50


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
        for mine in (data.user, data.item):
            cells, rows = model.size * (model.size + 1) // 2, len(mine.counts)
            own = np.zeros((rows, cells))
            cov = Covariances(own=own, logdet=np.zeros(rows), total=own)
            if mine.matrices:
                cov.total, cov.offset = np.zeros((rows, cells)), np.zeros((rows, cells))
            for counts in mine.column_counts:
                cov.W.append(np.zeros((len(counts), cells)))
                cov.W_logdet.append(np.zeros(len(counts)))
            self.beliefs[mine.name] = Beliefs(cov)

    def take(self, side: Name | None, what: str, conditional: Any, group: int = 0) -> Any:
        """The means, and the distribution is kept."""
        if side is None:
            self.tau = conditional
            return conditional.mean()
        q = self.beliefs[side]
        if isinstance(conditional, NormalWishart):
            (q.hyper if what == "hyper" else q.W_hyper)[group] = conditional
            return conditional.mean, conditional.expected_precision()
        setattr(q, what, conditional)
        if self.clamp and isinstance(conditional, TruncatedGamma):
            return np.clip(conditional.shape / conditional.rate, conditional.low, conditional.high)
        return conditional.mean()

    def counter(self, side: Name, what: str, group: int = 0) -> Counter:
        """Nothing is drawn."""
        return NO_DRAWS

    def covariances(self, side: Name) -> Covariances:
        """Kept for every row."""
        return self.beliefs[side].cov

    def seen_covariances(self, side: Name) -> Covariances:
        """What the others' updates see of them."""
        return self.beliefs[side].cov if self.second else Covariances()

    def alpha(self, side: Name) -> Array:
        """The mean of the rows' noise precisions under Q, whatever the updates use for it."""
        q = self.beliefs[side]
        return np.ones(len(q.cov.own)) if q.alpha is None else q.alpha.mean()

    def note_update(self, what: str) -> None:
        """Nothing is noted."""


@dataclass(repr=False)
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
        return {"inference": "vi", "sweeps": self.best, "stopped": self.stopped}


@dataclass(frozen=True)
class Variational:
    """Mean-field variational inference: ``Variational(model).fit(train, test)``.

    Starts from a MAP estimate unless another start is given. ``prior="map-driven"`` sets the
    scale of the Gaussian-Wishart priors from that start, as the paper does. Ends when the bound
    rises by less than ``tolerance`` of itself, or when the validation error has risen for long.
    """

    model: Model = field(default_factory=Model)
    _: KW_ONLY
    sweeps: int = 100  # updates of everything, at most
    tolerance: float = 1e-6  # of the bound's rise, as a share of it
    prior: PriorScale = "default"  # scale of the features' hyperprior
    moments: Moments = "second"  # first: without covariances, as printed
    clamp: bool = False  # truncated precisions by clamping, as printed
    seed: int = 0  # of the start, and of the draws from Q
    threads: int | None = None  # None: all
    keep: int | None = None  # draws from Q; 50, or fewer on large data

    def __post_init__(self) -> None:
        check_kind("model", self.model, Model, "a Model, such as Variational(Model())")
        object.__setattr__(self, "model", check_gaussian(self.model, "variational inference"))
        check_threads(self.threads)
        check_choice("prior", self.prior, PRIOR_SCALES)
        check_choice("moments", self.moments, MOMENTS)
        check_length(self.sweeps)
        check_seed(self.seed)
        check_number("tolerance", self.tolerance)
        check_kind("clamp", self.clamp, bool, "True or False")
        if self.keep is not None:
            check_whole("keep", self.keep, 2)

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
        check_parts(train, self.model, test=test, validation=validation)
        model = self.model.settle(train)
        with using(self.threads):
            clock = Clock(callbacks, budget, patience)
            if start == "map":
                start = map_start(
                    model, self.seed, self.threads, train, validation, clock, clock.left
                )
            data = Data.of(train, model)
            state = (
                random_start(model, data, self.seed)
                if start == "random"
                else check_start(start, model, data)
            )
            if self.prior == "map-driven":
                model = map_driven(model, state)
            run = _Updates(self, model, data, state, patience)
            run.watch(train, test, validation)
            loop.run(run, clock)
            fit = run.make_fit(clock)
        fit.threads = self.threads
        keep = self.keep or affordable(self.model, train, KEPT)
        held = test, validation

        def make_draws(done: VariationalFit) -> Posterior:
            with loop.computable():
                draws = draw_from_q(
                    done.model, done.state, done.q.beliefs, done.q.tau, keep, self.seed
                )
            return Posterior.of(done.model, train, draws, done.state, held)

        fit.made = make_draws
        centre = Posterior.of(fit.model, train, draws_of(fit.state), fit.state)
        fit.test_rmse = test_error(centre, test, self.threads)
        return fit


class _Updates:
    """One update of everything after the other, and what each leaves in the curves."""

    def __init__(
        self, settings: Variational, model: Model, data: Data, state: State, patience: int
    ) -> None:
        self.settings, self.model, self.data, self.state = settings, model, data, state
        self.q = MeanField(model, data, settings.moments, settings.clamp)
        self.targets: dict[str, Target] = {}
        self.held: Data | None = None
        self.trace: dict[str, list[float]] = {}
        self.waiting = Patience(patience, least=0.0)
        self.best: tuple[int, State, MeanField] | None = None
        self.done, self.ended = 0, ""

    def watch(self, train: Ratings, test: Ratings | None, validation: Ratings | None) -> None:
        """Follow the errors on these ratings."""
        parts = {"train": train, "test": test, "validation": validation}
        self.targets = {
            name: Target(r, self.data, self.model)
            for name, r in parts.items()
            if r is not None and len(r)
        }
        if test is not None and len(test):
            self.held = Data.of(test, self.model, self.data.mean)

    @property
    def finished(self) -> bool:
        """Whether all updates are done, or more would not help."""
        return bool(self.ended) or self.done >= self.settings.sweeps

    def step(self) -> None:
        """One update of everything."""
        total = sweep(self.model, self.data, self.state, self.q)
        self.done += 1
        record(self.trace, self._measure(total))
        record(
            self.trace, {f"{name} rmse": t.error(self.state) for name, t in self.targets.items()}
        )
        judged = self.trace.get("validation rmse")
        if judged:
            if self.waiting.ends(judged[-1]):
                self.ended = "the validation error has stopped falling"
            if self.waiting.at == self.waiting.seen:
                self.best = (self.done, copy.deepcopy(self.state), copy.deepcopy(self.q))
        second = self.settings.moments == "second"
        if not self.ended and second and self._settled():
            self.ended = "the bound has settled"

    def _settled(self) -> bool:
        """Whether the bound rises by less than the tolerance, as a share of it in model units."""
        bounds, unit = self.trace["bound"], float(self.model.units[0])
        whole = abs(bounds[-1] + self.data.size * np.log(unit))
        return len(bounds) > 1 and abs(bounds[-1] - bounds[-2]) <= self.settings.tolerance * whole

    def progress(self, seconds: float) -> Progress:
        """For the callbacks."""
        last = {name: values[-1] for name, values in self.trace.items()}
        return Progress(
            0,
            1,
            self.done,
            self.settings.sweeps,
            seconds,
            last.get("test rmse"),
            last.get("validation rmse"),
            "updating",
            self.state,
        )

    def _measure(self, total: float) -> dict[str, float]:
        model, data, state, q = self.model, self.data, self.state, self.q
        if not q.second or q.clamp:  # the updates' errors are not those of Q
            total = expected_total(data, state, q)
        bound = lower_bound(model, data, state, q.beliefs, q.tau, total)
        facts = {"bound": bound, "noise precision": state.tau}
        if self.held is not None:
            facts["test bound"] = (
                bound
                + _log_likelihood(self.held, state, q)
                - _log_likelihood(data, state, q, total)
            )
        if model.precision != "constant":
            for name, side in (("user", state.user), ("item", state.item)):
                facts[f"{name} precision, least"] = float(side.alpha.min())
                facts[f"{name} precision, most"] = float(side.alpha.max())
        return facts

    def make_fit(self, clock: Clock) -> VariationalFit:
        """What is left at the end: the best update by validation, or the last."""
        if not self.done:
            raise KeyboardInterrupt
        number, state, q = self.best or (self.done, self.state, self.q)
        _warn_of_overfitting(self.trace["bound"], number)
        target = self.targets.get("test")
        return VariationalFit(
            self.model,
            state,
            q,
            self.trace,
            None if target is None else target.error(state),
            self.done,
            number,
            clock.seconds,
            clock.reason or self.ended,
            None if target is None else target.predict(state),
        )


def expected_total(data: Data, state: State, q: MeanField) -> float:
    """sum <alpha_i><beta_j> E_ij over any ratings of the same users and items."""
    out = np.empty(len(state.user.x))
    known = OtherSide.of(state.item.x, q.alpha("item"), q.beliefs["item"].cov.total)
    expected_errors(
        data.user.observed,
        state.user.x,
        q.beliefs["user"].cov.total,
        known,
        state.user.size,
        state.width(),
        out,
    )
    return float(q.alpha("user") @ out)


def _log_likelihood(data: Data, state: State, q: MeanField, total: float | None = None) -> float:
    """E_Q log p(R | parameters)."""
    if total is None:
        total = expected_total(data, state, q)
    logs = data.size * (float(q.tau.mean_log()[0]) - LOG_2PI) - state.tau * total
    logs += log_weights(data)
    for side in (data.user, data.item):
        alpha = q.beliefs[side.name].alpha
        if alpha is not None:
            logs += float(side.counts @ alpha.mean_log())
    return 0.5 * logs


def map_driven(model: Model, state: State) -> Model:
    """The model whose prior scale has the features' sizes at ``state``.

    scale_0^-1 = 1/2 diag(sum_i U_i U_i') + 1/2 diag(sum_j V_j V_j')
    """
    columns = slice(model.first_shifted, model.size)
    names: tuple[Name, Name] = ("user", "item")
    sides = [(state.sides(name)[0], model.has_own(name)) for name in names]
    # a row without features of its own has those of its side features
    rows = [(side.own if own else side.x)[:, columns] for side, own in sides]
    squares = sum((values**2).sum(axis=0) for values in rows)
    squares = np.maximum(squares, np.finfo(float).tiny) / model.units[columns] ** 2
    scale = tuple(float(v) for v in 2 / squares)
    if not scale:
        return model
    return replace(model, hyper=replace(model.hyper, feature_scale=scale))


def _warn_of_overfitting(bounds: list[float], turned: int) -> None:
    if bounds[-1] > bounds[turned - 1]:
        warnings.warn(
            f"the validation error was least at update {turned} and has risen since, while the "
            "lower bound still rises: Q overfits; the result is that of the best update",
            OverfittingWarning,
            stacklevel=2,
        )
