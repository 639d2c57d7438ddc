"""Changes whose files come in another order than the changes were made, as those of a topic of several partitions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.cdc.lab import SCHEMA, UNKEYED, Lab
from tests.cdc.test_files import followed, late, put, take
from varve.cdc import retention
from varve.cdc.captured_table import ChangeFormat
from varve.cdc.protocol.debezium import UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Callable

EMPTY = {column.name: None for column in SCHEMA.columns}
PARTITIONS = 3


@dataclass
class Topic:
    """The lines that a connector would write of a random application, by partition, and what is true after them."""

    table: str
    random: Random
    partitions: list[list[str]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    rows: dict[int, tuple[str, str]] = field(default_factory=dict)
    versions: list[tuple[int, str, str, int, int | None]] = field(default_factory=list)
    lsn: int = 1_000
    commit: int = 1_000
    number: int = 0

    def snapshot(self) -> None:
        """The rows that were there before."""
        for key in (1, 2, 3, 5):
            self.insert(self.commit, key, (f"s{key}", f"s{key}"), operation="r")
        self.versions = [(key, *row, self.commit, None) for key, row in self.rows.items()]

    def transaction(self) -> None:
        """A few changes and their commit. Of one in five, the first record was written before the last commit."""
        record, before = self.lsn, dict(self.rows)
        if self.random.random() < 0.2:
            record = self.commit - 400
        for _ in range(self.random.randint(1, 4)):
            record += 8 * self.random.randint(1, 5)
            self.change(record)
        self.versions = [
            (*version[:4], self.commit) if version[4] is None and self.rows.get(version[0]) != version[1:3] else version
            for version in self.versions
        ]
        self.versions += [
            (key, *row, self.commit, None) for key, row in self.rows.items() if before.get(key) != row
        ]  # fmt: skip
        # What is true for no moment has no version.
        self.versions = [version for version in self.versions if version[3] != version[4]]
        self.lsn = self.commit = max(record, self.commit) + 8

    def change(self, record: int) -> None:
        self.number += 1
        key, value = self.random.randint(1, 6), f"v{self.number}"
        kind = self.random.random()
        if kind < 0.04:
            self.rows.clear()
            self.write(0, record, "t")
        elif key not in self.rows:
            self.insert(record, key, (value, value))
        elif kind < 0.25:
            del self.rows[key]
            self.write(key, record, "d", before={"w": 1, "id": key})
        elif kind < 0.45 and (other := self.random.randint(1, 6)) not in self.rows:
            row = self.rows.pop(key)
            self.write(key, record, "d", before={"w": 1, "id": key})
            self.insert(record, other, (value, row[1]))
        else:
            big = self.rows[key][1] if kind < 0.8 else value
            self.rows[key] = (value, big)
            after = {**EMPTY, "w": 1, "id": key, "note": value, "big": UNAVAILABLE if kind < 0.8 else big}
            self.write(key, record, "u", after=after)

    def insert(self, record: int, key: int, row: tuple[str, str], operation: str = "c") -> None:
        self.rows[key] = row
        self.write(key, record, operation, after={**EMPTY, "w": 1, "id": key, "note": row[0], "big": row[1]})

    def write(self, key: int, record: int, operation: str, **images: Any) -> None:
        schema, _, table = self.table.partition(".")
        source = {"schema": schema, "table": table, "ts_ms": 1_795_000_000_000 + self.commit, "txId": self.commit,
                  "sequence": json.dumps([None if operation == "r" else str(self.commit), str(record)])}  # fmt: skip
        self.partitions[key % PARTITIONS].append(json.dumps({"op": operation, "source": source, **images}))


def rows_of(lab: Lab, *names: str) -> list[tuple[Any, ...]]:
    with lab.lake() as frame:
        return sorted((tuple(row) for row in frame.select("id", "note", "big", *names).collect()), key=repr)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_a_topic_of_several_partitions_ends_in_the_table_as_it_is(lab: Lab, seed: int) -> None:
    topic = Topic(lab.table, Random(seed))
    topic.snapshot()
    state, history = (followed(lab, ChangeFormat.DEBEZIUM, history=kept) for kept in (False, True))
    for turn in range(3):
        for _ in range(8):
            topic.transaction()
        for partition, lines in enumerate(topic.partitions):
            # Wherever it is cut; and some of it comes once more, cut otherwise.
            cut = topic.random.randint(0, len(lines))
            parts = [lines[:cut], lines[cut:], topic.random.sample(lines, len(lines) // 3)]
            for number, part in enumerate(parts):
                for table in (state, history):
                    put(table, f"topic+{partition}+{turn}{number}.jsonl", part)
            lines.clear()
        take(state)
        take(history)
        assert rows_of(state) == sorted(((key, *row) for key, row in topic.rows.items()), key=repr), turn
        lsns = ("valid_from_lsn", "valid_to_lsn")
        assert rows_of(history, *lsns) == sorted(topic.versions, key=repr), turn
    assert late(state) > 0


def test_what_is_later_than_the_events_that_are_kept_is_left_out(lab: Lab) -> None:
    state, topic = followed(lab, ChangeFormat.DEBEZIUM), Topic(lab.table, Random(1))
    for record, key in ((1_008, 1), (1_016, 2), (1_024, 3)):
        topic.insert(record, key, ("a", "a"))
    _, first, second = (lines[0] for lines in topic.partitions)
    put(state, "1.jsonl", topic.partitions[0])
    take(state)
    # A record before the last one that is taken, while that is kept.
    put(state, "2.jsonl", [second])
    take(state)
    assert [row[0] for row in rows_of(state)] == [2, 3]
    with lab.catalog() as catalog:
        from varve.cdc.capture.positions import Positions

        position = Positions(catalog.connection).of(state.captured.dataset.name)
        assert retention.sweep(state.log(), position, keep_seconds=0) > 0
    put(state, "3.jsonl", [first])
    take(state)
    assert [row[0] for row in rows_of(state)] == [2, 3]
    assert late(state) == 2


def test_rows_without_a_key_count_once_in_whichever_file_and_however_often_they_come(
    make_lab: Callable[..., Lab],
) -> None:
    table = followed(make_lab(UNKEYED), ChangeFormat.DEBEZIUM)
    topic = Topic(table.table, Random(1))
    for record, key in ((1_008, 1), (1_016, 2), (1_024, 3), (1_024, 4), (1_024, 5)):
        topic.insert(record, key, ("a", "a"))
    for number, lines in enumerate(topic.partitions):
        put(table, f"{number}.jsonl", lines)
        take(table)
    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 4, 5]
    put(table, "again.jsonl", [*topic.partitions[2], topic.partitions[1][0]])
    take(table)
    assert [row[0] for row in rows_of(table)] == [1, 2, 3, 4, 5]
