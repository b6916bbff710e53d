"""Lists and parses the modules of the package `odin`."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "odin"


def list_modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    gc.disable()  # it would look for garbage among the new nodes again and again: that doubles the time
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


def walk_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield `tree` and the statements in it, without their expressions: a tenth of what `ast.walk` yields."""
    open_nodes = [tree]
    while open_nodes:
        node = open_nodes.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            block: list[ast.AST] | ast.AST = getattr(node, field, [])
            open_nodes += block if isinstance(block, list) else []
