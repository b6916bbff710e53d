"""The modules of the package and their parsed source."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "odin"


def list_modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
