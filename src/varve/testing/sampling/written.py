"""The text of a test: what `varve test new` writes, and reading gives back value for value.

Not here: reading it (varve/testing/files).
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import TYPE_CHECKING, Any

from varve.model.partitions.key import text_of
from varve.model.schema import Kind
from varve.testing.cases.shown import cell_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.model.schema import ColumnType
    from varve.testing.cases.targets import Target

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
# What other readers of YAML take for something else than a text.
_OTHER = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def test_text(  # noqa: PLR0917
    target: Target,
    key: PartitionKey,
    name: str,
    description: str,
    inputs: Mapping[str, Sequence[Mapping[str, Any]]],
    expected: Sequence[Mapping[str, Any]],
) -> str:
    """Return the text of one test, as an item of the list that a file is."""
    dataset = target.dataset
    fields = ", ".join(f"{field}: {text_value(text_of(value))}" for field, value in key.fields)
    lines = [
        f"- name: {text_value(name)}",
        f"  description: {text_value(description)}",
        f"  dataset: {dataset.name}",
        *([f"  partition: {{{fields}}}"] if fields else []),
        "  inputs:" if inputs else "  inputs: {}",
    ]
    for upstream_name, rows in inputs.items():
        lines.append(f"    {upstream_name}:" if rows else f"    {upstream_name}: []")
        lines += [f"      - {_row(row, target.upstreams[upstream_name].dataset, nulls=False)}" for row in rows]
    lines += ["  columns: exact", "  expected:" if expected else "  expected: []"]
    lines += [f"    - {_row(row, dataset, nulls=True, partition=False)}" for row in expected]
    return "\n".join(lines) + "\n"


# Not a test, whatever its name says to pytest.
test_text.__test__ = False  # type: ignore[attr-defined]


def value_text(value: Any, kind: ColumnType) -> str:
    """Return a value as YAML in a line."""
    if value is None:
        return "null"
    if kind.nested:
        return _nested_text(value, kind)
    if isinstance(value, float):
        return (
            repr(value) if math.isfinite(value) else ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
        )
    if kind.kind in {Kind.STRING, Kind.BINARY} or isinstance(value, dt.datetime):
        return text_value(cell_text(value, kind))
    return format(value, "f") if kind.kind is Kind.DECIMAL else cell_text(value, kind)


def _nested_text(value: Any, kind: ColumnType) -> str:
    if kind.kind is Kind.ARRAY:
        ((_, element),) = kind.parts
        return f"[{', '.join(value_text(item, element) for item in value)}]"
    if kind.kind is Kind.STRUCT:
        pairs = [f"{text_value(name)}: {value_text(value[name], field)}" for name, field in kind.parts]
    else:
        (_, key_type), (_, value_type) = kind.parts
        pairs = [f"{value_text(key, key_type)}: {value_text(item, value_type)}" for key, item in value]
    return f"{{{', '.join(pairs)}}}"


def text_value(text: str) -> str:
    """Return a text as YAML in a line: bare where nobody can take it for something else, otherwise in quotes."""
    if (_PLAIN.fullmatch(text) and text.lower() not in _OTHER) or re.fullmatch(r"\d{4}-\d\d(-\d\d(T\d\d)?)?", text):
        return text
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    code = ord(char)
    if char == " " or (char.isprintable() and code not in {0xFEFF, 0x2028, 0x2029}):
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _row(row: Mapping[str, Any], dataset: Dataset, *, nulls: bool, partition: bool = True) -> str:
    """A row in a line: its partition columns, then the others in their order."""
    columns = [*(dataset.partition_columns if partition else ()), *dataset.schema.columns]
    cells = [
        f"{text_value(column.name)}: {value_text(row[column.name], column.type)}"
        for column in columns
        if column.name in row and (nulls or row[column.name] is not None)
    ]
    return f"{{{', '.join(cells)}}}"
