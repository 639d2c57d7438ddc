"""One pass over a qualified query: the types of its columns, and which columns they are made of.

Not here: how names are qualified (inference.py), and the type of each kind of expression (expressions.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from varve.model.errors import nearest
from varve.sql.names.scope_variables import SCOPE
from varve.sql.syntax.type_names import UNKNOWN, parse_type
from varve.sql.types.cells import Cell, ColumnName
from varve.sql.types.expressions import typed
from varve.sql.types.numeric import common_type
from varve.sql.types.outputs import QueryFinding, Use

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class _Named:
    """A column of a source.

    `star` are the columns of datasets that it is, where no text between them and it names them.
    """

    name: str
    cell: Cell
    star: frozenset[ColumnName] = frozenset()


@dataclass
class Walk:
    """One pass over a qualified query; it types columns and projections where they stand."""

    schemas: Mapping[str, Mapping[str, str]]
    variables: Mapping[str, str]
    not_null: frozenset[ColumnName]
    uses: list[Use] = field(default_factory=list)
    findings: list[QueryFinding] = field(default_factory=list)

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
            last = node.right.selects[-1] if isinstance(node.right, exp.Select) and node.right.selects else node
            said = f"the sides of a {node.key.upper()} have {len(left)} and {len(right)} columns; give both the same."
            self.findings.append(QueryFinding(said, last))
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
            # Where nobody names its columns, the generator does: `col` of EXPLODE.
            columns = [_Named(name, kind) for name, kind in zip(names, kinds, strict=True)]
            sources[lateral.alias_or_name] = columns or None
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

    walk: Walk
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
                    written = " or ".join(f"{each}.{node.name}" for each in owners)
                    self._found(f"{node.name} is a column of {' and of '.join(owners)}; write {written}.", node)
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
        finding = QueryFinding(message, node)
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
