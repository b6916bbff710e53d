"""Builds the permission policy of a session from the configuration: rules, hidden tools, and the secret redactor."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from odin.config import Config, Options, get_config_dir
from odin.config.auth import read_auth_file
from odin.config.settings import LayerDeclaration
from odin.core.errors import UsageError
from odin.core.event import Envelope, PromptInjected, ToolEnded, TurnStarted
from odin.core.policy import RuleAction
from odin.core.registry import ALIASES, canonical_name_of
from odin.core.tool import Tool
from odin.policy.modes import permission_mode_of
from odin.policy.policy import Policy
from odin.policy.rules.rule import Rule, RuleSet, find_objection
from odin.policy.rules.rule_file import RuleFile, RuleReader, build_list_rules
from odin.policy.secrets import Redactor

RULES_NAME = "rules.json"

_LIST_KEYS = {
    "AllowedCommands": "allowed_commands",
    "ForbiddenCommands": "forbidden_commands",
    "allowed_tools": "allowed_tools",
    "disallowed_tools": "disallowed_tools",
}
_FLAG = "flag"


def load_rule_set(config: Config, env: Mapping[str, str], session: Iterable[tuple[str, RuleAction]] = ()) -> RuleSet:
    """Return all permission rules. `session` are rules that an earlier run of this session added."""
    rules: list[Rule] = []
    warnings: list[str] = []
    for key, declarations in config.declared.items():
        for declared in declarations:
            if key in _LIST_KEYS:
                found, problems = _parse_rule_list(key, declared)
            elif key == "rules":
                parsed = RuleReader(declared.layer, declared.source, trusted=declared.trusted).read(declared.value)
                found, problems = parsed.rules, parsed.warnings
            else:
                continue
            rules += found
            warnings += problems
    store = RuleFile(get_config_dir(env) / RULES_NAME, config.root)
    rule_set = RuleSet(rules, store=store, warnings=warnings)
    rule_set.warnings = (*warnings, *store.warnings)
    rule_set.restore(session)
    return rule_set


def _parse_rule_list(key: str, declared: LayerDeclaration) -> tuple[list[Rule], list[str]]:
    """Parse a list such as allowed_tools. An invalid flag raises UsageError; an invalid file entry is a warning."""
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
    config: Config, options: Options, cwd: str, rule_set: RuleSet, chosen: str = "", readable: str = ""
) -> Policy:
    """Return the policy of a session. `readable` is the session's folder.

    `chosen` is the permission mode set in an earlier run; it is restored unless this run sets one, except for
    bypassPermissions, which must be set again each time.
    """
    restored = chosen and chosen != "bypassPermissions" and not options.permission_mode
    return Policy(
        root=config.root,
        cwd=cwd,
        permission_mode=permission_mode_of(chosen) if restored else config.permission_mode,
        yes=options.yes,
        restrict_to_workspace=config.restrict_to_workspace,
        rule_set=rule_set,
        readable=readable,
    )


def find_hidden_tools(tools: Sequence[Tool[Any]], denials: Iterable[Rule], only: Iterable[str] | None) -> set[str]:
    """Return the tools not offered to the model: every call is denied, or they are not listed in `only`."""
    denied = [rule for rule in denials if rule.bare and not rule.exceptions]
    names = {tool.name for tool in tools if any(rule.matches_tool(tool.name) for rule in denied)}
    if "ExecuteCommand" in names:
        names.add("Spawn")
    if only is not None:
        offered = {canonical_name_of(name) for name in only}
        names |= {tool.name for tool in tools if tool.name not in offered}
    return names


def warn_of_unknown_tools(tools: Iterable[Tool[Any]], *given: Iterable[str]) -> list[str]:
    """Return a warning for every unknown tool name in the settings."""
    known = {*ALIASES, *(tool.name for tool in tools)}
    named = dict.fromkeys(text.partition("(")[0].strip() for texts in given for text in texts)
    unknown = [name for name in named if canonical_name_of(name) not in known and "*" not in name and name[:3] != "mcp"]
    return [f"Unknown tool {name!r}; settings that name it have no effect.{_suggest_tool(name)}" for name in unknown]


def _suggest_tool(name: str) -> str:
    import difflib

    words = {word.casefold(): word for tool, aliases in ALIASES.items() for word in (*aliases.split(), tool)}
    matches = difflib.get_close_matches(name.casefold(), words, n=1)
    return f" Did you mean {canonical_name_of(words[matches[0]])}?" if matches else ""


def build_redactor(config: Config, env: Mapping[str, str], past: Iterable[Envelope]) -> Redactor:
    """Return the redactor of a session. `past` are its earlier events, whose placeholders stay in the history."""
    redactor = Redactor(env, {**dict(_list_configured_secrets(config)), **read_stored_keys(env)})
    for envelope in past:
        if isinstance(envelope.event, ToolEnded):
            redactor.recall(envelope.event.redacted)
        elif isinstance(envelope.event, TurnStarted | PromptInjected):
            redactor.recall_from(envelope.event.notes)
    return redactor


def read_stored_keys(env: Mapping[str, str]) -> dict[str, str]:
    """Return all keys in auth.json, used or not, by names for their placeholders."""
    return {
        f"key of {provider}{f' ({number})' if number > 1 else ''}": key
        for provider, keys in read_auth_file(env).keys.items()
        for number, key in enumerate(keys, 1)
    }


def _list_configured_secrets(config: Config) -> Iterator[tuple[str, str]]:
    for name, settings in config.providers.items():
        yield f"key of {name}", settings.api_key
        yield from (
            (f"{header} of {name}", value) for header, value in settings.headers.items() if _is_secret_header(header)
        )
    yield "key of the search engine", config.web.search.api_key


def _is_secret_header(header: str) -> bool:
    return any(part in header.lower() for part in ("auth", "key", "token", "secret", "cookie"))
