"""A process that captures and dies at a step: `python -m tests.cdc.dying STEP [MOST]`, the lab on its standard input.

With `again` in place of MOST it takes a new snapshot.

Where it comes to none, it writes the megabytes of memory that it needed.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
from contextlib import closing

from varve.catalog.catalog import Catalog
from varve.cdc.capture.bootstrap import Bootstrap
from varve.cdc.capture.capture import Capture
from varve.cdc.capture.event_log import EventLog
from varve.cdc.capture.positions import Positions
from varve.cdc.capture.source_database import SourceDatabase
from varve.services.postgres import connect
from varve.services.settings import Settings


def main() -> None:
    captured, url = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the test itself
    settings, wanted = Settings(), sys.argv[1]

    def step(name: str) -> None:
        if name == wanted:
            os._exit(9)

    with closing(connect(settings, application="varve dying")) as connection:
        Catalog(connection).ensure_schema()
        Positions(connection).ensure_schema()
        log = EventLog(settings.lake, captured.dataset)
        room = captured, SourceDatabase(url), Positions(connection), log, step
        if sys.argv[2:] == ["again"]:
            Bootstrap(*room).bootstrap(resnapshot=True)
        elif wanted in {"start", "publish", "slot", "snapshot", "begin"}:
            Bootstrap(*room).bootstrap()
        else:
            Capture(*room, most=int(sys.argv[2]) if len(sys.argv) > 2 else 500_000).capture()
    sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))


if __name__ == "__main__":
    main()
