"""Breaking changes by the use of columns: what is broken, where, and what is not."""

from __future__ import annotations

import re

import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from varve.sql.checks.breaking import Break, Declared, breaks, holds

ROOT = {"product": "string", "nb": "int", "revenue": "decimal(10,2)", "day": "string"}
OLD_COLUMNS = {
    "b.sales": ROOT,
    "b.totals": {"product": "string", "total": "bigint", "day": "string"},
    "b.copy": ROOT,
    "b.counts": {"n": "bigint"},
    "b.top": {"product": "string"},
    "b.report": {"product": "string", "share": "double"},
}
TEXTS = {
    "b.totals": "SELECT product, SUM(nb) AS total FROM b.sales WHERE day = pd GROUP BY product",
    "b.copy": "SELECT * FROM b.sales",
    "b.counts": "SELECT COUNT(*) AS n FROM b.sales WHERE day = pd",
    "b.top": "WITH x AS (SELECT * FROM b.sales) SELECT product FROM x WHERE day = pd",
    "b.report": "SELECT t.product, t.total / c.nb AS share FROM b.totals t JOIN b.copy c ON c.product = t.product",
}


def changed(root: dict[str, str] | None, **texts: str) -> list[Break]:
    """The breaks after the root has other columns (None: it is gone), and some datasets other texts."""
    given = {**TEXTS, **{f"b.{name}": text for name, text in texts.items()}}
    new = {
        name: Declared(name, (sqlglot.parse_one(text, dialect="spark"),), None, {}, {"pd": "string"})
        for name, text in given.items()
        if text
    }
    if root is not None:
        new["b.sales"] = Declared("b.sales", (), root)
    old = {**OLD_COLUMNS, "b.totals": {"product": "string", "total": "bigint"}}
    return breaks(old, new)


def names(found_breaks: list[Break]) -> list[tuple[str, str, str]]:
    return sorted((found_break.dataset, found_break.upstream, found_break.column) for found_break in found_breaks)


def test_nothing_changed_breaks_nothing() -> None:
    assert changed(ROOT) == []


def test_a_dropped_column_breaks_who_names_it_and_who_names_it_through_a_star() -> None:
    dropped = {name: kind for name, kind in ROOT.items() if name != "nb"}
    # b.totals names it; b.copy only has a star, so its reader b.report is the next to name it.
    assert names(changed(dropped)) == [("b.report", "b.copy", "nb"), ("b.totals", "b.sales", "nb")]


def test_a_break_has_the_place_of_the_use() -> None:
    dropped = {name: kind for name, kind in ROOT.items() if name != "nb"}
    (total_break,) = [found_break for found_break in changed(dropped) if found_break.dataset == "b.totals"]
    meta = total_break.node.this.meta
    assert TEXTS["b.totals"][meta["start"] : meta["end"] + 1] == "nb"


def test_a_column_that_using_names_breaks_on_both_sides_at_its_place() -> None:
    for join in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"):
        for text in (
            f"SELECT total FROM b.totals {join} b.sales USING (product)",
            f"SELECT total FROM b.totals {join} (SELECT * FROM b.sales) s USING (product)",
            f"SELECT 1 AS one FROM b.sales {join} b.totals USING (product)",
        ):
            for root in ({**ROOT, "product": "int"}, {"nb": "int", "revenue": "decimal(10,2)", "day": "string"}):
                found_breaks = [broken for broken in changed(root, report=text) if broken.dataset == "b.report"]
                assert names(found_breaks) == [("b.report", "b.sales", "product")], text
                meta = found_breaks[0].node.this.meta
                assert text[: meta["end"] + 1].endswith("USING (product")


def test_a_column_that_a_star_leaves_out_is_named_and_its_type_does_not_matter() -> None:
    dropped = {name: kind for name, kind in ROOT.items() if name != "nb"}
    for text in (
        "SELECT * EXCEPT (nb) FROM b.sales",
        "SELECT S.* EXCEPT (day, S.NB) FROM b.sales s",
        "SELECT * EXCEPT (nb) FROM b.totals JOIN b.sales USING (product)",
        "SELECT COUNT(*) AS n FROM (SELECT * EXCEPT (nb) FROM (SELECT * FROM b.sales) x)",
    ):
        found_breaks = [broken for broken in changed(dropped, report=text) if broken.dataset == "b.report"]
        assert names(found_breaks) == [("b.report", "b.sales", "nb")], text
        meta = found_breaks[0].node.this.meta
        assert text[meta["start"] : meta["end"] + 1].lower() == "nb"
        assert [b for b in changed({**ROOT, "nb": "string"}, report=text) if b.dataset == "b.report"] == []


def test_a_column_that_a_pivot_names_breaks_it() -> None:
    for text, column in (
        ("SELECT * FROM b.sales PIVOT (SUM(NB) AS nb FOR product IN ('a' AS a))", "nb"),
        ("SELECT * FROM b.sales s PIVOT (SUM(nb) FOR product IN ('a' AS a))", "product"),
        ("SELECT * FROM (SELECT * FROM b.sales) PIVOT (SUM(nb) FOR (product, day) IN (('a', 'b') AS a))", "day"),
        ("WITH x AS (SELECT * FROM b.sales) SELECT * FROM x PIVOT (SUM(nb) FOR product IN ('a' AS a))", "nb"),
        ("SELECT v FROM b.sales UNPIVOT (v FOR k IN (nb, revenue AS r))", "revenue"),
        ("SELECT v FROM b.sales UNPIVOT ((v, w) FOR k IN ((nb, revenue) AS r))", "nb"),
    ):
        dropped = {name: kind for name, kind in ROOT.items() if name != column}
        found_breaks = [broken for broken in changed(dropped, report=text) if broken.dataset == "b.report"]
        assert names(found_breaks) == [("b.report", "b.sales", column)], text


def test_a_renamed_column_is_told_with_its_likely_new_name() -> None:
    renamed = {("sold" if name == "nb" else name): kind for name, kind in ROOT.items()}
    total_breaks = [found_break for found_break in changed(renamed) if found_break.dataset == "b.totals"]
    assert [found_break.message for found_break in total_breaks] == [
        "b.sales no longer has nb; it may be called sold now."
    ]


def test_what_reads_a_broken_dataset_is_not_broken_by_it() -> None:
    dropped = {name: kind for name, kind in ROOT.items() if name != "nb"}
    assert ("b.report", "b.totals", "total") not in names(changed(dropped))


def test_another_type_is_a_break_and_a_wider_one_is_not() -> None:
    assert names(changed({**ROOT, "nb": "bigint"})) == []
    assert ("b.totals", "b.sales", "nb") in names(changed({**ROOT, "nb": "string"}))
    assert names(changed({**ROOT, "revenue": "string"})) == []


def test_a_type_that_rounds_some_values_of_the_one_before_is_a_break() -> None:
    for before, now in (
        ("bigint", "double"),
        ("decimal(10,2)", "double"),
        ("decimal(16,0)", "double"),
        ("int", "float"),
    ):
        assert not holds(before, now)
    for before, now in (("int", "double"), ("decimal(15,0)", "double"), ("float", "double"), ("int", "decimal(10,0)")):
        assert holds(before, now)
    assert ("b.totals", "b.sales", "nb") not in names(changed({**ROOT, "nb": "double"}))
    assert ("b.report", "b.totals", "total") in names(
        changed(ROOT, totals=TEXTS["b.totals"].replace("SUM(nb)", "CAST(SUM(nb) AS DOUBLE)"))
    )


def test_added_columns_and_unused_drops_are_no_breaks() -> None:
    assert changed({**ROOT, "added": "int"}) == []
    assert changed({name: kind for name, kind in ROOT.items() if name != "revenue"}) == []


def test_a_change_together_with_its_readers_is_no_break() -> None:
    renamed = {("sold" if name == "nb" else name): kind for name, kind in ROOT.items()}
    totals = TEXTS["b.totals"].replace("nb", "sold")
    report = TEXTS["b.report"].replace("c.nb", "c.sold")
    assert changed(renamed, totals=totals, report=report) == []


def test_a_dataset_that_is_gone_breaks_who_reads_it() -> None:
    found_breaks = changed(ROOT, copy="")
    assert [(found_break.dataset, found_break.upstream) for found_break in found_breaks] == [("b.report", "b.copy")]
    assert "no longer there" in found_breaks[0].message


SIMPLE = (
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp",
    "timestamp_ntz", "binary", "char(3)", "varchar(20)", "variant", "interval day to second", "interval year to month",
)  # fmt: skip
SPELLINGS = {
    "tinyint": "BYTE", "smallint": "short", "int": "INTEGER", "bigint": "long", "float": "REAL",
    "timestamp": "timestamp_ltz",
}  # fmt: skip


@st.composite
def decimals(draw: st.DrawFn) -> str:
    precision = draw(st.integers(1, 38))
    return f"decimal({precision},{draw(st.integers(0, precision))})"


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.lists(inner, min_size=1, max_size=3).map(
        lambda kinds: ",".join(f"{'`a b`' if place == 2 else f'f{place}'}:{kind}" for place, kind in enumerate(kinds))
    )
    return st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        fields.map("struct<{}>".format),
    )


KINDS = st.recursive(st.one_of(st.sampled_from(SIMPLE), decimals()), nested, max_leaves=6)


def respelt(kind: str) -> str:
    """The same type as somebody else would write it."""
    for name, other in SPELLINGS.items():
        kind = re.sub(rf"\b{name}\b(?! *(to|_))", other, kind)
    return re.sub(r"([,:<(])", r"\1 ", kind).upper().replace("`A B`", "`a b`")


@given(kinds=st.dictionaries(st.sampled_from("abcdefg"), KINDS, min_size=1))
def test_a_tree_against_itself_breaks_nothing_whatever_its_types_are(kinds: dict[str, str]) -> None:
    names = ", ".join(f"s.{name}" for name in kinds)
    reader = Declared("b.reader", (sqlglot.parse_one(f"SELECT {names} FROM b.root s", dialect="spark"),), None)
    star = Declared("b.star", (sqlglot.parse_one("SELECT * FROM b.root", dialect="spark"),), None)
    last = Declared("b.last", (sqlglot.parse_one(f"SELECT {names} FROM b.star s", dialect="spark"),), None)
    for other in (kinds, {name: respelt(kind) for name, kind in kinds.items()}):
        new = {"b.root": Declared("b.root", (), other), "b.reader": reader, "b.star": star, "b.last": last}
        assert breaks(dict.fromkeys(new, kinds), new) == []


@given(kind=KINDS, other=decimals())
def test_a_type_holds_itself_however_it_is_spelt_and_another_does_not_go_unnoticed(kind: str, other: str) -> None:
    assert holds(kind, respelt(kind))
    assert holds(respelt(kind), kind)
    assert not holds(f"array<{kind}>", kind)
    assert not holds("string", other)
