"""What a sandbox of a session shows, hides and lets be written, however it is made."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from odin.policy.confine.gitplace import find_git_folders
from odin.policy.confine.planted import list_protected_files
from odin.policy.confine.secret import find_secret_paths, find_sockets, list_open_sockets
from odin.policy.paths import contains


class SandboxSession(Struct, frozen=True):
    """Whose sandbox it is. `own` are Odin's folders, which hold keys; `shown` are those of them a command may read."""

    root: str
    home: str
    env: Mapping[str, str]
    odin_folders: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


class SandboxLayout(Struct, frozen=True):
    """`kept` lies in folders for temporary files and is none; `pinned` may be written and not be moved away; `guarded`
    lies where much is writable and is not; `sockets` lead to agents, screens and daemons."""

    temporary: tuple[str, ...]
    persistent: tuple[str, ...]
    writable: tuple[str, ...]
    pinned: tuple[str, ...]
    protected: tuple[str, ...]
    hidden: tuple[str, ...]
    visible: tuple[str, ...]
    sockets: tuple[str, ...] = ()


EMPTY_LAYOUT = SandboxLayout(temporary=(), persistent=(), writable=(), pinned=(), protected=(), hidden=(), visible=())


def plan_layout(session: SandboxSession, *, writes: bool) -> SandboxLayout:
    temporary = find_temp_folders(session.env)
    repositories = find_git_folders(session.root)
    gate = f"{session.root}/.git"
    writable = _resolve_existing([session.root, *session.writable, *(path for path in repositories if path != gate)])
    if writes:
        _create_odin_folders(session.odin_folders, [*writable, *temporary])
    hidden = find_secret_paths(session.home, session.odin_folders, session.root)
    sockets = find_sockets(temporary, session.env)
    guarded = list_protected_files(session.root)
    pinned = [*(path for path in repositories if path == gate), *_list_parents([*hidden, *guarded], writable)]
    return SandboxLayout(
        temporary=tuple(temporary) if writes else (),
        persistent=tuple(_find_persistent(temporary, session.home)) if writes else (),
        writable=writable if writes else (),
        pinned=tuple(sorted(_resolve_existing(pinned), key=len)) if writes else (),
        protected=tuple(guarded) if writes else (),
        hidden=tuple(hidden),
        visible=_resolve_existing(session.visible),
        sockets=tuple(path for path in sockets if not _is_covered(path, [*hidden, *session.visible], session.root)),
    )


def list_exposed_sockets(plan: SandboxLayout, session: SandboxSession) -> list[str]:
    """The sockets of others that are there now and were not when this was planned."""
    covered = (*plan.hidden, *plan.visible, *plan.sockets)
    return [path for path in list_open_sockets() if not _is_covered(path, covered, session.root)]


def build_programs_path(session: SandboxSession) -> str:
    """The folders that the programs which make a sandbox are looked for in: none that commands can write."""
    temporary = find_temp_folders(session.env)
    kept = _find_persistent(temporary, session.home)
    writable = [os.path.realpath(path) for path in (session.root, *session.writable)]

    def is_safe(folder: str) -> bool:
        real = os.path.realpath(folder)
        passing = _is_covered_by(real, temporary) and not _is_covered_by(real, kept)
        return folder.startswith("/") and not passing and not _is_covered_by(real, writable)

    return os.pathsep.join(filter(is_safe, (session.env.get("PATH") or os.defpath).split(os.pathsep)))


def _create_odin_folders(odin_folders: Iterable[str], writable: Sequence[str]) -> None:
    """Make Odin's own folders where a command could make them: what does not exist cannot be hidden."""
    for path in odin_folders:
        if _is_covered_by(os.path.realpath(path), writable):
            with suppress(OSError):
                os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103


def _list_parents(paths: Iterable[str], writable: Sequence[str]) -> list[str]:
    """The folders between what may be written and what in it may not: moved away, they would take it with them."""
    found: list[str] = []
    for path in paths:
        folder = os.path.dirname(path)  # noqa: PTH120
        while any(contains(place, folder) and place != folder for place in writable):
            found.append(folder)
            folder = os.path.dirname(folder)  # noqa: PTH120
    return found


def _is_covered(path: str, hidden: Iterable[str], root: str) -> bool:
    """Whether something is hidden already, or is a folder that holds the project."""
    return contains(path, root) or _is_covered_by(path, hidden)


def _is_covered_by(path: str, places: Iterable[str]) -> bool:
    return any(contains(place, path) for place in places)


def find_temp_folders(env: Mapping[str, str]) -> list[str]:
    """Where programs may put what nobody needs tomorrow."""
    wanted = ("/tmp", "/var/tmp", env.get("TMPDIR", ""))
    real = (os.path.realpath(path) for path in wanted if path.startswith("/") and _is_usable(path))
    return list(dict.fromkeys(path for path in real if path != "/"))


def _find_persistent(temporary: Iterable[str], home: str) -> list[str]:
    """A home among temporary files is a home, with what lies beside it."""
    real = os.path.realpath(home)
    found: list[str] = []
    for folder in temporary:
        if real == folder:
            found.append(real)
        elif real.startswith(f"{folder}/"):
            found.append(f"{folder}/{real[len(folder) + 1 :].partition('/')[0]}")
    return found


def _resolve_existing(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(path) for path in paths if path and os.path.lexists(path))
    return tuple(dict.fromkeys(path for path in real if path != "/"))


def _is_usable(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK)  # noqa: PTH112
