"""Patterns in rules: for the words of a command, the path of a file, and URLs.

Allow rules match strictly. Deny and ask rules match loosely: options in another order, another path to the same
program, or another case also match.

`*` and `?` stay within one folder, `**` crosses folders; `dir/**` includes the folder itself, `**/x` includes `x`.
An untrusted project may deny and ask, so its patterns are hostile input: matching takes linear time.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from odin.core.lazy_pattern import compile_lazily
from odin.core.path_names import contains
from odin.policy.paths import join_path, resolve_path

if TYPE_CHECKING:
    from odin.policy.command_scope import CommandScope
    from odin.policy.commands.syntax import ExtractedCommand, ShellWord

_TOKEN = compile_lazily(r"\*\*/|/\*\*(?![^/])|\*\*|\*|\?|[^*?]", re.DOTALL)
_MAX_EXPRESSION_WILDCARDS = 3
"""With more wildcards, a regular expression could backtrack for too long."""

Matcher = Callable[[str], bool]


@lru_cache(maxsize=1024)
def compile_wildcard(pattern: str, *, loose: bool = False, flat: bool = False) -> Matcher:
    """Return a matcher. `loose` ignores case. In a `flat` text there are no folders: `*` matches anything."""
    pattern = pattern.casefold() if loose else pattern
    raw_tokens = _TOKEN.findall(re.sub(r"(?:\*\*/){2,}", "**/", re.sub(r"\*{3,}", "**", pattern)))
    tokens = ["**" if flat and token == "*" else token for token in raw_tokens]
    few = sum("*" in token for token in tokens) <= _MAX_EXPRESSION_WILDCARDS
    match = _compile_expression(tokens, flat) if few else _WildcardStates(tokens, flat).match
    return (lambda text: match(text.casefold())) if loose else match


_EXPRESSIONS = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _compile_expression(tokens: list[str], flat: bool) -> Matcher:
    shapes = {**_EXPRESSIONS, "?": "."} if flat else _EXPRESSIONS
    shape = re.compile("".join(shapes.get(token) or re.escape(token) for token in tokens), re.DOTALL)
    return lambda text: shape.fullmatch(text) is not None


class _WildcardStates:
    """Matches by tracking all possible states at once: token indexes, negative inside a `**/` or `/**`."""

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
        """Add the states reached because a wildcard matches nothing or ends here."""
        pending = list(states)
        while pending:
            at = pending.pop()
            after = at
            if at < 0:
                after = -at if self._tokens[-at - 1] == "/**" else at
            elif at < self._end and "*" in self._tokens[at]:
                after = at + 1
            if after not in states:
                states.add(after)
                pending.append(after)
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


_GIT_VALUED_OPTIONS = frozenset(
    (
        *("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix"),
        *("--config-env", "--attr-source"),
    )
)
_QUOTES = str.maketrans("", "", "'\"\\")


def has_wildcard(text: str) -> bool:
    return "*" in text or "?" in text


class CommandPattern(Struct, frozen=True):
    """The leading words of a command; with `is_prefix` more may follow. Without words, every command matches."""

    words: tuple[str, ...]
    is_prefix: bool = False

    @property
    def is_open(self) -> bool:
        """True if a program is named, but not all of its arguments."""
        return bool(self.words) and (self.is_prefix or any(map(has_wildcard, self.words[1:])))

    def match_words(self, words: "Sequence[ShellWord]", folder: str = "") -> "Sequence[ShellWord] | None":
        """Match strictly, to allow. Return the words that the pattern does not name, or None without a match.

        Every word must be literal, and a wildcard matches one word that is not an option. If the `folder` in which the
        command runs is known, an absolute path in the pattern also matches a relative path to the same place.
        """
        size = len(self.words)
        if len(words) < size or (not self.is_prefix and len(words) > size) or not all(word.literal for word in words):
            return None
        unnamed: list[ShellWord] = []
        for at, (wanted, word) in enumerate(zip(self.words, words, strict=False)):
            if has_wildcard(wanted):
                if word.text.startswith("-") or not compile_wildcard(wanted)(word.text):
                    return None
                unnamed.append(word)
            elif wanted != word.text and not _is_same_place(wanted, word.text, folder, is_program=not at):
                return None
        return [*unnamed, *words[size:]]

    def matches(self, part: "ExtractedCommand") -> bool:
        """Match loosely, to deny or ask: any path to the program, further options, any order of options."""
        if not self.words:
            return self.is_prefix
        wanted_words, wanted_flags = separate_options((self.words[0].rsplit("/", 1)[-1], *self.words[1:]))
        given = skip_git_options(part.texts[1:]) if part.name == "git" else part.texts[1:]
        given_words, given_flags = separate_options((part.name, *given))
        has_flags = all(any(matches_word(flag, other) for other in given_flags) for flag in wanted_flags)
        if self.is_prefix or self.words[-1].endswith("*"):
            return bool(wanted_words) and _starts_with(wanted_words, given_words) and has_flags
        wildcards = any(has_wildcard(word) for word in self.words)
        return _starts_with(wanted_words, given_words, whole=True) and (
            has_flags if wildcards else wanted_flags == given_flags
        )

    def is_mentioned_in(self, text: str) -> bool:
        """True if text that could not be parsed contains the words in a row, separated by any other characters."""
        words = [_compile_crudely(word) for word in self.words]
        crude = r"(?<![\w-])" + r"[^\w]+".join(words) + r"(?![\w-])"
        return bool(words) and any(re.search(crude, form) for form in (text, text.translate(_QUOTES)))


def _is_same_place(wanted: str, word: str, folder: str, *, is_program: bool) -> bool:
    """True if a word of a command that runs in `folder` is another path to an absolute path. Both end in one name."""
    if not folder or not wanted.startswith("/") or word.startswith(("-", "~")) or (is_program and "/" not in word):
        return False
    (place, name), (other, own) = wanted.rsplit("/", 1), join_path(folder, word).rsplit("/", 1)
    return name == own not in ("", ".", "..") and resolve_path(place or "/", "/") == resolve_path(other or "/", "/")


def parse_command_pattern(text: str) -> CommandPattern:
    """Parse a pattern: `git log:*` and `git log *` are prefixes, `git log` is the whole command, `*` is any command."""
    text = text.strip()
    if text in ("", "*", "**", ":*"):
        return CommandPattern((), is_prefix=True)
    for suffix in (":*", " *"):
        if text.endswith(suffix):
            return CommandPattern(split_words(text.removesuffix(suffix)), is_prefix=True)
    return CommandPattern(split_words(text))


def split_words(text: str) -> tuple[str, ...]:
    if not set(text) & set("'\"\\"):
        return tuple(text.split())
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def _compile_crudely(word: str) -> str:
    """Return a word as a regular expression in which everything after the first `*` matches anything."""
    fixed, star, _ = word.partition("*")
    return re.escape(fixed).replace(r"\?", r"\S") + (r"\S*+" if star else "")


def _starts_with(wanted_words: Sequence[str], given_words: Sequence[str], *, whole: bool = False) -> bool:
    """True if the given words start with the wanted ones, where a lone `*` matches any number of words.

    `reached` are the numbers of given words that the wanted words so far may have consumed.
    """
    reached = {0}
    for wanted in wanted_words:
        if wanted == "*":
            reached = set(range(min(reached), len(given_words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(given_words) and matches_word(wanted, given_words[at])}
        if not reached:
            return False
    return not whole or len(given_words) in reached


def matches_word(wanted: str, word: str) -> bool:
    return compile_wildcard(wanted)(word) if has_wildcard(wanted) else wanted == word


def skip_git_options(texts: Sequence[str]) -> Sequence[str]:
    """Return the words of a git command from its subcommand on."""
    while texts and texts[0].startswith("-"):
        texts = texts[2 if texts[0] in _GIT_VALUED_OPTIONS else 1 :]
    return texts


def separate_options(words: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return the operands in order, and the options as a set with bundles of short options split."""
    plain = [word for word in words if not word.startswith("-") or word == "-"]
    flags: set[str] = set()
    for word in words:
        if word.startswith("--"):
            flags.add(word.split("=", 1)[0])
        elif word.startswith("-"):
            flags.update(word[1:])
    return plain, flags


# --- paths ---


def matches_path_strictly(pattern: str, path: str, scope: "CommandScope", root: str = "") -> bool:
    """True if a resolved path matches. Outside the project, the pattern must start with `/` or `~/` and a name.

    A rule of another `root` matches there, and nowhere else.
    """
    if root and not contains(root, path):
        return False
    if not contains(root or scope.root, path) and not re.match(r"(//?|~/)[^/*?]", pattern):
        return False
    return _matches_path(_expand_pattern(pattern, scope), path, root or scope.root, loose=False)


def matches_path_loosely(pattern: str, path: str, scope: "CommandScope", root: str = "") -> bool:
    """True if a path may match: in any case, with `/x` relative to both the file system root and the root of a project.

    That is the `root` that the rule belongs to, or any of the session.
    """
    full = _expand_pattern(pattern, scope)
    rooted = pattern.startswith("/") and not pattern.startswith("//")
    return any(
        _matches_path(full, path, top, loose=True) or (rooted and _matches_path(f".{full}", path, top, loose=True))
        for top in ((root,) if root else scope.folders)
    )


def is_exact(pattern: str) -> bool:
    """True if a pattern names exactly one file."""
    return bool(pattern) and not has_wildcard(pattern)


def resolve_pattern(pattern: str, scope: "CommandScope", root: str = "") -> str:
    """Return the absolute path that a pattern without wildcards names, in a rule of the project or of another root."""
    full = _expand_pattern(pattern, scope).removeprefix("./")
    return full if full.startswith("/") else f"{(root or scope.root).rstrip('/')}/{full}"


def _expand_pattern(pattern: str, scope: "CommandScope") -> str:
    pattern = scope.environment.expand_home(pattern)
    if pattern.startswith("//"):
        pattern = pattern[1:]
    return f"{pattern}**" if pattern.endswith("/") else pattern


def _matches_path(pattern: str, path: str, root: str, *, loose: bool) -> bool:
    """Match a pattern: without a slash a name anywhere in the project, with one a path from its root or from `/`."""
    if pattern.startswith("/"):
        return compile_wildcard(pattern, loose=loose)(path)
    if not contains(root, path):
        return False
    inner = path[len(root.rstrip("/")) :].lstrip("/")
    if "/" not in pattern:
        return pattern in ("*", "**") or any(map(compile_wildcard(pattern, loose=loose), inner.split("/")))
    return compile_wildcard(pattern.removeprefix("./"), loose=loose)(inner)


def matches_tool_name(pattern: str, name: str) -> bool:
    return pattern == name or (has_wildcard(pattern) and compile_wildcard(pattern)(name))


# --- URLs ---


def matches_url_strictly(pattern: str, url: str) -> bool:
    """True if a URL matches. `domain:example.org` includes subdomains; a wildcard may only follow a complete host."""
    if pattern.startswith("domain:"):
        return _is_in_domain(pattern, get_host(url))
    if not has_wildcard(pattern):
        return pattern == url
    fixed = re.split(r"[*?]", pattern, maxsplit=1)[0]
    return re.match(r"\w+://[^/]+/", fixed) is not None and compile_wildcard(pattern, flat=True)(url)


def matches_url_loosely(pattern: str, url: str) -> bool:
    """Like `matches_url_strictly`, but a URL without a valid host matches any domain that it mentions."""
    if pattern.startswith("domain:"):
        host = get_host(url)
        return _is_in_domain(pattern, host) if host else _get_domain(pattern) in url.casefold()
    return compile_wildcard(pattern, loose=True, flat=True)(url)


def _get_domain(pattern: str) -> str:
    return pattern.removeprefix("domain:").strip().lower().removeprefix("*.").rstrip(".")


def _is_in_domain(pattern: str, host: str) -> bool:
    domain = _get_domain(pattern)
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def is_host_named(pattern: str, url: str) -> bool:
    """True if a pattern for URLs names exactly the host of this one."""
    given = pattern.removeprefix("domain:").strip().lower() if pattern.startswith("domain:") else _get_raw_host(pattern)
    return bool(given) and given == _get_raw_host(url)


def _get_raw_host(url: str) -> str:
    """Return the host of a URL, which may be an IPv6 address, or ""."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def get_host(url: str) -> str:
    """Return the host of a URL, or "" if it has no valid one."""
    host = _get_raw_host(url)
    return host if re.fullmatch(r"[a-z0-9.-]+", host) else ""


def is_private_url(url: str) -> bool:
    """True if a URL names this machine or an address of a private network. A name may still lead to one."""
    import ipaddress

    host = _get_raw_host(url)
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(host.partition("%")[0]).is_global
    except ValueError:
        return False
