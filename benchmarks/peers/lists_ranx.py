"""Ranked lists scored by ranx: JSON in from standard input, one value for each user out."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

from ranx import Qrels, Run, evaluate

asked = json.load(sys.stdin)
qrels = Qrels({f"u{u}": {f"i{i}": 1 for i in items} for u, items in enumerate(asked["relevant"])})
run = Run({f"u{u}": {f"i{i}": 1 / (k + 1) for k, i in enumerate(items)}
           for u, items in enumerate(asked["lists"])})  # fmt: skip
found = {}
for n in asked["n"]:
    names = {"ndcg": f"ndcg@{n}", "recall": f"recall@{n}", "precision": f"precision@{n}",
             "mrr": f"mrr@{n}", "hit_rate": f"hit_rate@{n}"}  # fmt: skip
    evaluate(qrels, run, list(names.values()))
    users = [f"u{u}" for u in range(len(asked["lists"]))]
    found[str(n)] = {name: [float(run.scores[theirs][u]) for u in users]
                     for name, theirs in names.items()}  # fmt: skip
print(json.dumps({"version": version("ranx"), "scores": found}))
