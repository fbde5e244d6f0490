"""Bayesian matrix factorization of ratings."""

TYPE_CHECKING = False  # what type checkers take for True; typing itself takes long to load
if TYPE_CHECKING:
    from bayesmf.data.ratings import Ratings
    from bayesmf.data.scale import Scale
    from bayesmf.data.shards import Shards, shard
    from bayesmf.data.sources import load
    from bayesmf.data.split import Split, split
    from bayesmf.data.split_files import load_split, save_split
    from bayesmf.data.write import write
    from bayesmf.engines.ray import Ray
    from bayesmf.errors import DataError
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
    "Ray",
    "Scale",
    "Shards",
    "Split",
    "Variational",
    "load",
    "load_model",
    "load_split",
    "save_split",
    "shard",
    "split",
    "write",
]

# Each module is loaded when its name is asked for: looking at data does not wait for the compiler,
# and neither does a key of the shell for NumPy.
_HOMES = {
    "MAP": "inference.map",
    "DataError": "errors",
    "Gibbs": "inference.gibbs",
    "Hyper": "model.spec",
    "Model": "model.spec",
    "Propagation": "inference.propagation",
    "Ratings": "data.ratings",
    "Ray": "engines.ray",
    "Scale": "data.scale",
    "Shards": "data.shards",
    "Split": "data.split",
    "Variational": "inference.variational",
    "load": "data.sources",
    "load_model": "inference.fitted",
    "load_split": "data.split_files",
    "save_split": "data.split_files",
    "shard": "data.shards",
    "split": "data.split",
    "write": "data.write",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"bayesmf.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'bayesmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
