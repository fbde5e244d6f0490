"""The page about a fit: its numbers are the fit's, its texts are escaped, it loads nothing."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf import DataError, Gibbs, Model, Ratings, summary_page
from bayesmf.cli.main import main
from bayesmf.fitted.explore.judge import unseen
from bayesmf.report.page import Code, Table
from bayesmf.report.summary import make_page

HOSTILE = "<script>alert(1)</script> & 'x'"


@pytest.fixture(scope="module")
def parts(tiny_ratings):
    """The ratings, with an item and a user whose names are no names."""
    table = bayesmf.load(tiny_ratings).to_arrow()
    users, items = table["user"].to_pylist(), table["item"].to_pylist()
    most = max(set(users), key=users.count)
    ratings = Ratings.from_triplets(
        users=[HOSTILE if user == most else user for user in users],
        items=[HOSTILE if item == "i1" else item for item in items],
        ratings=table["rating"],
    )
    return tuple(bayesmf.split(ratings, "paper", seed=0))


@pytest.fixture(scope="module")
def fit(parts):
    return Gibbs(Model(2), sweeps=20, chains=2, threads=1).fit(*parts)


def test_the_page_has_the_numbers_of_the_fit(fit, parts):
    page = make_page(fit)
    facts, lists = fit.evaluate(parts[1]), fit.evaluate_ranking(parts[1], 10)
    tables = {b.id: b for s in page.sections for b in s.blocks if isinstance(b, Table)}
    assert tables["errors"].cells[0][2].text == f"{facts['rmse']:.4f}"
    assert len(tables["errors"].cells) == 1 + len(facts["by_user_frequency"])
    assert tables["lists"].cells[0][2].text == f"{lists['ndcg']:.4f}"
    told = " ".join(finding.text for finding in page.findings)
    assert f"{facts['rmse']:.4f}" in told
    assert f"{100 * facts['coverage_80']:.1f}" in told
    doubt = [[float(row[3].text) for row in tables[f"{which}-doubt"].cells]
             for which in ("most", "least")]  # fmt: skip
    assert doubt[0] == sorted(doubt[0], reverse=True)
    assert doubt[1] == sorted(doubt[1])
    assert min(doubt[0]) > max(doubt[1])
    counts = [[int(row[1].text) for row in tables[f"{which}-doubt"].cells]
              for which in ("most", "least")]  # fmt: skip
    assert sum(counts[0]) < sum(counts[1])  # what is rated often is known best
    name = tables["most-doubt"].cells[0][0].text
    tables = {b.id: b for s in make_page(fit.with_titles(items={name: "A title"})).sections
              for b in s.blocks if isinstance(b, Table)}  # fmt: skip
    assert tables["most-doubt"].cells[0][0].text == "A title"


def test_names_are_escaped_and_nothing_is_loaded(fit, tmp_path):
    path = summary_page(fit, tmp_path / "page.html", name=f"fits/{HOSTILE}")
    text = path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", text)
    assert "@import" not in text
    assert "default-src 'none'" in text
    with pytest.raises(DataError, match="exists already; choose another name, or allow overwrite"):
        summary_page(fit, path)
    assert summary_page(fit, path, overwrite=True).read_text(encoding="utf-8") != ""


def test_examples_can_be_typed_as_they_stand(fit, tmp_path):
    fit.save(tmp_path / "a fit")
    page = make_page(fit, name=str(tmp_path / "a fit"))
    python, shell = (block for block in page.sections[-1].blocks if isinstance(block, Code))
    exec("\n".join(python.lines), {})
    import shlex

    words = shlex.split(shell.lines[0])
    done = CliRunner().invoke(main, words[1:])
    assert done.exit_code == 0, done.output


def test_a_fit_without_test_ratings_or_chains_has_a_page_too(parts, tmp_path):
    alone = Gibbs(Model(0, likelihood="ordinal"), sweeps=6, chains=1, threads=1).fit(parts[0])
    told = [finding.text for finding in make_page(alone).findings]
    assert "No ratings were held out" in told[1]
    point = bayesmf.MAP(Model.paper("none"), penalty=5.0, threads=1).fit(parts[0])
    text = summary_page(point, tmp_path / "map.html", parts[1]).read_text(encoding="utf-8")
    assert "There are no chains to judge" in text
    assert "one point, which knows no doubt" in text


def test_the_command_writes_it(tiny_fit, tmp_path):
    words = ["summary", str(tiny_fit), "--out", str(tmp_path / "page.html")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"bayesmf recommend {tiny_fit}" in text
    assert "bayesmf fit" in text  # the verdict names flags, not arguments
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 2
    assert "--overwrite" in again.output


def test_ratings_that_a_fit_has_learned_from_since_are_no_test(fit, parts):
    """Those of an update, and those by which an item was folded in."""
    held = fit.posterior.held_out
    half = held.select([k % 2 == 0 for k in range(len(held))])
    more = fit.update(half)
    assert unseen(fit.posterior) == held
    assert len(unseen(more.posterior)) == len(held) - len(half)
    item = Ratings.from_triplets(users=held.users.values[:2], items=["new"] * 2, ratings=[2, 3])
    assert len(unseen(fit.fold_in(item, "item").posterior)) == len(held)
    assert unseen(fit.update(held).posterior) is None
