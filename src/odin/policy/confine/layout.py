"""What a sandbox of a session shows, hides and lets be written, however it is made."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from odin.policy.confine.gitplace import git_folders
from odin.policy.confine.planted import obeyed
from odin.policy.confine.secret import listening, secret_places, sockets_in
from odin.policy.paths import contains


class Session(Struct, frozen=True):
    """Whose sandbox it is. `own` are Odin's folders, which hold keys; `shown` are those of them a command may read."""

    root: str
    home: str
    env: Mapping[str, str]
    own: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


class Layout(Struct, frozen=True):
    """`kept` lies in folders for temporary files and is none; `pinned` may be written and not be moved away; `guarded`
    lies where much is writable and is not; `sockets` lead to agents, screens and daemons."""

    temporary: tuple[str, ...]
    kept: tuple[str, ...]
    writable: tuple[str, ...]
    pinned: tuple[str, ...]
    guarded: tuple[str, ...]
    hidden: tuple[str, ...]
    shown: tuple[str, ...]
    sockets: tuple[str, ...] = ()


NOTHING = Layout(temporary=(), kept=(), writable=(), pinned=(), guarded=(), hidden=(), shown=())


def layout(session: Session, *, writes: bool) -> Layout:
    temporary = temporary_folders(session.env)
    repositories = git_folders(session.root)
    gate = f"{session.root}/.git"
    writable = _existing([session.root, *session.writable, *(path for path in repositories if path != gate)])
    if writes:
        _claim(session.own, [*writable, *temporary])
    hidden = secret_places(session.home, session.own, session.root)
    sockets = sockets_in(temporary, session.env)
    guarded = obeyed(session.root)
    pinned = [*(path for path in repositories if path == gate), *_above([*hidden, *guarded], writable)]
    return Layout(
        temporary=tuple(temporary) if writes else (),
        kept=tuple(_kept(temporary, session.home)) if writes else (),
        writable=writable if writes else (),
        pinned=tuple(sorted(_existing(pinned), key=len)) if writes else (),
        guarded=tuple(guarded) if writes else (),
        hidden=tuple(hidden),
        shown=_existing(session.shown),
        sockets=tuple(path for path in sockets if not _covered(path, [*hidden, *session.shown], session.root)),
    )


def exposed(plan: Layout, session: Session) -> list[str]:
    """The sockets of others that are there now and were not when this was planned."""
    covered = (*plan.hidden, *plan.shown, *plan.sockets)
    return [path for path in listening() if not _covered(path, covered, session.root)]


def programs_path(session: Session) -> str:
    """The folders that the programs which make a sandbox are looked for in: none that commands can write."""
    temporary = temporary_folders(session.env)
    kept = _kept(temporary, session.home)
    writable = [os.path.realpath(path) for path in (session.root, *session.writable)]

    def is_safe(folder: str) -> bool:
        real = os.path.realpath(folder)
        passing = _covered_by(real, temporary) and not _covered_by(real, kept)
        return folder.startswith("/") and not passing and not _covered_by(real, writable)

    return os.pathsep.join(filter(is_safe, (session.env.get("PATH") or os.defpath).split(os.pathsep)))


def _claim(own: Iterable[str], writable: Sequence[str]) -> None:
    """Make Odin's own folders where a command could make them: what does not exist cannot be hidden."""
    for path in own:
        if _covered_by(os.path.realpath(path), writable):
            with suppress(OSError):
                os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103


def _above(paths: Iterable[str], writable: Sequence[str]) -> list[str]:
    """The folders between what may be written and what in it may not: moved away, they would take it with them."""
    found: list[str] = []
    for path in paths:
        folder = os.path.dirname(path)  # noqa: PTH120
        while any(contains(place, folder) and place != folder for place in writable):
            found.append(folder)
            folder = os.path.dirname(folder)  # noqa: PTH120
    return found


def _covered(path: str, hidden: Iterable[str], root: str) -> bool:
    """Whether something is hidden already, or is a folder that holds the project."""
    return contains(path, root) or _covered_by(path, hidden)


def _covered_by(path: str, places: Iterable[str]) -> bool:
    return any(contains(place, path) for place in places)


def temporary_folders(env: Mapping[str, str]) -> list[str]:
    """Where programs may put what nobody needs tomorrow."""
    wanted = ("/tmp", "/var/tmp", env.get("TMPDIR", ""))
    real = (os.path.realpath(path) for path in wanted if path.startswith("/") and _usable(path))
    return list(dict.fromkeys(path for path in real if path != "/"))


def _kept(temporary: Iterable[str], home: str) -> list[str]:
    """A home among temporary files is a home, with what lies beside it."""
    real = os.path.realpath(home)
    found: list[str] = []
    for folder in temporary:
        if real == folder:
            found.append(real)
        elif real.startswith(f"{folder}/"):
            found.append(f"{folder}/{real[len(folder) + 1 :].partition('/')[0]}")
    return found


def _existing(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(path) for path in paths if path and os.path.lexists(path))
    return tuple(dict.fromkeys(path for path in real if path != "/"))


def _usable(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK)  # noqa: PTH112
