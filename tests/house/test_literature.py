"""benchmarks/literature: its splits are the published ones, and its arithmetic has naive twins."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import KFold

from bayesmf import Gibbs, Model, Ratings

FOLDER = Path(__file__).parents[2] / "benchmarks"
if not FOLDER.exists():
    pytest.skip("the benchmarks are not in this copy", allow_module_level=True)
sys.path.insert(0, str(FOLDER))
from literature import binary, protocols, reliability, run, runs, tables, variants  # noqa: E402


@pytest.fixture
def ml_1m(tmp_path, monkeypatch) -> list[tuple[int, int, int, int]]:
    """A small ratings.dat whose rows are neither in the order of users, nor items, nor times."""
    rng = np.random.default_rng(0)
    cells = rng.permutation(30 * 20)[:237]
    rows = [(int(c) // 20 + 1, int(c) % 20 + 1, int(rng.integers(1, 6)), int(rng.integers(0, 40)))
            for c in cells]  # fmt: skip
    (tmp_path / "ml-1m").mkdir()
    text = "\n".join("::".join(map(str, row)) for row in rows)
    (tmp_path / "ml-1m" / "ratings.dat").write_text(text + "\n")
    monkeypatch.setenv("BAYESMF_DATA", str(tmp_path))
    monkeypatch.setattr(runs, "ROOT", tmp_path / "stored")
    return rows


def rows_of(ratings: Ratings) -> set[tuple]:
    table = ratings.to_arrow()
    return set(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


@pytest.mark.parametrize(("size", "folds"), [(237, 10), (40, 10), (23, 4)])
def test_folds_are_those_of_the_shuffled_rows(size, folds):
    order = np.arange(size)
    np.random.RandomState(0).shuffle(order)
    fold = protocols.fold_of_rows(size, folds)
    cut = [order[test] for _, test in KFold(folds).split(order)]
    for number, rows in enumerate(cut):
        assert set(np.flatnonzero(fold == number)) == set(rows)
    assert set(cut[0]) == set(order[: len(cut[0])])


def test_fold_0_of_movielens_1m_has_100021_ratings():
    fold = protocols.fold_of_rows(1_000_209)
    sizes = np.bincount(fold)
    assert sizes.tolist() == [100_021] * 9 + [100_020]


def test_a_fold_is_cut_by_the_rows_of_the_file(ml_1m):
    order = np.arange(len(ml_1m))
    np.random.RandomState(0).shuffle(order)
    first = [ml_1m[k] for k in order[:24]]
    train, test = protocols.fold(0).split()
    assert rows_of(test) == set(first)
    assert rows_of(train) == set(ml_1m) - set(first)
    assert train.users == test.users
    assert str(train.scale) == "1..5 by 1"
    others = [rows_of(protocols.fold(k).split()[1]) for k in range(1, 10)]
    assert set().union(set(first), *others) == set(ml_1m)
    assert len(first) + sum(map(len, others)) == len(ml_1m)


def test_forecasts_are_each_users_last_ratings(ml_1m):
    late = []
    for user in {row[0] for row in ml_1m}:
        mine = sorted((row for row in ml_1m if row[0] == user), key=lambda row: row[3])
        late += mine[int(np.floor(0.9 * len(mine))) :]  # sorted keeps rows of one second in order
    train, test = protocols.forecast("ml-1m").split()
    assert rows_of(test) == set(late)
    assert rows_of(train) == set(ml_1m) - set(late)


def test_thumbs(ml_1m):
    train, test = protocols.thumbs().split()
    stars = {(user, item): (int(r >= 4), time) for user, item, r, time in ml_1m}
    found = {(user, item): (r, time) for user, item, r, time in rows_of(train) | rows_of(test)}
    assert found == stars
    assert str(test.scale) == "0..1 by 1"


def naive_curve(probability, happened):
    rows = []
    for k in range(10):
        inside = [(p, h) for p, h in zip(probability, happened, strict=True)
                  if k / 10 <= p < (k + 1) / 10 or (k == 9 and p == 1)]  # fmt: skip
        if inside:
            p, h = zip(*inside, strict=True)
            rows.append((sum(p) / len(p), sum(h) / len(h), len(p)))
    return rows


def test_reliability_and_its_naive_twin():
    rng = np.random.default_rng(1)
    probability = np.append(rng.random(500), [0.0, 1.0])
    happened = rng.random(502) < probability
    twin = naive_curve(probability.tolist(), happened.tolist())
    found = reliability.curve(probability, happened)
    np.testing.assert_allclose(np.column_stack(found), np.array(twin), rtol=1e-12)
    error = sum(n * abs(p - h) for p, h, n in twin) / 502
    assert reliability.calibration_error(probability, happened) == pytest.approx(error, rel=1e-12)
    assert reliability.calibration_error(np.full(4, 0.25), np.array([1, 0, 0, 0])) == 0
    assert reliability.calibration_error(np.full(4, 0.75), np.array([1, 0, 0, 0])) == 0.5


def outcomes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    probability = rng.dirichlet(np.ones(3), 400)
    value = np.array([1.0, 1.5, 2.0])[[rng.choice(3, p=p) for p in probability]]
    return {"levels": np.array([1.0, 1.5, 2.0]), "probability": probability, "value": value,
            "total": rng.integers(1, 50, 400), "mean": rng.normal(1.5, 0.3, 400),
            "user": rng.integers(0, 30, 400)}  # fmt: skip


def test_log_probability_and_the_tables_of_reliability(tmp_path):
    arrays = outcomes()
    place = {1.0: 0, 1.5: 1, 2.0: 2}
    twin = [
        np.log(p[place[v]]) for p, v in zip(arrays["probability"], arrays["value"], strict=True)
    ]
    np.testing.assert_allclose(runs.log_probability(arrays), twin, rtol=1e-12)
    fits = {"one": reliability.Outcomes(arrays), "other": reliability.Outcomes(arrays)}
    lines = reliability.by_level(fits).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| 1", "| 1.5", "| 2", "| all"]
    assert lines[2].split(" | ")[1] == f"{np.mean(arrays['value'] == 1):.4f}"
    table = reliability.by_frequency(fits).splitlines()[2:]
    assert sum(int(line.split(" | ")[1]) for line in table) == 400
    reliability.draw(fits, tmp_path / "figure")
    assert (tmp_path / "figure.svg").read_text().count("rating 1.5") >= 1


def test_log_loss_and_auc_are_scikit_learns():
    rng = np.random.default_rng(3)
    probability = np.round(rng.random(300), 2).clip(0.01, 0.99)  # with ties
    up = (rng.random(300) < probability).astype(float)
    assert binary.log_loss(probability, up) == pytest.approx(log_loss(up, probability))
    assert binary.auc(probability, up) == pytest.approx(roc_auc_score(up, probability))


def test_models_by_name():
    assert variants.words("chain+ordinal") == "default + time chain + ordinal, users' cuts"
    assert variants.make("default", 3, "ml-1m").rank == 3
    pairs = variants.effects_between(["default", "chain", "chain+ordinal"])
    assert pairs == [("default", "chain", "chain"), ("chain", "chain+ordinal", "ordinal")]
    assert len(variants.effects_between(list(variants.GRID))) == 12  # the edges of a cube
    assert variants.suits("ordinal", times=False, attributes=False)
    assert not variants.suits("chain+ordinal", times=False, attributes=True)
    for wrong in ("chains", "ordinal+binary"):
        with pytest.raises(SystemExit, match=wrong.replace("+", r"\+")):
            variants.parts_of(wrong)


def test_a_run_is_stored_and_tabulated(ml_1m, capsys):
    settings = runs.Settings(rank=2, sweeps=6, threads=1)
    for number in (0, 1):
        case = protocols.fold(number)
        runs.run(case, "default", settings, case.split())
    case = protocols.forecast("ml-1m")
    runs.run(case, "default", settings, case.split())
    runs.run(case, "default", settings, case.split())
    assert "stored already" in capsys.readouterr().out
    train, test = protocols.fold(0).split()
    fit = Gibbs(Model(2), sweeps=6, chains=1, seed=0, threads=1).fit(train, test)
    first, second = runs.stored("fold")
    assert first["rmse"] == pytest.approx(fit.evaluate(test)["rmse"], rel=1e-12)
    assert first["clipped"] < first["rmse"] or first["clipped"] == first["rmse"]
    table = tables.errors("fold")
    mean = (first["rmse"] + second["rmse"]) / 2
    sd = abs(first["rmse"] - second["rmse"]) / np.sqrt(2)
    assert f"| mean of 2 folds (sd) | **default** | 2 | 6 | {mean:.4f} ({sd:.4f}) |" in table
    assert "| fold 1 |" not in table
    assert "myFM, ordered probit" in table
    assert "python benchmarks/literature" in table
    assert f"{runs.stored('forecast')[0]['rmse']:.4f}" in tables.forecasts()


def test_forecasts_compare_models_user_by_user(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    arrays = outcomes()
    record = {"part": "forecast", "case": "ml-1m", "rank": 2, "sweeps": 6, "chains": 1, "seed": 0,
              "keep": None, "rmse": 1.0, "clipped": 1.0, "seconds": 1.0, "command": "c",
              "versions": "v"}  # fmt: skip
    runs.store("forecast-a", {**record, "model": "default"}, arrays)
    closer = arrays["value"] + 0.9 * (arrays["mean"] - arrays["value"])
    runs.store("forecast-b", {**record, "model": "chain"}, {**arrays, "mean": closer})
    table = tables.forecasts()
    assert "| ml-1m | time chain | default | 2 | 10.00 % [10.00, 10.00] | lower |" in table


def test_a_file_that_is_not_there_is_one_sentence(monkeypatch, capsys, tmp_path):
    path = tmp_path / "no.mat"
    monkeypatch.setattr(sys, "argv", ["literature", "monti", "--files", str(path)])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 2
    said = f"--files {path}: there is no such file; name a .mat file that exists\n"
    assert capsys.readouterr().err == said


def test_the_page_has_a_place_for_every_table():
    text = tables.PAGE.read_text(encoding="utf-8")
    names = ("fold", "ml-100k", "paper", "monti", "forecast", "reliability", "binary", "cost")
    filled = tables.fill(text, {name: rf"table of {name} \1" for name in names})
    for name in names:
        assert f"<!-- begin {name} -->\ntable of {name} \\1\n<!-- end {name} -->" in filled
    assert tables.fill(filled, dict.fromkeys(names, "x")).count("\nx\n") == len(names)
    kept = dict.fromkeys(names, "x") | {"cost": tables.NOTHING}  # no fit of it is on this machine
    assert r"table of cost \1" in tables.fill(filled, kept)
    with pytest.raises(SystemExit, match="0 places for 'nothing'"):
        tables.fill(text, {"nothing": ""})
