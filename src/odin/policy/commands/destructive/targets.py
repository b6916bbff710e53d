"""Expands the words of a command as far as the command line tells, and checks what would be lost with a path.

Nothing must remove the file system root, a system or home folder, the project, or a folder above it.
"""

import fnmatch
import os
import re
from collections.abc import Sequence

from msgspec import Struct

from odin.core.path_names import contains
from odin.policy.command_scope import CommandScope
from odin.policy.commands.programs import SHELLS, split_loose_words
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names
from odin.policy.paths import resolve_path

SOME_VALUE = "\1"
"""A placeholder for an unknown value that is not empty."""


UNKNOWN_VALUE = "\0"
"""A placeholder for an unknown value that may be empty."""

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
    """The project, the current and the home folder, and the values that variables may have."""

    root: str
    cwd: str
    home: str
    values: dict[str, tuple[str, ...]]


def make_expansion_context(analysis: CommandAnalysis, scope: CommandScope) -> ExpansionContext:
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
    return ExpansionContext(scope.root, scope.cwd, scope.environment.home, values)


def _add(values: dict[str, tuple[str, ...]], name: str, words: "list[ShellWord] | tuple[ShellWord, ...]") -> None:
    texts = [_freeze_value(word) for word in words if "=" not in word.text][:_MAX_FORMS]
    if texts:
        values[name] = (*values.get(name, ()), *texts)


def _freeze_value(word: ShellWord) -> str:
    """Return the value of a word, protected from further expansion if it is literal."""
    if word.expands:
        return word.text
    text = word.text.replace("$", _DOLLAR)
    return f"./{text}" if text.startswith("~") else text


def _find_readable_words(part: ExtractedCommand, analysis: CommandAnalysis) -> list[ShellWord]:
    """Return the words that `read` may assign: anything printed in the same command line."""
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
    """Return the possible expansions of a word, with placeholders for unknown values."""
    text = word.text if word.glob or word.expands else word.text.replace("*", _STAR)
    if not word.expands:
        return [f"./{text}" if text.startswith("~") else text]
    forms = [text]
    for _ in range(4):
        forms = [form for item in forms for form in _with_values(item, context)][:_MAX_FORMS]
    forms = [form for item in forms for form in _expand_braces(_expand_folders(item, part, context))][:_MAX_FORMS]
    return [
        _UNKNOWN_EXPANSION.sub(UNKNOWN_VALUE, _VARIABLE.sub(UNKNOWN_VALUE, form)).replace(_DOLLAR, "$")
        for form in forms
    ]


def _expand_folders(text: str, part: ExtractedCommand, context: ExpansionContext) -> str:
    """Replace the variables and commands that name folders, such as `$PWD` and `$(pwd)`."""
    current = make_absolute("", part.folder, context)
    text = _PRINTED_PATH.sub(lambda match: match[1], text)
    text = _CD_PATH.sub(
        lambda match: make_absolute(_expand_home(match[1], context), part.folder, context) or SOME_VALUE, text
    )
    text = _PARENT.sub(lambda _: f"{current}/.." if current else SOME_VALUE, text)
    text = _HOME.sub(lambda _: context.home, text)
    text = _TOPLEVEL.sub(lambda _: context.root, text)
    text = _GIT_FOLDER.sub(lambda _: f"{context.root}/.git", text)
    text = _HERE.sub(lambda _: current or SOME_VALUE, text)
    text = _IN_FOLDER.sub(".", _LISTED.sub("*", text))
    if re.fullmatch(r"~[\w.-]+(/.*)?", text):
        text = re.sub(r"^~[\w.-]+", lambda _: context.home, text)
    return _NEVER_EMPTY.sub(SOME_VALUE, _DEFAULT.sub(lambda match: _expand_home(match[1].strip("'\""), context), text))


def _expand_home(text: str, context: ExpansionContext) -> str:
    return context.home + text[1:] if text == "~" or text.startswith("~/") else text


def _with_values(text: str, context: ExpansionContext) -> list[str]:
    """Return the text with the first known variable replaced by each of its values."""
    for match in _VARIABLE.finditer(text):
        known = context.values.get(match[1] or match[2], ())
        if known and match[0] not in known:
            return [text[: match.start()] + value + text[match.end() :] for value in dict.fromkeys(known)]
    return [text]


def _expand_braces(text: str) -> list[str]:
    forms = [text]
    for _ in range(4):
        grown: list[str] = []
        for item in forms:
            match = re.search(r"(?<!\$)\{([^{}]*,[^{}]*)\}", item)
            if match is None:
                grown.append(item)
            else:
                grown += [item[: match.start()] + piece + item[match.end() :] for piece in match[1].split(",")]
        forms = grown[:_MAX_FORMS]
    return forms


def make_absolute(text: str, folder: str | None, context: ExpansionContext) -> str | None:
    """Return the absolute path of a text relative to a folder, or None if the folder is unknown."""
    if not text.startswith("/"):
        if folder is None:
            return None
        start = context.home + folder[1:] if folder.startswith("~") else folder
        text = os.path.join(context.cwd, start, text)  # noqa: PTH118 (an absolute part replaces those before it)
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
"""Why something must not run, as a clause ("it removes ..."), or ""."""


def find_loss(part: ExtractedCommand, word: ShellWord, context: ExpansionContext) -> Harm:
    """Return what would be lost with a path that the word certainly names."""
    for form in expand_word(part, word, context):
        if UNKNOWN_VALUE not in form and SOME_VALUE not in form:
            why = find_path_loss(form, part.folder, context)
            if why:
                return why
    return ""


def find_loss_when_empty(part: ExtractedCommand, word: ShellWord, context: ExpansionContext) -> Harm:
    """Return what would be lost if the unknown variables of a word are empty."""
    for form in expand_word(part, word, context):
        if UNKNOWN_VALUE in form and form.strip(UNKNOWN_VALUE):
            why = find_path_loss(form.replace(UNKNOWN_VALUE, "").replace(SOME_VALUE, "x"), part.folder, context)
            if why:
                return why
    return ""


def strip_wildcards(text: str) -> tuple[str, bool]:
    """Return a path without trailing globs that match everything, and whether there were any."""
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
    """Return what would be lost with a path."""
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
        return "it removes a folder that contains the project"
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
    """True for `.git` or a glob that matches it. The glob must start with a dot, since `*` skips hidden files."""
    return name == ".git" or (name.startswith(".") and any(char in name for char in "*?[") and _fits_git(name))


def _fits_git(pattern: str) -> bool:
    return fnmatch.fnmatchcase(".git", pattern)
