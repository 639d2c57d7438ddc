"""Whether a promotion would leave production consistent: the ordinary planner is asked, as if it had been made.

Which partitions are not made from what is current then? A promoted batch must be; and where a partition of production
is not although it was before, it reads what was promoted through an old batch.

Not here: moving pointers and taking it back (promoter.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from varve.catalog.code.code_states import CodeStates
from varve.catalog.planning.facts import CatalogFacts
from varve.planning.judgement.code import MadeBy, keeps_earlier
from varve.planning.judgement.judgement import State
from varve.planning.reconcile import Planner
from varve.stores.environments.completeness import Completeness, Former, files_of, former
from varve.stores.environments.promotion import Closure, Listed

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    import psycopg

    from varve.model.batch import BatchId
    from varve.model.partitions.dimension import Members
    from varve.planning.graph import Graph
    from varve.planning.reconcile import Limits
    from varve.stores.environments.promotion import Promotion

# A partition in one of these states is not made from what is current, by the code that is deployed.
_STALE = {State.DUE, State.WAITING, State.OUTDATED, State.ON_HOLD, State.BACKING_OFF, State.FAILED}
_SETTLED = (State.CURRENT, "")
# Of those, what a run in the environment would mend.
_COMPUTABLE = {State.DUE, State.OUTDATED, State.BACKING_OFF, State.FAILED}

# By dataset and partition: the state, and why.
Judged = dict[str, dict[str, tuple[State, str]]]


@dataclass(frozen=True)
class ClosureCheck:
    """Asks the planner over one connection, in whose transaction a promotion may have been made."""

    connection: psycopg.Connection
    graph: Graph
    members: Members
    limits: Limits
    now: dt.datetime

    def former(self, promotion: Promotion) -> dict[str, Former]:
        """What readers have now of the datasets that move to another generation."""
        return former(self.connection, self.graph, promotion.generations)

    def judged(self, promotion: Promotion) -> Judged:
        """The states of partitions that are not settled, as the transaction sees the catalog.

        Of the datasets that are promoted and their direct readers: only there are inputs, code or batches others than
        before, and from what a partition is made decides whether it is stale.
        """
        codes = CodeStates(self.connection).of(self.graph)
        planner = Planner(self.graph, self.limits, fatal=(Exception,), only=concerned(self.graph, promotion))
        facts = CatalogFacts(self.connection, {}, codes)
        plan = planner.tick(facts, None, now=self.now, members=self.members, codes=codes)
        judged: Judged = {}
        for name, judgements in plan.judgements.items():
            held = [path for path, judgement in judgements.items() if judgement.state is State.ON_HOLD]
            # That it stays, whatever becomes of its inputs, is what was declared.
            stays = {
                path for path, fact in (facts.of(name, held) if held and name in codes else {}).items()
                if keeps_earlier(codes[name], fact.made_by)
            }  # fmt: skip
            judged[name] = {
                path: (judgement.state, judgement.reason)
                for path, judgement in judgements.items() if path not in stays
            }  # fmt: skip
        return judged

    def others(self, promotion: Promotion, before: Judged, after: Judged) -> Listed:
        """The partitions that exist, are stale, and are neither promoted nor were stale before by the same code.

        Whether a new generation is complete is asked elsewhere.
        """
        # Before, these waited for the new generation: that does not say that they are out of date anyway.
        waited = {name for moved in promotion.generations for name in self.graph.downstream(moved)}
        listed: Listed = {}
        for name in after.keys() - promotion.generations.keys():
            stale = {
                path: reason
                for path, (state, reason) in after[name].items()
                if state in _STALE and path not in promotion.batches.get(name, {})
            }  # fmt: skip
            # What was out of date before stays so, but for its code: a dataset of two codes is held as a whole.
            kept = set() if name in waited else {
                path for path in stale if before.get(name, {}).get(path, _SETTLED)[0] in _STALE
            }  # fmt: skip
            if kept and name in promotion.codes:
                facts = CatalogFacts(self.connection, {}, CodeStates(self.connection).of(self.graph))
                kept -= {path for path, fact in facts.of(name, kept).items() if fact.made_by == MadeBy.OTHER}
            others = {path: reason for path, reason in stale.items() if path not in kept}
            existing = CatalogFacts(self.connection).existing_partitions(name) if others else set()
            if others := {path: reason for path, reason in others.items() if path in existing}:
                listed[name] = others
        return listed

    def unclosed(self, promotion: Promotion, before: Judged, after: Judged, formers: Mapping[str, Former]) -> Closure:
        """What is inconsistent, given the states before and after, and what readers had (`formers`)."""
        completeness = Completeness(self.connection, self.graph, self.members, formers)
        moved: Listed = {}
        lacking: Listed = {}
        for name, judgements in after.items():
            promoted, is_new = promotion.batches.get(name, {}), name in promotion.generations
            # Of a new generation also what is due in it.
            moved[name] = {
                path: reason for path, (state, reason) in judgements.items()
                if (state in _STALE and path in promoted) or (is_new and state in _COMPUTABLE)
            }  # fmt: skip
            if is_new and moved[name] and formers[name].files:
                # Of a file that has come again, production has taken no rows yet either: its sensors do, afterwards.
                files = files_of(self.connection, self.graph.datasets[name])
                same = {path for path, file in formers[name].files.items() if files.get(path) == file}
                moved[name] = {path: why for path, why in moved[name].items() if path not in same}
            if is_new:
                lacking[name] = completeness.lacking(name, promoted.keys() | moved[name].keys(), judgements)
        return Closure(_filled(moved), self.others(promotion, before, after), _filled(lacking))

    def without(self, promotion: Promotion, closure: Closure) -> Promotion:
        """The promotion without what is inconsistent: partitions, or all of a dataset whose code would be mixed.

        All of it too where readers would move to another generation: half of one is none.
        """
        batches = {name: dict(paths) for name, paths in promotion.batches.items()}
        codes, left_out = dict(promotion.codes), {name: dict(paths) for name, paths in promotion.left_out.items()}
        generations = dict(promotion.generations)

        def leave_out(name: str, paths: Mapping[str, str]) -> None:
            # Accepted and rejected rows of a file are shown together.
            for each, path in product(filter(None, (name, self.graph.datasets[name].published_with)), paths):
                if batches.get(each, {}).pop(path, None) is not None:
                    left_out.setdefault(each, {})[path] = paths[path]

        def leave_out_whole(name: str, reason: str) -> None:
            codes.pop(name, None)
            generations.pop(name, None)
            leave_out(name, dict.fromkeys(batches.get(name, {}), reason))

        # What is behind first: without what it reads, other batches may be made from what is current after all.
        found = closure.behind or closure.moved
        mixed = {name for name in found if name in codes or name in generations}
        for name in mixed:
            leave_out_whole(name, "its dataset would have partitions of two codes")
        for name, paths in ({} if closure.behind else closure.moved).items():
            leave_out(name, paths)
        for name, paths in closure.behind.items():
            if name in mixed:
                continue
            for path, reason in paths.items():
                for source, upstream_path in self._promoted_inputs(batches, name, path):
                    if source in codes or source in generations:
                        leave_out_whole(source, f"{name} {path} reads some of it")
                    leave_out(source, {upstream_path: f"{name} {path} {reason}"})
        # A new generation may have no partition yet.
        left = {name: paths for name, paths in batches.items() if paths or name in generations}
        return replace(promotion, codes=codes, batches=left, left_out=left_out, generations=generations)

    def _promoted_inputs(
        self, batches: Mapping[str, Mapping[str, BatchId]], name: str, path: str
    ) -> list[tuple[str, str]]:
        """The promoted partitions that a partition of production reads."""
        key = self.graph.datasets[name].partitioning.from_path(path)
        return [
            (edge.upstream.name, upstream.path)
            for edge in self.graph.edges[name]
            for upstream in edge.dependency.upstream_of(key, members=self.members).keys
            if upstream.path in batches.get(edge.upstream.name, {})
        ]


def _filled(listed: Listed) -> Listed:
    return {name: paths for name, paths in listed.items() if paths}


def concerned(graph: Graph, promotion: Promotion) -> set[str]:
    """The datasets of which a promotion can change whether partitions are stale."""
    promoted = {*promotion.batches, *promotion.codes}
    return promoted | {
        name for name, edges in graph.edges.items() if any(edge.upstream.name in promoted for edge in edges)
    }
