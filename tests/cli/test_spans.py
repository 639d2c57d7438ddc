"""Spans of time as commands take them: `--older-than 7d`."""

from __future__ import annotations

import datetime as dt

import pytest

from varve.cli.selection import span
from varve.model.errors import VarveError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", dt.timedelta(0)),
        ("7d", dt.timedelta(days=7)),
        ("1.5h", dt.timedelta(minutes=90)),
        ("365000d", dt.timedelta(days=365_000)),
    ],
)
def test_a_span_is_a_number_and_a_unit(text: str, expected: dt.timedelta) -> None:
    assert span(text) == expected


@pytest.mark.parametrize("text", ["", "7", "7 d", "-1d", "7w"])
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(VarveError, match=r"is no span of time; write it like 7d"):
        span(text)


@pytest.mark.parametrize("text", ["365001d", f"{'9' * 12}h", f"{'9' * 400}s"])
def test_a_span_that_no_calendar_reaches_is_refused_and_no_defect(text: str) -> None:
    with pytest.raises(VarveError, match="is longer than a thousand years"):
        span(text)
