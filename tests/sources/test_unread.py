"""Files below the landing root that no dataset reads are found, and nothing else is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from varve.sources.landing.unread import unread_folders

if TYPE_CHECKING:
    from pathlib import Path

READ = {"shop.sales", "shop.visits"}


@pytest.mark.parametrize(
    ("file", "unread"),
    [
        ("shop/sales/sales_2026-11-25.csv", []),
        ("shop/sales/2026/11/25.csv", []),
        ("shop/sale/sales_2026-11-25.csv", ["shop/sale"]),
        ("shops/sales/sales_2026-11-25.csv", ["shops/sales"]),
        ("shop/sale/2026/11/25.csv", ["shop/sale"]),
        ("shop/sales_2026-11-25.csv", ["shop"]),
        ("sales_2026-11-25.csv", [""]),
        ("shop/_archive/sales_2025-11-25.csv", []),
        ("_old/sales/sales_2025-11-25.csv", []),
        (".cache/x/y", []),
        ("shop/.hidden", []),
    ],
)
def test_what_no_dataset_reads_is_named_by_its_folder(tmp_path: Path, file: str, unread: list[str]) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("product,cents\n")
    # Empty folders wait for files.
    (tmp_path / "shop" / "empty").mkdir(parents=True, exist_ok=True)
    assert unread_folders(str(tmp_path), READ) == unread
    assert unread_folders(f"file://{tmp_path}", READ) == unread


def test_a_folder_that_we_may_not_open_is_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "shop" / "sale").mkdir(parents=True)
    (tmp_path / "shop" / "sale" / "a.csv").write_text("1")
    scandir = os.scandir

    def scan(folder: str) -> Any:
        # These tests may run as root, who may open everything.
        if str(folder).endswith("lost+found"):
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    assert unread_folders(str(tmp_path), READ) == ["shop/sale"]


def test_a_root_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert unread_folders(str(tmp_path / "landing"), READ) == []
