"""`varve logs`: the logs of the runs that made or tried a partition.

Not here: reading a run's log (varve/dagster/runs/run_logs.py).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from varve.catalog.history.history import History
from varve.cli.batches.history import matching_partitions
from varve.cli.context import chosen_settings
from varve.cli.observe.opened import opened_catalog
from varve.cli.selection import dataset_named
from varve.dagster.instance import open_instance
from varve.dagster.runs.run_logs import lines_of, output_of
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from varve.catalog.history.rows import PastBatch
    from varve.dagster.runs.run_logs import LogLine

_LEVELS = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}


@dataclass(frozen=True)
class TriedRun:
    """A run with its batches of the partitions that were asked for."""

    run_id: str
    batches: Sequence[PastBatch]

    @property
    def outcome(self) -> str:
        """The states of its batches, as a word or several."""
        return ", ".join(sorted({batch.state.value for batch in self.batches}))


def show(
    console: Console,
    dataset_name: str,
    words: Sequence[str],
    *,
    run: str | None,
    runs: int,
    output: bool,
    as_json: bool,
) -> None:
    """Print the logs of the runs, the earliest run first.

    Raises VarveError for an unknown dataset, partition or run, and where there is no catalog.
    """
    dataset, settings = dataset_named(dataset_name), chosen_settings()
    with opened_catalog(settings, "varve logs") as connection, open_instance(settings, starting=False) as instance:
        chosen = tried_runs(History(connection), dataset_name, words, run=run)[-runs:]
        for tried in chosen:
            lines = lines_of(instance, tried.run_id, "__".join(dataset.name.split(".")))
            captured = list(output_of(instance, tried.run_id)) if output else []
            if as_json:
                _print_json(tried, dataset_name, lines, captured)
            else:
                _print(console, tried, lines, captured)


def tried_runs(past: History, dataset_name: str, words: Sequence[str], *, run: str | None) -> list[TriedRun]:
    """Return the runs that have built, or tried to build, the matching partitions, the earliest first.

    Raises VarveError where there is none, and for a `run` with which none begins.
    """
    dataset = dataset_named(dataset_name)
    paths = matching_partitions(past, dataset, words) if words else None
    named = past.runs_of(dataset.name, paths, run) if run else None
    by_run: dict[str, list[PastBatch]] = {}
    # Where no run has that name, those that there are shall be told.
    for batch in sorted(past.batches(dataset.name, paths, run_ids=named or None), key=lambda batch: batch.batch_id):
        by_run.setdefault(batch.run_id, []).append(batch)
    runs = [TriedRun(run_id, tuple(listed)) for run_id, listed in by_run.items() if named is None or run_id in named]
    if not runs:
        where = f"{dataset} {' '.join(words)}".strip()
        if run is None:
            raise VarveError(f"no run has built or tried {where} yet. `varve why` says what it waits for.")
        known = ", ".join(run_id[:8] for run_id in by_run) or "none"
        raise VarveError(f"no run of {where} begins with {run!r}; there are {known}.")
    return runs


def _print(
    console: Console,
    tried: TriedRun,
    lines: Sequence[LogLine],
    captured: Sequence[tuple[str, str]],
) -> None:
    batch_ids = ", ".join(sorted({str(batch.batch_id) for batch in tried.batches}))
    title = f"run {tried.run_id}, batch {batch_ids}: {tried.outcome}"
    console.print(title, style="bold", markup=False, highlight=False, soft_wrap=True)
    if not lines:
        missing = "no log in Dagster: a command made the batch, or the run was deleted there"
        console.print(f"  {missing}.", markup=False, highlight=False, soft_wrap=True)
        for failure in sorted({batch.failure for batch in tried.batches if batch.failure}):
            console.print(f"  {failure}", markup=False, highlight=False, soft_wrap=True)
    for line in lines:
        of = f" {line.partition}" if line.partition else ""
        text = f"{line.at:%Y-%m-%d %H:%M:%S} {line.level:<8} {line.event or 'LOG'}{of}: {line.message}"
        console.print(text, style=_LEVELS.get(line.level), markup=False, highlight=False, soft_wrap=True)
        for error in line.error.strip().splitlines():
            console.print(f"    {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    for name, content in captured:
        console.print(f"{name} of its process:", style="bold", markup=False, highlight=False)
        typer.echo(content, nl=not content.endswith("\n"))


def _print_json(tried: TriedRun, dataset: str, lines: Sequence[LogLine], captured: Sequence[tuple[str, str]]) -> None:
    """Print a JSON object a line, with the fields of VARVE_LOG_FORMAT=json."""
    partitions = sorted({batch.partition for batch in tried.batches})
    common: dict[str, Any] = {
        "run": tried.run_id, "dataset": dataset, "partition": ", ".join(partitions),
        "batch": ", ".join(sorted({str(batch.batch_id) for batch in tried.batches})),
    }  # fmt: skip
    for line in lines:
        values = asdict(line) | {"at": line.at.isoformat(timespec="milliseconds")}
        values["partition"] = values["partition"] or common["partition"]
        time = values.pop("at")
        typer.echo(json.dumps({"time": time, **common, **values}, ensure_ascii=False))
    for name, content in captured:
        for text in content.splitlines():
            typer.echo(json.dumps({**common, "stream": name, "message": text}, ensure_ascii=False))
