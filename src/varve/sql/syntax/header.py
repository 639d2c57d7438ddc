"""The header of a SQL file: the clauses between `CREATE DATASET` and the body. docs/sql.md has the grammar.

A problem in one clause does not hide those of the next: reading goes on at the following clause.

Not here: tokens (tokens.py), what stands within a clause (clauses.py), and whether names and types fit
(varve/sql/checks/problems.py).
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from varve.model.dataset import STORE_ENTRY_POINTS, StoreKind
from varve.model.errors import VarveError
from varve.model.landing.growth import Incremental
from varve.model.landing.rejection import RejectInto
from varve.sql.syntax.body import parse_query
from varve.sql.syntax.clauses import columns, generator, named, pairs
from varve.sql.syntax.errors import Problem, SourceFile, Span, SqlError, SqlErrors, undecodable
from varve.sql.syntax.external import LANDING
from varve.sql.syntax.sql_file import Allowed, Body, OnUpstreamChange, SqlDataset, TimeSeries, Using
from varve.sql.syntax.suggestions import instead_of_clause
from varve.sql.syntax.timeseries import length_of_time
from varve.sql.syntax.tokens import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable


_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CREATE = re.compile(r"\bCREATE\s+DATASET\s+`?([A-Za-z]\w*)`?\s*\.\s*`?([A-Za-z]\w*)`?", re.IGNORECASE)
_BODIES = {"AS", "EXTERNAL", "PYTHON", "SPARK"}


def parse(source: SourceFile) -> SqlDataset:
    """What the file declares. Raises SqlErrors with everything that is wrong in it."""
    if "\0" in source.text:
        message = "this file is no plain text: it is UTF-16, or a format of its own; save it as UTF-8."
        raise SqlErrors([Problem(source, Span(0, 1), message)])
    if (found := undecodable(source.text)) is not None:
        byte = ord(found[0]) - 0xDC00
        message = f"the byte 0x{byte:02X} is no UTF-8; save the file as UTF-8 (in many editors: Save with Encoding)."
        raise SqlErrors([Problem(source, Span(*found.span()), message)])
    try:
        cursor = Cursor(source, uncovered(source))
    except SqlError as error:
        raise SqlErrors([error.problem]) from None
    return _Header(cursor).parse()


def uncovered(source: SourceFile) -> str:
    """The text with the header out of its comment, where it stands in a leading `/*@ ... */`; as long as before."""
    found = re.match(r"(?:\s|--[^\n]*\n|/\*(?!@)(?:(?!\*/).)*\*/)*/\*@", source.text, re.DOTALL)
    if found is None:
        return source.text
    start, end = found.end() - 3, source.text.find("*/", found.end())
    if end < 0:
        raise SqlError(Problem(source, Span(start, start + 3), "this comment with the header is not closed by */."))
    header, rest = source.text[start + 3 : end], source.text[end + 2 :]
    query = re.match(r"(?:\s|--[^\n]*\n)*(?:SELECT|WITH|\()", rest, re.IGNORECASE)
    # Before a SELECT, the end of the comment is the word AS, where the header does not have it.
    joint = "AS" if query and not re.search(r"\bAS\s*$", header, re.IGNORECASE) else "  "
    return source.text[:start] + "   " + header + joint + rest


def declared_name(source: SourceFile) -> str:
    """The dataset that a file means to declare, though it cannot be read; empty where it does not say."""
    found = _CREATE.search(source.text)
    return f"{found[1]}.{found[2]}".lower() if found else ""


class _Header:
    """One pass over the clauses of a file; `found` becomes the fields of the dataset."""

    def __init__(self, cursor: Cursor) -> None:
        self.at = cursor
        self.source = cursor.source
        self.problems: list[Problem] = []
        self.spans: dict[str, Span] = {}
        self.found: dict[str, Any] = {}
        self.in_comment = cursor.text != cursor.source.text

    def parse(self) -> SqlDataset:
        self._tried(self._create)
        while self.at.token is not None and not self.at.takes(";"):
            if "body" in self.found and not (self.at.sees("OPTIONS") or self.at.sees("USING")):
                self._tried(self._refuse_more)
                break
            self._tried(self._clause)
        while self.at.takes(";"):
            pass
        if self.at.token is not None and not self.problems:
            self._tried(self._refuse_more)
        if not self.problems and "body" not in self.found:
            end = self.at.span
            self._problem(end, "the dataset has no body; end the header with AS SELECT ..., EXTERNAL, PYTHON or SPARK.")
        if not self.problems:
            self._whole()
        if self.problems:
            raise SqlErrors(self.problems)
        return SqlDataset(source=self.source, spans=tuple(self.spans.items()), in_comment=self.in_comment, **self.found)

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
            sign = at.found
            while at.takes(".") or at.takes("-"):
                at.place += at.token is not None and not at.clause() and not at.sees("(")
            at.fail(
                f"a name is db.table, of letters, digits and _; found {sign} behind {db}.{table}. Write "
                f"for example {db}.{table}_daily.",
                Span(start, at.behind),
            )
        self.found["name"], self.found["name_span"] = f"{db}.{table}", Span(start, at.behind)
        if not (_NAME.fullmatch(db) and _NAME.fullmatch(table)):
            at.fail(
                f"names are lower-case letters, digits and _; write {db.lower()}.{table.lower()}.",
                self.found["name_span"],
            )
        if at.sees("("):
            self.found["columns"] = columns(self.at)

    def _clause(self) -> None:
        at, span = self.at, self.at.span
        words = at.clause()
        if words is None:
            word = at.token.text if at.token else ""
            unexpected = at.found
            if at.takes("STORED", "AS"):
                # The AS of this is no body.
                at.fail(f"unexpected {unexpected} in the header.{instead_of_clause(word)}", span)
            at.fail(f"unexpected {unexpected} in the header.{instead_of_clause(word)}")
        word = " ".join(words)
        if at.sees("INSERT", "INTO"):
            at.fail("rows are what the query gives; write AS SELECT ... without INSERT INTO.")
        at.takes(*words)
        if word in self.spans:
            line, _ = self.source.position(self.spans[word].start)
            at.fail(f"{word} is given twice; the first stands in line {line}. Take one of them out.", span)
        self.spans[word] = Span(span.start, self.at.behind)
        if word in _BODIES:
            self.found["body"] = Body.SELECT if word == "AS" else Body(word.lower())
        getattr(self, "_" + words[0].lower().replace(" ", "_"))()

    def _comment(self) -> None:
        self.found["comment"], _ = self.at.string("a comment", example="COMMENT 'one row per product'")

    def _owner(self) -> None:
        owners = [self.at.string("an owner (an e-mail address, or team:name)", example="OWNER 'team:shops'")[0]]
        while self.at.takes(","):
            owners.append(self.at.string("an owner")[0])
        self.found["owners"] = tuple(owners)

    def _tags(self) -> None:
        self.found["tags"], _ = pairs(self.at, "TAGS (tier = 'gold')")

    def _options(self) -> None:
        self.found["options"], spans = pairs(self.at, "OPTIONS (source = 'table', table = 'db.name')")
        self.spans |= {f"OPTIONS {name}": span for name, span in spans.items()}

    def _stored(self) -> None:
        names = [kind.upper() for kind in StoreKind]
        if self.at.token is not None and self.at.token.text.upper() not in names:
            names += sorted(point.name.upper() for point in entry_points(group=STORE_ENTRY_POINTS))
        self.found["store"] = self.at.choice("a store", *names).lower()

    def _partitioned_by(self) -> None:
        self.found["partition_columns"] = columns(self.at)

    def _for(self) -> None:
        found = [generator(self.at)]
        while self.at.takes(","):
            found.append(generator(self.at))
        self.found["generators"] = tuple(found)

    def _let(self) -> None:
        self.found["lets"] = named(self.at, "=", "LET day = DATE_FORMAT(t, 'yyyy-MM-dd')")

    def _insert(self) -> None:
        at = self.at
        at.needs("(", example="INSERT (day = partition_day)")
        self.found["inserts"] = named(self.at, "=", "INSERT (day = partition_day)")
        at.needs(")", example="INSERT (day = partition_day)")

    def _expect(self) -> None:
        self.found["expectations"] = named(self.at, ":", "EXPECT revenue_positive: revenue >= 0")

    def _on(self) -> None:
        choice = self.at.choice("what to do when an input changes", "REBUILD", "IGNORE")
        self.found["on_upstream_change"] = OnUpstreamChange(choice.lower())

    def _refresh(self) -> None:
        self.found["refresh_last"], _ = self.at.number("how many partitions")

    def _open(self) -> None:
        """The window of now is computed too, again and again as its inputs grow."""
        self.found["end_offset"] = max(1, self.found.get("end_offset", 0))

    def _windows(self) -> None:
        """Of windows to come so many are computed, and the one of now."""
        count, _ = self.at.number("how many windows")
        self.found["end_offset"] = 1 + count

    def _incremental(self) -> None:
        """A run reads new files only, and adds their rows; CLOSED AFTER: none that comes so long after the window."""
        closed = length_of_time(self.at) if self.at.takes("CLOSED", "AFTER") else None
        self.found["incremental"] = Incremental(closed)

    def _reject(self) -> None:
        """Of a landing dataset so many rows of a partition may be unreadable; another dataset takes them."""
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
            self.found["reject_into"] = RejectInto(at_most, f"{db}.{table}")
        except VarveError as error:
            at.fail(str(error), span)

    def _allow(self) -> None:
        words = [each.value.upper() for each in Allowed]
        found, tables = set[Allowed](), dict[str, Span]()
        while True:
            allowed = Allowed(self.at.choice("what to allow", *words).lower())
            if allowed is Allowed.FULL_SCAN and self.at.takes("OF"):
                more = self._tables(tables)
            else:
                found.add(allowed)
                more = self.at.takes(",")
            if not more:
                break
        self.found["allows"], self.found["full_scans"] = frozenset(found), tuple(tables.items())

    def _tables(self, found: dict[str, Span]) -> bool:
        """`db.table {, db.table}` of FULL SCAN OF; whether a comma and something else to allow follow."""
        at, example = self.at, "ALLOW FULL SCAN OF shop.products"
        while True:
            start = at.span.start
            db, _ = at.name("a dataset", example=example)
            at.needs(".", example=example)
            table, _ = at.name("a dataset", example=example)
            found[f"{db}.{table}".lower()] = Span(start, at.behind)
            if not at.takes(","):
                return False
            if any(at.sees(*each.value.upper().split()) for each in Allowed):
                return True

    def _external(self) -> None:
        """Nothing follows the word but OPTIONS."""

    def _python(self) -> None:
        entry, span = self.at.string("module:function")
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", entry):
            self.at.fail(f"'{entry}' names no function; write PYTHON 'package.module:function'.", span)
        self.found["entry"], self.spans["entry"] = entry, span

    def _spark(self) -> None:
        self.found["entry"], self.spans["entry"] = self.at.string("a program: a .py file or a .jar")

    def _using(self) -> None:
        at, found = self.at, dict[str, Using]()
        while True:
            name, span = at.name("a name", example="USING sales AS (SELECT ...)")
            at.needs("AS", example=f"USING {name} AS (SELECT ...)")
            inside = at.parenthesised(f"{name} AS (SELECT ...)")
            if name.lower() in found:
                at.fail(f"{name} is given twice; give one of them another name.", span)
            query = parse_query(SourceFile(self.source.path, at.text), inside)
            found[name.lower()] = Using(name.lower(), query, span, inside)
            if not at.takes(","):
                break
        self.found["using"] = tuple(found.values())

    def _as(self) -> None:
        if self.at.token is None:
            self.at.fail("AS is followed by nothing; write AS SELECT ....")
        self._select(self.at.span.start)

    def _select(self, start: int) -> None:
        """The query: all that follows, to a semicolon or the end."""
        at = self.at
        while at.token is not None and not at.sees(";"):
            at.place += 1
        where = Span(start, at.behind)
        self.found["body"] = Body.SELECT
        self.spans["AS"] = where
        self.found["query"] = parse_query(SourceFile(self.source.path, at.text), where)

    def _refuse_more(self) -> None:
        at = self.at
        ended = at.place and at.tokens[at.place - 1].text == ";"
        line, _ = self.source.position(at.tokens[at.place - 1].start) if at.place else (1, 1)
        why = f"the dataset ends with the ; in line {line}" if ended else "the dataset is complete"
        at.fail(f"{why}, but {at.found} follows; take one of them out: a file declares one dataset.")

    def _whole(self) -> None:
        """What must be there, seen over all clauses."""
        name_span, body = self.found["name_span"], self.found["body"]
        if not self.found.get("partition_columns"):
            self._problem(name_span, "PARTITIONED BY is missing; write for example PARTITIONED BY (day STRING).")
        if not self.found.get("generators"):
            self._problem(
                name_span,
                "FOR is missing: nothing says which partitions exist; write for example "
                "FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2024-01-01').",
            )
        if body is not Body.SELECT and not self.found.get("columns"):
            self._problem(
                self.spans[body.upper()],
                f"a dataset by {body.upper()} must declare its columns: CREATE DATASET {self.found['name']} "
                "(column TYPE, ...).",
            )
        has_time = any(isinstance(each, TimeSeries) for each in self.found.get("generators", ()))
        if "end_offset" in self.found and not has_time:
            word = next(each for each in ("OPEN WINDOWS", "WINDOWS AHEAD") if each in self.spans)
            self._problem(self.spans[word], f"{word} counts windows of time, and no generator is a TIMESERIES.")
        if "incremental" in self.found and body is not Body.EXTERNAL:
            self._problem(
                self.spans["INCREMENTAL"],
                "INCREMENTAL adds the rows of new landing files, and this dataset takes none: it is for EXTERNAL.",
            )
        landing = body is Body.EXTERNAL and dict(self.found.get("options", ())).get("source", LANDING) == LANDING
        if "reject_into" in self.found and not landing:
            self._problem(
                self.spans["REJECT UP TO"],
                "REJECT UP TO belongs to landing files, EXTERNAL OPTIONS (source = 'landing'): other rows are of the "
                "declared types already.",
            )
        if body in {Body.SELECT, Body.EXTERNAL} and "using" in self.found:
            self._problem(self.spans["USING"], f"USING belongs to PYTHON and SPARK; {body.upper()} has no inputs.")
