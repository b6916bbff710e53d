"""The dialog of /diff: the uncommitted changes, painted as in the cards of the conversation."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rich.text import Text

from odin.core.client import ChangedFile
from odin.core.format import count_of
from odin.ui.slash_commands.reports import NO_CHANGES, describe_changed_file, summarize_changes
from odin.ui.tui.dialogs.reports import ReportDialog
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.paint.diff import paint_diff
from odin.ui.tui.palette import Palette

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

MAX_LINES = 3_000
"""Changed files are painted until there are this many lines, so that the dialog opens at once."""


def make_changes_report(files: Sequence[ChangedFile], app: "OdinApp") -> ReportDialog:
    async def write(colors: Palette, columns: int) -> Text:
        canvas = Canvas(columns, colors, app.settings.diff)
        return await asyncio.to_thread(_paint_files, files, canvas)

    return ReportDialog(f"Changes: {summarize_changes(files)}" if files else "Changes", write)


def _paint_files(files: Sequence[ChangedFile], canvas: Canvas) -> Text:
    if not files:
        return Text(NO_CHANGES, canvas.palette.dim)
    text = Text()
    left = MAX_LINES
    for number, file in enumerate(files):
        if left <= 0:
            text.append(f"{count_of(len(files) - number, 'more file')}; /diff PATH shows one.", canvas.palette.warn)
            break
        text.append(f"{describe_changed_file(file)}\n", canvas.palette.strong)
        lines = file.diff.split("\n")
        strips = paint_diff("\n".join(islice(lines, left)), canvas, whole=True, indent=0) if file.diff else []
        for strip in strips:
            for segment in strip:
                text.append(segment.text, segment.style)
            text.append("\n")
        if len(lines) > left:
            text.append(f"{count_of(len(lines) - left, 'more line')}; /diff PATH shows all.\n", canvas.palette.warn)
        left -= len(lines)
        text.append("\n")
    text.rstrip()
    return text
