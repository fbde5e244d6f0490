"""The commands on a fitted model, file to file."""

from __future__ import annotations

import csv
import json

import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf.cli.main import main
from oracle.chains import chains_like


def run(*words: object, code: int = 0):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def fit(tiny_fit):
    return tiny_fit


def test_predictions_file_to_file(fit, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("item,user\ni1,u1\ni2,nobody\nnothing,u3\n")
    run("predict", fit, pairs, "--out", tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["known"] for row in rows] == ["warm", "new user", "new item"]
    table = bayesmf.load_model(fit).predict([("u1", "i1")])
    assert float(rows[0]["mean"]) == pytest.approx(table["mean"][0].as_py())
    assert float(rows[0]["q05"]) < float(rows[0]["mean"]) < float(rows[0]["q95"])
    one = json.loads(run("predict", fit, pairs, "--json").splitlines()[0])
    assert one["mean"] == pytest.approx(float(rows[0]["mean"]))
    chances = json.loads(run("predict", fit, pairs, "--probabilities", "--json").splitlines()[0])
    assert sum(value for key, value in chances.items() if key[0] == "p") == pytest.approx(1)
    assert "warm" in run("predict", fit, pairs)


def test_quantiles_that_are_asked_for(fit, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\nu1,i1\n")
    row = json.loads(run("predict", fit, pairs, "--quantiles", "0.1,0.5,0.9", "--json"))
    found = bayesmf.load_model(fit).predict([("u1", "i1")], quantiles=[0.1, 0.5, 0.9])
    assert [row[name] for name in ("q10", "q50", "q90")] == pytest.approx(
        [found[name][0].as_py() for name in ("q10", "q50", "q90")]
    )
    assert "q05" not in row


def test_lists_are_ranked_as_asked(fit, tiny_ratings, tmp_path):
    rated = {tuple(line.split(",")[:2]) for line in tiny_ratings.read_text().splitlines()}
    new = [
        (f"u{k}", f"i{j}") for k in range(40) for j in range(12) if (f"u{k}", f"i{j}") not in rated
    ]
    (tmp_path / "new.csv").write_text(
        "user,item,rating\n" + "".join(f"{u},{i},4\n" for u, i in new)
    )
    words = "evaluate", fit, tmp_path / "new.csv", "--top", 3, "--relevant", 3, "--json"
    found = json.loads(run(*words, "--rank-by", "thompson", "--seed", 7))["ranking"]
    saved, test = bayesmf.load_model(fit), bayesmf.load(tmp_path / "new.csv")
    expected = saved.evaluate_ranking(test, 3, relevant=3, rank_by="thompson", seed=7)
    plain = json.loads(run(*words))["ranking"]
    assert found["novelty"] == pytest.approx(expected["novelty"])
    assert found["novelty"] != pytest.approx(plain["novelty"])
    other = saved.evaluate_ranking(test, 3, relevant=3)
    assert plain["novelty"] == pytest.approx(other["novelty"])


def test_lists_and_bins_beyond_all_sizes(fit, tmp_path):
    saved, path = bayesmf.load_model(fit), tmp_path / "new.csv"
    items = saved.posterior.items.values[:3]
    path.write_text("user,item,rating\n" + "".join(f"nobody,{item},5\n" for item in items))
    words = "evaluate", fit, path, "--top", 10**9, "--json"
    found = json.loads(run(*words))["ranking"]
    assert found["hit_rate"] == 1
    done = CliRunner().invoke(main, ["evaluate", str(fit), str(path), "--bins", "9" * 20])
    assert done.exit_code == 2
    assert "give whole numbers that rise" in done.stderr


@pytest.mark.filterwarnings("always::bayesmf.SeenWarning")
def test_ratings_of_training_are_told_from_others(fit, tmp_path):
    saved, path = bayesmf.load_model(fit), tmp_path / "seen.csv"
    train = saved.posterior.train
    user, item = train.users.values[0], train.items.values[train.by_user.index[0]]
    path.write_text(f"user,item,rating\n{user},{item},4\nnobody,{item},3\n")
    done = CliRunner().invoke(main, ["evaluate", str(fit), str(path), "--json"])
    assert done.exit_code == 0
    assert done.stderr.startswith("Warning: 1 of the 2 ratings were in training")
    with pytest.warns(bayesmf.SeenWarning, match="1 of the 2") as one:
        saved.evaluate(bayesmf.load(path))
    assert one[0].filename == __file__  # the caller's line
    path.write_text(f"user,item,rating\nnobody,{item},3\n")
    done = CliRunner().invoke(main, ["evaluate", str(fit), str(path), "--json"])
    assert not done.stderr


@pytest.mark.filterwarnings("always::bayesmf.UnusedWarning")
@pytest.mark.parametrize("seconds", ["now", 5])
def test_a_time_that_changes_nothing_is_told(fit, tmp_path, seconds):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\nu1,i1\n")
    told = f"Warning: --at {seconds} changes nothing, as the model has no time chain; leave it out"
    for words in (["predict", fit, pairs], ["predict", fit, pairs, "--probabilities"],
                  ["recommend", fit, "--user", "u1"]):  # fmt: skip
        whole = [str(word) for word in (*words, "--json", "--at", seconds)]
        done = CliRunner().invoke(main, whole)
        assert done.exit_code == 0
        assert done.stderr == f"{told}\n"
        assert done.stdout == run(*words, "--json")
    saved = bayesmf.load_model(fit)
    for ask in (saved.predict, saved.probabilities):
        with pytest.warns(bayesmf.UnusedWarning, match=f"^at='?{seconds}'? changes nothing") as one:
            ask([("u1", "i1")], at=seconds)
        assert one[0].filename == __file__  # the caller's line
    with pytest.warns(bayesmf.UnusedWarning) as one:
        saved.recommend("u1", at=seconds)
    assert one[0].filename == __file__


def test_recommendations(fit, tmp_path):
    rows = [json.loads(line) for line in run("recommend", fit, "--user", "u1", "--user", "u2", "-n",
                                             3, "--json").splitlines()]  # fmt: skip
    assert [row["rank"] for row in rows] == [1, 2, 3] * 2
    table = bayesmf.load_model(fit).recommend(["u1", "u2"], 3)
    assert [row["item"] for row in rows] == table["item"].to_pylist()
    run("recommend", fit, "--out", tmp_path / "all.parquet")
    assert (tmp_path / "all.parquet").stat().st_size > 0


def test_new_users_and_evaluation(fit, tiny_ratings, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("user,item,rating\nzoe,i1,5\nzoe,i2,1\n")
    assert "1 new user;" in run("fold-in", fit, new, "--out", tmp_path / "more")
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\nzoe,i3\n")
    assert '"known": "warm"' in run("predict", tmp_path / "more", pairs, "--json")
    facts = json.loads(run("evaluate", tmp_path / "more", new, "--json"))
    assert facts["rmse"] > 0
    assert "rmse" in run("evaluate", fit, tiny_ratings)
    assert "known already" in run("fold-in", fit, tiny_ratings, "--out", tmp_path / "b", code=2)


def test_new_ratings_of_known_users(fit, tiny_ratings, tmp_path):
    new = tmp_path / "today.csv"
    first = tiny_ratings.read_text().splitlines()
    user = first[1].split(",")[0]
    new.write_text(f"user,item,rating\n{user},i1,5\nzoe,i2,1\n{user},unheard,2\n")
    told = run("update", fit, new, "--out", tmp_path / "more")
    assert told.startswith("1 updated user; 1 new user; 1 ratings of what the model does not know")
    assert "exists already" in run("update", fit, new, "--out", tmp_path / "more", code=2)
    again = "update", fit, new, "--out", tmp_path / "more", "--overwrite", "--side", "both"
    facts = json.loads(run(*again, "--json"))
    del facts["out"]
    assert facts == {"updated_users": 1, "new_users": 1, "updated_items": 2, "new_items": 1,
                     "left_out": 0}  # fmt: skip
    new.write_text(f"user,item,rating\n{user},i1,50\n")
    out = "--out", tmp_path / "other"
    assert "the rating 50 of item 'i1'" in run("update", fit, new, *out, code=2)
    assert "is not one of" in run("update", fit, new, *out, "--side", "users", code=2)
    assert not (tmp_path / "other").exists()


def test_diagnosis(fit):
    facts = json.loads(run("diagnose", fit, "--json"))
    found = facts["diagnostics"]
    assert found["summaries"]["noise_precision"]["ess"] > 0
    assert found == json.loads((fit / "fit.json").read_text())["diagnostics"] | {
        "words": found["words"]
    }
    assert "draw_chains" not in facts
    lines = run("diagnose", fit).splitlines()
    assert lines[0] == found["words"]
    assert lines[2].split()[-4:] == ["R-hat", "ESS", "tail", "ESS"]
    assert lines[3].startswith("noise precision")
    assert f"users: {facts['users']}" in lines


@pytest.mark.parametrize(
    ("chains", "shift", "expected"),
    [(1, 0, "Cannot be judged: one chain says nothing about what another start would have found. "
      "Fit with --chains 4 of `bayesmf fit`."),
     (4, 9, "Fit with --sweeps 5000 of `bayesmf fit`."),
     (4, 0, "Converged: all 64 predictions")],
)  # fmt: skip
def test_the_verdict_comes_first_in_words_of_the_command_line(
    fit, chains, shift, expected, tmp_path
):
    saved = bayesmf.load_model(fit)
    saved.traces = chains_like(0.3, chains)
    saved.traces["predictor variance"][0] += shift
    saved.facts["sweeps"] = 500 * chains
    saved.save(tmp_path / "model")
    printed = run("diagnose", tmp_path / "model")
    assert expected in printed.splitlines()[0]
    words = json.loads(run("diagnose", tmp_path / "model", "--json"))["diagnostics"]["words"]
    assert words == printed.splitlines()[0]


def test_mistakes_get_a_sentence(fit, tmp_path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("a,b\n1,2\n")
    assert "no column for the user" in run("predict", fit, pairs, code=2)
    assert "no such file" in run("predict", tmp_path / "none", pairs, code=2)
    pairs.write_text("user,item\nu1,i1\n")
    assert "cannot tell the format" in run("predict", fit, pairs, "--out", "x.doc", code=2)


def test_numbers_as_ids(tmp_path):
    lines = [f"{u},{i},{1 + (u * i) % 5}" for u in range(1, 9) for i in range(10, 16)]
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    words = ["fit", tmp_path / "r.csv", "--rank", 2, "--sweeps", 12, "--quiet", "--out"]
    run(*words, tmp_path / "f", "--without-ratings")
    (tmp_path / "p.csv").write_text("user,item\n1, 10\n01,10\nann,10\n99999999999999999999,11\n")
    rows = [json.loads(line) for line in run("predict", tmp_path / "f", tmp_path / "p.csv", "--json"
                                             ).splitlines()]  # fmt: skip
    assert [row["known"] for row in rows] == ["warm", "new user", "new user", "new user"]
    for user in ("ann", "01", "99999999999999999999"):
        assert "are numbers" in run("recommend", tmp_path / "f", "--user", user, code=2)
    assert "not at hand" in run("recommend", tmp_path / "f", "--user", "1", code=2)
    assert "score" in run("recommend", tmp_path / "f", "--user", "1", "--seen", tmp_path / "r.csv")
