"""Where a sweep runs: the protocol of engines, and the first one, the threads of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from bayesmf.choices import Form
from bayesmf.data.io.shards import Shards
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError, Option
from bayesmf.model.data import Data
from bayesmf.model.spec import Model
from bayesmf.model.state import State, random_start, start_sd
from bayesmf.random.draws import Draws
from bayesmf.sweep.sweep import gibbs_sweep

ENGINES = {"threads": "bayesmf.inference.engine:Threads", "ray": "bayesmf.engines.ray.cluster:Ray"}
"""Engines by name, each as module:class; a class is loaded when it is asked for."""


@runtime_checkable
class Engine(Protocol):
    """What ``Gibbs(engine=...)`` takes; the draws must not depend on it."""

    def check(self, model: Model, form: Form) -> None:
        """Refuse, in a sentence, what this engine cannot sample."""

    def place(self, ratings: Ratings | Shards, model: Model) -> AbstractContextManager[Data]:
        """The ratings where the sweeps find them, as long as the context lasts."""

    def start(self, model: Model, data: Data, seed: int, chain: int) -> State:
        """The random start of a chain."""

    def sweep(self, model: Model, data: Data, state: State, draws: Draws, form: Form) -> None:
        """Draw everything once; changes ``state`` in place."""

    def map(self, work: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
        """work(job) of independent jobs, in their order."""

    def shared(self) -> AbstractContextManager[Any]:
        """What several calls of ``map`` can share, such as a cluster that is started once."""

    def describe(self, data: Data) -> dict[str, Any]:
        """What of this engine decides the bits of a run; a checkpoint keeps it."""


class Threads:
    """The threads of this process."""

    def check(self, model: Model, form: Form) -> None:
        """Every model and form can be sampled."""

    def place(self, ratings: Ratings | Shards, model: Model) -> AbstractContextManager[Data]:
        """The ratings in memory."""
        if not isinstance(ratings, Ratings):
            raise DataError(
                f"{ratings.folder} holds shards; fit them with {Option('engine', 'ray')}"
            )
        return contextlib.nullcontext(Data.of(ratings, model))

    def start(self, model: Model, data: Data, seed: int, chain: int) -> State:
        """Random values of everything."""
        return random_start(model, data, seed, chain, start_sd(chain))

    def sweep(self, model: Model, data: Data, state: State, draws: Draws, form: Form) -> None:
        """Draw everything once."""
        gibbs_sweep(model, data, state, draws, form)

    def map(self, work: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
        """One job after the other; each uses all threads."""
        return [work(job) for job in jobs]

    def shared(self) -> AbstractContextManager[Any]:
        """There is nothing to start."""
        return contextlib.nullcontext()

    def describe(self, data: Data) -> dict[str, Any]:
        """Nothing: the bits are the same on any number of threads."""
        return {}


def find_engine(asked: str | Engine) -> Engine:
    """The engine of this name, or the one that is given."""
    if isinstance(asked, str) and asked in ENGINES:
        module, _, name = ENGINES[asked].partition(":")
        found: Engine = getattr(import_module(module), name)()
        return found
    if isinstance(asked, Engine) and not isinstance(asked, str | type):
        return asked
    named = " or ".join(repr(name) for name in ENGINES)
    told = f"engine={asked!r}: choose {named}, or give an engine such as bayesmf.Ray(...)"
    raise DataError(told) if isinstance(asked, str) else TypeError(told)
