"""The tables of the report, from results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesmf.report import paper
from bayesmf.report.page import Cell, Table
from bayesmf.report.read import FEATURES, INFERENCES, NONE, PRECISIONS, Reader, number, title_of
from bayesmf.study.specs import GIVEN, WIDTHS

FALLING = 0.001  # of RMSE
MAP_NOTE = (
    "MAP is made from nine tenths of the training ratings, the rest says when to stop. It finds "
    "precisions after the features, so its error is the same for all three; its intervals are not."
)
VI_NOTE = (
    "VI starts from MAP by coordinates, with the MAP-driven prior. Its error is that after the "
    "last update; the lowest on the way, chosen with the test ratings in view, stands apart."
)


def table_1(read: Reader) -> Table:
    """The data, beside the paper's figures where it has this data set."""
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
            "The paper prints the two means of MovieLens the other way round; here they are put "
            "right. It counts the 246 movie numbers that nobody rated as items, hence its least of "
            "0 and its other quantiles."
        ]
    if read.data == "epinions":
        notes = ["The file has 40,163 users with a rating; the paper counts 49,290."]
    headings = ["", read.data, *(["paper"] if printed else [])]
    return Table("table-1", "Table 1. The data", "Before the split.", headings, rows, notes=notes)


def table_2(read: Reader) -> Table:
    """Overall test RMSE of every combination, beside the paper's."""
    told = paper.OVERALL.get(read.data, {})
    found = {}
    for features in FEATURES:
        for inference in INFERENCES:
            for precision in PRECISIONS:
                name = f"{inference}-{features}-{precision}"
                if read.has(name):
                    found[features, inference, precision] = read.over_splits(name)
    best = min((float(values.mean()) for values in found.values()), default=0.0)
    rows: list[list[Cell | str]] = []
    for (features, inference, precision), values in found.items():
        lowest = NONE
        mean = compared = float(values.mean())
        if inference == "vi":
            name = f"{inference}-{features}-{precision}"
            least, at = read.mean(name, "least"), read.over_splits(name, "least_at")
            lowest = f"{least:.4f} at {', '.join(f'{n:.0f}' for n in at)}"
            if (features, inference, precision) in paper.LOWEST:
                compared = least
        printed = told.get((features, inference, precision))
        rows.append([
            FEATURES[features], INFERENCES[inference], precision,
            Cell(number(mean), mean, "best" if mean == best else ""),
            number(float(values.std(ddof=1)), 4) if len(values) > 1 else NONE,
            lowest, number(printed), _difference(compared, printed),
        ])  # fmt: skip
    splits = len(next(iter(found.values()))) if found else 1
    notes = [VI_NOTE, MAP_NOTE]
    falling = [title_of(f"gibbs-{f}-{p}") for f, i, p in found
               if i == "gibbs" and _falling(read(f"gibbs-{f}-{p}").array("test rmse"))]  # fmt: skip
    if falling:
        notes.append(
            f"Still falling by more than {FALLING} over the last quarter of the sweeps: "
            f"{'; '.join(falling)}."
        )
    if told:
        notes.append(
            "The difference is ours less the paper's; for VI without side features, robust and "
            "truncated, it is that of the lowest error, which is what the paper gives. A dash in "
            "the paper's column: it gives no value."
        )
    over = "one split" if splits == 1 else f"mean and standard deviation over {splits} splits"
    return Table(
        "table-2", "Table 2. Test RMSE of every model under every algorithm",
        over.capitalize() + ".",
        ["features", "inference", "precision", "test RMSE", "sd", "lowest, at update", "paper",
         "difference"], rows, 3, notes,
    )  # fmt: skip


def _falling(curve: Any) -> bool:
    return bool(curve[-1 - len(curve) // 4] - curve[-1] > FALLING)


def _difference(value: float, printed: float | None) -> Cell | str:
    if printed is None:
        return NONE
    off = value - printed
    return Cell(f"{off:+.4f}", off, "good" if off < 0 else "bad")


def glance(read: Reader) -> Table:
    """Table 2 with a column for each precision: ours, and the paper's in brackets."""
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
        means = [read.mean(f"gibbs-both-sides-{precision}") for precision in PRECISIONS[:2]]
        rows.append(["side, both sides", "Gibbs", *(Cell(f"{m:.4f}", m) for m in means), NONE])
    _mark_best(rows, 2)
    note = "In brackets the paper's value, where it gives one." if told else ""
    return Table(
        "table-2-glance", "Table 2 at a glance", f"Test RMSE. {note}".strip(),
        ["features", "inference", *PRECISIONS], rows, 2,
    )  # fmt: skip


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
    """Errors of two runs by user frequency, and the change between them."""
    splits = read.shared(before, after)
    errors = [read.by_bin(before, splits), read.by_bin(after, splits)]
    counts = read.test_counts(splits, before)
    told = None
    if not read.study.get("own bins"):
        told = paper.by_frequency(
            read.data, before.removeprefix("gibbs-"), after.removeprefix("gibbs-"), len(read.labels)
        )
    rows: list[list[Cell | str]] = []
    for k, label in enumerate([*read.labels, "all"]):
        whole = k == len(read.labels)
        change = read.change(before, after, None if whole else k)
        one, two = (
            float(np.sqrt(read.squares(name, splits).sum() / counts.sum()) if whole else each[k])
            for name, each in zip((before, after), errors, strict=True)
        )
        kind = {1: "good", -1: "bad", 0: "unsure"}[change.sign]
        users = len(read.bin_of_user) if whole else int((read.bin_of_user == k).sum())
        row: list[Cell | str] = [
            label, f"{users:,}", f"{counts.sum() if whole else counts[k]:,}",
            Cell(number(one), one, "best" if one < two else ""),
            Cell(number(two), two, "best" if two < one else ""),
            Cell(_signed(change.value), change.value, kind),
            Cell(f"[{_signed(change.low)}, {_signed(change.high)}]", change.low),
            {1: "lower", -1: "higher", 0: "cannot be told"}[change.sign],
        ]  # fmt: skip
        if told:
            first, second = (float("nan"),) * 2 if whole else (told[0][k], told[1][k])
            relative = f"{100 * (1 - second / first):+.2f}"
            row += [number(first), number(second), NONE if whole else relative]
        rows.append(row)
    headings = ["ratings of the user", "users", "test ratings", names[0], names[1], "change, %",
                "95 % interval", f"error with {names[1]}"]  # fmt: skip
    if told:
        headings += [f"paper, {names[0]}", f"paper, {names[1]}", "paper, %"]
    notes = [
        "The interval is a bootstrap of users, paired: both models are judged on the same users in "
        "each of 2,000 draws. It knows nothing of how another chain or split would differ."
    ]
    if told:
        first = before.removeprefix("gibbs-")
        features, precision = first.rsplit("-", 1)
        notes.append(
            "The paper's errors by bin do not make up its overall error: weighted by the shares of "
            f"test ratings that define the bins, its {names[0]} column gives "
            f"{paper.overall_of_bins(first):.3f}, where its Table 2 has "
            f"{paper.OVERALL[read.data][features, 'gibbs', precision]:.4f}. Its relative changes "
            "can be compared, its levels cannot."
        )
    over = "" if len(splits) == 1 else f" The ratings of {len(splits)} splits together."
    return Table(
        id_, title, f"Test RMSE under Gibbs sampling. A change above zero is a lower error.{over}",
        headings, rows, 1, notes,
    )  # fmt: skip


def _signed(value: float) -> str:
    return f"{value:+.2f}" if np.isfinite(value) else NONE


def calibration(read: Reader, key: str, title: str, ideal: float | None) -> Table:
    """One measure of the predictive distributions by user frequency, for every model."""
    rows: list[list[Cell | str]] = []
    for name, (features, inference, precision) in _models(read).items():
        facts = read(name).facts
        cells: list[Cell | str] = [features, inference, precision]
        for value in (facts[key], *facts["by_bin"][key]):
            text = number(value, 3) if ideal is None else number(_percent(value), 1)
            cells.append(Cell(text, value))
        rows.append(cells)
    caption = (
        "The mean log density of a test rating; more is better."
        if ideal is None
        else f"Per cent of test ratings inside an interval that promises {100 * ideal:.0f}."
    )
    name = "log-score" if ideal is None else f"coverage-{ideal:g}".replace(".", "")
    return Table(
        f"calibration-{name}", title, caption + " First split.",
        ["features", "inference", "precision", "all", *read.labels], rows, 3,
    )  # fmt: skip


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _models(read: Reader) -> dict[str, tuple[str, str, str]]:
    found = {
        f"{inference}-{features}-{precision}": (told, shown, precision)
        for features, told in FEATURES.items()
        for inference, shown in INFERENCES.items()
        for precision in PRECISIONS
    }
    for precision in ("constant", "robust"):
        found[f"gibbs-both-sides-{precision}"] = ("side, both sides", "Gibbs", precision)
    return {name: words for name, words in found.items() if read.has(name)}


def bounds(read: Reader) -> Table:
    """What the bounds of truncated precisions do, and which would be chosen without the test."""
    found = []
    for width in WIDTHS:
        suffix = "" if width == 2 else f"-{width:g}"
        run = read(f"vi-no-side-truncated{suffix}")
        judged = read(f"vi-validation-no-side-truncated{suffix}")
        found.append((width, run["bound"], judged["least"], run["rmse"], run["least"]))
    values = np.array(found)
    best = [np.argmax(values[:, 1]), *(np.argmin(values[:, k]) for k in (2, 3, 4))]
    rows: list[list[Cell | str]] = []
    for at, (width, bound, judged, rmse, least) in enumerate(found):
        cells = [f"{bound:,.0f}", *(number(v) for v in (judged, rmse, least))]
        shown: list[Cell | str] = [
            Cell(text, float(value), "best" if at == best[k] else "")
            for k, (text, value) in enumerate(zip(cells, (bound, judged, rmse, least), strict=True))
        ]
        rows.append([f"{width:g}", *shown])
    return Table(
        "bounds", "Choosing the bounds of truncated precisions",
        "VI, no side, precisions between 1/n and n. The best of each column stands out.",
        ["n", "lower bound", "validation RMSE", "test RMSE, last", "test RMSE, lowest"], rows, 1,
        ["The validation error is that of a tenth of the training ratings, held out of a run of "
         "its own, at its best update; the lower bound needs no ratings held out."],
    )  # fmt: skip


def cold_start(read: Reader) -> Table | None:
    """Errors of new users by how many of their ratings are known."""
    rows: list[list[Cell | str]] = []
    facts: dict[str, Any] = {}
    for name in ("none", "no-side", "side", "both-sides"):
        facts = read(f"cold-start-{name}").facts
        if "skipped" in facts:
            return None
        told = FEATURES.get(name, "side, both sides, robust")
        errors = [facts["rmse by given"][str(given)] for given in GIVEN]
        rows.append([told, *(Cell(number(e), e) for e in errors)])
    for k in range(1, len(GIVEN) + 1):
        column = [[row[k]] for row in rows]
        _mark_best(column, 0)
        for row, (cell,) in zip(rows, column, strict=True):
            row[k] = cell
    return Table(
        "cold-start-table", "New users, folded in",
        f"Test RMSE of {facts['users']:,} users who were not in training, by how many of their "
        f"ratings they are folded in from; {facts['test ratings']:,} test ratings, the same for "
        "every column.", ["features", *(f"{given}" for given in GIVEN)], rows,
    )  # fmt: skip
