"""What the permission dialog shows: everything the call is about, and the answers it can get."""

from collections.abc import Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.core.event import PermissionAsked
from odin.ui.question.editing import format_arguments
from odin.ui.question.permission import format_subject, list_circumstances, list_offered_rules
from odin.ui.terminal import escape_hidden, quote_block, wrap_words
from odin.ui.tui.dialogs.choices import DialogChoice
from odin.ui.tui.keys import KeyAction, KeyTable
from odin.ui.tui.paint.canvas import Canvas, make_blank, wrap_cells
from odin.ui.tui.paint.changes import parse_diff
from odin.ui.tui.paint.diff import paint_diff

_BAR = 4
"""Columns of the bar before text that is not ours."""


def paint_request(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """What a person decides on: the whole command or path, why it is asked, the rules, and what would change."""
    strips = paint_required(ask, canvas)
    rules = list_offered_rules(ask)
    if rules:
        strips += paint_sentence(canvas, "Allowing it for longer remembers one of these:", canvas.palette.dim)
        strips += paint_quote(canvas, "\n".join(rules))
    return strips + paint_change(ask.preview, canvas)


def paint_required(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """What nobody can say yes to without having seen it."""
    strips = [row for line in format_subject(ask, canvas.width) for row in _paint_framed_row(canvas, line)]
    return strips + [row for line in list_circumstances(ask) for row in paint_sentence(canvas, line)]


def paint_details(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """All arguments, and the preview again."""
    title = paint_sentence(canvas, f"Arguments of {escape_hidden(ask.name)}:", canvas.palette.dim)
    more = [line for line in list_circumstances(ask) for line in paint_sentence(canvas, line)]
    return [
        *title,
        *paint_quote(canvas, format_arguments(ask.args).rstrip("\n")),
        *more,
        *paint_change(ask.preview, canvas),
    ]


def paint_keys(ask: PermissionAsked, keys: KeyTable, canvas: Canvas) -> list[Strip]:
    """What the keys do."""
    names = {choice.name for choice in list_answers(ask, keys)}
    strips: list[Strip] = []
    for key in keys.keys:
        if key.scope == "permission" and key.name in names:
            strips += _paint_key(key, keys, canvas)
    shown = [keys.label_of(name) for name in ("previous_answer", "next_answer", "take_answer")]
    last = (
        f"At the question {describe_stop(keys)} {shown[0]}, {shown[1]} and {shown[2]} choose below; a click does, too."
    )
    return [*strips, make_blank(), *paint_sentence(canvas, last, canvas.palette.dim)]


def describe_stop(keys: KeyTable) -> str:
    """How everything is stopped."""
    key = keys.label_of("stop_work")
    return f"{key} denies it and stops the work." if key else ""


def _paint_key(key: KeyAction, keys: KeyTable, canvas: Canvas) -> list[Strip]:
    """A key and its sentence, whole at every width."""
    shown = f" {keys.label_of(key.name):<4}"
    rows = wrap_words(key.description, max(canvas.width - len(shown), 12)).split("\n")
    heads = [shown, *(" " * len(shown) for _ in rows[1:])]
    style, text = canvas.palette.accent, canvas.palette.text
    return [canvas.paint_row((head, style), (row, text)) for head, row in zip(heads, rows, strict=True)]


def paint_change(preview: str, canvas: Canvas) -> list[Strip]:
    """What would change: as a diff like those of the conversation, as long as it shows every line there is."""
    if not preview:
        return []
    title = [make_blank(), *paint_sentence(canvas, "What would change:", canvas.palette.dim)]
    lines = [_reveal_hidden(line) for line in preview.rstrip("\n").split("\n")]
    if _is_whole_diff(lines):
        return title + paint_diff("\n".join(lines), canvas, whole=True)
    styles = {"+": canvas.palette.added, "-": canvas.palette.removed, "@": canvas.palette.dim}
    rows = [(row, styles.get(line[:1])) for line in lines for row in quote_block(line, canvas.width)]
    return title + [
        strip for row, style in rows for strip in _paint_framed_row(canvas, row, style or canvas.palette.text)
    ]


def _is_whole_diff(lines: Sequence[str]) -> bool:
    """Whether reading them as a diff loses none of them: a removed line may look like the head of a file."""
    found = parse_diff("\n".join(lines)) if lines[0].startswith("--- ") else []
    return sum(2 + len(one.hunks) + one.row_count for one in found) == len(lines)


def _reveal_hidden(line: str) -> str:
    """A line with everything hidden in it spelled out; its indentation may be as deep as it likes."""
    line = line.expandtabs(4)
    text = line[1:].lstrip(" ")
    return line[: len(line) - len(text)] + escape_hidden(text)


def paint_quote(canvas: Canvas, text: str) -> list[Strip]:
    """Text that is not ours, whole and with nothing hidden."""
    return [strip for row in quote_block(text, canvas.width) for strip in _paint_framed_row(canvas, row)]


def paint_sentence(canvas: Canvas, sentence: str, style: Style | None = None) -> list[Strip]:
    """A sentence of ours. What is too long for a row goes on in the next one: names and paths in it are not ours."""
    rows = wrap_words(sentence, canvas.width + 1).split("\n")
    lines = ([Segment(row, style or canvas.palette.text)] for row in rows)
    return [Strip(piece) for line in lines for piece in wrap_cells(line, canvas.width)]


def _paint_framed_row(canvas: Canvas, row: str, style: Style | None = None) -> list[Strip]:
    """One row of framed text, its bar set back; several where the screen takes its letters to be wider than we do."""
    if row[:_BAR] not in ("  | ", "  : "):
        return paint_sentence(canvas, row, canvas.palette.dim)
    bars = ("  │ " if row[2] == "|" else "  ┊ "), "  ┊ "
    pieces = wrap_cells([Segment(row[_BAR:], style or canvas.palette.strong)], canvas.width - _BAR)
    return [Strip([Segment(bars[number > 0], canvas.palette.dim), *piece]) for number, piece in enumerate(pieces)]


def list_answers(ask: PermissionAsked, keys: KeyTable) -> tuple[DialogChoice, ...]:
    """The answers this question can get, in the order in which they are shown."""
    once = DialogChoice("allow_once", "", "Run it without the sandbox" if ask.unsandboxed else "Allow once", "Yes")
    lasting = (
        DialogChoice("allow_session", "", "For this session", "Session"),
        DialogChoice("allow_project", "", "In this project", "Project"),
        DialogChoice("allow_everywhere", "", "Everywhere", "User"),
    )
    deny = DialogChoice("deny", "", "Deny", "No")
    why = DialogChoice("deny_words", "", "Deny, saying why", "Why not")
    never = DialogChoice("deny_always", "", "Deny for good", "Never")
    note = DialogChoice("allow_note", "", "Allow with a note", "Note")
    edit = DialogChoice("edit_call", "", "Edit", "Edit")
    rest = (DialogChoice("show_call", "", "Show all", "All"), DialogChoice("explain_keys", "", "Keys", "Keys"))
    found: Iterable[DialogChoice]
    if ask.unsandboxed:
        found = (once, deny, why, *rest)
    elif list_offered_rules(ask):
        found = (once, *lasting, deny, why, never, note, edit, *rest)
    else:
        found = (once, deny, why, note, edit, *rest)
    return tuple(DialogChoice(one.name, keys.label_of(one.name), one.label, one.short) for one in found)
