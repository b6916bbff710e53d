"""How a reply by the planner's JSON contract is read: piece by piece as it comes in, then as a whole."""

import os
import re
from binascii import crc32
from collections.abc import Iterable
from typing import Any, cast

from msgspec import Struct

from odin.core.message import AssistantMessage
from odin.core.provider import CallPiece, Piece, Request, StopPiece, TextPiece, ToolSpec
from odin.providers.callsieve import CallSieve
from odin.providers.contract_request import dumps
from odin.providers.loosejson import read_object
from odin.providers.textcalls import as_arguments, find_calls, is_contract, split_call

_BEGINS = re.compile(r'\s*\{\s*(?:"taskCompleted"\s*:\s*(?:true|false)\s*,\s*)?"explanation"\s*:\s*"')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PLAIN = re.compile(r'[^"\\]+')
_SURROGATE = re.compile("[\ud800-\udfff]")
_PATHS = ("file_path", "path")
_TOOL_NAME = re.compile(r'"toolName"\s*:\s*"([\w.\-]+)"')
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|(["\\/bfnrt]))')


class ExplanationReader:
    """Takes the JSON of a reply piece by piece and gives out its explanation as it becomes readable."""

    def __init__(self) -> None:
        self._buffer = ""
        self._at = -1
        self._closed = False
        self.given = ""

    def feed(self, fragment: str) -> str:
        self._buffer += fragment
        if self._closed:
            return ""
        if self._at < 0:
            begins = _BEGINS.match(self._buffer)
            if begins is None:
                return ""
            self._at = begins.end()
        text = "".join(self._characters())
        self.given += text
        return text

    @property
    def json(self) -> str:
        return self._buffer

    def _characters(self) -> Iterable[str]:
        while self._at < len(self._buffer):
            plain = _PLAIN.match(self._buffer, self._at)
            if plain:
                self._at = plain.end()
                yield plain[0]
                continue
            if self._buffer[self._at] == '"':
                self._closed = True
                return
            escape = _ESCAPE.match(self._buffer, self._at)
            if escape is None or self._incomplete(escape):
                return
            self._at = escape.end()
            yield _ESCAPES[escape[3]] if escape[3] else _unicode(escape[1], escape[2])

    def _incomplete(self, escape: re.Match[str]) -> bool:
        """Whether the second half of a surrogate pair may still be on its way."""
        high = escape[1] and escape[1][:2].casefold() in ("d8", "d9", "da", "db")
        return bool(high and not escape[2] and len(self._buffer) - escape.end() < 6)


def _unicode(first: str, second: str | None) -> str:
    code = int(first, 16)
    if 0xD800 <= code <= 0xDBFF and second:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(second, 16) - 0xDC00))
    character = "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
    return character + (_unicode(second, None) if second else "")


def call_id(model: str) -> str:
    """A fresh id that also says by which model the call was written as text, so that a resumed session knows it."""
    return _marked(model) + os.urandom(6).hex()


def _marked(model: str) -> str:
    return f"json_{crc32(model.encode()):08x}_"


def wrote_calls(request: Request) -> bool:
    """Whether this model wrote a call as text earlier in the conversation."""
    prefix = _marked(request.model)
    calls = (call for message in request.messages if isinstance(message, AssistantMessage) for call in message.calls)
    return any(call.id.startswith(prefix) for call in calls)


class Outcome(Struct, frozen=True):
    """A finished reply: what is still to be said, and the calls with their arguments as JSON."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()


def _of_object(raw: str, given: str, tools: tuple[ToolSpec, ...], cut: bool, cwd: str) -> Outcome:
    """What a reply that began like a JSON object comes to.

    `given` is the explanation already shown. `cut` means that the token limit ended the reply: what is broken then is
    no mistake of the model's, and no part of it is run.
    """
    value = read_object(raw)
    if value is not None and is_contract(value):
        calls = tuple(_entries(value.get("executeTool"), cwd))
        rest = "" if given else str(value.get("explanation") or "")
        return Outcome(rest if rest or given or calls else "Done.", calls)
    found = find_calls(raw, tools)
    if found.calls:
        return Outcome(found.text, tuple((name, _arguments(args, cwd)) for name, args in found.calls))
    if value is not None or cut:
        return Outcome("" if given else raw)
    named = _TOOL_NAME.search(raw)
    return Outcome("", ((named[1] if named else "executeTool", raw),))


def of_prose(held: str, tools: tuple[ToolSpec, ...], cwd: str) -> Outcome:
    """What the held-back end of a reply comes to: the calls written in it, or the text it is."""
    found = find_calls(held, tools)
    if not found.calls and not found.contract:
        return Outcome(held)
    return Outcome(found.text, tuple((name, _arguments(args, cwd)) for name, args in found.calls))


def _arguments(args: dict[str, Any], cwd: str) -> str:
    """Arguments as JSON, with relative paths made absolute: a model this small names files as the user does."""
    if cwd:
        args = {name: _absolute(value, cwd) if name in _PATHS else value for name, value in args.items()}
    return dumps(args)


def _absolute(value: Any, cwd: str) -> Any:
    if not isinstance(value, str) or not value or os.path.isabs(value) or value.startswith("~"):  # noqa: PTH117
        return value
    return os.path.normpath(f"{cwd}/{value}")


def _entries(entries: Any, cwd: str) -> Iterable[tuple[str, str]]:
    """The calls of `executeTool`: a list, one object, or nothing. What is no call is passed on as a broken one."""
    if not entries:
        return
    for entry in cast("list[Any]", entries) if isinstance(entries, list) else [entries]:
        split = split_call(cast("dict[str, Any]", entry)) if isinstance(entry, dict) else None
        args = as_arguments(split[1]) if split else None
        if split is None or args is None or not isinstance(split[0], str):
            yield "executeTool", f"not a call: {dumps(entry)}"
        else:
            yield split[0], _arguments(args, cwd)


def finish(outcome: Outcome, stop: StopPiece, model: str) -> Iterable[Piece]:
    """The last pieces of a reply: what is still to be said, the calls, and how it stopped."""
    if outcome.text:
        yield TextPiece(_SURROGATE.sub("\ufffd", outcome.text))
    for index, (name, arguments) in enumerate(outcome.calls):
        yield CallPiece(index, call_id(model), name, arguments, done=True)
    if outcome.calls:
        yield StopPiece("tool_use", stop.model)
    else:
        yield StopPiece("end_turn" if stop.reason == "tool_use" else stop.reason, stop.model)


class ReplyReader:
    """Follows one reply by the contract. A server may ignore the schema, so prose and written calls may come too."""

    def __init__(self, tools: tuple[ToolSpec, ...], cwd: str = "") -> None:
        self._tools = tools
        self._cwd = cwd
        self._object = ExplanationReader()
        self._prose: CallSieve | None = None

    def feed(self, text: str) -> str:
        """Add a piece of the reply; returns what may be shown now."""
        if self._prose is not None:
            return self._prose.feed(text)
        shown = self._object.feed(text)
        begun = self._object.json.lstrip()
        if begun and not begun.startswith("{"):
            self._prose = CallSieve(self._tools)
            return self._prose.feed(self._object.json)
        return shown

    def finish(self, cut: bool) -> Outcome:
        if self._prose is not None:
            return of_prose(self._prose.rest(), self._tools, self._cwd)
        if not self._object.json.strip():
            return Outcome()
        return _of_object(self._object.json, self._object.given, self._tools, cut, self._cwd)
