"""Sessions as people see them: one line each, and choosing one by number, by words or by its id."""

import time
from collections.abc import Sequence

from odin.core.sessions import SessionMatch, SessionSummary
from odin.ui.terminal import shorten, visible, width

LISTED = 20
ASK = "Number, words to narrow the list, or nothing to leave: "


def when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def line(session: SessionSummary, columns: int = 100, here: str = "") -> str:
    """Its id, when it was last written to and what it is about, in one row; nothing in a title can steer the terminal.

    `here` is the session that one is in.
    """
    about = visible(" ".join((session.title or session.first or "(nothing asked)").split()))
    marks = [f"{session.turns} {'prompt' if session.turns == 1 else 'prompts'}"]
    if session.forked_from:
        marks.append("fork")
    if session.locked:
        marks.append("this one" if session.id == here else f"open: {visible(session.locked.partition(' on ')[0])}")
    left = f"{visible(session.id)}  {when(session.modified)}  "
    right = f"  ({', '.join(marks)})"
    row = f"{left}{shorten(about, max(columns - 1 - len(left) - width(right), 12))}{right}"
    return shorten(row, columns - 1)


def match_lines(match: SessionMatch, columns: int = 100, here: str = "") -> list[str]:
    found = f"    {match.where}: {visible(' '.join(match.snippet.split()))}"
    return [line(match.session, columns, here), shorten(found, columns - 1)]


def narrowed(sessions: Sequence[SessionSummary], words: str) -> list[SessionSummary]:
    """Those whose title, prompts or id hold all the words."""
    wanted = words.lower().split()
    return [item for item in sessions if all(word in _text(item) for word in wanted)]


def _text(session: SessionSummary) -> str:
    return f"{session.id}\n{session.title}\n{session.first}\n{session.original}".lower()


class Picker:
    """A numbered list that gets shorter with every word that is typed."""

    def __init__(self, sessions: Sequence[SessionSummary]) -> None:
        self._all = [item for item in sessions if item.turns]
        self._shown = self._all

    def lines(self, columns: int = 100) -> list[str]:
        if not self._shown:
            return ["There is no earlier session here." if not self._all else "No session fits these words."]
        rows = [f"{number:>3}  {line(item, columns - 5)}" for number, item in enumerate(self._shown[:LISTED], 1)]
        more = len(self._shown) - LISTED
        return [*rows, f"     and {more} older ones; type words to find one"] if more > 0 else rows

    @property
    def empty(self) -> bool:
        return not self._all

    def take(self, typed: str) -> str | None:
        """The id that was chosen, "" to leave, None to go on with the list as it is now."""
        typed = typed.strip()
        if not typed:
            return ""
        if typed.isdecimal() and 1 <= int(typed) <= min(len(self._shown), LISTED):
            return self._shown[int(typed) - 1].id
        fitting = narrowed(self._all, typed)
        if any(item.id == typed for item in fitting):
            return typed
        self._shown = fitting
        return None
