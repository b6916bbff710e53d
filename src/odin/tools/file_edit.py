"""Exact replacements in one file, all or none: the work of EditTool and MultiEditTool.

The file must have been read, and the lines to change must have been seen. If only parts of it were seen, the small
model reviews the edit first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from odin.context.file_cache import FileCache, LineSpan, SeenPart, hash_bytes
from odin.core.background_prompts import (
    EDIT_CONTEXT_PROMPT,
    EditContextCheck,
    EditContextRequest,
    PlannedEdit,
    add_line_headers,
    parse_edit_context_check,
)
from odin.core.errors import BadRequest, OdinError, UnreadFile
from odin.core.timing import run_in_thread
from odin.core.tool import AskSmallModel, ResolvedPath, ToolContext, ToolOutput
from odin.tools.atomic_write import replace_file
from odin.tools.diff import Diff, compare
from odin.tools.files import (
    DecodedText,
    Refusal,
    decode,
    find_resolved_path,
    number_lines,
    open_regular,
    read_whole,
    to_printable,
)
from odin.tools.replacement import Edit, EditBuffer, locate
from odin.tools.staleness import describe_drift, make_stale_refusal, remember_write

ASK_SECONDS = 20.0
CONTENT_CHARS = 40_000
EDIT_CHARS = 40_000
_CONTEXT_LINES = 40
_MAX_RANGES = 5
_MAX_LINES = 2000
_MAX_REMEMBERED = 100
_MAX_EXPLANATION = 400

_SNIPPET_LINES = 40
_SNIPPET_CHARS = 4000


class _RequiredLines(Struct, frozen=True):
    """Lines the model must read before it may edit a file with these bytes, and why."""

    sha256: str
    ranges: tuple[LineSpan, ...]
    reason: str


class EditReviewer:
    """Asks the small model whether enough of a file was read to edit it.

    It is asked only after all other checks passed: it can stop an edit, never allow one. A refusal names lines to read;
    once they have been read, the same edit is not reviewed again.
    """

    def __init__(self, files: FileCache, small_model: AskSmallModel | None, seconds: float = ASK_SECONDS) -> None:
        self._files = files
        self._small_model = small_model
        self._seconds = seconds
        self._job = EDIT_CONTEXT_PROMPT
        self._required: OrderedDict[int, _RequiredLines] = OrderedDict()

    async def review(self, path: str, text: str, edits: Sequence[Edit]) -> str:
        """Raise Refusal if lines of the file at this resolved path must be read first.

        Return the model's objection if it names no lines, else "".
        """
        entry = self._files.find(path)
        if entry is None or entry.stale:
            return ""
        key = hash((path, tuple(edits)))
        before = self._required.get(key)
        if before is not None and before.sha256 == entry.fingerprint.sha256:
            self._require(path, before)
            return ""
        review = self._build_review(path, text, edits)
        answer = await self._ask(review) if review else None
        if answer is None or answer.is_sufficient:
            return ""
        reason = " ".join(to_printable(answer.explanation).split())[:_MAX_EXPLANATION]
        ranges = self._select_ranges(path, answer, entry.fingerprint.lines)
        if not ranges:
            return reason
        required = _RequiredLines(entry.fingerprint.sha256, ranges, reason)
        self._required[key] = required
        while len(self._required) > _MAX_REMEMBERED:
            self._required.popitem(last=False)
        self._require(path, required)
        return ""

    def _require(self, path: str, required: _RequiredLines) -> None:
        gaps = self._files.list_unseen(path)
        missing = [lines for lines in required.ranges if _overlaps_any(lines, gaps)]
        if not missing:
            return
        ranges_text = " and ".join(f"{first}-{last}" for first, last in missing)
        calls = ", then ".join(f"offset={first} and limit={last - first + 1}" for first, last in missing)
        reason = f" {required.reason.rstrip('.')}." if required.reason else ""
        raise Refusal(
            f"Read lines {ranges_text} first; nothing was written.{reason} "
            f"Use Read with {calls}, then repeat the same edit."
        )

    def _build_review(self, path: str, text: str, edits: Sequence[Edit]) -> EditContextRequest | None:
        """Return the input of the review, or None if the review is off, unnecessary or too large."""
        entry = self._files.find(path)
        validation = self._files.settings.validation
        if entry is None or self._small_model is None or validation == "never":
            return None
        partial = not entry.is_complete
        needs_review = partial or entry.truncated
        if not needs_review and validation != "always":
            return None
        # The parts that were read; if too long, only those around the edits; if still too long, [].
        parts = self._files.list_parts(path)
        if _count_chars(parts) > CONTENT_CHARS:
            windows = [
                (text.count("\n", 0, start) + 1 - _CONTEXT_LINES, text.count("\n", 0, end) + 1 + _CONTEXT_LINES)
                for edit in edits
                for start, end in locate(text, edit.old).spans[:_MAX_LINES]
            ]
            parts = [clipped_part for part in parts for clipped_part in _clip_part(part, windows)]
        shown = parts if _count_chars(parts) <= CONTENT_CHARS else []
        if not shown or sum(len(edit.old) + len(edit.new) for edit in edits) > EDIT_CHARS:
            return None
        return EditContextRequest(
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

    async def _ask(self, review: EditContextRequest) -> EditContextCheck | None:
        """Return the model's answer, or None if it failed or took too long."""
        assert self._small_model is not None
        text = msgspec.json.encode(review).decode()
        try:
            async with asyncio.timeout(self._seconds):
                try:
                    return parse_edit_context_check(await self._small_model(self._job, text))
                except BadRequest:
                    if self._job.schema is None:
                        raise
                    self._job = structs.replace(self._job, schema=None)
                    return parse_edit_context_check(await self._small_model(self._job, text))
        except (OdinError, TimeoutError):
            return None

    def _select_ranges(self, path: str, answer: EditContextCheck, total: int) -> tuple[LineSpan, ...]:
        """Return the suggested ranges that exist and were not read, merged and limited in number and length."""
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
    """Return the text to replace, without a final newline that the file lacks."""
    occurrences = locate(text, old)
    return to_printable(old.removesuffix("\n").removesuffix("\r") if occurrences.unended else old)


def _overlaps_any(lines: LineSpan, others: Sequence[LineSpan]) -> bool:
    return any(lines[0] <= last and first <= lines[1] for first, last in others)


def _count_chars(parts: list[SeenPart]) -> int:
    return sum(len(line) + 1 for part in parts for line in part.lines)


def _clip_part(part: SeenPart, windows: list[LineSpan]) -> list[SeenPart]:
    """Return the lines of a part that lie in one of the windows."""
    clipped: list[SeenPart] = []
    following = part.first
    for first, last in sorted(windows):
        start_line, end = max(following, first), min(part.last, last)
        if start_line > end:
            continue
        lines = part.lines[start_line - part.first : end - part.first + 1]
        if clipped and start_line == clipped[-1].last + 1:
            clipped[-1] = SeenPart(clipped[-1].first, end, clipped[-1].lines + lines)
        else:
            clipped.append(SeenPart(start_line, end, lines))
        following = end + 1
    return clipped


class _EditedFile(Struct, frozen=True):
    """A file with its edits applied in memory: `text` replaces the `data` that was read."""

    place: ResolvedPath
    data: bytes
    decoded: DecodedText
    text: str
    count: int


class OpenedFile(Struct, frozen=True):
    """A text file that may be edited, with the bytes that were read."""

    place: ResolvedPath
    data: bytes
    decoded: DecodedText


def read_for_edit(files: FileCache, file_path: str, edits: Sequence[Edit], ctx: ToolContext) -> OpenedFile:
    """Read a text file. Raise Refusal if it is none, or if the model might not know what it changes."""
    place = find_resolved_path(file_path, ctx)
    file, info = open_regular(place, ctx.cwd)
    with file:
        data = read_whole(file, info)
    decoded = decode(data) if data is not None else None
    if data is None or decoded is None:
        kind = "too large" if data is None else "a binary file"
        size = f"{info.st_size} bytes"
        raise Refusal(f"{place.shown} is {kind} ({size}); it cannot be edited as text. Use a command instead.")
    _check_was_read(files, place, data, edits)
    return OpenedFile(place, data, decoded)


def apply_in_memory(files: FileCache, file_path: str, edits: Sequence[Edit], ctx: ToolContext) -> _EditedFile:
    """Read, check and edit a file without writing it. Raise Refusal."""
    opened = read_for_edit(files, file_path, edits, ctx)
    place, data, decoded = opened.place, opened.data, opened.decoded
    buffer = EditBuffer(decoded.text, files.list_unseen(place.path), is_encoding_unknown=not decoded.valid)
    count = 0
    for number, edit in enumerate(edits, 1):
        try:
            decoded.check_text(edit.new, "new_string")
            count += buffer.apply(edit)
        except Refusal as refusal:
            if len(edits) == 1:
                raise
            raise Refusal(f"Edit {number} of {len(edits)} failed, so nothing was written: {refusal}") from None
    if buffer.text == decoded.text:
        raise Refusal("The edits cancel each other out; nothing was written.")
    return _EditedFile(place, data, decoded, buffer.text, count)


async def edit_file(
    files: FileCache, file_path: str, edits: Sequence[Edit], ctx: ToolContext, reviewer: EditReviewer
) -> ToolOutput:
    """Apply all edits to a file, or none: read, check, edit in memory, then write atomically."""
    edited = apply_in_memory(files, file_path, edits, ctx)
    decoded, text, count = edited.decoded, edited.text, edited.count
    path, target = edited.place.shown, edited.place.path
    after = decoded.encode(text)
    remark = await reviewer.review(target, decoded.text, edits)
    info = await run_in_thread(lambda _: replace_file(target, after, edited.data))
    remember_write(files, target, after, info, decoded, text)
    diff = compare(decoded.text, text, path)
    count_text = "1 replacement" if count == 1 else f"{count} replacements"
    return ToolOutput(
        text=to_printable(
            f"Edited {path}: {count_text}, {diff.counts} lines.\n{format_snippet(diff)}{format_remark(remark)}"
        ),
        note=to_printable(f"Edited {path} ({diff.counts})"),
        view=to_printable(diff.text),
        files=(to_printable(target),),
    )


def _check_was_read(files: FileCache, place: ResolvedPath, data: bytes, edits: Sequence[Edit]) -> None:
    """Raise Refusal if the model might not know what it changes.

    After a compaction, a text that is found exactly once in an unchanged file may be replaced without a new read.
    """
    sha256 = hash_bytes(data)
    path = place.shown
    status = files.compare(place.path, sha256)
    if status in ("unread", "stale", "out_of_view") and not files.read_first:
        return
    if status == "out_of_view" and any(edit.replace_all for edit in edits):
        reason = f"{path} was read before the conversation was shortened, and replace_all needs to know all of it."
        raise Refusal(f"Must read file first: {reason} Read it again.", UnreadFile)
    if status == "unread":
        raise Refusal(f"Must read file first: {path} has not been read. Use Read, then repeat the edit.", UnreadFile)
    if status == "stale":
        reason = f"Only a part of {path} was read before this session was resumed, and it is not known which."
        raise Refusal(f"Must read file first: {reason} Read it again.", UnreadFile)
    if status == "changed":
        drift = describe_drift(files, place.path, data)
        message = f"{path} changed on disk since you read it. Nothing was written.{drift}"
        message += " Read it again, then repeat the edit on the new text."
        raise make_stale_refusal(files, place.path, sha256, message)


def format_remark(remark: str) -> str:
    return f"\n(Note from the review of this edit: {remark})" if remark else ""


def format_snippet(diff: Diff) -> str:
    """Return the changed lines with some context, numbered."""
    lines = [line.removesuffix("\n") for line in diff.around[:_SNIPPET_LINES]]
    shown = number_lines(lines, diff.first, _SNIPPET_CHARS)
    last = diff.first + len(diff.around) - 1
    if shown.last >= last:
        return shown.text
    return f"{shown.text}\n(showing lines {shown.first}-{shown.last} of the changed part {diff.first}-{last})"
