"""The configuration, state and cache folders, and the project root."""

import os
import re
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from odin.core.environment import ExecutionEnvironment
from odin.core.errors import UsageError
from odin.core.private_folders import make_private_folder
from odin.core.timing import DEFAULT_TIMING, Timing

CONFIG_NAME = "odinconfig.json"
INSTRUCTIONS_NAME = "ODIN.md"
MCP_NAME = ".mcp.json"
PLUGINS_NAME = "plugins.json"

VIEW_FOLDER = "views"
"""The folder in the state folder for what commands write in views, and for their temporary files."""

WORKTREE_FOLDER = "worktrees"
"""The folder of git worktrees in the state folder: PROJECT/NAME."""

SCRATCH_FOLDER = "scratch"
"""The folder in the state folder for temporary files that Odin reads back. Commands cannot reach it."""

SERVER_FOLDER = "servers"
"""The folder in the state folder for the working directories of the user's MCP servers, and in the cache folder for the
caches of sandboxed ones."""

ACCESS_FOLDER = "server"
"""The folder in the state folder for who may use `odin serve`."""

SHARE_FOLDER = "shares"
"""The folder in the state folder for the shared sessions: their copies, and who may read them."""

RUN_FOLDER = "run"
"""The folder in the state folder for the sockets and secrets of the processes that have sessions open."""

_UNUSED_S = 30 * 86_400

_MARKERS = (INSTRUCTIONS_NAME, CONFIG_NAME, ".git")

LOG_FOLDER = "logs"
LOG_FILE_NAME = "odin.log"
SERVER_LOG_NAME = "server.log"


def get_current_folder() -> str:
    """Return the current folder. Raise UsageError if it has been deleted."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError as error:
        raise UsageError("The current folder no longer exists.", "Change to an existing folder.") from error


def resolve_folder(folder: str = "") -> str:
    """Return the real path of a folder, by default the current one. Raise UsageError if it is not a directory."""
    path = os.path.realpath(folder or get_current_folder())
    if not Path(path).is_dir():
        raise UsageError(f"Folder not found: {path}.", "Set an existing folder with --cwd.")
    return path


def make_environment(
    env: Mapping[str, str] | None = None, cwd: str = "", state_dir: str | Path = "", timing: Timing = DEFAULT_TIMING
) -> ExecutionEnvironment:
    """Return the environment for a session in this folder, by default with this process's variables and folder.

    `state_dir` replaces the state folder that the variables name. Raise UsageError if the folder does not exist.
    """
    variables = MappingProxyType(dict(os.environ if env is None else env))
    temporary = variables.get("TMPDIR", "")
    shells = ("/bin/bash", "/usr/bin/bash")
    return ExecutionEnvironment(
        variables=variables,
        cwd=resolve_folder(cwd),
        home=str(get_home_dir(variables)),
        shell=next((path for path in shells if os.access(path, os.X_OK)), "/bin/sh"),
        temporary=os.path.realpath(temporary if temporary.startswith("/") else "/tmp"),
        config_dir=str(get_config_dir(variables)),
        state_dir=str(state_dir or get_state_dir(variables)),
        cache_dir=str(get_cache_dir(variables)),
        timing=timing,
    )


def get_home_dir(env: Mapping[str, str]) -> Path:
    """Return HOME; without it the home folder of the user who runs Odin, as shells do."""
    home = env.get("HOME")
    if home:
        return Path(home)
    import pwd

    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def find_other_agents(env: Mapping[str, str]) -> str:
    """Return a sentence about the setups of other agents, if there are any and Odin has no settings yet; else ""."""
    folders = {
        "Claude Code": ".claude.json",
        "Codex": ".codex",
        "OpenCode": ".config/opencode",
        "Gemini CLI": ".gemini",
    }
    names = [name for name, folder in folders.items() if (get_home_dir(env) / folder).exists()]
    if not names or (get_config_dir(env) / CONFIG_NAME).exists():
        return ""
    return f"Found setups of {', '.join(names)}: `odin migrate` imports what you choose."


def expand_home(path: str, env: Mapping[str, str]) -> Path:
    """Return the path with a leading `~` expanded. Another user's `~name` stays as it is."""
    if path == "~" or path.startswith("~/"):
        return get_home_dir(env) / path[2:]
    return Path(path)


def _resolve_dir(env: Mapping[str, str], own: str, xdg: str, default: str) -> Path:
    """Return the folder from Odin's own variable, the XDG variable, or the default below HOME.

    The XDG specification says to ignore relative paths.
    """
    chosen = env.get(own)
    if chosen:
        return Path.cwd() / expand_home(chosen, env)
    shared = env.get(xdg)
    if shared and shared.startswith("/"):
        return Path(shared, "odin")
    return get_home_dir(env) / default / "odin"


def get_config_dir(env: Mapping[str, str]) -> Path:
    return _resolve_dir(env, "ODIN_CONFIG_DIR", "XDG_CONFIG_HOME", ".config")


def get_state_dir(env: Mapping[str, str]) -> Path:
    return _resolve_dir(env, "ODIN_STATE_DIR", "XDG_STATE_HOME", ".local/state")


def locate_socket(state: Path, pid: int, birth: str) -> Path:
    """Return where the process with this id and start time listens, if it has sessions open."""
    return state / RUN_FOLDER / f"{pid}-{birth}.sock"


def locate_key_states(env: Mapping[str, str]) -> Path:
    """Return the file that keeps what is known about keys."""
    return get_state_dir(env) / "key-states.json"


def crash_log_path(env: Mapping[str, str]) -> Path:
    return get_state_dir(env) / LOG_FOLDER / LOG_FILE_NAME


def get_cache_dir(env: Mapping[str, str]) -> Path:
    return _resolve_dir(env, "ODIN_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def locate_bytecode(env: Mapping[str, str]) -> str:
    """Return the folder in which Python programs of plugins keep their bytecode."""
    return str(get_cache_dir(env) / "bytecode")


def locate_model_catalog(env: Mapping[str, str]) -> Path:
    """Return the file that keeps the refreshed model catalog."""
    return get_cache_dir(env) / "model-catalog.json"


def make_server_folder(name: str, state_dir: str) -> str:
    """Create the folder that the user's MCP server of this name runs in. Commands cannot reach it."""
    return str(make_private_folder(Path(state_dir, SERVER_FOLDER, _make_file_name(name))))


def make_server_cache(name: str, root: str, cache_dir: str) -> str:
    """Create the folder for the caches of a sandboxed server in one project. Commands cannot reach it.

    Raise StateUnwritable.
    """
    folder = make_private_folder(Path(cache_dir, SERVER_FOLDER, _make_file_name(name, root)))
    with suppress(OSError):
        os.utime(folder)
    threading.Thread(target=remove_unused_caches, args=(folder.parent,), name="odin-caches", daemon=True).start()
    return os.path.realpath(folder)


def _make_file_name(name: str, *more: str) -> str:
    """Return a file name for any name, which a project may have chosen. Other names have other file names."""
    from hashlib import sha256

    digest = sha256(os.fsencode("\0".join((name, *more)))).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:40]}-{digest}"


def remove_unused_caches(parent: Path) -> None:
    """Remove the caches of projects, such as worktrees, for which no server was started for a long time."""
    from shutil import rmtree

    with suppress(OSError):
        for folder in list(parent.iterdir()):
            if time.time() - folder.lstat().st_mtime > _UNUSED_S:
                rmtree(folder, ignore_errors=True)


def find_project_root(cwd: str, env: Mapping[str, str]) -> str:
    """Return the nearest folder from `cwd` upward with ODIN.md, odinconfig.json or .git; else `cwd`.

    HOME and its parents are never a project root: a dotfiles repository in HOME must not make every private file part
    of the project. Neither is a world-writable folder such as /tmp.
    """
    here = Path(os.path.realpath(cwd or "."))
    home = Path(os.path.realpath(get_home_dir(env)))
    if _has_marker(here):
        return str(here)
    for folder in here.parents:
        if folder == home or folder in home.parents:
            break
        if _has_marker(folder) and not _is_world_writable(folder):
            return str(folder)
    return str(here)


def _has_marker(folder: Path) -> bool:
    return any(os.path.lexists(folder / name) for name in _MARKERS)


def _is_world_writable(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True


def find_worktree_origin(root: str, state_dir: str | Path) -> str:
    """Return the project that the worktree `root` belongs to if Odin made it, else `root` itself.

    Sessions and checkpoints of a worktree are kept with its project, and it is trusted like its project.
    """
    base = Path(os.path.realpath(state_dir), WORKTREE_FOLDER)
    here = Path(os.path.realpath(root))
    if not here.is_relative_to(base) or len(here.relative_to(base).parts) < 2:
        return root
    parts = here.relative_to(base).parts
    top = base.joinpath(*parts[:2])
    try:
        git_dir = (top / ".git").read_text("utf-8").removeprefix("gitdir: ").rstrip("\n")
        is_claimed = os.path.realpath(Path(git_dir, "gitdir").read_text("utf-8").rstrip("\n")) == str(top / ".git")
    except (OSError, ValueError):
        return root
    common, _, name = git_dir.rpartition("/worktrees/")
    if not is_claimed or not name or "/" in name or not common.endswith("/.git"):
        return root
    return str(Path(os.path.realpath(common)).parent.joinpath(*parts[2:]))
