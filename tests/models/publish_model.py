"""The publish as a state machine: builds of one partition, a rollback, a sweep and a reader, any of which may die.

Two runs build the partition under its lock, a promote publishes without a lock, as `Catalog.unlocked` lets it, somebody
goes back to an earlier batch, and the sweep removes retired batches. The grace period of the sweep is longer than any
query, which is the one thing about time that is modelled: a batch is not marked while a reader is on it.

The steps of a build are named as the functions that `Apply` and the runs call; test_models.py compares the names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Functions of the catalog and of a store, in the order in which a build calls them.
BUILD = ("begin", "stage", "staged", "verify", "publish", "release", "published")
# Marked in the catalog first, removed from the store then.
SWEEP = ("mark", "sweep")
BUILDING, STAGED, PUBLISHED, RETIRED, FAILED, SWEPT = "building", "staged", "published", "retired", "failed", "swept"


class Actor(NamedTuple):
    """Somebody who publishes: the function that is called next, the batch, and what was current when it began."""

    kind: str
    next: str = "begin"
    batch: int = 0
    expected: int = 0
    session: bool = True


class State(NamedTuple):
    """The catalog's row of the partition, its batches, the folders, and who is at work.

    Attributes:
        current: the current batch; 0: none.
        states: the state of batch 1, 2, ... in the catalog.
        folders: for each batch 0 (nothing), 1 (being written), 2 (whole) or 3 (removed).
        replaced: the batch that each publish has replaced beside the one that its build expected there.
        sweeping: the batch that is marked and not removed yet, 0: none.
        reading: the batch that a reader reads, 0: nobody reads.
    """

    current: int = 0
    states: tuple[str, ...] = ()
    folders: tuple[int, ...] = ()
    lock: int | None = None
    actors: tuple[Actor, ...] = (Actor("run"), Actor("run"), Actor("promote"), Actor("rollback"))
    replaced: tuple[int, int] = (0, 0)
    sweeping: int = 0
    reading: int = 0
    deaths: int = 0


@dataclass(frozen=True)
class PublishModel:
    """The machine.

    Attributes:
        batches: how many batches are made at most; `deaths`, how often something dies.
        mutation: a named error to plant.
    """

    batches: int = 3
    deaths: int = 2
    mutation: str = ""
    first: State = field(default_factory=State)

    @property
    def invariants(self) -> Mapping[str, Callable[[State], bool]]:
        """What holds in every state."""
        return {
            "what is current is whole": lambda state: not state.current or state.folders[state.current - 1] == 2,
            "what is current is published, and nothing else is": lambda state: (
                [number for number, name in enumerate(state.states, 1) if name == PUBLISHED]
                == ([state.current] if state.current else [])
            ),
            "a publish replaces what its build has seen": lambda state: state.replaced[0] == state.replaced[1],
            "what is read lies there": lambda state: not state.reading or state.folders[state.reading - 1] == 2,
        }

    def is_good(self, state: State) -> bool:
        """The partition can be built: nobody holds it."""
        return state.lock is None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step of everybody."""
        if not state.reading and state.current:
            yield "a reader begins", state._replace(reading=state.current)
        if state.reading:
            yield "a reader ends", state._replace(reading=0)
        yield from self._sweep(state)
        for number, actor in enumerate(state.actors):
            for name, after, changed in self._actor_steps(state, number, actor):
                yield f"{actor.kind} {number}: {name}", _with(after, number, changed)
            if state.deaths < self.deaths and actor.next not in {"begin", "over"}:
                died = state._replace(deaths=state.deaths + 1, lock=None if state.lock == number else state.lock)
                yield f"{actor.kind} {number} is killed", _with(died, number, Actor("run", "over"))
                if actor.session:
                    # The server has ended its session, and with it its lock; the process goes on to write its files.
                    yield f"{actor.kind} {number} loses its session", _with(died, number, actor._replace(session=False))

    def _sweep(self, state: State) -> Iterator[tuple[str, State]]:
        for number, name in enumerate(state.states, 1):
            if (
                name in {RETIRED, FAILED}
                and state.folders[number - 1] == 2
                and not state.sweeping
                and state.reading != number
            ):
                if self.mutation == "removes before it marks":
                    yield "sweep", _folder(state, number, 3)._replace(sweeping=number)
                else:
                    yield "mark", _state(state, number, SWEPT)._replace(sweeping=number)
        if state.sweeping:
            # A sweep that dies in between leaves the mark, with which the next one begins.
            if self.mutation == "removes before it marks":
                yield "mark", _state(state, state.sweeping, SWEPT)._replace(sweeping=0)
            else:
                yield "sweep", _folder(state, state.sweeping, 3)._replace(sweeping=0)

    def _actor_steps(self, state: State, number: int, actor: Actor) -> Iterator[tuple[str, State, Actor]]:
        over = actor._replace(next="over", batch=0, expected=0)
        if not actor.session and actor.next not in {"stage", "over"}:
            yield "gives up", state, over
            return
        match actor.next:
            case "begin":
                yield from self._begin(state, number, actor)
            case "stage":
                yield "stage", _folder(state, actor.batch, 2), actor._replace(next="staged")
            case "staged":
                # Its batch may have failed meanwhile: who holds the partition's lock knows that its builder is dead.
                if state.states[actor.batch - 1] == BUILDING:
                    yield "staged", _state(state, actor.batch, STAGED), actor._replace(next="verify")
                else:
                    yield "staged: taken for dead", state, actor._replace(next="release")
            case "verify":
                yield "verify", state, actor._replace(next="publish")
            case "publish":
                yield from self._publish(state, actor)
            case "point":
                yield "point", state._replace(current=actor.batch, replaced=(state.current, actor.expected)), (
                    actor._replace(next="release"))  # fmt: skip
            case "release":
                yield "release", state._replace(lock=None if state.lock == number else state.lock), (
                    actor._replace(next="published"))  # fmt: skip
            case "published":
                yield "published", state, over

    def _begin(self, state: State, number: int, actor: Actor) -> Iterator[tuple[str, State, Actor]]:
        if actor.kind == "rollback":
            # It holds the partition's lock too, and makes a batch current that was before.
            for batch, name in enumerate(state.states, 1):
                if name == RETIRED and state.lock is None:
                    begun = actor._replace(next="publish", batch=batch, expected=state.current)
                    yield "begin", state._replace(lock=number), begun
            return
        if len(state.states) >= self.batches or (actor.kind == "run" and state.lock is not None):
            return
        batch = len(state.states) + 1
        states = state.states
        if actor.kind == "run":
            own = {other.batch for other in state.actors if other.kind == "promote"}
            states = tuple(
                FAILED if name in {BUILDING, STAGED} and place not in own else name
                for place, name in enumerate(states, 1)
            )
        begun = state._replace(states=(*states, BUILDING), folders=(*state.folders, 1))
        lock = number if actor.kind == "run" else state.lock
        changed = actor._replace(next="publish" if self.mutation == "publishes before it writes" else "stage",
                                 batch=batch, expected=state.current)  # fmt: skip
        yield "begin", begun._replace(lock=lock), changed

    def _publish(self, state: State, actor: Actor) -> Iterator[tuple[str, State, Actor]]:
        """One transaction: compare, retire, point, and note that the batch is published."""
        stale = state.current != actor.expected and self.mutation != "no comparison"
        wanted = {RETIRED, PUBLISHED} if actor.kind == "rollback" else {STAGED}
        if self.mutation == "publishes before it writes":
            wanted = wanted | {BUILDING}
        is_there = state.states[actor.batch - 1] in wanted
        if self.mutation == "goes back to what is swept" and actor.kind == "rollback":
            is_there = True
        if stale or not is_there:
            after = state
            if actor.kind != "rollback" and state.states[actor.batch - 1] in {BUILDING, STAGED}:
                after = _state(state, actor.batch, FAILED)
            yield "publish: refused", after, actor._replace(next="release")
            return
        after = _state(state, state.current, RETIRED) if state.current else state
        after = _state(after, actor.batch, PUBLISHED)
        if self.mutation == "two transactions":
            yield "publish", after, actor._replace(next="point")
            return
        after = after._replace(current=actor.batch, replaced=(state.current, actor.expected))
        yield "publish", after, actor._replace(next="release")


def _with(state: State, number: int, actor: Actor) -> State:
    return state._replace(actors=(*state.actors[:number], actor, *state.actors[number + 1 :]))


def _state(state: State, batch: int, name: str) -> State:
    return state._replace(states=(*state.states[: batch - 1], name, *state.states[batch:]))


def _folder(state: State, batch: int, what: int) -> State:
    return state._replace(folders=(*state.folders[: batch - 1], what, *state.folders[batch:]))


# Errors to plant, each with the invariant that it breaks.
MUTATIONS = {
    "no comparison": "a publish replaces what its build has seen",
    "two transactions": "what is current is published, and nothing else is",
    "publishes before it writes": "what is current is whole",
    "removes before it marks": "what is current is whole",
    "goes back to what is swept": "what is current is whole",
}
