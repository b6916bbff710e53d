"""The dialogs of plain mode for questions of the model and for permission requests."""

from collections.abc import Sequence
from typing import Any

import msgspec

from odin.core.call_events import PermissionAsked, QuestionsAsked
from odin.core.errors import UsageError
from odin.core.event_values import Question
from odin.core.op import AnswerPermission, AnswerQuestions
from odin.ui.callbacks import parse_choice
from odin.ui.plain.permission_prompt import (
    PermissionReply,
    format_all_details,
    format_permission_help,
    format_permission_prompt,
    format_permission_question,
    format_rule_choice,
    list_offered_rules,
    parse_reply,
    parse_rule_number,
    parse_scope,
    subject_of,
    warn_if_too_tall,
)
from odin.ui.plain.tty import Tty
from odin.ui.progress import SCOPE_WORDS
from odin.ui.terminal import escape_hidden, quote_block, wrap_words


async def ask_questions(tty: Tty, ask: QuestionsAsked) -> AnswerQuestions:
    """Ask all questions. Ctrl-D cancels them all."""
    answers: list[tuple[str, ...]] = []
    for number, item in enumerate(ask.questions, 1):
        place = f" ({number} of {len(ask.questions)})" if len(ask.questions) > 1 else ""
        text = format_question(item, place)
        answer = None
        while answer is None:
            reply = await tty.ask_line(text)
            if not reply:
                tty.write("\n")
                return AnswerQuestions(ask.ask_id, cancelled=True)
            answer = parse_choice(item, reply)
            text = "Choose only one: "
        tty.write(f"→ {escape_hidden(', '.join(answer) or _default_label_of(item))}\n")
        answers.append(answer)
    return AnswerQuestions(ask.ask_id, tuple(answers))


def format_question(asked: Question, place: str = "") -> str:
    """Return a question with numbered options and how to answer it."""
    head = f"{escape_hidden(asked.header)}: " if asked.header else ""
    lines = [f"Odin asks{place}: {head}" + "\n  ".join(escape_hidden(line) for line in asked.text.split("\n"))]
    for number, option in enumerate(asked.options, 1):
        detail = f" ({escape_hidden(option.detail)})" if option.detail else ""
        lines.append(f"  {number}. {escape_hidden(option.label)}{detail}")
    numbers = "numbers such as 1,2" if asked.multiple else "a number"
    how = f"{numbers}, free text, or Enter for 1; " if asked.options else ""
    return "\n".join([*lines, f"Answer ({how}Ctrl-D cancels): "])


def _default_label_of(asked: Question) -> str:
    return asked.options[0].label if asked.options else "(no answer)"


class PermissionFlow:
    """Asks one permission request until it is answered. Text typed before a step was shown is discarded."""

    def __init__(self, tty: Tty, ask: PermissionAsked, agent: str) -> None:
        self._tty = tty
        self._ask = ask
        self._pending_text = format_permission_question(ask, agent, tty.get_columns(), tty.get_rows())

    async def ask(self) -> AnswerPermission:
        while True:
            answer = await self._ask_once()
            if answer is not None:
                return answer

    async def _ask_once(self) -> AnswerPermission | None:
        """Read one line. Return None if it was not an answer yet."""
        ask = self._ask
        shown, self._pending_text = self._pending_text, ""
        shown += warn_if_too_tall(shown, self._tty.get_rows())
        typed = await self._tty.ask_line(shown + format_permission_prompt(ask))
        reply = parse_reply(ask, typed)
        if reply.act == "allow":
            return AnswerPermission(ask.ask_id, allow=True)
        if reply.act == "deny":
            if not typed:
                self._tty.write("\n")
            return AnswerPermission(ask.ask_id, allow=False, reason=reply.words)
        if reply.act == "remember":
            rule = await self._choose_rule(f"Allow and add a rule {SCOPE_WORDS[reply.scope]}")
            return None if rule is None else AnswerPermission(ask.ask_id, allow=True, rule=rule, remember=reply.scope)
        if reply.act == "forbid":
            return await self._deny_for_good()
        if reply.act == "edit":
            return await self._edit_arguments()
        self._pending_text = self._explain(reply)
        return None

    def _explain(self, reply: PermissionReply) -> str:
        if reply.act == "view":
            return format_all_details(self._ask, self._tty.get_columns())
        return (
            format_permission_help(self._ask)
            if reply.act == "help"
            else f"{wrap_words(reply.words, self._tty.get_columns())}\n"
        )

    async def _deny_for_good(self) -> AnswerPermission | None:
        rule = await self._choose_rule("Deny and add a rule")
        if rule is None:
            return None
        scope = parse_scope(
            await self._tty.ask_line("For this [s]ession (Enter), [p]roject, or all projects of this [u]ser: ")
        )
        if scope is None:
            return None
        return AnswerPermission(self._ask.ask_id, allow=False, rule=rule, remember=scope)

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

    async def _edit_arguments(self) -> AnswerPermission | None:
        """Let the user change the arguments, and show them again before they are used."""
        args = self._ask.args
        while True:
            try:
                changed = await self._edit_in_editor(args)
            except UsageError as error:
                self._pending_text = f"{wrap_words(escape_hidden(error.describe()), self._tty.get_columns())}\n"
                return None
            if changed is None or changed == self._ask.args:
                self._pending_text = "Nothing changed.\n"
                return None
            typed = await self._tty.ask_line(_format_replacement(self._ask, changed, self._tty.get_columns()))
            word = typed.strip().casefold()
            if word in ("y", "yes"):
                from odin.ui.plain.editors import summarize_change

                return AnswerPermission(
                    self._ask.ask_id, allow=True, args=changed, summary=summarize_change(self._ask.args, changed)
                )
            if word not in ("e", "edit"):
                return None
            args = changed

    async def _edit_in_editor(self, args: dict[str, Any]) -> dict[str, Any] | None:
        from odin.ui.plain import editors
        from odin.ui.plain.editors import can_edit_line, edit_line

        command = editors.find_editor()
        if command:
            return editors.parse_edited_arguments(
                await editors.edit_externally(self._tty, command, editors.format_arguments(args))
            )
        text = args.get("command")
        if not isinstance(text, str) or not can_edit_line(text):
            raise UsageError("This needs an editor.", "Set $EDITOR and try again.")
        changed = await edit_line(self._tty, "Command: ", text)
        return None if changed is None or not changed.strip() else {**args, "command": changed}


def _format_replacement(ask: PermissionAsked, args: dict[str, Any], columns: int) -> str:
    command = args.get("command")
    other = msgspec.structs.replace(ask, args=args, subject=command if isinstance(command, str) else "")
    subject = "\n".join(quote_block(subject_of(other), columns))
    return f"Changed to:\n{subject}\nAllow this? [y]es, [e]dit again, or Enter to go back: "
