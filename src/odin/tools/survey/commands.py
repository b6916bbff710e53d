"""The commands a repository really has: targets, scripts, tools that its files configure, each with its source."""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from odin.tools.survey.manifests import json, requirement, table, texts, toml
from odin.tools.survey.tree import Tree

Use = Literal["Install", "Build", "Run", "Test", "Check", "Other"]

_USES: tuple[tuple[Use, str], ...] = (
    ("Test", r"tests?|spec|e2e|coverage|check-?tests?|unit"),
    ("Check", r"lint|checks?|format|fmt|types?|typecheck|mypy|ruff|tsc|audit|verify|vet"),
    ("Build", r"build|compile|dist|bundle|package|release|all|docs?"),
    ("Run", r"run|start|serve|server|dev|develop|watch|preview|up"),
    ("Install", r"install|setup|bootstrap|deps|init|venv"),
)


class Command(Struct, frozen=True):
    use: Use
    text: str
    source: str
    about: str = ""


def commands(tree: Tree) -> list[Command]:
    """Each once, in the order of their use."""
    found: dict[str, Command] = {}
    for reader in (_make, _just, _node, _python, _tox, _rust, _go, _java, _ruby, _php, _cmake, _docker, _scripts):
        for command in reader(tree):
            found.setdefault(command.text, command)
    return list(found.values())


def use_of(name: str) -> Use:
    """What a target or script is for, told by the words of its name."""
    words = re.split(r"[-_:./]", name.lower())
    for use, pattern in _USES:
        if re.fullmatch(pattern, name.lower()) or any(re.fullmatch(pattern, word) for word in words):
            return use
    return "Other"


def _make(tree: Tree) -> Iterator[Command]:
    path = next((name for name in ("GNUmakefile", "Makefile", "makefile") if tree.has(name)), "")
    text = tree.read(path) if path else ""
    phony = {name for line in re.findall(r"(?m)^\.PHONY\s*:(.*)$", text.replace("\\\n", " ")) for name in line.split()}
    for found in re.finditer(r"(?m)^([A-Za-z0-9][\w.-]*)\s*:(?![:=])[^#\n]*(?:##?\s*(.*))?$", text):
        name, about = found[1], (found[2] or "").strip()
        if name in phony or "." not in name:
            yield Command(use_of(name), f"make {name}", path, about)


def _just(tree: Tree) -> Iterator[Command]:
    path = next((name for name in ("justfile", "Justfile", ".justfile") if tree.has(name)), "")
    text = tree.read(path) if path else ""
    for found in re.finditer(r"(?m)^(?:# (.*)\n)?(?:\[[^\]\n]*\]\n)*@?([a-zA-Z][\w-]*)(?: [^:\n]*)?:(?!=)", text):
        if found[2] not in ("set", "alias", "export"):
            yield Command(use_of(found[2]), f"just {found[2]}", path, (found[1] or "").strip())


_LOCKS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
}


def _node(tree: Tree) -> Iterator[Command]:
    data = json(tree.read("package.json"))
    if not data:
        return
    named = str(data.get("packageManager", "")).partition("@")[0]
    lock = next((name for name in _LOCKS if tree.has(name)), "")
    manager = _LOCKS.get(lock) or (named if named in _LOCKS.values() else "npm")
    yield Command("Install", f"{manager} install", lock or "package.json")
    for name in table(data, "scripts"):
        short = manager == "yarn" or (manager in ("npm", "pnpm") and name in ("test", "start"))
        yield Command(use_of(name), f"{manager} {name}" if short else f"{manager} run {name}", "package.json")


def _python(tree: Tree) -> Iterator[Command]:
    data = toml(tree.read("pyproject.toml"))
    locks = {"uv.lock": "uv sync", "poetry.lock": "poetry install", "Pipfile": "pipenv install"}
    lock = next((name for name in locks if tree.has(name)), "")
    if lock:
        yield Command("Install", locks[lock], lock)
    elif tree.has("requirements.txt"):
        yield Command("Install", "pip install -r requirements.txt", "requirements.txt")
    elif "build-system" in data or tree.has("setup.py"):
        yield Command("Install", "pip install -e .", "pyproject.toml" if "build-system" in data else "setup.py")
    for place, scripts in (
        ("[project.scripts]", table(data, "project", "scripts")),
        ("[tool.poetry.scripts]", table(data, "tool", "poetry", "scripts")),
    ):
        for name in scripts:
            yield Command("Run", name, f"pyproject.toml {place}", "once the package is installed")
    if tree.has("manage.py"):
        yield Command("Run", "python manage.py runserver", "manage.py")
    yield from _python_tests(tree)
    if table(data, "tool", "ruff") or tree.has("ruff.toml") or tree.has(".ruff.toml"):
        yield Command("Check", "ruff check", "pyproject.toml" if table(data, "tool", "ruff") else "ruff.toml")


def _python_tests(tree: Tree) -> Iterator[Command]:
    data = toml(tree.read("pyproject.toml"))
    groups = {**table(data, "project", "optional-dependencies"), **table(data, "dependency-groups")}
    names = {requirement(item) for group in groups.values() for item in texts(group)}
    signs = {
        "pyproject.toml": "pytest" in names or bool(table(data, "tool", "pytest")),
        "pytest.ini": tree.has("pytest.ini"),
        "setup.cfg": "[tool:pytest]" in tree.read("setup.cfg"),
        "tox.ini": "[pytest]" in tree.read("tox.ini"),
        "conftest.py": any(path.rsplit("/", 1)[-1] == "conftest.py" for path in tree.files),
    }
    source = next((name for name, there in signs.items() if there), "")
    if source:
        yield Command("Test", "python -m pytest", source)
        return
    tests = [path for path in tree.files if re.fullmatch(r"tests?/test_\w+\.py", path)]
    first = next((path for path in tests if "unittest.TestCase" in tree.read(path)), "")
    if first:
        folder = first.split("/")[0]
        yield Command("Test", f"python -m unittest discover -s {folder}", first)


def _tox(tree: Tree) -> Iterator[Command]:
    if tree.has("tox.ini"):
        yield Command("Test", "tox", "tox.ini")
    for name in re.findall(r"(?m)^@nox\.session.*\n(?:@.*\n)*def (\w+)", tree.read("noxfile.py")):
        yield Command(use_of(name), f"nox -s {name}", "noxfile.py")


def _rust(tree: Tree) -> Iterator[Command]:
    if not tree.has("Cargo.toml"):
        return
    yield Command("Build", "cargo build", "Cargo.toml")
    yield Command("Test", "cargo test", "Cargo.toml")
    if tree.has("src/main.rs"):
        yield Command("Run", "cargo run", "src/main.rs")


def _go(tree: Tree) -> Iterator[Command]:
    if not tree.has("go.mod"):
        return
    yield Command("Build", "go build ./...", "go.mod")
    test = next((path for path in tree.files if path.endswith("_test.go")), "")
    if test:
        yield Command("Test", "go test ./...", test)
    if tree.has("main.go"):
        yield Command("Run", "go run .", "main.go")
    for path in tree.files:
        if re.fullmatch(r"cmd/[^/]+/main\.go", path):
            yield Command("Run", f"go run ./{path.removesuffix('/main.go')}", path)


def _java(tree: Tree) -> Iterator[Command]:
    if tree.has("pom.xml"):
        maven = "./mvnw" if tree.has("mvnw") else "mvn"
        yield Command("Build", f"{maven} package", "pom.xml")
        yield Command("Test", f"{maven} test", "pom.xml")
    build = next((name for name in ("build.gradle", "build.gradle.kts") if tree.has(name)), "")
    if build:
        gradle = "./gradlew" if tree.has("gradlew") else "gradle"
        yield Command("Build", f"{gradle} build", build)
        yield Command("Test", f"{gradle} test", build)


def _ruby(tree: Tree) -> Iterator[Command]:
    gems = tree.read("Gemfile")
    if gems:
        yield Command("Install", "bundle install", "Gemfile")
    before = "bundle exec " if gems else ""
    if tree.has("Rakefile"):
        yield Command("Other", f"{before}rake -T", "Rakefile", "lists the tasks")
    if "rspec" in gems and tree.under("spec"):
        yield Command("Test", f"{before}rspec", "Gemfile")


def _php(tree: Tree) -> Iterator[Command]:
    data = json(tree.read("composer.json"))
    if data:
        yield Command("Install", "composer install", "composer.json")
    for name in table(data, "scripts"):
        if not name.startswith(("pre-", "post-")):
            yield Command(use_of(name), f"composer run-script {name}", "composer.json")


def _cmake(tree: Tree) -> Iterator[Command]:
    text = tree.read("CMakeLists.txt")
    if re.search(r"(?im)^\s*project\s*\(", text):
        yield Command("Build", "cmake -S . -B build && cmake --build build", "CMakeLists.txt")
        if re.search(r"(?im)^\s*(enable_testing|include\s*\(\s*CTest)", text):
            yield Command("Test", "ctest --test-dir build", "CMakeLists.txt")


def _docker(tree: Tree) -> Iterator[Command]:
    if tree.has("Dockerfile"):
        yield Command("Build", "docker build .", "Dockerfile")
    compose = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
    file = next((name for name in compose if tree.has(name)), "")
    if file:
        yield Command("Run", "docker compose up", file)


def _scripts(tree: Tree) -> Iterator[Command]:
    """Programs of the repository itself: executable files at the root, in bin and in scripts."""
    for path in tree.files:
        folder, _, name = path.rpartition("/")
        if folder not in ("", "bin", "scripts", "script") or name in ("gradlew", "mvnw") or not tree.runnable(path):
            continue
        text = tree.read(path)
        if text.startswith("#!"):
            yield Command(use_of(name.partition(".")[0]), f"./{path}", path, _first_remark(text))


def _first_remark(text: str) -> str:
    """The comment or docstring right below the first line of a script."""
    for line in text.splitlines()[1:6]:
        found = re.match(r"""^(?:#+|//|r?["']{3})\s*(\S.{3,118}?)["']*$""", line.strip())
        if found and not re.match(r"(-\*-|vim:|shellcheck|pylint|Copyright|SPDX)", found[1]):
            return found[1].strip()
        if line.strip() and not line.startswith("#"):
            break
    return ""
