"""Agent definitions: the types of sub-agents and the roles of the main agent, and the catalog that finds them by name.

For the code that starts sub-agents:

    catalog = composition.load_agents()                # the AgentCatalog of the session; read once, then cached
    definition = catalog.find_type("explore")          # raises UsageError that lists the types, with did-you-mean
    catalog.describe_types()                           # "- explore: ...\\n- general: ..." for a tool's description
    catalog.list_types()                               # the definitions, A-Z; empty if there are none
    definition.restrict_mode("edit_mode")              # "ask_mode" for a read-only type
    definition.has_tool(tool_name)                     # False for a tool that this agent does not have

`find_role` and `list_roles` do the same for roles. The files are read by `agent_files`, and only if there are any.
"""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from odin.core.errors import UsageError
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.format import clip
from odin.core.path_names import contains
from odin.core.text import suggest_similar
from odin.core.tool import get_canonical_name

if TYPE_CHECKING:
    from odin.core.server_tool import ServerTool

AgentUse = Literal["main", "subagent", "all"]
"""What a definition is for: a role of the main agent, a type of sub-agent, or both."""

AgentSource = Literal["built-in", "plugin", "user", "project", "flag"]
"""Where a definition comes from, weakest first. `flag` is `--agents` on the command line."""

Isolation = Literal["none", "worktree"]

BUILDER = DEFAULT_ROLE

PLANNER = "planner"


_TASK_TOOLS = frozenset({"Report", "Complete", "Escalate", "Done"})
"""With these an agent talks to its owner and ends its task or loop. It has them whatever tools its type names."""


SERVER_TOOLS = ("ToolSearch", "McpCall", "ListMcpResources", "ReadMcpResource")
"""Tools that exist while MCP servers are configured."""


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """One agent. `prompt` is added to the system prompt. `tools` None means every tool of the mode.

    `model` "" means the model of the session. `pools` are the only model pools it may use; () means no limit. `rules`
    are permission rules in any form that `odinconfig.json` accepts; they only restrict. `permission_mode` limits the
    user's permission mode. A `read_only` agent never gets edit mode. `write_scope` are the paths that a sub-agent may
    change by default; () means no limit. `idle_s` is how long a sub-agent may be silent before it is reminded; 0 means
    the default. `max_turns` limits the requests per prompt; 0 means the session's limit. `cwd` is the folder a
    sub-agent starts in, `venv` the virtual environment of its commands, `instructions` are files that are added to its
    prompt; all are relative to the project. `skills` are in its prompt with their full text, and it has no others; None
    means all skills on demand. `delegation` are the limits that differ from the session's, by the names of
    `DelegationLimits`. `servers` are MCP servers that a sub-agent uses whatever tools it has: its own with their
    settings, as in `.mcp.json`, and those of the session, with None. `path` is the file it comes from.
    """

    name: str
    description: str = ""
    prompt: str = ""
    use: AgentUse = "subagent"
    tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    model: str = ""
    pools: tuple[str, ...] = ()
    rules: Any = None
    permission_mode: str = ""
    read_only: bool = False
    write_scope: tuple[str, ...] = ()
    isolation: Isolation = "none"
    color: str = ""
    idle_s: float = 0.0
    max_turns: int = 0
    cwd: str = ""
    venv: str = ""
    instructions: tuple[str, ...] = ()
    skills: tuple[str, ...] | None = None
    delegation: Mapping[str, int | bool] = {}
    servers: Mapping[str, Any] = {}
    source: AgentSource = "built-in"
    path: str = ""

    @property
    def is_type(self) -> bool:
        """True if sub-agents can be of this type."""
        return self.use != "main"

    @property
    def is_role(self) -> bool:
        return self.use != "subagent"

    def has_tool(self, tool: str, server_tool: "ServerTool | None" = None) -> bool:
        """True if this agent has the tool with this name."""
        name = get_canonical_name(tool)
        if name in _TASK_TOOLS:
            return True
        if server_tool is not None:
            if any(server_tool.is_named_by(pattern, loosely=True) for pattern in self.denied_tools):
                return False
            if name == server_tool.public_name:
                is_listed = self.tools is None or server_tool.server in self.servers
                return is_listed or any(map(server_tool.is_named_by, self.tools or ()))
        if self.servers and name in SERVER_TOOLS:
            return name not in self.denied_tools
        names = {name, "EditTool"} if name == "apply_patch" else {name}
        return not names & set(self.denied_tools) and (self.tools is None or not names.isdisjoint(self.tools))

    def restrict_mode(self, mode: Mode) -> Mode:
        """Return the mode of this agent for a prompt that asks for `mode`."""
        return "ask_mode" if self.read_only and mode == "edit_mode" else mode


def find_in_project(root: str, path: str) -> str:
    """Return the place of a path of an agent file without links, or "" if the project does not have it."""
    place, top = os.path.realpath(f"{root}/{path}"), os.path.realpath(root)
    return place if os.path.exists(place) and contains(top, place) else ""  # noqa: PTH110


class AgentProblem(Struct, frozen=True):
    """A mistake in an agent file. `line` is 0 if it concerns the whole file."""

    path: str
    line: int
    text: str

    def describe(self) -> str:
        return ":".join(filter(None, (self.path, str(self.line or "")))) + f": {self.text}"


_GENERAL = """\
You work on one task for another agent, which sees only your final answer, none of your steps. Do the whole task, \
nothing beside it. Check your work as the project does (tests, linter, build) before you finish. End with what you \
did, the files you changed, what you verified, and what is left or uncertain."""

_EXPLORE = """\
You explore a code base for another agent, which sees only your final answer, none of your steps. Change nothing. \
Search widely first (Glob, Grep), several searches in one reply, then read only what answers the question. Answer with \
facts and `path:line` references, most important first; quote code only where the exact text matters. Say what you \
looked for and did not find."""

_PLANNER = """\
You plan changes; you do not make them. Look at the code until you know what has to change, then present a plan: the \
goal, findings with `path:line`, numbered steps that name each file, risks, and how to verify the result. Ask about \
what only the user can decide. Write nothing but the plan; edits and commands that change something need the user's \
approval. Save and present the plan with Handoff; the user approves it or asks for changes."""

_PLANNER_TOOLS = (
    *("LS", "Read", "Grep", "Glob", "ExecuteCommand", "TodoWrite", "Question", "Handoff", "WebFetch", "WebSearch"),
    *("ContextSummarizer", "SaveArtifact", "ReadArtifact", "WriteFile", "EditTool", "MultiEditTool"),
)

BUILTIN_AGENTS: tuple[AgentDefinition, ...] = (
    AgentDefinition(name=BUILDER, description="Does the work: edits files and runs commands.", use="main"),
    AgentDefinition(
        name=PLANNER,
        description="Reads and plans; every change needs approval.",
        prompt=_PLANNER,
        use="main",
        tools=_PLANNER_TOOLS,
        permission_mode="default",
    ),
    AgentDefinition(
        name="general", description="Works on any task, with all tools including edits and commands.", prompt=_GENERAL
    ),
    AgentDefinition(
        name="explore",
        description="Searches and reads the code base to answer a question. Changes nothing.",
        prompt=_EXPLORE,
        read_only=True,
    ),
)


_MAX_DESCRIPTION = 300
"""Characters of a description that the model reads: descriptions go with every request."""


class AgentCatalog:
    """Definitions by name; a later one replaces an earlier one with the same name. Case does not matter."""

    def __init__(
        self, definitions: Iterable[AgentDefinition] = BUILTIN_AGENTS, problems: Iterable[AgentProblem] = ()
    ) -> None:
        self._definitions = {definition.name.casefold(): definition for definition in definitions}
        self.problems = tuple(problems)

    def list_all(self) -> tuple[AgentDefinition, ...]:
        """Return all definitions: roles in the order of `list_roles`, then the other types A-Z."""
        types = (definition for definition in self.list_types() if not definition.is_role)
        return (*self.list_roles(), *types)

    def list_types(self) -> tuple[AgentDefinition, ...]:
        """Return the types of sub-agents, A-Z."""
        types = [item for item in self._definitions.values() if item.is_type]
        return tuple(sorted(types, key=lambda item: item.name.casefold()))

    def list_roles(self) -> tuple[AgentDefinition, ...]:
        """Return the roles: builder, planner, then the others A-Z."""
        roles = [item for item in self._definitions.values() if item.is_role]
        return tuple(sorted(roles, key=lambda item: (item.name != BUILDER, item.name != PLANNER, item.name.casefold())))

    def find_type(self, name: str) -> AgentDefinition:
        """Return the type of sub-agent with this name. Raise UsageError that lists the types if there is none."""
        found = self._definitions.get(name.strip().casefold())
        if found is not None and found.is_type:
            return found
        problem = f"{found.name} is a role of the main agent, not a type of sub-agent." if found else ""
        return _refuse(problem or f"There is no sub-agent type {name!r}.", name, "types", self.list_types())

    def find_role(self, name: str) -> AgentDefinition:
        """Return the role with this name. Raise UsageError that lists the roles if there is none."""
        found = self._definitions.get(name.strip().casefold())
        if found is not None and found.is_role:
            return found
        problem = f"{found.name} is a type of sub-agent, not a role." if found else f"There is no role {name!r}."
        return _refuse(problem, name, "roles", self.list_roles())

    def describe_types(self) -> str:
        """Return one line per type for the model, or "" if there are no types."""
        return "\n".join(f"- {item.name}: {clip(item.description, _MAX_DESCRIPTION)}" for item in self.list_types())


def _refuse(problem: str, name: str, kind: str, known: tuple[AgentDefinition, ...]) -> AgentDefinition:
    names = [item.name for item in known]
    listed = f"The {kind} are: {', '.join(names)}." if names else f"There are no {kind}."
    raise UsageError(f"{problem}{suggest_similar(name, names)}", listed)
