"""To which project each dataset of a catalog belongs, where several projects share the catalog.

A named project owns what it declares from the first look of its sensors, or the first run, on. Another project that
declares the same dataset computes nothing of it. A project without a name owns nothing, and may use what nobody owns.

Not here: how a project reads what another one owns (varve/sql/syntax/external.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from varve.model.errors import NOTHING_LOST, OtherOwner, some

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    import psycopg

_OF = """
    select dataset, project, since, claimed_by from varve.owner
    where %s::text[] is null or dataset = any(%s) order by dataset
"""
# Another project may claim it at the same time: the first one has it.
_CLAIM = """
    insert into varve.owner (dataset, project, claimed_by) select unnest(%s::text[]), %s, %s on conflict do nothing
"""
_TAKE = """
    insert into varve.owner (dataset, project, claimed_by) select unnest(%s::text[]), %s, %s
    on conflict (dataset) do update
    set project = excluded.project, claimed_by = excluded.claimed_by, since = clock_timestamp()
    where varve.owner.project <> excluded.project
"""
_LEAVE = "delete from varve.owner where dataset = any(%s)"
_BY_ITSELF = "sensors and runs"


class Ownership(NamedTuple):
    """To which project a dataset belongs, since when, and who said so."""

    dataset: str
    project: str
    since: dt.datetime
    claimed_by: str


@dataclass(frozen=True)
class Owners:
    """The owners in a catalog, as one project sees them, over one connection in autocommit mode.

    Attributes:
        project: the name of that project; "" for one without a name.
    """

    connection: psycopg.Connection
    project: str

    def of(self, names: Iterable[str] | None = None) -> dict[str, Ownership]:
        """The owners of these datasets, or of all; those that nobody owns are left out."""
        listed = None if names is None else list(names)
        return {row[0]: Ownership(*row) for row in self.connection.execute(_OF, (listed, listed))}

    def others(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """By dataset the other project to which it belongs; of these datasets, or of all."""
        return {name: owner.project for name, owner in self.of(names).items() if owner.project != self.project}

    def claim(self, names: Iterable[str]) -> dict[str, str]:
        """Make datasets that nobody owns belong to this project, if it is named; returns the rest as `others` does."""
        listed = sorted(names)
        owned = self.of(listed)
        if self.project and (free := [name for name in listed if name not in owned]):
            self.connection.execute(_CLAIM, (free, self.project, _BY_ITSELF))
            owned = self.of(listed)
        return {name: owner.project for name, owner in owned.items() if owner.project != self.project}

    def claim_all(self, names: Iterable[str], lost: str = NOTHING_LOST) -> None:
        """Claim the datasets. Raises OtherOwner where one belongs to another project; `lost` says what was not done."""
        _refuse(self.claim(names), self.project, lost)

    def refuse(self, names: Iterable[str], lost: str = "Nothing was changed.") -> None:
        """Raise OtherOwner where one of the datasets belongs to another project; nothing is claimed."""
        _refuse(self.others(names), self.project, lost)

    def take(self, names: Iterable[str], *, by: str) -> None:
        """Make datasets belong to this project, whoever had them before; the other's sensors leave them alone then."""
        assert self.project, "only a project with a name can own datasets"
        self.connection.execute(_TAKE, (sorted(names), self.project, by))

    def leave(self, names: Iterable[str]) -> None:
        """Let datasets belong to nobody: the next named project that runs them has them."""
        self.connection.execute(_LEAVE, (sorted(names),))


def _refuse(others: dict[str, str], project: str, lost: str) -> None:
    if not others:
        return
    name, owner = next(iter(others.items()))
    here = f"this is project {project}" if project else "this project has no name"
    also = f" (also {some(sorted(others)[1:], limit=3)})" if len(others) > 1 else ""
    raise OtherOwner(
        f"{name}{also} belongs to project {owner}, and {here}. {lost} To read it here, declare it as EXTERNAL OPTIONS "
        f"(source = 'project', project = '{owner}'), which `varve import {name}` writes. To hand it over, run "
        f"`varve own {name}` in the project that shall compute it."
    )
