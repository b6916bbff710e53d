"""Opens the workspace of a session and its log, and reads the git branch and the git context of the workspace.

A log is new, resumed or forked. The branch, for the status line, is read from the files of git, without running it. The
git context is sent with the first prompt of a session: git runs when the prompt is sent. The first request waits up to
0.1 s for it; a later result goes with the next request.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from odin.config import (
    Config,
    Options,
    get_config_dir,
    get_home_dir,
    get_state_dir,
    load,
    make_private_folder,
)
from odin.config.paths import expand_home, find_worktree_origin, make_environment
from odin.config.settings import PluginFiles
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError, SessionLocked, UsageError
from odin.core.event import Envelope
from odin.core.timing import Timing, run_in_thread
from odin.session.log import SessionLog, pause_collection, read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

if TYPE_CHECKING:
    from odin.app.git import Git


class Workspace(msgspec.Struct, frozen=True):
    """The folder a session works in, its configuration, and the session store of the project."""

    environment: ExecutionEnvironment
    config: Config
    store: SessionStore

    @property
    def env(self) -> Mapping[str, str]:
        return self.environment.variables

    @property
    def state_dir(self) -> Path:
        return self.store.folder.parent.parent

    @property
    def memory_folders(self) -> tuple[Path, Path]:
        """The folders of the user's and the project's memory, which may not exist."""
        sessions = self.store.folder
        return get_config_dir(self.env) / "memory", sessions.parent.parent / "memory" / sessions.name

    @property
    def has_memory(self) -> bool:
        """True if memory is used: it is switched on, or something was remembered before."""
        mode = self.config.memory.mode
        return mode == "on" or (mode == "auto" and any(map(os.path.isdir, self.memory_folders)))


def add_variables(environment: ExecutionEnvironment, config: Config) -> ExecutionEnvironment:
    """Return the environment with the variables that the configuration adds for commands, hooks and servers."""
    return msgspec.structs.replace(environment, added=config.variables, sandbox_added=config.project_variables)


def make_workspace(options: Options) -> Workspace:
    environment = make_environment(options.env, options.cwd, options.state_dir, options.timing)
    env, cwd = environment.variables, environment.cwd
    config = load(
        cwd,
        env,
        options.to_flags(),
        trust=options.trust,
        plugin_dirs=options.plugin_dirs,
        add_dirs=options.add_dirs,
    )
    environment = add_variables(environment, config)
    if options.mcp_config or options.strict_mcp_config:
        from odin.config.mcp_file import add_given_servers

        config = add_given_servers(config, options.mcp_config, cwd, env, only=options.strict_mcp_config)
    state = make_private_folder(Path(options.state_dir) if options.state_dir else get_state_dir(env))
    return Workspace(environment, config, SessionStore(state, find_worktree_origin(config.root, state)))


class OpenedLog(msgspec.Struct, frozen=True):
    """A locked log, its events and the state folded from them.

    `draft` is the prompt that a fork left out; `source` is how the session started, for hooks.
    """

    log: SessionLog
    past: list[Envelope]
    state: SessionState
    draft: str = ""
    source: str = "startup"


async def open_log(store: SessionStore, options: Options, cwd: str) -> OpenedLog:
    """Create a log, or open and read one, in a thread: a long one takes a second, in which other sessions go on."""
    if options.resume and options.continue_last:
        raise UsageError("--resume and --continue cannot be combined.")
    if options.fork_at and not (options.fork and (options.resume or options.continue_last)):
        raise UsageError("--at requires --fork-session and --resume or --continue.")
    if options.fork and not (options.resume or options.continue_last):
        raise UsageError("--fork-session requires --resume or --continue.")
    if not options.resume and not options.continue_last:
        log = store.create(cwd, options.session_id)
        return OpenedLog(log, [], SessionState(log.session, partial(read_past, log)))
    if options.session_id and not options.fork:
        raise UsageError("--session-id cannot be combined with --resume or --continue.", "Add --fork-session.")
    return await run_in_thread(lambda _: _read_existing(store, options, cwd), undo=lambda opened: opened.log.close())


def _read_existing(store: SessionStore, options: Options, cwd: str) -> OpenedLog:
    past: list[Envelope] | None = None
    draft = ""
    if options.fork:
        from odin.session.lifecycle import fork_session

        original = store.open(store.find(options.resume) if options.resume else store.find_latest())
        made = fork_session(store, original, cwd, session=options.session_id, at=options.fork_at)
        log, past, draft = made.log, made.past, made.left_out_prompt
    else:
        log = _open_and_lock(store, options.resume) if options.resume else _lock_latest(store)
    try:
        if past is None:
            with pause_collection():
                past = list(read_log(log.path))
        state = SessionState.fold(past, log.session, partial(read_past, log))
    except BaseException:
        log.close()
        raise
    return OpenedLog(log, past, state, draft, "resume" if past else "startup")


def read_past(log: SessionLog) -> Iterator[Envelope]:
    return read_log(log.path) if log.path.exists() else iter(())


def _open_and_lock(store: SessionStore, name: str) -> SessionLog:
    log = store.open(store.find(name))
    log.hold()
    return log


def _lock_latest(store: SessionStore) -> SessionLog:
    """Open the latest session that is not locked. Only locking it tells for certain, so try one after the other."""
    locked: set[str] = set()
    while True:
        session = store.find_latest(unlocked=True, exclude=locked)
        try:
            return _open_and_lock(store, session)
        except SessionLocked:
            locked.add(session)


def list_project_agent_folders(root: str) -> tuple[str, ...]:
    """Return the folders of a project's agent files, weakest first."""
    return f"{root}/.claude/agents", f"{root}/.odin/agents"


def list_agent_folders(config: Config, environment: ExecutionEnvironment) -> tuple[str, ...]:
    """Return the existing folders of agent files that are used, weakest first: the user's, a trusted project's."""
    user = (f"{environment.home}/.claude/agents", f"{environment.config_dir}/agents")
    project = list_project_agent_folders(config.root) if config.trust.trusted else ()
    return tuple(filter(os.path.isdir, (*user, *project)))


def list_markdown_folders(parts: PluginFiles, top: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each folder of a plugin's Markdown files with the only files of it that count; () for all of them."""
    yield from ((f"{top}/{folder}", ()) for folder in parts.folders)
    yield from ((os.path.dirname(f"{top}/{file}"), (f"{top}/{file}",)) for file in parts.files)  # noqa: PTH120


_PROJECT_SKILL_FOLDERS = (".odin/skills", ".agents/skills", ".claude/skills")


def list_project_skill_folders(config: Config) -> tuple[str, ...]:
    """Return the existing folders of a project's skills, strongest first, whether it is trusted or not."""
    usual = (f"{config.root}/{name}" for name in _PROJECT_SKILL_FOLDERS)
    own = (str(Path(config.root, path)) for path in config.wanted.get("skills", {}).get("paths", ()))
    return tuple(filter(os.path.isdir, (*usual, *own)))


def list_skill_folders(
    config: Config, env: Mapping[str, str]
) -> tuple[tuple[str, Literal["project", "user", "extra", "plugin"]], ...]:
    """Return the folders of skills that are used, strongest first, each with its source.

    They are the existing ones of a trusted project and of the user, those of the setting `skills.paths`, and those of
    plugins.
    """
    if not config.skills.enabled:
        return ()
    home, trusted = get_home_dir(env), config.trust.trusted
    project = (f"{config.root}/{name}" for name in _PROJECT_SKILL_FOLDERS if trusted)
    user = (get_config_dir(env) / "skills", home / ".agents/skills", home / ".claude/skills")
    found: list[tuple[str, Literal["project", "user", "extra", "plugin"]]] = []
    found.extend([(folder, "project") for folder in filter(os.path.isdir, project)])
    found.extend([(str(folder), "user") for folder in filter(os.path.isdir, user)])
    for declared in config.declared.get("skills", ()) if config.skills.paths else ():
        is_project = declared.layer == "project"
        for path in declared.value.get("paths", ()):
            place = Path(config.root, path) if is_project else Path(config.root, expand_home(path, env))
            found.append((str(place), "project" if is_project else "extra"))
    for plugin in config.plugins:
        found.extend([(f"{plugin.folder}/{name}", "plugin") for name in plugin.skills.folders])
    return tuple(found)


_SERVER_PROGRAMS = (
    "ruff",
    "basedpyright-langserver",
    "pyright-langserver",
    "ty",
    "tsc",
    "typescript-language-server",
    "gopls",
    "rust-analyzer",
    "clangd",
)
"""The programs of the language servers that `odin.lsp.servers` knows."""

_INSTALL = {
    "Python: `uv tool install basedpyright`": (".py", "pyproject.toml", "requirements.txt"),
    "TypeScript and JavaScript: `npm install -g typescript typescript-language-server`": (
        *(".ts", ".tsx", ".js", ".jsx", "package.json"),
    ),
    "Go: `go install golang.org/x/tools/gopls@latest`": (".go", "go.mod"),
    "Rust: `rustup component add rust-analyzer`": (".rs", "Cargo.toml"),
    "C and C++: clangd, from your system's packages": (".c", ".h", ".cpp", ".cc", "CMakeLists.txt"),
}
"""How to install a server for a language, and the ends of the names that show that a project uses it."""

_PROJECT_PROGRAMS = (".venv/bin", "venv/bin", "node_modules/.bin")


def has_language_servers(config: Config, env: Mapping[str, str]) -> bool:
    """True if the folder is trusted and a language server is configured or installed. Nothing is loaded for it."""
    if explain_missing_servers(config, programs=False):
        return False
    if any(server.enabled for server in config.lsp_servers.values()):
        return True
    folders = [*(f"{config.root}/{name}" for name in _PROJECT_PROGRAMS), *env.get("PATH", "").split(os.pathsep)]
    names = [name for name in _SERVER_PROGRAMS if name not in config.lsp_servers]
    return config.lsp == "auto" and any(
        os.access(f"{folder}/{name}", os.X_OK) for folder in folders if folder.startswith("/") for name in names
    )


def explain_missing_servers(config: Config, *, programs: bool = True) -> str:
    """Return why a folder has no language servers, or "". With `programs`, none is configured or installed."""
    if config.lsp == "off":
        return 'Language servers are switched off (lsp is "off" in the configuration).'
    if not config.trust.trusted:
        return "Language servers run only in trusted folders. Trust this one with `odin trust add`."
    if not programs:
        return ""
    names: list[str] = []
    for folder in (config.root, f"{config.root}/src"):
        with suppress(OSError):
            names += os.listdir(folder)  # noqa: PTH208
    wanted = [how for how, ends in _INSTALL.items() if any(name.endswith(ends) for name in names)]
    hint = f" To get one for {'; for '.join(wanted)}." if wanted else ""
    return f"No language server is configured or installed for this project.{hint}"


_MAX_HEAD_CHARS = 1024
_BRANCH_PREFIX = "refs/heads/"


def find_branch(folder: str) -> str:
    """Return the branch of the worktree around this folder, the short commit if HEAD is detached, or ""."""
    git = _find_git_folder(Path(folder))
    if git is None:
        return ""
    head = _read_start(git / "HEAD").strip()
    if head.startswith("ref:"):
        return head.removeprefix("ref:").strip().removeprefix(_BRANCH_PREFIX)
    return head[:8]


def _find_git_folder(folder: Path) -> Path | None:
    """Return the git directory of the folder or a parent. In worktrees and submodules `.git` is a file naming it."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_dir():
            return git
        if git.is_file():
            named = _read_start(git).strip().removeprefix("gitdir:").strip()
            return Path(os.path.normpath(parent / named)) if named else None
    return None


def _read_start(path: Path) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would block
        with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_HEAD_CHARS)
    except OSError:
        return ""


_MAX_LINES = 30
_MAX_CHARS = 2000
_MAX_BYTES = 16_384
_VENV_NAMES = (".venv", "venv", "env")
_STATUS_ARGS = ("status", "--porcelain", "--branch", "--untracked-files=normal", "--ignore-submodules=all")
_LOG_ARGS = ("log", "-3", "--no-show-signature", "--no-color", "--format=%h %s")


class GitContext:
    """Gathers the context once and passes it to `report`, at once or a little later."""

    def __init__(
        self,
        root: str,
        git: "Callable[[], Git]",
        report: Callable[[str], None],
        *,
        timing: Timing,
        enabled: bool = True,
    ) -> None:
        self._root = root
        self._timing = timing
        self._git = git
        self._report = report
        self._enabled = enabled
        self._task: asyncio.Task[None] | None = None

    async def gather(self) -> None:
        """Gather the context before the first prompt. Return when it is complete or takes too long to wait for."""
        if not self._enabled:
            return
        self._enabled = False
        if line := describe_virtual_environment(self._root):
            self._report(line)
        if os.path.lexists(Path(self._root, ".git")):
            self._task = asyncio.create_task(self._gather_repository())
            await asyncio.wait([self._task], timeout=self._timing.git_grace_s)

    async def _gather_repository(self) -> None:
        if text := await describe_repository(self._root, self._git(), self._timing.git_limit_s):
            self._report(text)

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


def describe_virtual_environment(root: str) -> str:
    """Return a line naming the virtual environment in the project root, or ""."""
    for name in _VENV_NAMES:
        if Path(root, name, "pyvenv.cfg").is_file():
            return f"Python virtual environment: {name}"
    return ""


async def describe_repository(root: str, git: "Git", limit_s: float) -> str:
    """Return the branch, changes and last commits in a few lines; "" if git fails or takes too long."""
    from odin.app.git import decode_output, find_repository

    place = find_repository(root)
    if place is None:
        return ""
    try:
        async with asyncio.timeout(limit_s):
            status = await git.run(place, _STATUS_ARGS, max_bytes=_MAX_BYTES)
            log = await git.run(place, _LOG_ARGS, max_bytes=_MAX_BYTES)
    except OdinError:
        return f"Git branch: {find_branch(root)}" if find_branch(root) else ""
    except TimeoutError:
        return ""
    lines = decode_output(status.data).splitlines()
    if not lines:
        return ""
    more = [f"... {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
    text = "\n".join(["Git status at the start of this session:", *lines[:_MAX_LINES], *more])
    if commits := decode_output(log.data).strip():
        text += f"\nLast commits:\n{commits}"
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."
