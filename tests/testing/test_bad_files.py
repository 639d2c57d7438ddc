"""What is wrong with files of tests: every mistake of every file at once, each in one line with its place.

The snapshot is to be read: a line says where, what was found and what to write.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.testing.shop import run_tests, write_shop
from varve.model.errors import VarveError
from varve.testing.files.problems import TestFileErrors
from varve.testing.files.reading import cases_of, files_in, read_cases
from varve.testing.files.selection import selector

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from syrupy.assertion import SnapshotAssertion

# Mistakes that are seen without a look at any dataset.
FORM = {
    "nothing": "",
    "no list": "name: a test\n",
    "no YAML": "- name: a test\n  dataset: shop.revenue\n  description: a: b\n",
    "a tab": "- name: a test\n\tdataset: x\n",
    "a list that is not closed": "- name: [a, b\n",
    "two documents": "- name: a\n---\n- name: b\n",
    "a test that is none": "- just a text\n- [1]\n",
    "no keys": "- {}\n",
    "unknown keys": "- {name: a, datasets: b, input: {}, order: x, expected: []}\n",
    "a key twice": "- name: a\n  name: b\n  dataset: shop.revenue\n  partition: {day: 1}\n  expected: []\n",
    "one name of two tests": """\
        - {name: a, dataset: shop.revenue, partition: {day: 1}, expected: []}
        - {name: b, dataset: shop.revenue, partition: {day: 1}, expected: []}
        - {name: a, dataset: shop.revenue, partition: {day: 1}, expected: []}
        """,
    "expected and fails": "- {name: a, dataset: b.c, partition: {day: 1}, expected: [], fails: x}\n",
    "values that are none": """\
        - name: [a]
          dataset: {b: c}
          partition: 2026-11-02
          inputs: [shop.orders]
          expected: {product: pen}
          columns: all
          tolerance: 5%
        """,
    "rows that are none": """\
        - name: a
          dataset: shop.revenue
          partition: {day: 2026-11-02}
          inputs:
            shop.orders: [pen, {product: ink}, [a]]
            shop.tariffs:
            shop.types: {file: types.xlsx}
            shop.best: {file: nowhere.csv}
          fails:
        """,
    "CSV that is none": """\
        - name: a
          dataset: shop.revenue
          partition: {day: 2026-11-02}
          inputs:
            shop.orders:
              csv: |
                product, price, product
                pen, 1, 2
                ink, 1
            shop.tariffs: {csv: ""}
          expected: []
        """,
    "a tag": "- {name: !secret a, dataset: b.c, partition: {day: 1}, expected: []}\n",
}
# Mistakes about datasets, columns, types and partitions.
MEANING = {
    "an unknown dataset": "- {name: a, dataset: shop.revenu, partition: {day: 2026-11-02}, expected: []}\n",
    "a dataset of others": "- {name: a, dataset: shop.orders, partition: {day: 2026-11-02}, expected: []}\n",
    "partitions that are none": """\
        - {name: a, dataset: shop.revenue, partition: {date: 2026-11-02}, expected: []}
        - {name: b, dataset: shop.revenue, partition: {}, expected: []}
        - {name: c, dataset: shop.revenue, partition: {day: 2027-11-02}, expected: []}
        - {name: d, dataset: shop.revenue, partition: {day: tomorrow}, expected: []}
        - {name: e, dataset: shop.revenue, partition: {day: null}, expected: []}
        - {name: f, dataset: shop.revenue, expected: []}
        """,
    "inputs that are none": """\
        - name: a
          dataset: shop.revenue
          partition: {day: 2026-11-02}
          inputs:
            shop.order: []
            shop.tariffs: []
          expected: []
        """,
    "columns and types": """\
        - name: a
          dataset: shop.revenue
          partition: {day: 2026-11-02}
          inputs:
            shop.orders:
              - {day: 2026-11-02, store: Rome, prise: 1, product: pen}
              - {day: 2026-11-02, store: Rome, price: much, product: pen}
              - {day: 2026-11-02, store: Rome, price: 1.005, product: pen}
              - {day: 2026-11-02, store: Rome, price: 123456789.00, product: [pen]}
              - {day: 2026-11-02, store: Rome, at: yesterday, product: pen}
              - {day: 2026-11-02, store: Rome}
            shop.tariffs: [{tax: 1,5}, {tax: "1,5"}]
          expected:
            - {products: pen}
            - {orders: 1.0, tax: true}
        """,
    "nested types": """\
        - name: a
          dataset: shop.same_types
          partition: {day: 2026-11-02}
          inputs:
            shop.types:
              - {list: 1, tiny: 128, flag: yes, bytes: abc, local: 2026-11-02T10:00:00Z}
              - {list: [a], pairs: [1], place: {town: Paris}, half: x, day_of: 2.11.2026}
              - {bytes: !!binary "?", text: !!binary AP8=, number: 1.5, large: 9223372036854775808}
          expected: []
        """,
    "rows of partitions that are not read": """\
        - name: a
          dataset: shop.revenue
          partition: {day: 2026-11-10}
          inputs:
            shop.orders:
              - {day: 2026-11-10, store: Paris, product: pen}
              - {day: 2026-11-08, store: Paris, product: pen}
              - {day: 2026-11-10, store: London, product: pen}
              - {day: 2027-11-10, store: Paris, product: pen}
              - {day: 2026-11-09, product: pen}
              - {product: pen}
            shop.tariffs: [{product: pen}, {day: 2026-11-09, product: pen}, {day: null}]
          expected:
            - {product: pen, day: never}
        """,
    "columns that exact rows do not have": """\
        - name: a
          dataset: shop.revenue
          partition: [{day: 2026-11-02}, {day: 2026-11-03}]
          inputs: {shop.orders: [], shop.tariffs: []}
          columns: exact
          expected: [{product: pen, orders: 1, revenue: 1}]
        """,
}


@pytest.mark.parametrize("name", FORM)
def test_a_mistake_of_form_is_told_with_its_line(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(TestFileErrors) as caught:
        read_cases(textwrap.dedent(FORM[name]), tmp_path / "a.test.yaml", "assets/a.test.yaml")
    assert str(caught.value) == snapshot
    assert all(line.startswith("assets/a.test.yaml:") for line in str(caught.value).splitlines())


@pytest.mark.spark
@pytest.mark.parametrize("name", MEANING)
def test_a_mistake_about_a_dataset_is_told_with_its_line(
    name: str, tmp_path: Path, spark: SparkSession, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(TestFileErrors) as caught:
        run_tests(write_shop(tmp_path), spark, MEANING[name])
    assert str(caught.value) == snapshot


def test_all_files_are_told_of_at_once(tmp_path: Path) -> None:
    (tmp_path / "assets" / "deeper").mkdir(parents=True)
    (tmp_path / "assets" / "b.test.yaml").write_text("- {}\n")
    (tmp_path / "assets" / "deeper" / "a.test.yaml").write_bytes(b"\xff\xfe")
    files = files_in(tmp_path / "assets")
    with pytest.raises(TestFileErrors) as caught:
        cases_of(files, tmp_path)
    assert {problem.place.path for problem in caught.value.problems} == {
        "assets/b.test.yaml",
        "assets/deeper/a.test.yaml",
    }
    (tmp_path / "assets" / "c.test.yml").touch()
    with pytest.raises(
        TestFileErrors, match=r"^assets/c\.test\.yml:1: a file of tests is called NAME\.test\.yaml; rename"
    ):
        files_in(tmp_path / "assets")


def test_what_editors_lay_beside_files_is_no_file_of_tests(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    from varve.testing.plugin import pytest_collect_file

    (tmp_path / "varve.toml").write_text('assets = "assets"\n')
    (tmp_path / "assets" / ".copies").mkdir(parents=True)
    (tmp_path / "assets" / ".#a.test.yaml").symlink_to("somebody@host.1:2")
    for name in ("a.test.yaml", "._a.test.yaml", "._a.test.yml", ".copies/a.test.yaml"):
        (tmp_path / "assets" / name).write_text("[]\n")
    assert files_in(tmp_path / "assets") == [tmp_path / "assets" / "a.test.yaml"]
    found = [path for path in (tmp_path / "assets").rglob("*a.test.yaml") if pytest_collect_file(path, request.session)]
    assert found == [tmp_path / "assets" / "a.test.yaml"]


def test_csv_in_a_file_of_its_own_is_told_of_with_its_own_lines(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('product,price\n"a\nb",1\npen\n')
    text = "- {name: a, dataset: b.c, partition: {day: 1}, inputs: {b.d: {file: rows.csv}}, expected: []}\n"
    with pytest.raises(TestFileErrors) as caught:
        read_cases(text, tmp_path / "a.test.yaml", "assets/a.test.yaml")
    assert str(caught.value) == "assets/rows.csv:4: row 2 of b.d has 1 cells, and 2 columns are named; write one each."


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("delays", {"weekly delays", "Delays of a day"}), ("weekly", {"weekly delays"}), ("not delays", {"fleet"}),
        ("delays and not (weekly or fleet)", {"Delays of a day"}), ("fleet or weekly", {"fleet", "weekly delays"}),
        ("OF A DAY", {"Delays of a day"}), ("not not fleet", {"fleet"}), ("nothing", set()),
    ],
)  # fmt: skip
def test_words_choose_tests_as_in_pytest(expression: str, chosen: set[str]) -> None:
    matches = selector(expression)
    assert {text for text in ("weekly delays", "Delays of a day", "fleet") if matches(text)} == chosen


@pytest.mark.parametrize("expression", ["and", "a or", "(a", "a)", "not", "()"])
def test_an_expression_that_is_none_is_told(expression: str) -> None:
    with pytest.raises(VarveError, match="is no expression: write parts of names with and, or, not"):
        selector(expression)


@pytest.mark.needs_seconds
def test_reading_files_imports_nothing_heavy() -> None:
    """`pytest --collect-only` of a project must stay quick."""
    heavy = ("dagster", "pyspark", "pandas", "sqlglot", "psycopg", "pyarrow", "pydantic")
    script = f"""
import sys
import pytest, varve.testing.plugin, varve.testing
print(*sorted(set({heavy!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_what_is_wrong_with_the_project_keeps_no_file_of_tests_out_in_silence(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from varve.testing.plugin import pytest_collect_file

    (tmp_path / "assets").mkdir()
    file = tmp_path / "assets" / "sales.test.yaml"
    file.write_text("[]\n")
    collector = request.session
    assert pytest_collect_file(file, collector) is None, "there is no project"
    (tmp_path / "varve.toml").write_text('assets = "assets"\n')
    assert pytest_collect_file(file, collector) is not None
    (tmp_path / "link").symlink_to(tmp_path / "assets")
    assert pytest_collect_file(tmp_path / "link" / "sales.test.yaml", collector) is not None
    (tmp_path / "varve.toml").write_text('asset = "assets"\n')
    with pytest.raises(pytest.UsageError, match="asset"):
        pytest_collect_file(file, collector)
