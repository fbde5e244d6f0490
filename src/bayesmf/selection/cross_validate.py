"""Cross-validation: every rating is predicted once, by a fit that has not seen it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.checks import check_kind, check_seed
from bayesmf.data.pairs import frame_like
from bayesmf.data.ratings import Ratings
from bayesmf.data.split import Split, kfold
from bayesmf.errors import DataError
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.inference.gibbs import Gibbs
from bayesmf.inference.one_call import read_parts
from bayesmf.model.attributes import Attributes
from bayesmf.model.spec import Model
from bayesmf.selection.compare import Comparison, Sums, summarise
from bayesmf.selection.trials import Step, Trials, watching

SWEEPS = 60  # of each chain of a fit that is made to be judged
CHAINS = 2


@dataclass(frozen=True, repr=False)
class CrossValidation(Comparison):
    """A ``Comparison`` of all ratings, each predicted when it was held out, and its folds."""

    folds: list[dict[str, Any]]  # one row for each model and fold

    @property
    def fold_table(self) -> Any:
        """A pyarrow table of ``folds``."""
        return frame_like({name: [row[name] for row in self.folds] for name in self.folds[0]})


def cross_validate(
    data: Any,
    models: Any,
    folds: int = 5,
    *,
    sweeps: int = SWEEPS,
    chains: int = CHAINS,
    bins: Sequence[int] | None = None,
    seed: int = 0,
    threads: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | Callable[[Step], Any] = False,
    **reading: Any,
) -> CrossValidation:
    """Fit each model once for each fold, and predict the ratings that the fold holds out.

    - ``data``: as ``fit`` takes it, but for shards; ``reading`` are its options.
    - ``models``: a mapping from names to models, or a list of them. A model is a ``Model``, which
      is sampled with ``sweeps`` of each of ``chains`` chains, or an algorithm with a model, such as
      ``MAP(Model())`` or ``Gibbs(Model(), sweeps=400)``. Differences are against the first one.
    - ``folds``: into how many parts the ratings are cut, at random by ``seed``.
    - ``bins``: as ``evaluate`` takes them.
    - ``out``, ``resume``: a folder in which every fit is kept when it is done, and whether to go on
      with what is there.
    - ``progress``: True shows a bar; a function is called with a ``Step`` after every sweep.

    Returns a ``CrossValidation``: the comparison over all ratings, and ``folds``, the errors of
    each fold.
    """
    check_seed(seed)
    algorithms = name_algorithms(models, sweeps, chains, seed, threads)
    ratings = read_ratings(data, reading)
    parts = kfold(ratings, seed, folds)
    told = {name: describe(each) for name, each in algorithms.items()}
    settings = {"ratings": ratings.fingerprint(), "folds": folds, "seed": seed, "models": told}
    with watching(progress) as bar:
        trials = Trials(None if out is None else Path(out), progress=bar)
        trials.total = len(parts) * sum(map(cost_of, algorithms.values()))
        with trials.holding():
            trials.open(settings, resume)
            sums, rows = _run_folds(trials, algorithms, parts)
    by_user = parts[0].train.by_user.counts + parts[0].test.by_user.counts
    totals = np.repeat(by_user, by_user)
    cut = FrequencyBins.at_quantiles(totals) if bins is None else FrequencyBins(bins, totals)  # type: ignore[arg-type]
    bin_of = FrequencyBins(cut.uppers, by_user).index
    whole = summarise(sums, bin_of, cut.labels)
    return CrossValidation(**vars(whole), folds=rows)


def _run_folds(
    trials: Trials, algorithms: Mapping[str, Any], parts: Sequence[Split]
) -> tuple[dict[str, Sums], list[dict[str, Any]]]:
    """Fit every model for every fold; the sums of all folds, and a row for each fit."""
    sums: dict[str, Sums] = {}
    rows = []
    for number, part in enumerate(parts, 1):
        for name, algorithm in algorithms.items():
            label = f"{name}, fold {number}"
            cost = cost_of(algorithm)
            found, facts = trials.run(label, algorithm, part.train, part.test, cost)
            sums[name] = found if name not in sums else sums[name].add(found)
            rows.append({"model": name, "fold": number, **facts})
    return sums, rows


def read_ratings(data: Any, reading: dict[str, Any]) -> Ratings:
    """Read ratings from whatever holds them, as ``fit`` does."""
    train = read_parts(data, reading).train
    if not isinstance(train, Ratings):
        raise DataError(f"{data} holds shards, which cannot be cut again; give the ratings")
    return train


def name_algorithms(
    models: Any, sweeps: int, chains: int, seed: int, threads: int | None
) -> dict[str, Any]:
    """The algorithms by name; a model is sampled with so many sweeps and chains."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        several = models if isinstance(models, list | tuple) else [models]
        named = {_name(model, number): model for number, model in enumerate(several, 1)}
    if not named:
        raise DataError("there are no models; give one or more")
    found = {}
    for name, model in named.items():
        if isinstance(model, Model):
            model = Gibbs(model, sweeps=sweeps, chains=chains, seed=seed, threads=threads)
        check_kind(name, getattr(model, "model", None), Model, "a Model, or an algorithm with one")
        found[name] = model
    return found


def _name(model: Any, number: int) -> str:
    rank = getattr(getattr(model, "model", model), "rank", None)
    return f"model {number}" if rank is None else f"model {number}, rank {rank}"


def describe(algorithm: Any) -> dict[str, Any]:
    """What a search that is resumed must have in common with the one that was broken off."""
    own: dict[str, Any] = {
        k: str(v) for k, v in vars(algorithm).items() if k not in ("model", "threads")
    }
    model: Model = algorithm.model
    designs = *model.user_designs, *model.item_designs
    tables = [design.sha256 for design in designs if isinstance(design, Attributes)]
    if tables:
        own["attributes"] = tables
    return {"algorithm": type(algorithm).__name__, "model": repr(model), **own}


def cost_of(algorithm: Any) -> float:
    """About how long a fit takes, in units of its own: sweeps times what a rating costs in one."""
    model: Model = algorithm.model
    size = model.size
    latent = 30 if model.responds else 0
    sweeps: float = (getattr(algorithm, "sweeps", None) or 100) * getattr(algorithm, "chains", 1)
    return sweeps * (20.0 + size + 0.1 * size**2 + latent)
