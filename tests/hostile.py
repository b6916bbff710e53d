"""Text that means ill, events made of it, and what a terminal must never be sent because of it."""

import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from odin.core.event import AnyEvent

NASTY = (
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

_OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[[0-9;]*H|\x1b\[\?(?:25|2026)[hl]")
"""Colours, places of the cursor, the cursor itself and the marks around a frame."""

_FORBIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_HIDING = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:5|6|8)(?:;[0-9;]*)?m")


def steering(written: str) -> str:
    """The first thing in what was written to a terminal that is not ours; "" when all of it is."""
    for found in re.finditer(r"\x1b\[[0-9;]*m", written):
        codes = re.sub(r"(?:38|48);(?:5;\d+|2;\d+;\d+;\d+)", "", found[0][2:-1]).split(";")
        if {"5", "6", "8"} & set(codes):
            return repr(found[0])
    rest = _OURS.sub("", written)
    found = _FORBIDDEN.search(rest)
    return repr(rest[max(found.start() - 20, 0) : found.end() + 40]) if found else ""


class Maker:
    """Makes values of any type of the core, with `text` for every string and `choose` where there is a choice."""

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
        return self.struct(kind)

    def struct(self, kind: type[Any], **given: Any) -> Any:
        hints = typing.get_type_hints(kind)
        fields = msgspec.structs.fields(kind)
        made = {one.name: self.make(hints[one.name]) for one in fields if one.name not in given}
        return kind(**{**made, **given})


def event_types() -> Iterator[type[Any]]:
    yield from typing.get_args(AnyEvent)
