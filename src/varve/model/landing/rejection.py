"""Rejected rows, those of landing files that cannot be read as declared: their limit and the dataset that takes them.

Not here: which rows those are (varve/sources/formats/), and how they are published with the others
(varve/dagster/runs/builds).
"""

from __future__ import annotations

from dataclasses import dataclass

from varve.model.errors import VarveError
from varve.model.schema import Column, ColumnType, Schema

# A limit is needed because a run holds the rejected rows of all its partitions in memory.
MOST_ROWS = 10_000
VALUE_CHARACTERS = 200
TEXT_CHARACTERS = 1_000

REJECTED_ROWS = Schema(
    (
        Column("file", ColumnType.STRING, "the URI of the file", nullable=False),
        Column(
            "line",
            ColumnType.BIGINT,
            "on which line of a text the row begins; of Parquet and Avro the number of the row; from 1",
            nullable=False,
        ),
        Column("column_name", ColumnType.STRING, "whose value was refused first; NULL where the whole row was"),
        Column("value", ColumnType.STRING, f"that value, its first {VALUE_CHARACTERS} characters"),
        Column("reason", ColumnType.STRING, "why it was refused", nullable=False),
        Column("more", ColumnType.STRING, "what else was refused of the row"),
        Column("text", ColumnType.STRING, f"the row, its first {TEXT_CHARACTERS:,} characters"),
    )
)


@dataclass(frozen=True, slots=True)
class RejectInto:
    """`REJECT UP TO at_most ROWS INTO dataset`.

    Attributes:
        at_most: how many rows of a partition may be left out. With more, nothing of the partition is published.
        dataset: the name of the dataset that takes the rejected rows. This clause is its only declaration.
    """

    at_most: int
    dataset: str

    def __post_init__(self) -> None:
        if not 1 <= self.at_most <= MOST_ROWS:
            raise VarveError(f"reject up to {self.at_most:,} rows: it is a number from 1 to {MOST_ROWS:,}.")
