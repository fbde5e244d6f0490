"""Ranked lists: ``python benchmarks/ranking.py check`` and ``BAYESMF_DATA=... ... run ml-1m``.

``check`` scores random lists with our metrics and with ranx's, prints the largest difference, and
with ``--out FILE`` stores the lists and ranx's values for the tests. ``run`` makes lists of the
default model, of LensKit's ALS (for ratings and for implicit feedback) and of implicit's ALS for
the same split, and prints NDCG and recall by user frequency. Peers run in environments of their
own, under ``.bench/``. What counts as relevant are test ratings of at least ``--relevant``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import bayesmf
from bayesmf.evaluation.frequency import FrequencyBins, totals_of
from bayesmf.evaluation.ranking import find_hits, rank_scores, score_lists
from peers import ROOT, child_environment
from peers_environments import environment, last_line
from peers_split import write_arrays

HERE = Path(__file__).resolve().parent
PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "LensKit, biased ALS": ("lenskit", {"explicit": True}),
    "LensKit, implicit ALS": ("lenskit", {"explicit": False}),
    "implicit, ALS": ("implicit", {}),
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["check", "run"])
    parser.add_argument("data", nargs="?", default="ml-1m")
    parser.add_argument("--out", type=Path, help="of check: a JSON file for the tests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--relevant", type=float, default=4.0)
    parser.add_argument("--rank", type=int, default=20, help="of the default model")
    parser.add_argument("--peer-rank", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=20, help="of the peers")
    parser.add_argument("--sweeps", type=int, help="of each chain; until converged if left out")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def random_lists(seed: int) -> dict[str, Any]:
    """Lists of 60 users: some short, some without a hit, some with more liked items than places."""
    rng = np.random.default_rng(seed)
    lists, relevant = [], []
    for _ in range(60):
        lists.append(rng.permutation(80)[: rng.integers(1, 13)].tolist())
        relevant.append(rng.permutation(80)[: rng.integers(1, 40)].tolist())
    return {"n": [1, 5, 10], "lists": lists, "relevant": relevant}


def check(args: argparse.Namespace) -> None:
    asked = random_lists(args.seed)
    python, error = environment("ranx", ROOT)
    if python is None:
        raise SystemExit(f"ranx does not install: {error}")
    words = [python, str(HERE / "peers" / "lists_ranx.py")]
    ran = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True,
                         env=child_environment("ranx", 1), check=True)  # fmt: skip
    theirs = json.loads(ran.stdout.splitlines()[-1])
    owner = np.repeat(np.arange(60), [len(each) for each in asked["relevant"]])
    item = np.concatenate([np.array(each) for each in asked["relevant"]])
    worst = 0.0
    for n in asked["n"]:
        padded = np.array([(each[:n] + [-1] * n)[:n] for each in asked["lists"]], np.int32)
        ours = score_lists(find_hits(padded, owner, item), np.bincount(owner))
        for name, values in theirs["scores"][str(n)].items():
            worst = max(worst, float(np.abs(ours[name] - np.array(values)).max()))
    print(f"ranx {theirs['version']}: largest difference {worst:.2g}")
    if args.out is not None:
        args.out.write_text(json.dumps({**asked, "ranx": theirs}) + "\n")


def lists_of(peer: str, settings: dict[str, Any], folder: Path) -> np.ndarray:
    python, error = environment(peer, ROOT)
    if python is None:
        raise SystemExit(f"{peer} does not install: {error}")
    out = folder / f"lists-{peer}.npy"
    words = [python, str(HERE / "peers" / f"lists_{peer}.py"),
             json.dumps({**settings, "out": str(out)})]  # fmt: skip
    ran = subprocess.run(words, capture_output=True, text=True, check=False,
                         env=child_environment(peer, settings["threads"]))  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"{peer} does not run: {last_line(ran.stderr)}")
    return np.load(out)


def run(args: argparse.Namespace) -> None:
    train, test = bayesmf.split(bayesmf.load(args.data), "paper", seed=args.seed)
    folder = ROOT / "data" / f"ranking-{Path(args.data).name}-{args.seed}"
    write_arrays(train, test, folder, args.seed)
    liked = test.select(np.asarray(test.values, float) >= args.relevant)
    rows, users = liked.by_user, np.flatnonzero(liked.by_user.counts)
    np.save(folder / "users.npy", users)
    everybody = FrequencyBins.of([train, test], test)
    totals = np.zeros(test.n_users, np.int64)
    totals[test.by_user.row_index] = totals_of([train, test], test)
    bins = FrequencyBins(everybody.uppers, totals[users])
    found, seconds = {}, {}

    def score(lists: np.ndarray) -> dict[str, Any]:
        return rank_scores(lists, np.searchsorted(users, rows.row_index), rows.index,
                           train.by_item.counts, train.n_users, bins)  # fmt: skip

    begun = time.perf_counter()
    sampler = bayesmf.Gibbs(bayesmf.Model(args.rank), sweeps=args.sweeps, seed=args.seed,
                            threads=args.threads)  # fmt: skip
    fit = sampler.fit(train)
    for name, rank_by in (("bayesmf, mean", "mean"), ("bayesmf, lower", "lower")):
        found[name] = fit.evaluate_ranking(test, args.n, relevant=args.relevant, rank_by=rank_by)
        seconds[name] = time.perf_counter() - begun
    for name, (peer, own) in PEERS.items():
        begun = time.perf_counter()
        settings = {"data": str(folder), "users": str(folder / "users.npy"), "n": args.n,
                    "rank": args.peer_rank, "epochs": args.epochs, "seed": args.seed,
                    "threads": args.threads, "options": own}  # fmt: skip
        found[name] = score(lists_of(peer, settings, folder))
        seconds[name] = time.perf_counter() - begun
    print(f"{args.data}, paper's split {args.seed}; {len(users):,} users with test ratings of "
          f"{args.relevant:g} or more; default model of rank {args.rank}, peers of rank "
          f"{args.peer_rank} with {args.epochs} epochs")  # fmt: skip
    for measure in ("ndcg", "recall", "coverage", "novelty"):
        head = [f"{measure}@{args.n}", *bins.labels, "all", "seconds"]
        print(f"\n| {' | '.join(head)} |\n| :-- |" + " --: |" * (len(head) - 1))
        for name, facts in found.items():
            each = [*(row[measure] for row in facts["by_user_frequency"]), facts[measure]]
            cells = [*(f"{value:.4f}" for value in each), f"{seconds[name]:.0f}"]
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    asked = options()
    sys.exit({"check": check, "run": run}[asked.what](asked))
