"""Where a sweep runs: any engine that keeps to the protocol gives the bits of the threads."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from bayesmf import DataError, Gibbs, Model, Propagation
from bayesmf.engines.ray.cluster import Ray
from bayesmf.inference import checkpoint
from bayesmf.inference.engine import Engine, Threads, find_engine
from oracle.checkpoints import NAMES, SWEEPS, Stop, content, fitted, sampler
from oracle.row_priors import MODEL, world
from oracle.variants import BASE, VARIANTS


class Tally:
    """An engine of one's own: it has the threads do everything, and counts."""

    def __init__(self, facts=None):
        self.inner, self.facts = Threads(), facts or {}
        self.checked, self.placed, self.starts, self.sweeps, self.jobs = [], 0, [], [], 0
        self.opened = 0

    def check(self, model, form):
        self.checked.append((model, form))

    def place(self, ratings, model):
        self.placed += 1
        return self.inner.place(ratings, model)

    def start(self, model, data, seed, chain):
        self.starts.append(chain)
        return self.inner.start(model, data, seed, chain)

    def sweep(self, model, data, state, draws, form):
        self.sweeps.append((draws.chain, draws.sweep, form))
        self.inner.sweep(model, data, state, draws, form)

    def map(self, work, jobs):
        listed = list(jobs)
        self.jobs += len(listed)
        return self.inner.map(work, listed)

    def shared(self):
        self.opened += 1
        return self.inner.shared()

    def describe(self, data):
        return self.facts


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing here survives a power failure, and it need not."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_of_ones_own_has_the_bits_of_the_threads(name):
    tally = Tally()
    assert isinstance(tally, Engine)
    found = fitted(sampler(name, engine=tally))
    assert content(found) == content(fitted(sampler(name)))
    assert tally.placed == 1
    assert tally.starts == [0, 1]
    assert tally.sweeps == [
        (chain, sweep, "interwoven") for sweep in range(1, SWEEPS + 1) for chain in (0, 1)
    ]
    assert tally.checked == [(VARIANTS[name], "interwoven")]
    assert tally.jobs == 0


def test_blocks_of_propagation_are_jobs_of_an_engine():
    tally, train = Tally(), world()
    one, other = (
        Propagation(MODEL, grid=(2, 3), sweeps=6, keep=3, engine=engine).fit(train)
        for engine in (tally, "threads")
    )
    assert tally.jobs == 6
    assert tally.opened == 1
    for name, values in other.posterior.draws.items():
        np.testing.assert_array_equal(one.posterior.draws[name], values)


def test_a_start_that_is_given_is_not_asked_for():
    tally, state = Tally(), fitted(sampler()).states[0]
    found = fitted(sampler(engine=tally), start=state)
    assert tally.starts == []
    assert content(found) == content(fitted(sampler(), start=state))


def saved_facts(folder):
    body = (folder / checkpoint.MAIN).read_bytes().partition(b"\n")[2]
    return json.loads(checkpoint._unpack(body)["facts"].tobytes())


def test_a_checkpoint_holds_what_an_engine_says_of_itself(tmp_path):
    facts = {"blocks": 3, "ends": [4, 9]}
    fitted(sampler(engine=Tally(facts)), tmp_path, callbacks=[Stop(3, "ask")])
    assert saved_facts(tmp_path)["run"]["engine"] == facts
    told = r"a run with engine\.blocks=3, not 4; resume with what it began with"
    with pytest.raises(DataError, match=told):
        fitted(sampler(engine=Tally({**facts, "blocks": 4})), tmp_path, resume=True)
    with pytest.raises(DataError, match=r"a run with engine\.blocks=3, not None"):
        fitted(sampler(), tmp_path, resume=True)
    found = fitted(sampler(engine=Tally(facts)), tmp_path, resume=True)
    assert content(found) == content(fitted(sampler()))


def test_a_run_goes_on_with_any_engine_that_has_nothing_to_say(tmp_path):
    fitted(sampler(engine=Tally()), tmp_path, callbacks=[Stop(3, "ask")])
    assert saved_facts(tmp_path)["run"]["engine"] == {}
    assert content(fitted(sampler(), tmp_path, resume=True)) == content(fitted(sampler()))


def test_engines_have_names():
    assert isinstance(find_engine("threads"), Threads)
    assert find_engine("ray") == Ray()
    engine = Ray(blocks=3)
    assert find_engine(engine) is engine


SENTENCE = "choose 'threads' or 'ray', or give an engine such as bayesmf.Ray"


@pytest.mark.parametrize("kind", [Gibbs, Propagation])
def test_what_is_no_engine_is_refused_in_a_sentence(kind):
    with pytest.raises(DataError, match=f"^engine='nonsense': {SENTENCE}"):
        kind(engine="nonsense")
    with pytest.raises(TypeError, match=f"^engine=42: {SENTENCE}"):
        kind(engine=42)
    with pytest.raises(TypeError, match=f"{SENTENCE}"):  # the class, and not one of them
        kind(engine=Ray)


def test_ray_refuses_what_one_process_draws():
    """At once, whether Ray is installed or not."""
    for model, form, why in (
        (VARIANTS["user side"], "non-centred", "weights of designs that are not centred"),
        (VARIANTS["user design"], "interwoven", "weights of designs that are not centred"),
        (VARIANTS["user side only"], "centred", "weights of designs that are not centred"),
    ):
        for engine in ("ray", Ray(blocks=2)):
            with pytest.raises(DataError, match=f"{why}.*; choose engine='threads'"):
                Gibbs(model, form=form, engine=engine)
    for name in ("user side", "user design"):
        with pytest.raises(DataError, match=r"designs need all users in one place; choose Ray"):
            Gibbs(VARIANTS[name], engine=Ray(resident=True))
    with pytest.raises(DataError, match=r"effects and latent .* choose Ray\(resident=False\)"):
        Gibbs(Model(time="chain"), engine=Ray(resident=True))
    assert Gibbs(BASE, engine=Ray(resident=True)).engine.resident
