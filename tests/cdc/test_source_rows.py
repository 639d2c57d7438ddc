"""The rows of slices of a source, by numbers below zero too, and a column whose name has a %."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.captured_table import SourceColumn
from varve.cdc.verify.slices import Comparison
from varve.cdc.verify.source_sums import source_rows, source_sums
from varve.model.schema import Column, ColumnType
from varve.services.postgres import connect

if TYPE_CHECKING:
    from varve.services.settings import Settings


def test_every_row_is_in_the_slice_that_counts_it(settings: Settings) -> None:
    columns = (
        (Column("id", ColumnType.BIGINT, "the key"), SourceColumn("id", 1, "bigint")),
        (Column("share %", ColumnType.STRING, "with a %"), SourceColumn("share %", 2, "text")),
    )  # fmt: skip
    comparison = Comparison(columns, ("id",), 16)
    with connect(settings, application="a source") as connection, connection.transaction(force_rollback=True):
        connection.execute('create table public.numbered (id bigint primary key, "share %" text)')
        connection.execute("insert into public.numbered select i, i || ' %' from generate_series(-50, 50) i")
        sums = source_sums(connection, "public.numbered", comparison)
        found: list[int] = []
        for place, counted in sums.items():
            rows = list(source_rows(connection, "public.numbered", comparison, [place]))
            assert len(rows) == counted.rows
            found += [int(str(row[0])) for row in rows]
        assert sorted(found) == list(range(-50, 51))
        # They are spread: no slice has most of the rows.
        assert len(sums) == 16
        assert max(counted.rows for counted in sums.values()) < 20
