"""Threads and forked processes predict what one thread does, whichever library runs the kernels.

Each case is a process of its own: Numba chooses its library once.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

LAYERS = ["workqueue"]
if importlib.util.find_spec("numba.np.ufunc.omppool") is not None:
    LAYERS.append("omp")

BEGIN = """
import multiprocessing, os, sys, threading
import numba
import bayesmf
fit = bayesmf.load_model(sys.argv[1])
known = [(u, i) for u in fit.posterior.users for i in fit.posterior.items]
asked = {"few": known[:3], "many": 4 * known}

def predict(which):
    table = fit.predict(asked[which])
    return table["mean"].to_numpy().tobytes() + table["sd"].to_numpy().tobytes()

def fold_in(_):
    more = fit.fold_in(bayesmf.Ratings.from_triplets(users=["n", "n"], items=["i1", "i2"],
                                                     ratings=[1, 5]))
    return more.predict([("n", "i3")])["mean"].to_numpy().tobytes()

def sample(_):
    found = bayesmf.Gibbs(bayesmf.Model(rank=2), sweeps=3, chains=1).fit(fit.posterior.train)
    return found.states[0].user.x.tobytes()

fit.threads = 1
calls = [(predict, "few"), (predict, "many"), (fold_in, ""), (sample, "")]
right = [call(which) for call, which in calls]
fit.threads = 2
"""

THREADS = """
wrong = []
def work():
    for (call, which), expected in 3 * list(zip(calls, right)):
        if call(which) != expected:
            wrong.append((call, which))
workers = [threading.Thread(target=work) for _ in range(3)]
for worker in workers: worker.start()
for worker in workers: worker.join()
print(numba.threading_layer(), wrong)
"""

FORK = """
assert [call(which) for call, which in calls] == right  # so that threads have begun
child = os.fork()
if child == 0:
    os._exit(0 if [call(which) for call, which in calls] == right else 3)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(numba.threading_layer(), [code] if code else [])
"""

POOL = """
assert [call(which) for call, which in calls] == right
with multiprocessing.get_context("fork").Pool(2) as pool:
    waiting = [pool.apply_async(call, (which,)) for call, which in 2 * calls]
    same = [one.get(timeout=300) == expected for one, expected in zip(waiting, 2 * right)]
print(numba.threading_layer(), [] if all(same) else same)
"""


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("script", [THREADS, FORK, POOL], ids=["threads", "fork", "pool"])
def test_the_bits_of_one_thread(script, layer, tiny_fit):
    env = {**os.environ, "NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": layer,
           "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, str(tiny_fit)],
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{layer} []\n"), done.stderr[-2000:]
