"""`varve demo --live`: a partner sends files for some minutes, the real daemon takes them, and a reader is checked.

Every answer of the reader is compared with what the partner had sent, and the final result with a clean rebuild from
the same files; a difference ends with exit code 1.
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from rich.console import Console

from pipeline_defs.demo.live.compared import contents, differences, rebuild
from pipeline_defs.demo.live.partner import MISDATED, SHOPS, Partner
from pipeline_defs.demo.live.place import LivePlace, forget_tables, refuse_deployed
from pipeline_defs.demo.live.reader import CheckedReader
from pipeline_defs.demo.live.table import STAGES, Screen, medians
from pipeline_defs.demo.live.watching import Watch
from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_settings
from varve.cli.printing import Table
from varve.cli.servers import services
from varve.model.errors import VarveError
from varve.services.folders import writable
from varve.services.postgres import connect, warehouse_url
from varve.services.postgres_server import PostgresServer
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    import psycopg

    from varve.services.settings import Settings

EVERY_SECONDS = 4.0
# How long the demo waits until the last file is visible; the machine may be busy with other work.
_LAST_SECONDS = 1_200.0
_LOOK_SECONDS = 0.5
_MISDATED_NAME = f"{MISDATED}|{SHOPS[0]}.csv"


def run(console: Console, *, minutes: float, as_json: bool) -> None:
    """Run the demo.

    Raises VarveError where an answer of the reader or the final result is wrong, and where a file does not become
    visible. Ctrl-C and SIGTERM end everything that the demo has started, and the servers where they were not up before.
    """
    settings = chosen_settings()
    refuse_deployed(settings)
    folder = writable(settings.home_dir / "live")
    handlers_before = {
        end_signal: signal.signal(end_signal, signal.default_int_handler)
        for end_signal in (signal.SIGINT, signal.SIGTERM)
    }
    were_up = PostgresServer(settings.home_dir).is_up(), SparkServer(settings).remote() is not None
    try:
        with FileLock(folder / "demo.lock", timeout=0):
            summary = _run_live(None if as_json else console, settings, folder, minutes)
    except Timeout:
        raise VarveError(
            f"another live demo works in {folder}. Wait for its end, or choose another VARVE_HOME."
        ) from None
    except KeyboardInterrupt:
        _end_services(settings, *were_up)
        raise
    finally:
        for end_signal, handler in handlers_before.items():
            signal.signal(end_signal, handler)
    if as_json:
        console.print_json(json.dumps(summary))
    else:
        _show(console, summary)
    if not summary["ok"]:
        wrong = [*summary["wrong_answers"], *summary["differences"]]
        raise VarveError(f"{len(wrong)} things were wrong, the first: {wrong[0]}. All of them are in {summary['log']}.")


def _run_live(console: Console | None, settings: Settings, folder: Path, minutes: float) -> dict[str, Any]:
    log = folder / "demo.log"
    log.write_text("", encoding="utf-8")
    quiet = console or Console(quiet=True)
    services.up(quiet)
    live_place, clean_place = LivePlace(folder, "varve_live"), LivePlace(folder, "varve_live_rebuild")
    with quiet.status("Making room: databases and folders of the demo's own..."):
        shutil.rmtree(folder / "landing", ignore_errors=True)
        for place in (live_place, clean_place):
            place.make(settings)
        forget_tables()
    with live_place.here(settings) as place_settings:
        with connect(place_settings, application="varve demo") as connection:
            Catalog(connection).ensure_schema()
        settings_text = (
            f"Settled after {place_settings.settle_seconds:g} s; "
            f"the sensors look every {place_settings.sensor_interval_seconds} s."
        )
        url = warehouse_url(place_settings)
    with Screen(console, log) as screen:
        screen.line(f"{settings_text} The daemon's log is {folder / 'daemon.log'}.")
        partner = Partner(live_place.landing, EVERY_SECONDS, time.time() + 60 * minutes)
        with ExitStack() as running:
            reader = running.enter_context(CheckedReader(url, partner))
            daemon = running.enter_context(live_place.daemon(settings, folder / "daemon.log"))
            place_settings = running.enter_context(live_place.here(settings))
            connection = running.enter_context(connect(place_settings, application="varve demo"))
            watch = _watch_until_seen(screen, connection, partner, reader, daemon)
        screen.line("The daemon has ended. A clean rebuild takes the same files into an empty catalog.")
    with quiet.status("A clean rebuild of the same files, to compare..."):
        runs = rebuild(clean_place, settings)
    differences_found = differences(contents(live_place, settings), contents(clean_place, settings), partner)
    forget_tables()
    kinds = [str(sending.kind) for sending in partner.sendings]
    for message in [*reader.wrong, *differences_found]:
        screen.line(f"WRONG: {message}")
    return {
        "ok": not reader.wrong and not differences_found,
        "minutes": minutes,
        "sent": len(partner.sendings),
        "kinds": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "seen": sum(journey.seen_at is not None for journey in watch.journeys),
        "median_seconds": medians(watch),
        "rejected": watch.rejected,
        "failed_batches": watch.failed,
        "reads": reader.reads,
        "slowest_read_seconds": round(reader.slowest, 3),
        "wrong_answers": reader.wrong,
        "rebuild_runs": runs,
        "differences": differences_found,
        "log": str(log),
    }


def _watch_until_seen(
    screen: Screen,
    connection: psycopg.Connection,
    partner: Partner,
    reader: CheckedReader,
    daemon: subprocess.Popen[bytes],
) -> Watch:
    """Let the partner send until `finish`, and wait until the reader sees all of it. Raises VarveError on a timeout."""
    stop, watch = threading.Event(), Watch()
    sending = threading.Thread(target=partner.until_finish, args=(stop,), name="partner", daemon=True)
    sending.start()
    deadline = partner.finish + _LAST_SECONDS
    try:
        while True:
            watch.look(connection, list(partner.sendings), dict(reader.seen_at))
            screen.show(watch, reader, max(0.0, partner.finish - time.time()))
            if daemon.poll() is not None:
                raise VarveError(f"the daemon ended with {daemon.returncode}; its log is beside {screen.log}.")
            sent_all = not sending.is_alive()
            if (
                sent_all
                and set(watch.rejected) == {_MISDATED_NAME}
                and reader.shows(partner.expected(), partner.versions())
            ):
                return watch
            if reader.wrong and sent_all:
                return watch
            if time.time() > deadline:
                missing = [
                    str(journey.sending.slot)
                    for journey in watch.journeys
                    if journey.seen_at is None and not journey.note
                ]
                seconds = f"{_LAST_SECONDS:g} s"
                raise VarveError(
                    f"not everything was seen {seconds} after it was sent: {', '.join(missing) or 'unknown'}; "
                    f"rejected are {watch.rejected or 'none'}. See {screen.log} and the daemon's log beside it."
                )
            time.sleep(_LOOK_SECONDS)
    finally:
        stop.set()
        sending.join()


def _end_services(settings: Settings, postgres_was_up: bool, spark_was_up: bool) -> None:  # noqa: FBT001 - as it was found
    if settings.embedded_spark and not spark_was_up:
        SparkServer(settings).stop()
    if not postgres_was_up:
        PostgresServer(settings.home_dir).stop()


def _show(console: Console, summary: dict[str, Any]) -> None:
    table = Table(*STAGES, title="Median of the seconds after a file was sent", title_justify="left")
    table.add_row(*[f"{summary['median_seconds'].get(name, float('nan')):.1f}" for name in STAGES])
    console.print(table)
    kinds = ", ".join(f"{count} {kind}" for kind, count in summary["kinds"].items())
    console.print(f"{summary['sent']} files were sent: {kinds}.", highlight=False)
    for name, reason in summary["rejected"].items():
        console.print(f"Still rejected: {name}: {reason}", markup=False, highlight=False)
    console.print(
        f"The reader asked {summary['reads']:,} times (slowest {1000 * summary['slowest_read_seconds']:.0f} ms); "
        f"{len(summary['wrong_answers'])} answers were wrong.",
        highlight=False,
    )
    console.print(
        f"A clean rebuild of the same files ({summary['rebuild_runs']} runs) shows "
        f"{'other rows' if summary['differences'] else 'the same rows'}, in the view and in the lake.",
        highlight=False,
    )
    console.print(f"The log is {summary['log']}.", markup=False, highlight=False, soft_wrap=True)
