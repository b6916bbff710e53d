"""Surveys a repository for InitTool and for verification: its files, its manifests, and the commands it defines.

The walk is limited in number of files, depth and time. Each command is reported with the file it comes from.
"""

import os
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from odin.context.system_prompt import ODIN_MD
from odin.core.path_names import quote_path
from odin.tools.files import Refusal
from odin.tools.ripgrep import walk_files

MAX_FILES = 20_000
MAX_DEPTH = 12
MAX_SECONDS = 5.0
MAX_BYTES = 1_000_000

_SKIPPED = """
    node_modules __pycache__ .venv venv .tox .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis .odin .idea .gradle
    .next .cache target vendor bower_components site-packages
"""
"""Folders of generated or third-party files."""

Json = dict[str, Any]
CommandUse = Literal["Install", "Build", "Run", "Test", "Check", "Other"]

_USE_PATTERNS: tuple[tuple[CommandUse, str], ...] = (
    ("Test", r"tests?|spec|e2e|coverage|check-?tests?|unit"),
    ("Check", r"lint|checks?|format|fmt|types?|typecheck|mypy|ruff|tsc|audit|verify|vet"),
    ("Build", r"build|compile|dist|bundle|package|release|all|docs?"),
    ("Run", r"run|start|serve|server|dev|develop|watch|preview|up"),
    ("Install", r"install|setup|bootstrap|deps|init|venv"),
)

_COMMANDS: tuple[tuple[str, str, CommandUse, str], ...] = (
    ("uv.lock", "", "Install", "uv sync"),
    ("poetry.lock", "", "Install", "poetry install"),
    ("Pipfile", "", "Install", "pipenv install"),
    ("requirements.txt", "", "Install", "pip install -r requirements.txt"),
    ("pyproject.toml", "[build-system]", "Install", "pip install -e ."),
    ("setup.py", "", "Install", "pip install -e ."),
    ("manage.py", "", "Run", "python manage.py runserver"),
    ("pyproject.toml", "pytest", "Test", "python -m pytest"),
    ("pytest.ini", "", "Test", "python -m pytest"),
    ("setup.cfg", "[tool:pytest]", "Test", "python -m pytest"),
    ("tox.ini", "[pytest]", "Test", "python -m pytest"),
    ("*conftest.py", "", "Test", "python -m pytest"),
    ("tests/test_*.py", "unittest.TestCase", "Test", "python -m unittest discover -s tests"),
    ("pyproject.toml", "[tool.ruff", "Check", "ruff check"),
    ("*ruff.toml", "", "Check", "ruff check"),
    ("tox.ini", "", "Test", "tox"),
    ("Cargo.toml", "", "Build", "cargo build"),
    ("Cargo.toml", "", "Test", "cargo test"),
    ("src/main.rs", "", "Run", "cargo run"),
    ("go.mod", "", "Build", "go build ./..."),
    ("*_test.go", "", "Test", "go test ./..."),
    ("main.go", "", "Run", "go run ."),
    ("mvnw", "", "Build", "./mvnw package"),
    ("mvnw", "", "Test", "./mvnw test"),
    ("pom.xml", "", "Build", "mvn package"),
    ("pom.xml", "", "Test", "mvn test"),
    ("gradlew", "", "Build", "./gradlew build"),
    ("gradlew", "", "Test", "./gradlew test"),
    ("build.gradle*", "", "Build", "gradle build"),
    ("build.gradle*", "", "Test", "gradle test"),
    ("Gemfile", "", "Install", "bundle install"),
    ("Gemfile", "rspec", "Test", "bundle exec rspec"),
    ("composer.json", "", "Install", "composer install"),
    ("CMakeLists.txt", "project", "Build", "cmake -S . -B build && cmake --build build"),
    ("CMakeLists.txt", "enable_testing", "Test", "ctest --test-dir build"),
    ("Dockerfile", "", "Build", "docker build ."),
    ("*compose.y*ml", "", "Run", "docker compose up"),
)
"""A file, a text it must contain, and the command it stands for."""

_TASK_FILES = (
    (("GNUmakefile", "Makefile", "makefile"), r"(?m)^([A-Za-z0-9][\w-]*)\s*:(?![:=])", "make"),
    (
        ("justfile", "Justfile", ".justfile"),
        r"(?m)^@?(?!set\b|alias\b|export\b)([a-zA-Z][\w-]*)(?: [^:\n]*)?:(?!=)",
        "just",
    ),
    (("noxfile.py",), r"(?m)^@nox\.session.*\n(?:@.*\n)*def (\w+)", "nox -s"),
)

_LOCK_FILES = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}


class ProjectTree(Struct, frozen=True):
    """Sorted paths relative to the root. `complete` is false if there are more."""

    root: str
    files: tuple[str, ...]
    complete: bool

    def has(self, path: str) -> bool:
        return Path(self.root, path).is_file()

    def read(self, path: str) -> str:
        """Return the text of a file; "" if it is missing, too large or unreadable."""
        full = Path(self.root, path)
        try:
            if not full.is_file() or full.stat().st_size > MAX_BYTES:
                return ""
            return full.read_text("utf-8-sig", "replace")
        except OSError:
            return ""


def scan_project(root: str, limit: int = MAX_FILES) -> ProjectTree:
    """List all files except ODIN.md, so that writing it does not change the next survey."""
    names: list[str] = []
    complete = True
    start = len(root.rstrip("/")) + 1
    paths = walk_files(root, hidden=True, skip=frozenset(_SKIPPED.split()), seconds=MAX_SECONDS)
    try:
        for path in islice(paths, limit + 2):
            name = path[start:]
            if name.count("/") >= MAX_DEPTH or not name.isprintable():
                complete = False
            elif name != ODIN_MD:
                names.append(name)
    except Refusal:
        complete = False
    complete = complete and len(names) <= limit
    return ProjectTree(root, tuple(sorted(names)[:limit]), complete)


def parse_toml(text: str) -> Json:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def parse_json(text: str) -> Json:
    try:
        return get_table(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return {}


def get_table(value: Any, *path: str) -> Json:
    """Return the table at this path of keys, or an empty one."""
    for key in path:
        value = cast("Json", value).get(key) if isinstance(value, dict) else None
    return cast("Json", value) if isinstance(value, dict) else {}


class ProjectCommand(Struct, frozen=True):
    use: CommandUse
    text: str
    source: str


def find_commands(tree: ProjectTree) -> list[ProjectCommand]:
    """Return the commands of the repository, without duplicates. Targets and scripts of the project come first."""
    commands: dict[str, ProjectCommand] = {}
    for command in (*_find_tasks(tree), *_find_package_scripts(tree), *_find_by_file(tree), *_find_scripts(tree)):
        commands.setdefault(command.text, command)
    return list(commands.values())


def _get_use(name: str) -> CommandUse:
    """Guess the use of a target or script from the words of its name."""
    words = [name.lower(), *re.split(r"[-_:./]", name.lower())]
    for use, pattern in _USE_PATTERNS:
        if any(re.fullmatch(pattern, word) for word in words):
            return use
    return "Other"


def _find_tasks(tree: ProjectTree) -> Iterator[ProjectCommand]:
    for names, pattern, runner in _TASK_FILES:
        path = next(filter(tree.has, names), "")
        for name in re.findall(pattern, tree.read(path)) if path else ():
            yield ProjectCommand(_get_use(name), f"{runner} {name}", path)


def _find_package_scripts(tree: ProjectTree) -> Iterator[ProjectCommand]:
    data = parse_json(tree.read("package.json"))
    if data:
        declared = str(data.get("packageManager", "")).partition("@")[0]
        lock = next(filter(tree.has, _LOCK_FILES), "")
        manager = _LOCK_FILES.get(lock) or (declared if declared in _LOCK_FILES.values() else "npm")
        yield ProjectCommand("Install", f"{manager} install", lock or "package.json")
        for name in (name for name in get_table(data, "scripts") if not name.startswith("-")):
            short = manager == "yarn" or (manager in ("npm", "pnpm") and name in ("test", "start"))
            run = manager if short else f"{manager} run"
            yield ProjectCommand(_get_use(name), f"{run} {shlex.quote(name)}", "package.json")
    for name in get_table(parse_json(tree.read("composer.json")), "scripts"):
        if not name.startswith(("pre-", "post-", "-")):
            yield ProjectCommand(_get_use(name), f"composer run-script {shlex.quote(name)}", "composer.json")
    for name in get_table(parse_toml(tree.read("pyproject.toml")), "project", "scripts"):
        yield ProjectCommand("Run", shlex.quote(name), "pyproject.toml")


def _find_by_file(tree: ProjectTree) -> Iterator[ProjectCommand]:
    found: set[tuple[str, str]] = set()
    for pattern, text, use, command in _COMMANDS:
        # The wrapper of Maven or Gradle stands for it, and a lock file decides how to install.
        program = command.split()[0].removeprefix("./").replace("mvnw", "mvn").replace("gradlew", "gradle")
        tool = "python" if use == "Install" and program in ("uv", "poetry", "pipenv", "pip") else program
        if (tool, use) in found:
            continue
        names = [path for path in tree.files if fnmatchcase(path, pattern)] if "*" in pattern else [pattern]
        source = next((name for name in names if tree.has(name) and text in tree.read(name)), "")
        if source:
            found.add((tool, use))
            yield ProjectCommand(use, command, source)


def _find_scripts(tree: ProjectTree) -> Iterator[ProjectCommand]:
    """Yield executable scripts at the root, in bin and in scripts."""
    for path in tree.files:
        folder, _, name = path.rpartition("/")
        if folder not in ("", "bin", "scripts", "script") or name in ("gradlew", "mvnw"):
            continue
        if os.access(Path(tree.root, path), os.X_OK) and tree.read(path).startswith("#!"):
            yield ProjectCommand(_get_use(name.partition(".")[0]), quote_path(f"./{path}"), path)
