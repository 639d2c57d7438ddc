"""Errors of a load, as servers say them in their own languages."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.support.sales import sales_dataset
from varve.model.batch import BatchId
from varve.model.build import Build
from varve.model.dataset import StoreKind
from varve.model.errors import BadInput
from varve.model.partitions.key import PartitionKey
from varve.stores.warehouse.loading.copying import CopyPiece, Outcome
from varve.stores.warehouse.loading.errors import explained

KEY = PartitionKey.of(day=dt.date(2013, 1, 5), store="Paris")
PIECE = CopyPiece(KEY.path, "file:/rows.parquet", 0, 1, "sales", "rows_1", "select 1")


# The words are those of PostgreSQL's own translations.
@pytest.mark.parametrize(
    ("severity", "message", "context"),
    [
        ("ERROR", 'invalid byte sequence for encoding "UTF8": 0x00', "CONTEXT:  COPY rows_1, line 7, column product"),
        (
            "FEHLER",
            "ungültige Byte-Sequenz für Kodierung »UTF8«: 0x00",
            "KONTEXT:  COPY rows_1, Zeile 7, Spalte product",
        ),
        (
            "ERROR",
            "unsupported Unicode escape: 0x00",
            "CONTEXT:  JSON data, line 1: ...\nCOPY a, line 7, column product",
        ),
        ("ERREUR", "séquence d'octets invalide : 0x00", "CONTEXTE : COPY rows_1, ligne 7, colonne product"),
        ("ERROR", "不正なバイト列です: 0x00", "CONTEXT:  rows_1のCOPY、行 7、列 product"),
    ],
    ids=["English", "German", "JSON", "French", "Japanese"],
)
def test_a_refused_row_is_named_whatever_language_the_server_speaks(severity: str, message: str, context: str) -> None:
    build = Build(sales_dataset(StoreKind.WAREHOUSE), (KEY,), BatchId(1), "run", {KEY: None})
    said = (
        f"INVALID_DATA: [libpq] Failed to execute COPY statement: {severity}:  {message}\n{context}\n. SQLSTATE: 22021"
    )
    error = explained(build, PIECE, Outcome(0, error=said, state="22021"))
    assert isinstance(error, BadInput)
    assert f"refused the rows of {KEY.path}: row 7 of a file, column product: {message}." in str(error)
    assert "holds no NUL character" in str(error)
