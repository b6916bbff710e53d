"""One permission question on a terminal, from its showing to an answer."""

from collections.abc import Sequence
from typing import Any

import msgspec

from odin.core.errors import UsageError
from odin.core.event import PermissionAsked
from odin.core.op import AnswerPermission
from odin.ui.question.permission import (
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
from odin.ui.question.tty import Tty
from odin.ui.telling import SCOPE_WORDS
from odin.ui.terminal import escape_hidden, quote_block, wrap_words


class PermissionFlow:
    """Asks until there is an answer. What was typed before a step was shown is no answer to it."""

    def __init__(self, tty: Tty, ask: PermissionAsked, agent: str) -> None:
        self._tty = tty
        self._ask = ask
        self._pending_text = format_permission_question(ask, agent, tty.get_columns(), tty.get_rows())

    async def ask(self) -> AnswerPermission:
        while True:
            found = await self._ask_once()
            if found is not None:
                return found

    async def _ask_once(self) -> AnswerPermission | None:
        """One line of the person's; None when it was not yet an answer."""
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
            rule = await self._choose_rule(f"Allow it and remember {SCOPE_WORDS[reply.scope]}")
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
        rule = await self._choose_rule("Deny it and remember")
        if rule is None:
            return None
        scope = parse_scope(await self._tty.ask_line("For this [s]ession, the [p]roject, or [u]ser; Enter for s: "))
        if scope is None:
            return None
        return AnswerPermission(self._ask.ask_id, allow=False, rule=rule, remember=scope)

    async def _choose_rule(self, wording: str) -> str | None:
        """The rule to remember, as the person saw or wrote it; None to go back to the question."""
        from odin.ui.question.lineedit import edit_line

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
        """Other arguments, shown once more before they are used."""
        args = self._ask.args
        while True:
            try:
                changed = await self._edit_in_editor(args)
            except UsageError as error:
                self._pending_text = f"{wrap_words(escape_hidden(error.describe()), self._tty.get_columns())}\n"
                return None
            if changed is None or changed == self._ask.args:
                self._pending_text = "Nothing was changed.\n"
                return None
            typed = await self._tty.ask_line(_format_replacement(self._ask, changed, self._tty.get_columns()))
            word = typed.strip().casefold()
            if word in ("y", "yes"):
                from odin.ui.question.editing import summarize_change

                return AnswerPermission(
                    self._ask.ask_id, allow=True, args=changed, summary=summarize_change(self._ask.args, changed)
                )
            if word not in ("e", "edit"):
                return None
            args = changed

    async def _edit_in_editor(self, args: dict[str, Any]) -> dict[str, Any] | None:
        from odin.ui.question import editing
        from odin.ui.question.lineedit import can_edit_line, edit_line

        command = editing.find_editor()
        if command:
            return editing.parse_edited_arguments(
                await editing.edit_externally(self._tty, command, editing.format_arguments(args))
            )
        text = args.get("command")
        if not isinstance(text, str) or not can_edit_line(text):
            raise UsageError("This can only be changed in an editor.", "Set $EDITOR to one and try again.")
        changed = await edit_line(self._tty, "Command: ", text)
        return None if changed is None or not changed.strip() else {**args, "command": changed}


def _format_replacement(ask: PermissionAsked, args: dict[str, Any], columns: int) -> str:
    command = args.get("command")
    other = msgspec.structs.replace(ask, args=args, subject=command if isinstance(command, str) else "")
    shown = "\n".join(quote_block(subject_of(other), columns))
    return f"Instead of what was asked:\n{shown}\nAllow this? [y]es, [e]dit again, anything else goes back: "
