"""Adds the imports that a small model forgets: names that its Python file uses and that the project defines once."""

import ast
import builtins
import re
import sys
from collections.abc import Mapping

from odin.providers.whole_files.project_tests import is_test


def add_missing_imports(path: str, text: str, old: str, files: Mapping[str, str]) -> str:
    """Return a Python file that imports what it uses. What the old file lacked, too, is left alone."""
    if not path.endswith(".py"):
        return text
    missing = _find_missing(text) - _find_missing(old)
    found = {name: module for name in missing if (module := _find_module(name, path, text, files))}
    modules = sorted(name for name, module in found.items() if name == module)
    lines = [f"import {name}" for name in modules]
    for module in sorted({module for name, module in found.items() if name != module}):
        names = sorted(name for name, one in found.items() if one == module and name != module)
        lines.append(f"from {module} import {', '.join(names)}")
    return _insert_imports(text, lines) if lines else text


def _insert_imports(text: str, lines: list[str]) -> str:
    """Return a program with more imports: after those that it has, else after the docstring, else at its start."""
    body = ast.parse(text).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    first = body[0] if body else None
    is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    last = imports[-1] if imports else first if is_doc else None
    at = (last.end_lineno or 0) if last is not None else 0
    rows = text.splitlines()
    if imports:
        return "\n".join([*rows[:at], *lines, *rows[at:]]) + "\n"
    rest = "\n".join(rows[at:]).strip("\n")
    return "\n".join([*rows[:at], *([""] if at else []), *lines, "", "", rest]) + "\n"


def _find_missing(text: str) -> set[str]:
    """Return the names that a program uses but nothing in it makes known; none if it cannot be parsed."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return set()
    known = set(dir(builtins)) | {"__file__", "__name__", "__doc__"}
    used: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                known.add(name)
            case ast.AsyncFunctionDef(name=name) | ast.ExceptHandler(name=str(name)):
                known.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                known.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                known |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case _:
                pass
    return set() if "*" in known else used - known


def _find_module(name: str, path: str, text: str, files: Mapping[str, str]) -> str:
    """Return where a name comes from: a module of Python that is used as one, or the only file that defines it."""
    if name in sys.stdlib_module_names and re.search(rf"(?<![\w.]){re.escape(name)}\.\w", text):
        return name
    defined = re.compile(
        rf"^(?:async def|def|class) {re.escape(name)}\b|^{re.escape(name)}\s*(?::[^=\n]+)?=(?!=)", re.M
    )
    others = [one for one in files if one.endswith(".py") and one != path and not is_test(one)]
    definers = [one for one in others if defined.search(files[one])]
    if len(definers) != 1:
        return ""
    module = definers[0].removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return module if re.fullmatch(r"\w+(?:\.\w+)*", module) else ""
