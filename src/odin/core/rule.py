"""What a person allows, wants to be asked about, or forbids: the words for rules that every room shares."""

from typing import Literal

from msgspec import Struct

RuleAction = Literal["allow", "ask", "deny"]

RuleLayer = Literal["default", "user", "project", "role", "session"]
"""Who said it, from the weakest to the strongest."""

RememberScope = Literal["session", "project", "user"]
"""For how long a person wants an answer remembered: this session, this project, everywhere."""


class RuleLine(Struct, frozen=True):
    """One rule as people see it in a list. `number` is how it is named when it is to be removed; 0 cannot be removed.

    `text` is `Tool` or `Tool(pattern)`; `source` says where it is written down.
    """

    number: int
    layer: RuleLayer
    action: RuleAction
    text: str
    source: str = ""
