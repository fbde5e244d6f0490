"""Spark: ALS on local threads. No curve: a fit cannot be watched; its start is the JVM's."""

from __future__ import annotations

import tempfile

import pandas as pd
from common import Bench, peak_mb
from pyspark import SparkContext
from pyspark.ml.recommendation import ALS
from pyspark.sql import SparkSession

bench = Bench()
options = dict(bench.set["options"])
if not bench.judged:
    options["maxIter"] = 3
spark = (
    SparkSession.builder.master(f"local[{bench.threads}]")
    .config("spark.driver.memory", "4g")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", str(2 * bench.threads))
    .config("spark.sql.execution.arrow.pyspark.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
spark.sparkContext.setCheckpointDir(tempfile.mkdtemp())  # beyond ten iterations it needs one


def frame(user: object, item: object, value: object) -> object:
    return spark.createDataFrame(pd.DataFrame({"user": user, "item": item, "rating": value}))


warm = frame(bench.user[:2000], bench.item[:2000], bench.value[:2000])
ALS(rank=2, maxIter=1, userCol="user", itemCol="item").fit(warm)

bench.ready()
# user code
train = frame(bench.user, bench.item, bench.value)
als = ALS(rank=bench.rank, userCol="user", itemCol="item", ratingCol="rating", seed=bench.seed,
          numUserBlocks=bench.threads, numItemBlocks=bench.threads, **options)  # fmt: skip
model = als.fit(train)


def predicted() -> object:
    test = frame(bench.test_user, bench.test_item, range(len(bench.test_user)))
    found = model.transform(test).toPandas().sort_values("rating")
    return found["prediction"].to_numpy()


bench.point(options["maxIter"], predicted)
# end
java = SparkContext._gateway.proc.pid  # what starts Java becomes Java
bench.end(**{"peak mb": peak_mb() + peak_mb(str(java))})
