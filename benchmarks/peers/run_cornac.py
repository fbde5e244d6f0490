"""cornac: MF with biases, and PMF, by stochastic gradients. No curve: a fit cannot be watched."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from common import Bench
from cornac.data import Dataset
from cornac.models import MF, PMF

bench = Bench()
algorithm = {"MF": MF, "PMF": PMF}[bench.set["algorithm"]]
options = dict(bench.set["options"])
if algorithm is MF:
    options["num_threads"] = bench.threads
if not bench.judged:
    options["max_iter"] = 5

bench.ready()
# user code
users, items = (OrderedDict(zip(range(n), range(n), strict=True))
                for n in (bench.n_users, bench.n_items))  # fmt: skip
train = Dataset(bench.n_users, bench.n_items, users, items,
                (bench.user.astype(int), bench.item.astype(int),
                 bench.value.astype(float)))  # fmt: skip
built = bench.seconds  # not counted
model = algorithm(k=bench.rank, seed=bench.seed, verbose=False, **options)
model.fit(train)


def predicted() -> np.ndarray:
    if algorithm is MF:  # not counted
        fitted = model.u_factors[bench.test_user] * model.i_factors[bench.test_item]
        biases = model.u_biases[bench.test_user] + model.i_biases[bench.test_item]
        return model.global_mean + biases + fitted.sum(1)
    pairs = zip(bench.test_user, bench.test_item, strict=True)
    return np.array([model.rate(u, i, clipping=False) for u, i in pairs])


each = (bench.seconds - built) / options["max_iter"]  # not counted
bench.point(options["max_iter"], predicted)
# end
bench.end(sweep_seconds=each)
