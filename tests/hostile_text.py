"""Hostile text, events that contain it, and a check for terminal sequences that Odin must not write."""

import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from odin.core.event import AnyEvent

HOSTILE_TEXTS = (
    "\x1b[2J\x1b[31;5;8mred",
    "\x1b]0;owned\x07title",
    "\x1b]52;c;cm0gLXJm\x07clip",
    "\x1b]8;;http://evil.test/\x1b\\click\x1b]8;;\x1b\\",
    "\x1bP+q544e\x1b\\dcs",
    "\x1b[6n\x1b[c\x1b]11;?\x07asks",
    "\x1b[" + "9" * 5_000 + "m",
    "\x1b[38;2;" + "7" * 6_000 + ";1;1mlong",
    "\x9b31mc1\x9d0;c1\x9c\x90c1\x9c",
    "a\x00b\x07c\x08d\x0be\x0cf\x7fg\x0e\x0f",
    "over\rwritten",
    "tab\there",
    "\u202edlrow\u202c\u2066x\u2069\u200f\u061c",
    "zero\u200bwidth\ufeff\u2060\u00ad",
    "tags\U000e0041\U000e007f\U000e0001",
    "lone\ud800and\udfff",
    "line\u2028sep\u2029\x85nel",
    "z" + "\u0301\u0334\u0489" * 300,
    "漢字" * 60,
    "👩\u200d👩\u200d👧\u200d👦" * 12,
    "\U0001faf8\U0001fae8" * 40,
    "[bold red]markup[/] [@click=app.exit]quit[/] [link=http://evil.test]x[/link]",
    "[/unopened] [",
    "![picture](http://evil.test/p.png) [words](http://evil.test/w) <http://evil.test/a>",
    "$(reboot) `reboot` %s {0} {x}",
    "\n\n\n lines \n\t\n",
    "x" * 3_000,
    "",
)

_ALLOWED = re.compile(r"\x1b\[[0-9;]*m|\x1b\[[0-9;]*H|\x1b\[\?(?:25|2026)[hl]")
"""The sequences that Odin writes: colors, cursor positions, cursor visibility and synchronized output."""

_FORBIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)


def find_foreign_sequence(written: str) -> str:
    """Return the first sequence or character that Odin must not write to a terminal; "" if there is none."""
    for found in re.finditer(r"\x1b\[[0-9;]*m", written):
        codes = re.sub(r"(?:38|48);(?:5;\d+|2;\d+;\d+;\d+)", "", found[0][2:-1]).split(";")
        if {"5", "6", "8"} & set(codes):
            return repr(found[0])
    rest = _ALLOWED.sub("", written)
    found = _FORBIDDEN.search(rest)
    return repr(rest[max(found.start() - 20, 0) : found.end() + 40]) if found else ""


class ValueMaker:
    """Makes values of any core type. `text` makes the strings, `choose` selects among alternatives."""

    def __init__(self, text: Callable[[], str], choose: Callable[[tuple[Any, ...]], Any]) -> None:
        self._text = text
        self._choose = choose

    def make(self, kind: Any) -> Any:
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if kind is str:
            return self._text()
        if kind is Any:
            return self._choose((self._text(), [self._text()], {self._text(): self._text()}, 7, None))
        if kind in (int, float, bool, bytes, type(None)):
            return {int: 3, float: 1.5, bool: True, bytes: b"", type(None): None}[kind]
        if origin is typing.Literal:
            return self._choose(args)
        if origin in (typing.Union, types.UnionType):
            return self.make(self._choose(args))
        if origin is tuple:
            if args[-1:] == (Ellipsis,):
                return tuple(self.make(args[0]) for _ in range(2))
            return tuple(self.make(arg) for arg in args)
        if origin is dict:
            return {self.make(args[0]): self.make(args[1]) for _ in range(2)}
        return self.make_struct(kind)

    def make_struct(self, kind: type[Any], **fields_given: Any) -> Any:
        hints = typing.get_type_hints(kind)
        fields = msgspec.structs.fields(kind)
        made = {one.name: self.make(hints[one.name]) for one in fields if one.name not in fields_given}
        return kind(**{**made, **fields_given})


def event_types() -> Iterator[type[Any]]:
    yield from typing.get_args(AnyEvent)
