"""implicit: ALS for implicit feedback, and its lists; settings as JSON in the first argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

asked = json.loads(sys.argv[1])
train = np.load(f"{asked['data']}/train.npz")
facts = json.loads(Path(f"{asked['data']}/facts.json").read_text())
ones = np.ones(len(train["user"]), np.float32)
rated = csr_matrix((ones, (train["user"], train["item"])), (facts["users"], facts["items"]))
model = AlternatingLeastSquares(factors=asked["rank"], iterations=asked["epochs"],
                                random_state=asked["seed"], num_threads=asked["threads"],
                                **asked["options"])  # fmt: skip
model.fit(rated, show_progress=False)
users = np.load(asked["users"])
lists, _ = model.recommend(users, rated[users], N=asked["n"], filter_already_liked_items=True)
np.save(asked["out"], lists.astype(np.int32))
