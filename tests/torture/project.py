"""The tortured project in a folder of its own: datasets of files, of SQL in both stores, and two captured tables.

Not here: what its tables must hold (facts.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.class_archive import jvm_options
from tests.support.environment import clean_environment
from tests.support.prepared import Program
from tests.torture.facts import DAYS, FIRST_DAY, WINDOW, file_rows
from varve.services.postgres_server import PostgresServer
from varve.services.settings import Settings
from varve.services.spark_server import SparkServer

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 400
# Of the disk on which its home lies; an hour needs less than one.
DISK = "3g"
_CLOCK = Path(__file__).with_name("wrong_clock.c")
_HEAD = """CREATE DATASET shop.{name} {columns}
  COMMENT 'For a torture.'
  STORED IN {store}
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '{first}', END '{last}', TIMEZONE 'UTC')
  LET {let} = CAST(t AS DATE)
  {insert}
  {clause}
{body}
"""
_REVENUE = """AS SELECT product, SUM(sales.cents) AS cents, MAX(sales.version) AS version, {code} AS code
FROM shop.sales WHERE sales.day = today AND sales.cents > 100 * {code} GROUP BY product;"""
_TOTALS = """AS SELECT COUNT(*) AS products, SUM(revenue.cents) AS cents, MAX(revenue.version) AS version,
MAX(revenue.code) AS code FROM shop.revenue WHERE revenue.day = today;"""
_TRAILING = """AS SELECT SUM(revenue.cents) AS cents,
array_join(array_sort(collect_set(concat_ws(':', revenue.day, revenue.version, revenue.code))), ',') AS made_from
FROM shop.revenue WHERE revenue.day BETWEEN today - INTERVAL {days} DAYS AND today;"""
_CAPTURED = '''"""Two tables of a bank whose amounts always add up to nothing."""

from varve import (
    CapturedTable, Column, ColumnType, Dataset, Partitioning, Schema, StaticDimension, StoreKind, captured_asset,
)


def captured(name):
    dataset = Dataset(
        name=f"bank.{name}",
        comment="For a torture.",
        partitioning=Partitioning((StaticDimension("part", ("0", "1", "2", "3")),)),
        schema=Schema((Column("id", ColumnType.INT), Column("amount", ColumnType.BIGINT),
                       Column("note", ColumnType.STRING))),
        store=StoreKind.LAKE,
    )
    return captured_asset(CapturedTable(dataset, f"public.{name}", {"part": "cast(pmod(id, 4) as string)"}))


accounts, wallets = captured("accounts"), captured("wallets")
'''


@dataclass(frozen=True)
class Ended:
    """How a command ended and all that it said."""

    code: int
    output: str


@dataclass(frozen=True)
class TorturedProject:
    """The project and its home; everything lies in one folder.

    Attributes:
        small_disk: whether its home is a disk of its own.
    """

    folder: Path
    small_disk: bool = False

    @classmethod
    def make(cls) -> TorturedProject:
        """Its home lies on a disk of its own, which can be filled, where one may be mounted."""
        folder = Path(tempfile.mkdtemp(prefix="varve-torture-"))
        folder.chmod(0o755)
        (folder / "home").mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder / "home")]
        made = cls(folder, subprocess.run(mount, capture_output=True, check=False, timeout=30).returncode == 0)
        if compiler := shutil.which("cc"):
            command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(made.wrong_clock), str(_CLOCK), "-ldl"]
            subprocess.run(command, check=True, timeout=60)
        (made.root / "shop_assets").mkdir(parents=True)
        (made.root / "shop_assets" / "__init__.py").write_text("")
        (made.root / "varve.toml").write_text('assets = "shop_assets"\ndefinitions = "shop_definitions"\n')
        definitions = "import varve\n\ndefs = varve.definitions(varve.Project.find(__file__), sensors_on=True)\n"
        (made.root / "shop_definitions.py").write_text(definitions)
        shutil.copy(ROOT / "dagster.yaml", made.root)
        (made.root / "shop_assets" / "captured.py").write_text(_CAPTURED)
        made._sql("sales", "EXTERNAL OPTIONS (source = 'landing', files = 'sales_{day:%Y-%m-%d}.csv');", let="day",
                  columns="(product STRING NOT NULL, cents BIGINT NOT NULL, version BIGINT NOT NULL)")  # fmt: skip
        made._sql("totals", _TOTALS, store="WAREHOUSE", clause="COMPACT WEEK")
        made._sql("trailing", _TRAILING.format(days=WINDOW - 1), store="WAREHOUSE",
                  columns="(cents BIGINT, made_from STRING)")  # fmt: skip
        made.write_code(1)
        return made

    @property
    def root(self) -> Path:
        return self.folder / "project"

    @property
    def wrong_clock(self) -> Path:
        """What a process preloads whose clock is wrong; it is there where a compiler was."""
        return self.folder / "wrong_clock.so"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def landing(self) -> Path:
        return self.folder / "landing" / "shop" / "sales"

    @property
    def environment(self) -> dict[str, str]:
        """What every process of it is given. Failures are tried again at once, and deaths are noticed soon."""
        return clean_environment() | {
            "VARVE_HOME": str(self.home), "VARVE_PROJECT": str(self.root),
            "VARVE_LANDING_ROOT": str(self.folder / "landing"), "VARVE_SETTLE_SECONDS": "0",
            "VARVE_ATTEMPTS": "1000", "VARVE_BACKOFF_SECONDS": "0", "VARVE_LEASE_SECONDS": "12",
            "VARVE_BOOTSTRAP_SECONDS": "30", "VARVE_SPARK_DRIVER_MEMORY": "1g",
            "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", jvm_options()),
        }  # fmt: skip

    @property
    def settings(self) -> Settings:
        return Settings(home=self.home, project=self.root)

    @property
    def server(self) -> PostgresServer:
        return PostgresServer(self.settings.home_dir)

    @property
    def spark(self) -> SparkServer:
        return SparkServer(self.settings)

    def run(self, *words: str, fate: Mapping[str, Any] | None = None) -> Ended:
        """`varve WORDS`, or `due`, in a process of its own, which may have to die."""
        import json

        module = ["-m", "tests.torture.dying_command", json.dumps(dict(fate or {})), *words]
        program = Program(module, str(ROOT), self.environment)
        clock = (fate or {}).get("clock")
        with tempfile.TemporaryFile() as output:
            try:
                if clock and self.wrong_clock.exists():
                    wrong = {"LD_PRELOAD": str(self.wrong_clock), "TORTURE_CLOCK_OFFSET": str(clock)}
                    code = subprocess.run(
                        [sys.executable, *module], cwd=ROOT, env=self.environment | wrong, stdin=subprocess.DEVNULL,
                        stdout=output, stderr=subprocess.STDOUT, check=False, timeout=COMMAND_SECONDS,
                    ).returncode  # fmt: skip
                else:
                    code = program.run(output, seconds=COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                code = -1_000
            output.seek(0)
            return Ended(code, output.read().decode(errors="replace"))

    def write_code(self, code: int) -> None:
        """Edit the query of revenue; at once, as an editor saves."""
        self._sql("revenue", _REVENUE.format(code=code))

    def send(self, day: dt.date, version: int) -> None:
        """A partner's file, put into its place at once."""
        self.landing.mkdir(parents=True, exist_ok=True)
        beside = self.landing / f".{day}-{version}"
        beside.write_text(_file(day, version))
        beside.replace(self.landing / f"sales_{day}.csv")

    def corrected(self, day: dt.date, version: int) -> tuple[Path, int]:
        """A file of a day somewhere else, for `varve correct`; and its version."""
        folder = self.folder / "corrected" / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"sales_{day}.csv"
        file.write_text(_file(day, version))
        return file, version

    def lies(self, day: dt.date) -> int:
        """The version of the file that lies in the landing folder."""
        return int((self.landing / f"sales_{day}.csv").read_text().splitlines()[1].rsplit(",", 1)[1])

    def end(self) -> None:
        """End the services, and remove everything."""
        self.spark.stop()
        self.server.stop()
        self.give_back()
        shutil.rmtree(self.folder, ignore_errors=True)

    def give_back(self) -> None:
        """Unmount its small disk, with all that is on it."""
        if self.small_disk:
            subprocess.run(["umount", "--lazy", self.home], check=False, timeout=30)

    def _sql(
        self, name: str, body: str, *, store: str = "LAKE", let: str = "today", columns: str = "", clause: str = ""
    ) -> None:
        insert = "" if let == "day" else "INSERT (day = today)"
        last = DAYS[-1].toordinal() + 1
        text = _HEAD.format(
            name=name, columns=columns, store=store, first=FIRST_DAY, last=type(FIRST_DAY).fromordinal(last), let=let,
            insert=insert, clause=clause, body=body,
        )  # fmt: skip
        beside = self.root / f".{name}"
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.root / "shop_assets" / f"{name}.sql")


def _file(day: dt.date, version: int) -> str:
    lines = "".join(f"{product},{cents},{number}\n" for product, cents, number in file_rows(day, version))
    return f"product,cents,version\n{lines}"
