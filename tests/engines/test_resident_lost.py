"""Machines die with the rows of their users: these are made again, with the same bits."""

from __future__ import annotations

from typing import ClassVar

import pytest

from bayesmf import DataError
from bayesmf.engines.ray import resident_sweep as resident_sweeps
from bayesmf.engines.ray.resident import Here
from oracle.resident import RESIDENT, ROBUST, InProcess, fitted, same


class Lost(Exception):
    pass


class Box:
    """A value that may die."""

    def __init__(self, value):
        self.value, self.dead = value, False


class Fragile(Here):
    """Machines whose results die when told to; what the driver put stays."""

    lost = (Lost,)
    boxes: ClassVar[list[Box]] = []
    countdown = 0  # work until all die
    losses = 0

    def call(self, work, *values):
        return self._boxed(self._run(work, values))

    def step(self, work, *values):
        one, other = self._run(work, values)
        return self._boxed(one), self._boxed(other)

    def get(self, handles):
        return [self._open(handle) for handle in handles]

    def _run(self, work, values):
        Fragile.countdown -= 1
        if Fragile.countdown == 0:
            die()
        return work(*map(self._open, values))

    def _boxed(self, value):
        box = Box(value)
        Fragile.boxes.append(box)
        return box

    def _open(self, value):
        if isinstance(value, Box):
            if value.dead:
                raise Lost
            return value.value
        return value


def die():
    for box in Fragile.boxes:
        box.dead = True
    Fragile.losses += 1


class OnFragile(InProcess):
    where = Fragile


@pytest.fixture
def redone(monkeypatch):
    """The sweeps that were made again, and from where."""
    seen, again = [], resident_sweeps._again

    def noted(model, data, state, since, draws):
        seen.append((None if since is None else since.sweep, draws.sweep))
        again(model, data, state, since, draws)

    monkeypatch.setattr(resident_sweeps, "_again", noted)
    Fragile.boxes, Fragile.countdown, Fragile.losses = [], 0, 0
    return seen


@pytest.mark.parametrize("keep", [0, 4])
@pytest.mark.parametrize("moment", [0, 1, 7, 12, 16])
def test_rows_that_were_lost_are_made_again(moment, keep, redone):
    """Between two sweeps, or at some piece of work within one."""
    model, options = RESIDENT["no side, student-t"], {"sweeps": 10, "keep": keep}
    whole = fitted(model, **options)

    def kill(progress):
        if progress.sweep in (3, 8):
            Fragile.countdown = moment
            if not moment:
                die()

    same(fitted(model, OnFragile, callbacks=[kill], **options), whole)
    assert Fragile.losses == 2
    assert redone
    assert all(since is None if keep == 0 or sweep < 6 else since >= 4 for since, sweep in redone)


@pytest.mark.parametrize("moment", [3, 8, 12])
def test_rows_that_were_lost_at_the_start_are_made_again(moment, redone):
    """A random one: as it is made, in the first moments, in the first step."""
    whole = fitted(ROBUST)
    Fragile.countdown = moment
    same(fitted(ROBUST, OnFragile), whole)
    assert Fragile.losses == 1


def test_a_start_that_was_given_is_what_is_gone_back_to(redone):
    start = fitted(ROBUST).states[0]
    whole = fitted(ROBUST, start=start, keep=0)
    same(fitted(ROBUST, OnFragile, start=start, keep=0,
                callbacks=[lambda p: die() if p.sweep == 2 else None]), whole)  # fmt: skip
    assert redone == [(start.sweep, start.sweep + 3)]


def test_a_cluster_that_is_never_stable_is_one_sentence(redone):
    def kill(progress):
        Fragile.get = lambda self, handles: (_ for _ in ()).throw(Lost)

    usual = Fragile.get
    try:
        with pytest.raises(DataError, match="go on from the checkpoint"):
            fitted(RESIDENT["no side"], OnFragile, callbacks=[kill])
    finally:
        Fragile.get = usual
