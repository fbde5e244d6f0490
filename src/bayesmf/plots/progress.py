"""A bar that shows how far a fit or a search is, in a terminal or in a notebook."""

from __future__ import annotations

from typing import Any


class ProgressBar:
    """A callback that shows a bar, as long as a ``with`` block lasts.

    ``with ProgressBar() as bar: fit = Gibbs().fit(train, callbacks=[bar])``. In a notebook it needs
    ipywidgets. ``fit``, ``tune`` and ``cross_validate`` show a bar with ``progress=True``.
    """

    def __init__(self, console: Any = None) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("preparing", total=None)

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, seen: Any) -> None:
        """Take a ``Progress`` of a fit, or a ``Step`` of a search."""
        if hasattr(seen, "sweep"):
            done = seen.chains * (seen.sweep - 1) + seen.chain + 1
            total = seen.chains * seen.sweeps
            most = "" if seen.targets is None else "at most "
            told = f"{seen.stage}: sweep {seen.sweep} of {most}{seen.sweeps}"
            if seen.rmse is not None:
                told += f", RMSE {seen.rmse:.4f}"
        else:
            done, total, told = seen.done, seen.total, seen.name
        self._bar.update(self._task, completed=done, total=total, description=told)
