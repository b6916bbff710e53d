"""Builds the permission policy and the hooks of a session from the configuration.

The policy consists of rules, hidden tools and the secret redactor. Hooks come from the configuration, from front ends
and from programs; the hook modules are imported with the first hook.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from odin.config import Config, Options, get_config_dir, load
from odin.config.auth import read_auth_file
from odin.config.files import read_config_file
from odin.config.paths import CONFIG_NAME
from odin.config.settings import LayerDeclaration, McpServerSettings, merge_command_settings
from odin.config.trust import evaluate_trust
from odin.core.call_events import ToolEnded
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import ConfigError, UsageError
from odin.core.event import AnyEvent, Envelope, PromptInjected, TurnStarted
from odin.core.format import clip_line, pluralize
from odin.core.policy import (
    NO_HOOK_EFFECT,
    CallbackHook,
    CommandsAsk,
    HookCall,
    HookEffect,
    HookPoint,
    Redact,
    SessionRule,
)
from odin.core.root import Root
from odin.core.text import SAID_ONCE, find_similar, join_some
from odin.core.tool import ALIASES, Target, Tool, ToolSource, get_canonical_name
from odin.policy.modes import PermissionMode, parse_permission_mode
from odin.policy.rules.rule import Rule, RuleSet, find_objection, parse_rule
from odin.policy.rules.rule_file import RuleFile, RuleReader, build_list_rules
from odin.policy.secrets import Redactor
from odin.sandbox.runner import ProcessRunner

if TYPE_CHECKING:
    from odin.app.launcher import Launcher
    from odin.app.sandbox import LazySandbox
    from odin.context.library import CommandText
    from odin.hooks.session_hooks import SessionHooks
    from odin.policy.policy import Policy


RULES_NAME = "rules.json"

_LIST_KEYS = {
    "AllowedCommands": "allowed_commands",
    "ForbiddenCommands": "forbidden_commands",
    "allowed_tools": "allowed_tools",
    "disallowed_tools": "disallowed_tools",
}
_FLAG = "flag"
_MAX_NAMED_RULES = 5


_USER_MEMORY_RULE = "Memory(user)"
"""What the model keeps for every project needs approval."""


def parse_configured_rules(config: Config) -> tuple[Sequence[Rule], Sequence[str]]:
    """Return the permission rules of the settings, and warnings about those that are left out."""
    rules: list[Rule] = []
    warnings: list[str] = []
    every = [(key, declared) for key, declarations in config.declared.items() for declared in declarations]
    for key, declared in sorted(every, key=lambda item: not item[1].is_claude):
        if key in _LIST_KEYS:
            found, problems = _parse_rule_list(key, declared)
        elif key == "rules":
            parsed = RuleReader(declared.layer, declared.source, trusted=declared.trusted).read(declared.value)
            found = parsed.rules
            problems = _shorten_rule_warnings(parsed, declared) if declared.is_claude else parsed.warnings
        else:
            continue
        rules += found
        warnings += problems
    return rules, warnings


def _shorten_rule_warnings(parsed: RuleReader, declared: LayerDeclaration) -> Sequence[str]:
    """Return the problems with the rules of another agent in one sentence: it has written most of them itself.

    That rules of an untrusted folder allow nothing is reported with its other settings.
    """
    counted = [int(re.findall(r"\d+", at)[-1]) for at, why in parsed.problems if "not trusted" not in why]
    names = list(dict.fromkeys(clip_line(declared.value[number]["text"], 80) for number in counted))
    if not names:
        return ()
    some, what = join_some(names, _MAX_NAMED_RULES), pluralize(len(names), "rule is ignored", "rules are ignored")
    return (f"{declared.source}: {what}, as invalid or because any program could run: {some}. {SAID_ONCE}",)


def load_rule_set(
    config: Config,
    env: Mapping[str, str],
    configured: tuple[Sequence[Rule], Sequence[str]] | None = None,
    session: Iterable[SessionRule] = (),
    *,
    has_memory: bool = False,
    get_role: Callable[[], str] = lambda: "",
    roots: Sequence[Root] | None = None,
) -> RuleSet:
    """Return all permission rules. `session` are rules that an earlier run of this session added, `roots` the folders
    besides the project, if not those of the configuration."""
    rules, warnings = configured or parse_configured_rules(config)
    built_in = [parse_rule(_USER_MEMORY_RULE, "ask", "default", "built-in")] if has_memory else []
    store = RuleFile(get_config_dir(env) / RULES_NAME, config.root)
    rule_set = RuleSet((*built_in, *rules), store=store, get_role=get_role)
    of_roots, root_warnings = load_root_rules(config.roots if roots is None else roots, env)
    rule_set.set_root_rules(of_roots)
    rule_set.warnings = (*warnings, *root_warnings, *store.warnings)
    rule_set.restore(session)
    return rule_set


_PATH_TOOLS = ("Read", "EditTool", "WriteFile", "AppendFile", "MultiEditTool", "Delete", "Grep", "Glob", "LS")


def load_root_rules(roots: Iterable[Root], env: Mapping[str, str]) -> tuple[list[Rule], list[str]]:
    """Return the rules in the settings of the folders besides the project, and warnings.

    What they deny is denied everywhere. The others are about their own files; they allow something only in a trusted
    folder that is a project of its own.
    """
    rules: list[Rule] = []
    warnings: list[str] = []
    for root in roots:
        try:
            config = load(root.path, env, trust=root.trusted)
        except ConfigError as error:
            warnings.append(f"The rules of {root.path} are not used: {error.describe()}")
            continue
        own = {key: tuple(item for item in items if item.layer == "project") for key, items in config.declared.items()}
        found, problems = parse_configured_rules(msgspec.structs.replace(config, declared=own))
        allows = root.trusted and os.path.realpath(config.root) == root.path
        actions = {"ask", "allow"} if allows else {"ask"}
        rules += (
            msgspec.structs.replace(rule, root=os.path.realpath(config.root))
            for rule in found
            if rule.action == "deny" or (rule.action in actions and rule.tool in _PATH_TOOLS)
        )
        warnings += (text for text in problems if "not trusted" not in text)  # that is said about the folder
    return rules, warnings


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


def choose_permission_mode(config: Config, options: Options, earlier: str) -> PermissionMode:
    """Return the permission mode of a session. `earlier`, chosen in an earlier run, holds unless this run sets one."""
    return parse_permission_mode(earlier if earlier and not options.permission_mode else config.permission_mode)


class SessionPolicy:
    """The policy of a session and its permission mode.

    `readable` are folders of the session and of skills, `roots` those besides the project, if not the configured ones.
    """

    def __init__(
        self,
        config: Config,
        options: Options,
        environment: ExecutionEnvironment,
        rule_set: RuleSet,
        mode: PermissionMode,
        readable: Sequence[str],
        sandbox: "LazySandbox",
        roots: tuple[Root, ...] | None = None,
    ) -> None:
        self.roots = config.roots if roots is None else roots
        self.mode: PermissionMode = mode
        self._config = config
        self._options = options
        self._environment = environment
        self._rule_set = rule_set
        self._readable = readable
        self._sandbox = sandbox
        self._commands = merge_command_settings(config.declared.get("commands", ()))
        self.commands_ask: CommandsAsk = options.commands_ask or self._commands.ask
        self._policy: Policy | None = None

    def get(self) -> "Policy":
        """Return the policy now. It is loaded with the first call that is checked."""
        if self._policy is None:
            from odin.policy.policy import Policy

            self._policy = Policy(
                root=self._config.root,
                roots=self.roots,
                environment=self._environment,
                permission_mode=self.mode,
                yes=self._options.yes and not self._config.bypass_disabled_by,
                restrict_to_workspace=self._config.restrict_to_workspace,
                rule_set=self._rule_set,
                readable=self._readable,
                confinement=self._sandbox,
                commands_ask=self.commands_ask,
                read_secrets=self._commands.read_secrets,
            )
        return self._policy

    def set_roots(self, roots: tuple[Root, ...]) -> None:
        self.roots = roots
        if self._policy is not None:
            self._policy = self._policy.with_roots(roots)

    def refuse_import(self, path: str) -> str:
        """Return why an instruction file may not import this file without links, or "".

        What Read may read without asking may be imported.
        """
        policy = self.get()
        decision = policy.evaluate("Read", "read", policy.resolve(Target(paths=(path,))), "ask_mode")
        return "" if decision.action == "allow" else f"{decision.reason} {decision.hint}".rstrip()

    async def set_mode(self, name: str) -> PermissionMode:
        """Switch the permission mode and return its full name. Raise UsageError if it cannot be used here."""
        mode = parse_permission_mode(name)
        if mode == "bypassPermissions" and self._config.bypass_disabled_by:
            raise UsageError(f"{self._config.bypass_disabled_by} turns off bypassPermissions.", "Use auto.")
        if mode == "auto":
            await self._sandbox.examine(views=False)
        if why := self.explain_unusable_auto(mode):
            raise UsageError(why, "Use acceptEdits to allow edits only.")
        self.mode = mode
        self._policy = self.get().with_permission_mode(mode)
        return mode

    def explain_unusable_auto(self, mode: PermissionMode) -> str:
        """Return why commands would need approval although the permission mode is auto, or ""."""
        unconfined = self._sandbox.explain_unconfined() if mode == "auto" else ""
        return f"The permission mode auto needs a sandbox, and {unconfined}." if unconfined else ""


def find_hidden_tools(tools: Sequence[Tool[Any]], denials: Iterable[Rule], only: Iterable[str] | None) -> set[str]:
    """Return the tools not offered to the model: every call is denied, or they are not listed in `only`."""
    denied = [rule for rule in denials if rule.bare and not rule.exceptions]
    names = {tool.name for tool in tools if any(rule.matches_tool(tool.name, tool.server_tool) for rule in denied)}
    if "ExecuteCommand" in names:
        names.add("Spawn")
    if only is not None:
        offered = {get_canonical_name(name) for name in only}
        names |= {tool.name for tool in tools if tool.name not in offered}
    return names


class VisibleTools:
    """The tools of a source that no rule denies by name: those are not offered. Their calls are denied anyway."""

    def __init__(self, source: ToolSource, rule_set: RuleSet) -> None:
        self._source = source
        self._rule_set = rule_set

    @property
    def version(self) -> int:
        return self._source.version

    def list_tools(self) -> Sequence[Tool[Any]]:
        tools = self._source.list_tools()
        hidden = find_hidden_tools(tools, self._rule_set.deny_rules, None)
        return [tool for tool in tools if tool.name not in hidden] if hidden else tools

    def describe_to_model(self) -> str:
        return self._source.describe_to_model()


def list_unknown_tool_warnings(tools: Iterable[Tool[Any]], *given: Iterable[str]) -> list[str]:
    """Return a warning for every unknown tool name in the settings."""
    known = {*ALIASES, *(tool.name for tool in tools)}
    named = dict.fromkeys(text.partition("(")[0].strip() for texts in given for text in texts)
    unknown = [
        name for name in named if get_canonical_name(name) not in known and "*" not in name and name[:3] != "mcp"
    ]
    return [f"Unknown tool {name!r}; settings that name it have no effect.{_suggest_tool(name)}" for name in unknown]


def _suggest_tool(name: str) -> str:
    similar = find_similar(name, (word for tool, aliases in ALIASES.items() for word in (*aliases.split(), tool)))
    return f" Did you mean {get_canonical_name(similar)}?" if similar else ""


def build_redactor(config: Config, env: Mapping[str, str], past: Iterable[Envelope]) -> Redactor:
    """Return the redactor of a session. `past` are its earlier events, whose placeholders stay in the history."""
    redactor = Redactor(env, dict(_list_configured_secrets(config)))
    redactor.add_secrets(read_stored_keys(env))
    for envelope in past:
        if isinstance(envelope.event, ToolEnded):
            redactor.recall(envelope.event.redacted)
        elif isinstance(envelope.event, TurnStarted | PromptInjected):
            redactor.recall_from(envelope.event.notes)
    return redactor


def read_stored_keys(env: Mapping[str, str]) -> dict[str, str]:
    """Return all keys and tokens in auth.json, used or not, by names for their placeholders."""
    stored = read_auth_file(env)
    found: dict[str, str] = {}
    for provider, keys in stored.keys.items():
        found |= _list_keys(provider, keys)
    for name, text in stored.tokens.items():
        found |= _list_tokens(name, text)
    return found


def _list_keys(provider: str, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, key in enumerate(keys, 1):
        yield f"key of {provider}{f' ({number})' if number > 1 else ''}", key


def _list_tokens(name: str, text: str) -> dict[str, str]:
    try:
        stored = msgspec.json.decode(text, type=dict[str, dict[str, Any]])
    except msgspec.MsgspecError:
        return {f"tokens of {name}": text}
    values = {**stored.get("client", {}), **stored.get("tokens", {})}
    secret = ("access_token", "refresh_token", "client_secret")
    return {f"{kind} of {name}": str(values[kind]) for kind in secret if values.get(kind)}


def _list_configured_secrets(config: Config) -> Iterator[tuple[str, str]]:
    for name, settings in config.providers.items():
        yield from _list_keys(name, tuple(filter(None, (settings.api_key, *settings.api_keys))))
        yield from _list_passwords(name, base_url=settings.base_url, proxy=settings.proxy)
        yield from (
            (f"{header} of {name}", value) for header, value in settings.headers.items() if _is_secret_header(header)
        )
    yield "key of the search engine", config.web.search.api_key
    yield from _list_passwords("the catalog", catalog_url=config.catalog_url)
    yield "password of redis", config.redis.password
    if config.gateway:
        yield from config.read_gateway().list_secrets()
    yield from _list_passwords("redis", url=config.redis.url)
    yield from list_server_secrets(config.mcp)


def list_server_secrets(servers: Mapping[str, McpServerSettings]) -> Iterator[tuple[str, str]]:
    for name, server in servers.items():
        yield f"secret of {name}", server.oauth.client_secret
        yield from _list_passwords(name, url=server.url, **{f"args[{n}]": text for n, text in enumerate(server.args)})
        for key, value in (*server.headers.items(), *server.env.items()):
            if _is_secret_header(key):
                yield f"{key} of {name}", value.rpartition(" ")[2]


def _list_passwords(owner: str, **urls: str) -> Iterator[tuple[str, str]]:
    """Yield the passwords in these settings, as a program would send them."""
    for setting, url in urls.items():
        password = url.partition("://")[2].partition("/")[0].rpartition("@")[0].partition(":")[2]
        if password:
            yield f"password in {setting} of {owner}", unquote(password)


def _is_secret_header(header: str) -> bool:
    return any(part in header.lower() for part in ("auth", "key", "token", "secret", "cookie"))


def find_changed_plugin(config: Config, plugin: str) -> Sequence[str]:
    """Return the name of the plugin in this folder if it has changed since the session opened."""
    from odin.config.plugins import find_changed_files

    return find_changed_files(next(item for item in config.plugins if item.folder == plugin))


def is_command_trusted(config: Config, env: Mapping[str, str], text: "CommandText") -> bool:
    """True if what a slash command wants to run and allow is what the user trusts; its file may have changed since."""
    if text.command.source == "plugin":
        plugins = (item.folder for item in config.plugins if item.name == text.command.plugin)
        return not any(find_changed_plugin(config, folder) for folder in plugins)
    if not text.is_from_project:
        return True
    if not config.trust.trusted or config.trust.once:
        return config.trust.trusted
    try:
        written = read_config_file(Path(config.root, CONFIG_NAME))
    except ConfigError:
        return False
    return evaluate_trust(config.root, env, written).trusted


def _shorten_warnings(warnings: Sequence[str], declared: LayerDeclaration) -> Sequence[str]:
    """Return the warnings about hooks; those about a plugin in one sentence, because the user did not write them."""
    if not (declared.plugin or declared.is_claude) or len(warnings) < 2:
        return warnings
    first = warnings[0].removeprefix(f"{declared.source}: ")
    more = "See `odin plugin add`." if declared.plugin else f"The first: {first}"
    return (f"{declared.source}: {len(warnings)} settings of its hooks are ignored. {more}",)


class HookFacts(msgspec.Struct, frozen=True):
    """What every hook call receives about the session."""

    id: str
    transcript: str
    cwd: str
    root: str
    permission_mode: Callable[[], str]
    model: Callable[[], str]
    folders_of: Callable[[str], tuple[str, str] | None]
    bytecode: str = ""
    is_debugging: bool = False


class HookSet:
    """All hooks of a session. `warnings` list the problems of configured hooks."""

    def __init__(
        self,
        declarations: Sequence[LayerDeclaration],
        facts: HookFacts,
        *,
        runner: ProcessRunner,
        emit: Callable[[AnyEvent, str], object],
        redact: Redact,
        launcher: "Launcher",
        find_changed_plugin: Callable[[str], Sequence[str]],
    ) -> None:
        self.warnings: tuple[str, ...] = ()
        self._facts = facts
        self._runner = runner
        self._emit = emit
        self._redact = redact
        self._launcher = launcher
        self._find_changed_plugin = find_changed_plugin
        self._hooks: SessionHooks | None = None
        trusted = [item for item in declarations if item.trusted and item.value]
        if trusted:
            self._add_declared(trusted)

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        return self._hooks is not None and self._hooks.has_hook_for(point, tool)

    async def fire(self, call: HookCall) -> HookEffect:
        return NO_HOOK_EFFECT if self._hooks is None else await self._hooks.fire(call)

    @property
    def has_status_line(self) -> bool:
        """True if a program writes the status line."""
        return self._hooks is not None and self._hooks.has_status_line

    async def read_status_line(self, facts: dict[str, Any]) -> str:
        return await self._hooks.read_status_line(facts) if self._hooks is not None and self.has_status_line else ""

    def add(self, hook: CallbackHook) -> None:
        from odin.hooks.declaration import make_callback_hook

        try:
            self._load_hooks().add(make_callback_hook(hook))
        except ValueError as error:
            raise UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}") from None

    def _add_declared(self, declarations: Sequence[LayerDeclaration]) -> None:
        """Add the user's hooks first, then the project's."""
        from odin.hooks.declaration import parse_hooks

        parsed = [(parse_hooks(item.value, item.source, item.hook_prefix), item) for item in declarations]
        self.warnings = tuple(warning for hooks, item in parsed for warning in _shorten_warnings(hooks.warnings, item))
        for hooks, item in parsed:
            for hook in hooks.hooks:
                is_project = item.layer == "project" or self._launcher.is_project_plugin(item.plugin)
                own = msgspec.structs.replace(hook, project=is_project, plugin=item.plugin)
                self._load_hooks().add(own)

    def _load_hooks(self) -> "SessionHooks":
        if self._hooks is None:
            from odin.hooks.session_hooks import HookSession, SessionHooks

            session = HookSession(**msgspec.structs.asdict(self._facts))
            self._hooks = SessionHooks(
                (),
                session,
                self._runner,
                self._emit,
                self._redact,
                plan_start=self._launcher.plan_hook,
                find_changed_plugin=self._find_changed_plugin,
            )
        return self._hooks
