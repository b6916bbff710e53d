"""Wildcards in the patterns of rules, matched in a time that nobody can drive up.

A project that nobody trusts may still deny and ask, so its patterns are somebody else's. `*` and `?` stay within one
folder, `**` crosses them; `dir/**` also means the folder itself, and `**/x` also `x`.
"""

import re
from collections.abc import Callable
from functools import lru_cache

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
