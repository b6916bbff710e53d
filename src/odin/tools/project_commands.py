"""Finds the commands that a project defines, each with the file it comes from.

InitTool lists them, and verification chooses the project's checks from them. Few files are read and no folder is
walked, so that this can run at the end of a turn.
"""

import os
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, field

MAX_BYTES = 1_000_000
_MAX_SCRIPTS = 500

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
    ("requirements.txt", "", "Install", "pip install -r requirements.txt"),
    ("pyproject.toml", "[build-system]", "Install", "pip install -e ."),
    ("manage.py", "", "Run", "python manage.py runserver"),
    ("pyproject.toml", "pytest", "Test", "python -m pytest"),
    ("pytest.ini", "", "Test", "python -m pytest"),
    ("setup.cfg", "[tool:pytest]", "Test", "python -m pytest"),
    ("tox.ini", "[pytest]", "Test", "python -m pytest"),
    ("conftest.py", "", "Test", "python -m pytest"),
    ("tests/conftest.py", "", "Test", "python -m pytest"),
    ("tests/test_*.py", "unittest.TestCase", "Test", "python -m unittest discover -s tests"),
    ("tests/test_*.py", "\ndef test_", "Test", "python -m pytest"),
    ("pyproject.toml", "[tool.ruff", "Check", "ruff check"),
    ("*ruff.toml", "", "Check", "ruff check"),
    ("tox.ini", "", "Test", "tox"),
    ("Cargo.toml", "", "Build", "cargo build"),
    ("Cargo.toml", "", "Test", "cargo test"),
    ("src/main.rs", "", "Run", "cargo run"),
    ("go.mod", "", "Build", "go build ./..."),
    ("go.mod", "", "Test", "go test ./..."),
    ("main.go", "", "Run", "go run ."),
    ("pom.xml", "", "Build", "mvn package"),
    ("pom.xml", "", "Test", "mvn test"),
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

_WRAPPERS = {"mvn": "mvnw", "gradle": "gradlew"}

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


class ProjectCommand(Struct, frozen=True):
    use: CommandUse
    text: str
    source: str


class _Manifest(Struct):
    scripts: dict[str, Any] = field(default_factory=dict[str, Any])


class _Pyproject(Struct):
    project: _Manifest = field(default_factory=_Manifest)


_ManifestT = TypeVar("_ManifestT", _Manifest, _Pyproject)


def read_text(path: Path) -> str:
    """Return the text of a file; "" if it is missing, too large or unreadable."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return ""
        return path.read_text("utf-8-sig", "replace")
    except OSError:
        return ""


def find_commands(root: Path) -> list[ProjectCommand]:
    """Return the commands of the project, without duplicates. Its own targets and scripts come first."""
    commands: dict[str, ProjectCommand] = {}
    for command in (*_find_tasks(root), *_find_package_scripts(root), *_find_by_file(root), *_find_scripts(root)):
        commands.setdefault(command.text, command)
    return list(commands.values())


def _guess_use(name: str) -> CommandUse:
    """Guess the use of a target or script from the words of its name."""
    words = [name.lower(), *re.split(r"[-_:./]", name.lower())]
    for use, pattern in _USE_PATTERNS:
        if any(re.fullmatch(pattern, word) for word in words):
            return use
    return "Other"


def _find_tasks(root: Path) -> Iterator[ProjectCommand]:
    for names, pattern, runner in _TASK_FILES:
        path = next((name for name in names if (root / name).is_file()), "")
        for name in re.findall(pattern, read_text(root / path)):
            yield ProjectCommand(_guess_use(name), f"{runner} {name}", path)


def _find_package_scripts(root: Path) -> Iterator[ProjectCommand]:
    if (root / "package.json").is_file():
        lock = next((name for name in _LOCK_FILES if (root / name).is_file()), "")
        manager = _LOCK_FILES.get(lock, "npm")
        yield ProjectCommand("Install", f"{manager} install", lock or "package.json")
        for name, script in _read_manifest(root / "package.json", _Manifest).scripts.items():
            # `npm init` writes a test that always fails.
            if not name.startswith("-") and "no test specified" not in str(script):
                short = manager == "yarn" or (manager in ("npm", "pnpm") and name in ("test", "start"))
                run = manager if short else f"{manager} run"
                yield ProjectCommand(_guess_use(name), f"{run} {shlex.quote(name)}", "package.json")
    for name in _read_manifest(root / "composer.json", _Manifest).scripts:
        if not name.startswith(("pre-", "post-", "-")):
            yield ProjectCommand(_guess_use(name), f"composer run-script {shlex.quote(name)}", "composer.json")
    for name in _read_manifest(root / "pyproject.toml", _Pyproject).project.scripts:
        yield ProjectCommand("Run", shlex.quote(name), "pyproject.toml")


def _read_manifest(path: Path, kind: type[_ManifestT]) -> _ManifestT:
    decode = msgspec.toml.decode if path.suffix == ".toml" else msgspec.json.decode
    try:
        return decode(read_text(path), type=kind)
    except msgspec.DecodeError:
        return kind()


def _find_by_file(root: Path) -> Iterator[ProjectCommand]:
    for pattern, text, use, command in _COMMANDS:
        source = next((path for path in sorted(root.glob(pattern)) if path.is_file() and text in read_text(path)), None)
        if source is not None:
            program, _, rest = command.partition(" ")
            wrapper = _WRAPPERS.get(program, "")
            run = f"./{wrapper} {rest}" if wrapper and (root / wrapper).is_file() else command
            yield ProjectCommand(use, run, str(source.relative_to(root)))


def _find_scripts(root: Path) -> Iterator[ProjectCommand]:
    """Yield executable scripts at the root, in bin and in scripts."""
    for pattern in ("*", "bin/*", "scripts/*", "script/*"):
        for path in sorted(islice(root.glob(pattern), _MAX_SCRIPTS)):
            if path.name not in _WRAPPERS.values() and os.access(path, os.X_OK) and read_text(path).startswith("#!"):
                name = str(path.relative_to(root))
                yield ProjectCommand(_guess_use(path.stem), shlex.quote(f"./{name}"), name)
