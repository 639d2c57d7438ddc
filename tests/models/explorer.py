"""An explicit-state model checker: every state that a model reaches, by every interleaving of its actors.

A model has a first state, the steps that are possible in a state, and invariants that hold in every state. States are
hashable values. `explore` visits each of them once, breadth first, so that a violation comes with a shortest history.

Not here: the models (capture_model.py, publish_model.py, lease_model.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping


class Model(Protocol):
    """What is explored."""

    @property
    def first(self) -> Hashable: ...

    @property
    def invariants(self) -> Mapping[str, Callable[[Any], bool]]: ...

    def steps(self, state: Any) -> Iterable[tuple[str, Hashable]]:
        """The names of the steps that are possible in a state, each with the state after it."""

    def is_good(self, state: Any) -> bool:
        """Whether the state is one that can be reached again from every state: nobody is stuck for ever."""


@dataclass(frozen=True)
class Explored:
    """The result: how many states and steps there are, and the first violation with the history that leads to it."""

    states: int
    steps: int
    violated: str = ""
    history: tuple[str, ...] = ()


def explore(model: Model, *, limit: int = 2_000_000) -> Explored:
    """Visit every state of the model. Raises AssertionError where it has more than `limit`."""
    before: dict[Hashable, tuple[Hashable | None, str]] = {model.first: (None, "")}
    leads_to: dict[Hashable, list[Hashable]] = {}
    queue, steps = deque([model.first]), 0
    while queue:
        state = queue.popleft()
        for name, holds in model.invariants.items():
            if not holds(state):
                return Explored(len(before), steps, name, _history(before, state))
        for step, after in model.steps(state):
            steps += 1
            leads_to.setdefault(after, []).append(state)
            if after not in before:
                before[after] = (state, step)
                assert len(before) <= limit, f"more than {limit} states"
                queue.append(after)
    if stuck := _stuck(model, before, leads_to):
        return Explored(len(before), steps, "nobody is stuck for ever", _history(before, stuck[0]))
    return Explored(len(before), steps)


def _stuck(model: Model, states: Iterable[Hashable], leads_to: Mapping[Hashable, list[Hashable]]) -> list[Hashable]:
    """The states from which no good one can be reached, those that are reached first before the others."""
    states = list(states)
    reaching = {state for state in states if model.is_good(state)}
    queue = deque(reaching)
    while queue:
        for state in leads_to.get(queue.popleft(), ()):
            if state not in reaching:
                reaching.add(state)
                queue.append(state)
    return [state for state in states if state not in reaching]


def _history(before: Mapping[Hashable, tuple[Hashable | None, str]], state: Hashable) -> tuple[str, ...]:
    steps: list[str] = []
    current: Hashable | None = state
    while current is not None:
        current, step = before[current]
        steps.append(step)
    return tuple(reversed(steps[:-1]))
