"""Prompts, notices, commands of the person's own, sub-agents, processes, summaries and the ends of turns."""

from rich.segment import Segment
from rich.text import Text
from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, prefixed, with_gap
from odin.ui.tui.paint.foreign import foreign, one_line
from odin.ui.tui.paint.output import SHORT, output_lines, tail_lines
from odin.ui.tui.paint.pictures import picture_lines
from odin.ui.tui.paint.words import counted, duration, since, tokens, turning
from odin.ui.tui.story.block import (
    AgentBlock,
    CommandBlock,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    SummaryBlock,
)

LONG_PROMPT = 24
"""Lines of a prompt that are shown before somebody asks for more."""

_MODES = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": ""}
_REASONS = {
    "interrupted": "– interrupted",
    "aborted": "stopped",
    "max_turns": "stopped: the limit of steps is reached",
    "error_max_budget_usd": "stopped: the budget is spent",
    "max_tokens": "stopped: the answer was too long",
    "loop_detected": "stopped: it went round in circles",
    "error": "failed",
}


def paint_prompt(block: PromptBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    text = "(goes on)" if block.continues else foreign(block.text)
    body = canvas.wrapped(Text(text, style=palette.user), canvas.width - 2)
    if folded and len(body) > LONG_PROMPT:
        left = counted(len(body) - LONG_PROMPT, "more line")
        body = [*body[:LONG_PROMPT], [Segment(f"… {left}", palette.dim)]]
    lines: list[Strip] = []
    for line in prefixed(body, [Segment("› ", palette.user)], [Segment("  ")]):
        lines.append(Strip(line).extend_cell_length(canvas.width).apply_style(palette.user_block))
    told = [_MODES[block.mode], "said while Odin was working" if block.joined else ""]
    said = " · ".join(word for word in told if word)
    if said:
        lines.append(canvas.row((f"  {said}", palette.dim)))
    for image in block.images:
        lines += picture_lines(image, canvas)
    return with_gap(lines)


def paint_notice(block: NoticeBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    style = {"info": palette.dim, "warn": palette.warn, "error": palette.bad}[block.level]
    mark = {"info": "· ", "warn": "! ", "error": "✗ "}[block.level]
    body = canvas.wrapped(Text(foreign(block.text), style=style), canvas.width - 2)
    return with_gap(Strip(line) for line in prefixed(body, [Segment(mark, style)], [Segment("  ")]))


def paint_command(block: CommandBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    state = f"  running {since(block.ts, canvas.now)}".rstrip() if block.live else ""
    mark = turning(canvas.now) if block.live else "!"
    head = canvas.row((f"{mark} ", palette.accent), (one_line(block.command), palette.strong), (state, palette.dim))
    body = tail_lines(block.tail, canvas) if block.live else output_lines(block.output, canvas, most=SHORT * folded)
    return with_gap([head, *body])


def paint_agent(block: AgentBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    calls = counted(block.calls, "call") if block.calls else ""
    if not block.reason:
        mark, style, state = turning(canvas.now), palette.accent, "working"
        took = since(block.ts, canvas.now)
    else:
        good = block.reason == "end_turn"
        mark, style = ("✓", palette.good) if good else ("✗", palette.bad)
        state, took = "done" if good else _REASONS.get(block.reason, block.reason), duration(block.ended - block.ts)
    said = " · ".join(word for word in (state, took, calls) if word)
    name, task = one_line(block.key), one_line(block.task)
    room = max(canvas.width - len(name) - len(said) - 6, 12)
    task_shown = task if len(task) <= room else task[: room - 1] + "…"
    lines = [
        canvas.row(
            (f"{mark} ", style), (name, palette.strong), (f" {task_shown}", palette.text), (f"  {said}", palette.dim)
        )
    ]
    if block.doing:
        lines.append(canvas.row(("  ", None), (one_line(block.doing), palette.dim)))
    if not folded:
        lines += canvas.text(foreign(block.task), palette.dim, indent=2) if len(task) > room else []
        lines += output_lines(block.answer, canvas) if block.answer.strip() else []
    return with_gap(lines)


def paint_process(block: ProcessBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    state = block.status.replace("_", " ") if block.status else "runs in the background"
    if block.status:
        code = f" with code {block.code}" if block.status == "failed" else ""
        state = f"{state}{code} · {duration(block.ended - block.ts)}"
    bad = block.status in ("failed", "timed_out")
    style = palette.bad if bad else palette.dim if block.status else palette.accent
    what = one_line(block.description or block.command)
    lines = [
        canvas.row(
            ("✗ " if bad else "■ " if block.status else "▶ ", style),
            (one_line(block.key), palette.strong),
            (f" {what}", palette.text),
            (f"  {state}", palette.dim),
        )
    ]
    if not folded:
        lines += canvas.text(foreign(block.command), palette.dim, indent=2) if block.description else []
        lines += output_lines(block.output, canvas) if block.output.strip() else []
    return with_gap(lines)


def paint_summary(block: SummaryBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    head = f"The conversation was summarised: {block.tokens_before:,} → {block.tokens_after:,} tokens"
    lines = [canvas.row(("▸ " if folded else "▾ ", palette.dim), (head, palette.dim))]
    if not folded:
        from odin.ui.tui.paint.markdown import markdown_lines

        space = [Segment("  ")]
        lines += [Strip(line) for line in prefixed(markdown_lines(block.text, canvas), space, space)]
    return with_gap(lines)


def paint_end(block: EndBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    """Nothing after a short and free turn; else one line, and an error with what to do about it."""
    palette = canvas.palette
    reason = _REASONS.get(block.reason, "" if block.reason == "end_turn" else block.reason.replace("_", " "))
    if block.error and block.reason != "interrupted":
        lines = canvas.text(f"✗ {foreign(block.error)}", palette.bad)
        return with_gap([*lines, *(canvas.text(foreign(block.hint), palette.text, indent=2) if block.hint else [])])
    words = [reason] if reason else []
    if block.duration_ms >= 1_000:
        words.append(duration(block.duration_ms / 1000))
    if block.tokens >= 1_000:
        words.append(tokens(block.tokens))
    if block.cost_usd:
        words.append(f"${block.cost_usd:.4f}" if block.cost_usd < 0.1 else f"${block.cost_usd:.2f}")
    if not words:
        return []
    style = palette.warn if reason else palette.dim
    return with_gap([canvas.row((" · ".join(words), style))])
