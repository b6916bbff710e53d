"""The short list: about 40 programs that only read, as long as they are written out plainly.

A command of the list runs in the read-only profile of the sandbox, which costs less than a view. There the kernel is
the guard and the list only a hint. Without a sandbox the list is the only guard, and the checks are `strict`: a name
must mean a program of the system and not one of the project, a search must have no secret file below its folders, and
git must find nothing in the repository that makes it run another program.

Plain means: literal words and globs, joined by pipes, `&&`, `||`, `;` and newlines; no output to files; and operands
inside the project or the temporary folders.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from odin.core.path_names import contains, is_secret_path
from odin.policy.command_scope import CommandScope
from odin.policy.commands.globs import MAX_MATCHES, expand_glob
from odin.policy.commands.syntax import Redirect, ShellWord, SimpleCommand, split_names
from odin.policy.paths import look_up_once, resolve_path

OperandKind = Literal["files", "names", "pattern", "words"]


class Reader(Struct, frozen=True):
    """What one program of the list may be given.

    Its operands are `files` that it prints, `names` of which it shows only facts such as the size, a `pattern` and then
    files, or `words` that are no files. `numbers` and `values` are the short options that take a number or a text.
    `refused` are short options that write a file, run a program or never end; `refused_names` are such long options.
    """

    operands: OperandKind = "files"
    numbers: str = ""
    values: str = ""
    refused: str = ""
    refused_names: str = ""


class PlainCall(Struct, frozen=True):
    """A program of the list with the paths it is given. `shows_content`: it prints what is in them.

    `searches`: also in every file below them.
    """

    name: str
    paths: tuple[str, ...] = ()
    shows_content: bool = True
    searches: bool = False


_GREP = Reader("pattern", "ABCm", "e", "fdDR", "file directories devices regexp dereference-recursive")
_READERS: dict[str, Reader] = {
    **dict.fromkeys(split_names("cat tac nl rev cmp comm paste expand wc"), Reader()),
    "fold": Reader(numbers="w"),
    "head": Reader(numbers="nc"),
    "tail": Reader(numbers="nc", refused="fF", refused_names="follow retry"),
    "cut": Reader(values="dfcb"),
    "uniq": Reader(numbers="fsw"),
    "sort": Reader(values="kt", refused="oTS", refused_names="output temporary-directory compress-program"),
    "column": Reader(values="so", numbers="c"),
    "od": Reader(values="At", numbers="jN"),
    "diff": Reader(values="xI", numbers="UC", refused="l", refused_names="paginate"),
    **dict.fromkeys(split_names("ls df readlink realpath"), Reader("names")),
    "stat": Reader("names", values="c"),
    "du": Reader("names", numbers="d"),
    "tree": Reader("names", values="IP", numbers="L", refused="oR", refused_names="output fromfile"),
    "file": Reader("names", refused="fmCzZS", refused_names="files-from magic-file compile uncompress no-sandbox"),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
    "rg": Reader("pattern", "ABCmMj", "egtTrE", "fzL", "file pre hostname-bin search-zip follow regexp"),
    "jq": Reader("pattern", refused="fL", refused_names="from-file library-path slurpfile rawfile argfile run-tests"),
    **dict.fromkeys(
        split_names("echo pwd true false : seq sleep which type whoami id uname nproc basename dirname tr"),
        Reader("words"),
    ),
    "printf": Reader("words", refused="v"),
    "date": Reader("words", values="d", refused="sfrz", refused_names="set file reference"),
}
_BUILTINS = split_names("echo pwd true false : type printf [ test cd command")
_NUMBER = re.compile(r"[-+]?\d+[A-Za-z]*")
_JQ_REACH = re.compile(r"\b(?:env|import|include|input_filename|getpath|debug)\b|\$ENV|\$__")
_FIND_ACTIONS = split_names("-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from")
_TEST_OPERATORS = split_names("= == != ! ( ) -a -o -eq -ne -lt -le -gt -ge -nt -ot -ef")
_SAFE_ASSIGNMENT = re.compile(r"(?:LANG|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|TERM|COLUMNS)=[\w.,:@+/-]*")
_MAX_SEARCHED = 20_000


def read_call(words: Sequence[ShellWord]) -> PlainCall | None:
    """Return a command of the list with the paths it is given; None if it is not on the list."""
    words = _strip_prefixes(words)
    if not words or not all(not word.expands for word in words) or words[0].glob:
        return None
    folder, _, name = words[0].text.rpartition("/")
    if folder not in ("", "/bin", "/usr/bin"):
        return None
    return _read_arguments(name, [word.text for word in words[1:]])


def _strip_prefixes(words: Sequence[ShellWord]) -> Sequence[ShellWord]:
    """Return the words without harmless assignments and a time limit before them."""
    while words and words[0].literal and _SAFE_ASSIGNMENT.fullmatch(words[0].text):
        words = words[1:]
    is_timed = len(words) > 2 and words[0].text == "timeout" and _NUMBER.fullmatch(words[1].text)
    return words[2:] if is_timed else words


def _read_arguments(name: str, texts: list[str]) -> PlainCall | None:
    match name:
        case "git":
            return _read_git(texts)
        case "find":
            is_acting = not _FIND_ACTIONS.isdisjoint(texts)
            paths = tuple(text for text in texts if not text.startswith(("-", "(", ")", "!")))
            return None if is_acting else PlainCall(name, paths, shows_content=False)
        case "test" | "[":
            if any(text == "-v" or set(text) & set("$`[") for text in texts):
                return None
            paths = (text for text in texts if text not in _TEST_OPERATORS and text != "]" and not text.startswith("-"))
            return PlainCall(name, tuple(paths), shows_content=False)
        case "command":
            return PlainCall(name) if texts[:1] in (["-v"], ["-V"]) else None
        case _:
            reader = _READERS.get(name)
            return _read_options(name, reader, texts) if reader is not None else None


def _read_options(name: str, reader: Reader, texts: list[str]) -> PlainCall | None:
    operands: list[str] = []
    paths: list[str] = []
    given: set[str] = set()
    rest = list(texts)
    while rest:
        text = rest.pop(0)
        if text == "--":
            operands += rest
            break
        if text.startswith("--"):
            option, _, value = text[2:].partition("=")
            if any(refused.startswith(option) for refused in reader.refused_names.split()):
                return None
            given.add(option)
            paths += [value] if value else []
        elif text.startswith("-") and len(text) > 1:
            if not text[1:].isdigit() and not _read_letters(text[1:], rest, reader, given):
                return None
        else:
            operands.append(text)
    if (name == "uniq" and len(operands) > 1) or (name == "date" and any(text[:1] != "+" for text in operands)):
        return None  # the second file is written; the time is set
    if name == "jq" and any(map(_JQ_REACH.search, operands)):
        return None
    is_pattern = reader.operands == "pattern" and not given & {"e", "files", "type-list"}
    paths += () if reader.operands == "words" else operands[1:] if is_pattern else operands
    searches = name == "rg" or (
        name.endswith(("grep", "diff")) and any(option in ("r", "R") or option.startswith("rec") for option in given)
    )
    return PlainCall(name, tuple(paths or (".",) * searches), reader.operands != "names", searches)


def _read_letters(letters: str, rest: list[str], reader: Reader, given: set[str]) -> bool:
    """Read short options and take their value, from the same word or the next one. Return False for a refused one."""
    for at, letter in enumerate(letters):
        given.add(letter)
        if letter in reader.refused:
            return False
        if letter in reader.numbers + reader.values:
            value = letters[at + 1 :] or (rest.pop(0) if rest else "")
            return letter in reader.values or _NUMBER.fullmatch(value) is not None
    return True


_GIT_VERBS = split_names(
    "status log diff show rev-parse rev-list ls-files ls-tree blame describe shortlog cat-file merge-base name-rev "
    "--version branch tag reflog remote stash worktree"
)
_GIT_REFUSED = tuple(split_names("output ext-diff exec upload-pack receive-pack open-files-in-pager no-index textconv"))
_QUERY = r"--(?:list|(?:no-)?(?:merged|contains)|points-at)"
_GIT_LISTINGS = {
    "branch": r"(?: (?:-[arvq]+|--(?:all|remotes|show-current|verbose|sort=\S+|format=\S+)))*"
    rf"(?: {_QUERY}(?: [^-]\S*)*)?",
    "tag": rf"(?: (?:-n\d*|--(?:sort=\S+|format=\S+)))*(?: (?:-l|{_QUERY})(?: [^-]\S*)*)?",
    "reflog": r"(?: show)?(?: -n? ?\d+)?",
    "remote": r"(?: -v| --verbose| get-url [^-]\S*)?",
    "stash": r" list| show(?: -p| --stat)?(?: stash@\{\d+\})?",
    "worktree": r" list(?: --porcelain)?",
}
"""The words after these commands of git with which they list something and change nothing."""


def _read_git(texts: list[str]) -> PlainCall | None:
    rest = list(texts)
    while rest and rest[0] in ("--no-pager", "-P"):
        rest.pop(0)
    verb, arguments = (rest[0], rest[1:]) if rest else ("", [])
    listing = _GIT_LISTINGS.get(verb)
    if verb not in _GIT_VERBS or (listing and any(re.search(r"\s", text) for text in arguments)):
        return None
    if listing and not re.fullmatch(listing, "".join(f" {text}" for text in arguments)):
        return None
    names = [text[2:].split("=")[0] for text in arguments if text.startswith("--") and text != "--"]
    if any(refused.startswith(name) for name in names for refused in _GIT_REFUSED):
        return None
    values = [text.partition("=")[2] if text.startswith("-") else text for text in arguments]
    return PlainCall("git", tuple(text.rpartition(":")[2] or text for text in values if text))


def is_call_read_only(simple: SimpleCommand, scope: CommandScope, *, strict: bool = False) -> bool:
    """True if one command is on the short list and stays inside the project and the temporary folders."""
    if not all(item.is_read_only or _is_input(item, scope) for item in simple.redirects):
        return False
    if simple.words and simple.words[0].text == "cd":
        return len(simple.words) == 2  # `locate_steps` has checked the target
    call = read_call(simple.words)
    if call is None or not all(scope.allows(path, content=call.shows_content) for path in call.paths):
        return False
    for word in simple.words:
        matches = expand_glob(word.text, scope.cwd) if word.glob else []
        is_safe = all(scope.allows(name, content=call.shows_content) and name[:1] != "-" for name in matches)
        if len(matches) >= MAX_MATCHES or not is_safe:
            return False
    return not strict or _is_harmless_here(call, scope)


def _is_input(redirect: Redirect, scope: CommandScope) -> bool:
    """True if the input is a here-string, or a file that may be printed."""
    if not redirect.target.literal or redirect.fd not in ("", "0"):
        return False
    return redirect.op == "<<<" or (redirect.op == "<" and scope.allows(redirect.target.text, content=True))


# --- without a sandbox ---

_STEERING_VARIABLES = {
    "git": split_names(
        "GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES "
        "GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_EXTERNAL_DIFF GIT_EXEC_PATH"
    )
}
"""Variables that make these programs read another repository or run another program than it seems."""

_SETTINGS_VARIABLES = {"git": ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), "rg": ("RIPGREP_CONFIG_PATH",)}
"""Variables that name a file with settings: the user's, unless it is in the project."""


def _is_harmless_here(call: PlainCall, scope: CommandScope) -> bool:
    if call.name not in _BUILTINS and not _is_system_program(call.name, scope):
        return False
    variables = scope.environment.variables
    if any(name in variables for name in _STEERING_VARIABLES.get(call.name, ())):
        return False
    for path in (variables[name] for name in _SETTINGS_VARIABLES.get(call.name, ()) if name in variables):
        if scope.find_root(resolve_path(path, scope.cwd) or scope.root):
            return False
    if call.name == "git" and not is_repository_plain(scope.cwd, scope.find_root(scope.cwd) or scope.root):
        return False
    return not call.searches or not any(_has_secret_below(resolve_path(path, scope.cwd)) for path in call.paths)


@look_up_once
def _is_system_program(name: str, scope: CommandScope) -> bool:
    """True if the name cannot mean a program of the project or of the home, where version managers put their shims."""
    unsafe = (*scope.folders, os.path.realpath(scope.environment.home))
    for folder in scope.environment.path.split(":"):
        path = f"{folder}/{name}"
        if not folder.startswith("/"):
            return False
        if not os.access(path, os.X_OK):
            continue
        real = os.path.realpath(path)
        return not any(contains(place, form) for place in unsafe for form in (path, real))
    return False


@look_up_once
def _has_secret_below(path: str | None) -> bool:
    """True if a folder has a secret file in it, or is too large to tell."""
    seen = 0
    for folder, folders, names in os.walk(path or "/"):
        folders[:] = [name for name in folders if name != ".git"]
        seen += len(names) + 1
        if seen > _MAX_SEARCHED or any(is_secret_path(f"{folder}/{name}") for name in names):
            return True
    return False


_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"[^"\\]*")?\s*\]')
_SETTING = re.compile(r"([A-Za-z][\w-]*)\s*(?:=.*)?")
_PLAIN_SECTIONS = split_names("branch user init pull push color advice gc column rerere rebase fetch status")
_PLAIN_SETTINGS = {
    "core": split_names(
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol "
        "safecrlf quotepath abbrev"
    ),
    "remote": split_names("url fetch pushurl tagopt prune"),
}


@look_up_once
def is_repository_plain(folder: str, root: str) -> bool:
    """True if reading a repository runs no program: no setting, hook or nested repository of it can name one.

    Attributes can only choose programs that a setting names, and the settings of the user are the user's.
    """
    while not os.path.lexists(f"{folder}/.git"):
        if folder == root or not contains(root, folder) or Path(folder, "HEAD").exists():
            return False
        folder = os.path.dirname(folder)  # noqa: PTH120
    git = Path(folder, ".git")
    risky = ("commondir", "config.worktree", "hooks/post-index-change")
    try:
        if (
            git.is_symlink()
            or not git.is_dir()
            or Path(folder, "HEAD").exists()
            or any((git / n).exists() for n in risky)
        ):
            return False
        if any(git.glob("sharedindex.*")) or b"\0\0\xe0\0" in _read_index(git):  # an entry for a repository
            return False
        return _are_settings_plain((git / "config").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _read_index(git: Path) -> bytes:
    try:
        return (git / "index").read_bytes()
    except FileNotFoundError:  # nothing was added yet
        return b""


def _are_settings_plain(text: str) -> bool:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if not line or line[0] in "#;":
            continue
        heading, setting = _SECTION.fullmatch(line), _SETTING.fullmatch(line)
        if heading is not None:
            section = heading[1].lower()
            continue
        known = section in _PLAIN_SECTIONS or (setting and setting[1].lower() in _PLAIN_SETTINGS.get(section, ()))
        if setting is None or "\\" in line or not known:
            return False
    return True
