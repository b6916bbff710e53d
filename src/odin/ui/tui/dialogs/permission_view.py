"""What the permission dialog shows: everything the call is about, and the answers it can get.

An answer to a permission question while it is being made up: the rule, the words, the changed arguments.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from odin.core.errors import UsageError
from odin.core.event import PermissionAsked
from odin.core.policy import RememberScope
from odin.ui.event_lines import SCOPE_WORDS
from odin.ui.plain.editors import format_arguments, parse_edited_arguments
from odin.ui.plain.permission_prompt import format_subject, list_circumstances, list_offered_rules
from odin.ui.terminal import escape_hidden, quote_block, wrap_words
from odin.ui.tui.dialogs.widgets import DialogChoice
from odin.ui.tui.keys import KeyAction, KeyTable
from odin.ui.tui.paint.canvas import Canvas, make_blank, wrap_cells
from odin.ui.tui.paint.diff import paint_diff, parse_diff

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


_RULE_SCOPES: tuple[RememberScope, ...] = ("session", "project", "user")


class RuleDraft(Struct):
    """A rule that is about to be remembered, in the words that are on the screen."""

    rules: tuple[str, ...]
    allow: bool
    scope: RememberScope
    number: int = 0

    @property
    def text(self) -> str:
        return self.rules[self.number]

    def switch(self, by: int) -> str:
        """Another of the rules on offer."""
        self.number = (self.number + by) % len(self.rules)
        return self.text

    def switch_scope(self) -> None:
        """The next scope, and after the widest the narrowest."""
        self.scope = _RULE_SCOPES[(_RULE_SCOPES.index(self.scope) + 1) % len(_RULE_SCOPES)]

    def format_label(self) -> str:
        verb = "Allow it" if self.allow else "Deny it"
        place = f" (rule {self.number + 1} of {len(self.rules)})" if len(self.rules) > 1 else ""
        return f"{verb} and remember {SCOPE_WORDS[self.scope]}{place}:"


def make_rule_draft(ask: PermissionAsked, *, allow: bool, scope: RememberScope) -> RuleDraft:
    return RuleDraft(list_offered_rules(ask), allow, scope)


class ArgumentsForm(Struct, frozen=True):
    """The arguments as text. `name` is the one argument that is edited as it is; "" when all are, as JSON."""

    name: str
    text: str


def make_form(args: Mapping[str, Any]) -> ArgumentsForm:
    """A command is edited as it is, as long as everything in it can be seen; all else as JSON without hidden signs."""
    strings = [name for name, value in args.items() if isinstance(value, str)]
    name = "command" if "command" in strings else strings[0] if len(args) == len(strings) == 1 else ""
    if name and _is_all_visible(args[name]):
        return ArgumentsForm(name, args[name])
    return ArgumentsForm("", "".join(_escape_char(char) for char in format_arguments(args).rstrip("\n")))


def parse_form(args: Mapping[str, Any], form: ArgumentsForm, text: str) -> dict[str, Any]:
    """The arguments with what was made of them. Raises UsageError, with the place where JSON is wrong."""
    if form.name:
        if not text.strip():
            raise UsageError(f"The {form.name} is empty.", "Write one, or go back.")
        return {**args, form.name: text}
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(error) from None
    return parse_edited_arguments(text)


class InvalidJson(UsageError):
    """Says where, from 0, so that the cursor can be put there."""

    def __init__(self, error: json.JSONDecodeError) -> None:
        super().__init__(f"That is not JSON: {error.msg} in line {error.lineno}, column {error.colno}.")
        self.place = (error.lineno - 1, error.colno - 1)


def replace_arguments(ask: PermissionAsked, args: dict[str, Any]) -> PermissionAsked:
    """The question about changed arguments. What was known of the others does not hold for them."""
    command = args.get("command")
    return msgspec.structs.replace(
        ask,
        args=args,
        subject=command if isinstance(command, str) else "",
        rules=(),
        preview="",
        asked_paths=(),
        allowed_paths=(),
        reason="This is what you made of it.",
    )


def _is_all_visible(text: str) -> bool:
    return all(escape_hidden(line) == line for line in re.sub(" +", " ", text).split("\n"))


def _escape_char(char: str) -> str:
    return char if char == "\n" or escape_hidden(char) == char else json.dumps(char)[1:-1]
