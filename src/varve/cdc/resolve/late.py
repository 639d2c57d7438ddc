"""Events that come late: files may bring changes that were made before others which are applied.

A topic of several partitions fills several files, and the order of their names is not that of the changes. What
comes late is applied together with the applied events that were made after it: a key has then what the last of them
says. That is exact as long as these are kept (VARVE_CHANGES_DAYS). What is older still is left out of a table that has
present rows only; `late` in the manifests counts all that came late.

Not here: where a late event belongs among the versions of a history (resolve/versions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.cdc.resolve.resolve import connected
from varve.cdc.resolve.shape import REASON, TableShape, keys_of_events, new_key, old_key

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

Place = tuple[int, int]
NOTHING_APPLIED: Place = (-1, -1)
# Rows of one record of the source's log have one place where they came in different files; each gets its own, behind.
_BEHIND = 2**12


@dataclass(frozen=True)
class LateEvents:
    """Events that are not applied, some of which are late, and those to apply with them.

    Attributes:
        new: those that are not applied.
        applied: those that are, from the first late one on, as far as they are kept.
        last: the place (commit LSN, seq) of the last one that is applied.
        removed: up to where events are applied and not kept any more.
    """

    shape: TableShape
    new: DataFrame
    applied: DataFrame
    last: Place
    removed: Place

    def for_history(self) -> DataFrame:
        """All new events, with what was applied after a late one and ends rows.

        Of a delete that found no row nothing is stored, and a row that comes late ends there all the same. To apply one
        again changes nothing else.
        """
        moves = f"changeType = 'update' AND NOT ({new_key(self.shape)} <=> {old_key(self.shape)})"
        ends = self.applied.where(f"changeType IN ('delete', 'truncate') OR {moves}")
        return _with_places_of_their_own(self.new.unionByName(ends))

    def for_rows(self) -> DataFrame:
        """The new events that can be decided, with the applied ones that were made after a late one.

        Applied again, in their order, they make of each key what it was, and what it would have been.
        """
        from pyspark.sql import functions as F  # noqa: N812

        in_time = self.new.where(_is_after(self.last))
        applied_truncates = _truncates(self.applied)
        emptied = _is_after(applied_truncates[1] if applied_truncates else NOTHING_APPLIED)
        # What was delivered twice is there already.
        late = self.new.where(~_is_after(self.last) & _is_after(self.removed)).subtract(self.applied).where(emptied)
        replayed = self.applied.where(emptied & _is_after(self.removed))
        if (truncates := _truncates(late)) is not None:
            replayed = replayed.where(_is_after(truncates[0]))
        elif self.shape.key:
            keys = keys_of_events(late, self.shape).drop("commitLsn", "seq").distinct().withColumn(REASON, F.lit(""))
            replayed = connected(replayed, self.shape, keys).drop("reason")
        else:
            # Rows are counted, whatever comes first.
            replayed = replayed.limit(0)
        return _with_places_of_their_own(in_time.unionByName(late).unionByName(replayed))


def _is_after(place: Place) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    lsn, seq = place
    return (F.col("commitLsn") > lsn) | ((F.col("commitLsn") == lsn) & (F.col("seq") > seq))


def _truncates(events: DataFrame) -> tuple[Place, Place] | None:
    """The places of the first and of the last TRUNCATE; None where there is none."""
    from pyspark.sql import functions as F  # noqa: N812

    place = F.struct("commitLsn", "seq")
    row = events.where("changeType = 'truncate'").agg(F.min(place).alias("first"), F.max(place).alias("last")).first()
    return None if row is None or row["first"] is None else (tuple(row["first"]), tuple(row["last"]))


def _with_places_of_their_own(events: DataFrame) -> DataFrame:
    """Each event once, and no two at one place, by which the resolvers tell them apart."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    at_one_place = Window.partitionBy("commitLsn", "seq").orderBy(F.to_json(F.struct("*")))
    number = F.row_number().over(at_one_place) - 1
    return events.dropDuplicates().withColumn("seq", F.col("seq") + F.lit(_BEHIND) * number)
