"""YAML as its author wrote it: nodes with their lines, whose scalars are texts until a column says what they are.

YAML by itself would make a date of `2013-01-05`, false of `no` and 7 of `007`; here the declared type of the column
decides.

Not here: which keys a test has (reading.py), and values of columns (values.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.testing.files.problems import Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yaml.nodes import Node as YamlNode

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BINARY = "tag:yaml.org,2002:binary"
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True)
class Scalar:
    """One value as text; None for NULL.

    Attributes:
        is_binary: whether it is marked `!!binary`, and so is Base64.
    """

    place: Place
    text: str | None
    is_binary: bool = False

    def __str__(self) -> str:
        return "null" if self.text is None else repr(self.text)


@dataclass(frozen=True)
class List:
    """The items of a list."""

    place: Place
    items: tuple[Node, ...]

    def __str__(self) -> str:
        return "a list"


@dataclass(frozen=True)
class Mapping:
    """The pairs of a mapping, in their order."""

    place: Place
    pairs: tuple[tuple[Node, Node], ...]

    def __str__(self) -> str:
        return "a mapping"

    def named(self) -> dict[str, tuple[Scalar, Node]]:
        """Return the values by their keys, with the key as it is written; keys that are no text are left out."""
        return {key.text: (key, value) for key, value in self.pairs if isinstance(key, Scalar) and key.text is not None}


Node = Scalar | List | Mapping


def composed(text: str, path: str, problems: list[Problem], first_line: int = 1) -> Node | None:
    """Return the one document of a YAML text; None where there is none, or where it is no YAML.

    `first_line` is the line of the file in which the text begins. Problems are added to `problems`.
    """
    import yaml

    try:
        document = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark is not None else 0)
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        problems.append(
            Problem(Place(path, line), f"this is no YAML: {reason}. Quote texts that have : # {{ or [ in them.")
        )
        return None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        problems.append(Problem(Place(path, first_line), f"this is no YAML: {reason}."))
        return None
    return None if document is None else _converted(document, path, first_line, problems)


def _converted(node: YamlNode, path: str, first_line: int, problems: list[Problem]) -> Node:
    import yaml

    place = Place(path, first_line + node.start_mark.line)
    if isinstance(node, yaml.ScalarNode):
        if node.tag.startswith("!"):
            problems.append(Problem(place, f"a value cannot have the tag {node.tag}; leave it out."))
        is_null = node.style is None and node.value in _NULLS
        return Scalar(place, None if is_null else node.value, node.tag == _BINARY)
    if isinstance(node, yaml.SequenceNode):
        return List(place, tuple(_converted(item, path, first_line, problems) for item in node.value))
    pairs: dict[object, tuple[Node, Node]] = {}
    merged: list[tuple[Node, Node]] = []
    for key_node, value_node in node.value:
        value = _converted(value_node, path, first_line, problems)
        if key_node.tag == _MERGE:
            merged += [pair for mapping in _mappings(value) for pair in mapping.pairs]
            continue
        key = _converted(key_node, path, first_line, problems)
        identity = key.text if isinstance(key, Scalar) else key
        if identity in pairs:
            problems.append(Problem(key.place, f"{key} is written twice here; take one of them out."))
        pairs[identity] = (key, value)
    for key, value in merged:
        # What is written out goes before what `<<` brings.
        pairs.setdefault(key.text if isinstance(key, Scalar) else key, (key, value))
    return Mapping(place, tuple(pairs.values()))


def _mappings(node: Node) -> Iterator[Mapping]:
    if isinstance(node, Mapping):
        yield node
    elif isinstance(node, List):
        for item in node.items:
            yield from _mappings(item)
