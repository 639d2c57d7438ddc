"""Parsing of command line words: a dataset, partitions by column, moments and spans of time.

Not here: commands.
"""

from __future__ import annotations

import datetime as dt
import getpass
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from varve.cli.context import chosen_graph
from varve.model.errors import OtherOwner, UnknownPartition, VarveError, nearest, some
from varve.model.partitions.dimension import StaticDimension
from varve.model.partitions.key import WHOLE, escape, parse_path, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import psycopg

    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Graph

_SPANS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
# Such a time ago, and in such a time, are dates.
_LONGEST = dt.timedelta(days=365_000)


def dataset_named(name: str, graph: Graph | None = None) -> Dataset:
    """Return the dataset of this name, written `db.table` or `db/table`, of the chosen project or of another graph.

    Raises VarveError with all names where there is none, and DatasetIsBroken, with the errors, where the dataset is
    broken or on hold.
    """
    from varve.cli.problems.broken import refuse_broken

    graph = graph or chosen_graph()
    refuse_broken(name, graph)
    dataset = graph.datasets.get(name.replace("/", "."))
    if dataset is None:
        names = sorted(graph.datasets)
        hint = nearest(name.replace("/", "."), names)
        raise VarveError(
            f"there is no dataset {name!r}; there are {', '.join(names) or 'none'}.{hint}{graph.perhaps_in(name)}"
        )
    return dataset


def refuse_of_others(connection: psycopg.Connection, names: Iterable[str], lost: str = "Nothing was changed.") -> None:
    """Raise OtherOwner where a dataset belongs to another project, or is declared as one of another project."""
    from varve.catalog.code.owners import Owners

    graph, asked = chosen_graph(), list(names)
    for dataset in (graph.datasets[name] for name in asked if name in graph.datasets):
        if dataset.of_project:
            raise OtherOwner(
                f"{dataset} is declared as a dataset of project {dataset.of_project}, and is only read here. {lost} Do "
                "it in that project."
            )
    Owners(connection, graph.project).refuse(asked, lost)


def words_of(path: str) -> list[str]:
    """Return the words with which commands name a partition, `day=2026-11-22`, of its path in the catalog."""
    return [] if path == WHOLE else [f"{name}={value}" for name, value in parse_path(path)]


def spelt_out(dataset: Dataset, words: Iterable[str]) -> list[str]:
    """Return words like `day=2013-01-05` also where one word names a whole partition, as Dagster or our outputs do.

    Dagster's spelling is `EWR|2013-01-05`, and that of what commands print `day=2013-01-05/origin=EWR`, with characters
    such as `:` as in a URL. Other words stay as they are, for the caller to refuse.
    """
    words, partitioning = list(words), dataset.partitioning
    if len(words) != 1 or not partitioning.dimensions:
        return words
    (word,) = words
    spellings: list[Callable[[], PartitionKey]] = [lambda: partitioning.from_dagster(word)]
    if "=" in word:
        spellings = [lambda: partitioning.parsed(by_column(words)), lambda: partitioning.from_path(word)]
    for spelling in spellings:
        # A column that the word does not name is left to the caller, as some take a part of a key.
        with suppress(UnknownPartition, KeyError):
            return words_of(spelling().path)
    return words


def by_column(words: Iterable[str]) -> dict[str, str]:
    """Return the texts of words like `day=2013-01-05` by their columns; a word without `=` is a column without a text.

    Raises UnknownPartition where a column is named twice: of two values the one would be left out in silence.
    """
    texts: dict[str, str] = {}
    for word in words:
        column, _, text = word.partition("=")
        if texts.setdefault(column, text) != text:
            raise UnknownPartition(
                f"{column} is named twice, with {texts[column]!r} and {text!r}. Nothing was changed. Name one value of "
                "each column, and type the command once for each."
            )
    return texts


def partition_named(dataset: Dataset, words: Sequence[str]) -> PartitionKey:
    """Return the partition that words like `day=2013-01-05 origin=EWR` name, one for each column.

    Raises UnknownPartition, with what is spelt most like a column or a static key that there is not.
    """
    texts, names = by_column(spelt_out(dataset, words)), dataset.partitioning.names
    if set(texts) != set(names):
        if not dataset.partitioning.dimensions:
            raise UnknownPartition(f"{dataset} has no partitions; leave {' '.join(words)} out.")
        wanted = " ".join(f"{column}=..." for column in names)
        hint = next((nearest(column, names) for column in texts if column not in names), "")
        raise UnknownPartition(f"{dataset}: a partition is named {wanted}; found {' '.join(words) or 'none'}.{hint}")
    try:
        return dataset.partitioning.parsed(texts)
    except UnknownPartition as error:
        raise type(error)(f"{dataset}: {error}{_static_key_like(dataset, texts)}") from None


def _static_key_like(dataset: Dataset, texts: Mapping[str, str]) -> str:
    for dimension in dataset.partitioning.dimensions:
        if isinstance(dimension, StaticDimension):
            members = list(map(text_of, dimension.members))
            if texts[dimension.name] not in members:
                return nearest(texts[dimension.name], members)
    return ""


def matching(dataset: Dataset, words: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Return the partition paths whose columns have the values of words like `day=2013-01-05 origin=EWR`, sorted.

    Without words all paths are returned. Raises UnknownPartition where the dataset has no such column, where one is
    named twice, or where no path matches.
    """
    known_paths, wanted, names = sorted(set(paths)), dict[str, str](), set(dataset.partitioning.names)
    words = spelt_out(dataset, words)
    if any(word.partition("=")[0] not in names for word in words):
        # Those of batches of another generation are named by its columns.
        names |= {column for path in known_paths for column, _ in parse_path(path)}
    by_column(words)
    for word in words:
        column, equals, value = word.partition("=")
        if not equals or column not in names:
            if not dataset.partitioning.dimensions:
                raise UnknownPartition(f"{dataset} has no partitions; leave {word!r} out.")
            raise UnknownPartition(
                f"{word!r} names no partition of {dataset}; write column=value with "
                f"{', '.join(dataset.partitioning.names)}.{nearest(column, dataset.partitioning.names)}"
            )
        wanted[column] = dataset.partitioning.text_in_paths(column, value)
    matched = [path for path in known_paths if wanted.items() <= dict(parse_path(path)).items()]
    if words and not matched:
        raise UnknownPartition(
            f"{dataset} has no partition {' '.join(words)} in the catalog; "
            f"it has {some(known_paths, limit=3) or 'none'}."
        )
    return matched


def named_path(dataset: Dataset, words: Sequence[str]) -> str | None:
    """Return the path that the catalog would have for a partition of which words name every column; None otherwise.

    Nothing says that there is such a partition.
    """
    texts = by_column(word for word in spelt_out(dataset, words) if "=" in word)
    if not texts or texts.keys() != set(dataset.partitioning.names):
        return None
    spelt = {name: dataset.partitioning.text_in_paths(name, texts[name]) for name in dataset.partitioning.names}
    return "/".join(f"{name}={escape(text)}" for name, text in spelt.items())


def moment(text: str) -> dt.datetime:
    """Parse `2013-01-05` or `2013-01-05T13:00`; without an offset the time is UTC. Raises VarveError."""
    try:
        instant = dt.datetime.fromisoformat(text)
    except ValueError:
        raise VarveError(f"{text!r} is no time; write it like 2013-01-05T13:00 (UTC) or with an offset.") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=dt.UTC)


def span(text: str) -> dt.timedelta:
    """Parse `7d`, `12h`, `30m`, `45s` or `0`. Raises VarveError, also for one that no calendar reaches."""
    if text == "0":
        return dt.timedelta(0)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([dhms])", text)
    if not match:
        raise VarveError(f"{text!r} is no span of time; write it like 7d, 12h, 30m or 45s.")
    unit = dt.timedelta(**{_SPANS[match[2]]: 1})
    if float(match[1]) > _LONGEST / unit:
        raise VarveError(f"{text!r} is longer than a thousand years; write it like 7d, 12h, 30m or 45s.")
    return float(match[1]) * unit


def who() -> str:
    """Return who runs the command, as `user@host`, for the catalog."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return f"somebody@{socket.gethostname()}"


def size_text(size: int) -> str:
    """Return a number of bytes as text for people: `12.3 MB`."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1_000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} TB"


def duration_text(seconds: float) -> str:
    """Return a span of time as text for people: `42 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
