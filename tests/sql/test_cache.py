"""What is kept of files: what makes one anew, what does not, and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varve.dagster.assets.sql_assets import sql_assets
from varve.dagster.definitions import build_defs
from varve.sql import sql_asset as reading
from varve.sql.cache import Cache
from varve.sql.sql_project import load
from varve.sql.syntax.errors import SqlErrors

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """CREATE DATASET b.{name} ({columns})
PARTITIONED BY (day STRING)
FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2022-03-01', END '2022-03-20')
LET today = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT (day = today)
"""
FILES: dict[str, tuple[str, str]] = {
    "root": ("product STRING, nb INT", "EXTERNAL OPTIONS (source = 'table', table = 'x.y')"),
    "one": ("product STRING, nb INT", "AS SELECT product, nb FROM b.root WHERE root.day = today"),
    "two": ("product STRING, more INT", "AS SELECT product, nb + 1 AS more FROM b.one WHERE one.day = today"),
    "three": ("product STRING", "AS SELECT product FROM b.two WHERE two.day BETWEEN DATE_SUB(today, 2) AND today"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in FILES:
        write(assets, name)
    load(assets)
    return assets


def write(folder: Path, name: str, columns: str | None = None, body: str | None = None) -> None:
    text = HEAD.format(name=name, columns=columns or FILES[name][0]) + (body or FILES[name][1])
    (folder / f"{name}.sql").write_text(text, encoding="utf-8")


def counts(folder: Path) -> tuple[int, int]:
    """How many files were taken from the cache, and how many understood anew."""
    cache = Cache.beside(folder)
    load(folder, cache=cache)
    return cache.hits, cache.misses


def test_nothing_changed_reads_no_file_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts(folder) == (4, 0)
    before = {name: asset.compiled for name, asset in load(folder, cache=Cache()).items()}
    # Neither a load nor Dagster's definitions of it need to know what a file says.
    monkeypatch.setattr(reading, "parse", lambda source: pytest.fail(f"{source.path} was read"))
    assets = load(folder)
    assert {name: asset.compiled for name, asset in assets.items()} == before
    build_defs(sql_assets(assets)).resolve_asset_graph()


def test_a_change_ends_where_the_columns_stay_the_same(folder: Path) -> None:
    write(folder, "one", body="AS SELECT product, nb * 2 AS nb FROM b.root WHERE root.day = today")
    assert counts(folder) == (3, 1)
    write(folder, "root", columns="product STRING, nb INT, added INT")
    # The file itself, and its only reader.
    assert counts(folder) == (2, 2)
    write(folder, "two", columns="product STRING, more BIGINT")
    assert counts(folder) == (2, 2)


def test_another_extent_of_what_is_read_is_seen(folder: Path) -> None:
    file = folder / "two.sql"
    file.write_text(file.read_text(encoding="utf-8").replace("2022-03-20", "2022-03-21"), encoding="utf-8")
    assert counts(folder) == (2, 2)


def test_what_is_kept_answers_as_what_was_understood(folder: Path) -> None:
    kept, anew = load(folder)["b.three"], load(folder, cache=Cache())["b.three"]
    key = kept.dataset.partitioning.key(["2022-03-09"])
    wanted = [f"day=2022-03-0{day}" for day in (7, 8, 9)]
    for asset in (kept, anew):
        assert [key.path for key in asset.dependency("b.two").upstream_of(key).keys] == wanted
        assert asset.lineage == {"product": (("b.two", "product"),)}
    assert kept.dependency("b.two").dimension_mappings == anew.dependency("b.two").dimension_mappings
    assert kept.code_version == anew.code_version


def test_a_file_that_is_wrong_is_told_each_time_and_spoils_nothing(folder: Path) -> None:
    write(folder, "three", body="AS SELECT prodct AS product FROM b.two WHERE two.day = today")
    for _ in range(2):
        with pytest.raises(SqlErrors, match="prodct"):
            load(folder)
    write(folder, "three")
    # What was kept of the file when it was right is right again.
    assert counts(folder) == (4, 0)


def test_a_dataset_that_goes_is_missed_by_its_reader_only(folder: Path) -> None:
    (folder / "two.sql").unlink()
    with pytest.raises(SqlErrors) as caught:
        load(folder)
    (problem,) = caught.value.problems
    assert "nobody declares b.two" in problem.message
    assert problem.place.startswith("assets/three.sql:")
    (folder / "three.sql").unlink()
    assert counts(folder) == (2, 0)


@pytest.mark.parametrize("damage", [b"", b"\x80", b"{", b"\x80\x05N.", b"cos\nnone\n."])
def test_a_damaged_or_foreign_cache_is_an_empty_one(folder: Path, damage: bytes) -> None:
    (folder / "__pycache__" / "varve-sql.pickle").write_bytes(damage)
    assert counts(folder) == (0, 4)
    assert counts(folder) == (4, 0)


def test_a_folder_that_cannot_be_written_has_no_cache(folder: Path) -> None:
    kept = folder / "__pycache__"
    for file in kept.iterdir():
        file.unlink()
    kept.rmdir()
    kept.write_text("in the way", encoding="utf-8")
    assert counts(folder) == (0, 4)
    assert counts(folder) == (0, 4)


def test_another_text_of_a_foreign_function_is_another_version(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "kept_scores.py"
    module.write_text("def run(spark, scope): return 1\n", encoding="utf-8")
    write(folder, "scores", columns="n INT", body="PYTHON 'kept_scores:run'")
    before = load(folder)["b.scores"].code_version
    assert counts(folder) == (5, 0)
    module.write_text("def run(spark, scope): return 2\n", encoding="utf-8")
    assert counts(folder) == (4, 1)
    assert load(folder)["b.scores"].code_version != before
