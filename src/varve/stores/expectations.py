"""Auditing a staged batch: what its dataset promises of it is looked at where it lies, before any reader can see it.

Not here: what an expectation is (varve/model/expectation.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from varve.model.errors import NOTHING_LOST, BadInput, ExpectationFailed, cut, some
from varve.model.expectation import Of
from varve.stores.frames import partition_texts, texts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from varve.model.batch import StagedBatch
    from varve.model.build import Build
    from varve.model.expectation import Expectation
    from varve.stores.store import Store

# So many of the rows that break an expectation are shown, with so many characters of each value.
_EXAMPLES = 3
_SHOWN = 40


def audit(store: Store, build: Build, staged: Sequence[StagedBatch]) -> None:
    """Look at all expectations in one Spark job over the staged batches.

    Raises ExpectationFailed with the partitions and some rows that break one, and BadInput for a condition that Spark
    does not understand. What was staged stays where it is, for a look.
    """
    if build.dataset.expectations:
        audit_rows(store.read(build.dataset, [build.as_batch(batch) for batch in staged]), build, staged)


def audit_rows(frame: DataFrame, build: Build, staged: Sequence[StagedBatch]) -> None:
    """Look at all expectations over the rows of the staged batches. Raises what `audit` raises."""
    expected = build.dataset.expectations
    _refuse_misspelt(build, frame, expected)
    names = build.dataset.partitioning.names
    # By place: an expectation may be called as a partition column is.
    counts = {
        tuple(row[: len(names)]): _by_name(expected, row[len(names) :]) for row in _counted(frame, names, expected)
    }
    assert counts.keys() <= {texts_of(batch.partition) for batch in staged}, "every row lies in a staged partition"
    empty = _by_name(expected, frame.limit(0).agg(*[_broken(expectation) for expectation in expected]).collect()[0])
    problems, blamed = {}, set()
    for expectation in expected:
        broken = {}
        for batch in staged:
            row = counts.get(texts_of(batch.partition), empty)
            if count := row[expectation.name]:
                broken[batch] = count
                blamed.add(batch.partition.path)
        if broken:
            problems[expectation.name] = _message(frame, expectation, build, broken)
    if problems:
        raise ExpectationFailed(
            f"{build}: {' '.join(problems.values())} {NOTHING_LOST} What was computed lies unseen in "
            f"{some([batch.location for batch in staged], limit=1)} until it is swept. Mend the data or the code, "
            "or change the expectation, and run it again.",
            problems,
            partitions=blamed,
        )


def counts_of_broken(build: Build, frame: DataFrame) -> dict[str, int]:
    """By expectation of the dataset how many rows of a build's only partition break it, or 1 where the partition does.

    For rows that are staged nowhere. Raises BadInput for a condition that Spark does not understand.
    """
    expected = build.dataset.expectations
    if not expected:
        return {}
    _refuse_misspelt(build, frame, expected)
    row = frame.agg(*[_broken(expectation) for expectation in expected]).collect()[0]
    return _by_name(expected, row)


def broken_rows(
    frame: DataFrame, condition: str, build: Build, staged: Sequence[StagedBatch]
) -> tuple[str, frozenset[str]]:
    """How many rows of which partitions break a condition, and some of them, as a phrase; "" where none does.

    With it the paths of those partitions.

    `3 of 1,204 rows of 2013-01-05|EWR break it, such as amount=-3.50; amount=-1.00`. `frame` has the rows of the staged
    batches. Of the rows only the columns are shown that the condition names.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = build.dataset.partitioning.names
    breaking = frame.where(~F.expr(f"({condition}\n)"))
    rows = breaking.groupBy(*partition_texts(names)).agg(F.count("*").alias("varve_count")).collect()
    counts = {tuple(row[name] for name in names): int(row["varve_count"]) for row in rows}
    by_batch = {batch: count for batch in staged if (count := counts.get(texts_of(batch.partition)))}
    paths = frozenset(batch.partition.path for batch in by_batch)
    return _phrase(breaking, condition, build, by_batch) if by_batch else "", paths


def _phrase(breaking: DataFrame, condition: str, build: Build, counts: dict[StagedBatch, int]) -> str:
    text_of = build.dataset.partitioning.to_dagster
    where = some(
        [f"{count:,} of {batch.rows:,} rows of {text_of(batch.partition)}" for batch, count in counts.items()], limit=3
    )
    named = {word.lower() for word in re.findall(r"\w+", condition)}
    columns = [name for name in breaking.columns if name.lower() in named] or breaking.columns[:_EXAMPLES]
    examples = "; ".join(
        ", ".join(f"{name}={cut(str(value), _SHOWN)}" for name, value in row.asDict().items())
        for row in breaking.select(*[f"`{name}`" for name in columns]).limit(_EXAMPLES).collect()
    )
    return f"{where} break it, such as {examples}"


def _counted(frame: DataFrame, names: Sequence[str], expected: Sequence[Expectation]) -> list[Any]:
    return list(
        frame.groupBy(*partition_texts(names)).agg(*[_broken(expectation) for expectation in expected]).collect()
    )


def _by_name(expected: Sequence[Expectation], counts: Sequence[Any]) -> dict[str, int]:
    return {expectation.name: int(count) for expectation, count in zip(expected, counts, strict=True)}


def _broken(expectation: Expectation) -> SparkColumn:
    """How many rows break it, or 1 where the partition does."""
    from pyspark.sql import functions as F  # noqa: N812

    condition = F.expr(expectation.condition)
    if expectation.of is Of.ROW:
        return F.count_if(~condition).alias(expectation.name)
    return F.when(condition, 0).otherwise(1).alias(expectation.name)


def _message(frame: DataFrame, expectation: Expectation, build: Build, broken: dict[StagedBatch, int]) -> str:
    from pyspark.sql import functions as F  # noqa: N812

    if expectation.of is Of.PARTITION:
        partitions = [build.dataset.partitioning.to_dagster(batch.partition) for batch in broken]
        return f"Expectation {expectation} does not hold for {some(partitions, limit=3)}."
    breaking = frame.where(~F.expr(expectation.condition))
    return f"Expectation {expectation}: {_phrase(breaking, expectation.condition, build, broken)}."


def _refuse_misspelt(build: Build, frame: DataFrame, expected: Sequence[Expectation]) -> None:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F  # noqa: N812

    for expectation in expected:
        try:
            # Classic Spark parses here, Connect when it is asked for the schema: its analysis, without a job.
            condition = F.expr(expectation.condition)
            (field,) = (frame.select(condition) if expectation.of is Of.ROW else frame.agg(condition)).schema.fields
            if (kind := field.dataType.simpleString()) != "boolean":
                raise BadInput(
                    f"{build}: the expectation {expectation} is of type {kind}, and no condition. {NOTHING_LOST}"
                )
        except (AnalysisException, ParseException) as error:
            problem = str(error).splitlines()[0]
            raise BadInput(
                f"{build}: Spark does not understand the expectation {expectation}: {problem} "
                f"{NOTHING_LOST} It is a condition in Spark SQL over the columns of the dataset."
            ) from error
