"""What the permission dialog shows: everything the call is about, and the answers it can get."""

from collections.abc import Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.core.event import PermissionAsked
from odin.ui.question.editing import shown
from odin.ui.question.permission import about, circumstances, offered
from odin.ui.terminal import folded, framed, visible
from odin.ui.tui.dialogs.choices import Choice
from odin.ui.tui.keys import Key, KeyTable
from odin.ui.tui.paint.canvas import Canvas, blank, hard_wrapped
from odin.ui.tui.paint.changes import read_changes
from odin.ui.tui.paint.diff import diff_lines

_BAR = 4
"""Columns of the bar before text that is not ours."""


def page(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """What a person decides on: the whole command or path, why it is asked, the rules, and what would change."""
    strips = asked(ask, canvas)
    rules = offered(ask)
    if rules:
        strips += words(canvas, "Allowing it for longer remembers one of these:", canvas.palette.dim)
        strips += quoted(canvas, "\n".join(rules))
    return strips + change(ask.preview, canvas)


def asked(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """What nobody can say yes to without having seen it."""
    strips = [row for line in about(ask, canvas.width) for row in _rows(canvas, line)]
    return strips + [row for line in circumstances(ask) for row in words(canvas, line)]


def everything(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """All arguments, and the preview again."""
    title = words(canvas, f"Arguments of {visible(ask.name)}:", canvas.palette.dim)
    more = [line for line in circumstances(ask) for line in words(canvas, line)]
    return [*title, *quoted(canvas, shown(ask.args).rstrip("\n")), *more, *change(ask.preview, canvas)]


def explained(ask: PermissionAsked, keys: KeyTable, canvas: Canvas) -> list[Strip]:
    """What the keys do."""
    names = {choice.name for choice in answers(ask, keys)}
    strips: list[Strip] = []
    for key in keys.keys:
        if key.where == "permission" and key.name in names:
            strips += _explained(key, keys, canvas)
    shown = [keys.shown(name) for name in ("previous_answer", "next_answer", "take_answer")]
    last = f"At the question {stopping(keys)} {shown[0]}, {shown[1]} and {shown[2]} choose below; a click does, too."
    return [*strips, blank(), *words(canvas, last, canvas.palette.dim)]


def stopping(keys: KeyTable) -> str:
    """How everything is stopped."""
    key = keys.shown("stop_work")
    return f"{key} denies it and stops the work." if key else ""


def _explained(key: Key, keys: KeyTable, canvas: Canvas) -> list[Strip]:
    """A key and its sentence, whole at every width."""
    shown = f" {keys.shown(key.name):<4}"
    rows = folded(key.what, max(canvas.width - len(shown), 12)).split("\n")
    heads = [shown, *(" " * len(shown) for _ in rows[1:])]
    style, text = canvas.palette.accent, canvas.palette.text
    return [canvas.row((head, style), (row, text)) for head, row in zip(heads, rows, strict=True)]


def change(preview: str, canvas: Canvas) -> list[Strip]:
    """What would change: as a diff like those of the conversation, as long as it shows every line there is."""
    if not preview:
        return []
    title = [blank(), *words(canvas, "What would change:", canvas.palette.dim)]
    lines = [_all_seen(line) for line in preview.rstrip("\n").split("\n")]
    if _whole_diff(lines):
        return title + diff_lines("\n".join(lines), canvas, whole=True)
    styles = {"+": canvas.palette.added, "-": canvas.palette.removed, "@": canvas.palette.dim}
    rows = [(row, styles.get(line[:1])) for line in lines for row in framed(line, canvas.width)]
    return title + [strip for row, style in rows for strip in _rows(canvas, row, style or canvas.palette.text)]


def _whole_diff(lines: Sequence[str]) -> bool:
    """Whether reading them as a diff loses none of them: a removed line may look like the head of a file."""
    found = read_changes("\n".join(lines)) if lines[0].startswith("--- ") else []
    return sum(2 + len(one.hunks) + one.rows for one in found) == len(lines)


def _all_seen(line: str) -> str:
    """A line with everything hidden in it spelled out; its indentation may be as deep as it likes."""
    line = line.expandtabs(4)
    text = line[1:].lstrip(" ")
    return line[: len(line) - len(text)] + visible(text)


def quoted(canvas: Canvas, text: str) -> list[Strip]:
    """Text that is not ours, whole and with nothing hidden."""
    return [strip for row in framed(text, canvas.width) for strip in _rows(canvas, row)]


def words(canvas: Canvas, sentence: str, style: Style | None = None) -> list[Strip]:
    """A sentence of ours. What is too long for a row goes on in the next one: names and paths in it are not ours."""
    rows = folded(sentence, canvas.width + 1).split("\n")
    lines = ([Segment(row, style or canvas.palette.text)] for row in rows)
    return [Strip(piece) for line in lines for piece in hard_wrapped(line, canvas.width)]


def _rows(canvas: Canvas, row: str, style: Style | None = None) -> list[Strip]:
    """One row of framed text, its bar set back; several where the screen takes its letters to be wider than we do."""
    if row[:_BAR] not in ("  | ", "  : "):
        return words(canvas, row, canvas.palette.dim)
    bars = ("  │ " if row[2] == "|" else "  ┊ "), "  ┊ "
    pieces = hard_wrapped([Segment(row[_BAR:], style or canvas.palette.strong)], canvas.width - _BAR)
    return [Strip([Segment(bars[number > 0], canvas.palette.dim), *piece]) for number, piece in enumerate(pieces)]


def answers(ask: PermissionAsked, keys: KeyTable) -> tuple[Choice, ...]:
    """The answers this question can get, in the order in which they are shown."""
    once = Choice("allow_once", "", "Run it without the sandbox" if ask.outside else "Allow once", "Yes")
    lasting = (
        Choice("allow_session", "", "For this session", "Session"),
        Choice("allow_project", "", "In this project", "Project"),
        Choice("allow_everywhere", "", "Everywhere", "User"),
    )
    deny = Choice("deny", "", "Deny", "No")
    why = Choice("deny_words", "", "Deny, saying why", "Why not")
    never = Choice("deny_always", "", "Deny for good", "Never")
    note = Choice("allow_note", "", "Allow with a note", "Note")
    edit = Choice("edit_call", "", "Edit", "Edit")
    rest = (Choice("show_call", "", "Show all", "All"), Choice("explain_keys", "", "Keys", "Keys"))
    found: Iterable[Choice]
    if ask.outside:
        found = (once, deny, why, *rest)
    elif offered(ask):
        found = (once, *lasting, deny, why, never, note, edit, *rest)
    else:
        found = (once, deny, why, note, edit, *rest)
    return tuple(Choice(one.name, keys.shown(one.name), one.label, one.short) for one in found)
