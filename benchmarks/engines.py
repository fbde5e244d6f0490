"""The sampler on Ray against the threads: the same bits, and at what price.

``python benchmarks/engines.py [hashes] [hosts] [speed] [memory]`` prints tables for
docs/results/ray.md.
``hosts`` makes two hosts out of network namespaces, so it needs root and ``ip`` (Debian: iproute2).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import bayesmf
from bayesmf.data.synthetic import World, generate
from bayesmf.model.state import to_arrays

MODEL = bayesmf.Model.paper("side", "robust", rank=20)
SWEEPS = 10
BIG = 20_000_000
PORT = "10.77.0.1:6400"


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells: str) -> None:
    row(*cells)
    row(":--", *["--:"] * (len(cells) - 1))


def digest(fit: object) -> str:
    """Of every parameter of the last state."""
    arrays = to_arrays(fit.states[-1])
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()[:16]


def sample(ratings: object, engine: object, sweeps: int = SWEEPS, **options: object) -> object:
    sampler = bayesmf.Gibbs(MODEL, sweeps=sweeps, burn_in=sweeps // 2, seed=0, keep=0,
                            engine=engine, chains=1)  # fmt: skip
    return sampler.fit(ratings, **options)


def strike(find: list[str]) -> threading.Thread:
    """Kill the first process that a command lists, or all it lists if that is of a host."""

    def work() -> None:
        for _ in range(400):
            listed = subprocess.run(find, capture_output=True, text=True, check=True).stdout
            pids = [int(line.split()[0]) for line in listed.splitlines()
                    if find[0] == "ip" or "ray::Worker" in line]  # fmt: skip
            for pid in pids if find[0] == "ip" else pids[:1]:
                os.kill(pid, signal.SIGKILL)
            if pids:
                return
            time.sleep(0.002)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def hashes() -> None:
    """After ten sweeps of ml-1m, side features and robust precisions."""
    ratings = bayesmf.load("ml-1m")
    print(f"\nml-1m, {MODEL.rank} features, side, robust, {SWEEPS} sweeps, seed 0\n")
    head("engine", "sha256 of all parameters")
    row("threads", digest(sample(ratings, "threads")))
    for workers in (1, 2, 3):
        row(f"Ray, {workers} workers", digest(sample(ratings, bayesmf.Ray(workers=workers))))
    struck: list[threading.Thread] = []

    def kill(progress: object) -> None:
        if progress.sweep in (3, 6):
            struck.append(strike(["ps", "-eo", "pid,args"]))

    done = sample(ratings, bayesmf.Ray(workers=2), callbacks=[kill])
    row("Ray, 2 workers, one killed in mid-sweep, twice", digest(done))
    with tempfile.TemporaryDirectory() as name:
        sample(ratings, bayesmf.Ray(workers=2), checkpoint=name,
               callbacks=[lambda progress: progress.sweep == 4])  # fmt: skip
        done = sample(ratings, bayesmf.Ray(workers=3), checkpoint=name, resume=True)
        row("Ray, stopped after 4 sweeps and resumed", digest(done))
        shards = bayesmf.shard(ratings, Path(name) / "shards")
        row("Ray, from shards", digest(sample(shards, bayesmf.Ray(workers=2))))


def hosts() -> None:
    """Two Ray nodes in network namespaces; then one of them is killed."""
    if "inside" in sys.argv:
        return _inside()
    ray = Path(sys.executable).with_name("ray")
    with tempfile.TemporaryDirectory() as name:
        token = Path(name) / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        env = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token),
               "RAY_USAGE_STATS_ENABLED": "0"}  # fmt: skip

        def run(words: str, **options: object) -> None:
            subprocess.run(words.split(), check=True, env=env, **options)

        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            for host in "ab":
                run(f"ip netns add bayesmf-{host}")
            run("ip link add bmf-a netns bayesmf-a type veth peer name bmf-b netns bayesmf-b")
            for number, host in enumerate("ab", 1):
                run(f"ip -n bayesmf-{host} addr add 10.77.0.{number}/24 dev bmf-{host}")
                run(f"ip -n bayesmf-{host} link set bmf-{host} up")
                run(f"ip -n bayesmf-{host} link set lo up")
            run(f"ip netns exec bayesmf-a {ray} start --head --node-ip-address=10.77.0.1 "
                f"--port=6400 --num-cpus=1 --include-dashboard=false --temp-dir={name}/ray",
                **quiet)  # fmt: skip
            run(f"ip netns exec bayesmf-b {ray} start --address={PORT} "
                "--node-ip-address=10.77.0.2 --num-cpus=1", **quiet)  # fmt: skip
            run(f"ip netns exec bayesmf-a {sys.executable} {__file__} hosts inside")
        finally:
            for host in "ab":
                listed = subprocess.run(["ip", "netns", "pids", f"bayesmf-{host}"],
                                        capture_output=True, text=True).stdout  # fmt: skip
                for pid in listed.split():
                    os.kill(int(pid), signal.SIGKILL)
                subprocess.run(["ip", "netns", "del", f"bayesmf-{host}"], check=False)


def _inside() -> None:
    import ray

    ratings = bayesmf.load("ml-1m")
    engine = bayesmf.Ray(address=PORT)
    print(f"\nml-1m, {SWEEPS} sweeps, two hosts of one core each\n")
    head("", "hosts at the end", "sha256 of all parameters")
    alive: list[int] = []

    def watch(progress: object) -> None:
        alive[:] = [sum(node["Alive"] for node in ray.nodes())]

    def kill(progress: object) -> None:
        watch(progress)
        if progress.sweep == 4:
            strike(["ip", "netns", "pids", "bayesmf-b"])
        if progress.sweep == 8:  # Ray needs some seconds to be sure
            for _ in range(60):
                time.sleep(0 if sum(node["Alive"] for node in ray.nodes()) == 1 else 1)

    done = sample(ratings, engine, callbacks=[watch])
    row("both alive", alive[0], digest(done))
    done = sample(ratings, engine, callbacks=[kill])
    row("one killed in the fifth sweep", alive[0], digest(done))


def per_sweep(ratings: object, engine: object, sweeps: int) -> float:
    """Median seconds of a sweep, the first few left out."""
    at: list[float] = []
    sample(ratings, engine, sweeps, callbacks=[lambda progress: at.append(progress.seconds)])
    return float(np.median(np.diff(at)[2:]))


def speed() -> None:
    """Seconds of a sweep: threads, Ray, threads, Ray, ..., two cores each."""
    print("\nside, robust, rank 20; seconds of a sweep, in turn\n")
    head("data", "2 threads", "Ray, 2 workers", "ratio of the medians")
    for name, sweeps, rounds in (("ml-1m", 40, 3), ("2·10^7", 8, 2)):
        ratings = bayesmf.load(name) if name == "ml-1m" else big()
        found: dict[str, list[float]] = {"threads": [], "ray": []}
        for _ in range(rounds):
            found["threads"].append(per_sweep(ratings, "threads", sweeps))
            found["ray"].append(per_sweep(ratings, bayesmf.Ray(workers=2), sweeps))
        ratio = np.median(found["ray"]) / np.median(found["threads"])
        row(name, *(" ".join(f"{s:.3f}" for s in each) for each in found.values()),
            f"{ratio:.2f}")  # fmt: skip


def big() -> bayesmf.Ratings:
    return generate(World(n_users=BIG // 150, n_items=BIG // 500, n_ratings=BIG))[0]


CHILD = """
import sys
import bayesmf
def told(*names):  # getrusage would tell of the process which started this one, if it was larger
    status = open("/proc/self/status").read()
    return [int(status.split(name + ":")[1].split()[0]) / 1024 for name in names]
from bayesmf.engines.ray.cluster import Ray
import ray
from bayesmf.inference.gibbs import Gibbs
before = told("VmHWM")
engine = Ray(workers=2) if sys.argv[2] == "ray" else "threads"
train = bayesmf.Shards.open(sys.argv[1]) if engine != "threads" else bayesmf.load(sys.argv[1])
model = bayesmf.Model.paper("side", "robust", rank=20)
parts = []
Gibbs(model, sweeps=4, burn_in=2, keep=0, seed=0, engine=engine, chains=1).fit(
    train, callbacks=[lambda progress: parts.append(told("RssFile", "RssShmem"))])
print(*before, *told("VmHWM"), *map(max, zip(*parts)))
"""


def memory() -> None:
    """Of the driver, fitting shards that it never reads; and of one process with threads."""
    import pyarrow.parquet

    with tempfile.TemporaryDirectory() as name:
        ratings = big()
        needed = ratings.nbytes / 2**20
        path, shards = Path(name) / "ratings.parquet", Path(name) / "shards"
        pyarrow.parquet.write_table(ratings.to_arrow(), path)
        bayesmf.shard(ratings, shards)
        print(f"\n{len(ratings):,} ratings, {needed:,.0f} MB in memory by user and by item\n")
        del ratings
        head("process", "MB before the fit", "peak MB", "more", "of the peak: libraries' files",
             "shared with workers")  # fmt: skip
        for engine, data in (("ray", shards), ("threads", path)):
            words = [sys.executable, "-c", CHILD, str(data), engine]
            out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            before, peak, *parts = map(float, out.split())
            label = "Ray's driver, from shards" if engine == "ray" else "threads, from parquet"
            row(label, f"{before:,.0f}", f"{peak:,.0f}", f"{peak - before:,.0f}",
                *(f"{part:,.0f}" for part in parts))  # fmt: skip


if __name__ == "__main__":
    parts = {"hashes": hashes, "hosts": hosts, "speed": speed, "memory": memory}
    for part in [word for word in sys.argv[1:] if word in parts] or parts:
        parts[part]()
