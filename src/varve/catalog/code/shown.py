"""A dataset with the columns that readers see, for whoever moves pointers or mends what is shown without computing.

Which columns readers see is for the last publish to say: a checkout that is behind would take away what came since.

Not here: what the declarations of two codes have in common (varve/planning/changes/generation.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varve.catalog.code.generations import Generations
from varve.model.schema import Schema

if TYPE_CHECKING:
    import psycopg

    from varve.model.dataset import Dataset


def as_shown(connection: psycopg.Connection, here: Dataset) -> Dataset:
    """The dataset as it is declared here, with the data columns of its last publish.

    As it is where that has the same ones, where it was never published, lies elsewhere, or is a view.
    """
    generations = Generations(connection)
    shown = generations.published([here.name]).get(here.name)
    if shown is None or here.is_view or generations.stored_elsewhere([here]):
        return here
    columns = shown.shape.columns.data
    if columns == here.schema.columns:
        return here
    # Options may name columns that readers do not see.
    return replace(
        here, schema=Schema(columns), warehouse=replace(here.warehouse, indexes=()),
        lake=replace(here.lake, sort=(), bounds=()), expectations=(), incremental=None, reject_into=None,
    )  # fmt: skip
