"""The Python that a function needs, as a text that does not change with comments, docstrings or layout.

It holds the function, whatever it names of its own module, and what those import from the project, as far as the text
tells. Installed packages count by their names only.

Not here: which function a dataset names (code/foreign.py, varve/dagster/assets/datasets.py).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class _Import:
    """What a name of a module stands for: a module of the project, or something in it."""

    file: Path
    name: str = ""


@dataclass(frozen=True)
class _Module:
    """The top level of a module: its statements, what defines each name, and what it imports from the project."""

    statements: tuple[ast.stmt, ...]
    definitions: dict[str, list[ast.stmt]]
    imports: dict[str, list[_Import]]
    stars: tuple[Path, ...]


@dataclass
class _Collected:
    """The pieces of code that were found, by file and name; a name "" is the whole module."""

    root: Path
    modules: dict[Path, _Module] = field(default_factory=dict)
    pieces: dict[tuple[str, str], str] = field(default_factory=dict)

    def module(self, file: Path) -> _Module:
        """The parsed module, read once."""
        if file not in self.modules:
            self.modules[file] = _parsed(file, self.root)
        return self.modules[file]

    def add(self, file: Path, name: str) -> None:
        """Add what defines a name of a module; without a name, or for one that is defined nowhere, all of it."""
        module = self.module(file)
        for imported in module.imports.get(name, ()):
            self.add(imported.file, imported.name)
        if name and name not in module.definitions:
            if name in module.imports:
                return
            if not module.stars:
                name = ""
        key = (str(file), name)
        if key in self.pieces:
            return
        statements = module.definitions.get(name, ()) if name else module.statements
        self.pieces[key] = _texts(statements)
        if name and not statements:
            for star in module.stars:
                self.add(star, name if name in self.module(star).definitions else "")
            return
        self.follow(statements, file, whole=not name)

    def follow(self, statements: Iterable[ast.AST], file: Path, *, whole: bool = False) -> None:
        """Add everything that these statements of a module name."""
        module = self.module(file)
        if whole:
            for imported in (imported for listed in module.imports.values() for imported in listed):
                self.add(imported.file, imported.name)
            for star in module.stars:
                self.add(star, "")
            return
        for name in sorted(_names(statements)):
            if name in module.definitions or name in module.imports:
                self.add(file, name)
            elif any(name in self.module(star).definitions for star in module.stars):
                for star in module.stars:
                    if name in self.module(star).definitions:
                        self.add(star, name)

    def text(self) -> str:
        """All pieces; their order does not depend on how they were found, nor the text on where the files lie."""
        pieces = {(name, text) for (_, name), text in self.pieces.items()}
        return "\n".join(f"# {name}\n{text}" for name, text in sorted(pieces))

    def by_file(self) -> str:
        """All pieces for people, under the files in which they are."""
        files: dict[str, list[str]] = {}
        for (file, _), text in sorted(self.pieces.items()):
            if text:
                files.setdefault(file, []).append(text)
        return "\n".join(
            f"# of {Path(file).relative_to(self.root) if Path(file).is_relative_to(self.root) else file}:\n"
            + "\n".join(texts)
            for file, texts in files.items()
        )


def function_code(file: Path, name: str, root: Path) -> str:
    """The code of a function at the top level of a module, with all that it needs of the project below `root`."""
    collected = _Collected(root)
    collected.add(file, name)
    return collected.text()


def shown_function(file: Path, name: str, root: Path) -> str:
    """The same code for people, by the files in which it is."""
    collected = _Collected(root)
    collected.add(file, name)
    return collected.by_file()


def code_of_source(source: str, file: Path, root: Path) -> tuple[str, str]:
    """The same for a function of a module whose text is given: it may stand within another function.

    Its decorators do not count. Returns the code, and for people, by file, what it needs beside that text.
    """
    body = ast.parse(source).body
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            statement.decorator_list = []
    collected = _Collected(root)
    collected.follow(body, file)
    return f"{_texts(body)}\n{collected.text()}", collected.by_file()


def module_file(name: str, root: Path) -> Path | None:
    """The file of a module below a folder; None where there is none."""
    place = root.joinpath(*name.split("."))
    return next((file for file in (place.with_name(f"{place.name}.py"), place / "__init__.py") if file.is_file()), None)


def _parsed(file: Path, root: Path) -> _Module:
    tree = ast.parse(file.read_bytes())
    definitions: dict[str, list[ast.stmt]] = {}
    imports: dict[str, list[_Import]] = {}
    stars: list[Path] = []
    # Also those within functions: heavy libraries, and what uses them, are imported where they are needed.
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for name, imported in _imported(statement, file, root):
                if name == "*":
                    stars.append(imported.file)
                else:
                    imports.setdefault(name, []).append(imported)
    for top_statement in tree.body:
        for name in _defined(top_statement):
            definitions.setdefault(name, []).append(top_statement)
    return _Module(tuple(tree.body), definitions, imports, tuple(stars))


def _defined(statement: ast.stmt) -> set[str]:
    """The names that a statement of the top level defines or may alter, also in an IF or a loop, or by a method."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return set()
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            names.add(_root(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            # RATES.update(...): the call stands for itself, so that it is made for what it does to RATES.
            names.add(_root(node.value.func))
    return names - {""}


def _root(node: ast.expr) -> str:
    """The name with which `a.b[c].d` begins; "" where it begins with no name."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _imported(statement: ast.Import | ast.ImportFrom, file: Path, root: Path) -> Iterator[tuple[str, _Import]]:
    """The names that an import gives to modules of the project, or to what is in them."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if (path := module_file(alias.name, root)) is not None:
                yield alias.asname or alias.name.partition(".")[0], _Import(path)
        return
    if statement.level:
        package = file.parent
        for _ in range(statement.level - 1):
            package = package.parent
        if not package.is_relative_to(root):
            return
        module = ".".join([*package.relative_to(root).parts, *([statement.module] if statement.module else [])])
    else:
        module = statement.module or ""
    origin = module_file(module, root) if module else None
    for alias in statement.names:
        below = module_file(f"{module}.{alias.name}" if module else alias.name, root)
        if below is not None:
            yield alias.asname or alias.name, _Import(below)
        elif origin is not None and origin != file:
            yield alias.asname or alias.name, _Import(origin, "" if alias.name == "*" else alias.name)


def _names(statements: Iterable[ast.AST]) -> set[str]:
    return {node.id for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _texts(statements: Iterable[ast.stmt]) -> str:
    return "\n".join(ast.unparse(_without_docstrings(statement)) for statement in statements)


def _without_docstrings(statement: ast.stmt) -> ast.stmt:
    for node in ast.walk(statement):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
        ):
            continue
        first = body[0] if body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = body[1:] or [ast.Pass()]
    return statement
