"""`OpenBuild`: a build with the catalog connection that holds its locks, and what is to be done at its end.

Not here: which builds a run has open (varve/dagster/runs/builds).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from varve.catalog.catalog import Catalog
    from varve.model.batch import StagedBatch
    from varve.model.build import Build


@dataclass
class OpenBuild:
    """A build with the catalog connection that holds its locks.

    Attributes:
        pre_publish_checks: called right before the publish; each raises where what was read has changed meanwhile.
        together: the datasets with which it is published, itself among them; none where it is published alone.
        staged: what is ready to be published; empty until then.
        cleanups: called when the build ends, however it does; what one of them cannot remove is left to the sweep.
        rejected: the build of the dataset that takes its rejected rows; it is published with this one.
        rejected_rows: those rows, with their partition columns.
        broken_expectations: by name the expectations that its rows break, with how many of which partitions do.
        row_error: what an error of Spark is in words, "" where rows have not caused it; None where nobody can tell.
    """

    build: Build
    catalog: Catalog
    pre_publish_checks: list[Callable[[], None]] = field(default_factory=list)
    together: Sequence[str] = ()
    staged: Sequence[StagedBatch] = ()
    cleanups: list[Callable[[], None]] = field(default_factory=list)
    rejected: OpenBuild | None = None
    rejected_rows: pa.Table | None = None
    broken_expectations: dict[str, str] = field(default_factory=dict)
    row_error: Callable[[Exception], str] | None = None

    @property
    def with_rejected(self) -> list[OpenBuild]:
        """The builds that only become current together: that of the rejected rows, and then this one."""
        return [self] if self.rejected is None else [self.rejected, self]
