"""cmfrec: alternating least squares with biases and what was rated as implicit features."""

from __future__ import annotations

import pandas as pd
from cmfrec import CMF
from common import Bench

bench = Bench()
options = dict(bench.set["options"])
if not bench.judged:
    options["niter"] = 3

bench.ready()
# user code
train = pd.DataFrame({"UserId": bench.user, "ItemId": bench.item, "Rating": bench.value})
model = CMF(k=bench.rank, method="als", nthreads=bench.threads, random_state=bench.seed,
            verbose=False, **options)  # fmt: skip
model.fit(train)
bench.point(options["niter"], lambda: model.predict(bench.test_user, bench.test_item))
# end
bench.end()
