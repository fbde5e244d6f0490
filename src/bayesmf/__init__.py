"""Bayesian matrix factorization of ratings."""

from bayesmf.data.ratings import Ratings
from bayesmf.data.scale import Scale
from bayesmf.data.sources import load
from bayesmf.data.split import Split, split
from bayesmf.data.split_files import load_split, save_split
from bayesmf.data.write import write
from bayesmf.errors import DataError

__version__ = "0.1.0.dev0"

__all__ = [
    "DataError",
    "Ratings",
    "Scale",
    "Split",
    "load",
    "load_split",
    "save_split",
    "split",
    "write",
]
