"""Shows an interaction as lines, and makes its answer of what is typed."""

from collections.abc import Sequence
from itertools import pairwise

from odin.core.client import Client
from odin.core.errors import OdinError, UsageError
from odin.core.format import pluralize
from odin.core.interaction import FormField, Interaction
from odin.core.op import Answer
from odin.core.policy import Danger, RememberScope
from odin.ui.callbacks import parse_choice
from odin.ui.permission_text import (
    DANGER_WORDS,
    ArgumentForm,
    diff_arguments,
    format_arguments,
    format_details,
    format_headline,
    list_offered_rules,
    summarize_change,
)
from odin.ui.plain.external_editor import edit_externally
from odin.ui.plain.tty import Tty
from odin.ui.plan_text import parse_plan_choice
from odin.ui.progress import SCOPE_WORDS
from odin.ui.terminal import (
    TextPainter,
    TextStyle,
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
_NO_COLORS = TextPainter(None)


async def ask_user(tty: Tty, ask: Interaction, client: Client) -> Answer:
    """Ask on the terminal until there is an answer."""
    if ask.kind == "permission":
        return await _ask_permission(tty, ask, client)
    if ask.kind == "plan":
        return await _ask_plan(tty, ask)
    return await _fill_form(tty, ask)


# --- forms and plans ---


async def _fill_form(tty: Tty, ask: Interaction) -> Answer:
    """Ask for every field. Ctrl-D cancels them all."""
    answers: list[tuple[str, ...]] = []
    for number, field in enumerate(ask.form, 1):
        text = format_field(field, f" ({number} of {len(ask.form)})" if len(ask.form) > 1 else "")
        while typed := await tty.ask_line(text):
            answer = parse_choice(field, typed)
            problem = "Choose only one." if answer is None else field.find_problem(answer)
            if answer is not None and not problem:
                break
            text = f"{problem.rstrip('.')}: "
        else:
            return Answer(ask.id, ask.default)
        default = field.options[0].label if field.options else "(no answer)"
        tty.write(f"→ {escape_hidden(', '.join(answer) or default)}\n")
        answers.append(answer)
    return Answer(ask.id, "answer", answers=tuple(answers))


def format_field(field: FormField, place: str = "") -> str:
    """Return what a field is for, its numbered options and how to fill it in."""
    head = f"{escape_hidden(field.label)}: " if field.label else ""
    lines = [f"Odin asks{place}: {head}" + "\n  ".join(escape_hidden(line) for line in field.text.split("\n"))]
    for number, option in enumerate(field.options, 1):
        detail = f" ({escape_hidden(option.detail)})" if option.detail else ""
        lines.append(f"  {number}. {escape_hidden(option.label)}{detail}")
    numbers = "numbers such as 1,2" if field.multiple else "a number"
    hint = f"{numbers}, {'' if field.type == 'choice' else 'free text, '}or Enter for 1; " if field.options else ""
    return "\n".join([*lines, f"Answer ({hint}Ctrl-D cancels): "])


async def _ask_plan(tty: Tty, ask: Interaction) -> Answer:
    """Ask what to do with a plan, which is already on the screen. Ctrl-D keeps planning."""
    text = format_plan_choices(ask)
    while True:
        try:
            answer = parse_plan_choice(ask, await tty.ask_line(text))
        except ValueError:
            text = f"Choose 1 to {len(ask.choices)}, or say what to change: "
            continue
        if answer is not None:
            return answer
        if comment := (await tty.ask_line(f"{ask.form[0].label} ")).strip():
            return Answer(ask.id, "revise", comment)
        text = format_plan_choices(ask)


def format_plan_choices(ask: Interaction) -> str:
    """Return the numbered answers to a plan."""
    lines = [f"Odin presents a plan: {escape_hidden(ask.title)} ({escape_hidden(ask.plan.path)})"]
    lines += [f"  {number}. {choice.label}" for number, choice in enumerate(ask.choices, 1)]
    return "\n".join([*lines, "Answer (a number, or what to change; Enter or Ctrl-D keeps planning): "])


# --- permission requests ---


async def _ask_permission(tty: Tty, ask: Interaction, client: Client) -> Answer:
    shown = format_permission_request(ask, tty.get_columns(), tty.get_rows(), tty.painter)
    while True:
        shown += warn_if_too_tall(shown, tty.get_rows())
        key, words = parse_reply(ask, await tty.ask_line(shown + format_permission_prompt(ask)))
        answer, shown = None, ""
        if key == "view":
            shown = format_all_details(ask, tty.get_columns(), tty.painter)
        elif key == "help":
            shown = format_permission_help(ask)
        elif key == "unclear":
            shown = f"{wrap_words(words, tty.get_columns())}\n"
        elif key == "edit":
            try:
                answer = await _edit_arguments(tty, ask, client, words)
            except OdinError as error:
                shown = f"{wrap_words(escape_hidden(error.describe()), tty.get_columns())}\n"
        elif scope := ask.find_choice(key).scope:
            answer = await _add_rule(tty, ask, key, scope)
        else:
            answer = Answer(ask.id, key, words)
        if answer is not None:
            return answer


async def _add_rule(tty: Tty, ask: Interaction, key: str, scope: RememberScope | None) -> Answer | None:
    """Let the user choose or edit the rule that is saved with the answer. Return None to go back to the request."""
    is_denial = key == "deny_always"
    wording = "Deny and add a rule" if is_denial or scope is None else f"Allow and add a rule {SCOPE_WORDS[scope]}"
    rules: Sequence[str] = list_offered_rules(ask)
    while True:
        typed = await tty.ask_line(format_rule_choice(rules, wording))
        if (chosen := parse_rule_number(typed, len(rules))) is not None:
            break
        if typed.strip().casefold() not in ("e", "edit"):
            return None
        changed = await tty.edit_line("Rule: ", rules[0])
        if changed is None or not changed.strip():
            return None
        rules = (changed.strip(),)
    if is_denial:
        asked = "For this [p]roject (Enter), [s]ession, or all projects of this [u]ser: "
        scope = parse_scope(await tty.ask_line(asked))
    return None if scope is None else Answer(ask.id, key, rule=rules[chosen], scope=scope)


async def _edit_arguments(tty: Tty, ask: Interaction, client: Client, name: str) -> Answer | None:
    """Let the user change an argument, or all of them, and show the change before it is used. Raise UsageError."""
    before, form = ask.permission.args, ArgumentForm(ask.permission.args)
    while True:
        form.select(name)
        if command := find_editor():
            edited = await edit_externally(tty, client, command, f"{form.text}\n", "arguments.json")
            form.store(edited.removesuffix("\n"))
        elif form.is_single_line and escape_hidden(form.text) == form.text:
            changed = await tty.edit_line(f"{form.name}: ", form.text)
            form.store(changed if changed and changed.strip() else form.text)
        else:
            raise UsageError("This needs an editor.", "Set $EDITOR and try again.")
        if form.args == before:
            raise UsageError("Nothing changed.")
        diff = diff_arguments(before, form.args).split("\n")
        kept = "\n".join(line for line in diff if not line.startswith(("--- ", "+++ ")))
        change = "\n".join(_paint_diff(quote_block(kept, tty.get_columns()), tty.painter))
        summary = summarize_change(before, form.args)
        head = f"Changed {escape_hidden(summary.removeprefix('changed '))}:"
        typed = await tty.ask_line(f"{head}\n{change}\nAllow this? [y]es, [e]dit again, or Enter to go back: ")
        word, _, other = typed.strip().partition(" ")
        if typed.strip().casefold() in ("y", "yes"):
            return Answer(ask.id, "allow_once", args=form.args, summary=summary)
        if word.casefold() not in ("e", "edit"):
            return None
        name = other.strip() or name


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
    kinds = [detail.kind for detail in ask.details]
    at = kinds.index("diff") if "diff" in kinds else len(kinds)
    lines = [wrap_words(headline, columns), *format_details(ask.details[:at], columns)]
    lists = format_details(ask.details[at + 1 :], columns)
    level = f"{DANGER_WORDS[asked.danger].capitalize()}."
    about = [f"{level} {ask.effect}".rstrip()] if asked.effect else []
    about += filter(None, (*ask.warnings, ask.sandbox))
    about = [wrap_words(escape_hidden(line), columns) for line in about]
    if asked.effect:
        about[0] = about[0].replace(level, painter.paint(level, _DANGER_STYLES[asked.danger]), 1)
    room = rows - sum(line.count("\n") + 1 for line in (*lines, *lists, *about)) - _PROMPT_ROWS - 3
    limit = max(min(room, PREVIEW_LINES), _MIN_PREVIEW_LINES)
    heading = "What would change:" if asked.effects is None else "What changed:"
    lines += format_preview(asked.preview, limit, columns, painter, heading)
    return "\n".join([*lines, *lists, *about]) + "\n"


def warn_if_too_tall(shown: str, rows: int) -> str:
    """Return a warning if the start of the request has scrolled off the screen."""
    is_tall = shown.count("\n") + _PROMPT_ROWS > rows
    return "This does not fit on the screen: scroll up to see it all.\n" if is_tall else ""


_KEYS = {
    "y": ("yes", "allow_once", "allow once"),
    "a": ("all", "allow_mode", "allow {}"),
    "s": ("session", "allow_session", "allow and add a rule for this session, which is shown first"),
    "p": ("project", "allow_project", "allow and add a rule for this project"),
    "u": ("user", "allow_everywhere", "allow and add a rule for all projects"),
    "d": ("deny", "deny_always", "deny and add a rule"),
    "e": ("edit", "edit", "edit the call first, in $EDITOR or on this line (e NAME, e all: other arguments)"),
    "v": ("view", "view", "view the whole call"),
    "n": ("no", "deny", "deny; text after n, or any other text, is the reason for the model"),
    "?": ("help", "help", "list these keys"),
}
"""For each key its word, the choice of the request or what else it does, and its explanation."""


def list_keys(ask: Interaction) -> dict[str, str]:
    """Return the keys that this request offers, with what they do."""
    rules = list_offered_rules(ask)
    offered = {"view", "help", *(choice.key for choice in ask.choices if rules or choice.scope is None)}
    offered |= {"edit"} if any(field.name == "args" for field in ask.form) else set()
    return {key: does for key, (_, does, _) in _KEYS.items() if does in offered}


def format_permission_prompt(ask: Interaction) -> str:
    """Return the input prompt, with the keys that allow more above it."""
    if ask.permission.unsandboxed:
        return "Run it without the sandbox? [y]es, [n]o, or say why not: "
    if ask.permission.effects is not None:
        always = (
            "Always keep what it writes in this [s]ession, [p]roject or for this [u]ser.\n"
            if "s" in list_keys(ask)
            else ""
        )
        return f"{always}Keep it? [y]es, [e]dit and run again, [v]iew all, [?] help, [n]o, or say why not: "
    lasting = "".join(f"[a]llow {choice.about}.\n" for choice in ask.choices if choice.key == "allow_mode")
    if "s" in list_keys(ask):
        lasting += "Always allow in this [s]ession, [p]roject or for this [u]ser; always [d]eny.\n"
    return f"{lasting}Allow it? [y]es, [e]dit, [v]iew all, [?] help, [n]o, or say why not: "


def format_permission_help(ask: Interaction) -> str:
    about = "".join(choice.about for choice in ask.choices if choice.key == "allow_mode")
    text = "".join(f"  {key}    {_KEYS[key][2].format(about)}\n" for key in list_keys(ask))
    if ask.permission.effects is not None:
        text = text.replace("allow once", "keep").replace("allow and", "keep and").replace("deny;", "discard;")
    return text


def format_all_details(ask: Interaction, columns: int = 80, painter: TextPainter = _NO_COLORS) -> str:
    lines: list[str] = []
    for name, value in format_arguments(ask.permission.args):
        lines += [f"{escape_hidden(name)}:", *quote_block(value, columns)]
    return "\n".join([*lines, *format_preview(ask.permission.preview, 0, columns, painter)]) + "\n"


def format_preview(
    text: str, limit: int, columns: int = 80, painter: TextPainter = _NO_COLORS, heading: str = "What would change:"
) -> list[str]:
    """Return the changes as at most `limit` lines, and how much is missing. 0 means no limit.

    The names of a single file are left out: the request has named it.
    """
    if not text:
        return []
    lines = text.rstrip("\n").split("\n")
    names = [line for line, after in pairwise(lines) if (line[:4], after[:4]) == ("--- ", "+++ ")]
    if len(names) == 1 and names[0] is lines[0]:
        lines = lines[2:]
    shown = [shorten(line, _PREVIEW_COLUMNS) for line in lines[:limit]] if limit else lines
    missing = [f"  … {pluralize(len(lines) - limit, 'more line')}; v shows all"] if limit and len(lines) > limit else []
    missing += ["  … long lines are cut; v shows them"] if shown != lines[: len(shown)] else []
    return [heading, *_paint_diff(quote_block("\n".join(shown), columns), painter), *missing]


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


_ALMOST_YES_WORDS = frozenset(("y", "yes", "yep", "yeah", "ok", "okay", "sure", "allow", "allowed", "always", "go"))


def parse_reply(ask: Interaction, typed: str) -> tuple[str, str]:
    """Return the choice and the reason of a denial, `edit` and the argument, `view`, `help`, or `unclear` and why.

    The end of input denies; a stray key asks again and never allows.
    """
    line = typed.strip()
    word, (first, _, rest) = line.casefold(), line.partition(" ")
    if escape_control(line) != line:
        return "unclear", "The line contains control characters."
    key = "n" if not word else next((key for key, (name, _, _) in _KEYS.items() if word in (key, name)), "")
    offered = list_keys(ask)
    if key in offered:
        return offered[key], ""
    if key:
        return "unclear", f"{line!r} is not offered here; ? lists the keys."
    is_edit = "e" in offered and first.casefold() in ("e", "edit")
    if is_edit and rest.strip() in ArgumentForm(ask.permission.args).list_names():
        return "edit", rest.strip()
    if len(line) <= 2:
        return "unclear", f"Unknown answer {line!r}; ? lists the keys."
    if word.replace(",", " ").split()[0] in _ALMOST_YES_WORDS:
        return "unclear", "Type only y or yes to allow. To deny with this reason, start it with n."
    if line[0] in "/!" or word in ("exit", "quit"):
        return "unclear", "Answer first; commands work afterwards. To deny with this reason, start it with n."
    return "deny", line[1:].strip() if word.startswith("n ") else line


def parse_scope(typed: str) -> RememberScope | None:
    """Parse the scope of a deny rule; Enter means this project."""
    scopes: dict[str, RememberScope] = {"s": "session", "session": "session", "u": "user", "user": "user"}
    word = typed.strip().casefold()
    return "project" if typed and word in ("", "p", "project") else scopes.get(word)


def parse_rule_number(typed: str, count: int) -> int | None:
    """Return the index of the chosen rule, or None."""
    word = typed.strip().casefold()
    if typed and (not word or (count == 1 and word in ("y", "yes"))):
        return 0
    return int(word) - 1 if word.isdecimal() and len(word) < 4 and 1 <= int(word) <= count else None
