"""Which names the files of some partitions may have, so that a run need not look at all files of a folder.

They accept every name of these partitions, and perhaps some others, since each part of a name is compared by itself.

Not here: which partition a name stands for (pattern.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.model.landing.name_parts import Field, spellings, written_start
from varve.model.partitions.dimension import TimeDimension

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from varve.model.landing.name_parts import Element
    from varve.model.partitions.key import PartitionKey
    from varve.model.partitions.partitioning import Partitioning

_ANY = ".+"
# Comparing a name with more expressions than this takes as long as taking it apart.
_MOST_EXPRESSIONS = 500


@dataclass(frozen=True)
class WantedNames:
    """The names that may be wanted, for each folder on the way to a file, and then for the file without its ending.

    Attributes:
        parts: the texts or the expression with which a name is compared, outermost folder first; None: any name.
    """

    parts: tuple[Container[str] | re.Pattern[str] | None, ...]

    @classmethod
    def of(cls, elements: Sequence[Element], partitioning: Partitioning, keys: Iterable[PartitionKey]) -> WantedNames:
        """The names of these partitions that fit the elements of a pattern."""
        by_key = [_expressions(elements, partitioning, key) for key in keys]
        # Most partitions share their outer folders.
        return cls(tuple(_any_of(list(dict.fromkeys(part))) for part in zip(*by_key, strict=True)))

    def fit(self, depth: int, name: str) -> bool:
        """Whether what has this name, so many folders below that of the dataset, may be wanted."""
        part = self.parts[depth] if depth < len(self.parts) else None
        return part is None or (part.fullmatch(name) is not None if isinstance(part, re.Pattern) else name in part)


def _any_of(expressions: Sequence[str]) -> re.Pattern[str] | None:
    if len(expressions) > _MOST_EXPRESSIONS:
        return None
    return re.compile("|".join(expressions), re.DOTALL)


def _expressions(elements: Sequence[Element], partitioning: Partitioning, key: PartitionKey) -> list[str]:
    """An expression for each folder on the way to a file of a partition, and one for the file."""
    named = {element.name for element in elements if isinstance(element, Field) and not element.format}
    expressions = [""]
    for element in elements:
        if isinstance(element, str):
            same, *further = map(re.escape, element.split("/"))
            expressions[-1] += same
            expressions += further
        else:
            expressions[-1] += _expression(element, partitioning, key, named) if isinstance(element, Field) else _ANY
    return expressions


def _expression(field: Field, partitioning: Partitioning, key: PartitionKey, named: AbstractSet[str]) -> str:
    """What a name may have in the place of a field; any text where that is hard to say."""
    dimension = partitioning[field.name]
    if field.format:
        assert isinstance(dimension, TimeDimension)
        written = written_start(dimension, dimension.value_in(key), field.format)
        return _ANY if written is None else re.escape(written)
    if isinstance(dimension, TimeDimension) and dimension.columns and field.name in dimension.column_names:
        value = key[field.name]
        # A column alone, without the others of its dimension, says nothing of the partition.
        if not named >= {*dimension.column_names} or not isinstance(value, str | int):
            return _ANY
        # Zeros may stand in front of a number, and any character may be escaped.
        plain = re.escape(value) if isinstance(value, str) else rf"-?0*{abs(value)}"
        return f"(?:{plain}|.*%.*)"
    return f"(?:{'|'.join(map(re.escape, sorted(spellings(dimension.value_in(key)))))})"
