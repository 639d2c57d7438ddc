# ruff: noqa: E501 - pieces of queries, one a line
"""Random queries whose names collide on purpose: of tables, aliases, columns, fields of structs and scope variables.

A query is a text in which variables stand as `<<name>>`; whoever runs it says what stands there. All else is Spark SQL
over the database `collide`, whose tables exist under these names.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

# A table has the name of a struct, a struct that of a table, and columns have those of variables.
TABLES = {
    "a": {"id": "INT", "v": "INT", "k": "STRING", "day": "STRING", "store": "STRING", "st": "STRUCT<a: INT, b: STRING>", "items": "ARRAY<INT>"},
    "b": {"id": "INT", "a": "INT", "k": "STRING", "shop": "STRING", "day": "STRING"},
    "st": {"id": "INT", "a": "INT", "b": "STRING", "the_day": "STRING"},
}  # fmt: skip
DAYS, SHOPS = ("2022-03-01", "2022-03-02", "2022-03-03"), ("O'Brien", "L'Aquila", "x")
VARIABLES = {"the_day": "STRING", "shop": "STRING", "num": "INT"}
_ALIASES = ("a", "b", "st", "k", "shop", "the_day", "x", "u", "id", "v", "num")
_NAMES = ("id", "v", "a", "k", "shop", "the_day", "n", "st", "num", "day")


def table_rows(table: str) -> list[tuple[object, ...]]:
    """Some rows, the same each time, with NULLs among them."""
    draw = random.Random(table)

    def value(kind: str, name: str) -> object:
        if draw.random() < 0.08:
            return None
        if name in {"day", "the_day"}:
            return draw.choice(DAYS)
        if name in {"store", "shop", "b"}:
            return draw.choice(SHOPS)
        if kind == "INT":
            return draw.randint(0, 5)
        if kind == "STRING":
            return draw.choice("xyz")
        return (draw.randint(0, 3), draw.choice("xyz")) if kind.startswith("STRUCT") else [draw.randint(0, 2), 7]

    return [tuple(value(kind, name) for name, kind in TABLES[table].items()) for _ in range(24)]


@dataclass
class Source:
    """What a query reads under one name: its columns of simple types, and whether it has the struct `st`."""

    alias: str
    columns: dict[str, str]
    has_struct: bool = False


@dataclass
class Grammar:
    """Makes queries, the same ones for the same seed."""

    draw: random.Random
    ctes: dict[str, dict[str, str]] = field(default_factory=dict)
    # What else can be seen where a value stands: a name of it is written with its source.
    beside: list[Source] = field(default_factory=list)

    def query(self) -> str:
        """A whole query."""
        self.ctes = {}
        kind = self.draw.random()
        with_ = self._with() if kind < 0.4 else ""
        if kind > 0.85:
            return with_ + self._set_operation()
        return with_ + self.select(2, [], outermost=True)[0]

    def _with(self) -> str:
        ctes = []
        for _ in range(self.draw.randint(1, 2)):
            name = self._new(self.draw.choice(["q", "shop", "a", "r", "st"]), self.ctes)
            text, columns = self.select(1, [])
            renamed = ""
            if self.draw.random() < 0.4:
                names = self._distinct_names(len(columns))
                columns = dict(zip(names, columns.values(), strict=True))
                renamed = f" ({', '.join(names)})"
            ctes.append(f"{name}{renamed} AS ({text})")
            self.ctes[name] = columns
        return f"WITH {', '.join(ctes)} "

    def _set_operation(self) -> str:
        word = self.draw.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "UNION DISTINCT"])
        kinds = ["INT", "STRING"]
        arms = [self.select(1, [], kinds=kinds, whole=False)[0] for _ in range(self.draw.randint(2, 3))]
        return f" {word} ".join(f"({arm})" if self.draw.random() < 0.3 else arm for arm in arms)

    def select(
        self,
        depth: int,
        outer: list[Source],
        *,
        outermost: bool = False,
        kinds: list[str] | None = None,
        whole: bool = True,
    ) -> tuple[str, dict[str, str]]:
        """A SELECT, and the names and types of what it gives."""
        draw = self.draw
        if depth > 0 and draw.random() < 0.06 and kinds is None:
            return self._pivot()
        sources, text = self._from(depth, outer)
        seen = [*sources, *outer]
        where = f" WHERE {self._condition(sources, seen, depth)}" if draw.random() < 0.85 else ""
        kinds = kinds or [draw.choice(["INT", "STRING"]) for _ in range(draw.randint(1, 3))]
        names = self._distinct_names(len(kinds))
        columns = dict(zip(names, kinds, strict=True))
        shape = draw.random()
        if shape < 0.3:
            return self._grouped(text + where, sources, names, kinds, whole=whole), columns
        if shape < 0.4:
            values = [self._aggregate(sources, kind) for kind in kinds]
            return f"SELECT {self._listed(values, names)}{text}{where}", columns
        if shape < 0.52:
            values = [self._window(sources) if kind == "INT" else self.value(kind, sources) for kind in kinds]
            return f"SELECT {self._listed(values, names)}{text}{where}", columns
        values = [self._result(kind, sources, seen, depth) for kind in kinds]
        # A later column may name an earlier one.
        if len(kinds) > 1 and kinds[0] == "INT" and draw.random() < 0.15:
            values[-1] = f"{names[0]} + 1" if kinds[-1] == "INT" else f"CONCAT({names[0]}, '')"
        distinct = "DISTINCT " if draw.random() < 0.15 else ""
        tail = ""
        if whole and draw.random() < (0.25 if outermost else 0.1):
            tail = f" ORDER BY {', '.join(names)}"
            if draw.random() < 0.6:
                tail += f" LIMIT {draw.randint(1, 6)}"
        return f"SELECT {distinct}{self._listed(values, names)}{text}{where}{tail}", columns

    def _grouped(self, rest: str, sources: list[Source], names: list[str], kinds: list[str], *, whole: bool) -> str:
        draw = self.draw
        keys = [self.value("STRING", sources), *([self.value("INT", sources)] if draw.random() < 0.4 else [])]
        values = [
            keys[place] if place < len(keys) and kind == ("STRING", "INT")[place] else self._aggregate(sources, kind)
            for place, kind in enumerate(kinds)
        ]
        style = draw.random()
        first = next((place for place, value in enumerate(values) if value in keys), None)
        if style < 0.12 and first is not None:
            grouped = ", ".join(names[first] if key == values[first] else key for key in keys)
        elif style < 0.2:
            grouped = "ALL"
        elif style < 0.27 and len(keys) == 2:
            grouped = f"{draw.choice(['ROLLUP', 'CUBE'])} ({', '.join(keys)})"
        else:
            grouped = ", ".join(keys)
        tail = f" GROUP BY {grouped}"
        if draw.random() < 0.3:
            place = draw.randrange(len(names))
            tail += (
                f" HAVING {names[place]} {'>= 0' if kinds[place] == 'INT' else 'IS NOT NULL'}"
                if draw.random() < 0.5
                else " HAVING COUNT(*) > <<num>>"
            )
        if whole and draw.random() < 0.15:
            tail += f" ORDER BY {', '.join(names)} LIMIT {draw.randint(1, 4)}"
        return f"SELECT {self._listed(values, names)}{rest}{tail}"

    def _pivot(self) -> tuple[str, dict[str, str]]:
        name, second_name = self.draw.sample(["shop", "num", "p", "the_day"], 2)
        where = self.draw.choice(["WHERE day = <<the_day>>", "WHERE store = <<shop>> AND id > 0"])
        values = self.draw.choice([f"'x' AS {name}, 'y' AS {second_name}", f"'x' {name}, 'z' AS {second_name}"])
        text = f"SELECT {name} AS n, {second_name} AS m FROM (SELECT v, k FROM collide.a {where}) PIVOT (SUM(v) FOR k IN ({values}))"
        return text, {"n": "INT", "m": "INT"}

    def _from(self, depth: int, outer: list[Source]) -> tuple[list[Source], str]:
        draw = self.draw
        sources: list[Source] = []
        text = ""
        for place in range(draw.choice([1, 1, 1, 2, 2, 3])):
            source, written = self._source(depth, [*sources, *outer], {source.alias for source in sources})
            if place == 0:
                sources.append(source)
                text = f" FROM {written}"
                continue
            kind = draw.choice(
                [
                    "JOIN",
                    "JOIN",
                    "LEFT JOIN",
                    "LEFT JOIN",
                    "RIGHT JOIN",
                    "FULL JOIN",
                    "LEFT SEMI JOIN",
                    "LEFT ANTI JOIN",
                    ",",
                    "CROSS JOIN",
                    "USING",
                    "NATURAL JOIN",
                ]
            )
            if written.startswith("LATERAL") and kind not in {"JOIN", "LEFT JOIN", ",", "CROSS JOIN"}:
                kind = ","
            if (
                kind in {"NATURAL JOIN", "USING"}
                and "id" in source.columns
                and "id" in sources[-1].columns
                and len(sources) == 1
            ):
                text += f" JOIN {written} USING (id)"
                source.columns = {name: column for name, column in source.columns.items() if name != "id"}
            elif kind in {",", "CROSS JOIN", "NATURAL JOIN", "USING"}:
                text += f"{',' if kind == ',' else ' CROSS JOIN'} {written}"
            else:
                on = self._join_condition(sources, source)
                text += f" {kind} {written} ON {on}"
            if kind not in {"LEFT SEMI JOIN", "LEFT ANTI JOIN"}:
                sources.append(source)
        owner = next((source for source in sources if source.has_struct), None)
        if owner is not None and draw.random() < 0.15:
            alias, name = self._new("e", {source.alias for source in sources}), draw.choice(["shop", "num", "i", "v"])
            text += f" LATERAL VIEW {draw.choice(['', 'OUTER '])}EXPLODE({owner.alias}.items) {alias} AS {name}"
            sources.append(Source(alias, {name: "INT"}))
        return sources, text

    def _source(self, depth: int, seen: list[Source], taken: set[str]) -> tuple[Source, str]:
        draw = self.draw
        kind = draw.random()
        if kind < 0.12 and self.ctes:
            name = draw.choice(sorted(self.ctes))
            alias = self._new(name, taken)
            return Source(alias, dict(self.ctes[name])), name if alias == name else f"{name} AS {alias}"
        if kind < 0.3 and depth > 0:
            is_lateral = bool(seen) and draw.random() < 0.35
            text, columns = self.select(depth - 1, seen if is_lateral else [])
            alias = self._new(draw.choice(_ALIASES), taken)
            renamed = ""
            if draw.random() < 0.3:
                names = self._distinct_names(len(columns))
                columns = dict(zip(names, columns.values(), strict=True))
                renamed = f"({', '.join(names)})"
            return Source(
                alias, columns
            ), f"{'LATERAL ' if is_lateral else ''}({text}) {draw.choice(['', 'AS '])}{alias}{renamed}"
        if kind < 0.36:
            alias, names = self._new(draw.choice(_ALIASES), taken), self._distinct_names(2)
            return Source(
                alias, dict(zip(names, ["INT", "STRING"], strict=True))
            ), f"(VALUES (1, 'x'), (2, \"L'Aquila\"), (3, NULL)) AS {alias}({', '.join(names)})"
        table = draw.choice(["a", "a", "b", "st"])
        columns = {name: type_name for name, type_name in TABLES[table].items() if type_name in {"INT", "STRING"}}
        if draw.random() < 0.35 and table not in taken:
            return Source(table, columns, table == "a"), f"collide.{table}"
        alias = self._new(draw.choice(_ALIASES), taken)
        return Source(alias, columns, table == "a"), f"collide.{table} {draw.choice(['', 'AS '])}{alias}"

    def _new(self, name: str, taken: set[str] | dict[str, dict[str, str]]) -> str:
        while name in taken:
            name += self.draw.choice("xyz")
        return name

    def _distinct_names(self, count: int) -> list[str]:
        return self.draw.sample(_NAMES, count)

    def _listed(self, values: list[str], names: list[str]) -> str:
        return ", ".join(
            f"{value} {self.draw.choice(['AS ', 'AS ', ''])}{name}" for value, name in zip(values, names, strict=True)
        )

    def value(self, kind: str, sources: list[Source]) -> str:
        """A column or a literal, or something of them, without subqueries."""
        draw = self.draw
        owners = [(source, name) for source in sources for name, of in source.columns.items() if of == kind]
        if not owners or draw.random() < 0.12:
            return draw.choice(
                ["<<num>>", "1", "-2"]
                if kind == "INT"
                else ["<<shop>>", "<<the_day>>", "'O''Brien'", "'<the_day>'", r"'a\'b'", "''"]
            )
        source, name = draw.choice(owners)
        structs = [source for source in sources if source.has_struct]
        if structs and draw.random() < 0.25:
            of = draw.choice(structs)
            struct_sources = [
                source
                for source in sources
                if source is not of and (source.has_struct or "st" in source.columns or source.alias == "st")
            ]
            path = "st" if draw.random() < (0.05 if struct_sources else 0.5) else f"{of.alias}.st"
            return f"{path}.{'a' if kind == 'INT' else 'b'}"
        everywhere = {id(visible_source): visible_source for visible_source in [*sources, *self.beside]}.values()
        # A bare name that a variable has too is refused, wherever it stands.
        if (
            draw.random() < (0.03 if name in VARIABLES else 0.3)
            and sum(name in visible_source.columns for visible_source in everywhere) == 1
        ):
            return name
        return f"{source.alias}.{name}"

    def _result(self, kind: str, sources: list[Source], seen: list[Source], depth: int) -> str:
        draw, operand = self.draw, self.value(kind, sources)
        how = draw.random()
        if how < 0.5:
            return operand
        if how < 0.6 and depth > 0:
            inner, text = self._from(0, [])
            where = self._correlated(inner, seen)
            return f"(SELECT {'SUM' if kind == 'INT' else 'MAX'}({self.value(kind, inner)}){text} WHERE {where})"
        if kind == "INT":
            return draw.choice(
                [
                    f"{operand} + <<num>>",
                    f"COALESCE({operand}, <<num>>)",
                    f"CASE WHEN {self.value('STRING', sources)} = <<shop>> THEN {operand} ELSE 0 END",
                    f"LENGTH({self.value('STRING', sources)})",
                    f"-({operand})",
                    f"({operand})",
                ]
            )
        return draw.choice(
            [
                f"CONCAT({operand}, '|', <<shop>>)",
                f"{operand} || <<the_day>>",
                f"NVL({operand}, <<the_day>>)",
                f"UPPER({operand})",
                f"IF({operand} = <<shop>>, 'mine', {operand})",
                f"NULLIF({operand}, <<shop>>)",
            ]
        )

    def _aggregate(self, sources: list[Source], kind: str) -> str:
        draw = self.draw
        if kind == "STRING":
            return draw.choice(
                [
                    f"MAX({self.value('STRING', sources)})",
                    f"MIN({self.value('STRING', sources)})",
                    f"CONCAT_WS(',', SORT_ARRAY(COLLECT_SET({self.value('STRING', sources)})))",
                ]
            )
        operand = self.value("INT", sources)
        return draw.choice(
            [
                "COUNT(*)",
                f"SUM({operand})",
                f"COUNT(DISTINCT {operand})",
                f"COUNT({operand})",
                f"MAX({operand} + <<num>>)",
                f"SUM({operand}) FILTER (WHERE {self.value('STRING', sources)} <> <<shop>>)",
                f"COUNT_IF({self.value('STRING', sources)} = <<the_day>>)",
            ]
        )

    def _window(self, sources: list[Source]) -> str:
        operand, by = self.value("INT", sources), self.value("STRING", sources)
        return self.draw.choice(
            [
                f"SUM({operand}) OVER (PARTITION BY {by})",
                "COUNT(*) OVER ()",
                f"RANK() OVER (ORDER BY {by})",
                f"MAX({operand}) OVER (PARTITION BY {by} ORDER BY {operand})",
                f"DENSE_RANK() OVER (PARTITION BY {by} ORDER BY {operand} DESC)",
            ]
        )

    def _join_condition(self, sources: list[Source], source: Source) -> str:
        kind = self.draw.choice(["INT", "STRING"])
        before, self.beside = self.beside, [*sources, source]
        left, right = self.value(kind, sources), self.value(kind, [source])
        more = self.draw.choice(
            [
                "",
                "",
                f" AND {self.value('STRING', [source])} = <<shop>>",
                f" AND {self.value('STRING', sources)} = <<the_day>>",
                " AND <<num>> > 1",
            ]
        )
        self.beside = before
        return f"{left} {self.draw.choice(['=', '=', '<=', '<=>'])} {right}{more}"

    def _correlated(self, inner: list[Source], seen: list[Source]) -> str:
        kind = self.draw.choice(["INT", "STRING"])
        own = self.draw.choice(
            ["", f" AND {self.value('STRING', inner)} = <<the_day>>", f" AND {self.value('STRING', inner)} >= <<shop>>"]
        )
        names = {source.alias for source in inner}
        outer_sources = [source for source in seen if source.alias not in names] or inner
        return f"{self.value(kind, inner)} = {self.value(kind, outer_sources)}{own}"

    def _condition(self, sources: list[Source], seen: list[Source], depth: int) -> str:
        draw = self.draw
        parts = []
        for _ in range(draw.choice([1, 1, 2])):
            how = draw.random()
            text = self.value("STRING", seen if draw.random() < 0.3 else sources)
            if how < 0.25:
                parts.append(
                    f"{text} {draw.choice(['=', '<=', '<>', '>=', '<=>'])} {draw.choice(['<<the_day>>', '<<shop>>'])}"
                )
            elif how < 0.4:
                parts.append(f"{self.value('INT', seen)} {draw.choice(['<', '>=', '<>'])} {self.value('INT', sources)}")
            elif how < 0.5:
                parts.append(f"{text} IN (<<the_day>>, <<shop>>, 'x')")
            elif how < 0.6:
                parts.append(f"({text} = <<the_day>> OR {self.value('INT', sources)} > <<num>>)")
            elif how < 0.85 and depth > 0:
                inner, from_ = self._from(0, [])
                if draw.random() < 0.6:
                    parts.append(
                        f"{draw.choice(['', 'NOT '])}EXISTS (SELECT 1{from_} WHERE {self._correlated(inner, sources)})"
                    )
                else:
                    parts.append(
                        f"{text} {draw.choice(['', 'NOT '])}IN (SELECT {self.value('STRING', inner)}{from_} WHERE {self._correlated(inner, sources)})"
                    )
            else:
                parts.append(f"{text} BETWEEN <<the_day>> AND 'x'")
        return draw.choice([" AND ", " AND ", " OR "]).join(parts)


def random_queries(count: int, seed: int) -> list[str]:
    """So many queries."""
    grammar = Grammar(random.Random(seed))
    return [grammar.query() for _ in range(count)]
