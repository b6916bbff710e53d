"""Full-text search, previews and recent prompts, read directly from session logs.

Search: ripgrep selects the logs that can match; the decoded events decide, because in JSON a word may be escaped or be
a field name. Previews and recent prompts read only the end of a log, so they are fast for sessions of any length.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from odin.core.call_events import Replied, ToolEnded
from odin.core.client import Exchange, SessionMatch, SessionPreview
from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextSummarized,
    Envelope,
    PromptInjected,
    Redone,
    Rewound,
    TitleSet,
    TurnEnded,
    TurnStarted,
)
from odin.core.format import clip
from odin.core.timeline import TurnItems, get_source
from odin.sandbox.process import run_own
from odin.session.index import SessionIndex
from odin.session.log import LOG_NAME, is_session_id, scan_logs

MatchField = Literal["title", "prompt", "answer", "tool", "summary"]

MAX_WORDS = 12
_BEFORE, _AFTER = 40, 120
_RIPGREP_TIMEOUT_S = 30
_VERBATIM_CHARS = re.compile(r"[^\x00-\x1f\"\\/\x7f-\x9f]+")
"""Characters that JSON writes unescaped. Other JSON writers may escape a slash."""

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


MAX_MATCHES = 100


def split_words(query: str) -> list[str]:
    return list(dict.fromkeys(word.lower() for word in query.split()))[:MAX_WORDS]


def search_sessions(folder: Path, query: str, *, ripgrep: str = "") -> tuple[SessionMatch, ...]:
    """Return the sessions that contain all words of the query, latest first, each with its best match."""
    words = split_words(query)
    if not words:
        return ()
    candidates = _find_candidates(folder, words, ripgrep)
    matches: list[SessionMatch] = []
    for summary in SessionIndex(folder).list_summaries():
        if candidates is not None and summary.id not in candidates:
            continue
        # Find the text that contains most of the words. Every word must occur in the session.
        missing = set(words)
        best_score: tuple[int, int] = (0, 0)
        best: SessionMatch | None = None
        for seq, field, text in _read_texts(folder / summary.id / LOG_NAME, words):
            lowered = text.lower()
            present = [word for word in words if word in lowered]
            missing.difference_update(present)
            score = (len(present), -_RANK[field])
            if present and score > best_score:
                best_score = score
                best = SessionMatch(summary, field, make_snippet(text, present), seq)
        if best is not None and not missing:
            matches.append(best)
            if len(matches) >= MAX_MATCHES:
                break
    return tuple(matches)


def _find_candidates(folder: Path, words: Sequence[str], ripgrep: str) -> set[str] | None:
    """Return the sessions whose logs contain the two longest word parts, or None if ripgrep could not be used."""
    parts = sorted(map(_find_verbatim_part, words), key=len, reverse=True)
    candidates: set[str] | None = None
    for part in parts[:2]:
        if not part or not ripgrep:
            break
        found = _find_logs_with(folder, part, ripgrep)
        if found is None:
            return candidates
        candidates = found if candidates is None else candidates & found
    return candidates


def _find_verbatim_part(word: str) -> str:
    """Return the longest part of the word that JSON writes unescaped."""
    return max(_VERBATIM_CHARS.findall(word), key=len, default="")


def _find_logs_with(folder: Path, part: str, ripgrep: str) -> set[str] | None:
    argv = [ripgrep, "--no-config", "--no-messages", "--color=never", "--no-ignore", "--hidden", "--text"]
    argv += ["--files-with-matches", "--null", "--fixed-strings", "--ignore-case", "--max-depth=2"]
    argv += [f"--glob=*/{LOG_NAME}", "-e", part, "--", "."]
    try:
        code, output, _ = run_own(argv, str(folder), timeout=_RIPGREP_TIMEOUT_S)
    except (OSError, ValueError):
        return None
    if code not in (0, 1):
        return None
    return {Path(name).parent.name for name in output.decode("utf-8", "replace").split("\0") if name}


def _read_texts(log: Path, words: Sequence[str]) -> Iterator[tuple[int, MatchField, str]]:
    """Yield the texts of the log that may contain one of the words."""
    plain = [_find_verbatim_part(word).encode() for word in words]
    with contextlib.suppress(OSError), log.open("rb") as lines:
        for line in lines:
            mark = line.find(_TYPE_MARK, 0, 400)
            start = mark + len(_TYPE_MARK)
            field: MatchField | None = _FIELD_OF_EVENT.get(line[start : line.find(b'"', start)]) if mark >= 0 else None
            if field is None or not _may_contain(line, plain):
                continue
            try:
                envelope = _envelope_decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeError):
                continue
            text = _get_event_text(envelope.event)
            if text:
                yield envelope.seq, field, text


def _may_contain(line: bytes, plain: Iterable[bytes]) -> bool:
    """A cheap test before decoding. Always True for non-ASCII words, whose case cannot be folded in bytes."""
    lowered = line.lower()
    return any(not part.isascii() or part in lowered for part in plain)


def _get_event_text(event: AnyEvent) -> str:
    if isinstance(event, Replied):
        return event.message.text
    if isinstance(event, TitleSet):
        return event.title
    if isinstance(event, TurnStarted | PromptInjected):
        return f"{event.display_text}\n{event.text}" if event.display_text else event.text
    return event.text if isinstance(event, ToolEnded | Compacted | ContextSummarized) else ""


def make_snippet(text: str, words: Sequence[str]) -> str:
    """Return the text around the first match, on one line."""
    lowered = text.lower()
    first = min((index for word in words if (index := lowered.find(word)) >= 0), default=0)
    start = max(0, min(first, len(text)) - _BEFORE)
    end = first + _AFTER
    cut = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


PREVIEW_BYTES = 512_000
MAX_EXCHANGES = 6
EXCHANGE_CHARS = 600
"""Characters kept of a prompt or an answer."""

_EXCHANGE_MARKS = tuple(
    b'"event":{"type":"%s"' % kind.__name__.encode()
    for kind in (TurnStarted, PromptInjected, Replied, TurnEnded, Rewound, Redone)
)


def preview_session(log: Path, session: str) -> SessionPreview:
    """Return the last prompts of a session with their answers, without those of sub-agents and rewound ones."""
    lines, has_earlier = _read_tail(log)
    collected = TurnItems[Exchange](is_tail=True)
    for envelope in _decode_exchanges(lines):
        collected.timeline.apply(envelope)
        exchanges = collected.items
        match envelope.event:
            case TurnStarted() | PromptInjected() as event:
                if (text := event.body) and get_source(event) != "mail":
                    exchanges.append(Exchange(clip(text, EXCHANGE_CHARS), "", envelope.ts))
            case Replied(message=message) if exchanges and message.text.strip():
                answer = clip(message.text, EXCHANGE_CHARS)
                exchanges[-1] = msgspec.structs.replace(exchanges[-1], answer=answer)
            case _:
                pass
    exchanges = collected.items
    return SessionPreview(session, tuple(exchanges[-MAX_EXCHANGES:]), has_earlier or len(exchanges) > MAX_EXCHANGES)


def _read_tail(log: Path) -> tuple[list[bytes], bool]:
    """Return the last complete lines, and whether the log has earlier ones."""
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
                envelope = _envelope_decoder.decode(line)
                if not envelope.agent:
                    yield envelope


MAX_LOGS = 30
"""The number of logs to read, latest first."""

TAIL_BYTES = 2_000_000
"""The bytes to read from the end of a log."""

MAX_PROMPT_CHARS = 100_000
"""Longer prompts were not typed by the user."""

_PROMPT_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptInjected"')
_MARK_WITHIN_BYTES = 400


def read_recent_prompts(folder: Path, limit: int) -> tuple[str, ...]:
    """Return the prompts as typed, latest first, without duplicates, read from the logs."""
    prompts: dict[str, None] = {}
    logs = sorted(scan_logs(folder), key=lambda log: -log[2].st_mtime_ns)
    for session, path, info in logs[:MAX_LOGS]:
        if not is_session_id(session):
            continue
        for prompt in reversed(list(_read_prompts(path, info.st_size))):
            prompts.setdefault(prompt)
            if len(prompts) >= limit:
                return tuple(prompts)
    return tuple(prompts)


def _read_prompts(path: str, size: int) -> Iterator[str]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (scandir returns str paths)
            if size > TAIL_BYTES:
                file.seek(size - TAIL_BYTES, os.SEEK_SET)
                file.readline(TAIL_BYTES)
            for line in file.read(TAIL_BYTES).split(b"\n"):
                prompt = _extract_prompt(line)
                if prompt:
                    yield prompt
    except OSError:
        return


def _extract_prompt(line: bytes) -> str:
    """Return the user's prompt in this log line, or ""."""
    if len(line) > 4 * MAX_PROMPT_CHARS or not any(mark in line[:_MARK_WITHIN_BYTES] for mark in _PROMPT_MARKS):
        return ""
    try:
        envelope = _envelope_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    event = envelope.event
    if envelope.agent or not isinstance(event, TurnStarted | PromptInjected) or get_source(event) == "mail":
        return ""
    return event.body if len(event.body) <= MAX_PROMPT_CHARS else ""
