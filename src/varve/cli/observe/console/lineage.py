"""What a partition was made from and what was made from it, step by step: as a picture to walk, and as lists.

Not here: the lineage of columns (`varve graph --columns`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from varve.catalog.traces import Traces
from varve.cli.observe.console.seen_graph import readers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

    from varve.cli.observe.console.judged import Seen

_STEPS = 2
# So many partitions of a step are drawn; the others are counted, and a walk leads to them.
_DRAWN = 12
# The longest text of a box, a partition and its state, is some 42 letters of 6 pixels.
_WIDTH, _HEIGHT, _GAP, _BETWEEN = 272, 40, 10, 48
_LETTERS = 30

# A dataset or a source, and a partition of it.
Node = tuple[str, str]


@dataclass
class Steps:
    """The partitions by their step from the one in the middle: -1 is what it was made from, 1 what was made from it.

    Attributes:
        edges: from what was read to what was made, as far as both are drawn.
        more: by step how many are not drawn.
    """

    nodes: dict[int, list[Node]] = field(default_factory=dict)
    edges: set[tuple[Node, Node]] = field(default_factory=set)
    more: dict[int, int] = field(default_factory=dict)

    def add(self, step: int, nodes: Iterable[Node]) -> list[Node]:
        """Add those that stand nowhere yet, as many as are drawn; returns them."""
        standing = {node for listed in self.nodes.values() for node in listed}
        new = sorted(set(nodes) - standing)
        self.nodes[step], self.more[step] = new[:_DRAWN], max(0, len(new) - _DRAWN)
        return self.nodes[step]


def lineage_values(connection: psycopg.Connection, seen: Seen, start: Node) -> dict[str, Any]:
    """The partitions around one by the traces of current batches, as plain values with places in a picture."""
    steps, traces = Steps({0: [start]}), Traces(connection)
    here = [start]
    for step in range(1, _STEPS + 1):
        inputs = traces.inputs_of_current([node for node in here if node[0] in seen.graph.datasets])
        here = steps.add(-step, (read for reads in inputs.values() for read in reads))
        steps.edges |= {(read, made) for made, reads in inputs.items() for read in reads if read in here}
    here = [start]
    for step in range(1, _STEPS + 1):
        readers = {reader for node in here for reader in readers_of(seen, *node)}
        inputs = traces.inputs_of_current(sorted(readers))
        made_from = {made: reads.intersection(here) for made, reads in inputs.items()}
        here = steps.add(step, (made for made, reads in made_from.items() if reads))
        steps.edges |= {(read, made) for made in here for read in made_from[made]}
    return _drawn(steps, seen, start)


def _drawn(steps: Steps, seen: Seen, start: Node) -> dict[str, Any]:
    tallest = max(len(nodes) for nodes in steps.nodes.values())
    height = tallest * (_HEIGHT + _GAP) + _GAP
    places: dict[Node, dict[str, Any]] = {}
    filled = [step for step in sorted(steps.nodes) if steps.nodes[step]]
    for column, step in enumerate(filled):
        nodes = steps.nodes[step]
        top = (height - len(nodes) * (_HEIGHT + _GAP)) // 2
        for row, (name, path) in enumerate(nodes):
            judged = seen.judgements.get(name, {}).get(path)
            places[name, path] = {
                "dataset": name, "path": path, "x": column * (_WIDTH + _BETWEEN) + 1, "is_start": (name, path) == start,
                "y": top + row * (_HEIGHT + _GAP) + _GAP // 2, "is_dataset": name in seen.graph.datasets,
                "state": str(judged.state) if judged else "", "title": _cut(name), "step": step,
            }  # fmt: skip
    return {
        "width": len(filled) * (_WIDTH + _BETWEEN) - _BETWEEN + 2, "height": height,
        "box": {"width": _WIDTH, "height": _HEIGHT},
        "nodes": list(places.values()),
        "edges": [
            {
                "x1": places[read]["x"] + _WIDTH, "y1": places[read]["y"] + _HEIGHT // 2,
                "x2": places[made]["x"], "y2": places[made]["y"] + _HEIGHT // 2,
            }
            for read, made in sorted(steps.edges) if read in places and made in places
        ],
        "steps": [
            {"step": step, "nodes": [places[node] for node in steps.nodes[step]], "more": steps.more.get(step, 0)}
            for step in filled if step
        ],
    }  # fmt: skip


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
