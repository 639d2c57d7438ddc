"""Decides from Spark's own plan (EXPLAIN EXTENDED, before each run) whether many scopes can share a query.

The plan of one scope's query may consist of these operators only. tests/sql/test_together.py shows for each of them
that many scopes computed together give the rows of each one computed alone, and that the list has no others. An
operator that another version of Spark adds is not on the list, and its queries run scope by scope until a test covers
it.

The plan for many scopes is checked too: Spark 4.3 accepts some correlated queries in its analyzer and optimizer that it
cannot run, and fails only in the middle of a job.

Not here: the forms of the query (scope_join.py, execute.py), and what its text alone tells (shared_query.py).
"""

from __future__ import annotations

import re

# Operators of analyzed plans, as they stand at the start of a line; a join with its type.
SHARED = frozenset({
    "Aggregate", "CTERelationDef", "CTERelationRef", "Distinct", "Except", "Expand", "Filter", "Generate",
    "GlobalLimit", "Intersect", "Join Cross", "Join Inner", "Join LeftAnti", "Join LeftOuter", "Join LeftSemi",
    "Join RightOuter", "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Project",
    "ResolvedHint", "Sort", "SubqueryAlias", "Union", "View", "Window", "WithCTE",
})  # fmt: skip
# Operators that only read: the inputs of a run, whatever they are in Spark.
READS = frozenset({
    "DataSourceV2Relation", "HiveTableRelation", "InMemoryRelation", "LogicalRDD", "LogicalRelation", "Range",
    "Relation", "RelationV2",
})  # fmt: skip
_OPERATOR = re.compile(r"^[ :|!+*-]*'?([A-Z]\w*)(?=[ \[(]|$)(?: ([A-Z]\w+)\b)?", re.MULTILINE)
# An aggregate function that only PIVOT produces.
_PIVOTED = "pivotfirst("
_CUT = re.compile(r"\.\.\. \d+ more fields")
_OUTER = re.compile(r"\bouter\(")
# Spark marks an operator that reads a column which nothing below it has.
_LACKS_COLUMN = re.compile(r"^[ :|+*-]*!'?[A-Z]", re.MULTILINE)


def operators(explained: str) -> frozenset[str]:
    """Return the operators of the analyzed plan in the output of EXPLAIN EXTENDED."""
    names = set()
    for operator, kind in _OPERATOR.findall(_section(explained, "Analyzed")):
        names.add(f"{operator} {kind}" if operator == "Join" else operator)
    if _PIVOTED in explained:
        names.add("Pivot")
    return frozenset(names)


def not_shared(explained: str) -> str:
    """Return the first operator of one scope's query that many scopes cannot share; empty where there is none."""
    return min(operators(explained) - SHARED - READS, default="")


def cannot_run(explained: str) -> bool:
    """Whether the optimized plan refers to a column of an outer query, or of a join, where Spark cannot provide it.

    So it is where a correlated subquery and its outer query read one CTE that names a variable of the scope. Also True
    where the plan was printed truncated.
    """
    optimized = _section(explained, "Optimized")
    return any(pattern.search(optimized) for pattern in (_OUTER, _LACKS_COLUMN, _CUT))


def _section(explained: str, name: str) -> str:
    """Return the lines of one plan, without the line of column names and types at its start."""
    begin_to_end = rf"^== {name} Logical Plan ==\n(.*?)(?=^== \w+ (?:Logical )?Plan ==$|\Z)"
    match = re.search(begin_to_end, explained, re.MULTILINE | re.DOTALL)
    if match is None:
        return "Unknown"
    text = match[1]
    # The columns of the plan stand first, in a line of their own.
    return text.partition("\n")[2] if name == "Analyzed" else text
