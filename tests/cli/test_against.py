"""`varve check --against` in a project of SQL and Python files under git: what breaks, whose it is, and where."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documents.pages import blocks
from tests.support.prepared import run_prepared

pytestmark = pytest.mark.needs_seconds

HERE = "tests/cli/test_against.py"
VARVE = str(Path(sys.executable).parent / "varve")
SALES = """
CREATE DATASET shop.sales (
  product STRING,
  price DECIMAL(10, 2),
  about STRUCT<shelf: INT, `the place`: STRING>,
  pieces INT
)
  COMMENT 'One row per sale.'
  OWNER 'team:tills'
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-11-08', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
EXTERNAL;
"""
DAILY = """
CREATE DATASET shop.{name}
  COMMENT 'One row per product.'
  OWNER {owners}
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2026-11-01', END '2026-11-08', TIMEZONE 'UTC')
  LET today = CAST(t AS DATE)
  INSERT (day = today)
AS
{query};
"""
REVENUE = """SELECT product, SUM(price) AS revenue
FROM shop.sales
WHERE sales.day = today
GROUP BY product"""
# The module asks for SQL datasets while it is imported, as modules of projects do.
STOCK = """
from pathlib import Path

import varve

_SALES = varve.sql_datasets(Path(__file__).parent)["shop.sales"].dataset
STOCK = varve.Dataset(
    name="shop.stock",
    partitioning=_SALES.partitioning,
    schema=varve.Schema(
        (varve.Column("product", varve.ColumnType.STRING), varve.Column("remaining", varve.ColumnType.INT))
    ),
    store=varve.StoreKind.LAKE,
    comment="What is left.",
    owners=("team:stock",),
)


@varve.asset(STOCK, reads={"sales": varve.Reads(_SALES%s)})
def stock(context, sales):
    return sales.selectExpr("product", "100 - pieces as remaining", "day")
"""


# Of SQL it needs nothing: a query may read it.
GOODS = """
import pendulum
import varve

DAYS = varve.TimeDimension(
    "day", varve.Grain.DAY, pendulum.datetime(2026, 11, 1), pendulum.datetime(2026, 11, 8)
)
GOODS = varve.Dataset(
    name="shop.goods",
    partitioning=varve.Partitioning((DAYS,)),
    schema=varve.Schema(
        (varve.Column("product", varve.ColumnType.STRING), varve.Column("shelf", varve.ColumnType.INT))
    ),
    store=varve.StoreKind.LAKE,
    comment="What is for sale.",
)


@varve.asset(GOODS)
def goods(context):
    raise NotImplementedError
"""


class Repository:
    """A project in a git repository of its own, one folder below its top."""

    def __init__(self, folder: Path) -> None:
        self.top = folder
        self.root = folder / "data"
        self.assets = self.root / "assets"
        self.assets.mkdir(parents=True)
        (self.root / "varve.toml").write_text("")
        (self.top / ".gitignore").write_text("__pycache__/\n")
        self.write("__init__.py", "")
        self.write("sales.sql", SALES)
        self.write("revenue.sql", DAILY.format(name="revenue", owners="'team:money', 'ann@example.com'", query=REVENUE))
        self.write("stock.py", STOCK % "")
        self.git("init", "--quiet")
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.assets / name).write_text(text.lstrip(), encoding="utf-8")

    def edit(self, name: str, before: str, after: str) -> None:
        text = (self.assets / name).read_text(encoding="utf-8")
        assert before in text
        self.write(name, text.replace(before, after))

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *identity, *words], cwd=self.top, capture_output=True, text=True, check=True)
        return done.stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a version")

    def check(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
        return run_prepared(VARVE, "check", "--no-spark", *words, cwd=self.root, env=environment)

    def compared(self, against: str = "HEAD") -> dict[str, Any]:
        """What `--against --json` says; its exit code is 1 exactly where something is broken for certain."""
        done = self.check("--against", against, "--json")
        values: dict[str, Any] = json.loads(done.stdout)
        certain = [use for use in values["breaks"] if use["certain"]]
        assert done.returncode == (1 if certain or values["problems"] else 0), done.stderr
        return values


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def broken(values: dict[str, Any]) -> list[tuple[str, str, str, list[str]]]:
    return [(use["dataset"], use["upstream"], use["column"], use["owners"]) for use in values["breaks"]]


def test_an_unchanged_project_breaks_nothing_and_git_is_left_as_it_was(repository: Repository) -> None:
    values = repository.compared()
    assert (values["changes"], values["breaks"], values["problems"], values["uncompared"]) == ([], [], [], [])
    assert repository.git("status", "--porcelain").splitlines() == []
    assert "No dataset is broken by what has changed since HEAD." in repository.check("--against", "HEAD").stdout


def test_another_spelling_of_a_type_is_no_change(repository: Repository) -> None:
    repository.edit("sales.sql", "DECIMAL(10, 2)", "numeric(10,2)")
    repository.edit("sales.sql", "STRUCT<shelf: INT,", "struct<shelf INTEGER ,")
    assert repository.compared()["changes"] == []


def test_a_dropped_column_is_a_finding_and_not_first_an_error_of_the_file(repository: Repository) -> None:
    repository.edit("sales.sql", "  price DECIMAL(10, 2),\n", "")
    values = repository.compared()
    assert broken(values) == [
        ("shop.revenue", "shop.sales", "price", ["team:money", "ann@example.com"]),
        ("shop.stock", "shop.sales", "price", ["team:stock"]),
    ]
    # The module cannot be imported any more, and the file has an error at that place: neither is told once more.
    assert values["problems"] == []
    (query, function) = values["breaks"]
    assert query["place"] == "assets/revenue.sql:10:21"
    assert query["message"] == "shop.sales no longer has price."
    assert function["message"] == "reads all columns of it: shop.sales no longer has price."
    assert function["place"] == "assets/stock.py:18"
    (change,) = values["changes"]
    assert [(reader["dataset"], reader["through"]) for reader in change["readers"]] == [
        ("shop.revenue", []),
        ("shop.stock", []),
    ]


def test_a_function_that_says_what_it_reads_breaks_by_those_columns_only(repository: Repository) -> None:
    repository.write("stock.py", STOCK % ', columns=("product", "pieces")')
    repository.commit()
    repository.edit("sales.sql", "  price DECIMAL(10, 2),\n", "")
    assert [use[0] for use in broken(repository.compared())] == ["shop.revenue"]
    repository.edit("sales.sql", "pieces INT", "pieces STRING")
    assert ("shop.stock", "shop.sales", "pieces", ["team:stock"]) in broken(repository.compared())


def test_a_wider_decimal_breaks_nobody_and_a_narrower_one_does(repository: Repository) -> None:
    repository.edit("sales.sql", "DECIMAL(10, 2)", "DECIMAL(12, 2)")
    values = repository.compared()
    assert values["breaks"] == []
    # What is computed from it becomes wider too.
    assert [
        (change["dataset"], [column["change"] for column in change["columns"]]) for change in values["changes"]
    ] == [
        ("shop.revenue", ["widened"]),
        ("shop.sales", ["widened"]),
    ]
    repository.commit()
    repository.edit("sales.sql", "DECIMAL(12, 2)", "DECIMAL(10, 2)")
    messages = [use["message"] for use in repository.compared()["breaks"]]
    assert "shop.sales.price is decimal(10,2) now, and was decimal(12,2)." in messages


def test_who_is_downstream_of_a_reader_is_named_with_the_way_there(repository: Repository) -> None:
    monthly = "SELECT product, SUM(revenue) AS total FROM shop.revenue WHERE revenue.day = today GROUP BY product"
    repository.write("totals.sql", DAILY.format(name="totals", owners="'team:board'", query=monthly))
    repository.commit()
    repository.edit("sales.sql", "  price DECIMAL", "  cost DECIMAL")
    values = repository.compared()
    assert "shop.totals" not in [use["dataset"] for use in values["breaks"]]
    (change,) = values["changes"]
    column = change["columns"][0]
    assert (column["change"], column["renamed_to"]) == ("renamed", "cost")
    assert {(reader["dataset"], *reader["through"], *reader["owners"]) for reader in change["readers"]} == {
        ("shop.revenue", "team:money", "ann@example.com"),
        ("shop.stock", "team:stock"),
        ("shop.totals", "shop.revenue", "team:board"),
    }


def test_a_function_that_changes_with_what_it_reads_is_to_be_looked_at_and_breaks_nothing(
    repository: Repository,
) -> None:
    repository.edit("sales.sql", "  pieces INT", "  sold INT")
    repository.edit("stock.py", "100 - pieces", "100 - sold")
    values = repository.compared()
    assert [(use["dataset"], use["certain"]) for use in values["breaks"]] == [("shop.stock", False)]
    assert "Its code has changed too: see that it fits." in repository.check("--against", "HEAD").stdout


def test_the_python_of_a_revision_is_that_of_the_revision(repository: Repository) -> None:
    # The dataset has one column less in the working tree, where a query reads it.
    query = "SELECT product, shelf FROM shop.goods WHERE goods.day = today"
    repository.write("reader.sql", DAILY.format(name="reader", owners="'team:shelf'", query=query))
    repository.write("goods.py", GOODS)
    repository.commit()
    repository.edit("goods.py", ', varve.Column("shelf", varve.ColumnType.INT)', ",")
    values = repository.compared()
    assert broken(values) == [("shop.reader", "shop.goods", "shelf", ["team:shelf"])]
    assert values["problems"] == []


def test_a_dataset_that_is_gone_is_named_with_its_readers(repository: Repository) -> None:
    (repository.assets / "stock.py").unlink()
    (repository.assets / "sales.sql").unlink()
    values = repository.compared()
    assert ("shop.revenue", "shop.sales", None, ["team:money", "ann@example.com"]) in broken(values)
    assert [(change["dataset"], change["change"]) for change in values["changes"]] == [
        ("shop.sales", "removed"),
        ("shop.stock", "removed"),
    ]


def test_what_becomes_of_the_batches_that_are_there_is_said_before_it_is_deployed(repository: Repository) -> None:
    def consequences() -> list[tuple[str, bool]]:
        values = repository.compared()
        return [
            (each["message"], each["new_generation"])
            for each in values["consequences"]
            if each["dataset"] == "shop.sales"
        ]

    repository.edit("sales.sql", "  pieces INT\n", "  pieces INT,\n  till STRING\n")
    assert consequences() == [("till: NULL in partitions that are not computed again.", False)]
    assert repository.check("--against", "HEAD").returncode == 0
    repository.commit()
    repository.edit("sales.sql", ",\n  till STRING\n", "\n")
    assert consequences() == [
        ("till: batches keep it, and readers of the Hive table do not see it from the next run on.", False),
        ("The next run makes the Hive table again, which is missing for a moment.", False),
    ]
    repository.edit("sales.sql", "  pieces INT\n", "  pieces INT,\n  cashier STRING\n")
    ((message, new_generation),) = consequences()
    assert new_generation
    assert message.startswith(
        "It needs a new generation. Renamed, or one dropped and another added: till STRING -> cashier STRING. `varve"
    )
    done = repository.check("--against", "HEAD")
    assert (done.returncode, "what HEAD has published of shop.sales" in done.stdout) == (1, True)
    assert "Once it is deployed: varve evolve shop.sales." in done.stdout
    assert "| `shop.sales` | It needs a new generation. " in repository.check("--against", "HEAD", "--markdown").stdout
    repository.edit("sales.sql", "  cashier STRING", "  till STRING")
    repository.edit("sales.sql", "PARTITIONED BY (day DATE)", "PARTITIONED BY (week DATE)")
    repository.edit("sales.sql", "INSERT (day = today)", "INSERT (week = today)")
    ((message, new_generation),) = consequences()
    assert new_generation
    assert "It was partitioned by day DATE, and now by week DATE." in message
    repository.edit("sales.sql", "PARTITIONED BY (week DATE)", "PARTITIONED BY (day DATE)")
    repository.edit("sales.sql", "INSERT (week = today)", "INSERT (day = today)")
    repository.edit("sales.sql", "STORED IN LAKE", "STORED IN WAREHOUSE")
    assert "It lies in the lake, and is declared in the warehouse." in consequences()[0][0]


def test_a_pull_request_is_told_in_markdown(repository: Repository) -> None:
    repository.edit("sales.sql", "  price DECIMAL(10, 2),\n", "")
    done = repository.check("--against", "HEAD", "--markdown")
    assert done.returncode == 1
    assert (
        "| `shop.revenue` | team:money, ann@example.com | shop.sales no longer has price. "
        "| `assets/revenue.sql:10:21` |" in done.stdout.splitlines()
    )
    assert done.stdout.startswith("### Datasets, compared with `HEAD`\n\n**2 datasets broken ")
    assert repository.check("--markdown").returncode == 1


def test_a_file_with_an_error_of_its_own_is_never_told_as_harmless(repository: Repository) -> None:
    repository.edit("revenue.sql", "SUM(price)", "SUM(prize)")
    for words in (("--markdown",), ()):
        done = repository.check("--against", "HEAD", *words)
        assert done.returncode == 1
        assert "No dataset is broken" not in done.stdout
        assert "1 file with errors: " in done.stdout
    done = repository.check("--against", "HEAD", "--markdown")
    assert any("prize" in line and line.endswith(":10:21` |") for line in done.stdout.splitlines()), done.stdout


def test_a_revision_with_errors_is_compared_as_far_as_it_goes(repository: Repository) -> None:
    repository.edit("revenue.sql", "SUM(price)", "SUM(prize)")
    repository.commit()
    repository.edit("revenue.sql", "SUM(prize)", "SUM(price)")
    values = repository.compared()
    assert (values["breaks"], values["changes"], values["uncompared"]) == ([], [], ["shop.revenue"])


def test_the_commands_of_the_page_end_with_1_where_something_is_broken(repository: Repository) -> None:
    repository.git("branch", "--move", "main")
    repository.edit("sales.sql", "  price DECIMAL(10, 2),\n", "")
    commands = [command for block in blocks("console") if block.runner == HERE for command in block.commands]
    assert len(commands) == 3
    for command in commands:
        words = command.split()
        assert words[:2] == ["varve", "check"]
        done = repository.check(*words[2:])
        assert (done.returncode, "shop.revenue" in done.stdout) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("against", "told"),
    [
        ("no_such_branch", "is neither a folder nor a git revision"),
        ("HEAD", "its datasets cannot be read: assets/stock.py:"),
    ],
)
def test_a_version_that_cannot_be_read_is_told(repository: Repository, against: str, told: str) -> None:
    repository.edit("stock.py", "import varve\n", "import varve\nnothing_of_this_name\n")
    repository.commit()
    repository.edit("stock.py", "nothing_of_this_name\n", "")
    done = repository.check("--against", against)
    assert done.returncode == 1
    assert told in done.stderr
