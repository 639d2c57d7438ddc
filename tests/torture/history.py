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
    "varve.cdc.capture.batch_writer:put_whole",
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
    "promote": 1, "correct": 1.5, "verify": 1, "pin": 1, "serve": 0.7, "kill_spark": 0.5, "kill_postgres": 0.7,
    "crowd": 0.4, "fill_disk": 0.4, "exhaust_spark": 0.4, "upgrade": 0.4,
}  # fmt: skip
# Those whose processes may be killed.
MORTAL = {"due", "capture", "promote", "correct", "roll_back", "sweep", "compact", "edit", "verify"}
# Those that hurt what all processes use: whoever works meanwhile may fail, with whatever it says.
HURT = {"kill_spark", "kill_postgres", "crowd", "fill_disk", "exhaust_spark"}
# By how many seconds the clock of a process may be off.
CLOCKS = (-86_400, -3_600, -5, 5, 3_600, 86_400)
# Never two of these in one turn: a person edits files, or tries a change, and does not do both at once.
ALONE = {"edit", "promote", "serve", "upgrade"}


@dataclass(frozen=True)
class Operation:
    """One thing to do.

    Attributes:
        name: a method of `Operations`.
        draw: what it is given; plain values.
        fate: what becomes of its process: it dies, {"at": function, "when": "before" or "after"} or
            {"milliseconds": 1234}; is asked to end, with a "signal" beside the milliseconds; or has a wrong time,
            {"clock": seconds}.
    """

    name: str
    draw: Mapping[str, Any] = field(default_factory=dict)
    fate: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dies(self) -> bool:
        """Whether its process ends early."""
        return bool({"at", "milliseconds"} & set(self.fate))


@dataclass(frozen=True)
class Turn:
    """Operations that begin together; the next turn begins when all have ended."""

    number: int
    operations: tuple[Operation, ...]

    @property
    def hurts(self) -> bool:
        """Whether processes may lose a server, the disk or the last connection under their feet."""
        return any(operation.name in HURT for operation in self.operations)

    @property
    def kills(self) -> bool:
        """Whether anything dies in it."""
        return self.hurts or any(each.dies or each.name == "serve" for each in self.operations)

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
    if HURT.issuperset(names):
        # A server that dies while nobody uses it is no test.
        names.append(draw.choice(("due", "capture")))
    return Turn(number, tuple(_operation(name, draw) for name in names))


def _deadly(turn: Turn, draw: random.Random) -> Turn:
    """The turn with runs and captures that have something to do, and a death for whatever can die."""
    kept = [each for each in turn.operations if each.name not in HURT | {"edit", "alter", "serve", "upgrade"}]
    work = [_operation(name, draw) for name in ("send", "write", "due", "capture")]
    return Turn(turn.number, tuple(_killed(each, draw) for each in (*work, *kept[:1])))


def _killed(operation: Operation, draw: random.Random) -> Operation:
    latest = {"due": 6_000, "capture": 3_000}.get(operation.name, 1_500)
    fate = {"milliseconds": draw.randrange(50, latest)} if operation.name in MORTAL else {}
    return Operation(operation.name, operation.draw, fate)


def _operation(name: str, draw: random.Random) -> Operation:
    values: dict[str, Any] = {}
    match name:
        case "send":
            values = {"days": draw.sample(range(6), draw.randint(1, 3))}
        case "correct":
            values = {"days": draw.sample(range(6), draw.randint(1, 2))}
        case "serve":
            values = {
                "seconds": draw.randint(15, 40), "twice": draw.random() < 0.5, "cancel": draw.random() < 0.6,
                "end": draw.choice(("SIGTERM", "SIGKILL")), "days": draw.sample(range(6), draw.randint(1, 3)),
            }  # fmt: skip
        case "edit" | "promote":
            values = {"code": draw.randint(1, 9)}
        case "roll_back" | "pin":
            values = {"dataset": draw.choice(DATASETS), "day": draw.randrange(6), "which": draw.random()}
        case "upgrade":
            values = {"which": draw.random()}
        case "sweep":
            values = {"keep_last": draw.choice((0, 0, 1, 2))}
        case "write" | "alter":
            values = {"table": draw.choice(TABLES), "seed": draw.randrange(10**6), "transactions": draw.randint(1, 40)}
        case "capture" | "verify":
            values = {"table": draw.choice(TABLES)}
        case "kill_spark" | "kill_postgres" | "crowd" | "fill_disk" | "exhaust_spark":
            values = {"milliseconds": draw.randrange(200, 6_000), "seconds": draw.randint(1, 6)}
        case _:
            pass
    return Operation(name, values, _fate(name, draw))


def _fate(name: str, draw: random.Random) -> dict[str, Any]:
    places = {"due": DEATHS, "capture": DEATHS_OF_A_CAPTURE, "promote": DEATHS, "correct": DEATHS}.get(name)
    dies, by_time, milliseconds = draw.random(), draw.random(), draw.randrange(500, 9_000)
    when, at = draw.choice(("before", "after")), draw.choice(places or ("",))
    asked, off, clock = draw.random(), draw.random(), draw.choice(CLOCKS)
    if name not in MORTAL:
        return {}
    fate: dict[str, Any] = {"clock": clock} if off < 0.1 else {}
    if dies >= (0.35 if places else 0.1):
        return fate
    if by_time < 0.5 and places is not None:
        return fate | {"at": at, "when": when}
    # A third of them are asked to end, as Dagster and a terminal ask.
    signal = "SIGTERM" if asked < 1 / 6 else "SIGINT" if asked < 1 / 3 else "SIGKILL"
    return fate | {"milliseconds": milliseconds, "signal": signal}
