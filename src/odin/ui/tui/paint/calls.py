"""Calls of tools as cards: what, in which state, what came of it."""

import json
from typing import Any

from rich.style import Style
from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, with_gap
from odin.ui.tui.paint.changes import looks_like_diff
from odin.ui.tui.paint.diff import diff_lines, is_cut
from odin.ui.tui.paint.foreign import foreign, one_line
from odin.ui.tui.paint.output import SHORT, output_lines, tail_lines
from odin.ui.tui.paint.pictures import picture_lines
from odin.ui.tui.paint.subject import outcome, subject
from odin.ui.tui.paint.words import counted, duration, since, turning
from odin.ui.tui.story.block import CallBlock

_MARKS = {
    "writing": "·",
    "queued": "○",
    "asking": "?",
    "success": "✓",
    "error": "✗",
    "cancelled": "–",
    "denied": "⊘",
    "discarded": "–",
}


def folds_call(block: CallBlock) -> bool:
    """Changes, pictures and failures are shown, what was only looked at is not. Tasks have a panel of their own."""
    if block.state == "error" or not block.over:
        return False
    if "todos" in block.args:
        return True
    return not (block.view or block.images)


def cuts_call(block: CallBlock) -> bool:
    """Whether more is there than what is shown as long as nobody asks for all of it."""
    if not block.over or block.folded is not None or folds_call(block):
        return False
    shown = block.view or block.result
    return is_cut(shown) if looks_like_diff(shown) else shown.count("\n") >= SHORT


def paint_call(block: CallBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    about = subject(block, canvas)
    lines = [_head(block, about, canvas, folded)]
    palette = canvas.palette
    if block.state in ("denied", "discarded") and block.why:
        lines += canvas.text(one_line(block.why), palette.warn, indent=2)
    if not block.over:
        return with_gap([*lines, *tail_lines(block.tail, canvas)])
    if block.for_user:
        lines += canvas.text(foreign(block.for_user), palette.warn, indent=2)
    if block.changed_by:
        who = "you" if block.changed_by == "user" else block.changed_by
        lines += canvas.text(f"The arguments were changed by {one_line(who)}.", palette.warn, indent=2)
    if block.redacted:
        lines += canvas.text(f"Taken out of the result: {one_line(', '.join(block.redacted))}.", palette.warn, indent=2)
    if not folded:
        lines += _body(block, canvas, whole=block.folded is False)
    return with_gap(lines)


def _head(block: CallBlock, about: str, canvas: Canvas, folded: bool) -> Strip:
    palette = canvas.palette
    mark = turning(canvas.now) if block.state == "running" else _MARKS[block.state]
    state, style = _state(block, about, canvas, folded)
    room = max(canvas.width - len(block.name) - len(state) - 6, 12)
    return canvas.row(
        (f"{mark} ", style),
        (one_line(block.name), palette.strong),
        (f" {about if len(about) <= room else about[: room - 1] + '…'}" if about else "", palette.text),
        (f"  {state}" if state else "", palette.dim if block.state in ("success", "queued", "writing") else style),
    )


def _state(block: CallBlock, about: str, canvas: Canvas, folded: bool) -> tuple[str, Style]:
    """The state in words, and the colour of its mark."""
    palette = canvas.palette
    took = duration(block.duration_ms / 1000) if block.duration_ms >= 100 else ""
    came = "" if block.state not in ("success", "error") else outcome(block, about, canvas)
    if not folded and not block.note:
        came = ""
    early = "early" if block.early and not block.over else ""
    words: dict[str, tuple[list[str], Style]] = {
        "writing": (["writing", f"{block.chars:,} chars" if block.chars else ""], palette.dim),
        "queued": (["queued"], palette.dim),
        "asking": (["waiting for your answer"], palette.warn),
        "running": (["running", since(block.started, canvas.now), early], palette.accent),
        "success": ([came, took, "goes on in the background" if block.background else ""], palette.good),
        "error": (["failed", came, took], palette.bad),
        "cancelled": (["cancelled", took], palette.warn),
        "denied": (["denied"], palette.warn),
        "discarded": (["does not count"], palette.dim),
    }
    said, style = words[block.state]
    return " · ".join(word for word in said if word)[: max(canvas.width * 2 // 3, 20)], style


def _body(block: CallBlock, canvas: Canvas, *, whole: bool) -> list[Strip]:
    """What came of it; with `whole` also what was asked for, and nothing is left out of what is kept."""
    lines: list[Strip] = []
    if whole:
        lines += _arguments(block, canvas)
    shown = block.view or block.result
    if looks_like_diff(shown):
        lines += diff_lines(shown, canvas, whole=whole)
    elif shown.strip():
        if whole:
            lines.append(
                canvas.row(("  ", None), (counted(shown.rstrip("\n").count("\n") + 1, "line"), canvas.palette.dim))
            )
        lines += output_lines(shown, canvas, most=0 if whole else SHORT)
    for image in block.images:
        lines += picture_lines(image, canvas)
    return lines


def _arguments(block: CallBlock, canvas: Canvas) -> list[Strip]:
    palette = canvas.palette
    lines = [strip for name, value in block.args.items() for strip in _argument(name, value, canvas)]
    if block.asked is not None and block.asked != block.args:
        lines.append(canvas.row(("  the model had asked for:", palette.dim)))
        lines += [strip for name, value in block.asked.items() for strip in _argument(name, value, canvas)]
    return lines


def _argument(name: str, value: Any, canvas: Canvas) -> list[Strip]:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    lines = said.split("\n")
    more = f" … {counted(len(lines) - 3, 'more line')}" if len(lines) > 3 else ""
    return canvas.text(f"{one_line(name)}: {foreign(chr(10).join(lines[:3]))}{more}", canvas.palette.dim, indent=2)
