"""SMURFF: Bayesian PMF, a sweep at a time so that the whole curve is had.

All sweeps are asked for as burn-in: the sampler is the same, but it does not keep every test
prediction of every sweep (2 GB); the means are taken here. Its own clock of a sweep leaves the
prediction of the test ratings and the training error out, so what step() took beyond that is taken
out too.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp
import smurff
from common import Bench

bench = Bench()
shape = (bench.n_users, bench.n_items)
test = sp.csr_matrix((bench.test_value, (bench.test_user, bench.test_item)), shape)
place = sp.csr_matrix((np.arange(1, test.nnz + 1), (bench.test_user, bench.test_item)), shape)
order = np.empty(0, int)


# user code
def predicted() -> np.ndarray:
    """The last draw's predictions, in the order of the test arrays."""
    global order  # not counted
    items = session.getTestPredictions()
    if not len(order):  # not counted
        rows, columns = np.array([item.coords for item in items]).T
        order = np.asarray(place[rows, columns]).ravel() - 1
    out = np.empty(len(order))  # not counted
    out[order] = [item.pred_1sample for item in items]  # not counted
    return out + mean


# end
def step() -> float:
    """One sweep; back comes the variance of the noise."""
    begin = time.perf_counter()
    status = session.step()
    bench.deduct(max(time.perf_counter() - begin - status.elapsed_iter, 0.0))
    return 1 / precision if precision else status.train_rmse**2


bench.ready()
# user code
mean = bench.value.mean(dtype=float)
train = sp.csr_matrix((bench.value - mean, (bench.user, bench.item)), shape)
precision = bench.set.get("precision")
noise = smurff.FixedNoise(precision) if precision else smurff.AdaptiveNoise(1.0, 10.0)
session = smurff.TrainSession(priors=["normal", "normal"], num_latent=bench.rank,
                              num_threads=bench.threads, burnin=bench.sweeps, nsamples=1,
                              seed=bench.seed + 1, verbose=0)  # fmt: skip
session.setTrain(train, noise)
if bench.judged:  # not counted
    session.setTest(test)
session.init()
for sweep in range(1, bench.sweeps + 1):
    noise = step()
    bench.draw(sweep, predicted, noise, 1 / noise)
# end
bench.coverage_of_draws()
bench.end()
