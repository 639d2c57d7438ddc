"""The lease of a run as a state machine: its process, which may freeze; the server, which may be away; two watchers.

Somebody asks for the run, and it is queued and launched: one that dies between asking and queueing leaves a run that
nobody will start, for which only a watcher can enter a lease. The process takes the lease, renews it, and publishes.
Whoever watches looks at expired leases twice (`_MISS`, `_LOSE`),
and between the two there is time for one renewal. When the run counts as dead, another run builds the partition.

Time is what may happen: a lease expires while its process is frozen or the server is away, and a process that is awake
renews before a second look (`beat`), as a third of a term passes between the looks.

The steps are named as the methods of `Leases`, and its statements; test_models.py compares the names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# The methods of Leases that change a lease or decide by it, in the order of a life.
LIFE = ("keep", "withdraw", "take", "refuse_lost", "give_back", "end", "dead_runs", "end_sessions")


class State(NamedTuple):
    """The lease in the catalog, the process of the run, and what has been published.

    Attributes:
        lease: none, kept (for a process that starts), taken, lost or given back.
        asked_only: whether a watcher has entered the lease, because the run was asked for and not queued.
        queued: whether the run was queued: one that dies later is seen by Dagster's monitor, or by its lease.
        process: asked (for), starting, building, checked (in the transaction of its publish, after
            refuse_lost), published, over.
        frozen: whether the process does nothing for now, and its machine answers nobody; `slept`, whether it was since
            its last renewal.
        session: whether the server still has the session in which the process builds.
        away: whether the server is away.
        beat: whether the process could have renewed since its lease was missed.
        watchers: what each watcher does next: look, enter (a lease), end (the sessions), lose.
        heir: whether another run has built the partition, because this one counts as dead.
        zombie: whether the run has published while it counted as dead.
        mistaken: whether a process was declared dead that was never frozen.
        revived: whether a lost lease was renewed.
    """

    lease: str = "none"
    expired: bool = False
    missed: bool = False
    beat: bool = False
    asked_only: bool = False
    queued: bool = False
    process: str = "asked"
    frozen: bool = False
    slept: bool = False
    session: bool = True
    away: bool = False
    watchers: tuple[str, ...] = ("look", "look")
    heir: bool = False
    zombie: bool = False
    mistaken: bool = False
    revived: bool = False
    troubles: int = 0


@dataclass(frozen=True)
class LeaseModel:
    """The machine; `troubles` is how often the process freezes or the server is away."""

    troubles: int = 4
    mutation: str = ""
    first: State = field(default_factory=State)

    @property
    def invariants(self) -> Mapping[str, Callable[[State], bool]]:
        """What holds in every state."""
        return {
            "a run that counts as dead publishes nothing": lambda state: not state.zombie,
            "a lost lease is never renewed": lambda state: not state.revived,
            "nobody who is awake is taken for dead": lambda state: not state.mistaken,
        }

    def is_good(self, state: State) -> bool:
        """The partition was built, or can be by another run."""
        never_launched = state.process == "dead" and state.queued and state.lease == "none"
        return state.heir or state.process in {"published", "over"} or never_launched

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step of everybody."""
        if state.troubles < self.troubles:
            troubled = state._replace(troubles=state.troubles + 1)
            if not state.frozen and state.process not in {"over", "published", "dead"}:
                yield "the process freezes", troubled._replace(frozen=True, slept=True)
                yield "the process is killed", troubled._replace(process="dead", session=False, slept=True)
            if not state.away:
                yield "the server is away", troubled._replace(away=True)
        if state.frozen:
            yield "the process wakes", state._replace(frozen=False)
        if state.away:
            yield "the server is back", state._replace(away=False)
        # Only a process that cannot renew lets its lease expire.
        if (
            state.lease in {"kept", "taken"}
            and not state.expired
            and (state.frozen or state.away or state.process == "dead")
        ):
            yield "the lease expires", state._replace(expired=True)
        if not state.away:
            yield from self._watch(state)
            if not state.frozen:
                yield from self._live(state)

    def _live(self, state: State) -> Iterator[tuple[str, State]]:  # noqa: PLR0912 - a line for each step
        match state.process:
            case "asked":
                yield "queued", state._replace(process="starting", queued=True)
            case "starting" if state.lease == "kept" and state.asked_only:
                gone = state._replace(lease="none", asked_only=False, expired=False, missed=False, beat=False)
                yield "withdraw", gone
            case "starting" if state.lease == "none":
                yield "keep", state._replace(lease="kept")
            case "starting":
                # A lease that was lost before any process took it may still be taken: nothing was locked or written.
                renewed = state._replace(asked_only=False, expired=False, missed=False, beat=False, slept=False)
                yield "take", renewed._replace(lease="taken", process="building")
            case "building" | "checked":
                if state.lease == "lost" and self.mutation == "renews what is lost":
                    yield "take", state._replace(lease="taken", expired=False, missed=False, revived=True)
                elif state.lease == "taken":
                    yield "take", state._replace(expired=False, missed=False, beat=False, slept=False)
        if state.process == "building":
            if not state.session:
                yield "gives up", state._replace(process="over")
                # A later step of the run opens a session of its own.
                yield "begin", state._replace(session=True)
            elif state.lease == "lost" and self.mutation not in {"publish does not look", "renews what is lost"}:
                yield "refuse_lost: refused", state._replace(process="over")
            else:
                yield "refuse_lost", state._replace(process="checked")
        if state.process == "checked":
            if state.session:
                yield "commit", state._replace(process="published", zombie=state.lease == "lost")
            else:
                yield "gives up", state._replace(process="over")
        if state.process == "published" and state.lease == "taken":
            yield "give_back", state._replace(lease="given back", process="over")

    def _watch(self, state: State) -> Iterator[tuple[str, State]]:  # noqa: PLR0912 - a line for each step
        if (
            state.lease in {"kept", "taken"}
            and state.missed
            and not state.beat
            and (state.frozen or state.process == "dead")
        ):
            yield "a third of a term passes", state._replace(beat=True)
        for number, watcher in enumerate(state.watchers):

            def then(doing: str, after: State, number: int = number) -> State:
                watchers = (*after.watchers[:number], doing, *after.watchers[number + 1 :])
                return after._replace(watchers=watchers)

            living = state.lease in {"kept", "taken"}
            # It read Dagster's runs, and enters the lease later, when the run may have gone on.
            if watcher == "look" and not state.queued and self.mutation != "asked for is alive":
                yield f"{number}: dead_runs: not started", then("enter", state)
            if watcher == "enter":
                entered = state._replace(lease="kept", asked_only=True) if state.lease == "none" else state
                yield f"{number}: keep", then("look", entered)
            if watcher == "look" and living and state.expired:
                if not state.missed and self.mutation != "one look":
                    yield f"{number}: dead_runs: missed", state._replace(missed=True, beat=False)
                elif state.beat or self.mutation in {"one look", "no time between"}:
                    yield f"{number}: dead_runs: overdue", then("end", state)
            if watcher == "end":
                # A session that is in its publish keeps the row locked: it is ended first, where we may.
                yield f"{number}: end_sessions", then("lose", state._replace(session=False))
                yield f"{number}: end_sessions: not allowed", then("lose", state)
            if watcher == "lose":
                # What was renewed meanwhile is left alone, and so is a row that a publish has locked.
                locked = state.process == "checked" and state.session and self.mutation != "the check locks nothing"
                due = state.expired and (state.missed or self.mutation == "one look")
                due = due and (state.beat or self.mutation in {"one look", "no time between"})
                if living and due and not locked:
                    yield f"{number}: lose", then("look", state._replace(lease="lost", mistaken=not state.slept))
                else:
                    yield f"{number}: lose: not any more", then("look", state)
        if state.lease == "taken" and state.process in {"building", "dead"}:
            yield "end", state._replace(lease="lost")
        # The locks of the partition go with the session.
        if state.lease == "lost" and not state.heir and not state.session:
            yield "another run builds the partition", state._replace(heir=True)


# Errors to plant, each with the invariant that it breaks.
MUTATIONS = {
    "renews what is lost": "a lost lease is never renewed",
    "publish does not look": "a run that counts as dead publishes nothing",
    "the check locks nothing": "a run that counts as dead publishes nothing",
    "asked for is alive": "nobody is stuck for ever",
    "one look": "nobody who is awake is taken for dead",
    "no time between": "nobody who is awake is taken for dead",
}
