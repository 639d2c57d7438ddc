"""`varve history`: of which run, and what it says where it shows the first lines only."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tests.cli.console_project import HOSTILE, SCRIPT
from varve.catalog.history.rows import past_batch_of
from varve.cli.app import app
from varve.cli.batches.history import opened
from varve.cli.observe.logs import tried_runs
from varve.model.errors import VarveError

if TYPE_CHECKING:
    from tests.cli.console_project import Console
    from varve.catalog.history.rows import PastBatch

PARIS = "day=2026-11-01/store=Paris"
RUNS = ("3f9c0d2e-5b7a", "3f9c0d2f-11aa", "run-1", "run-10")


@pytest.fixture
def sales(console: Console) -> str:
    """A dataset with a batch of each run."""
    for run in RUNS:
        console.publish("sales", PARIS, run)
    return f"{console.db}.sales"


def says(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None:
        raise done.exception
    return done.output


def test_a_run_is_named_as_the_table_names_it(sales: str) -> None:
    def runs(beginning: str) -> set[str]:
        return {batch["run_id"] for batch in json.loads(says("history", sales, "--run", beginning, "--json"))}

    assert RUNS[0][:8] in says("history", sales)
    assert runs(RUNS[0][:8]) == {RUNS[0]}
    assert runs("3f9c0d2") == set(RUNS[:2])
    assert runs("run-1") == {"run-1"}, "a whole id is that run"
    assert len(json.loads(says("history", sales, "--run", "3f9c0d2", "--limit", "1", "--json"))) == 1
    with pytest.raises(VarveError, match=rf"no run of {sales} day=2026-11-01 begins with '3f9c0d3'. `varve history"):
        says("history", sales, "day=2026-11-01", "--run", "3f9c0d3")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions of the batches that commands have read of the history.

    After months a dataset of 40,000 partitions has hundreds of thousands of them.
    """
    read = list[str]()

    def reading(row: Any) -> PastBatch:
        batch = past_batch_of(row)
        read.append(batch.partition)
        return batch

    monkeypatch.setattr("varve.catalog.history.history.past_batch_of", reading)
    return read


def test_of_one_run_only_its_own_batches_are_read(sales: str, read: list[str]) -> None:
    assert len(json.loads(says("history", sales, "--run", "3f9c0d2", "--json"))) == 2
    assert len(read) == 2


def test_for_the_logs_of_a_partition_only_its_batches_are_read(console: Console, sales: str, read: list[str]) -> None:
    console.publish("sales", "day=2026-11-02/store=Paris", "run-2")
    with opened() as past:
        tried = tried_runs(past, sales, ["day=2026-11-02"], run=None)
        assert [run.run_id for run in tried] == ["run-2"]
        assert read == ["day=2026-11-02/store=Paris"]
        assert [run.run_id for run in tried_runs(past, sales, [], run="run-1")] == ["run-1"], "a whole id is that run"
        assert len(read) == 2
        with pytest.raises(VarveError, match=rf"no run of {sales} begins with 'nope'; there are 3f9c0d2e, "):
            tried_runs(past, sales, [], run="nope")


def test_the_command_that_lists_the_runs_of_a_key_with_blanks_and_quotes_is_one_for_a_shell(console: Console) -> None:
    console.publish("sales", HOSTILE, "run-1")
    word = f"store={SCRIPT}\"'&x"
    with pytest.raises(VarveError) as unknown:
        says("history", f"{console.db}.sales", word, "--run", "nope")
    command = str(unknown.value).split("`")[1]
    assert shlex.split(command) == ["varve", "history", f"{console.db}.sales", word]


def test_the_log_is_of_a_run_too(sales: str) -> None:
    def runs(beginning: str, *words: str) -> list[str]:
        values = json.loads(says("history", sales, *words, "--log", "--run", beginning, "--json"))
        return [change["run_id"] for change in values]

    assert runs(RUNS[0][:8]) == [RUNS[0]]
    assert runs("3f9c0d2", "day=2026-11-01") == [RUNS[1], RUNS[0]], "the latest change first"
    assert runs("3f9c0d2", "--limit", "1") == [RUNS[1]]
    assert runs("run-1") == ["run-1"], "a whole id is that run"
    with pytest.raises(VarveError, match=rf"no run that .* of {sales} begins with '3f9c0d3'. `varve .* --log` lists"):
        runs("3f9c0d3")


@pytest.mark.parametrize("log", [[], ["--log"]])
def test_it_says_that_there_are_more_lines_than_it_shows(sales: str, log: list[str]) -> None:
    more = "There are more than these"
    assert f"{more} 3: raise --limit" in says("history", sales, *log, "--limit", "3")
    assert more not in says("history", sales, *log, "--limit", "4")
    assert len(json.loads(says("history", sales, *log, "--limit", "3", "--json"))) == 3
