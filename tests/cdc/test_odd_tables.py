"""Tables as they are found: odd names, keys of many parts, values at the edge of their types.

The lake's rows are compared with PostgreSQL's own text of them.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from varve.cdc.capture.source_database import SourceDatabase
from varve.cdc.captured_table import CapturedTable, NeedsResnapshot
from varve.cdc.declaration_checks import refuse_other_declaration
from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.partitioning import Partitioning
from varve.model.schema import Column, ColumnType, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.cdc.lab import Follower, Lab
    from varve.cdc.apply import Applied

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TEXT, INT, TIME = ColumnType.STRING, ColumnType.INT, ColumnType.TIMESTAMP
PARTS = ("0", "1", "2", "3")


def captured(
    source: str, columns: Sequence[Column], part: str, renames: Mapping[str, str] | None = None
) -> CapturedTable:
    dataset = Dataset(
        name=f"odd.t{uuid.uuid4().hex[:8]}",
        comment="As it is found.",
        partitioning=Partitioning((StaticDimension("part", PARTS),)),
        schema=Schema(tuple(columns)),
        store=StoreKind.LAKE,
    )
    return CapturedTable(dataset, source, {"part": part}, renames or {})


def in_source(follower: Follower) -> list[tuple[object, ...]]:
    """Each row as PostgreSQL writes it, moments in microseconds."""
    schema, _, table = follower.table.partition(".")
    theirs = {ours: name for name, ours in follower.captured.renames.items()}
    chosen = [
        sql.SQL("(extract(epoch from {}) * 1000000)::bigint" if column.type == TIME else "{}").format(
            sql.Identifier(theirs.get(column.name, column.name))
        )
        for column in follower.captured.columns
    ]
    query = sql.SQL("copy (select {} from {}) to stdout").format(
        sql.SQL(", ").join(chosen), sql.Identifier(schema, table)
    )
    with closing(SourceDatabase(follower.url).connect()) as source, source.cursor().copy(query) as copy:
        return sorted(copy.rows(), key=repr)


def in_lake(follower: Follower) -> list[tuple[object, ...]]:
    from pyspark.sql import functions as F  # noqa: N812

    def shown(column: Column) -> object:
        name = f"`{column.name}`"
        if column.type == TIME:
            return F.unix_micros(F.col(name)).cast("string")
        if column.type == ColumnType.BINARY:
            return F.concat(F.lit("\\x"), F.lower(F.hex(F.col(name))))
        return F.col(name).cast("string")

    with follower.lake() as frame:
        return sorted((tuple(row) for row in frame.select(*map(shown, follower.captured.columns)).collect()), key=repr)  # type: ignore[arg-type]


def follows(follower: Follower) -> Applied:
    """Capture and apply; the lake's table is PostgreSQL's, and nothing is quarantined."""
    while follower.capture() is not None:
        pass
    done = follower.apply()
    assert done is not None
    assert done.quarantined == 0
    assert in_lake(follower) == in_source(follower)
    return done


ODD = ("UPPER", "with space", 'qu"ote', "do.t", "back`tick", "select", "größe", "a,b", "new'", "%s")
RENAMES = {"do.t": "do_t", "back`tick": "back_tick"}


@pytest.mark.parametrize("key", ['qu"ote', None])
def test_names_are_taken_as_they_are(follow: Callable[[CapturedTable], Follower], key: str | None) -> None:
    name = f'Ta.ble "{uuid.uuid4().hex[:6]}"'
    part = "cast(pmod(length(`with space`), 4) as string)"
    with pytest.raises(VarveError, match=r"cannot be called back`tick.* renames says what its source calls it"):
        captured(f"My Schema.{name}", [Column(source_name, TEXT) for source_name in ODD], part)
    dotted = [Column(source_name, TEXT) for source_name in ODD if "`" not in source_name]
    with pytest.raises(VarveError, match=r"Spark takes the dots of do\.t for more than a name"):
        captured(f"My Schema.{name}", dotted, part)
    columns = [Column(RENAMES.get(source_name, source_name), TEXT) for source_name in ODD]
    follower = follow(captured(f"My Schema.{name}", columns, part, RENAMES))
    table = sql.Identifier("My Schema", name)
    quoted = {source_name: sql.Identifier(source_name) for source_name in ODD}
    with follower.source() as source:
        source.execute('create schema if not exists "My Schema"')
        parts = [sql.SQL("{} text").format(column) for column in quoted.values()]
        parts += [sql.SQL("primary key ({})").format(quoted[key])] if key else []
        source.execute(sql.SQL("create table {} ({})").format(table, sql.SQL(", ").join(parts)))
        if not key:
            source.execute(sql.SQL("alter table {} replica identity full").format(table))
        insert = sql.SQL("insert into {} select {} from generate_series(1, 9) i").format(
            table, sql.SQL(", ").join([sql.SQL("repeat('x', i)")] * len(ODD))
        )
        source.execute(insert)
        follower.bootstrap()
        follows(follower)
        source.execute(
            sql.SQL("update {} set {} = {} || 'y', {} = 'moved' || {} where {} > 'xxxx'").format(
                table, quoted["do.t"], quoted["back`tick"], quoted['qu"ote'], quoted["UPPER"], quoted["%s"]
            )
        )
        source.execute(sql.SQL("delete from {} where {} = 'xx'").format(table, quoted["a,b"]))
    follows(follower)


EDGES = """
    create table {t} (a int, at timestamptz, name text, amount numeric, local timestamp, day date, x float8, r real,
                      raw bytea, doc jsonb, tags text[], gap interval, kind regclass, padded char(5), big text,
                      primary key (a, at, name))
"""
AS_TEXT = ("amount", "local", "doc", "tags", "gap", "kind", "padded", "big")


def test_values_at_the_edge_and_keys_of_three_parts(follow: Callable[[CapturedTable], Follower]) -> None:
    typed = {"a": INT, "at": TIME, "name": TEXT, "day": ColumnType.DATE, "raw": ColumnType.BINARY}
    columns = [Column(name, kind) for name, kind in typed.items()] + [Column(name, TEXT) for name in AS_TEXT]
    follower = follow(captured(f"public.e{uuid.uuid4().hex[:8]}", columns, "cast(pmod(hour(at), 4) as string)"))
    follower.sql(EDGES)
    follower.bootstrap()
    follower.sql("""
        insert into {t} values
        -- The hour that comes twice in New York, and the one that does not come.
        (1, '2013-11-03 01:30:00-04', 'first', 'NaN', '2013-03-10 02:30', '2013-11-03', 'NaN', '-0', 'a',
         '{{"b": 1e400, "a": null}}', '{{a,NULL,"q\\""}}', '1 mon -3 days', 'pg_class', 'ab'),
        (1, '2013-11-03 01:30:00-05', 'first', 'Infinity', 'infinity', '0001-01-01', 'Infinity', '1e-40', '', '[]',
         '{{}}', '00:00:00.000001', 'information_schema.tables', ''),
        (1, '2013-11-03 01:30:00.000001-05', '', 0.10, '-infinity', '9999-12-31', 0, 0, decode('ff00', 'hex'), '"x"',
         null, '178000000 years', null, null),
        (2, '1700-01-01 00:00:00+00', 'old', 12345678901234567890.12345678901234567890, null, null, null, null, null,
         'null', '{{NULL}}', null, null, 'é')
    """)
    follower.sql("insert into {t} (a, at, name, big) values (3, now(), 'long', repeat('0123456789', 1000000))")
    follows(follower)
    # One part of the key each.
    follower.sql("update {t} set at = at + interval '2 hours', amount = amount + 1 where name = 'first' and at < "
            "'2013-11-03 06:00:00+00' returning a")  # fmt: skip
    follower.sql("update {t} set name = 'none' where name = ''")
    follower.sql("update {t} set a = 4 where a = 3")
    follower.sql("delete from {t} where amount = 'Infinity'")
    follows(follower)
    # Keys that differ in microseconds alone.
    follower.sql("insert into {t} (a, at, name) select 5, timestamptz '2020-01-01' + i * interval '1 us', 'k' "
            "from generate_series(1, 3) i")  # fmt: skip
    follows(follower)
    follower.sql("update {t} set a = 6 where a = 5")
    follows(follower)
    assert max(len(row[-1] or "") for row in in_lake(follower)) == 10_000_000  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "advice"),
    [(INT, ColumnType.BIGINT, "varve cdc resnapshot odd"), (TEXT, INT, "declare a dataset of another name: rows that")],
)
def test_another_type_needs_a_snapshot_or_another_name(before: ColumnType, after: ColumnType, advice: str) -> None:
    then, now = (captured("public.t", [Column("a", kind)], "'0'") for kind in (before, after))
    refuse_other_declaration(now, None)
    refuse_other_declaration(now, now.declaration)
    with pytest.raises(NeedsResnapshot, match=f"columns: .*{before}.*, now .*{after}.*{advice}"):
        refuse_other_declaration(now, then.declaration)


def test_a_row_that_moves_between_partitions_and_back_is_in_one_of_them(lab: Lab) -> None:
    lab.sql("insert into {t} (w, id) select 1, i from generate_series(0, 7) i")
    lab.bootstrap()
    assert lab.apply() is not None
    for id_, partitions in ((9, {"part=1", "part=0"}), (0, {"part=1", "part=0"})):
        lab.sql(f"update {{t}} set id = {id_} where id in (0, 9)")
        lab.capture()
        done = lab.apply()
        assert done is not None
        assert {batch.partition.path for batch in done.published} == partitions
        assert lab.in_lake() == lab.in_source()
    # There and back before anybody looked: nothing has changed.
    lab.sql("update {t} set id = 9 where id = 0")
    lab.sql("update {t} set id = 0 where id = 9")
    lab.capture()
    done = lab.apply()
    assert done is not None
    assert done.published == ()
    assert lab.in_lake() == lab.in_source()


def test_another_declaration_asks_for_a_snapshot_which_puts_rows_in_their_place(lab: Lab) -> None:
    lab.sql("insert into {t} (w, id, note, amount) select i % 3, i, 'n' || i, i from generate_series(0, 7) i")
    lab.bootstrap()
    assert lab.apply() is not None
    lab.sql("update {t} set note = 'new' where id = 1")
    before = lab.captured
    columns = tuple(column for column in before.dataset.schema.columns if column.name not in {"amount", "x"})
    for message, other in (
        ("partition_by: .*pmod\\(w, 4\\)", replace(before, partition_by={"part": "cast(pmod(w, 4) as string)"})),
        ("columns: ", replace(before, dataset=replace(before.dataset, schema=Schema(columns)))),
    ):
        lab.captured = other
        with pytest.raises(NeedsResnapshot, match=rf"(?s)its declaration has changed.*{message}.*varve cdc resnapshot"):
            lab.capture()
        with pytest.raises(NeedsResnapshot, match="its declaration has changed"):
            lab.apply()
    lab.captured = before
    # It was undone: nothing is lost.
    lab.capture()
    assert lab.apply() is not None
    assert lab.in_lake() == lab.in_source()
    lab.captured = replace(before, partition_by={"part": "cast(pmod(w, 4) as string)"})
    lab.bootstrap(resnapshot=True)
    done = lab.apply()
    assert done is not None
    assert {batch.partition.path for batch in done.published} == {"part=0", "part=1", "part=2", "part=3"}
    with lab.lake() as frame:
        assert sorted((row["w"], row["part"]) for row in frame.collect()) == sorted(
            (i % 3, str(i % 3)) for i in range(8)
        )
