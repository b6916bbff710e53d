"""An answer to a permission question while it is being made up: the rule, the words, the changed arguments."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from odin.core.errors import UsageError
from odin.core.event import PermissionAsked
from odin.core.rule import RememberScope
from odin.ui.question.editing import format_arguments, parse_edited_arguments
from odin.ui.question.permission import list_offered_rules
from odin.ui.telling import SCOPE_WORDS
from odin.ui.terminal import escape_hidden

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
