"""What the words of a command stand for, as far as the command line itself tells: variables, homes, folders.

Whether a word names something that must not be lost: the file system, a home, the project, or what lies above it.
"""

import fnmatch
import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from odin.core.path_names import contains
from odin.policy.commands.programs import SHELLS, split_loose_words
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names
from odin.policy.paths import resolve_path

SOME_VALUE = "\1"
"""Stands for something that is not empty, and not known."""
UNKNOWN_VALUE = "\0"
_STAR = "\2"
_DOLLAR = "\3"

_HOME = re.compile(r"~(?=/|$)|\$HOME\b|\$\{HOME(?::?[-?=][^}]*)?\}")
_PARENT = re.compile(r"\$\{PWD%%?/\*\}|\$\(\s*dirname\s+(?:\"?\$PWD\"?|\"?\$\(pwd\)\"?)\s*\)")
_HERE = re.compile(
    r"\$PWD\b|\$\{PWD(?::?[-?=][^}]*)?\}|\$\(\s*pwd\s*(?:-[LP]\s*)?\)|`\s*pwd\s*(?:-[LP]\s*)?`|~\+(?=/|$)"
)
_TOPLEVEL = re.compile(r"\$\(\s*git rev-parse --show-toplevel\s*\)|`\s*git rev-parse --show-toplevel\s*`")
_GIT_FOLDER = re.compile(r"\$\(\s*git rev-parse --(?:absolute-)?git-dir\s*\)|`\s*git rev-parse --git-dir\s*`")
_CD_PATH = re.compile(r"\$\(\s*cd\s+([\w./~-]+)\s*(?:&&|;)\s*pwd\s*\)")
_PRINTED_PATH = re.compile(
    r"(?:\$\(|`)\s*(?:echo(?:\s+-[neE]+)?|printf(?:\s+['\"]?%s(?:\\n)?['\"]?)?|realpath|readlink\s+-\w+)"
    r"\s+['\"]?([\w./~*-]+)['\"]?\s*(?:\)|`)"
)
_LISTED = re.compile(r"(?:\$\(|`)\s*(?:ls(?:\s+-[\w]+)*|find(?:\s+\.)?(?:\s+-(?:maxdepth|mindepth)\s+\d+)*)\s*(?:\)|`)")
_IN_FOLDER = re.compile(r"(?:\$\(|`)\s*dirname\s+[\w.-]+\s*(?:\)|`)")
_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}]+)\}")
_NEVER_EMPTY = re.compile(r"\$\{\w+:?\?[^}]*\}")
_VARIABLE = re.compile(r"\$(\w+|[@*])|\$\{(\w+|[@*])[^}]*\}")
_UNKNOWN_EXPANSION = re.compile(r"\$\([^)]*\)|`[^`]*`|\$[@*#?!$-]")
_MAX_FORMS = 64
_POSITIONAL = [*"@*0123456789"]
_PRINTERS = split_names("echo printf")


class ExpansionContext(Struct, frozen=True):
    """Where a command is judged: the project, the folder it starts in, and the values that its variables may have."""

    root: str
    cwd: str
    home: str
    values: dict[str, tuple[str, ...]]


def context_of(analysis: CommandAnalysis, root: str, cwd: str) -> ExpansionContext:
    values: dict[str, tuple[str, ...]] = {}
    for name, word in analysis.assigned_words:
        _add(values, name, [word])
    for part in analysis.commands:
        if part.name in analysis.functions or part.name == "set" or part.name in SHELLS:
            for name in _POSITIONAL:
                _add(values, name, part.words[1:])
        elif part.name in ("read", "mapfile", "readarray"):
            for word in part.words[1:]:
                _add(values, word.text, _find_readable_words(part, analysis))
    return ExpansionContext(root, cwd or root, str(Path("~").expanduser()), values)


def _add(values: dict[str, tuple[str, ...]], name: str, words: "list[ShellWord] | tuple[ShellWord, ...]") -> None:
    texts = [_freeze_value(word) for word in words if "=" not in word.text][:_MAX_FORMS]
    if texts:
        values[name] = (*values.get(name, ()), *texts)


def _freeze_value(word: ShellWord) -> str:
    """A value in which nothing is replaced any more, if the shell has nothing to replace in it."""
    if word.expands:
        return word.text
    text = word.text.replace("$", _DOLLAR)
    return f"./{text}" if text.startswith("~") else text


def _find_readable_words(part: ExtractedCommand, analysis: CommandAnalysis) -> list[ShellWord]:
    """What `read` may put into a variable: anything that is printed or written out in the same line."""
    texts = list(part.stdin_texts)
    if analysis.script is not None:
        redirects = [item for simple in analysis.script.commands for item in simple.redirects]
        texts += [item.target.text for item in redirects if item.op == "<<<"] + list(analysis.script.bodies)
    words = [word for text in texts for word in split_loose_words(text)]
    words += [word for other in analysis.commands if other.name in _PRINTERS for word in other.words[1:]]
    if any(
        other.texts in (("ls",), ("ls", "-A"), ("ls", "-a"), ("ls", "-1"), ("find", ".")) for other in analysis.commands
    ):
        words.append(ShellWord("*", glob=True))
    return words


def expand_word(part: ExtractedCommand, word: ShellWord, context: ExpansionContext) -> list[str]:
    """What the shell may make of a word, where the unknown is marked as such."""
    text = word.text if word.glob or word.expands else word.text.replace("*", _STAR)
    if not word.expands:
        return [f"./{text}" if text.startswith("~") else text]
    made = [text]
    for _ in range(4):
        made = [form for item in made for form in _with_values(item, context)][:_MAX_FORMS]
    made = [form for item in made for form in _expand_braces(_expand_folders(item, part, context))][:_MAX_FORMS]
    return [
        _UNKNOWN_EXPANSION.sub(UNKNOWN_VALUE, _VARIABLE.sub(UNKNOWN_VALUE, form)).replace(_DOLLAR, "$") for form in made
    ]


def _expand_folders(text: str, part: ExtractedCommand, context: ExpansionContext) -> str:
    """The folders that a word names by a variable or by a command."""
    here = make_absolute("", part.folder, context)
    text = _PRINTED_PATH.sub(lambda found: found[1], text)
    text = _CD_PATH.sub(
        lambda found: make_absolute(_expand_home(found[1], context), part.folder, context) or SOME_VALUE, text
    )
    text = _PARENT.sub(lambda _: f"{here}/.." if here else SOME_VALUE, text)
    text = _HOME.sub(lambda _: context.home, text)
    text = _TOPLEVEL.sub(lambda _: context.root, text)
    text = _GIT_FOLDER.sub(lambda _: f"{context.root}/.git", text)
    text = _HERE.sub(lambda _: here or SOME_VALUE, text)
    text = _IN_FOLDER.sub(".", _LISTED.sub("*", text))
    if re.fullmatch(r"~[\w.-]+(/.*)?", text):
        text = re.sub(r"^~[\w.-]+", lambda _: context.home, text)
    return _NEVER_EMPTY.sub(SOME_VALUE, _DEFAULT.sub(lambda found: _expand_home(found[1].strip("'\""), context), text))


def _expand_home(text: str, context: ExpansionContext) -> str:
    return context.home + text[1:] if text == "~" or text.startswith("~/") else text


def _with_values(text: str, context: ExpansionContext) -> list[str]:
    """The text with the first variable whose value is known replaced by each of its values."""
    for found in _VARIABLE.finditer(text):
        known = context.values.get(found[1] or found[2], ())
        if known and found[0] not in known:
            return [text[: found.start()] + value + text[found.end() :] for value in dict.fromkeys(known)]
    return [text]


def _expand_braces(text: str) -> list[str]:
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


def make_absolute(text: str, folder: str | None, context: ExpansionContext) -> str | None:
    """The full path that a text means in a folder; None when the folder is not known."""
    if not text.startswith("/"):
        if folder is None:
            return None
        start = context.home + folder[1:] if folder.startswith("~") else folder
        text = os.path.join(context.cwd, start, text)  # noqa: PTH118 (either may be a full path, which then wins)
    path = os.path.normpath(text)
    return "/" + path.lstrip("/")


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
