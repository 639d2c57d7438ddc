"""SQL files as Dagster assets: `sql_assets()`.

Not here: what a file says and means (sql/), the rows of a run (sql_rows.py), and the datasets (assets/*.sql).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from varve.dagster.assets.datasets import DatasetAsset, dataset_asset, with_rejected
from varve.dagster.assets.python_files import half_imported, python_assets
from varve.dagster.assets.sql_rows import rows
from varve.dagster.runs.failures import as_dagster_failure
from varve.model.broken_dataset import BrokenDataset
from varve.model.dataset import Dataset
from varve.model.errors import NOTHING_LOST, VarveError, VerifyFailed
from varve.planning.graph import PlannedReads
from varve.planning.requested import AGAIN_TAG
from varve.sql.sql_asset import SqlAsset
from varve.sql.sql_files import SqlFiles
from varve.sql.sql_project import load_usable
from varve.stores.frames import observed_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from varve.catalog.traces import ReusedBatches
    from varve.sql.cache import Cache
    from varve.stores.open_build import OpenBuild


@lru_cache
def sql_datasets(folder: Path) -> SqlFiles:
    """The SQL datasets of a folder that can be used, read once in a process; it says which cannot, and why.

    In a Python file beside them: `sql_datasets(Path(__file__).parent)["shop.orders"].dataset`.

    To ask it for one of those by its name raises DatasetIsBroken.
    """
    return usable(folder)


def usable(folder: Path, cache: "Cache | None" = None) -> SqlFiles:
    """The SQL datasets of a folder, with those that they read of the Python files beside them. See `load_usable`.

    Raises VarveError where it is asked while a module that declares one of those is still being imported.
    """
    files = load_usable(folder, lambda: python_datasets(folder), cache)
    if files.undeclared and (half := half_imported(folder)):
        problems = "\n".join(map(str, files.problems))
        raise VarveError(
            f"{problems}\nWhat asks for SQL datasets while it is imported must declare its own above that, or in "
            f"another module; it is {', '.join(half)}."
        )
    return files


def loaded(folder: Path, cache: "Cache | None" = None) -> SqlFiles:
    """The same. Raises SqlErrors with everything that is wrong in any file."""
    return usable(folder, cache).checked()


def python_datasets(folder: Path) -> dict[str, Dataset]:
    """The datasets that the Python files of a folder declare, by name."""
    assets = [found for found in with_rejected(python_assets(folder)) if isinstance(found, DatasetAsset)]
    return {found.dataset.name: found.dataset for found in assets}


def assets_of(files: Mapping[str, SqlAsset], folder: Path) -> list[DatasetAsset | BrokenDataset]:
    """What each file declares, and each dataset of the Python files beside them."""
    return with_rejected([*python_assets(folder), *sql_assets(files)])


def sql_assets(files: Mapping[str, SqlAsset]) -> list[DatasetAsset | BrokenDataset]:
    """An asset for each file, and the datasets that cannot be used, where `files` knows of some."""
    broken = files.broken if isinstance(files, SqlFiles) else ()
    return [*(_asset(found) for found in files.values()), *broken]


def _asset(found: SqlAsset) -> DatasetAsset:
    reads = {
        _argument(name): PlannedReads(
            dataset=found.upstreams[name], dependency=found.dependency(name), columns=found.kept.columns[name]
        )
        for name in found.reads
    }
    about: dict[str, Any] = {
        "tags": {f"varve/{name}": value for name, value in found.kept.tags},
        "metadata": {
            "varve/file": found.source.path,
            "varve/sql": dg.MetadataValue.md(f"```sql\n{found.source.text}\n```"),
            **lineage_metadata(found),
        },
        "check_specs": [
            dg.AssetCheckSpec(
                name,
                asset=dg.AssetKey(found.dataset.name.split(".")),
                description=f"no row for which {condition} is false; else the run publishes nothing",
            )
            for name, condition in found.kept.expectations
        ],
    }
    return dataset_asset(found.dataset, reads=reads, code_version=found.code_version, about=about)(_compute(found))


def lineage_metadata(found: SqlAsset) -> dict[str, Any]:
    """Of which columns each column is made, under Dagster's key for it; nothing where the body is no SELECT."""
    made = {
        name: [dg.TableColumnDep(dg.AssetKey(dataset.split(".")), column) for dataset, column in sources]
        for name, sources in found.lineage.items()
        if sources
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(made)} if made else {}


def _argument(name: str) -> str:
    return name.replace(".", "__")


def _compute(found: SqlAsset) -> Callable[..., Any]:
    """The body of the asset: its rows, then what its expectations said of them."""

    def compute(context: dg.AssetExecutionContext, **inputs: Any) -> Iterator[Any]:
        opened = context.resources.builds.of(context)
        expectations = Expectations(found, context, opened)
        if (again := _again(found, context, opened)) is not None:
            yield dg.Output(again, metadata=lineage_metadata(found))
            yield from expectations.results()
            return
        frames = {name: inputs[_argument(name)] for name in found.reads}
        with as_dagster_failure():
            try:
                frame = rows(found, context, opened, frames)
            except VarveError as error:
                context.resources.builds.abandon(opened, str(error))
                raise
        yield dg.Output(expectations.watched(frame), metadata=lineage_metadata(found))
        yield from expectations.results()

    compute.__name__ = found.dataset.table
    compute.__doc__ = found.dataset.comment
    return compute


def _again(found: SqlAsset, context: dg.AssetExecutionContext, opened: "OpenBuild") -> "ReusedBatches | None":
    """Batches that hold what a run of the planner would compute, as its query was asked of the same inputs before.

    Not for runs by hand and backfills, which want it computed, nor where a foreign function may do something else.
    """
    from varve.catalog.traces import Traces

    asked = context.run.tags.get(AGAIN_TAG) == "yes"
    if not asked or opened.together or found.sql.query is None or found.dataset.policy.refresh_last:
        return None
    return Traces(opened.catalog.connection).again(opened.build)


class Expectations:
    """Counts, in the job that writes them, the rows that break an EXPECT; the run publishes nothing where there are."""

    def __init__(self, found: SqlAsset, context: dg.AssetExecutionContext, opened: "OpenBuild") -> None:
        self.found = found
        self.context = context
        self.opened = opened
        self.seen: Any = None

    def watched(self, frame: "DataFrame") -> "DataFrame":
        """The frame, observed."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        if not self.found.sql.expectations:
            return frame
        self.seen = Observation("expectations")
        counts = [F.count_if(~F.expr(f"({each.text}\n)")).alias(each.name) for each in self.found.sql.expectations]
        self.opened.pre_publish_checks.append(self.look)
        return frame.observe(self.seen, *counts)

    def look(self) -> None:
        """Raise VerifyFailed, before anything is published, with each expectation that rows break."""
        broken = {name: count for name, count in observed_by(self.seen).items() if count}
        key = self.context.asset_key
        for name, count in broken.items():
            self.context.instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=key,
                    check_name=name,
                    passed=False,
                    metadata={"rows": count, "run": self.opened.build.run_id},
                )
            )
        if broken:
            texts = {each.name: each.text for each in self.found.sql.expectations}
            rows_that_break = "; ".join(f"{count} rows break {name} ({texts[name]})" for name, count in broken.items())
            raise VerifyFailed(
                f"{self.opened.build}: {rows_that_break}. {NOTHING_LOST} Mend the query or what it reads."
            )

    def results(self) -> Iterator[dg.AssetCheckResult]:
        """All of them hold: else the run would have failed."""
        for each in self.found.sql.expectations:
            yield dg.AssetCheckResult(check_name=each.name, passed=True, metadata={"rows": 0})
