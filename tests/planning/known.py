"""Facts for the planner, given by a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from varve.planning.judgement.facts import Fact


@dataclass(frozen=True)
class CatalogReader:
    """Facts from a dict."""

    facts: dict[str, dict[str, Fact]]

    def of(self, dataset: str, paths: Collection[str] | None) -> dict[str, Fact]:
        facts = self.facts.get(dataset, {})
        return facts if paths is None else {path: facts[path] for path in paths if path in facts}
