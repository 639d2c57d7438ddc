"""`docs/coverage.md`: every point has a test or a reason, and the tests and commands that it names are there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache

import pytest

from tests.documents.pages import text_of
from tests.support.project import ROOT

PAGE = "docs/coverage.md"
# How many points each section has, by the letter of its numbers.
SECTIONS = {"P": 9, "V": 18, "Q": 50, "B": 20, "K": 50, "E": 20}
STATES = ("works", "otherwise", "partly", "not there")


@dataclass(frozen=True)
class Point:
    """A row of the page."""

    number: str
    text: str
    state: str
    shown_by: tuple[str, ...]
    remark: str


def points() -> list[Point]:
    rows = re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| ([\w ]+) \| (.*?) \| (.*?) ?\|$", text_of(PAGE), re.MULTILINE)
    return [
        Point(number, text, state, tuple(re.findall(r"`([^`]+)`", shown)), remark)
        for number, text, state, shown, remark in rows
    ]


@cache
def names_of(file: str) -> set[str]:
    """The tests of a file as pytest names them: `test_x`, `TestThings::test_x`."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    methods = {
        f"{each.name}::{node.name}"
        for each in tree.body
        if isinstance(each, ast.ClassDef)
        for node in each.body
        if isinstance(node, ast.FunctionDef)
    }
    return {name for name in functions | methods if name.rpartition("::")[2].startswith("test_")}


@cache
def commands() -> set[str]:
    """The first words of all commands, as the modules of the command line name them."""
    import typer

    from varve.cli.app import app

    root = typer.main.get_command(app)
    return set(root.commands)  # type: ignore[attr-defined]


def test_every_point_is_on_the_page_once_and_in_its_order() -> None:
    expected = [f"{letter}{number}" for letter, count in SECTIONS.items() for number in range(1, count + 1)]
    assert [point.number for point in points()] == expected
    assert len(expected) == 167


def test_the_page_counts_its_points_as_they_are() -> None:
    counts = Counter(point.state for point in points())
    assert set(counts) <= set(STATES)
    said = ", ".join(f"{counts[state]} {state}" for state in STATES)
    assert f"Of the 167 points are: {said}." in text_of(PAGE)


def test_what_works_is_shown_by_a_test_or_a_command_and_all_else_has_a_reason() -> None:
    assert not [point.number for point in points() if point.state == "works" and not point.shown_by]
    assert not [point.number for point in points() if point.state != "works" and len(point.remark.split()) < 5]


@pytest.mark.parametrize("letter", SECTIONS)
def test_every_test_and_every_command_that_a_section_names_is_there(letter: str) -> None:
    missing = []
    for point in points():
        for name in point.shown_by if point.number.startswith(letter) else ():
            file, _, node = name.partition("::")
            if name.startswith("varve "):
                there = name.split()[1] in commands()
            else:
                there = file.startswith("tests/") and (ROOT / file).is_file() and (not node or node in names_of(file))
            if not there:
                missing.append(f"{point.number}: {name}")
    assert not missing
