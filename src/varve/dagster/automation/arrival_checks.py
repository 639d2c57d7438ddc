"""A check for each dataset that arrives from others: it passes where every file that was sent is taken.

Not here: the rules for what is rejected (varve/planning/arrivals/arrivals.py).
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
    """Return the check of one dataset; it runs with the asset, and with the report every ten minutes."""
    key = dg.AssetKey([dataset.db, dataset.table])

    @dg.asset_check(
        asset=key,
        name=CHECK,
        description="Fails where something arrived that cannot be taken; says what and why.",
    )
    def check() -> dg.AssetCheckResult:
        with connect(project.settings, application="varve checks") as connection:
            Catalog(connection).ensure_schema()
            return checked(key, RejectedArrivals(connection).untaken(dataset.name))

    return check


def checked(key: dg.AssetKey, arrivals: Sequence[Rejected]) -> dg.AssetCheckResult:
    """Return the result of the check: it fails where an arrival is rejected.

    Early arrivals are taken later, and those whose retention is over were there in time.
    """
    arrivals = [arrival for arrival in arrivals if arrival.kind is not RejectionKind.PAST]
    rejected = [arrival for arrival in arrivals if arrival.kind is not RejectionKind.EARLY]
    early = len(arrivals) - len(rejected)
    summary = (
        f"{counted(len(rejected), 'arrival')} cannot be taken: {some([arrival.uri for arrival in rejected], limit=3)}"
        if rejected
        else "Nothing is refused of what the sensor arrivals has looked at"
    )
    return dg.AssetCheckResult(
        check_name=CHECK,
        asset_key=key,
        passed=not rejected,
        description=f"{summary}{f', and {early} wait for their windows to begin' if early else ''}.",
        metadata={arrival.uri: f"{arrival.kind}: {arrival.reason}" for arrival in arrivals[:_LISTED]},
    )
