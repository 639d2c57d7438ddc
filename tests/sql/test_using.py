"""What a column of JOIN ... USING is, and which conditions pass a PIVOT; rows are compared in test_predicates.py."""

from __future__ import annotations

import pytest

from tests.sql.test_soundness import planned


def conditions(query: str) -> list[list[str]]:
    """The conditions of each scan."""
    query_scans, _, _ = planned(query)
    return [[condition.sql("spark").replace("`", "") for condition in scan.conditions] for scan in query_scans.scans]


@pytest.mark.parametrize(
    ("join", "column"),
    [
        ("JOIN", "s.store"),
        ("LEFT JOIN", "s.store"),
        ("RIGHT JOIN", "c.store"),
        ("FULL JOIN", "COALESCE(s.store, c.store)"),
    ],
)
def test_a_column_of_using_is_the_kept_sides(join: str, column: str) -> None:
    _, _, tree = planned(
        f"SELECT store, COALESCE(s.store, c.store) AS own FROM b.sales s {join} b.costs c USING (store)"
    )
    assert [projection.unalias().sql("spark") for projection in tree.selects] == [column, "COALESCE(s.store, c.store)"]


def test_its_conditions_count_for_both_sides() -> None:
    for join in ("JOIN", "LEFT JOIN"):
        sales, costs = conditions(f"SELECT s.n FROM b.sales s {join} b.costs c USING (store) WHERE store = 'Paris'")
        assert "@0.store = 'Paris'" in sales
        assert "@1.store = 'Paris'" in costs


def test_conditions_pass_a_pivot_on_columns_that_it_does_not_name() -> None:
    pivot = "PIVOT (SUM(n) FOR store IN ('Paris' AS p, 'Lyon' AS q))"
    inner = "(SELECT day, store, n FROM b.sales)"
    assert conditions(f"SELECT * FROM {inner} {pivot} WHERE day = pd AND p > 1") == [["@0.day = @scope.pd"]]
    assert conditions(f"SELECT x.day FROM {inner} {pivot} x WHERE x.day = pd") == [["@0.day = @scope.pd"]]
    assert conditions(f"SELECT * FROM {inner} PIVOT (MAX(day) FOR store IN ('Paris' AS day)) WHERE day = pd") == [[]]


def test_a_condition_that_is_false_for_a_scope_reads_nothing() -> None:
    _, (reading,), _ = planned("SELECT s.n FROM b.sales s WHERE s.day <= pd AND st = 'Paris'")
    # The scopes are of Paris, Detroit, Lyon and Oslo.
    assert [reading.reads(scope) for scope in range(4)] == [True, False, False, False]
    query_scans, (reading,), _ = planned("SELECT s.n FROM b.sales s WHERE 1 = 0")
    assert not reading.reads(0)
    assert query_scans.unrestricted
