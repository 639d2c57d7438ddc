"""Names of period tables: readable, unique, at most 62 bytes, never parsed back.

PostgreSQL shortens longer names with only a notice, so that two partitions would get the same table.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING

from varve.model.partitions.key import WHOLE

if TYPE_CHECKING:
    from varve.model.batch import BatchId
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
# slug 14 + 2 + key 22 + 2 + hash 12 + 1 + batch 9 (base 36 milliseconds, until the year 5188) = 62
_DATASET_BYTES, _KEY_BYTES, _HASH_CHARACTERS, _BATCH_CHARACTERS = 14, 22, 12, 9


def periods_schema(dataset: Dataset) -> str:
    """The schema of a dataset's period tables, beside the schema of its view."""
    return periods_schema_of(dataset.name)


def periods_schema_of(dataset: str) -> str:
    """The same by the dataset's name."""
    return f"{dataset.partition('.')[0]}_periods"


def period_table(dataset: Dataset, partition: PartitionKey, batch_id: BatchId) -> str:
    """`weekly_delays__2013_01_07_ewr__wrn2qwmskw7q_hc9p2k3a`: dataset, partition, their hash, the batch."""
    batch = _base36(batch_id.millis)
    assert len(batch) <= _BATCH_CHARACTERS
    slug, key = _slug(dataset.table, _DATASET_BYTES), _slug(" ".join(map(str, partition.values)) or WHOLE, _KEY_BYTES)
    return f"{slug}__{key}__{_hash(dataset.name, partition.path)}_{batch}"


def compacted_table(dataset: Dataset, period: str, batch: BatchId) -> str:
    """`sales__2013_01_07__wrn2qwmskw7q_hc9p2k3a`: the rows of all partitions of a coarser period."""
    slug, key = _slug(dataset.table, _DATASET_BYTES), _slug(f"all {period}", _KEY_BYTES)
    return f"{slug}__{key}__{_hash(dataset.name, f'/{period}')}_{_base36(batch.millis)}"


def leaf_view(dataset: Dataset, generation: int, leaf: int) -> str:
    """`weekly_delays__leaf__wrn2qwmskw7q_1_3`: one of the leaf views under the dataset's view."""
    return f"{leaf_prefix(dataset.name, generation)}{leaf}"


def leaf_prefix(dataset: str, generation: int | None = None) -> str:
    """How the names of a dataset's leaf views begin: of one generation, or of all."""
    prefix = f"{_slug(dataset.partition('.')[2], _DATASET_BYTES)}__leaf__{_hash(dataset, '')}_"
    return prefix if generation is None else f"{prefix}{generation}_"


def _hash(dataset: str, path: str) -> str:
    # The text as it is, in its own case and form: 'Acme' is not 'acme'.
    digest = hashlib.blake2b(dataset.encode() + b"\0" + path.encode(), digest_size=8).digest()
    return base64.b32encode(digest).decode().lower()[:_HASH_CHARACTERS]


def _slug(text: str, limit: int) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:limit].strip("_") or "x"


def _base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text or "0"
