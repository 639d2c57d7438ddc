"""The progress of each file that the partner sent: when it was recorded, run, published and seen, from the catalog.

Not here: the files (partner.py), the reader (reader.py), and the output (table.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline_defs.demo.live.partner import SendingKind, Slot
from varve.catalog.rejected import RejectedArrivals
from varve.planning.arrivals.landing_file import RejectionKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from pipeline_defs.demo.live.partner import Sending

ORDERS, REVENUE = "varve_live.orders", "varve_live.revenue"
_ARRIVALS = "select fingerprint, extract(epoch from arrived_at)::float8 from varve.arrival where dataset = %s"
_BATCHES = """
    select dataset, partition, batch_id::text, inputs, extract(epoch from started_at)::float8,
        extract(epoch from published_at)::float8, state, failure
    from varve.batch where dataset = any(%s) order by batch_id
"""


@dataclass
class Journey:
    """The stages of one file. Instants are in epoch seconds; None stands for not yet, or never.

    Attributes:
        recorded_at: when the arrival sensor took the file.
        run_at: when the run of `orders` began.
        published_at: when its batch was published in the lake.
        in_view_at: when a batch of `revenue` that was made from it was published.
        seen_at: when the reader saw it, or a later version of the same slot.
        note: why the file goes no further, as text; "" where it does.
    """

    sending: Sending
    recorded_at: float | None = None
    run_at: float | None = None
    published_at: float | None = None
    in_view_at: float | None = None
    seen_at: float | None = None
    note: str = ""

    @property
    def moments(self) -> tuple[float | None, ...]:
        """All instants, in the order of the stages."""
        return (self.recorded_at, self.run_at, self.published_at, self.in_view_at, self.seen_at)

    def after(self, moment: float | None) -> float | None:
        """Return the seconds from the sending of the file to a moment; None where there is no moment."""
        return None if moment is None else max(0.0, moment - self.sending.sent_at)


@dataclass
class Watch:
    """The journeys of all files, as far as the catalog and the reader know them by now.

    Attributes:
        rejected: the reason of each file that is not taken now, by its name in the landing folder.
        failed: the failed batches, as texts.
    """

    journeys: list[Journey] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def look(
        self, connection: psycopg.Connection, sendings: list[Sending], seen_at: Mapping[tuple[Slot, int], float]
    ) -> None:
        """Update the journeys from the catalog and from what the reader has seen."""
        self.journeys += [Journey(sending) for sending in sendings[len(self.journeys) :]]
        recorded: dict[str, float] = dict(connection.execute(_ARRIVALS, (ORDERS,)).fetchall())
        batches = connection.execute(_BATCHES, ([ORDERS, REVENUE],)).fetchall()
        rejected = [
            (arrival.uri.rsplit("/", 1)[-1], arrival)
            for dataset, arrival in RejectedArrivals(connection).all()
            if dataset == ORDERS and arrival.kind is not RejectionKind.SETTLING
        ]
        self.rejected = {name: f"{arrival.kind}: {arrival.reason}" for name, arrival in rejected}
        self.failed = [f"{row[0]} {row[1]}: {row[7]}" for row in batches if row[6] == "failed"]
        for journey in self.journeys:
            sending = journey.sending
            if journey.recorded_at is None and sending.fingerprint in recorded:
                journey.recorded_at = recorded[sending.fingerprint]
            _add_batches(journey, batches)
            if sending.version is not None:
                journey.seen_at = seen_at.get((sending.slot, sending.version))
            journey.note = self._note(journey)

    def _note(self, journey: Journey) -> str:
        sending = journey.sending
        later = [
            later_journey.sending
            for later_journey in self.journeys[sending.number :]
            if later_journey.sending.slot == sending.slot
        ]
        reason = self.rejected.get(f"{sending.slot.hour}|{sending.slot.shop}.csv")
        if sending.version is None:
            if later:
                return f"was never taken; sent anew as number {later[0].number}"
            return reason or ""
        if sending.kind is SendingKind.AGAIN:
            return "the same as before: nothing to do"
        if journey.run_at is None and journey.seen_at is not None:
            return "overtaken by a newer file of the same hour and shop"
        return ""


def _add_batches(journey: Journey, batches: list[tuple[Any, ...]]) -> None:
    """Add to a journey the run and the publishes that were made from its file."""
    path, fingerprint = journey.sending.slot.path, journey.sending.fingerprint
    made_from = {f"{fingerprint}"}
    for dataset, partition, batch_id, inputs, started_at, published_at, _, _ in batches:
        if partition != path or not made_from & {version for _, _, version in inputs}:
            continue
        if dataset == ORDERS:
            made_from.add(batch_id)
            # Where a file was sent twice, the run belongs to the first sending.
            if journey.sending.kind is not SendingKind.AGAIN:
                journey.run_at = journey.run_at or started_at
                journey.published_at = journey.published_at or published_at
        elif journey.published_at is not None:
            journey.in_view_at = journey.in_view_at or published_at
