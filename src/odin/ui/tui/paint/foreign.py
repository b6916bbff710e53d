"""Text that is not ours, made fit for the screen: it cannot steer the terminal, turn its direction or hide."""

import re

from odin.ui.terminal import harmless

_TURNING = {
    code: ascii(chr(code))[1:-1]
    for code in (0xAD, 0x61C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x206A), 0xFEFF)
}
"""What turns the direction of text, takes no place or ends a line unseen. Joiners within emoji stay."""

_TAB = 4
_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def foreign(text: str) -> str:
    """Keeps its lines; control and direction characters are spelled out, tabs are spaces."""
    if text.isascii() and text.isprintable():
        return text
    if "\t" in text:
        text = "\n".join(line.expandtabs(_TAB) for line in text.split("\n"))
    return harmless(text.replace("\r\n", "\n").translate(_TURNING))


def one_line(text: str) -> str:
    """The same as one line, with single spaces."""
    return foreign(" ".join(text.split()))


def only_colours(text: str) -> str:
    """What a command printed, without everything that steers a terminal but its colours."""
    if "\x1b" not in text:
        return text
    return _SEQUENCE.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", text)


def without_colours(text: str) -> str:
    return _SEQUENCE.sub("", text) if "\x1b" in text else text
