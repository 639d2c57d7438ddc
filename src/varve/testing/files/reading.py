"""Finds and reads files of tests. No dataset is looked at, and neither Spark nor Dagster is imported: listing is quick.

Not here: whether datasets and columns are there (varve/testing/cases/bound.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.model.errors import nearest
from varve.sql.code.own_files import files_of
from varve.testing.files.case import TOLERANCE, Case, Rows
from varve.testing.files.nodes import List, Mapping, Node, Scalar, composed
from varve.testing.files.problems import Place, Problem, TestFileErrors
from varve.testing.files.tables import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SUFFIX = ".test.yaml"
# What is taken for a mistake in the suffix.
_NEARLY = (".test.yml", ".tests.yaml", ".tests.yml")
_KEYS = ("name", "description", "dataset", "partition", "inputs", "expected", "columns", "tolerance", "fails")
_ORDER = ("order", "ordered", "sorted", "order_by")
_NAMED, _EXACT = "named", "exact"


def files_in(folder: Path) -> list[Path]:
    """Return the files of tests in a folder and the folders in it, sorted. Raises TestFileErrors for `.test.yml`."""
    misnamed = files_of(folder, *(f"**/*{suffix}" for suffix in _NEARLY))
    if misnamed:
        raise TestFileErrors(
            Problem(Place(shown(path, folder.parent), 1), f"a file of tests is called NAME{SUFFIX}; rename it.")
            for path in misnamed
        )
    return files_of(folder, f"**/*{SUFFIX}")


def shown(path: Path, root: Path) -> str:
    """Return a path as messages show it: relative to the project."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def cases_of(files: Iterable[Path], root: Path) -> list[Case]:
    """Return the tests of these files, in order. Raises TestFileErrors with everything that is wrong in any of them."""
    problems: list[Problem] = []
    cases = [case for file in files for case in _cases_of(file, root, problems)]
    if problems:
        raise TestFileErrors(problems)
    return cases


def read_cases(text: str, file: Path, path: str) -> list[Case]:
    """Return the tests of a text that is, or is to be, a file. Raises TestFileErrors."""
    problems: list[Problem] = []
    cases = _cases_in(text, file, path, problems)
    if problems:
        raise TestFileErrors(problems)
    return cases


def _cases_of(file: Path, root: Path, problems: list[Problem]) -> list[Case]:
    path = shown(file, root)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(Problem(Place(path, 1), f"the file is no UTF-8 ({error.reason}); save it as UTF-8."))
        return []
    except OSError as error:
        problems.append(Problem(Place(path, 1), f"the file cannot be read: {error.strerror}."))
        return []
    return _cases_in(text, file, path, problems)


def _cases_in(text: str, file: Path, path: str, problems: list[Problem]) -> list[Case]:
    before = len(problems)
    document = composed(text, path, problems)
    if not isinstance(document, List):
        if len(problems) == before:
            found = "nothing" if document is None else str(document)
            problems.append(
                Problem(Place(path, 1), f"the file has {found}; write a list of tests, each beginning with - name: ...")
            )
        return []
    cases: dict[str, Case] = {}
    for item in document.items:
        case = _case(item, file, problems)
        if case is None:
            continue
        if case.name in cases:
            message = f"a test of line {cases[case.name].place.line} is called {case.name!r} too; rename one of them."
            problems.append(Problem(case.place, message))
        cases[case.name] = case
    return list(cases.values())


def _case(node: Node, file: Path, problems: list[Problem]) -> Case | None:
    if not isinstance(node, Mapping):
        problems.append(
            Problem(node.place, f"a test is {node}; write a mapping with name, dataset, partition, inputs.")
        )
        return None
    before, named = len(problems), node.named()
    for key, _ in node.pairs:
        if not isinstance(key, Scalar) or key.text not in _KEYS:
            problems.append(Problem(key.place, _unknown_key(key)))
    name, dataset = (_text(node, key, problems) for key in ("name", "dataset"))
    if ("expected" in named) == ("fails" in named):
        both = "has both expected and fails" if "fails" in named else "has neither expected nor fails"
        problems.append(Problem(node.place, f"the test {both}; write the rows that it makes, or a part of the error."))
    case = Case(
        node.place,
        file,
        (name.text if name is not None else None) or "",
        dataset or Scalar(node.place, ""),
        _partitions(node, problems),
        _inputs(node, file, problems),
        rows_of(named["expected"][1], file, "expected", problems) if "expected" in named else None,
        _fails(node, problems),
        _is_exact(node, problems),
        _tolerance(node, problems),
    )
    return case if len(problems) == before else None


def _unknown_key(key: Node) -> str:
    written = (key.text if isinstance(key, Scalar) else None) or str(key)
    if written in _ORDER:
        return f"{written}: rows of a dataset have no order, so that none can be expected; take it out."
    return f"a test has no {written!r}.{nearest(written, _KEYS)} It may have {', '.join(_KEYS)}."


def _text(node: Mapping, key: str, problems: list[Problem]) -> Scalar | None:
    """The text of a key that every test has."""
    if key not in node.named():
        problems.append(Problem(node.place, f"the test has no {key}; write {key}: ..."))
        return None
    _, value = node.named()[key]
    if not isinstance(value, Scalar) or not value.text:
        problems.append(Problem(value.place, f"{key} is {value}; write a text."))
        return None
    return value


def _partitions(node: Mapping, problems: list[Problem]) -> tuple[Mapping, ...]:
    """The partitions of the run, each a mapping of dimensions; none where the test does not say."""
    if "partition" not in node.named():
        return ()
    _, value = node.named()["partition"]
    items = value.items if isinstance(value, List) else (value,)
    mappings = tuple(item for item in items if isinstance(item, Mapping))
    if len(mappings) != len(items) or not items:
        message = f"partition is {value}; write {{column: value}}, or a list of them for a run of several partitions."
        problems.append(Problem(value.place, message))
    return mappings


def _inputs(node: Mapping, file: Path, problems: list[Problem]) -> dict[str, tuple[Scalar, Rows]]:
    if "inputs" not in node.named():
        return {}
    _, value = node.named()["inputs"]
    if not isinstance(value, Mapping):
        message = f"inputs is {value}; write each dataset that is read with its rows, db.table: [{{column: value}}]."
        problems.append(Problem(value.place, message))
        return {}
    return {name: (key, rows_of(rows, file, name, problems)) for name, (key, rows) in value.named().items()}


def _fails(node: Mapping, problems: list[Problem]) -> str | None:
    if "fails" not in node.named():
        return None
    _, value = node.named()["fails"]
    if isinstance(value, Scalar) and value.text:
        return value.text
    problems.append(Problem(value.place, f"fails is {value}; write a part of the message of the error."))
    return None


def _is_exact(node: Mapping, problems: list[Problem]) -> bool:
    if "columns" not in node.named():
        return False
    _, value = node.named()["columns"]
    if not isinstance(value, Scalar) or value.text not in {_NAMED, _EXACT}:
        message = f"columns is {value}; write {_EXACT} (rows name every column) or {_NAMED} (the default)."
        problems.append(Problem(value.place, message))
    return isinstance(value, Scalar) and value.text == _EXACT


def _tolerance(node: Mapping, problems: list[Problem]) -> float:
    if "tolerance" not in node.named():
        return TOLERANCE
    _, value = node.named()["tolerance"]
    try:
        tolerance = float(value.text or "") if isinstance(value, Scalar) else -1.0
    except ValueError:
        tolerance = -1.0
    if not 0 <= tolerance < 1:
        message = f"tolerance is {value}; write how far numbers may differ, relative to the larger one, such as 0.001."
        problems.append(Problem(value.place, message))
    return tolerance
