"""What the dialog for an interaction shows: its details and danger, the answers, the rule to save, and the editor.

The editor is for the arguments of a call. Its keys are those of the composer.
"""

from collections.abc import Callable
from typing import cast

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.strip import Strip

from odin.core.errors import OdinError
from odin.core.interaction import Choice, Detail, Interaction, InteractionKind
from odin.core.policy import Danger, RememberScope
from odin.ui.permission_text import (
    DANGER_WORDS,
    format_arguments,
    list_offered_rules,
)
from odin.ui.progress import SCOPE_WORDS
from odin.ui.terminal import escape_hidden, quote_block, wrap_words
from odin.ui.tui.composer.external_text import edit_in_editor
from odin.ui.tui.dialogs.widgets import DialogChoice
from odin.ui.tui.keys import KeyAction, KeyScope, KeyTable, StableTextArea
from odin.ui.tui.paint.canvas import Canvas, make_blank, make_strips, wrap_cells
from odin.ui.tui.paint.diff import paint_diff, parse_diff
from odin.ui.tui.palette import Palette
from odin.ui.tui.session_app import SessionApp

_BAR = 4
"""Width of the bar before quoted text."""


def paint_request(ask: Interaction, canvas: Canvas) -> list[Strip]:
    """The request page: what is asked in full, what to know about it, the change or the plan, and the rest."""
    strips = paint_required(ask, canvas)
    for detail in ask.details[_count_required(ask) :]:
        strips += [make_blank()] if strips and detail.kind == "diff" else ()
        strips += _paint_detail(detail, canvas)
    return strips


def paint_required(ask: Interaction, canvas: Canvas) -> list[Strip]:
    """The part of the page that must have been scrolled into view before 'allow' is accepted."""
    strips = [row for detail in ask.details[: _count_required(ask)] for row in _paint_detail(detail, canvas)]
    return strips + [row for line in ask.warnings for row in paint_sentence(canvas, escape_hidden(line))]


def _count_required(ask: Interaction) -> int:
    """Return how many details come before the change or the plan."""
    kinds = [detail.kind for detail in ask.details]
    return next((at for at, kind in enumerate(kinds) if kind in ("diff", "markdown")), len(kinds))


def _paint_detail(detail: Detail, canvas: Canvas) -> list[Strip]:
    dim = canvas.palette.dim
    strips = paint_sentence(canvas, detail.heading, dim) if detail.heading else []
    match detail.kind:
        case "quote":
            return strips + paint_quote(canvas, detail.text)
        case "text":
            return strips + paint_sentence(canvas, escape_hidden(detail.text), dim)
        case "diff":
            return strips + paint_change(detail.text, canvas)
        case "markdown":
            from odin.ui.tui.paint.markdown import paint_markdown

            return strips + make_strips(paint_markdown(detail.text, canvas))


def format_danger(ask: Interaction, palette: Palette) -> Text:
    """Return the grade of danger in its color, what the call would do, and the sandbox it would run in."""
    loud = ask.danger in ("hard_to_undo", "credentials")
    style = _DANGER_STYLES[ask.danger](palette) if ask.danger else palette.warn
    text = Text(end="")
    if ask.danger:
        text.append(DANGER_WORDS[ask.danger], style + Style(bold=True, reverse=loud))
    if ask.effect:
        effect = f"{'  ' if text else ''}{escape_hidden(ask.effect)}"
        text.append(effect, style if loud or not ask.danger else palette.text)
    if ask.sandbox:
        text.append("\n" if text else "").append(escape_hidden(ask.sandbox), palette.dim)
    return text


_DANGER_STYLES: dict[Danger, Callable[[Palette], Style]] = {
    "read_only": lambda palette: palette.good,
    "changes_files": lambda palette: palette.accent,
    "network": lambda palette: palette.warn,
    "outside_project": lambda palette: palette.warn,
    "hard_to_undo": lambda palette: palette.bad,
    "credentials": lambda palette: palette.bad,
}


def paint_details(ask: Interaction, canvas: Canvas) -> list[Strip]:
    """The details page: all arguments, the rules on offer, and the change."""
    dim = canvas.palette.dim
    strips: list[Strip] = []
    for name, value in format_arguments(ask.permission.args):
        strips += [*paint_sentence(canvas, f"{escape_hidden(name)}:", dim), *paint_quote(canvas, value)]
    rules = list_offered_rules(ask)
    if rules:
        strips += [*paint_sentence(canvas, "Rules you can save:", dim), *paint_quote(canvas, "\n".join(rules))]
    changes = [row for detail in ask.details if detail.kind == "diff" for row in paint_change(detail.text, canvas)]
    return [*strips, make_blank(), *changes] if changes else strips


def paint_keys(ask: Interaction, keys: KeyTable, canvas: Canvas) -> list[Strip]:
    """The help page: the keys of the dialog."""
    names = {"more_answers", *(answer.name for answer in list_answers(ask, keys))}
    strips: list[Strip] = []
    for key in keys.keys:
        if key.scope == "permission" and key.name in names:
            strips += _paint_key(key, keys, canvas)
    shown = [keys.get_label(name) for name in ("previous_answer", "next_answer", "take_answer")]
    last = f"{describe_stop(ask, keys)} Choose an answer with {shown[0]}, {shown[1]} and {shown[2]}, or click it."
    return [*strips, make_blank(), *paint_sentence(canvas, last, canvas.palette.dim)]


def describe_stop(ask: Interaction, keys: KeyTable) -> str:
    """Return the hint on how to stop the work, or "" if no key is bound."""
    key, verb = keys.get_label("stop_work"), "discards" if has_effects(ask) else "denies"
    return f"{key} {verb} and stops the work." if key else ""


def has_effects(ask: Interaction) -> bool:
    """True if the request is about what a command has changed already."""
    return ask.kind == "permission" and ask.permission.effects is not None


def _paint_key(key: KeyAction, keys: KeyTable, canvas: Canvas) -> list[Strip]:
    """Paint a key and its description, wrapped to the width."""
    shown = f" {keys.get_label(key.name):<4}"
    rows = wrap_words(key.description, max(canvas.width - len(shown), 12)).split("\n")
    heads = [shown, *(" " * len(shown) for _ in rows[1:])]
    style, text = canvas.palette.accent, canvas.palette.text
    return [canvas.paint_row((head, style), (row, text)) for head, row in zip(heads, rows, strict=True)]


def paint_change(preview: str, canvas: Canvas) -> list[Strip]:
    """Paint the preview: as a diff if no line gets lost, else as text."""
    if not preview:
        return []
    lines = [_reveal_hidden(line) for line in preview.rstrip("\n").split("\n")]
    # Only if the diff parser keeps every line: a removed line can look like a file header.
    files = parse_diff("\n".join(lines)) if lines[0].startswith("--- ") else []
    if sum(2 + len(file.hunks) + file.row_count for file in files) == len(lines):
        return paint_diff("\n".join(lines), canvas, whole=True)
    styles = {"+": canvas.palette.added, "-": canvas.palette.removed, "@": canvas.palette.dim}
    rows = [(row, styles.get(line[:1])) for line in lines for row in quote_block(line, canvas.width)]
    return [strip for row, style in rows for strip in _paint_framed_row(canvas, row, style or canvas.palette.text)]


def _reveal_hidden(line: str) -> str:
    """Return a line with hidden characters escaped and its indentation kept."""
    line = line.expandtabs(4)
    text = line[1:].lstrip(" ")
    return line[: len(line) - len(text)] + escape_hidden(text)


def paint_option(canvas: Canvas, key: str, text: str, *more: tuple[str, Style], here: bool) -> Strip:
    """Paint an option behind its key, marked if the cursor is `here`."""
    colors = canvas.palette
    head = ("› " if here else "  ", colors.accent), (key, colors.dim)
    return canvas.paint_row(*head, (text, colors.cursor if here else colors.text), *more)


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


KEY_SCOPES: dict[InteractionKind, KeyScope] = {"permission": "permission", "plan": "plan", "trust": "confirm"}
"""The scope of the key table that answers an interaction of this kind."""

_KEY_NAMES = {
    "approve": "approve_plan",
    "approve_new_session": "plan_session",
    "revise": "change_plan",
    "stop": "stop_work",
}
"""The key of a choice, if it has another name."""


_RARE_ACTIONS = ("allow_note", "edit_call", "show_call", "explain_keys")


def get_choices(ask: Interaction) -> dict[str, Choice]:
    """Return the choices by their actions, without those that save a rule if there is none to offer."""
    has_rules = bool(list_offered_rules(ask))
    return {_KEY_NAMES.get(one.key, one.key): one for one in ask.choices if one.asks != "rule" or has_rules}


def list_answers(ask: Interaction, keys: KeyTable) -> list[DialogChoice]:
    """Return all answers in display order: the choices, and what else the dialog can do with them."""
    choices, answers = get_choices(ask), list[tuple[str, str, str]]()
    has_run = has_effects(ask)
    for name, choice in choices.items():
        if name != "stop_work":
            answers.append((name, choice.label, choice.short))
        if name == "deny":
            label = "Discard and tell the model…" if has_run else "Deny with a reason"
            answers.append(("deny_words", label, "Tell" if has_run else "Reason"))
    if any("args" in choice.fields for choice in choices.values()):
        answers += [] if ask.agent else [("allow_note", f"{'Keep' if has_run else 'Allow'} with a note", "Note")]
        answers.append(("edit_call", "Edit and run again" if has_run else "Edit", "Edit"))
    if "stop_work" in choices:
        answers += [("show_call", "Show all", "All"), ("explain_keys", "Keys", "Keys")]
    return [
        DialogChoice(name, keys.get_label(name) or (str(number) if ask.kind == "plan" else ""), label, short)
        for number, (name, label, short) in enumerate(answers, 1)
    ]


def list_usual_answers(ask: Interaction, keys: KeyTable, *, more: bool) -> list[DialogChoice]:
    """Return the answers that are shown at first, or with `more` all, and the key that switches between them."""
    answers, choices = list_answers(ask, keys), get_choices(ask)
    rare = {*_RARE_ACTIONS, *(name for name, choice in choices.items() if choice.rare)}
    usual = [answer for answer in answers if answer.name not in rare]
    label = "Fewer" if more else "More…"
    switch = DialogChoice("more_answers", keys.get_label("more_answers"), label, label)
    return answers if len(usual) == len(answers) else [*(answers if more else usual), switch]


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


class ArgumentsArea(StableTextArea):
    """Edits one value. With `is_single`, Enter confirms and the composer's newline key breaks the line."""

    is_single = False

    class EditorFailed(Message):
        """The external editor could not be used."""

        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

    @property
    def _odin(self) -> SessionApp:
        return cast(SessionApp, self.app)

    def on_mount(self) -> None:
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        keys = self._odin.keys
        action = keys.find_action(event.key, "composer")
        if self.is_single and keys.find_action(event.key, "step") == "confirm":
            event.prevent_default()
        elif action in ("undo", "redo", "newline", "edit_outside"):
            event.stop()
            event.prevent_default()
            await self.run_action(action)

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    async def action_edit_outside(self) -> None:
        """Edit the text in $EDITOR, as Ctrl+X does in the composer."""
        try:
            text = await edit_in_editor(self._odin, self.text)
        except (OdinError, OSError) as error:
            self.post_message(self.EditorFailed(error.describe() if isinstance(error, OdinError) else str(error)))
            return
        if text != self.text:
            self.replace(text, (0, 0), self.document.end)
            self.move_cursor(self.document.end)
