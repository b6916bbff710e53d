"""Adds the imports that a small model forgets: names that its Python file uses and that the project defines once."""

import ast
import builtins
import re
import sys
from collections.abc import Mapping
from itertools import takewhile

from odin.providers.whole_files.program_source import parse_python
from odin.providers.whole_files.project_tests import is_test


def add_missing_imports(path: str, text: str, old: str, files: Mapping[str, str]) -> str:
    """Return a Python file that imports what it uses. What the old file lacked, too, is left alone."""
    if not path.endswith(".py") or re.search(r"\r|^(?:import|from)\b[^#\n]*;", text, re.MULTILINE):
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
    """Return a program with more imports: after its first ones, else after the docstring and comments at its start."""
    tree = parse_python(text)
    body = tree.body if tree else []
    is_doc = bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    imports = list(takewhile(lambda node: isinstance(node, ast.Import | ast.ImportFrom), body[is_doc:]))
    last = imports[-1] if imports else body[0] if is_doc else None
    rows = text.split("\n")
    comments = len(list(takewhile(lambda row: row.startswith("#"), rows)))
    at = (last.end_lineno or 0) if last is not None else comments
    if imports:
        return "\n".join([*rows[:at], *lines, *rows[at:]])
    rest = "\n".join(rows[at:]).lstrip("\n")
    return "\n".join([*rows[:at], *([""] if at else []), *lines, "", "", rest])


def _find_missing(text: str) -> set[str]:
    """Return the names that a program uses but nothing in it makes known; none if it cannot be parsed."""
    tree = parse_python(text)
    if tree is None:
        return set()
    nodes = list(ast.walk(tree))
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
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
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
    others = [one for one in files if one.endswith(".py") and one != path and not is_test(one)]
    definers = [one for one in others if name in _list_defined(files[one])]
    here = re.escape(path.removesuffix(".py").replace("/", "."))
    if len(definers) != 1 or re.search(rf"^\s*(?:from|import)\s+{here}\b", files[definers[0]], re.MULTILINE):
        return ""
    if definers[0].startswith("src/") and not is_test(path) and not path.startswith("src/"):
        return ""
    module = definers[0].removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return module if re.fullmatch(r"\w+(?:\.\w+)*", module) else ""


def _list_defined(text: str) -> set[str]:
    """Return what a program defines at its top: functions, classes and variables."""
    tree = parse_python(text)
    names: set[str] = set()
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names
