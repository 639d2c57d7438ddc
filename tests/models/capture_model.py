"""Capture and apply as a state machine: one table, an application, two processes, and everything that can die.

The application commits transactions 1, 2, ...; the LSN of a transaction is its number. Two processes capture and apply
under the table's lock, which is a lock of a session: where the catalog's server dies, the session ends and the lock is
free, but the process may live on, and make a batch durable that it had begun (a file needs no catalog), or advance the
slot. The source may crash too: its slot then stands where the last checkpoint saw it, and sends again.

What docs/concepts.md and docs/cdc.md promise are the invariants: every committed transaction is applied exactly once,
nothing that is not durable is discarded by the source, and capture never stops because of its own doing.

The steps are named as in `Capture` and `Apply` (their `step`); test_models.py compares the names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# The steps in the order of the code: what happens between a name and the next is atomic in the model.
CAPTURE = ("peek", "write", "durable", "confirm", "confirmed")
APPLY = ("resolved", "set aside", "staged", "verified", "committing", "published", "done")
IDLE, STOPPED = "idle", "stopped"


class Process(NamedTuple):
    """A process at the step that it takes next.

    Attributes:
        session: whether its session of the catalog lives.
        read: the transactions of the batch that it is writing, and `target`, what it confirms to the slot.
        applied: the position from which it has resolved, and `events` what it is to publish: its last batch's end last.
    """

    step: str = IDLE
    session: bool = True
    read: tuple[int, ...] = ()
    target: int = 0
    applied: int = 0
    events: tuple[int, ...] = ()
    last: int = 0


class State(NamedTuple):
    """The source, the durable batches, the catalog and the processes.

    Attributes:
        committed: how many transactions the application has committed.
        slot: up to where the slot was advanced, and `checkpoint`, up to where it is after a crash of the source.
        batches: the durable batches, each as its transactions.
        confirmed: what the catalog says that the slot was told; `position`, what is applied.
        lake: the transactions whose changes the lake has, in the order in which they were published.
        lock: which process has the table's lock.
    """

    committed: int = 0
    slot: int = 0
    checkpoint: int = 0
    batches: frozenset[tuple[int, ...]] = frozenset()
    confirmed: int = 0
    position: int = 0
    lake: tuple[int, ...] = ()
    lock: int | None = None
    processes: tuple[Process, ...] = (Process(), Process())
    deaths: int = 0

    @property
    def captured(self) -> int:
        """Up to where the manifests say that the log is durable here."""
        return max((batch[-1] for batch in self.batches), default=0)


@dataclass(frozen=True)
class CaptureModel:
    """The machine.

    Attributes:
        transactions: how many the application commits; `deaths`, how often something dies.
        most: how many transactions one look at the slot may have.
        mutation: a named error to plant, for tests that the checker can fail.
    """

    transactions: int = 3
    deaths: int = 2
    most: int = 2
    mutation: str = ""
    first: State = field(default_factory=State)

    @property
    def invariants(self) -> Mapping[str, Callable[[State], bool]]:
        """What holds in every state."""
        return {
            "the lake has each transaction once, in the order of commits": lambda state: (
                state.lake == tuple(range(1, len(state.lake) + 1))
            ),
            "the lake is at the position": lambda state: len(state.lake) == state.position,
            "what the source may discard is durable": lambda state: (
                set(range(1, state.slot + 1)) <= {number for batch in state.batches for number in batch}
            ),
            "capture never stops by its own doing": lambda state: all(
                process.step != STOPPED for process in state.processes
            ),
        }

    def is_good(self, state: State) -> bool:
        """Everything that was committed is in the lake, and nobody is at work."""
        return len(state.lake) == self.transactions and all(process.step == IDLE for process in state.processes)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step of everybody."""
        if state.committed < self.transactions:
            yield "the application commits", state._replace(committed=state.committed + 1)
        if state.checkpoint < state.slot:
            yield "the source makes a checkpoint", state._replace(checkpoint=state.slot)
        if state.deaths < self.deaths:
            yield from self._deaths(state)
        for number, process in enumerate(state.processes):
            for name, after, changed in self._process_steps(state, number, process):
                processes = list(after.processes)
                processes[number] = changed
                yield f"{number}: {name}", after._replace(processes=tuple(processes))

    def _deaths(self, state: State) -> Iterator[tuple[str, State]]:
        died = state._replace(deaths=state.deaths + 1)
        if state.checkpoint < state.slot:
            yield "the source crashes", died._replace(slot=state.checkpoint)
        if any(process.step != IDLE for process in state.processes):
            cut = tuple(
                process._replace(session=False) if process.step != IDLE else process for process in state.processes
            )
            yield "the catalog's server crashes", died._replace(lock=None, processes=cut)
        for number, process in enumerate(state.processes):
            if process.step != IDLE:
                processes = list(state.processes)
                processes[number] = Process()
                lock = None if state.lock == number else state.lock
                yield f"{number} is killed", died._replace(lock=lock, processes=tuple(processes))

    def _process_steps(  # noqa: PLR0912 - a line for each step
        self, state: State, number: int, process: Process
    ) -> Iterator[tuple[str, State, Process]]:
        """The name of the step that the process takes next, and what there is after it."""
        match process.step:
            case "idle":
                if state.lock is None or self.mutation == "neither lock nor comparison":
                    locked = state._replace(lock=number)
                    yield "peek", locked, Process("peek")
                    yield "apply", locked, Process("resolved")
            case "peek":
                yield from self._peek(state, process)
            case "write":
                # A file needs neither the catalog nor the lock.
                yield "write", state._replace(batches=state.batches | {process.read}), process._replace(step="durable")
            case "durable" if process.session:
                # The catalog records what the slot is told before it is told.
                confirmed = state.confirmed if self.mutation == "slot before catalog" else max(
                    state.confirmed, process.target)  # fmt: skip
                yield "durable", state._replace(confirmed=confirmed), process._replace(step="confirm")
            case "confirm":
                yield (
                    "confirm",
                    state._replace(slot=max(state.slot, process.target)),
                    process._replace(step="confirmed"),
                )
            case "confirmed" if process.session:
                after = state._replace(confirmed=max(state.confirmed, process.target), lock=None)
                yield "confirmed", after, Process()
            case "resolved" if process.session:
                yield from self._resolved(state, process)
            case "set aside" | "staged" | "verified" if process.session:
                following = APPLY[APPLY.index(process.step) + 1]
                yield process.step, state, process._replace(step=following)
            case "committing" if process.session:
                yield from self._committing(state, process)
            case "published":
                yield "published", state, process._replace(step="done")
            case "move" if process.session:
                yield "move", state._replace(position=process.last), process._replace(step="published")
            case "done":
                yield "done", self._unlocked(state, number, process), Process()
            case "stopped":
                return
            case _:
                # Its session has ended: the next question to the catalog is an error, and the process gives up.
                yield "gives up", self._unlocked(state, number, process), Process()

    def _unlocked(self, state: State, number: int, process: Process) -> State:
        return state._replace(lock=None) if process.session and state.lock == number else state

    def _peek(self, state: State, process: Process) -> Iterator[tuple[str, State, Process]]:
        """A look at the slot: what was committed and is not durable, `most` transactions of the slot at most."""
        if state.slot > state.confirmed:
            yield "peek: the slot was moved by somebody else", state, process._replace(step=STOPPED)
            return
        done = state.captured
        last = min(state.committed, state.slot + self.most)
        read = tuple(range(max(done, state.slot) + 1, last + 1))
        target = max(last, min(done, state.committed))
        if self.mutation == "slot before durable":
            yield "peek", state._replace(confirmed=max(state.confirmed, target), slot=max(state.slot, target)), (
                process._replace(step="write" if read else "durable", read=read, target=target))  # fmt: skip
            return
        if self.mutation == "confirms what was not read":
            target = state.committed
        yield "peek", state, process._replace(step="write" if read else "durable", read=read, target=target)

    def _resolved(self, state: State, process: Process) -> Iterator[tuple[str, State, Process]]:
        """Read the batches after the position; without one there is nothing to do."""
        batches = [batch for batch in state.batches if batch[-1] > state.position]
        if not batches:
            yield "resolved: nothing", state, process._replace(step="done")
            return
        numbers = {number for batch in batches for number in batch}
        if self.mutation != "applies whole batches":
            numbers = {number for number in numbers if number > state.position}
        events = tuple(sorted(numbers))
        last = max(batch[-1] for batch in batches)
        resolved = process._replace(step="set aside", applied=state.position, events=events, last=last)
        yield "resolved", state, resolved

    def _committing(self, state: State, process: Process) -> Iterator[tuple[str, State, Process]]:
        """One transaction: the batches of the partitions become current, and the position moves from where it was."""
        if state.position != process.applied and self.mutation != "neither lock nor comparison":
            yield "committing: another process has applied", state, process._replace(step="done")
            return
        lake = state.lake + process.events
        if self.mutation == "two transactions":
            yield "committing", state._replace(lake=lake), process._replace(step="move")
            return
        yield "committing", state._replace(lake=lake, position=process.last), process._replace(step="published")


# Errors to plant, each with the invariant that it breaks.
MUTATIONS = {
    "slot before durable": "what the source may discard is durable",
    "slot before catalog": "capture never stops by its own doing",
    "confirms what was not read": "what the source may discard is durable",
    "applies whole batches": "the lake has each transaction once, in the order of commits",
    "two transactions": "the lake is at the position",
    "neither lock nor comparison": "the lake has each transaction once, in the order of commits",
}
