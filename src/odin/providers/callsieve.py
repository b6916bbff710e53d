"""Watches a reply for written calls while it is still coming in, so that one is never shown as text."""

import re
from collections.abc import Iterable
from typing import cast

from odin.core.provider import ToolSpec
from odin.providers.loosejson import read_json
from odin.providers.textcalls import FIRST_KEYS, HEAD, LANGUAGES, OPENER, TAGS, end_of_code, find_calls

_SUSPECT = re.compile(r"^[ \t]*(?:`+|~+|[{\[]|(?<=[ \t])\Z)|<(?=[a-z|]|\Z)|\[(?=T|\Z)", re.MULTILINE)
_MARKS = (*(f"<{tag}>" for tag in TAGS), "<function=", "<|python_tag|>", "[TOOL_CALLS]")


class CallSieve:
    """Lets the text of a reply through at once, except from where a written call may begin.

    What is held back is let go as soon as it turns out to be no call; `rest()` is what is still held at the end.
    """

    def __init__(self, offered: Iterable[str] | Iterable[ToolSpec]) -> None:
        self._offered = tuple(offered)
        self._text = ""
        self._shown = 0
        self._looked = 0
        self._fence: str = ""

    def feed(self, text: str) -> str:
        """Add a piece of the reply; returns what may be shown now."""
        self._text += text
        start = self._shown
        self._shown = self._pass(text)
        return self._text[start : self._shown]

    def rest(self) -> str:
        return self._text[self._shown :]

    def _pass(self, newest: str) -> int:
        """Up to where the text so far is no call."""
        while self._leave_code():
            suspect = _SUSPECT.search(self._text, self._looked)
            if suspect is None:
                break
            if self._possible(suspect.start(), newest):
                self._looked = suspect.start()
                return max(self._looked, self._shown)
            self._looked = suspect.end()
            mark = suspect[0].lstrip(" \t")
            self._fence = mark if mark[:3] in ("```", "~~~") else ""
        self._looked = len(self._text) if not self._fence else self._looked
        return len(self._text)

    def _leave_code(self) -> bool:
        """Go past the end of the code block we are in; False while it is still open."""
        if not self._fence:
            return True
        close = end_of_code(self._text, self._looked, self._fence)
        if close < 0 or close == len(self._text):
            return False
        self._looked, self._fence = close, ""
        return True

    def _possible(self, at: int, newest: str) -> bool:
        held = self._text[at:].lstrip(" \t")
        if not held:
            return True
        if held[0] in "`~":
            return self._fenced(held, newest)
        if held[0] == "<" or held.startswith("[T"):
            return _mark(held)
        return _json_head(held) and not self._refuted(held, newest, "}")

    def _fenced(self, held: str, newest: str) -> bool:
        if len(held) < 3:
            return held == held[0] * len(held)
        opener = OPENER.match(held)
        if opener is None or not opener["fence"]:
            return False
        language = opener["language"].casefold()
        if opener.end() == len(held) and not held.endswith("\n"):
            return any(known.startswith(language) for known in LANGUAGES)
        body = held[opener.end() :].lstrip()
        head = _mark(body) if body.startswith("<") else _json_head(body)
        return language in LANGUAGES and head and not self._refuted(held, newest, opener["fence"])

    def _refuted(self, held: str, newest: str, closing: str) -> bool:
        """Whether the held block is complete and is no call. Looked into only when its last character may have come."""
        if closing[0] not in newest:
            return False
        if closing != "}":
            return end_of_code(held, len(closing), closing) > 0 and not self._found(held)
        value, end = read_json(held, 0)
        return end > 0 and value is not None and not self._found(held[:end])

    def _found(self, block: str) -> bool:
        found = find_calls(block, cast("tuple[str, ...]", self._offered))
        return bool(found.calls) or found.contract


def _mark(held: str) -> bool:
    """Whether the text is, or may become, one of the openers, followed by something that can be a call."""
    mark = next((mark for mark in _MARKS if held.startswith(mark)), None)
    if mark is None:
        return any(mark.startswith(held) for mark in _MARKS)
    if mark in ("<function=", "[TOOL_CALLS]"):
        return True
    body = held[len(mark) :].lstrip()
    return not body or body[0] in "{[<`"


def _json_head(held: str) -> bool:
    """Whether JSON that starts like this may be a call: its first key is one that calls have."""
    if not held.strip("[{ \t\r\n"):
        return len(held) < 200
    head = HEAD.match(held)
    if head is None:
        return False
    key, closed = head[1], head[2]
    if closed:
        return key in FIRST_KEYS
    return head.end() == len(held) and any(known.startswith(key) for known in FIRST_KEYS)
