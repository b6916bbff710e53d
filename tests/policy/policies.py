"""Policies made from the four rule lists of the configuration."""

from collections.abc import Iterable
from typing import Any

from odin.policy.policy import Policy
from odin.policy.rules.rule import RuleSet
from odin.policy.rules.rule_file import build_list_rules


def make_policy(
    *,
    root: str,
    allowed_tools: Iterable[str] = (),
    disallowed_tools: Iterable[str] = (),
    allowed_commands: Iterable[str] = (),
    forbidden_commands: Iterable[str] = (),
    **settings: Any,
) -> Policy:
    rules = build_list_rules(
        allowed_tools=allowed_tools,
        disallowed_tools=disallowed_tools,
        allowed_commands=allowed_commands,
        forbidden_commands=forbidden_commands,
    )
    rule_set = settings.pop("rule_set", None) or RuleSet(rules)
    return Policy(root=root, rule_set=rule_set, **settings)
