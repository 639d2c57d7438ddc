"""The SQL files of a folder, with the datasets of the Python files beside them.

Not here: the assets of the SQL files (sql_assets.py), their graph (varve/dagster/discovery.py), and reading the
files (varve/sql).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from varve.dagster.assets.datasets import DatasetAsset, with_rejected
from varve.dagster.assets.python_files import AskedTooEarly, half_imported, python_assets
from varve.planning.graph import PlannedReads
from varve.sql.files.sql_files import SqlFiles
from varve.sql.sql_project import load_usable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.model.dataset import Dataset
    from varve.sql.cache import Cache
    from varve.sql.sql_asset import SqlAsset


class NotDeclaredYet(Exception):
    """A module asks, while it is imported, for a SQL dataset that reads what a module declares further down."""


class EarlyFiles(SqlFiles):
    """The SQL datasets of a folder as far as they are known while modules beside them are being imported.

    Those are missing that read, however far upstream, what is declared further down in such a module. A lookup when
    the import is over finds them too; before, it raises NotDeclaredYet.
    """

    def __init__(self, files: SqlFiles, folder: Path, half_loaded: Sequence[str]) -> None:
        super().__init__(
            files, files.problems, files.broken, files.undeclared, files.questions, files.answers,
            files.value_questions, files.value_answers,
        )  # fmt: skip
        self.folder = folder
        self.half_loaded = tuple(half_loaded)

    def __missing__(self, name: str) -> SqlAsset:
        """Raises NotDeclaredYet, and what `SqlFiles` raises."""
        if not half_imported(self.folder):
            return sql_datasets(self.folder)[name]
        late = set(self.undeclared)
        # Each comes after those that it reads.
        for broken in self.broken:
            if late.intersection(broken.reads):
                late.add(broken.name)
        if name in late:
            raise NotDeclaredYet(f"{name} reads what is not declared yet. {self._advice}")
        return super().__missing__(name)

    def checked(self) -> SqlFiles:
        """Raise AskedTooEarly with what is not declared yet."""
        problems = "\n".join(map(str, self.problems))
        raise AskedTooEarly(f"{problems}\n{self._advice}")

    @property
    def _advice(self) -> str:
        return (
            "What asks for SQL datasets while it is imported must declare its own above that, or in another module; "
            f"it is {', '.join(self.half_loaded)}."
        )


def sql_datasets(folder: Path | str) -> SqlFiles:
    """Return the usable SQL datasets of a folder, with the broken ones and their errors; read once in a process.

    In a Python file beside them: `sql_datasets(Path(__file__).parent)["shop.orders"].dataset`. SQL datasets may read
    what that Python file declares further down; only to ask for one of them while the file is imported raises
    NotDeclaredYet.

    Looking up a broken dataset by its name raises DatasetIsBroken.
    """
    place = Path(folder)
    if (files := _read.get(place)) is None:
        files = usable(place)
        if not isinstance(files, EarlyFiles):
            _read[place] = files
    return files


# By folder, in this process.
_read: dict[Path, SqlFiles] = {}


def forget_files() -> None:
    """Read every folder again when somebody asks for it."""
    _read.clear()


def usable(folder: Path, cache: Cache | None = None) -> SqlFiles:
    """Return the SQL datasets of a folder, which may read datasets of the Python files beside them. See `load_usable`.

    While a module that declares such a dataset is being imported, they are `EarlyFiles`.
    """
    files = load_usable(folder, lambda: python_datasets(folder), cache)
    if files.undeclared and (half_loaded := half_imported(folder)):
        return EarlyFiles(files, folder, half_loaded)
    return files


def loaded(folder: Path, cache: Cache | None = None) -> SqlFiles:
    """Return the SQL datasets of a folder. Raises SqlErrors with every problem of every file."""
    return usable(folder, cache).checked()


def python_datasets(folder: Path) -> dict[str, Dataset]:
    """Return the datasets that the Python files of a folder declare, by name."""
    assets = [asset for asset in with_rejected(python_assets(folder)) if isinstance(asset, DatasetAsset)]
    return {asset.dataset.name: asset.dataset for asset in assets}


def planned_reads(sql_asset: SqlAsset) -> dict[str, PlannedReads]:
    """Return what a SQL dataset reads, by the name of the dataset."""
    return {
        name: PlannedReads(
            dataset=sql_asset.upstreams[name],
            dependency=sql_asset.dependency(name),
            wait=sql_asset.compiled.waits[name],
            columns=sql_asset.compiled.columns[name],
        )
        for name in sql_asset.reads
    }
