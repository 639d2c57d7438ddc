"""The EXTERNAL file of a dataset that another project over the same catalog computes, by what that has published.

Not here: tables of a metastore (importing.py).
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations
from varve.catalog.code.owners import Owners
from varve.model.errors import VarveError
from varve.services.postgres import connect
from varve.sql.syntax.errors import SourceFile, SqlErrors
from varve.sql.syntax.header import parse
from varve.sql.syntax.header_text import uncomment_header
from varve.sql.syntax.sql_file import DynamicSet, SqlDataset
from varve.sql.syntax.tokens import CLAUSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from varve.catalog.code.generations import PublishedDataset
    from varve.services.settings import Settings

# What says which partitions there are.
_OF_PARTITIONS = ("PARTITIONED BY", "FOR", "LET", "INSERT", "OPEN WINDOWS", "WINDOWS AHEAD")


def text_of_dataset(settings: Settings, name: str, project: str) -> str | None:
    """The text of a file that declares a dataset of another project; None where no other project owns such a one.

    `project` is the name of the project that wants to read it. Raises VarveError where the owner has not published it
    yet, or does not declare it in SQL.
    """
    with connect(settings, application="varve import") as connection:
        # Nothing may ever have run here.
        Catalog(connection).ensure_schema()
        owner = Owners(connection, project).others([name]).get(name)
        return None if owner is None else _text(connection, name, owner)


def _text(connection: psycopg.Connection, name: str, owner: str) -> str:
    published = Generations(connection).published([name]).get(name)
    if published is None:
        raise VarveError(
            f"{name} belongs to project {owner}, which has not published it yet. Nothing was written. Try again after "
            "its first run."
        )
    deployment = Deployments(connection).current([name]).get(name)
    written = None if deployment is None else _parsed(deployment.source)
    if written is None:
        raise VarveError(
            f"{name} belongs to project {owner}, which does not declare it in SQL: what its partitions mean is in its "
            f"code alone. Nothing was written. Write it: CREATE DATASET {name} (column TYPE, ...) with its PARTITIONED "
            f"BY and FOR, EXTERNAL OPTIONS (source = 'project', project = '{owner}')."
        )
    return "\n".join(declared_lines(name, owner, published, written)) + "\n"


def _parsed(source: str) -> SqlDataset | None:
    try:
        return parse(SourceFile("published.sql", source))
    except SqlErrors:
        return None


def declared_lines(name: str, owner: str, published: PublishedDataset, written: SqlDataset) -> Iterator[str]:
    """The lines of the file: the columns as they were published, the partitions as the owner has written them."""
    columns = [
        f"{column.name} {column.type}" + ("" if column.nullable else " NOT NULL")
        + (f" COMMENT {_quoted(column.comment)}" if column.comment else "")
        for column in published.shape.columns.data
    ]  # fmt: skip
    yield f"CREATE DATASET {name} ({', '.join(columns)})"
    if written.comment:
        yield f"COMMENT {_quoted(written.comment)}"
    yield f"STORED IN {published.store.upper()}"
    yield from _clauses(written)
    yield f"EXTERNAL OPTIONS (source = 'project', project = {_quoted(owner)});"


def _clauses(written: SqlDataset) -> Iterator[str]:
    """The clauses that say which partitions there are, as the owner has written them; what fills a set is left out."""
    names = {" ".join(words) for words in CLAUSES}
    starts = sorted((span.start, word) for word, span in written.spans if word in names)
    text = uncomment_header(written.source)
    for (start, word), (end, _) in itertools.pairwise(starts):
        if word not in _OF_PARTITIONS:
            continue
        # The span of a query begins behind its AS.
        clause, at = re.sub(r"\bAS\s*$", "", text[start:end], flags=re.IGNORECASE), start
        for generator in reversed(written.generators):
            if word == "FOR" and isinstance(generator, DynamicSet) and generator.source is not None:
                span = generator.span
                alone = f"{generator.variable} IN DYNAMIC {_quoted(generator.set_name)}"
                clause = clause[: span.start - at] + alone + clause[span.end - at :]
        yield clause.strip()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
