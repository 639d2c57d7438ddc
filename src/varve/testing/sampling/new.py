"""Writes a test from the batches that a partition reads now; its expected rows are what it makes of those that it has.

Not here: which rows are taken (sample.py, relevance.py) and how they are masked (masks.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varve.dagster.discovery import load_project
from varve.dagster.instance import open_instance
from varve.dagster.partitions.sets_sensor import sets_of
from varve.dagster.reading import open_reader
from varve.model.errors import MissingUpstream, VarveError, counted, some
from varve.model.partitions.dimension import DynamicDimension
from varve.stores.open import open_store
from varve.testing.cases.bound import BoundCase, bind
from varve.testing.cases.running import rows_of_run, run
from varve.testing.cases.shown import outcome_text
from varve.testing.cases.targets import Targets
from varve.testing.files.problems import TestFileErrors
from varve.testing.files.reading import SUFFIX, read_cases, shown
from varve.testing.partitions import partition_keys
from varve.testing.sampling.relevance import relevance_of
from varve.testing.sampling.sample import columns_to_mask, sampled, with_masks
from varve.testing.sampling.written import test_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from varve.dagster.reading import Reader
    from varve.model.partitions.dimension import Members
    from varve.model.partitions.key import PartitionKey
    from varve.project import Project
    from varve.testing.cases.targets import Target, Upstream
    from varve.testing.files.problems import Problem

_TRIES = 4


@dataclass(frozen=True)
class WrittenTest:
    """A test that was written.

    Attributes:
        path: its file, relative to the project.
        name: what it is called.
        taken: how many rows of each input it has.
        made: how many rows it expects.
    """

    path: str
    name: str
    taken: dict[str, int]
    made: int


def write_test(
    project: Project,
    dataset: str,
    partition: Mapping[str, str],
    *,
    rows: int,
    masked: Sequence[str] = (),
    output: Path | None = None,
    name: str | None = None,
) -> WrittenTest:
    """Add a test of a partition to a file, from the batches that it reads now.

    Args:
        project: the project.
        dataset: the name of the dataset.
        partition: the texts of the partition's key.
        rows: at most so many rows of each input, unless the dataset makes none of so few.
        masked: the columns whose values are replaced.
        output: the file; None for the one beside the dataset's.
        name: what it is called; None for a name after the partition.

    Raises MissingUpstream where there is nothing to take rows from, VarveError where no such test can be written.
    """
    with open_reader(project) as reader:
        targets = Targets(project, reader.spark)
        target = targets.of(dataset)
        (key,) = partition_keys(target.dataset, partition)
        hidden = columns_to_mask(target, masked)
        frames = {read: _read(project, reader, upstream, target, key) for read, upstream in target.upstreams.items()}
        inputs, made = _computed(reader.spark(), target, key, frames, rows, hidden)
        file = output or project.assets / _file_name(targets, dataset)
        _refuse_place(file, project)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        path = shown(file.resolve(), project.root)
        where = " ".join(f"{column}={value}" for column, value in partition.items())
        called = _free_name(text, file, path, name or f"real rows of {where or dataset}", is_given=name is not None)
        description = ", ".join(f"{counted(len(taken), 'row')} of {read}" for read, taken in inputs.items())
        if any(hidden.values()):
            description += f"; masked: {', '.join(masked)}"
        test = test_text(target, key, called, description, inputs, made)
        _refuse_other_rows(test, file, path, targets, reader.spark())
    separator = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    _write(file, path, f"{text}{separator}{test}", called)
    return WrittenTest(path, called, {read: len(taken) for read, taken in inputs.items()}, len(made))


def _refuse_place(file: Path, project: Project) -> None:
    """Raise VarveError for a file that no run of the tests would find."""
    if not file.name.endswith(SUFFIX) or not file.resolve().is_relative_to(project.assets.resolve()):
        raise VarveError(
            f"{file} would not be found: tests lie in {project.assets}, in files called NAME{SUFFIX}. Nothing was "
            "written. Give another --output."
        )


def _write(file: Path, path: str, text: str, name: str) -> None:
    """Write the file with the new test, whole or not at all. Raises VarveError where it would not be one of those."""
    try:
        names = [case.name for case in read_cases(text, file, path)]
    except TestFileErrors as error:
        raise VarveError(
            f"{path}: the test cannot be added at its end, as its items are written in another way: {error} Nothing "
            "was written. Begin each item with `- ` in the first column, or give another --output."
        ) from None
    assert name in names
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)


def _read(project: Project, reader: Reader, upstream: Upstream, target: Target, key: PartitionKey) -> DataFrame:
    """The rows of the current batches that the partition reads. Raises MissingUpstream where there is no batch."""
    dataset = upstream.dataset
    keys = upstream.dependency.upstream_of(key, members=_members(project, upstream, target)).keys
    current = reader.catalog.current(dataset.name, keys)
    if not current:
        raise MissingUpstream(
            f"{target.dataset} {key} reads {counted(len(keys), 'partition')} of {dataset}, and none has a batch: "
            f"{some(keys, limit=3) or 'there are none'}. Nothing was written. Run one, or choose another partition."
        )
    store = open_store(dataset.store, reader.settings, reader.catalog, reader.spark)
    return store.read(dataset, [current[path] for path in sorted(current)], upstream.columns)


def _members(project: Project, upstream: Upstream, target: Target) -> Members | None:
    dimensions = (*upstream.dataset.partitioning.dimensions, *target.dataset.partitioning.dimensions)
    if not any(isinstance(dimension, DynamicDimension) for dimension in dimensions):
        return None
    with open_instance(project.settings) as instance:
        return sets_of(instance, load_project(project).graph).members()


def _computed(  # noqa: PLR0917
    spark: SparkSession,
    target: Target,
    key: PartitionKey,
    frames: dict[str, DataFrame],
    count: int,
    hidden: dict[str, set[str]],
) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """The rows that are taken, and what the dataset makes of exactly those; more are taken until it makes some."""
    relevance = relevance_of(target, key)
    inputs: dict[str, list[dict[str, Any]]] = {}
    for attempt in range(_TRIES):
        before = inputs
        inputs = with_masks(sampled(frames, relevance, count * 4**attempt), target, hidden)
        if attempt and inputs == before:
            break
        try:
            made = rows_of_run(spark, target, (key,), inputs)
        except VarveError as error:
            raise VarveError(
                f"{target.dataset} {key} cannot be made of the rows that were taken: {error} Nothing was written. Take "
                "more with --rows, or mask fewer columns."
            ) from None
        if made:
            break
    if not made and any(hidden.values()):
        raise VarveError(
            f"{target.dataset} {key} has no rows when its inputs are masked: a column that it filters or joins by is "
            "among them. Nothing was written. Mask fewer columns."
        )
    return inputs, sorted(made, key=lambda row: [str(value) for value in row.values()])


def _file_name(targets: Targets, dataset: str) -> str:
    """Beside the SQL file of the dataset and called as it is; by the dataset's name for one of Python."""
    path = targets.file_of(dataset)
    if not path:
        return f"{dataset.replace('.', '_')}{SUFFIX}"
    return f"{path.partition('/')[2].removesuffix('.sql')}{SUFFIX}"


def _free_name(text: str, file: Path, path: str, wanted: str, *, is_given: bool) -> str:
    """The name, or with a number behind it where the file has it already. Raises VarveError for one that was given."""
    taken = {case.name for case in read_cases(text, file, path)} if text.strip() else set()
    if wanted in taken and is_given:
        raise VarveError(f"{path} has a test {wanted!r} already. Nothing was written. Give another --name.")
    number, free = 2, wanted
    while free in taken:
        free, number = f"{wanted} ({number})", number + 1
    return free


def _refuse_other_rows(test: str, file: Path, path: str, targets: Targets, spark: SparkSession) -> None:
    """Run the test as it is written. Raises VarveError where it fails: the dataset makes other rows each time."""
    (case,) = read_cases(test, file, path)
    problems: list[Problem] = []
    bound = bind(case, targets, problems)
    if not isinstance(bound, BoundCase):
        raise VarveError(f"what would be written cannot be read: {some(problems)} Nothing was written.")
    outcome = run(bound, spark)
    if not outcome.passed:
        raise VarveError(
            f"{case.dataset.text} made other rows of the same inputs when it ran again, so that no test can expect "
            f"them. Nothing was written.\n{outcome_text(outcome)}"
        )
