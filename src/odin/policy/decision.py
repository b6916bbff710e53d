"""The decision about one tool call."""

from typing import Literal

from msgspec import Struct

from odin.core.policy import EffectsAction, RuleAction

RunsIn = Literal["view", "read", "project"]

READ_ONLY_RULE = "read-only commands"
"""The check that lets commands run that only read the project."""


class Decision(Struct, frozen=True):
    """`reason` explains the decision in one sentence; `hint` tells a user without a terminal how to allow the call.

    `rule` is the rule that decided, with its layer, or the name of a built-in check. A `builtin` denial cannot be
    overruled by a rule, a hook or the user. `may_be_denied`: a deny rule may apply, so only the user can allow it.

    For a command, `runs_in` is where: in a view, where it can write nothing, or in the project itself. `after` is what
    happens to what it writes in a view. `is_confined`: it would run in a sandbox, so without one the decision does not
    hold. `hides_secrets`: it cannot read files of the project that may contain secrets, because nobody has approved it.
    """

    action: RuleAction
    reason: str = ""
    hint: str = ""
    rule: str = ""
    builtin: bool = False
    may_be_denied: bool = False
    runs_in: RunsIn = "project"
    after: EffectsAction = "apply"
    is_confined: bool = False
    hides_secrets: bool = False
