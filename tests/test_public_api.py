"""What `import varve` gives: these names with these parameters, and nothing that is imported before it is used.

A change here is a change of the public API: CHANGELOG.md says it, and the version follows (docs/api.md).
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import varve
import varve.testing
from varve.dagster.reading import OpenProject

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(varve.__file__).parent
# Parameters by name; `=` has a default, what follows `*` is given by name only.
API = {
    "All": "",
    "Calendar": "name, windows",
    "CapturedTable": "dataset, source, partition_by, renames=, history=, ignore_null_updates=, files=, verify=, "
    "changed_at=",
    "Column": "name, type, comment=, nullable=, was=",
    "ColumnType": "text",
    "Custom": "function, of, readers=",
    "Dataset": "name, partitioning, schema, store, comment, landing=, owners=, warehouse=, lake=, "
    "expectations=, policy=, external=, incremental=, reject_into=, rejected_of=, of_project=",
    "DynamicDimension": "name, set_name, value_type=, column_type=, source=",
    "Every": "duration, anchor",
    "Expectation": "name, condition, of=",
    "Grain": "enum HOUR, DAY, WEEK, MONTH, QUARTER, YEAR",
    "Index": "columns, unique=",
    "LakeOptions": "sort=, bounds=, file_bytes=, file_rows=, iceberg=",
    "LandingResource": "",
    "LandingOptions": "files=, format=, separator=, quote=, encoding=, header=, extra_columns=, "
    "decimal=, thousands=, date_format=, timestamp_format=, timezone=, null=, last_line=",
    "Latest": "",
    "Of": "enum ROW, PARTITION",
    "OldSnapshots": "enum FAIL, PUBLISH",
    "OnCodeChange": "enum HOLD, REBUILD, FORWARD",
    "OnUpstreamChange": "enum REBUILD, HOLD",
    "Only": "keys",
    "Overlap": "first=, last=, unit=",
    "PartitionKey": "*args, **kwargs",
    "Partitioning": "dimensions=, order=",
    "Period": "enum DAY, WEEK, MONTH, YEAR",
    "Policy": "on_upstream_change=, on_code_change=, forward_from=, refresh_last=, retention=, "
    "partitions_per_run=, by_itself=, retain_batches=, retain_last=, schedule=, catchup=, rebuild_within=, "
    "rebuild_within_of=, fresh_within=",
    "Project": "root, assets, definitions=, commands=, deployment=, values=, file=",
    "Reads": "dataset, rules=, wait=, columns=",
    "Same": "of=",
    "Schedule": "cron, timezone=",
    "Schema": "columns",
    "SparkResource": "*, spark_config=, project=, deployment=",
    "StaticDimension": "name, members, limit=",
    "StoreKind": "enum LAKE, WAREHOUSE",
    "TableReads": "of, keys",
    "TimeColumn": "name, form, type=",
    "TimeDimension": "name, tiling, start, end=, key_format=, end_offset=, problem=, columns=",
    "Unit": "enum READER, UPSTREAM",
    "VarveError": "error",
    "VarveProject": "*, project=, deployment=, sensors_on=, in_process=",
    "Wait": "at_least=, missing=, deadline=",
    "WarehouseOptions": "indexes=, old_snapshots=, stall_milliseconds=, compact=, grants=",
    "asset": "dataset, *, reads=, code_version=, about=",
    "captured_asset": "captured",
    "definitions": "project, *, resources=, sensors_on=, in_process=",
    "function": "*, returns, jar=, java_class=",
    "leading": "windows, unit=",
    "open": "project=, *, deployment=, env=",
    "partition_schedule": "dataset, cron, *, project=, timezone=, name=",
    "partitions_of": "context",
    "run_due": "project",
    "shifted": "windows, unit=",
    "sql_datasets": "folder",
    "trailing": "windows, unit=",
    "testing.check": "source=, *, spark=",
    "testing.context_for": "asset, *, partition, spark=",
    "testing.run_sql": "source, dataset, *, partition, inputs=, spark=",
    "testing.spark_session": "",
    "Project.find": "start=, *, deployment=",
    "TimeDimension.of": "name, tiling, start, end=, *, timezone=",
    "PartitionKey.of": "**values",
    "ColumnType.decimal": "precision, scale=",
    "ColumnType.array": "element",
    "ColumnType.map": "key, value",
    "ColumnType.struct": "fields",
    "open().table": "self, dataset, *, where=, as_of=, run=, columns=, with_batch_id=",
    "open().close": "self",
    "open().datasets": "property",
}
METHODS = {
    "Project.find": varve.Project.find,
    "TimeDimension.of": varve.TimeDimension.of,
    "PartitionKey.of": varve.PartitionKey.of,
    "ColumnType.decimal": varve.ColumnType.decimal,
    "ColumnType.array": varve.ColumnType.array,
    "ColumnType.map": varve.ColumnType.map,
    "ColumnType.struct": varve.ColumnType.struct,
    "open().table": OpenProject.table,
    "open().close": OpenProject.close,
    "open().datasets": OpenProject.datasets,
}


def shape(value: Any) -> str:
    """The parameters of something that can be called, the members of an enum, or what else it is."""
    if isinstance(value, property):
        return "property"
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return f"enum {', '.join(member.name for member in value)}"
    if isinstance(value, type) and issubclass(value, Exception):
        return "error"
    parts = []
    by_name_only = False
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name_only:
            parts.append("*")
        by_name_only |= parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        parts.append(f"{stars}{parameter.name}{'' if parameter.default is parameter.empty else '='}")
    return ", ".join(parts)


def test_the_names_and_parameters_are_these() -> None:
    public = {name: getattr(varve, name) for name in varve.__all__ if name not in {"__version__", "testing"}}
    public |= {f"testing.{name}": getattr(varve.testing, name) for name in varve.testing.__all__}
    assert {name: shape(value) for name, value in {**public, **METHODS}.items()} == API


def test_each_has_a_docstring_of_its_own() -> None:
    for name in varve.__all__:
        value = getattr(varve, name)
        if name != "__version__":
            assert value.__doc__, name
            # What a dataclass without one gets.
            assert not value.__doc__.startswith(f"{name}("), name


def test_to_type_checkers_the_names_are_what_they_are_at_run_time() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    imported = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            name = alias.asname or alias.name
            place = str(node.module) if alias.name == name else f"{node.module}:{alias.name}"
            imported[name] = place
    assert imported.pop("testing") == "varve"
    assert imported == varve._PLACES
    assert sorted([*imported, "__version__", "testing"]) == sorted(varve.__all__) == dir(varve)
    assert (PACKAGE / "py.typed").is_file()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "py.typed" in settings["tool"]["setuptools"]["package-data"]["varve"]


HEAVY = ("dagster", "pyspark", "pandas", "sqlglot", "psycopg", "pyarrow", "pydantic", "pendulum")


@pytest.mark.parametrize(
    ("use", "absent"),
    [
        ("varve.__version__", HEAVY),
        ("dir(varve)", HEAVY),
        ("varve.VarveError", HEAVY),
        ("varve.Project.find", HEAVY),
        ("varve.Dataset, varve.TimeDimension, varve.Reads", ("dagster", "pyspark", "pandas", "sqlglot", "psycopg")),
    ],
)
def test_importing_it_imports_nothing_that_is_not_used(use: str, absent: tuple[str, ...]) -> None:
    script = f"import sys, varve; {use}; print(*sorted({set(absent)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'varve' has no attribute 'dataset_asset'"):
        assert varve.dataset_asset


def test_the_version_is_that_of_the_package_and_the_changelog_begins_with_it() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["version"] == varve.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", varve.__version__)
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == varve.__version__


def test_the_documentation_names_all_of_it() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    named = set(re.findall(r"`(?:varve\.)?([A-Za-z_.]+)[(`]", text))
    for name in (*varve.__all__, *(f"testing.{each}" for each in varve.testing.__all__)):
        assert name in named, name
