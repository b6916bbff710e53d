"""What the model may do: a tool is one class in one file.

The arguments are a struct whose JSON schema is the model's schema; the docstring is what the model reads; `subject` is
what the rules match. What a tool needs arrives through its constructor.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from odin.core.event import Mode, Question, Todo
from odin.core.message import Image
from odin.core.provider import ToolSpec
from odin.core.small_jobs import SmallJob

Kind = Literal["read", "edit", "execute", "network", "talk"]

SideEffect = Literal["none", "read_only", "mutating", "network", "blocking"]

_SIDE_EFFECTS: dict[Kind, SideEffect] = {
    "read": "read_only",
    "edit": "mutating",
    "execute": "blocking",
    "network": "network",
    "talk": "none",
}


class Args(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every tool's arguments: a field the schema does not name is refused."""


class Subject(Struct, frozen=True):
    """What a call is about, for the rules: the absolute paths it touches, or the command it runs, or its address."""

    paths: tuple[str, ...] = ()
    command: str = ""
    url: str = ""

    @property
    def text(self) -> str:
        return self.command or self.url or ", ".join(self.paths)


class SandboxProfile(Struct, frozen=True):
    """How much a command may do: change the project and temporary files, or only look; `outside` the sandbox or not."""

    writes: bool = True
    unsandboxed: bool = False


class ToolOutput(Struct, frozen=True):
    """What came of a call.

    `text` is for the model. `view` is for people (a diff, a table) and never sent to the model; `for_user` is shown at
    once unless `silent`. `note` is the one-line description that stays in the tool history. `todos` replaces the list.
    `images` go to the model beside the text; `media` marks a result that no model can be shown. `summary` takes the
    place of the collected context and of the results of the calls it `covers`. `asynchronous`: the work goes on.
    `blocked` says what the sandbox seems to have kept a command from; a person may let it run again without it.
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


def fail(text: str, kind: str = "") -> ToolOutput:
    """An error result: the model reads it and goes on. `kind` is its name, where it has one."""
    return ToolOutput(text=text, is_error=True, error_kind=kind)


def hide_nothing(path: str) -> bool:
    return False


class ToolContext(Struct, frozen=True):
    """Where a call runs. `progress` shows people a line; `channel` and `chat` name the conversation it came from.

    `keeps_back` tells of a file that a search comes upon whether the rules keep it out of the results.
    """

    cwd: str
    root: str
    session: str
    agent: str
    call_id: str
    mode: Mode
    progress: Callable[[str], None]
    channel: str = "cli"
    chat: str = "direct"
    sandbox_profile: SandboxProfile = SandboxProfile()
    is_hidden: Callable[[str], bool] = hide_nothing


AskSmallModel = Callable[[SmallJob, str], Awaitable[str]]
"""Gives a small job to the lesser model. Raises ProviderError when it cannot be done."""

AskUser = Callable[[str, tuple[Question, ...]], Awaitable[tuple[tuple[str, ...], ...] | None]]
"""Asks whoever is there for the call of that id. None: they would not answer; TimeoutError: nobody did in time."""


class FetchResponse(Struct, frozen=True):
    """One answer of a web server. `location` is where a redirect to another host points; it was not followed."""

    url: str
    status: int
    content_type: str
    body: bytes
    complete: bool = True
    location: str = ""


Fetch = Callable[..., Awaitable[FetchResponse]]
"""fetch(url, *, headers, limit): GET it, following redirects within the host. Raises ProviderError."""


class SearchHit(Struct, frozen=True):
    title: str
    url: str
    snippet: str = ""


class SearchEngine(Protocol):
    """A place on the web that finds pages."""

    def address_of(self, query: str) -> str:
        """What will be asked, without anything secret."""
        ...

    async def search(self, query: str, count: int) -> tuple[SearchHit, ...]:
        """The best pages, at most `count`. Raises ProviderError."""
        ...


class CollectedItem(Struct, frozen=True):
    """One thing the model has gathered: the result of the call `call_id`, or, without one, a piece of context."""

    title: str
    text: str
    call_id: str = ""


A = TypeVar("A", bound=Args)


class Tool(ABC, Generic[A]):
    name: ClassVar[str]
    kind: ClassVar[Kind]
    short: ClassVar[str]
    """One sentence for models with a small window."""
    args: ClassVar[type[Args]]
    exclusive: ClassVar[bool] = False
    """Whether no other call of the same reply may run beside it. Only commands that provably look share their time."""
    offered: bool = True
    """Whether models are told of it unasked. One that is not still runs when it is called by a name it is known by."""
    argument_aliases: ClassVar[tuple[tuple[str, str], ...]] = ()
    """What other agents call its arguments, and what they are called here."""

    @property
    def runs_alone(self) -> bool:
        return self.exclusive or self.kind == "execute"

    @property
    def side_effect(self) -> SideEffect:
        return _SIDE_EFFECTS[self.kind]

    @property
    def description(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or self.short)

    def parse(self, raw: dict[str, Any]) -> A:
        """Check the arguments against the schema; raises msgspec.ValidationError naming the field."""
        return msgspec.convert(self.rename_args(raw), self.args)  # pyright: ignore[reportReturnType]

    def rename_args(self, raw: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the names they have here."""
        return {self._own_name_of(name, raw): value for name, value in raw.items()} if self.argument_aliases else raw

    def _own_name_of(self, name: str, raw: dict[str, Any]) -> str:
        """An argument given under both names keeps the foreign one and is refused, because one of them is a mistake."""
        own = dict(self.argument_aliases).get(name, name)
        return name if own in raw else own

    def subject_of(self, args: A) -> Subject:
        """What the rules judge. The default is a call that touches nothing."""
        return Subject()

    def refusal_of(self, args: A) -> str:
        """Why a call makes no sense whatever anybody allows, or "". Nobody is asked about such a call."""
        return ""

    def can_speculate(self, args: A) -> bool:
        """Whether this call may begin while the model still writes the reply it is part of.

        Only calls that merely look say yes, and changes of nothing but the files that `subject` names: those can be
        taken back. A command begins early only if it also provably changes nothing.
        """
        return False

    def title_of(self, args: A) -> str:
        """One line that tells a person what this call does."""
        return self.subject_of(args).text

    @abstractmethod
    async def run(self, args: A, ctx: ToolContext) -> ToolOutput: ...

    def build_spec(self, brief: bool = False) -> ToolSpec:
        return ToolSpec(self.name, self.short if brief else self.description, schema_of(self.args, brief))


def schema_of(args: type[Struct], brief: bool = False) -> dict[str, Any]:
    """The JSON schema of an argument struct, inlined, without what tells a model nothing (titles, null, defaults)."""
    raw = msgspec.json.schema(args)
    return _slim_schema(raw, raw.get("$defs", {}), brief)


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
