"""The functions that the Python files of a folder declare with `varve.function`, found without importing a file.

Not here: which of them a query calls (names/own_functions.py), and what is wrong with a call (checks/functions.py).
"""

from __future__ import annotations

import ast
import hashlib
import re
from typing import TYPE_CHECKING

from varve.model.errors import VarveError
from varve.model.function import NEEDS_BOTH, SqlFunction
from varve.model.schema import ColumnType
from varve.sql.code.own_files import files_of
from varve.sql.code.python_text import function_code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# In a file that cannot be parsed, the names that it would declare.
_DECLARED = re.compile(r"^@(?:\w+\.)?function\b[^\n]*\n\s*(?:async\s+)?def\s+(\w+)", re.MULTILINE)


def declared_functions(folder: Path) -> tuple[SqlFunction, ...]:
    """Return the functions that the modules of a folder declare, by file and line; also those that cannot be used."""
    root = folder.parent
    modules = files_of(folder, "*.py", "*/__init__.py")
    return tuple(function for file in modules for function in _of_file(file, root))


def _of_file(file: Path, root: Path) -> Iterator[SqlFunction]:
    try:
        content = file.read_bytes()
    except OSError:
        # Who imports it says so.
        return
    if b"varve" not in content or b"function" not in content:
        return
    shown = str(file.relative_to(root))
    module = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else 1
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        for match in _DECLARED.finditer(content.decode(errors="replace")):
            yield SqlFunction(match[1], module, f"{shown}:{line}", fault=f"the file is no Python: {reason}")
        return
    decorators = _decorators(tree)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in statement.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if ast.unparse(called) in decorators:
                    yield _declared(statement, decorator, file, root, module)


def _decorators(tree: ast.Module) -> set[str]:
    """The texts that mean `varve.function` in a module."""
    texts = set()
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            texts |= {f"{alias.asname or alias.name}.function" for alias in statement.names if alias.name == "varve"}
        elif isinstance(statement, ast.ImportFrom) and statement.module == "varve" and not statement.level:
            texts |= {alias.asname or alias.name for alias in statement.names if alias.name == "function"}
    return texts


def _declared(
    statement: ast.FunctionDef | ast.AsyncFunctionDef, decorator: ast.expr, file: Path, root: Path, module: str
) -> SqlFunction:
    name, place = statement.name, f"{file.relative_to(root)}:{statement.lineno}"
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    returns = next((keyword.value for keyword in keywords if keyword.arg == "returns"), None)
    fault = ""
    if isinstance(statement, ast.AsyncFunctionDef):
        fault = "it is async, and Spark calls plain functions; write def"
    elif not isinstance(returns, ast.Constant) or not isinstance(returns.value, str):
        fault = 'its type is not written as a literal; write @varve.function(returns="DOUBLE")'
    elif any(default is None for default in statement.args.kw_defaults):
        fault = "it has arguments that must be named, and a query gives them by their place; take the * out"
    kind = ""
    if not fault and isinstance(returns, ast.Constant):
        try:
            kind = str(ColumnType(str(returns.value)))
        except VarveError as error:
            fault = str(error).rstrip(".")
    places = [*statement.args.posonlyargs, *statement.args.args]
    most = None if statement.args.vararg is not None else len(places)
    code, in_jar = "", {keyword.arg: keyword.value for keyword in keywords if keyword.arg in {"jar", "java_class"}}
    literals = {arg: value.value for arg, value in in_jar.items() if isinstance(value, ast.Constant)}
    jar, java_class = (str(literals.get(arg) or "") for arg in ("jar", "java_class"))
    if not fault and in_jar:
        code, fault = _code_in_jar(root, jar, java_class, are_literals=len(literals) == len(in_jar))
    elif not fault:
        try:
            code = function_code(file, name, root)
        except (SyntaxError, ValueError) as error:
            fault = f"what it needs of the project is no Python: {error}"
    least = len(places) - len(statement.args.defaults)
    return SqlFunction(name, module, place, kind, least, most, code, fault, jar, java_class)


def _code_in_jar(root: Path, jar: str, java_class: str, *, are_literals: bool) -> tuple[str, str]:
    """Return what stands for the code of a function of Java, and why it cannot be used ("" where it can)."""
    if not are_literals:
        return "", 'its jar and its class are not written as literals; write jar="lib/prices.jar"'
    if not jar or not java_class:
        return "", f"{NEEDS_BOTH}, and one of them is missing"
    try:
        content = (root / jar).read_bytes()
    except OSError as error:
        return "", f"its jar {jar} cannot be read ({error.strerror}); it is looked for in {root}"
    return f"{java_class} of {hashlib.sha256(content).hexdigest()}", ""
