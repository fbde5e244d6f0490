"""Who is compared: a line of the table for each entry, with the settings it runs at.

"Tuned" settings were chosen by peers_tune.py, on a tenth of the training ratings held out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One line: a tool, a model, and how its runner is told about it."""

    key: str  # names its files
    peer: str  # names its environment and its runner
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    sampler: bool = False  # runs as many sweeps as are asked for
    step: str = "epoch"
    elsewhere: dict[str, dict[str, Any]] = field(default_factory=dict)  # options by data set

    def on(self, data: str) -> Entry:
        """As it runs on a data set."""
        more = self.elsewhere.get(data)
        if more is None:
            return self
        options = {**self.settings["options"], **more}
        return replace(self, settings={**self.settings, "options": options})


def sgd(key: str, peer: str, model: str, algorithm: str, **options: Any) -> Entry:
    return Entry(key, peer, model, {"algorithm": algorithm, "options": options})


ENTRIES = [
    Entry("bayesmf-no-side", "bayesmf", "no side", {"model": "no side"}, True, "sweep"),
    Entry("bayesmf-side", "bayesmf", "side", {"model": "side"}, True, "sweep"),
    Entry("bayesmf-both", "bayesmf", "both sides", {"model": "both"}, True, "sweep"),
    Entry("bayesmf-default", "bayesmf", "both sides, robust (default)", {"model": "default"}, True,
          "sweep"),
    Entry("smurff-learned", "smurff", "BPMF, adaptive noise", {}, True, "sweep"),
    Entry("smurff-fixed", "smurff", "BPMF, noise precision 1.5", {"precision": 1.5}, True, "sweep"),
    Entry("myfm-plain", "myfm", "one-hot user and item", {"blocks": "none"}, True, "sweep"),
    Entry("myfm-user", "myfm", "+ items the user rated", {"blocks": "user"}, True, "sweep"),
    Entry("myfm-both", "myfm", "+ both rated sets", {"blocks": "both"}, True, "sweep"),
    sgd("surprise-svd", "surprise", "SVD, defaults", "SVD", n_epochs=20),
    sgd("surprise-svd-tuned", "surprise", "SVD, tuned", "SVD", n_epochs=60, lr_all=0.005,
        reg_all=0.06),
    sgd("surprise-svdpp", "surprise", "SVD++, defaults", "SVD++", n_epochs=20),
    replace(sgd("cornac-mf", "cornac", "MF, tuned", "MF", max_iter=80, learning_rate=0.005,
                lambda_reg=0.06, use_bias=True),
            elsewhere={"epinions": {"max_iter": 40, "lambda_reg": 0.1}}),
    sgd("cornac-pmf", "cornac", "PMF, tuned", "PMF", max_iter=50, learning_rate=0.001,
        lambda_reg=0.001),
    Entry("lenskit-als", "lenskit", "biased ALS", {"options": {"epochs": 20}},
          elsewhere={"epinions": {"regularization": 1.0}}),
    Entry("spark-als", "spark", "ALS, tuned",
          {"options": {"maxIter": 20, "regParam": 0.08}}, step="iteration"),
    Entry("numpyro-svi", "numpyro", "mean field by SVI, 1,500 steps", {"steps": 1500, "every": 100},
          step="step"),
    Entry("cmfrec-als", "cmfrec", "ALS with implicit features, tuned",
          {"options": {"niter": 15, "lambda_": 15.0, "add_implicit_features": True}},
          step="iteration"),
]  # fmt: skip
NOTES = {
    "implicit": "has no mode for explicit ratings: its scores are not ratings, so it has no line",
}
TOOLS = {"bayesmf": "bayesmf", "smurff": "SMURFF", "myfm": "myFM", "surprise": "Surprise",
         "cornac": "cornac", "lenskit": "LensKit", "spark": "Spark", "numpyro": "NumPyro",
         "cmfrec": "cmfrec"}  # fmt: skip


def chosen(names: str | None) -> list[Entry]:
    """All, or those whose peer or key is named."""
    if names is None:
        return ENTRIES
    asked = names.split(",")
    unknown = set(asked) - {e.peer for e in ENTRIES} - {e.key for e in ENTRIES}
    if unknown:
        raise SystemExit(f"no peer is called {', '.join(sorted(unknown))}")
    return [e for e in ENTRIES if e.peer in asked or e.key in asked]
