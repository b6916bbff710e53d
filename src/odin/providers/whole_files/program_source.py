"""Reads Python and JavaScript programs without running them: their syntax tree, and whether they seem only to compute.

Odin proposes to run code by itself, to answer a question or to try a new script, only if nothing in it is known to act.
That is a guess: whether the command may run is decided as for any other.
"""

import ast
import posixpath
import re
from collections.abc import Mapping

_PURE_MODULES = frozenset(
    (
        *("__future__", "abc", "argparse", "bisect", "calendar", "collections", "copy", "dataclasses", "datetime"),
        *("decimal", "enum", "fractions", "functools", "heapq", "itertools", "json", "math", "numbers", "operator"),
        *("re", "statistics", "string", "sys", "textwrap", "typing", "unicodedata", "unittest"),
    )
)
_ACTS = frozenset(("exec", "eval", "input", "__import__", "compile", "breakpoint", "exit", "quit"))
_DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_SCRIPT_ACTS = re.compile(
    r"\b(?:child_process|fetch|eval|Function|WebSocket|XMLHttpRequest|setInterval|import\()|\bprocess\.(?!argv\b|stdout\b)|\bfs\b"
)
_REQUIRED = re.compile(r"\brequire\(([^)]*)\)|^\s*import\b[^'\"\n]*['\"]([^'\"\n]+)['\"]", re.MULTILINE)
_MAX_CHARS = 100_000


def parse_python(text: str) -> ast.Module | None:
    """Return the syntax tree of a program; None if it has none, or is nested too deeply."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def may_be_pure(path: str, texts: Mapping[str, str], *, is_script: bool = False) -> bool:
    """True if a file and all that it imports are known, and none is known to act; a script may print and read files.

    `texts` are the known files of the project.
    """
    return _is_pure(path, texts, set(), is_script=is_script)


def _is_pure(path: str, texts: Mapping[str, str], seen: set[str], *, is_script: bool) -> bool:
    text = texts.get(path)
    if path in seen:
        return True
    if text is None or len(text) > _MAX_CHARS:
        return False
    seen.add(path)
    sources = _list_sources(path, text, texts, is_script=is_script)
    return sources is not None and all(_is_pure(one, texts, seen, is_script=is_script) for one in sources)


def _list_sources(path: str, text: str, texts: Mapping[str, str], *, is_script: bool) -> list[str] | None:
    """Return the files of the project that a file imports; None if it does more than compute."""
    if path.endswith((".js", ".cjs", ".mjs")):
        return _list_required(path, text, texts)
    tree = parse_python(text) if path.endswith(".py") else None
    if tree is None or not (is_script or all(map(_is_definition, tree.body))):
        return None
    sources: list[str] = []
    nodes = list(ast.walk(tree))
    reading = [node.func for node in nodes if is_script and isinstance(node, ast.Call) and _is_reading(node)]
    for node in nodes:
        if isinstance(node, ast.Name) and (node.id in _ACTS or (node.id == "open" and node not in reading)):
            return None
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = _resolve_import(node, texts)
            if found is None:
                return None
            sources += found
    return sources


def _is_reading(node: ast.Call) -> bool:
    """True for a call that may be `open` for reading: one argument, and at most the encoding."""
    return len(node.args) == 1 and all(one.arg == "encoding" for one in node.keywords)


def _is_definition(node: ast.stmt) -> bool:
    """True for a statement that a module may have at its top without doing anything when it is imported."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return "__name__" in ast.dump(node.test) or "TYPE_CHECKING" in ast.dump(node.test)
    return isinstance(node, _DEFINES)


def _resolve_import(node: ast.Import | ast.ImportFrom, texts: Mapping[str, str]) -> list[str] | None:
    """Return the files of the project that are imported; None if something unknown is."""
    if isinstance(node, ast.ImportFrom) and node.level:
        return None
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    found: list[str] = []
    for name in names:
        if name.partition(".")[0] in _PURE_MODULES:
            continue
        base = name.replace(".", "/")
        paths = [one for one in (f"{base}.py", f"{base}/__init__.py") if one in texts]
        if not paths:
            return None
        found += paths
    return found


def _list_required(path: str, text: str, texts: Mapping[str, str]) -> list[str] | None:
    if _SCRIPT_ACTS.search(text):
        return None
    found: list[str] = []
    for called, imported in _REQUIRED.findall(text):
        name = (called or imported).strip().strip("'\"`")
        if not name.startswith("."):
            return None
        base = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        paths = [one for one in (base, f"{base}.js") if one in texts]
        if not paths:
            return None
        found += paths
    return found
