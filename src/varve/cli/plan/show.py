"""`varve show`: a dataset's dimensions, and which partitions one of its partitions reads and is read by.

The partitions follow from the dimension mappings alone. Where a catalog is reachable, their current batches are shown
too; no server is started for that.

Not here: what is due and why (`varve why`), and what lies in the stores (`varve status`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pendulum
from rich.markup import escape

from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_graph, chosen_project, chosen_settings
from varve.cli.printing import Table
from varve.cli.problems.broken import broken_values
from varve.cli.selection import dataset_named, partition_named
from varve.dagster.assets.sql_folders import sql_datasets, usable
from varve.dagster.discovery import graph_of_folder
from varve.model.errors import ServiceUnavailable, VarveError, some
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.key import plain
from varve.planning.mapping.dataset_mapping import listed
from varve.planning.requested import why_not
from varve.services.postgres import connect
from varve.services.postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from varve.model.dataset import Dataset
    from varve.model.partitions.dimension import Dimension, Members
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Edge, Graph
    from varve.planning.mapping.dataset_mapping import Mapped
    from varve.sql.sql_asset import SqlAsset

_LISTED = 200


def show(
    console: Console,
    name: str,
    pairs: Sequence[str],
    *,
    as_json: bool,
    folder: Path | None = None,
    sql: bool = False,
) -> None:
    """Print a dataset of the project, or of a folder of SQL files, and one of its partitions where `pairs` names it.

    Raises VarveError for an unknown dataset, UnknownPartition for words that name no partition.
    """
    files = usable(folder) if folder else sql_datasets(chosen_project().assets)
    graph = graph_of_folder(folder, files) if folder else _project()
    dataset = dataset_named(name, graph)
    key = partition_named(dataset, pairs) if pairs or not dataset.partitioning.dimensions else None
    if sql:
        print_sql(console, _file(dataset, files), key, as_json=as_json)
        return
    members = members_of(dataset, graph)
    shown: dict[str, Any] = {
        "dataset": dataset.name,
        "dimensions": [_dimension(dimension, members) for dimension in dataset.partitioning.dimensions],
        "stored": {"store": dataset.store, "clauses": list(_clauses(dataset))},
        "reads": [_edge(edge) for edge in graph.edges[dataset.name]],
        "broken_readers": broken_values(
            broken_dataset for broken_dataset in graph.broken if dataset.name in broken_dataset.reads
        ),
    }
    if key is not None:
        shown["partition"] = _partition(dataset, key, members, graph)
        if dataset.name in files:
            shown["partition"] |= _scope(files[dataset.name], key)
        if not folder:
            not_now = why_not(dataset, key, now=pendulum.now("UTC").timestamp(), members=members)
            shown["partition"]["not_now"] = not_now or None
            _add_states(shown["partition"]["reads"], graph)
    if as_json:
        console.print_json(json.dumps(shown))
    else:
        _print_dataset(console, shown)


def print_sql(console: Console, file: SqlAsset, key: PartitionKey | None, *, as_json: bool) -> None:
    """Print the SQL that Spark runs: for one partition with the values of its scope, ready for spark-sql.

    Without a partition, for an example of one and for many partitions at once.
    """
    from varve.sql.spark.execute import running

    columns = {name: _names(upstream) for name, upstream in file.upstreams.items()}
    texts = running(file.scopes, columns, key, {} if key is not None else file.read_columns(file.some_partitions))
    if as_json:
        console.print_json(json.dumps({"dataset": file.dataset.name, "sql": texts}))
        return
    if key is not None:
        values = file.scopes.of(key).values
        scope = "".join(f"--   {name} = {typed}\n" for name, typed in values.items()) or "--   no variables\n"
        # A run's session is in UTC.
        head = f"-- {file.dataset.name} {key.path}, for the scope\n{scope}SET TIME ZONE 'UTC';\n"
        console.print(head, highlight=False, markup=False, soft_wrap=True)
    for title, text in texts.items():
        named = "" if title == (key and key.path) else f"-- {title}\n"
        console.print(f"{named}{text};\n", highlight=False, markup=False, soft_wrap=True)


def _names(dataset: Dataset) -> list[str]:
    return [*dataset.schema.names, *dataset.partitioning.names]


def _file(dataset: Dataset, files: Mapping[str, SqlAsset]) -> SqlAsset:
    if dataset.name not in files or not files[dataset.name].sql.queries:
        raise VarveError(f"{dataset.name} has no query: there is no SQL to show.")
    return files[dataset.name]


def _project() -> Graph:

    return chosen_graph()


def _add_states(reads: Sequence[dict[str, Any]], graph: Graph) -> None:
    """Add to `reads` the current batch of each listed partition, None where it has none; without a catalog, nothing."""
    settings = chosen_settings()
    if settings.embedded_postgres and not PostgresServer(settings.home_dir).is_up():
        return
    try:
        connection = connect(settings, application="varve show")
    except ServiceUnavailable:
        return
    with connection:
        catalog = Catalog(connection)
        catalog.ensure_schema()
        for upstream_values in reads:
            dataset = graph.datasets[upstream_values["dataset"]]
            keys = [dataset.partitioning.from_path(path) for path in upstream_values["partitions"]]
            current = catalog.current(dataset.name, keys)
            upstream_values["batches"] = {
                key.path: str(current_batch.batch_id) if (current_batch := current.get(key.path)) else None
                for key in keys
            }


def _scope(asset: SqlAsset, key: PartitionKey) -> dict[str, Any]:
    """Return the evaluation scope and the partition columns of a partition, each as rows of name, value and type."""
    scope, values = asset.scopes.of(key), asset.scopes.partition_values(key)
    return {
        "scope": [[name, str(typed), typed.type] for name, typed in sorted(scope.values.items())],
        "columns": [[name, str(typed), typed.type] for name, typed in values.items()],
    }


def members_of(dataset: Dataset, graph: Graph) -> Members | None:
    """Return the members of all dynamic sets, or None where neither the dataset nor its neighbours have one.

    Dagster's instance is opened only where there is a dynamic set, as that may start PostgreSQL.
    """
    edges = [*graph.edges[dataset.name], *(graph.edge(reader, dataset) for reader in _readers(dataset, graph))]
    # What a query reads beside the dataset decides with it which partitions it reads.
    partitionings = [dataset.partitioning, *(each for edge in edges for each in edge.dependency.partitionings)]
    dimensions = [dimension for partitioning in partitionings for dimension in partitioning.dimensions]
    if not any(isinstance(dimension, DynamicDimension) for dimension in dimensions):
        return None
    from varve.dagster.instance import open_instance
    from varve.dagster.partitions.sets_sensor import sets_of

    with open_instance(chosen_settings()) as instance:
        return sets_of(instance, graph).members()


def _readers(dataset: Dataset, graph: Graph) -> list[Dataset]:
    return [reader for reader in graph.in_order() if dataset in graph.upstreams(reader)]


def _dimension(dimension: Dimension, members: Members | None) -> dict[str, Any]:
    dimension_values: dict[str, Any] = {"name": dimension.name, "type": dimension.value_type.__name__}
    if isinstance(dimension, TimeDimension):
        return dimension_values | {"kind": "time", "windows": str(dimension.tiling), "extent": dimension.extent}
    keys = [str(plain(key)) for key in dimension.keys(members)]
    kind = "static" if isinstance(dimension, StaticDimension) else f"dynamic, set {dimension.set_name}"
    return dimension_values | {"kind": kind, "keys": keys[:_LISTED], "count": len(keys)}


def _clauses(dataset: Dataset) -> tuple[str, ...]:
    """Return what a dataset says of its batches, as the clauses of a SQL file."""
    return (*dataset.warehouse.clauses, *dataset.lake.clauses, *dataset.policy.clauses)


def _edge(edge: Edge) -> dict[str, Any]:
    from varve.dagster.partitions.mappings import compiled

    dagster_mapping = compiled(edge.dependency)
    mappings = edge.dependency.dimension_mappings
    return {
        "dataset": edge.upstream.name,
        "rules": {
            mapping.upstream.name: f"{mapping.rule}"
            + (f" ({mapping.reader_dimension.name})" if mapping.reader_dimension else "")
            for mapping in mappings
        },
        "wait": repr(edge.wait),
        "wait_clause": edge.wait.clause,
        "exact_in_dagster": dagster_mapping.exact,
        "why_not": dagster_mapping.why,
    }


def _partition(dataset: Dataset, key: PartitionKey, members: Members | None, graph: Graph) -> dict[str, Any]:
    edges = [(edge.upstream, edge.dependency) for edge in graph.edges[dataset.name]]
    readers = [(reader, graph.edge(reader, dataset).dependency) for reader in _readers(dataset, graph)]
    time = dataset.partitioning.time
    window = time.window(time.value_in(key)) if time else None
    return {
        "path": key.path,
        "dagster": dataset.partitioning.dagster_key(key),
        "window": [str(window.start), str(window.end)] if window else None,
        "reads": [_mapped(upstream, dependency.upstream_of(key, members=members)) for upstream, dependency in edges],
        "read_by": [_mapped(reader, dependency.readers_of(key, members=members)) for reader, dependency in readers],
    }


def _mapped(dataset: Dataset, mapped_keys: Mapped) -> dict[str, Any]:
    existing, nonexistent = mapped_keys.keys, listed(mapped_keys.nonexistent)
    return {
        "dataset": dataset.name,
        "count": len(existing),
        "partitions": [key.path for key in existing[:_LISTED]],
        "nonexistent": [key.path for key in nonexistent[:_LISTED]],
    }


def _print_dataset(console: Console, shown: dict[str, Any]) -> None:
    table = Table("dimension", "kind", "keys", title=shown["dataset"], title_justify="left")
    for dimension in shown["dimensions"]:
        is_time = "windows" in dimension
        keys = (
            f"{dimension['windows']}; {dimension['extent']}"
            if is_time
            else f"{dimension['count']}: {some(dimension['keys'], limit=8)}"
        )
        table.add_row(dimension["name"], dimension["kind"], escape(keys))
    if shown["dimensions"]:
        console.print(table)
    else:
        console.print(f"[bold]{shown['dataset']}[/]: one table without partitions", highlight=False)
    for clause in shown["stored"]["clauses"]:
        console.print(clause, markup=False, highlight=False, soft_wrap=True)
    for upstream in shown["reads"]:
        console.print(f"reads {upstream['dataset']}", highlight=False)
        for name, rule in upstream["rules"].items():
            console.print(f"      {name}: {rule}", markup=False, highlight=False)
        if upstream["wait_clause"]:
            console.print(f"      {upstream['wait_clause']}", highlight=False)
        if upstream["why_not"]:
            console.print(f"      Dagster's mapping covers more: {upstream['why_not']}", highlight=False, style="dim")
    for reader in shown["broken_readers"]:
        text = f"read by {reader['dataset']}, which is {reader['state']}: {'; '.join(reader['causes'])}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if "partition" in shown:
        _print_partition(console, shown["partition"])


def _print_partition(console: Console, partition: dict[str, Any]) -> None:
    in_dagster = (
        f"Dagster: {partition['dagster']}" if partition["dagster"] else "in Dagster an asset without partitions"
    )
    console.print(f"\n[bold]{partition['path']}[/]   {in_dagster}", highlight=False)
    if partition["window"]:
        console.print(f"window {partition['window'][0]} to {partition['window'][1]}", highlight=False)
    if partition.get("not_now"):
        text = f"no run computes it now: {partition['not_now']}"
        console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
    for title, values_name in (("Evaluation Scope", "scope"), ("Partition columns", "columns")):
        if partition.get(values_name):
            table = Table(
                "Name" if values_name == "scope" else "Column", "Value", "Type", title=title, title_justify="left"
            )
            for row in partition[values_name]:
                table.add_row(*map(escape, row))
            console.print(table, highlight=False)
    if "scope" in partition and any(upstream["count"] for upstream in partition["reads"]):
        console.print("Dependencies")
        for upstream in partition["reads"]:
            for path in upstream["partitions"]:
                console.print(
                    f"  - {upstream['dataset']}/{path}{_state(upstream, path)}", highlight=False, soft_wrap=True
                )
    for word, side in (("reads", "reads"), ("read by", "read_by")):
        for related in partition[side]:
            listing = f": {some(related['partitions'], limit=4)}" if related["count"] else ""
            console.print(f"{word} {related['count']} of {related['dataset']}{listing}", highlight=False)
            if related["nonexistent"]:
                console.print(
                    f"      never there: {some(related['nonexistent'], limit=4)}", highlight=False, style="dim"
                )


def _state(reads: dict[str, Any], path: str) -> str:
    """Return the batch of a partition as text, or "" where batches were not looked up."""
    if "batches" not in reads:
        return ""
    batch = reads["batches"][path]
    return f"   batch {batch}" if batch else "   missing"
