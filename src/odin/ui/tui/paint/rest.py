"""Prompts, notices, commands of the person's own, sub-agents, processes, summaries and the ends of turns."""

from rich.segment import Segment
from rich.text import Text
from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, prefix_lines, with_gap
from odin.ui.tui.paint.foreign import sanitize, sanitize_line
from odin.ui.tui.paint.output import SHORT_OUTPUT, paint_output, paint_tail
from odin.ui.tui.paint.pictures import paint_image
from odin.ui.tui.paint.words import count_of, format_duration, format_elapsed, format_tokens, spinner_of
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

_MODE_WORDS = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": ""}
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
    text = "(goes on)" if block.is_continuation else sanitize(block.text)
    body = canvas.wrap(Text(text, style=palette.user), canvas.width - 2)
    if folded and len(body) > LONG_PROMPT:
        left = count_of(len(body) - LONG_PROMPT, "more line")
        body = [*body[:LONG_PROMPT], [Segment(f"… {left}", palette.dim)]]
    lines: list[Strip] = []
    for line in prefix_lines(body, [Segment("› ", palette.user)], [Segment("  ")]):
        lines.append(Strip(line).extend_cell_length(canvas.width).apply_style(palette.user_block))
    told = [_MODE_WORDS[block.mode], "said while Odin was working" if block.is_injected else ""]
    said = " · ".join(word for word in told if word)
    if said:
        lines.append(canvas.paint_row((f"  {said}", palette.dim)))
    for image in block.images:
        lines += paint_image(image, canvas)
    return with_gap(lines)


def paint_notice(block: NoticeBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    style = {"info": palette.dim, "warn": palette.warn, "error": palette.bad}[block.level]
    mark = {"info": "· ", "warn": "! ", "error": "✗ "}[block.level]
    body = canvas.wrap(Text(sanitize(block.text), style=style), canvas.width - 2)
    return with_gap(Strip(line) for line in prefix_lines(body, [Segment(mark, style)], [Segment("  ")]))


def paint_command(block: CommandBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    state = f"  running {format_elapsed(block.ts, canvas.now)}".rstrip() if block.live else ""
    mark = spinner_of(canvas.now) if block.live else "!"
    head = canvas.paint_row(
        (f"{mark} ", palette.accent), (sanitize_line(block.command), palette.strong), (state, palette.dim)
    )
    body = (
        paint_tail(block.tail, canvas) if block.live else paint_output(block.output, canvas, most=SHORT_OUTPUT * folded)
    )
    return with_gap([head, *body])


def paint_agent(block: AgentBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    calls = count_of(block.calls, "call") if block.calls else ""
    if not block.reason:
        mark, style, state = spinner_of(canvas.now), palette.accent, "working"
        took = format_elapsed(block.ts, canvas.now)
    else:
        good = block.reason == "end_turn"
        mark, style = ("✓", palette.good) if good else ("✗", palette.bad)
        state, took = (
            "done" if good else _REASONS.get(block.reason, block.reason),
            format_duration(block.ended - block.ts),
        )
    said = " · ".join(word for word in (state, took, calls) if word)
    name, task = sanitize_line(block.key), sanitize_line(block.task)
    room = max(canvas.width - len(name) - len(said) - 6, 12)
    task_shown = task if len(task) <= room else task[: room - 1] + "…"
    lines = [
        canvas.paint_row(
            (f"{mark} ", style), (name, palette.strong), (f" {task_shown}", palette.text), (f"  {said}", palette.dim)
        )
    ]
    if block.doing:
        lines.append(canvas.paint_row(("  ", None), (sanitize_line(block.doing), palette.dim)))
    if not folded:
        lines += canvas.paint_text(sanitize(block.task), palette.dim, indent=2) if len(task) > room else []
        lines += paint_output(block.answer, canvas) if block.answer.strip() else []
    return with_gap(lines)


def paint_process(block: ProcessBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    state = block.status.replace("_", " ") if block.status else "runs in the background"
    if block.status:
        code = f" with code {block.code}" if block.status == "failed" else ""
        state = f"{state}{code} · {format_duration(block.ended - block.ts)}"
    bad = block.status in ("failed", "timed_out")
    style = palette.bad if bad else palette.dim if block.status else palette.accent
    what = sanitize_line(block.description or block.command)
    lines = [
        canvas.paint_row(
            ("✗ " if bad else "■ " if block.status else "▶ ", style),
            (sanitize_line(block.key), palette.strong),
            (f" {what}", palette.text),
            (f"  {state}", palette.dim),
        )
    ]
    if not folded:
        lines += canvas.paint_text(sanitize(block.command), palette.dim, indent=2) if block.description else []
        lines += paint_output(block.output, canvas) if block.output.strip() else []
    return with_gap(lines)


def paint_summary(block: SummaryBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    palette = canvas.palette
    head = f"The conversation was summarised: {block.tokens_before:,} → {block.tokens_after:,} tokens"
    lines = [canvas.paint_row(("▸ " if folded else "▾ ", palette.dim), (head, palette.dim))]
    if not folded:
        from odin.ui.tui.paint.markdown import paint_markdown

        space = [Segment("  ")]
        lines += [Strip(line) for line in prefix_lines(paint_markdown(block.text, canvas), space, space)]
    return with_gap(lines)


def paint_end(block: EndBlock, canvas: Canvas, folded: bool) -> list[Strip]:
    """Nothing after a short and free turn; else one line, and an error with what to do about it."""
    palette = canvas.palette
    reason = _REASONS.get(block.reason, "" if block.reason == "end_turn" else block.reason.replace("_", " "))
    if block.error and block.reason != "interrupted":
        lines = canvas.paint_text(f"✗ {sanitize(block.error)}", palette.bad)
        return with_gap(
            [*lines, *(canvas.paint_text(sanitize(block.hint), palette.text, indent=2) if block.hint else [])]
        )
    words = [reason] if reason else []
    if block.duration_ms >= 1_000:
        words.append(format_duration(block.duration_ms / 1000))
    if block.tokens >= 1_000:
        words.append(format_tokens(block.tokens))
    if block.cost_usd:
        words.append(f"${block.cost_usd:.4f}" if block.cost_usd < 0.1 else f"${block.cost_usd:.2f}")
    if not words:
        return []
    style = palette.warn if reason else palette.dim
    return with_gap([canvas.paint_row((" · ".join(words), style))])
