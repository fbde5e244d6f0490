"""Sentences made from the results: what was found, and whether the paper's claims hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from bayesmf.choices import PRECISIONS
from bayesmf.evaluation.bootstrap import Change, paired_change
from bayesmf.report.figures import equal_errors
from bayesmf.report.page import Finding
from bayesmf.report.read import (
    COMPARED,
    CONSTANT,
    DEFAULT,
    FEATURES,
    GIBBS,
    GIBBS_ROBUST,
    INFERENCES,
    MAXIMUM,
    NEWCOMERS,
    PRINTED,
    ROBUST,
    SIDE,
    SIDE_ROBUST,
    TRUNCATED,
    Array,
    Reader,
    title_of,
)
from bayesmf.study.cold_start import FEWEST
from bayesmf.study.specs import COLD, COLD_ATTRIBUTES, GIVEN, NEW, TIME_AND_SCALE, WIDTHS

SETTLED = 1e-5  # the bound has settled when a step raises it by less than this share of itself
EQUAL = 1e-4  # of RMSE: no difference to speak of
LITTLE = 0.01  # per cent: the same


def findings(read: Reader) -> list[Finding]:
    """Return what was found, then the paper's claims in turn, as far as their runs are there."""
    found: list[Finding] = []
    for needs, tell in RULES:
        if read.has(*needs):
            found.extend(tell(read))
    found = [f for f in found if not re.search(r"\bnan\b", f.text)]  # nothing there to measure
    return sorted(found, key=lambda finding: finding.status != "plain")


def _status(all_of: bool, any_of: bool) -> str:
    return "seen" if all_of else "partly" if any_of else "not seen"


def users_of(label: str) -> str:
    """The users of a bin, in words."""
    if label == "all":
        return "all users"
    if label.startswith("<="):
        return f"users with at most {label[2:]} ratings"
    if label.endswith("+"):
        return f"users with {label[:-1]} ratings or more"
    return f"users with {label.replace('-', ' to ')} ratings"


def _best(read: Reader) -> Iterator[Finding]:
    names = [
        f"{i}-{f}-{p}" for i in INFERENCES for f in (*FEATURES, "both-sides") for p in PRECISIONS
    ]
    errors = {name: read.mean(name) for name in names if read.has(name)}
    best = min(errors, key=lambda name: errors[name])
    plain = read.mean("gibbs-none-constant")
    yield Finding(
        f"The lowest test RMSE is {errors[best]:.4f}, of {title_of(best)}: "
        f"{100 * (1 - errors[best] / plain):.1f} % below biases alone ({plain:.4f}).",
        "plain",
    )


def _side(read: Reader) -> Iterator[Finding]:
    """Side features against none, by user frequency."""
    rare, whole = read.change(GIBBS, SIDE, 0), read.change(GIBBS, SIDE)
    yield Finding(
        f"Side features {_verb(rare)} the error of {users_of(read.labels[0])}{_amount(rare)}, and "
        f"{_verb(whole)} that of all users together{_amount(whole)}.",
        "plain",
    )
    changes = [read.change(GIBBS, SIDE, k) for k in range(len(read.labels))]
    real = [change.sign > 0 and change.value >= LITTLE for change in changes]
    helped = [users_of(label) for label, is_real in zip(read.labels, real, strict=True) if is_real]
    first, last, middle = real[0], real[-1], real[1:-1]
    text = (
        f"Side features clearly lower the error (by {LITTLE:g} % or more, and the interval "
        f"excludes zero) in {len(helped)} of {len(changes)} bins"
    )
    text += f": {', '.join(helped)}." if helped else "."
    text += f" For {users_of(read.labels[-1])} the error falls by {changes[-1]}."
    yield Finding(
        text,
        _status(first and not last and any(middle), first or any(middle)),
        "Side features help rare users and users with up to several hundred ratings, and not those "
        "with more than 800.",
    )


def _verb(change: Change) -> str:
    return {1: "lowered", -1: "raised", 0: "did not clearly change"}[change.sign]


def _amount(change: Change, who: str = "user") -> str:
    """The size of a change, with its sign where the direction is not known."""
    if np.isnan(change.low):
        return f" (too few {who}s to tell)"
    if change.sign == 0:
        return f" ({-change.value:+.2f} % [{-change.high:+.2f}, {-change.low:+.2f}])"
    low, high = sorted((abs(change.low), abs(change.high)))
    return f" by {abs(change.value):.2f} % [{low:.2f}, {high:.2f}]"


def _robust_side(read: Reader) -> Iterator[Finding]:
    change = read.change(SIDE, SIDE_ROBUST)
    one, two = read.mean(SIDE), read.mean(SIDE_ROBUST)
    yield Finding(
        f"With side features, robust precisions {_verb(change)} the overall error"
        f"{_amount(change)}: {one:.4f} constant, {two:.4f} robust.",
        _status(change.sign <= 0, abs(change.value) < 0.1),
        "With side features, robust precisions gain nothing overall.",
    )


def _gibbs_beats(read: Reader) -> Iterator[Finding]:
    pairs: list[tuple[str, str, float, float]] = []
    for features in FEATURES:
        for precision in PRECISIONS:
            names = [f"{kind}-{features}-{precision}" for kind in ("gibbs", "vi")]
            if read.has(*names):
                pairs.append((features, precision, read.mean(names[0]), read.mean(names[1])))
    better = [gibbs < vi - EQUAL for *_, gibbs, vi in pairs]
    same = sum(abs(gibbs - vi) <= EQUAL for *_, gibbs, vi in pairs)
    gibbs, vi = read.mean(GIBBS), read.mean(CONSTANT)
    lost = [
        f"{FEATURES[f]}, {p} ({v:.4f} against {g:.4f})" for f, p, g, v in pairs if v < g - EQUAL
    ]
    text = (
        f"Gibbs has the lower error in {sum(better)} of {len(pairs)} models, and the same within "
        f"{EQUAL:g} in {same}. Without side features and with constant precision, Gibbs has "
        f"{gibbs:.4f} and VI {vi:.4f} after its last update ({read.mean(CONSTANT, 'least'):.4f} at "
        "its best)."
    )
    if lost:
        text += f" VI is lower for {'; '.join(lost)}."
    yield Finding(text, _status(any(better) and not lost, any(better)), "Gibbs sampling beats VI.")


def settled_at(bound: Array) -> int | None:
    """The update from which every step of the bound is small, or None."""
    small = np.abs(np.diff(bound)) < SETTLED * np.abs(bound[1:])
    if not small[-1]:
        return None
    rough = np.flatnonzero(~small)
    return int(rough[-1]) + 3 if len(rough) else 2


def _overfits(read: Reader) -> Iterator[Finding]:
    run = read(CONSTANT)
    errors, settled = run.array("test_rmse"), settled_at(run.array("bound"))
    least = int(np.argmin(errors)) + 1
    when = f"settles at update {settled}" if settled else f"has not settled by {len(errors)}"
    rise = errors[-1] - errors.min()
    before = settled is None or least < settled
    yield Finding(
        f"The test error of VI (no side, constant, MAP-driven prior) is lowest at update {least} "
        f"({errors.min():.4f}) and {errors[-1]:.4f} after update {len(errors)}; its bound "
        f"{when}.",
        _status(before and rise > 1e-4, before and rise > 0),
        "VI overfits before its bound settles.",
    )


def _turns(read: Reader) -> Iterator[Finding]:
    told, seen = [], []
    for prefix, words in (("vi", "corrected"), ("vi-printed", "as printed")):
        names = [f"{prefix}-no-side-{p}" for p in ("constant", "robust")]
        if not read.has(*names):
            continue
        curves = [read(name).array("test_rmse") for name in names]
        first, second = (int(np.argmin(curve)) + 1 for curve in curves)
        whens = [
            f"at update {at}" if at < len(curve) else f"not within {at} updates"
            for at, curve in zip((first, second), curves, strict=True)
        ]
        told.append(f"{words}, {whens[0]} with constant and {whens[1]} with robust precisions")
        seen.append(second < first)
    yield Finding(
        f"VI's test error is lowest: {'; '.join(told)}.",
        _status(all(seen), any(seen)),
        "With robust precisions VI turns earlier.",
    )


def _truncated(read: Reader) -> Iterator[Finding]:
    least = [read.mean(name, "least") for name in (CONSTANT, ROBUST, TRUNCATED)]
    last = [read.mean(name) for name in (CONSTANT, ROBUST, TRUNCATED)]
    low, end = (v[2] < min(v[:2]) for v in (least, last))
    yield Finding(
        "VI without side features, constant, robust and truncated to (1/2, 2): lowest error "
        f"{_three(least)}, after the last update {_three(last)}.",
        _status(low and end, low or end),
        "Under VI, precisions truncated to (1/2, 2) beat constant and robust ones.",
    )


def _three(values: list[float]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)


def _spread(read: Reader) -> Iterator[Finding]:
    spans = {}
    runs = {"Gibbs": GIBBS_ROBUST, "VI, corrected": ROBUST, "VI, as printed": PRINTED}
    for told, run in runs.items():
        values = read(run).array("user_precision")
        spans[told] = float(np.log10(values.max() / values.min()))
    shown = "; ".join(
        f"{told} {read(run).array('user_precision').min():.2g} to "
        f"{read(run).array('user_precision').max():.3g} ({spans[told]:.1f} orders of magnitude)"
        for told, run in runs.items()
    )
    wide = spans["VI, as printed"] > spans["Gibbs"] + 1 and spans["Gibbs"] < 2
    cured = spans["VI, corrected"] < spans["Gibbs"] + 0.5
    text = f"User precisions, robust, no side: {shown}."
    if wide and cured:
        text += (
            " The wide spread comes from the updates as printed, and disappears when the "
            "covariances are put into them."
        )
    yield Finding(
        text,
        _status(wide and not cured, wide),
        "Under VI precisions spread over orders of magnitude; under Gibbs they do not.",
    )


def _correlation(read: Reader) -> Iterator[Finding]:
    for run, told in ((ROBUST, "corrected"), (PRINTED, "as printed")):
        if not read.has(run):
            continue
        curve = {
            key: read(run).array(f"correlation_{key}")
            for key in ("user_train", "item_train", "user_test", "item_test")
        }
        high = bool(curve["user_train"].min() > 0.94)
        weak = all(curve[f"{s}_test"][-1] < curve[f"{s}_train"][-1] - 0.1 for s in ("user", "item"))
        falls = all(curve[f"{s}_test"][-1] < curve[f"{s}_test"][0] for s in ("user", "item"))
        yield Finding(
            f"Correlation of log precision and log error, VI {told}: users in training "
            f"{curve['user_train'].min():.2f} to {curve['user_train'].max():.2f}, items "
            f"{curve['item_train'].min():.2f} to {curve['item_train'].max():.2f}; in test users "
            f"{curve['user_test'][0]:.2f} falling to {curve['user_test'][-1]:.2f}, items "
            f"{curve['item_test'][0]:.2f} to {curve['item_test'][-1]:.2f}.".replace(
                "falling to", "falling to" if falls else "then"
            ),
            _status(high and weak and falls, high or (weak and falls)),
            "The correlation of log precision and log error is high in training (users above "
            "0.94), weak in test, and falls there.",
        )


def _default_prior(read: Reader) -> Iterator[Finding]:
    prior, driven = read(DEFAULT), read(CONSTANT)
    point = read(MAXIMUM)["rmse"]
    fails = prior["rmse"] > point
    yield Finding(
        f"VI without side features ends at {prior['rmse']:.4f} with the default prior and at "
        f"{driven['rmse']:.4f} with the MAP-driven one; the paper's MAP estimate has {point:.4f}.",
        _status(fails, prior["rmse"] > driven["rmse"]),
        "With the default prior VI does not improve on MAP; the MAP-driven prior is needed.",
    )


def _frequent(read: Reader) -> Iterator[Finding]:
    if len(read.labels) == 1:  # all users in one bin
        return
    sweep, update = equal_errors(read)
    gibbs, vi = read(GIBBS).array("by_bin")[sweep], read(CONSTANT).array("by_bin")[update]
    rest = float(np.abs(gibbs - vi)[:-1].max())
    whole = [
        float(read(name).array("test_rmse")[k]) for name, k in ((GIBBS, sweep), (CONSTANT, update))
    ]
    equal = abs(whole[0] - whole[1]) < 5 * EQUAL
    yield Finding(
        f"Where the overall errors are nearest (Gibbs sweep {sweep + 1}: {whole[0]:.4f}, VI update "
        f"{update + 1}: {whole[1]:.4f}), {users_of(read.labels[-1])} have {gibbs[-1]:.4f} under "
        f"Gibbs and {vi[-1]:.4f} under VI; "
        f"the other bins differ by up to {rest:.4f}.",
        _status(
            gibbs[-1] < vi[-1] and rest < vi[-1] - gibbs[-1] and equal,
            bool(gibbs[-1] < vi[-1] and equal),
        ),
        "At equal overall error the two agree for all users but the most frequent, for whom Gibbs "
        "is better.",
    )
    ratio = read(GIBBS).array("user_variance") / read(CONSTANT).array("user_variance")
    yield Finding(
        "With items' features scaled to unit variance, the largest variance of a user's features "
        f"is {np.median(ratio):.2g} times as large under Gibbs as under VI at the median, and "
        f"larger for {100 * np.mean(ratio > 1):.0f} % of users.",
        _status(bool(np.mean(ratio > 1) > 0.9), bool(np.median(ratio) > 1)),
        "VI underestimates the variance of the features.",
    )


def _calibrated(read: Reader) -> Iterator[Finding]:
    names = (GIBBS, ROBUST, MAXIMUM)
    shares = {name: [100 * read(name)[f"coverage_{n}"] for n in (50, 80, 95)] for name in names}
    told = "; ".join(
        f"{title_of(name)} {', '.join(f'{share:.0f}' for share in found)}"
        for name, found in shares.items()
    )
    yield Finding(
        f"Intervals that should hold 50, 80 and 95 % of the test ratings hold: {told}.",
        "plain",
    )


def _bounds(read: Reader) -> Iterator[Finding]:
    suffix = {w: "" if w == 2 else f"-{w:g}" for w in WIDTHS}
    runs = {w: read(f"vi-no-side-truncated{s}") for w, s in suffix.items()}
    judged = {w: read(f"vi-validation-no-side-truncated{s}")["least"] for w, s in suffix.items()}
    by_bound = max(WIDTHS, key=lambda w: runs[w]["bound"])
    by_judge = min(WIDTHS, key=lambda w: judged[w])
    best = min(WIDTHS, key=lambda w: runs[w]["rmse"])
    yield Finding(
        f"Bounds (1/n, n) can be chosen without the test ratings: the lower bound chooses n = "
        f"{by_bound:g} (test RMSE after the last update {runs[by_bound]['rmse']:.4f}), validation "
        f"n = {by_judge:g} ({runs[by_judge]['rmse']:.4f}); in hindsight n = {best:g} is best "
        f"({runs[best]['rmse']:.4f}).",
        "plain",
    )


def _cold(read: Reader) -> Iterator[Finding]:
    for new in read.new_sides:
        errors: dict[str, dict[int, float]] = {
            name: read.by_given(new, name, "rmse") for name in COLD
        }
        numbers = list(errors["default"])
        few, many = GIVEN[2], max(given for given in numbers if given <= FEWEST)
        lowest = {given: read.lowest(new, given, COLD) for given in numbers}
        best = [lowest[given][0] for given in (few, many)]
        good = [str(n) for n, (first, alike) in lowest.items() if "default" in (first, *alike)]
        told = f"given {', '.join(good)} ratings" if good else "given no number of ratings"
        how = ", by models without attributes" if read.has_attributes else ""
        yield Finding(
            f"New {new}s, folded in without refitting{how}: from {few} ratings the best model "
            f"({NEWCOMERS[best[0]]}) has an error of {errors[best[0]][few]:.4f}, from {many} "
            f"({NEWCOMERS[best[1]]}) {errors[best[1]][many]:.4f}; knowing nothing of them, biases "
            f"alone {errors['none'][0]:.4f}. The default model has the lowest error, or one that "
            f"cannot be told from it, {told}.",
            "plain",
        )
        if read.has_attributes:
            yield _attributes(read, new, many)


def _attributes(read: Reader, new: str, many: int) -> Finding:
    """What attributes change for newcomers without any rating, and with many."""
    none, some = (
        paired_change(
            read.new_squares(new, "default", given), read.new_squares(new, COLD_ATTRIBUTES, given)
        )
        for given in (0, many)
    )
    return Finding(
        f"Attributes {_verb(none)} the error of the default model on new {new}s without a rating"
        f"{_amount(none, new)}, and {_verb(some)} that on new {new}s given {many} ratings"
        f"{_amount(some, new)}.",
        "plain",
    )


def _time_and_scale(read: Reader) -> Iterator[Finding]:
    """What a time chain and an ordinal scale change of the default model."""
    base, *others = read.compared
    for name in others:
        whole, rare = (read.change(base, name, bin_, (0,)) for bin_ in (None, 0))
        before, after = (read(one)[read.log_key] for one in (base, name))
        yield Finding(
            f"{COMPARED[name].capitalize()}, the default model {_verb(whole)} its error"
            f"{_amount(whole)}, and {_verb(rare)} that on {users_of(read.labels[0])}"
            f"{_amount(rare)}; the mean {read.log_key.replace('_', ' ')} of a test rating went "
            f"from {before:.4f} to {after:.4f}.",
            "plain",
        )


RULES: list[tuple[tuple[str, ...], Callable[[Reader], Iterator[Finding]]]] = [
    (("gibbs-none-constant", GIBBS), _best),
    ((GIBBS, SIDE), _side),
    ((SIDE, SIDE_ROBUST), _robust_side),
    ((GIBBS, CONSTANT), _gibbs_beats),
    ((CONSTANT,), _overfits),
    ((CONSTANT, ROBUST), _turns),
    ((CONSTANT, ROBUST, TRUNCATED), _truncated),
    ((GIBBS_ROBUST, ROBUST, PRINTED), _spread),
    ((ROBUST,), _correlation),
    ((DEFAULT, CONSTANT, MAXIMUM), _default_prior),
    ((GIBBS, CONSTANT), _frequent),
    ((GIBBS, ROBUST, MAXIMUM), _calibrated),
    (
        tuple(
            f"vi{v}-no-side-truncated{'' if w == 2 else f'-{w:g}'}"
            for w in WIDTHS
            for v in ("", "-validation")
        ),
        _bounds,
    ),
    (tuple(f"cold-start-{new}-{name}" for new in NEW for name in COLD), _cold),
    (tuple(TIME_AND_SCALE), _time_and_scale),
]
