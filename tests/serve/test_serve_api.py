"""What the service answers is what the fit says."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import bayesmf
from bayesmf import Ratings, load_model

LIMITS = [("users", "n", 1001), ("users", "n", 0), ("items", "search", "x" * 201)]


@pytest.fixture(scope="module")
def fit(tiny_fit):
    return load_model(tiny_fit, threads=1)


@pytest.fixture(scope="module")
def client(make_client):
    return make_client()[0]


def ask(client, path, body=None, status=200):
    answer = client.get(f"/api/{path}") if body is None else client.post(f"/api/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_predictions_are_those_of_the_fit(client, fit):
    pairs = [("u1", "i3"), ("nobody", "i3"), ("u1", "nothing"), ("u7", "i0")]
    body = {"pairs": [{"user": u, "item": i} for u, i in pairs], "quantiles": [0.1, 0.5]}
    expected = fit.predict(pairs, quantiles=[0.1, 0.5]).to_pylist()
    assert ask(client, "predict", body)["predictions"] == expected


def test_recommendations_are_those_of_the_fit_with_intervals(client, fit):
    body = {"users": ["u1", "u2"], "n": 4, "rank_by": "lower", "level": 0.8}
    found = ask(client, "recommend", body)["recommendations"]
    expected = fit.recommend(["u1", "u2"], 4, rank_by="lower").to_pylist()
    for key in ("user", "rank", "item", "score"):
        assert [row[key] for row in found] == [row[key] for row in expected]
    told = fit.predict([(r["user"], r["item"]) for r in found], quantiles=[0.1, 0.9]).to_pylist()
    for mine, theirs in (("mean", "mean"), ("low", "q10"), ("high", "q90"), ("sd", "sd")):
        assert [row[mine] for row in found] == pytest.approx([row[theirs] for row in told])
    assert all(0 < row["doubt"] < row["sd"] for row in found)


def test_recommendations_may_be_limited_to_some_items(client):
    body = {"users": ["u1"], "items": ["i1", "i2", "i3"], "exclude_seen": False}
    found = ask(client, "recommend", body)["recommendations"]
    assert {row["item"] for row in found} == {"i1", "i2", "i3"}


def test_the_mean_shown_to_a_stranger_is_the_score(client):
    found = ask(client, "recommend", {"users": ["nobody"]})["recommendations"]
    scores, means = (np.array([row[name] for row in found]) for name in ("score", "mean"))
    assert means == pytest.approx(scores, rel=1e-5)  # the scores are in single precision


def test_an_explanation_is_that_of_the_fit(client, fit):
    found = ask(client, "explain", {"user": "u1", "item": "i3", "most": 3})
    expected = fit.explain("u1", "i3", 3)
    assert found == json.loads(json.dumps(expected))


def test_a_visitor_gets_what_folding_in_gives_and_nothing_is_kept(make_client, fit):
    client, shelf = make_client()
    ratings = [{"item": "i3", "rating": 5}, {"item": "i9", "rating": 1}]
    body = {"ratings": [*ratings, {"item": "unknown", "rating": 2}], "n": 3, "items": ["i4"]}
    found = ask(client, "visitor", body)
    me = shelf.current.visitor
    more = fit.fold_in(pa.table({"user": [me] * 2, "item": ["i3", "i9"], "rating": [5.0, 1.0]}))
    best = more.recommend([me], 3).to_pylist()
    assert [row["item"] for row in found["recommendations"]] == [row["item"] for row in best]
    assert [row["score"] for row in found["recommendations"]] == [row["score"] for row in best]
    assert found["left_out"] == ["unknown"]
    assert [row["item"] for row in found["predictions"]] == ["i4"]
    assert len(shelf.current.fit.posterior.users) == len(fit.posterior.users)
    assert ask(client, "visitor", body) == found


def test_intervals_shrink_as_a_visitor_rates(client, fit):
    items = fit.posterior.items.values[:20].tolist()
    width = []
    for many in (0, 3, 12):
        ratings = [{"item": f"i{k}", "rating": 1 + k % 5} for k in range(many)]
        found = ask(client, "visitor", {"ratings": ratings, "items": items})["predictions"]
        width.append(np.mean([row["doubt"] for row in found]))
    assert width[0] > width[1] > width[2]


@pytest.mark.parametrize("side", ["item", "user"])
def test_neighbours_come_nearest_first_without_the_one_itself(client, side):
    one = f"{side[0]}3"
    found = ask(client, "similar", {side: one, "n": 5})["similar"]
    near = [row["similarity"] for row in found]
    assert len(found) == 5
    assert near == sorted(near, reverse=True)
    assert one not in [row[side] for row in found]


def test_users_are_found_by_a_part_of_their_id(client, fit):
    found = ask(client, "users?search=U1&n=100")
    assert found["total"] == len(found["found"])
    assert found["found"][0]["id"].startswith("u1")
    assert all("u1" in row["id"] for row in found["found"])
    assert ask(client, "users?search=u11")["found"][0]["id"] == "u11"
    counts = [row["ratings"] for row in ask(client, "items")["found"]]
    assert counts == sorted(counts, reverse=True)
    assert ask(client, "items?search=%25_*.")["total"] == 0


def test_the_ratings_of_a_user_are_those_of_training(client, fit):
    found = ask(client, "ratings?user=u1&n=1000")
    train = fit.posterior.train
    table = train.to_arrow().to_pylist()
    mine = {row["item"]: float(row["rating"]) for row in table if row["user"] == "u1"}
    assert {row["item"]: row["rating"] for row in found["ratings"]} == mine
    assert found["total"] == len(mine)
    few = ask(client, "ratings?user=u1&n=1")
    assert len(few["ratings"]) == 1
    counts = {one["rating"]: one["count"] for one in few["counts"]}
    assert counts == Counter(mine.values()), "of all, however few are listed"


def test_quality_is_what_evaluate_says(client, fit, test_ratings):
    found = ask(client, "quality")
    expected = json.loads(json.dumps(fit.evaluate(test_ratings)).replace("NaN", "null"))
    assert {key: found[key] for key in expected} == expected
    assert found["source"] == "file"
    shares = [one["coverage"] for one in found["calibration"]]
    assert shares == sorted(shares)
    at_80 = next(one["coverage"] for one in found["calibration"] if one["level"] == 0.8)
    assert at_80 == pytest.approx(found["coverage_80"])
    body = {"ratings": [{"user": "u1", "item": "i3", "rating": 4}]}
    assert ask(client, "evaluate", body)["mae"] == pytest.approx(
        abs(fit.predict([("u1", "i3")])["mean"][0].as_py() - 4)
    )


def test_without_test_ratings_there_is_a_sentence(make_client):
    client, _ = make_client(tested=False)
    assert "--test" in ask(client, "quality", status=422)["error"]
    assert not ask(client, "model")["tested"]


def test_chains_and_map_and_facts(client, fit):
    chains = ask(client, "chains")
    assert chains["diagnostics"] == json.loads(json.dumps(fit.diagnostics().to_dict()))
    assert chains["traces"]["noise precision"] == fit.traces["noise precision"].tolist()
    points = ask(client, "map")["points"]
    assert {point["item"] for point in points} == set(fit.posterior.items.values.tolist())
    assert all(math.isfinite(point["x"] + point["y"]) for point in points)
    facts = ask(client, "model")
    assert facts["users"] == len(fit.posterior.users)
    assert facts["scale"]["levels"] == [1, 2, 3, 4, 5]


def test_updates_are_off_unless_they_are_allowed(client):
    body = {"ratings": [{"user": "u1", "item": "i3", "rating": 1}]}
    assert "--allow-updates" in ask(client, "update", body, 403)["error"]


def test_an_update_replaces_the_model_and_is_saved(make_client, fit, tmp_path):
    from bayesmf.serve.served import Options

    client, shelf = make_client(options=Options(True, tmp_path / "new"))
    old = shelf.current
    body = {"ratings": [{"user": "u1", "item": "i3", "rating": 1},
                        {"user": "somebody", "item": "i3", "rating": 5},
                        {"user": "u1", "item": "unknown", "rating": 5}]}  # fmt: skip
    told = ask(client, "update", body)
    assert told == {"number": 1, "new_users": 1, "new_items": 0, "left_out": 1}
    pairs = [("u1", "i5"), ("somebody", "i5")]
    expected = fit.update(pa.Table.from_pylist(body["ratings"])).predict(pairs).to_pylist()
    asked = {"pairs": [{"user": u, "item": i} for u, i in pairs]}
    assert ask(client, "predict", asked)["predictions"] == expected
    assert load_model(tmp_path / "new").predict(pairs).to_pylist() == expected
    assert shelf.current is not old
    assert old.fit.predict(pairs).to_pylist() == fit.predict(pairs).to_pylist()


def test_ids_that_are_numbers_may_be_sent_as_text(tiny_ratings, tmp_path, make_client):
    import bayesmf

    data = bayesmf.Ratings.from_triplets(
        users=np.repeat([*range(29), 2**63 - 1], 5), items=np.tile(np.arange(10), 15),
        ratings=1 + np.arange(150) % 5)  # fmt: skip
    bayesmf.MAP(bayesmf.Model(rank=1)).fit(data).save(tmp_path / "numbers")
    client, shelf = make_client(tmp_path / "numbers", tested=False)
    one = ask(client, "predict", {"pairs": [{"user": 3, "item": 4}]})
    assert ask(client, "predict", {"pairs": [{"user": "3", "item": " 4 "}]}) == one
    assert isinstance(one["predictions"][0]["user"], int)
    for bad in ("x", "3.0", "9" * 30):
        told = ask(client, "predict", {"pairs": [{"user": bad, "item": 4}]}, 422)["error"]
        assert "whole numbers" in told
    assert shelf.current.visitor not in data.users.values
    assert ask(client, "visitor", {"ratings": [{"item": 4, "rating": 5}]})["recommendations"]
    assert ask(client, "chains")["traces"] == {}
    assert ask(client, "ratings?user=3")["total"] == 5
    assert ask(client, f"users?search={2**63 - 1}")["found"][0]["id"] == 2**63 - 1


def test_a_held_out_rating_that_an_update_brought_is_listed_once(
    tiny_ratings, tmp_path, make_client
):
    cut = bayesmf.split(bayesmf.load(tiny_ratings), "paper", seed=0)
    sampler = bayesmf.Gibbs(bayesmf.Model(2), sweeps=8, keep=3, chains=1, threads=1)
    fit = sampler.fit(cut.train, cut.test)
    rows, user = cut.test.by_user, 0
    mine = cut.test.select(rows.row_index == user)
    fit.update(mine).save(tmp_path / "more")
    client, _ = make_client(tmp_path / "more", tested=False)
    found = ask(client, f"ratings?user={cut.test.users.values[user]}&n=1000")["ratings"]
    items = [row["item"] for row in found]
    assert len(mine)
    assert len(items) == len(set(items)) == cut.train.by_user.counts[user] + len(mine)
    assert not any(row["held_out"] for row in found)


def test_a_model_without_ratings_is_served_as_far_as_it_goes(fit, tmp_path, make_client):
    fit.save(tmp_path / "bare", without_ratings=True)
    client, _ = make_client(tmp_path / "bare", tested=False)
    assert ask(client, "model")["ratings"] is None
    nothing = {"user": "u1", "ratings": [], "total": 0, "counts": []}
    assert ask(client, "ratings?user=u1") == nothing
    assert "exclude_seen" in ask(client, "recommend", {"users": ["u1"]}, 422)["error"]
    assert ask(client, "recommend", {"users": ["u1"], "exclude_seen": False})["recommendations"]
    assert ask(client, "visitor", {"ratings": [{"item": "i3", "rating": 5}]})["recommendations"]


def test_a_model_with_times_is_served_and_asks_for_them(make_client, timed_fit):
    from bayesmf.serve.served import Options

    client, _ = make_client(timed_fit, Options(True), tested=False)
    assert ask(client, "model")["timed"]
    rated = {"item": 3, "rating": 5}
    for path, one in (("visitor", rated), ("update", {**rated, "user": 4})):
        assert '"time"' in ask(client, path, {"ratings": [one]}, 422)["error"]
        assert ask(client, path, {"ratings": [{**one, "time": 86_400 * 10_500}]})
    assert ask(client, "recommend", {"users": [4], "at": "now"})["recommendations"]
    pair = {"user": 4, "item": 3}
    told = ask(client, "explain", {**pair, "at": 86_400 * 10_500})
    assert "mood" in told["parts"]
    assert "mood" not in ask(client, "explain", pair)["parts"]
    assert '"at": "never"' in ask(client, "explain", {**pair, "at": "never"}, 422)["error"]


def test_an_item_known_by_its_attributes_is_explained(make_client, tmp_path):
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((20, 12)) < 0.6)
    data = Ratings.from_triplets(users=user, items=item, ratings=rng.integers(1, 6, len(user)))
    kinds = pa.table({"item": np.arange(14), "kind": ["even", "odd"] * 7})
    fit = bayesmf.fit(data, rank=1, sweeps=4, chains=1, item_attributes=kinds)
    fit.save(tmp_path / "fit")
    client, _ = make_client(tmp_path / "fit", tested=False)
    assert ask(client, "explain", {"user": 3, "item": 13}) == fit.explain(3, 13)
    assert "was not in training" in ask(client, "explain", {"user": 3, "item": 14}, 404)["error"]


@pytest.mark.parametrize("path", ["ratings?user=nobody", "explain", "similar"])
def test_who_is_not_known_is_not_found(client, path):
    body = {"explain": {"user": "u1", "item": "no"}, "similar": {"user": "no"}}.get(path)
    assert "was not in training" in ask(client, path, body, 404)["error"]


def test_mistakes_are_told_in_one_sentence_that_names_the_field(make_client):
    from bayesmf.serve.served import Options

    client, _ = make_client(options=Options(True))
    for path, body, words in [
        ("visitor", {"ratings": [{"item": "i3", "rating": 9}]}, "not on the scale"),
        ("visitor", {"ratings": [{"item": "i3", "rating": 2}] * 2}, "rated twice"),
        ("update", {"ratings": [{"user": "u1", "item": "i3", "rating": 2}] * 2}, "an item twice"),
        ("evaluate", {"ratings": [{"user": "u1", "item": "i3", "rating": 2}] * 2}, "an item twice"),
        ("similar", {"item": "i3", "user": "u1"}, "either"),
        ("predict", {"pairs": []}, "pairs: "),
        ("predict", {"pairs": [{"user": "u1"}]}, "pairs.0.item: "),
        ("predict", {"pairs": [{"user": "u1", "item": "i1"}], "at": "never"}, '"at": "never"'),
        ("recommend", {"users": ["u1"], "rank_by": "best"}, "rank_by: "),
        ("recommend", {"users": ["u1"], "more": 1}, "the request: "),
    ]:
        told = ask(client, path, body, 422)["error"]
        assert words in told
        assert "\n" not in told


@pytest.mark.parametrize(("path", "name", "value"), LIMITS)
def test_lists_are_limited(client, path, name, value):
    told = ask(client, f"{path}?{name}={value}", status=422)["error"]
    assert told.startswith(f"{name}: ")


def test_the_description_lists_every_address_and_every_refusal(client):
    found = client.get("/openapi.json").json()
    paths = {path.removeprefix("/api/") for path in found["paths"]}
    assert paths == {"health", "model", "users", "items", "ratings", "predict", "recommend",
                     "similar", "explain", "visitor", "update", "evaluate", "quality", "chains",
                     "map"}  # fmt: skip
    for methods in found["paths"].values():
        for one in methods.values():
            assert {"200", "401", "404", "413", "422", "429"} <= set(one["responses"])
            assert one["description"].endswith(".")
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


def test_the_answers_fit_their_description(client):
    from bayesmf.serve import bodies

    for path, kind in [("model", bodies.Facts), ("users", bodies.Found), ("map", bodies.Map),
                       ("ratings?user=u1", bodies.OwnRatings), ("quality", bodies.Quality),
                       ("chains", bodies.Chains)]:  # fmt: skip
        kind.model_validate(ask(client, path))
    for path, body, kind in [
        ("visitor", {"ratings": [], "items": ["i1"]}, bodies.Visited),
        ("recommend", {"users": ["u1"]}, bodies.Recommendations),
        ("predict", {"pairs": [{"user": "u1", "item": "i1"}]}, bodies.Predictions),
        ("explain", {"user": "u1", "item": "i1"}, bodies.Explanation),
    ]:
        kind.model_validate(ask(client, path, body))


def test_the_page_is_there_and_asks_nobody_else(client):
    page = client.get("/").text
    for path in ("/page/explorer.css", "/page/explorer.js", "/page/parts.js", "/page/charts.js"):
        found = client.get(path)
        assert found.status_code == 200
        page += found.text
    words = page.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "http://" not in words
    assert "https://" not in words
    assert client.get("/page/index.html").status_code == 404
