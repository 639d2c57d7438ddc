"""Breaking changes by the use of columns: what is broken, where, and what is not."""

from __future__ import annotations

import sqlglot

from varve.sql.checks.breaking import Break, Declared, breaks

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


def names(found: list[Break]) -> list[tuple[str, str, str]]:
    return sorted((each.dataset, each.upstream, each.column) for each in found)


def test_nothing_changed_breaks_nothing() -> None:
    assert changed(ROOT) == []


def test_a_dropped_column_breaks_who_names_it_and_who_names_it_through_a_star() -> None:
    dropped = {name: kind for name, kind in ROOT.items() if name != "nb"}
    # b.totals names it; b.copy only has a star, so its reader b.report is the next to name it.
    assert names(changed(dropped)) == [("b.report", "b.copy", "nb"), ("b.totals", "b.sales", "nb")]


def test_a_break_has_the_place_of_the_use() -> None:
    dropped = {name: kind for name, kind in ROOT.items() if name != "nb"}
    (found,) = [each for each in changed(dropped) if each.dataset == "b.totals"]
    meta = found.node.this.meta
    assert TEXTS["b.totals"][meta["start"] : meta["end"] + 1] == "nb"


def test_a_renamed_column_is_told_with_its_likely_new_name() -> None:
    renamed = {("sold" if name == "nb" else name): kind for name, kind in ROOT.items()}
    found = [each for each in changed(renamed) if each.dataset == "b.totals"]
    assert [each.message for each in found] == ["b.sales no longer has nb; it may be called sold now."]


def test_what_reads_a_broken_dataset_is_not_broken_by_it() -> None:
    dropped = {name: kind for name, kind in ROOT.items() if name != "nb"}
    assert ("b.report", "b.totals", "total") not in names(changed(dropped))


def test_another_type_is_a_break_and_a_wider_one_is_not() -> None:
    assert names(changed({**ROOT, "nb": "bigint"})) == []
    assert ("b.totals", "b.sales", "nb") in names(changed({**ROOT, "nb": "string"}))
    assert names(changed({**ROOT, "revenue": "string"})) == []


def test_added_columns_and_unused_drops_are_no_breaks() -> None:
    assert changed({**ROOT, "added": "int"}) == []
    assert changed({name: kind for name, kind in ROOT.items() if name != "revenue"}) == []


def test_a_change_together_with_its_readers_is_no_break() -> None:
    renamed = {("sold" if name == "nb" else name): kind for name, kind in ROOT.items()}
    totals = TEXTS["b.totals"].replace("nb", "sold")
    report = TEXTS["b.report"].replace("c.nb", "c.sold")
    assert changed(renamed, totals=totals, report=report) == []


def test_a_dataset_that_is_gone_breaks_who_reads_it() -> None:
    found = changed(ROOT, copy="")
    assert [(each.dataset, each.upstream) for each in found] == [("b.report", "b.copy")]
    assert "no longer there" in found[0].message
