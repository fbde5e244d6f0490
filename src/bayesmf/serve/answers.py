"""What each request is answered: plain functions of a model that is served."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from bayesmf import __version__
from bayesmf.choices import SIDES, Side
from bayesmf.data.pairs import Pairs, read_time
from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataError
from bayesmf.evaluation.diagnostics import SUMMARIES, find_warm_up
from bayesmf.evaluation.metrics import inside
from bayesmf.fitted.posterior import Posterior
from bayesmf.machine import using
from bayesmf.model.likelihood import Normal
from bayesmf.serve import bodies
from bayesmf.serve.served import Served, Shelf

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST_POINTS = 3000  # items on the map
LONGEST = 400  # points of a trace

Json = dict[str, Any]


def describe(shelf: Shelf, served: Served) -> Json:
    """Tell what is served."""
    fit, posterior = served.fit, served.fit.posterior
    train, scale = posterior.train, posterior.scale
    short = served.once("verdict", lambda one: one.fit.diagnostics().verdict.short)
    return {
        "name": shelf.path.name,
        "number": served.number,
        "users": int((posterior.user_counts > 0).sum()),
        "items": int((posterior.item_counts > 0).sum()),
        "ratings": None if train is None else len(train),
        "draws": len(posterior),
        "scale": {
            "low": scale.low,
            "high": scale.high,
            "step": scale.step,
            "levels": _levels(posterior),
        },
        "model": {k: v for k, v in posterior.model.to_dict().items() if k != "hyper"},
        "verdict": short,
        "test_rmse": fit.test_rmse,
        "tested": served.test is not None,
        "updates": shelf.options.updates,
        "timed": served.timed,
        "user_ids": posterior.users.kind,
        "item_ids": posterior.items.kind,
        "titles": served.directory["item"].titles is not None,
        "version": __version__,
    }


def _levels(posterior: Any) -> list[float] | None:
    try:
        return [float(level) for level in posterior.levels]
    except DataError:  # a scale without steps, or with very many
        return None


def find(served: Served, side: Side, text: str, n: int) -> Json:
    """Look up users or items."""
    found, total = served.directory[side].search(text, n)
    return {"found": found, "total": total}


def own_ratings(served: Served, given: Any, n: int) -> Json:
    """List what a user has rated, the highest ratings first."""
    users, items = served.directory["user"], served.directory["item"]
    user = users.read(given)
    users.row(user)
    found: list[Json] = []
    posterior = served.fit.posterior
    seen: set[Any] = set()
    for held_out, part in ((False, posterior.train), (True, posterior.held_out)):
        if part is None:
            continue
        row, rows = int(part.users.index([user])[0]), part.by_user
        span = slice(rows.starts[row], rows.starts[row + 1]) if row >= 0 else slice(0)
        rated = part.items.values[rows.index[span]]
        at = items.ids.index(rated)
        for one, rating, k in zip(rated.tolist(), rows.values[span], at, strict=True):
            if one in seen:  # which was held out, and came with an update
                continue
            seen.add(one)
            told = {"item": one, "rating": float(rating), "held_out": held_out}
            found.append({**told, **(items.title(k) if k >= 0 else {})})
    found.sort(key=lambda one: -one["rating"])
    times = Counter(one["rating"] for one in found)
    counts = [{"rating": rating, "count": times[rating]} for rating in sorted(times)]
    return {"user": user, "ratings": found[:n], "total": len(found), "counts": counts}


def predict(served: Served, asked: bodies.Predict) -> Json:
    """Predict pairs."""
    pairs = _table(served, asked.pairs)
    at = _read_when(served, asked.at)
    found = served.fit.predict(pairs, quantiles=asked.quantiles, clip=asked.clip, at=at)
    return {"predictions": found.to_pylist()}


def _read_when(served: Served, at: Any) -> int | None:
    """Read a time; None if it changes nothing, which the description of the service says.

    A warning would be written where the one who asks does not see it.
    """
    found = None if at is None else read_time(at)
    return found if served.timed else None


def _table(served: Served, rows: list[Any]) -> pa.Table:
    """Pairs or ratings of a request as a table; times if all of them have one."""
    columns: Json = {}
    for side in SIDES:
        read = served.directory[side].read
        columns[side] = [read(getattr(row, side)) for row in rows]
    if isinstance(rows[0], bodies.Rated):
        if len(set(zip(columns["user"], columns["item"], strict=True))) < len(rows):
            raise DataError("a user rates an item twice; give one rating of it")
        columns["rating"] = [row.rating for row in rows]
    if all(row.time is not None for row in rows):
        columns["time"] = [row.time for row in rows]
    return pa.table(columns)


def _need_times(served: Served, ratings: list[Any]) -> None:
    """Refuse ratings that the model cannot learn from because they have no times."""
    if served.timed and any(one.time is None for one in ratings):
        raise DataError(
            'this model learns from when ratings were given; give each rating its "time", in '
            "seconds since 1970"
        )


def recommend(served: Served, asked: bodies.Recommend) -> Json:
    """Recommend items, each with an interval."""
    users = [served.directory["user"].read(user) for user in asked.users]
    items = asked.items and [served.directory["item"].read(item) for item in asked.items]
    at = _read_when(served, asked.at)
    found = served.fit.recommend(
        users,
        asked.n,
        rank_by=asked.rank_by,
        exclude_seen=asked.exclude_seen,
        items=items,
        at=at,
        seed=asked.seed,
    ).to_pylist()
    known = served.fit.posterior.warm_row_of("user", users) >= 0
    posterior = served.fit.posterior if known.all() else served.once("unasked", _unasked)
    return {"recommendations": _add_bars(posterior, found, asked.level, at)}


def _unasked(served: Served) -> Posterior:
    """What a newcomer is told: they have not chosen to rate an item, so nothing follows from it."""
    return served.fit.posterior.without_selection()


def _add_bars(posterior: Posterior, rows: list[Json], level: float, at: Any = None) -> list[Json]:
    """Put predictions with intervals beside rows that have a user and an item."""
    if not rows:
        return rows
    users, items = ([row[side] for row in rows] for side in SIDES)
    cells = posterior.cells(Pairs(users, items).at(at))
    doubt: list[float | None] = [None] * len(rows)
    with using(1):
        if posterior.model.likelihood.latent:  # doubt is not on the scale of ratings there
            found = posterior.predictive(cells)
        else:
            moments = posterior.moments(cells)
            found = Normal(moments.mean, moments.sd)
            doubt = np.sqrt(moments.doubt).tolist()
    low, high = (found.quantile(0.5 + sign * level / 2).tolist() for sign in (-1, 1))
    titles = posterior.labels.of("item", items) if posterior.labels.titles.get("item") else None
    keys = ("user", "rank", "item", "score")
    return [
        {
            **{key: row[key] for key in keys if key in row},
            **({} if titles is None else {"title": titles[k]}),
            "mean": float(found.mean[k]),
            "sd": float(found.sd[k]),
            "low": low[k],
            "high": high[k],
            "doubt": doubt[k],
        }
        for k, row in enumerate(rows)
    ]


def similar(served: Served, asked: bodies.Similar) -> Json:
    """Find the neighbours of an item or of a user."""
    if (asked.item is None) == (asked.user is None):
        raise DataError('give either "item" or "user"')
    side: Side = "item" if asked.user is None else "user"
    one = served.directory[side].read(asked.item if asked.user is None else asked.user)
    served.directory[side].row(one)
    return {"similar": served.fit.similar(**{side: one}, n=asked.n).to_pylist()}


def explain(served: Served, asked: bodies.Explain) -> Json:
    """Explain a prediction."""
    user, item = (served.directory[side].read(getattr(asked, side)) for side in SIDES)
    cells = served.fit.posterior.cells(Pairs([user], [item]))
    for side, one in (("user", user), ("item", item)):
        if getattr(cells, side)[0] == -1:  # not even attributes are known
            served.directory[side].row(one)  # type: ignore[index]
    return served.fit.explain(user, item, asked.most, at=asked.at)


def visit(served: Served, asked: bodies.Visit) -> Json:
    """Fold a visitor in, and predict; nothing is kept."""
    items, me = served.directory["item"], served.visitor
    _need_times(served, asked.ratings)
    rated = {items.read(one.item): one for one in asked.ratings}
    if len(rated) < len(asked.ratings):
        raise DataError("an item is rated twice; rate it once")
    known = [bool(row >= 0) for row in items.ids.index(list(rated))]
    left_out = [one for one, there in zip(rated, known, strict=True) if not there]
    used = [one for one, there in zip(rated, known, strict=True) if there]
    fit, posterior = served.fit, None
    if used:
        columns: Json = {"user": [me] * len(used), "item": used}
        columns["rating"] = [rated[one].rating for one in used]
        if all(rated[one].time is not None for one in used):
            columns["time"] = [rated[one].time for one in used]
        fit = fit.fold_in(pa.table(columns), seed=asked.seed)
        posterior = fit.posterior.without_selection()
    best = fit.recommend(
        [me], asked.n, rank_by=asked.rank_by, seen=[(me, one) for one in used], seed=asked.seed
    )
    rows = best.to_pylist()
    rows += [{"user": me, "item": items.read(item)} for item in asked.items]
    bars = _add_bars(posterior or served.once("unasked", _unasked), rows, asked.level)
    for bar in bars:
        del bar["user"]
    return {
        "recommendations": bars[: best.num_rows],
        "predictions": bars[best.num_rows :],
        "left_out": left_out,
    }


def update(shelf: Shelf, asked: bodies.Update) -> Json:
    """Add ratings to the model that is served."""
    _need_times(shelf.current, asked.ratings)
    table = _table(shelf.current, asked.ratings)
    old, new = shelf.update(lambda fit: fit.update(table, asked.side, seed=asked.seed))
    before, after = old.fit.posterior, new.fit.posterior
    given = Ratings.from_frame(table)
    return {
        "number": new.number,
        "new_users": len(after.users) - len(before.users),
        "new_items": len(after.items) - len(before.items),
        "left_out": len(given) - len(given.onto(after.users, after.items)),
    }


def evaluate(served: Served, asked: bodies.Evaluate) -> Json:
    """Test the model on ratings of the request."""
    return served.fit.evaluate(_table(served, asked.ratings), asked.bins)


def quality(served: Served) -> Json:
    """Test the model on the ratings that the service has; measured once."""
    return served.once("quality", _measure)  # type: ignore[no-any-return]


def _measure(served: Served) -> Json:
    test, posterior = served.test, served.fit.posterior
    if test is None:
        raise DataError(
            "no test ratings are known of this model; fit it with ratings held out, or start the "
            "service with --test FILE"
        )
    facts = served.fit.evaluate(test)
    with using(1):
        found = posterior.predictive(posterior.cells(test))
    values = np.asarray(test.by_user.values, float)
    facts["calibration"] = [
        {"level": level, "coverage": float(inside(values, found, level).mean())} for level in LEVELS
    ]
    source = "held out" if served.given_test is None else "file"
    return {**facts, "source": source, "test_ratings": len(test)}


def chains(served: Served) -> Json:
    """Tell whether the chains have converged, with the traces to look at."""
    return served.once("chains", _trace)  # type: ignore[no-any-return]


def _trace(served: Served) -> Json:
    fit = served.fit
    traces = {name: fit.traces[name] for name in SUMMARIES if name in fit.traces}
    sweeps = max((trace.shape[1] for trace in traces.values()), default=0)
    step = max(1, math.ceil(sweeps / LONGEST))
    return {
        "diagnostics": fit.diagnostics().to_dict(),
        "warm_up": find_warm_up(fit.traces),
        "sweeps": sweeps,
        "traces": {name: trace[:, ::step].tolist() for name, trace in traces.items()},
    }


def map_items(served: Served) -> Json:
    """Place the items with the most ratings on a map."""
    return served.once("map", _draw_map)  # type: ignore[no-any-return]


def _draw_map(served: Served) -> Json:
    total = int((served.fit.posterior.item_counts > 0).sum())
    return {"points": served.fit.map(MOST_POINTS).to_pylist(), "total": total}
