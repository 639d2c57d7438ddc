"""`varve demo --live`, whole, in a home of its own: it checks itself, and its summary says what happened."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from pipeline_defs.demo.live.place import MODULE
from tests.e2e.project import ROOT, Project, wait_until
from varve.services.postgres_server import PostgresServer
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

# A minute of files and what follows it, then a rebuild; a machine that others use takes several times as long.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]
VARVE = Path(sys.executable).parent / "varve"


@pytest.fixture(scope="module")
def shop() -> Iterator[Project]:
    with Project.of_its_own("live") as found:
        yield found


def left_running(project: Project) -> list[str]:
    """The processes of the demo's daemon that still live, its code servers and runs among them."""
    home, found = project.settings.home_dir, []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or ())
        if MODULE in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            try:
                ours = process.environ().get("VARVE_HOME") == str(home)
            except psutil.Error:
                continue
            found += [words] if ours else []
    return found


def test_files_of_now_are_seen_and_the_end_is_that_of_a_clean_rebuild(shop: Project) -> None:
    done = subprocess.run(
        [VARVE, "demo", "--live", "--minutes", "0.7", "--json"], cwd=ROOT, env=dict(shop.environment),
        capture_output=True, text=True, timeout=1_500, check=False,
    )  # fmt: skip
    log = shop.settings.home_dir / "live" / "demo.log"
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log.read_text()}"
    summary = json.loads(done.stdout)
    assert summary["ok"]
    assert summary["wrong_answers"] == summary["differences"] == []
    assert {"new", "grew", "late", "sent twice", "broken", "mended", "misdated"} <= set(summary["kinds"])
    assert [name.split("|")[0] for name in summary["rejected"]] == ["2099-01-01T00"]
    # All but the broken file and the misdated one.
    assert summary["seen"] == summary["sent"] - 2
    assert summary["reads"] > 0
    assert list(summary["median_seconds"]) == ["recorded", "run", "published", "in the view", "seen"]
    text = log.read_text()
    assert "rejected arrival 2099-01-01T00|Berlin.csv: early" in text
    assert "was never taken; sent anew as number" in text
    assert "the same as before: nothing to do" in text
    assert "s after it was sent" in text
    assert left_running(shop) == []
    # The project beside it has none of it.
    listed = shop.varve_json("status")
    assert [one for one in listed["datasets"] if one["dataset"].startswith("varve_live")] == []


def test_an_interrupt_ends_everything_that_the_demo_started(shop: Project) -> None:
    shop.end_services()
    log = shop.settings.home_dir / "live" / "demo.log"
    log.write_text("")
    output = shop.settings.home_dir / "interrupted.log"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [VARVE, "demo", "--live", "--minutes", "20"], cwd=ROOT, env=dict(shop.environment),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(
            lambda: "rejected arrival" in log.read_text(), seconds=900,
            what="the daemon took files", log=output,
        )  # fmt: skip
        assert left_running(shop)
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 130, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert left_running(shop) == []
    assert not PostgresServer(shop.settings.home_dir).is_up()
    assert SparkServer(shop.settings).remote() is None
