"""The tables of the paper, and those that are like them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bayesmf.choices import PRECISIONS
from bayesmf.evaluation.bootstrap import Change
from bayesmf.report import paper
from bayesmf.report.page import Cell, Table
from bayesmf.report.read import FEATURES, INFERENCES, NONE, Array, Reader, number, title_of
from bayesmf.study.specs import UNBOUNDED

FALLING = 0.001  # of RMSE
KINDS = {1: "good", -1: "bad", 0: "unsure"}  # of a cell with a change, by its sign
FREQUENCY_HEADINGS = ("ratings of the user", "users", "test ratings")
BOOTSTRAP_NOTE = (
    "The interval is a paired bootstrap of users: both models are judged on the same users in "
    "each of 2,000 draws. It does not say how another chain or another split would differ."
)
HEADINGS_2 = (
    "features",
    "inference",
    "precision",
    "test RMSE",
    "sd",
    "lowest, at update",
    "paper",
    "difference",
)
DIFFERENCE_NOTE = (
    "The difference is ours minus the paper's. For VI without side features, robust and truncated, "
    "it is that of the lowest error, which is what the paper gives. A dash in the paper's column "
    "means that the paper gives no value."
)
MAP_NOTE = (
    "MAP is fitted to nine tenths of the training ratings; the rest decides when it stops. It "
    "finds precisions after the features, so its error is the same for all three and its intervals "
    "are not."
)
VI_NOTE = (
    "VI starts from MAP by coordinates, with the MAP-driven prior. Its error is that after the "
    "last update. The lowest error on the way has a column of its own, because it is chosen by the "
    "test ratings."
)


def table_1(read: Reader) -> Table:
    """The counts of the data, beside the paper's where it has this data set."""
    summary = read.study["summary"]
    printed = paper.DATA.get(read.data)
    rows: list[list[Cell | str]] = []

    def add(what: str, value: Any, told: Any, digits: int = 0) -> None:
        row: list[Cell | str] = [what, f"{value:,.{digits}f}"]
        rows.append([*row, NONE if told is None else f"{told:,}"] if printed else row)

    for what in ("ratings", "users", "items"):
        add(what, summary[what], getattr(printed, what, None))
    for side in ("item", "user"):
        spread = summary[f"per_{side}"]
        told = getattr(printed, f"per_{side}", (None,) * 6)
        keys = ("min", "q25", "median", "mean", "q75", "max")
        names = ("least", "25 %", "median", "mean", "75 %", "most")
        for key, name, one in zip(keys, names, told, strict=False) if printed else ():
            add(f"ratings per {side}, {name}", spread[key], one, 1 if key == "mean" else 0)
        for key, name in zip(keys, names, strict=True) if not printed else ():
            add(f"ratings per {side}, {name}", spread[key], None, 1 if key == "mean" else 0)
    row: list[Cell | str] = ["pairs rated, %", f"{100 * summary['density']:.3g}"]
    rows.append([*row, f"{100 * printed.density:.3g}"] if printed else row)
    notes = []
    if read.data == "ml-1m":
        notes = [
            "The paper prints the two means of MovieLens the other way round; here they are in "
            "their places. It counts the 246 movie numbers that nobody rated as items, hence its "
            "minimum of 0 and its other quantiles."
        ]
    if read.data == "epinions":
        notes = ["The file has 40,163 users with a rating; the paper counts 49,290."]
    headings = ["", read.data, *(["paper"] if printed else [])]
    return Table(
        "table-1",
        "Table 1. The data",
        "All ratings, before the split.",
        headings,
        rows,
        notes=notes,
    )


def table_2(read: Reader) -> Table:
    """The overall test RMSE of every combination, beside the paper's."""
    found = {}
    for features in FEATURES:
        for inference in INFERENCES:
            for precision in PRECISIONS:
                name = f"{inference}-{features}-{precision}"
                if read.has(name):
                    found[features, inference, precision] = read.over_splits(name)
    best = min((float(values.mean()) for values in found.values()), default=0.0)
    rows = [_row_of_table_2(read, *key, values, best) for key, values in found.items()]
    splits = len(next(iter(found.values()))) if found else 1
    notes = [VI_NOTE, MAP_NOTE]
    falling = [
        title_of(f"gibbs-{f}-{p}")
        for f, i, p in found
        if i == "gibbs" and _falling(read(f"gibbs-{f}-{p}").array("test_rmse"))
    ]
    if falling:
        notes.append(
            f"These errors still fell by more than {FALLING} over the last quarter of the sweeps: "
            f"{'; '.join(falling)}."
        )
    if paper.OVERALL.get(read.data):
        notes.append(DIFFERENCE_NOTE)
    over = "one split" if splits == 1 else f"mean and standard deviation over {splits} splits"
    return Table(
        "table-2",
        "Table 2. Test RMSE of every model under every algorithm",
        over.capitalize() + ".",
        HEADINGS_2,
        rows,
        3,
        notes,
    )


def _row_of_table_2(
    read: Reader, features: str, inference: str, precision: str, values: Array, best: float
) -> list[Cell | str]:
    lowest = NONE
    mean = compared = float(values.mean())
    if inference == "vi":
        name = f"{inference}-{features}-{precision}"
        least, at = read.mean(name, "least"), read.over_splits(name, "least_at")
        lowest = f"{least:.4f} at {', '.join(f'{n:.0f}' for n in at)}"
        if (features, inference, precision) in paper.LOWEST:
            compared = least
    printed = paper.OVERALL.get(read.data, {}).get((features, inference, precision))
    return [
        FEATURES[features],
        INFERENCES[inference],
        precision,
        Cell(number(mean), mean, "best" if mean == best else ""),
        number(float(values.std(ddof=1)), 4) if len(values) > 1 else NONE,
        lowest,
        number(printed),
        _difference(compared, printed),
    ]


def _falling(curve: Any) -> bool:
    return bool(curve[-1 - len(curve) // 4] - curve[-1] > FALLING)


def _difference(value: float, printed: float | None) -> Cell | str:
    if printed is None:
        return NONE
    off = value - printed
    return Cell(f"{off:+.4f}", off, "good" if off < 0 else "bad")


def glance(read: Reader) -> Table:
    """Table 2 with a column for each precision: our error, and the paper's in brackets."""
    told = paper.OVERALL.get(read.data, {})
    rows: list[list[Cell | str]] = []
    for features in FEATURES:
        for inference in INFERENCES:
            row: list[Cell | str] = [FEATURES[features], INFERENCES[inference]]
            for precision in PRECISIONS:
                mean = read.mean(f"{inference}-{features}-{precision}")
                printed = told.get((features, inference, precision))
                beside = f" ({printed:.4f})" if printed else ""
                row.append(Cell(f"{mean:.4f}{beside}", mean))
            rows.append(row)
    if read.has("gibbs-both-sides-constant", "gibbs-both-sides-robust"):
        means = [read.mean(f"gibbs-both-sides-{precision}") for precision in UNBOUNDED]
        rows.append(["side, both sides", "Gibbs", *(Cell(f"{m:.4f}", m) for m in means), NONE])
    _mark_best(rows, 2)
    note = "The paper's value, where it gives one, is in brackets." if told else ""
    return Table(
        "table-2-glance",
        "Table 2 at a glance",
        f"Test RMSE. {note}".strip(),
        ["features", "inference", *PRECISIONS],
        rows,
        2,
    )


def _mark_best(rows: list[list[Cell | str]], first: int) -> None:
    cells = [c for row in rows for c in row[first:] if isinstance(c, Cell)]
    least = min(float(c.sort) for c in cells if isinstance(c.sort, float))
    for row in rows:
        row[first:] = [
            Cell(c.text, c.sort, "best") if isinstance(c, Cell) and c.sort == least else c
            for c in row[first:]
        ]


def change_table(
    read: Reader, id_: str, title: str, before: str, after: str, names: tuple[str, str]
) -> Table:
    """The errors of two runs by user frequency, and the change between them."""
    splits = read.shared(before, after)
    first, second = (name.removeprefix("gibbs-") for name in (before, after))
    printed = None
    if not read.study.get("own_bins"):
        printed = paper.by_frequency(read.data, first, second, len(read.labels))
    rows = _change_rows(read, before, after, splits)
    headings = [*FREQUENCY_HEADINGS, *names]
    headings += ["change, %", "95 % interval", f"error with {names[1]}"]
    notes = [BOOTSTRAP_NOTE]
    if printed:
        headings += [f"paper, {names[0]}", f"paper, {names[1]}", "paper, %"]
        for row, *told in zip(rows, *printed, strict=False):
            row += [number(told[0]), number(told[1]), f"{100 * (1 - told[1] / told[0]):+.2f}"]
        rows[-1] += [NONE] * 3
        features, precision = first.rsplit("-", 1)
        notes.append(
            "The paper's errors by bin do not make up its overall error: weighted by the shares of "
            f"test ratings that define the bins, its {names[0]} column gives "
            f"{paper.overall_of_bins(first):.3f}, where its Table 2 has "
            f"{paper.OVERALL[read.data][features, 'gibbs', precision]:.4f}. Its relative changes "
            "can be compared; its levels cannot."
        )
    over = "" if len(splits) == 1 else f" The ratings of {len(splits)} splits are taken together."
    caption = f"Test RMSE under Gibbs sampling. A change above zero is a lower error.{over}"
    return Table(id_, title, caption, headings, rows, 1, notes)


def _change_rows(
    read: Reader, before: str, after: str, splits: Sequence[int]
) -> list[list[Cell | str]]:
    """A row for each bin of users, and one for all of them."""
    rows: list[list[Cell | str]] = []
    for bin_, first in frequency_rows(read, before, splits):
        change = read.change(before, after, bin_)
        one, two = (read.error(name, splits, bin_) for name in (before, after))
        row: list[Cell | str] = [
            *first,
            Cell(number(one), one, "best" if one < two else ""),
            Cell(number(two), two, "best" if two < one else ""),
            Cell(signed(change.value), change.value, KINDS[change.sign]),
            Cell(interval(change), change.low),
            {1: "lower", -1: "higher", 0: "cannot be told"}[change.sign],
        ]
        rows.append(row)
    return rows


def frequency_rows(
    read: Reader, name: str, splits: Sequence[int]
) -> Iterator[tuple[int | None, list[str]]]:
    """Each bin of users, and None for all of them, with the first three cells of its row."""
    counts = read.test_counts(splits, name)
    for k, label in enumerate(read.labels):
        yield k, [label, f"{(read.bin_of_user == k).sum():,}", f"{counts[k]:,}"]
    yield None, ["all", f"{len(read.bin_of_user):,}", f"{counts.sum():,}"]


def interval(change: Change) -> str:
    """The interval of a change in per cent."""
    return f"[{signed(change.low)}, {signed(change.high)}]"


def signed(value: float) -> str:
    """A number of per cent with its sign, or a dash for none."""
    return f"{value:+.2f}" if np.isfinite(value) else NONE


def calibration(read: Reader, key: str, title: str, ideal: float | None) -> Table:
    """One measure of the predictive distributions of every model, by user frequency."""
    rows: list[list[Cell | str]] = []
    for name, (features, inference, precision) in _models(read).items():
        facts = read(name).facts
        cells: list[Cell | str] = [features, inference, precision]
        for value in (facts[key], *facts["by_bin"][key]):
            text = number(value, 3) if ideal is None else number(_percent(value), 1)
            cells.append(Cell(text, value))
        rows.append(cells)
    caption = (
        "The mean log density of a test rating; larger is better."
        if ideal is None
        else f"The per cent of test ratings inside intervals that should hold {100 * ideal:.0f} %."
    )
    return Table(
        f"calibration-{key.replace('_', '-')}",
        title,
        caption + " First split.",
        ["features", "inference", "precision", "all", *read.labels],
        rows,
        3,
    )


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _models(read: Reader) -> dict[str, tuple[str, str, str]]:
    found = {
        f"{inference}-{features}-{precision}": (told, shown, precision)
        for features, told in FEATURES.items()
        for inference, shown in INFERENCES.items()
        for precision in PRECISIONS
    }
    for precision in UNBOUNDED:
        found[f"gibbs-both-sides-{precision}"] = ("side, both sides", "Gibbs", precision)
    return {name: words for name, words in found.items() if read.has(name)}
