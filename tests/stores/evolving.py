"""A dataset whose declaration changes, with its environments and promotions, without Dagster.

    python -m tests.stores.evolving WHEN FUNCTION FILE

goes on with what the pickled file says, and kills itself (SIGKILL) before or after a function's first call; with
`never` it does all of it.
"""

from __future__ import annotations

import pickle
import sys
import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum

from tests.support.workbench import Workbench
from varve.catalog.code.deployments import Deployments
from varve.catalog.code.generations import Generations
from varve.catalog.environments.environments import Environments
from varve.catalog.environments.overlay import EnvironmentCatalog
from varve.model.dataset import Dataset, StoreKind
from varve.planning.graph import Graph
from varve.planning.reconcile import Limits
from varve.stores.environments.promoter import Promoter
from varve.stores.environments.promotion import LeftBehind
from varve.stores.environments.rewriting import Rewriter
from varve.stores.environments.store import EnvironmentStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.catalog.catalog import Catalog
    from varve.model.partitions.key import PartitionKey
    from varve.stores.environments.promotion import Promotion

NOW = pendulum.datetime(2013, 1, 10)


@dataclass
class Evolving:
    """A dataset whose declaration changes, and its environments."""

    workbench: Workbench
    catalog: Catalog
    dataset: Dataset
    code: str = "v1"

    @property
    def graph(self) -> Graph:
        name = self.dataset.name
        return Graph({name: self.dataset}, {name: ()}, {name: self.code}, sources={name: repr(self.dataset)})

    def changed(self, **changes: Any) -> Evolving:
        return replace(self, dataset=replace(self.dataset, **changes), code=uuid.uuid4().hex[:8])

    def build(self, catalog: Catalog, keys: Sequence[PartitionKey], query: str) -> None:
        """Begin, stage, verify and publish, as a run does."""
        store = self.workbench.store(self.dataset, catalog)
        if isinstance(catalog, EnvironmentCatalog):
            store = EnvironmentStore(store, catalog)
        else:
            Deployments(catalog.connection).admit(self.dataset, self.code, "", [key.path for key in keys])
        build = catalog.begin(self.dataset, keys, run_id=f"run-{uuid.uuid4()}", code_version=self.code)
        try:
            staged = store.stage(build, self.workbench.spark.sql(query))
            catalog.staged(build, staged)
            store.verify(build, staged)
            store.publish(build, staged)
        finally:
            catalog.release(build)

    def environment(self) -> EnvironmentCatalog:
        """An environment that has computed nothing with the code that is here."""
        name = f"e{uuid.uuid4().hex[:8]}"
        environments = Environments(self.catalog.connection)
        environments.create(name, by="ann")
        environments.set_code(name, self.graph)
        Generations(self.catalog.connection).enter(name, self.graph)
        return EnvironmentCatalog(self.catalog.connection, name)

    def promote(self, environment: EnvironmentCatalog) -> Promotion:
        promoter = Promoter(
            self.catalog, self.graph, lambda each: self.workbench.store(each, self.catalog), {}, Limits(), NOW,
            earlier_code=True,
        )  # fmt: skip
        return promoter.promote(environment.environment, LeftBehind.REFUSE, by="ann")

    def seen(self, columns: str) -> list[tuple[Any, ...]]:
        """What a reader by name sees."""
        if self.dataset.store == StoreKind.LAKE:
            self.workbench.spark.catalog.refreshTable(self.dataset.name)
            rows = self.workbench.spark.sql(f"SELECT {columns} FROM {self.dataset.name}").collect()
            return sorted(map(tuple, rows))
        query = f"select {columns} from {self.dataset.name}"
        return sorted(self.catalog.connection.execute(query.encode()).fetchall())

    def rewrite_the_rest(self, environment: EnvironmentCatalog, old: Dataset) -> None:
        """Make batches of the environment of those that readers have, one by one, where it has none yet."""
        there = environment.current(self.dataset.name)
        rewriter = Rewriter(
            environment, self.dataset, Generations(self.catalog.connection).published()[self.dataset.name].shape,
            self.workbench.store(old, self.catalog),
            EnvironmentStore(self.workbench.store(self.dataset, environment), environment),
        )  # fmt: skip
        for path, batch in self.catalog.current(self.dataset.name).items():
            if path not in there:
                rewriter.rewrite([batch], run_id=f"rewrite-{uuid.uuid4()}", code_version=self.code)


def main(when: str, function: str, file: str) -> None:
    from tests.e2e.crash_run import arm
    from varve.services.settings import Settings
    from varve.services.spark import open_session

    old, dataset, code, name = pickle.loads(Path(file).read_bytes())  # noqa: S301 - the test has written it
    settings = Settings()
    workbench = Workbench(settings, open_session(settings))
    if when != "never":
        arm("self", when, function)
    with closing((catalog := workbench.catalog()).connection):
        evolving = Evolving(workbench, catalog, dataset, code)
        environment = EnvironmentCatalog(catalog.connection, name)
        if Generations(catalog.connection).of_environment(name)[dataset.name].is_new:
            evolving.rewrite_the_rest(environment, old)
            evolving.promote(environment)


if __name__ == "__main__":
    main(*sys.argv[1:])
