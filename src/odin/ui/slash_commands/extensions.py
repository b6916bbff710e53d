"""/skills, /use, /memory, /plugins, /lsp and /mcp: what extends a session as text, and what users do with it."""

from collections.abc import Sequence

from odin.core.call_events import MemoryChanged
from odin.core.client import Client, MemoryFile, SessionInfo, SkillSummary, close_events
from odin.core.errors import UsageError
from odin.core.event_values import LanguageServerState, ServerStatus
from odin.core.format import pluralize
from odin.core.op import ChangeMemory, ControlLanguageServer, ControlServers, LanguageServerAction
from odin.core.slash_commands import make_argument_error, make_usage_error
from odin.core.text import suggest_similar
from odin.ui.terminal import escape_hidden, shorten, shorten_home

USED_MARK = "✓"
NO_SKILLS = "No skills. They are folders with a SKILL.md in .odin/skills, .agents/skills or .claude/skills.\n"


async def format_skills(client: Client, name: str, columns: int) -> str:
    """Return a line for each skill, or everything about the one with this name."""
    info, shot = await client.get_info(), await client.snapshot()
    used = {skill for names in shot.used_skills.values() for skill in names}
    if name:
        return _describe_skill(_find_skill(info.skills, name), used)
    if not info.skills:
        return NO_SKILLS
    rows = [tuple(map(escape_hidden, (skill.name, skill.source, skill.description))) for skill in info.skills]
    first, second = (max(len(row[at]) for row in rows) for at in (0, 1))
    marks = (USED_MARK if skill.name in used else " " for skill in info.skills)
    lines = [
        f"{mark} {name:<{first}}  {source:<{second}}  {about}"
        for mark, (name, source, about) in zip(marks, rows, strict=True)
    ]
    marked = f"; {USED_MARK} marks those used in this session" if used else ""
    lines.append(f"{pluralize(len(info.skills), 'skill')}{marked}. /NAME or /use NAME TEXT uses one.")
    return "".join(f"{shorten(line, columns - 1)}\n" for line in lines)


def _describe_skill(skill: SkillSummary, used: set[str]) -> str:
    facts = (
        ("description", skill.description),
        ("source", skill.source),
        ("file", shorten_home(skill.path)),
        ("allows", ", ".join(skill.allowed_tools)),
        (
            "used by",
            "you and the model" if skill.for_model and skill.for_user else "you" if skill.for_user else "the model",
        ),
        ("this session", "used" if skill.name in used else "not used yet"),
    )
    lines = [skill.name, *(f"  {label:<13} {value}" for label, value in facts if value)]
    return "".join(f"{escape_hidden(line)}\n" for line in lines)


def _find_skill(skills: tuple[SkillSummary, ...], name: str) -> SkillSummary:
    wanted = name.removeprefix("/").casefold()
    found = next((skill for skill in skills if skill.name.casefold() == wanted), None)
    if found is None:
        suggestion = suggest_similar(name, [skill.name for skill in skills])
        raise UsageError(f"There is no skill {name!r}.{suggestion}", "/skills lists the skills.")
    return found


async def make_skill_prompt(client: Client, rest: str) -> str:
    """Return the prompt that `/use NAME TEXT` stands for. Raise UsageError if there is no such skill."""
    name, _, text = rest.partition(" ")
    if not name:
        raise make_usage_error("use", "/use needs the name of a skill.")
    skill = _find_skill((await client.get_info()).skills, name)
    if not skill.for_user:
        raise UsageError(f"The skill {skill.name} is for the model only.", "Ask the model to use it.")
    return f"/{skill.name} {text}".strip()


# --- plugins ---

_NO_PLUGINS = "No plugins. `odin plugin add DIR` adds one, `odin --plugin-dir DIR` uses one for one run.\n"


def format_plugins(info: SessionInfo, columns: int) -> str:
    """Return a line for each plugin with what it brings, and its folder below it."""
    lines: list[str] = []
    for plugin in info.plugins:
        name = " ".join(filter(None, (plugin.name, plugin.version)))
        about = f": {plugin.description}" if plugin.description else ""
        lines += [f"{name} ({', '.join(plugin.parts) or 'empty'}){about}", f"  {shorten_home(plugin.folder)}"]
    return "".join(f"{shorten(escape_hidden(line), columns - 1)}\n" for line in lines) or _NO_PLUGINS


# --- memory ---

_NOTHING_REMEMBERED = "Nothing is remembered yet. # TEXT or /memory add TEXT remembers something for later sessions.\n"


async def format_memory(client: Client) -> str:
    """Return the files of the memory with their content."""
    files = await client.read_memory()
    text = "\n".join(_format_memory_file(file) for file in files if file.text) or _NOTHING_REMEMBERED
    paths = [f"{file.scope}: {shorten_home(file.path)}" for file in files if not file.daily]
    return f"{text}\nYou can edit these files: {', '.join(map(escape_hidden, paths))}\n"


def _format_memory_file(file: MemoryFile) -> str:
    kind = f"note, {shorten_home(file.path)}" if file.daily else shorten_home(file.path)
    lines = "".join(f"  {escape_hidden(line)}\n" for line in file.text.splitlines())
    return f"{file.scope} ({escape_hidden(kind)}):\n{lines}"


def parse_memory_change(rest: str) -> ChangeMemory:
    """Parse the arguments of /memory. Raise UsageError if they are wrong."""
    verb, _, text = rest.strip().partition(" ")
    if verb not in ("add", "note", "remove"):
        raise make_argument_error("memory", verb)
    text = text.strip()
    first, _, more = text.partition(" ")
    scope = {"--user": "user", "--project": "project"}.get(first, "")
    if scope:
        text = more.strip()
    if not text:
        raise make_usage_error("memory", f"/memory {verb} needs a text.")
    return ChangeMemory(text, "user" if scope == "user" else "project", daily=verb == "note", remove=verb == "remove")


async def change_memory(client: Client, op: ChangeMemory) -> str:
    """Change the memory and return what the session says about it."""
    events = client.stream_events()
    try:
        await client.submit(op)
        async for envelope in events:
            if isinstance(envelope.event, MemoryChanged):
                return escape_hidden(envelope.event.text)
    finally:
        close_events(events)
    return ""


def find_memory_line(text: str) -> str:
    """Return what a line such as `# use tabs` asks to remember, or "" if it is a prompt.

    A heading with text below it is a prompt, and so is the number of an issue: `#12 is broken`.
    """
    line = text.strip()
    found = line[1:].strip() if line.startswith("#") and text[:1] == "#" and "\n" not in line else ""
    return found if found and not line[1].isdigit() and line[1] not in "#!" else ""


# --- language servers ---

_SERVER_ACTIONS: dict[str, LanguageServerAction] = {"restart": "restart", "disable": "disable", "enable": "enable"}
_DONE = {"restart": "Restarted", "disable": "Disabled", "enable": "Enabled"}


def format_language_servers(info: SessionInfo, columns: int) -> str:
    """Return a line for each language server, or why there are none."""
    servers = info.language_servers
    if not servers:
        return f"{info.language_servers_off}\n"
    width = max(len(server.name) for server in servers)
    lines = [
        f"{server.name:<{width}}  {server.status:<8}  {' '.join(server.file_types)}  {describe_server(server)}".rstrip()
        for server in servers
    ]
    return "".join(f"{shorten(escape_hidden(line), columns - 1)}\n" for line in lines)


def describe_server(server: LanguageServerState) -> str:
    """Return what is known about a language server besides its status, or ""."""
    counts = ((server.errors, "error"), (server.warnings, "warning"))
    words = [pluralize(count, name) for count, name in counts if count]
    if server.status in ("ready", "slow") and server.start_ms:
        words.append(f"started in {server.start_ms / 1000:.1f} s")
    return server.detail or ", ".join(words)


async def switch_language_servers(client: Client, rest: str) -> str:
    """Restart, disable or enable language servers as `/lsp` says, and return the message to show."""
    verb, _, name = rest.partition(" ")
    if verb not in _SERVER_ACTIONS:
        raise make_argument_error("lsp", verb)
    changed = await client.submit(ControlLanguageServer(_SERVER_ACTIONS[verb], name.strip()))
    named = name.strip() or "the language servers"
    return f"{_DONE[verb]} {escape_hidden(named)}." if changed else "Nothing to do."


# --- MCP servers ---

SERVER_MARKS = {"ready": "✓", "failed": "✗", "connecting": "…", "pending": "•", "disabled": "○"}
_NO_SERVERS = "No MCP servers. Add one with `odin mcp add NAME COMMAND`, or in .mcp.json.\n"
_SWITCHED = {"enable": "Enabled", "disable": "Disabled"}


def describe_server_state(status: ServerStatus) -> str:
    """Return the state of a server in a few words: `ok, 12 tools, 0.4 s` or `failed: why`."""
    if status.state == "connecting" and status.attempt > 1:
        return f"retrying, attempt {status.attempt} of {status.attempts}"
    offered = [
        pluralize(number, noun)
        for number, noun in ((status.tools, "tool"), (status.prompts, "prompt"), (status.resources, "resource"))
        if number
    ]
    match status.state:
        case "ready":
            return ", ".join(["ok", *offered, f"{status.seconds:.1f} s"])
        case "pending":
            return ", ".join(["starts when needed", *offered])
        case "failed":
            return f"failed: {status.detail}"
        case "disabled":
            return "disabled"
        case _:
            return "connecting"


def format_servers(servers: Sequence[ServerStatus], columns: int) -> str:
    """Return a line for each server."""
    if not servers:
        return _NO_SERVERS
    width = max(len(server.name) for server in servers)
    lines = [
        f"{SERVER_MARKS[server.state]} {server.name:<{width}}  {server.transport:<5}  "
        f"{'manual' if server.manual else 'auto  '}  {describe_server_state(server)}"
        for server in servers
    ]
    if any(server.manual for server in servers):
        lines.append("/mcp enable NAME and /mcp disable NAME switch manual servers.")
    return "".join(f"{shorten(escape_hidden(line), columns - 1)}\n" for line in lines)


async def change_servers(client: Client, rest: str) -> str:
    """Run `/mcp enable|disable|reconnect [NAME...]` and return the message."""
    verb, *names = rest.split()
    if verb not in ("enable", "disable", "reconnect"):
        raise make_argument_error("mcp", verb)
    changed = await client.submit(ControlServers(verb, tuple(names)))
    which = ", ".join(names) or "all manual MCP servers"
    if verb == "reconnect":
        return f"Connecting again: {', '.join(names) or 'all MCP servers that failed'}."
    if not changed:
        return f"Nothing changed: {which} {'was' if len(names) == 1 else 'were'} {verb}d already."
    return f"{_SWITCHED[verb]} {which}, from the next request on."
