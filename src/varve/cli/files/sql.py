"""`varve check`, `varve fmt` and `varve graph`: check, lay out and show the SQL files of the project.

Only `check` uses Spark.

Not here: the checks themselves (varve/sql/sql_project.py), and the layout (varve/sql/syntax/formatting.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from varve.cli.context import chosen_graph, chosen_project, folder_of_datasets
from varve.cli.files import changes_text
from varve.cli.files.ask_spark import ask_columns, ask_spark, ask_values
from varve.cli.files.roles import refuse_missing_roles
from varve.cli.problems.broken import broken_values, show_broken
from varve.dagster.assets.sql_folders import sql_datasets, usable
from varve.dagster.discovery import graph_of_folder
from varve.model.errors import VarveError, counted
from varve.sql.cache import Cache
from varve.sql.checks.zones import name_hints, zone_hints
from varve.sql.code.own_files import files_of
from varve.sql.syntax.errors import Problem, SqlErrors, source_of, undecodable
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from varve.cli.files.against import Comparison
    from varve.model.broken_dataset import BrokenDataset
    from varve.planning.graph import Graph
    from varve.sql.files.sql_files import SqlFiles
    from varve.sql.sql_asset import SqlAsset
    from varve.sql.types.cells import ColumnName

    Made: TypeAlias = Mapping[str, Mapping[str, tuple[ColumnName, ...]]]


def check(
    console: Console,
    folder: Path | None,
    *,
    against: str | None = None,
    spark: bool = True,
    as_json: bool,
    markdown: bool = False,
) -> bool:
    """Check all files, and print how many there are; with `against` also what they change, and what that breaks.

    Returns whether nothing is broken, by the change or because Python cannot import a module. Raises SqlErrors with
    every problem of every file.
    """
    root = folder_of_datasets(folder)
    cache = Cache.beside(root)
    files = usable(root, cache)
    comparison = None
    if against is not None:
        from varve.cli.files.against import compare

        comparison = compare(root, against, files)
    modules = [broken for broken in _broken_modules(root) if broken.errors]
    try:
        if spark:
            files = ask_columns(root, files, cache)
            files = ask_values(console if not as_json and not markdown else None, root, files, cache)
        files.checked()
        refuse_missing_roles(files.values())
        if spark:
            ask_spark(root, files, cache)
        problems: Sequence[Problem] = ()
    except SqlErrors as error:
        problems = error.problems if comparison is None else changes_text.others(comparison, error.problems)
        comparison = None if comparison is None else replace(comparison, errors=tuple(problems))
        # What the change breaks is told as that, and not a second time as an error of the file.
        if comparison is None or problems:
            _print_check(console, files, problems, comparison, modules, as_json=as_json, markdown=markdown)
            raise SqlErrors(problems) from None
    _print_check(console, files, problems, comparison, modules, as_json=as_json, markdown=markdown)
    return not modules and (comparison is None or comparison.harmless)


def _broken_modules(folder: Path) -> list[BrokenDataset]:
    """The modules of the folder that cannot be imported; without Python files nothing is imported."""
    if not files_of(folder, "**/*.py"):
        return []
    from varve.dagster.assets.python_files import broken_modules

    return broken_modules(folder)


def _hints(files: SqlFiles) -> list[Problem]:
    """What may be other than its author thinks, and is no problem; files all in UTC are not parsed for it."""
    hints: list[Problem] = []
    for asset in files.values():
        zones = _zones(asset)
        if "TIMEZONE" in asset.source.text.upper() or any(zones.values()):
            hints.extend((*zone_hints(asset.sql, _moments(asset), zones), *name_hints(asset.sql, asset.dataset)))
    return hints


def _zones(asset: SqlAsset) -> dict[str, set[str]]:
    """By the name of a partition column of dates, hours or texts, the zones of the windows that it names in inputs."""
    zones: dict[str, set[str]] = {}
    for upstream in asset.upstreams.values():
        kinds = {column.name: str(column.type) for column in upstream.partition_columns}
        if (time := upstream.partitioning.time) is not None:
            for name in (each for each in time.column_names if kinds[each] != "TIMESTAMP"):
                zones.setdefault(name.lower(), set()).add(time.timezone)
    return zones


def _moments(asset: SqlAsset) -> set[str]:
    """The names of columns that are moments in all datasets that a file reads and that have one of that name."""
    kinds: dict[str, set[str]] = {}
    for upstream in asset.upstreams.values():
        for column in (*upstream.partition_columns, *upstream.schema.columns):
            kinds.setdefault(column.name.lower(), set()).add(str(column.type))
    return {name for name, types in kinds.items() if types == {"TIMESTAMP"}}


def _print_check(
    console: Console,
    files: SqlFiles,
    problems: Sequence[Problem],
    comparison: Comparison | None,
    modules: Sequence[BrokenDataset],
    *,
    as_json: bool,
    markdown: bool,
) -> None:
    hints = _hints(files)
    if as_json:
        values = {
            "problems": [{"place": problem.place, "message": problem.message} for problem in problems],
            "hints": [{"place": hint.place, "message": hint.message} for hint in hints],
            **({} if problems else {"datasets": sorted(files)}),
            **({"broken": broken_values(modules)} if modules else {}),
            **({} if comparison is None else changes_text.as_values(comparison)),
        }
        console.print_json(json.dumps(values))
        return
    if comparison is not None:
        lines = changes_text.as_markdown(comparison) if markdown else changes_text.as_text(comparison)
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    show_broken(console, broken_values(modules))
    for hint in hints if not markdown else ():
        text = str(hint).replace(f"{hint.place}: ", f"{hint.place}: hint: ", 1)
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    if not problems and not modules and not markdown and (comparison is None or comparison.harmless):
        console.print(f"{counted(len(files), 'SQL dataset')}, no problems.", highlight=False)


def fmt(console: Console, paths: Sequence[Path], *, only_check: bool) -> None:
    """Lay out files. With `only_check` nothing is written; raises VarveError with the files that are not laid out."""
    files = [
        file
        for path in paths or [chosen_project().assets]
        for file in (files_of(path, "**/*.sql") if path.is_dir() else [path])
    ]
    # All are looked at before the first is written.
    changed: dict[Path, str] = {}
    for file in files:
        if not file.is_file():
            raise VarveError(f"there is no file {file}.")
        source = source_of(file.read_bytes(), str(file))
        if (odd := undecodable(source.text)) is not None:
            line = source.text.count("\n", 0, odd.start()) + 1
            raise VarveError(f"{file}:{line}: the file is no UTF-8; save it as UTF-8. Nothing was laid out.")
        laid_out = formatted(source)
        if laid_out != source.text:
            changed[file] = laid_out
    if only_check and changed:
        raise VarveError(f"not laid out: {', '.join(map(str, changed))}; run `varve fmt`.")
    for file, laid_out in changed.items():
        file.write_text(laid_out, encoding="utf-8")
    outcome = "were laid out" if changed else "files are laid out"
    console.print(f"{len(changed) or len(files)} {outcome}.", highlight=False)


def graph(console: Console, *, form: str, columns: bool = False, folder: Path | None = None) -> None:
    """Print which dataset reads which, and with `columns` which column is made of which; JSON always has both.

    Datasets whose files cannot be used are shown as broken, with the place of the error; their readers are on hold.
    """
    folder = folder and folder_of_datasets(folder)
    files = usable(folder) if folder else sql_datasets(chosen_project().assets)
    dataset_graph = graph_of_folder(folder, files) if folder else _project()
    lineage = {name: asset.lineage for name, asset in files.items()}
    if form == "json":
        console.print_json(json.dumps(_as_json(dataset_graph, lineage)))
        return
    if columns:
        lines = list(_mermaid_columns(lineage) if form == "mermaid" else _text_columns(lineage))
    else:
        lines = _mermaid(dataset_graph) if form == "mermaid" else _text(dataset_graph)
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if form == "text":
        show_broken(console, broken_values(dataset_graph.broken))


def _project() -> Graph:

    return chosen_graph()


def _as_json(graph: Graph, lineage: Made) -> dict[str, Any]:
    return {
        "datasets": [
            {
                "name": dataset.name,
                "store": str(dataset.store),
                "partitions": list(dataset.partitioning.names),
                "columns": {column.name: str(column.type) for column in dataset.schema.columns},
                "made_of": {
                    column: [f"{name}.{source_column}" for name, source_column in sources]
                    for column, sources in lineage.get(dataset.name, {}).items()
                },
                "reads": [
                    {
                        "dataset": edge.upstream.name,
                        "rules": {
                            mapping.upstream.name: str(mapping.rule) for mapping in edge.dependency.dimension_mappings
                        },
                        "why_wider": edge.dependency.why_wider or None,
                    }
                    for edge in graph.edges[dataset.name]
                ],
            }
            for dataset in graph.in_order()
        ],
        "broken": broken_values(graph.broken),
    }


def _text(graph: Graph) -> list[str]:
    lines = []
    for dataset in graph.in_order():
        lines.append(f"{dataset.name} ({dataset.partitioning.text}, {dataset.store})")
        for edge in graph.edges[dataset.name]:
            rules = "; ".join(
                f"{mapping.upstream.name}: {mapping.rule}" for mapping in edge.dependency.dimension_mappings
            )
            wider = edge.dependency.why_wider
            note = f" (at most: {wider}; `varve show` of a partition says which)" if wider else ""
            lines.append(f"  <- {edge.upstream.name}   {rules or 'all of it'}{note}")
    return lines


def _text_columns(lineage: Made) -> Iterator[str]:
    for name, columns in lineage.items():
        for column, sources in columns.items():
            source_columns = ", ".join(f"{dataset}.{source_column}" for dataset, source_column in sources)
            yield f"{name}.{column} <- {source_columns or 'no column'}"


def _mermaid_columns(lineage: Made) -> Iterator[str]:
    """Yield a Mermaid flow chart: a box for each dataset with those of its columns that an edge touches."""
    edges = [
        ((dataset, source_column), (name, column))
        for name, columns in lineage.items()
        for column, sources in columns.items()
        for dataset, source_column in sources
    ]
    yield "flowchart LR"
    boxes: dict[str, dict[str, None]] = {}
    for dataset, column in (endpoint for edge in edges for endpoint in edge):
        boxes.setdefault(dataset, {})[column] = None
    for dataset, columns in boxes.items():
        yield f'    subgraph {dataset.replace(".", "_")}["{dataset}"]'
        yield from (f'        {dataset.replace(".", "_")}__{column}["{column}"]' for column in columns)
        yield "    end"
    for (upstream, source_column), (reader, reader_column) in edges:
        yield f"    {upstream.replace('.', '_')}__{source_column} --> {reader.replace('.', '_')}__{reader_column}"


def _mermaid(graph: Graph) -> list[str]:
    names = {dataset.name: dataset.name.replace(".", "_") for dataset in graph.in_order()}
    return [
        "flowchart LR",
        *(
            f'    {short}["{name}<br>{graph.datasets[name].partitioning.text}"]'
            for name, short in names.items()
        ),
        *(
            f"    {names[edge.upstream.name]} --> {names[name]}"
            for name in names
            for edge in graph.edges[name]
        ),
        *_mermaid_broken(graph, names),
    ]  # fmt: skip


def _mermaid_broken(graph: Graph, names: Mapping[str, str]) -> Iterator[str]:
    """Yield dashed boxes for the datasets that are broken or on hold, and dashed edges to them."""
    boxes = {broken_dataset.title: f"broken{place}" for place, broken_dataset in enumerate(graph.broken)}
    for broken_dataset in graph.broken:
        yield f'    {boxes[broken_dataset.title]}["{broken_dataset.title}<br>{broken_dataset.state}"]:::broken'
    for broken_dataset in graph.broken:
        for name in broken_dataset.reads:
            if upstream_box := names.get(name) or boxes.get(name):
                yield f"    {upstream_box} -.-> {boxes[broken_dataset.title]}"
    if boxes:
        yield "    classDef broken stroke-dasharray: 5 5"
