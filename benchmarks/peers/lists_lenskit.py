"""LensKit: ALS for ratings or for implicit feedback, and its lists; settings as JSON."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
from lenskit.als import BiasedMFScorer, ImplicitMFScorer
from lenskit.data import from_interactions_df
from lenskit.training import TrainingOptions

BLOCK = 256  # users scored at once

asked = json.loads(sys.argv[1])
train = np.load(f"{asked['data']}/train.npz")
table = pd.DataFrame({"user_id": train["user"], "item_id": train["item"],
                      "rating": train["value"].astype(float)})  # fmt: skip
explicit = asked["options"].pop("explicit")
kind = BiasedMFScorer if explicit else ImplicitMFScorer
scorer = kind(embedding_size=asked["rank"], epochs=asked["epochs"], **asked["options"])
scorer.train(from_interactions_df(table), TrainingOptions(rng=asked["seed"]))

users, n = np.load(asked["users"]), asked["n"]
number = scorer.users.numbers(users)
items = np.asarray(scorer.items.ids())
factors = np.asarray(scorer.item_embeddings)
column = {item: k for k, item in enumerate(items.tolist())}
order = np.argsort(train["user"], kind="stable")
starts = np.searchsorted(train["user"][order], np.arange(users.max() + 2))
lists = np.empty((len(users), n), np.int32)
for begin in range(0, len(users), BLOCK):
    some = slice(begin, begin + BLOCK)
    scores = np.asarray(scorer.user_embeddings)[number[some]] @ factors.T
    if explicit:  # the user's own bias does not change the order
        scores = scores + scorer.bias.item_biases
    for row, user in zip(scores, users[some], strict=True):
        rated = train["item"][order[starts[user] : starts[user + 1]]]
        row[[column[item] for item in rated.tolist()]] = -np.inf
    lists[some] = items[np.argsort(-scores, axis=1, kind="stable")[:, :n]]
np.save(asked["out"], lists)
