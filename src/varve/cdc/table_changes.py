"""Changes of a captured table's columns and key: which of them the stream makes up for, and where in it the others are.

A change that the stream does not make up for stops the capture. Most of them show in the relation messages of the
stream, so that every transaction before them can still be captured: the rows are then exactly those that the table had
before the change. Others leave no trace there, such as a renamed value of an enum; then it is not known which
transactions came before.

Not here: rewrites of all rows, which show in the table's filenode (capture/capture.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from varve.cdc.captured_table import NeedsResnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.cdc.captured_table import CapturedTable, SourceColumn, SourceTable
    from varve.cdc.protocol.messages import RelationMessage, StreamedColumn

# Changes of a column's type for which PostgreSQL keeps every value and rewrites no row.
_WIDENS = {("character varying", "text"), ("character varying", "character varying"), ("numeric", "numeric")}
# Their OIDs, which are the same on every server.
_TYPES = {25: "text", 1043: "character varying", 1700: "numeric"}


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of a table, as a phrase.

    Attributes:
        stops: whether the stream does not make up for it.
        visible: whether the relation message of every transaction after it shows it.
    """

    phrase: str
    stops: bool = False
    visible: bool = False


def changes(
    captured: CapturedTable, before: SourceTable, now: SourceTable, newly_declared: frozenset[str] = frozenset()
) -> list[TableChange]:
    """The changes of the table; `newly_declared`: the columns that the dataset declares since its rows were loaded.

    A new column of the source is not loaded until the dataset declares it. A dropped column keeps its values in old
    rows and is NULL in new ones.
    """
    if before.oid != now.oid:
        # Of a table that is gone nobody can say any more whether all of its changes were sent.
        return [TableChange("the table was dropped and created again", stops=True)]
    found: list[TableChange] = []
    if before.publication != now.publication:
        how = "was changed" if now.publication else "is gone, or has lost the table"
        phrase = f"its publication {captured.slot} {how}, so that changes may not have been sent"
        found.append(TableChange(phrase, stops=True))
    if set(before.key) != set(now.key) or before.keyed != now.keyed:
        phrase = f"its key was ({', '.join(before.key)}) and is ({', '.join(now.key)})"
        # Under FULL every column is marked as part of the key.
        found.append(TableChange(phrase, stops=True, visible=before.identity in {"d", "i"}))
    return found + list(_of_columns(captured, before, now, newly_declared))


def altered_with(before: SourceTable, now: SourceTable) -> bool:
    """Whether a column was added or altered by the transaction that changed the table's entry last, or by a later one.

    Every command that gives rows other values without an event changes the entry of a column in the catalog.
    """
    known = {column.number: column.changed_by for column in before.columns}
    altered_by = [column.changed_by for column in now.columns if column.changed_by != known.get(column.number)]
    # Numbers of transactions go round in a circle of 32 bits.
    return any((number - now.changed_by) % 2**32 < 2**31 for number in altered_by)


def stopping(found: list[TableChange]) -> tuple[str, bool]:
    """The first change that stops the capture, "" for none, and whether the stream shows where all of these are."""
    stops = [change for change in found if change.stops]
    return (stops[0].phrase if stops else "", all(change.visible for change in stops))


def stopped(captured: CapturedTable, phrase: str, *, visible: bool) -> NeedsResnapshot:
    """The error for a change that stops the capture; `visible`: all that was committed before it is captured."""
    before = (
        "Capture stops before it: what was committed until then is captured"
        if visible
        else "Capture stops, with what it had captured before: where in the stream the change is, nothing there says"
    )
    return NeedsResnapshot(
        f"{captured.dataset} from {captured.source}: {phrase}. {before}; the dataset serves its last exact state. Take "
        f"a new snapshot: varve cdc resnapshot {captured.dataset}"
    )


def _of_columns(
    captured: CapturedTable, before: SourceTable, now: SourceTable, newly_declared: frozenset[str]
) -> Iterator[TableChange]:
    old, new = {column.number: column for column in before.columns}, {column.number: column for column in now.columns}
    for number, column in old.items():
        if number in new:
            yield from _of_column(captured, column, new[number], newly_declared)
            continue
        is_declared = captured.column(column.name) in captured.names
        if is_declared and column.name in now.names:
            # The new one lies behind all others, which shows where one that was behind the old one is still there.
            behind = any(
                other.number > number and other.number in new and new[other.number].name == other.name
                for other in before.columns
            )
            phrase = f"column {column.name} was dropped and added again; old rows have lost its values"
            yield TableChange(phrase, stops=True, visible=behind)
            continue
        yield TableChange(f"column {column.name} was dropped" + ("; old rows keep its values" if is_declared else ""))
    for number, column in new.items():
        if number in old or column.name in before.names:
            continue
        if captured.column(column.name) in captured.names and column.name not in newly_declared:
            phrase = (
                f"column {column.name}, which the dataset declares, was added; what older rows have in it is not in "
                "the stream"
            )
            yield TableChange(phrase, stops=True, visible=True)
        else:
            yield TableChange(f"column {column.name} {column.type} was added; it is loaded when it is declared")


def _of_column(
    captured: CapturedTable, before: SourceColumn, now: SourceColumn, newly_declared: frozenset[str]
) -> Iterator[TableChange]:
    is_declared = captured.column(before.name) in captured.names
    if now.name != before.name:
        phrase = f"column {before.name} is now called {now.name}"
        takes_a_name = now.name in captured.source_columns and now.name not in newly_declared
        if is_declared:
            phrase += f"; declare renames={{'{now.name}': '{captured.column(before.name)}'}}"
        elif takes_a_name:
            phrase += ", as one was that the dataset declares; what older rows have in it is not in the stream"
        yield TableChange(phrase, stops=is_declared or takes_a_name, visible=True)
    if (now.type, now.typmod) != (before.type, before.typmod):
        phrase = f"column {before.name} was {before.type} and is {now.type}"
        if is_declared and not _widens((before.type, before.typmod), (now.type, now.typmod)):
            phrase += ", and what became of the values of its rows is not in the stream"
            yield TableChange(phrase, stops=True, visible=bool(before.type_oid))
        else:
            yield TableChange(phrase)
    elif is_declared and now.labels[: len(before.labels)] != before.labels:
        yield TableChange(f"values of {now.type}, and with them those of column {before.name}, are written otherwise "
                          "since one of an enum was renamed or a composite type has other parts, without a word in the "
                          "stream", stops=True)  # fmt: skip


def _widens(before: tuple[str, int], now: tuple[str, int]) -> bool:
    narrower = now[1] != -1 and (before[1] == -1 or now[1] < before[1])
    return (before[0], now[0]) in _WIDENS and not narrower


@dataclass(frozen=True)
class Fit:
    """Whether the rows of a transaction are those of the table as it was captured last.

    Attributes:
        before: the table as it was captured last.
        now: the table at the end of the look.
        stop: the change that stops the capture, as `now` is no continuation of `before`; "": there is none.
    """

    captured: CapturedTable
    before: SourceTable
    now: SourceTable
    stop: str = ""

    def misfit(self, relation: RelationMessage) -> str:
        """The change because of which the rows of this relation are of another table than `before`; "": they fit."""
        sent = {column.name: column for column in relation.columns}
        absent = [column for column in self._declared() if column.name not in sent]
        at_the_end = {column.number: column.name for column in self.now.columns}
        unknown = set(sent) - set(self.before.names) - set(self.now.names)
        # A column that was dropped is absent as well, and never comes back under its number. One that was added later
        # is absent before, and has another name where there is one that is in neither description.
        if renamed := [
            column.name
            for column in absent
            if at_the_end.get(column.number) == column.name and (column.since is None or unknown)
        ]:
            return self.stop or f"column {renamed[0]} had another name for a while, in which rows were changed"
        told_apart_by = {column.name for column in relation.columns if column.key}
        # Without any, rows are only inserted: the server refuses other changes of them.
        if told_apart_by and not self._tells_rows_apart(relation.identity, told_apart_by):
            # Of a column outside of it the old value is not sent, and is taken for the new one.
            return self.stop or (
                f"for a while its rows were told apart by ({', '.join(sorted(told_apart_by))}), by another replica "
                f"identity or key, and rows were changed then"
            )
        return "" if not self.stop or self._continues(relation, sent, absent, at_the_end) else self.stop

    def names_are_theirs(self, relation: RelationMessage) -> bool:
        """Whether each column is sent under a name that it has before or now, as far as the order of columns shows."""
        names: dict[int, set[str]] = {}
        for column in (*self.before.columns, *self.now.columns):
            names.setdefault(column.number, set()).add(column.name)
        numbers, there = iter(sorted(names)), {column.number for column in self.now.columns}
        is_skipped = False
        for sent in relation.columns:
            for number in numbers:
                if sent.name in names[number]:
                    break
                is_skipped |= number in there
            else:
                return False
            # Behind a column that had not been added yet, there was none.
            if is_skipped:
                return False
        return True

    def continued(self) -> SourceTable:
        """The table after what was read: `before`, with the columns that came since and that the dataset ignores.

        Since when they are there must not be lost where the change that stops the capture is undone before it did.
        """
        known = {column.number for column in self.before.columns}
        more = [column for column in self.now.columns
                if column.number not in known and column.name not in self.captured.source_columns]  # fmt: skip
        return replace(self.before, columns=(*self.before.columns, *more))

    def _tells_rows_apart(self, identity: str, columns: set[str]) -> bool:
        """Whether a change that sends these columns of the old row says which of the captured rows it was."""
        return set(self.before.key) <= columns if self.before.keyed else identity == "f"

    def _declared(self) -> list[SourceColumn]:
        return [column for column in self.before.columns if column.name in self.captured.source_columns]

    def _continues(
        self, relation: RelationMessage, sent: dict[str, StreamedColumn], absent: list[SourceColumn],
        at_the_end: dict[int, str],
    ) -> bool:  # fmt: skip
        """Whether the table is still as `before`, except for changes that the stream makes up for."""
        if relation.identity != self.before.identity:
            return False
        key = {column.name for column in relation.columns if column.key}
        if relation.identity != "f" and key != set(self.before.key):
            return False
        if any(column.number in at_the_end or column.name in self.now.names for column in absent):
            return False
        names = [column.name for column in self.before.columns if column.name in sent]
        if names != [column.name for column in relation.columns if column.name in self.before.names]:
            return False
        if any(name in self.captured.source_columns for name in sent if name not in self.before.names):
            return False
        return all(_same_values(column, sent[column.name]) for column in self._declared() if column.name in sent)


def _same_values(before: SourceColumn, sent: StreamedColumn) -> bool:
    """Whether the values of a column were kept, as the type of it was."""
    if (sent.type_oid, sent.typmod) == (before.type_oid or sent.type_oid, before.typmod):
        return True
    # A position of an earlier version of Varve has no OIDs of types.
    kind = before.type if sent.type_oid == before.type_oid else _TYPES.get(sent.type_oid, "")
    return _widens((before.type, before.typmod), (kind, sent.typmod))
