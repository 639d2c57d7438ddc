"""The options of each body, and the values that they accept.

Not here: what they do (external.py, varve/dagster/runs/programs.py).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from varve.model.errors import nearest
from varve.model.landing.options import MAY_BE_EMPTY, OPTION_NAMES
from varve.sql.syntax.sql_file import Body, SqlDataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.sql.syntax.errors import Problem

# The options of a program: `deploy_mode` is spark-submit's `--deploy-mode`, and so on.
SUBMIT = (
    "master", "deploy_mode", "class", "jars", "packages", "exclude_packages", "repositories", "py_files", "files",
    "archives", "driver_memory", "driver_cores", "executor_memory", "executor_cores", "num_executors",
    "total_executor_cores", "queue", "properties_file",
)  # fmt: skip
CONF = "conf."
ARGS = "args"
_OF_BODY: dict[Body, tuple[str, ...]] = {
    Body.SPARK: (*SUBMIT, ARGS),
    Body.EXTERNAL: ("source", "table", "folder", "changed", "url", "driver", "project", *OPTION_NAMES),
}


def option_problems(sql: SqlDataset) -> Iterator[Problem]:
    """Yield a problem for each option that the body does not have, or whose value is not valid."""
    allowed = _OF_BODY.get(sql.body, ())
    for name, value in sql.options:
        span = sql.span_of(f"OPTIONS {name}")
        if sql.body is Body.SPARK and name.startswith(CONF):
            if not value or not name.startswith(f"{CONF}spark."):
                yield sql.problem(span, f"{name} is no setting of Spark; write conf.spark.executor.memory = '2g'.")
        elif name not in allowed:
            listed = f"it has {', '.join(allowed)}" if allowed else "it has none"
            also = " and conf.spark...." if sql.body is Body.SPARK else ""
            yield sql.problem(span, f"{sql.body.upper()} has no option {name}; {listed}{also}.{nearest(name, allowed)}")
        elif sql.body is Body.SPARK and name == ARGS:
            try:
                shlex.split(value)
            except ValueError as error:
                yield sql.problem(span, f"these are no arguments of a command: {error}.")
        elif not value and name not in MAY_BE_EMPTY:
            yield sql.problem(span, f"{name} is empty; leave it out, or say what it is.")
