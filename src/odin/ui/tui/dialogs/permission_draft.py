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
from odin.ui.question.editing import shown, understood
from odin.ui.question.permission import offered
from odin.ui.telling import SCOPES
from odin.ui.terminal import visible

_SCOPES: tuple[RememberScope, ...] = ("session", "project", "user")


class Lasting(Struct):
    """A rule that is about to be remembered, in the words that are on the screen."""

    rules: tuple[str, ...]
    allow: bool
    scope: RememberScope
    number: int = 0

    @property
    def text(self) -> str:
        return self.rules[self.number]

    def turn(self, by: int) -> str:
        """Another of the rules on offer."""
        self.number = (self.number + by) % len(self.rules)
        return self.text

    def widen(self) -> None:
        """The next scope, and after the widest the narrowest."""
        self.scope = _SCOPES[(_SCOPES.index(self.scope) + 1) % len(_SCOPES)]

    def label(self) -> str:
        verb = "Allow it" if self.allow else "Deny it"
        place = f" (rule {self.number + 1} of {len(self.rules)})" if len(self.rules) > 1 else ""
        return f"{verb} and remember {SCOPES[self.scope]}{place}:"


def lasting(ask: PermissionAsked, *, allow: bool, scope: RememberScope) -> Lasting:
    return Lasting(offered(ask), allow, scope)


class Editable(Struct, frozen=True):
    """The arguments as text. `name` is the one argument that is edited as it is; "" when all are, as JSON."""

    name: str
    text: str


def editable(args: Mapping[str, Any]) -> Editable:
    """A command is edited as it is, as long as everything in it can be seen; all else as JSON without hidden signs."""
    strings = [name for name, value in args.items() if isinstance(value, str)]
    name = "command" if "command" in strings else strings[0] if len(args) == len(strings) == 1 else ""
    if name and _all_seen(args[name]):
        return Editable(name, args[name])
    return Editable("", "".join(_spelled(char) for char in shown(args).rstrip("\n")))


def edited(args: Mapping[str, Any], form: Editable, text: str) -> dict[str, Any]:
    """The arguments with what was made of them. Raises UsageError, with the place where JSON is wrong."""
    if form.name:
        if not text.strip():
            raise UsageError(f"The {form.name} is empty.", "Write one, or go back.")
        return {**args, form.name: text}
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise NotJson(error) from None
    return understood(text)


class NotJson(UsageError):
    """Says where, from 0, so that the cursor can be put there."""

    def __init__(self, error: json.JSONDecodeError) -> None:
        super().__init__(f"That is not JSON: {error.msg} in line {error.lineno}, column {error.colno}.")
        self.place = (error.lineno - 1, error.colno - 1)


def instead(ask: PermissionAsked, args: dict[str, Any]) -> PermissionAsked:
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


def _all_seen(text: str) -> bool:
    return all(visible(line) == line for line in re.sub(" +", " ", text).split("\n"))


def _spelled(char: str) -> str:
    return char if char == "\n" or visible(char) == char else json.dumps(char)[1:-1]
