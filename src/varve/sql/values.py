"""Spark's answers on what functions give for partition values, stored beside the files.

`varve check` asks Spark and writes the answers; whatever loads the files only reads them, and needs no Spark. The file
belongs into version control with the SQL files. An answer is valid as long as the call is written so, and the project's
functions in it are the same. A function without an answer restricts nothing: too much may be read, never too little.

Not here: which calls and which values there are (partitions/value_questions.py), and how Spark is asked
(spark/values.py).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varve.sql.evaluate.asked import StoredValues, TypedCall
from varve.sql.evaluate.vector import DATE, TIMESTAMP
from varve.sql.names.own_functions import queried_functions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varve.sql.syntax.sql_file import SqlDataset

FILE = Path("varve.values.json")


@dataclass(frozen=True)
class Answer:
    """What Spark says of a call for all values that its columns may have.

    Attributes:
        call: the call as it is written, with `{0}` ... for its columns.
        types: the Spark types of its columns, as simple names.
        gives: the type of its values; empty where Spark has no value that could be compared before a run.
        values: the value of the call for each row of values of its columns.
        why: why there are no values.
        spark: the version of Spark that was asked.
    """

    call: str
    types: tuple[str, ...]
    gives: str = ""
    values: Mapping[tuple[object, ...], object] = field(default_factory=dict)
    why: str = ""
    spark: str = field(default_factory=lambda: metadata.version("pyspark"))

    @property
    def typed_call(self) -> TypedCall:
        """What it is the answer for."""
        return self.call, self.types

    def with_values_of(self, other: Answer | None) -> Answer:
        """Return the answer with the values that another one for the same call has for other arguments."""
        if other is None or not self.gives or other.gives != self.gives:
            return self
        return replace(self, values={**other.values, **self.values})


@dataclass
class ValueAnswers:
    """For each dataset its answers, each with the key of its question."""

    entries: dict[str, dict[str, Answer]] = field(default_factory=dict)

    @classmethod
    def beside(cls, folder: Path) -> ValueAnswers:
        """Read the answers of a folder; empty where the file does not exist or cannot be parsed."""
        try:
            entries = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return cls(
                {name: {answer["key"]: _restored(answer) for answer in answers} for name, answers in entries.items()}
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return cls()

    def write(self, folder: Path) -> None:
        """Write the answers beside the SQL files of the folder, a call in a line; no file where there are none."""
        datasets = []
        for name, answers in sorted(self.entries.items()):
            lines = [json.dumps(_stored(key, answer), ensure_ascii=False) for key, answer in sorted(answers.items())]
            datasets.append(f"  {json.dumps(name)}: [\n    " + ",\n    ".join(lines) + "\n  ]")
        if datasets:
            (folder / FILE).write_text("{\n" + ",\n".join(datasets) + "\n}\n", encoding="utf-8")
        else:
            (folder / FILE).unlink(missing_ok=True)

    def of(self, sql: SqlDataset) -> dict[TypedCall, Answer]:
        """Return the valid answers of a file by call, those without values too."""
        answers = self.entries.get(sql.name, {})
        return {answer.typed_call: answer for key, answer in answers.items() if key == key_of(sql, answer)}

    def keep(self, sql: SqlDataset, answers: Iterable[Answer]) -> None:
        """Store the answers of a file; they replace all of the dataset."""
        kept = {key_of(sql, answer): answer for answer in answers}
        if kept:
            self.entries[sql.name] = kept
        else:
            self.entries.pop(sql.name, None)


def key_of(sql: SqlDataset, answer: Answer) -> str:
    """Return a hash of the call, of the types of its columns, and of the project's functions that it may call."""
    words = set(re.findall(r"\w+", answer.call.lower()))
    own = [
        f"{function.name} {function.returns} {function.code}"
        for function in queried_functions(sql)
        if function.name.lower() in words
    ]
    return hashlib.blake2b("\n".join([answer.call, *answer.types, *own]).encode(), digest_size=12).hexdigest()


def stored_values(answers: Mapping[TypedCall, Answer]) -> StoredValues:
    """Return what conditions are evaluated with."""
    return StoredValues({call: (answer.gives, answer.values) for call, answer in answers.items()})


def _stored(key: str, answer: Answer) -> dict[str, Any]:
    kinds = (*answer.types, answer.gives)
    values = [
        [_plain(kind, value) for kind, value in zip(kinds, (*row, given), strict=True)]
        for row, given in answer.values.items()
    ]
    outcome = {"gives": answer.gives, "values": values} if answer.gives else {"why": answer.why}
    return {"call": answer.call, "key": key, "spark": answer.spark, "types": [*answer.types], **outcome}


def _restored(stored: dict[str, Any]) -> Answer:
    types, gives = tuple(stored["types"]), stored.get("gives", "")
    values = {
        tuple(_value(kind, value) for kind, value in zip(types, row, strict=True)): _value(gives, given)
        for *row, given in stored.get("values", ())
    }
    return Answer(stored["call"], types, gives, values, stored.get("why", ""), stored["spark"])


def _plain(kind: str, value: Any) -> object:
    return value.isoformat() if value is not None and kind in {DATE, TIMESTAMP} else value


def _value(kind: str, value: Any) -> object:
    if value is None:
        return None
    if kind == DATE:
        return dt.date.fromisoformat(value)
    return dt.datetime.fromisoformat(value) if kind == TIMESTAMP else value
