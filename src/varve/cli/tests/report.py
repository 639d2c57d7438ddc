"""`varve test`: chooses tests, runs them and tells what became of each, for people, as JSON and as JUnit's XML.

Not here: running a test (varve/testing/cases).
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from varve.cli.context import chosen_project
from varve.model.errors import VarveError, nearest, some
from varve.testing.cases.shown import difference_table, difference_values, outcome_text
from varve.testing.cases.suite import bound_cases, outcomes
from varve.testing.files.problems import TestFileErrors
from varve.testing.files.reading import SUFFIX, cases_of, files_in, shown
from varve.testing.files.selection import selector
from varve.testing.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from varve.project import Project
    from varve.testing.cases.running import Outcome
    from varve.testing.files.case import Case

# As pytest has it: an empty choice is an error of its own in a pipeline.
NONE_CHOSEN = 5
_LEGEND = "  -  not made   +  not expected   ~  expected → made"


def run(
    console: Console,
    datasets: Sequence[str],
    expression: str | None,
    *,
    fail_fast: bool = False,
    junit: Path | None = None,
    as_json: bool = False,
) -> int:
    """Run the chosen tests and print their outcomes; return the exit code. Raises TestFileErrors before any is run."""
    project = chosen_project()
    try:
        cases = _chosen(project, datasets, expression)
        bound = bound_cases(project, cases, spark_session) if cases else []
    except TestFileErrors as error:
        if as_json:
            problems = [{"place": str(problem.place), "message": problem.message} for problem in error.problems]
            console.print_json(json.dumps({"problems": problems}))
        raise
    if not cases:
        _tell_none(console, project, as_json=as_json, is_choice=bool(datasets or expression))
        return NONE_CHOSEN
    started = time.monotonic()
    done: list[Outcome] = []
    with _progress(console, len(cases), quiet=as_json) as progress:
        task = progress.add_task("", total=len(cases))
        for outcome in outcomes(bound, spark_session()):
            done.append(outcome)
            progress.advance(task)
            if not as_json:
                _print(progress.console, project, outcome)
            if fail_fast and not outcome.passed:
                break
    seconds = time.monotonic() - started
    if junit is not None:
        _write_junit(junit, project, done, seconds)
    failed = [outcome for outcome in done if not outcome.passed]
    if as_json:
        console.print_json(json.dumps(_values(project, done, seconds)))
    else:
        not_run = f", {len(cases) - len(done)} not run" if len(done) < len(cases) else ""
        style = "red" if failed else "green"
        counts = f"{len(failed)} failed, {len(done) - len(failed)} passed" if failed else f"{len(done)} passed"
        console.print(f"[bold {style}]{counts}{not_run}[/] in {seconds:.1f} s", highlight=False)
    return 1 if failed else 0


def _chosen(project: Project, datasets: Sequence[str], expression: str | None) -> list[Case]:
    cases = cases_of(files_in(project.assets), project.root)
    tested = {case.dataset.text or "" for case in cases}
    for name in datasets:
        if name not in tested:
            raise VarveError(
                f"no test is of {name!r}.{nearest(name, tested)} There are tests of {some(sorted(tested)) or 'none'}."
            )
    matches = selector(expression) if expression else None
    return [
        case
        for case in cases
        if (not datasets or case.dataset.text in datasets)
        and (matches is None or matches(f"{case.title} {shown(case.file, project.root)}"))
    ]


def _tell_none(console: Console, project: Project, *, as_json: bool, is_choice: bool) -> None:
    if as_json:
        console.print_json(json.dumps({"passed": 0, "failed": 0, "seconds": 0.0, "tests": []}))
    elif is_choice:
        console.print("No test is chosen.")
    else:
        message = f"There is no test: no file of {project.assets} is called NAME{SUFFIX}. `varve test new` writes one."
        console.print(message, highlight=False, soft_wrap=True)


def _progress(console: Console, count: int, *, quiet: bool) -> Progress:
    """A bar at the bottom of a terminal, where there are many tests."""
    return Progress(
        TextColumn("tests"), BarColumn(), MofNCompleteColumn(), console=console, transient=True,
        disable=quiet or not console.is_terminal or count < 10,
    )  # fmt: skip


def _print(console: Console, project: Project, outcome: Outcome) -> None:
    case = outcome.case
    mark = "[green]passed[/]" if outcome.passed else "[red]failed[/]"
    console.print(f"{mark} ", end="")
    console.print(f"{case.title} ({outcome.seconds:.1f} s)", markup=False, highlight=False, soft_wrap=True)
    if outcome.passed:
        return
    place = f"{shown(case.file, project.root)}:{case.place.line}"
    for line in f"{place}: {outcome.message}".splitlines():
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    if outcome.difference is not None:
        console.print(difference_table(outcome.difference))
        console.print(_LEGEND, highlight=False)


def _values(project: Project, done: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    failed = sum(not outcome.passed for outcome in done)
    return {
        "passed": len(done) - failed,
        "failed": failed,
        "seconds": round(seconds, 3),
        "tests": list(_tests(project, done)),
    }


def _tests(project: Project, done: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    for outcome in done:
        case = outcome.case
        yield {
            "name": case.name,
            "dataset": case.dataset.text,
            "file": shown(case.file, project.root),
            "line": case.place.line,
            "passed": outcome.passed,
            "seconds": round(outcome.seconds, 3),
            **({} if outcome.passed else {"message": outcome.message}),
            **(difference_values(outcome.difference) if outcome.difference is not None else {}),
        }


def _write_junit(file: Path, project: Project, done: Sequence[Outcome], seconds: float) -> None:
    """Write what CI servers read: a suite, with a case for each test."""
    failed = sum(not outcome.passed for outcome in done)
    suite = ET.Element(
        "testsuite", name="varve test", tests=str(len(done)), failures=str(failed), errors="0", time=f"{seconds:.3f}"
    )
    for outcome in done:
        case = ET.SubElement(
            suite, "testcase", classname=outcome.case.dataset.text or "", name=outcome.case.name,
            file=shown(outcome.case.file, project.root), line=str(outcome.case.place.line),
            time=f"{outcome.seconds:.3f}",
        )  # fmt: skip
        if not outcome.passed:
            failure = ET.SubElement(case, "failure", message=_of_xml(outcome.message.splitlines()[0]))
            failure.text = _of_xml(outcome_text(outcome))
    suites = ET.Element("testsuites")
    suites.append(suite)
    file.parent.mkdir(parents=True, exist_ok=True)
    ET.ElementTree(suites).write(file, encoding="utf-8", xml_declaration=True)


def _of_xml(text: str) -> str:
    """A text without the control characters that XML cannot hold."""
    return "".join(char if char in "\t\n" or char >= " " else "\N{REPLACEMENT CHARACTER}" for char in text)
