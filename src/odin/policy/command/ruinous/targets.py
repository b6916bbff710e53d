"""Whether a word names something that must not be lost: the file system, a home, the project, or what lies above it."""

import fnmatch
import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from odin.policy.command.shapes import Word, named
from odin.policy.command.survey import Part, Survey
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
_EVERYTHING = re.compile(r"\*+|\.\*|\?\*|\.\?\*|\.\.\?\*|\*\.\*|\.\[!?[.^!]+\]\*|\[!?\^?\.\]\*|\.\?\?\*|\{\*,\.\*\}")
_HOME = re.compile(r"~(?=/|$)|\$HOME\b|\$\{HOME(?::?[-?=][^}]*)?\}")
_HERE = re.compile(r"\$PWD\b|\$\{PWD(?::?[-?=][^}]*)?\}|\$\(\s*pwd\s*(?:-[LP]\s*)?\)|`\s*pwd\s*`")
_TOPLEVEL = re.compile(r"\$\(\s*git rev-parse --show-toplevel\s*\)|`\s*git rev-parse --show-toplevel\s*`")
_NEVER_EMPTY = re.compile(r"\$\{\w+:?\?[^}]*\}|\$\{\w+:-[^}]+\}")
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)[^}]*\}")
_SOME = "\1"
_UNKNOWN = "\0"
_STAR = "\2"
_MAX_FORMS = 64

Harm = str
"""Why a path must not be lost, as the end of a sentence, or ""."""


class Place(Struct, frozen=True):
    """Where a command is judged: the project, the folder it starts in, and the values that its variables may have."""

    root: str
    cwd: str
    home: str
    values: dict[str, tuple[str, ...]]


def place_of(seen: Survey, root: str, cwd: str) -> Place:
    values: dict[str, tuple[str, ...]] = {}
    for name, value in seen.assigned:
        if value is not None:
            values[name] = (*values.get(name, ()), value)
    return Place(root, cwd or root, str(Path("~").expanduser()), values)


def lost(part: Part, word: Word, place: Place) -> Harm:
    """What would be lost with the tree that this word names for certain."""
    for form in forms(part, word, place):
        if _UNKNOWN not in form and _SOME not in form:
            why = harm(form, part.folder, place)
            if why:
                return why
    return ""


def lost_when_empty(part: Part, word: Word, place: Place) -> Harm:
    """What would be lost if the variables of this word were empty."""
    for form in forms(part, word, place):
        if _UNKNOWN in form and form.strip(_UNKNOWN):
            why = harm(form.replace(_UNKNOWN, "").replace(_SOME, "x"), part.folder, place)
            if why:
                return why
    return ""


def forms(part: Part, word: Word, place: Place) -> list[str]:
    """What the shell may make of a word, where the unknown is marked as such."""
    text = word.text if word.glob or word.expands else word.text.replace("*", _STAR)
    if not word.expands:
        return [f"./{text}" if text.startswith("~") else text]
    text = _HOME.sub(lambda _: place.home, text)
    text = _TOPLEVEL.sub(lambda _: place.root, text)
    here = _absolute("", part.folder, place)
    text = _HERE.sub(lambda _: here or _SOME, text)
    if re.fullmatch(r"~[\w.-]+(/.*)?", text):
        text = re.sub(r"^~[\w.-]+", lambda _: place.home, text)
    text = _NEVER_EMPTY.sub(_SOME, text)
    made = _braced(text)
    for _ in range(4):
        made = [form for item in made for form in _with_values(item, place)][:_MAX_FORMS]
    return [re.sub(r"\$\([^)]*\)|`[^`]*`|\$[@*#?!$-]", _UNKNOWN, form) for form in made]


def _with_values(text: str, place: Place) -> list[str]:
    found = _VARIABLE.search(text)
    if found is None:
        return [text]
    known = place.values.get(found[1] or found[2], ())
    return [text[: found.start()] + value + text[found.end() :] for value in (*known, *(() if known else (_UNKNOWN,)))]


def _braced(text: str) -> list[str]:
    made = [text]
    for _ in range(4):
        grown: list[str] = []
        for item in made:
            found = re.search(r"(?<!\$)\{([^{}]*,[^{}]*)\}", item)
            if found is None:
                grown.append(item)
            else:
                grown += [item[: found.start()] + piece + item[found.end() :] for piece in found[1].split(",")]
        made = grown[:_MAX_FORMS]
    return made


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


def _absolute(text: str, folder: str | None, place: Place) -> str | None:
    """The full path that a text means in a folder; None when the folder is not known."""
    if not text.startswith("/"):
        if folder is None:
            return None
        start = place.home + folder[1:] if folder.startswith("~") else folder
        text = os.path.join(place.cwd, start, text)  # noqa: PTH118 (either may be a full path, which then wins)
    path = os.path.normpath(text)
    return "/" + path.lstrip("/")


def harm(text: str, folder: str | None, place: Place) -> Harm:
    """What is lost with a tree, told by its path."""
    if re.match(r"[A-Za-z]:[\\/]*(\*|Windows|Users)?$", text):
        return "it removes a whole drive"
    base, _ = emptied(text)
    path = _absolute(base, folder, place)
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
    if ".git" not in folded:
        return ""
    at = folded.index(".git")
    owner = "/" + "/".join(names[:at])
    inner = names[at + 1 :]
    if not (contains(owner, place.root) or contains(owner, top)):
        return ""
    if not inner or (len(inner) == 1 and inner[0] in _GIT_PARTS):
        return "it removes the history of the project (.git)"
    return ""
