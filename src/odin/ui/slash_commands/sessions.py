"""Text and parsing of the commands about sessions: the list, the numbered picker, and /export."""

import time
from collections.abc import Sequence

from odin.core.client import ExportFormat, SessionMatch, SessionSummary
from odin.core.slash_commands import make_usage_error
from odin.ui.terminal import escape_hidden, shorten, width_of

MAX_SESSIONS_LISTED = 20
PICK_PROMPT = "Number, words to filter the list, or Enter to cancel: "


def format_time(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def format_session(session: SessionSummary, columns: int = 100, here: str = "") -> str:
    """Return the ID, date and title of a session in one row. `here` is the ID of the current session."""
    about = escape_hidden(" ".join((session.title or session.first or "(no prompts)").split()))
    marks = [f"{session.turns} {'prompt' if session.turns == 1 else 'prompts'}"]
    if session.forked_from:
        marks.append("fork")
    if session.locked:
        marks.append("current" if session.id == here else f"open: {escape_hidden(session.locked.partition(' on ')[0])}")
    left = f"{escape_hidden(session.id)}  {format_time(session.modified)}  "
    right = f"  ({', '.join(marks)})"
    row = f"{left}{shorten(about, max(columns - 1 - len(left) - width_of(right), 12))}{right}"
    return shorten(row, columns - 1)


def format_match(match: SessionMatch, columns: int = 100, here: str = "") -> list[str]:
    found = f"    {match.where}: {escape_hidden(' '.join(match.snippet.split()))}"
    return [format_session(match.session, columns, here), shorten(found, columns - 1)]


def filter_sessions(sessions: Sequence[SessionSummary], words: str) -> list[SessionSummary]:
    """Return the sessions whose ID, title or prompts contain all the words."""
    needles = words.lower().split()
    return [item for item in sessions if all(word in _searchable_text_of(item) for word in needles)]


def _searchable_text_of(session: SessionSummary) -> str:
    return f"{session.id}\n{session.title}\n{session.first}\n{session.original}".lower()


class PlainSessionPicker:
    """A numbered list of sessions that typed words filter."""

    def __init__(self, sessions: Sequence[SessionSummary]) -> None:
        self._all = [item for item in sessions if item.turns]
        self._filtered = self._all

    def format_lines(self, columns: int = 100) -> list[str]:
        if not self._filtered:
            return ["No earlier sessions in this project." if not self._all else "No matching sessions."]
        rows = [
            f"{number:>3}  {format_session(item, columns - 5)}"
            for number, item in enumerate(self._filtered[:MAX_SESSIONS_LISTED], 1)
        ]
        more = len(self._filtered) - MAX_SESSIONS_LISTED
        return [*rows, f"     and {more} older sessions; type words to filter"] if more > 0 else rows

    @property
    def is_empty(self) -> bool:
        return not self._all

    def parse_choice(self, typed: str) -> str | None:
        """Return the chosen ID, "" to cancel, or None to show the filtered list again."""
        typed = typed.strip()
        if not typed:
            return ""
        if typed.isdecimal() and 1 <= int(typed) <= min(len(self._filtered), MAX_SESSIONS_LISTED):
            return self._filtered[int(typed) - 1].id
        matches = filter_sessions(self._all, typed)
        if any(item.id == typed for item in matches):
            return typed
        self._filtered = matches
        return None


_EXPORT_FORMATS: dict[str, ExportFormat] = {
    "json": "json",
    "html": "html",
    "markdown": "markdown",
    "md": "markdown",
}


def parse_export(words: list[str]) -> tuple[ExportFormat, str]:
    """Return the format and the path, which may be empty. The format is an option (`--json`) or the first word."""
    rest = list(words)
    chosen: list[ExportFormat] = [
        form for word in words if word.startswith("--") and (form := _EXPORT_FORMATS.get(word[2:]))
    ]
    if not chosen and rest and rest[0] in _EXPORT_FORMATS:
        chosen = [_EXPORT_FORMATS[rest.pop(0)]]
    paths = [word for word in rest if not (word.startswith("--") and word[2:] in _EXPORT_FORMATS)]
    if len(chosen) > 1 or len(paths) > 1 or any(path.startswith("--") for path in paths):
        raise make_usage_error("export", "Too many arguments or an unknown option.")
    path = paths[0] if paths else ""
    return (chosen[0] if chosen else format_of(path)), path


def format_of(path: str) -> ExportFormat:
    """Return the export format that a file name implies; Markdown by default."""
    ending = path.rpartition(".")[2].lower()
    if ending == "json":
        return "json"
    return "html" if ending in ("html", "htm") else "markdown"
