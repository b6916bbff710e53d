"""Whether enough of a file was seen to edit it, in the opinion of the lesser model.

It is asked after everything that can be known for certain spoke for the edit, so it can only refuse. A refusal names
lines to read, and once they have been read the same edit is not questioned again.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from odin.context.file_cache import FileCache, LineSpan, SeenPart
from odin.core.errors import BadRequest, OdinError
from odin.core.small_jobs import (
    SUFFICIENCY_JOB,
    EditQuestion,
    PlannedEdit,
    Sufficiency,
    add_line_headers,
    parse_sufficiency,
)
from odin.core.tool import AskSmallModel
from odin.tools.files import Refusal, to_printable
from odin.tools.replacement import Edit, locate

ASK_SECONDS = 20.0
CONTENT_CHARS = 40_000
EDIT_CHARS = 40_000
_CONTEXT_LINES = 40
_MAX_RANGES = 5
_MAX_LINES = 2000
_MAX_REMEMBERED = 100
_MAX_EXPLANATION = 400


class _RequiredLines(Struct, frozen=True):
    """Lines that must be read before an edit of these bytes, and why."""

    sha256: str
    ranges: tuple[LineSpan, ...]
    why: str


class EditReviewer:
    """Asks about edits, and remembers what it was told to read before each."""

    def __init__(self, files: FileCache, small_model: AskSmallModel | None, seconds: float = ASK_SECONDS) -> None:
        self._files = files
        self._small_model = small_model
        self._seconds = seconds
        self._job = SUFFICIENCY_JOB
        self._required: OrderedDict[int, _RequiredLines] = OrderedDict()

    async def review(self, path: str, text: str, edits: Sequence[Edit]) -> str:
        """Raise Refusal when more must be read. Gives what the model remarked if it objects without naming lines."""
        entry = self._files.find(path)
        if entry is None or entry.stale:
            return ""
        key = hash((os.path.realpath(path), tuple(edits)))
        before = self._required.get(key)
        if before is not None and before.sha256 == entry.fingerprint.sha256:
            self._require(path, before)
            return ""
        question = self._build_question(path, text, edits)
        answer = await self._ask(question) if question else None
        if answer is None or answer.is_sufficient:
            return ""
        why = " ".join(to_printable(answer.explanation).split())[:_MAX_EXPLANATION]
        ranges = self._select_ranges(path, answer, entry.fingerprint.lines)
        if not ranges:
            return why
        wanted = _RequiredLines(entry.fingerprint.sha256, ranges, why)
        self._required[key] = wanted
        while len(self._required) > _MAX_REMEMBERED:
            self._required.popitem(last=False)
        self._require(path, wanted)
        return ""

    def _require(self, path: str, wanted: _RequiredLines) -> None:
        gaps = self._files.list_unseen(path)
        missing = [lines for lines in wanted.ranges if _overlaps_any(lines, gaps)]
        if not missing:
            return
        named = " and ".join(f"{first}-{last}" for first, last in missing)
        calls = ", then ".join(f"offset={first} and limit={last - first + 1}" for first, last in missing)
        why = f" {wanted.why.rstrip('.')}." if wanted.why else ""
        raise Refusal(
            f"Read lines {named} first; nothing was written.{why} Use Read with {calls}, then repeat the same edit."
        )

    # --- the question ---

    def _build_question(self, path: str, text: str, edits: Sequence[Edit]) -> EditQuestion | None:
        """None when there is no doubt to settle, nobody to ask, or more to show than is worth asking."""
        entry = self._files.find(path)
        validation = self._files.settings.validation
        if entry is None or self._small_model is None or validation == "never":
            return None
        partial = not entry.is_complete
        doubtful = partial or entry.truncated
        if not doubtful and validation != "always":
            return None
        shown = _select_shown(self._files.list_parts(path), text, edits)
        if not shown or sum(len(edit.old) + len(edit.new) for edit in edits) > EDIT_CHARS:
            return None
        return EditQuestion(
            file_path=to_printable(path),
            edits=tuple(
                PlannedEdit(_trim_final_newline(text, edit.old), to_printable(edit.new), edit.replace_all)
                for edit in edits
            ),
            cached_content=to_printable(add_line_headers((part.first, part.lines) for part in shown)),
            is_partial=partial,
            segment_keys=tuple(entry.segments),
            total_lines=entry.fingerprint.lines,
        )

    async def _ask(self, question: EditQuestion) -> Sufficiency | None:
        """The model's answer; None when it has none that can be used."""
        assert self._small_model is not None
        text = msgspec.json.encode(question).decode()
        try:
            async with asyncio.timeout(self._seconds):
                try:
                    return parse_sufficiency(await self._small_model(self._job, text))
                except BadRequest:
                    if self._job.schema is None:
                        raise
                    self._job = structs.replace(self._job, schema=None)
                    return parse_sufficiency(await self._small_model(self._job, text))
        except (OdinError, TimeoutError):
            return None

    def _select_ranges(self, path: str, answer: Sufficiency, total: int) -> tuple[LineSpan, ...]:
        """The suggested ranges that exist and were not seen, neighbours joined, no more than one can read."""
        gaps = self._files.list_unseen(path)
        clipped = [(max(1, at.start_line), min(total, at.end_line)) for at in answer.suggested_line_ranges]
        joined: list[LineSpan] = []
        for first, last in sorted(lines for lines in clipped if lines[0] <= lines[1] and _overlaps_any(lines, gaps)):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return tuple((first, min(last, first + _MAX_LINES - 1)) for first, last in joined[:_MAX_RANGES])


def _trim_final_newline(text: str, old: str) -> str:
    """The text to replace, without the final line feed that a file may lack and an edit may have."""
    found = locate(text, old)
    return to_printable(old.removesuffix("\n").removesuffix("\r") if found.unended else old)


def _overlaps_any(lines: LineSpan, others: Sequence[LineSpan]) -> bool:
    return any(lines[0] <= last and first <= lines[1] for first, last in others)


def _select_shown(parts: list[SeenPart], text: str, edits: Sequence[Edit]) -> list[SeenPart]:
    """What was seen; of much, only what is around the edits. Nothing when that is too much as well."""
    if _count_chars(parts) > CONTENT_CHARS:
        windows = [
            (text.count("\n", 0, start) + 1 - _CONTEXT_LINES, text.count("\n", 0, end) + 1 + _CONTEXT_LINES)
            for edit in edits
            for start, end in locate(text, edit.old).spans[:_MAX_LINES]
        ]
        parts = [piece for part in parts for piece in _clip_part(part, windows)]
    return parts if _count_chars(parts) <= CONTENT_CHARS else []


def _count_chars(parts: list[SeenPart]) -> int:
    return sum(len(line) + 1 for part in parts for line in part.lines)


def _clip_part(part: SeenPart, windows: list[LineSpan]) -> list[SeenPart]:
    """The lines of a part that lie in one of the windows."""
    pieces: list[SeenPart] = []
    following = part.first
    for first, last in sorted(windows):
        begin, end = max(following, first), min(part.last, last)
        if begin > end:
            continue
        lines = part.lines[begin - part.first : end - part.first + 1]
        if pieces and begin == pieces[-1].last + 1:
            pieces[-1] = SeenPart(pieces[-1].first, end, pieces[-1].lines + lines)
        else:
            pieces.append(SeenPart(begin, end, lines))
        following = end + 1
    return pieces
