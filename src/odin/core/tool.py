"""The tool protocol, and the registry of one agent's tools.

A tool's arguments are a struct whose JSON schema is shown to the model; the class docstring is the model's description;
`get_target` returns what permission rules match. Dependencies are passed to the constructor.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Struct

from odin.core.background_prompts import BackgroundPrompt
from odin.core.effects import ViewLayer
from odin.core.environment import ExecutionEnvironment
from odin.core.event_values import Mode, Question, Todo
from odin.core.message import Image
from odin.core.op import Answer
from odin.core.profile import PROJECT, ProcessProfile
from odin.core.provider import ToolSpec
from odin.core.root import Root

if TYPE_CHECKING:
    from odin.core.server_tool import ServerTool

Kind = Literal["read", "edit", "execute", "network", "interactive"]

SideEffect = Literal["none", "read_only", "mutating", "network", "blocking"]

_SIDE_EFFECTS: dict[Kind, SideEffect] = {
    "read": "read_only",
    "edit": "mutating",
    "execute": "blocking",
    "network": "network",
    "interactive": "none",
}


class Args(Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of tool arguments. Unknown fields are rejected."""


class ResolvedPath(Struct, frozen=True):
    """A path as the kernel resolves it, at one moment: what the permission rules check and what the tool acts on.

    `written` is the path as given. `path` is absolute and contains neither links nor `..`. `target` differs from it
    only for a tool that acts on links themselves: it is where the link leads. `shown` is the name for messages:
    absolute, but with the links the caller used. `fault` says why the path leads nowhere. `is_private`: it is a
    temporary file of the session's commands, which they see under the name `shown`.
    """

    written: str
    path: str
    target: str
    shown: str
    fault: str = ""
    is_private: bool = False

    @property
    def text(self) -> str:
        """The name for messages, with what it leads to if that is something else."""
        end = self.path if self.path != self.shown else self.target
        return self.shown if end == self.shown or self.is_private else f"{self.shown} (which leads to {end})"


class Target(Struct, frozen=True):
    """What a tool call acts on, for permission rules: paths, a command, a URL, or something with a `name`: a skill.

    Relative paths start at the working directory. `on_links`: the tool acts on a link, not on what it leads to.
    `resolved` are the paths as resolved when the call was checked (`Policy.resolve`). `removes` are those of the paths
    that the call deletes or moves away. `other_name` is another name of the same thing; rules may use either.
    `persists`: what the call writes is given to later sessions.
    `server_tool` is what a call of an MCP server uses.
    """

    paths: tuple[str, ...] = ()
    command: str = ""
    url: str = ""
    on_links: bool = False
    resolved: tuple[ResolvedPath, ...] = ()
    removes: tuple[str, ...] = ()
    name: str = ""
    other_name: str = ""
    persists: bool = False
    server_tool: "ServerTool | None" = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, (self.name, self.other_name))))

    @property
    def text(self) -> str:
        return (
            self.command
            or self.url
            or self.name
            or ", ".join(item.text for item in self.resolved)
            or ", ".join(self.paths)
        )

    def split_paths(self) -> "tuple[Target, ...]":
        """Return one target for each path."""
        return tuple(
            msgspec.structs.replace(self, paths=(path,), resolved=self.resolved[at : at + 1])
            for at, path in enumerate(self.paths)
        )


class ToolOutput(Struct, frozen=True):
    """The outcome of a tool call.

    `text` is for the model. `view` is for people (a diff, a table) and never sent to the model; `for_user` is shown at
    once unless `silent`. `note` is the line kept in the tool history. `todos` replaces the task list. `images` go to
    the model with the text; `media` marks a result no model can read. `summary` replaces the collected context and the
    results of the calls it `covers`. `asynchronous`: work continues after the call. `blocked` says what the sandbox
    seems to have blocked; the user may approve a run without it. `mode` is the mode of the rest of the turn. `answer`
    ends the turn after this reply and is its answer, unless a later call `keeps_turn` open. `plan_path` is the file of
    the plan that the call presented. `layer` holds what a command wrote in its view, until it is applied or discarded.
    `aside` is a line for the user that needs no attention.
    """

    text: str
    is_error: bool = False
    note: str = ""
    view: str = ""
    for_user: str = ""
    silent: bool = False
    files: tuple[str, ...] = ()
    todos: tuple[Todo, ...] | None = None
    media: bool = False
    images: tuple[Image, ...] = ()
    summary: str = ""
    covers: tuple[str, ...] = ()
    asynchronous: bool = False
    blocked: str = ""
    error_kind: str = ""
    mode: Mode | None = None
    answer: str = ""
    keeps_turn: bool = False
    plan_path: str = ""
    layer: ViewLayer | None = None
    aside: str = ""


def fail(text: str, kind: str = "") -> ToolOutput:
    """Return an error result for the model. `kind` is the name of the error class, if there is one."""
    return ToolOutput(text=text, is_error=True, error_kind=kind)


def hide_nothing(path: str) -> bool:
    return False


def _drop_output(output: ToolOutput) -> None:
    return


class ToolContext(Struct, frozen=True):
    """The context of a tool call. `progress` shows a line to the user; `channel` and `chat` name the origin of the
    conversation.

    `environment` is the one in which the agent runs commands. `is_hidden` returns True for a file that rules keep out
    of search results. A tool that is cancelled calls `keep_partial` with what it has so far. `resolved_paths` are the
    paths of the call as the permission rules checked them; None if nothing checks the calls, so that the tool resolves
    its paths itself. `roots` are the folders besides the project `root`.
    """

    cwd: str
    root: str
    session: str
    agent: str
    call_id: str
    mode: Mode
    progress: Callable[[str], None]
    environment: ExecutionEnvironment
    channel: str = "cli"
    chat: str = "direct"
    profile: ProcessProfile = PROJECT
    is_hidden: Callable[[str], bool] = hide_nothing
    keep_partial: Callable[[ToolOutput], None] = _drop_output
    resolved_paths: tuple[ResolvedPath, ...] | None = None
    roots: tuple[Root, ...] = ()


class SubAgentTask(Struct, frozen=True):
    """A task for a sub-agent. `call_id` is the tool call that gives it, `owner` the agent that makes the call."""

    description: str
    prompt: str
    mode: Mode
    call_id: str = ""
    owner: str = ""
    type: str = ""


AskSmallModel = Callable[[BackgroundPrompt, str], Awaitable[str]]
"""Runs a small job on the small model. Raises ProviderError."""

AskUser = Callable[[str, tuple[Question, ...]], Awaitable[tuple[tuple[str, ...], ...] | None]]
"""Asks the user for the call with this id. Returns None if declined.

Raises TimeoutError if the user does not answer in time, and NeedsConfirmation if no attached client can answer."""


class PlanProposal(Struct, frozen=True):
    """A plan presented to the user, saved in the file `path`. `roles` can carry it out, the suggested one first.

    `permission_modes` can be chosen with its approval.
    """

    path: str
    title: str
    text: str
    roles: tuple[str, ...] = ()
    permission_modes: tuple[str, ...] = ()


AskPlan = Callable[[str, PlanProposal], Awaitable[Answer]]
"""Presents the plan of the call with this id to the user and returns the decision. Raises as `AskUser` does."""


class CollectedItem(Struct, frozen=True):
    """Something the model has gathered: the result of the call `call_id` or, without one, an item of context."""

    title: str
    text: str
    call_id: str = ""


A = TypeVar("A", bound=Args)


class Tool(ABC, Generic[A]):
    name: str
    kind: Kind
    short: str
    """One sentence for models with a small context window."""
    args: ClassVar[type[Args]]
    exclusive: bool = False
    """No other call of the same reply may run at the same time. Only read-only commands overlap."""
    runs_last: ClassVar[bool] = False
    """It runs after all other calls of the same reply."""
    modes: ClassVar[tuple[Mode, ...]] = ()
    """The modes in which it is offered; empty: in every mode that allows its kind."""
    resolves: ClassVar[bool] = False
    """`resolve` is called with the arguments before the call is checked."""
    has_view: ClassVar[bool] = False
    """It runs commands in a private view if the context says so, and returns what they wrote as a layer."""
    server_tool: "ServerTool | None" = None
    """What the tool is called by the MCP server it belongs to."""
    offered: bool = True
    """Offered to models by default. Other tools still run when a model calls them by name."""
    freeform: ClassVar[str] = ""
    """The only argument, if it is a text that some APIs can pass without JSON around it."""
    argument_aliases: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of argument names: as used by other agents, and as used here."""

    def is_offered(self) -> bool:
        """Return True if the tool is offered now. A tool that acts on something waits until that exists."""
        return self.offered

    @property
    def side_effect(self) -> SideEffect:
        return _SIDE_EFFECTS[self.kind]

    @property
    def description(self) -> str:
        return _clean_docstring(type(self).__doc__ or self.short)

    def parse(self, raw: dict[str, Any]) -> A:
        """Return the validated arguments. Raise msgspec.ValidationError naming the field."""
        return msgspec.convert(self.rename_args(raw), self.args)  # pyright: ignore[reportReturnType]

    def rename_args(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with aliases replaced."""
        return {self._resolve_alias(name, raw): value for name, value in raw.items()} if self.argument_aliases else raw

    def _resolve_alias(self, name: str, raw: dict[str, Any]) -> str:
        """Keep the alias if both names are given: then one of them is a mistake and validation rejects it."""
        own = dict(self.argument_aliases).get(name, name)
        return name if own in raw else own

    def redirect(self, raw: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Return the tool and the arguments that a call stands for. That call is checked, run and recorded instead."""
        return None

    def get_target(self, args: A) -> Target:
        """Return what permission rules match. By default the call touches nothing."""
        return Target()

    async def resolve(self, args: A, ctx: ToolContext) -> None:
        """Find out what the call will act on, for `get_target`. Nothing is changed."""
        return

    def validate(self, args: A) -> str:
        """Return why this call can never make sense, or "". Such a call is refused without asking."""
        return ""

    async def dry_run(self, args: A, ctx: ToolContext) -> ToolOutput | None:
        """Return the error that this call would give now, or None if it may work. Nothing is changed.

        A call that would fail is not asked about; the model reads the error instead.
        """
        return None

    async def preview(self, args: A) -> str:
        """Return the diff of an edit for the permission request; "" if the arguments and the files tell it."""
        return ""

    def can_speculate(self, args: A) -> bool:
        """Return True if this call may start while the reply is still streaming.

        Only for calls that read, or that change nothing but the files in `get_target`, because those can be rolled
        back. A command must also be proven read-only.
        """
        return False

    def get_title(self, args: A) -> str:
        """Return one line that describes this call to the user."""
        return self.get_target(args).text

    @abstractmethod
    async def run(self, args: A, ctx: ToolContext) -> ToolOutput: ...

    def build_spec(self, brief: bool = False) -> ToolSpec:
        text = self.short if brief else self.description
        return ToolSpec(self.name, text, make_schema(self.args, brief), self.freeform)


def _clean_docstring(text: str) -> str:
    """Return the text without its indentation, as `inspect.cleandoc`, which takes long to import."""
    first, *rest = text.expandtabs().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return "\n".join([first.lstrip(), *(line[margin:] for line in rest)]).strip("\n")


def make_schema(args: type[Struct], brief: bool = False) -> dict[str, Any]:
    """Return the inlined JSON schema of an argument struct without parts a model does not need (titles, null,
    defaults)."""
    try:
        return _make_struct_schema(args, brief)
    except (TypeError, KeyError, ValueError, AttributeError):
        raw = msgspec.json.schema(args)
        return _slim_schema(raw, raw.get("$defs", {}), brief)


_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _make_struct_schema(args: type[Struct], brief: bool) -> dict[str, Any]:
    """Return the same schema as msgspec for plain argument structs, several times faster: 5 ms of every start.

    Raise an error for a type that is not handled here.
    """
    kinds: dict[str, Any] = {}
    for base in reversed(args.__mro__):
        kinds |= base.__dict__.get("__annotations__", {})  # noqa: RUF063 (inspect takes long to import)
    fields = tuple(zip(args.__struct_fields__, args.__struct_encode_fields__, strict=True))
    properties = {shown: _make_type_schema(kinds[name], brief) for name, shown in fields}
    defaults = (msgspec.NODEFAULT,) * (len(fields) - len(args.__struct_defaults__)) + args.__struct_defaults__
    required = [shown for (_, shown), default in zip(fields, defaults, strict=True) if default is msgspec.NODEFAULT]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if args.__struct_config__.forbid_unknown_fields:
        schema["additionalProperties"] = False
    return schema


def _make_type_schema(kind: Any, brief: bool) -> dict[str, Any]:
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _add_limits(_make_type_schema(inner[0], brief), inner[1], brief)
    if origin in (Union, UnionType):
        (only,) = (option for option in inner if option is not NoneType)
        return _make_type_schema(only, brief)
    if origin is Literal and all(isinstance(value, str) for value in inner):
        return {"type": "string", "enum": sorted(inner)}
    if origin in (list, tuple) and (origin is list or inner[1:] == (...,)):
        return {"type": "array", "items": _make_type_schema(inner[0], brief)}
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _make_struct_schema(kind, brief)
    raise TypeError


_LIMITS = {
    ("array", "min_length"): "minItems",
    ("string", "min_length"): "minLength",
    ("integer", "ge"): "minimum",
    ("integer", "le"): "maximum",
}


def _add_limits(schema: dict[str, Any], meta: Any, brief: bool) -> dict[str, Any]:
    for name, value in meta.__rich_repr__():
        if name != "description":
            schema[_LIMITS[schema["type"], name]] = value
        elif not brief:
            schema[name] = value
    return schema


def _slim_schema(node: Any, defs: dict[str, Any], brief: bool) -> Any:
    if isinstance(node, list):
        return [_slim_schema(item, defs, brief) for item in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = node  # pyright: ignore[reportUnknownVariableType]
    if "$ref" in found:
        target = dict(defs[found["$ref"].rsplit("/", 1)[-1]])
        target.pop("description", None)
        return _slim_schema(target, defs, brief)
    if "anyOf" in found:
        options = [option for option in found["anyOf"] if option != {"type": "null"}]
        if len(options) == 1:
            return _slim_schema({**{k: v for k, v in found.items() if k != "anyOf"}, **options[0]}, defs, brief)
    dropped = ("title", "default", "$defs", "description") if brief else ("title", "default", "$defs")
    out: dict[str, Any] = {}
    for key, value in found.items():
        if key == "properties":
            out[key] = {name: _slim_schema(child, defs, brief) for name, child in value.items()}
        elif key not in dropped:
            out[key] = _slim_schema(value, defs, brief)
    if out.get("required") == []:
        del out["required"]
    if "enum" in out and "type" not in out:
        out = {"type": "string", **out}
    return out


ALIASES: dict[str, str] = {
    "LS": "list_dir list_directory ls dir ListDir list list_files",
    "Read": "FileRead ReadFile read_file read view View cat open_file NotebookRead",
    "Grep": "grep search grep_search search_files Search SearchText ripgrep",
    "Glob": "glob find_files FindFiles glob_search file_search",
    "WriteFile": "Write FileWrite write_file write create_file save_file",
    "EditTool": "Edit FileEdit edit_file edit str_replace replace StrReplace str_replace_editor StrReplaceFile",
    "MultiEditTool": "MultiEdit multi_edit multiedit",
    "Delete": "delete delete_file remove_file",
    "AppendFile": "append_file append",
    "ExecuteCommand": "Bash bash exec shell Shell run_shell_command execute_command run_command local_shell "
    "RunCommand Execute terminal",
    "Spawn": "spawn",
    "SpawnStatus": "BashOutput TaskOutput spawn_status",
    "SpawnStop": "KillShell KillBash TaskStop spawn_stop",
    "TodoWrite": "todo_write todowrite todos update_plan SetTodoList write_todos TodoUpdate",
    "Done": "done finish task_done",
    "AgentTool": "Task Agent agent task subagent SubAgent",
    "Delegate": "delegate",
    "WebFetch": "web_fetch fetch FetchURL fetch_url",
    "WebSearch": "web_search SearchWeb google_web_search",
    "ContextSummarizer": "summarize_context context_summarizer",
    "InitTool": "Init init",
    "SaveArtifact": "save_artifact",
    "ReadArtifact": "read_artifact",
    "Handoff": "handoff ExitPlanMode exit_plan_mode PresentPlan present_plan",
    "Skill": "skill use_skill activate_skill load_skill",
    "Memory": "memory save_memory remember",
    "lsp": "LSP language_server",
    "lsp_rename": "rename_symbol",
    "ListMcpResources": "ListMcpResourcesTool",
    "ReadMcpResource": "ReadMcpResourceTool",
    "Question": "AskUserQuestion ask_user question ask_user_question",
}
"""For each tool, the names other agents and their models use."""

_CANONICAL: dict[str, str] = {
    alias.casefold(): name for name, aliases in ALIASES.items() for alias in (name, *aliases.split())
}


def get_canonical_name(name: str) -> str:
    """Return Odin's name of a tool. An unknown name is returned unchanged."""
    return _CANONICAL.get(name.casefold(), name)


_USER_NAMES = {
    "ExecuteCommand": "Bash",
    "EditTool": "Edit",
    "MultiEditTool": "MultiEdit",
    "WriteFile": "Write",
    "AppendFile": "Append",
    "AgentTool": "Agent",
    "InitTool": "Init",
}


def get_display_name(name: str) -> str:
    """Return the name of a tool as users know it from permission rules and other agents: `Bash`, `Edit`, `Write`."""
    canonical = get_canonical_name(name)
    return _USER_NAMES.get(canonical, canonical)


class ToolSource(Protocol):
    """Tools that may change between two requests. `version` is another one after each change."""

    @property
    def version(self) -> int: ...

    def list_tools(self) -> Sequence[Tool[Any]]: ...

    def describe_to_model(self) -> str:
        """Return a block for the system prompt, or ""."""
        ...


class Registry:
    """Which tools exist, which are offered to the model, and which run without approval.

    A disabled tool is not offered but can still be found by name, so a call to it is refused with a reason. `wanted`
    lists tools to offer that are not offered by default. The tools of `sources` come after the registered ones.
    """

    def __init__(
        self,
        tools: Iterable[Tool[Any]] = (),
        *,
        allowed: Iterable[str] = (),
        disabled: Iterable[str] = (),
        opted_in: Iterable[str] = (),
        sources: Sequence[ToolSource] = (),
    ) -> None:
        self.sources = sources
        self._tools: dict[str, Tool[Any]] = {}
        self._allowed = {get_canonical_name(name) for name in allowed}
        self._disabled = {get_canonical_name(name) for name in disabled}
        self._opted_in = {get_canonical_name(name) for name in opted_in}
        self._only: frozenset[str] | None = None
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool[Any]) -> None:
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool[Any] | None:
        known = self._tools.get(name) or self._tools.get(get_canonical_name(name))
        if known is not None or not self.sources:
            return known
        return next((tool for tool in self._list_changing() if tool.name == name), None)

    @property
    def version(self) -> int:
        """Another number whenever the tools of a source have changed."""
        return sum(source.version for source in self.sources)

    def _list_changing(self) -> Iterator[Tool[Any]]:
        for source in self.sources:
            yield from source.list_tools()

    def list_names(self) -> tuple[str, ...]:
        """Return the registered tools in order of registration, which never changes."""
        return tuple(self._tools)

    def is_allowed(self, name: str) -> bool:
        return get_canonical_name(name) in self._allowed

    def is_disabled(self, name: str) -> bool:
        name = get_canonical_name(name)
        return name in self._disabled or (self._only is not None and name not in self._only)

    def offer_only(self, names: Iterable[str] | None) -> None:
        """Disable all other tools from now on; None enables them again. A tool that was disabled before stays so."""
        self._only = None if names is None else frozenset(map(get_canonical_name, names))

    def list_safe_tools(self) -> tuple[str, ...]:
        """Return the tools that change nothing and send nothing, for programs that ask before all others."""
        return tuple(tool.name for tool in self._tools.values() if tool.side_effect in ("none", "read_only"))

    def list_offered(self, visible: Callable[[Tool[Any]], bool] = lambda tool: True) -> tuple[Tool[Any], ...]:
        """Return the tools described to the model."""
        tools = (*self._tools.values(), *self._list_changing())
        return tuple(tool for tool in tools if self._is_offered(tool) and visible(tool))

    def _is_offered(self, tool: Tool[Any]) -> bool:
        wanted = self._opted_in if self._only is None else self._opted_in | self._only
        return not self.is_disabled(tool.name) and (tool.is_offered() or tool.name in wanted)

    def build_openai_definitions(self) -> list[dict[str, Any]]:
        """Return the offered tools in the OpenAI function format."""
        return [
            {
                "type": "function",
                "function": {"name": spec.name, "description": spec.description, "parameters": spec.schema},
            }
            for spec in (tool.build_spec() for tool in self.list_offered())
        ]
