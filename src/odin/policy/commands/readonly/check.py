"""Decides whether a command is read-only and stays inside the project, and explains why it may not be.

This is an allow list: a program, option or spelling that is not known needs approval. A program name must mean a
program of the system: not one of the project, and not a shim.

A shim is a small program that a version manager (asdf, mise, pyenv, volta, …) puts on PATH under the name of another.
It runs what a file of the project names (`.tool-versions`), so even `node --version` can run anything. Without such a
file in the project it runs what the user has chosen.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from odin.core.path_names import contains, is_secret_path
from odin.policy.command_scope import CommandScope
from odin.policy.commands.programs import is_assignment
from odin.policy.commands.readonly.expressions import EXPRESSION_CHECKS, PROGRAM_COMMANDS
from odin.policy.commands.readonly.files import FILE_COMMANDS, TEXT_COMMANDS
from odin.policy.commands.readonly.found_files import list_find_calls, list_xargs_calls
from odin.policy.commands.readonly.git import GIT_CHECKS, GIT_COMMANDS
from odin.policy.commands.readonly.options import GlobMatch, ReadOnlyCommand, expand_globs, parse_options
from odin.policy.commands.readonly.searches import SEARCH_COMMANDS, SearchExclusions, find_exclusions
from odin.policy.commands.readonly.system import SYSTEM_COMMANDS, find_tool_check
from odin.policy.commands.syntax import (
    CommandStep,
    Redirect,
    ShellScript,
    ShellWord,
    SimpleCommand,
    quote_short,
    split_names,
)
from odin.policy.paths import look_up_once, resolve_path

READ_ONLY_COMMANDS: dict[str, ReadOnlyCommand] = {
    **FILE_COMMANDS,
    **TEXT_COMMANDS,
    **SYSTEM_COMMANDS,
    **SEARCH_COMMANDS,
    **PROGRAM_COMMANDS,
}
_WORD_CHECKS = {**EXPRESSION_CHECKS, **GIT_CHECKS}

_BUILTINS = split_names(
    "echo printf [ [[ test pwd true false : cd command type umask ulimit exit time help jobs times dirs"
)
_SAFE_ASSIGNMENTS = re.compile(
    r"(LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|TERM|COLUMNS|LINES|CI)=[\w.,:@+-]*"
    r"|TZ=[A-Za-z]+(/[A-Za-z_+-]+){1,2}|((GIT_|MAN)?PAGER)=(cat)?|GIT_(OPTIONAL_LOCKS|TERMINAL_PROMPT)=0"
)
_DURATION = re.compile(r"\d{1,6}(\.\d{1,6})?[smh]?")
_MAX_WRAPPERS = 4
_HELPFUL_PROGRAMS = split_names(
    "cp mv rm mkdir rmdir touch ln chmod chown chgrp install split csplit truncate tee dd mktemp xargs env tar zip "
    "pkill patch python3 python node curl wget rsync make cmake"
)
"""Programs that are not read-only, but whose --help and --version are."""

_NOT_FOLLOWING = split_names("echo ls stat file du find readlink")
_HELPER_PROGRAMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("egrep", "fgrep"), ("grep",)),
    **dict.fromkeys(("npm", "npx"), ("node",)),
    **dict.fromkeys(("zcat", "gunzip"), ("gzip",)),
    "gem": ("ruby",),
    "shasum": ("perl",),
    "tar": ("gzip", "bzip2", "xz", "zstd", "lzip", "lzma", "lzop", "compress", "pigz"),
}
"""Commands that run other programs; those must be the system's, too."""


def is_command_read_only(simple: SimpleCommand, scope: CommandScope) -> bool:
    """True if a command is read-only and stays inside the root."""
    if simple.nested:
        return False
    scope = _resolve_root(scope)
    if not all(item.is_read_only or _is_input_redirect(item, scope) for item in simple.redirects):
        return False
    words = list(simple.words)
    if words and words[0].text == "cd":
        return len(words) == 2  # `locate_steps` has checked the target
    while words and words[0].literal and "=" in words[0].text and _SAFE_ASSIGNMENTS.fullmatch(words[0].text):
        words.pop(0)
    if simple.feeds and words[0].text == "xargs":
        return all(word.literal for word in words) and _are_fed_calls_known(
            "xargs", list_xargs_calls([word.text for word in words[1:]], simple.feeds, scope), scope
        )
    return _check_command(words, scope, _MAX_WRAPPERS)


def _resolve_root(scope: CommandScope) -> CommandScope:
    root = scope.root if scope.cwd == scope.root else resolve_path(scope.root, "/") or scope.root
    return scope if root == scope.root else replace(scope, root=root)


def _are_fed_calls_known(program: str, calls: Sequence[Sequence[str]] | None, scope: CommandScope) -> bool:
    """True if a program may run these calls, which stand for all it would run."""
    return (
        calls is not None
        and _is_system_program(program, scope)
        and all(_is_system_program(name, scope) and _is_known(name, texts, scope) for name, *texts in calls)
    )


def _is_input_redirect(redirect: Redirect, scope: CommandScope) -> bool:
    """True if the input is a file inside the project or a here-string."""
    if not redirect.target.literal or redirect.fd not in ("", "0"):
        return False
    if redirect.op == "<<<":
        return True
    return redirect.op == "<" and redirect.target.text != "-" and scope.allows_content(redirect.target.text)


def _check_command(words: Sequence[ShellWord], scope: CommandScope, wrappers: int) -> bool:
    if not words or not words[0].literal or any(word.expands for word in words):
        return False
    name = _strip_system_folder(words[0].text, scope)
    if not _is_system_program(name, scope):
        return False
    inner = _unwrap(name, words[1:])
    if inner is not None:
        return wrappers > 0 and _check_command(inner, scope, wrappers - 1)
    texts = expand_globs(words[1:], scope.cwd)
    if texts is None or not all(_may_use_match(text, name, scope) for text in texts if isinstance(text, GlobMatch)):
        return False
    if name == "find" and "-exec" in texts:
        return not any(word.glob for word in words) and _are_fed_calls_known(name, list_find_calls(texts, scope), scope)
    return _is_known(name, texts, scope)


def find_search_exclusions(simple: SimpleCommand, scope: CommandScope) -> SearchExclusions | None:
    """Return what a search must leave out so that it shows no secrets, or None if that is not what it needs."""
    scope = _resolve_root(scope)
    words: Sequence[ShellWord] | None = simple.words
    for _ in range(_MAX_WRAPPERS):
        if not words or any(word.expands for word in words):
            return None
        name = _strip_system_folder(words[0].text, scope)
        texts = expand_globs(words[1:], scope.cwd)
        found = find_exclusions(name, texts, scope) if texts is not None else None
        if found is not None or name in SEARCH_COMMANDS:
            return found
        words = _unwrap(name, words[1:])
    return None


def _may_use_match(text: str, name: str, scope: CommandScope) -> bool:
    """True if a command may be given this glob match. Commands that do not follow links check links themselves."""
    return scope.allows_name(text) if name in _NOT_FOLLOWING else scope.allows_path(text)


def _is_known(name: str, texts: Sequence[str], scope: CommandScope) -> bool:
    known = READ_ONLY_COMMANDS.get(name)
    if known is not None and known.accepts(texts, scope):
        return True
    check = _WORD_CHECKS.get(name) or find_tool_check(name)
    if check is not None and check(texts, scope):
        return True
    return _is_help_request(name, texts)


def _is_help_request(name: str, texts: Sequence[str]) -> bool:
    """True for a known program with --help or --version alone."""
    if list(texts) not in (["--help"], ["--version"]) or name in _BUILTINS:
        return False
    return name in READ_ONLY_COMMANDS or name in _WORD_CHECKS or name in _HELPFUL_PROGRAMS


# --- wrappers ---


def _unwrap(name: str, words: Sequence[ShellWord]) -> Sequence[ShellWord] | None:
    """Return the command that a transparent wrapper such as `timeout` runs, or None if this is not a wrapper."""
    texts = [word.text for word in words]
    match name:
        case "timeout":
            skipped = _skip(
                texts,
                r"-[ks]|--kill-after|--signal",
                r"--foreground|--preserve-status|-v|-[ks][\w.]+|--\w[\w-]*=[\w.]+",
            )
            timed = skipped < len(texts) and _DURATION.fullmatch(texts[skipped]) is not None
            return words[skipped + 1 :] if timed else None
        case "nice":
            return words[_skip(texts, "-n|--adjustment", r"-n?-?\d{1,2}|--adjustment=-?\d{1,2}") :]
        case "stdbuf":
            return words[_skip(texts, "-[ioe]", r"-[ioe][L\d]\d{0,5}") :]
        case "time":
            return words[_skip(texts, "", "-p") :]
        case "nohup":
            return words
        case "command" if texts and not texts[0].startswith("-"):
            return words
        case _:
            return None


def _skip(texts: Sequence[str], valued: str, alone: str) -> int:
    """Return the number of leading words that are options of the wrapper itself."""
    at = 0
    while at < len(texts):
        if re.fullmatch(alone, texts[at]):
            at += 1
        elif (
            valued
            and re.fullmatch(valued, texts[at])
            and at + 1 < len(texts)
            and re.fullmatch(r"-?[\w.]+", texts[at + 1])
        ):
            at += 2
        else:
            break
    return at


# --- program names ---


def _strip_system_folder(name: str, scope: CommandScope) -> str:
    """Return `ls` for `/usr/bin/ls`, unless the project contains /usr/bin."""
    folder, _, last = name.rpartition("/")
    return last if folder in ("/bin", "/usr/bin") and not contains(scope.root, f"{folder}/") else name


def _is_system_program(name: str, scope: CommandScope) -> bool:
    """True if the name, and those of the programs it runs, can mean neither a program of the project nor a shim."""
    if "/" in name:
        return False
    if name in _BUILTINS:
        return True
    return all(is_system_program(one, scope) for one in (name, *_HELPER_PROGRAMS.get(name, ())))


_MAX_SHOWN = 40
_SEARCHES = ("grep", "egrep", "fgrep", "rg", "git grep")


def explain_doubt(
    script: ShellScript,
    steps: Iterable[CommandStep],
    is_read_only: Callable[[SimpleCommand, str], bool],
    scope: CommandScope,
    *,
    every: bool,
) -> str:
    """Return the first reason why a script may not be read-only, as a clause, or "" if there is none to give.

    Without `every`, programs that are obviously not read-only are not explained.
    """
    script = script.written_out or script
    for simple in script.commands:
        for word in (*simple.words, *(item.target for item in simple.redirects)):
            if word.expands:
                return f"the value of {quote_short(word.text, _MAX_SHOWN)} is only known when it runs"
    if not script.plain:
        return "it is more than a list of simple commands"
    return next(
        (
            _explain_part(simple, scope.enter(folder), every)
            for simple, folder in steps
            if not is_read_only(simple, folder)
        ),
        "",
    )


def _explain_part(simple: SimpleCommand, scope: CommandScope, every: bool) -> str:
    words = list(simple.words)
    while words and is_assignment(words[0]):
        words.pop(0)
    texts = [word.text for word in words]
    lookup = _explain_lookup(texts[0], scope) if texts and words[0].literal else ""
    if lookup:
        return lookup
    name = (
        " ".join(texts[:2]) if texts[:1] == ["git"] and texts[1:2] and texts[1] in GIT_COMMANDS else "".join(texts[:1])
    )
    known = GIT_COMMANDS.get(name.removeprefix("git ")) if name.startswith("git ") else READ_ONLY_COMMANDS.get(name)
    if known is None and name not in EXPRESSION_CHECKS:
        return f"{quote_short(words[0].text, _MAX_SHOWN)} is not a known read-only command" if every and words else ""
    option = _find_unknown_option(known, texts[len(name.split()) :], scope) if known else ""
    if not option and name.startswith("git ") and not every:
        return ""
    if option:
        return f"{name} {option} is not known to be read-only"
    secret = next((text for text in texts[1:] if is_secret_path(text)), "")
    if secret:
        return f"{name} would open {secret[:_MAX_SHOWN]}, which may contain secrets"
    if name in _SEARCHES:
        return f"{name} may open files that contain secrets or lie outside the project, or too many files to check"
    return f"{name} is not known to be read-only with these arguments"


def _explain_lookup(name: str, scope: CommandScope) -> str:
    """Return why a known name may mean another program, as a clause, or ""."""
    if "/" in name or name in _BUILTINS or not _is_read_only_name(name):
        return ""
    if is_project_program(name, scope):
        return f"{name} is a program of the project"
    shim = next((path for one in (name, *_HELPER_PROGRAMS.get(name, ())) if (path := find_shim(one, scope))), "")
    return f"{shim} is a shim of a version manager, which runs what {find_version_file(scope)} names" if shim else ""


def _is_read_only_name(name: str) -> bool:
    return (
        name in READ_ONLY_COMMANDS
        or name in _WORD_CHECKS
        or name in _HELPFUL_PROGRAMS
        or find_tool_check(name) is not None
    )


def _find_unknown_option(known: ReadOnlyCommand, texts: Sequence[str], scope: CommandScope) -> str:
    """Return the first option not on the list. Each is tried alone, followed by a word in case it takes a value."""
    anywhere = CommandScope("/", "/", scope.environment)
    options = (text for text in texts if text.startswith("-") and len(text) <= _MAX_SHOWN)
    return next((text for text in options if parse_options(known, [text, "1", "1"], anywhere) is None), "")


_SHIM_FOLDERS = split_names(
    "shims .volta .proto .asdf aquaproj-aqua .tfenv .tenv .pkgx .rbenv .pyenv .nodenv .jenv .goenv .phpenv .plenv "
    ".luaenv .swiftenv .scalaenv .exenv .crenv .hermit .vfox"
)
_REAL_FOLDERS = split_names("versions installs candidates toolchains image tools")
"""Folders in which a version manager keeps the real programs."""

_MANAGERS = split_names(
    "asdf mise rtx volta volta-shim proto proto-shim aqua aqua-proxy pyenv rbenv nodenv jenv goenv tfenv tenv hermit "
    "vfox pkgx devbox corepack"
)
_SHIM_SCRIPT = re.compile(
    rb"\b(?:asdf|mise|rtx|volta|proto|pyenv|rbenv|nodenv|jenv|goenv|phpenv|plenv|luaenv|swiftenv|exenv|crenv|tfenv|tenv"
    rb"|hermit|vfox|pkgx|devbox|corepack)\b[^\n]*\b(?:exec|shim|run|x)\b"
)
_MAX_SHIM_BYTES = 8_192
_VERSION_FILE = re.compile(
    r"\.tool-versions|\.[a-z]+-versions?|\.(?:nvm|sdkman)rc|\.prototools|\.?mise(?:\.[\w.-]+)?\.toml|\.?mise|\.rtx.*"
    r"|\.config|\.?aqua(?:\.ya?ml)?|hermit\.hcl|devbox\.json|\.?pkgx\.ya?ml|\.vfox\.toml|package\.json|gemfile|go\.mod"
    r"|rust-toolchain(?:\.toml)?",
    re.IGNORECASE,
)
"""Files and folders of a project that tell a version manager what to run."""


def is_system_program(name: str, scope: CommandScope) -> bool:
    """True if the name cannot mean a program that the project contains or chooses."""
    return not is_project_program(name, scope) and not find_shim(name, scope)


@look_up_once
def is_project_program(name: str, scope: CommandScope) -> bool:
    """True if a folder of the project on PATH contains this name, or the program on PATH is a file of the project."""
    search = scope.environment.path
    if any(os.path.lexists(f"{folder}/{name}") for folder in _find_project_folders(search, scope.cwd, scope.root)):
        return True
    found, target = find_on_path(name, search)
    return bool(found) and contains(scope.root, target)


@look_up_once
def find_shim(name: str, scope: CommandScope) -> str:
    """Return the path of the shim that this name means if a file of the project tells it what to run, or ""."""
    found, target = find_on_path(name, scope.environment.path)
    if not found or not _is_shim(found, os.path.basename(target)):  # noqa: PTH119
        return ""
    return found if find_version_file(scope) else ""


def find_version_file(scope: CommandScope) -> str:
    """Return the nearest file, from a folder up to the root, that tells a version manager what to run, or ""."""
    for folder in scope.walk_up():
        try:
            names = os.listdir(folder)  # noqa: PTH208 (only names are needed)
        except OSError:
            return folder
        found = next((name for name in sorted(names) if _VERSION_FILE.fullmatch(name)), "")
        if found:
            return found
    return ""


@look_up_once
def find_on_path(name: str, search: str) -> tuple[str, str]:
    """Return the first executable with this name on PATH, and the file it leads to; "" if there is none."""
    for folder in search.split(":"):
        path = f"{folder}/{name}"
        if folder.startswith("/") and os.access(path, os.X_OK) and os.path.isfile(path):  # noqa: PTH113
            return path, os.path.realpath(path)
    return "", ""


def _is_shim(path: str, target: str) -> bool:
    parts = path.split("/")[:-1]
    if "shims" in parts or (_SHIM_FOLDERS.intersection(parts) and not _REAL_FOLDERS.intersection(parts)):
        return True
    return (target in _MANAGERS and target != path.rsplit("/", 1)[-1]) or _is_shim_script(path, _read_stamp(path))


def _read_stamp(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


@lru_cache(maxsize=512)
def _is_shim_script(path: str, modified: int) -> bool:
    """True for a short script that calls a version manager. The time is part of the key of the cache."""
    try:
        if os.stat(path).st_size > _MAX_SHIM_BYTES:  # noqa: PTH116
            return False
        data = Path(path).read_bytes()
    except OSError:
        return False
    return data.startswith(b"#!") and _SHIM_SCRIPT.search(data) is not None


@lru_cache(maxsize=256)
def _find_project_folders(search: str, cwd: str, root: str) -> tuple[str, ...]:
    """Return the folders on PATH that lie in the project or depend on the current directory."""
    resolved = ((folder, resolve_path(folder or ".", cwd)) for folder in search.split(":"))
    return tuple(
        path or cwd for folder, path in resolved if not folder.startswith("/") or not path or contains(root, path)
    )
