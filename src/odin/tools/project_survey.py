"""Surveys a repository for InitTool: its files and languages, its manifests, and the commands it defines.

The walk is limited in number of files, depth and time. Each command is reported with the file it comes from.
"""

import os
import re
import shlex
from bisect import bisect_left
from collections.abc import Iterator
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
"""Maximum size of a file that is read."""

MAX_COUNTED = 100_000_000
"""Maximum characters of code whose lines are counted."""

_SKIPPED = """
    node_modules __pycache__ .venv venv .tox .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis .odin .idea .gradle
    .next .cache target vendor bower_components site-packages
"""
"""Folders of generated or third-party files."""

_LANGUAGES = {
    "Python": "py pyi",
    "JavaScript": "js jsx mjs cjs",
    "TypeScript": "ts tsx mts cts",
    "Rust": "rs",
    "Go": "go",
    "Java": "java",
    "Kotlin": "kt kts",
    "C": "c h",
    "C++": "cc cpp cxx hpp hh hxx",
    "C#": "cs",
    "Ruby": "rb",
    "PHP": "php",
    "Swift": "swift",
    "Scala": "scala",
    "Elixir": "ex exs",
    "Haskell": "hs",
    "Lua": "lua",
    "Shell": "sh bash zsh",
    "SQL": "sql",
    "HTML": "html htm",
    "CSS": "css scss sass less",
    "Vue": "vue",
    "Svelte": "svelte",
    "Markdown": "md",
}
_BY_ENDING = {ending: name for name, endings in _LANGUAGES.items() for ending in endings.split()}

Json = dict[str, Any]
CommandUse = Literal["Install", "Build", "Run", "Test", "Check", "Other"]
_USE_PATTERNS: tuple[tuple[CommandUse, str], ...] = (
    ("Test", r"tests?|spec|e2e|coverage|check-?tests?|unit"),
    ("Check", r"lint|checks?|format|fmt|types?|typecheck|mypy|ruff|tsc|audit|verify|vet"),
    ("Build", r"build|compile|dist|bundle|package|release|all|docs?"),
    ("Run", r"run|start|serve|server|dev|develop|watch|preview|up"),
    ("Install", r"install|setup|bootstrap|deps|init|venv"),
)
_LOCK_FILES = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
}


class LanguageCount(Struct, frozen=True):
    """Files and lines of one language. `lines` is exact if `counted`, else a lower bound."""

    name: str
    files: int
    lines: int
    counted: bool = True


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

    def list_under(self, folder: str) -> list[str]:
        """Return the files below a folder. They are adjacent in sort order, and `0` follows `/` in ASCII."""
        first, after = (bisect_left(self.files, f"{folder}{end}") for end in "/0")
        return list(self.files[first:after])

    def is_runnable(self, path: str) -> bool:
        return os.access(Path(self.root, path), os.X_OK)


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


def language_of(path: str) -> str:
    return _BY_ENDING.get(path.rsplit("/", 1)[-1].rpartition(".")[2].lower(), "")


def count_languages(tree: ProjectTree) -> list[LanguageCount]:
    """Return the languages of the code, most lines first."""
    files: dict[str, int] = {}
    lines: dict[str, int] = {}
    left = MAX_COUNTED
    for path in tree.files:
        name = language_of(path)
        if not name:
            continue
        files[name] = files.get(name, 0) + 1
        text = tree.read(path) if left > 0 else ""
        left -= len(text)
        lines[name] = lines.get(name, 0) + len(text.splitlines())
    counts = [LanguageCount(name, files[name], lines[name], left > 0) for name in files]
    return sorted(counts, key=lambda language: (-language.lines, language.name))


class PackageManifest(Struct, frozen=True):
    """One manifest. `entry_points` are pairs of program name and target."""

    path: str
    kind: str
    name: str = ""
    description: str = ""
    dependencies: tuple[str, ...] = ()
    entry_points: tuple[tuple[str, str], ...] = ()


def read_manifests(tree: ProjectTree) -> list[PackageManifest]:
    """Return the manifests at the root and up to two folders below, sorted by depth and path."""
    manifests: list[PackageManifest] = []
    for path in tree.files:
        reader = _MANIFEST_READERS.get(path.rsplit("/", 1)[-1])
        if reader is not None and path.count("/") <= 2:
            manifest = reader(path, tree.read(path))
            if manifest is not None:
                manifests.append(manifest)
    return sorted(manifests, key=lambda manifest: (manifest.path.count("/"), manifest.path))


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


def get_texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in cast("list[Any]", value) if isinstance(item, str)) if isinstance(value, list) else ()


def parse_requirement(text: str) -> str:
    """Return the package name of a line such as `name[extra]>=1; marker`."""
    match = re.match(r"\s*([A-Za-z0-9][\w.-]*)", text)
    return match[1] if match else ""


def _make_manifest(path: str, kind: str, data: Json, **more: Any) -> PackageManifest:
    name, description = data.get("name"), data.get("description")
    return PackageManifest(
        path,
        kind,
        name if isinstance(name, str) else "",
        description.strip() if isinstance(description, str) else "",
        **more,
    )


def _read_pyproject(path: str, text: str) -> PackageManifest | None:
    data = parse_toml(text)
    project, poetry = get_table(data, "project"), get_table(data, "tool", "poetry")
    dependencies = [parse_requirement(item) for item in get_texts(project.get("dependencies"))]
    dependencies += [name for name in get_table(poetry, "dependencies") if name != "python"]
    scripts = {**get_table(poetry, "scripts"), **get_table(project, "scripts"), **get_table(project, "gui-scripts")}
    build = get_table(data, "build-system").get("build-backend")
    version = project.get("requires-python") or get_table(poetry, "dependencies").get("python")
    kind = "Python project" + (f" ({version})" if isinstance(version, str) else "")
    kind += f", built with {build}" if isinstance(build, str) else ""
    entry_points = tuple((name, str(target)) for name, target in scripts.items() if isinstance(target, str))
    return _make_manifest(
        path, kind, project or poetry, dependencies=tuple(filter(None, dependencies)), entry_points=entry_points
    )


def _read_setup_cfg(path: str, text: str) -> PackageManifest | None:
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    if not parser.has_section("metadata"):
        return None
    listed: str = parser.get("options", "install_requires", fallback="")
    dependencies = [parse_requirement(line) for line in listed.splitlines()]
    return _make_manifest(
        path, "Python project", dict(parser["metadata"]), dependencies=tuple(filter(None, dependencies))
    )


def _read_requirements(path: str, text: str) -> PackageManifest | None:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", "-"))]
    return PackageManifest(path, "Python requirements", dependencies=tuple(filter(None, map(parse_requirement, lines))))


def _read_package_json(path: str, text: str) -> PackageManifest | None:
    data = parse_json(text)
    if not data:
        return None
    bins, main = data.get("bin"), data.get("main")
    entry_points = [(str(data.get("name", "")), bins)] if isinstance(bins, str) else list(get_table(bins).items())
    if isinstance(main, str):
        entry_points.append(("main", main))
    spaces = data.get("workspaces")
    members = get_texts(spaces) or get_texts(get_table(spaces).get("packages"))
    kind = "Node package" + (f" with workspaces {', '.join(members)}" if members else "")
    dependencies = (*get_table(data, "dependencies"), *get_table(data, "devDependencies"))
    return _make_manifest(
        path,
        kind,
        data,
        dependencies=dependencies,
        entry_points=tuple((name, str(target)) for name, target in entry_points),
    )


def _read_cargo(path: str, text: str) -> PackageManifest | None:
    data = parse_toml(text)
    members = get_texts(get_table(data, "workspace").get("members"))
    kind = "Rust crate" if "package" in data else "Rust workspace"
    kind += f" with members {', '.join(members)}" if members else ""
    bins = cast("list[Any]", data.get("bin")) if isinstance(data.get("bin"), list) else []
    entry_points = [
        (str(get_table(item).get("name", "")), str(get_table(item).get("path", "src/main.rs"))) for item in bins
    ]
    dependencies = tuple(get_table(data, "dependencies"))
    return _make_manifest(
        path, kind, get_table(data, "package"), dependencies=dependencies, entry_points=tuple(entry_points)
    )


def _read_go_mod(path: str, text: str) -> PackageManifest | None:
    module = re.search(r"(?m)^module\s+(\S+)", text)
    version = re.search(r"(?m)^go\s+(\S+)", text)
    dependencies = re.findall(r"(?m)^(?:require\s+|\t)([\w.-]+\.[\w./-]+)\s+v\S+$", text)
    kind = f"Go module ({version[1]})" if version else "Go module"
    return PackageManifest(path, kind, name=module[1] if module else "", dependencies=tuple(dependencies))


def _read_pom(path: str, text: str) -> PackageManifest | None:
    without_nested = re.sub(r"(?s)<(parent|dependencies|build|profiles|dependencyManagement)>.*?</\1>", "", text)
    name, described = (re.search(f"<{tag}>([^<]+)</{tag}>", without_nested) for tag in ("artifactId", "description"))
    depends = re.search(r"(?s)<dependencies>(.*?)</dependencies>", text)
    dependencies = re.findall(r"<artifactId>([^<]+)</artifactId>", depends[1]) if depends else []
    return PackageManifest(
        path, "Maven project", name[1] if name else "", described[1].strip() if described else "", tuple(dependencies)
    )


def _read_gradle(path: str, text: str) -> PackageManifest | None:
    name = re.search(r"""rootProject\.name\s*=\s*["']([^"']+)""", text)
    return PackageManifest(path, "Gradle build", name=name[1] if name else "")


def _read_gemfile(path: str, text: str) -> PackageManifest | None:
    return PackageManifest(path, "Ruby bundle", dependencies=tuple(re.findall(r"""(?m)^\s*gem\s+["']([^"']+)""", text)))


def _read_composer(path: str, text: str) -> PackageManifest | None:
    data = parse_json(text)
    return _make_manifest(path, "PHP package", data, dependencies=tuple(get_table(data, "require"))) if data else None


def _read_cmake(path: str, text: str) -> PackageManifest | None:
    match = re.search(r"(?im)^\s*project\s*\(\s*([\w.-]+)", text)
    return PackageManifest(path, "CMake project", name=match[1]) if match else None


def _read_dockerfile(path: str, text: str) -> PackageManifest | None:
    images = re.findall(r"(?im)^FROM\s+(?:--\S+\s+)*(\S+)", text)
    return PackageManifest(path, "container image", dependencies=tuple(dict.fromkeys(images)))


_MANIFEST_READERS = {
    "pyproject.toml": _read_pyproject,
    "setup.cfg": _read_setup_cfg,
    "requirements.txt": _read_requirements,
    "requirements-dev.txt": _read_requirements,
    "package.json": _read_package_json,
    "Cargo.toml": _read_cargo,
    "go.mod": _read_go_mod,
    "pom.xml": _read_pom,
    "build.gradle": _read_gradle,
    "build.gradle.kts": _read_gradle,
    "settings.gradle": _read_gradle,
    "settings.gradle.kts": _read_gradle,
    "Gemfile": _read_gemfile,
    "composer.json": _read_composer,
    "CMakeLists.txt": _read_cmake,
    "Dockerfile": _read_dockerfile,
}


class ProjectCommand(Struct, frozen=True):
    use: CommandUse
    text: str
    source: str
    about: str = ""


def find_commands(tree: ProjectTree) -> list[ProjectCommand]:
    """Return the commands of the repository, without duplicates."""
    commands: dict[str, ProjectCommand] = {}
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
            commands.setdefault(command.text, command)
    return list(commands.values())


def use_of(name: str) -> CommandUse:
    """Guess the use of a target or script from the words of its name."""
    words = re.split(r"[-_:./]", name.lower())
    for use, pattern in _USE_PATTERNS:
        if re.fullmatch(pattern, name.lower()) or any(re.fullmatch(pattern, word) for word in words):
            return use
    return "Other"


def _find_make_targets(tree: ProjectTree) -> Iterator[ProjectCommand]:
    path = next((name for name in ("GNUmakefile", "Makefile", "makefile") if tree.has(name)), "")
    text = tree.read(path) if path else ""
    phony = {name for line in re.findall(r"(?m)^\.PHONY\s*:(.*)$", text.replace("\\\n", " ")) for name in line.split()}
    for match in re.finditer(r"(?m)^([A-Za-z0-9][\w.-]*)\s*:(?![:=])[^#\n]*(?:##?\s*(.*))?$", text):
        name, about = match[1], (match[2] or "").strip()
        if name in phony or "." not in name:
            yield ProjectCommand(use_of(name), f"make {name}", path, about)


def _find_just_recipes(tree: ProjectTree) -> Iterator[ProjectCommand]:
    path = next((name for name in ("justfile", "Justfile", ".justfile") if tree.has(name)), "")
    text = tree.read(path) if path else ""
    for match in re.finditer(r"(?m)^(?:# (.*)\n)?(?:\[[^\]\n]*\]\n)*@?([a-zA-Z][\w-]*)(?: [^:\n]*)?:(?!=)", text):
        if match[2] not in ("set", "alias", "export"):
            yield ProjectCommand(use_of(match[2]), f"just {match[2]}", path, (match[1] or "").strip())


def _find_node_commands(tree: ProjectTree) -> Iterator[ProjectCommand]:
    data = parse_json(tree.read("package.json"))
    if not data:
        return
    declared = str(data.get("packageManager", "")).partition("@")[0]
    lock = next((name for name in _LOCK_FILES if tree.has(name)), "")
    manager = _LOCK_FILES.get(lock) or (declared if declared in _LOCK_FILES.values() else "npm")
    yield ProjectCommand("Install", f"{manager} install", lock or "package.json")
    for name in (name for name in get_table(data, "scripts") if not name.startswith("-")):
        short = manager == "yarn" or (manager in ("npm", "pnpm") and name in ("test", "start"))
        yield ProjectCommand(use_of(name), f"{manager} {'' if short else 'run '}{shlex.quote(name)}", "package.json")


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
    for section, scripts in (
        ("[project.scripts]", get_table(data, "project", "scripts")),
        ("[tool.poetry.scripts]", get_table(data, "tool", "poetry", "scripts")),
    ):
        for name in scripts:
            yield ProjectCommand("Run", shlex.quote(name), f"pyproject.toml {section}", "once the package is installed")
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
    source = next((name for name, is_present in signs.items() if is_present), "")
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
            yield ProjectCommand("Run", f"go run {quote_path('./' + path.removesuffix('/main.go'))}", path)


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
        if not name.startswith(("pre-", "post-", "-")):
            yield ProjectCommand(use_of(name), f"composer run-script {shlex.quote(name)}", "composer.json")


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
    """Yield executable scripts at the root, in bin and in scripts."""
    for path in tree.files:
        folder, _, name = path.rpartition("/")
        if folder not in ("", "bin", "scripts", "script") or name in ("gradlew", "mvnw") or not tree.is_runnable(path):
            continue
        text = tree.read(path)
        if text.startswith("#!"):
            yield ProjectCommand(
                use_of(name.partition(".")[0]), quote_path(f"./{path}"), path, _read_first_comment(text)
            )


def _read_first_comment(text: str) -> str:
    """Return the comment or docstring right below the first line of a script."""
    for line in text.splitlines()[1:6]:
        match = re.match(r"""^(?:#+|//|r?["']{3})\s*(\S.{3,118}?)["']*$""", line.strip())
        if match and not re.match(r"(-\*-|vim:|shellcheck|pylint|Copyright|SPDX)", match[1]):
            return match[1].strip()
        if line.strip() and not line.startswith("#"):
            break
    return ""
