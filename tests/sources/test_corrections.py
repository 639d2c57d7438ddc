"""Corrected files of an environment: what is kept of them, and what is lost of nobody's."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sources.test_landing import FIRST, GOOD, HEADER, landing_dataset
from varve.planning.graph import Graph
from varve.sources.landing.corrections import CorrectedFiles

if TYPE_CHECKING:
    import psycopg


def die(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_file_that_was_mended_where_it_was_landed_is_landed_again(
    connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = landing_dataset()
    graph = Graph({dataset.name: dataset}, {dataset.name: ()}, {dataset.name: ""})
    corrected = CorrectedFiles(connection, graph, "mine", tmp_path / "mine", str(tmp_path / "landing"))
    (sent := tmp_path / "sent.csv").write_text(HEADER + GOOD)
    corrected.keep(dataset, FIRST, sent)
    (landed,) = (tmp_path / "mine" / dataset.db / dataset.table).glob("[!.]*")
    landed.write_text(mended := HEADER + 2 * GOOD)
    corrected.keep(dataset, FIRST, landed)
    assert landed.read_text() == mended
    # Whatever dies before the new one is there, the file that was given stays.
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            corrected.keep(dataset, FIRST, landed)
    assert landed.read_text() == mended
    (part,) = landed.parent.glob(".*.part")
    part.unlink()
    # Under another ending it takes the place of the one before.
    (lines := tmp_path / "sent.jsonl").write_text("{}\n")
    corrected.keep(dataset, FIRST, lines)
    assert [path.name for path in landed.parent.glob("[!.]*")] == [f"{dt.date(2013, 1, 5)}.jsonl"]
    assert not [*landed.parent.glob("*.part")]
