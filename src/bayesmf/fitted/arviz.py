"""A fit as ArviZ has it: what is judged, and parameters that no prediction depends on."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import DataError
from bayesmf.evaluation.diagnostics import PREDICTIONS
from bayesmf.fitted.posterior import Posterior
from bayesmf.model.designs import SIDES
from bayesmf.model.state import shift_names

UNIDENTIFIED = "unidentified"
WHY = (
    "Do not judge convergence by these: features can be turned and scaled against one another, and "
    "biases shifted into means, without any prediction changing, so that chains need not agree."
)


def to_arviz(
    traces: Mapping[str, NDArray[Any]], posterior: Posterior | None, chains: Sequence[int]
) -> Any:
    """``Fitted.to_arviz``; ``chains`` has the chain of each draw of the posterior, if known."""
    if not traces:
        raise DataError("only Gibbs sampling leaves traces for ArviZ; fit with bayesmf.Gibbs")
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "to_arviz needs ArviZ, which is not installed; run pip install 'bayesmf[arviz]'"
        ) from error
    dims: dict[str, Any] = {"dims": {PREDICTIONS: ["pair"]}} if PREDICTIONS in traces else {}
    old = "posterior" in inspect.signature(arviz.from_dict).parameters  # before 1.0
    groups: dict[str, Any] = {"posterior": dict(traces)}
    out: Any = arviz.from_dict(**groups, **dims) if old else arviz.from_dict(groups, **dims)
    if posterior is not None and len(chains) == len(posterior):
        raw = unidentified(posterior, chains)
        if old:
            out.add_groups({UNIDENTIFIED: raw})
        else:
            out[UNIDENTIFIED] = type(out)(raw)
    return out


def unidentified(posterior: Posterior, chains: Sequence[int]) -> Any:
    """An xarray ``Dataset`` of Lambda, mu, the variance of biases and the scale of W.

    Its first dimensions are chain and draw. If chains kept unequal numbers of draws, the last
    draws of each are taken, as many as the chain with the fewest has.
    """
    import xarray

    numbers = np.asarray(chains)
    count = np.unique(numbers, return_counts=True)[1].min()
    order = np.array([np.flatnonzero(numbers == chain)[-count:] for chain in np.unique(numbers)])
    variables = {
        name: (("chain", "draw", *dims), values[order])
        for name, (dims, values) in _by_draw(posterior).items()
    }
    coordinates = {"chain": np.arange(len(order)), "draw": np.arange(count)}
    return xarray.Dataset(variables, coordinates, {"why": WHY})


def _by_draw(posterior: Posterior) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
    """Each parameter with its dimensions, and its values by draw."""
    draws, model = posterior.draws, posterior.model
    out: dict[str, tuple[tuple[str, ...], NDArray[Any]]] = {}
    for side in SIDES:
        Lambda = np.asarray(draws[f"{side}.Lambda"], float)
        out[f"{side} Lambda"] = ("column", "column_2"), Lambda
        out[f"{side} mu"] = ("column",), np.asarray(draws[f"{side}.mu"], float)
        end = model.groups(side)[0].end  # of the columns that share a prior with the bias
        out[f"{side} bias variance"] = (), np.linalg.inv(Lambda[:, :end, :end])[:, 0, 0]
        for number in range(len(model.designs(side))):
            called = shift_names(number)
            for part, dims in (("Lambda", ("column", "column_2")), ("mu", ("column",))):
                values = draws[f"{side}.{called[part]}"]
                out[f"{side} {called[part]}"] = dims, np.asarray(values, float)
            W = draws[f"{side}.{called['W']}"][:, :, model.first_shifted :]
            squares = [float(np.mean(np.square(each, dtype=float))) for each in W]
            out[f"{side} {called['W']} scale"] = (), np.sqrt(squares)
    return out
