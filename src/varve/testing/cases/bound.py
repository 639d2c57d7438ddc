"""A test bound to its dataset: typed rows in the partitions that the run reads, and typed rows that it must make.

Everything that a file says and the declarations do not allow is found here, before anything runs.

Not here: the keys of a test (varve/testing/files/reading.py), and the run (running.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.model.broken_dataset import DatasetIsBroken
from varve.model.errors import VarveError, nearest
from varve.model.partitions.key import plain
from varve.testing.cases.partitions_read import NoPartition, PartitionsRead, given_keys, members_of
from varve.testing.cases.values import NoValue, value_of
from varve.testing.files.nodes import Scalar
from varve.testing.files.problems import Problem
from varve.testing.partitions import partition_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.model.schema import Column
    from varve.testing.cases.targets import Target, Targets, Upstream
    from varve.testing.files.case import Case, Row, Rows


@dataclass(frozen=True)
class ExpectedRow:
    """A row that must be made: its values by column, of the columns that it names."""

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class BoundCase:
    """A test that can be run.

    Attributes:
        keys: the partitions of the run.
        inputs: for each dataset that is read its rows, with every column that the run is given.
        expected: the rows that must be made; None where the run must fail.
    """

    case: Case
    target: Target
    keys: tuple[PartitionKey, ...]
    inputs: Mapping[str, list[dict[str, Any]]]
    expected: tuple[ExpectedRow, ...] | None


@dataclass(frozen=True)
class UnusableCase:
    """A test whose dataset is broken: it fails with that reason, and the others run."""

    case: Case
    reason: str


def bind(case: Case, targets: Targets, problems: list[Problem]) -> BoundCase | UnusableCase | None:
    """Return the test with its dataset; None where something is wrong with it, which is added to `problems`."""
    name = case.dataset.text or ""
    before = len(problems)
    try:
        target = targets.of(name)
    except DatasetIsBroken as error:
        return UnusableCase(case, str(error))
    except VarveError as error:
        problems.append(Problem(case.dataset.place, str(error)))
        return None
    keys = _keys(case, target.dataset, problems)
    _check_inputs(case, target, problems)
    if len(problems) > before:
        return None
    given = {
        upstream_name: (upstream.dataset, case.inputs[upstream_name][1].rows)
        for upstream_name, upstream in target.upstreams.items()
    }
    members = members_of(keys, target.dataset, given)
    inputs = {
        upstream_name: _input_rows(upstream, keys, members, case.inputs[upstream_name][1], problems)
        for upstream_name, upstream in target.upstreams.items()
    }
    expected = None if case.expected is None else _expected_rows(case, target.dataset, keys, case.expected, problems)
    return BoundCase(case, target, keys, inputs, expected) if len(problems) == before else None


def _keys(case: Case, dataset: Dataset, problems: list[Problem]) -> tuple[PartitionKey, ...]:
    keys: list[PartitionKey] = []
    if not case.partitions:
        if not dataset.partitioning.dimensions:
            return (dataset.partitioning.key(()),)
        columns = ", ".join(f"{name}: ..." for name in dataset.partitioning.names)
        problems.append(Problem(case.place, f"the test of {dataset} has no partition; write partition: {{{columns}}}."))
    for partition in case.partitions:
        named = partition.named()
        texts = {name: value.text for name, (_, value) in named.items() if isinstance(value, Scalar) and value.text}
        if wrong := [name for name in named if name not in texts]:
            message = f"partition: {wrong[0]} is {named[wrong[0]][1]}; write the key of a partition of {dataset}."
            problems.append(Problem(partition.place, message))
            continue
        try:
            keys += partition_keys(dataset, texts)
        except VarveError as error:
            problems.append(Problem(partition.place, f"partition: {error}"))
    return tuple(sorted(set(keys)))


def _check_inputs(case: Case, target: Target, problems: list[Problem]) -> None:
    """Every dataset that is read has rows, perhaps none, and no other has."""
    reads = ", ".join(target.upstreams) or "nothing"
    for name, (key, _) in case.inputs.items():
        if name not in target.upstreams:
            message = f"{target.dataset} does not read {name}, but {reads}.{nearest(name, target.upstreams)}"
            problems.append(Problem(key.place, message))
    for name in target.upstreams:
        if name not in case.inputs:
            message = f"inputs has no rows of {name}, which {target.dataset} reads; write {name}: [] where it has none."
            problems.append(Problem(case.place, message))


def _input_rows(
    upstream: Upstream, keys: Sequence[PartitionKey], members: Members, rows: Rows, problems: list[Problem]
) -> list[dict[str, Any]]:
    dataset = upstream.dataset
    read, columns = PartitionsRead(upstream, keys, members), {column.name: column for column in dataset.schema.columns}
    typed: list[dict[str, Any]] = []
    for row in rows.rows:
        what = f"row {row.number} of {dataset}"
        _check_names(row, what, [*columns, *dataset.partitioning.names], problems)
        values = _typed(row, what, columns, problems)
        for column in dataset.read_columns(upstream.columns):
            # Of what the run is not given, nothing is asked.
            if column.name in columns and not column.nullable and values.get(column.name) is None:
                _add_unless_told(row, f"{what}: {column.name} is NOT NULL and has no value; write one.", problems)
        try:
            key = read.of(row)
        except NoPartition as error:
            problems.append(Problem(row.place, f"{what} {error}."))
            continue
        values |= {name: plain(value) for name, value in key.fields}
        typed.append(values)
    return typed


def _add_unless_told(row: Row, message: str, problems: list[Problem]) -> None:
    if not any(problem.place == row.place for problem in problems):
        problems.append(Problem(row.place, message))


def _expected_rows(
    case: Case, dataset: Dataset, keys: Sequence[PartitionKey], rows: Rows, problems: list[Problem]
) -> tuple[ExpectedRow, ...]:
    columns = {column.name: column for column in dataset.schema.columns}
    names = [*columns, *dataset.partitioning.names]
    needed = [*columns, *(dataset.partitioning.names if len(keys) > 1 else ())]
    expected: list[ExpectedRow] = []
    for row in rows.rows:
        what = f"row {row.number} of expected"
        _check_names(row, what, names, problems)
        values = _typed(row, what, columns, problems)
        try:
            values |= {name: plain(value) for name, value in given_keys(dataset, row).items()}
        except NoPartition as error:
            problems.append(Problem(row.place, f"{what} {error}."))
        if case.exact and (absent := [name for name in needed if name not in row.values]):
            message = f"{what} has no {', '.join(absent)}, and columns is exact; write null for NULL."
            problems.append(Problem(row.place, message))
        expected.append(ExpectedRow(row.number, values))
    return tuple(expected)


def _check_names(row: Row, what: str, names: Iterable[str], problems: list[Problem]) -> None:
    known = list(names)
    for name, (key, _) in row.values.items():
        if name not in known:
            message = f"{what}: there is no column {name!r}.{nearest(name, known)} It has {', '.join(known)}."
            problems.append(Problem(key.place, message))


def _typed(row: Row, what: str, columns: Mapping[str, Column], problems: list[Problem]) -> dict[str, Any]:
    """The values of the data columns that a row names."""
    values: dict[str, Any] = {}
    for name, (_, node) in row.values.items():
        if name not in columns:
            continue
        kind = columns[name].type
        try:
            values[name] = value_of(node, kind)
        except NoValue as error:
            written = node if isinstance(node, Scalar) else "what is written"
            problems.append(Problem(node.place, f"{what}: {name} is {kind}, and {written} is none: {error}."))
    return values
