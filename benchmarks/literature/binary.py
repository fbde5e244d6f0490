"""Thumbs: our probit and myFM's, on the same split, each in an environment of its own."""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import rankdata

import peers
from literature import variants
from literature.protocols import Case, Parts
from literature.runs import LEAST, ROOT, Settings, arrays_of, describe_run, store, stored
from literature.tables import NOTHING, markdown, notes, sweeps_of
from peers_entries import Entry
from peers_environments import WANTED
from peers_split import write_arrays

MYFM = "myfm"
BURN_IN = 20  # sweeps of myFM that are not kept, as many as ours
LIMIT = 2 * 3600.0  # seconds


def log_loss(probability: np.ndarray, up: np.ndarray) -> float:
    """Minus the mean log probability of what happened."""
    chance = np.where(up > 0, probability, 1 - probability)
    return float(-np.mean(np.log(np.maximum(chance, LEAST))))


def auc(score: np.ndarray, up: np.ndarray) -> float:
    """The share of pairs of a thumb up and a thumb down that are in the right order."""
    ups = int((up > 0).sum())
    downs = len(up) - ups
    return float((rankdata(score)[up > 0].sum() - ups * (ups + 1) / 2) / (ups * downs))


def run_myfm(case: Case, settings: Settings, parts: Parts) -> None:
    """myFM's probit with both rated sets, in a process of its own."""
    key = settings.key(case, MYFM)
    if settings.is_done(key):
        return
    folder, saved = ROOT / "thumbs", ROOT / "thumbs" / "myfm.npy"
    write_arrays(*parts, folder, None)
    sweeps = settings.of(case.part)
    args = argparse.Namespace(rank=settings.rank, threads=settings.threads or 1, sweeps=sweeps,
                              burn_in=min(BURN_IN, sweeps // 2), quick=False,
                              limit=LIMIT)  # fmt: skip
    entry = Entry("myfm-probit", "myfm", "probit", {"blocks": "both", "probit": str(saved)})
    found = peers.run(entry, args, folder, settings.seed, speed=False)
    if "error" in found:
        print(f"{key}: {found['error']}", flush=True)
        return
    up, probability = parts[1].by_user.values.astype(float), np.load(saved)
    record = {"part": case.part, "case": case.name, "model": MYFM, "rank": settings.rank,
              "sweeps": sweeps, "chains": 1, "seed": settings.seed, "seconds": found["seconds"],
              **describe_run()}  # fmt: skip
    store(
        key, record, {"value": up, "probability": np.column_stack([1 - probability, probability])}
    )
    print(f"{key}: log loss {log_loss(probability, up):.4f}, AUC {auc(probability, up):.4f} in "
          f"{found['seconds']:.0f} s", flush=True)  # fmt: skip


def report() -> str:
    """Log loss and AUC of everything that is stored."""
    records = stored("binary")
    if not records:
        return NOTHING
    rows = []
    for record in records:
        arrays = arrays_of(record["key"])
        up, probability = arrays["value"], arrays["probability"][:, 1].astype(float)
        name = WANTED["myfm"]["pins"][0].replace("myfm==", "myFM ") + ", probit, both rated sets"
        if record["model"] != MYFM:
            name = f"**{variants.words(record['model'])}**"
        rows.append([name, str(record["rank"]), sweeps_of(record),
                     f"{log_loss(probability, up):.4f}", f"{auc(probability, up):.4f}",
                     f"{record['seconds']:.0f}"])  # fmt: skip
    rows.sort(key=lambda row: row[3])
    share = f"Share of thumbs up among the test ratings: {up.mean():.4f}."
    head = ["model", "rank", "sweeps", "log loss", "AUC", "s"]
    return "\n\n".join([markdown(head, rows), share, notes(records)])
