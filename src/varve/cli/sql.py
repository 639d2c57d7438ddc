"""`varve check`, `varve fmt` and `varve graph`: the SQL files of the project; only check asks Spark.

Not here: what is wrong with a file (varve/sql/sql_project.py), and its layout (varve/sql/syntax/formatting.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from varve.cli.against import refuse_breaks
from varve.cli.broken import broken_values, show_broken
from varve.cli.context import chosen_graph, chosen_project, chosen_settings
from varve.dagster.assets.datasets import graph_of
from varve.dagster.assets.sql_assets import assets_of, sql_datasets, usable
from varve.model.errors import VarveError
from varve.sql.cache import Cache
from varve.sql.syntax.errors import Problem, SourceFile, SqlErrors
from varve.sql.syntax.formatting import formatted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from varve.planning.graph import Graph
    from varve.sql.sql_asset import SqlAsset
    from varve.sql.sql_files import SqlFiles
    from varve.sql.types.cells import ColumnName

    Made: TypeAlias = Mapping[str, Mapping[str, tuple[ColumnName, ...]]]


def check(
    console: Console, folder: Path | None, *, against: str | None = None, spark: bool = True, as_json: bool
) -> None:
    """Say that all files are right and break nothing. Raises SqlErrors with all that is wrong in any of them."""
    root = folder or chosen_project().assets
    try:
        if against is not None:
            refuse_breaks(root, against)
        cache = Cache.beside(root)
        found = usable(root, cache)
        if spark:
            found = ask_columns(root, found, cache)
        found.checked()
        if spark:
            ask_spark(root, found, cache)
    except SqlErrors as error:
        if as_json:
            console.print_json(
                json.dumps({"problems": [{"place": each.place, "message": each.message} for each in error.problems]})
            )
        raise
    if as_json:
        console.print_json(json.dumps({"problems": [], "datasets": sorted(found)}))
    else:
        console.print(f"{len(found)} SQL datasets, no problems.", highlight=False)


def ask_columns(folder: Path, files: SqlFiles, cache: Cache) -> SqlFiles:
    """The files with the types that only Spark can tell; it is asked where it was not before, and its answers are kept.

    What reads them is understood then, and may have questions too. Raises SqlErrors where Spark has something against
    one, with all that is wrong in the others.
    """
    if files.questions:
        from varve.services.spark import open_session
        from varve.sql.spark.analysis import columns_by_spark

        session = open_session(chosen_settings())
    while files.questions:
        said: list[Problem] = []
        for question, _ in files.questions:
            found = columns_by_spark(session, question)
            if isinstance(found, Problem):
                said.append(found)
            else:
                files.answers.keep(question, found)
        files.answers.write(folder)
        if said:
            unasked = {problem for _, problem in files.questions}
            raise SqlErrors([*said, *(each for each in files.problems if each not in unasked)])
        files = usable(folder, cache)
    return files


def ask_spark(folder: Path, files: Mapping[str, SqlAsset], cache: Cache) -> None:
    """Have Spark's analyzer look at the files that it has not seen as they are, in one session; raises SqlErrors.

    Where it has seen them all, no Spark is needed.
    """
    keys = {each.source.path: cache.key_of(each.source) for each in files.values()}
    unseen = [each for each in files.values() if cache.verified.get(each.source.path) != keys[each.source.path]]
    if not unseen:
        return
    from varve.services.spark import open_session
    from varve.sql.spark.analysis import analysed

    session = open_session(chosen_settings())
    problems: list[Problem] = []
    for each in unseen:
        against = analysed(session, each)
        problems += against
        key = keys[each.source.path]
        if not against and key is not None:
            cache.verified[each.source.path] = key
    cache.write(folder)
    if problems:
        raise SqlErrors(problems)


def fmt(console: Console, paths: Sequence[Path], *, only_check: bool) -> None:
    """Lay files out. With `only_check` nothing is written, and VarveError names those that are not laid out."""
    files = [
        file
        for path in paths or [chosen_project().assets]
        for file in (sorted(path.rglob("*.sql")) if path.is_dir() else [path])
    ]
    changed = []
    for file in files:
        if not file.is_file():
            raise VarveError(f"there is no file {file}.")
        text = file.read_text(encoding="utf-8")
        found = formatted(SourceFile(str(file), text))
        if found != text:
            changed.append(str(file))
            if not only_check:
                file.write_text(found, encoding="utf-8")
    if only_check and changed:
        raise VarveError(f"not laid out: {', '.join(changed)}; run `varve fmt`.")
    done = "were laid out" if changed else "files are laid out"
    console.print(f"{len(changed) or len(files)} {done}.", highlight=False)


def graph(console: Console, *, form: str, columns: bool = False, folder: Path | None = None) -> None:
    """Print who reads whom, and with `columns` which column is made of which; JSON has both always.

    Datasets whose files cannot be used are shown as broken, with the place, and what reads them as on hold.
    """
    files = usable(folder) if folder else sql_datasets(chosen_project().assets)
    found = graph_of(assets_of(files, folder)) if folder else _project()
    made = {name: each.lineage for name, each in files.items()}
    if form == "json":
        console.print_json(json.dumps(_as_json(found, made)))
        return
    if columns:
        lines = list(_mermaid_columns(made) if form == "mermaid" else _text_columns(made))
    else:
        lines = _mermaid(found) if form == "mermaid" else _text(found)
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if form == "text":
        show_broken(console, broken_values(found.broken))


def _project() -> Graph:

    return chosen_graph()


def _as_json(graph: Graph, made: Made) -> dict[str, Any]:
    return {
        "datasets": [
            {
                "name": dataset.name,
                "store": dataset.store.value,
                "partitions": list(dataset.partitioning.names),
                "columns": {column.name: str(column.type) for column in dataset.schema.columns},
                "made_of": {
                    column: [f"{name}.{each}" for name, each in sources]
                    for column, sources in made.get(dataset.name, {}).items()
                },
                "reads": [
                    {
                        "dataset": edge.upstream.name,
                        "rules": {way.upstream.name: str(way.rule) for way in edge.dependency.ways},
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
        lines.append(f"{dataset.name} ({' x '.join(dataset.partitioning.names)}, {dataset.store})")
        for edge in graph.edges[dataset.name]:
            rules = "; ".join(f"{way.upstream.name}: {way.rule}" for way in edge.dependency.ways)
            lines.append(f"  <- {edge.upstream.name}   {rules}")
    return lines


def _text_columns(made: Made) -> Iterator[str]:
    for name, columns in made.items():
        for column, sources in columns.items():
            yield f"{name}.{column} <- {', '.join(f'{dataset}.{each}' for dataset, each in sources) or 'no column'}"


def _mermaid_columns(made: Made) -> Iterator[str]:
    """A box for each dataset with its columns, as far as an edge touches them."""
    edges = [
        ((dataset, each), (name, column))
        for name, columns in made.items()
        for column, sources in columns.items()
        for dataset, each in sources
    ]
    yield "flowchart LR"
    boxes: dict[str, dict[str, None]] = {}
    for dataset, column in (end for edge in edges for end in edge):
        boxes.setdefault(dataset, {})[column] = None
    for dataset, columns in boxes.items():
        yield f'    subgraph {dataset.replace(".", "_")}["{dataset}"]'
        yield from (f'        {dataset.replace(".", "_")}__{column}["{column}"]' for column in columns)
        yield "    end"
    for (upstream, one), (reader, other) in edges:
        yield f"    {upstream.replace('.', '_')}__{one} --> {reader.replace('.', '_')}__{other}"


def _mermaid(graph: Graph) -> list[str]:
    names = {dataset.name: dataset.name.replace(".", "_") for dataset in graph.in_order()}
    return [
        "flowchart LR",
        *(
            f'    {short}["{name}<br>{" x ".join(graph.datasets[name].partitioning.names)}"]'
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
    """Dashed boxes for what is broken or on hold, and dashed edges to them."""
    boxes = {each.title: f"broken{place}" for place, each in enumerate(graph.broken)}
    for each in graph.broken:
        yield f'    {boxes[each.title]}["{each.title}<br>{each.state}"]:::broken'
    for each in graph.broken:
        for name in each.reads:
            if shown := names.get(name) or boxes.get(name):
                yield f"    {shown} -.-> {boxes[each.title]}"
    if boxes:
        yield "    classDef broken stroke-dasharray: 5 5"
