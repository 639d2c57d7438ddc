"""What people and data have written is printed as it is: square brackets in it are no style, and end no command."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from varve.cli.batches import history
from varve.cli.environments import report
from varve.cli.plan import backfill, tasks
from varve.cli.plan import show as show_command
from varve.cli.printing import open_console

if TYPE_CHECKING:
    from rich.console import Console

TEXT = "[/tmp] of m[key], [red] :id: 00:ab:12:cd"


def opened() -> Console:
    console = open_console()
    console.file, console.width = StringIO(), 300
    return console


def printed(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_reasons_in_a_history() -> None:
    console = opened()
    batch = {
        "partition": "day=2026-11-01", "batch_id": 1, "started_at": "2026-11-02T00:00:00", "state": "published",
        "is_current": True, "rows": 1, "bytes": 1, "run_id": "run", "failure": None,
        "environment": "", "pins": [{"owner": "ann", "reason": TEXT}],
    }  # fmt: skip
    history.show_history(console, "shop.sales", [batch], limit=10)
    assert TEXT in printed(console)
    console = opened()
    change = {
        "published_at": "2026-11-02T00:00:00", "partition": "day=2026-11-01", "batch_id": 1, "kind": "rollback",
        "run_id": "run", "reason": TEXT,
    }  # fmt: skip
    history.show_changes(console, "shop.sales", [change], limit=10)
    assert TEXT in printed(console)


def test_the_reason_of_a_backfill() -> None:
    console = opened()
    row = {
        "number": 1, "state": "running", "marked": {"shop.sales": 2}, "left": {}, "reason": TEXT, "owner": "ann",
        "created_at": "2026-11-02", "held_up": [],
    }  # fmt: skip
    backfill.show_listed(console, [row])
    assert TEXT in printed(console)
    console = opened()
    held_up = {"dataset": "shop.sales", "partitions": ["day=2026-11-01"], "state": "failed", "reason": TEXT}
    backfill.show_listed(console, [row | {"reason": "", "held_up": [held_up]}])
    assert f"failed: {TEXT}." in printed(console)


def test_keys_in_tasks_and_dimensions() -> None:
    console = opened()
    task = {"partition": "store=%5Bred%5D", "scope": [("store", TEXT, "STRING")], "state": "missing"}
    tasks.show(console, {"dataset": "shop.sales", "at": "2026-11-02", "count": 1, "tasks": [task]})
    assert TEXT in printed(console)
    console = opened()
    dimension = {"name": "store", "kind": "static", "count": 2, "keys": [TEXT, "b"]}
    reads = {"dataset": "shop.stores", "rules": {"store": f"always {TEXT}"}, "wait_clause": "", "why_not": ""}
    shown = {
        "dataset": "shop.sales", "dimensions": [dimension], "stored": {"clauses": []}, "reads": [reads],
        "broken_readers": [],
    }  # fmt: skip
    show_command._print_dataset(console, shown)
    assert f"2: {TEXT}, b" in printed(console)
    assert f"always {TEXT}" in printed(console)
    console = opened()
    partition = {
        "path": "store=%5Bred%5D", "dagster": "%5Bred%5D", "window": None, "reads": [], "read_by": [],
        "scope": [("store", TEXT, "STRING")],
    }  # fmt: skip
    show_command._print_partition(console, partition)
    assert TEXT in printed(console)


def test_why_a_partition_of_an_environment_cannot_be_computed() -> None:
    console = opened()
    stuck = {"shop.sales": {"day=2026-11-01": f"its run failed: {TEXT}"}}
    report.show_run(console, {"environment": "alice", "computed": {}, "taken": {}, "stuck": stuck})
    assert TEXT in printed(console)
