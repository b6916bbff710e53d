"""The rules of a session: from the settings, from what the person has remembered, and from the session itself.

Which tools the settings hide, and which names in the settings no tool has.

The secrets of one session: those of its environment and of the user's own settings, which nobody shall read.
"""

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


def find_hidden_tools(tools: Sequence[Tool[Any]], denials: Iterable[Rule], wanted: Iterable[str] | None) -> set[str]:
    """The tools of which every call is denied, or that are not among the wanted ones: no model needs to know them."""
    denied = [rule for rule in denials if rule.bare and not rule.exceptions]
    names = {tool.name for tool in tools if any(rule.matches_tool(tool.name) for rule in denied)}
    if "ExecuteCommand" in names:
        names.add("Spawn")
    if wanted is not None:
        named = {canonical_name_of(name) for name in wanted}
        names |= {tool.name for tool in tools if tool.name not in named}
    return names


def warn_of_unknown_tools(tools: Iterable[Tool[Any]], *given: Iterable[str]) -> list[str]:
    """A warning for every tool that is named somewhere and that nobody knows."""
    known = {*ALIASES, *(tool.name for tool in tools)}
    named = dict.fromkeys(text.partition("(")[0].strip() for texts in given for text in texts)
    strange = [name for name in named if canonical_name_of(name) not in known and "*" not in name and name[:3] != "mcp"]
    return [
        f"There is no tool {name!r}, so the settings that name it do nothing.{_suggest_tool(name)}" for name in strange
    ]


def _suggest_tool(name: str) -> str:
    import difflib

    words = {word.casefold(): word for tool, aliases in ALIASES.items() for word in (*aliases.split(), tool)}
    near = difflib.get_close_matches(name.casefold(), words, n=1)
    return f" Did you mean {canonical_name_of(words[near[0]])}?" if near else ""


def build_redactor(config: Config, env: Mapping[str, str], past: Iterable[Envelope]) -> Redactor:
    """`past` is what an earlier run of the session recorded: what was taken out then still stands in the history."""
    made = Redactor(env, {**dict(_list_configured_secrets(config)), **read_stored_keys(env)})
    for envelope in past:
        if isinstance(envelope.event, ToolEnded):
            made.recall(envelope.event.redacted)
        elif isinstance(envelope.event, TurnStarted | PromptInjected):
            made.recall_from(envelope.event.notes)
    return made


def read_stored_keys(env: Mapping[str, str]) -> dict[str, str]:
    """The keys of auth.json by names that say whose they are; also those that are not in use."""
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
