"""Parses the header of a SQL file: the clauses between `CREATE DATASET` and the body. docs/sql.md has the grammar.

A problem in one clause does not hide those of the next: parsing continues at the following clause.

Not here: tokens (tokens.py), the contents of clauses (clauses.py), and whether names and types fit
(varve/sql/checks/problems.py).
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from varve.model.dataset import STORE_ENTRY_POINTS, StoreKind, owner_problem
from varve.model.errors import VarveError
from varve.model.landing.growth import Incremental
from varve.model.landing.rejection import RejectInto
from varve.model.policy import OnCodeChange, instant_of
from varve.sql.syntax.body import parse_query
from varve.sql.syntax.clauses import (
    parse_columns,
    parse_datasets,
    parse_generator,
    parse_named_expressions,
    parse_named_texts,
    parse_schedule,
    parse_waits,
)
from varve.sql.syntax.errors import Problem, SourceFile, Span, SqlError, SqlErrors, undecodable
from varve.sql.syntax.external import LANDING
from varve.sql.syntax.sql_file import Allowed, Body, OnUpstreamChange, SqlDataset, TimeSeries, Using
from varve.sql.syntax.storage_clauses import parse_column_names, parse_indexes, parse_period, parse_roles
from varve.sql.syntax.suggestions import clause_hint
from varve.sql.syntax.timeseries import length_of_time
from varve.sql.syntax.tokens import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable


_LONGEST_TAG = 63
_TAG = re.compile(rf"[A-Za-z0-9_.-]{{0,{_LONGEST_TAG}}}")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CREATE = re.compile(r"\bCREATE\s+DATASET\s+`?([A-Za-z]\w*)`?\s*\.\s*`?([A-Za-z]\w*)`?", re.IGNORECASE)
_BODIES = {"AS", "EXTERNAL", "PYTHON", "SPARK"}


def parse(source: SourceFile) -> SqlDataset:
    """Parse a file. Raises SqlErrors with all problems in it."""
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


def uncomment_header(source: SourceFile) -> str:
    """Return the text with the header uncommented, where it stands in a leading `/*@ ... */`; offsets stay the same."""
    match = re.match(r"(?:\s|--[^\n]*\n|/\*(?!@)(?:(?!\*/).)*\*/)*/\*@", source.text, re.DOTALL)
    if match is None:
        return source.text
    start, end = match.end() - 3, source.text.find("*/", match.end())
    if end < 0:
        raise SqlError(Problem(source, Span(start, start + 3), "this comment with the header is not closed by */."))
    header, rest = source.text[start + 3 : end], source.text[end + 2 :]
    query = re.match(r"(?:\s|--[^\n]*\n)*(?:SELECT|WITH|\()", rest, re.IGNORECASE)
    # Before a SELECT, the end of the comment is replaced by the word AS, where the header does not end with it.
    joint = "AS" if query and not re.search(r"\bAS\s*$", header, re.IGNORECASE) else "  "
    return source.text[:start] + "   " + header + joint + rest


def declared_name(source: SourceFile) -> str:
    """Return the name that a file seems to declare although it cannot be parsed; empty where it has none."""
    match = _CREATE.search(source.text)
    return f"{match[1]}.{match[2]}".lower() if match else ""


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
            self._whole()
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
        at = self.at
        if at.token is None:
            at.fail("the file is empty; write CREATE DATASET db.table, its clauses, and AS SELECT ....", Span(0, 1))
        if at.sees("SELECT") or at.sees("WITH"):
            at.fail(
                "a file begins with its header, and this is only a query; write CREATE DATASET db.table ... AS "
                "before it."
            )
        at.needs("CREATE", "DATASET", example="CREATE DATASET db.table")
        start = at.span.start
        db, _ = at.name("a name", example="CREATE DATASET db.table")
        if not at.takes("."):
            at.fail(
                f"a dataset is named db.table, found only {db}; write for example shop.{db.lower()}.",
                Span(start, at.behind),
            )
        table, _ = at.name("the table's name", example=f"{db}.sales")
        if at.sees(".") or at.sees("-"):
            sign = at.shown_token
            while at.takes(".") or at.takes("-"):
                at.place += at.token is not None and not at.clause() and not at.sees("(")
            at.fail(
                f"a name is db.table, of letters, digits and _; found {sign} behind {db}.{table}. Write "
                f"for example {db}.{table}_daily.",
                Span(start, at.behind),
            )
        self.fields["name"], self.fields["name_span"] = f"{db}.{table}", Span(start, at.behind)
        if not (_NAME.fullmatch(db) and _NAME.fullmatch(table)):
            at.fail(
                f"names are lower-case letters, digits and _; write {db.lower()}.{table.lower()}.",
                self.fields["name_span"],
            )
        if at.sees("("):
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
            at.fail(f"{word} is given twice; the first stands in line {line}. Take one of them out.", span)
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
            if not _TAG.fullmatch(value) or len(name) > _LONGEST_TAG:
                self.at.fail(
                    f"the tag {name} = {value!r} is none that Dagster takes: a value has at most {_LONGEST_TAG} "
                    "letters, digits, `_`, `-` and `.`, and so has a name.",
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
        self.fields["expectations"] = parse_named_expressions(self.at, ":", "EXPECT revenue_positive: revenue >= 0")

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
        at, example = self.at, "REJECT UP TO 10 ROWS INTO shop.orders_rejected"
        at_most, span = at.number("how many rows")
        if not at.takes("ROW"):
            at.needs("ROWS", example=example)
        at.needs("INTO", example=example)
        begin = at.span.start
        db, _ = at.name("a dataset", example=example)
        at.needs(".", example=example)
        table, _ = at.name("a dataset", example=example)
        self.spans["REJECT INTO"] = Span(begin, at.behind)
        try:
            self.fields["reject_into"] = RejectInto(at_most, f"{db}.{table}")
        except VarveError as error:
            at.fail(str(error), span)

    def _allow(self) -> None:
        words = [allowance.value.upper() for allowance in Allowed]
        allowances, tables = set[Allowed](), dict[str, Span]()
        while True:
            allowed = Allowed(self.at.choice("what to allow", *words).lower())
            if allowed is Allowed.FULL_SCAN and self.at.takes("OF"):
                more = parse_datasets(self.at, tables, "ALLOW FULL SCAN OF shop.products", words)
            else:
                allowances.add(allowed)
                more = self.at.takes(",")
            if not more:
                break
        self.fields["allows"], self.fields["full_scans"] = frozenset(allowances), tuple(tables.items())

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

    def _whole(self) -> None:
        """Check what only all clauses together show: required clauses, and clauses that exclude each other."""
        body = self.fields["body"]
        self._partitions_whole()
        if body is not Body.SELECT and not self.fields.get("columns"):
            self._problem(
                self.spans[body.upper()],
                f"a dataset by {body.upper()} must declare its columns: CREATE DATASET {self.fields['name']} "
                "(column TYPE, ...).",
            )
        has_time = any(isinstance(generator, TimeSeries) for generator in self.fields.get("generators", ()))
        if "end_offset" in self.fields and not has_time:
            word = next(clause for clause in ("OPEN WINDOWS", "WINDOWS AHEAD") if clause in self.spans)
            self._problem(self.spans[word], f"{word} counts windows of time, and no generator is a TIMESERIES.")
        for wait in self.fields.get("waits", ()):
            if body is Body.EXTERNAL:
                self._problem(wait.span, "WAIT is for what a query reads, and EXTERNAL reads no dataset; leave it out.")
            elif wait.wait.deadline is not None and not has_time:
                self._problem(
                    wait.span,
                    "UNTIL counts from the end of a window, and no generator is a TIMESERIES; write AT LEAST or ALL "
                    "BUT without it.",
                )
        self._time_policies_fit(body, has_time=has_time)
        if self.fields.get("forward_from") and not has_time:
            self._problem(
                self.spans["ON CODE CHANGE"],
                "FORWARD FROM names a window of time, and no generator is a TIMESERIES; write HOLD or REBUILD.",
            )
        if "incremental" in self.fields and body is not Body.EXTERNAL:
            self._problem(
                self.spans["INCREMENTAL"],
                "INCREMENTAL adds the rows of new landing files, and this dataset takes none: it is for EXTERNAL.",
            )
        landing = body is Body.EXTERNAL and dict(self.fields.get("options", ())).get("source", LANDING) == LANDING
        if "reject_into" in self.fields and not landing:
            self._problem(
                self.spans["REJECT UP TO"],
                "REJECT UP TO belongs to landing files, EXTERNAL OPTIONS (source = 'landing'): other rows are of the "
                "declared types already.",
            )
        if body in {Body.SELECT, Body.EXTERNAL} and "using" in self.fields:
            self._problem(self.spans["USING"], f"USING belongs to PYTHON and SPARK; {body.upper()} has no inputs.")

    def _time_policies_fit(self, body: Body, *, has_time: bool) -> None:
        """Check that SCHEDULE, CATCHUP and REBUILD WITHIN stand where something is computed, and windows are."""
        if body is Body.EXTERNAL:
            for word in ("SCHEDULE", "CATCHUP", "REBUILD WITHIN"):
                if word in self.spans:
                    self._problem(
                        self.spans[word],
                        f"{word} is for what is computed, and this dataset only arrives: what comes is taken when it "
                        f"comes. Leave it out here; a dataset that reads {self.fields['name']} may have it.",
                    )
            return
        for word in ("CATCHUP", "REBUILD WITHIN"):
            if word in self.spans and not has_time:
                self._problem(
                    self.spans[word],
                    f"{word} is about windows of time, and no generator is a TIMESERIES; leave it out.",
                )

    def _partitions_whole(self) -> None:
        """Check that PARTITIONED BY and FOR are both given, or neither: a dataset without them has no partitions."""
        columns, generators = self.fields.get("partition_columns"), self.fields.get("generators")
        if generators and not columns:
            variables = ", ".join(generator.variable for generator in generators)
            self._problem(
                self.spans["FOR"],
                f"FOR makes a partition for each {variables}, and PARTITIONED BY is missing; write for example "
                "PARTITIONED BY (day STRING), or take FOR out: without both the dataset is one table without "
                "partitions.",
            )
        if columns and not generators:
            self._problem(
                self.spans["PARTITIONED BY"],
                "FOR is missing: nothing says which partitions exist; write for example "
                "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2024-01-01'), or take PARTITIONED BY out: without both the "
                "dataset is one table without partitions.",
            )
        if "INSERT" in self.spans and not columns and not generators:
            self._problem(
                self.spans["INSERT"],
                "INSERT gives the partition columns their values, and there is none; write PARTITIONED BY and FOR, or "
                "take INSERT out: the dataset is one table without partitions.",
            )
        if "REFRESH LAST" in self.spans and not columns and not generators:
            self._problem(
                self.spans["REFRESH LAST"],
                "REFRESH LAST counts windows of time, and the dataset has no partitions; take it out: it is computed "
                "again whenever what it reads changes.",
            )
