"""Does a study: every run once, several at a time, continuing where an earlier one was killed."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import bayesmf
from bayesmf.choices import SIDES
from bayesmf.data.io.atomic import is_ours, locked
from bayesmf.data.ratings import Ratings
from bayesmf.data.summary import summarise
from bayesmf.errors import DataError, Option
from bayesmf.evaluation.frequency import FrequencyBins
from bayesmf.inference.loop import check_parts
from bayesmf.model.attributes import Attributes, as_attributes
from bayesmf.study.execute import Parts, execute
from bayesmf.study.results import Results
from bayesmf.study.specs import (
    COLD_ATTRIBUTES,
    EXPERIMENTS,
    ON_EVERY_SPLIT,
    Lengths,
    Run,
    Tables,
    cold_start_model,
    runs_of,
)

Task = tuple[int, Run]


@dataclass(frozen=True)
class Event:
    """What a study tells while it goes on."""

    kind: str  # "plan", "begin", "progress", "end"
    done: float  # cost done so far, of all
    total: float
    seconds: float
    running: tuple[str, ...] = ()
    name: str = ""  # of the run that begins or ends
    rmse: float | None = None
    runs: tuple[int, int] = (0, 0)  # ended, of all


@dataclass(frozen=True)
class Study:
    """The experiments on one data set: ``Study("ml-1m", Path("out")).run()``."""

    data: str
    out: Path
    reading: dict[str, Any] = field(default_factory=dict)  # options of bayesmf.load
    quick: bool = False
    splits: int = 1
    only: tuple[str, ...] = ()
    seed: int = 0
    rank: int = 20
    bins: tuple[int, ...] = ()
    workers: int | None = None  # processes of one thread each; None: as many as cores
    resume: bool = False
    command: str = ""  # that asked for it, without --out, --only and --splits
    user_attributes: Any = None  # for the cold start, as in bayesmf.fit
    item_attributes: Any = None

    def command_of(self, split: int, run: Run) -> str:
        """The command that makes one result again."""
        base = self.command or f"bayesmf study {self.data} --seed {self.seed}"
        splits = f" --splits {split + 1}" if split else ""
        return f"{base}{splits} --only {run.name}"

    @property
    def lengths(self) -> Lengths:
        """How long the runs are."""
        return Lengths.of(self.data, self.quick, self.rank)

    @cached_property
    def tables(self) -> Tables:
        """The tables of attributes, by side."""
        given = {"user": self.user_attributes, "item": self.item_attributes}
        return {side: as_attributes(given[side]) for side in SIDES if given[side] is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """The experiments asked for."""
        return self.only or tuple(EXPERIMENTS)

    def tasks(self) -> list[Task]:
        """All runs, by split."""
        every = tuple(
            name for name in self.names if name in ON_EVERY_SPLIT or name not in EXPERIMENTS
        )
        return [
            (split, run)
            for split in range(self.splits)
            for run in runs_of(self.names if split == 0 else every, self.lengths, self.tables)
        ]

    def run(self, tell: Callable[[Event], None] = lambda event: None) -> Results:
        """Do the runs that are not done yet; a study may be stopped and resumed at any time."""
        tasks = self.tasks()
        if self.splits < 1:
            raise DataError(f"splits={self.splits}: choose 1 or more")
        results = Results(self.out)
        with locked(self.out, "another study"):
            self._begin(results)
            _sweep_away(self.out)
            missing = [task for task in tasks if not results.has(task[0], task[1].name)]
            if missing:
                began = time.perf_counter()
                _Pool(self, results, tasks, missing, tell).work()
                results.add_time(
                    {
                        "runs": len(missing),
                        "cores": os.cpu_count(),
                        "wall": round(time.perf_counter() - began, 2),
                    }
                )
        return results

    def _begin(self, results: Results) -> None:
        ratings = bayesmf.load(self.data, **self.reading)
        try:
            cut = bayesmf.split(ratings, "paper", self.seed)
        except DataError as error:
            raise DataError(f"{self.data} is too small for a study ({error})") from error
        check_parts(ratings, cold_start_model(COLD_ATTRIBUTES, self.lengths, self.tables))
        bins = FrequencyBins.of(list(cut), cut.test)
        uppers = self.bins or bins.uppers
        totals = cut.train.by_user.counts + cut.test.by_user.counts
        facts = {
            "data": self.data,
            "summary": {**asdict(summarise(ratings)), "bytes": None},
            "version": bayesmf.__version__,
            "quick": self.quick,
            "seed": self.seed,
            "splits": self.splits,
            "lengths": asdict(self.lengths),
            "bins": list(uppers),
            "own_bins": bool(self.bins),
            "bin_labels": FrequencyBins(uppers, bins.totals).labels,
            "split": cut.describe(),
        }
        if self.tables:
            facts["attributes"] = {side: _describe(table) for side, table in self.tables.items()}
        if (self.out / "study.json").exists():
            if not self.resume:
                raise DataError(
                    f"{self.out} holds a study already; continue it with --resume, or choose "
                    "another folder"
                )
            before = results.study
            self._check_same(before, facts)
            facts["splits"] = max(self.splits, int(before["splits"]))
        elif not all(is_ours(entry.name) for entry in self.out.iterdir()):
            raise DataError(f"{self.out} holds other files; choose another folder")
        results.begin(facts)
        if not results.has(0, "users"):
            train = {
                "user_ratings": totals,
                "user_train": cut.train.by_user.counts,
                "item_train": cut.train.by_item.counts,
            }
            results.write(0, "users", {}, train)

    def _check_same(self, before: dict[str, Any], facts: dict[str, Any]) -> None:
        """Refuse a folder with a study of other data, settings or attributes."""
        for key in ("summary", "version", "quick", "seed", "lengths", "bins"):
            if before[key] != facts[key]:
                raise DataError(
                    f"{self.out} holds a study with another {key} ({_short(before[key])}, not "
                    f"{_short(facts[key])}); choose another folder"
                )
        for side in SIDES:
            old, new = (one.get("attributes", {}).get(side) for one in (before, facts))
            if old == new:
                continue
            option = Option(f"{side}_attributes", "FILE" if new is None else None)
            what, remedy = "with other", f"give the table of that study as {option}"
            if old is None:
                what, remedy = "without", f"leave {option} out"
            elif new is None:
                what, remedy = "with", f"add {option}"
            raise DataError(
                f"{self.out} holds a study {what} attributes of {side}s; {remedy}, or choose "
                "another folder"
            )


def _describe(table: Attributes) -> dict[str, Any]:
    """A table of attributes in words, and the sum of all that predictions depend on."""
    columns = [column.describe() for column in table.columns]
    return {"rows": len(table.ids), "columns": columns, "sha256": table.sha256}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _sweep_away(folder: Path) -> None:
    """Delete the half-written folders of a study that was killed."""
    for left in folder.glob("split-*/.*"):
        shutil.rmtree(left, ignore_errors=True)


class _Pool:
    """Hands runs to processes: first the runs that others need, then the longest."""

    def __init__(
        self,
        study: Study,
        results: Results,
        tasks: list[Task],
        missing: list[Task],
        tell: Callable[[Event], None],
    ) -> None:
        self.study, self.results, self.tell = study, results, tell
        self.began = time.perf_counter()
        self.all = len(tasks)
        self.total = sum(run.cost for _, run in tasks)
        self.done = self.total - sum(run.cost for _, run in missing)
        needed = {(split, name) for split, run in missing for name in run.needs}
        self.waiting = sorted(
            missing, key=lambda t: (t[0], (t[0], t[1].name) not in needed, -t[1].cost)
        )
        self.running: dict[Future[Any], Task] = {}
        self.shares: dict[tuple[int, str], float] = {}

    def work(self) -> None:
        """Work until nothing is left to do."""
        self._say("plan")
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        workers = min(self.study.workers or os.cpu_count() or 1, len(self.waiting))
        pool = ProcessPoolExecutor(workers, context, _prepare, (self.study, queue, os.getpid()))
        try:
            while self.waiting or self.running:
                self._submit(pool, workers)
                ended, _ = wait(self.running, timeout=0.2, return_when=FIRST_COMPLETED)
                while not queue.empty():
                    split, name, share = queue.get()
                    self.shares[split, name] = share
                for future in ended:
                    self._end(future)
                self._say("progress")
        except BrokenProcessPool as error:
            raise DataError(
                "a run was killed by the system, probably for want of memory; continue with "
                "--resume --workers 1"
            ) from error
        finally:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()

    def _submit(self, pool: ProcessPoolExecutor, workers: int) -> None:
        for task in list(self.waiting):
            if len(self.running) >= workers:
                return
            split, run = task
            if not all(self.results.has(split, name) for name in run.needs):
                continue
            self.waiting.remove(task)
            self.running[pool.submit(_work, split, run)] = task
            self.shares[split, run.name] = 0.0
            self._say("begin", run.name)

    def _end(self, future: Future[Any]) -> None:
        split, run = self.running.pop(future)
        rmse, seconds = future.result()
        self.shares.pop((split, run.name), None)
        self.done += run.cost
        self.results.add_time(
            {"split": split, "run": run.name, "seconds": round(seconds, 2), "cost": run.cost}
        )
        self._say("end", run.name, rmse)

    def _say(self, kind: str, name: str = "", rmse: float | None = None) -> None:
        tasks = self.running.values()
        part = sum(self.shares.get((s, r.name), 0.0) * r.cost for s, r in tasks)
        ended = self.all - len(self.waiting) - len(self.running)
        self.tell(
            Event(
                kind,
                self.done + part,
                self.total,
                time.perf_counter() - self.began,
                tuple(run.name for _, run in tasks),
                name,
                rmse,
                (ended, self.all),
            )
        )


_here: dict[str, Any] = {}  # what a worker process keeps between runs


def _prepare(study: Study, queue: Any, parent: int) -> None:
    """Prepare a worker process: its parent alone stops it, and it does not outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    from threadpoolctl import threadpool_limits

    _here.update(study=study, queue=queue, limits=threadpool_limits(1), parts={})


def _parts(study: Study, split: int) -> Parts:
    if split not in _here["parts"]:
        whole: Ratings = _here.get("whole") or bayesmf.load(study.data, **study.reading)
        _here["whole"] = whole
        cut = bayesmf.split(whole, "paper", study.seed + split)
        uppers = tuple(Results(study.out).study["bins"])
        totals = FrequencyBins.of(list(cut), cut.test).totals
        parts = Parts(whole, cut.train, cut.test, FrequencyBins(uppers, totals), study.seed + split)
        _here["parts"] = {split: parts}
    found: Parts = _here["parts"][split]
    return found


def _work(split: int, run: Run) -> tuple[float | None, float]:
    """Do one run in a worker process, and write its result."""
    study: Study = _here["study"]
    results = Results(study.out)
    began = time.perf_counter()
    told = [0.0]

    def tell(share: float) -> None:
        now = time.perf_counter()
        if now - told[0] > 0.2:
            told[0] = now
            _here["queue"].put((split, run.name, min(share, 1.0)))

    parts = _parts(study, split)
    start = results.state(split, run.start) if run.start else None
    penalty = results[split, run.penalty_of]["penalty"] if run.penalty_of else None
    facts, arrays = execute(run, parts, start, penalty, tell)
    facts.update(
        run=run.describe(),
        seed=parts.seed,
        version=bayesmf.__version__,
        data=parts.whole.fingerprint(),
        command=study.command_of(split, run),
    )
    results.write(split, run.name, facts, arrays)
    return facts.get("rmse"), time.perf_counter() - began
