"""What a sandbox of a session shows, hides and lets be written, however it is made."""

import os
from collections.abc import Iterable, Mapping

from msgspec import Struct

from odin.policy.confine.gitplace import git_folders
from odin.policy.confine.planted import obeyed
from odin.policy.confine.secret import secret_places, sockets_in


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
    lies where much is writable and is not."""

    temporary: tuple[str, ...]
    kept: tuple[str, ...]
    writable: tuple[str, ...]
    pinned: tuple[str, ...]
    guarded: tuple[str, ...]
    hidden: tuple[str, ...]
    shown: tuple[str, ...]


def layout(session: Session, *, writes: bool) -> Layout:
    temporary = temporary_folders(session.env)
    repositories = git_folders(session.root)
    gate = f"{session.root}/.git"
    writable = [session.root, *session.writable, *(path for path in repositories if path != gate)]
    hidden = [
        *secret_places(session.home, session.own, session.root),
        *(path for path in sockets_in(temporary, session.env) if not _inside(session.root, path)),
    ]
    return Layout(
        temporary=tuple(temporary) if writes else (),
        kept=tuple(_kept(temporary, session.home)) if writes else (),
        writable=_existing(writable) if writes else (),
        pinned=_existing(path for path in repositories if path == gate) if writes else (),
        guarded=tuple(obeyed(session.root)) if writes else (),
        hidden=tuple(hidden),
        shown=_existing(session.shown),
    )


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


def _inside(root: str, folder: str) -> bool:
    return root == folder or root.startswith(f"{folder}/")
