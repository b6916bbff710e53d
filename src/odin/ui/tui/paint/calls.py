"""Calls of tools as cards: what, in which state, what came of it."""

import json
from typing import Any

from rich.style import Style
from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, with_gap
from odin.ui.tui.paint.changes import is_diff
from odin.ui.tui.paint.diff import is_cut, paint_diff
from odin.ui.tui.paint.foreign import sanitize, sanitize_line
from odin.ui.tui.paint.output import SHORT_OUTPUT, paint_output, paint_tail
from odin.ui.tui.paint.pictures import paint_image
from odin.ui.tui.paint.subject import describe_call, describe_outcome
from odin.ui.tui.paint.words import count_of, format_duration, format_elapsed, spinner_of
from odin.ui.tui.story.block import CallBlock

_STATE_MARKS = {
    "writing": "·",
    "queued": "○",
    "asking": "?",
    "success": "✓",
    "error": "✗",
    "cancelled": "–",
    "denied": "⊘",
    "discarded": "–",
}


def should_fold_call(block: CallBlock) -> bool:
    """Changes, pictures and failures are shown, what was only looked at is not. Tasks have a panel of their own."""
    if block.state == "error" or not block.is_over:
        return False
    if "todos" in block.args:
        return True
    return not (block.view or block.images)


def is_call_cut(block: CallBlock) -> bool:
    """Whether more is there than what is shown as long as nobody asks for all of it."""
    if not block.is_over or block.folded is not None or should_fold_call(block):
        return False
    shown = block.view or block.result
    return is_cut(shown) if is_diff(shown) else shown.count("\n") >= SHORT_OUTPUT


def paint_call(block: CallBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    about = describe_call(block, canvas)
    lines = [_paint_call_head(block, about, canvas, folded)]
    palette = canvas.palette
    if block.state in ("denied", "discarded") and block.explanation:
        lines += canvas.paint_text(sanitize_line(block.explanation), palette.warn, indent=2)
    if not block.is_over:
        return with_gap([*lines, *paint_tail(block.tail, canvas)])
    if block.for_user:
        lines += canvas.paint_text(sanitize(block.for_user), palette.warn, indent=2)
    if block.changed_by:
        who = "you" if block.changed_by == "user" else block.changed_by
        lines += canvas.paint_text(f"The arguments were changed by {sanitize_line(who)}.", palette.warn, indent=2)
    if block.redacted:
        lines += canvas.paint_text(
            f"Taken out of the result: {sanitize_line(', '.join(block.redacted))}.", palette.warn, indent=2
        )
    if not folded:
        lines += _paint_body(block, canvas, whole=block.folded is False)
    return with_gap(lines)


def _paint_call_head(block: CallBlock, about: str, canvas: Canvas, folded: bool) -> Strip:
    palette = canvas.palette
    mark = spinner_of(canvas.now) if block.state == "running" else _STATE_MARKS[block.state]
    state, style = _describe_state(block, about, canvas, folded)
    room = max(canvas.width - len(block.name) - len(state) - 6, 12)
    return canvas.paint_row(
        (f"{mark} ", style),
        (sanitize_line(block.name), palette.strong),
        (f" {about if len(about) <= room else about[: room - 1] + '…'}" if about else "", palette.text),
        (f"  {state}" if state else "", palette.dim if block.state in ("success", "queued", "writing") else style),
    )


def _describe_state(block: CallBlock, about: str, canvas: Canvas, folded: bool) -> tuple[str, Style]:
    """The state in words, and the colour of its mark."""
    palette = canvas.palette
    took = format_duration(block.duration_ms / 1000) if block.duration_ms >= 100 else ""
    came = "" if block.state not in ("success", "error") else describe_outcome(block, about, canvas)
    if not folded and not block.note:
        came = ""
    early = "early" if block.is_speculative and not block.is_over else ""
    words: dict[str, tuple[list[str], Style]] = {
        "writing": (["writing", f"{block.chars:,} chars" if block.chars else ""], palette.dim),
        "queued": (["queued"], palette.dim),
        "asking": (["waiting for your answer"], palette.warn),
        "running": (["running", format_elapsed(block.started, canvas.now), early], palette.accent),
        "success": ([came, took, "goes on in the background" if block.background else ""], palette.good),
        "error": (["failed", came, took], palette.bad),
        "cancelled": (["cancelled", took], palette.warn),
        "denied": (["denied"], palette.warn),
        "discarded": (["does not count"], palette.dim),
    }
    said, style = words[block.state]
    return " · ".join(word for word in said if word)[: max(canvas.width * 2 // 3, 20)], style


def _paint_body(block: CallBlock, canvas: Canvas, *, whole: bool) -> list[Strip]:
    """What came of it; with `whole` also what was asked for, and nothing is left out of what is kept."""
    lines: list[Strip] = []
    if whole:
        lines += _paint_arguments(block, canvas)
    shown = block.view or block.result
    if is_diff(shown):
        lines += paint_diff(shown, canvas, whole=whole)
    elif shown.strip():
        if whole:
            lines.append(
                canvas.paint_row(
                    ("  ", None), (count_of(shown.rstrip("\n").count("\n") + 1, "line"), canvas.palette.dim)
                )
            )
        lines += paint_output(shown, canvas, most=0 if whole else SHORT_OUTPUT)
    for image in block.images:
        lines += paint_image(image, canvas)
    return lines


def _paint_arguments(block: CallBlock, canvas: Canvas) -> list[Strip]:
    palette = canvas.palette
    lines = [strip for name, value in block.args.items() for strip in _paint_argument(name, value, canvas)]
    if block.original_args is not None and block.original_args != block.args:
        lines.append(canvas.paint_row(("  the model had asked for:", palette.dim)))
        lines += [
            strip for name, value in block.original_args.items() for strip in _paint_argument(name, value, canvas)
        ]
    return lines


def _paint_argument(name: str, value: Any, canvas: Canvas) -> list[Strip]:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    lines = said.split("\n")
    more = f" … {count_of(len(lines) - 3, 'more line')}" if len(lines) > 3 else ""
    return canvas.paint_text(
        f"{sanitize_line(name)}: {sanitize(chr(10).join(lines[:3]))}{more}", canvas.palette.dim, indent=2
    )
