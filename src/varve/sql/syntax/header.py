"""Parses the header of a SQL file: the clauses between `CREATE DATASET` and the body. docs/sql.md has the grammar.

A problem in one clause does not hide those of the next: parsing continues at the following clause.

Not here: tokens (tokens.py), the contents of clauses (clauses/), which clauses go together (combinations.py), and
whether names and types fit (varve/sql/checks/problems.py).
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from varve.model.dataset import OWN_CHECKS, STORE_ENTRY_POINTS, StoreKind, owner_problem
from varve.model.errors import VarveError
from varve.model.landing.growth import Incremental
from varve.model.policy import OnCodeChange, instant_of
from varve.sql.syntax.body import parse_query
from varve.sql.syntax.clauses.clauses import (
    parse_allowances,
    parse_columns,
    parse_datasets,
    parse_named_expressions,
    parse_named_texts,
    parse_rejection,
    parse_schedule,
    parse_waits,
)
from varve.sql.syntax.clauses.create import parse_create
from varve.sql.syntax.clauses.generators import parse_generator
from varve.sql.syntax.clauses.storage import parse_column_names, parse_indexes, parse_period, parse_roles
from varve.sql.syntax.clauses.timeseries import length_of_time
from varve.sql.syntax.combinations import combination_problems
from varve.sql.syntax.errors import Problem, SourceFile, Span, SqlError, SqlErrors, undecodable
from varve.sql.syntax.header_text import uncomment_header
from varve.sql.syntax.sql_file import Body, OnUpstreamChange, SqlDataset, Using
from varve.sql.syntax.suggestions import clause_hint
from varve.sql.syntax.tokens import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable


_LONGEST_TAG = 63
_TAG = re.compile(rf"[A-Za-z0-9_.-]{{0,{_LONGEST_TAG}}}")
_BODIES = {"AS", "EXTERNAL", "PYTHON", "SPARK"}
# What these say goes on after a comma.
_LISTS = {"OWNER", "FOR", "LET", "EXPECT", "WAIT", "INDEX", "GRANT SELECT TO"}


def parse(source: SourceFile) -> SqlDataset:
    """Parse a file. Raises SqlErrors with all problems in it."""
    if source.unreadable:
        message = f"it cannot be read: {source.unreadable}. Put one that you may read in its place, or take it out."
        raise SqlErrors([Problem(source, Span(0, 0), message)])
    if "\0" in source.text:
        message = "this file is no plain text: it is UTF-16, or a format of its own; save it as UTF-8."
        raise SqlErrors([Problem(source, Span(0, 1), message)])
    if (match := undecodable(source.text)) is not None:
        byte = ord(match[0]) - 0xDC00
        message = f"the byte 0x{byte:02X} is no UTF-8; save the file as UTF-8 (in many editors: Save with Encoding)."
        raise SqlErrors([Problem(source, Span(*match.span()), message)])
    try:
        cursor = Cursor(source, uncomment_header(source))
    except SqlError as error:
        raise SqlErrors([error.problem]) from None
    return _Header(cursor).parse()


class _Header:
    """One pass over the clauses of a file; `fields` collects the fields of the dataset."""

    def __init__(self, cursor: Cursor) -> None:
        self.at = cursor
        self.source = cursor.source
        self.problems: list[Problem] = []
        self.spans: dict[str, Span] = {}
        self.fields: dict[str, Any] = {}
        self.in_comment = cursor.text != cursor.source.text

    def parse(self) -> SqlDataset:
        self._tried(self._create)
        while self.at.token is not None and not self.at.takes(";"):
            if "body" in self.fields and not (self.at.sees("OPTIONS") or self.at.sees("USING")):
                self._tried(self._refuse_more)
                break
            self._tried(self._clause)
        while self.at.takes(";"):
            pass
        if self.at.token is not None and not self.problems:
            self._tried(self._refuse_more)
        if not self.problems and "body" not in self.fields:
            end = self.at.span
            self._problem(end, "the dataset has no body; end the header with AS SELECT ..., EXTERNAL, PYTHON or SPARK.")
        if not self.problems:
            for span, message in combination_problems(self.fields, self.spans):
                self._problem(span, message)
        if self.problems:
            raise SqlErrors(self.problems)
        return SqlDataset(
            source=self.source, spans=tuple(self.spans.items()), in_comment=self.in_comment, **self.fields
        )

    def _tried(self, read: Callable[[], None]) -> None:
        before = self.at.place
        try:
            read()
        except SqlError as error:
            self.problems.append(error.problem)
            if self.at.place == before:
                self.at.place += 1
            self.at.skip_to_clause()

    def _problem(self, span: Span, message: str) -> None:
        self.problems.append(Problem(self.source, span, message))

    def _create(self) -> None:
        self.fields["name"], self.fields["name_span"] = parse_create(self.at)
        if self.at.sees("("):
            self.fields["columns"] = parse_columns(self.at)

    def _clause(self) -> None:
        at, span = self.at, self.at.span
        words = at.clause()
        if words is None:
            word = at.token.text if at.token else ""
            unexpected = at.shown_token
            if at.takes("STORED", "AS"):
                # This AS does not begin a body.
                at.fail(f"unexpected {unexpected} in the header.{clause_hint(word)}", span)
            at.fail(f"unexpected {unexpected} in the header.{clause_hint(word)}")
        word = " ".join(words)
        if at.sees("INSERT", "INTO"):
            at.fail("rows are what the query gives; write AS SELECT ... without INSERT INTO.")
        at.takes(*words)
        if word in self.spans:
            line, _ = self.source.position(self.spans[word].start)
            remedy = "Write both in one, with a comma between." if word in _LISTS else "Take one of them out."
            at.fail(f"{word} is given twice; the first stands in line {line}. {remedy}", span)
        self.spans[word] = Span(span.start, self.at.behind)
        if word in _BODIES:
            self.fields["body"] = Body.SELECT if word == "AS" else Body(word.lower())
        getattr(self, "_" + words[0].lower().replace(" ", "_"))()

    def _comment(self) -> None:
        self.fields["comment"], _ = self.at.string("a comment", example="COMMENT 'one row per product'")

    def _owner(self) -> None:
        owners = [self._one_owner()]
        while self.at.takes(","):
            owners.append(self._one_owner())
        self.fields["owners"] = tuple(owners)

    def _one_owner(self) -> str:
        owner, span = self.at.string("an owner (an e-mail address, or team:name)", example="OWNER 'team:shops'")
        if (problem := owner_problem(owner)) is not None:
            self.at.fail(problem, span)
        return owner

    def _tags(self) -> None:
        self.fields["tags"], spans = parse_named_texts(self.at, "TAGS (tier = 'gold')")
        for name, value in self.fields["tags"]:
            # With another text Dagster would not load the project.
            if not _TAG.fullmatch(value) or not _TAG.fullmatch(name):
                self.at.fail(
                    f"the tag {name} = {value!r} is none that Dagster takes: a value has at most {_LONGEST_TAG} "
                    "letters from A to Z, digits, `_`, `-` and `.`, and so has a name.",
                    spans[name],
                )

    def _options(self) -> None:
        self.fields["options"], spans = parse_named_texts(self.at, "OPTIONS (source = 'table', table = 'db.name')")
        self.spans |= {f"OPTIONS {name}": span for name, span in spans.items()}

    def _stored(self) -> None:
        names = [kind.upper() for kind in StoreKind]
        if self.at.token is not None and self.at.token.text.upper() not in names:
            names += sorted(point.name.upper() for point in entry_points(group=STORE_ENTRY_POINTS))
        self.fields["store"] = self.at.choice("a store", *names).lower()

    def _partitioned_by(self) -> None:
        self.fields["partition_columns"] = parse_columns(self.at)

    def _for(self) -> None:
        generators = [parse_generator(self.at)]
        while self.at.takes(","):
            generators.append(parse_generator(self.at))
        self.fields["generators"] = tuple(generators)

    def _let(self) -> None:
        self.fields["lets"] = parse_named_expressions(self.at, "=", "LET day = DATE_FORMAT(t, 'yyyy-MM-dd')")

    def _insert(self) -> None:
        at = self.at
        at.needs("(", example="INSERT (day = partition_day)")
        self.fields["inserts"] = parse_named_expressions(self.at, "=", "INSERT (day = partition_day)")
        at.needs(")", example="INSERT (day = partition_day)")

    def _expect(self) -> None:
        expectations = parse_named_expressions(self.at, ":", "EXPECT revenue_positive: revenue >= 0")
        for expectation in expectations:
            name_span = Span(expectation.span.start, expectation.span.start + len(expectation.name))
            if expectation.name.lower() in OWN_CHECKS:
                self.at.fail(f"{expectation.name} is a check of Varve's own; take another name.", name_span)
            # With another name Dagster would not load the project.
            if not expectation.name.isascii():
                self.at.fail(
                    f"{expectation.name} is no name that Dagster takes for a check: letters from A to Z, digits and _.",
                    name_span,
                )
        self.fields["expectations"] = expectations

    def _on(self) -> None:
        at = self.at
        if at.tokens[at.place - 2].text.upper() == "UPSTREAM":
            choice = at.choice("what to do when an input changes", "REBUILD", "IGNORE")
            self.fields["on_upstream_change"] = OnUpstreamChange(choice.lower())
            if choice == "REBUILD" and at.takes("WITHIN"):
                self._within()
            return
        choice = at.choice("what to do when the code changes", "HOLD", "REBUILD", "FORWARD")
        self.fields["on_code_change"] = OnCodeChange(choice.lower())
        if self.fields["on_code_change"] is OnCodeChange.FORWARD:
            at.needs("FROM", example="FORWARD FROM '2026-01-01'")
            self.fields["forward_from"], span = at.string("a date", example="FORWARD FROM '2026-01-01'")
            try:
                instant_of(self.fields["forward_from"])
            except VarveError as error:
                at.fail(str(error), span)

    def _within(self) -> None:
        """REBUILD WITHIN: so long after a window a change of an input rebuilds it, and not later."""
        begin, places = self.at.span.start, dict[str, Span]()
        self.fields["rebuild_within"] = length_of_time(self.at)
        self.spans["REBUILD WITHIN"] = Span(begin, self.at.behind)
        if self.at.takes("OF"):
            parse_datasets(self.at, places, "ON UPSTREAM CHANGE REBUILD WITHIN 1 DAY OF shop.products", ())
            self.fields["rebuild_within_of"] = tuple(places.items())

    def _schedule(self) -> None:
        """SCHEDULE: the ticks at which it is computed."""
        self.fields["schedule"] = parse_schedule(self.at)

    def _catchup(self) -> None:
        """CATCHUP OFF: windows that were over before the dataset was first deployed are left alone."""
        self.fields["catchup"] = self.at.choice("whether windows of the past are computed", "ON", "OFF") == "ON"

    def _refresh(self) -> None:
        self.fields["refresh_last"], _ = self.at.number("how many partitions")

    def _open(self) -> None:
        """OPEN WINDOWS: the current window is computed too, again and again as its inputs grow."""
        self.fields["end_offset"] = max(1, self.fields.get("end_offset", 0))

    def _windows(self) -> None:
        """WINDOWS AHEAD: the current window and this many future ones are computed."""
        count, _ = self.at.number("how many windows")
        self.fields["end_offset"] = 1 + count

    def _incremental(self) -> None:
        """INCREMENTAL: a run reads only new files and adds their rows; CLOSED AFTER: none that late."""
        closed = length_of_time(self.at) if self.at.takes("CLOSED", "AFTER") else None
        self.fields["incremental"] = Incremental(closed)

    def _reject(self) -> None:
        """REJECT UP TO: this many rows of a landing partition may be unreadable; another dataset takes them."""
        self.fields["reject_into"], self.spans["REJECT INTO"] = parse_rejection(self.at)

    def _allow(self) -> None:
        self.fields["allows"], self.fields["full_scans"] = parse_allowances(self.at)

    def _grant(self) -> None:
        self.fields["grants"] = parse_roles(self.at)

    def _retain(self) -> None:
        """RETAIN BATCHES: sweeps keep replaced batches for so long, and so many of each partition."""
        if not self.at.sees("LAST"):
            self.fields["retain_batches"] = length_of_time(self.at)
            if not self.at.takes("AND"):
                return
        self.at.needs("LAST", example="RETAIN BATCHES 30 DAYS AND LAST 3")
        self.fields["retain_last"], _ = self.at.number("how many batches of each partition")

    def _fresh(self) -> None:
        """FRESH WITHIN: a partition is there so long after the end of its window, at most."""
        self.fields["fresh_within"] = length_of_time(self.at)

    def _wait(self) -> None:
        self.fields["waits"] = parse_waits(self.at)

    def _index(self) -> None:
        self.fields["indexes"] = parse_indexes(self.at)

    def _compact(self) -> None:
        self.fields["compact"] = parse_period(self.at)

    def _sorted(self) -> None:
        self.fields["sorted_by"] = parse_column_names(self.at, "SORTED BY (product)")

    def _bounds(self) -> None:
        self.fields["bounds"] = parse_column_names(self.at, "BOUNDS (price)")

    def _iceberg(self) -> None:
        """ICEBERG ON or OFF: whether the dataset is shown as an Iceberg table too, whatever the settings say."""
        self.fields["iceberg"] = self.at.choice("whether it is an Iceberg table too", "ON", "OFF") == "ON"

    def _external(self) -> None:
        """EXTERNAL copies; EXTERNAL VIEW reads files where they are. Only OPTIONS may follow."""
        span = self.at.span
        self.fields["is_view"] = self.at.takes("VIEW")
        self.spans |= {"VIEW": span} if self.fields["is_view"] else {}

    def _python(self) -> None:
        entry, span = self.at.string("module:function")
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", entry):
            self.at.fail(f"'{entry}' names no function; write PYTHON 'package.module:function'.", span)
        self.fields["entry"], self.spans["entry"] = entry, span

    def _spark(self) -> None:
        self.fields["entry"], self.spans["entry"] = self.at.string("a program: a .py file or a .jar")

    def _using(self) -> None:
        at, inputs = self.at, dict[str, Using]()
        while True:
            name, span = at.name("a name", example="USING sales AS (SELECT ...)")
            at.needs("AS", example=f"USING {name} AS (SELECT ...)")
            inside = at.parenthesised(f"{name} AS (SELECT ...)")
            if name.lower() in inputs:
                at.fail(f"{name} is given twice; give one of them another name.", span)
            query = parse_query(SourceFile(self.source.path, at.text), inside)
            inputs[name.lower()] = Using(name.lower(), query, span, inside)
            if not at.takes(","):
                break
        self.fields["using"] = tuple(inputs.values())

    def _as(self) -> None:
        if self.at.token is None:
            self.at.fail("AS is followed by nothing; write AS SELECT ....")
        self._select(self.at.span.start)

    def _select(self, start: int) -> None:
        """Parse the query: everything up to a semicolon or the end."""
        at = self.at
        while at.token is not None and not at.sees(";"):
            at.place += 1
        where = Span(start, at.behind)
        self.fields["body"] = Body.SELECT
        self.spans["AS"] = where
        self.fields["query"] = parse_query(SourceFile(self.source.path, at.text), where)

    def _refuse_more(self) -> None:
        at = self.at
        ended = at.place and at.tokens[at.place - 1].text == ";"
        line, _ = self.source.position(at.tokens[at.place - 1].start) if at.place else (1, 1)
        why = f"the dataset ends with the ; in line {line}" if ended else "the dataset is complete"
        at.fail(f"{why}, but {at.shown_token} follows; take one of them out: a file declares one dataset.")
