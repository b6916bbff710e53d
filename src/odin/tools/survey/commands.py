"""The commands a repository really has: targets, scripts, tools that its files configure, each with its source."""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from odin.tools.survey.manifests import get_table, get_texts, parse_json, parse_requirement, parse_toml
from odin.tools.survey.tree import ProjectTree

CommandUse = Literal["Install", "Build", "Run", "Test", "Check", "Other"]

_USE_PATTERNS: tuple[tuple[CommandUse, str], ...] = (
    ("Test", r"tests?|spec|e2e|coverage|check-?tests?|unit"),
    ("Check", r"lint|checks?|format|fmt|types?|typecheck|mypy|ruff|tsc|audit|verify|vet"),
    ("Build", r"build|compile|dist|bundle|package|release|all|docs?"),
    ("Run", r"run|start|serve|server|dev|develop|watch|preview|up"),
    ("Install", r"install|setup|bootstrap|deps|init|venv"),
)


class ProjectCommand(Struct, frozen=True):
    use: CommandUse
    text: str
    source: str
    about: str = ""


def find_commands(tree: ProjectTree) -> list[ProjectCommand]:
    """Each once, in the order of their use."""
    found: dict[str, ProjectCommand] = {}
    for reader in (
        _find_make_targets,
        _find_just_recipes,
        _find_node_commands,
        _find_python_commands,
        _find_tox_commands,
        _find_rust_commands,
        _find_go_commands,
        _find_java_commands,
        _find_ruby_commands,
        _find_php_commands,
        _find_cmake_commands,
        _find_docker_commands,
        _find_scripts,
    ):
        for command in reader(tree):
            found.setdefault(command.text, command)
    return list(found.values())


def use_of(name: str) -> CommandUse:
    """What a target or script is for, told by the words of its name."""
    words = re.split(r"[-_:./]", name.lower())
    for use, pattern in _USE_PATTERNS:
        if re.fullmatch(pattern, name.lower()) or any(re.fullmatch(pattern, word) for word in words):
            return use
    return "Other"


def _find_make_targets(tree: ProjectTree) -> Iterator[ProjectCommand]:
    path = next((name for name in ("GNUmakefile", "Makefile", "makefile") if tree.has(name)), "")
    text = tree.read(path) if path else ""
    phony = {name for line in re.findall(r"(?m)^\.PHONY\s*:(.*)$", text.replace("\\\n", " ")) for name in line.split()}
    for found in re.finditer(r"(?m)^([A-Za-z0-9][\w.-]*)\s*:(?![:=])[^#\n]*(?:##?\s*(.*))?$", text):
        name, about = found[1], (found[2] or "").strip()
        if name in phony or "." not in name:
            yield ProjectCommand(use_of(name), f"make {name}", path, about)


def _find_just_recipes(tree: ProjectTree) -> Iterator[ProjectCommand]:
    path = next((name for name in ("justfile", "Justfile", ".justfile") if tree.has(name)), "")
    text = tree.read(path) if path else ""
    for found in re.finditer(r"(?m)^(?:# (.*)\n)?(?:\[[^\]\n]*\]\n)*@?([a-zA-Z][\w-]*)(?: [^:\n]*)?:(?!=)", text):
        if found[2] not in ("set", "alias", "export"):
            yield ProjectCommand(use_of(found[2]), f"just {found[2]}", path, (found[1] or "").strip())


_LOCK_FILES = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
}


def _find_node_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    data = parse_json(tree.read("package.json"))
    if not data:
        return
    named = str(data.get("packageManager", "")).partition("@")[0]
    lock = next((name for name in _LOCK_FILES if tree.has(name)), "")
    manager = _LOCK_FILES.get(lock) or (named if named in _LOCK_FILES.values() else "npm")
    yield ProjectCommand("Install", f"{manager} install", lock or "package.json")
    for name in get_table(data, "scripts"):
        short = manager == "yarn" or (manager in ("npm", "pnpm") and name in ("test", "start"))
        yield ProjectCommand(use_of(name), f"{manager} {name}" if short else f"{manager} run {name}", "package.json")


def _find_python_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    data = parse_toml(tree.read("pyproject.toml"))
    locks = {"uv.lock": "uv sync", "poetry.lock": "poetry install", "Pipfile": "pipenv install"}
    lock = next((name for name in locks if tree.has(name)), "")
    if lock:
        yield ProjectCommand("Install", locks[lock], lock)
    elif tree.has("requirements.txt"):
        yield ProjectCommand("Install", "pip install -r requirements.txt", "requirements.txt")
    elif "build-system" in data or tree.has("setup.py"):
        yield ProjectCommand("Install", "pip install -e .", "pyproject.toml" if "build-system" in data else "setup.py")
    for place, scripts in (
        ("[project.scripts]", get_table(data, "project", "scripts")),
        ("[tool.poetry.scripts]", get_table(data, "tool", "poetry", "scripts")),
    ):
        for name in scripts:
            yield ProjectCommand("Run", name, f"pyproject.toml {place}", "once the package is installed")
    if tree.has("manage.py"):
        yield ProjectCommand("Run", "python manage.py runserver", "manage.py")
    yield from _find_python_tests(tree)
    if get_table(data, "tool", "ruff") or tree.has("ruff.toml") or tree.has(".ruff.toml"):
        yield ProjectCommand(
            "Check", "ruff check", "pyproject.toml" if get_table(data, "tool", "ruff") else "ruff.toml"
        )


def _find_python_tests(tree: ProjectTree) -> Iterator[ProjectCommand]:
    data = parse_toml(tree.read("pyproject.toml"))
    groups = {**get_table(data, "project", "optional-dependencies"), **get_table(data, "dependency-groups")}
    names = {parse_requirement(item) for group in groups.values() for item in get_texts(group)}
    signs = {
        "pyproject.toml": "pytest" in names or bool(get_table(data, "tool", "pytest")),
        "pytest.ini": tree.has("pytest.ini"),
        "setup.cfg": "[tool:pytest]" in tree.read("setup.cfg"),
        "tox.ini": "[pytest]" in tree.read("tox.ini"),
        "conftest.py": any(path.rsplit("/", 1)[-1] == "conftest.py" for path in tree.files),
    }
    source = next((name for name, there in signs.items() if there), "")
    if source:
        yield ProjectCommand("Test", "python -m pytest", source)
        return
    tests = [path for path in tree.files if re.fullmatch(r"tests?/test_\w+\.py", path)]
    first = next((path for path in tests if "unittest.TestCase" in tree.read(path)), "")
    if first:
        folder = first.split("/")[0]
        yield ProjectCommand("Test", f"python -m unittest discover -s {folder}", first)


def _find_tox_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    if tree.has("tox.ini"):
        yield ProjectCommand("Test", "tox", "tox.ini")
    for name in re.findall(r"(?m)^@nox\.session.*\n(?:@.*\n)*def (\w+)", tree.read("noxfile.py")):
        yield ProjectCommand(use_of(name), f"nox -s {name}", "noxfile.py")


def _find_rust_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    if not tree.has("Cargo.toml"):
        return
    yield ProjectCommand("Build", "cargo build", "Cargo.toml")
    yield ProjectCommand("Test", "cargo test", "Cargo.toml")
    if tree.has("src/main.rs"):
        yield ProjectCommand("Run", "cargo run", "src/main.rs")


def _find_go_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    if not tree.has("go.mod"):
        return
    yield ProjectCommand("Build", "go build ./...", "go.mod")
    test = next((path for path in tree.files if path.endswith("_test.go")), "")
    if test:
        yield ProjectCommand("Test", "go test ./...", test)
    if tree.has("main.go"):
        yield ProjectCommand("Run", "go run .", "main.go")
    for path in tree.files:
        if re.fullmatch(r"cmd/[^/]+/main\.go", path):
            yield ProjectCommand("Run", f"go run ./{path.removesuffix('/main.go')}", path)


def _find_java_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    if tree.has("pom.xml"):
        maven = "./mvnw" if tree.has("mvnw") else "mvn"
        yield ProjectCommand("Build", f"{maven} package", "pom.xml")
        yield ProjectCommand("Test", f"{maven} test", "pom.xml")
    build = next((name for name in ("build.gradle", "build.gradle.kts") if tree.has(name)), "")
    if build:
        gradle = "./gradlew" if tree.has("gradlew") else "gradle"
        yield ProjectCommand("Build", f"{gradle} build", build)
        yield ProjectCommand("Test", f"{gradle} test", build)


def _find_ruby_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    gems = tree.read("Gemfile")
    if gems:
        yield ProjectCommand("Install", "bundle install", "Gemfile")
    before = "bundle exec " if gems else ""
    if tree.has("Rakefile"):
        yield ProjectCommand("Other", f"{before}rake -T", "Rakefile", "lists the tasks")
    if "rspec" in gems and tree.list_under("spec"):
        yield ProjectCommand("Test", f"{before}rspec", "Gemfile")


def _find_php_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    data = parse_json(tree.read("composer.json"))
    if data:
        yield ProjectCommand("Install", "composer install", "composer.json")
    for name in get_table(data, "scripts"):
        if not name.startswith(("pre-", "post-")):
            yield ProjectCommand(use_of(name), f"composer run-script {name}", "composer.json")


def _find_cmake_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    text = tree.read("CMakeLists.txt")
    if re.search(r"(?im)^\s*project\s*\(", text):
        yield ProjectCommand("Build", "cmake -S . -B build && cmake --build build", "CMakeLists.txt")
        if re.search(r"(?im)^\s*(enable_testing|include\s*\(\s*CTest)", text):
            yield ProjectCommand("Test", "ctest --test-dir build", "CMakeLists.txt")


def _find_docker_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    if tree.has("Dockerfile"):
        yield ProjectCommand("Build", "docker build .", "Dockerfile")
    compose = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
    file = next((name for name in compose if tree.has(name)), "")
    if file:
        yield ProjectCommand("Run", "docker compose up", file)


def _find_scripts(tree: ProjectTree) -> Iterator[ProjectCommand]:
    """Programs of the repository itself: executable files at the root, in bin and in scripts."""
    for path in tree.files:
        folder, _, name = path.rpartition("/")
        if folder not in ("", "bin", "scripts", "script") or name in ("gradlew", "mvnw") or not tree.is_runnable(path):
            continue
        text = tree.read(path)
        if text.startswith("#!"):
            yield ProjectCommand(use_of(name.partition(".")[0]), f"./{path}", path, _read_first_comment(text))


def _read_first_comment(text: str) -> str:
    """The comment or docstring right below the first line of a script."""
    for line in text.splitlines()[1:6]:
        found = re.match(r"""^(?:#+|//|r?["']{3})\s*(\S.{3,118}?)["']*$""", line.strip())
        if found and not re.match(r"(-\*-|vim:|shellcheck|pylint|Copyright|SPDX)", found[1]):
            return found[1].strip()
        if line.strip() and not line.startswith("#"):
            break
    return ""
