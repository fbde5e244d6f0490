"""myFM: Gibbs sampling of factorization machines, with or without what was rated as features."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from common import Bench
from myfm import MyFMClassifier, MyFMRegressor, RelationBlock

bench = Bench()
blocks_asked = bench.set["blocks"]  # "none", "user" or "both"
probit = bench.set.get("probit")  # of thumbs: the file for the test ratings' probabilities
Machine = MyFMClassifier if probit else MyFMRegressor
nothing = sp.csr_matrix((len(bench.test_value), 0))


# user code
def rated(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    """Who rated what, each row of n ones scaled by n^-1/2."""
    ones = np.ones(len(row))
    return sp.csr_matrix((ones / np.sqrt(np.bincount(row))[row], (row, column)), shape)


# end
def watch(sweep: int, fm: object, hyper: object, history: object) -> tuple[bool, None]:
    bench.draw(sweep + 1, lambda: fm.predict_score(nothing, test), 1 / hyper.alpha,
               hyper.alpha)  # fmt: skip
    return False, None


bench.ready()
# user code
users, items = sp.eye(bench.n_users, format="csr"), sp.eye(bench.n_items, format="csr")
groups = [bench.n_users, bench.n_items]
if blocks_asked == "user":
    users = sp.hstack([users, rated(bench.user, bench.item, (bench.n_users, bench.n_items))])
    groups = [bench.n_users, bench.n_items, bench.n_items]
elif blocks_asked == "both":
    users = sp.hstack([users, rated(bench.user, bench.item, (bench.n_users, bench.n_items))])
    items = sp.hstack([items, rated(bench.item, bench.user, (bench.n_items, bench.n_users))])
    groups = [bench.n_users, bench.n_items, bench.n_items, bench.n_users]
users, items = users.tocsr(), items.tocsr()
train = [RelationBlock(bench.user, users), RelationBlock(bench.item, items)]
test = [RelationBlock(bench.test_user, users), RelationBlock(bench.test_item, items)]
fm = Machine(rank=bench.rank, random_seed=bench.seed)
fm.fit(None, bench.value, X_rel=train, group_shapes=groups, n_iter=bench.sweeps,
       n_kept_samples=bench.sweeps - bench.set["burn_in"],
       callback=watch)  # fmt: skip
# end
if bench.judged:
    with bench.pause():
        # user code
        fm.predict(None, test)
        # end
        if probit:
            np.save(probit, fm.predict_proba(None, test))
bench.coverage_of_draws()
bench.end()
