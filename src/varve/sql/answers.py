"""Spark's answers on columns whose types only it can tell, stored beside the files under a hash of the question.

`varve check` asks Spark and writes the answers; whatever loads the files only reads them, and needs no Spark. The file
belongs into version control with the SQL files. An answer is valid as long as the query, its variables and the columns
that it reads are the same.

Not here: type inference without Spark (types/inference.py), and how Spark is asked (spark/analysis.py).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from varve.model.errors import some
from varve.sql.code.version import canonical
from varve.sql.names.own_functions import queried_functions
from varve.sql.syntax.body import span_of
from varve.sql.types.outputs import Output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.dataset import Dataset
    from varve.sql.partitions.dependencies import Inference
    from varve.sql.partitions.scopes import Scopes
    from varve.sql.syntax.errors import Problem
    from varve.sql.syntax.sql_file import SqlDataset

FILE = Path("varve.columns.json")


@dataclass(frozen=True, eq=False)
class Question:
    """A SQL file that has columns whose types only Spark can tell; `columns` holds their names."""

    sql: SqlDataset
    scopes: Scopes
    upstreams: Mapping[str, Dataset]
    columns: tuple[str, ...]

    @property
    def key(self) -> str:
        """A hash of everything that determines the answer: the query, its variables, the columns that it can see."""
        parts = [
            *(canonical(self.sql.source.text[span.start : span.end]) for span in self.sql.query_spans),
            repr(sorted(self.scopes.types.items())),
            *(f"{function.name} {function.returns}" for function in queried_functions(self.sql)),
            *(
                repr(
                    (
                        name,
                        [
                            (column.name, str(column.type))
                            for column in (*dataset.schema.columns, *dataset.partition_columns)
                        ],
                    )
                )
                for name, dataset in sorted(self.upstreams.items())
            ),
        ]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


@dataclass
class Answers:
    """For each dataset the key of its question, and its columns in order, with their types in upper case."""

    entries: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)

    @classmethod
    def beside(cls, folder: Path) -> Answers:
        """Read the answers of a folder; empty where the file does not exist or cannot be parsed."""
        try:
            entries = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return cls({name: (entry["asked"], dict(entry["columns"])) for name, entry in entries.items()})
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return cls()

    def write(self, folder: Path) -> None:
        """Write the answers beside the SQL files of the folder."""
        values = {name: {"asked": key, "columns": columns} for name, (key, columns) in sorted(self.entries.items())}
        (folder / FILE).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def of(self, question: Question) -> dict[str, str] | None:
        """Return the answer to exactly this question; None where it was not asked yet."""
        entry = self.entries.get(question.sql.name)
        return entry[1] if entry is not None and entry[0] == question.key else None

    def keep(self, question: Question, columns: Mapping[str, str]) -> None:
        """Store an answer, and replace the previous one of the dataset."""
        self.entries[question.sql.name] = (question.key, dict(columns))


def with_answered_types(outputs: Sequence[Output], columns: Mapping[str, str]) -> tuple[Output, ...]:
    """Return the columns of a query with the types that Spark reports; `*` is replaced by the columns it stands for."""
    inferred = {output.name.lower(): output for output in outputs}
    stars = frozenset(source for output in outputs if output.name == "*" for source in output.sources)
    return tuple(
        Output(
            inferred[name.lower()].name if name.lower() in inferred else name,
            kind.lower(),
            inferred[name.lower()].sources if name.lower() in inferred else stars,
            inferred[name.lower()].copy_of if name.lower() in inferred else frozenset(),
        )
        for name, kind in columns.items()
    )


def question_of(
    sql: SqlDataset, scopes: Scopes, upstreams: Mapping[str, Dataset], queries: Inference
) -> Question | None:
    """Return the question for a SELECT without declared columns; None where all types are known."""
    if sql.query is None or sql.columns or queries.findings:
        return None
    open_columns = tuple(output.name for output in queries.queries[0].outputs if not output.verified)
    return Question(sql, scopes, upstreams, open_columns) if open_columns else None


def unanswered_problem(question: Question) -> Problem:
    """Return the problem of a file about which Spark was not asked yet."""
    sql, names = question.sql, some(question.columns)
    column = "column" if question.columns[0] == "*" else question.columns[0]
    selects = sql.query.selects if sql.query is not None else []
    node = next((projection for projection in selects if projection.alias_or_name == question.columns[0]), None)
    span = (span_of(node) if node is not None else None) or sql.name_span
    return sql.problem(
        span,
        f"only Spark can tell the type of {names}, and was not asked: run `varve check`, which keeps its answer in "
        f"{FILE}, or declare the columns: CREATE DATASET {sql.name} ({column} TYPE, ...).",
    )
