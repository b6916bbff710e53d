"""Whether one command only looks, and only at what lies inside the project."""

import os
import re
from collections.abc import Sequence
from functools import lru_cache

from odin.policy.command.harmless.expressions import EXPRESSIONS
from odin.policy.command.harmless.files import FILES
from odin.policy.command.harmless.git import GIT
from odin.policy.command.harmless.globs import fill
from odin.policy.command.harmless.options import Globbed, Known
from odin.policy.command.harmless.place import Place
from odin.policy.command.harmless.programs import PROGRAMS
from odin.policy.command.harmless.redirects import harmless_redirect
from odin.policy.command.harmless.search import SEARCH
from odin.policy.command.harmless.system import SYSTEM
from odin.policy.command.harmless.text import TEXT
from odin.policy.command.harmless.tools import asks_a_tool
from odin.policy.command.shapes import Redirect, Simple, Word, named
from odin.policy.paths import contains, real

LISTS: dict[str, Known] = {**FILES, **TEXT, **SYSTEM, **SEARCH, **PROGRAMS}
_CHECKS = {**EXPRESSIONS, **GIT}

_BUILTINS = named("echo printf [ [[ test pwd true false : cd command type umask ulimit exit time help jobs times dirs")
_VARIABLES = re.compile(
    r"(LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|TERM|COLUMNS|LINES|CI)=[\w.,:@+-]*"
    r"|TZ=[A-Za-z]+(/[A-Za-z_+-]+){1,2}|((GIT_|MAN)?PAGER)=(cat)?|GIT_(OPTIONAL_LOCKS|TERMINAL_PROMPT)=0"
)
_DURATION = re.compile(r"\d{1,6}(\.\d{1,6})?[smh]?")
_MAX_WRAPPERS = 4
_EXPLAINED = named(
    "cp mv rm mkdir rmdir touch ln chmod chown chgrp install split csplit truncate tee dd mktemp xargs env tar zip "
    "pkill patch python3 python node curl wget rsync make cmake"
)
"""Programs that do something, and can be asked how they do it."""

_NOT_FOLLOWING = named("echo ls stat file du find readlink")
_HELPERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("egrep", "fgrep"), ("grep",)),
    **dict.fromkeys(("npm", "npx"), ("node",)),
    **dict.fromkeys(("zcat", "gunzip"), ("gzip",)),
    "gem": ("ruby",),
    "shasum": ("perl",),
    "tar": ("gzip", "bzip2", "xz", "zstd", "lzip", "lzma", "lzop", "compress", "pigz"),
}
"""Commands that run others, and which those are: they must be the system's as well."""


def only_looks(simple: Simple, cwd: str, root: str) -> bool:
    """Whether one command only looks, and only at what lies inside the root."""
    if simple.nested:
        return False
    place = Place(cwd, root if cwd == root else real(root, "/") or root)
    if not all(harmless_redirect(item) or _reads(item, place) for item in simple.redirects):
        return False
    words = list(simple.words)
    if words and words[0].text == "cd":
        return len(words) == 2  # where it leads has been judged by `steps`
    while words and words[0].literal and "=" in words[0].text and _VARIABLES.fullmatch(words[0].text):
        words.pop(0)
    return _command(words, place, _MAX_WRAPPERS)


def _reads(redirect: Redirect, place: Place) -> bool:
    """A file inside as the input, or a text that stands in the command itself."""
    if not redirect.target.literal or redirect.fd not in ("", "0"):
        return False
    if redirect.op == "<<<":
        return True
    return redirect.op == "<" and redirect.target.text != "-" and place.shows(redirect.target.text)


def _command(words: Sequence[Word], place: Place, wrappers: int) -> bool:
    if not words or not words[0].literal or any(word.expands for word in words):
        return False
    name = _plain_name(words[0].text, place)
    if not _on_path(name, place):
        return False
    inner = _unwrapped(name, words[1:])
    if inner is not None:
        return wrappers > 0 and _command(inner, place, wrappers - 1)
    texts = fill(words[1:], place.cwd)
    if texts is None or not all(_stays(text, name, place) for text in texts if isinstance(text, Globbed)):
        return False
    return _known(name, texts, place)


def _stays(text: str, name: str, place: Place) -> bool:
    """Whether a name that a pattern stands for may be used. Some show a link as a link, and judge that themselves."""
    return place.lies(text) if name in _NOT_FOLLOWING else place.holds(text)


def _known(name: str, texts: Sequence[str], place: Place) -> bool:
    known = LISTS.get(name)
    if known is not None and known.accepts(texts, place):
        return True
    check = _CHECKS.get(name) or asks_a_tool(name)
    if check is not None and check(texts, place):
        return True
    return _asked_for_help(name, texts)


def _asked_for_help(name: str, texts: Sequence[str]) -> bool:
    """Programs that are known print how they are used, and do nothing else, when that is all they are asked."""
    if list(texts) not in (["--help"], ["--version"]) or name in _BUILTINS:
        return False
    return name in LISTS or name in _CHECKS or name in _EXPLAINED


# --- commands that run the command behind them ---


def _unwrapped(name: str, words: Sequence[Word]) -> Sequence[Word] | None:
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


def _plain_name(name: str, place: Place) -> str:
    """`/usr/bin/ls` is `ls`, unless the project is the whole system."""
    folder, _, last = name.rpartition("/")
    return last if folder in ("/bin", "/usr/bin") and not contains(place.root, f"{folder}/") else name


def _on_path(name: str, place: Place) -> bool:
    """Whether the name means the system's program: no folder of the search path inside the project has one like it."""
    if "/" in name:
        return False
    if name in _BUILTINS:
        return True
    suspects = _suspect_folders(os.environ.get("PATH", ""), place.cwd, place.root)
    meant = (name, *_HELPERS.get(name, ()))
    return not any(os.path.lexists(f"{folder}/{one}") for folder in suspects for one in meant)


@lru_cache(maxsize=256)
def _suspect_folders(search: str, cwd: str, root: str) -> tuple[str, ...]:
    """The folders of the search path that the project could have filled."""
    found = ((folder, real(folder or ".", cwd)) for folder in search.split(":"))
    return tuple(
        path or cwd for folder, path in found if not folder.startswith("/") or not path or contains(root, path)
    )
