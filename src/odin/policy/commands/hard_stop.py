"""Commands that would destroy the machine, a disk, a home folder or the project.

No mode, flag or rule allows these. The check stops accidents that cannot be undone, not malice: it knows the usual
programs, and what their words name as far as that is written out or assigned in the same text.
"""

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from odin.core.path_names import contains
from odin.policy.command_scope import CommandScope
from odin.policy.commands.programs import split_loose_words
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names
from odin.policy.paths import resolve_path

Harm = str
"""Why something must not run, as a clause ("it removes ..."), or ""."""

_FORK_BOMB = re.compile(
    r"([\w:.]{1,32})\s*\(\s*\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*[;\n]\s*\1"
    r"|\b(\w{1,32})\s*\(\s*\)\s*\{\s*\2\s*&\s*\2\s*&?\s*;?\s*\}"
)


def find_harm(command: str, analysis: CommandAnalysis, scope: CommandScope) -> Harm:
    """Return why this command must never run, as a clause ("it ..."), or ""."""
    context = _make_context(analysis, scope)
    if "(" in command and _FORK_BOMB.search(command):
        return "it is a fork bomb"
    for redirect in analysis.writes:
        for form in _expand_word(ExtractedCommand(()), redirect.target, context):
            if _is_disk(form):
                return _DISK_HARM
    parts = [*analysis.commands, *(part for text in analysis.unreadable_texts for part in _read_loosely(text))]
    if analysis.script is None:
        parts += _read_loosely(command)
    for part in dict.fromkeys(parts):
        check = _CHECKS.get(part.name.casefold()) or (_check_format if part.name.startswith("mkfs") else None)
        why = check(part, context) if check is not None and part.words[0].literal else ""
        if why:
            return why
    for part, taker, remover in zip(parts, parts[1:], parts[2:], strict=False):
        is_fed = part.name in ("find", "ls") and taker.name == "xargs" and remover.is_open
        why = _find_listed_loss(part, context) if is_fed and remover.name in _REMOVERS else ""
        if why:
            return why
    return ""


_LOOSE_CUT = re.compile(r"[;&|\n()`{}]+")
_LEADING_WORDS = split_names("sudo then do else ! time exec command")


def _read_loosely(text: str) -> Iterator[ExtractedCommand]:
    """Yield the commands of a text that could not be parsed, cut at everything that may separate them."""
    for piece in dict.fromkeys(map(str.strip, _LOOSE_CUT.split(text))):
        words = split_loose_words(piece)
        while words and words[0].text in _LEADING_WORDS:
            words = words[1:]
        if words:
            yield ExtractedCommand(tuple(words))


def find_risk(analysis: CommandAnalysis, scope: CommandScope) -> Harm:
    """Return the risk of a removal whose target is not literal, as a clause, or ""."""
    context = _make_context(analysis, scope)
    for part in analysis.commands:
        if part.name not in _REMOVERS or not _is_recursive(part):
            continue
        for word in _list_operands(part.words[1:]):
            why = _find_loss_when_empty(part, word, context)
            if why:
                return f"if the variable in {word.text!r} is empty, {why}"
            if part.folder is None and _strip_wildcards(word.text) in (".", ".."):
                return "it removes the contents of an unknown folder"
    return ""


# --- what a word names ---

_SOME_VALUE = "\1"
"""A placeholder for an unknown value that is not empty."""

_UNKNOWN_VALUE = "\0"
"""A placeholder for an unknown value that may be empty."""

_HOME = re.compile(r"~(?=/|$)|\$HOME\b|\$\{HOME(?::?[-?=][^}]*)?\}")
_HERE = re.compile(r"\$PWD\b|\$\{PWD(?::?[-?=][^}]*)?\}|\$\(\s*pwd\s*\)|`\s*pwd\s*`|~\+(?=/|$)")
_TOPLEVEL = re.compile(r"\$\(\s*git rev-parse --show-toplevel\s*\)|`\s*git rev-parse --show-toplevel\s*`")
_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}]+)\}")
_NEVER_EMPTY = re.compile(r"\$\{\w+:?\?[^}]*\}")
_VARIABLE = re.compile(r"\$(\w+|[@*])|\$\{(\w+|[@*])[^}]*\}")
_SUBSTITUTION = re.compile(r"\$\([^)]*\)|`[^`]*`|\$[@*#?!$-]")
_BRACES = re.compile(r"(?<!\$)\{([^{}]*,[^{}]*)\}")
_MAX_FORMS = 64


class _Context(Struct, frozen=True):
    """The roots, the current and the home folder, and the values that variables get in the same text."""

    root: str
    roots: tuple[str, ...]
    cwd: str
    home: str
    values: dict[str, list[str]]


def _make_context(analysis: CommandAnalysis, scope: CommandScope) -> _Context:
    values: dict[str, list[str]] = {}
    for name, word in analysis.assigned_words:
        values.setdefault(name, []).append(word.text)
    return _Context(scope.root, scope.folders, scope.cwd, scope.environment.home, values)


def _expand_word(part: ExtractedCommand, word: ShellWord, context: _Context) -> list[str]:
    """Return the possible expansions of a word, with placeholders for unknown values."""
    if not word.expands:
        text = word.text if word.glob else word.text.replace("*", _SOME_VALUE)
        return [f"./{text}" if text.startswith("~") else text]
    forms = [word.text]
    for _ in range(3):
        forms = [form for item in forms for form in _insert_values(item, context)][:_MAX_FORMS]
    current = _make_absolute("", part.folder, context) or _SOME_VALUE
    expanded: list[str] = []
    for form in forms:
        text = _DEFAULT.sub(lambda match: match[1].strip("'\""), form)
        text = _HOME.sub(lambda _: context.home, text)
        text = _HERE.sub(lambda _: current, _TOPLEVEL.sub(lambda _: context.root, text))
        text = re.sub(r"^~[\w.-]+", lambda _: context.home, _NEVER_EMPTY.sub(_SOME_VALUE, text))
        text = _SUBSTITUTION.sub(_UNKNOWN_VALUE, _VARIABLE.sub(_UNKNOWN_VALUE, text))
        expanded += _expand_braces(text)
    return expanded[:_MAX_FORMS]


def _insert_values(text: str, context: _Context) -> list[str]:
    """Return the text with the first known variable replaced by each of its values."""
    for match in _VARIABLE.finditer(text):
        known = context.values.get(match[1] or match[2], [])
        if known and match[0] not in known:
            return [text[: match.start()] + value + text[match.end() :] for value in dict.fromkeys(known)]
    return [text]


def _expand_braces(text: str) -> list[str]:
    match = _BRACES.search(text)
    if match is None:
        return [text]
    pieces = match[1].split(",")[:_MAX_FORMS]
    return [form for piece in pieces for form in _expand_braces(text[: match.start()] + piece + text[match.end() :])][
        :_MAX_FORMS
    ]


def _make_absolute(text: str, folder: str | None, context: _Context) -> str | None:
    """Return the absolute path of a text relative to a folder, or None if the folder is unknown."""
    if not text.startswith("/"):
        if folder is None:
            return None
        start = context.home + folder[1:] if folder.startswith("~") else folder
        text = os.path.join(context.cwd, start, text)  # noqa: PTH118 (an absolute part replaces those before it)
    return "/" + os.path.normpath(text).lstrip("/")


# --- what would be lost ---

_SYSTEM_FOLDERS = split_names(
    "bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys usr var "
    "Applications Library System Users Volumes private cores Network nix snap"
)
_SYSTEM_SUBFOLDERS = split_names(
    "usr/bin usr/lib usr/lib32 usr/lib64 usr/sbin usr/share usr/include usr/local usr/libexec usr/src var/lib var/log "
    "var/spool var/cache var/db private/etc private/var System/Library etc/ssh etc/ssl etc/systemd boot/efi boot/grub "
    "lib/modules lib/systemd"
)
_GIT_PARTS = split_names("objects refs config HEAD index packed-refs logs")
_MATCH_ALL = re.compile(
    r"\*+|\.\*|\?\*|\.\?\*|\.\.\?\*|\*\.\*|\.\[!?[.^!]+\]\*|\[!?\^?\.\]\*|\.\?\?\*|\[!?[^\]]*a-z[^\]]*\]\*|!\([^)]*\)"
)


def _find_loss(part: ExtractedCommand, word: ShellWord, context: _Context) -> Harm:
    """Return what would be lost with a path that the word certainly names."""
    for form in _expand_word(part, word, context):
        if _UNKNOWN_VALUE not in form and _SOME_VALUE not in form:
            why = _find_path_loss(form, part.folder, context)
            if why:
                return why
    return ""


def _find_loss_when_empty(part: ExtractedCommand, word: ShellWord, context: _Context) -> Harm:
    """Return what would be lost if the unknown variables of a word are empty."""
    for form in _expand_word(part, word, context):
        if _UNKNOWN_VALUE in form and form.strip(_UNKNOWN_VALUE):
            text = form.replace(_UNKNOWN_VALUE, "").replace(_SOME_VALUE, "x")
            why = _find_path_loss(text, part.folder, context)
            if why:
                return why
    return ""


def _strip_wildcards(text: str) -> str:
    """Return a path without trailing globs that match everything."""
    base = re.sub(r"/+", "/", text)
    while True:
        base = base.rstrip("/") or ("/" if base.startswith("/") else "")
        head, slash, last = base.rpartition("/")
        if not _MATCH_ALL.fullmatch(last):
            return base or "."
        base = head + slash or "."


def _find_path_loss(text: str, folder: str | None, context: _Context) -> Harm:
    path = _make_absolute(_strip_wildcards(text), folder, context)
    if path is None:
        return ""
    return _check_path(path, context) or _check_path(resolve_path(path, "/") or path, context)


def _check_path(path: str, context: _Context) -> Harm:
    names = [name for name in path.split("/") if name]
    if not names:
        return "it removes the root of the file system"
    if len(names) == 1 and any(fnmatch.fnmatch(top, names[0]) for top in _SYSTEM_FOLDERS):
        return f"it removes the system folder /{names[0]}"
    if "/".join(names) in _SYSTEM_SUBFOLDERS:
        return f"it removes the system folder {path}"
    if (len(names) == 2 and names[0] in ("home", "Users")) or contains(path, context.home):
        return "it removes a home folder"
    tops = (*context.roots, resolve_path(context.root, "/") or context.root)
    if path in tops:
        return "it removes the project itself" if path in (tops[0], tops[-1]) else "it removes a folder of this session"
    if any(contains(path, top) for top in tops):
        return "it removes a folder that contains the project"
    at = next((index for index, name in enumerate(names) if _is_git(name.casefold())), -1)
    owner, inner = "/" + "/".join(names[:at]), names[at + 1 :]
    is_own = at >= 0 and any(contains(owner, top) for top in tops)
    if is_own and (not inner or (len(inner) == 1 and inner[0] in _GIT_PARTS)):
        return "it removes the history of the project (.git)"
    return ""


def _is_git(name: str) -> bool:
    """True for `.git` or a glob that matches it. The glob must start with a dot, since `*` skips hidden files."""
    is_glob = name.startswith(".") and any(char in name for char in "*?[")
    return name == ".git" or (is_glob and fnmatch.fnmatchcase(".git", name))


# --- programs that remove, move or change trees ---

_Check = Callable[[ExtractedCommand, _Context], Harm]

_REMOVERS = split_names("rm grm srm unlink shred rimraf trash trash-put")
_ALWAYS_RECURSIVE = split_names("rimraf trash trash-put")
_NARROWING = re.compile(
    r"-(?:i?name|i?path|i?wholename|i?regex|[ac]?newer\w*|[acm](?:time|min)|size|empty|user|group|[ug]id|no(?:user|group)|perm"
    r"|inum|links|samefile|i?lname|used)"
)
_ANYTHING = re.compile(r"[*?./]*")


def _list_options(words: Sequence[ShellWord]) -> set[str]:
    """Return short options as letters and long ones by name, up to `--`."""
    options: set[str] = set()
    for word in words:
        if word.text == "--":
            break
        if word.text.startswith("--"):
            options.add(word.text.split("=", 1)[0])
        elif word.text.startswith("-"):
            options.update(word.text[1:])
    return options


def _list_operands(words: Sequence[ShellWord]) -> list[ShellWord]:
    for index, word in enumerate(words):
        if word.text == "--":
            return [*_list_operands(words[:index]), *words[index + 1 :]]
    return [word for word in words if not word.text.startswith("-") or word.text == "-"]


def _has_long_option(options: set[str], name: str, least: int) -> bool:
    """True if a long option is given, in full or abbreviated to at least `least` characters."""
    return any(len(item) >= least and name.startswith(item) for item in options if item.startswith("--"))


def _is_recursive(part: ExtractedCommand) -> bool:
    options = _list_options(part.words[1:])
    return (
        part.name in _ALWAYS_RECURSIVE
        or bool(options & {"r", "R"})
        or _has_long_option(options, "--recursive", 3)
        or _has_long_option(options, "--no-preserve-root", 4)
    )


def _check_removal(part: ExtractedCommand, context: _Context) -> Harm:
    if not _is_recursive(part):
        return ""
    for word in _list_operands(part.words[1:]):
        why = _find_loss(part, word, context)
        if why:
            return why
        if word.glob and re.search(r"/[*.?]", word.text) and _find_loss_when_empty(part, word, context):
            return f"it removes everything if the variable in {word.text!r} is empty"
    if _has_long_option(_list_options(part.words[1:]), "--no-preserve-root", 6):
        return "it may remove the root of the file system (--no-preserve-root)"
    return ""


def _check_find(part: ExtractedCommand, context: _Context) -> Harm:
    """Check find with -delete or a removing -exec, unless a test narrows down the matches."""
    texts = part.texts[1:]
    running = next((at for at, text in enumerate(texts) if text in ("-exec", "-execdir", "-ok", "-okdir")), len(texts))
    removes = any(text.rsplit("/", 1)[-1] in _REMOVERS or re.search(r"\brm\s", text) for text in texts[running:])
    if "-delete" not in texts and not (removes and any("{}" in text for text in texts)):
        return ""
    return _find_listed_loss(part, context)


def _find_listed_loss(part: ExtractedCommand, context: _Context) -> Harm:
    """Return what would be lost with everything that find or ls lists."""
    texts = part.texts[1:]
    starts: list[ShellWord] = []
    for word in part.words[1:]:
        if word.text not in ("-L", "-H", "-P") and word.text.startswith(("-", "(", "!")):
            break
        starts += [] if word.text.startswith("-") else [word]
    narrowed = any(
        _NARROWING.fullmatch(text)
        and texts[at - 1] not in ("!", "-not")
        and not (text.endswith(("name", "path", "regex")) and _ANYTHING.fullmatch("".join(texts[at + 1 : at + 2])))
        for at, text in enumerate(texts)
    )
    for word in starts or [ShellWord(".")]:
        why = _find_loss(part, word, context)
        if why and (not narrowed or why.startswith(("it removes the root", "it removes the system"))):
            return why
    return ""


def _check_move(part: ExtractedCommand, context: _Context) -> Harm:
    """Check mv of a vital folder, or of anything to the null device."""
    words = _list_operands(part.words[1:])
    if len(words) > 1 and words[-1].text == "/dev/null":
        return "it moves files to the null device"
    for word in words[:-1]:
        why = _find_loss(part, word, context)
        is_contents = word.glob and not word.text.startswith(("/", "~", "$"))
        if why and not is_contents and ".git" not in word.text:
            return why.replace("removes", "moves away", 1)
    return ""


def _check_rsync(part: ExtractedCommand, context: _Context) -> Harm:
    removes = any(text.startswith(("--del", "--remove-source")) for text in part.texts)
    words = _list_operands(part.words[1:]) if removes else []
    return _find_loss(part, words[-1], context) if words else ""


def _check_mode_change(part: ExtractedCommand, context: _Context) -> Harm:
    """Check chmod, chown and similar commands with a recursive option."""
    options = _list_options(part.words[1:])
    if "R" not in options and not _has_long_option(options, "--recursive", 4):
        return ""
    for word in _list_operands(part.words[1:]):
        why = _find_loss(part, word, context)
        if why and not why.endswith(("the project itself", "(.git)")):
            return why.replace("removes", "changes the permissions of", 1)
    return ""


# --- disks, shutdown and processes ---

_DISK_PATH = re.compile(
    r"/dev/(?:(?:sd|hd|vd|xvd)[a-z*?\[]|nvme\d|nvme[*?\[]|mmcblk|r?disk\d|disk/|mapper/|dm-|md\d|sr\d|zd\d|nbd\d|loop\d"
    r"|block/|k?mem$|port$|mtd|pmem|root$)"
)
_DISK_HARM = "it overwrites a disk"
_PARTITION_HARM = "it changes the partitions or the contents of a disk"
_SHUTDOWN_HARM = "it stops the machine"


def _is_disk(text: str) -> bool:
    return text.startswith("/") and _DISK_PATH.match("/" + os.path.normpath(text).lstrip("/")) is not None


def _check_disk_target(part: ExtractedCommand, context: _Context) -> Harm:
    for word in part.words[1:]:
        target = ShellWord(word.text.removeprefix("of="), word.expands, word.glob)
        if any(_is_disk(form) for form in _expand_word(part, target, context)):
            return _DISK_HARM
    return ""


def _check_copy(part: ExtractedCommand, context: _Context) -> Harm:
    """cp and install write to their last operand."""
    words = _list_operands(part.words[1:])[-1:]
    return _check_disk_target(ExtractedCommand((part.words[0], *words)), context)


def _is_help_request(part: ExtractedCommand) -> bool:
    return bool(part.texts[1:]) and {"--help", "--version", "-h", "-V"}.issuperset(part.texts[1:])


def _check_format(part: ExtractedCommand, context: _Context) -> Harm:
    return "" if _is_help_request(part) else "it formats a disk"


def _check_shutdown(part: ExtractedCommand, context: _Context) -> Harm:
    return "" if _is_help_request(part) or "-c" in part.texts else _SHUTDOWN_HARM


def _make_word_check(words: str, why: str, skipped: int = 1) -> _Check:
    harmful = split_names(words)
    return lambda part, context: why if harmful.intersection(part.texts[skipped:]) else ""


_CHECKS: dict[str, _Check] = {
    **dict.fromkeys(_REMOVERS - {"shred"}, _check_removal),
    **dict.fromkeys(("find", "bfs"), _check_find),
    "mv": _check_move,
    "rsync": _check_rsync,
    **dict.fromkeys(("chmod", "chown", "chgrp", "chattr", "setfacl"), _check_mode_change),
    **dict.fromkeys(("dd", "dcfldd", "tee", "truncate", "shred", "blkdiscard", "mkswap"), _check_disk_target),
    "wipefs": _make_word_check("-a --all -o --offset", _DISK_HARM),
    **dict.fromkeys(("cp", "install"), _check_copy),
    "parted": _make_word_check("mklabel mktable rm mkpart resizepart", _PARTITION_HARM),
    "sgdisk": _make_word_check("-Z -z --zap --zap-all -o --clear", _PARTITION_HARM),
    "sfdisk": _make_word_check("--delete --wipe", _PARTITION_HARM),
    "cryptsetup": _make_word_check("luksFormat erase luksErase reencrypt", _PARTITION_HARM),
    "nvme": _make_word_check("format sanitize", _PARTITION_HARM),
    "zpool": _make_word_check("destroy labelclear", _PARTITION_HARM),
    "zfs": _make_word_check("destroy", _PARTITION_HARM),
    "diskutil": _make_word_check("eraseDisk eraseVolume zeroDisk secureErase partitionDisk", _PARTITION_HARM),
    **dict.fromkeys(("lvremove", "vgremove", "pvremove", "newfs", "mke2fs"), _check_format),
    "kill": _make_word_check("-1", "it ends every process of the user", 2),
    "systemctl": _make_word_check("poweroff reboot halt kexec emergency rescue", _SHUTDOWN_HARM),
    **dict.fromkeys(("init", "telinit"), _make_word_check("0 6", _SHUTDOWN_HARM)),
    **dict.fromkeys(("shutdown", "reboot", "poweroff", "halt"), _check_shutdown),
    "crontab": _make_word_check("-r", "it removes all scheduled jobs"),
}


# --- git ---

_GIT_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
_UNCOMMITTED_HARM = "it discards uncommitted changes"


def find_discard_harm(analysis: CommandAnalysis) -> Harm:
    """Return what a git command would discard, as a clause, or ""."""
    return next((why for part in analysis.commands if part.name == "git" and (why := _check_git(part.texts[1:]))), "")


def _check_git(texts: Sequence[str]) -> Harm:
    rest = list(texts)
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _GIT_VALUED else rest[1:]
    verb, arguments = (rest[0] if rest else ""), set(rest[1:])
    letters = {letter for text in arguments if text.startswith("-") and not text.startswith("--") for letter in text}
    match verb:
        case "clean" if "f" in letters or "--force" in arguments:
            return "it removes untracked files"
        case "stash" if arguments & {"drop", "clear"}:
            return "it discards stashed changes"
        case "reset" if arguments & {"--hard", "--merge", "--keep"}:
            return _UNCOMMITTED_HARM
        case "checkout" | "switch" if arguments & {"-f", "--force", "--discard-changes", "--", "."}:
            return _UNCOMMITTED_HARM
        case "restore" if (
            not ("S" in letters or "--staged" in arguments) or "W" in letters or "--worktree" in arguments
        ):
            return _UNCOMMITTED_HARM
        case _:
            return ""
