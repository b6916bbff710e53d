"""One or several edits to one file, all of them or none: the common part of EditTool and MultiEditTool."""

import os
from collections.abc import Sequence

from odin.context.files import FileCache, digest
from odin.core.errors import UnreadFile
from odin.core.tool import ToolContext, ToolOutput
from odin.tools.files.atomic import replace_file
from odin.tools.files.diff import Diff, compare
from odin.tools.files.drift import changed_since, describe_drift
from odin.tools.files.path import Refusal, absolute, open_regular, printable, read_whole
from odin.tools.files.replace import Draft, Edit
from odin.tools.files.seen import remember_write
from odin.tools.files.sufficiency import Reviewer
from odin.tools.files.text import Decoded, decode
from odin.tools.read import numbered

_SNIPPET_LINES = 40
_SNIPPET_CHARS = 4000


async def change_file(
    files: FileCache, file_path: str, edits: Sequence[Edit], ctx: ToolContext, reviewer: Reviewer
) -> ToolOutput:
    """Read, check, edit in memory, write at once. The file is untouched unless every edit fits."""
    path = absolute(file_path, ctx.cwd, "file_path")
    file, info = open_regular(path, ctx.cwd)
    with file:
        data = read_whole(file, info)
    decoded = decode(data) if data is not None else None
    if data is None or decoded is None:
        kind = "too large" if data is None else "a binary file"
        raise Refusal(f"{path} is {kind} ({info.st_size} bytes); it cannot be edited as text. Use a command instead.")
    _check_known(files, path, data)
    text, count = _apply(decoded, edits, files.unseen(path))
    after = decoded.encode(text)
    remark = await reviewer.review(path, decoded.text, edits)
    target = os.path.realpath(path)
    mtime = replace_file(target, after, data)
    remember_write(files, target, after, mtime, decoded, text)
    diff = compare(decoded.text, text, path)
    places = "1 replacement" if count == 1 else f"{count} replacements"
    return ToolOutput(
        text=printable(f"Edited {path}: {places}, {diff.counts} lines.\n{_snippet(diff)}{_remarked(remark)}"),
        note=printable(f"Edited {path} ({diff.counts})"),
        view=printable(diff.text),
        files=(printable(target),),
    )


def _check_known(files: FileCache, path: str, data: bytes) -> None:
    sha256 = digest(data)
    standing = files.standing(path, sha256)
    if standing in ("unread", "stale") and not files.read_first:
        return
    if standing == "unread":
        raise Refusal(f"Must read file first: {path} has not been read. Use Read, then repeat the edit.", UnreadFile)
    if standing == "stale":
        why = f"{path} was read before this session was resumed. Read it again."
        raise Refusal(f"Must read file first: {why}", UnreadFile)
    if standing == "changed":
        said = f"{path} changed on disk since you read it. Nothing was written.{describe_drift(files, path, data)}"
        raise changed_since(files, path, sha256, f"{said} Read it again, then repeat the edit on the new text.")


def _remarked(remark: str) -> str:
    return f"\n(The check before this edit remarked: {remark})" if remark else ""


def _apply(decoded: Decoded, edits: Sequence[Edit], unseen: list[tuple[int, int]]) -> tuple[str, int]:
    draft = Draft(decoded.text, unseen, unknown=not decoded.valid)
    count = 0
    for number, edit in enumerate(edits, 1):
        try:
            decoded.check(edit.new, "new_string")
            count += draft.apply(edit)
        except Refusal as refusal:
            if len(edits) == 1:
                raise
            raise Refusal(f"Edit {number} of {len(edits)} failed, so nothing was written: {refusal}") from None
    if draft.text == decoded.text:
        raise Refusal("The edits cancel each other out; nothing was written.")
    return draft.text, count


def _snippet(diff: Diff) -> str:
    """The changed lines with a few around them, as they are now."""
    lines = [line.removesuffix("\n") for line in diff.around[:_SNIPPET_LINES]]
    shown = numbered(lines, diff.first, _SNIPPET_CHARS)
    last = diff.first + len(diff.around) - 1
    if shown.last >= last:
        return shown.text
    return f"{shown.text}\n(showing lines {shown.first}-{shown.last} of the changed part {diff.first}-{last})"
