"""Descriptions of columns in Dagster: a column that only hands another one on has that one's description.

Not here: which columns a column is computed from (varve/sql/types/lineage.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varve.model.schema import Column
    from varve.sql.sql_asset import SqlAsset


def inherited_descriptions(files: Mapping[str, SqlAsset]) -> dict[str, dict[str, str]]:
    """Return, by dataset and column, the descriptions that columns without one inherit; they name where they are from.

    A column inherits where it has the name and the type of the only column that it is computed from, through any number
    of datasets: `in cents (from shop.orders)`.
    """
    lineage = {name: file.lineage for name, file in files.items()}

    def described(name: str, column: Column) -> str:
        sources = lineage[name].get(column.name, ())
        if len(sources) != 1 or sources[0][1] != column.name or sources[0][0] not in files[name].upstreams:
            return ""
        upstream_name = sources[0][0]
        for source in files[name].upstreams[upstream_name].schema.columns:
            if (source.name, source.type) == (column.name, column.type):
                if source.comment:
                    return f"{source.comment} (from {upstream_name})"
                # Files read each other in no circle.
                return described(upstream_name, source) if upstream_name in files else ""
        return ""

    inherited = {
        name: {
            column.name: text
            for column in file.dataset.schema.columns
            if not column.comment and (text := described(name, column))
        }
        for name, file in files.items()
    }
    return {name: texts for name, texts in inherited.items() if texts}
