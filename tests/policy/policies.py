"""Policies made from the four rule lists of the configuration, the scopes of commands, and a sandbox in name."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from odin.config.paths import make_environment
from odin.core.profile import CommandLevel
from odin.policy.command_scope import CommandScope
from odin.policy.policy import Policy
from odin.policy.rules.rule import RuleSet
from odin.policy.rules.rule_file import build_list_rules


def make_scope(cwd: str | Path, root: str | Path = "", env: Mapping[str, str] | None = None) -> CommandScope:
    """Return the scope of a command in a folder that need not exist, by default with this process's variables."""
    return CommandScope(str(cwd), str(root or cwd), replace(make_environment(env, "/"), cwd=str(cwd)))


class FakeConfinement:
    """A sandbox that confines every command at a level; with a reason `why` it leaves them the network."""

    def __init__(self, level: CommandLevel = "view", why: str = "") -> None:
        self._level: CommandLevel = level
        self._why = why or ("no sandbox works on this machine" if level == "none" else "")

    async def examine(self) -> None:
        pass

    def is_confining(self, command: str = "") -> bool:
        return self._level != "none"

    def find_level(self, command: str = "") -> CommandLevel:
        return self._level

    def find_temporary_file(self, path: str) -> str:
        return ""

    def explain_unconfined(self, command: str = "") -> str:
        return self._why


def make_policy(
    *,
    root: str,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    allowed_tools: Iterable[str] = (),
    disallowed_tools: Iterable[str] = (),
    allowed_commands: Iterable[str] = (),
    forbidden_commands: Iterable[str] = (),
    **settings: Any,
) -> Policy:
    """Return the policy of a session in `cwd`, by default the root, with these variables, by default this process's."""
    rules = build_list_rules(
        allowed_tools=allowed_tools,
        disallowed_tools=disallowed_tools,
        allowed_commands=allowed_commands,
        forbidden_commands=forbidden_commands,
    )
    rule_set = settings.pop("rule_set", None) or RuleSet(rules)
    return Policy(root=root, environment=make_scope(cwd or root, env=env).environment, rule_set=rule_set, **settings)
