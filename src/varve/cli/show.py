"""`varve show`: a dataset's dimensions, and what one of its partitions reads and is read by, by the mappings alone.

Whether what it reads is there is told where a catalog can be asked; none is started for it.

Not here: what is due and why (`varve why`), and what lies in the stores (`varve status`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from varve.catalog.catalog import Catalog
from varve.cli.broken import broken_values, refuse_broken
from varve.cli.context import chosen_graph, chosen_project, chosen_settings
from varve.cli.printing import Table
from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.sql_assets import assets_of, sql_datasets, usable
from varve.dagster.instance import open_instance
from varve.dagster.partitions.mappings import compiled
from varve.dagster.partitions.sets_sensor import sets_of
from varve.model.errors import ServiceUnavailable, UnknownPartition, VarveError, some
from varve.model.partitions.dimension import DynamicDimension, StaticDimension, TimeDimension
from varve.model.partitions.key import plain
from varve.planning.mapping.dataset_mapping import listed
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
    """Print it, of the project or of a folder of SQL files.

    Raises VarveError for an unknown dataset, UnknownPartition for words that name no partition.
    """
    files = usable(folder) if folder else sql_datasets(chosen_project().assets)
    graph = graph_of(assets_of(files, folder)) if folder else _project()
    dataset = dataset_named(name, graph)
    key = parsed(dataset, pairs) if pairs else None
    if sql:
        print_sql(console, _file(dataset, files), key, as_json=as_json)
        return
    members = _members(dataset, graph)
    found: dict[str, Any] = {
        "dataset": dataset.name,
        "dimensions": [_dimension(each, members) for each in dataset.partitioning.dimensions],
        "reads": [_edge(edge) for edge in graph.edges[dataset.name]],
        "broken_readers": broken_values(each for each in graph.broken if dataset.name in each.reads),
    }
    if key is not None:
        found["partition"] = _partition(dataset, key, members, graph)
        if dataset.name in files:
            found["partition"] |= _scope(files[dataset.name], key)
        if not folder:
            _add_states(found["partition"]["reads"], graph)
    if as_json:
        console.print_json(json.dumps(found))
    else:
        _print(console, found)


def print_sql(console: Console, file: SqlAsset, key: PartitionKey | None, *, as_json: bool) -> None:
    """Print what Spark runs: the file's text, with the values of a partition's scope; and what many of them run."""
    from varve.sql.spark.execute import running

    texts = running(file.scopes, {name: _names(each) for name, each in file.upstreams.items()}, key)
    if as_json:
        console.print_json(json.dumps({"dataset": file.dataset.name, "sql": texts}))
        return
    for title, text in texts.items():
        console.print(f"-- {title}\n{text};\n", highlight=False, markup=False, soft_wrap=True)


def _names(dataset: Dataset) -> list[str]:
    return [*dataset.schema.names, *dataset.partitioning.names]


def _file(dataset: Dataset, files: Mapping[str, SqlAsset]) -> SqlAsset:
    if dataset.name not in files or not files[dataset.name].sql.queries:
        raise VarveError(f"{dataset.name} has no query: there is no SQL to show.")
    return files[dataset.name]


def _project() -> Graph:

    return chosen_graph()


def _add_states(reads: Sequence[dict[str, Any]], graph: Graph) -> None:
    """The current batch of each partition that is listed, None where it has none yet; nothing without a catalog."""
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
        for each in reads:
            dataset = graph.datasets[each["dataset"]]
            keys = [dataset.partitioning.from_path(path) for path in each["partitions"]]
            current = catalog.current(dataset.name, keys)
            each["batches"] = {
                key.path: str(found.batch_id) if (found := current.get(key.path)) else None for key in keys
            }


def _scope(found: SqlAsset, key: PartitionKey) -> dict[str, Any]:
    """The evaluation scope and the partition columns, one in a line."""
    scope, values = found.scopes.of(key), found.scopes.partition_values(key)
    return {
        "scope": [[name, str(typed), typed.type] for name, typed in sorted(scope.values.items())],
        "columns": [[name, str(typed), typed.type] for name, typed in values.items()],
    }


def dataset_named(name: str, graph: Graph) -> Dataset:
    """The dataset with this name, `db.table` or `db/table`.

    Raises VarveError with the ones there are, DatasetIsBroken with what is wrong for one that is broken or on hold.
    """
    refuse_broken(name, graph)
    found = graph.datasets.get(name.replace("/", "."))
    if found is None:
        raise VarveError(f"no dataset {name!r}; there are {', '.join(sorted(graph.datasets))}.")
    return found


def parsed(dataset: Dataset, pairs: Sequence[str]) -> PartitionKey:
    """The partition that `col=value` words name. Raises UnknownPartition."""
    texts = dict(pair.partition("=")[::2] for pair in pairs)
    if set(texts) != set(dataset.partitioning.names):
        wanted = " ".join(f"{column}=..." for column in dataset.partitioning.names)
        raise UnknownPartition(f"{dataset}: a partition is named {wanted}; found {' '.join(pairs)}.")
    return dataset.partitioning.key([each.parse(texts[each.name]) for each in dataset.partitioning.dimensions])


def _members(dataset: Dataset, graph: Graph) -> Members | None:
    """The members of dynamic sets; None, and no service started, where nothing around the dataset has any."""
    around = [dataset, *graph.upstreams(dataset), *_readers(dataset, graph)]
    dimensions = [each for found in around for each in found.partitioning.dimensions]
    if not any(isinstance(each, DynamicDimension) for each in dimensions):
        return None
    with open_instance(chosen_settings()) as instance:
        return sets_of(instance, graph).members()


def _readers(dataset: Dataset, graph: Graph) -> list[Dataset]:
    return [reader for reader in graph.in_order() if dataset in graph.upstreams(reader)]


def _dimension(dimension: Dimension, members: Members | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": dimension.name, "type": dimension.value_type.__name__}
    if isinstance(dimension, TimeDimension):
        return found | {"kind": "time", "windows": str(dimension.tiling), "extent": dimension.extent}
    keys = [str(plain(key)) for key in dimension.keys(members)]
    kind = "static" if isinstance(dimension, StaticDimension) else f"dynamic, set {dimension.set_name}"
    return found | {"kind": kind, "keys": keys[:_LISTED], "count": len(keys)}


def _edge(edge: Edge) -> dict[str, Any]:
    in_dagster = compiled(edge.dependency)
    mappings = edge.dependency.dimension_mappings
    return {
        "dataset": edge.upstream.name,
        "rules": {
            mapping.upstream.name: f"{mapping.rule}"
            + (f" ({mapping.reader_dimension.name})" if mapping.reader_dimension else "")
            for mapping in mappings
        },
        "wait": repr(edge.wait),
        "exact_in_dagster": in_dagster.exact,
        "why_not": in_dagster.why,
    }


def _partition(dataset: Dataset, key: PartitionKey, members: Members | None, graph: Graph) -> dict[str, Any]:
    edges = [(edge.upstream, edge.dependency) for edge in graph.edges[dataset.name]]
    readers = [(reader, graph.edge(reader, dataset).dependency) for reader in _readers(dataset, graph)]
    time = dataset.partitioning.time
    window = time.window(key[time.name]) if time else None
    return {
        "path": key.path,
        "dagster": dataset.partitioning.to_dagster(key),
        "window": [str(window.start), str(window.end)] if window else None,
        "reads": [_mapped(found, way.upstream_of(key, members=members)) for found, way in edges],
        "read_by": [_mapped(found, way.readers_of(key, members=members)) for found, way in readers],
    }


def _mapped(dataset: Dataset, mapped: Mapped) -> dict[str, Any]:
    existing, never = mapped.keys, listed(mapped.nonexistent)
    return {
        "dataset": dataset.name,
        "count": len(existing),
        "partitions": [key.path for key in existing[:_LISTED]],
        "nonexistent": [key.path for key in never[:_LISTED]],
    }


def _print(console: Console, found: dict[str, Any]) -> None:
    table = Table("dimension", "kind", "keys", title=found["dataset"], title_justify="left")
    for each in found["dimensions"]:
        time = "windows" in each
        keys = f"{each['windows']}; {each['extent']}" if time else f"{each['count']}: {some(each['keys'], limit=8)}"
        table.add_row(each["name"], each["kind"], keys)
    console.print(table)
    for each in found["reads"]:
        console.print(f"reads {each['dataset']}", highlight=False)
        for name, rule in each["rules"].items():
            console.print(f"      {name}: {rule}", highlight=False)
        if each["why_not"]:
            console.print(f"      Dagster's mapping covers more: {each['why_not']}", highlight=False, style="dim")
    for each in found["broken_readers"]:
        text = f"read by {each['dataset']}, which is {each['state']}: {'; '.join(each['causes'])}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if "partition" in found:
        _print_partition(console, found["partition"])


def _print_partition(console: Console, partition: dict[str, Any]) -> None:
    console.print(f"\n[bold]{partition['path']}[/]   Dagster: {partition['dagster']}", highlight=False)
    if partition["window"]:
        console.print(f"window {partition['window'][0]} to {partition['window'][1]}", highlight=False)
    for title, part in (("Evaluation Scope", "scope"), ("Partition columns", "columns")):
        if part in partition:
            table = Table("Name" if part == "scope" else "Column", "Value", "Type", title=title, title_justify="left")
            for row in partition[part]:
                table.add_row(*row)
            console.print(table, highlight=False)
    if "scope" in partition and any(each["count"] for each in partition["reads"]):
        console.print("Dependencies")
        for each in partition["reads"]:
            for path in each["partitions"]:
                console.print(f"  - {each['dataset']}/{path}{_state(each, path)}", highlight=False, soft_wrap=True)
    for word, side in (("reads", "reads"), ("read by", "read_by")):
        for each in partition[side]:
            listing = f": {some(each['partitions'], limit=4)}" if each["count"] else ""
            console.print(f"{word} {each['count']} of {each['dataset']}{listing}", highlight=False)
            if each["nonexistent"]:
                console.print(f"      never there: {some(each['nonexistent'], limit=4)}", highlight=False, style="dim")


def _state(reads: dict[str, Any], path: str) -> str:
    """What is there of a partition, as far as it was looked up."""
    if "batches" not in reads:
        return ""
    batch = reads["batches"][path]
    return f"   batch {batch}" if batch else "   missing"
