"""How well chains mix: ``python benchmarks/mixing.py ml-1m default no-side --sweeps 1000``.

Four chains of so many sweeps each on the paper's split 0; a fifth of the sweeps is dropped. Printed
are R-hat and effective draws of what is judged and of the mean precisions, the test error, and when
tau has arrived: the first sweep from which every chain's mean over 20 sweeps stays within three
standard deviations of the later mean.
"""

from __future__ import annotations

import argparse

import numpy as np

import bayesmf
from bayesmf import Model
from bayesmf.evaluation.diagnostics import PREDICTIONS, SUMMARIES, TAU, measure
from bayesmf.evaluation.metrics import log_score
from bayesmf.inference.loop import Progress

MODELS = {
    "default": lambda rank: Model(rank=rank),
    "no-side": lambda rank: Model.paper("no-side", rank=rank),
    "side": lambda rank: Model.paper("side", rank=rank),
    "side-only": lambda rank: Model.paper("side-only", rank=rank),
    "truncated": lambda rank: Model.paper("side", "truncated", rank=rank),
}
WINDOW = 20


def arrival(tau: np.ndarray, dropped: int) -> int:
    """The first sweep from which all chains stay where they are later."""
    late = tau[:, dropped:]
    means = np.lib.stride_tricks.sliding_window_view(tau, WINDOW, axis=1).mean(axis=2)
    away = (np.abs(means - late.mean()) > 3 * late.std()).any(axis=0)
    return int(np.flatnonzero(away)[-1]) + 1 if away.any() else 1


def run(data: str, name: str, asked: argparse.Namespace) -> None:
    train, test = bayesmf.split(bayesmf.load(data), "paper", seed=0)
    dropped, seen = asked.sweeps // 5, {"mean alpha": [], "mean beta": []}

    def watch(progress: Progress) -> None:
        seen["mean alpha"].append(progress.state.user.alpha.mean())
        seen["mean beta"].append(progress.state.item.alpha.mean())

    sampler = bayesmf.Gibbs(MODELS[name](asked.rank), sweeps=asked.sweeps, burn_in=dropped,
                            chains=4, seed=asked.seed, threads=asked.threads)  # fmt: skip
    fit = sampler.fit(train, test, callbacks=[watch])
    traces = {key: fit.traces[key][:, dropped:] for key in SUMMARIES}
    if sampler.model.precision != "constant":
        for key, values in seen.items():
            traces[key] = np.reshape(values, (asked.sweeps, 4)).T[:, dropped:]
    found = fit.evaluate(test)
    print(f"\n{data}, {name}, rank {asked.rank}, seed {asked.seed}, 4 x {asked.sweeps} sweeps, "
          f"{dropped} dropped, {fit.seconds / fit.sweeps:.4f} s a sweep")  # fmt: skip
    values, every = np.asarray(test.by_user.values, float), fit.predictions
    rmse = np.sqrt(np.mean((every.mean - values) ** 2))
    score = log_score(values, every.mean, every.rating_sd).mean()
    print(f"RMSE {rmse:.4f} of all draws, {found['rmse']:.4f} of those kept, "
          f"{fit.endless_rmse:.4f} ± {fit.endless_rmse_error:.4f} of endless ones; "
          f"log score {score:.4f} of all draws, {found['log_score']:.4f} of those kept; "
          f"tau arrives at sweep {arrival(fit.traces[TAU], dropped)}")  # fmt: skip
    draws = 4 * (asked.sweeps - dropped)
    for key, trace in traces.items():
        each = measure(trace)
        print(f"{key:20} R-hat {each.r_hat:.4f}  ESS {each.ess:6.0f}  tail {each.ess_tail:6.0f}  "
              f"a draw {each.ess / draws:.3f}")  # fmt: skip
    each = measure(fit.traces[PREDICTIONS][:, dropped:])
    worst, tenth, median = np.quantile(each.ess, [0.01, 0.1, 0.5])
    print(f"{each.ess.size} predictions: ESS 1 % {worst:.0f}, 10 % {tenth:.0f}, "
          f"median {median:.0f} ({median / draws:.3f} a draw); "
          f"150 or more {np.mean(each.ess >= 150):.1%}, "
          f"400 or more {np.mean(each.ess >= 400):.1%}; "
          f"R-hat 99 % {np.quantile(each.r_hat, 0.99):.4f}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("models", nargs="+", choices=list(MODELS))
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    for name in asked.models:
        run(asked.data, name, asked)


if __name__ == "__main__":
    main()
