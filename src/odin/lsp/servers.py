"""Which language servers a project has, and the servers that run for one folder.

A server is found by its name: in the project's own environment (`.venv/bin`, `node_modules/.bin`), then on PATH. Of the
servers of one family, such as the Python type checkers, the one that the project configures is used, else the first.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from odin.config import LanguageServerSettings
from odin.core.event_values import LanguageServerState
from odin.core.path_names import contains
from odin.lsp.protocol import ServerFault
from odin.lsp.server import LanguageServer, ServerSpec, WatchedChange
from odin.sandbox.runner import ProcessRunner

LOCAL_FOLDERS = (".venv/bin", "venv/bin", "node_modules/.bin")

_PYTHON = (".py", ".pyi")
_SCRIPT = (".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
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
        "tsc", ("tsc",), ("--lsp", "--stdio"), _SCRIPT, ("tsconfig.json", "jsconfig.json", "package.json"), family="TS"
    ),
    ServerSpec(
        "typescript-language-server",
        ("typescript-language-server",),
        ("--stdio",),
        _SCRIPT,
        ("tsconfig.json", "jsconfig.json", "package.json"),
        family="TS",
    ),
    ServerSpec("gopls", ("gopls",), (), (".go",), ("go.mod", "go.work"), writes=True),
    ServerSpec("rust-analyzer", ("rust-analyzer",), (), (".rs",), ("Cargo.toml",), writes=True),
    ServerSpec("clangd", ("clangd",), (), _C, ("compile_commands.json", ".clangd", "CMakeLists.txt"), writes=True),
)

_CONFIGURED_BY = {
    "basedpyright": ("[tool.basedpyright",),
    "pyright": ("[tool.pyright",),
    "ty": ("[tool.ty.", "[tool.ty]"),
}
"""What in pyproject.toml says that a project uses a type checker."""

_CONFIG_FILES = {"pyright": "pyrightconfig.json", "ty": "ty.toml"}
_MAX_CONFIG_BYTES = 500_000
_MAX_LISTED = 500


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
    folders = list_program_folders(root, env)
    found = [
        msgspec.structs.replace(_make_spec(name, settings, folders, root), needs_sandbox=name in by_project)
        for name, settings in configured.items()
        if settings.enabled
    ]
    known = [spec for spec in KNOWN_SERVERS if spec.name not in configured] if detect else []
    found += [
        msgspec.structs.replace(spec, programs=programs)
        for spec in known
        if (programs := _find_programs(spec.programs[0], folders)) and _is_usable(spec, programs)
    ]
    return tuple(spec for spec in found if spec.name in _choose_members(found, root))


def list_program_folders(root: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders to find programs in: the project's own ones, then those of PATH."""
    path = (folder for folder in env.get("PATH", os.defpath).split(os.pathsep) if folder.startswith("/"))
    return tuple(dict.fromkeys([*(f"{root}/{name}" for name in LOCAL_FOLDERS), *path]))


def _find_programs(name: str, folders: Iterable[str]) -> tuple[str, ...]:
    paths = (f"{folder}/{name}" for folder in folders)
    return tuple(path for path in paths if os.access(path, os.X_OK) and Path(path).is_file())


def _make_spec(name: str, settings: LanguageServerSettings, folders: tuple[str, ...], root: str) -> ServerSpec:
    """Return the spec of a configured server. What is not set comes from the known server of that name."""
    known = next((spec for spec in KNOWN_SERVERS if spec.name == name), None)
    command = settings.command or (known.programs[0] if known else name)
    programs = (
        (os.path.normpath(Path(root, Path(command).expanduser())),)
        if "/" in command
        else _find_programs(command, folders)
    )
    has_own_args = settings.command or settings.args
    return ServerSpec(
        name,
        programs or (command,),
        settings.args if has_own_args or known is None else known.args,
        settings.file_types or (known.file_types if known else ()),
        settings.root_markers or (known.root_markers if known else ()),
        options=settings.options,
        python_setting=known.python_setting if known else None,
        env=settings.env,
        navigates=known.navigates if known else True,
        writes=settings.writes or (known.writes if known else False),
        sandboxed=settings.sandbox,
    )


def _is_usable(spec: ServerSpec, programs: tuple[str, ...]) -> bool:
    """TypeScript has its own server since version 7; the older one does not work with that."""
    return spec.name != "tsc" or any(_is_typescript_7(path) for path in programs)


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
    """Return the names of the servers to use: of each family the one the project configures, or the first."""
    chosen: dict[str, str] = {}
    wanted = _find_configured_checkers(root)
    for spec in specs:
        family = spec.family or spec.name
        if family not in chosen or (spec.name in wanted and chosen[family] not in wanted):
            chosen[family] = spec.name
    return set(chosen.values())


def _find_configured_checkers(root: str) -> set[str]:
    try:
        with Path(root, "pyproject.toml").open("rb") as file:
            text = file.read(_MAX_CONFIG_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    by_section = {name for name, words in _CONFIGURED_BY.items() if any(word in text for word in words)}
    return by_section | {name for name, file in _CONFIG_FILES.items() if Path(root, file).is_file()}


def is_for_project(spec: ServerSpec, root: str) -> bool:
    """True if the project has a marker of the server, or a file of its kind in its root or the folders there."""
    if any(Path(root, marker).exists() for marker in spec.root_markers):
        return True
    left = _MAX_LISTED
    folders = [root]
    for depth in (0, 1):
        below: list[str] = []
        for folder in folders:
            for entry in _list_entries(folder):
                left -= 1
                if left < 0:
                    return False
                if spec.covers(entry.name):
                    return True
                if depth == 0 and not entry.name.startswith((".", "node_modules")) and entry.is_dir():
                    below.append(entry.path)
        folders = below
    return False


def _list_entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


class LanguageServers:
    """The servers of one folder, started when a file of their kind is read or changed.

    `take_changes` returns the files that changed on the disk since the last call.
    """

    def __init__(
        self,
        root: str,
        specs: Iterable[ServerSpec],
        runner: ProcessRunner,
        *,
        env: Mapping[str, str],
        is_confined: Callable[[], bool],
        take_changes: Callable[[], Iterable[WatchedChange]] = tuple,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.root = root
        self._take_changes = take_changes
        self.all = tuple(
            LanguageServer(spec, root, runner, env=env, is_confined=is_confined, on_change=on_change) for spec in specs
        )

    def list_for(self, path: str) -> tuple[LanguageServer, ...]:
        """Return the servers for a file of the project, which may have to be started."""
        if not contains(self.root, path):
            return ()
        return tuple(server for server in self.all if server.can_start and server.spec.covers(path))

    def report_changes(self) -> None:
        """Tell the running servers what has changed on the disk."""
        changes = tuple(self._take_changes())
        for server in self.all if changes else ():
            if server.status == "ready":
                server.report_changes(changes)

    async def find_navigator(self, path: str) -> LanguageServer:
        """Return a server that finds definitions in this file. Raise ServerFault if there is none."""
        fitting = [server for server in self.all if server.spec.navigates and server.spec.covers(path)]
        if not contains(self.root, path):
            raise ServerFault(f"{path} is outside the project, so no language server handles it")
        if not fitting:
            raise ServerFault(f"no language server handles {Path(path).name}")
        usable = [server for server in fitting if server.can_start]
        running = [server for server in usable if server.status == "ready"]
        server = (running or usable or fitting)[0]
        await server.get_ready()
        return server

    def list_states(self) -> tuple[LanguageServerState, ...]:
        return tuple(_describe(server) for server in self.all)

    def find(self, name: str) -> LanguageServer | None:
        return next((server for server in self.all if server.spec.name == name), None)

    def stop(self) -> None:
        for server in self.all:
            server.stop()


def _describe(server: LanguageServer) -> LanguageServerState:
    errors, warnings = server.count_problems()
    status = "slow" if server.status == "ready" and server.unanswered else server.status
    return LanguageServerState(
        server.spec.name, status, server.detail, server.spec.file_types, errors, warnings, server.start_ms
    )
