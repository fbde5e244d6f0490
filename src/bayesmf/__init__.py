"""Bayesian matrix factorization of ratings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.data.sources import load
from bayesmf.data.split import Split, split
from bayesmf.data.split_files import load_split, save_split
from bayesmf.data.write import write
from bayesmf.errors import DataError

if TYPE_CHECKING:
    from bayesmf.inference.fitted import load_model
    from bayesmf.inference.gibbs import Gibbs
    from bayesmf.inference.map import MAP
    from bayesmf.inference.propagation import Propagation
    from bayesmf.inference.variational import Variational
    from bayesmf.model.spec import Hyper, Model

__version__ = "0.1.0.dev0"

__all__ = [
    "MAP",
    "DataError",
    "Gibbs",
    "Hyper",
    "Model",
    "Propagation",
    "Ratings",
    "Scale",
    "Split",
    "Variational",
    "load",
    "load_model",
    "load_split",
    "save_split",
    "split",
    "write",
]

# Names whose modules load the compiler; looking at data should not wait for it.
_LATE = {
    "MAP": "bayesmf.inference.map",
    "Gibbs": "bayesmf.inference.gibbs",
    "Hyper": "bayesmf.model.spec",
    "Model": "bayesmf.model.spec",
    "Propagation": "bayesmf.inference.propagation",
    "Variational": "bayesmf.inference.variational",
    "load_model": "bayesmf.inference.fitted",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module 'bayesmf' has no attribute {name!r}")
