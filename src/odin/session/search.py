"""Full-text search over sessions: prompts, answers, results, titles and summaries.

ripgrep says which logs can match at all; whether one does is seen in its decoded events, because a log is JSON: a
word may be written differently there, or be the name of a field.

The end of a conversation at a glance: its last prompts and the words they were answered with.

Only the end of the log is read, so a session of any length is shown at once. Nothing is decided by what it says.

What was asked lately in a project, for whoever wants to say it again. Read from the ends of its newest logs.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from odin.core.client import Exchange, SessionMatch, SessionPreview, SessionSummary
from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextSummarized,
    Envelope,
    PromptInjected,
    Replied,
    TitleSet,
    ToolEnded,
    TurnStarted,
)
from odin.session.index import SessionIndex
from odin.session.log import is_session_id
from odin.session.store import LOG_NAME, scan_logs

MatchField = Literal["title", "prompt", "answer", "tool", "summary"]

MAX_WORDS = 12
_BEFORE, _AFTER = 40, 120
_RIPGREP_TIMEOUT_S = 30
_VERBATIM_CHARS = re.compile(r"[^\x00-\x1f\"\\/\x7f-\x9f]+")
"""Characters that a log writes as they are. A slash may be escaped by other writers of JSON."""

_FIELD_OF_EVENT: dict[bytes, MatchField] = {
    b"TurnStarted": "prompt",
    b"PromptInjected": "prompt",
    b"Replied": "answer",
    b"ToolEnded": "tool",
    b"TitleSet": "title",
    b"Compacted": "summary",
    b"ContextSummarized": "summary",
}
_RANK: dict[MatchField, int] = {"title": 0, "prompt": 1, "summary": 2, "answer": 3, "tool": 4}
_TYPE_MARK = b'"event":{"type":"'
_envelope_decoder = msgspec.json.Decoder(Envelope)


def words_of(said: str) -> list[str]:
    return list(dict.fromkeys(word.lower() for word in said.split()))[:MAX_WORDS]


def search_sessions(folder: Path, said: str, *, ripgrep: str = "", most: int = 100) -> tuple[SessionMatch, ...]:
    """The sessions of a project in which all the words occur, newest first, each with the best place they stand in."""
    words = words_of(said)
    if not words:
        return ()
    likely = _find_candidates(folder, words, ripgrep)
    found: list[SessionMatch] = []
    for summary in SessionIndex(folder).list_summaries():
        if likely is not None and summary.id not in likely:
            continue
        match = _search_log(folder / summary.id / LOG_NAME, summary, words)
        if match is not None:
            found.append(match)
            if len(found) >= most:
                break
    return tuple(found)


def _find_candidates(folder: Path, words: Sequence[str], ripgrep: str) -> set[str] | None:
    """The sessions whose files hold the most telling parts of the words; None when that cannot be told."""
    parts = sorted((max(_VERBATIM_CHARS.findall(word), key=len, default="") for word in words), key=len, reverse=True)
    likely: set[str] | None = None
    for part in parts[:2]:
        if not part or not ripgrep:
            break
        found = _find_logs_with(folder, part, ripgrep)
        if found is None:
            return likely
        likely = found if likely is None else likely & found
    return likely


def _find_logs_with(folder: Path, part: str, ripgrep: str) -> set[str] | None:
    argv = [ripgrep, "--no-config", "--no-messages", "--color=never", "--no-ignore", "--hidden", "--text"]
    argv += ["--files-with-matches", "--null", "--fixed-strings", "--ignore-case", "--max-depth=2"]
    argv += [f"--glob=*/{LOG_NAME}", "-e", part, "--", "."]
    try:
        run = subprocess.run(
            argv, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=_RIPGREP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    if run.returncode not in (0, 1):
        return None
    return {Path(name).parent.name for name in run.stdout.decode("utf-8", "replace").split("\0") if name}


def _search_log(log: Path, summary: SessionSummary, words: Sequence[str]) -> SessionMatch | None:
    """Where in one session they stand. All must occur in it; the place that holds the most of them is shown."""
    missing = set(words)
    best: tuple[int, int] = (0, 0)
    shown: SessionMatch | None = None
    for seq, where, text in _read_texts(log, words):
        low = text.lower()
        here = [word for word in words if word in low]
        missing.difference_update(here)
        worth = (len(here), -_RANK[where])
        if here and worth > best:
            best = worth
            shown = SessionMatch(summary, where, make_snippet(text, here), seq)
    return shown if not missing else None


def _read_texts(log: Path, words: Sequence[str]) -> Iterator[tuple[int, MatchField, str]]:
    """What was said in it, where one of the words may stand."""
    plain = [part.encode() for word in words for part in [max(_VERBATIM_CHARS.findall(word), key=len, default="")]]
    with contextlib.suppress(OSError), log.open("rb") as lines:
        for line in lines:
            at = line.find(_TYPE_MARK, 0, 400)
            start = at + len(_TYPE_MARK)
            where: MatchField | None = _FIELD_OF_EVENT.get(line[start : line.find(b'"', start)]) if at >= 0 else None
            if where is None or not _may_contain(line, plain):
                continue
            try:
                envelope = _envelope_decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeError):
                continue
            text = _text_of_event(envelope.event)
            if text:
                yield envelope.seq, where, text


def _may_contain(line: bytes, plain: Iterable[bytes]) -> bool:
    """A first look that spares the decoding of most lines. Outside ASCII, bytes have no case: those always may."""
    low = line.lower()
    return any(not part.isascii() or part in low for part in plain)


def _text_of_event(event: AnyEvent) -> str:
    if isinstance(event, Replied):
        return event.message.text
    if isinstance(event, TitleSet):
        return event.title
    if isinstance(event, TurnStarted | PromptInjected):
        return f"{event.display_text}\n{event.text}" if event.display_text else event.text
    return event.text if isinstance(event, ToolEnded | Compacted | ContextSummarized) else ""


def make_snippet(text: str, words: Sequence[str]) -> str:
    """The words around the first of them, in one line."""
    low = text.lower()
    at = min((found for word in words if (found := low.find(word)) >= 0), default=0)
    start = max(0, min(at, len(text)) - _BEFORE)
    end = at + _AFTER
    cut = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


PREVIEW_BYTES = 512_000
MAX_EXCHANGES = 6
EXCHANGE_CHARS = 600
"""Characters that are kept of a prompt, and of an answer."""

_EXCHANGE_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptInjected"', b'"event":{"type":"Replied"')
_exchange_decoder = msgspec.json.Decoder(Envelope)


def preview_session(log: Path, session: str) -> SessionPreview:
    """The last prompts of the session with this log; of sub-agents nothing is shown."""
    lines, earlier = _read_tail(log)
    found: list[Exchange] = []
    for envelope in _decode_exchanges(lines):
        event = envelope.event
        if isinstance(event, TurnStarted | PromptInjected):
            text = event.display_text or event.text
            if text:
                found.append(Exchange(_shorten_text(text), "", envelope.ts))
        elif isinstance(event, Replied) and found and event.message.text.strip():
            found[-1] = msgspec.structs.replace(found[-1], answer=_shorten_text(event.message.text))
    return SessionPreview(session, tuple(found[-MAX_EXCHANGES:]), earlier or len(found) > MAX_EXCHANGES)


def _read_tail(log: Path) -> tuple[list[bytes], bool]:
    """The last lines, whole ones, and whether there are others before them."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - PREVIEW_BYTES)
        file.seek(start)
        return file.read(PREVIEW_BYTES).split(b"\n")[1:], start > 0
    return [], False


def _decode_exchanges(lines: list[bytes]) -> Iterator[Envelope]:
    for line in lines:
        if any(mark in line[:400] for mark in _EXCHANGE_MARKS):
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
                envelope = _exchange_decoder.decode(line)
                if not envelope.agent:
                    yield envelope


def _shorten_text(text: str) -> str:
    return text if len(text) <= EXCHANGE_CHARS else text[:EXCHANGE_CHARS] + "…"


MAX_LOGS = 30
"""Logs that are looked at, the newest first."""

TAIL_BYTES = 2_000_000
"""How much of the end of one log is looked at."""

MAX_PROMPT_CHARS = 100_000
"""A longer prompt is not one that somebody typed."""

_PROMPT_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptInjected"')
_MARK_WITHIN_BYTES = 400


class _PromptEvent(msgspec.Struct):
    text: str = ""
    display_text: str = ""
    continues: bool = False


class _PromptLine(msgspec.Struct):
    event: _PromptEvent
    agent: str = ""


_prompt_decoder = msgspec.json.Decoder(_PromptLine)


def read_recent_prompts(folder: Path, most: int) -> tuple[str, ...]:
    """As they were typed, the newest first, each once."""
    found: dict[str, None] = {}
    logs = sorted(scan_logs(folder), key=lambda log: -log[2].st_mtime_ns)
    for session, path, info in logs[:MAX_LOGS]:
        if not is_session_id(session):
            continue
        for prompt in reversed(list(_read_prompts(path, info.st_size))):
            found.setdefault(prompt)
            if len(found) >= most:
                return tuple(found)
    return tuple(found)


def _read_prompts(path: str, size: int) -> Iterator[str]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (paths come as text)
            if size > TAIL_BYTES:
                file.seek(size - TAIL_BYTES, os.SEEK_SET)
                file.readline(TAIL_BYTES)
            for line in file.read(TAIL_BYTES).split(b"\n"):
                prompt = _prompt_of(line)
                if prompt:
                    yield prompt
    except OSError:
        return


def _prompt_of(line: bytes) -> str:
    """What a person said in this line of a log; empty when it is anything else."""
    if len(line) > 4 * MAX_PROMPT_CHARS or not any(mark in line[:_MARK_WITHIN_BYTES] for mark in _PROMPT_MARKS):
        return ""
    try:
        found = _prompt_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    text = found.event.display_text or found.event.text
    return "" if found.agent or found.event.continues or len(text) > MAX_PROMPT_CHARS else text
