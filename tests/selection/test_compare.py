"""Fits side by side: the bootstrap of their differences, and leave-one-out scores."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import ndtr
from scipy.stats import norm

import bayesmf
from bayesmf import DataError, Gibbs, Model, compare
from bayesmf.cli.main import main
from bayesmf.evaluation.bootstrap import paired_difference
from bayesmf.evaluation.diagnostics import load_stats
from bayesmf.inference.map.fit import MAP
from bayesmf.selection.loo import largest_k, leave_one_out, log_likelihoods


@pytest.fixture(scope="module")
def parts(tiny_ratings):
    return tuple(bayesmf.split(bayesmf.load(tiny_ratings), "paper", seed=0))


@pytest.fixture(scope="module")
def fits(parts):
    """The biases alone, and rank 2, of which the ratings were made."""
    samplers = {"biases": Model(0), "rank 2": Model(2)}
    return {
        name: Gibbs(model, sweeps=60, chains=1, threads=1).fit(parts[0])
        for name, model in samplers.items()
    }


def test_differences_are_of_the_measures_of_evaluate(fits, parts):
    found = compare(fits, parts[1])
    each = {name: fit.evaluate(parts[1]) for name, fit in fits.items()}
    rows = {(row["model"], row["user_ratings"]): row for row in found.rows}
    for name, facts in each.items():
        for measure in ("rmse", "log_probability"):
            row = rows[name, "all"]
            assert row[measure] == pytest.approx(facts[measure], abs=1e-12)
            less = facts[measure] - each["biases"][measure]
            assert row[f"{measure}_difference"] == pytest.approx(less, abs=1e-12)
            assert row[f"{measure}_low"] <= less <= row[f"{measure}_high"]
        for part in facts["by_user_frequency"]:
            mine = rows[name, part["user_ratings"]]
            assert mine["rmse"] == pytest.approx(part["rmse"], abs=1e-12)
            assert mine["test_ratings"] == part["test_ratings"]
    assert (found.best, found.tied) == ("rank 2", [])  # the ratings have two features
    assert "rank 2 has the lowest test RMSE" in repr(found)
    assert found.table.num_rows == len(found.rows) == 2 * (1 + len(part_labels(each)))


def part_labels(each):
    return next(iter(each.values()))["by_user_frequency"]


def test_the_interval_is_that_of_resampled_users():
    """Against a plain loop over the same users; without pairing it would be much wider."""
    rng = np.random.default_rng(5)
    counts = rng.integers(1, 9, 80)
    hard = rng.gamma(2.0, 1.0, 80) * counts
    before, after = hard * rng.uniform(0.9, 1.1, 80), hard * rng.uniform(0.85, 1.0, 80)
    found = paired_difference(before, after, counts, np.sqrt, draws=300, seed=4)
    chosen = np.random.Generator(np.random.Philox(4)).integers(0, 80, (300, 80))
    looped = [
        np.sqrt(after[c].sum() / counts[c].sum()) - np.sqrt(before[c].sum() / counts[c].sum())
        for c in chosen
    ]
    assert found[1:] == pytest.approx(np.quantile(looped, (0.025, 0.975)), abs=1e-12)
    assert found.sign == -1
    assert paired_difference(before, before, counts).sign == 0
    assert np.isnan(paired_difference(before[:9], after[:9], counts[:9]).low)


def test_saved_fits_and_lists_are_the_same(fits, parts, tmp_path):
    for name, fit in fits.items():
        fit.save(tmp_path / name)
    paths = [tmp_path / name for name in fits]
    ours, saved = compare(list(fits.values()), parts[1]), compare(paths, parts[1])
    assert ours.models == ["fit 1", "fit 2"]
    assert saved.models == [str(path) for path in paths]
    for mine, theirs in zip(ours.rows, saved.rows, strict=True):
        assert mine["rmse"] == pytest.approx(theirs["rmse"], abs=1e-12)
    bayesmf.write(parts[1], tmp_path / "test.csv")
    words = ["compare", *map(str, paths), "--test", str(tmp_path / "test.csv")]
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["rows"][1]["rmse_low"] == pytest.approx(saved.rows[1]["rmse_low"], abs=1e-12)
    people = CliRunner().invoke(main, words, env={"COLUMNS": "200"}).output
    assert saved.words in people
    assert f"{saved.rows[1]['rmse']:.4f}" in people


def test_each_draw_explains_a_rating_as_the_model_says(fits, parts):
    """By the kept draws: N(r | mean + biases + features, 1 / (tau alpha beta)), and its steps."""
    fit, rows = fits["rank 2"], parts[0].by_user
    chosen = np.arange(0, len(parts[0]), 97)
    cells = rows.row_index[chosen], rows.index[chosen], rows.values[chosen].astype(float)
    density, score = log_likelihoods(fit.posterior, cells)
    for number in (0, len(fit.posterior) - 1):
        state = fit.posterior.drawn(number)
        for k, (i, j, value) in enumerate(zip(*cells, strict=True)):
            u, v = state.user.x[i, :3], state.item.x[j, :3]
            f = parts[0].mean + u[0] + v[0] + u[1:] @ v[1:]
            sd = (state.tau * state.user.alpha[i] * state.item.alpha[j]) ** -0.5
            assert density[number, k] == pytest.approx(norm(f, sd).logpdf(value), abs=1e-4)
            low = -np.inf if value == 1 else value - 0.5
            high = np.inf if value == 5 else value + 0.5
            chance = ndtr((high - f) / sd) - ndtr((low - f) / sd)
            assert np.exp(score[number, k]) == pytest.approx(chance, abs=1e-4)


def test_leaving_out_is_arviz_and_lowers_the_score(fits, parts):
    posterior, rows = fits["rank 2"].posterior, parts[0].by_user
    chosen = np.arange(0, len(parts[0]), 11)
    cells = rows.row_index[chosen], rows.index[chosen], rows.values[chosen].astype(float)
    density, score = log_likelihoods(posterior, cells)
    found = leave_one_out(posterior, chosen)
    theirs, k, _ = load_stats().loo(density.T[:, None, :])
    assert found.k == pytest.approx(k, abs=1e-9)
    # weights of our own score: those of arviz with the density in place of the probability
    lw, _ = load_stats().psislw(density.T)
    w = np.exp(lw - lw.max(axis=1, keepdims=True))
    again = np.log(np.sum(w * np.exp(density.T), axis=1) / w.sum(axis=1))
    assert again == pytest.approx(theirs, abs=1e-9)
    seen = np.log(np.mean(np.exp(score), axis=0))
    assert found.score.mean() < seen.mean() - 0.01


def test_without_a_test_set_the_better_model_is_found_too(fits):
    found = compare(fits, ratings=300)
    assert found.measures == ("loo",)
    assert (found.best, found.tied) == ("rank 2", [])
    assert repr(found) == repr(compare(fits, ratings=300))
    assert repr(found) != repr(compare(fits, ratings=300, seed=1))
    assert largest_k(100) == 0.5
    assert largest_k(10**6) == 0.7


def test_what_cannot_be_compared_is_told(fits, parts, tiny_ratings):
    train, test = parts
    with pytest.raises(DataError, match="1,7.. of the test ratings were in the training of biases"):
        compare(fits, train)
    other = Gibbs(Model(0), sweeps=80, chains=1, threads=1).fit(test)
    with pytest.raises(DataError, match="fit 2 was trained on other ratings than fit 1"):
        compare([fits["biases"], other])
    with pytest.raises(DataError, match="is one point.*compare on test ratings"):
        compare([MAP(Model.paper("none"), penalty=5.0, threads=1).fit(train)])
    with pytest.raises(TypeError, match="fit 1 is of type int; give a fit or its path"):
        compare([3])
    with pytest.raises(DataError, match="no fits to compare"):
        compare({})


def test_few_draws_are_refused_in_a_sentence(parts):
    few = Gibbs(Model(1), sweeps=20, burn_in=4, chains=1).fit(parts[0])
    with pytest.raises(DataError, match="keeps 16 draws, and weighing them takes 25 or more"):
        compare({"few": few})
