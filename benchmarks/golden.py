"""Hashes of small fits of every variant: a refactor keeps the bits.

``python benchmarks/golden.py take FILE`` writes them, ``python benchmarks/golden.py compare FILE``
says which have changed since; add ``ray`` for the engine on Ray. Bits depend on the processor, so
the file is for one machine, before and after a change.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import bayesmf
from bayesmf.data.synthetic import World, generate
from bayesmf.model.state import to_arrays

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracle.variants import VARIANTS

MODELS = {**VARIANTS, "default": bayesmf.Model(rank=3)}
FULL = generate(World(n_users=90, n_items=60, n_ratings=2500, rank=2), seed=1)[0]
TRAIN, TEST = bayesmf.split(FULL, "paper", seed=3)
USERS, ITEMS = FULL.users.values.tolist(), FULL.items.values.tolist()
PAIRS = [*zip(USERS[:40], (2 * ITEMS)[:80:2], strict=True), (10**6, ITEMS[0]), (USERS[0], 10**6)]
NEW = bayesmf.Ratings.from_triplets(users=[2000] * 3, items=ITEMS[1:4], ratings=[5, 2, 4])


class Hashes:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def put(self, key: str, values: Any) -> None:
        array = np.ascontiguousarray(values)
        content = str((array.dtype.str, array.shape)).encode() + array.tobytes()
        self.found[key] = hashlib.sha256(content).hexdigest()[:16]

    def put_all(self, key: str, arrays: Any) -> None:
        for name, values in arrays.items():
            self.put(f"{key}/{name}", values)


def everyday(out: Hashes, key: str, fit: Any) -> None:
    table = fit.predict(PAIRS)
    for name in ("mean", "sd", "q05", "q95"):
        out.put(f"{key}/predict/{name}", table[name].to_numpy())
    chances = fit.probabilities(PAIRS)
    out.put(f"{key}/probabilities", [chances[name].to_numpy() for name in chances.column_names[2:]])
    for rank_by in ("mean", "lower", "thompson"):
        best = fit.recommend(USERS[:2], n=4, rank_by=rank_by, seen=TRAIN)
        out.put(f"{key}/recommend/{rank_by}", [best[c].to_numpy() for c in ("item", "score")])
    out.put_all(f"{key}/fold-in", fit.fold_in(NEW, seed=5).posterior.draws)
    with tempfile.TemporaryDirectory() as folder:
        fit.save(f"{folder}/model")
        out.put_all(f"{key}/saved", bayesmf.load_model(f"{folder}/model").posterior.draws)


def sample(out: Hashes, key: str, model: bayesmf.Model, **options: Any) -> Any:
    sampler = bayesmf.Gibbs(model, sweeps=12, burn_in=4, chains=2, keep=4, seed=7, **options)
    fit = sampler.fit(TRAIN, TEST)
    out.put_all(f"{key}/traces", fit.traces)
    out.put_all(f"{key}/draws", fit.draws.arrays)
    out.put(f"{key}/curve", fit.rmse_by_sweep)
    for number, state in enumerate(fit.states):
        out.put_all(f"{key}/state {number}", to_arrays(state))
    return fit


def take(with_ray: bool) -> dict[str, str]:
    out = Hashes()
    for name, model in MODELS.items():
        everyday(out, f"{name}/gibbs", sample(out, f"{name}/gibbs", model))
        if model.own_features and (model.user_designs or model.item_designs):
            for form in ("non-centred", "interwoven"):
                sample(out, f"{name}/gibbs {form}", model, form=form)
        vi = bayesmf.Variational(model, sweeps=5, seed=7).fit(TRAIN, TEST)
        out.put_all(f"{name}/vi/state", to_arrays(vi.state))
        out.put_all(f"{name}/vi/trace", vi.trace)
        everyday(out, f"{name}/vi", vi)
        for method, sweeps in (("coordinate", 6), ("momentum", 20)):
            point = bayesmf.MAP(model, method=method, sweeps=sweeps, seed=7).fit(TRAIN, TEST)
            out.put_all(f"{name}/map {method}", to_arrays(point.state))
        plain = not (model.user_designs or model.item_designs) and model.prior == "gaussian"
        if plain and model.precision == "constant":
            grid = bayesmf.Propagation(model, grid=(2, 2), sweeps=12, burn_in=4, seed=7, keep=5)
            out.put_all(f"{name}/propagation", grid.fit(TRAIN).posterior.draws)
    if with_ray:
        with bayesmf.Ray(workers=2).cluster():
            for name, model in MODELS.items():
                if model.own_features:
                    sample(out, f"{name}/ray", model, engine=bayesmf.Ray())
    return out.found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, path, *rest = sys.argv[1:]
    found = take("ray" in rest)
    if what == "take":
        Path(path).write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
        print(f"{len(found)} hashes")
    else:
        before = json.loads(Path(path).read_text())
        changed = [key for key in before if found.get(key) not in (None, before[key])]
        gone, new = len(set(before) - set(found)), len(set(found) - set(before))
        print(f"{len(before)} hashes: {len(changed)} changed, {gone} gone, {new} new")
        for key, count in Counter(key.partition("/")[2] for key in changed).most_common():
            print(f"{count:4} {key}")
        sys.exit(bool(changed))
