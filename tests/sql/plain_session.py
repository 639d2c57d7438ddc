"""Our rows beside those of the author's text in a plain Spark session, for each scope and for several together.

The oracle is never of our making: a test writes the text of each scope itself, values and all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from varve.model.errors import VarveError
from varve.sql.names.scope_variables import name_clashes
from varve.sql.partitions.comprehension import scopes_of
from varve.sql.spark.execute import per_scope_rows, together_rows
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.header import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from varve.model.partitions.key import PartitionKey
    from varve.sql.partitions.scopes import Scopes

# More unions in one job than this, and Spark takes longer to plan it than to run it.
_FRAMES_OF_A_JOB = 60


@dataclass(frozen=True)
class Case:
    """A query as it stands in a dataset's file, and the plain texts of some of its scopes.

    Attributes:
        plain: by the values of the scope's partition columns.
        name: what it is called where it fails; the query itself where nothing is given.
        header: what stands before it, where that is not the same for all.
        cut: the LIMIT that its text has; of so many rows only the number is compared.
    """

    query: str
    plain: Mapping[tuple[str, ...], str]
    name: str = ""
    header: str = ""
    cut: int | None = None


SAME_NAME = "two columns have one name"


@dataclass
class Report:
    """How many queries had the rows of the author's text, and what happened to the others.

    Attributes:
        compared: queries whose rows were compared, for each scope by itself.
        together: those of them that ran for all scopes in one query.
        with_rows: those of them that had any.
        refused: by our own reason, those that are not taken.
        invalid: those that Spark itself refuses as they are written.
        failing: texts on whose data Spark fails.
        wrong: what differed, in words.
    """

    compared: int = 0
    together: int = 0
    with_rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    invalid: int = 0
    failing: int = 0
    wrong: list[str] = field(default_factory=list)

    def __add__(self, other: Report) -> Report:
        return Report(
            self.compared + other.compared, self.together + other.together, self.with_rows + other.with_rows,
            self.refused + other.refused, self.invalid + other.invalid, self.failing + other.failing,
            self.wrong + other.wrong,
        )  # fmt: skip

    def __str__(self) -> str:
        refusals = ", ".join(f"{count} x {why}" for why, count in self.refused.most_common())
        return (
            f"{self.compared} queries compared with plain Spark, {self.together} of them together, {self.with_rows} "
            f"with rows; {self.invalid} that Spark refuses, {self.failing} that fail on the data; "
            f"refused by us: {refusals or 'none'}; {len(self.wrong)} wrong"
        )


def dataset(header: str, query: str, inputs: Mapping[str, DataFrame]) -> Scopes | str:
    """The scopes of a dataset with this query; or why it is refused before Spark is asked."""
    try:
        scopes = scopes_of(parse(SourceFile("t.sql", header + query)))
    except SqlErrors as error:
        return error.problems[0].message
    assert scopes.dataset.query is not None
    columns = {name: frame.columns for name, frame in inputs.items()}
    clashes = name_clashes(scopes.dataset.source, scopes.dataset.query, scopes.dataset.variables, columns.get)
    return next((clash.message for clash in clashes), scopes)


def compare(  # noqa: PLR0912 - a way for each of what a query may come to
    spark: SparkSession, header: str, cases: Sequence[Case], inputs: Mapping[str, DataFrame]
) -> Report:
    """Run each query as a dataset's and as plain text, and compare the rows. See short_tasks for settings."""
    from pyspark.sql import functions as F  # noqa: N812

    report = Report()
    frames: list[DataFrame] = []
    # Which two of them must be alike, and by what name.
    pairs: list[tuple[int, int, str, int | None]] = []
    for case in cases:
        name = case.name or case.query
        scopes = dataset(case.header or header, case.query, inputs)
        try:
            keys = [f"_p{place}" for place in range(len(next(iter(case.plain))))]
            plain = [
                spark.sql(text).select(*[F.lit(value).alias(key) for value, key in zip(values, keys, strict=True)], "*")
                for values, text in case.plain.items()
            ]
            expected = reduce(DataFrame.unionAll, plain)
            if len({name.lower() for name in expected.columns}) < len(expected.columns):
                # Spark takes it; no table can have it, and `varve check` says so.
                report.refused[SAME_NAME] += 1
                continue
        except PySparkException:
            report.invalid += 1
            if isinstance(scopes, str):
                continue
            expected = None
        if isinstance(scopes, str):
            report.refused[reason(scopes)] += 1
            continue
        query = scopes.dataset.query
        assert query is not None
        partition_scopes = [scopes.of(_partition(scopes, values)) for values in case.plain]
        together = None
        try:
            ours = per_scope_rows(spark, scopes, query, partition_scopes, inputs)
            if expected is not None:
                assert ours.schema is not None
                together = together_rows(spark, scopes, query, partition_scopes, inputs)
        except VarveError as error:
            report.refused[reason(str(error))] += 1
            continue
        except PySparkException as error:
            if expected is not None:
                report.wrong.append(f"{name}: Spark takes the text, and refuses ours: {str(error)[:300]}")
            continue
        if expected is None:
            try:
                assert ours.schema is not None
                report.wrong.append(f"{name}: Spark refuses the text, and takes ours")
            except PySparkException:
                pass
            continue
        report.compared += 1
        report.together += together is not None
        frames.append(expected)
        first = len(frames) - 1
        for what, frame in (("by itself", ours), ("together", together)):
            if frame is not None:
                pairs.append((first, len(frames), f"{name}, {what}", case.cut))
                frames.append(frame)
    found_rows = rows(frames)
    for plain_place, our_place, label, cut in pairs:
        theirs, mine = found_rows[plain_place], found_rows[our_place]
        if isinstance(theirs, str):
            # Its data do not let Spark compute it, by itself or not.
            report.failing += 1
            continue
        report.with_rows += bool(theirs) and label.endswith("by itself")
        if isinstance(mine, str):
            report.wrong.append(f"{label}: fails with {mine}")
        elif cut is not None and len(theirs) >= cut:
            if len(theirs) != len(mine):
                report.wrong.append(f"{label}: plain Spark has {len(theirs)} rows, we have {len(mine)}")
        elif theirs != mine:
            only = [
                sorted((Counter(left) - Counter(right)).elements())[:4]
                for left, right in ((theirs, mine), (mine, theirs))
            ]
            report.wrong.append(f"{label}: only plain Spark has {only[0]}, only we have {only[1]}")
    return report


def _partition(scopes: Scopes, values: Sequence[str]) -> PartitionKey:
    kinds = [dimension.value_type for dimension in scopes.partitioning.dimensions]
    return scopes.partitioning.key(
        [int(value) if kind is int else value for value, kind in zip(values, kinds, strict=True)]
    )


def reason(message: str) -> str:
    """A refusal without the names that are in it."""
    for sign, short in {
        "is a variable of the scope and": "a name that may be a column too; write :name",
        "is not at its place": "a name is not at its place in the text",
        "the place of": "the place of a name is not known",
        "is no input": "a table that is no input",
        "no value can": "a :name where no value can stand",
    }.items():
        if sign in message:
            return short
    return message[:120]


def as_text(frame: DataFrame, arm: int) -> DataFrame:
    """Its rows as texts, whatever their types are."""
    from pyspark.sql import functions as F  # noqa: N812

    numbered = frame.toDF(*[f"c{place}" for place in range(len(frame.columns))])
    # The sum of doubles follows the order of the rows.
    values = [F.round(name, 9).alias(name) if kind == "double" else F.col(name) for name, kind in numbered.dtypes]
    return numbered.select(F.lit(arm).alias("arm"), F.struct(*values).cast("string").alias("row"))


def rows(frames: Sequence[DataFrame]) -> list[list[str] | str]:
    """The rows of each frame as sorted texts, many frames in one job; the error of one that cannot be computed."""
    results: list[list[str] | str] = []
    for start in range(0, len(frames), _FRAMES_OF_A_JOB):
        results += _collected(frames[start : start + _FRAMES_OF_A_JOB])
    return results


def _collected(frames: Sequence[DataFrame]) -> list[list[str] | str]:
    texts: list[list[str]] = [[] for _ in frames]
    try:
        arms = [as_text(frame, place) for place, frame in enumerate(frames)]
        while len(arms) > 1:
            arms = [reduce(DataFrame.unionAll, arms[place : place + 8]) for place in range(0, len(arms), 8)]
        collected = arms[0].collect()
    # In classic mode, what fails inside of Spark is told by another exception.
    except Exception as error:  # noqa: BLE001
        if len(frames) == 1:
            return [str(error)[:200]]
        # One of them fails on its data: the others are looked at without it.
        middle = len(frames) // 2
        return [*_collected(frames[:middle]), *_collected(frames[middle:])]
    for arm, row in collected:
        texts[arm].append(row)
    return [sorted(text) for text in texts]
