"""The errors that users see: one sentence, saying what to do next."""

from __future__ import annotations


class DataError(ValueError):
    """Input that cannot be used: names the place, the value and the remedy in one sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # a name inside may hold a line end


class OverfittingWarning(UserWarning):
    """What is optimised still improves while the error on held-out ratings gets worse."""
