"""Terminal basics: text made safe and cut or wrapped to the width, the size, typed lines, modes, the user's editor."""

import asyncio
import contextlib
import os
import re
from collections.abc import Generator, Mapping
from typing import Literal, TextIO

from odin.core.errors import UsageError
from odin.core.format import shorten_home as shorten_folder
from odin.core.lazy_pattern import compile_lazily


class _Escapes(dict[int, int | str]):
    """A table for `str.translate` that escapes the characters in these ranges. It learns a character when it comes."""

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._ranges = ranges

    def __missing__(self, code: int) -> int | str:
        is_escaped = any(first <= code <= last for first, last in self._ranges)
        shown = self[code] = ascii(chr(code))[1:-1] if is_escaped else code
        return shown


_CONTROL = ((0x7F, 0x9F), (0xD800, 0xDFFF))
_INVISIBLE = (
    (0xA0, 0xA0),
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x2800, 0x2800),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xE0000, 0xE0FFF),
)
"""Zero-width characters, direction marks, and characters that look like a space."""

_DECEPTIVE = compile_lazily(
    "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f"
    "|[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Flags of countries within a country, which stay, and all characters that are invisible or change the direction."""

_RIGHT_TO_LEFT = compile_lazily(
    "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_MARKS, _JOINERS = "\u061c\u200e\u200f", "\u200c\u200d"
_KEYCAPS = "0123456789#*"
_CONTROL_ESCAPES = _Escapes((0, 8), (0x0B, 0x1F), *_CONTROL)
_HIDDEN_ESCAPES = _Escapes((0, 0x1F), *_CONTROL, *_INVISIBLE)


def is_dumb(env: Mapping[str, str]) -> bool:
    """True if TERM names a terminal without escape sequences."""
    return env.get("TERM", "") in ("", "dumb", "unknown")


TextStyle = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
_STYLE_CODES: dict[TextStyle, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_AGENT_CODES = {
    "red": "31",
    "orange": "38;5;208",
    "yellow": "33",
    "green": "32",
    "cyan": "36",
    "blue": "34",
    "purple": "35",
    "pink": "38;5;212",
}


def _find_nearest_color(color: str) -> str:
    """Return the code of the nearest of the 216 colors that nearly every terminal has."""
    red, green, blue = (round(int(color[at : at + 2], 16) / 51) for at in (1, 3, 5))
    return f"38;5;{16 + 36 * red + 6 * green + blue}"


class TextPainter:
    """Colors text with the terminal's own colors. `is_on`: the stream is a terminal that has some, without NO_COLOR."""

    def __init__(self, stream: TextIO | None, env: Mapping[str, str] | None = None) -> None:
        environ = os.environ if env is None else env
        self.is_on = stream is not None and stream.isatty() and not environ.get("NO_COLOR") and not is_dumb(environ)

    def paint_name(self, text: str, color: str) -> str:
        """Return the text in the color of an agent: one of the names of agent files, or #rrggbb."""
        code = _AGENT_CODES.get(color) or (_find_nearest_color(color) if color else "")
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and text and code else text

    def paint(self, text: str, style: TextStyle) -> str:
        return f"\x1b[{_STYLE_CODES[style]}m{text}\x1b[0m" if self.is_on and text else text


def escape_hidden(text: str) -> str:
    """Return one line with control, direction and zero-width characters escaped and long padding counted."""
    return re.sub(" {16,}", lambda found: f"⟨{len(found[0])} spaces⟩", text.translate(_HIDDEN_ESCAPES))


def escape_control(text: str) -> str:
    """Return the text with its line breaks, but with control and deceptive characters escaped.

    What people write stays readable: emoji, and the marks and joiners of scripts that use them.
    """
    return (text if text.isascii() else _DECEPTIVE.sub(_escape_deceptive, text)).translate(_CONTROL_ESCAPES)


def escape_json(data: bytes) -> bytes:
    """Return JSON with the same meaning that is safe to print on a terminal."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return _UNSAFE_IN_JSON.sub(_escape_in_json, data.decode()).encode()


_UNSAFE_IN_JSON = compile_lazily(f"[\x7f-\x9f]|{_DECEPTIVE.pattern}")


def _escape_in_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _escape_deceptive(match: re.Match[str]) -> str:
    char, text, at = match[0], match.string, match.start()
    before, after = text[at - 1 : at], text[match.end() : match.end() + 1]
    if len(char) > 1:
        return char
    if char in _MARKS:
        end = text.find("\n", at)
        is_fine = _RIGHT_TO_LEFT.search(text[text.rfind("\n", 0, at) + 1 : len(text) if end < 0 else end]) is not None
    elif char in _JOINERS:
        is_fine = before >= "\u0600" and after >= "\u0600" and not _DECEPTIVE.fullmatch(after)
    elif "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        is_fine = (before > "\x7f" or (before != "" and before in _KEYCAPS)) and not _DECEPTIVE.fullmatch(before)
    else:
        is_fine = "\u180b" <= char <= "\u180f" and "\u1800" <= before <= "\u18af" and char != "\u180e"
    return char if is_fine else ascii(char)[1:-1]


def write_text(err: TextIO | None, text: str) -> None:
    """Write to a message stream. Never fails, even if it is closed or has another encoding."""
    if err is None:
        return
    try:
        err.write(text.encode(err.encoding or "utf-8", "replace").decode(err.encoding or "utf-8"))
        err.flush()
    except (OSError, ValueError):
        return


def get_terminal_size(stream: TextIO | int | None) -> tuple[int, int]:
    """Return the columns and rows of a terminal; 80 and 24 if unknown."""
    try:
        size = os.get_terminal_size(
            stream if isinstance(stream, int) else stream.fileno() if stream is not None else -1
        )
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


def write_line(err: TextIO | None, text: str, style: TextStyle | None = None) -> None:
    """Write one escaped line, on a terminal wrapped between words and in this style."""
    line = escape_hidden(text)
    if err is not None and err.isatty():
        line = wrap_words(line, get_terminal_size(err)[0])
    write_text(err, f"{TextPainter(err).paint(line, style) if style else line}\n")


def measure_width(text: str) -> int:
    """Return the columns a text takes; wide characters count as two."""
    if text.isascii():
        return len(text)
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def shorten(text: str, columns: int) -> str:
    """Return the text cut to this width, with an ellipsis if something is missing."""
    if measure_width(text) <= columns:
        return text
    return _split_columns(text, columns - 1)[0] + "…" if columns > 1 else "…"[: max(columns, 0)]


def wrap_words(text: str, columns: int, indent: str = "") -> str:
    """Wrap a sentence between words. Rows after the first start with the indent."""
    row, *words = text.split(" ")
    rows: list[str] = []
    for word in words:
        if row.strip() and measure_width(row) + 1 + measure_width(word) >= columns:
            rows.append(row)
            row = indent + word
        else:
            row = f"{row} {word}"
    return "\n".join([*rows, row])


def quote_block(text: str, columns: int) -> list[str]:
    """Return foreign text as escaped rows that start with a bar, or with a colon where a line continues.

    No row reaches the edge of the terminal, so that foreign text cannot imitate Odin's own output.
    """
    rows: list[str] = []
    for line in text.split("\n"):
        first, *more = _split_columns(escape_hidden(line), max(columns - 5, 20))
        rows += [f"  | {first}", *(f"  : {piece}" for piece in more)]
    return rows


def _split_columns(text: str, columns: int) -> list[str]:
    """Split a text into parts of this width; at least one part."""
    if text.isascii():
        return [text[start : start + columns] for start in range(0, len(text), columns)] or [""]
    from unicodedata import east_asian_width

    cuts, used = [0], 0
    for index, character in enumerate(text):
        cells = 2 if east_asian_width(character) in "WF" else 1
        used += cells
        if used > columns:
            cuts.append(index)
            used = cells
    return [text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def find_editor(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the command in $VISUAL or $EDITOR; [] if neither is set."""
    import shlex

    env = os.environ if environ is None else environ
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(env.get(name, ""))
        except ValueError as error:
            raise UsageError(f"Cannot parse ${name}: {error}.") from None
        if words:
            return words
    return []


def is_in_background(fd: int) -> bool:
    """True if this process is in the background: reading the terminal would stop it."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False


def discard_typed(fd: int) -> None:
    """Discard input that was typed before the dialog was shown."""
    import termios

    termios.tcflush(fd, termios.TCIFLUSH)


def take_typed(fd: int) -> str:
    """Return what is typed of a line that the terminal still edits. It can no longer be erased."""
    import termios

    before, now = termios.tcgetattr(fd), termios.tcgetattr(fd)
    now[3] &= ~termios.ICANON
    now[6][termios.VMIN] = now[6][termios.VTIME] = 0
    termios.tcsetattr(fd, termios.TCSANOW, now)
    try:
        return os.read(fd, 65536).decode(errors="replace")
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


async def read_line(fd: int) -> str:
    """Read a line; "" if the terminal is closed."""
    line = b""
    while b"\n" not in line:
        typed = await read_chunk(fd)
        if not typed:
            break
        line += typed
    return line.decode(errors="replace")


async def read_chunk(fd: int) -> bytes:
    """Read available bytes; b"" if the terminal is closed."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 4096)


@contextlib.contextmanager
def restore_terminal_after(fd: int) -> Generator[None]:
    """Restore the terminal's modes at the end, whatever a program did to them."""
    import termios

    before = termios.tcgetattr(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def shorten_home(path: str) -> str:
    """Return the path with the home directory of the terminal's user replaced by `~`."""
    return shorten_folder(path, os.path.expanduser("~"))  # noqa: PTH111 - pathlib takes long to load
