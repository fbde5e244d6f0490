"""The report: from the folder alone, complete, and its sentences follow the numbers."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import bayesmf
from bayesmf.choices import PRECISIONS
from bayesmf.cli.main import main
from bayesmf.evaluation.bootstrap import paired_change
from bayesmf.report import paper
from bayesmf.report.contents import make_report
from bayesmf.report.draw import COLOURS, colour, style
from bayesmf.report.findings import RULES, findings, settled_at, users_of
from bayesmf.report.page import Finding
from bayesmf.report.read import FEATURES, INFERENCES, NEWCOMERS, Reader, title_of
from bayesmf.report.tables.beyond import ALIKE, cold_start
from bayesmf.report.tables.of_paper import change_table, table_1, table_2
from bayesmf.report.write import write_report
from bayesmf.study.results import Results
from bayesmf.study.specs import COLD, GIVEN


@pytest.fixture(scope="module")
def report(tiny_study):
    return make_report(Results.open(tiny_study))


@pytest.fixture
def copy(tiny_study, tmp_path):
    shutil.copytree(tiny_study, tmp_path / "copy")
    return tmp_path / "copy"


def change(folder, run: str, split: int = 0, **facts) -> None:
    """Put other numbers into a result."""
    place = folder / f"split-{split}" / run
    known = json.loads((place / "result.json").read_text())
    (place / "result.json").write_text(json.dumps({**known, **facts.pop("facts", {})}))
    with np.load(place / "arrays.npz") as arrays:
        found = dict(arrays)
    np.savez(place / "arrays.npz", **{**found, **facts.pop("arrays", {})})


def few_figures(folder) -> None:
    """Drawing takes the time: leave out what most figures need."""
    for name in ("vi-no-side-constant", "vi-no-side-robust", "gibbs-side-robust"):
        shutil.rmtree(folder / "split-0" / name)


def statuses(folder) -> dict[str, str]:
    return {f.verdict: f.status for f in findings(Reader(Results.open(folder))) if f.verdict}


def test_no_cell_of_table_2_is_empty(report):
    table = next(t for t in report.tables if t.id == "table-2")
    rows = list(csv.reader(io.StringIO(table.to_csv())))[1:]
    assert len(rows) == len(FEATURES) * len(INFERENCES) * len(PRECISIONS)
    for row in rows:
        assert re.fullmatch(r"\d\.\d{4}", row[3])
        assert re.fullmatch(r"\d\.\d{4}", row[4])  # the spread over two splits


def test_everything_is_there(report, tiny_study):
    assert {t.id for t in report.tables} >= {
        "table-1", "table-2", "table-2-glance", "table-3", "table-4", "bounds",
        "cold-start-table", "cold-start-coverage-80", "cold-start-log-score",
        "calibration-coverage-50", "calibration-log-score",
    }  # fmt: skip
    panels = [panel for found in report.figures.values() for panel in found]
    names = {panel.name for panel in panels}
    for figure, number in {"fig-2": 6, "fig-3": 3, "fig-4": 6, "fig-5": 3, "fig-6": 6, "fig-7": 2,
                           "printed": 3, "calibration": 3, "cold-start": 4}.items():  # fmt: skip
        found = {name for name in names if re.fullmatch(rf"{figure}-?[a-z]", name)}
        assert len(found) == number, figure
    for panel in panels:
        assert (tiny_study / "figures" / f"{panel.name}.svg").is_file()
        assert (tiny_study / "figures" / f"{panel.name}.png").read_bytes()[:4] == b"\x89PNG"
        assert panel.alt
        assert "nan" not in panel.alt
    text = (tiny_study / "report.html").read_text()
    assert "not shown" not in text
    for rule in RULES:
        assert rule  # every rule had what it needs:
    assert len(report.page.findings) >= len(RULES)


def test_numbers_of_table_2_are_those_of_the_results(tiny_study):
    read = Reader(Results.open(tiny_study))
    rows = {(r[0], r[1], r[2]): r for r in table_2(read).rows}
    row = rows["side", "Gibbs", "robust"]
    each = [json.loads((tiny_study / f"split-{k}/gibbs-side-robust/result.json").read_text())
            for k in (0, 1)]  # fmt: skip
    errors = [one["rmse"] for one in each]
    assert row[3].text == f"{np.mean(errors):.4f}"
    assert row[4] == f"{np.std(errors, ddof=1):.4f}"


def test_frequency_tables_agree_with_the_predictions(tiny_study):
    """Pooled over splits: bin by bin, the squared errors of all splits over their counts."""
    read = Reader(Results.open(tiny_study))
    table = change_table(
        read, "t", "T", "gibbs-no-side-constant", "gibbs-side-constant", ("a", "b")
    )
    squares, counts = [], []
    for split in (0, 1):
        result = Results(tiny_study)[split, "gibbs-side-constant"]
        squares.append(result.array("user_squares"))
        counts.append(result.array("user_count"))
    totals = Results(tiny_study)[0, "users"].array("user_ratings")
    rare = totals <= read.study["bins"][0]
    expected = np.sqrt(np.sum(squares, axis=0)[rare].sum() / np.sum(counts, axis=0)[rare].sum())
    assert table.rows[0][4].text == f"{expected:.4f}"
    assert [row[0] for row in table.rows] == [*read.labels, "all"]
    before = sum(Results(tiny_study)[k, "gibbs-no-side-constant"].array("user_squares")
                 for k in (0, 1))  # fmt: skip
    value = paired_change(before, np.sum(squares, axis=0)).value
    assert table.rows[-1][5].text == f"{value:+.2f}"
    whole = [np.sqrt(np.sum(s) / np.sum(c)) for s, c in ((squares, counts), (before, counts))]
    assert (table.rows[-1][4].text, table.rows[-1][3].text) == tuple(f"{w:.4f}" for w in whole)


def test_it_reads_the_folder_alone_and_repeats_itself(copy, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("the report looked for data")

    monkeypatch.setattr(bayesmf, "load", refuse)
    before = {p.relative_to(copy): p.read_bytes() for p in copy.rglob("*")
              if p.parent.name in ("figures", "tables") or p.name == "report.html"}  # fmt: skip
    assert len(before) > 80
    write_report(copy)
    for path, content in before.items():
        assert (copy / path).read_bytes() == content, path


def test_what_was_not_run_is_named(copy):
    for name in ("vi-printed-no-side-robust", "cold-start-user-side", "gibbs-both-sides-robust"):
        shutil.rmtree(copy / "split-0" / name)
    text = write_report(copy).read_text()
    assert "fig-4, fig-6, printed, calibration, both-sides, cold-start" in text
    assert 'id="fig-4"' not in text
    assert 'id="fig-5"' in text


def test_cold_start_that_cannot_be_says_why(copy):
    few_figures(copy)
    for variant in COLD:
        change(copy, f"cold-start-item-{variant}", facts={"skipped": "too few items"})
    text = write_report(copy).read_text()
    assert "Too few items." in text
    assert 'id="cold-start-table"' in text  # of new users
    for variant in COLD:
        change(copy, f"cold-start-user-{variant}", facts={"skipped": "too few users"})
    text = write_report(copy).read_text()
    assert "(cold-start: too few users; too few items)" in text
    assert 'id="cold-start-table"' not in text


def test_the_lengths_that_are_told_are_those_of_the_runs_that_are_there(copy):
    """A quick study has 60 sweeps, 40 of side only, and 60 where 20 draws are kept."""
    few_figures(copy)

    def told() -> list[str]:
        text = write_report(copy).with_suffix(".md").read_text()
        return [line for line in text.splitlines() if line.startswith("- Gibbs")]

    facts = json.loads((copy / "study.json").read_text())
    facts["lengths"]["cold"] = 70  # so that it is another number than that of the other runs
    (copy / "study.json").write_text(json.dumps(facts))
    averaged = "one chain of {} sweeps from a random start; predictions are averaged after the "
    kept = (
        "one chain of 70 sweeps from a random start; predictions are the average of 20 draws kept "
        "after the first 10"
    )
    assert told() == [
        f"- Gibbs: {averaged.format(60)}first 10; side only has 40 sweeps",
        f"- Gibbs, newcomers and time and scale: {kept}",
    ]
    for run in (copy / "split-0").glob("gibbs-*"):
        if "side-only" not in run.name:
            shutil.rmtree(run)
    assert told()[0] == f"- Gibbs: {averaged.format(40)}first 10"
    for run in (copy / "split-0").glob("gibbs-*"):
        shutil.rmtree(run)
    assert told() == [f"- Gibbs: {kept}"]  # as in the reports on newcomers alone
    for run in (copy / "split-0").glob("cold-start-*"):
        change(copy, run.name, facts={"skipped": "too few"})
    for run in (copy / "split-0").glob("default*"):
        shutil.rmtree(run)
    assert told() == []  # nothing was sampled


def test_the_lowest_error_of_newcomers_is_marked_and_what_cannot_be_told_from_it(copy):
    rng = np.random.default_rng(0)
    squares = rng.gamma(3.0, size=200)
    factors = dict(zip(COLD, (1.0, 1.5, 0.99, 1.2, 1.3), strict=True))
    for variant, factor in factors.items():
        luck = rng.uniform(0.8, 1.2, 200) if variant == "default" else 1.0
        found = squares * luck * factor
        given = Results(copy)[0, f"cold-start-user-{variant}"]["by_given"]
        given["2"]["rmse"] = float(np.sqrt(found.mean()))
        change(copy, f"cold-start-user-{variant}", facts={"by_given": given},
               arrays={"squares_2": found})  # fmt: skip
    read = Reader(Results.open(copy))
    assert read.lowest("user", 2, COLD) == ("no-side", ["default"])
    cells = {row[1]: row[2 + GIVEN.index(2)] for row in cold_start(read).rows if row[0] == "users"}
    assert [name for name, cell in cells.items() if cell.kind == "best"] == ["no side"]
    assert [name for name, cell in cells.items() if ALIKE in cell.text] == ["default model"]
    assert "cannot be told from it, given" in next(
        f.text for f in findings(read) if f.text.startswith("New users")
    )


def test_claims_follow_the_numbers(copy):
    claim = "With side features, robust precisions gain nothing overall."
    squares = Results(copy)[0, "gibbs-side-constant"].array("user_squares")
    for split in (0, 1):
        change(copy, "gibbs-side-constant", split, arrays={"user_squares": squares})
        change(copy, "gibbs-side-robust", split, arrays={"user_squares": 0.9 * squares})
    assert statuses(copy)[claim] == "not seen"
    text = next(f.text for f in findings(Reader(Results.open(copy))) if f.verdict == claim)
    assert "lowered the overall error by 5.13 % [5.13, 5.13]" in text
    for split in (0, 1):
        change(copy, "gibbs-side-robust", split, arrays={"user_squares": 1.1 * squares})
    assert statuses(copy)[claim] == "seen"


def test_overfitting_is_seen_only_if_it_is_there(copy):
    claim = "VI overfits before its bound settles."
    bound = np.concatenate([np.linspace(-2e5, -1e5, 8), np.full(7, -1e5)])
    for errors, status in (
        (np.linspace(0.9, 0.8, 15), "not seen"),  # falls to the end
        (np.r_[0.9, 0.85, np.linspace(0.86, 0.9, 13)], "seen"),
    ):
        change(copy, "vi-no-side-constant", arrays={"test_rmse": errors, "bound": bound})
        assert statuses(copy)[claim] == status


def test_the_side_claim_wants_gains_for_rare_users_and_none_for_frequent_ones(copy):
    claim = next(c for c in statuses(copy) if c.startswith("Side features help rare"))
    read = Reader(Results.open(copy))
    base = read("gibbs-no-side-constant").array("user_squares") + 0.5
    last = len(read.labels) - 1
    for gain, status in (
        (np.where(read.bin_of_user < last, 0.9, 1.0), "seen"),
        (np.full(len(base), 0.9), "partly"),
        (np.full(len(base), 1.1), "not seen"),
    ):
        for split in (0, 1):
            change(copy, "gibbs-no-side-constant", split, arrays={"user_squares": base})
            change(copy, "gibbs-side-constant", split, arrays={"user_squares": gain * base})
        assert statuses(copy)[claim] == status


def test_gibbs_against_vi_counts_every_model(copy):
    claim = "Gibbs sampling beats VI."
    for split in (0, 1):
        for features in FEATURES:
            for precision in PRECISIONS:
                change(copy, f"gibbs-{features}-{precision}", split, facts={"rmse": 0.8})
                change(copy, f"vi-{features}-{precision}", split, facts={"rmse": 0.9})
    assert statuses(copy)[claim] == "seen"
    for split in (0, 1):
        change(copy, "vi-side-robust", split, facts={"rmse": 0.7})
    assert statuses(copy)[claim] == "partly"


def test_settled_at():
    bound = np.array([-100.0, -50.0, -49.9999999, -49.9999998])
    assert settled_at(bound) == 3
    assert settled_at(np.array([-100.0, -50.0, -25.0])) is None
    assert settled_at(np.array([-100.0, -100.0, -50.0])) is None  # a rest is not the end


def test_words():
    assert users_of("<=25") == "users with at most 25 ratings"
    assert users_of("26-71") == "users with 26 to 71 ratings"
    assert users_of("830+") == "users with 830 ratings or more"
    assert title_of("gibbs-side-only-robust") == "Gibbs, side only, robust"


def test_one_colour_a_model_one_line_an_algorithm():
    assert (
        colour("gibbs-side-constant") == colour("vi-side-constant") == colour("map-side-constant")
    )
    assert colour("vi-printed-no-side-robust") == colour("gibbs-no-side-robust")
    assert style("vi-side-constant")["linestyle"] != style("gibbs-side-constant")["linestyle"]
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_the_paper_s_values_are_there_for_its_data(tiny_study, copy):
    facts = json.loads((copy / "study.json").read_text())
    facts["data"] = "ml-1m"
    (copy / "study.json").write_text(json.dumps(facts))
    read = Reader(Results.open(copy))
    rows = {(r[0], r[1], r[2]): r for r in table_2(read).rows}
    assert rows["no side", "VI", "constant"][6] == "0.8546"
    assert rows["side", "Gibbs", "robust"][6] == "0.8407"
    assert rows["side only", "Gibbs", "robust"][6] == "\N{EN DASH}"
    least = read.mean("vi-no-side-robust", "least")
    assert rows["no side", "VI", "robust"][7].text == f"{least - 0.8570:+.4f}"
    end = read.mean("vi-no-side-constant")
    assert rows["no side", "VI", "constant"][7].text == f"{end - 0.8546:+.4f}"
    shown = {row[0]: row[2] for row in table_1(read).rows}
    assert shown["ratings per user, mean"] == "166"  # the paper prints the means swapped
    assert shown["ratings per item, mean"] == "253"


def test_the_paper_s_tables_add_up():
    """Its relative changes follow from its errors; a digit typed wrongly would show."""
    first, second = paper.by_frequency("ml-1m", "no-side-constant", "side-constant", 8)
    changes = [round(100 * (1 - b / a), 2) for a, b in zip(first, second, strict=True)]
    printed = [0.92, 0.76, 0.78, 0.58, 0.46, 0.38, 0.03, 0.01]
    assert np.allclose(changes, printed, atol=0.021)
    assert paper.by_frequency("ml-1m", "side-robust", "both-sides-robust", 8) is None
    shares = [0.01, 0.09, 0.15, 0.05, 0.2, 0.2, 0.2, 0.1]
    whole = np.sqrt(np.average(np.square(paper.BY_FREQUENCY["side-robust"]), weights=shares))
    assert np.isclose(paper.overall_of_bins("side-robust"), whole)
    assert whole < 0.83  # where the paper's Table 2 has 0.8407
    first, second = paper.by_frequency("ml-1m", "side-constant", "side-robust", 8)
    changes = [100 * (1 - b / a) for a, b in zip(first, second, strict=True)]
    assert np.allclose(changes, [0.05, -0.08, 0.19, 0.11, -0.12, -0.08, 0.10, 0.42], atol=0.015)


def test_findings_are_valid(report):
    assert all(isinstance(f, Finding) and "nan" not in f.text for f in report.page.findings)
    kinds = [f.status for f in report.page.findings]
    assert kinds == sorted(kinds, key=lambda kind: kind != "plain")  # what was found comes first


def test_markdown_shows_every_table_and_figure(report, tiny_study):
    text = (tiny_study / "report.md").read_text()
    for table in report.tables:
        assert table.to_markdown().strip() in text
    images = re.findall(r"\]\((figures/[^)]*)\)", text)
    assert len(images) == sum(len(panels) for panels in report.figures.values())
    for image in images:
        assert (tiny_study / image).is_file()


def contents(folder) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_report_may_go_elsewhere_and_be_written_again(copy, tmp_path):
    few_figures(copy)
    before = (copy / "report.html").read_bytes()
    page = write_report(copy, tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    first = contents(tmp_path / "out")
    assert (copy / "report.html").read_bytes() == before
    write_report(copy, tmp_path / "out")
    assert contents(tmp_path / "out") == first


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("figures/me.png", "holds files that no report wrote, such as me.png"),
        ("figures/fig-2a.svg", "holds files that no report wrote, such as fig-2a.svg"),
        ("tables/mine.csv", "holds files that no report wrote, such as mine.csv"),
        ("figures/sub/deep.svg", "holds files that no report wrote, such as sub"),
        ("report.md", "was not written by a report"),
        ("report.html", "was not written by a report"),
    ],
)
def test_pictures_and_pages_of_others_are_kept(name, told, tiny_study, tmp_path, monkeypatch):
    """Nothing of a user's own is deleted; it is refused before any work and nothing is written."""
    monkeypatch.setattr("bayesmf.report.write.make_report", lambda _: pytest.fail("began"))
    own = tmp_path / "paper" / name
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    with pytest.raises(bayesmf.DataError, match=told) as error:
        write_report(tiny_study, tmp_path / "paper")
    assert "another folder with --out" in str(error.value)
    assert contents(tmp_path / "paper") == {name: b"mine"}
    done = CliRunner().invoke(main, ["report", str(tiny_study), "--out", str(tmp_path / "paper")])
    assert done.exit_code == 2
    assert told in done.stderr
    assert contents(tmp_path / "paper") == {name: b"mine"}


def test_what_was_added_to_or_changed_in_a_report_is_kept(copy):
    few_figures(copy)
    write_report(copy)
    table = copy / "tables" / "table-1.md"
    made = table.read_text()
    table.write_text(made + "my note\n")
    before = contents(copy)
    with pytest.raises(bayesmf.DataError, match="no report wrote, such as table-1.md"):
        write_report(copy)
    assert contents(copy) == before
    table.write_text(made)
    (copy / "figures" / "mine.svg").write_text("keep")
    with pytest.raises(bayesmf.DataError, match="no report wrote, such as mine.svg"):
        write_report(copy)


def test_a_report_that_fails_leaves_the_earlier_one(copy, monkeypatch):
    few_figures(copy)
    write_report(copy)
    before = contents(copy)

    def fail(page):
        raise RuntimeError

    monkeypatch.setattr("bayesmf.report.write.render", fail)
    with pytest.raises(RuntimeError):
        write_report(copy)
    assert contents(copy) == before


def test_attributes_are_a_model_of_their_own_and_only_where_there_are_any(
    attributes_study, tiny_study
):
    told = NEWCOMERS["default-attributes"]
    report, plain = (make_report(Results.open(f)) for f in (attributes_study, tiny_study))
    table = next(table for table in report.tables if table.id == "cold-start-table")
    assert [row[:2] for row in table.rows if row[1] == told] == [["users", told], ["items", told]]
    assert len(table.rows) == 2 * (len(COLD) + 1)
    for panel in report.figures["cold-start"]:
        assert panel.alt.count(told) == panel.svg.count(f">{told}<") == 1
    found = [finding.text for finding in report.page.findings]
    assert sum(text.startswith("Attributes ") for text in found) == 2
    assert sum(", by models without attributes: " in text for text in found) == 2
    text = (attributes_study / "report.md").read_text()
    assert "- user attributes: 120 rows: first (number), second (number)" in text
    assert "attributes" not in (tiny_study / "report.md").read_text()
    assert not any(told in panel.svg for panel in plain.figures["cold-start"])
