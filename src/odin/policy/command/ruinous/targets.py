"""Whether a word names something that must not be lost: the file system, a home, the project, or what lies above it."""

import fnmatch
import re
from collections.abc import Sequence

from odin.policy.command.ruinous.values import SOME_VALUE, UNKNOWN_VALUE, ExpansionContext, expand_word, make_absolute
from odin.policy.command.shapes import ShellWord, split_names
from odin.policy.command.survey import ExtractedCommand
from odin.policy.paths import contains, resolve_path

_SYSTEM_FOLDERS = split_names(
    "bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys usr var "
    "Applications Library System Users Volumes private cores Network nix snap"
)
_SYSTEM_SUBFOLDERS = split_names(
    "usr/bin usr/lib usr/lib32 usr/lib64 usr/sbin usr/share usr/include usr/local usr/libexec usr/src var/lib var/log "
    "var/spool var/cache var/db private/etc private/var System/Library etc/ssh etc/ssl etc/systemd boot/efi boot/grub "
    "lib/modules lib/systemd"
)
_HOME_PARENTS = ("home", "Users")
_GIT_PARTS = split_names("objects refs config HEAD index packed-refs logs")
_MATCH_ALL = re.compile(
    r"\*+|\.\*|\?\*|\.\?\*|\.\.\?\*|\*\.\*|\.\[!?[.^!]+\]\*|\[!?\^?\.\]\*|\.\?\?\*|\{\*,\.\*\}"
    r"|\[!?[^\]]*a-z[^\]]*\]\*|!\([^)]*\)"
)
Harm = str
"""Why a path must not be lost, as the end of a sentence, or ""."""


def find_loss(part: ExtractedCommand, word: ShellWord, context: ExpansionContext) -> Harm:
    """What would be lost with the tree that this word names for certain."""
    for form in expand_word(part, word, context):
        if UNKNOWN_VALUE not in form and SOME_VALUE not in form:
            why = find_path_loss(form, part.folder, context)
            if why:
                return why
    return ""


def find_loss_when_empty(part: ExtractedCommand, word: ShellWord, context: ExpansionContext) -> Harm:
    """What would be lost if the variables of this word were empty."""
    for form in expand_word(part, word, context):
        if UNKNOWN_VALUE in form and form.strip(UNKNOWN_VALUE):
            why = find_path_loss(form.replace(UNKNOWN_VALUE, "").replace(SOME_VALUE, "x"), part.folder, context)
            if why:
                return why
    return ""


def strip_wildcards(text: str) -> tuple[str, bool]:
    """A path without patterns at its end that match everything in a folder, and whether there were any."""
    base = re.sub(r"/+", "/", text)
    everything = False
    while True:
        base = base.rstrip("/") or ("/" if base.startswith("/") else "")
        head, slash, last = base.rpartition("/")
        if not _MATCH_ALL.fullmatch(last):
            return base or ".", everything
        everything = True
        base = head + slash or "."


def find_path_loss(text: str, folder: str | None, context: ExpansionContext) -> Harm:
    """What is lost with a tree, told by its path."""
    if re.match(r"[A-Za-z]:[\\/]*(\*|Windows|Users)?$", text):
        return "it removes a whole drive"
    base, _ = strip_wildcards(text)
    path = make_absolute(base, folder, context)
    if path is None:
        return ""
    return _check_path(path, context) or _check_path(resolve_path(path, "/") or path, context)


def _check_path(path: str, context: ExpansionContext) -> Harm:
    names = [name for name in path.split("/") if name]
    if not names:
        return "it removes the root of the file system"
    if len(names) == 1 and any(fnmatch.fnmatch(top, names[0]) for top in _SYSTEM_FOLDERS):
        return f"it removes the system folder /{names[0]}"
    if "/".join(names) in _SYSTEM_SUBFOLDERS:
        return f"it removes the system folder {path}"
    if (len(names) == 2 and names[0] in _HOME_PARENTS) or contains(path, context.home):
        return "it removes a home folder"
    top = resolve_path(context.root, "/") or context.root
    if path in (context.root, top):
        return "it removes the project itself"
    if contains(path, context.root) or contains(path, top):
        return "it removes a folder that holds the project"
    return _check_repository(names, context, top)


def _check_repository(names: Sequence[str], context: ExpansionContext, top: str) -> Harm:
    folded = [name.casefold() for name in names]
    at = next((index for index, name in enumerate(folded) if _is_git(name)), -1)
    if at < 0:
        return ""
    owner = "/" + "/".join(names[:at])
    inner = names[at + 1 :]
    if not (contains(owner, context.root) or contains(owner, top)):
        return ""
    if not inner or (len(inner) == 1 and inner[0] in _GIT_PARTS):
        return "it removes the history of the project (.git)"
    return ""


def _is_git(name: str) -> bool:
    """A pattern counts when it would match, and begins with the dot that a pattern does not match by itself."""
    return name == ".git" or (name.startswith(".") and any(char in name for char in "*?[") and _fits_git(name))


def _fits_git(pattern: str) -> bool:
    return fnmatch.fnmatchcase(".git", pattern)
