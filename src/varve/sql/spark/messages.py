"""Rewrites the errors of Spark's analyzer as one sentence with a remedy, with the names that the file uses.

Spark's own text quotes the query as Spark parsed it; only names and types are taken from it here.

Not here: the place of an error (refusals.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from varve.model.errors import nearest
from varve.sql.syntax.other_dialects import FUNCTIONS, SIZED, TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

_REWRITTEN = re.compile(r"^Cannot resolve \".*\" due to data type mismatch: ", re.DOTALL)


def spark_message(error: PySparkException, names: Mapping[str, str], functions: Callable[[], Iterable[str]]) -> str:
    """Return the message of an error.

    `names` maps the names of our views to datasets, and `functions` returns the names of Spark's functions.
    """
    condition = str(error.getCondition() or "")
    parameters = {name: _renamed(value, names) for name, value in (error.getMessageParameters() or {}).items()}
    kind = condition.partition(".")[0]
    if kind in {"UNRESOLVED_ROUTINE", "ROUTINE_NOT_FOUND", "UNRESOLVABLE_TABLE_VALUED_FUNCTION"}:
        name = _plain(parameters.get("routineName") or parameters.get("name", ""))
        instead = FUNCTIONS.get(name.upper())
        return f"Spark has no function {name}{f'; write {instead}.' if instead else f'.{nearest(name, functions())}'}"
    if kind == "UNRESOLVED_COLUMN":
        name, proposals = _plain(parameters["objectName"]), _listed(parameters.get("proposal", ""))
        seen = f" Columns that can be seen here: {', '.join(sorted(proposals))}." if proposals else ""
        return f"there is no column {name} here.{_nearest_column(name, proposals) or seen}"
    if (rule := _RULES.get(kind)) is not None:
        return rule(parameters)
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    message = lines[0].split("] ", 1)[-1].split(" SQLSTATE")[0] if lines else condition
    message = _REWRITTEN.sub("", _renamed(message, names)).replace('"', "")
    return f"Spark refuses this: {message[:1].lower()}{message[1:]}"


def functions_of(spark: SparkSession) -> list[str]:
    """Return the names of Spark's functions."""
    return [str(row[0]) for row in spark.sql("SHOW FUNCTIONS").collect()]


def _type_mismatch(parameters: Mapping[str, str]) -> str:  # noqa: PLR0911 - one for each kind
    if parameters.get("filter"):
        kind = _plain(parameters["type"])
        return f"the condition is {kind}, where TRUE or FALSE is expected; compare it with something."
    left, right = parameters.get("left", ""), parameters.get("right", "")
    if left and right:
        types = f"{_plain(left)} and {_plain(right)}"
        return f"the two sides have the types {types}, which do not go together; CAST one of them."
    given_type = _plain(parameters.get("inputType") or parameters.get("actualDataType") or "")
    required_type = _plain(parameters.get("requiredType") or parameters.get("inputType") or "")
    if parameters.get("actualDataType") == '"STRING"' and "NUMERIC" in required_type:
        return "this counts with a text; write || to join texts, or CAST(... AS DOUBLE) for the number in it."
    if given_type and required_type and given_type != required_type:
        which = f"the {parameters['paramIndex']} argument" if parameters.get("paramIndex") else "this"
        return f"{which} is {given_type}, where {required_type} is expected; CAST it."
    if parameters.get("srcType") and parameters.get("targetType"):
        return f"{_plain(parameters['srcType'])} cannot be cast to {_plain(parameters['targetType'])}."
    if parameters.get("dataType"):
        types = parameters["dataType"].replace('"', "")
        return f"the arguments have types that do not go together: {types.strip('[]()')}; CAST them to one."
    return "types do not go together here; CAST one of them."


def _wrong_number(parameters: Mapping[str, str]) -> str:
    name = _plain(parameters.get("functionName", "")).upper()
    expected_count = parameters.get("expectedNum", "").strip("[]").replace(", ", " or ")
    return f"{name} takes {expected_count} arguments, not {parameters.get('actualNum', '')}."


def _no_type(parameters: Mapping[str, str]) -> str:
    name = _plain(parameters.get("typeName") or parameters.get("type", "")).upper()
    if name in SIZED:
        return f"Spark has {name} with a length only; write STRING."
    return (
        f"Spark has no type {name}; write {TYPES.get(name, 'one of its own, like STRING, BIGINT, DOUBLE, TIMESTAMP')}."
    )


def _ambiguous(parameters: Mapping[str, str]) -> str:
    owners = ", ".join(_listed(parameters.get("referenceNames", "").strip("[]")))
    return f"{_plain(parameters.get('name', ''))} is a column of more than one table here: {owners}; write which."


def _not_grouped(parameters: Mapping[str, str]) -> str:
    name = _plain(parameters.get("expression", ""))
    return f"{name} is neither in GROUP BY nor within an aggregate; add it to GROUP BY, or write ANY_VALUE({name})."


_RULES: dict[str, Callable[[Mapping[str, str]], str]] = {
    "DATATYPE_MISMATCH": _type_mismatch,
    "WRONG_NUM_ARGS": _wrong_number,
    "UNSUPPORTED_DATATYPE": _no_type,
    "DATATYPE_MISSING_SIZE": _no_type,
    "AMBIGUOUS_REFERENCE": _ambiguous,
    "MISSING_AGGREGATION": _not_grouped,
    "MISSING_GROUP_BY": lambda _: (
        "columns and aggregates stand side by side here, without GROUP BY; add GROUP BY, or OVER (...) behind the "
        "aggregates."
    ),
    "INVALID_WHERE_CONDITION": lambda _: "WHERE cannot have aggregates or window functions; write HAVING, or QUALIFY.",
    "FIELD_NOT_FOUND": lambda args: (
        f"the struct has no field {_plain(args['fieldName'])}; it has {', '.join(_listed(args['fields']))}."
        f"{nearest(_plain(args['fieldName']), _listed(args['fields']))}"
    ),
    "PARSE_SYNTAX_ERROR": lambda args: f"Spark did not expect {args.get('error', 'this')} here.",
    "TRAILING_COMMA_IN_SELECT": lambda _: "a comma too many before FROM; take it out.",
    "WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE": lambda args: (
        f"{_plain(args['funcName']).partition('(')[0].upper()} needs OVER (PARTITION BY ... ORDER BY ...)."
    ),
    "NUM_COLUMNS_MISMATCH": lambda args: (
        f"the sides of {args['operator']} have {args['firstNumColumns']} and {args['invalidNumColumns']} columns; "
        "give both the same."
    ),
    "INCOMPATIBLE_COLUMN_TYPE": lambda args: (
        f"the {args['columnOrdinalNumber']} column is {_plain(args['dataType2'])} on one side of {args['operator']} "
        f"and {_plain(args['dataType1'])} on the other; CAST one of them."
    ),
    "UNRESOLVED_USING_COLUMN_FOR_JOIN": lambda args: (
        f"the {args['side']} side of the join has no column {_plain(args['colName'])}."
        f"{nearest(_plain(args['colName']), _listed(args['suggestion']))}"
    ),
    "CANNOT_RESOLVE_STAR_EXPAND": lambda args: f"nothing here is called {_plain(args['targetString'])}.",
    "TABLE_OR_VIEW_NOT_FOUND": lambda args: f"there is no table {_plain(args['relationName'])}; a dataset is db.table.",
    "UNSUPPORTED_TYPED_LITERAL": lambda args: (
        f"a text right behind {_plain(args['unsupportedType']).lower()} makes no sense to Spark; is a comma or AS "
        "missing?"
    ),
}


def _nearest_column(name: str, proposals: Iterable[str]) -> str:
    """Return a hint with the nearest proposal; without its table, where the name was written without one."""
    last = name.rpartition(".")[2]
    listed = list(proposals)
    return nearest(name, listed) or nearest(last, [proposal.rpartition(".")[2] for proposal in listed])


def _plain(quoted: str) -> str:
    return quoted.replace("`", "").replace('"', "").strip()


def _listed(quoted: str) -> list[str]:
    return [_plain(name) for name in quoted.split(", ") if name]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for ours, theirs in names.items():
        text = text.replace(f"`{ours}`", f"`{theirs}`").replace(ours, theirs)
    return text
