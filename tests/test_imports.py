"""The import table of the architecture, read from the source: which room may know which."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.table import each

PACKAGE = Path(__file__).parent.parent / "src" / "odin"

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "providers": {"core"},
    "policy": {"core"},
    "context": {"core"},
    "session": {"core"},
    "links": {"core"},
    "bus": {"core"},
    "tools": {"core", "policy", "context", "bus"},
    "engine": {"core", "policy", "context", "session", "bus"},
    "ui": {"core"},
    "config": {"core", "providers.settings", "policy.modes", "context.settings"},
    "app": {"core", "providers", "policy", "context", "session", "links", "bus", "tools", "engine", "config", ""},
    "cli": {"core", "config", "app", "ui", "session", "policy.modes", ""},
    "api": {"core", "config", "app", "ui", "session", "policy.modes"},
    "testing": {"core"},
    "entry": {"cli", ""},
    "__init__": {"api", "app", "config", "core", "ui"},
    "__main__": {"entry"},
}
"""Each room with what it may import beside itself. `providers.settings` allows that module only; "" is the package."""

CHOOSES_LATE = {"app", "cli", "api", "entry", "__init__"}
"""Rooms that pick others when they are needed, so that the start stays fast. Elsewhere only a room's own parts wait."""

HEAVY = {
    "httpx2",
    "h11",
    "dataclasses",
    "tempfile",
    "shutil",
    "difflib",
    "glob",
    "hashlib",
    "urllib.request",
    "http.client",
    "uuid",
    "secrets",
    "random",
    "importlib.metadata",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    """`policy.rules` for policy/policy.py, `policy` for its __init__.py, `__init__` for the package's own."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, here: str) -> Iterator[tuple[str, int]]:
    """The modules of Odin that a file imports, without the leading `odin.`, and the lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "odin":
                    yield alias.name.removeprefix("odin").removeprefix("."), node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                pytest.fail(f"{here}, line {node.lineno}: imports are written in full, not relative")
            if node.module == "odin":
                yield from ((_inside_package(alias.name), node.lineno) for alias in node.names)
            elif (node.module or "").startswith("odin."):
                base = (node.module or "").removeprefix("odin.")
                names = [alias.name for alias in node.names]
                yield from ((f"{base}.{name}" if _is_module(base, name) else base, node.lineno) for name in names)


def _inside_package(name: str) -> str:
    """`from odin import api` is the module api; `from odin import __version__` is the package itself."""
    return name if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() else ""


def _is_module(base: str, name: str) -> bool:
    folder = PACKAGE.joinpath(*base.split("."))
    return (folder / name).is_dir() or (folder / f"{name}.py").is_file()


def allowed(room: str, target: str) -> bool:
    if target.split(".")[0] == room:
        return True
    return any(target == known or (known and target.startswith(f"{known}.")) for known in MAY_IMPORT[room])


def breaches(source: str, here: str) -> list[str]:
    room = here.split(".")[0]
    if room not in MAY_IMPORT:
        return [f"{here}: there is no room {room!r} in the table"]
    found = imported(ast.parse(source), here)
    return [f"{here}, line {line}: may not import odin.{target}" for target, line in found if not allowed(room, target)]


def test_every_module_keeps_to_the_table():
    files = modules()
    assert len(files) > 20
    found = [breach for path in files for breach in breaches(path.read_text(encoding="utf-8"), dotted(path))]
    assert found == []


@each(
    ("here", "source"),
    [
        ("core.event", "from odin.policy.modes import spec_of"),
        ("core.event", "import odin.policy.modes"),
        ("policy.rules", "from odin.context import files"),
        ("policy.rules", "from odin.config import Config"),
        ("engine.loop", "from odin.tools.read import Read"),
        ("engine.loop", "from odin import config"),
        ("ui.print", "from odin.session.log import SessionLog"),
        ("config.keys", "from odin.models.catalog import lookup"),
        ("config.keys", "from odin.policy import rules"),
        ("app", "def late():\n    from odin.ui.print import run"),
        ("testing.server", "from odin.config import load"),
        ("attic.thing", "import os"),
    ],
)
def test_a_breach_is_found(here: str, source: str):
    assert len(breaches(source, here)) == 1


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("policy.rules", "from odin.policy.modes import spec_of\nfrom odin.core.tool import Kind"),
        ("config.keys", "from odin.providers.settings import ProviderSettings\nfrom odin.policy.modes import mode_of"),
        ("cli", "from odin import __version__\nfrom odin.ui import print"),
        ("tools.read", "from odin.context.file_cache import FileCache"),
        ("app", "import odin.engine.turn"),
    ],
)
def test_what_is_allowed_is_no_breach(here: str, source: str):
    assert breaches(source, here) == []


def late_imports(source: str) -> list[tuple[str, int]]:
    """Imports that stand inside a function."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.extend(imported(node, ""))
    return found


def test_other_rooms_are_imported_at_the_top():
    found = [
        f"{dotted(path)}, line {line}: odin.{target} is imported inside a function"
        for path in modules()
        for target, line in late_imports(path.read_text(encoding="utf-8"))
        if dotted(path).split(".")[0] not in {*CHOOSES_LATE, target.split(".")[0]}
    ]
    assert found == []


def test_importing_the_package_loads_nothing_else_of_it():
    code = "import sys, odin; print(sorted(name for name in sys.modules if name.startswith('odin')))"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert run.stdout.strip() == "['odin']"


def test_slow_modules_are_not_imported_at_the_top_of_any_file():
    found: list[str] = []
    for path in modules():
        if dotted(path).split(".")[0] == "testing":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
            else:
                continue
            slow = HEAVY - {"dataclasses"} if dotted(path).startswith("ui.tui") else HEAVY
            found.extend(f"{dotted(path)}: {name}" for name in sorted(names & slow))
    assert found == [], "the terminal app may use dataclasses: Textual has loaded them already"
