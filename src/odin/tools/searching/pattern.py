"""Glob patterns: `*` and `?` within a name, `**` across folders, `[…]` and `{a,b}`."""

import functools
import re
from collections.abc import Callable

from odin.tools.files.path import Refusal

_STAR, _FOLDERS = "[^/]*", "(?:.*/)?"
_VARIABLE_PIECES = (_STAR, _FOLDERS, ".*", "(?:", "|", ")")
"""Pieces of an expression of which it is not fixed what they match, and the marks of a list."""


@functools.lru_cache(maxsize=256)
def compile_glob(glob: str) -> Callable[[str], bool]:
    """Tells whether a path relative to the searched folder matches. Without a slash the name matches at any depth."""
    pattern = glob.removeprefix("./")
    if "/" not in pattern.rstrip("/"):
        pattern = f"**/{pattern}"
    try:
        compiled = re.compile(translate_glob(pattern.strip("/")), re.DOTALL)
    except re.error:
        raise Refusal(f"{glob!r} is not a valid glob pattern.") from None
    return lambda path: compiled.fullmatch(path) is not None


def extract_name_glob(glob: str) -> tuple[str, bool]:
    """A glob on names alone that every match fits, or "", and whether it says all that the pattern says.

    Only what every program that knows globs reads alike: plain names, `*` and lists in braces.
    """
    folders, _, name = glob.removeprefix("./").rpartition("/")
    anywhere = all(part in ("**", "") for part in folders.split("/"))
    if name in ("*", "**"):
        return "", anywhere
    if "**" in name or not re.fullmatch(r"(?:[\w.*-]|\{[\w.*-]+(?:,[\w.*-]+)*\})+", name, re.ASCII):
        return "", False
    return name, anywhere


def translate_glob(glob: str) -> str:
    """The regular expression for one pattern. What is not closed, `[` or `{`, stands for itself."""
    out: list[str] = []
    at, depth = 0, 0
    while at < len(glob):
        piece, width = _translate_token(glob, at, depth)
        out.append(piece)
        depth += {"(?:": 1, ")": -1}.get(piece, 0)
        at += width
    return "".join(_make_atomic(out))


def _make_atomic(pieces: list[str]) -> list[str]:
    """The same without a search that takes forever: what stands between two stars may as well be the first that fits,
    because the second star takes whatever comes after it. And a folder at any depth need not be said twice."""
    out: list[str] = []
    at = 0
    while at < len(pieces):
        end = at + 1
        while end < len(pieces) and pieces[end] not in _VARIABLE_PIECES:
            end += 1
        if pieces[at] == _STAR and end < len(pieces) and pieces[end] == _STAR:
            out.append(f"(?>{_STAR}?{''.join(pieces[at + 1 : end])})")
            at = end
            continue
        if not (out and pieces[at] == out[-1] == _FOLDERS):
            out.append(pieces[at])
        at += 1
    return out


def _translate_token(glob: str, at: int, depth: int) -> tuple[str, int]:
    rest = glob[at:]
    if rest.startswith("**/") and (at == 0 or glob[at - 1] in "/{,"):
        return _FOLDERS, 3
    if rest == "**" and (at == 0 or glob[at - 1] == "/"):
        return ".*", 2
    char = rest[0]
    if char == "[":
        return _translate_set(rest)
    if char == "{":
        return ("(?:", 1) if "}" in rest else (r"\{", 1)
    if depth and char in "},":
        return (")" if char == "}" else "|"), 1
    if char == "\\" and len(rest) > 1:
        return re.escape(rest[1]), 2
    return {"*": _STAR, "?": "[^/]"}.get(char, re.escape(char)), 1


def _translate_set(rest: str) -> tuple[str, int]:
    end = rest.find("]", 2 if rest[1:2] not in "!^" else 3)
    if end < 0:
        return r"\[", 1
    body = rest[1:end].replace("\\", "\\\\").replace("[", r"\[").replace("&&", r"&\&")
    if body[0] in "!^":
        body = "^/" + body[1:]
    return f"[{body}]", end + 1
