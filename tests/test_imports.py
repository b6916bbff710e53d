"""The import table of ARCHITECTURE.md: which package may import which, checked against the source."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.sources import PACKAGE, list_modules, parse, walk_statements
from tests.table import each
from tests.waiting import LIMIT_S

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "providers": {"core"},
    "session": {"core", "sandbox.process"},
    "context": {"core"},
    "sandbox": {"core"},
    "ui": {"core", "sandbox.terminal"},
    "testing": {"core"},
    "policy": {"core", "sandbox"},
    "hooks": {"core", "sandbox"},
    "redis": {"core"},
    "config": {"core", "providers.settings", "policy.modes", "context.settings", "redis.settings"},
    "tools": {"core", "policy", "context", "sandbox"},
    "engine": {"core", "policy", "context", "session", "sandbox"},
    "checkpoints": {"core", "config", "policy", "session", "engine", "sandbox.views"},
    "compaction": {"core", "config", "context", "session", "engine"},
    "models": {"core", "config", "providers", "session", "engine"},
    "mcp": {"core", "config", "sandbox", "tools", "engine", "version"},
    "lsp": {"core", "config", "policy", "context", "sandbox", "tools"},
    "app": {
        "core", "config", "providers", "models", "policy", "hooks", "sandbox", "context", "session", "tools",
        "engine", "compaction", "checkpoints", "mcp", "lsp", "version",
    },
    "host": {"core", "config", "app", "context", "engine", "models", "redis", "session", "tools"},
    "remote": {"core", "providers.address", "providers.http", "version"},
    "server": {"core", "config", "app", "engine", "host", "providers.tls", "remote", "session", "ui", "version"},
    "acp": {"core", "config", "app", "engine", "host", "server.local", "session", "ui", "version"},
    "gateway": {
        "core", "config", "app", "engine", "host", "providers.address", "providers.http", "remote.local",
        "remote.protocol", "sandbox.process", "sandbox.runner", "server.access", "server.guard", "server.http",
        "server.local", "server.pairing_codes", "tools.files", "ui",
    },
    "fleet": {
        "core", "config", "app", "host", "policy.modes", "remote.protocol", "sandbox.runner", "server.local",
        "session", "ui",
    },
    "replay": {"core", "config", "app", "providers", "models", "policy", "session", "compaction", "checkpoints"},
    "commands": {
        "acp", "core", "config", "providers", "models", "policy", "hooks", "sandbox", "session", "tools", "engine",
        "checkpoints", "app", "host", "fleet", "gateway", "mcp", "remote", "replay", "server", "ui", "version",
        "context.markdown_folder",
    },
    "api": {"core", "config", "app", "host", "ui", "policy.modes"},
    "code_cache": set(),
    "entry": {"code_cache", "commands", "version"},
    "__init__": {"api", "config", "core", "ui", "version"},
    "__main__": {"entry"},
    "version": set(),
}  # fmt: skip
"""What each package may import besides itself. `policy.modes` allows that module only."""

LAZY_PACKAGES = {
    "models", "mcp", "app", "host", "server", "gateway", "acp", "fleet", "replay", "commands", "api", "entry",
    "__init__",
}  # fmt: skip
"""Packages that may import others inside functions to keep start-up fast. The rest import only their own parts late."""

SLOW_MODULES = {
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


def get_name(path: Path) -> str:
    """Return `policy.modes` for policy/modes.py, `policy` for policy/__init__.py, `__init__` for the top package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def find_imports(tree: ast.AST, here: str) -> Iterator[tuple[str, int]]:
    """Yield each module of Odin that `tree` imports, without the leading `odin.`, and the line."""
    for node in walk_statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "odin":
                    yield alias.name.removeprefix("odin").removeprefix("."), node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                pytest.fail(f"{here}, line {node.lineno}: use absolute imports")
            if node.module == "odin":
                yield from ((_module_in_package(alias.name), node.lineno) for alias in node.names)
            elif (node.module or "").startswith("odin."):
                base = (node.module or "").removeprefix("odin.")
                names = [alias.name for alias in node.names]
                yield from ((f"{base}.{name}" if _is_module(base, name) else base, node.lineno) for name in names)


def _module_in_package(name: str) -> str:
    """Return `api` for `from odin import api`, and "" for `from odin import __version__`."""
    return name if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() else ""


def _is_module(base: str, name: str) -> bool:
    folder = PACKAGE.joinpath(*base.split("."))
    return (folder / name).is_dir() or (folder / f"{name}.py").is_file()


def is_allowed(package: str, target: str) -> bool:
    if target.split(".")[0] == package:
        return True
    return any(target == known or (known and target.startswith(f"{known}.")) for known in MAY_IMPORT[package])


def find_violations(tree: ast.AST, here: str) -> list[str]:
    package = here.split(".")[0]
    if package not in MAY_IMPORT:
        return [f"{here}: the table has no package {package!r}"]
    found = find_imports(tree, here)
    return [f"{here}, line {line}: may not import odin.{name}" for name, line in found if not is_allowed(package, name)]


def test_every_module_keeps_to_the_table():
    files = list_modules()
    assert len(files) > 20
    assert [problem for path in files for problem in find_violations(parse(path), get_name(path))] == []


@each(
    ("here", "source"),
    [
        ("core.event", "from odin.policy.modes import spec_of"),
        ("core.event", "import odin.policy.modes"),
        ("policy.policy", "from odin.context import file_cache"),
        ("policy.policy", "from odin.config import Config"),
        ("sandbox.runner", "from odin.policy.paths import contains"),
        ("engine.turn", "from odin.tools.read import Read"),
        ("engine.turn", "from odin import config"),
        ("ui.print", "from odin.session.log import SessionLog"),
        ("config.settings", "from odin.models.catalog import lookup_model"),
        ("config.settings", "from odin.policy import rules"),
        ("app", "def late():\n    from odin.ui.print import run"),
        ("testing.server", "from odin.config import load"),
        ("attic.thing", "import os"),
    ],
)
def test_a_violation_is_found(here: str, source: str):
    assert len(find_violations(ast.parse(source), here)) == 1


@each(
    ("here", "source"),
    [
        ("policy.policy", "from odin.policy.modes import spec_of\nfrom odin.core.tool import Kind"),
        (
            "config.settings",
            "from odin.providers.settings import ProviderSettings\nfrom odin.policy.modes import mode_of",
        ),
        ("commands", "from odin.version import __version__\nfrom odin.ui import print"),
        ("tools.read", "from odin.context.file_cache import FileCache"),
        ("app", "import odin.engine.turn"),
    ],
)
def test_allowed_import_is_no_violation(here: str, source: str):
    assert find_violations(ast.parse(source), here) == []


def find_late_imports(tree: ast.AST) -> list[tuple[str, int]]:
    """Return the imports inside functions."""
    functions = (node for node in walk_statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [item for node in functions for item in find_imports(node, "")]


def test_other_packages_are_imported_at_the_top():
    found = [
        f"{get_name(path)}, line {line}: odin.{target} is imported inside a function"
        for path in list_modules()
        for target, line in find_late_imports(parse(path))
        if get_name(path).split(".")[0] not in {*LAZY_PACKAGES, target.split(".")[0]}
    ]
    assert found == []


def find_cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's strongly connected components of two or more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                cycles.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return cycles


def find_cycles_of_modules(sources: Mapping[str, ast.Module]) -> list[list[str]]:
    """Every import counts, also those inside functions and under `TYPE_CHECKING`. `__init__` is the package `odin`."""
    graph = {here: {target or "__init__" for target, _ in find_imports(tree, here)} for here, tree in sources.items()}
    return find_cycles({here: targets - {here} for here, targets in graph.items()})


def test_modules_form_no_import_cycle():
    assert find_cycles_of_modules({get_name(path): parse(path) for path in list_modules()}) == []


def test_a_cycle_of_late_imports_and_types_is_found():
    late = ast.parse("def work():\n    from odin.ui.search import find")
    typed = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from odin.ui.print import run_text")
    assert find_cycles_of_modules({"ui.print": late, "ui.search": typed}) == [["ui.print", "ui.search"]]


def test_packages_form_no_import_cycle():
    graph = {package: {name.split(".")[0] for name in known} - {""} for package, known in MAY_IMPORT.items()}
    graph["config"] = {"core"}  # config reads settings types of four packages that know nothing of config
    assert find_cycles(graph) == []


def test_a_cycle_is_found():
    assert find_cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]


def test_importing_the_package_loads_only_the_version():
    code = "import sys, odin; print(sorted(name for name in sys.modules if name.startswith('odin')))"
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert run.stdout.strip() == "['odin', 'odin.version']"


def test_slow_modules_are_not_imported_at_the_top_of_any_file():
    found: list[str] = []
    for path in list_modules():
        if get_name(path).split(".")[0] == "testing":
            continue
        for node in parse(path).body:
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
            else:
                continue
            slow = SLOW_MODULES - {"dataclasses"} if get_name(path).startswith("ui.tui") else SLOW_MODULES
            found.extend(f"{get_name(path)}: {name}" for name in sorted(names & slow))
    assert found == [], "only the terminal app may import dataclasses: Textual loads them anyway"


READERS = ("entry.py", "commands/", "config/paths.py", "ui/", "testing/")
"""Who may read the host's environment. `ui` reads variables of the terminal."""

FORBIDDEN_READS = {
    "os": {"environ", "environb", "getenv", "getenvb", "getcwd", "getcwdb"},
    "Path": {"cwd", "home"},
    "os.path": {"expanduser", "expandvars"},
}


def find_environment_reads(tree: ast.AST) -> Iterator[str]:
    """Yield where a module reads the host's variables, folder or home."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if node.attr in FORBIDDEN_READS.get(owner, ()) or node.attr in ("expanduser", "expandvars"):
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "posix", "os.path", "posixpath"):
            names = FORBIDDEN_READS["os"] | FORBIDDEN_READS["os.path"]
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name in names)


def test_only_who_makes_the_environment_reads_the_hosts() -> None:
    """Everything else gets an `ExecutionEnvironment`, so that a session can have another one than this process."""
    found = {
        name: reads
        for path in list_modules()
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith(READERS)
        and (reads := sorted(find_environment_reads(parse(path))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ.get('HOME')",
        "from os import environ",
        "import os\nos.getenv('HOME')",
        "from pathlib import Path\nPath.cwd()",
        "import os\nos.getcwd()",
        "import os\nos.path.expanduser('~')",
        "from pathlib import Path\nPath('~').expanduser()",
        "from os.path import expanduser",
    ],
)
def test_a_read_of_the_hosts_environment_is_found(source: str) -> None:
    assert list(find_environment_reads(ast.parse(source)))
