"""Ratings with weights through every inference, everyday use, files and the command line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import MAP, Gibbs, Propagation, Ratings, Variational, write
from bayesmf.cli.main import main
from bayesmf.data.pairs import Cells
from bayesmf.fitted.explain import AskedPair, shares
from oracle.checkpoints import Stop, content
from oracle.variants import VARIANTS, small_ratings

TRAIN = small_ratings(20, 12, seed=1, weighted=True)
PLAIN = bayesmf.Model.paper("no-side", rank=2)
PAIRS = [(u, i) for u in range(4) for i in range(4)]


def with_weights(ratings: Ratings, weights) -> Ratings:
    rows = ratings.by_user
    return Ratings.from_sorted(
        ratings.users, ratings.items, rows.row_index, rows.index, rows.values, rows.times,
        ratings.scale, weights=weights,
    )  # fmt: skip


def sampled(model=PLAIN, train=TRAIN, **options):
    return Gibbs(model, sweeps=4, burn_in=1, seed=4, chains=1, **options).fit(train)


ALGORITHMS = {
    "gibbs": lambda model, train: sampled(model, train),
    "vi": lambda model, train: Variational(model, sweeps=3).fit(train, start="random"),
    "map": lambda model, train: MAP(model, penalty=1.0, sweeps=3).fit(train),
    "map, momentum": lambda model, train: MAP(model, penalty=1.0, method="momentum", sweeps=5).fit(
        train
    ),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ["no side, robust", "both sides, joint bias"])
def test_weights_of_one_change_nothing_and_others_do(name, algorithm):
    """To rounding, which a few sweeps amplify by a few powers of ten; draws are single floats."""
    bare = with_weights(TRAIN, None)
    none, ones, others = (
        np.array(ALGORITHMS[algorithm](VARIANTS[name], train).predict(PAIRS)["mean"])
        for train in (bare, with_weights(bare, np.ones(len(bare))), TRAIN)
    )
    np.testing.assert_allclose(ones, none, rtol=1e-5, atol=1e-5)
    assert np.abs(others - none).max() > 1e-2


def test_one_block_of_propagation_has_the_bits_of_gibbs():
    fit = Propagation(PLAIN, grid=(1, 1), sweeps=4, burn_in=1, seed=4).fit(TRAIN)
    for name, values in sampled().posterior.draws.items():
        np.testing.assert_array_equal(fit.posterior.draws[name], values)
    grid = Propagation(PLAIN, grid=(2, 2), sweeps=4, burn_in=1, seed=4)
    one, other = (grid.fit(train).predict(PAIRS) for train in (TRAIN, with_weights(TRAIN, None)))
    assert not one.equals(other)


def test_a_run_goes_on_to_the_same_bits_with_the_same_weights_only(tmp_path):
    gibbs = Gibbs(PLAIN, sweeps=4, burn_in=1, chains=1, keep=2)
    whole = gibbs.fit(TRAIN)
    gibbs.fit(TRAIN, checkpoint=tmp_path / "c", every=0, callbacks=[Stop(2, "ask")])
    with pytest.raises(bayesmf.DataError, match="training"):
        gibbs.fit(with_weights(TRAIN, None), checkpoint=tmp_path / "c", resume=True)
    assert content(gibbs.fit(TRAIN, checkpoint=tmp_path / "c", resume=True)) == content(whole)


def test_a_saved_fit_has_the_weights(tmp_path):
    fit = sampled()
    fit.save(tmp_path / "model")
    again = bayesmf.load_model(tmp_path / "model")
    assert again.posterior.train == fit.posterior.train
    assert np.array_equal(again.posterior.train.by_user.weights, TRAIN.by_user.weights)


def newcomer(weights) -> Ratings:
    return Ratings.from_triplets(users=[700] * 3, items=[1, 2, 3], ratings=[2.0, -1.0, 1.0],
                                 weights=weights, scale=(-9, 9))  # fmt: skip


@pytest.mark.parametrize("algorithm", ["gibbs", "vi", "map"])
def test_a_newcomer_follows_the_heavy_ratings(algorithm):
    """In every draw, what weighs a million times as much is fitted nearly as it was rated."""
    fit = ALGORITHMS[algorithm](PLAIN, TRAIN)
    for weights, least in (([1e6, 1, 1], 0), ([1, 1e6, 1], 1)):
        known = fit.fold_in(newcomer(weights)).posterior
        x = known.draws["user.x"][:, known.row_of("user", [700])]
        y = known.draws["item.x"][:, known.row_of("item", [1, 2, 3])]
        fitted = known.mean + x[..., 0] + y[..., 0] + (x * y)[..., 1:].sum(axis=2)
        errors = np.abs(fitted - [2.0, -1.0, 1.0]).max(axis=0)
        assert errors[least] < 1e-3
        assert np.delete(errors, least).min() > 1e-2
    one, none = (fit.fold_in(newcomer(w)).predict([(700, 0)]) for w in ([1, 1, 1], None))
    np.testing.assert_allclose(one["mean"], none["mean"], rtol=1e-5)


@pytest.mark.parametrize("side", ["user", "both"])
def test_an_update_keeps_old_weights_and_takes_in_new_ones(side):
    fit = sampled()
    for given, weight in (([1e6], 1e6), (None, 1.0)):
        news = Ratings.from_triplets(users=[0], items=[10], ratings=[6.0], weights=given,
                                     scale=(-9, 9))  # fmt: skip
        more = fit.update(news, side)
        expected = TRAIN.by_user.weights.copy()
        expected[10] = weight  # the first user has rated all items but the last
        np.testing.assert_array_equal(more.posterior.train.by_user.weights, expected)
        error = abs(more.predict([(0, 10)])["mean"][0].as_py() - 6.0)
        assert (error < 1e-2) == (given is not None)


def test_new_ratings_have_the_noise_of_weight_one():
    """Ten times the weights are a tenth of tau, and sd is that of a rating of weight 1."""
    model = replace(PLAIN, rank=0)
    fits = [
        Gibbs(model, sweeps=400, seed=1, chains=1).fit(with_weights(TRAIN, w * np.ones(len(TRAIN))))
        for w in (1.0, 10.0)
    ]
    one, ten = (np.mean(fit.traces["noise precision"][0, 50:]) for fit in fits)
    assert one / ten == pytest.approx(10, rel=0.1)
    one, ten = (np.mean(np.array(fit.predict(PAIRS)["sd"])) for fit in fits)
    assert ten / one == pytest.approx(np.sqrt(10), rel=0.15)


def test_evaluation_does_not_look_at_weights():
    fit = sampled()
    test = small_ratings(20, 12, seed=2)
    heavy = with_weights(test, np.linspace(1, 9, len(test)))
    assert fit.evaluate(heavy) == fit.evaluate(test)


def test_an_explanation_weighs_ratings_as_the_fit_did():
    """The parts of a row's conditional mean: a rating with all the weight makes the prediction."""
    fit = sampled()
    weights = np.full(len(TRAIN), 1e-6)
    weights[2] = 1e6  # of user 0, who rated everything but the last item
    pair = AskedPair(fit.posterior, Cells(np.array([0]), np.array([2])))
    added = shares(pair, with_weights(TRAIN, weights))
    assert np.argmax(np.abs(added)) == 2
    assert np.abs(np.delete(added, 2)).max() < 1e-3 * np.abs(added[2])


def test_the_command_line(tmp_path):
    write(TRAIN, tmp_path / "r.csv")

    def run(*words: object) -> str:
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.output

    least, most = TRAIN.by_user.weights.min(), TRAIN.by_user.weights.max()
    assert f"{least:g} to {most:g}" in run("data", "describe", tmp_path / "r.csv")
    fit = ("fit", tmp_path / "r.csv", "--sweeps", 4, "--chains", 1, "--rank", 2, "--quiet")
    assert "ratings with weights of" in run(*fit, "--out", tmp_path / "m")
    known = bayesmf.load_model(tmp_path / "m").posterior.train
    assert sorted(known.by_user.weights) == sorted(TRAIN.by_user.weights)
    assert "with weights" not in run(*fit, "--weight-col", "none", "--out", tmp_path / "n")
    (tmp_path / "r.csv").write_text("user,item,rating,plays\n" + "1,1,4,2\n1,2,3,5\n2,1,4,1\n")
    assert "1 to 5" in run("data", "describe", tmp_path / "r.csv", "--weight-col", "plays")


def test_scikit_learn():
    pytest.importorskip("sklearn")
    from bayesmf.sklearn import MatrixFactorization

    rows = TRAIN.by_user
    X = np.column_stack([rows.row_index, rows.index])
    estimator = MatrixFactorization(rank=2, sweeps=4, random_state=4)
    weighted = estimator.fit(X, rows.values, sample_weight=rows.weights).predict(X)
    assert not np.array_equal(weighted, estimator.fit(X, rows.values).predict(X))
