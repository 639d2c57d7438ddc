"""Code that a file names and that is no SQL: the function of PYTHON, the program of SPARK. Read, never imported or run.

Not here: how they are run (varve/dagster/assets/sql_rows.py, varve/dagster/runs/programs.py), and EXTERNAL
(syntax/external.py).
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from varve.model.errors import nearest
from varve.sql.syntax.options import option_problems
from varve.sql.syntax.sql_file import Body, SqlDataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.sql.partitions.dependencies import Inference
    from varve.sql.syntax.errors import Problem
    from varve.sql.types.outputs import Output

# The columns of a program's input that say for which partition a row is: `for_day`.
FOR = "for_"
_ENDINGS = (".py", ".jar")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9]*:")


def foreign_problems(sql: SqlDataset, queries: Inference | None) -> Iterator[Problem]:
    """A function or a program that is not there or is none, options that it does not have, inputs that it cannot get.

    `queries` are its inputs, where they are understood.
    """
    yield from option_problems(sql)
    if sql.body is Body.PYTHON:
        yield from _function(sql)
    elif sql.body is Body.SPARK:
        yield from _program(sql)
        if queries is not None and not queries.findings:
            for using, found in zip(sql.using, queries.queries, strict=True):
                yield from (sql.problem(using.span, told) for told in _unwritable(sql, found.outputs))


def program(entry: str, root: str | Path) -> Path | None:
    """The file of a program: in the project's folder, or in the working directory; None where it is not there.

    An URI is for spark-submit to find, and is no file either.
    """
    for folder in (Path(root), Path.cwd()):
        if (found := folder / entry).is_file():
            return found
    return None


def is_elsewhere(entry: str) -> bool:
    """Whether a program is named by an URI (`s3a://jobs/score.jar`), which nobody looks up before it runs."""
    return bool(_ELSEWHERE.match(entry))


def foreign_text(entry: str, root: str) -> str:
    """What is there under the name of a function's module or of a program; empty where there is nothing."""
    if not entry:
        return ""
    if entry.endswith(_ENDINGS):
        found = program(entry, root)
        return hashlib.blake2b(found.read_bytes(), digest_size=16).hexdigest() if found else ""
    origin = _module(entry.partition(":")[0], Path(root))
    return origin.read_text(encoding="utf-8") if origin else ""


def _module(name: str, root: Path) -> Path | None:
    """The file of a module: in the folder of the project, or else where Python finds it."""
    place = root.joinpath(*name.split("."))
    for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if file.is_file():
            return file
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _function(sql: SqlDataset) -> Iterator[Problem]:
    module, _, function = sql.entry.partition(":")
    origin = _module(module, Path(sql.source.root))
    if origin is None:
        yield sql.problem(sql.span_of("entry"), f"there is no module {module}; put it where Python finds it.")
        return
    tree = ast.parse(origin.read_text(encoding="utf-8"))
    names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    if function not in names:
        yield sql.problem(
            sql.span_of("entry"), f"module {module} has no function {function}.{nearest(function, names)}"
        )


def _program(sql: SqlDataset) -> Iterator[Problem]:
    entry, span = sql.entry, sql.span_of("entry")
    if not entry.endswith(_ENDINGS):
        yield sql.problem(span, f"'{entry}' is no program; write SPARK 'jobs/score.py', or a .jar.")
        return
    if is_elsewhere(entry):
        return
    root = Path(sql.source.root)
    found = program(entry, root)
    if found is None:
        beside = (root / entry).parent
        names = [str(Path(entry).with_name(each.name)) for each in beside.glob("*") if each.suffix in _ENDINGS]
        places = " and ".join(dict.fromkeys(map(str, (root.resolve(), Path.cwd()))))
        yield sql.problem(span, f"there is no program {entry}; it is looked for in {places}.{nearest(entry, names)}")
    elif found.suffix == ".py":
        yield from (sql.problem(span, told) for told in _unreadable(found))
        if sql.option("class"):
            yield sql.problem(sql.span_of("OPTIONS class"), "class belongs to a .jar; a .py file runs from its top.")
    else:
        yield from (sql.problem(span, told) for told in _unstartable(found, sql.option("class")))


def _unreadable(found: Path) -> Iterator[str]:
    try:
        ast.parse(found.read_bytes(), str(found))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        yield f"{found.name} is no Python{line}: {error.msg if isinstance(error, SyntaxError) else error}."


def _unstartable(found: Path, main: str | None) -> Iterator[str]:
    try:
        with zipfile.ZipFile(found) as jar:
            names = set(jar.namelist())
            manifest = jar.read("META-INF/MANIFEST.MF").decode() if "META-INF/MANIFEST.MF" in names else ""
    except (zipfile.BadZipFile, OSError) as error:
        yield f"{found.name} is no .jar: {error}."
        return
    if main is None and not re.search(r"^Main-Class:", manifest, re.MULTILINE):
        yield f"{found.name} does not say where it begins; write OPTIONS (class = 'com.example.Main')."
    elif main is not None and f"{main.replace('.', '/')}.class" not in names:
        classes = [name.removesuffix(".class").replace("/", ".") for name in names if name.endswith(".class")]
        yield f"{found.name} has no class {main}.{nearest(main, classes)}"


def _unwritable(sql: SqlDataset, outputs: tuple[Output, ...]) -> Iterator[str]:
    """Columns that a parquet folder cannot have beside each other."""
    ours = {f"{FOR}{column.name}".lower() for column in sql.partition_columns}
    names = [each.name.lower() for each in outputs]
    for name in dict.fromkeys(names):
        if name in ours:
            yield f"the program finds in {name} for which partition a row is; name this column otherwise."
        elif names.count(name) > 1:
            yield f"two columns of this input are called {name}; give each a name of its own."
