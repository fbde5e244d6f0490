"""A cluster, or a checkpoint, of machines whose arithmetic differs says so."""

from __future__ import annotations

import warnings

import pytest

from bayesmf import Gibbs
from bayesmf.engines.ray.cluster import Ray
from bayesmf.inference import checkpoint
from bayesmf.machine import arithmetic
from oracle.variants import BASE, small_ratings

TRAIN = small_ratings(9, 7, seed=1)


def sampler(sweeps: int = 3, **others) -> Gibbs:
    return Gibbs(BASE, sweeps=sweeps, burn_in=1, chains=1, keep=2, **others)


def test_what_the_last_digits_depend_on_is_told():
    told = arithmetic().split(", ")
    assert told[1] in ("FMA", "no FMA")
    assert len(told) >= 3


def test_a_checkpoint_of_other_arithmetic_goes_on_with_a_warning(tmp_path, monkeypatch):
    def stop(progress) -> bool:
        return progress.sweep == 2

    def fit(folder, resume=False, callbacks=()):
        return sampler(6).fit(TRAIN, checkpoint=folder, resume=resume, callbacks=callbacks)

    with monkeypatch.context() as other:
        other.setattr(checkpoint, "arithmetic", lambda: "abacus, no FMA")
        fit(tmp_path / "other", callbacks=[stop])
    fit(tmp_path / "same", callbacks=[stop])
    with pytest.warns(UserWarning, match=r"that wrote .*other has other arithmetic .*\(abacus"):
        fit(tmp_path / "other", resume=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(tmp_path / "same", resume=True)


@pytest.mark.slow
def test_a_cluster_of_other_arithmetic_is_told(monkeypatch):
    """The second machine has a BLAS for older processors."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        machines.add_node(num_cpus=1, env_vars={"OPENBLAS_CORETYPE": "Nehalem"})
        ray.init(address=machines.address, log_to_driver=False)
        with pytest.warns(UserWarning, match=r"the machine .* has other arithmetic .*Nehalem"):
            sampler(engine=Ray()).fit(TRAIN)
    finally:
        ray.shutdown()
        machines.shutdown()
