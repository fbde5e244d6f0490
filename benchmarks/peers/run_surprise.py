"""Surprise: SVD and SVD++ by stochastic gradients. No curve: a fit cannot be watched."""

from __future__ import annotations

import pandas as pd
from common import Bench
from surprise import SVD, Dataset, Reader, SVDpp

bench = Bench()
algorithm = {"SVD": SVD, "SVD++": SVDpp}[bench.set["algorithm"]]
options = dict(bench.set["options"])
if not bench.judged:
    options["n_epochs"] = 2 if algorithm is SVDpp else 5

bench.ready()
# user code
table = pd.DataFrame({"user": bench.user, "item": bench.item, "rating": bench.value})
scale = Reader(rating_scale=(bench.low, bench.high))
train = Dataset.load_from_df(table, scale).build_full_trainset()
built = bench.seconds  # not counted
model = algorithm(n_factors=bench.rank, random_state=bench.seed, **options)
model.fit(train)
each = (bench.seconds - built) / model.n_epochs  # not counted
pairs = zip(bench.test_user, bench.test_item, strict=True)
bench.point(model.n_epochs, lambda: [model.predict(u, i, clip=False).est for u, i in pairs])
# end
bench.end(sweep_seconds=each)
