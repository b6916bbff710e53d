"""Which language servers a project has, and how they are started.

A server is found by its name: in the project's own environment (`.venv/bin`, `node_modules/.bin`), then on PATH. Of the
servers of one family, such as the Python type checkers, the one that the project configures is used, else the first.

Programs of the project run only in a sandbox, because a command or an edit could have changed them. In the sandbox a
server reads everything but secrets, and writes to the project only if it must. The caches that it cannot do without lie
in a folder of their own for each project: what it writes there is used by no other program.
"""

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from odin.config import LanguageServerSettings
from odin.config.paths import expand_home, get_cache_dir, make_server_cache
from odin.core.errors import StateUnwritable
from odin.core.profile import UNSANDBOXED, ProcessProfile, WritableFolders
from odin.lsp.protocol import ServerFault


class ServerSpec(Struct, frozen=True):
    """How a server is started and what it is for. `programs` are the places of its program, the preferred one first.

    `navigates`: it finds definitions and references. `indexes`: while it reports progress, it does not know the whole
    project. `family`: of the servers of one family only one is used. `options` are its settings; sections are looked up
    in them. `python_setting` is the section and the name of the one for the interpreter of the project, which a server
    does not find itself. `writes`: it must write to the project. `caches`: the variables that name the folders it must
    write to elsewhere. `sandboxed` is what the user wants; `needs_sandbox`: the project configures it, so it never runs
    without one.
    """

    name: str
    programs: tuple[str, ...]
    args: tuple[str, ...] = ()
    file_types: tuple[str, ...] = ()
    root_markers: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    python_setting: tuple[str, str] | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
    navigates: bool = True
    indexes: bool = False
    family: str = ""
    writes: bool = False
    caches: tuple[str, ...] = ()
    sandboxed: bool = True
    needs_sandbox: bool = False

    def covers(self, path: str) -> bool:
        return path.endswith(self.file_types)


LOCAL_FOLDERS = (".venv/bin", "venv/bin", "node_modules/.bin")

_PYTHON = (".py", ".pyi")
SCRIPT_TYPES = (".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
_C = (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp")
_PYTHON_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")

KNOWN_SERVERS: tuple[ServerSpec, ...] = (
    ServerSpec("ruff", ("ruff",), ("server",), _PYTHON, ("ruff.toml", ".ruff.toml", *_PYTHON_MARKERS), navigates=False),
    ServerSpec(
        "basedpyright", ("basedpyright-langserver",), ("--stdio",), _PYTHON, _PYTHON_MARKERS, family="Python types"
    ),
    ServerSpec(
        "pyright",
        ("pyright-langserver",),
        ("--stdio",),
        _PYTHON,
        _PYTHON_MARKERS,
        python_setting=("python", "pythonPath"),
        family="Python types",
    ),
    ServerSpec("ty", ("ty",), ("server",), _PYTHON, ("ty.toml", *_PYTHON_MARKERS), family="Python types"),
    ServerSpec(
        "tsc",
        ("tsc",),
        ("--lsp", "--stdio"),
        SCRIPT_TYPES,
        ("tsconfig.json", "jsconfig.json", "package.json"),
        family="TS",
    ),
    ServerSpec(
        "typescript-language-server",
        ("typescript-language-server",),
        ("--stdio",),
        SCRIPT_TYPES,
        ("tsconfig.json", "jsconfig.json", "package.json"),
        family="TS",
    ),
    ServerSpec("gopls", ("gopls",), (), (".go",), ("go.mod", "go.work"), caches=("GOCACHE", "GOPLSCACHE")),
    ServerSpec("rust-analyzer", ("rust-analyzer",), (), (".rs",), ("Cargo.toml",), writes=True),
    ServerSpec(
        "clangd",
        ("clangd",),
        (),
        _C,
        ("compile_commands.json", ".clangd", "CMakeLists.txt"),
        {"clangdFileStatus": True},
        indexes=True,
        writes=True,
    ),
)

_CONFIGURED_BY = {
    "basedpyright": ("[tool.basedpyright",),
    "pyright": ("[tool.pyright",),
    "ty": ("[tool.ty.", "[tool.ty]"),
}
"""What in pyproject.toml says that a project uses a type checker."""

_CONFIG_FILES = {"pyright": "pyrightconfig.json", "ty": "ty.toml"}
_MAX_CONFIG_BYTES = 500_000
_MAX_LISTED = 2_000


def find_servers(
    root: str,
    env: Mapping[str, str],
    configured: Mapping[str, LanguageServerSettings],
    *,
    detect: bool = True,
    by_project: Collection[str] = (),
) -> tuple[ServerSpec, ...]:
    """Return the servers that can be used in a project: the configured ones, then the installed ones.

    `by_project` are those that the project's own file configures.
    """
    # The folders to find programs in: the project's own ones, then those of PATH.
    path = (folder for folder in env.get("PATH", os.defpath).split(os.pathsep) if folder.startswith("/"))
    folders = tuple(dict.fromkeys([*(f"{root}/{name}" for name in LOCAL_FOLDERS), *path]))
    found = [
        msgspec.structs.replace(_make_spec(name, settings, folders, root, env), needs_sandbox=name in by_project)
        for name, settings in configured.items()
        if settings.enabled
    ]
    known = [spec for spec in KNOWN_SERVERS if spec.name not in configured] if detect else []
    found += [
        msgspec.structs.replace(spec, programs=programs)
        for spec in known
        if (programs := _find_programs(spec.programs[0], folders)) and _is_usable(spec, programs, env)
    ]
    return tuple(spec for spec in found if spec.name in _choose_members(found, root))


def _find_programs(name: str, folders: Iterable[str]) -> tuple[str, ...]:
    paths = (f"{folder}/{name}" for folder in folders)
    return tuple(path for path in paths if os.access(path, os.X_OK) and Path(path).is_file())


def _make_spec(
    name: str, settings: LanguageServerSettings, folders: tuple[str, ...], root: str, env: Mapping[str, str]
) -> ServerSpec:
    """Return the spec of a configured server. What is not set comes from the known server of that name."""
    known = next((spec for spec in KNOWN_SERVERS if spec.name == name), ServerSpec(name, (name,)))
    command = settings.command or known.programs[0]
    programs = (
        (os.path.normpath(Path(root, expand_home(command, env))),)
        if "/" in command
        else _find_programs(command, folders)
    )
    return msgspec.structs.replace(
        known,
        programs=programs or (command,),
        args=settings.args if settings.command or settings.args else known.args,
        file_types=settings.file_types or known.file_types,
        root_markers=settings.root_markers or known.root_markers,
        options={**known.options, **settings.options},
        env=settings.env,
        writes=settings.writes or known.writes,
        sandboxed=settings.sandbox,
    )


def _is_usable(spec: ServerSpec, programs: tuple[str, ...], env: Mapping[str, str]) -> bool:
    """False for a program that is no server: `tsc` is one since version 7, `rustup` stands in for missing ones."""
    if spec.name == "rust-analyzer":
        return not all(Path(os.path.realpath(path)).name == "rustup" for path in programs) or _has_rust_analyzer(env)
    return spec.name != "tsc" or any(_is_typescript_7(path) for path in programs)


def _has_rust_analyzer(env: Mapping[str, str]) -> bool:
    """True if rustup has installed rust-analyzer for a toolchain."""
    home = env.get("RUSTUP_HOME") or f"{env.get('HOME', '')}/.rustup"
    return any(Path(home, "toolchains").glob("*/bin/rust-analyzer"))


def _is_typescript_7(program: str) -> bool:
    for folder in Path(os.path.realpath(program)).parents[:4]:
        manifest = folder / "package.json"
        if manifest.is_file():
            try:
                version = msgspec.json.decode(manifest.read_bytes(), type=dict[str, object]).get("version")
            except (OSError, msgspec.MsgspecError, UnicodeError):
                return False
            major = str(version).partition(".")[0]
            return major.isdecimal() and int(major) >= 7
    return False


def _choose_members(specs: list[ServerSpec], root: str) -> set[str]:
    """Return the servers to use: of each family the one the project configures, or the first, if it is installed."""
    chosen: dict[str, ServerSpec] = {}
    try:
        with Path(root, "pyproject.toml").open("rb") as file:
            text = file.read(_MAX_CONFIG_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    by_section = {name for name, words in _CONFIGURED_BY.items() if any(word in text for word in words)}
    wanted = by_section | {name for name, file in _CONFIG_FILES.items() if Path(root, file).is_file()}

    def rank(spec: ServerSpec) -> tuple[bool, bool]:
        return "/" in spec.programs[0], spec.name in wanted

    for spec in specs:
        family = spec.family or spec.name
        if family not in chosen or rank(spec) > rank(chosen[family]):
            chosen[family] = spec
    return {spec.name for spec in chosen.values()}


def find_for_project(specs: Iterable[ServerSpec], root: str) -> Iterator[ServerSpec]:
    """Yield the servers a project has use for: it configures them, or has a marker of them or a file of their kind."""
    others: list[ServerSpec] = []
    for spec in specs:
        if spec.needs_sandbox or any(Path(root, marker).exists() for marker in spec.root_markers):
            yield spec
        else:
            others.append(spec)
    for path in list_files(root) if others else ():
        for spec in [spec for spec in others if spec.covers(path)]:
            others.remove(spec)
            yield spec
        if not others:
            return


def list_files(root: str) -> Iterator[str]:
    """Yield files of a project, the upper folders first, as far as a look at a limited number of entries finds them."""
    left = _MAX_LISTED
    folders = deque([root])
    while folders:
        for entry in _list_entries(folders.popleft()):
            left -= 1
            if left < 0:
                return
            if entry.is_file(follow_symlinks=False):
                yield entry.path
            elif not entry.name.startswith((".", "node_modules")) and entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)


def _list_entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, _MAX_LISTED))
    except OSError:
        return []


# --- start ---


class ServerLaunch(Struct, frozen=True):
    """The start of a server. `options` are its settings."""

    argv: tuple[str, ...]
    env: dict[str, str]
    options: dict[str, Any]
    profile: ProcessProfile


def plan_launch(
    spec: ServerSpec, root: str, env: Mapping[str, str], *, writable: WritableFolders, is_confined: bool
) -> ServerLaunch:
    """Return how the server is started in this folder. Raise ServerFault if it cannot be.

    Outside the sandbox, no program is started that lies in a `writable` folder: commands could have changed it.
    """
    confined = (spec.sandboxed or spec.needs_sandbox) and is_confined
    if spec.needs_sandbox and not confined:
        raise ServerFault("the project configures it, and there is no sandbox to run it in")
    program = next((path for path in spec.programs if confined or os.path.realpath(path) not in writable), "")
    if not program:
        name = spec.programs[0] if spec.programs else spec.name
        raise ServerFault(f"commands can change {name}, so it is not started without a sandbox")
    argv = program, *spec.args
    if not confined:
        return ServerLaunch(argv, {**writable.filter_variables(env), **spec.env}, spec.options, UNSANDBOXED)
    try:
        caches = make_server_cache(spec.name, root, str(get_cache_dir(env))) if spec.caches else ""
    except StateUnwritable as error:
        raise ServerFault(str(error).rstrip(".")) from None
    variables = {name: f"{caches}/{name.lower()}" for name in spec.caches}
    # a scope gives it a sandbox of its own, so that it does not keep the one of commands busy
    scope = (*((root,) if spec.writes else ()), *((caches,) if caches else ()))
    options = add_interpreter(spec, root)
    return ServerLaunch(argv, {**variables, **spec.env}, options, ProcessProfile("server", scope=scope))


def add_interpreter(spec: ServerSpec, root: str) -> dict[str, Any]:
    """Return the options with the interpreter of the project's environment, unless they name one. It is run."""
    section, name = spec.python_setting or ("", "")
    paths = (f"{root}/{folder}/bin/python" for folder in (".venv", "venv"))
    found = next((path for path in paths if section and os.access(path, os.X_OK)), "")
    given = spec.options.get(section, {})
    return {**spec.options, section: {name: found, **given}} if found and isinstance(given, dict) else spec.options
