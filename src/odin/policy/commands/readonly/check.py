"""Whether one command only looks, and only at what lies inside the project.

What it is about a command that keeps it from running unasked, for the person who is asked.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from odin.core.path_names import contains, is_secret_path
from odin.policy.commands.programs import is_assignment
from odin.policy.commands.readonly.expressions import EXPRESSION_CHECKS, PROGRAM_COMMANDS
from odin.policy.commands.readonly.files import FILE_COMMANDS, SEARCH_COMMANDS, TEXT_COMMANDS
from odin.policy.commands.readonly.git import GIT_CHECKS, GIT_COMMANDS
from odin.policy.commands.readonly.options import GlobMatch, ReadOnlyCommand, ReadScope, expand_globs, parse_options
from odin.policy.commands.readonly.system import SYSTEM_COMMANDS, find_tool_check
from odin.policy.commands.syntax import CommandStep, Redirect, ShellScript, ShellWord, SimpleCommand, split_names
from odin.policy.paths import resolve_path

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
"""Programs that do something, and can be asked how they do it."""

_NOT_FOLLOWING = split_names("echo ls stat file du find readlink")
_HELPER_PROGRAMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("egrep", "fgrep"), ("grep",)),
    **dict.fromkeys(("npm", "npx"), ("node",)),
    **dict.fromkeys(("zcat", "gunzip"), ("gzip",)),
    "gem": ("ruby",),
    "shasum": ("perl",),
    "tar": ("gzip", "bzip2", "xz", "zstd", "lzip", "lzma", "lzop", "compress", "pigz"),
}
"""Commands that run others, and which those are: they must be the system's as well."""


def is_command_read_only(simple: SimpleCommand, cwd: str, root: str) -> bool:
    """Whether one command only looks, and only at what lies inside the root."""
    if simple.nested:
        return False
    place = ReadScope(cwd, root if cwd == root else resolve_path(root, "/") or root)
    if not all(item.is_read_only or _is_input_redirect(item, place) for item in simple.redirects):
        return False
    words = list(simple.words)
    if words and words[0].text == "cd":
        return len(words) == 2  # where it leads has been judged by `steps`
    while words and words[0].literal and "=" in words[0].text and _SAFE_ASSIGNMENTS.fullmatch(words[0].text):
        words.pop(0)
    return _check_command(words, place, _MAX_WRAPPERS)


def _is_input_redirect(redirect: Redirect, scope: ReadScope) -> bool:
    """A file inside as the input, or a text that stands in the command itself."""
    if not redirect.target.literal or redirect.fd not in ("", "0"):
        return False
    if redirect.op == "<<<":
        return True
    return redirect.op == "<" and redirect.target.text != "-" and scope.allows_content(redirect.target.text)


def _check_command(words: Sequence[ShellWord], scope: ReadScope, wrappers: int) -> bool:
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
    return _is_known(name, texts, scope)


def _may_use_match(text: str, name: str, scope: ReadScope) -> bool:
    """Whether a name that a pattern stands for may be used. Some show a link as a link, and judge that themselves."""
    return scope.allows_name(text) if name in _NOT_FOLLOWING else scope.allows_path(text)


def _is_known(name: str, texts: Sequence[str], scope: ReadScope) -> bool:
    known = READ_ONLY_COMMANDS.get(name)
    if known is not None and known.accepts(texts, scope):
        return True
    check = _WORD_CHECKS.get(name) or find_tool_check(name)
    if check is not None and check(texts, scope):
        return True
    return _is_help_request(name, texts)


def _is_help_request(name: str, texts: Sequence[str]) -> bool:
    """Programs that are known print how they are used, and do nothing else, when that is all they are asked."""
    if list(texts) not in (["--help"], ["--version"]) or name in _BUILTINS:
        return False
    return name in READ_ONLY_COMMANDS or name in _WORD_CHECKS or name in _HELPFUL_PROGRAMS


# --- commands that run the command behind them ---


def _unwrap(name: str, words: Sequence[ShellWord]) -> Sequence[ShellWord] | None:
    """The words behind a wrapper that changes nothing about them, or None when this is not one."""
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
    """How many words are options of the wrapper itself."""
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


# --- what a name means ---


def _strip_system_folder(name: str, scope: ReadScope) -> str:
    """`/usr/bin/ls` is `ls`, unless the project is the whole system."""
    folder, _, last = name.rpartition("/")
    return last if folder in ("/bin", "/usr/bin") and not contains(scope.root, f"{folder}/") else name


def _is_system_program(name: str, scope: ReadScope) -> bool:
    """Whether the name means the system's program: no folder of the search path inside the project has one like it."""
    if "/" in name:
        return False
    if name in _BUILTINS:
        return True
    suspects = _find_suspect_folders(os.environ.get("PATH", ""), scope.cwd, scope.root)
    meant = (name, *_HELPER_PROGRAMS.get(name, ()))
    return not any(os.path.lexists(f"{folder}/{one}") for folder in suspects for one in meant)


@lru_cache(maxsize=256)
def _find_suspect_folders(search: str, cwd: str, root: str) -> tuple[str, ...]:
    """The folders of the search path that the project could have filled."""
    found = ((folder, resolve_path(folder or ".", cwd)) for folder in search.split(":"))
    return tuple(
        path or cwd for folder, path in found if not folder.startswith("/") or not path or contains(root, path)
    )


_MAX_SHOWN = 40
_SEARCHES = ("grep", "egrep", "fgrep", "rg", "git grep")


def explain_doubt(
    script: ShellScript,
    steps: Iterable[CommandStep],
    is_read_only: Callable[[SimpleCommand, str], bool],
    *,
    every: bool,
) -> str:
    """The first part that is not known to only look, as the end of a sentence.

    "" when nothing can be said about it; without `every`, also for programs of which nobody would expect it.
    """
    for simple in script.commands:
        for word in (*simple.words, *(item.target for item in simple.redirects)):
            if word.expands:
                return f"what {_quote_short(word)} stands for is only known when it runs"
    if not script.plain:
        return "it is more than plain commands one after the other"
    return next((_explain_part(simple, every) for simple, folder in steps if not is_read_only(simple, folder)), "")


def _explain_part(simple: SimpleCommand, every: bool) -> str:
    words = list(simple.words)
    while words and is_assignment(words[0]):
        words.pop(0)
    texts = [word.text for word in words]
    name = (
        " ".join(texts[:2]) if texts[:1] == ["git"] and texts[1:2] and texts[1] in GIT_COMMANDS else "".join(texts[:1])
    )
    known = GIT_COMMANDS.get(name.removeprefix("git ")) if name.startswith("git ") else READ_ONLY_COMMANDS.get(name)
    if known is None and name not in EXPRESSION_CHECKS:
        return f"{_quote_short(words[0])} is not one of them" if every and words else ""
    odd = _find_odd_option(known, texts[len(name.split()) :]) if known else ""
    if not odd and name.startswith("git ") and not every:
        return ""
    if odd:
        return f"{name} {odd} is not known to only look"
    secret = next((text for text in texts[1:] if is_secret_path(text)), "")
    if secret:
        return f"{name} would open {secret[:_MAX_SHOWN]}, and people keep secrets in such files"
    if name in _SEARCHES:
        return f"{name} may open files that hold secrets or lie elsewhere, or too many to tell"
    return f"{name} is not known to only look with these words"


def _find_odd_option(known: ReadOnlyCommand, texts: Sequence[str]) -> str:
    """The option that is not on the list. Each is tried by itself, with a word behind it in case it takes a value."""
    here = ReadScope("/", "/")
    options = (text for text in texts if text.startswith("-") and len(text) <= _MAX_SHOWN)
    return next((text for text in options if parse_options(known, [text, "1", "1"], here) is None), "")


def _quote_short(word: ShellWord) -> str:
    return repr(word.text if len(word.text) <= _MAX_SHOWN else word.text[:_MAX_SHOWN] + "…")
