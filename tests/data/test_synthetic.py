from __future__ import annotations

import numpy as np
import pytest

from bayesmf import DataError, Scale, load
from bayesmf.data import synthetic
from bayesmf.data.synthetic import World, generate, stream


def test_the_demo_data_is_fixed_for_good():
    demo = load("demo")
    assert demo.fingerprint() == GOLDEN
    assert (demo.n_users, demo.name) == (1500, "demo")
    assert 990 <= demo.n_items <= 1000
    assert 110_000 < len(demo) < 130_000
    assert demo.scale == Scale(1, 5, 1)
    assert set(np.unique(demo.values)) == {1, 2, 3, 4, 5}


GOLDEN = "a590b477a5c3a497f0d5ca969dfe522a271966e01788c0f08b7e7939546e3223"


def test_blocks_together_are_the_whole(monkeypatch):
    """A block depends on nothing but its number: drawn alone it is the same."""
    monkeypatch.setattr(synthetic, "BLOCK_USERS", 64)
    world = World(n_users=200, n_items=150, n_ratings=4000)
    ratings, truth = generate(world, seed=7)
    blocks = list(stream(world, seed=7))
    assert len(blocks) == 4
    alone = synthetic.draw_block(world, 7, synthetic.draw_items(world, 7), 2)
    assert np.array_equal(alone.rating, blocks[2].rating)
    assert np.array_equal(alone.item, blocks[2].item)
    assert np.array_equal(np.concatenate([b.rating for b in blocks]), ratings.values)
    assert np.array_equal(np.concatenate([b.U for b in blocks]), truth.U)


def test_activity_and_popularity_have_heavy_tails():
    ratings = load("demo")
    for counts in (ratings.by_user.counts, ratings.by_item.counts):
        assert counts.max() > 5 * np.median(counts)
        assert counts.mean() > 1.3 * np.median(counts)
    assert (ratings.by_user.counts < 25).mean() > 0.2


def exact(**more) -> World:
    return World(n_users=800, n_items=300, n_ratings=40_000, scale=None, **more)


def residuals(world: World, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    ratings, truth = generate(world, seed)
    i, j = ratings.by_user.row_index, ratings.by_user.index
    fitted = truth.mean + truth.gamma[i] + truth.eta[j] + (truth.S[i] * truth.V[j]).sum(axis=1)
    return (ratings.values - fitted) * np.sqrt(truth.alpha[i] * truth.tau), i


def test_the_truth_explains_the_ratings():
    """Standardised residuals are standard normal: moments within 5 standard errors."""
    e, _ = residuals(exact())
    n = len(e)
    assert abs(e.mean()) < 5 / np.sqrt(n)
    assert abs((e**2).mean() - 1) < 5 * np.sqrt(2 / n)
    assert abs((e**4).mean() - 3) < 5 * np.sqrt(96 / n)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_side_features_are_the_sum_over_the_rated_items(power):
    ratings, truth = generate(exact(side_power=power))
    rows = ratings.by_user
    for i in (0, 5, 400):
        mine = rows.index[rows.starts[i] : rows.starts[i + 1]]
        expected = truth.U[i] + truth.W[mine].sum(axis=0) / len(mine) ** power
        assert truth.S[i] == pytest.approx(expected, rel=1e-12)


def test_influence_makes_the_rated_items_tell_of_taste():
    """Correlation of U_i with the mean V of the items rated, minus that over all items."""

    def correlation(influence: float) -> float:
        ratings, truth = generate(exact(influence=influence))
        mean = ratings.to_sparse()
        mean.data = np.ones(len(ratings))
        mean = (mean @ truth.V) / ratings.by_user.counts[:, None]
        return float(np.mean([np.corrcoef(truth.U[:, d], mean[:, d])[0, 1] for d in range(6)]))

    assert abs(correlation(0.0)) < 5 / np.sqrt(800 * 6)
    assert correlation(1.0) > 0.3


def test_seeds_differ():
    assert generate(exact(), 0)[0] != generate(exact(), 1)[0]


def test_impossible_worlds_are_refused():
    with pytest.raises(DataError, match="10.0 each; choose 3 to 5 with 10 items"):
        World(n_users=10, n_items=10, n_ratings=100)
    with pytest.raises(DataError, match="4 items are too few"):
        World(n_items=4)
    with pytest.raises(DataError, match="at least one user"):
        World(n_users=0)
    with pytest.raises(DataError, match="seed=-1"):
        generate(exact(), -1)
