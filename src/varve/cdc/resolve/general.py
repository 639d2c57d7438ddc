"""The general method to resolve events: for events that leave columns out, and for rows whose key changes.

A key belongs to one row after another. Each such span begins with an insert, with an update that moves a row to the
key, or with the row of the base; it ends with a delete or with an update that moves the row away. The life of a row is
the chain of its spans over all keys that it had. Chains are found by pointer doubling, which takes as many rounds as
the length of the longest chain has binary digits. In each column a row has the last value that an event of its life
sent.

Not here: the simple method (resolve.py), tables without a key (multiset.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.cdc.resolve.shape import (
    GONE,
    NEW,
    NO_KEY,
    REASON,
    TableShape,
    among,
    joined,
    key_column,
    named,
    new_key,
    old_key,
    sent_of,
    texts_of,
    typed,
    unfit_key,
)
from varve.services.spark import checkpointed
from varve.sql.syntax.lexer import quoted
from varve.stores.frames import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

# Operations: B: the row of the base; V: a stored version; I, U, D: insert, update, delete; X, M: moves away and to.
ENDS = ("D", "X")


def resolve_general(base: DataFrame, events: DataFrame, shape: TableShape) -> tuple[DataFrame, DataFrame | None]:
    """The state of each key in the events (k_..., columns, gone, reason), and the undecided keys (None without any)."""
    keys = [key_column(name) for name in shape.key]
    operations = checkpointed(operations_of(events, shape))
    touched = operations.select(*keys).distinct()
    pairs = [(name, key_column(name)) for name in shape.key]
    base_rows = among(base, touched, pairs, "left_semi", shape)
    spans = checkpointed(spans_of(operations.unionByName(_base_operations(base_rows, shape)), keys))
    state = checkpointed(_state(lives_of(spans), spans.select(*keys).distinct(), shape))
    with_reason = state.where(f"{REASON} is not null").select(*keys, REASON)
    undecided = with_reason.unionByName(clashes_of(spans, keys))
    return state, None if undecided.isEmpty() else undecided


def clashes_of(spans: DataFrame, keys: list[str]) -> DataFrame:
    """The keys to which a row moved while another row had them, whatever came later; and keys that were not sent."""
    from pyspark.sql import functions as F  # noqa: N812

    clash = F.lit("its new key belongs to another row")
    reason = F.when(F.col("unfit"), F.lit(NO_KEY)).otherwise(clash).alias(REASON)
    return spans.where("clash or unfit").select(*keys, reason)


def cell(name: str) -> str:
    """The name of the column with an operation's value of a table column; its value is NULL where none was sent."""
    return f"__c_{name}"


def operations_of(events: DataFrame, shape: TableShape) -> DataFrame:
    """The operations of the events: one row for each key that an event affects.

    Each value is computed once, in a projection of its own. Inlined wherever they are used, they made a plan that took
    8 s to compile for a single event on a busy machine; now it takes less than half.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def operation(key: str, sub: int, kind: str) -> str:
        return f"named_struct('key', {key}, 'sub', {sub}, 'op', '{kind}')"

    values = events.selectExpr(
        "commitLsn",
        "seq",
        "try_cast(`timestamp` AS TIMESTAMP) AS at",
        "changeType AS change",
        f"{new_key(shape)} AS new",
        f"{old_key(shape)} AS old",
        f"{unfit_key(shape)} AS unfit",
        f"{texts_of(NEW, shape)} AS __texts",
        f"{sent_of(NEW, shape)} AS __sent",
    )
    steps = (
        f"CASE WHEN change = 'insert' THEN array({operation('new', 1, 'I')}) "
        f"WHEN change = 'delete' THEN array({operation('old', 0, 'D')}) "
        f"WHEN new <=> old THEN array({operation('new', 1, 'U')}) "
        f"ELSE array({operation('old', 0, 'X')}, {operation('new', 1, 'M')}) END"
    )

    checked = frozenset(shape.checked)
    ends = ", ".join(f"'{end}'" for end in ENDS)

    def sent_value(place: int, name: str) -> str:
        text = f"get(__texts, {place})"
        value = typed(text, shape.kind(name))
        wrong = f"{text} IS NOT NULL AND {value} IS NULL" if name in checked else "false"
        return (
            f"CASE WHEN get(__sent, {place}) AND step.op NOT IN ({ends}) "
            f"THEN named_struct('v', {value}, 'wrong', {wrong}) END AS {named(cell(name))}"
        )

    return values.withColumn("step", F.explode(F.expr(steps))).selectExpr(
        "commitLsn",
        "seq",
        "at",
        "step.sub AS sub",
        "step.op AS op",
        "unfit",
        "step.key.*",
        *[sent_value(place, name) for place, name in enumerate(shape.names)],
    )


def _base_operations(base_rows: DataFrame, shape: TableShape) -> DataFrame:
    return base_rows.selectExpr(
        "-1L AS commitLsn",
        "-1L AS seq",
        "CAST(NULL AS TIMESTAMP) AS at",
        "0 AS sub",
        "'B' AS op",
        "false AS unfit",
        *[f"{named(name)} AS {named(key_column(name))}" for name in shape.key],
        *[f"{known_cell(name)} AS {named(cell(name))}" for name in shape.names],
    )


def known_cell(name: str) -> str:
    """The cell of a stored value."""
    return f"named_struct('v', {named(name)}, 'wrong', false)"


def spans_of(operations: DataFrame, keys: list[str]) -> DataFrame:
    """Each operation with its span, and whether it clashes with another row, and whether it ends its row."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    ordered = Window.partitionBy(*keys).orderBy("commitLsn", "seq", "sub")
    place = F.struct("commitLsn", "seq", "sub")
    # An event that arrived twice is kept once.
    operations = operations.withColumn("__again", F.lag(place).over(ordered).eqNullSafe(place)).where("not __again")
    before = F.lag("op").over(ordered)
    alive = before.isNotNull() & ~before.isin(*ENDS)
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stored = F.concat(F.lit("b"), F.to_json(F.struct("commitLsn", *keys), JSON_OPTIONS))
    own = F.when(F.col("op").isin("B", "V"), stored).otherwise(_event_span("sub"))
    started = (
        operations.drop("__again")
        .withColumn("begins", ~alive | F.col("op").isin("I", "M", "B", "V"))
        .withColumn("clash", alive & (F.col("op") == "M"))
    )
    return started.withColumn("span", F.last(F.when(F.col("begins"), own), ignorenulls=True).over(so_far)).withColumn(
        "ends", F.col("op").isin(*ENDS) | F.coalesce(F.lead("begins").over(ordered), F.lit(False))
    )


def _event_span(sub: str) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    return F.concat_ws(".", F.col("commitLsn"), F.col("seq"), F.col(sub) if sub == "sub" else F.lit(sub))


def lives_of(spans: DataFrame) -> DataFrame:
    """Each operation with the life of its row, which is named by the first span of the chain."""
    from pyspark.sql import functions as F  # noqa: N812

    links = checkpointed(spans.where("op = 'X'").select(_event_span("1").alias("at"), F.col("span").alias("root")))
    while True:
        further = links.select(F.col("at").alias("root"), F.col("root").alias("beyond"))
        longer = checkpointed(links.join(further, "root", "left"))
        if longer.where("beyond is not null").isEmpty():
            break
        links = longer.select("at", F.coalesce("beyond", "root").alias("root"))
    return spans.join(links.withColumnRenamed("at", "span"), "span", "left").withColumn(
        "life", F.coalesce("root", "span")
    )


def unknown_of(shape: TableShape) -> str:
    """The names of the columns of which no value is known."""
    return _names_where(shape.names, "{} IS NULL")


def reason_of(shape: TableShape, present: str = "true") -> str:
    """Why a row cannot be kept: something of a present row is not known, or a value has no place in the lake."""
    unknown, misfits = unknown_of(shape), _names_where(shape.checked, "{}.wrong")
    return (
        f"CASE WHEN {present} AND {unknown} <> '' THEN concat('nothing is known of ', {unknown}) "
        f"WHEN {misfits} <> '' THEN concat('no such value in the lake: ', {misfits}) END"
    )


def _names_where(names: tuple[str, ...], condition: str) -> str:
    cases = [f"CASE WHEN {condition.format(named(cell(name)))} THEN {quoted(name)} END" for name in names]
    return f"concat_ws({', '.join([quoted(', '), *cases])})"


def _state(lives: DataFrame, touched: DataFrame, shape: TableShape) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    keys = [key_column(name) for name in shape.key]
    place = F.struct("commitLsn", "seq", "sub")
    cells = {name: named(cell(name)) for name in shape.names}
    last_sent = "max_by({0}, CASE WHEN {0} IS NOT NULL THEN struct(commitLsn, seq, sub) END) AS {0}"
    rows = (
        lives.groupBy("life")
        .agg(
            F.max_by(F.struct("ends", *keys), place).alias("last"),
            *[F.expr(last_sent.format(each)) for each in cells.values()],
        )
        .where("not last.ends")
    )
    living = rows.selectExpr(
        *[f"last.{named(key)} AS {named(key)}" for key in keys],
        *[f"{each}.v AS {named(name)}" for name, each in cells.items()],
        f"false AS {GONE}",
        f"{reason_of(shape)} AS {REASON}",
    )
    gone = joined(
        touched.select(*[F.col(key).alias(f"__t_{key}") for key in keys]),
        living, [(f"__t_{key}", key) for key in keys], "left_anti",
    )  # fmt: skip
    absent = gone.selectExpr(
        *[f"{named(f'__t_{key}')} AS {named(key)}" for key in keys],
        *[f"CAST(NULL AS {column.type}) AS {named(column.name)}" for column in shape.columns],
        f"true AS {GONE}",
        f"CAST(NULL AS STRING) AS {REASON}",
    )
    return living.unionByName(absent)
