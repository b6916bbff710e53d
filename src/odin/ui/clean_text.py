"""Makes untrusted text safe to show: no terminal control, no bidirectional overrides, no invisible characters."""

import re

from odin.ui.terminal import escape_control

_JOINED_EMOJI = re.compile(
    "(?:[^\u200d\\s][\ufe0f\U0001f3fb-\U0001f3ff]?)?(?:\u200d+(?:[^\u200d\\s][\ufe0f\U0001f3fb-\U0001f3ff]?)?)+"
)
_MAX_JOINED = 4
"""No Unicode emoji sequence joins more parts."""

_TAB = 4
ESCAPE_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)


def sanitize(text: str) -> str:
    """Return the text with control and invisible characters escaped and tabs expanded; line breaks stay."""
    if text.isascii() and text.isprintable():
        return text
    if "\t" in text:
        text = "\n".join(line.expandtabs(_TAB) for line in text.split("\n"))
    if "\u200d" in text:
        text = _JOINED_EMOJI.sub(_split_joined, text)
    return escape_control(text.replace("\r\n", "\n"))


def _split_joined(match: re.Match[str]) -> str:
    """Keep real emoji sequences. Other joined characters would be measured as one cell but drawn as several."""
    parts = match[0].split("\u200d")
    is_emoji = len(parts) <= _MAX_JOINED and all(part and part[0] >= "\u2190" for part in parts)
    return match[0] if is_emoji else "".join(parts)


def sanitize_line(text: str) -> str:
    """Return the sanitized text as one line with single spaces."""
    return sanitize(" ".join(text.split()))


def strip_escapes(text: str) -> str:
    return ESCAPE_SEQUENCE.sub("", text) if "\x1b" in text else text
