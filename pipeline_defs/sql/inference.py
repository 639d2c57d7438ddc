"""The columns that a query gives out: names, types, whether they may be NULL, and which columns they are made of.

Without a JVM, and without a guess: a type that is not certain is `unknown`, and whoever needs it asks Spark's
analyzer (`varve check`). The rules are Spark's own in its ANSI mode; tests/pipeline_defs/sql/test_inference.py compares
them with the analyzer.

Not here: the type of each kind of expression (typing.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from pipeline_defs.sql.binding import bound
from pipeline_defs.sql.cells import Cell, ColumnName
from pipeline_defs.sql.errors import nearest
from pipeline_defs.sql.numeric import common_type
from pipeline_defs.sql.predicates import SCOPE
from pipeline_defs.sql.types import UNKNOWN, parse_type
from pipeline_defs.sql.typing import typed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


@dataclass(frozen=True)
class Finding:
    """Something in a query that its author should mend; `node` is where."""

    message: str
    node: exp.Expr


@dataclass(frozen=True)
class Output:
    """A column that a query gives out.

    Attributes:
        type: Spark's simple name; `unknown` where only Spark can tell.
        nullable: whether it may be NULL, as far as is known.
        sources: the columns of datasets that its values are made of.
    """

    name: str
    type: str
    nullable: bool = True
    sources: frozenset[ColumnName] = frozenset()

    @property
    def verified(self) -> bool:
        """Whether the type is certain."""
        return UNKNOWN not in self.type


@dataclass(frozen=True)
class Use:
    """A place in a query that names a column of a dataset; `SELECT *` names none."""

    column: ColumnName
    node: exp.Column


@dataclass(frozen=True)
class Inferred:
    """What is known of a query before it runs.

    Attributes:
        tree: the query with every column qualified and typed; its variables are columns of `@scope`.
        outputs: what it gives out, in order.
        uses: where it names columns of datasets.
        findings: what stands against it.
    """

    tree: exp.Expr
    outputs: tuple[Output, ...]
    uses: tuple[Use, ...]
    findings: tuple[Finding, ...] = ()


def qualified(
    query: exp.Expr,
    schemas: Mapping[str, Mapping[str, str]],
    variables: Mapping[str, str],
    *,
    not_null: Collection[ColumnName] = (),
) -> Inferred:
    """The columns of a query of a file.

    Args:
        query: as it is written.
        schemas: for each dataset that it may read, the Spark types of its columns, partition columns among them.
        variables: the Spark types of the scope's variables.
        not_null: columns of datasets that are never NULL.
    """
    types = {name.lower(): kind.lower() for name, kind in variables.items()}
    tree = bound(query, set(types), lambda name: exp.column(name, SCOPE))
    lowered = {name.lower(): {column.lower(): kind for column, kind in each.items()} for name, each in schemas.items()}
    findings = list(_before(tree, lowered))
    if findings:
        return Inferred(tree, (), (), tuple(findings))
    nested: dict[str, dict[str, dict[str, str]]] = {}
    for name, columns in lowered.items():
        db, _, table = name.partition(".")
        nested.setdefault(db, {})[table] = columns
    schema = MappingSchema(nested, dialect="spark", normalize=False)  # type: ignore[arg-type]
    while (found := _qualified(tree, schema)) is None or isinstance(found, Finding):
        finding = found or Finding("its columns cannot be told.", query)
        unknown = finding.node if isinstance(finding.node, exp.Column) else None
        known = [column for columns in lowered.values() for column in columns]
        if unknown is None:
            return Inferred(tree, (), (), (*findings, finding))
        # sqlglot stops at the first: what it did not know gives way, to find the next one.
        findings.append(Finding(f"{finding.message}{nearest(unknown.name, known)}", unknown))
        same = [each for each in tree.find_all(exp.Column) if each == unknown]
        for each in same:
            each.replace(exp.alias_(exp.null(), each.name) if isinstance(each.parent, exp.Select) else exp.null())
    tree = found
    if findings:
        return Inferred(tree, (), (), tuple(findings))
    walk = _Walk(lowered, types, frozenset(not_null))
    outputs = tuple(Output(each.name, *each.cell) for each in walk.query(tree, {}, {}))
    return Inferred(tree, outputs, tuple(walk.uses), (*_unaliased(query), *walk.findings))


def _qualified(tree: exp.Expr, schema: MappingSchema) -> exp.Expr | Finding | None:
    """The tree with every column qualified; or what stands against it."""
    try:
        return qualify(
            tree.copy(),
            schema=schema,
            dialect="spark",
            quote_identifiers=False,
            identify=False,
            validate_qualify_columns=False,
        )
    except SqlglotError as error:
        message = str(error).split("\n", 1)[0]
        name = message.removeprefix("Unknown column: ")
        for column in tree.find_all(exp.Column):
            if name != message and column.table and column.name.lower() == name.lower():
                return Finding(f"unknown column {column.sql('spark')}.", column)
        return Finding(message, tree)


def _before(tree: exp.Expr, schemas: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    for table in tree.find_all(exp.Table):
        name = f"{table.db}.{table.name}".lower()
        if table.db and name not in schemas:
            yield Finding(f"unknown dataset {name}.{nearest(name, schemas)}", table)
        alias = table.args.get("alias")
        if table.db and isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            yield Finding(
                f"{name} cannot have its columns renamed by an alias; write (SELECT ... AS ...) instead.", table
            )
    for join in tree.find_all(exp.Join):
        if join.method.upper() == "NATURAL":
            yield Finding("NATURAL JOIN follows the columns of two datasets as they change; write USING (...).", join)


def _unaliased(query: exp.Expr) -> Iterator[Finding]:
    """The result's columns have the names that the file gives them: Spark's own for an expression is no contract."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.left if isinstance(query, exp.SetOperation) else query.this
    for projection in query.selects if isinstance(query, exp.Select) else ():
        if not projection.alias_or_name and not projection.is_star and not isinstance(projection, exp.Aliases):
            yield Finding(f"{projection.sql('spark')[:40]} has no name; add AS and one.", projection)


@dataclass(frozen=True)
class _Named:
    """A column of a source.

    `star` are the columns of datasets that it is, where no text between them and it names them.
    """

    name: str
    cell: Cell
    star: frozenset[ColumnName] = frozenset()


@dataclass
class _Walk:
    """One pass over a qualified query; it types columns and projections where they stand."""

    schemas: Mapping[str, Mapping[str, str]]
    variables: Mapping[str, str]
    not_null: frozenset[ColumnName]
    uses: list[Use] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def query(
        self, node: exp.Expr, ctes: Mapping[str, Sequence[_Named] | None], outer: Mapping[str, Sequence[_Named] | None]
    ) -> list[_Named]:
        """The columns of a query."""
        seen = dict(ctes)
        with_ = node.args.get("with_") or node.args.get("with")
        for cte in with_.expressions if isinstance(with_, exp.With) else ():
            if cte.parent.args.get("recursive"):
                seen[cte.alias] = None
            seen[cte.alias] = _as(self.query(cte.this, seen, {}), cte)
        if isinstance(node, exp.Subquery):
            return self.query(node.this, seen, outer)
        if isinstance(node, exp.SetOperation):
            return self._both(node, self.query(node.left, seen, outer), self.query(node.right, seen, outer))
        return self._select(node, seen, outer) if isinstance(node, exp.Select) else []

    def _both(self, node: exp.SetOperation, left: list[_Named], right: list[_Named]) -> list[_Named]:
        if node.args.get("by_name"):
            names = {each.name: each for each in right}
            right = [names[each.name] for each in left if each.name in names]
        if len(left) != len(right):
            self.findings.append(Finding(f"its branches have {len(left)} and {len(right)} columns.", node))
            return left
        found = []
        for one, other in zip(left, right, strict=True):
            kind = common_type([one.cell.type, other.cell.type])
            nullable = one.cell.nullable or (other.cell.nullable and isinstance(node, exp.Union))
            cell = Cell(kind, nullable, one.cell.sources | other.cell.sources)
            found.append(_Named(one.name, cell, one.star | other.star))
        return found

    def _select(
        self,
        node: exp.Select,
        ctes: Mapping[str, Sequence[_Named] | None],
        outer: Mapping[str, Sequence[_Named] | None],
    ) -> list[_Named]:
        sources: dict[str, Sequence[_Named] | None] = {}
        from_ = node.args.get("from_") or node.args.get("from")
        joins = [*([exp.Join(this=from_.this)] if from_ is not None else []), *(node.args.get("joins") or ())]
        if from_ is not None:
            # exp.Join takes its child over; the tree keeps it.
            from_.set("this", joins[0].this)
        for join in joins:
            source, side = join.this, (join.side or "").upper()
            columns = self._source(source, ctes, {**outer, **sources})
            if side in {"RIGHT", "FULL"}:
                sources = {alias: _nullable(each) for alias, each in sources.items()}
            sources[source.alias_or_name] = _nullable(columns) if side in {"LEFT", "FULL"} else columns
        for lateral in node.args.get("laterals") or ():
            cells = typed(lateral.this, self._lookup(sources, outer, ctes))
            alias = lateral.args.get("alias")
            names = [each.name for each in alias.args.get("columns") or ()] if alias is not None else []
            kinds = [cells] if len(names) == 1 else [Cell(UNKNOWN, nullable=True, sources=cells.sources)] * len(names)
            sources[lateral.alias_or_name] = [_Named(name, kind) for name, kind in zip(names, kinds, strict=True)]
        lookup = self._lookup(sources, outer, ctes)
        found = []
        for projection in node.selects:
            cell = typed(projection.unalias(), lookup)
            projection.type = _data_type(cell.type)
            found.append(_Named(projection.alias_or_name, cell, self._stars(projection, sources)))
        for name, value in node.args.items():
            if name in {"expressions", "from", "from_", "joins", "laterals", "with", "with_"}:
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, exp.Expr):
                    typed(each, lookup)
        for join in joins:
            if isinstance(join.args.get("on"), exp.Expr):
                typed(join.args["on"], lookup)
        return found

    def _lookup(
        self,
        sources: Mapping[str, Sequence[_Named] | None],
        outer: Mapping[str, Sequence[_Named] | None],
        ctes: Mapping[str, Sequence[_Named] | None],
    ) -> _Lookup:
        return _Lookup(self, sources, outer, ctes)

    def _source(
        self,
        node: exp.Expr,
        ctes: Mapping[str, Sequence[_Named] | None],
        outer: Mapping[str, Sequence[_Named] | None],
    ) -> Sequence[_Named] | None:
        if node.args.get("pivots"):
            if isinstance(node, exp.Subquery):
                self.query(node.this, ctes, outer)
            return None
        if isinstance(node, exp.Table):
            if not node.db:
                return ctes.get(node.name)
            dataset = f"{node.db}.{node.name}"
            return [
                _Named(name, Cell(kind, (dataset, name) not in self.not_null, frozenset({(dataset, name)})),
                       frozenset({(dataset, name)}))
                for name, kind in self.schemas.get(dataset, {}).items()
            ]  # fmt: skip
        if isinstance(node, exp.Subquery | exp.Lateral) and isinstance(node.this, exp.Query):
            return _as(self.query(node.this, ctes, outer), node)
        return None

    def _stars(self, projection: exp.Expr, sources: Mapping[str, Sequence[_Named] | None]) -> frozenset[ColumnName]:
        column = projection.unalias()
        if not isinstance(column, exp.Column) or "line" in column.this.meta:
            return frozenset()
        found = _named(sources.get(column.table), column.name)
        return found.star if found else frozenset()


@dataclass
class _Lookup:
    """What an expression of one SELECT can name."""

    walk: _Walk
    sources: Mapping[str, Sequence[_Named] | None]
    outer: Mapping[str, Sequence[_Named] | None]
    ctes: Mapping[str, Sequence[_Named] | None]

    def column(self, node: exp.Column) -> Cell:
        """The cell of a column; also notes the use."""
        if node.table == SCOPE:
            cell = Cell(self.walk.variables.get(node.name, UNKNOWN), nullable=False)
        elif node.table in self.sources or node.table in self.outer:
            columns = self.sources.get(node.table, self.outer.get(node.table))
            found = _named(columns, node.name)
            if found is None and columns is not None:
                self._unknown(node, [each.name for each in columns])
            if found is not None and "line" in node.this.meta:
                self.walk.uses += [Use(each, node) for each in sorted(found.star)]
            cell = found.cell if found else Cell(UNKNOWN, nullable=True)
        else:
            if not node.table and not node.find_ancestor(exp.Lambda, exp.Order, exp.Pivot, exp.Struct, exp.PropertyEQ):
                every = [each.name for columns in self.sources.values() for each in columns or ()]
                owners = [alias for alias, columns in self.sources.items() if _named(columns, node.name)]
                if len(owners) > 1:
                    self._found(f"column {node.name} is one of {' and '.join(owners)}; write which.", node)
                elif all(columns is not None for columns in self.sources.values()):
                    self._unknown(node, [*every, *self.walk.variables])
            cell = Cell(UNKNOWN, nullable=True)
        node.type = _data_type(cell.type)
        return cell

    def nested(self, node: exp.Expr) -> Cell:
        """The cell of a query inside an expression."""
        found = self.walk.query(node, self.ctes, {**self.outer, **self.sources})
        if len(found) != 1:
            sources = frozenset(source for each in found for source in each.cell.sources)
            return Cell(UNKNOWN, nullable=True, sources=sources)
        return Cell(found[0].cell.type, nullable=True, sources=found[0].cell.sources)

    def _unknown(self, node: exp.Column, known: Sequence[str]) -> None:
        self._found(f"unknown column {node.sql('spark')}.{nearest(node.name, known)}", node)

    def _found(self, message: str, node: exp.Column) -> None:
        finding = Finding(message, node)
        if all(each.message != finding.message for each in self.walk.findings):
            self.walk.findings.append(finding)


def _named(columns: Sequence[_Named] | None, name: str) -> _Named | None:
    return next((each for each in columns or () if each.name == name), None)


def _nullable(columns: Sequence[_Named] | None) -> Sequence[_Named] | None:
    if columns is None:
        return None
    return [
        _Named(each.name, Cell(each.cell.type, nullable=True, sources=each.cell.sources), each.star) for each in columns
    ]


def _as(columns: list[_Named], node: exp.Expr) -> list[_Named]:
    """The columns under the names of an alias with a list: `x (a, b)`."""
    alias = node.args.get("alias")
    names = [each.name for each in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    if len(names) != len(columns):
        return columns
    return [_Named(name, each.cell, each.star) for name, each in zip(names, columns, strict=True)]


def _data_type(kind: str) -> exp.DataType:
    return exp.DataType.build("unknown") if UNKNOWN in kind else parse_type(kind)
