"""The slash commands that work alike in every front end.

An action runs a command with the text typed after its name and returns the message to show. Plain mode and the app run
these actions and add their own handlers only for commands that draw something: lists, pickers, dialogs. Text and
parsing of /rules, /permissions and /yolo are here, too; those of other commands in `sessions` and `reports`.
"""

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Struct

from odin.core.client import Client, SessionInfo, Sessions
from odin.core.errors import OdinError, UsageError
from odin.core.event_values import Mode
from odin.core.format import pluralize
from odin.core.op import (
    BYPASS_PERMISSIONS,
    PREVIOUS_PERMISSION_MODE,
    AddRoot,
    AddRule,
    AddSchedule,
    CancelCompaction,
    Compact,
    Continue,
    RemoveLastMessage,
    RemoveRoot,
    RemoveRule,
    RemoveSchedule,
    SetBudget,
    SetEffort,
    SetLoop,
    SetModel,
    SetPermissionMode,
    SetRole,
)
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.core.provider import EFFORTS
from odin.core.root import Root
from odin.core.schedule import format_local
from odin.core.slash_commands import SLASH_COMMANDS, find_slash_command, make_argument_error, make_usage_error
from odin.core.text import list_choices, suggest_similar
from odin.ui.progress import SCOPE_WORDS
from odin.ui.slash_commands.agents import end_agent, find_focus
from odin.ui.slash_commands.extensions import (
    change_memory,
    change_servers,
    parse_memory_change,
    switch_language_servers,
)
from odin.ui.slash_commands.reports import can_resume_work, describe_budget, parse_budget
from odin.ui.slash_commands.sessions import change_queued_prompt, describe_loop_status, find_prompt, parse_export
from odin.ui.terminal import escape_hidden, shorten_home

_ADD_USAGE = "Usage: /rules add [--deny|--ask] [--project|--user] RULE, for example /rules add Bash(git push:*)"

_ACTION_OPTIONS: dict[str, RuleAction] = {"--allow": "allow", "--ask": "ask", "--deny": "deny"}
_SCOPE_OPTIONS: dict[str, RememberScope] = {"--session": "session", "--project": "project", "--user": "user"}


def format_rules(rules: Sequence[RuleLine]) -> str:
    """Return one line for each rule; rules that cannot be removed here have no number."""
    if not rules:
        return "No rules besides the defaults. /rules add RULE adds one.\n"
    lines: list[str] = []
    for rule in rules:
        number = str(rule.number) if rule.number else "–"
        origin = f"   ({escape_hidden(rule.origin)})" if rule.origin else ""
        lines.append(f"{number:>3}  {rule.layer:<8} {rule.action:<6} {escape_hidden(rule.text)}{origin}")
    if any(rule.number for rule in rules):
        lines.append("/rules remove N removes a numbered rule.")
    return "\n".join(lines) + "\n"


def parse_rule(text: str) -> AddRule:
    """Parse the arguments of `/rules add`. Raise UsageError for an unknown option or a missing rule."""
    action: RuleAction = "allow"
    scope: RememberScope = "session"
    rest = text.strip()
    while rest.startswith("--"):
        word, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        if word in _ACTION_OPTIONS:
            action = _ACTION_OPTIONS[word]
        elif word in _SCOPE_OPTIONS:
            scope = _SCOPE_OPTIONS[word]
        else:
            raise UsageError(f"Unknown option {word!r}.", _ADD_USAGE)
    if not rest:
        raise UsageError("/rules add needs a rule.", _ADD_USAGE)
    return AddRule(rest, action, scope)


def find_rule(rules: Sequence[RuleLine], text: str) -> RuleLine:
    """Return the rule with this number. Raise UsageError if there is none."""
    number = int(text) if text.isdecimal() and len(text) < 7 else 0
    found = next((rule for rule in rules if number and rule.number == number), None)
    if found is None:
        raise UsageError(f"No rule number {text!r}.", "/rules lists the rules.")
    return found


PERMISSION_MODES = "default, acceptEdits, auto, dontAsk, bypassPermissions"


COMPACTION_CANCELED = "Compaction canceled."
_TOO_SHORT = "Nothing was compacted: the conversation is too short."
_ALREADY_COMPACTING = "Compaction is already running. /compact cancel stops it."


class CommandContext(Struct, frozen=True):
    """The state that actions use. `mode` is for the next prompt; `expect_turn` is called before a turn starts,
    `record_role` and `record_permission_mode` with what holds after a switch. A front end that keeps its session has no
    `all_sessions`."""

    client: Client
    mode: Mode
    all_sessions: Sessions | None = None
    expect_turn: Callable[[], None] = lambda: None
    record_role: Callable[[str], None] = lambda role: None
    record_permission_mode: Callable[[str], None] = lambda mode: None

    @property
    def sessions(self) -> Sessions:
        if self.all_sessions is None:
            raise UsageError("This works only in the app and in plain mode.", "`odin --help` lists the subcommands.")
        return self.all_sessions

    async def get_session_id(self) -> str:
        return (await self.client.get_info()).session


Action = Callable[[CommandContext, str], Awaitable[str]]


_COMMAND_WORD = re.compile(r"/[A-Za-z][\w:-]*")


async def refuse_unknown_command(client: Client, text: str, hint: str = "/help lists the commands.") -> None:
    """Raise UsageError if the text starts like a slash command, but there is none of that name.

    A path such as `/tmp/log` or `/etc` begins a prompt, and so does a space before the slash.
    """
    word = text.split(None, 1)[0] if text[:1] == "/" and text.strip() else ""
    if not _COMMAND_WORD.fullmatch(word) or find_slash_command(word) is not None or os.path.lexists(word):
        return
    custom = [name for command in await client.list_commands() for name in command.names]
    if word[1:].casefold() in map(str.casefold, custom):
        return
    names = (name for command in SLASH_COMMANDS for name in (command.name, *command.aliases))
    suggestion = suggest_similar(word[1:], (*names, *custom), "/{}")
    raise UsageError(
        f"Unknown command {word}.{suggestion}",
        f"{hint} To send it to the model, type a space before the slash.",
    )


# --- the running turn, the queue and the conversation ---


async def continue_turn(ctx: CommandContext, rest: str) -> str:
    ctx.expect_turn()
    await ctx.client.submit(Continue(os.urandom(6).hex()))
    return ""


async def forget_last_message(ctx: CommandContext, rest: str) -> str:
    removed = await ctx.client.submit(RemoveLastMessage())
    return "Removed the last message from the conversation." if removed else "No message to remove."


def _parse_loop_limit(text: str) -> tuple[int, str]:
    """Return the number after `--limit`, or 0, and the goal."""
    flag, _, rest = text.partition(" ")
    name, equals, value = flag.partition("=")
    if name != "--limit":
        return 0, text
    if not equals:
        value, _, rest = rest.strip().partition(" ")
    if not value.isdecimal() or not int(value):
        raise make_argument_error("loop", f"{flag} {value}".strip() if not equals else flag)
    return int(value), rest.strip()


async def set_loop(ctx: CommandContext, rest: str) -> str:
    """Switch loop mode of the main agent, or of the sub-agent named with `@NAME`, and return the message to show."""
    named, _, more = rest.partition(" ") if rest.startswith("@") else ("", "", rest)
    agent = await find_focus(ctx.client, named[1:]) if named else ""
    verb, _, goal = more.strip().partition(" ")
    if verb == "off":
        number = goal.strip()
        ended = await end_schedules(ctx, "loop", number, repeats=True) if not agent else ""
        stopped = not number and await ctx.client.submit(SetLoop(False, agent=agent))
        return "" if stopped and not ended else ended or "Loop mode is already off."
    if verb == "every":
        every, _, text = goal.strip().partition(" ")
        limit, text = _parse_loop_limit(text.strip())
        if agent or not text:
            raise make_usage_error("loop", "/loop every needs an interval and a prompt, and no agent.")
        await ctx.client.submit(AddSchedule(text, every=every, mode=ctx.mode, limit=limit))
        return await describe_schedules(ctx, repeats=True)
    if verb == "on":
        if not agent:
            ctx.expect_turn()
        limit, goal = _parse_loop_limit(goal.strip())
        await ctx.client.submit(SetLoop(True, goal, None if agent else ctx.mode, limit, agent))
    elif verb:
        raise make_argument_error("loop", verb)
    status = describe_loop_status(await ctx.client.get_loop_status(agent))
    if agent:
        return f"{escape_hidden(agent)}: {status}"
    return " ".join(filter(None, (status, await describe_schedules(ctx, repeats=True))))


async def describe_schedules(ctx: CommandContext, *, repeats: bool) -> str:
    """Return the schedules of the session that repeat, or those that do not, in one line."""
    found = [item for item in (await ctx.client.snapshot()).schedules if bool(item.schedule.every) == repeats]
    return "; ".join(
        escape_hidden(f"{item.id}. {item.describe()} (next {format_local(item.due)}, {item.limit - item.runs} to go)")
        if repeats
        else escape_hidden(f"{item.id}. {item.describe()}")
        for item in found
    )


async def end_schedules(ctx: CommandContext, name: str, number: str, *, repeats: bool) -> str:
    """End one schedule, or all that repeat, or all that do not. Return what to say; "" if there is none."""
    known = [item.id for item in (await ctx.client.snapshot()).schedules if bool(item.schedule.every) == repeats]
    if number and number not in known:
        raise make_usage_error(name, f"There is no schedule {number!r}.")
    for one in [number] if number else known:
        await ctx.client.submit(RemoveSchedule(one))
    return f"Ended {pluralize(1 if number else len(known), 'schedule')}." if known else ""


async def set_time(ctx: CommandContext, rest: str) -> str:
    """Send a prompt at a time, end such a schedule, or list them."""
    words = rest.split()
    if words[:1] == ["off"]:
        return await end_schedules(ctx, "at", " ".join(words[1:]), repeats=False) or "Nothing is scheduled."
    if words:
        count = 2 if words[0] == "in" or (len(words) > 1 and re.fullmatch(r"\d+-\d+-\d+", words[0])) else 1
        text = rest.split(None, count)[count:]
        if not text:
            raise make_usage_error("at", "/at needs a time and a prompt.")
        await ctx.client.submit(AddSchedule(text[0], at=" ".join(words[:count]), mode=ctx.mode))
    return await describe_schedules(ctx, repeats=False) or "Nothing is scheduled."


async def compact(ctx: CommandContext, rest: str) -> str:
    if rest == "cancel":
        return COMPACTION_CANCELED if await ctx.client.submit(CancelCompaction()) else "No compaction is running."
    was_running = (await ctx.client.report_context()).compacting
    if await ctx.client.submit(Compact(rest)):
        return ""
    return _ALREADY_COMPACTING if was_running else _TOO_SHORT


async def set_role(ctx: CommandContext, rest: str) -> str:
    """Switch the role, if one is named, and return the message to show."""
    roles = {agent.name: agent.description for agent in await ctx.client.list_agents() if agent.is_role}
    if not rest:
        role = (await ctx.client.get_info()).role
        return escape_hidden(f"Role: {role} (one of {', '.join(roles)})")
    before = await ctx.client.get_info()
    await ctx.client.submit(SetRole(rest))
    info = await ctx.client.get_info()
    ctx.record_role(info.role)
    model = f" Model: {info.model}." if info.model != before.model else ""
    return escape_hidden(f"Role: {info.role}. {roles.get(info.role, '')}{model}".strip())


# --- permissions ---


def describe_entered_mode(before: str, mode: str) -> str:
    """Return what to say if the session that was entered has another permission mode than the one before, if any."""
    return f"Permission mode: {mode}" if before not in ("", mode) else ""


async def set_permission_mode(ctx: CommandContext, rest: str) -> str:
    """Set the permission mode, if one is given, and return the message to show."""
    if not rest:
        mode = (await ctx.client.get_info()).permission_mode
        return f"Permission mode: {mode} (one of {PERMISSION_MODES})"
    return f"Permission mode: {await _switch_permission_mode(ctx, rest)}"


async def set_yolo(ctx: CommandContext, rest: str) -> str:
    word = rest.casefold()
    if word == "on":
        await _switch_permission_mode(ctx, BYPASS_PERMISSIONS)
        return "Permission prompts are off. Deny rules and built-in protections still apply. /yolo off undoes this."
    if word == "off":
        mode = await _switch_permission_mode(ctx, PREVIOUS_PERMISSION_MODE)
        return f"Permission prompts are on. Permission mode: {mode}"
    if word:
        raise make_argument_error("yolo", word)
    mode = (await ctx.client.get_info()).permission_mode
    return f"/yolo is {'on' if mode == BYPASS_PERMISSIONS else 'off'}. Permission mode: {mode}"


async def _switch_permission_mode(ctx: CommandContext, mode: str) -> str:
    """Return the permission mode that holds after the switch."""
    await ctx.client.submit(SetPermissionMode(mode))
    now = (await ctx.client.get_info()).permission_mode
    ctx.record_permission_mode(now)
    return now


# --- sessions ---


async def rename_session(ctx: CommandContext, title: str) -> str:
    if not title:
        raise make_usage_error("rename", "/rename needs a title.")
    await ctx.sessions.rename(await ctx.get_session_id(), title)
    return f"Renamed this session to {escape_hidden(title)}"


async def delete_session(ctx: CommandContext, session: str) -> str:
    """Delete the session with exactly this ID. Return "" if there is none: parts of an ID or title delete nothing."""
    if not session:
        raise make_usage_error("delete", "/delete needs a session ID.")
    if not any(item.id == session for item in await ctx.sessions.list_sessions()):
        return ""
    await ctx.sessions.delete(session)
    return f"Deleted session {session}."


async def export_session(ctx: CommandContext, rest: str) -> str:
    form, path = parse_export(rest.split())
    info = await ctx.client.get_info()
    target = str(Path(info.cwd, Path(path).expanduser())) if path else ""
    return f"Exported to {escape_hidden(await ctx.sessions.export(info.session, form, target))}"


async def find_fork_turn(client: Client, number: str) -> str:
    """Return the ID of the prompt that `/fork N` names, or "" without a number."""
    return find_prompt((await client.snapshot()).prompts, number).id if number else ""


# --- model and cost ---


_MAX_SHOWN_MODELS = 5

SESSION_OPTION = "--session"
"""After a choice that is saved otherwise: it holds only for this session."""


AGENT_OPTION = "--agent"
DEFAULT_MODEL = "default"
"""The name that restores the configured model or pool, and for a sub-agent the model of the main agent."""


async def set_model(ctx: CommandContext, rest: str) -> str:
    first, _, url = rest.partition(" ")
    if first == "add":
        return await _add_server(ctx, url.strip())
    rest, agent = split_agent_option(rest)
    name, is_saved = split_session_option(rest)
    if not name:
        raise make_usage_error("model", "No model was named.")
    ref = "" if name == DEFAULT_MODEL else name
    await ctx.client.submit(SetModel(ref, check=bool(ref), agent=agent))
    if agent:
        return escape_hidden(f"{agent} uses {'the model of the main agent' if not ref else name} from now on.")
    info = await ctx.client.get_info()
    if info.pool:
        return escape_hidden(f"Pool {info.pool}: {info.model}. Remembered for this project. {info.notice}".rstrip())
    saved = "" if not ref else "Only for this session."
    if ref and is_saved:
        saved = await save_choice(ctx.sessions, "model", info.model)
    return escape_hidden(" ".join(f"Model set to {info.model}. {saved} {info.notice}".split()))


async def set_effort(ctx: CommandContext, rest: str) -> str:
    """Set the reasoning effort, if one is named, and return the message to show."""
    rest, agent = split_agent_option(rest, "effort")
    effort, is_saved = split_session_option(rest)
    if not effort:
        info = await ctx.client.get_info()
        return escape_hidden(f"Effort: {info.effort or 'default'} ({info.model})")
    effort = effort.casefold()
    if effort not in (*EFFORTS, DEFAULT_MODEL):
        suggestion = suggest_similar(effort, EFFORTS)
        raise make_usage_error("effort", f"Unknown effort {effort!r}.{suggestion} Use {list_choices(EFFORTS)}.")
    level = "" if effort == DEFAULT_MODEL else effort
    await ctx.client.submit(SetEffort(level, agent))
    if agent:
        return escape_hidden(f"{agent} uses the effort {effort} from now on.")
    saved = "" if not level else "Only for this session."
    if level and is_saved:
        saved = await save_choice(ctx.sessions, "effort", level)
    return f"Effort set to {effort}. {saved}".rstrip()


def split_agent_option(rest: str, command: str = "model") -> tuple[str, str]:
    """Return the arguments without `--agent NAME`, and the agent's name."""
    words = rest.split()
    if AGENT_OPTION not in words:
        return rest, ""
    at = words.index(AGENT_OPTION)
    if at + 1 == len(words):
        raise make_usage_error(command, "--agent needs the name of an agent.")
    return " ".join((*words[:at], *words[at + 2 :])), words[at + 1]


def is_model_choice(rest: str, pools: Sequence[str]) -> bool:
    """True if the arguments of `/models` choose something: a pool, the default, or a model for an agent."""
    return AGENT_OPTION in rest.split() or rest.strip() in (DEFAULT_MODEL, *pools)


async def _add_server(ctx: CommandContext, url: str) -> str:
    if not url:
        raise make_usage_error("model", "No URL was given.")
    models = await ctx.sessions.add_server(url)
    shown = ", ".join(models[:_MAX_SHOWN_MODELS])
    more = f" and {len(models) - _MAX_SHOWN_MODELS} more" if len(models) > _MAX_SHOWN_MODELS else ""
    return escape_hidden(f"Added {shown}{more}. Use one with /model {models[0]}")


def split_session_option(rest: str) -> tuple[str, bool]:
    """Return the arguments without `--session`, and whether the choice is to be saved."""
    words = rest.split()
    return " ".join(word for word in words if word != SESSION_OPTION), SESSION_OPTION not in words


async def save_choice(sessions: Sessions, key: str, value: str) -> str:
    """Save a setting for later runs and return where; an error is only told, for the choice itself holds."""
    try:
        saved = await sessions.save_setting(key, value)
    except OdinError as error:
        return f"It could not be saved: {error.describe()}"
    override = f" {shorten_home(saved.overridden_by)} overrides it here." if saved.overridden_by else ""
    return f"Saved in {shorten_home(saved.path)}.{override}"


async def set_budget(ctx: CommandContext, rest: str) -> str:
    """Set the budget, and continue work that the previous budget stopped."""
    amount = parse_budget(rest)
    await ctx.client.submit(SetBudget(amount))
    if can_resume_work(await ctx.client.snapshot(), amount):
        await continue_turn(ctx, "")
    return describe_budget(amount)


# --- permissions ---


async def change_rules(ctx: CommandContext, rest: str) -> str:
    verb, _, text = rest.partition(" ")
    if verb == "add":
        op = parse_rule(text)
        await ctx.client.submit(op)
        return f"Rule added {SCOPE_WORDS[op.scope]}: {op.action} {escape_hidden(op.text)}"
    if verb == "remove":
        rule = find_rule(await ctx.client.list_rules(), text.strip())
        await ctx.client.submit(RemoveRule(rule.number))
        return f"Rule removed: {rule.action} {escape_hidden(rule.text)}"
    raise make_argument_error("rules", verb)


async def change_roots(ctx: CommandContext, rest: str) -> str:
    """Add or remove a folder besides the project, or list them."""
    if not rest:
        return format_roots(await ctx.client.get_info())
    verb, _, path = rest.partition(" ")
    if verb == "remove" and path.strip():
        await ctx.client.submit(RemoveRoot(path.strip()))
        return f"Folder removed: {escape_hidden(path.strip())}"
    changed = await ctx.client.submit(AddRoot(rest))
    added = (await ctx.client.get_info()).roots
    return _format_root(added[-1], "Folder added: ") if changed and added else "This folder was added already."


def format_roots(info: SessionInfo) -> str:
    """Return the project and the folders besides it, one per line."""
    lines = [f"{escape_hidden(info.root)} (the project)", *map(_format_root, info.roots)]
    return "\n".join(lines if info.roots else [*lines, "/add-dir PATH adds a folder, PATH:ro a read-only one."])


def _format_root(root: Root, before: str = "") -> str:
    return f"{before}{escape_hidden(root.path)} ({root.describe()})"


# --- /show, /list and /switch ---

_SYNONYMS = {
    "mcp": {"status": "mcp"},
    "show": {"": "diagnostics", "rules": "rules", "context": "context", "role": "role"},
    "list": {
        "": "help",
        "models": "models",
        "sessions": "sessions",
        "rules": "rules",
        "commands": "commands",
        "skills": "skills",
    },
    "switch": {"model": "model", "role": "role", "mode ask": "ask", "mode plan": "plan", "mode edit": "edit"},
}


def resolve_synonym(name: str, rest: str) -> tuple[str, str]:
    """Return the command and arguments that a line stands for: `/list models` is `/models`."""
    words = " ".join(rest.split())
    if name == "switch":
        words = words.replace(" to ", " ", 1)
    if command := _SYNONYMS.get(name, {}).get(words.casefold()):
        return command, ""
    first, _, more = words.partition(" ")
    return (first, more) if name == "switch" and first in ("model", "role") else (name, rest)


async def show_setting(ctx: CommandContext, rest: str) -> str:
    info, word = await ctx.client.get_info(), rest.casefold()
    if word == "model":
        return f"Model: {escape_hidden(info.model)}"
    if word == "mode":
        return f"Mode: {ctx.mode.removesuffix('_mode')}. Permission mode: {info.permission_mode}"
    if word == "sandbox":
        return f"Sandbox: {escape_hidden(info.sandbox) or 'none'}"
    raise make_argument_error("show", rest)


async def list_items(ctx: CommandContext, rest: str) -> str:
    if rest.casefold() != "tools":
        raise make_argument_error("list", rest)
    return ", ".join((await ctx.client.get_info()).tools)


async def switch_setting(ctx: CommandContext, rest: str) -> str:
    raise make_argument_error("switch", rest)


ACTIONS: dict[str, Action] = {
    "continue": continue_turn,
    "queue": lambda ctx, rest: change_queued_prompt(ctx.client, rest),
    "agents": lambda ctx, rest: end_agent(ctx.client, rest),
    "forget": forget_last_message,
    "loop": set_loop,
    "at": set_time,
    "compact": compact,
    "role": set_role,
    "rename": rename_session,
    "delete": delete_session,
    "export": export_session,
    "model": set_model,
    "effort": set_effort,
    "budget": set_budget,
    "permissions": set_permission_mode,
    "yolo": set_yolo,
    "rules": change_rules,
    "add-dir": change_roots,
    "memory": lambda ctx, rest: change_memory(ctx.client, parse_memory_change(rest)),
    "mcp": lambda ctx, rest: change_servers(ctx.client, rest),
    "show": show_setting,
    "list": list_items,
    "lsp": lambda ctx, rest: switch_language_servers(ctx.client, rest),
    "switch": switch_setting,
}
"""The actions by command name."""

SHOWN_WITHOUT_ARGUMENT = frozenset(("queue", "agents", "model", "budget", "add-dir", "mcp", "lsp", "memory"))
"""Commands of which only a line with an argument runs the action; without one, front ends show something."""
