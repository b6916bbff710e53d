"""What a person would see of a program's output in the end: no escape sequences, of a progress bar the last state."""

import re

_MAX_HELD_BYTES = 4096
"""How long an unfinished line is held back, because a carriage return may still overwrite it."""

_ESCAPE_SEQUENCE = rb"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)"

_PARTIAL_ESCAPE = rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)\Z"

_CONTROLS = {code: "\ufffd" for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


class AnsiStripper:
    """Takes bytes as they come and gives them on cleaned, a line at a time."""

    def __init__(self) -> None:
        self._held = b""

    def add(self, data: bytes) -> bytes:
        data = self._held + data if self._held else data
        cut = data.rfind(b"\n") + 1
        line, begun = _split_unfinished(data[cut:])
        if len(line) + len(begun) <= _MAX_HELD_BYTES:
            self._held = line + begun
            return strip_ansi(data[:cut])
        self._held = begun if len(begun) <= _MAX_HELD_BYTES else b""
        return strip_ansi(data[:cut]) + line

    def peek_rest(self) -> bytes:
        """The line that is not finished."""
        return strip_ansi(self._held).rstrip(b"\r")


def strip_ansi(data: bytes) -> bytes:
    """Without escape sequences and without what was overwritten."""
    if b"\x1b" in data:
        data = re.sub(_ESCAPE_SEQUENCE, b"", data)
    if b"\r" not in data or b"\r" not in data.replace(b"\r\n", b""):
        return data
    return b"\n".join(_drop_overwritten(line) for line in data.split(b"\n"))


def _split_unfinished(data: bytes) -> tuple[bytes, bytes]:
    """The cleaned beginning of a line, and the escape sequence at its end that is not complete."""
    found = re.search(_PARTIAL_ESCAPE, data) if b"\x1b" in data else None
    end = found.start() if found else len(data)
    return strip_ansi(data[:end]), data[end:]


def _drop_overwritten(line: bytes) -> bytes:
    """What stands after the last carriage return that something follows; one at the end belongs to the line's end."""
    at = line.rstrip(b"\r").rfind(b"\r")
    return line[at + 1 :]


def decode_output(data: bytes) -> str:
    """As text that can be shown and sent: what is not UTF-8 and what is no character shows as U+FFFD."""
    return data.decode("utf-8", "replace").translate(_CONTROLS)
