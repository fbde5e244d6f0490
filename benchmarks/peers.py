"""Us and the peers, in turn on one machine: ``python benchmarks/peers.py [run|table|install]``.

``run`` builds each peer's environment under ``.bench/``, makes one split, and runs every entry in
a process of its own, a short run of ours before each; every result is stored at once, so a run that
was killed goes on where it was. ``mixing`` does the same and prints effective draws a second.
``table`` makes the table and the figure of what is stored.
``--only-speed`` makes short runs that predict nothing, for seconds per sweep and memory alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import peers_figure
import peers_table
from peers_entries import ENTRIES, NOTES, Entry, chosen
from peers_environments import WANTED, environment, last_line
from peers_split import arrays

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent / ".bench"
SHORT = 12  # sweeps of a speed run


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "what", nargs="?", choices=["run", "table", "install", "mixing"], default="run"
    )
    parser.add_argument("--peers", help="names of peers or entries, with commas; all if left out")
    parser.add_argument("--data", choices=["ml-1m", "epinions"], default="ml-1m")
    parser.add_argument("--split-seed", type=int, default=0)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--threads", type=int, choices=[1, 2], default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sweeps", type=int, default=400, help="of the samplers")
    parser.add_argument("--burn-in", type=int, default=20, help="of the samplers, for coverage")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that a run may take")
    parser.add_argument("--quick", action="store_true", help="few sweeps, to try it")
    parser.add_argument("--only-speed", action="store_true", help="short runs, nothing predicted")
    args = parser.parse_args()
    if args.quick:
        args.sweeps, args.burn_in = 12, 5
    if args.only_speed:
        args.sweeps, args.burn_in = SHORT, 5
    return args


def kind_of(args: argparse.Namespace) -> str:
    kind = "speed" if args.only_speed else f"{args.sweeps}-sweeps"
    return f"{args.data}-{args.split_seed}-rank-{args.rank}-threads-{args.threads}-{kind}"


def child_environment(peer: str, threads: int) -> dict[str, str]:
    """The same number of threads for every library that there is."""
    libraries = ("OMP", "OPENBLAS", "MKL", "NUMBA", "BLIS", "VECLIB_MAXIMUM", "NUMEXPR", "RAYON",
                 "POLARS_MAX", "LK")  # fmt: skip
    env = {**os.environ, **{f"{name}_NUM_THREADS": str(threads) for name in libraries}}
    env.update(POLARS_MAX_THREADS=str(threads), JAX_PLATFORMS="cpu", TQDM_DISABLE="1")
    if peer != "bayesmf":
        env.pop("PYTHONPATH", None)
    return env


def run(entry: Entry, args: argparse.Namespace, data: Path, seed: int, speed: bool) -> Any:
    """One run in a process of its own: the curve and the final record, or its error."""
    python, error = sys.executable, ""
    if entry.peer != "bayesmf":
        python, error = environment(entry.peer, ROOT)
    if python is None:
        return {"error": f"does not install: {error}"}
    if entry.peer == "spark" and not shutil.which("java"):
        return {"error": "does not run: no java on this machine"}
    settings = {**entry.settings, "data": str(data), "rank": args.rank, "threads": args.threads,
                "seed": seed, "sweeps": SHORT if speed else args.sweeps, "burn_in": args.burn_in,
                "speed": speed, "quick": args.quick, "begun": time.time()}  # fmt: skip
    if speed:
        settings["burn_in"] = 5
    cpus = sorted(os.sched_getaffinity(0))[: args.threads]
    words = [python, str(HERE / "peers" / f"run_{entry.peer}.py"), json.dumps(settings)]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=args.limit,
                             env=child_environment(entry.peer, args.threads), check=False,
                             preexec_fn=lambda: os.sched_setaffinity(0, cpus))  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"was ended after {args.limit:.0f} s"}
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not lines or "final" not in lines[-1]:
        return {"error": f"does not run: {last_line(ran.stderr)}", "stderr": ran.stderr[-8000:]}
    return {"curve": lines[:-1], **lines[-1]}


def run_all(args: argparse.Namespace) -> None:
    data = arrays(args.data, args.split_seed, ROOT)
    folder = ROOT / "results" / kind_of(args)
    folder.mkdir(parents=True, exist_ok=True)
    reference = ENTRIES[0]
    for turn in range(args.rounds):
        for entry in (entry.on(args.data) for entry in chosen(args.peers)):
            path = folder / f"{turn}-{entry.key}.json"
            if path.exists() and "error" not in json.loads(path.read_text()):
                continue
            beside = run(reference, args, data, turn, speed=True)
            found = run(entry, args, data, turn, speed=args.only_speed)
            found |= {"entry": entry.key, "round": turn, "threads": args.threads,
                      "rank": args.rank, "ours beside": beside.get("sweep_seconds")}  # fmt: skip
            part = path.with_suffix(".part")
            part.write_text(json.dumps(found))
            part.rename(path)
            told = found.get("error") or (
                f"{found['seconds']:.1f} s, {found['sweep_seconds']:.3f} a step, "
                f"{found['sweep_seconds'] / (found['ours beside'] or float('nan')):.2f} of ours"
                + (f", RMSE {found['curve'][-1]['rmse']:.4f}" if found["curve"] else "")
            )
            print(f"round {turn}, {entry.key}: {told}", flush=True)


def main() -> None:
    args = options()
    if args.what == "install":
        for peer in WANTED:
            python, error = environment(peer, ROOT)
            print(f"{peer}: {error or python}", flush=True)
        return
    if args.what in ("run", "mixing"):
        run_all(args)
    folder = ROOT / "results" / kind_of(args)
    if args.what == "mixing":
        print(peers_table.mixing(folder))
        return
    if not folder.is_dir():
        raise SystemExit(f"there are no results of {kind_of(args)} yet; run first")
    speed = ROOT / "results" / kind_of(argparse.Namespace(**{**vars(args), "only_speed": True}))
    text = peers_table.table(folder, speed, kind_of(args), NOTES)
    (ROOT / f"peers-{kind_of(args)}.md").write_text(text, encoding="utf-8")
    print(text)
    if not args.only_speed:
        peers_figure.draw(folder, ROOT / f"peers-{kind_of(args)}")


if __name__ == "__main__":
    main()
