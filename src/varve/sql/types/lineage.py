"""One pass over a qualified query: the types of its columns, and the columns of datasets that they are computed from.

Not here: how names are qualified (inference.py), and the type of each kind of expression (expressions.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import nearest
from varve.sql.names.generators import has_uncounted_columns
from varve.sql.names.scope_variables import SCOPE
from varve.sql.names.trees import rows_of_values
from varve.sql.syntax.type_names import UNKNOWN, parse_type
from varve.sql.types.cells import Cell, ColumnName
from varve.sql.types.expressions import typed
from varve.sql.types.left_out import left_out_of
from varve.sql.types.numeric import common_type
from varve.sql.types.outputs import QueryFinding, Use

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class _SourceColumn:
    """A column of a source.

    `star` holds the columns of datasets that it is a copy of, if no text between them and it names them; `copy_of`
    holds them whatever names them.
    """

    name: str
    cell: Cell
    star: frozenset[ColumnName] = frozenset()
    copy_of: frozenset[ColumnName] = frozenset()


@dataclass
class Walk:
    """One pass over a qualified query; it also sets the types of columns and projections in the tree."""

    schemas: Mapping[str, Mapping[str, str]]
    variables: Mapping[str, str]
    uses: list[Use] = field(default_factory=list)
    findings: list[QueryFinding] = field(default_factory=list)

    def use(self, column: _SourceColumn | None, node: exp.Column, *, left_out: bool = False) -> None:
        """Record that a name of the author's, and not one that a star became, is that of a column of datasets."""
        if column is not None and "line" in node.this.meta:
            self.uses += [Use(dataset_column, node, left_out) for dataset_column in sorted(column.star)]

    def query(
        self,
        node: exp.Expr,
        ctes: Mapping[str, Sequence[_SourceColumn] | None],
        outer: Mapping[str, Sequence[_SourceColumn] | None],
    ) -> list[_SourceColumn]:
        """Return the columns of a query, given the CTEs and the outer sources that it can see."""
        seen = dict(ctes)
        with_ = node.args.get("with_") or node.args.get("with")
        for cte in with_.expressions if isinstance(with_, exp.With) else ():
            if cte.parent.args.get("recursive"):
                seen[cte.alias] = None
            seen[cte.alias] = _with_alias_columns(self.query(cte.this, seen, {}), cte)
        if isinstance(node, exp.Subquery):
            return self.query(node.this, seen, outer)
        if isinstance(node, exp.SetOperation):
            return self._both(node, self.query(node.left, seen, outer), self.query(node.right, seen, outer))
        return self._select(node, seen, outer) if isinstance(node, exp.Select) else []

    def _both(
        self, node: exp.SetOperation, left: list[_SourceColumn], right: list[_SourceColumn]
    ) -> list[_SourceColumn]:
        if node.args.get("by_name"):
            names = {column.name: column for column in right}
            right = [names[column.name] for column in left if column.name in names]
        if len(left) != len(right) and (has_uncounted_columns(node.left) or has_uncounted_columns(node.right)):
            return left
        if len(left) != len(right):
            last = node.right.selects[-1] if isinstance(node.right, exp.Select) and node.right.selects else node
            message = (
                f"the sides of a {node.key.upper()} have {len(left)} and {len(right)} columns; give both the same."
            )
            self.findings.append(QueryFinding(message, last))
            return left
        columns = []
        for left_column, right_column in zip(left, right, strict=True):
            kind = common_type([left_column.cell.type, right_column.cell.type])
            cell = Cell(kind, left_column.cell.sources | right_column.cell.sources)
            both_copied = left_column.copy_of and right_column.copy_of
            copy_of = left_column.copy_of | right_column.copy_of if both_copied else frozenset()
            columns.append(_SourceColumn(left_column.name, cell, left_column.star | right_column.star, copy_of))
        return columns

    def _select(
        self,
        node: exp.Select,
        ctes: Mapping[str, Sequence[_SourceColumn] | None],
        outer: Mapping[str, Sequence[_SourceColumn] | None],
    ) -> list[_SourceColumn]:
        sources: dict[str, Sequence[_SourceColumn] | None] = {}
        from_ = node.args.get("from_") or node.args.get("from")
        joins = [*([exp.Join(this=from_.this)] if from_ is not None else []), *(node.args.get("joins") or ())]
        if from_ is not None:
            # exp.Join becomes the parent of its child; give it back to the tree.
            from_.set("this", joins[0].this)
        for join in joins:
            sources[join.this.alias_or_name] = self._source(join.this, ctes, {**outer, **sources})
        for lateral in node.args.get("laterals") or ():
            cells = typed(lateral.this, self._lookup(sources, outer, ctes))
            alias = lateral.args.get("alias")
            names = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
            kinds = [cells] if len(names) == 1 else [Cell(UNKNOWN, cells.sources)] * len(names)
            # Where the query does not name its columns, the generator does: `col` of EXPLODE.
            columns = [_SourceColumn(name, kind) for name, kind in zip(names, kinds, strict=True)]
            sources[lateral.alias_or_name] = columns or None
        for left_out in left_out_of(node):
            owners = [sources.get(left_out.table.lower())] if left_out.table else sources.values()
            for owner in owners:
                self.use(_column_named(owner, left_out.name.lower()), left_out, left_out=True)
        lookup = self._lookup(sources, outer, ctes)
        result_columns = []
        for projection in node.selects:
            cell = typed(projection.unalias(), lookup)
            projection.type = _data_type(cell.type)
            copied = _copied_column(projection, sources)
            star = copied.star if copied and "line" not in projection.unalias().this.meta else frozenset()
            copy_of = copied.copy_of if copied else frozenset()
            result_columns.append(_SourceColumn(projection.alias_or_name, cell, star, copy_of))
        for name, value in node.args.items():
            if name in {"expressions", "from", "from_", "joins", "laterals", "with", "with_"}:
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, exp.Expr):
                    typed(part, lookup)
        for join in joins:
            if isinstance(join.args.get("on"), exp.Expr):
                typed(join.args["on"], lookup)
        return result_columns

    def _lookup(
        self,
        sources: Mapping[str, Sequence[_SourceColumn] | None],
        outer: Mapping[str, Sequence[_SourceColumn] | None],
        ctes: Mapping[str, Sequence[_SourceColumn] | None],
    ) -> _Lookup:
        return _Lookup(self, sources, outer, ctes)

    def _source(
        self,
        node: exp.Expr,
        ctes: Mapping[str, Sequence[_SourceColumn] | None],
        outer: Mapping[str, Sequence[_SourceColumn] | None],
    ) -> Sequence[_SourceColumn] | None:
        if pivots := node.args.get("pivots"):
            columns = self._unpivoted(node, ctes, outer)
            for name in (column for pivot in pivots for column in pivot.find_all(exp.Column)):
                self.use(_column_named(columns, name.name.lower()), name)
            return None
        return self._unpivoted(node, ctes, outer)

    def _unpivoted(
        self,
        node: exp.Expr,
        ctes: Mapping[str, Sequence[_SourceColumn] | None],
        outer: Mapping[str, Sequence[_SourceColumn] | None],
    ) -> Sequence[_SourceColumn] | None:
        """The columns of a source before its PIVOT or UNPIVOT."""
        if isinstance(node, exp.Table):
            if not node.db:
                return ctes.get(node.name)
            dataset = f"{node.db}.{node.name}"
            itself = {name: frozenset({(dataset, name)}) for name in self.schemas.get(dataset, {})}
            return [
                _SourceColumn(name, Cell(kind, itself[name]), star=itself[name], copy_of=itself[name])
                for name, kind in self.schemas.get(dataset, {}).items()
            ]
        if isinstance(node, exp.Subquery | exp.Lateral) and isinstance(node.this, exp.Query):
            return _with_alias_columns(self.query(node.this, ctes, outer), node)
        if isinstance(node, exp.Values):
            return self._values(node, self._lookup({}, outer, ctes))
        return None

    def _values(self, node: exp.Values, lookup: _Lookup) -> list[_SourceColumn] | None:
        """The columns of an inline table; where the types of one differ, Spark casts, and nothing is known of it."""
        rows = rows_of_values(node)
        if len({len(row) for row in rows}) != 1:
            return None
        cells = [[_typed_in_place(value, lookup) for value in row] for row in rows]
        columns = []
        for place, column in enumerate(zip(*cells, strict=True), start=1):
            kinds = {cell.type for cell in column if cell.type != "void"}
            kind = kinds.pop() if len(kinds) == 1 else UNKNOWN
            sources = frozenset(source for cell in column for source in cell.sources)
            columns.append(_SourceColumn(f"col{place}", Cell(kind, sources)))
        return _with_alias_columns(columns, node)


@dataclass
class _Lookup:
    """Resolves the names in the expressions of one SELECT."""

    walk: Walk
    sources: Mapping[str, Sequence[_SourceColumn] | None]
    outer: Mapping[str, Sequence[_SourceColumn] | None]
    ctes: Mapping[str, Sequence[_SourceColumn] | None]

    def column(self, node: exp.Column) -> Cell:
        """Return the cell of a column, and record the use."""
        if node.table == SCOPE:
            cell = Cell(self.walk.variables.get(node.name, UNKNOWN))
        elif node.table in self.sources or node.table in self.outer:
            columns = self.sources.get(node.table, self.outer.get(node.table))
            column = _column_named(columns, node.name)
            if column is None and columns is not None:
                self._unknown(node, [column.name for column in columns])
            self.walk.use(column, node)
            cell = column.cell if column else Cell(UNKNOWN)
        else:
            if not node.table and not node.find_ancestor(exp.Lambda, exp.Order, exp.Pivot, exp.Struct, exp.PropertyEQ):
                every = [column.name for columns in self.sources.values() for column in columns or ()]
                owners = [alias for alias, columns in self.sources.items() if _column_named(columns, node.name)]
                if len(owners) > 1:
                    written = " or ".join(f"{owner}.{node.name}" for owner in owners)
                    self._add_problem(f"{node.name} is a column of {' and of '.join(owners)}; write {written}.", node)
                elif all(columns is not None for columns in self.sources.values()):
                    self._unknown(node, [*every, *self.walk.variables])
            cell = Cell(UNKNOWN)
        node.type = _data_type(cell.type)
        return cell

    def nested(self, node: exp.Expr) -> Cell:
        """The cell of a query inside an expression."""
        columns = self.walk.query(node, self.ctes, {**self.outer, **self.sources})
        if len(columns) != 1:
            sources = frozenset(source for column in columns for source in column.cell.sources)
            return Cell(UNKNOWN, sources)
        return columns[0].cell

    def _unknown(self, node: exp.Column, candidates: Sequence[str]) -> None:
        if isinstance(node.this, exp.Star):
            self._add_problem(f"{node.sql('spark')} stands in a function; write * there, or name the columns.", node)
        else:
            self._add_problem(f"unknown column {node.sql('spark')}.{nearest(node.name, candidates)}", node)

    def _add_problem(self, message: str, node: exp.Column) -> None:
        finding = QueryFinding(message, node)
        if all(earlier.message != finding.message for earlier in self.walk.findings):
            self.walk.findings.append(finding)


def _typed_in_place(value: exp.Expr, lookup: _Lookup) -> Cell:
    cell = typed(value, lookup)
    value.type = _data_type(cell.type)
    return cell


def _copied_column(projection: exp.Expr, sources: Mapping[str, Sequence[_SourceColumn] | None]) -> _SourceColumn | None:
    """Return the column of a source that a projection passes on as it is; None where it computes something."""
    column = projection.unalias()
    return _column_named(sources.get(column.table), column.name) if isinstance(column, exp.Column) else None


def _column_named(columns: Sequence[_SourceColumn] | None, name: str) -> _SourceColumn | None:
    return next((column for column in columns or () if column.name == name), None)


def _with_alias_columns(columns: list[_SourceColumn], node: exp.Expr) -> list[_SourceColumn]:
    """Return the columns with the names that an alias lists: `x (a, b)`."""
    alias = node.args.get("alias")
    names = [column.name for column in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    if len(names) != len(columns):
        return columns
    return [replace(column, name=name) for name, column in zip(names, columns, strict=True)]


def _data_type(kind: str) -> exp.DataType:
    return exp.DataType.build("unknown") if UNKNOWN in kind else parse_type(kind)
