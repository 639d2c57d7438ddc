"""`DatasetSnapshot`: a dataset of one version of a project as a plain value, which can be compared and written as JSON.

Not here: how a version is read (varve/dagster/snapshots.py), and what differs between two of them (changes.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# A column of a dataset: (`db.table`, column), in lower case.
ColumnName: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DatasetSnapshot:
    """A dataset as one version of a project declares it; names of columns are in lower case.

    Attributes:
        columns: its data columns and then its partition columns, with their types.
        owners: who is responsible for it.
        reads: by upstream dataset the columns that it uses; None: all of them, because nothing says which.
        made_of: for each column of a query's result, the columns of datasets that its values are computed from; None
            where nobody can tell, as of a function.
        file: where it is declared, as messages name it; "" where that is not known.
        in_python: whether Python declares it.
        code_version: a hash of the code that computes it; "" where that is not known.
        store: where its batches lie; "" where that is not known.
        declaration: its columns, as the catalog would keep them; None where that is not known.
    """

    name: str
    columns: Mapping[str, str]
    owners: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    made_of: Mapping[str, tuple[ColumnName, ...]] | None = None
    file: str = ""
    in_python: bool = False
    code_version: str = ""
    store: str = ""
    declaration: Mapping[str, Any] | None = None

    @property
    def renames(self) -> dict[str, str]:
        """By each former name of a column the one that it has; nothing where its declaration is not known."""
        columns = (self.declaration or {}).get("columns", [])
        return {was.lower(): name.lower() for name, _, _, _, *former in columns for names in former for was in names}

    def reads_column(self, upstream: str, column: str) -> bool:
        """Whether it uses a column of a dataset; a dataset of which nothing says which columns it uses, uses all."""
        if upstream not in self.reads:
            return False
        columns = self.reads[upstream]
        return columns is None or column in columns

    def made_from(self, upstream: str, column: str) -> set[str]:
        """Its columns whose values are computed from a column of a dataset: all of them where nobody can tell."""
        if self.made_of is None:
            return set(self.columns) if self.reads_column(upstream, column) else set()
        return {name for name, sources in self.made_of.items() if (upstream, column) in sources}


Snapshot: TypeAlias = "Mapping[str, DatasetSnapshot]"


def as_values(snapshots: Iterable[DatasetSnapshot]) -> list[dict[str, Any]]:
    """The snapshots as values that JSON can hold."""
    return [
        {
            "name": snapshot.name,
            "columns": list(snapshot.columns.items()),
            "owners": list(snapshot.owners),
            "reads": {name: None if columns is None else list(columns) for name, columns in snapshot.reads.items()},
            "made_of": None if snapshot.made_of is None else list(snapshot.made_of.items()),
            "file": snapshot.file,
            "in_python": snapshot.in_python,
            "code_version": snapshot.code_version,
            "store": snapshot.store,
            "declaration": snapshot.declaration,
        }
        for snapshot in snapshots
    ]


def from_values(values: Iterable[Mapping[str, Any]]) -> dict[str, DatasetSnapshot]:
    """The snapshots by name, from what `as_values` returned."""
    return {
        value["name"]: DatasetSnapshot(
            value["name"],
            dict(value["columns"]),
            tuple(value["owners"]),
            {name: None if columns is None else tuple(columns) for name, columns in value["reads"].items()},
            None
            if value["made_of"] is None
            else {name: tuple((dataset, column) for dataset, column in made) for name, made in value["made_of"]},
            value["file"],
            value["in_python"],
            value["code_version"],
            value["store"],
            value["declaration"],
        )
        for value in values
    }
