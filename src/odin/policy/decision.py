"""The decision about one tool call."""

from typing import TYPE_CHECKING

from msgspec import Struct

from odin.core.policy import RuleAction

if TYPE_CHECKING:
    from odin.policy.commands.analysis import AmendedCommand


class Decision(Struct, frozen=True):
    """`reason` explains the decision in one sentence; `hint` tells a user without a terminal how to allow the call.

    `rule` is the rule that decided, with its layer, or the name of a built-in check. A `builtin` denial cannot be
    overruled by a rule, a hook or the user. `may_be_denied`: a deny rule may apply, so only the user can allow it.
    `amended` is the command that is allowed instead of the one given.
    """

    action: RuleAction
    reason: str = ""
    hint: str = ""
    rule: str = ""
    builtin: bool = False
    may_be_denied: bool = False
    amended: "AmendedCommand | None" = None
