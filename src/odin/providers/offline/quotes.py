"""Quoted text is taken out of a request before its words are looked at, so that nothing inside a quote is a word."""

import re

from msgspec import Struct

_OPEN, _CLOSE = "\ue000", "\ue001"
QUOTED = f"{_OPEN}\\d+{_CLOSE}"
"""Matches one quoted text in a protected request."""

_QUOTE_PAIRS = {'"': '"', "'": "'", "`": "`", "“": "”", "„": "“", "«": "»", "‘": "’"}
_APOSTROPHES = frozenset("'‘")
_PRIVATE_CHARS = "[\ue000-\ue0ff]"
_AFTER_QUOTE = r"[.,;:!?)\]}]*(?:\s|$)|,[\"'`“‘]|\s*(?:->|=>|→)"
"""What may follow a closing quote that could also be an apostrophe or a quote inside the quoted text."""
_MAX_QUOTES = 100
_MAX_CLOSERS = 200


class QuotedRequest(Struct, frozen=True):
    """A request with its quoted texts set aside. `quoted` holds each text and how it was written."""

    text: str
    quoted: tuple[tuple[str, str], ...]

    def unquote(self, fragment: str) -> str:
        """The words of a fragment: a quoted text without its quotes, or the fragment as it was typed."""
        fragment = fragment.strip()
        whole = re.fullmatch(QUOTED, fragment)
        if whole:
            return self.quoted[int(fragment[1:-1])][0]
        return self.restore_quotes(fragment)

    def restore_quotes(self, fragment: str) -> str:
        """A fragment as it was typed, quotes and all."""
        return re.sub(QUOTED, lambda found: self.quoted[int(found.group()[1:-1])][1], fragment)


def protect_quotes(text: str) -> QuotedRequest:
    """Set the quoted texts aside. A quote that is never closed is a plain character."""
    text = re.sub(_PRIVATE_CHARS, "", text)
    quoted: list[tuple[str, str]] = []
    out: list[str] = []
    unclosed: set[str] = set()
    index = 0
    while index < len(text):
        end = _find_quote_end(text, index, unclosed) if len(quoted) < _MAX_QUOTES else None
        if end is None:
            out.append(text[index])
            index += 1
            continue
        raw = text[index:end]
        quoted.append((_strip_quotes(raw), raw))
        out.append(f"{_OPEN}{len(quoted) - 1}{_CLOSE}")
        index = end
    return QuotedRequest("".join(out), tuple(quoted))


def _strip_quotes(raw: str) -> str:
    if not raw.startswith("```"):
        return raw[1:-1]
    first, newline, rest = raw[3:-3].partition("\n")
    return rest if newline and re.fullmatch(r"[\w.+-]*\s*", first) else raw[3:-3]


def _find_quote_end(text: str, start: int, unclosed: set[str]) -> int | None:
    """Where the quote that opens at `start` ends, or None when none opens there."""
    char = text[start]
    if text.startswith("```", start) and "```" not in unclosed:
        fence = text.find("```", start + 3)
        if fence >= 0:
            return fence + 3
        unclosed.add("```")
    closer = _QUOTE_PAIRS.get(char)
    if closer is None or char in unclosed:
        return None
    if char in _APOSTROPHES and start > 0 and not (text[start - 1].isspace() or text[start - 1] in "([{=:,>→"):
        return None
    end = _find_closer(text, start + 1, closer)
    if end is None:
        unclosed.add(char)
        return None
    return end + 1 if end > start + 1 or char not in _APOSTROPHES or _is_empty_quote(text, end) else None


def _is_empty_quote(text: str, end: int) -> bool:
    return end + 1 == len(text) or text[end + 1].isspace()


def _find_closer(text: str, start: int, closer: str) -> int | None:
    after = re.compile(_AFTER_QUOTE)
    first = at = text.find(closer, start)
    for _ in range(_MAX_CLOSERS):
        if at < 0:
            break
        if closer in "`”»“" or after.match(text, at + 1):
            return at
        at = text.find(closer, at + 1)
    return first if first >= 0 and closer == '"' else None
