"""Watches a reply for written calls while it is still coming in, so that one is never shown as text."""

import re
from collections.abc import Iterable
from typing import cast

from odin.core.provider import ToolSpec
from odin.providers.loosejson import read_json
from odin.providers.textcalls import (
    CALL_OPENER,
    CALL_TAGS,
    FENCE_LANGUAGES,
    FIRST_KEYS,
    JSON_HEAD,
    find_calls,
    find_code_end,
)

_SUSPECT_START = re.compile(r"^[ \t]*(?:`+|~+|[{\[]|(?<=[ \t])\Z)|<(?=[a-z|]|\Z)|\[(?=T|\Z)", re.MULTILINE)
_CALL_MARKS = (*(f"<{tag}>" for tag in CALL_TAGS), "<function=", "<|python_tag|>", "[TOOL_CALLS]")


class TextCallFilter:
    """Lets the text of a reply through at once, except from where a written call may begin.

    What is held back is let go as soon as it turns out to be no call; `rest()` is what is still held at the end.
    """

    def __init__(self, offered: Iterable[str] | Iterable[ToolSpec]) -> None:
        self._offered = tuple(offered)
        self._text = ""
        self._shown = 0
        self._scanned = 0
        self._fence: str = ""

    def feed(self, text: str) -> str:
        """Add a piece of the reply; returns what may be shown now."""
        self._text += text
        start = self._shown
        self._shown = self._find_safe_end(text)
        return self._text[start : self._shown]

    def get_held_text(self) -> str:
        return self._text[self._shown :]

    def _find_safe_end(self, newest: str) -> int:
        """Up to where the text so far is no call."""
        while self._leave_code():
            suspect = _SUSPECT_START.search(self._text, self._scanned)
            if suspect is None:
                break
            if self._may_begin_call(suspect.start(), newest):
                self._scanned = suspect.start()
                return max(self._scanned, self._shown)
            self._scanned = suspect.end()
            mark = suspect[0].lstrip(" \t")
            self._fence = mark if mark[:3] in ("```", "~~~") else ""
        self._scanned = len(self._text) if not self._fence else self._scanned
        return len(self._text)

    def _leave_code(self) -> bool:
        """Go past the end of the code block we are in; False while it is still open."""
        if not self._fence:
            return True
        close = find_code_end(self._text, self._scanned, self._fence)
        if close < 0 or close == len(self._text):
            return False
        self._scanned, self._fence = close, ""
        return True

    def _may_begin_call(self, at: int, newest: str) -> bool:
        held = self._text[at:].lstrip(" \t")
        if not held:
            return True
        if held[0] in "`~":
            return self._may_be_fenced_call(held, newest)
        if held[0] == "<" or held.startswith("[T"):
            return _may_be_mark(held)
        return _may_be_call_json(held) and not self._is_ruled_out(held, newest, "}")

    def _may_be_fenced_call(self, held: str, newest: str) -> bool:
        if len(held) < 3:
            return held == held[0] * len(held)
        opener = CALL_OPENER.match(held)
        if opener is None or not opener["fence"]:
            return False
        language = opener["language"].casefold()
        if opener.end() == len(held) and not held.endswith("\n"):
            return any(known.startswith(language) for known in FENCE_LANGUAGES)
        body = held[opener.end() :].lstrip()
        head = _may_be_mark(body) if body.startswith("<") else _may_be_call_json(body)
        return language in FENCE_LANGUAGES and head and not self._is_ruled_out(held, newest, opener["fence"])

    def _is_ruled_out(self, held: str, newest: str, closing: str) -> bool:
        """Whether the held block is complete and is no call. Looked into only when its last character may have come."""
        if closing[0] not in newest:
            return False
        if closing != "}":
            return find_code_end(held, len(closing), closing) > 0 and not self._has_calls(held)
        value, end = read_json(held, 0)
        return end > 0 and value is not None and not self._has_calls(held[:end])

    def _has_calls(self, block: str) -> bool:
        found = find_calls(block, cast("tuple[str, ...]", self._offered))
        return bool(found.calls) or found.contract


def _may_be_mark(held: str) -> bool:
    """Whether the text is, or may become, one of the openers, followed by something that can be a call."""
    mark = next((mark for mark in _CALL_MARKS if held.startswith(mark)), None)
    if mark is None:
        return any(mark.startswith(held) for mark in _CALL_MARKS)
    if mark in ("<function=", "[TOOL_CALLS]"):
        return True
    body = held[len(mark) :].lstrip()
    return not body or body[0] in "{[<`"


def _may_be_call_json(held: str) -> bool:
    """Whether JSON that starts like this may be a call: its first key is one that calls have."""
    if not held.strip("[{ \t\r\n"):
        return len(held) < 200
    head = JSON_HEAD.match(held)
    if head is None:
        return False
    key, closed = head[1], head[2]
    if closed:
        return key in FIRST_KEYS
    return head.end() == len(held) and any(known.startswith(key) for known in FIRST_KEYS)
