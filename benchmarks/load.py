"""Loading ten million ratings: we, pandas and polars, in turn, each in a process of its own.

``python benchmarks/load.py [ratings] [rounds]`` prints seconds and peak memory of each reader
for csv and parquet. We check every rating and index them by user and by item; the others
only parse. Seconds are this machine's and this minute's: the ratios are the result.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

READERS = {
    "bayesmf": "import bayesmf; n = len(bayesmf.load(path))",
    "pandas": "import pandas; n = len(pandas.read_{kind}(path))",
    "polars": "import polars; n = len(polars.read_{kind}(path))",
}
CHILD = """
import json, resource, sys, time
path, code = sys.argv[1:]
module = code.split(";")[0]
exec(module)
start = time.perf_counter()
exec(code)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "peak": peak / 1024, "n": n}))
"""


def write(folder: Path, n_ratings: int) -> None:
    """A csv and a parquet of generated ratings with times, rows in random order."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from bayesmf.data.synthetic import World, generate

    world = World(n_users=n_ratings // 150, n_items=max(n_ratings // 500, 1000),
                  n_ratings=n_ratings)  # fmt: skip
    ratings, _ = generate(world)
    rng = np.random.default_rng(0)
    table = ratings.to_arrow().rename_columns(["userId", "movieId", "rating"])
    times = rng.integers(800_000_000, 1_500_000_000, len(ratings))
    table = table.append_column("timestamp", pa.array(times))
    table = table.take(pa.array(rng.permutation(len(ratings))))
    pa.csv.write_csv(table, folder / "ratings.csv")
    pa.parquet.write_table(table, folder / "ratings.parquet")


def measure(path: Path, code: str) -> dict[str, float]:
    command = [sys.executable, "-c", CHILD, str(path), code.format(kind=path.suffix[1:])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    n_ratings = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: a child's peak memory counts that of the process it came from.
        subprocess.run([sys.executable, __file__, "--write", folder, str(n_ratings)], check=True)
        print("| file | reader | seconds, each round | best, of ours | peak MB |")
        print("|---|---|---|---|---|")
        for kind in ("csv", "parquet"):
            path = Path(folder) / f"ratings.{kind}"
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in READERS}
            for _ in range(rounds):
                for name, code in READERS.items():
                    runs[name].append(measure(path, code))
            ours = min(run["seconds"] for run in runs["bayesmf"])
            for name, done in runs.items():
                seconds = " ".join(f"{run['seconds']:.2f}" for run in done)
                ratio = min(run["seconds"] for run in done) / ours
                peak = max(run["peak"] for run in done)
                size = path.stat().st_size / 1e6
                print(f"| {kind}, {done[0]['n']:,} rows, {size:.0f} MB | {name} | {seconds} "
                      f"| {ratio:.2f} | {peak:.0f} |")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
