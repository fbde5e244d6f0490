"""``fit.plot``: what there is to see of a fit; every method returns matplotlib axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import check_choice
from bayesmf.choices import DRAWN, Drawn
from bayesmf.data.pairs import Cells
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import generator
from bayesmf.errors import DataError, Option
from bayesmf.evaluation.diagnostics import PREDICTIONS, SUMMARIES
from bayesmf.evaluation.metrics import inside
from bayesmf.fitted.explore.judge import unseen
from bayesmf.fitted.posterior import Posterior
from bayesmf.model.likelihood import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
LEVELS = np.linspace(0.05, 0.95, 19)  # probabilities of the intervals that are looked at
STRANGERS = 500  # users who have not rated an item, of whom its predictions are drawn
SEEN_PAIRS = 20_000  # held-out ratings that are looked at, at most; so many say enough


class Plot:
    """Draws a fit: ``fit.plot.trace()``, and so on; ``ax`` takes axes to draw on.

    Methods that look at test ratings take those that the fit has held out, if none are given.
    """

    def __init__(self, fit: Any) -> None:
        self._fit = fit

    def __repr__(self) -> str:
        names = [name for name in vars(type(self)) if not name.startswith("_")]
        return f"fit.plot: {', '.join(names)}"

    @property
    def _posterior(self) -> Posterior:
        found: Posterior = self._fit.posterior
        return found

    def trace(self, name: str = SUMMARIES[0], *, ax: Axes | None = None) -> Axes:
        """Draw a quantity by sweep and chain.

        ``name`` is one of those in the table of ``fit.diagnostics()``: "noise precision", "mean log
        precision" or "predictor variance"; or "predictions", of which the one that has mixed worst
        is drawn.
        """
        from bayesmf.plots.fits import trace

        traces = self._fit._traces()
        if not traces:
            raise DataError(
                "there are no chains to draw: only Gibbs sampling leaves some; fit with "
                f"{Option('inference', 'gibbs')}"
            )
        check_choice("name", name, traces)
        values = np.asarray(traces[name], float)
        if name == PREDICTIONS:
            spread = np.ptp(values.mean(axis=1), axis=0) / np.maximum(values.std((0, 1)), 1e-12)
            values = values[..., int(spread.argmax())]
            name = "the prediction that mixes worst"
        return self._draw(ax, lambda axes: trace(axes, values, name))

    def calibration(self, test: Any = None, *, ax: Axes | None = None) -> Axes:
        """Draw how many test ratings lie inside intervals of each probability."""
        from bayesmf.plots.fits import calibration

        values, found = self._look(test)
        held = np.array([inside(values, found, level).mean() for level in LEVELS])
        return self._draw(ax, lambda axes: calibration(axes, LEVELS, held))

    def by_frequency(
        self,
        test: Any = None,
        measure: str = "rmse",
        *,
        bins: Sequence[int] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw a measure of ``fit.evaluate`` by how many ratings a user has."""
        from bayesmf.plots.fits import by_frequency

        facts = self._fit.evaluate(self._test(test), bins)
        rows = facts.pop("by_user_frequency")
        check_choice("measure", measure, facts)
        labels, values = [row["user_ratings"] for row in rows], [row[measure] for row in rows]
        what, wanted = measure.replace("_", " ").replace("rmse", "RMSE"), None
        if measure.startswith("coverage_"):
            wanted = float(measure.removeprefix("coverage_")) / 100
            what = f"share inside {100 * wanted:.0f} % intervals"
        return self._draw(ax, lambda axes: by_frequency(axes, labels, {what: values}, what, wanted))

    def prior_posterior(self, what: Drawn = "noise", *, ax: Axes | None = None) -> Axes:
        """Draw what was believed beforehand, and what the ratings have made of it.

        ``what`` is "noise", the standard deviation of a rating about its prediction; or "user" or
        "item", how precise the ratings of single users, or of single items, are.
        """
        from scipy.stats import gamma

        from bayesmf.plots.fits import prior_posterior

        check_choice("what", what, DRAWN)
        model, draws = self._posterior.model, self._posterior.draws
        if what == "noise":
            if model.likelihood.latent:
                raise DataError("the noise of latent ratings is fixed; draw 'user' or 'item'")
            shape, rate = model.priors.noise_shape, model.priors.noise_rate
            values = np.asarray(draws["tau"], float).ravel() ** -0.5
            label = "standard deviation of the noise"

            def prior(x: Array) -> Array:
                return np.asarray(2 * x**-3 * gamma.pdf(x**-2, shape, scale=1 / rate))
        else:
            if model.precision == "constant":
                raise DataError("this model has one precision for all; draw 'noise'")
            shape, rate = model.precision_prior
            values = np.asarray(draws[f"{what}.alpha"], float).ravel()
            label = f"precision of the ratings of one {what}"

            def prior(x: Array) -> Array:
                return np.asarray(gamma.pdf(x, shape, scale=1 / rate))

        return self._draw(ax, lambda axes: prior_posterior(axes, values, prior, label))

    def user(self, user: Any, n: int = 10, *, ax: Axes | None = None) -> Axes:
        """Draw the best ``n`` items for a user, with the 50 % and 90 % intervals of a rating."""
        from bayesmf.plots.fits import intervals

        posterior = self._posterior
        known = posterior.train is not None
        items = self._fit.recommend([user], n, exclude_seen=known)["item"].to_pylist()
        if not items:
            raise DataError(f"there is nothing left to recommend to the user {user!r}")
        pairs = [(user, item) for item in items]
        found = self._fit.predict(pairs, quantiles=(0.05, 0.25, 0.75, 0.95), clip=True)
        mean, *ends = (found[name].to_numpy() for name in ("mean", "q25", "q75", "q05", "q95"))
        scale = posterior.scale.low, posterior.scale.high
        inner, outer = (ends[0], ends[1]), (ends[2], ends[3])
        names = posterior.labels.call("item", items)
        return self._draw(ax, lambda axes: intervals(axes, names, mean, inner, outer, scale))

    def item(self, item: Any, *, ax: Axes | None = None) -> Axes:
        """Draw the ratings that an item has, and those that other users would give it.

        These are the predictions for up to 500 users who have not rated it, chosen at random.
        """
        from bayesmf.plots.fits import shares, shorten

        posterior = self._posterior
        row = int(posterior.row_of("item", [item])[0])
        if row < 0:
            raise DataError(f"the item {item!r} was not in training; fold it in first")
        if posterior.train is None:
            raise DataError("the training ratings, which are to be drawn, are not at hand")
        if not posterior.has_levels:
            raise DataError(f"the scale {posterior.scale} has no steps; draw users instead")
        rows, levels = posterior.train.by_item, posterior.levels
        mine = slice(rows.starts[row], rows.starts[row + 1])
        others = np.setdiff1d(np.flatnonzero(posterior.user_counts), rows.index[mine])
        keys = generator(0).random_raw(len(others))
        others = others[np.argsort(keys)[:STRANGERS]].astype(np.int32)
        given = np.abs(rows.values[mine, None].astype(float) - levels).argmin(axis=1)
        told = {f"{len(given):,} ratings given": np.bincount(given, minlength=len(levels))}
        values = {name: count / max(count.sum(), 1) for name, count in told.items()}
        if len(others):
            cells = Cells(others, np.full_like(others, row))
            values["expected of others"] = posterior.probabilities(cells).mean(axis=0)
        what = f"rating of {shorten(posterior.labels.call('item', [item])[0])}"
        return self._draw(ax, lambda axes: shares(axes, levels, values, what))

    def _draw(self, ax: Axes | None, draw: Callable[[Axes], Axes]) -> Axes:
        """Draw on the axes that are given, or on new ones."""
        import matplotlib as mpl

        from bayesmf.plots.look import LOOK, SIZE

        with mpl.rc_context(LOOK):
            if ax is None:
                from matplotlib import pyplot

                _, ax = pyplot.subplots(figsize=SIZE, layout="constrained")
            return draw(ax)

    def _test(self, given: Any) -> Ratings:
        """The test ratings: those given, or those that the fit has held out."""
        if given is not None:
            return given if isinstance(given, Ratings) else Ratings.from_frame(given)
        held = unseen(self._posterior)
        if held is None:
            raise DataError(
                "the fit has held no ratings out to look at; give some that it has not seen with "
                f"{Option('test', 'RATINGS')}"
            )
        return held

    def _look(self, given: Any) -> tuple[Array, Predictive]:
        """Test ratings and their predictions, of so many at most as say enough."""
        test, posterior = self._test(given), self._posterior
        posterior.check(test)
        if len(test) > SEEN_PAIRS:
            keys = generator(0).random_raw(len(test))
            test = test.select(keys <= np.sort(keys)[SEEN_PAIRS - 1])
        return np.asarray(test.values, float), posterior.predictive(posterior.cells(test))
