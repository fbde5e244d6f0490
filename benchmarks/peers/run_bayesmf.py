"""Ours: Gibbs sampling of one of the models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from common import Bench

import bayesmf
from bayesmf.inference.loop import Progress
from bayesmf.kernels.reduce import predict

bench = Bench()
MODELS = {
    "no side": bayesmf.Model.paper("no-side", rank=bench.rank),
    "side": bayesmf.Model.paper("side", rank=bench.rank),
    "both": replace(bayesmf.Model(bench.rank), precision="constant"),
    "default": bayesmf.Model(bench.rank),
}
# user code
model = MODELS[bench.set["model"]]
# end
few = bayesmf.Ratings.from_triplets(  # imports, and compiles or loads what was compiled
    users=bench.user[:5000], items=bench.item[:5000], ratings=bench.value[:5000]
)
bayesmf.Gibbs(model, sweeps=3, burn_in=1, keep=1, threads=bench.threads, chains=1).fit(few)
mean = float(bench.value.mean(dtype=float))


def watch(progress: Progress) -> None:
    user, item = progress.state.user, progress.state.item
    pairs = bench.test_user, bench.test_item

    def predicted() -> np.ndarray:
        out = np.empty(len(bench.test_value))
        predict(*pairs, user.x, item.x, mean, out)
        return out

    def noise() -> np.ndarray:
        return 1 / (progress.state.tau * user.alpha[pairs[0]] * item.alpha[pairs[1]])

    bench.draw(progress.sweep, predicted, noise, progress.state.tau)


bench.ready()
# user code
ratings = bayesmf.Ratings.from_triplets(users=bench.user, items=bench.item, ratings=bench.value)
sampler = bayesmf.Gibbs(model, sweeps=bench.sweeps, burn_in=bench.set["burn_in"],
                        seed=bench.seed, threads=bench.threads, chains=1)  # fmt: skip
fit = sampler.fit(ratings, callbacks=[watch])
# end
if bench.judged:
    with bench.pause():
        # user code
        found = fit.predict(np.column_stack([bench.test_user, bench.test_item]))
        # end
    bench.coverage(found["mean"].to_numpy(), found["sd"].to_numpy())
bench.end()
