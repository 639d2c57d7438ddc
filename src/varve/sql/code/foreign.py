"""Checks the code of PYTHON and SPARK (a function, a program) that a file names, without importing or running it.

Not here: how they run (varve/dagster/assets/sql_rows.py, varve/dagster/runs/programs.py), and EXTERNAL
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
from varve.sql.code.own_files import files_of
from varve.sql.code.python_text import function_code, module_file, shown_function
from varve.sql.syntax.options import option_problems
from varve.sql.syntax.sql_file import Body, SqlDataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varve.sql.partitions.dependencies import Inference
    from varve.sql.syntax.errors import Problem
    from varve.sql.types.outputs import Output

# The prefix of the columns of a program's input that hold the partition of a row: `for_day`.
FOR = "for_"
_ENDINGS = (".py", ".jar")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9]*:")


def foreign_problems(sql: SqlDataset, queries: Inference | None) -> Iterator[Problem]:
    """Yield the problems of the function or program, of its options and of its inputs.

    `queries` are its inputs; None where they could not be inferred.
    """
    yield from option_problems(sql)
    if sql.body is Body.PYTHON:
        yield from _function(sql)
    elif sql.body is Body.SPARK:
        yield from _program(sql)
        if queries is not None and not queries.findings:
            for using, inferred in zip(sql.using, queries.queries, strict=True):
                yield from (sql.problem(using.span, message) for message in _unwritable(sql, inferred.outputs))


def program(entry: str, root: str | Path) -> Path | None:
    """Return the file of a program in the project folder or the working directory; None where there is none.

    A URI is resolved by spark-submit, and is no file either.
    """
    for folder in (Path(root), Path.cwd()):
        if (path := folder / entry).is_file():
            return path
    return None


def is_elsewhere(entry: str) -> bool:
    """Whether a program is named by a URI (`s3a://jobs/score.jar`), which is not looked up before it runs."""
    return bool(_ELSEWHERE.match(entry))


def foreign_text(entry: str, root: str) -> str:
    """Return the code of a function with what it needs of the project, or a hash of a program; empty without either."""
    path, function = _place(entry, Path(root))
    if path is None:
        return ""
    return _program_text(path, Path(root)) if entry.endswith(_ENDINGS) else _code(path, function, Path(root))


def shown_code(entry: str, root: str) -> str:
    """Return the same code for people, by the files in which it is: what a plan shows as a diff."""
    path, function = _place(entry, Path(root))
    if path is None:
        return ""
    if path.suffix != ".py":
        return f"# {entry}: {_program_text(path, Path(root))}"
    try:
        return shown_function(path, function, Path(root))
    except (SyntaxError, ValueError):
        return path.read_bytes().decode(errors="replace")


def _place(entry: str, root: Path) -> tuple[Path | None, str]:
    """The file of a program or of a function's module, with the name of the function; None where there is none."""
    if not entry or entry.endswith(_ENDINGS):
        return (program(entry, root) if entry else None), ""
    module, _, function = entry.partition(":")
    return _module(module, root), function


def _program_text(path: Path, root: Path) -> str:
    """A jar by its bytes; a program in Python by its code and what it imports from the project."""
    if path.suffix == ".py":
        return _code(path, "", root)
    return hashlib.blake2b(_content(path), digest_size=16).hexdigest()


def _code(file: Path, function: str, root: Path) -> str:
    try:
        return function_code(file, function, root)
    except (SyntaxError, ValueError, OSError):
        # It is reported as a problem of the file; until it can be read, every change of it counts.
        return _content(file).decode(errors="replace")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _module(name: str, root: Path) -> Path | None:
    """The file of a module: in the folder of the project, or else where Python finds it."""
    if (file := module_file(name, root)) is not None:
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
    if faults := list(_unreadable(origin)):
        yield from (sql.problem(sql.span_of("entry"), message) for message in faults)
        return
    tree = ast.parse(origin.read_bytes())
    names = [statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef)]
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
    path = program(entry, root)
    if path is None:
        beside = (root / entry).parent
        names = [str(Path(entry).with_name(file.name)) for file in files_of(beside, "*") if file.suffix in _ENDINGS]
        places = " and ".join(dict.fromkeys(map(str, (root.resolve(), Path.cwd()))))
        yield sql.problem(span, f"there is no program {entry}; it is looked for in {places}.{nearest(entry, names)}")
    elif path.suffix == ".py":
        yield from (sql.problem(span, message) for message in _unreadable(path))
        if sql.option("class"):
            yield sql.problem(sql.span_of("OPTIONS class"), "class belongs to a .jar; a .py file runs from its top.")
    else:
        yield from (sql.problem(span, message) for message in _unstartable(path, sql.option("class")))


def _unreadable(path: Path) -> Iterator[str]:
    try:
        ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        yield f"{path.name} cannot be read: {error.strerror}."
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        yield f"{path.name} is no Python{line}: {error.msg if isinstance(error, SyntaxError) else error}."


def _unstartable(path: Path, main: str | None) -> Iterator[str]:
    try:
        with zipfile.ZipFile(path) as jar:
            names = set(jar.namelist())
            manifest = jar.read("META-INF/MANIFEST.MF").decode() if "META-INF/MANIFEST.MF" in names else ""
    except (zipfile.BadZipFile, OSError) as error:
        yield f"{path.name} is no .jar: {error}."
        return
    if main is None and not re.search(r"^Main-Class:", manifest, re.MULTILINE):
        yield f"{path.name} does not say where it begins; write OPTIONS (class = 'com.example.Main')."
    elif main is not None and f"{main.replace('.', '/')}.class" not in names:
        classes = [name.removesuffix(".class").replace("/", ".") for name in names if name.endswith(".class")]
        yield f"{path.name} has no class {main}.{nearest(main, classes)}"


def _unwritable(sql: SqlDataset, outputs: tuple[Output, ...]) -> Iterator[str]:
    """Yield a message for each pair of columns that cannot be in one parquet folder."""
    partition_columns = {f"{FOR}{column.name}".lower() for column in sql.partition_columns}
    names = [output.name.lower() for output in outputs]
    for name in dict.fromkeys(names):
        if name in partition_columns:
            yield f"the program finds in {name} for which partition a row is; name this column otherwise."
        elif names.count(name) > 1:
            yield f"two columns of this input are called {name}; give each a name of its own."
