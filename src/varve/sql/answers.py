"""What Spark said of columns whose types only it can tell: kept beside the files, under a hash of what it was asked.

`varve check` asks and writes; whatever loads the files reads, and needs no Spark. The file belongs into version control
with them. An answer holds as long as the query, its variables and the columns that it reads are the same.

Not here: which types are known without Spark (types/inference.py), and how it is asked (spark/analysis.py).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from varve.model.errors import some
from varve.sql.declaration import text_of_query
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
    """A file with columns whose types only Spark can tell: `columns` names them."""

    sql: SqlDataset
    scopes: Scopes
    upstreams: Mapping[str, Dataset]
    columns: tuple[str, ...]

    @property
    def key(self) -> str:
        """A hash of all that decides the answer: the query, its variables, the columns that it can see."""
        parts = [
            *(text_of_query(self.sql.source.text[span.start : span.end]) for span in self.sql.query_spans),
            repr(sorted(self.scopes.types.items())),
            *(
                repr(
                    (name, [(each.name, str(each.type)) for each in (*found.schema.columns, *found.partition_columns)])
                )
                for name, found in sorted(self.upstreams.items())
            ),
        ]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


@dataclass
class Answers:
    """By dataset the key of the question, and the columns in order with their types, upper case."""

    entries: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)

    @classmethod
    def beside(cls, folder: Path) -> Answers:
        """Those of a folder; none where there is no such file, or one that nobody can read."""
        try:
            found = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return cls({name: (each["asked"], dict(each["columns"])) for name, each in found.items()})
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return cls()

    def write(self, folder: Path) -> None:
        """Keep them beside the files."""
        values = {name: {"asked": key, "columns": columns} for name, (key, columns) in sorted(self.entries.items())}
        (folder / FILE).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def of(self, question: Question) -> dict[str, str] | None:
        """The answer to this very question."""
        found = self.entries.get(question.sql.name)
        return found[1] if found is not None and found[0] == question.key else None

    def keep(self, question: Question, columns: Mapping[str, str]) -> None:
        """Keep an answer, in the place of what was said before."""
        self.entries[question.sql.name] = (question.key, dict(columns))


def answered(outputs: Sequence[Output], columns: Mapping[str, str]) -> tuple[Output, ...]:
    """The columns of a query with the types that Spark gives them; `*` becomes those that it stands for."""
    inferred = {each.name.lower(): each for each in outputs}
    stars = frozenset(source for each in outputs if each.name == "*" for source in each.sources)
    return tuple(
        Output(
            inferred[name.lower()].name if name.lower() in inferred else name,
            kind.lower(),
            inferred[name.lower()].nullable if name.lower() in inferred else True,
            inferred[name.lower()].sources if name.lower() in inferred else stars,
        )
        for name, kind in columns.items()
    )


def question_of(
    sql: SqlDataset, scopes: Scopes, upstreams: Mapping[str, Dataset], queries: Inference
) -> Question | None:
    """What Spark is to be asked of a SELECT without declared columns; None where all types are known."""
    if sql.query is None or sql.columns or queries.findings:
        return None
    open_columns = tuple(each.name for each in queries.queries[0].outputs if not each.verified)
    return Question(sql, scopes, upstreams, open_columns) if open_columns else None


def unanswered(question: Question) -> Problem:
    """What is said where Spark was not asked."""
    sql, names = question.sql, some(question.columns)
    column = "column" if question.columns[0] == "*" else question.columns[0]
    selects = sql.query.selects if sql.query is not None else []
    node = next((each for each in selects if each.alias_or_name == question.columns[0]), None)
    span = (span_of(node) if node is not None else None) or sql.name_span
    return sql.problem(
        span,
        f"only Spark can tell the type of {names}, and was not asked: run `varve check`, which keeps its answer in "
        f"{FILE}, or declare the columns: CREATE DATASET {sql.name} ({column} TYPE, ...).",
    )
