"""How a reply by the planner's JSON contract is read: piece by piece as it comes in, then as a whole."""

import os
import re
from binascii import crc32
from collections.abc import Iterable
from typing import Any, cast

from msgspec import Struct

from odin.core.message import ReplyMessage
from odin.core.provider import CallChunk, Chunk, Request, StopChunk, TextChunk, ToolSpec
from odin.providers.callsieve import TextCallFilter
from odin.providers.contract_request import dump_json
from odin.providers.loosejson import parse_leading_object
from odin.providers.textcalls import find_calls, is_contract_reply, parse_arguments, split_call

_REPLY_START = re.compile(r'\s*\{\s*(?:"taskCompleted"\s*:\s*(?:true|false)\s*,\s*)?"explanation"\s*:\s*"')
_ESCAPE_VALUES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PLAIN_TEXT = re.compile(r'[^"\\]+')
_SURROGATE = re.compile("[\ud800-\udfff]")
_PATH_ARGUMENTS = ("file_path", "path")
_TOOL_NAME = re.compile(r'"toolName"\s*:\s*"([\w.\-]+)"')
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|(["\\/bfnrt]))')


class ExplanationReader:
    """Takes the JSON of a reply piece by piece and gives out its explanation as it becomes readable."""

    def __init__(self) -> None:
        self._buffer = ""
        self._at = -1
        self._closed = False
        self.shown_text = ""

    def feed(self, fragment: str) -> str:
        self._buffer += fragment
        if self._closed:
            return ""
        if self._at < 0:
            begins = _REPLY_START.match(self._buffer)
            if begins is None:
                return ""
            self._at = begins.end()
        text = "".join(self._decode_characters())
        self.shown_text += text
        return text

    @property
    def json(self) -> str:
        return self._buffer

    def _decode_characters(self) -> Iterable[str]:
        while self._at < len(self._buffer):
            plain = _PLAIN_TEXT.match(self._buffer, self._at)
            if plain:
                self._at = plain.end()
                yield plain[0]
                continue
            if self._buffer[self._at] == '"':
                self._closed = True
                return
            escape = _ESCAPE.match(self._buffer, self._at)
            if escape is None or self._is_incomplete(escape):
                return
            self._at = escape.end()
            yield _ESCAPE_VALUES[escape[3]] if escape[3] else _decode_unicode_escape(escape[1], escape[2])

    def _is_incomplete(self, escape: re.Match[str]) -> bool:
        """Whether the second half of a surrogate pair may still be on its way."""
        high = escape[1] and escape[1][:2].casefold() in ("d8", "d9", "da", "db")
        return bool(high and not escape[2] and len(self._buffer) - escape.end() < 6)


def _decode_unicode_escape(first: str, second: str | None) -> str:
    code = int(first, 16)
    if 0xD800 <= code <= 0xDBFF and second:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(second, 16) - 0xDC00))
    character = "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
    return character + (_decode_unicode_escape(second, None) if second else "")


def make_call_id(model: str) -> str:
    """A fresh id that also says by which model the call was written as text, so that a resumed session knows it."""
    return _id_prefix_of(model) + os.urandom(6).hex()


def _id_prefix_of(model: str) -> str:
    return f"json_{crc32(model.encode()):08x}_"


def has_written_calls(request: Request) -> bool:
    """Whether this model wrote a call as text earlier in the conversation."""
    prefix = _id_prefix_of(request.model)
    calls = (call for message in request.messages if isinstance(message, ReplyMessage) for call in message.calls)
    return any(call.id.startswith(prefix) for call in calls)


class ContractReply(Struct, frozen=True):
    """A finished reply: what is still to be said, and the calls with their arguments as JSON."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()


def _parse_object_reply(raw: str, shown: str, tools: tuple[ToolSpec, ...], truncated: bool, cwd: str) -> ContractReply:
    """What a reply that began like a JSON object comes to.

    `given` is the explanation already shown. `cut` means that the token limit ended the reply: what is broken then is
    no mistake of the model's, and no part of it is run.
    """
    value = parse_leading_object(raw)
    if value is not None and is_contract_reply(value):
        calls = tuple(_parse_entries(value.get("executeTool"), cwd))
        rest = "" if shown else str(value.get("explanation") or "")
        return ContractReply(rest if rest or shown or calls else "Done.", calls)
    found = find_calls(raw, tools)
    if found.calls:
        return ContractReply(found.text, tuple((name, _encode_arguments(args, cwd)) for name, args in found.calls))
    if value is not None or truncated:
        return ContractReply("" if shown else raw)
    named = _TOOL_NAME.search(raw)
    return ContractReply("", ((named[1] if named else "executeTool", raw),))


def parse_prose_reply(held: str, tools: tuple[ToolSpec, ...], cwd: str) -> ContractReply:
    """What the held-back end of a reply comes to: the calls written in it, or the text it is."""
    found = find_calls(held, tools)
    if not found.calls and not found.contract:
        return ContractReply(held)
    return ContractReply(found.text, tuple((name, _encode_arguments(args, cwd)) for name, args in found.calls))


def _encode_arguments(args: dict[str, Any], cwd: str) -> str:
    """Arguments as JSON, with relative paths made absolute: a model this small names files as the user does."""
    if cwd:
        args = {name: _make_absolute(value, cwd) if name in _PATH_ARGUMENTS else value for name, value in args.items()}
    return dump_json(args)


def _make_absolute(value: Any, cwd: str) -> Any:
    if not isinstance(value, str) or not value or os.path.isabs(value) or value.startswith("~"):  # noqa: PTH117
        return value
    return os.path.normpath(f"{cwd}/{value}")


def _parse_entries(entries: Any, cwd: str) -> Iterable[tuple[str, str]]:
    """The calls of `executeTool`: a list, one object, or nothing. What is no call is passed on as a broken one."""
    if not entries:
        return
    for entry in cast("list[Any]", entries) if isinstance(entries, list) else [entries]:
        split = split_call(cast("dict[str, Any]", entry)) if isinstance(entry, dict) else None
        args = parse_arguments(split[1]) if split else None
        if split is None or args is None or not isinstance(split[0], str):
            yield "executeTool", f"not a call: {dump_json(entry)}"
        else:
            yield split[0], _encode_arguments(args, cwd)


def finish_reply(outcome: ContractReply, stop: StopChunk, model: str) -> Iterable[Chunk]:
    """The last pieces of a reply: what is still to be said, the calls, and how it stopped."""
    if outcome.text:
        yield TextChunk(_SURROGATE.sub("\ufffd", outcome.text))
    for index, (name, arguments) in enumerate(outcome.calls):
        yield CallChunk(index, make_call_id(model), name, arguments, done=True)
    if outcome.calls:
        yield StopChunk("tool_use", stop.model)
    else:
        yield StopChunk("end_turn" if stop.reason == "tool_use" else stop.reason, stop.model)


class ContractReplyReader:
    """Follows one reply by the contract. A server may ignore the schema, so prose and written calls may come too."""

    def __init__(self, tools: tuple[ToolSpec, ...], cwd: str = "") -> None:
        self._tools = tools
        self._cwd = cwd
        self._object = ExplanationReader()
        self._prose: TextCallFilter | None = None

    def feed(self, text: str) -> str:
        """Add a piece of the reply; returns what may be shown now."""
        if self._prose is not None:
            return self._prose.feed(text)
        shown = self._object.feed(text)
        begun = self._object.json.lstrip()
        if begun and not begun.startswith("{"):
            self._prose = TextCallFilter(self._tools)
            return self._prose.feed(self._object.json)
        return shown

    def finish(self, truncated: bool) -> ContractReply:
        if self._prose is not None:
            return parse_prose_reply(self._prose.get_held_text(), self._tools, self._cwd)
        if not self._object.json.strip():
            return ContractReply()
        return _parse_object_reply(self._object.json, self._object.shown_text, self._tools, truncated, self._cwd)
