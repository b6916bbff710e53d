"""Read-only commands that are run on found files: `find -exec` and `xargs`.

The files are not known before the command runs, so the tree is walked and every file that may be found is checked: no
secret is opened, no link leads out of the project, and no name falls apart into several words.
"""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from msgspec import Struct

from odin.core.path_names import is_secret_path
from odin.policy.command_scope import CommandScope
from odin.policy.commands.readonly.expressions import check_find
from odin.policy.commands.syntax import SimpleCommand, split_names
from odin.policy.paths import is_folder, join_path

_MAX_ENTRIES = 30_000
_CONTENT_PROGRAMS = split_names(
    "cat head tail nl tac rev grep egrep fgrep sort cut md5sum sha1sum sha256sum sha512sum cksum"
)
_METADATA_PROGRAMS = split_names("wc ls stat file du basename dirname realpath echo")
FED_PROGRAMS = _CONTENT_PROGRAMS | _METADATA_PROGRAMS
"""Programs that treat all their operands in the same way, as files to read or to describe."""

_RECURSIVE = re.compile(r"-\w*[rR]\w*|--(dereference-)?rec.*")
_SAFE_PATH = re.compile(r"[^\s'\"\\]+")
_BREAKING_WORDS = split_names("-o -or , ( )")
_NOT_PATHS = split_names("-printf -ls")
_ACTIONS = split_names("-print -print0 -exec -prune -quit")
_MAX_SAMPLES = 3


class FoundFiles(Struct, frozen=True):
    """The paths that a command may be given: at least those that will be found.

    `is_splittable`: a path contains a blank or quote, which xargs would take for the end of a word.
    """

    samples: tuple[str, ...]
    has_secrets: bool
    leaves: bool
    is_splittable: bool

    def allows(self, program: str) -> bool:
        """True if this program may be run on the files."""
        return program in FED_PROGRAMS and not self.leaves and not (self.has_secrets and program in _CONTENT_PROGRAMS)


def find_files(words: Sequence[str], scope: CommandScope) -> FoundFiles | None:
    """Return what `find` with these words may find, or None if that cannot be told. The words passed `check_find`."""
    rest = [word for word in words if word not in ("-P", "-H", "-O1", "-O2", "-O3")]
    if "-H" in words or not _NOT_PATHS.isdisjoint(words):
        return None
    starts: list[str] = []
    while rest and not rest[0].startswith(("-", "(", "!")):
        starts.append(rest.pop(0))
    return _walk_all(starts or ["."], scope, *_read_filters(rest))


def _read_filters(words: Sequence[str]) -> tuple[Sequence[tuple[str, bool]], bool]:
    """Return the name patterns that every result matches (and whether in any case), and whether all are files.

    Only tests before the first action count, none if they are alternatives, and a negated test never narrows.
    """
    if not _BREAKING_WORDS.isdisjoint(words):
        return (), False
    words = list(takewhile(lambda word: word not in _ACTIONS, words))
    patterns: list[tuple[str, bool]] = []
    only_files = False
    for index, word in enumerate(words[:-1]):
        negated = index > 0 and words[index - 1] in ("!", "-not")
        value = words[index + 1]
        if negated:
            continue
        if word in ("-name", "-iname") and not set(value) & set("[\\"):
            patterns.append((value, word == "-iname"))
        only_files = only_files or (word == "-type" and value == "f")
    return patterns, only_files


def _walk_all(
    starts: Sequence[str], scope: CommandScope, patterns: Sequence[tuple[str, bool]], only_files: bool
) -> FoundFiles | None:
    samples: list[str] = []
    has_secrets = leaves = is_splittable = False
    budget = _MAX_ENTRIES
    for path, kind in (item for start in starts for item in _walk(start, scope)):
        budget -= 1
        if budget < 0:
            return None
        name = path.rstrip("/").rsplit("/", 1)[-1]
        if (only_files and kind != "file") or not all(_fits(name, glob, any_case) for glob, any_case in patterns):
            continue
        is_splittable = is_splittable or _SAFE_PATH.fullmatch(path) is None
        leaves = leaves or kind == "other" or (kind == "link" and not scope.allows_path(path))
        secret = is_secret_path(join_path(scope.cwd, path)) if kind != "link" else not scope.allows_content(path)
        has_secrets = has_secrets or secret
        if len(samples) < _MAX_SAMPLES and not secret:
            samples.append(path)
    return FoundFiles(tuple(samples), has_secrets, leaves, is_splittable)


def _fits(name: str, glob: str, any_case: bool) -> bool:
    return fnmatchcase(name.casefold(), glob.casefold()) if any_case else fnmatchcase(name, glob)


def _walk(start: str, scope: CommandScope) -> Iterator[tuple[str, str]]:
    """Yield every path below a starting point as find prints it, with its kind: file, folder, link or other."""
    full = join_path(scope.cwd, start)
    if os.path.islink(full):  # noqa: PTH114
        yield start, "link"
        return
    yield start, "folder" if is_folder(full) else "file"
    folders = [start] if is_folder(full) else []
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(join_path(scope.cwd, folder)) as entries:
                listed = list(entries)
        except OSError:
            continue
        for entry in listed:
            path = f"{folder.rstrip('/')}/{entry.name}"
            if entry.is_symlink():
                yield path, "link"
            elif entry.is_dir():
                yield path, "folder"
                folders.append(path)
            else:
                yield path, "file" if entry.is_file() else "other"


def _fill(command: Sequence[str], found: FoundFiles, placeholder: str) -> list[list[str]] | None:
    """Return sample calls of a command with found files, after its words or in place of a placeholder."""
    program, *arguments = command
    if not found.allows(program) or (program.endswith("grep") and any(map(_RECURSIVE.fullmatch, arguments))):
        return None
    samples = found.samples or ("./x",)
    if not placeholder:
        return [[*command, *samples]]
    if any(placeholder in word and word != placeholder for word in command):
        return None
    return [[sample if word == placeholder else word for word in command] for sample in samples]


# --- find -exec ---


def list_find_calls(words: Sequence[str], scope: CommandScope) -> list[list[str]] | None:
    """Return sample calls of the commands that `find -exec` would run; None if one may get a file it must not read."""
    split = _split_actions(words)
    if split is None or not split[1] or not check_find(split[0], scope):
        return None
    found = find_files(words, scope)
    calls: list[list[str]] = []
    for command in split[1]:
        filled = _fill(command, found, "{}") if found is not None else None
        if filled is None:
            return None
        calls += filled
    return calls


def _split_actions(words: Sequence[str]) -> tuple[list[str], list[list[str]]] | None:
    """Return the words of find without -exec, and the command of each -exec; None if one is not complete."""
    rest: list[str] = []
    commands: list[list[str]] = []
    at = 0
    while at < len(words):
        if words[at] != "-exec":
            rest.append(words[at])
            at += 1
            continue
        end = next((index for index in range(at + 1, len(words)) if words[index] in (";", "+")), None)
        if end is None or "{}" not in words[at + 2 : end]:
            return None
        commands.append(list(words[at + 1 : end]))
        at = end + 1
    return rest, commands


# --- xargs ---

_FILTER_OPTIONS = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-[ivwxEFP]+|--ignore-case|--invert-match")),
    **dict.fromkeys(("head", "tail"), re.compile(r"-n?\d+|-n|--lines=\d+")),
    "sort": re.compile(r"-[urnfV]+"),
    "uniq": re.compile(r"-[udi]+"),
}
_LISTED_BY_GIT = split_names("-c -m -o --cached --modified --others --exclude-standard --")


class XargsCall(Struct):
    """The options of xargs: how it splits its input, and the command with its placeholder."""

    command: list[str]
    placeholder: str = ""
    by_null: bool = False


def list_xargs_calls(
    words: Sequence[str], feeds: Sequence[SimpleCommand], scope: CommandScope
) -> list[list[str]] | None:
    """Return sample calls of the command that xargs would run on the output of `feeds`.

    None if the output may be anything but paths that this command may get.
    """
    call = _read_xargs(words)
    found = _find_fed(feeds, scope) if call is not None and feeds else None
    by_null = any(word.text == "-print0" for word in feeds[0].words) if feeds else False
    if call is None or found is None or call.by_null != by_null or (found.is_splittable and not by_null):
        return None
    return _fill(call.command or ["echo"], found, call.placeholder)


def _read_xargs(words: Sequence[str]) -> XargsCall | None:
    call = XargsCall([])
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-0", "--null"):
            call.by_null = True
        elif option in ("-r", "-t", "--no-run-if-empty", "--verbose") or re.fullmatch(r"-[nPL]\d{1,6}", option):
            continue
        elif option in ("-n", "-P", "-L") and rest and rest[0].isdigit():
            rest.pop(0)
        elif option == "-I" and rest and re.fullmatch(r"[{}%@_A-Z]{1,8}", rest[0]):
            call.placeholder = rest.pop(0)
        elif option in ("-I{}", "-I%", "-I@"):
            call.placeholder = option[2:]
        else:
            return None
    call.command = rest
    return call if not call.placeholder or call.placeholder in rest[1:] else None


def _find_fed(feeds: Sequence[SimpleCommand], scope: CommandScope) -> FoundFiles | None:
    """Return the files that the first command of a pipeline lists, if those after it only choose among them."""
    texts = [[word.text for word in simple.words] for simple in feeds]
    if any(not word.literal for simple in feeds for word in simple.words) or any(simple.redirects for simple in feeds):
        return None
    if not all(_is_subset_filter(words) for words in texts[1:]):
        return None
    match texts[0]:
        case ["find", *rest] if check_find(rest, scope):
            return find_files(rest, scope)
        case ["git", "ls-files", *rest] if all(word in _LISTED_BY_GIT or _is_plain(word) for word in rest):
            return _find_below(scope)
        case ["rg" | "grep", *rest] if _is_name_list(rest):
            return _find_below(scope)
        case _:
            return None


def _find_below(scope: CommandScope) -> FoundFiles | None:
    """Return everything below the current folder, for commands that print names without a leading `./`."""
    try:
        if any(name.startswith("-") for name in os.listdir(scope.cwd)):  # noqa: PTH208 (only names are needed)
            return None  # the name would be an option
    except OSError:
        return None
    return _walk_all(["."], scope, (), only_files=False)


def _is_subset_filter(words: Sequence[str]) -> bool:
    """True for a command that prints some of its input lines, in any order, and reads no file."""
    pattern = _FILTER_OPTIONS.get(words[0]) if words else None
    if pattern is None:
        return False
    options = [word for word in words[1:] if word.startswith("-")]
    operands = [word for word in words[1:] if not word.startswith("-")]
    if words[0] in ("head", "tail") and options == ["-n"]:
        operands = operands[1:]
    limit = 1 if words[0].endswith("grep") else 0
    return len(operands) == limit and all(map(pattern.fullmatch, options))


def _is_name_list(words: Sequence[str]) -> bool:
    """True if a search prints the names of files below the current folder, and nothing else."""
    lists = any(re.fullmatch(r"-[rRinwEFs]*l[rRinwEFs]*|--files|--files-with-matches", word) for word in words)
    return lists and all(word.startswith("-") or _is_plain(word) for word in words)


def _is_plain(word: str) -> bool:
    """True for a word that does not lead out of the current folder."""
    return not word.startswith("/") and ".." not in word.split("/")
