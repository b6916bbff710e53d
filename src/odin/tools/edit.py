"""One or several edits to one file, all of them or none: the common part of EditTool and MultiEditTool.

EditTool: one exact replacement in one file.

MultiEditTool: several exact replacements in one file, all or none.
"""

import os
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from odin.context.file_cache import FileCache, hash_bytes
from odin.core.errors import UnreadFile
from odin.core.tool import Args, AskSmallModel, Subject, ToolContext, ToolOutput
from odin.tools.atomic_write import replace_file
from odin.tools.diff import Diff, compare
from odin.tools.edit_review import EditReviewer
from odin.tools.file_state import describe_drift, make_stale_refusal, remember_write
from odin.tools.files import (
    DecodedText,
    FileTool,
    Refusal,
    decode,
    open_regular,
    read_whole,
    require_absolute,
    to_printable,
)
from odin.tools.read import number_lines
from odin.tools.replacement import Edit, EditBuffer

_SNIPPET_LINES = 40
_SNIPPET_CHARS = 4000


async def edit_file(
    files: FileCache, file_path: str, edits: Sequence[Edit], ctx: ToolContext, reviewer: EditReviewer
) -> ToolOutput:
    """Read, check, edit in memory, write at once. The file is untouched unless every edit fits."""
    path = require_absolute(file_path, ctx.cwd, "file_path")
    file, info = open_regular(path, ctx.cwd)
    with file:
        data = read_whole(file, info)
    decoded = decode(data) if data is not None else None
    if data is None or decoded is None:
        kind = "too large" if data is None else "a binary file"
        raise Refusal(f"{path} is {kind} ({info.st_size} bytes); it cannot be edited as text. Use a command instead.")
    _check_was_read(files, path, data)
    text, count = _apply_edits(decoded, edits, files.list_unseen(path))
    after = decoded.encode(text)
    remark = await reviewer.review(path, decoded.text, edits)
    target = os.path.realpath(path)
    mtime = replace_file(target, after, data)
    remember_write(files, target, after, mtime, decoded, text)
    diff = compare(decoded.text, text, path)
    places = "1 replacement" if count == 1 else f"{count} replacements"
    return ToolOutput(
        text=to_printable(
            f"Edited {path}: {places}, {diff.counts} lines.\n{_format_snippet(diff)}{_format_remark(remark)}"
        ),
        note=to_printable(f"Edited {path} ({diff.counts})"),
        view=to_printable(diff.text),
        files=(to_printable(target),),
    )


def _check_was_read(files: FileCache, path: str, data: bytes) -> None:
    sha256 = hash_bytes(data)
    standing = files.compare(path, sha256)
    if standing in ("unread", "stale") and not files.read_first:
        return
    if standing == "unread":
        raise Refusal(f"Must read file first: {path} has not been read. Use Read, then repeat the edit.", UnreadFile)
    if standing == "stale":
        why = f"{path} was read before this session was resumed. Read it again."
        raise Refusal(f"Must read file first: {why}", UnreadFile)
    if standing == "changed":
        said = f"{path} changed on disk since you read it. Nothing was written.{describe_drift(files, path, data)}"
        raise make_stale_refusal(files, path, sha256, f"{said} Read it again, then repeat the edit on the new text.")


def _format_remark(remark: str) -> str:
    return f"\n(The check before this edit remarked: {remark})" if remark else ""


def _apply_edits(decoded: DecodedText, edits: Sequence[Edit], unseen: list[tuple[int, int]]) -> tuple[str, int]:
    draft = EditBuffer(decoded.text, unseen, is_encoding_unknown=not decoded.valid)
    count = 0
    for number, edit in enumerate(edits, 1):
        try:
            decoded.check_text(edit.new, "new_string")
            count += draft.apply(edit)
        except Refusal as refusal:
            if len(edits) == 1:
                raise
            raise Refusal(f"Edit {number} of {len(edits)} failed, so nothing was written: {refusal}") from None
    if draft.text == decoded.text:
        raise Refusal("The edits cancel each other out; nothing was written.")
    return draft.text, count


def _format_snippet(diff: Diff) -> str:
    """The changed lines with a few around them, as they are now."""
    lines = [line.removesuffix("\n") for line in diff.around[:_SNIPPET_LINES]]
    shown = number_lines(lines, diff.first, _SNIPPET_CHARS)
    last = diff.first + len(diff.around) - 1
    if shown.last >= last:
        return shown.text
    return f"{shown.text}\n(showing lines {shown.first}-{shown.last} of the changed part {diff.first}-{last})"


class EditArgs(Args, frozen=True):
    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False


class EditTool(FileTool[EditArgs]):
    """Replace exact text in a file you have read. old_string, without line numbers, must occur once unless
    replace_all."""

    name = "EditTool"
    kind = "edit"
    short = "Replace old_string with new_string in a file you have read."
    args = EditArgs
    argument_aliases = (("path", "file_path"), ("old_text", "old_string"), ("new_text", "new_string"))

    def __init__(self, files: FileCache, small_model: AskSmallModel | None = None) -> None:
        self._files = files
        self._reviewer = EditReviewer(files, small_model)

    def subject_of(self, args: EditArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def can_speculate(self, args: EditArgs) -> bool:
        return True

    async def work(self, args: EditArgs, ctx: ToolContext) -> ToolOutput:
        edit = Edit(args.old_string, args.new_string, args.replace_all)
        return await edit_file(self._files, args.file_path, [edit], ctx, self._reviewer)


class EditItem(Struct, frozen=True, forbid_unknown_fields=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class MultiEditArgs(Args, frozen=True):
    file_path: str
    edits: Annotated[tuple[EditItem, ...], Meta(min_length=1)]


class MultiEditTool(FileTool[MultiEditArgs]):
    """Several EditTool replacements in one file, in order, all or none."""

    name = "MultiEditTool"
    kind = "edit"
    short = "Make several replacements in one file, all or none."
    args = MultiEditArgs

    def __init__(self, files: FileCache, small_model: AskSmallModel | None = None) -> None:
        self._files = files
        self._reviewer = EditReviewer(files, small_model)

    def subject_of(self, args: MultiEditArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def can_speculate(self, args: MultiEditArgs) -> bool:
        return True

    async def work(self, args: MultiEditArgs, ctx: ToolContext) -> ToolOutput:
        edits = [Edit(edit.old_string, edit.new_string, edit.replace_all) for edit in args.edits]
        return await edit_file(self._files, args.file_path, edits, ctx, self._reviewer)
