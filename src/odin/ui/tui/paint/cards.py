"""Painters of the cards: prompts, reasoning, tool calls, commands, sub-agents, processes, notices, turn ends."""

import json
from typing import Any

from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from odin.core.format import format_elapsed, pluralize
from odin.core.tool import get_display_name
from odin.ui.clean_text import sanitize, sanitize_line
from odin.ui.transcript.blocks import (
    AgentBlock,
    CallBlock,
    CommandBlock,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    SummaryBlock,
    TranscriptBlock,
)
from odin.ui.transcript.words import (
    describe_agent_status,
    describe_call,
    describe_process,
    describe_prompt,
    describe_state,
    describe_summary,
    describe_thinking,
    describe_turn,
    get_mark,
    has_error,
    is_diff,
    list_remarks,
    should_fold_call,
    was_cut_off,
)
from odin.ui.tui.paint.canvas import (
    SHORT_OUTPUT,
    Canvas,
    get_spinner_frame,
    indent_lines,
    paint_image,
    paint_output,
    paint_tail,
    prefix_lines,
    with_gap,
)
from odin.ui.tui.paint.diff import is_cut, paint_diff

_MAX_LIVE_CHARS = 4_000
"""Only the end of streaming reasoning is painted, so that long reasoning costs no more than short."""


def paint_thinking(block: ReasoningBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    lines = [
        canvas.paint_row(
            ("▸ " if folded else "▾ ", palette.dim),
            (describe_thinking(block, format_elapsed(block.ts, canvas.now)), palette.dim),
        )
    ]
    if not folded:
        text = block.text.strip()
        if block.live and len(text) > _MAX_LIVE_CHARS:
            text = "…" + text[-_MAX_LIVE_CHARS:]
        lines += canvas.paint_text(sanitize(text) or "(no text)", palette.dim, indent=2)
    return with_gap(lines)


def is_call_cut(block: CallBlock) -> bool:
    """True if an unfolded call shows only the first lines of its result."""
    if not block.is_over or block.folded is not None or should_fold_call(block):
        return False
    shown = block.view or block.result
    return is_cut(shown) if is_diff(shown) else shown.count("\n") >= SHORT_OUTPUT


def is_one_line(block: CallBlock, folded: bool) -> bool:
    """True if the card of the call is only its head."""
    if block.state in ("denied", "discarded") and block.explanation:
        return False
    if not block.is_over:
        return not block.tail
    return folded and not (block.for_user or block.aside or block.changed_by or block.redacted)


def paint_call(block: CallBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    about = describe_call(block, canvas.folders)
    lines = [_paint_call_head(block, about, canvas, folded)]
    palette = canvas.palette
    for remark, is_warning in list_remarks(block):
        lines += canvas.paint_text(remark, palette.warn if is_warning else palette.dim, indent=2)
    if not block.is_over:
        return with_gap([*lines, *paint_tail(block.tail, canvas)])
    if not folded:
        lines += _paint_body(block, canvas, whole=block.folded is False)
    return with_gap(lines)


def _read_mark(block: TranscriptBlock, canvas: Canvas) -> tuple[str, Style]:
    """Return the mark of a card, which turns while it works."""
    mark, tone = get_mark(block)
    return get_spinner_frame(canvas.now) if mark == "◐" else mark, getattr(canvas.palette, tone or "text")


def _paint_call_head(block: CallBlock, about: str, canvas: Canvas, folded: bool) -> Strip:
    palette = canvas.palette
    mark, style = _read_mark(block, canvas)
    elapsed = format_elapsed(block.started, canvas.now)
    state = describe_state(block, about, canvas.folders, folded=folded, elapsed=elapsed)
    state = state[: max(canvas.width * 2 // 3, 20)]
    name = sanitize_line(get_display_name(block.name))
    room = max(canvas.width - len(name) - len(state) - 6, 12)
    return canvas.paint_row(
        (f"{mark} ", style),
        (name, palette.strong),
        (f" {about if len(about) <= room else about[: room - 1] + '…'}" if about else "", palette.text),
        (f"  {state}" if state else "", palette.dim if block.state in ("success", "queued", "writing") else style),
    )


def _paint_body(block: CallBlock, canvas: Canvas, *, whole: bool) -> list[Strip]:
    """Paint the result; with `whole` all of it, and the arguments, too."""
    lines: list[Strip] = []
    if whole:
        lines += _paint_arguments(block, canvas)
    shown = block.view or block.result
    if is_diff(shown):
        lines += paint_diff(shown, canvas, whole=whole)
    elif block.name == "Handoff" and block.view:
        from odin.ui.tui.paint.markdown import paint_markdown

        rows = shown.rstrip().split("\n")
        kept = rows if whole else rows[:SHORT_OUTPUT]
        lines += indent_lines(paint_markdown("\n".join(kept), replace(canvas, width=canvas.width - 2)), 2)
        if left := len(rows) - len(kept):
            lines.append(canvas.paint_row((f"  … {pluralize(left, 'more line')}", canvas.palette.dim)))
    elif shown.strip():
        if whole:
            part = " shown" if "\n[... " in shown else ""
            count = f"  {pluralize(shown.rstrip(chr(10)).count(chr(10)) + 1, 'line')}{part}"
            lines.append(canvas.paint_row((count, canvas.palette.dim)))
        lines += paint_output(shown, canvas, max_lines=0 if whole else SHORT_OUTPUT, tail=was_cut_off(block))
    for image in block.images:
        lines += paint_image(image, canvas)
    return lines


def _paint_arguments(block: CallBlock, canvas: Canvas) -> list[Strip]:
    palette = canvas.palette
    lines = [strip for name, value in block.args.items() for strip in _paint_argument(name, value, canvas)]
    if block.original_args is not None and block.original_args != block.args:
        lines.append(canvas.paint_row(("  the model asked for:", palette.dim)))
        lines += [
            strip for name, value in block.original_args.items() for strip in _paint_argument(name, value, canvas)
        ]
    return lines


def _paint_argument(name: str, value: Any, canvas: Canvas) -> list[Strip]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    lines = text.split("\n")
    more = f" … {pluralize(len(lines) - 3, 'more line')}" if len(lines) > 3 else ""
    return canvas.paint_text(
        f"{sanitize_line(name)}: {sanitize(chr(10).join(lines[:3]))}{more}", canvas.palette.dim, indent=2
    )


LONG_PROMPT = 16
"""A longer prompt is shown without its middle until it is unfolded: one's own words stand before or after a paste."""

_PROMPT_HEAD, _PROMPT_TAIL = 5, 5


def paint_prompt(block: PromptBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    text = "(continued)" if block.is_continuation else sanitize(block.text.rstrip("\n"))
    style, block_style = (palette.dim, Style()) if block.is_mail else (palette.user, palette.user_block)
    body = canvas.wrap(Text(text, style=style), canvas.width - 2)
    if folded and len(body) > LONG_PROMPT:
        left = pluralize(len(body) - _PROMPT_HEAD - _PROMPT_TAIL, "more line")
        gap = Segment(f"[… {left} …]"[: canvas.width - 2], palette.dim)
        body = [*body[:_PROMPT_HEAD], [gap], *body[-_PROMPT_TAIL:]]
    lines: list[Strip] = []
    for line in prefix_lines(body, [Segment(f"{get_mark(block)[0]} ", style)], [Segment("  ")]):
        lines.append(Strip(line).extend_cell_length(canvas.width).apply_style(block_style))
    if remark := describe_prompt(block):
        lines.append(canvas.paint_row((f"  {remark}", palette.dim)))
    for image in block.images:
        lines += paint_image(image, canvas)
    return with_gap(lines)


def paint_notice(block: NoticeBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    mark, style = _read_mark(block, canvas)
    body = canvas.wrap(Text(sanitize(block.text), style=style), canvas.width - 2)
    return with_gap(Strip(line) for line in prefix_lines(body, [Segment(f"{mark} ", style)], [Segment("  ")]))


def paint_command(block: CommandBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    state = f"  running {format_elapsed(block.ts, canvas.now)}".rstrip() if block.live else ""
    mark, style = _read_mark(block, canvas)
    head = canvas.paint_row((f"{mark} ", style), (sanitize_line(block.command), palette.strong), (state, palette.dim))
    body = (
        paint_tail(block.tail, canvas)
        if block.live
        else paint_output(block.output, canvas, max_lines=SHORT_OUTPUT * folded)
    )
    return with_gap([head, *body])


def paint_agent(block: AgentBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    mark, style = _read_mark(block, canvas)
    elapsed = format_elapsed(block.ts, canvas.now) if block.is_animated else ""
    status = describe_agent_status(block, elapsed)
    name, task = sanitize_line(block.key), sanitize_line(block.description or block.task)
    room = max(canvas.width - len(name) - len(status) - 6, 12)
    task_shown = task if len(task) <= room else task[: room - 1] + "…"
    lines = [
        canvas.paint_row(
            (f"{mark} ", style),
            (name, palette.strong + palette.get_agent_style(block.key, block.color)),
            (f" {task_shown}", palette.text),
            (f"  {status}", palette.dim),
        )
    ]
    if block.doing and not block.note:
        lines.append(canvas.paint_row(("  ", None), (sanitize_line(block.doing), palette.dim)))
    if block.note:
        note_style = palette.warn if block.state == "waiting_main" and not block.reason else palette.text
        note = canvas.paint_text(sanitize(block.note), note_style, indent=2)
        lines += note[:_NOTE_LINES] if folded else note
    if not folded:
        told = not block.description and len(task) <= room
        lines += canvas.paint_text(sanitize(block.task), palette.dim, indent=2) if not told else []
        is_new = block.answer.strip() and not block.note.startswith(block.answer)
        lines += paint_output(block.answer, canvas) if is_new else []
    return with_gap(lines)


_NOTE_LINES = 3
"""Lines of a summary or question on a folded card."""


def paint_process(block: ProcessBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    mark, style = _read_mark(block, canvas)
    what = sanitize_line(block.description or block.command)
    lines = [
        canvas.paint_row(
            (f"{mark} ", style),
            (sanitize_line(block.key), palette.strong),
            (f" {what}", palette.text),
            (f"  {describe_process(block)}", palette.dim),
        )
    ]
    if not folded:
        lines += canvas.paint_text(sanitize(block.command), palette.dim, indent=2) if block.description else []
        lines += paint_output(block.output, canvas) if block.output.strip() else []
    return with_gap(lines)


def paint_summary(block: SummaryBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    head = describe_summary(block)
    lines = [canvas.paint_row(("▸ " if folded else "▾ ", palette.dim), (head, palette.dim))]
    if not folded:
        from odin.ui.tui.paint.markdown import paint_markdown

        space = [Segment("  ")]
        lines += [Strip(line) for line in prefix_lines(paint_markdown(block.text, canvas), space, space)]
    return with_gap(lines)


def paint_end(block: EndBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    """Paint the error and its hint, or one line."""
    palette = canvas.palette
    if has_error(block):
        lines = canvas.paint_text(f"✗ {sanitize(block.error)}", palette.bad)
        advice = f"{sanitize(block.hint)} {block.next_step}".strip()
        return with_gap([*lines, *(canvas.paint_text(advice, palette.text, indent=2) if advice else [])])
    words = describe_turn(block)
    return with_gap([canvas.paint_row((words, _read_mark(block, canvas)[1]))]) if words else []
