"""Finds tool calls that a model wrote as text, because it cannot make native calls or did not.

Only a complete block that names an offered tool and has arguments counts, so ordinary JSON stays text and half a block
never runs. Text after the last call is dropped: it was written before the result was known. `TextCallFilter` watches a
reply while it streams, so that a written call is never shown as text. JSON is repaired only where the meaning is
unambiguous.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from msgspec import Struct

from odin.core.provider import ToolSpec
from odin.core.tool import get_canonical_name

_JSON_DECODER = json.JSONDecoder(strict=False)
_JSON_STRING = r'"(?:[^"\\]|\\.)*"'
_TRAILING_COMMA = re.compile(rf"({_JSON_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_BAD_ESCAPE = re.compile(r'\\(["\\/bfnrtu]|.)', re.DOTALL)
_BRACKET = re.compile(rf"{_JSON_STRING}|'(?:[^'\\\n]|\\.)*'|[{{}}\[\]]|[\"']", re.DOTALL)


def parse_loose_json(raw: str) -> Any:
    """Return one JSON value, repairing unambiguous mistakes; None if it is broken."""
    raw = raw.strip()
    value, end = read_json(raw, 0)
    return value if end == len(raw) else None


def parse_leading_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object a text starts with, ignoring the rest."""
    value, _ = read_json(text, len(text) - len(text.lstrip()))
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def read_json(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at a position and its end, or an end of -1."""
    try:
        return _JSON_DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        pass
    end = _find_balanced_end(text, at)
    if end < 0:
        return None, -1
    value = _parse_repaired(text[at:end])
    return (None, -1) if value is None else (value, end)


def _find_balanced_end(text: str, at: int) -> int:
    """Return where the bracket opened at a position is closed, ignoring strings; -1 if it is not."""
    depth = 0
    for token in _BRACKET.finditer(text, at):
        found = token[0]
        if found in "{[":
            depth += 1
        elif found in "}]":
            depth -= 1
            if depth == 0:
                return token.end()
        elif len(found) == 1:
            return -1
        if depth == 0:
            return -1
    return -1


def _parse_repaired(raw: str) -> Any:
    """Repair trailing commas, invalid escapes such as \\d, and Python literals."""
    repaired = _TRAILING_COMMA.sub(lambda match: match[1] or "", raw)
    for candidate in (repaired, _BAD_ESCAPE.sub(_fix_escape, repaired)):
        try:
            return _JSON_DECODER.decode(candidate)
        except (ValueError, RecursionError):
            continue
    if "'" not in raw or "\\" in raw:
        return None
    import ast  # rare: only for a call written as a Python literal

    try:
        return ast.literal_eval(raw)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _fix_escape(match: re.Match[str]) -> str:
    return match[0] if match[1] in '"\\/bfnrtu' else "\\" + match[0]


WrittenCall = tuple[str, dict[str, Any]]


class TextCalls(Struct, frozen=True):
    """A parsed reply. `contract`: it contained the JSON contract's object, even without a call."""

    text: str
    calls: tuple[WrittenCall, ...] = ()
    contract: bool = False


class _CallBlock(Struct):
    """A recognized block: its tool calls, its text for the user, and its end."""

    calls: list[WrittenCall]
    end: int
    rendered: str = ""
    contract: bool = False


NAME_KEYS = ("name", "tool", "toolName", "tool_name", "function", "function_name")
ARGUMENT_KEYS = ("arguments", "args", "parameters", "params", "input", "toolInput", "tool_input")
_EXTRA_KEYS = {"id", "type", "index", "call_id", "tool_call_id", "explanation", "thought", "reason"}
_CALL_KEYS = {*NAME_KEYS, *ARGUMENT_KEYS, *_EXTRA_KEYS}
_CONTRACT_KEYS = {"explanation", "taskCompleted", "executeTool"}
FIRST_KEYS = _CALL_KEYS | _CONTRACT_KEYS | {"tool_calls", "role", "content"}

CALL_TAGS = ("tool_call", "tool_calls", "toolcall", "tools", "tool_use", "function_call", "function_calls")
FENCE_LANGUAGES = {"", "json", "jsonc", "json5", "xml", "text", "tool", "function", *CALL_TAGS}

CALL_OPENER = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)[^\n`]*(?:\n|\Z)"
    rf"|<(?P<tag>{'|'.join(CALL_TAGS)})>"
    r"|(?=<function=[\w.\-]+>)(?P<function>)"
    r"|(?P<mistral>\[TOOL_CALLS\])"
    r"|(?P<llama><\|python_tag\|>)"
    r"|^[ \t]*(?P<bare>)(?=[{\[])",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"<function=([\w.\-]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([\w.\-]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_MISTRAL_NAME = re.compile(r"\s*([\w.\-]+)\s*(?:\[CALL_ID\][\w\-]*)?(?:\[ARGS\])?\s*(?=\{)")
_END_TAG = re.compile(rf"\s*(?:`{{3,}}\s*)?(?:</(?:{'|'.join(CALL_TAGS)})>|(?=<(?:{'|'.join(CALL_TAGS)})>)|\Z)")
_SEPARATOR = re.compile(r"[\s,;]*")
_MAX_JSON_TRIES = 50
"""Maximum number of JSON values tried per reply: each may scan the rest of it."""
JSON_HEAD = re.compile(r"[\s\[{]*[\"']([A-Za-z_]*)([\"']?)")


def find_calls(text: str, offered: Iterable[str] | Iterable[ToolSpec]) -> TextCalls:
    """Return the tool calls written in a reply, by their offered names, and the text around them.

    Given the tool specs instead of names, parameters written as XML get the types of their schema.
    """
    blocks = _CallBlockReader(offered)
    kept: list[str] = []
    calls: list[WrittenCall] = []
    contract = False
    position = tail = 0
    while (opener := CALL_OPENER.search(text, position)) is not None:
        block = blocks.read(text, opener)
        if block is None:
            # Where to continue after an opener that led nowhere. A code block is skipped whole.
            if opener["fence"]:
                close = find_code_end(text, opener.end(), opener["fence"])
                position = len(text) if close < 0 else close
            else:
                position = max(opener.end(), opener.start() + 1)
            continue
        kept.append(text[tail : opener.start()])
        if block.rendered.strip():
            kept.append(block.rendered)
        calls += block.calls
        contract = contract or block.contract
        position = tail = block.end
    if not calls:
        kept.append(text[tail:])
    return TextCalls(
        "\n\n".join(part.strip() for part in kept if part.strip()) if tail else text, tuple(calls), contract
    )


def find_code_end(text: str, at: int, fence: str) -> int:
    """Return where the code block opened with this fence before `at` ends, or -1."""
    close = re.compile(rf"^[ \t]*{fence}[ \t]*$", re.MULTILINE).search(text, at)
    return close.end() if close else -1


class _CallBlockReader:
    """Reads one block in any known format, for one set of offered tools."""

    def __init__(self, offered: Iterable[str] | Iterable[ToolSpec]) -> None:
        self._schemas: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._ending: str | None = None
        self._tries = _MAX_JSON_TRIES
        for tool in offered:
            name = tool if isinstance(tool, str) else tool.name
            self._names[get_canonical_name(name).casefold()] = name
            self._schemas[name] = {} if isinstance(tool, str) else tool.schema

    def read(self, text: str, opener: re.Match[str]) -> _CallBlock | None:
        start = opener.end()
        if opener["fence"]:
            return self._read_fenced(text, start, opener["fence"], opener["language"])
        if opener["tag"]:
            return self._read_tagged(text, start)
        if opener["function"] is not None:
            return self._read_functions(text, start)
        if opener["mistral"]:
            if text.startswith("[", _skip_blank(text, start)):
                value, after = read_json(text, _skip_blank(text, start))
                block = _CallBlock([], after)
                return block if after > 0 and self._add_calls(block, value, True) else None
            block = _CallBlock([], start)
            while (named := _MISTRAL_NAME.match(text, block.end)) is not None:
                name = self.resolve_name(named[1])
                args, block.end = read_json(text, named.end())
                if name is None or block.end < 0 or not isinstance(args, dict):
                    return None
                block.calls.append((name, cast("dict[str, Any]", args)))
                if text.startswith("[TOOL_CALLS]", block.end):
                    block.end += len("[TOOL_CALLS]")
            return block if block.calls else None
        # A bare object must reach the end of the text, so most texts need not be tried.
        if self._ending is None:
            self._ending = text.rstrip()[-1:]
        if self._ending not in ("}", "]"):
            return None
        return self._read_values(text, start, bool(opener["llama"]), _find_text_end)

    def resolve_name(self, name: Any) -> str | None:
        """Return the offered name that a written name means."""
        if not isinstance(name, str):
            return None
        plain = name.strip().removeprefix("functions.").removeprefix("default_api.")
        return self._names.get(get_canonical_name(plain).casefold())

    def _read_fenced(self, text: str, start: int, fence: str, language: str) -> _CallBlock | None:
        if language.casefold() not in FENCE_LANGUAGES:
            return None

        def closed(text: str, at: int) -> int | None:
            at = _skip_blank(text, at)
            return at + len(fence) if text.startswith(fence, at) else _find_text_end(text, at)

        inner = CALL_OPENER.match(text, _skip_blank(text, start))
        if inner and (inner["tag"] or inner["function"] is not None):
            block = self._read_tagged(text, inner.end()) if inner["tag"] else self._read_functions(text, inner.end())
            end = closed(text, block.end) if block else None
            return None if block is None or end is None else _CallBlock(block.calls, end)
        return self._read_values(text, start, False, closed)

    def _read_tagged(self, text: str, start: int) -> _CallBlock | None:
        at = _skip_blank(text, start)
        if text.startswith("<function=", at):
            block = self._read_functions(text, at)
            if block and (close := _END_TAG.match(text, block.end)):
                block.end = close.end()
            return block
        fence = re.compile(r"`{3,}\w*\s*").match(text, at)

        def closed(text: str, at: int) -> int | None:
            close = _END_TAG.match(text, at)
            return close.end() if close else None

        return self._read_values(text, fence.end() if fence else at, True, closed)

    def _read_values(
        self, text: str, start: int, explicit: bool, closed: Callable[[str, int], int | None]
    ) -> _CallBlock | None:
        """Read JSON values until `closed` says where the block ends; all of them must be calls."""
        block = _CallBlock([], start)
        while (end := closed(text, block.end)) is None or block.end == start:
            at = _skip_blank(text, block.end)
            head = JSON_HEAD.match(text, at)
            if head is None or head[1] not in FIRST_KEYS:
                return None
            self._tries -= 1
            value, after = read_json(text, at) if self._tries > 0 else (None, -1)
            if after < 0 or not self._add_calls(block, value, explicit):
                return None
            block.end = after
            if closed(text, after) is None:
                block.end = cast("re.Match[str]", _SEPARATOR.match(text, after)).end()
        block.end = end
        return block

    def _read_functions(self, text: str, start: int) -> _CallBlock | None:
        block = _CallBlock([], start)
        while (opener := _FUNCTION.match(text, _skip_blank(text, block.end))) is not None:
            name = self.resolve_name(opener[1])
            read = self._read_function_body(text, opener.end(), name) if name else None
            if name is None or read is None:
                return None
            args, block.end = read
            block.calls.append((name, args))
        return block if block.calls else None

    def _read_function_body(self, text: str, start: int, name: str) -> tuple[dict[str, Any], int] | None:
        args: Any = {}
        at = start
        if text.startswith("{", at):
            args, at = read_json(text, at)
            if at < 0 or not isinstance(args, dict):
                return None
        else:
            while (parameter := _PARAMETER.match(text, at)) is not None:
                args[parameter[1]] = self._convert_value(name, parameter[1], parameter[2])
                at = parameter.end()
        at = _skip_blank(text, at)
        if not text.startswith("</function>", at):
            return None
        return cast("dict[str, Any]", args), at + len("</function>")

    def _convert_value(self, name: str, parameter: str, value: str) -> Any:
        properties: dict[str, Any] = self._schemas.get(name, {}).get("properties", {})
        if properties.get(parameter, {}).get("type", "string") == "string":
            return value
        read = parse_loose_json(value.strip().lower() if value.strip() in ("True", "False") else value)
        return value if read is None else read

    def _add_calls(self, block: _CallBlock, value: Any, explicit: bool) -> bool:
        """Add the calls in a JSON value to the block; False if any part of it is not a call."""
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return bool(items) and all(self._add_calls(block, item, explicit) for item in items)
        if not isinstance(value, dict):
            return False
        found = cast("dict[str, Any]", value)
        if is_contract_reply(found):
            block.contract = True
            block.rendered = str(found.get("explanation") or "")
            entries: Any = found.get("executeTool")
            return not entries or self._add_calls(block, entries, True)
        if "tool_calls" in found and found.keys() <= {"tool_calls", "content", "role"}:
            block.rendered = str(found.get("content") or "")
            return self._add_calls(block, found["tool_calls"], True)
        call = self._parse_call(found, explicit)
        if call is None:
            return False
        block.calls.append(call)
        return True

    def _parse_call(self, value: Mapping[str, Any], explicit: bool) -> WrittenCall | None:
        if not value.keys() <= _CALL_KEYS:
            return None
        inner = value.get("function")
        if isinstance(inner, dict):
            return self._parse_call(cast("dict[str, Any]", inner), True)
        split = split_call(value)
        name = self.resolve_name(split[0]) if split else None
        if split is None or name is None or (split[1] is None and not explicit):
            return None
        args = parse_arguments(split[1])
        if args is None or (args.get("type") == "object" and "properties" in args):
            return None
        return name, args


def is_contract_reply(value: Mapping[str, Any]) -> bool:
    """True if an object is a JSON contract reply. One key may be a coincidence, except the one that runs tools."""
    keys = value.keys()
    return keys <= _CONTRACT_KEYS and ("executeTool" in keys or len(keys) == 2)


def split_call(value: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Return name and arguments under whichever keys the model used; arguments None if there are none."""
    name = next((value[key] for key in NAME_KEYS if key in value), None)
    args = next((value[key] for key in ARGUMENT_KEYS if key in value), None)
    return None if name is None else (name, args)


def parse_arguments(args: Any) -> dict[str, Any] | None:
    """Return arguments given as an object or as a JSON string of one; None if they are neither."""
    if isinstance(args, str):
        args = parse_loose_json(args) if args.strip() else {}
        return cast("dict[str, Any]", args) if isinstance(args, dict) else None
    if args is None:
        return {}
    return cast("dict[str, Any]", args) if isinstance(args, dict) else None


def _skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _find_text_end(text: str, at: int) -> int | None:
    return len(text) if _skip_blank(text, at) == len(text) else None


_SUSPECT_START = re.compile(r"^[ \t]*(?:`+|~+|[{\[]|(?<=[ \t])\Z)|<(?=[a-z|]|\Z)|\[(?=T|\Z)", re.MULTILINE)
_CALL_MARKS = (*(f"<{tag}>" for tag in CALL_TAGS), "<function=", "<|python_tag|>", "[TOOL_CALLS]")


class TextCallFilter:
    """Passes the text of a reply through, holding back from where a written call may start.

    Held text is released as soon as it cannot be a call.
    """

    def __init__(self, offered: Iterable[str] | Iterable[ToolSpec]) -> None:
        self._offered = tuple(offered)
        self._text = ""
        self._shown = 0
        self._scanned = 0
        self._fence: str = ""

    def feed(self, text: str) -> str:
        """Add a chunk of the reply and return what can be shown now."""
        self._text += text
        start = self._shown
        self._shown = self._find_safe_end(text)
        return self._text[start : self._shown]

    def get_held_text(self) -> str:
        return self._text[self._shown :]

    def _find_safe_end(self, newest: str) -> int:
        """Return up to where the text so far cannot be a call."""
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
        """Skip past the end of the current code block; False while it is open."""
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
        if held[0] == "<" or held.startswith("[T"):
            return _may_be_mark(held)
        return _may_be_call_json(held) and not self._is_ruled_out(held, newest, "}")

    def _is_ruled_out(self, held: str, newest: str, closing: str) -> bool:
        """True if the held block is complete and not a call. Checked only when its last character may have arrived."""
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
    """True if the text is, or may become, an opener followed by a call."""
    mark = next((mark for mark in _CALL_MARKS if held.startswith(mark)), None)
    if mark is None:
        return any(mark.startswith(held) for mark in _CALL_MARKS)
    if mark in ("<function=", "[TOOL_CALLS]"):
        return True
    body = held[len(mark) :].lstrip()
    return not body or body[0] in "{[<`"


def _may_be_call_json(held: str) -> bool:
    """True if JSON that starts like this may be a call: its first key is one that calls have."""
    if not held.strip("[{ \t\r\n"):
        return len(held) < 200
    head = JSON_HEAD.match(held)
    if head is None:
        return False
    key, closed = head[1], head[2]
    if closed:
        return key in FIRST_KEYS
    return head.end() == len(held) and any(known.startswith(key) for known in FIRST_KEYS)
