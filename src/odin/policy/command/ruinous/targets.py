"""Whether a word names something that must not be lost: the file system, a home, the project, or what lies above it."""

import fnmatch
import re
from collections.abc import Sequence

from odin.policy.command.ruinous.values import SOME, UNKNOWN, Place, absolute, forms
from odin.policy.command.shapes import Word, named
from odin.policy.command.survey import Part
from odin.policy.paths import contains, real

_TOP = named(
    "bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys usr var "
    "Applications Library System Users Volumes private cores Network nix snap"
)
_SECOND = named(
    "usr/bin usr/lib usr/lib32 usr/lib64 usr/sbin usr/share usr/include usr/local usr/libexec usr/src var/lib var/log "
    "var/spool var/cache var/db private/etc private/var System/Library etc/ssh etc/ssl etc/systemd boot/efi boot/grub "
    "lib/modules lib/systemd"
)
_HOMES = ("home", "Users")
_GIT_PARTS = named("objects refs config HEAD index packed-refs logs")
_EVERYTHING = re.compile(
    r"\*+|\.\*|\?\*|\.\?\*|\.\.\?\*|\*\.\*|\.\[!?[.^!]+\]\*|\[!?\^?\.\]\*|\.\?\?\*|\{\*,\.\*\}"
    r"|\[!?[^\]]*a-z[^\]]*\]\*|!\([^)]*\)"
)
Harm = str
"""Why a path must not be lost, as the end of a sentence, or ""."""


def lost(part: Part, word: Word, place: Place) -> Harm:
    """What would be lost with the tree that this word names for certain."""
    for form in forms(part, word, place):
        if UNKNOWN not in form and SOME not in form:
            why = harm(form, part.folder, place)
            if why:
                return why
    return ""


def lost_when_empty(part: Part, word: Word, place: Place) -> Harm:
    """What would be lost if the variables of this word were empty."""
    for form in forms(part, word, place):
        if UNKNOWN in form and form.strip(UNKNOWN):
            why = harm(form.replace(UNKNOWN, "").replace(SOME, "x"), part.folder, place)
            if why:
                return why
    return ""


def emptied(text: str) -> tuple[str, bool]:
    """A path without patterns at its end that match everything in a folder, and whether there were any."""
    base = re.sub(r"/+", "/", text)
    everything = False
    while True:
        base = base.rstrip("/") or ("/" if base.startswith("/") else "")
        head, slash, last = base.rpartition("/")
        if not _EVERYTHING.fullmatch(last):
            return base or ".", everything
        everything = True
        base = head + slash or "."


def harm(text: str, folder: str | None, place: Place) -> Harm:
    """What is lost with a tree, told by its path."""
    if re.match(r"[A-Za-z]:[\\/]*(\*|Windows|Users)?$", text):
        return "it removes a whole drive"
    base, _ = emptied(text)
    path = absolute(base, folder, place)
    if path is None:
        return ""
    return _named(path, place) or _named(real(path, "/") or path, place)


def _named(path: str, place: Place) -> Harm:
    names = [name for name in path.split("/") if name]
    if not names:
        return "it removes the root of the file system"
    if len(names) == 1 and any(fnmatch.fnmatch(top, names[0]) for top in _TOP):
        return f"it removes the system folder /{names[0]}"
    if "/".join(names) in _SECOND:
        return f"it removes the system folder {path}"
    if (len(names) == 2 and names[0] in _HOMES) or contains(path, place.home):
        return "it removes a home folder"
    top = real(place.root, "/") or place.root
    if path in (place.root, top):
        return "it removes the project itself"
    if contains(path, place.root) or contains(path, top):
        return "it removes a folder that holds the project"
    return _repository(names, place, top)


def _repository(names: Sequence[str], place: Place, top: str) -> Harm:
    folded = [name.casefold() for name in names]
    at = next((index for index, name in enumerate(folded) if _is_git(name)), -1)
    if at < 0:
        return ""
    owner = "/" + "/".join(names[:at])
    inner = names[at + 1 :]
    if not (contains(owner, place.root) or contains(owner, top)):
        return ""
    if not inner or (len(inner) == 1 and inner[0] in _GIT_PARTS):
        return "it removes the history of the project (.git)"
    return ""


def _is_git(name: str) -> bool:
    """A pattern counts when it would match, and begins with the dot that a pattern does not match by itself."""
    return name == ".git" or (name.startswith(".") and any(char in name for char in "*?[") and _fits_git(name))


def _fits_git(pattern: str) -> bool:
    return fnmatch.fnmatchcase(".git", pattern)
