"""What a torture does, drawn from its seed alone: turns of operations that run at the same time, and how they die.

Nothing here looks at what happened before, so that a seed, or the lines of a log, give the same history again. What an
operation needs to know of the present (which batch to go back to) it takes by a number between 0 and 1 from the draw.

Not here: carrying them out (operations.py).
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Where a process that runs partitions may die: before or after it calls one of these.
DEATHS = (
    "varve.catalog.catalog:Catalog.begin",
    "varve.stores.folders.write:write_batches",
    "varve.catalog.catalog:Catalog.staged",
    "varve.catalog.catalog:Catalog.publish",
    "varve.stores.lake.iceberg.pointers:Pointers.move",
    "varve.stores.lake.store:LakeStore.commit",
    "varve.catalog.catalog:Catalog.projected",
    "varve.stores.warehouse.loading.load:load",
    "varve.stores.warehouse.publish:_swap",
    "varve.stores.warehouse.publish:replace_views",
)
DEATHS_OF_A_CAPTURE = (
    "varve.cdc.capture.batch_writer:BatchWriter.finish",
    "varve.cdc.capture.batch_writer:_put",
    "varve.cdc.apply:Apply.apply",
    "varve.catalog.catalog:Catalog.publish",
    "varve.stores.folders.write:write_batches",
)
DATASETS = ("sales", "revenue", "totals", "trailing")
TABLES = ("accounts", "wallets")
# After so many turns all is brought to rest, and compared with the model.
TURNS_TO_REST = 8
# How often each operation is drawn.
WEIGHTS = {
    "send": 5, "due": 8, "edit": 1, "roll_back": 2, "sweep": 2, "compact": 1, "write": 4, "alter": 1, "capture": 4,
    "promote": 1, "verify": 1, "pin": 1, "kill_spark": 0.5, "kill_postgres": 0.7,
}  # fmt: skip
# Those whose processes may be killed.
MORTAL = {"due", "capture", "promote", "roll_back", "sweep", "compact", "edit", "verify"}
# Never two of these in one turn: a person edits files, or tries a change, and does not do both at once.
ALONE = {"edit", "promote"}


@dataclass(frozen=True)
class Operation:
    """One thing to do.

    Attributes:
        name: a method of `Operations`.
        draw: what it is given; plain values.
        death: how its process dies: {"at": function, "when": "before" or "after"} or {"milliseconds": 1234}; or not.
    """

    name: str
    draw: Mapping[str, Any] = field(default_factory=dict)
    death: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Turn:
    """Operations that begin together; the next turn begins when all have ended."""

    number: int
    operations: tuple[Operation, ...]

    @property
    def kills_a_server(self) -> bool:
        """Whether processes may lose a server under their feet."""
        return any(operation.name.startswith("kill_") for operation in self.operations)

    @property
    def kills(self) -> bool:
        """Whether anything dies in it."""
        return self.kills_a_server or any(operation.death for operation in self.operations)

    @property
    def rests(self) -> bool:
        """Whether all is brought to rest after it."""
        return self.number % TURNS_TO_REST == 0

    def as_values(self) -> dict[str, Any]:
        """A line of the log."""
        return {"turn": self.number, "operations": [asdict(operation) for operation in self.operations]}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Turn:
        """The turn of a line of the log."""
        return cls(values["turn"], tuple(Operation(**operation) for operation in values["operations"]))


def turns(seed: int, *, deadly: bool = False) -> Iterator[Turn]:
    """The endless history of a seed; in a deadly one nearly everything that can be killed is, at some millisecond."""
    number = 0
    while True:
        number += 1
        # Each turn by itself: what one of them draws does not move the next.
        turn = _turn(number, random.Random(f"{seed} {number}"))
        yield _deadly(turn, random.Random(f"{seed} {number} deadly")) if deadly else turn


def _turn(number: int, draw: random.Random) -> Turn:
    names: list[str] = []
    for _ in range(draw.choice((1, 2, 2, 3))):
        name = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if not (name in ALONE and ALONE & set(names)):
            names.append(name)
    if any(name.startswith("kill_") for name in names) and len(names) == 1:
        # A server that dies while nobody uses it is no test.
        names.append(draw.choice(("due", "capture")))
    return Turn(number, tuple(_operation(name, draw) for name in names))


def _deadly(turn: Turn, draw: random.Random) -> Turn:
    """The turn with runs and captures that have something to do, and a death for whatever can die."""
    kept = [
        each for each in turn.operations if not each.name.startswith("kill_") and each.name not in {"edit", "alter"}
    ]
    work = [_operation(name, draw) for name in ("send", "write", "due", "capture")]
    return Turn(turn.number, tuple(_killed(each, draw) for each in (*work, *kept[:1])))


def _killed(operation: Operation, draw: random.Random) -> Operation:
    latest = {"due": 6_000, "capture": 3_000}.get(operation.name, 1_500)
    death = {"milliseconds": draw.randrange(50, latest)} if operation.name in MORTAL else None
    return Operation(operation.name, operation.draw, death)


def _operation(name: str, draw: random.Random) -> Operation:
    values: dict[str, Any] = {}
    match name:
        case "send":
            values = {"days": draw.sample(range(6), draw.randint(1, 3))}
        case "edit" | "promote":
            values = {"code": draw.randint(1, 9)}
        case "roll_back" | "pin":
            values = {"dataset": draw.choice(DATASETS), "day": draw.randrange(6), "which": draw.random()}
        case "sweep":
            values = {"keep_last": draw.choice((0, 0, 1, 2))}
        case "write" | "alter":
            values = {"table": draw.choice(TABLES), "seed": draw.randrange(10**6), "transactions": draw.randint(1, 40)}
        case "capture" | "verify":
            values = {"table": draw.choice(TABLES)}
        case "kill_spark" | "kill_postgres":
            values = {"milliseconds": draw.randrange(200, 6_000)}
        case _:
            pass
    return Operation(name, values, _death(name, draw))


def _death(name: str, draw: random.Random) -> dict[str, Any] | None:
    places = {"due": DEATHS, "capture": DEATHS_OF_A_CAPTURE, "promote": DEATHS}.get(name)
    dies, by_time, milliseconds = draw.random(), draw.random(), draw.randrange(500, 9_000)
    when, at = draw.choice(("before", "after")), draw.choice(places or ("",))
    if dies < (0.35 if places else 0.1) and name in MORTAL:
        return {"milliseconds": milliseconds} if by_time < 0.5 or places is None else {"at": at, "when": when}
    return None
