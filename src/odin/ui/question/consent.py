"""One permission question on a terminal, from its showing to an answer."""

from collections.abc import Sequence
from typing import Any

import msgspec

from odin.core.errors import UsageError
from odin.core.event import PermissionAsked
from odin.core.op import Answer
from odin.ui.question.permission import (
    Reply,
    everything,
    helped,
    offered,
    prompt,
    question,
    rule_choice,
    rule_number,
    scope_of,
    subject,
    too_tall,
    understand,
)
from odin.ui.question.tty import Tty
from odin.ui.telling import SCOPES
from odin.ui.terminal import folded, framed, visible


class Consent:
    """Asks until there is an answer. What was typed before a step was shown is no answer to it."""

    def __init__(self, tty: Tty, ask: PermissionAsked, agent: str) -> None:
        self._tty = tty
        self._ask = ask
        self._shown = question(ask, agent, tty.columns(), tty.rows())

    async def answer(self) -> Answer:
        while True:
            found = await self._once()
            if found is not None:
                return found

    async def _once(self) -> Answer | None:
        """One line of the person's; None when it was not yet an answer."""
        ask = self._ask
        shown, self._shown = self._shown, ""
        shown += too_tall(shown, self._tty.rows())
        typed = await self._tty.line(shown + prompt(ask))
        reply = understand(ask, typed)
        if reply.act == "allow":
            return Answer(ask.ask_id, allow=True)
        if reply.act == "deny":
            if not typed:
                self._tty.say("\n")
            return Answer(ask.ask_id, allow=False, reason=reply.words)
        if reply.act == "remember":
            rule = await self._rule(f"Allow it and remember {SCOPES[reply.scope]}")
            return None if rule is None else Answer(ask.ask_id, allow=True, rule=rule, remember=reply.scope)
        if reply.act == "forbid":
            return await self._forbid()
        if reply.act == "edit":
            return await self._edit()
        self._shown = self._explained(reply)
        return None

    def _explained(self, reply: Reply) -> str:
        if reply.act == "view":
            return everything(self._ask, self._tty.columns())
        return helped(self._ask) if reply.act == "help" else f"{folded(reply.words, self._tty.columns())}\n"

    async def _forbid(self) -> Answer | None:
        rule = await self._rule("Deny it and remember")
        if rule is None:
            return None
        scope = scope_of(await self._tty.line("For this [s]ession, the [p]roject, or [u]ser; Enter for s: "))
        if scope is None:
            return None
        return Answer(self._ask.ask_id, allow=False, rule=rule, remember=scope)

    async def _rule(self, wording: str) -> str | None:
        """The rule to remember, as the person saw or wrote it; None to go back to the question."""
        from odin.ui.question.lineedit import change_line

        rules: Sequence[str] = offered(self._ask)
        while True:
            typed = await self._tty.line(rule_choice(rules, wording))
            chosen = rule_number(typed, len(rules))
            if chosen is not None:
                return rules[chosen]
            if typed.strip().casefold() not in ("e", "edit"):
                return None
            changed = await change_line(self._tty, "Rule: ", rules[0])
            if changed is None or not changed.strip():
                return None
            rules = (changed.strip(),)

    async def _edit(self) -> Answer | None:
        """Other arguments, shown once more before they are used."""
        args = self._ask.args
        while True:
            try:
                changed = await self._changed(args)
            except UsageError as error:
                self._shown = f"{folded(visible(error.sentence()), self._tty.columns())}\n"
                return None
            if changed is None or changed == self._ask.args:
                self._shown = "Nothing was changed.\n"
                return None
            typed = await self._tty.line(_instead(self._ask, changed, self._tty.columns()))
            word = typed.strip().casefold()
            if word in ("y", "yes"):
                from odin.ui.question.editing import summary

                return Answer(self._ask.ask_id, allow=True, args=changed, summary=summary(self._ask.args, changed))
            if word not in ("e", "edit"):
                return None
            args = changed

    async def _changed(self, args: dict[str, Any]) -> dict[str, Any] | None:
        from odin.ui.question import editing
        from odin.ui.question.lineedit import can_change, change_line

        command = editing.editor()
        if command:
            return editing.understood(await editing.edit(self._tty, command, editing.shown(args)))
        text = args.get("command")
        if not isinstance(text, str) or not can_change(text):
            raise UsageError("This can only be changed in an editor.", "Set $EDITOR to one and try again.")
        changed = await change_line(self._tty, "Command: ", text)
        return None if changed is None or not changed.strip() else {**args, "command": changed}


def _instead(ask: PermissionAsked, args: dict[str, Any], columns: int) -> str:
    command = args.get("command")
    other = msgspec.structs.replace(ask, args=args, subject=command if isinstance(command, str) else "")
    shown = "\n".join(framed(subject(other), columns))
    return f"Instead of what was asked:\n{shown}\nAllow this? [y]es, [e]dit again, anything else goes back: "
