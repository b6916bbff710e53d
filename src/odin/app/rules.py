"""The rules of a session: from the settings, from what the person has remembered, and from the session itself."""

from collections.abc import Iterable, Mapping

from odin.config import Config, Options, get_config_dir
from odin.config.keys import LayerDeclaration
from odin.core.errors import UsageError
from odin.core.rule import RuleAction
from odin.policy.modes import permission_mode_of
from odin.policy.rule.book import RuleSet
from odin.policy.rule.file import RuleFile
from odin.policy.rule.rule import Rule, find_objection
from odin.policy.rule.shapes import RuleReader, build_list_rules
from odin.policy.rules import Policy

RULES_NAME = "rules.json"

_LIST_KEYS = {
    "AllowedCommands": "allowed_commands",
    "ForbiddenCommands": "forbidden_commands",
    "allowed_tools": "allowed_tools",
    "disallowed_tools": "disallowed_tools",
}
_FLAG = "flag"


def load_rule_set(config: Config, env: Mapping[str, str], session: Iterable[tuple[str, RuleAction]] = ()) -> RuleSet:
    """`session` are the rules an earlier run of the same session remembered for itself."""
    rules: list[Rule] = []
    warnings: list[str] = []
    for key, declarations in config.declared.items():
        for declared in declarations:
            if key in _LIST_KEYS:
                found, said = _parse_rule_list(key, declared)
            elif key == "rules":
                shapes = RuleReader(declared.layer, declared.source, trusted=declared.trusted).read(declared.value)
                found, said = shapes.rules, shapes.warnings
            else:
                continue
            rules += found
            warnings += said
    store = RuleFile(get_config_dir(env) / RULES_NAME, config.root)
    book = RuleSet(rules, store=store, warnings=warnings)
    book.warnings = (*warnings, *store.warnings)
    book.restore(session)
    return book


def _parse_rule_list(key: str, declared: LayerDeclaration) -> tuple[list[Rule], list[str]]:
    """One of the plain lists. A flag that is no rule stops the start; an entry of a file is reported and ignored."""
    rules: list[Rule] = []
    warnings: list[str] = []
    given = declared.source == _FLAG
    for number, text in enumerate(declared.value):
        at = f"--{key.replace('_', '-')}" if given else f"{declared.source}: {key}[{number}]"
        where = "" if given else declared.source
        try:
            found = build_list_rules(
                **{_LIST_KEYS[key]: [text]}, layer="session" if given else declared.layer, where=where
            )
        except UsageError as error:
            if given:
                raise
            warnings.append(f"{at} is ignored: {error}")
            continue
        for rule in found:
            why = find_objection(rule)
            if why:
                warnings.append(f"{at} is ignored: {why}")
            else:
                rules.append(rule)
    return rules, warnings


def policy_of(
    config: Config, options: Options, cwd: str, rulebook: RuleSet, chosen: str = "", readable: str = ""
) -> Policy:
    """`readable` is the folder of the session; `chosen` the permission mode a person chose in an earlier run of it.

    It holds again unless this run was given one. That nothing is asked about at all has to be said anew each time.
    """
    again = chosen and chosen != "bypassPermissions" and not options.permission_mode
    return Policy(
        root=config.root,
        cwd=cwd,
        permission_mode=permission_mode_of(chosen) if again else config.permission_mode,
        yes=options.yes,
        restrict_to_workspace=config.restrict_to_workspace,
        rule_set=rulebook,
        readable=readable,
    )
