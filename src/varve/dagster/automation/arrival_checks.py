"""A check of each dataset that arrives from others: is everything taken that was sent?

Not here: what is not taken, and why (varve/planning/arrivals/arrivals.py).
"""

from collections.abc import Sequence

import dagster as dg

from varve.catalog.catalog import Catalog
from varve.catalog.rejected import RejectedArrivals
from varve.model.dataset import Dataset
from varve.model.errors import counted, some
from varve.planning.arrivals.arrivals import Rejected
from varve.planning.arrivals.landing_file import RejectionKind
from varve.project import Project
from varve.services.postgres import connect

CHECK = "every_arrival_is_taken"
_LISTED = 20


def arrival_check(dataset: Dataset, project: Project) -> dg.AssetChecksDefinition:
    """The check of one dataset; a run of its asset makes it too, and so does the report every ten minutes."""
    key = dg.AssetKey([dataset.db, dataset.table])

    @dg.asset_check(
        asset=key,
        name=CHECK,
        description="Fails where something arrived that cannot be taken; says what and why.",
    )
    def check() -> dg.AssetCheckResult:
        with connect(project.settings, application="varve checks") as connection:
            Catalog(connection).ensure_schema()
            found = RejectedArrivals(connection).all()
        return checked(key, [one for name, one in found if name == dataset.name])

    return check


def checked(key: dg.AssetKey, found: Sequence[Rejected]) -> dg.AssetCheckResult:
    """Whether nothing of a dataset is rejected; what is early is taken by itself."""
    rejected = [one for one in found if one.kind is not RejectionKind.EARLY]
    early = len(found) - len(rejected)
    said = (
        f"{counted(len(rejected), 'arrival')} cannot be taken: {some([one.uri for one in rejected], limit=3)}"
        if rejected
        else "Everything that has arrived is taken"
    )
    return dg.AssetCheckResult(
        check_name=CHECK,
        asset_key=key,
        passed=not rejected,
        description=f"{said}{f', and {early} wait for their windows to begin' if early else ''}.",
        metadata={one.uri: f"{one.kind}: {one.reason}" for one in found[:_LISTED]},
    )
