"""The choices of reading and of splitting, each written once; quick to load, for the shell.

``typing.get_args`` of a choice gives its words, for checks and for the command line.
"""

from __future__ import annotations

from typing import Literal

Duplicates = Literal["error", "last", "mean"]
"""What becomes of a pair that is rated more than once."""

IdKind = Literal["auto", "text"]
"""How ids are read: integers where all of them are, or text in any case."""

Protocol = Literal["paper", "random", "cold-start", "time"]
"""How ratings are cut into training and test. Folds are made by ``kfold``."""
