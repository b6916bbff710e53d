"""How a language server is started: its program, its environment, and what it may write.

Programs of the project run only in a sandbox, because a command or an edit could have changed them. In the sandbox a
server reads everything but secrets, and writes to the project only if it must. The caches that it cannot do without lie
in a folder of their own for each project: what it writes there is used by no other program.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.config import get_cache_dir, make_private_folder
from odin.core.errors import StateUnwritable
from odin.core.path_names import contains
from odin.core.tool import SandboxProfile
from odin.lsp.detection import ServerSpec
from odin.lsp.protocol import ServerFault

_UNUSED_S = 30 * 86_400


class ServerLaunch(Struct, frozen=True):
    """The start of a server. `options` are its settings. Without a profile it runs outside the sandbox."""

    argv: tuple[str, ...]
    env: dict[str, str]
    options: dict[str, Any]
    sandbox_profile: SandboxProfile | None = None


def plan_launch(
    spec: ServerSpec, root: str, env: Mapping[str, str], *, is_confined: Callable[[], bool]
) -> ServerLaunch:
    """Return how the server is started in this folder. Raise ServerFault if it cannot be."""
    confined = (spec.sandboxed or spec.needs_sandbox) and is_confined()
    if spec.needs_sandbox and not confined:
        raise ServerFault("the project configures it, and there is no sandbox to run it in")
    program = next((path for path in spec.programs if confined or not _is_own(path, root)), "")
    if not program:
        name = spec.programs[0] if spec.programs else spec.name
        raise ServerFault(f"{name} is a program of the project and is not started without a sandbox")
    argv = program, *spec.args
    if not confined:
        return ServerLaunch(argv, {**_build_outside_environment(root, env), **spec.env}, spec.options)
    caches = _make_cache_folder(spec, root, env) if spec.caches else ""
    variables = {name: f"{caches}/{name.lower()}" for name in spec.caches}
    # a scope gives it a sandbox of its own, so that it does not keep the one of commands busy
    scope = (*((root,) if spec.writes else ()), *((caches,) if caches else ()))
    options = add_interpreter(spec, root)
    return ServerLaunch(argv, {**variables, **spec.env}, options, SandboxProfile(scope=scope))


def _make_cache_folder(spec: ServerSpec, root: str, env: Mapping[str, str]) -> str:
    """Create the folder for the caches of a server in one project. Odin's own cache is hidden in the sandbox."""
    from hashlib import sha256

    cache = get_cache_dir(env)
    name = f"{spec.name}-{sha256(os.fsencode(root)).hexdigest()[:16]}"
    try:
        folder = make_private_folder(cache.with_name(f"{cache.name}-servers") / name)
        os.utime(folder)
    except (StateUnwritable, OSError) as error:
        raise ServerFault(str(error).rstrip(".")) from None
    threading.Thread(target=remove_unused_caches, args=(folder.parent,), daemon=True).start()
    return str(folder)


def remove_unused_caches(parent: Path) -> None:
    """Remove the caches of projects, such as worktrees, for which no server was started for a long time."""
    from shutil import rmtree

    with suppress(OSError):
        for folder in list(parent.iterdir()):
            if time.time() - folder.lstat().st_mtime > _UNUSED_S:
                rmtree(folder, ignore_errors=True)


def add_interpreter(spec: ServerSpec, root: str) -> dict[str, Any]:
    """Return the options with the interpreter of the project's environment, unless they name one. It is run."""
    section, name = spec.python_setting or ("", "")
    paths = (f"{root}/{folder}/bin/python" for folder in (".venv", "venv"))
    found = next((path for path in paths if section and os.access(path, os.X_OK)), "")
    given = spec.options.get(section, {})
    return {**spec.options, section: {name: found, **given}} if found and isinstance(given, dict) else spec.options


def _is_own(path: str, root: str) -> bool:
    """True for a program of the project, which a command or an edit could have changed."""
    return contains(root, path) or contains(root, os.path.realpath(path))


def _build_outside_environment(root: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return what keeps a server without a sandbox from running programs of the project."""
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    kept = [folder for folder in folders if folder.startswith("/") and not _is_own(folder, root)]
    return {"PATH": os.pathsep.join(kept), "VIRTUAL_ENV": ""}
