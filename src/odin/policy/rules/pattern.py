"""Wildcards in the patterns of rules, matched in a time that nobody can drive up.

A project that nobody trusts may still deny and ask, so its patterns are somebody else's. `*` and `?` stay within one
folder, `**` crosses them; `dir/**` also means the folder itself, and `**/x` also `x`.

Patterns of rules: the words of a command, the path of a file, the address of a page.

Each is read with one of two kinds of care. To allow, everything must be exactly as the pattern says. To deny or to ask,
it is enough that something looks like it: options in another order, another path to the same program, other letters of
the same name.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from odin.core.path_names import contains
from odin.policy.commands.syntax import ExtractedCommand, ShellWord

_TOKEN = re.compile(r"\*\*/|/\*\*(?![^/])|\*\*|\*|\?|[^*?]", re.DOTALL)
_MAX_EXPRESSION_WILDCARDS = 3
"""So many wildcards a regular expression can match without trying too much."""

Matcher = Callable[[str], bool]


@lru_cache(maxsize=1024)
def compile_wildcard(pattern: str, *, loose: bool = False, flat: bool = False) -> Matcher:
    """`loose` takes letters of any case for the same. In a `flat` text there are no folders: `*` means anything."""
    pattern = pattern.casefold() if loose else pattern
    found = _TOKEN.findall(re.sub(r"(?:\*\*/){2,}", "**/", re.sub(r"\*{3,}", "**", pattern)))
    tokens = ["**" if flat and token == "*" else token for token in found]
    few = sum("*" in token for token in tokens) <= _MAX_EXPRESSION_WILDCARDS
    match = _compile_expression(tokens, flat) if few else _compile_states(tokens, flat)
    return (lambda text: match(text.casefold())) if loose else match


_EXPRESSIONS = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _compile_expression(tokens: list[str], flat: bool) -> Matcher:
    shapes = {**_EXPRESSIONS, "?": "."} if flat else _EXPRESSIONS
    shape = re.compile("".join(shapes.get(token) or re.escape(token) for token in tokens), re.DOTALL)
    return lambda text: shape.fullmatch(text) is not None


def _compile_states(tokens: list[str], flat: bool) -> Matcher:
    return _WildcardStates(tokens, flat).match


class _WildcardStates:
    """All that may come next, at once: numbers of tokens, negative ones while inside of a `**/` or `/**`."""

    def __init__(self, tokens: list[str], flat: bool) -> None:
        self._tokens = tokens
        self._end = len(tokens)
        self._flat = flat

    def match(self, text: str) -> bool:
        states = self._close_states({0})
        for char in text:
            states = self._close_states({after for at in states for after in self._step(at, char)})
            if not states:
                return False
        return self._end in states

    def _close_states(self, states: set[int]) -> set[int]:
        """With those that are reached because a wildcard may stand for nothing, or may end here."""
        waiting = list(states)
        while waiting:
            at = waiting.pop()
            after = at
            if at < 0:
                after = -at if self._tokens[-at - 1] == "/**" else at
            elif at < self._end and "*" in self._tokens[at]:
                after = at + 1
            if after not in states:
                states.add(after)
                waiting.append(after)
        return states

    def _step(self, at: int, char: str) -> tuple[int, ...]:
        token = self._tokens[-at - 1] if at < 0 else self._tokens[at] if at < self._end else ""
        if at < 0:
            return (at, -at) if token == "**/" and char == "/" else (at,)
        if token == "**/":
            return (-at - 1, at + 1) if char == "/" else (-at - 1,)
        if token == "/**":
            return (-at - 1,) if char == "/" else ()
        if token == "**" or (token == "*" and char != "/"):
            return (at,)
        fits = token == char or (token == "?" and (self._flat or char != "/"))
        return (at + 1,) if fits else ()


_GIT_VALUED = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix"))
_QUOTES = str.maketrans("", "", "'\"\\")


def has_wildcard(text: str) -> bool:
    return "*" in text or "?" in text


class CommandPattern(Struct, frozen=True):
    """The words a command begins with; with `open` more may follow. No words at all mean every command."""

    words: tuple[str, ...]
    is_prefix: bool = False

    def match_words(self, words: Sequence[ShellWord]) -> Sequence[ShellWord] | None:
        """To allow: the words that the pattern does not name itself, or None when the command is not what it says.

        Every word must be literal, and a wildcard stands for one word that is not an option.
        """
        size = len(self.words)
        if len(words) < size or (not self.is_prefix and len(words) > size) or not all(word.literal for word in words):
            return None
        loose: list[ShellWord] = []
        for wanted, word in zip(self.words, words, strict=False):
            if has_wildcard(wanted):
                if word.text.startswith("-") or not compile_wildcard(wanted)(word.text):
                    return None
                loose.append(word)
            elif wanted != word.text:
                return None
        return [*loose, *words[size:]]

    def matches(self, part: ExtractedCommand) -> bool:
        """To deny or ask: whether a command is this one, whatever path, options or order it is written with."""
        if not self.words:
            return self.is_prefix
        named, flags = _separate_options((self.words[0].rsplit("/", 1)[-1], *self.words[1:]))
        plain, given = _separate_options((part.name, *_without_git_values(part.name, part.texts[1:])))
        if self.is_prefix or self.words[-1].endswith("*"):
            return bool(named) and _starts_with(named, plain) and flags <= given
        wildcards = any(has_wildcard(word) for word in self.words)
        return _starts_with(named, plain, whole=True) and (flags <= given if wildcards else flags == given)

    def is_mentioned_in(self, text: str) -> bool:
        """The crude look, for a text that could not be read: the words in a row, whatever stands between them."""
        words = [_compile_crudely(word) for word in self.words]
        crude = r"(?<![\w-])" + r"[^\w]+".join(words) + r"(?![\w-])"
        return bool(words) and any(re.search(crude, form) for form in (text, text.translate(_QUOTES)))


def parse_command_pattern(text: str) -> CommandPattern:
    """`git log:*` and `git log *` begin a command, `git log` is all of it, `*` is any."""
    text = text.strip()
    if text in ("", "*", "**", ":*"):
        return CommandPattern((), is_prefix=True)
    for suffix in (":*", " *"):
        if text.endswith(suffix):
            return CommandPattern(words_of(text.removesuffix(suffix)), is_prefix=True)
    return CommandPattern(words_of(text))


def words_of(text: str) -> tuple[str, ...]:
    if not set(text) & set("'\"\\"):
        return tuple(text.split())
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def _compile_crudely(word: str) -> str:
    """A word as a regular expression; whatever follows its first wildcard is taken for anything."""
    fixed, star, _ = word.partition("*")
    return re.escape(fixed).replace(r"\?", r"\S") + (r"\S*+" if star else "")


def _starts_with(wanted_words: Sequence[str], given_words: Sequence[str], *, whole: bool = False) -> bool:
    """Whether the plain words begin with the named ones, where a lone `*` stands for any number of words.

    `reached` are the places up to which the plain words may have been used up by the named ones so far.
    """
    reached = {0}
    for wanted in wanted_words:
        if wanted == "*":
            reached = set(range(min(reached), len(given_words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(given_words) and _matches_word(wanted, given_words[at])}
        if not reached:
            return False
    return not whole or len(given_words) in reached


def _matches_word(wanted: str, word: str) -> bool:
    return compile_wildcard(wanted)(word) if has_wildcard(wanted) else wanted == word


def _without_git_values(name: str, texts: Sequence[str]) -> list[str]:
    if name != "git":
        return list(texts)
    rest = list(texts)
    while rest and rest[0].startswith("-"):
        rest = rest[2 if rest[0] in _GIT_VALUED else 1 :]
    return rest


def _separate_options(words: Sequence[str]) -> tuple[list[str], set[str]]:
    """Plain words in order, and options as a set with bundles of short ones taken apart."""
    plain = [word for word in words if not word.startswith("-") or word == "-"]
    flags: set[str] = set()
    for word in words:
        if word.startswith("--"):
            flags.add(word.split("=", 1)[0])
        elif word.startswith("-"):
            flags.update(word[1:])
    return plain, flags


# --- paths ---


def matches_path_strictly(pattern: str, path: str, root: str) -> bool:
    """Whether a real path is meant. What lies outside the project must be named from `/` or `~/` on, by a folder."""
    if not contains(root, path) and not re.match(r"(//?|~/)[^/*?]", pattern):
        return False
    return _matches_path(_expand_pattern(pattern), path, root, loose=False)


def matches_path_loosely(pattern: str, path: str, root: str) -> bool:
    """Whether a path may be meant: letters of any case, and `/x` both from the top and from the project's root."""
    full = _expand_pattern(pattern)
    if _matches_path(full, path, root, loose=True):
        return True
    rooted = pattern.startswith("/") and not pattern.startswith("//")
    return rooted and _matches_path(f".{full}", path, root, loose=True)


def is_exact(pattern: str) -> bool:
    """Whether a pattern is the name or path of one thing, so that a person can be said to have meant that thing."""
    return bool(pattern) and not has_wildcard(pattern)


def resolve_pattern(pattern: str, root: str) -> str:
    """The full path that a pattern without wildcards stands for, when it is read as a path and not as a name."""
    full = _expand_pattern(pattern).removeprefix("./")
    return full if full.startswith("/") else f"{root.rstrip('/')}/{full}"


def _expand_pattern(pattern: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        pattern = f"{Path.home()}{pattern[1:]}"
    if pattern.startswith("//"):
        pattern = pattern[1:]
    return f"{pattern}**" if pattern.endswith("/") else pattern


def _matches_path(pattern: str, path: str, root: str, *, loose: bool) -> bool:
    """Without a slash a name anywhere in the project, with one a path from its root, or from `/` on."""
    if pattern.startswith("/"):
        return compile_wildcard(pattern, loose=loose)(path)
    if not contains(root, path):
        return False
    inner = path[len(root.rstrip("/")) :].lstrip("/")
    if "/" not in pattern:
        return pattern in ("*", "**") or any(map(compile_wildcard(pattern, loose=loose), inner.split("/")))
    return compile_wildcard(pattern.removeprefix("./"), loose=loose)(inner)


def matches_tool_name(pattern: str, name: str) -> bool:
    """Whether a tool's name is meant. `mcp__server` means every tool of that server."""
    if pattern.startswith("mcp__") and pattern.count("__") == 1 and name.startswith(f"{pattern}__"):
        return True
    return pattern == name or (has_wildcard(pattern) and compile_wildcard(pattern)(name))


# --- addresses ---


def matches_url_strictly(pattern: str, url: str) -> bool:
    """`domain:example.org` means that host and those below it; a wildcard may only follow a complete host."""
    if pattern.startswith("domain:"):
        return _is_in_domain(pattern, host_of(url))
    if not has_wildcard(pattern):
        return pattern == url
    fixed = re.split(r"[*?]", pattern, maxsplit=1)[0]
    return re.match(r"\w+://[^/]+/", fixed) is not None and compile_wildcard(pattern, flat=True)(url)


def matches_url_loosely(pattern: str, url: str) -> bool:
    """As above, but an address whose host cannot be told is taken for the one it mentions."""
    if pattern.startswith("domain:"):
        host = host_of(url)
        return _is_in_domain(pattern, host) if host else _domain_of(pattern) in url.casefold()
    return compile_wildcard(pattern, loose=True, flat=True)(url)


def _domain_of(pattern: str) -> str:
    return pattern.removeprefix("domain:").strip().lower().removeprefix("*.").rstrip(".")


def _is_in_domain(pattern: str, host: str) -> bool:
    domain = _domain_of(pattern)
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def host_of(url: str) -> str:
    """The host of an address, or "" when it has none that could be a host."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""
    return host if re.fullmatch(r"[a-z0-9.-]+", host) else ""
