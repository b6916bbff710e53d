"""Sessions as people see them: one line each, and choosing one by number, by words or by its id.

Writing a session to a file: what was typed after /export.
"""

import time
from collections.abc import Sequence

from odin.core.client import ExportFormat, SessionMatch, SessionSummary
from odin.core.errors import UsageError
from odin.ui.terminal import escape_hidden, shorten, width_of

MAX_SESSIONS_LISTED = 20
PICK_PROMPT = "Number, words to narrow the list, or nothing to leave: "


def format_time(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def format_session(session: SessionSummary, columns: int = 100, here: str = "") -> str:
    """Its id, when it was last written to and what it is about, in one row; nothing in a title can steer the terminal.

    `here` is the session that one is in.
    """
    about = escape_hidden(" ".join((session.title or session.first or "(nothing asked)").split()))
    marks = [f"{session.turns} {'prompt' if session.turns == 1 else 'prompts'}"]
    if session.forked_from:
        marks.append("fork")
    if session.locked:
        marks.append(
            "this one" if session.id == here else f"open: {escape_hidden(session.locked.partition(' on ')[0])}"
        )
    left = f"{escape_hidden(session.id)}  {format_time(session.modified)}  "
    right = f"  ({', '.join(marks)})"
    row = f"{left}{shorten(about, max(columns - 1 - len(left) - width_of(right), 12))}{right}"
    return shorten(row, columns - 1)


def format_match(match: SessionMatch, columns: int = 100, here: str = "") -> list[str]:
    found = f"    {match.where}: {escape_hidden(' '.join(match.snippet.split()))}"
    return [format_session(match.session, columns, here), shorten(found, columns - 1)]


def filter_sessions(sessions: Sequence[SessionSummary], words: str) -> list[SessionSummary]:
    """Those whose title, prompts or id hold all the words."""
    wanted = words.lower().split()
    return [item for item in sessions if all(word in _searchable_text_of(item) for word in wanted)]


def _searchable_text_of(session: SessionSummary) -> str:
    return f"{session.id}\n{session.title}\n{session.first}\n{session.original}".lower()


class PlainSessionPicker:
    """A numbered list that gets shorter with every word that is typed."""

    def __init__(self, sessions: Sequence[SessionSummary]) -> None:
        self._all = [item for item in sessions if item.turns]
        self._filtered = self._all

    def format_lines(self, columns: int = 100) -> list[str]:
        if not self._filtered:
            return ["There is no earlier session here." if not self._all else "No session fits these words."]
        rows = [
            f"{number:>3}  {format_session(item, columns - 5)}"
            for number, item in enumerate(self._filtered[:MAX_SESSIONS_LISTED], 1)
        ]
        more = len(self._filtered) - MAX_SESSIONS_LISTED
        return [*rows, f"     and {more} older ones; type words to find one"] if more > 0 else rows

    @property
    def is_empty(self) -> bool:
        return not self._all

    def parse_choice(self, typed: str) -> str | None:
        """The id that was chosen, "" to leave, None to go on with the list as it is now."""
        typed = typed.strip()
        if not typed:
            return ""
        if typed.isdecimal() and 1 <= int(typed) <= min(len(self._filtered), MAX_SESSIONS_LISTED):
            return self._filtered[int(typed) - 1].id
        fitting = filter_sessions(self._all, typed)
        if any(item.id == typed for item in fitting):
            return typed
        self._filtered = fitting
        return None


_EXPORT_FORMATS: dict[str, ExportFormat] = {
    "json": "json",
    "html": "html",
    "markdown": "markdown",
    "md": "markdown",
}


def parse_export(words: list[str]) -> tuple[ExportFormat, str]:
    """The form and the path, which may be empty. A form is `--json`, or `json` before everything else."""
    rest = list(words)
    chosen: list[ExportFormat] = [
        form for word in words if word.startswith("--") and (form := _EXPORT_FORMATS.get(word[2:]))
    ]
    if not chosen and rest and rest[0] in _EXPORT_FORMATS:
        chosen = [_EXPORT_FORMATS[rest.pop(0)]]
    paths = [word for word in rest if not (word.startswith("--") and word[2:] in _EXPORT_FORMATS)]
    if len(chosen) > 1 or len(paths) > 1 or any(path.startswith("--") for path in paths):
        raise UsageError("That is not understood.", "Write /export [PATH] [--json|--html].")
    path = paths[0] if paths else ""
    return (chosen[0] if chosen else format_of(path)), path


def format_of(path: str) -> ExportFormat:
    """What a file of this name should hold."""
    ending = path.rpartition(".")[2].lower()
    if ending == "json":
        return "json"
    return "html" if ending in ("html", "htm") else "markdown"
