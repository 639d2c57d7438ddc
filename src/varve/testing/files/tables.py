"""The rows of a table of a test: written as a list, as CSV within the file, or in a CSV file beside it.

Not here: what their values mean, which the columns decide (values.py).
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from varve.testing.files.case import Row, Rows
from varve.testing.files.nodes import List, Mapping, Node, Scalar
from varve.testing.files.problems import Place, Problem

if TYPE_CHECKING:
    from pathlib import Path

_FORMS = "write a list of rows, - {column: value}, or csv: with lines of text, or file: with the name of a CSV file"


def rows_of(node: Node, file: Path, what: str, problems: list[Problem]) -> Rows:
    """Return the rows that a node writes; what is wrong is added to `problems`.

    Args:
        node: the value of an input or of `expected`.
        file: the file of the test, to which the names of CSV files are relative.
        what: whose rows they are, for messages.
        problems: to add to.
    """
    if isinstance(node, List):
        return Rows(node.place, tuple(_listed(node, what, problems)))
    if isinstance(node, Mapping):
        named = node.named()
        if len(named) == 1 and len(node.pairs) == 1:
            ((name, (_, value)),) = named.items()
            if name == "csv" and isinstance(value, Scalar) and value.text is not None:
                # The lines of a block of text begin below its key.
                return Rows(
                    node.place, tuple(_of_csv(value.text, value.place.path, value.place.line, 1, what, problems))
                )
            if name == "file" and isinstance(value, Scalar) and value.text:
                return Rows(node.place, tuple(_of_file(value, file, what, problems)))
    if isinstance(node, Scalar) and node.text is None:
        problems.append(Problem(node.place, f"{what} has no rows; write [] for a table without rows."))
    else:
        problems.append(Problem(node.place, f"the rows of {what} are {node}; {_FORMS}."))
    return Rows(node.place, ())


def _listed(node: List, what: str, problems: list[Problem]) -> list[Row]:
    rows = []
    for number, item in enumerate(node.items, 1):
        if not isinstance(item, Mapping):
            problems.append(Problem(item.place, f"row {number} of {what} is {item}; write it as {{column: value}}."))
            continue
        for key, _ in item.pairs:
            if not isinstance(key, Scalar) or key.text is None:
                problems.append(Problem(key.place, f"row {number} of {what} names {key} for a column; write its name."))
        rows.append(Row(item.place, number, item.named()))
    return rows


def _of_file(name: Scalar, file: Path, what: str, problems: list[Problem]) -> list[Row]:
    assert name.text is not None
    path = file.parent / name.text
    shown = (name.place.path.rpartition("/")[0] + "/" if "/" in name.place.path else "") + name.text
    if path.suffix != ".csv":
        problems.append(Problem(name.place, f"file: {name.text} is no .csv file; rows are read from CSV."))
        return []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        problems.append(Problem(name.place, f"there is no file {shown}; its name is relative to this file."))
        return []
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(name.place, f"{shown} cannot be read: {error}."))
        return []
    return _of_csv(text, shown, 1, 0, what, problems)


def _of_csv(  # noqa: PLR0917
    text: str, path: str, line: int, below: int, what: str, problems: list[Problem]
) -> list[Row]:
    """Rows of CSV with a line of column names; an empty cell is NULL. `line + below` is the line of the names."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    names: list[str] | None = None
    rows: list[Row] = []
    begun = 0
    for cells in reader:
        place = Place(path, line + below + begun)
        begun = reader.line_num
        if not cells:
            continue
        if names is None:
            names = [cell.strip() for cell in cells]
            problems += [
                Problem(place, f"the column {name} is named twice by the CSV of {what}; take one of them out.")
                for name in sorted({name for name in names if names.count(name) > 1})
            ]
            continue
        number = len(rows) + 1
        if len(cells) != len(names):
            message = (
                f"row {number} of {what} has {len(cells)} cells, and {len(names)} columns are named; write one each."
            )
            problems.append(Problem(place, message))
            continue
        values: dict[str, tuple[Scalar, Node]] = {
            name: (Scalar(place, name), Scalar(place, cell.strip() or None))
            for name, cell in zip(names, cells, strict=True)
        }
        rows.append(Row(place, number, values))
    if names is None:
        problems.append(Problem(Place(path, line), f"the CSV of {what} is empty; its first line names the columns."))
    return rows
