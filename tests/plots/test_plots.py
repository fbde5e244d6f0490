"""What a fit draws is what it says elsewhere; and short words where an object is shown."""

from __future__ import annotations

import io
import subprocess
import sys

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from rich.console import Console
from scipy.integrate import quad

import bayesmf
from bayesmf import DataError, Gibbs, Model, ProgressBar
from bayesmf.plots.look import LOOK, PALETTE


@pytest.fixture(scope="module")
def parts(tiny_ratings):
    return tuple(bayesmf.split(bayesmf.load(tiny_ratings), "paper", seed=0))


@pytest.fixture(scope="module")
def fit(parts):
    return Gibbs(Model(2), sweeps=20, chains=2, threads=1).fit(*parts)


@pytest.fixture
def ax():
    """Axes of a figure that pyplot does not know."""
    return Figure().subplots()


def test_the_chains_are_drawn_after_the_warm_up(fit, ax):
    assert fit.plot.trace(ax=ax) is ax
    assert [line.get_color() for line in ax.lines] == list(PALETTE[:2])
    for line, chain in zip(ax.lines, fit.traces["noise precision"], strict=True):
        assert np.array_equal(line.get_ydata(), chain[fit.burn_in :])
    worst = fit.plot.trace("predictions", ax=Figure().subplots()).lines
    every = fit.traces["predictions"][:, fit.burn_in :]
    apart = np.abs(every[0].mean(0) - every[1].mean(0)) / every.std((0, 1))
    assert np.allclose(worst[0].get_ydata(), every[0, :, apart.argmax()])


def test_the_calibration_passes_through_the_coverage_of_evaluate(fit, parts, ax):
    fit.plot.calibration(ax=ax)  # on what was held out: the test ratings
    x, y = ax.lines[1].get_data()
    facts = fit.evaluate(parts[1])
    for level in (0.5, 0.8, 0.95):
        share = y[np.argmin(np.abs(x - level))]
        assert share == pytest.approx(facts[f"coverage_{100 * level:.0f}"], abs=1e-12)
    given = fit.plot.calibration(parts[0], ax=Figure().subplots()).lines[1].get_ydata()
    assert not np.array_equal(given, y)


def test_errors_by_frequency_are_those_of_evaluate(fit, parts, ax):
    fit.plot.by_frequency(ax=ax)
    rows = fit.evaluate(parts[1])["by_user_frequency"]
    assert np.array_equal(ax.lines[0].get_ydata(), [row["rmse"] for row in rows])
    assert [text.get_text() for text in ax.get_xticklabels()] == [r["user_ratings"] for r in rows]
    covered = fit.plot.by_frequency(measure="coverage_80", ax=Figure().subplots())
    assert covered.lines[1].get_ydata() == [0.8, 0.8]
    with pytest.raises(DataError, match="measure='depth': choose one of rmse, mae"):
        fit.plot.by_frequency(measure="depth", ax=ax)


@pytest.mark.parametrize("what", ["noise", "user", "item"])
def test_densities_are_densities(fit, what, ax):
    """The prior integrates to 1 over the noise and over precisions; so does the histogram."""
    from bayesmf.plots import fits

    kept = {}
    draw = fits.prior_posterior

    def spy(axes, draws, prior, label):
        kept.update(prior=prior, draws=draws)
        return draw(axes, draws, prior, label)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fits, "prior_posterior", spy)
        fit.plot.prior_posterior(what, ax=ax)
    whole = quad(lambda x: float(kept["prior"](np.array(x))), 1e-3, 60, limit=400)[0]
    assert whole == pytest.approx(1, abs=2e-3)
    assert sum(bar.get_height() * bar.get_width() for bar in ax.patches) == pytest.approx(1)
    if what == "noise":
        tau = np.asarray(fit.posterior.draws["tau"], float).ravel()
        assert np.allclose(kept["draws"], tau**-0.5)


def test_a_user_has_the_items_that_are_recommended(fit, parts, ax):
    user = parts[0].users.values[4]
    fit.plot.user(user, 5, ax=ax)
    table = fit.recommend([user], 5)
    assert [text.get_text() for text in ax.get_yticklabels()] == table["item"].to_pylist()
    drawn = next(line for line in ax.lines if line.get_label() == "mean").get_xdata()
    assert np.allclose(drawn, np.clip(table["score"].to_numpy(), 1, 5), atol=1e-4)
    outer, inner = (
        np.array([[p.vertices[0, 0], p.vertices[1, 0]] for p in c.get_paths()])
        for c in ax.collections
    )
    assert (outer[:, 0] <= inner[:, 0]).all()
    assert (inner[:, 1] <= outer[:, 1]).all()
    assert outer.min() >= 1
    assert outer.max() <= 5


def test_titles_stand_for_ids_and_are_no_formulas(fit, parts, ax):
    user, item = parts[0].users.values[4], parts[0].items.values[3]
    first, second = fit.recommend([user], 2)["item"].to_pylist()
    named = fit.with_titles(items={first: "$ and $_", item: "Three"})
    named.plot.user(user, 2, ax=ax)
    second = "Three" if second == item else second
    assert [text.get_text() for text in ax.get_yticklabels()] == [r"\$ and \$_", second]
    ax.figure.canvas.draw()
    ax.clear()
    named.plot.item(item, ax=ax)
    assert ax.get_xlabel() == "rating of Three"


def test_an_item_has_the_ratings_that_it_was_given(fit, parts, ax):
    item = parts[0].items.values[3]
    fit.plot.item(item, ax=ax)
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(2, 5)
    rows = parts[0].by_item
    given = rows.values[rows.starts[3] : rows.starts[4]]
    assert np.allclose(heights[0], [np.mean(given == level) for level in range(1, 6)])
    assert heights[1].sum() == pytest.approx(1)
    with pytest.raises(DataError, match="the item 'nothing' was not in training"):
        fit.plot.item("nothing", ax=ax)


def test_new_axes_have_the_look_of_the_report(fit):
    ax = fit.plot.trace()
    assert not ax.spines["top"].get_visible()
    assert LOOK["axes.spines.top"] is False
    pyplot.close(ax.figure)
    assert mpl.rcParams["axes.spines.top"]  # what others draw is left alone


def test_what_cannot_be_drawn_is_told(parts):
    point = bayesmf.MAP(Model.paper("none"), penalty=5.0, threads=1).fit(parts[0])
    with pytest.raises(DataError, match="no chains to draw.*inference='gibbs'"):
        point.plot.trace()
    with pytest.raises(DataError, match="held no ratings out.*test=RATINGS"):
        point.plot.calibration()
    with pytest.raises(DataError, match="one precision for all; draw 'noise'"):
        point.plot.prior_posterior("user")
    assert "<img" not in point._repr_html_()


def test_a_notebook_shows_the_verdict_and_small_drawings(fit):
    shown = fit._repr_html_()
    assert "not converged" in repr(fit) or "converged" in repr(fit)
    assert shown.count("<img") == 2
    assert "120 users, 50 items" in shown
    assert "predictions have R-hat" in shown
    assert "http" not in shown
    assert "<script" not in shown


def test_every_object_is_shown_in_a_few_words(fit, parts):
    """Also with attributes of many columns, and with ratings of many users."""
    many = {"item": parts[0].items.values.tolist()}
    many |= {f"column {k}": np.arange(50.0) % (k + 2) for k in range(40)}
    table = bayesmf.Attributes.from_frame(pa.table(many))
    model = Model(2, item_designs=(table,))
    objects = [*parts, fit, fit.posterior, fit.states, table, model, Gibbs(model), fit.plot]
    objects += [fit.diagnostics().verdict, bayesmf.kfold(parts[0])[0]]
    for each in objects:
        assert len(repr(each)) < 1000, type(each)


def test_a_bar_follows_a_fit_and_a_search(parts):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with ProgressBar(console) as bar:
        Gibbs(Model(0), sweeps=4, chains=1, threads=1).fit(parts[0], callbacks=[bar])
        bar._bar.refresh()
        assert "sampling: sweep 4 of 4" in screen.getvalue()
        bayesmf.tune(parts[0], ranks=[0], sweeps=4, chains=1, threads=1, fits=1, refit=False,
                     progress=bar)  # fmt: skip
        bar._bar.refresh()
    assert "rank 0" in screen.getvalue()


def test_what_takes_long_to_load_is_loaded_when_something_is_drawn():
    slow = {"matplotlib", "scipy.stats", "jinja2"}
    code = f"import sys, bayesmf.fitted.base; print(bool({slow} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
