"""The body EXTERNAL: data that others produce, and where it is found.

Not here: how the sources are read (varve/sources).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from varve.model.errors import nearest
from varve.model.external import OF_FILES, ExternalTable, ExternalTableKind
from varve.model.landing.options import MAY_BE_EMPTY, OPTION_NAMES, LandingOptions, UnknownOption
from varve.sql.syntax.sql_file import Body, SqlDataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.sql.syntax.errors import Problem

LANDING = "landing"
# Not a source of rows: another project over the same catalog computes the dataset.
PROJECT = "project"
_OPTIONS = {
    LANDING: OPTION_NAMES,
    ExternalTableKind.TABLE.value: ("table", "changed"),
    ExternalTableKind.PARQUET.value: ("folder",),
    ExternalTableKind.POSTGRES.value: ("table", "url", "changed"),
    ExternalTableKind.JDBC.value: ("table", "url", "changed", "driver"),
    PROJECT: ("project",),
}
_ALL = {name for names in _OPTIONS.values() for name in names}
# Clauses about batches that are written.
_OF_BATCHES = ("EXPECT", "INDEX", "COMPACT", "GRANT SELECT TO", "SORTED BY", "BOUNDS", "ICEBERG", "RETAIN BATCHES")
# Clauses about what is written, and when.
_OF_ITS_PROJECT = (
    *_OF_BATCHES, "ON UPSTREAM CHANGE", "ON CODE CHANGE", "REFRESH LAST", "INCREMENTAL", "REJECT UP TO", "ALLOW",
    "FRESH WITHIN",
)  # fmt: skip
_NAME = re.compile(r"[^.\s'\"`]+\.[^.\s'\"`]+")
_EXAMPLES = {
    ExternalTableKind.TABLE.value: "",
    ExternalTableKind.POSTGRES.value: ", url = 'SHOP_POSTGRES_URL'",
    ExternalTableKind.JDBC.value: ", url = 'SHOP_JDBC_URL', changed = 'updated_at'",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*", re.ASCII)


def is_landing(sql: SqlDataset) -> bool:
    """Whether a dataset takes its rows from files of the landing folder."""
    return sql.body is Body.EXTERNAL and (sql.option("source") or LANDING) == LANDING


def landing_of(sql: SqlDataset) -> bool | LandingOptions:
    """Return whether a dataset takes landing files; as options, where the header says how they are read."""
    if not is_landing(sql):
        return False
    texts = _landing_texts(sql)
    return LandingOptions.of(texts) if texts else True


def project_of(sql: SqlDataset) -> str:
    """Return the project that computes a dataset, where that is another one; "" for all others."""
    is_of_project = sql.body is Body.EXTERNAL and sql.option("source") == PROJECT
    return (sql.option("project") or "") if is_of_project else ""


def external_of(sql: SqlDataset) -> ExternalTable | None:
    """Return the external table whose partitions a dataset takes; None where it takes none."""
    if sql.body is not Body.EXTERNAL or is_landing(sql) or sql.option("source") == PROJECT:
        return None
    options = dict(sql.options)
    kind = ExternalTableKind(options["source"])
    name = options["folder"] if kind is ExternalTableKind.PARQUET else options["table"]
    url, changed, driver = (options.get(option, "") for option in ("url", "changed", "driver"))
    return ExternalTable(kind, name, url, changed, sql.is_view, driver)


def external_problems(sql: SqlDataset) -> Iterator[Problem]:
    """Yield a problem for each source that is unknown, and for each option that is missing, wrong or superfluous."""
    if sql.body is not Body.EXTERNAL:
        return
    options = dict(sql.options)
    source = options.get("source") or LANDING
    if source not in _OPTIONS:
        hint = nearest(source, _OPTIONS)
        kinds = ", ".join(f"'{source_name}'" for source_name in _OPTIONS)
        yield sql.problem(sql.span_of("OPTIONS source"), f"source '{source}' is unknown; it is one of {kinds}.{hint}")
        return
    if sql.is_view:
        yield from _view_problems(sql, source, options)
    for name in options:
        if name in _ALL and name not in _OPTIONS[source]:
            yield sql.problem(sql.span_of(f"OPTIONS {name}"), f"source '{source}' has no option {name}.")
    if source == PROJECT:
        yield from _project_problems(sql, options)
        return
    if source != LANDING:
        yield from _table_problems(sql, source, options)
        return
    try:
        LandingOptions.of(_landing_texts(sql))
    except UnknownOption as error:
        yield sql.problem(sql.span_of(f"OPTIONS {error.name}"), error.problem)


def _landing_texts(sql: SqlDataset) -> dict[str, str]:
    """Return the options about landing files. An empty one is reported by options.py."""
    return {name: text for name, text in sql.options if name in OPTION_NAMES and (text or name in MAY_BE_EMPTY)}


def _view_problems(sql: SqlDataset, source: str, options: dict[str, str]) -> Iterator[Problem]:
    if source not in OF_FILES:
        yield sql.problem(
            sql.span_of("VIEW"),
            f"EXTERNAL VIEW reads files where they are, and source '{source}' has none that others keep; write source "
            "= 'table' or 'parquet', or EXTERNAL without VIEW, which copies.",
        )
    elif options.get("changed"):
        yield sql.problem(
            sql.span_of("OPTIONS changed"),
            "the files of an EXTERNAL VIEW tell that a partition was changed; leave the option out.",
        )
    for clause in ("STORED IN", *_OF_BATCHES):
        if clause in dict(sql.spans):
            yield sql.problem(
                sql.span_of(clause),
                f"{clause} is about batches that are written, and EXTERNAL VIEW writes none: the rows stay where their "
                "owner has them. Leave it out, or write EXTERNAL without VIEW, which copies.",
            )


def _project_problems(sql: SqlDataset, options: dict[str, str]) -> Iterator[Problem]:
    if not options.get("project"):
        example = f"OPTIONS (source = '{PROJECT}', project = 'shop')"
        yield sql.problem(
            sql.span_of("OPTIONS"), f"which project? Write {example}; `varve own` lists who has which dataset."
        )
    for clause in _OF_ITS_PROJECT:
        if clause in dict(sql.spans):
            yield sql.problem(
                sql.span_of(clause),
                f"{clause} is said where the dataset is computed, in its own project; here it is only read. Leave it "
                "out.",
            )


def _table_problems(sql: SqlDataset, source: str, options: dict[str, str]) -> Iterator[Problem]:
    at = sql.span_of("OPTIONS")
    if source == ExternalTableKind.PARQUET:
        if not options.get("folder"):
            example = f"OPTIONS (source = '{source}', folder = '/data/clicks')"
            yield sql.problem(at, f"which folder? Write {example}; below it are folders day=2026-01-31.")
        return
    example = f"OPTIONS (source = '{source}', table = 'db.name'{_EXAMPLES[source]})"
    if not options.get("table"):
        yield sql.problem(at, f"which table? Write {example}.")
    elif not _NAME.fullmatch(options["table"]):
        yield sql.problem(
            sql.span_of("OPTIONS table"), f"'{options['table']}' names no table; write db.name, without quotes."
        )
    if source == ExternalTableKind.TABLE:
        return
    if source == ExternalTableKind.JDBC and not options.get("changed"):
        yield sql.problem(
            at,
            f"which column's highest value tells that a partition was changed? Write {example}.",
        )
    if not _CLASS.fullmatch(options.get("driver", "java.Driver")):
        yield sql.problem(
            sql.span_of("OPTIONS driver"),
            f"'{options['driver']}' is no name of a class; write driver = 'org.postgresql.Driver', or leave it out "
            "where the database is a usual one.",
        )
    url = options.get("url", "")
    if not url:
        yield sql.problem(at, f"where is the database? Name the environment variable that holds its URL: {example}.")
    elif not _VARIABLE.fullmatch(url):
        # The text may hold a password, so the message does not repeat it.
        yield sql.problem(
            sql.span_of("OPTIONS url"),
            "this is no name of an environment variable. A URL, with its password, does not belong in a file: put it "
            "into a variable, and name that.",
        )
