"""Words of other SQL dialects that Spark does not have, and what to write instead.

tests/sql/test_habits.py asks the running Spark that it has none of them.

Not here: where they are searched (checks/habits.py, refused_tokens.py).
"""

from __future__ import annotations

# Functions, by their name in the other dialect.
FUNCTIONS = {
    "AGE": "DATEDIFF(later, earlier)",
    "APPROX_DISTINCT": "APPROX_COUNT_DISTINCT(value)",
    "ARG_MAX": "MAX_BY(value, by)",
    "ARG_MIN": "MIN_BY(value, by)",
    "ARRAY_LENGTH": "SIZE(values)",
    "ARRAY_TO_STRING": "ARRAY_JOIN(values, ',')",
    "CHARINDEX": "INSTR(text, part)",
    "CHOOSE": "ELT(number, first, second)",
    "CONVERT": "CAST(value AS type)",
    "COUNTIF": "COUNT_IF(condition)",
    "DATE_PARSE": "TO_DATE(text, 'yyyy-MM-dd')",
    "DATEFROMPARTS": "MAKE_DATE(year, month, day)",
    "DIV0": "COALESCE(TRY_DIVIDE(a, b), 0)",
    "EOMONTH": "LAST_DAY(date)",
    "EPOCH": "UNIX_TIMESTAMP(value)",
    "FORMAT": "FORMAT_STRING('%s', value)",
    "FORMAT_DATE": "DATE_FORMAT(value, 'yyyy-MM-dd')",
    "GENERATE_ARRAY": "SEQUENCE(first, last)",
    "GENERATE_DATE_ARRAY": "SEQUENCE(first, last)",
    "GENERATE_SERIES": "EXPLODE(SEQUENCE(first, last)), as a column or behind LATERAL",
    "GETDATE": "t_end, the end of the scope's window",
    "GROUP_CONCAT": "LISTAGG(value, ',')",
    "IFF": "IF(condition, then, else)",
    "IIF": "IF(condition, then, else)",
    "JSON_BUILD_OBJECT": "TO_JSON(NAMED_STRUCT('name', value))",
    "JSON_EXTRACT": "GET_JSON_OBJECT(text, '$.name')",
    "JSON_EXTRACT_SCALAR": "GET_JSON_OBJECT(text, '$.name')",
    "LIST_TRANSFORM": "TRANSFORM(values, value -> ...)",
    "LOGICAL_AND": "BOOL_AND(condition)",
    "LOGICAL_OR": "BOOL_OR(condition)",
    "OBJECT_CONSTRUCT": "NAMED_STRUCT('name', value)",
    "PARSE_DATE": "TO_DATE(text, 'yyyy-MM-dd')",
    "QUANTILE": "PERCENTILE(value, 0.5)",
    "REGEXP_CONTAINS": "REGEXP_LIKE(text, pattern)",
    "REPLICATE": "REPEAT(text, times)",
    "SAFE_CAST": "TRY_CAST(value AS type)",
    "SAFE_DIVIDE": "TRY_DIVIDE(a, b)",
    "SHA256": "SHA2(value, 256)",
    "STR_TO_DATE": "TO_DATE(text, 'yyyy-MM-dd')",
    "STRFTIME": "DATE_FORMAT(value, 'yyyy-MM-dd')",
    "STRPOS": "INSTR(text, part)",
    "SYSDATE": "t_end, the end of the scope's window",
    "TIMESTAMP_TRUNC": "DATE_TRUNC('day', value)",
    "TO_BASE64": "BASE64(value)",
    "TO_HEX": "HEX(value)",
    "TO_JSON_STRING": "TO_JSON(value)",
    "TO_UNIXTIME": "UNIX_TIMESTAMP(value)",
    "TRUNCATE": "FLOOR(value, digits)",
}  # fmt: skip
# Types, by their name in a cast.
TYPES = {
    "BIGNUMERIC": "DECIMAL(38, 18)",
    "BLOB": "BINARY",
    "BOOL": "BOOLEAN",
    "BYTEA": "BINARY",
    "BYTES": "BINARY",
    "DATETIME": "TIMESTAMP",
    "FLOAT4": "FLOAT",
    "FLOAT64": "DOUBLE",
    "FLOAT8": "DOUBLE",
    "INT2": "SMALLINT",
    "INT32": "INT",
    "INT4": "INT",
    "INT64": "BIGINT",
    "INT8": "BIGINT",
    "JSON": "STRING",
    "NUMBER": "DECIMAL(38, 0)",
    "NVARCHAR": "STRING",
    "SERIAL": "INT",
    "SIGNED": "BIGINT",
    "TEXT": "STRING",
    "TIMESTAMPTZ": "TIMESTAMP",
    "UNSIGNED": "BIGINT",
    "UUID": "STRING",
}
# Types that Spark has with a length only.
SIZED = ("CHAR", "VARCHAR")
# The units that TRUNC and DATE_TRUNC have: for a text that is none of them, their value is NULL.
_DAYS = frozenset({"YEAR", "YYYY", "YY", "QUARTER", "MONTH", "MON", "MM", "WEEK"})
TRUNC_UNITS = {
    "TRUNC": _DAYS,
    "DATE_TRUNC": _DAYS | {"DAY", "DD", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"},
}
# What people write for units, and which they mean.
UNIT_NAMES = {
    "D": "DAY", "DD": "DAY", "H": "HOUR", "M": "MONTH", "MS": "MILLISECOND", "NS": "MICROSECOND", "Q": "QUARTER",
    "S": "SECOND", "US": "MICROSECOND", "W": "WEEK", "Y": "YEAR",
    **{unit: unit for unit in ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")},
}  # fmt: skip
