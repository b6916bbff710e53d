"""What the permission dialog shows (the call, its preview, the answers), and the values it edits (rule, arguments)."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.core.call_events import PermissionAsked
from odin.core.errors import UsageError
from odin.core.policy import RememberScope
from odin.ui.permission_text import (
    format_arguments,
    format_subject,
    list_circumstances,
    list_offered_rules,
    parse_edited_arguments,
)
from odin.ui.progress import SCOPE_WORDS
from odin.ui.terminal import escape_hidden, quote_block, wrap_words
from odin.ui.tui.dialogs.widgets import DialogChoice
from odin.ui.tui.keys import KeyAction, KeyTable
from odin.ui.tui.paint.canvas import Canvas, make_blank, wrap_cells
from odin.ui.tui.paint.diff import paint_diff, parse_diff

_BAR = 4
"""Width of the bar before quoted text."""


def paint_request(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """The request page: the full command or path, why Odin asks, the rules on offer, and a preview of the change."""
    strips = paint_required(ask, canvas)
    rules = list_offered_rules(ask)
    if rules:
        strips += paint_sentence(canvas, "Rules you can save when allowing:", canvas.palette.dim)
        strips += paint_quote(canvas, "\n".join(rules))
    return strips + paint_change(ask.preview, canvas)


def paint_required(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """The part of the page that must have been scrolled into view before 'allow' is accepted."""
    strips = [row for line in format_subject(ask, canvas.width) for row in _paint_framed_row(canvas, line)]
    return strips + [row for line in list_circumstances(ask) for row in paint_sentence(canvas, line)]


def paint_details(ask: PermissionAsked, canvas: Canvas) -> list[Strip]:
    """The details page: all arguments and the preview."""
    title = paint_sentence(canvas, f"Arguments of {escape_hidden(ask.name)}:", canvas.palette.dim)
    more = [line for line in list_circumstances(ask) for line in paint_sentence(canvas, line)]
    return [
        *title,
        *paint_quote(canvas, format_arguments(ask.args).rstrip("\n")),
        *more,
        *paint_change(ask.preview, canvas),
    ]


def paint_keys(ask: PermissionAsked, keys: KeyTable, canvas: Canvas) -> list[Strip]:
    """The help page: the keys of the dialog."""
    names = {choice.name for choice in list_answers(ask, keys)}
    strips: list[Strip] = []
    for key in keys.keys:
        if key.scope == "permission" and key.name in names:
            strips += _paint_key(key, keys, canvas)
    shown = [keys.label_of(name) for name in ("previous_answer", "next_answer", "take_answer")]
    last = f"{describe_stop(keys)} Choose an answer with {shown[0]}, {shown[1]} and {shown[2]}, or click it."
    return [*strips, make_blank(), *paint_sentence(canvas, last, canvas.palette.dim)]


def describe_stop(keys: KeyTable) -> str:
    """Return the hint on how to stop the work, or "" if no key is bound."""
    key = keys.label_of("stop_work")
    return f"{key} denies and stops the work." if key else ""


def _paint_key(key: KeyAction, keys: KeyTable, canvas: Canvas) -> list[Strip]:
    """Paint a key and its description, wrapped to the width."""
    shown = f" {keys.label_of(key.name):<4}"
    rows = wrap_words(key.description, max(canvas.width - len(shown), 12)).split("\n")
    heads = [shown, *(" " * len(shown) for _ in rows[1:])]
    style, text = canvas.palette.accent, canvas.palette.text
    return [canvas.paint_row((head, style), (row, text)) for head, row in zip(heads, rows, strict=True)]


def paint_change(preview: str, canvas: Canvas) -> list[Strip]:
    """Paint the preview: as a diff if no line gets lost, else as text."""
    if not preview:
        return []
    title = [make_blank(), *paint_sentence(canvas, "Preview of the change:", canvas.palette.dim)]
    lines = [_reveal_hidden(line) for line in preview.rstrip("\n").split("\n")]
    if _is_whole_diff(lines):
        return title + paint_diff("\n".join(lines), canvas, whole=True)
    styles = {"+": canvas.palette.added, "-": canvas.palette.removed, "@": canvas.palette.dim}
    rows = [(row, styles.get(line[:1])) for line in lines for row in quote_block(line, canvas.width)]
    return title + [
        strip for row, style in rows for strip in _paint_framed_row(canvas, row, style or canvas.palette.text)
    ]


def _is_whole_diff(lines: Sequence[str]) -> bool:
    """True if the diff parser keeps every line. A removed line can look like a file header."""
    files = parse_diff("\n".join(lines)) if lines[0].startswith("--- ") else []
    return sum(2 + len(file.hunks) + file.row_count for file in files) == len(lines)


def _reveal_hidden(line: str) -> str:
    """Return a line with hidden characters escaped and its indentation kept."""
    line = line.expandtabs(4)
    text = line[1:].lstrip(" ")
    return line[: len(line) - len(text)] + escape_hidden(text)


def paint_quote(canvas: Canvas, text: str) -> list[Strip]:
    """Paint foreign text in full behind a bar."""
    return [strip for row in quote_block(text, canvas.width) for strip in _paint_framed_row(canvas, row)]


def paint_sentence(canvas: Canvas, sentence: str, style: Style | None = None) -> list[Strip]:
    """Paint a sentence wrapped between words. Long names and paths are broken."""
    rows = wrap_words(sentence, canvas.width + 1).split("\n")
    lines = ([Segment(row, style or canvas.palette.text)] for row in rows)
    return [Strip(piece) for line in lines for piece in wrap_cells(line, canvas.width)]


def _paint_framed_row(canvas: Canvas, row: str, style: Style | None = None) -> list[Strip]:
    """Paint a row of quoted text behind a bar, split if it is wider than the canvas."""
    if row[:_BAR] not in ("  | ", "  : "):
        return paint_sentence(canvas, row, canvas.palette.dim)
    bars = ("  │ " if row[2] == "|" else "  ┊ "), "  ┊ "
    pieces = wrap_cells([Segment(row[_BAR:], style or canvas.palette.strong)], canvas.width - _BAR)
    return [Strip([Segment(bars[number > 0], canvas.palette.dim), *piece]) for number, piece in enumerate(pieces)]


def list_answers(ask: PermissionAsked, keys: KeyTable) -> tuple[DialogChoice, ...]:
    """Return the answers to a request in display order."""
    once = DialogChoice("allow_once", "", "Run without sandbox" if ask.unsandboxed else "Allow once", "Yes")
    lasting = (
        DialogChoice("allow_session", "", "For this session", "Session"),
        DialogChoice("allow_project", "", "In this project", "Project"),
        DialogChoice("allow_everywhere", "", "Everywhere", "User"),
    )
    deny = DialogChoice("deny", "", "Deny", "No")
    why = DialogChoice("deny_words", "", "Deny with a reason", "Reason")
    never = DialogChoice("deny_always", "", "Deny always", "Never")
    note = DialogChoice("allow_note", "", "Allow with a note", "Note")
    edit = DialogChoice("edit_call", "", "Edit", "Edit")
    rest = (DialogChoice("show_call", "", "Show all", "All"), DialogChoice("explain_keys", "", "Keys", "Keys"))
    answers: Iterable[DialogChoice]
    if ask.unsandboxed:
        answers = (once, deny, why, *rest)
    elif list_offered_rules(ask):
        answers = (once, *lasting, deny, why, never, note, edit, *rest)
    else:
        answers = (once, deny, why, note, edit, *rest)
    return tuple(DialogChoice(one.name, keys.label_of(one.name), one.label, one.short) for one in answers)


_RULE_SCOPES: tuple[RememberScope, ...] = ("session", "project", "user")


class RuleDraft(Struct):
    """The rules on offer, which of them is shown, and the scope to save it in."""

    rules: tuple[str, ...]
    allow: bool
    scope: RememberScope
    number: int = 0

    @property
    def text(self) -> str:
        return self.rules[self.number]

    def switch(self, by: int) -> str:
        """Go to another rule on offer and return its text."""
        self.number = (self.number + by) % len(self.rules)
        return self.text

    def switch_scope(self) -> None:
        """Go to the next wider scope; after the widest comes the narrowest."""
        self.scope = _RULE_SCOPES[(_RULE_SCOPES.index(self.scope) + 1) % len(_RULE_SCOPES)]

    def format_label(self) -> str:
        verb = "Allow" if self.allow else "Deny"
        place = f" (rule {self.number + 1} of {len(self.rules)})" if len(self.rules) > 1 else ""
        return f"{verb} and save this rule {SCOPE_WORDS[self.scope]}{place}:"


def make_rule_draft(ask: PermissionAsked, *, allow: bool, scope: RememberScope) -> RuleDraft:
    return RuleDraft(list_offered_rules(ask), allow, scope)


class ArgumentsForm(Struct, frozen=True):
    """The arguments as text. `name` is the single argument edited as plain text, or "" if all are edited as JSON."""

    name: str
    text: str


def make_form(args: Mapping[str, Any]) -> ArgumentsForm:
    """Return the text to edit: the plain command if it has no hidden characters, else JSON with them escaped."""
    strings = [name for name, value in args.items() if isinstance(value, str)]
    name = "command" if "command" in strings else strings[0] if len(args) == len(strings) == 1 else ""
    if name and _is_all_visible(args[name]):
        return ArgumentsForm(name, args[name])
    return ArgumentsForm("", "".join(_escape_char(char) for char in format_arguments(args).rstrip("\n")))


def parse_form(args: Mapping[str, Any], form: ArgumentsForm, text: str) -> dict[str, Any]:
    """Return the edited arguments. Raise UsageError if they are invalid, with the position of a JSON error."""
    if form.name:
        if not text.strip():
            raise UsageError(f"The {form.name} is empty.", "Enter one, or go back.")
        return {**args, form.name: text}
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(error) from None
    return parse_edited_arguments(text)


class InvalidJson(UsageError):
    """`place` is the 0-based row and column of the error, for the cursor."""

    def __init__(self, error: json.JSONDecodeError) -> None:
        super().__init__(f"Invalid JSON: {error.msg} at line {error.lineno}, column {error.colno}.")
        self.place = (error.lineno - 1, error.colno - 1)


def replace_arguments(ask: PermissionAsked, args: dict[str, Any]) -> PermissionAsked:
    """Return the request with edited arguments and without rules and preview, which belong to the original ones."""
    command = args.get("command")
    return msgspec.structs.replace(
        ask,
        args=args,
        subject=command if isinstance(command, str) else "",
        rules=(),
        preview="",
        asked_paths=(),
        allowed_paths=(),
        reason="You edited this call.",
    )


def _is_all_visible(text: str) -> bool:
    return all(escape_hidden(line) == line for line in re.sub(" +", " ", text).split("\n"))


def _escape_char(char: str) -> str:
    return char if char == "\n" or escape_hidden(char) == char else json.dumps(char)[1:-1]
