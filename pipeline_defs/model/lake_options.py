"""What a dataset may say about its parquet files; the default of each is what nearly all need.

Not here: how they are obeyed (resources/lake/write.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_defs.model.errors import VarveError


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Options of a dataset in the lake.

    Attributes:
        sort: data columns by which the rows of each file are sorted, so that readers may skip row groups.
        bounds: data columns whose lowest and highest value the catalog keeps for each batch.
        file_bytes: about so large a file becomes at most, judged by the rows of the batch before; None: any size.
        file_rows: at most so many rows in a file; goes before `file_bytes`.
    """

    sort: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    file_bytes: int | None = 256 << 20
    file_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("file_bytes", "file_rows"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise VarveError(f"{name} is {limit}; write a number above 0, or None for no limit.")

    @property
    def columns(self) -> frozenset[str]:
        """Every column it names."""
        return frozenset((*self.sort, *self.bounds))
