"""Ratings that a model cannot take: a sentence for each, and the same in the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.bad_fits import CASES, message, table


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_ratings_that_a_model_cannot_take_are_refused_in_a_sentence(case, tmp_path):
    assert message(case, tmp_path) == case.message


def test_the_table_of_these_in_the_docs_is_what_users_see():
    page = Path(__file__).parents[2] / "docs" / "input-errors.md"
    assert table() in page.read_text(encoding="utf-8")
