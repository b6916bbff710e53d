"""The dialogs of plain mode: questions, plans and permission requests, and how typed answers are parsed."""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from odin.core.client import Client
from odin.core.errors import OdinError, UsageError
from odin.core.event_values import Question
from odin.core.interaction import Interaction
from odin.core.op import Answer
from odin.core.policy import Danger, RememberScope
from odin.ui.callbacks import parse_choice
from odin.ui.permission_text import (
    DANGER_WORDS,
    ArgumentForm,
    diff_arguments,
    format_arguments,
    format_headline,
    format_subject,
    list_offered_rules,
    summarize_change,
)
from odin.ui.plan_text import parse_plan_choice
from odin.ui.progress import SCOPE_WORDS
from odin.ui.terminal import (
    TextPainter,
    TextStyle,
    Tty,
    escape_control,
    escape_hidden,
    find_editor,
    quote_block,
    shorten,
    wrap_words,
)

PREVIEW_LINES = 24
_PREVIEW_COLUMNS = 150
_MIN_PREVIEW_LINES = 6
_PROMPT_ROWS = 2

_SCOPE_KEYS: dict[str, RememberScope] = {
    "s": "session",
    "session": "session",
    "p": "project",
    "project": "project",
    "u": "user",
    "user": "user",
}

_YES_WORDS = ("y", "yes")
_NO_WORDS = ("", "n", "no")
_ALMOST_YES_WORDS = frozenset(("y", "yes", "yep", "yeah", "ok", "okay", "sure", "allow", "allowed", "always", "go"))

PermissionAct = Literal[
    "allow_once", "allow_mode", "deny", "remember", "deny_always", "edit", "view", "help", "unclear"
]


class PermissionReply(Struct, frozen=True):
    """A parsed answer. `words` is the reason of a denial, the message if `act` is unclear, or the argument to edit.

    `scope` is the rule's.
    """

    act: PermissionAct
    words: str = ""
    scope: RememberScope = "session"


async def ask_user(tty: Tty, interaction: Interaction, client: Client) -> Answer:
    """Ask on the terminal until there is an answer."""
    if interaction.kind == "permission":
        return await PermissionFlow(tty, interaction, client).ask()
    if interaction.kind == "plan":
        return await _ask_plan(tty, interaction)
    return await _ask_questions(tty, interaction)


async def _ask_questions(tty: Tty, interaction: Interaction) -> Answer:
    """Ask all questions. Ctrl-D cancels them all."""
    answers: list[tuple[str, ...]] = []
    for number, item in enumerate(interaction.questions, 1):
        place = f" ({number} of {len(interaction.questions)})" if len(interaction.questions) > 1 else ""
        text = format_question(item, place)
        answer = None
        while answer is None:
            reply = await tty.ask_line(text)
            if not reply:
                tty.write("\n")
                return Answer(interaction.id, interaction.default)
            answer = parse_choice(item, reply)
            text = "Choose only one: "
        tty.write(f"→ {escape_hidden(', '.join(answer) or _get_default_label(item))}\n")
        answers.append(answer)
    return Answer(interaction.id, "answer", answers=tuple(answers))


def format_question(asked: Question, place: str = "") -> str:
    """Return a question with numbered options and how to answer it."""
    head = f"{escape_hidden(asked.header)}: " if asked.header else ""
    lines = [f"Odin asks{place}: {head}" + "\n  ".join(escape_hidden(line) for line in asked.text.split("\n"))]
    for number, option in enumerate(asked.options, 1):
        detail = f" ({escape_hidden(option.detail)})" if option.detail else ""
        lines.append(f"  {number}. {escape_hidden(option.label)}{detail}")
    numbers = "numbers such as 1,2" if asked.multiple else "a number"
    hint = f"{numbers}, free text, or Enter for 1; " if asked.options else ""
    return "\n".join([*lines, f"Answer ({hint}Ctrl-D cancels): "])


def _get_default_label(asked: Question) -> str:
    return asked.options[0].label if asked.options else "(no answer)"


async def _ask_plan(tty: Tty, interaction: Interaction) -> Answer:
    """Ask what to do with a plan, which is already on the screen. Ctrl-D keeps planning."""
    text = format_plan_choices(interaction)
    while True:
        reply = await tty.ask_line(text)
        if not reply:
            tty.write("\n")
        try:
            answer = parse_plan_choice(interaction, reply)
        except ValueError:
            text = f"Choose 1 to {len(interaction.choices)}, or say what to change: "
            continue
        if answer is not None:
            return answer
        comment = (await tty.ask_line("What should change? ")).strip()
        if comment:
            return Answer(interaction.id, "revise", comment)
        text = format_plan_choices(interaction)


def format_plan_choices(interaction: Interaction) -> str:
    """Return the numbered answers to a plan."""
    lines = [f"Odin presents a plan: {escape_hidden(interaction.title)} ({escape_hidden(interaction.plan.path)})"]
    lines += [f"  {number}. {choice.label}" for number, choice in enumerate(interaction.choices, 1)]
    return "\n".join([*lines, "Answer (a number, or what to change; Enter or Ctrl-D keeps planning): "])


class PermissionFlow:
    """Asks one permission request until it is answered. Text typed before a step was shown is discarded."""

    def __init__(self, tty: Tty, ask: Interaction, client: Client) -> None:
        self._tty = tty
        self._client = client
        self._ask = ask
        self._pending_text = format_permission_request(ask, tty.get_columns(), tty.get_rows(), tty.painter)

    async def ask(self) -> Answer:
        while True:
            answer = await self._ask_once()
            if answer is not None:
                return answer

    async def _ask_once(self) -> Answer | None:
        """Read one line. Return None if it was not an answer yet."""
        ask = self._ask
        shown, self._pending_text = self._pending_text, ""
        shown += warn_if_too_tall(shown, self._tty.get_rows())
        typed = await self._tty.ask_line(shown + format_permission_prompt(ask))
        reply = parse_reply(ask, typed)
        if reply.act in ("allow_once", "allow_mode"):
            return Answer(ask.id, reply.act)
        if reply.act == "deny":
            if not typed:
                self._tty.write("\n")
            return Answer(ask.id, "deny", reply.words)
        if reply.act == "remember":
            rule = await self._choose_rule(f"Allow and add a rule {SCOPE_WORDS[reply.scope]}")
            return None if rule is None else Answer(ask.id, "allow_session", rule=rule, scope=reply.scope)
        if reply.act == "deny_always":
            rule = await self._choose_rule("Deny and add a rule")
            if rule is None:
                return None
            scope = parse_scope(
                await self._tty.ask_line("For this [p]roject (Enter), [s]ession, or all projects of this [u]ser: ")
            )
            return None if scope is None else Answer(ask.id, "deny_always", rule=rule, scope=scope)
        if reply.act == "edit":
            return await self._edit_arguments(reply.words)
        self._pending_text = self._explain(reply)
        return None

    def _explain(self, reply: PermissionReply) -> str:
        if reply.act == "view":
            return format_all_details(self._ask, self._tty.get_columns(), self._tty.painter)
        return (
            format_permission_help(self._ask)
            if reply.act == "help"
            else f"{wrap_words(reply.words, self._tty.get_columns())}\n"
        )

    async def _choose_rule(self, wording: str) -> str | None:
        """Return the chosen or edited rule; None to go back to the request."""
        from odin.ui.plain.editors import edit_line

        rules: Sequence[str] = list_offered_rules(self._ask)
        while True:
            typed = await self._tty.ask_line(format_rule_choice(rules, wording))
            chosen = parse_rule_number(typed, len(rules))
            if chosen is not None:
                return rules[chosen]
            if typed.strip().casefold() not in ("e", "edit"):
                return None
            changed = await edit_line(self._tty, "Rule: ", rules[0])
            if changed is None or not changed.strip():
                return None
            rules = (changed.strip(),)

    async def _edit_arguments(self, name: str) -> Answer | None:
        """Let the user change an argument, or all of them, and show the change before it is used."""
        before = self._ask.permission.args
        form = ArgumentForm(before)
        while True:
            try:
                form.select(name)
                await self._edit_text(form)
            except OdinError as error:
                self._pending_text = f"{wrap_words(escape_hidden(error.describe()), self._tty.get_columns())}\n"
                return None
            changed = form.args
            if changed == before:
                self._pending_text = "Nothing changed.\n"
                return None
            shown = _format_replacement(before, changed, self._tty.get_columns(), self._tty.painter)
            typed = await self._tty.ask_line(shown)
            word, _, other = typed.strip().partition(" ")
            if typed.strip().casefold() in ("y", "yes"):
                return Answer(self._ask.id, "allow_once", args=changed, summary=summarize_change(before, changed))
            if word.casefold() not in ("e", "edit"):
                return None
            name = other.strip() or name

    async def _edit_text(self, form: ArgumentForm) -> None:
        """Edit the selected argument in $EDITOR, or on this line if there is none. Raise UsageError."""
        from odin.ui.plain.editors import can_edit_line, edit_externally, edit_line

        command = find_editor()
        if command:
            edited = await edit_externally(self._tty, self._client, command, f"{form.text}\n")
            form.store(edited.removesuffix("\n"))
        elif can_edit_line(form.text) and form.is_single_line:
            changed = await edit_line(self._tty, f"{form.name}: ", form.text)
            if changed is not None and changed.strip():
                form.store(changed)
        else:
            raise UsageError("This needs an editor.", "Set $EDITOR and try again.")


def _format_replacement(before: dict[str, Any], args: dict[str, Any], columns: int, painter: TextPainter) -> str:
    diff = diff_arguments(before, args).split("\n")
    kept = "\n".join(line for line in diff if not line.startswith(("--- ", "+++ ")))
    change = "\n".join(_paint_diff(quote_block(kept, columns), painter))
    names = summarize_change(before, args).removeprefix("changed ")
    return f"Changed {escape_hidden(names)}:\n{change}\nAllow this? [y]es, [e]dit again, or Enter to go back: "


_NO_COLORS = TextPainter(None)
_DANGER_STYLES: dict[Danger, TextStyle] = {
    "read_only": "green",
    "changes_files": "cyan",
    "network": "yellow",
    "outside_project": "yellow",
    "hard_to_undo": "red",
    "credentials": "red",
}


def format_permission_request(
    ask: Interaction, columns: int = 80, rows: int = 50, painter: TextPainter = _NO_COLORS
) -> str:
    """Return the whole request: who asks, for what, the change, how dangerous it is, why, and in which sandbox."""
    asked = ask.permission
    headline = format_headline(ask) if ask.agent else f"Odin asks: {format_headline(ask)}"
    lines = [wrap_words(headline, columns), *format_subject(ask, columns)]
    level = f"{DANGER_WORDS[asked.danger].capitalize()}."
    about = [f"{level} {ask.effect}".rstrip()] if asked.effect else []
    about += filter(None, (*ask.warnings, ask.sandbox))
    about = [wrap_words(escape_hidden(line), columns) for line in about]
    if asked.effect:
        about[0] = about[0].replace(level, painter.paint(level, _DANGER_STYLES[asked.danger]), 1)
    room = rows - sum(line.count("\n") + 1 for line in (*lines, *about)) - _PROMPT_ROWS - 3
    lines += format_preview(asked.preview, max(min(room, PREVIEW_LINES), _MIN_PREVIEW_LINES), columns, painter)
    return "\n".join([*lines, *about]) + "\n"


def warn_if_too_tall(shown: str, rows: int) -> str:
    """Return a warning if the start of the request has scrolled off the screen."""
    return (
        ""
        if shown.count("\n") + _PROMPT_ROWS <= rows
        else "This does not fit on the screen: scroll up to see it all.\n"
    )


def format_permission_prompt(ask: Interaction) -> str:
    """Return the input prompt, with the keys that add a rule above it."""
    if ask.permission.unsandboxed:
        return "Run it without the sandbox? [y]es, [n]o, or say why not: "
    lasting = "".join(f"[a]llow {choice.about}.\n" for choice in ask.choices if choice.key == "allow_mode")
    if list_offered_rules(ask):
        lasting += "Always allow in this [s]ession, [p]roject or for this [u]ser; always [d]eny.\n"
    return f"{lasting}Allow it? [y]es, [e]dit, [v]iew all, [?] help, [n]o, or say why not: "


def format_permission_help(ask: Interaction) -> str:
    lines = ["y    allow once"]
    lines += [f"a    allow {choice.about}" for choice in ask.choices if choice.key == "allow_mode"]
    if list_offered_rules(ask):
        lines += [
            "s    allow and add a rule for this session, which is shown first",
            "p    allow and add a rule for this project",
            "u    allow and add a rule for all projects",
            "d    deny and add a rule",
        ]
    if not ask.permission.unsandboxed:
        lines.append("e    edit the call first, in $EDITOR or on this line (e NAME, e all: other arguments)")
    lines += ["v    view the whole call", "n    deny; text after n, or any other text, is the reason for the model"]
    return "\n".join(f"  {line}" for line in lines) + "\n"


def format_all_details(ask: Interaction, columns: int = 80, painter: TextPainter = _NO_COLORS) -> str:
    lines: list[str] = []
    for name, value in format_arguments(ask.permission.args):
        lines += [f"{escape_hidden(name)}:", *quote_block(value, columns)]
    return "\n".join([*lines, *format_preview(ask.permission.preview, 0, columns, painter)]) + "\n"


def format_preview(text: str, limit: int, columns: int = 80, painter: TextPainter = _NO_COLORS) -> list[str]:
    """Return the changes as at most `limit` lines, and how much is missing. 0 means no limit.

    The names of a single file are left out: the request has named it.
    """
    if not text:
        return []
    lines = text.rstrip("\n").split("\n")
    if [line[:4] for line in lines[:2]] == ["--- ", "+++ "] and not any(map(_is_file_name, lines[2:], lines[3:])):
        lines = lines[2:]
    if not limit:
        return ["What would change:", *_paint_diff(quote_block("\n".join(lines), columns), painter)]
    shown = [shorten(line, _PREVIEW_COLUMNS) for line in lines[:limit]]
    missing = [f"  … {len(lines) - limit} more lines; v shows them"] if len(lines) > limit else []
    missing += ["  … long lines are cut; v shows them"] if shown != lines[:limit] else []
    return ["What would change:", *_paint_diff(quote_block("\n".join(shown), columns), painter), *missing]


def _is_file_name(line: str, after: str) -> bool:
    return line.startswith("--- ") and after.startswith("+++ ")


_DIFF_STYLES: dict[str, TextStyle] = {"+": "green", "-": "red"}


def _paint_diff(rows: Sequence[str], painter: TextPainter) -> list[str]:
    """Color the added and removed lines of a quoted diff, and the rows in which they continue."""
    painted: list[str] = []
    style: TextStyle | None = None
    for row in rows:
        if row.startswith("  | "):
            style = _DIFF_STYLES.get(row[4:5])
        painted.append(row if style is None else row[:4] + painter.paint(row[4:], style))
    return painted


def format_rule_choice(rules: Sequence[str], wording: str) -> str:
    """Return the offered rules exactly as they would be stored."""
    lines = [f"{wording}:", *(f"  {number}. {rule}" for number, rule in enumerate(rules, 1))]
    which = f"1 to {len(rules)}, Enter for 1" if len(rules) > 1 else "Enter for yes"
    return "\n".join([*lines, f"{which}, [e]dit the rule, [b]ack: "])


def parse_reply(ask: Interaction, typed: str) -> PermissionReply:
    """Parse a typed line. The end of input denies; a stray key asks again and never allows."""
    line = typed.strip()
    word = line.casefold()
    if word in _YES_WORDS:
        return PermissionReply("allow_once")
    if word in _NO_WORDS:
        return PermissionReply("deny")
    if escape_control(line) != line:
        return PermissionReply("unclear", "The line contains control characters.")
    key = _parse_key(ask, line)
    if key is not None:
        return key
    if len(line) <= 2:
        return PermissionReply("unclear", f"Unknown answer {line!r}; ? lists the keys.")
    first = word.replace(",", " ").split()[0]
    if first in _ALMOST_YES_WORDS:
        return PermissionReply("unclear", "Type only y or yes to allow. To deny with this reason, start it with n.")
    return PermissionReply("deny", line[1:].strip() if word.startswith("n ") else line)


def _parse_key(ask: Interaction, line: str) -> PermissionReply | None:
    """Parse the keys besides yes and no, if they are offered."""
    word = line.casefold()
    if word in ("?", "h", "help"):
        return PermissionReply("help")
    if word in ("v", "view"):
        return PermissionReply("view")
    if ask.permission.unsandboxed:
        return (
            PermissionReply("unclear", "This can only be allowed once or denied: y or n.")
            if word in _REMEMBER_KEYS
            else None
        )
    first, _, name = line.partition(" ")
    if first.casefold() in ("e", "edit") and name.strip() in ArgumentForm(ask.permission.args).list_names():
        return PermissionReply("edit", name.strip())
    if word in ("a", "all"):
        if any(choice.key == "allow_mode" for choice in ask.choices):
            return PermissionReply("allow_mode")
        return PermissionReply("unclear", "No permission mode allows this without asking: y allows it once.")
    if word in _REMEMBER_KEYS and not list_offered_rules(ask):
        return PermissionReply("unclear", "No rule can cover this: y allows it once, n denies it.")
    if word in _SCOPE_KEYS:
        return PermissionReply("remember", scope=_SCOPE_KEYS[word])
    return PermissionReply("deny_always") if word in ("d", "deny") else None


_REMEMBER_KEYS = frozenset((*_SCOPE_KEYS, "d", "deny", "e", "edit"))


def parse_scope(typed: str) -> RememberScope | None:
    """Parse the scope of a deny rule; Enter means this project."""
    word = typed.strip().casefold()
    return "project" if not word and typed else _SCOPE_KEYS.get(word)


def parse_rule_number(typed: str, count: int) -> int | None:
    """Return the index of the chosen rule, or None."""
    word = typed.strip().casefold()
    if typed and (not word or (count == 1 and word in _YES_WORDS)):
        return 0
    return int(word) - 1 if word.isdecimal() and len(word) < 4 and 1 <= int(word) <= count else None
