"""LensKit: biased matrix factorization by alternating least squares, an epoch at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd
from common import Bench
from lenskit.als import BiasedMFScorer
from lenskit.data import from_interactions_df
from lenskit.training import TrainingOptions

bench = Bench()
epochs = bench.set["options"]["epochs"] if bench.judged else 5
few = pd.DataFrame({"user_id": [1, 1, 2], "item_id": [1, 2, 1], "rating": [1.0, 2.0, 3.0]})
BiasedMFScorer(embedding_size=2, epochs=1).train(from_interactions_df(few))


def predicted() -> np.ndarray:
    """What the scorer gives user by user, from its own biases and embeddings, at once."""
    user = scorer.users.numbers(bench.test_user)
    item = scorer.items.numbers(bench.test_item)
    bias = scorer.bias.global_bias + scorer.bias.user_biases[user] + scorer.bias.item_biases[item]
    return bias + np.sum(scorer.user_embeddings[user] * scorer.item_embeddings[item], 1)


bench.ready()
# user code
table = pd.DataFrame({"user_id": bench.user, "item_id": bench.item, "rating": bench.value})
data = from_interactions_df(table)
scorer = BiasedMFScorer(embedding_size=bench.rank, **bench.set["options"])
trainer = scorer.create_trainer(data, TrainingOptions(rng=bench.seed))
for epoch in range(1, epochs + 1):
    trainer.train_epoch()
    bench.point(epoch, predicted)
# end
bench.end()
