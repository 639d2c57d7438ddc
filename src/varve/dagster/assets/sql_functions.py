"""The project's functions in a session of Spark: what a query calls is registered right before it runs.

Not here: how they are found (varve/sql/code/functions.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from varve.dagster.assets.python_files import named_module
from varve.dagster.runs.own_modules import pickled_by_value
from varve.model.errors import NOTHING_LOST, VarveError
from varve.sql.names.own_functions import called_functions, calls_in
from varve.stores.frames import spark_says

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from varve.model.function import SqlFunction
    from varve.sql.syntax.sql_file import SqlDataset


def register_functions(spark: SparkSession, sql: SqlDataset) -> None:
    """Give the session the functions that a file calls, in the version of this process.

    They replace those of the same names that the session has of another project or of other code. Raises VarveError
    for one that does not import.
    """
    if not sql.source.functions:
        return
    root = Path(sql.source.root)
    for function in called_functions(sql):
        if function.jar:
            _register_java(spark, sql, function, root)
            continue
        called = _imported(sql, function, root)
        with pickled_by_value(root):
            spark.udf.register(function.name, called, function.returns)


def _imported(sql: SqlDataset, function: SqlFunction, root: Path) -> Callable[..., Any]:
    try:
        called: Callable[..., Any] = getattr(named_module(function.module, root), function.name)
    except Exception as error:
        place = _place_of_call(sql, function)
        raise VarveError(
            f"{sql.name} ({place}) calls {function.name} of {function.place}, which cannot be imported: "
            f"{type(error).__name__}: {error}. Correct that file. {NOTHING_LOST}"
        ) from error
    return called


def _register_java(spark: SparkSession, sql: SqlDataset, function: SqlFunction, root: Path) -> None:
    """Give the session a function of a jar. Raises VarveError where it has another version of it, or refuses it."""
    from pyspark.errors import PySparkException

    # A loaded class stays what it is, whichever jar comes later: the wrong rows would be published without a word.
    loaded: dict[str, str] = spark.__dict__.setdefault("_varve_java_functions", {})
    where = f"{sql.name} ({_place_of_call(sql, function)}) calls {function.name} of {function.place}"
    if loaded.setdefault(function.java_class, function.code) != function.code:
        raise VarveError(
            f"{where}: the session of this process has loaded {function.java_class} from another version of "
            f"{function.jar}. Start the process anew. {NOTHING_LOST}"
        )
    try:
        if hasattr(spark, "_jsparkSession"):
            quoted = str(root / function.jar).replace("'", "\\'")
            spark.sql(f"ADD JAR '{quoted}'")
        else:
            _add_artifact(spark, root / function.jar, function.code)
        spark.udf.registerJavaFunction(function.name, function.java_class, function.returns)
    except PySparkException as error:
        raise VarveError(
            f"{where}: Spark does not take the class {function.java_class} of {function.jar}: "
            f"{spark_says(error).splitlines()[0]} {NOTHING_LOST}"
        ) from error


def _add_artifact(spark: SparkSession, jar: Path, code: str) -> None:
    """Send a jar to the server, under a name that no other content has: a session takes each name once."""
    with TemporaryDirectory(prefix="varve-jar-") as folder:
        named = Path(folder) / f"{jar.stem}-{code.rpartition(' ')[2][:16]}.jar"
        shutil.copyfile(jar, named)
        spark.addArtifacts(str(named))


def _place_of_call(sql: SqlDataset, function: SqlFunction) -> str:
    trees = (*sql.queries, *(expectation.expression for expectation in sql.expectations))
    calls = [call for tree in trees for call in calls_in(tree) if call.name.lower() == function.name.lower()]
    line, column = sql.source.position(min(call.meta["start"] for call in calls if "start" in call.meta))
    return f"{sql.source.path}:{line}:{column}"
