"""What Spark's own plan says of a query that many scopes are to share: read from EXPLAIN EXTENDED, before each run.

The query of one scope may be made of these operators only; tests/sql/test_together.py shows for each of
them that the rows of many scopes together are those of each by itself, and that the list holds no other. An operator
that another version of Spark brings is not on the list, and its queries run scope by scope until a test has it.

The form for many scopes is looked at too: Spark 4.3 passes some correlated queries through its analyzer and optimizer
that it cannot run, and says so only in the middle of a job.

Not here: the forms themselves (scope_join.py, execute.py), and what the text alone tells of them (shared_query.py).
"""

from __future__ import annotations

import re

# Operators of analyzed plans, as they begin a line; a join with its type.
SHARED = frozenset({
    "Aggregate", "CTERelationDef", "CTERelationRef", "Distinct", "Except", "Expand", "Filter", "Generate",
    "GlobalLimit", "Intersect", "Join Cross", "Join Inner", "Join LeftAnti", "Join LeftOuter", "Join LeftSemi",
    "Join RightOuter", "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Project",
    "ResolvedHint", "Sort", "SubqueryAlias", "Union", "View", "Window", "WithCTE",
})  # fmt: skip
# What only reads: the inputs of a run, whatever they are in Spark.
READS = frozenset({
    "DataSourceV2Relation", "HiveTableRelation", "InMemoryRelation", "LogicalRDD", "LogicalRelation", "Range",
    "Relation", "RelationV2",
})  # fmt: skip
_OPERATOR = re.compile(r"^[ :|!+*-]*'?([A-Z]\w*)(?=[ \[(]|$)(?: ([A-Z]\w+)\b)?", re.MULTILINE)
# An aggregate that only PIVOT makes.
_PIVOTED = "pivotfirst("
_CUT = re.compile(r"\.\.\. \d+ more fields")


def operators(explained: str) -> frozenset[str]:
    """The operators of the analyzed plan in what EXPLAIN EXTENDED says."""
    found = set()
    for operator, kind in _OPERATOR.findall(_section(explained, "Analyzed")):
        found.add(f"{operator} {kind}" if operator == "Join" else operator)
    if _PIVOTED in explained:
        found.add("Pivot")
    return frozenset(found)


def not_shared(explained: str) -> str:
    """The first operator of one scope's query that many scopes cannot share; empty where there is none."""
    return min(operators(explained) - SHARED - READS, default="")


def is_left_correlated(explained: str) -> bool:
    """Whether the optimizer left a column of an outer query where it cannot be had, as far as the plan is shown."""
    optimized = _section(explained, "Optimized")
    return "outer(" in optimized or _CUT.search(optimized) is not None


def _section(explained: str, name: str) -> str:
    """The lines of one plan, without the names and types of the columns that it begins with."""
    begin_to_end = rf"^== {name} Logical Plan ==\n(.*?)(?=^== \w+ (?:Logical )?Plan ==$|\Z)"
    found = re.search(begin_to_end, explained, re.MULTILINE | re.DOTALL)
    if found is None:
        return "Unknown"
    text = found[1]
    # Its columns come first, in a line of their own.
    return text.partition("\n")[2] if name == "Analyzed" else text
