"""What the engine needs from the application that composed a session: control over its settings and surroundings.

Only types: nothing imports this at run time.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

from odin.core.client import (
    AgentSummary,
    AvailableModel,
    ContextReport,
    MemoryFile,
    RewindPlan,
    ServerScope,
    SessionInfo,
)
from odin.core.event import AnyEvent, Envelope, ModelChanged
from odin.core.event_values import Mode
from odin.core.op import ChangeMemory, Compact, ControlServers, LanguageServerAction, Redo, Rewind
from odin.core.policy import ServerExchange
from odin.core.tool import Tool
from odin.engine.loop_mode import LoopMode


class Checkpoints(Protocol):
    """Saved states of files."""

    async def recover(self) -> None: ...

    async def record_background(self) -> None: ...

    async def rewind_or_redo(self, op: Rewind | Redo, stopped: tuple[str, ...]) -> None: ...

    async def plan(self, op: Rewind) -> RewindPlan: ...


class ManualCompaction(Protocol):
    """Summaries of the conversation that the user asks for."""

    async def compact(self, op: Compact) -> bool: ...

    def cancel(self, agent: str = "") -> bool: ...

    async def close(self) -> None: ...


class ModelControl(Protocol):
    """The models of the agents; "" is the main agent."""

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]: ...

    async def set_model(self, name: str, *, check: bool, agent: str = "") -> ModelChanged:
        """Switch an agent to a model or a pool. With `check`, first find out whether it exists."""
        ...

    def set_effort(self, effort: str, agent: str = "") -> AnyEvent: ...


class AgentControl(Protocol):
    """Prompts, tools, roles and skills of the agents."""

    def get_default_mode(self) -> Mode: ...

    def set_system_prompt(self, text: str | None, agent: str = "") -> None:
        """Replace the main text of an agent's system prompt; None restores it."""
        ...

    def set_tools(self, names: Collection[str] | None, agent: str = "") -> tuple[str, ...] | None:
        """Offer an agent only these tools, or the usual ones again. Return their full names. Raise UsageError."""
        ...

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        """Add tools to those of an agent, in place of those that have the same name."""
        ...

    async def set_role(self, name: str) -> tuple[str, ModelChanged | None]:
        """Switch the role. Return its full name and the model, None if that stays; ("", None) if nothing changed."""
        ...

    def define_agents(self, agents: dict[str, Any]) -> tuple[str, ...]:
        """Add agent definitions and return the mistakes in them."""
        ...

    def list_agents(self) -> tuple[AgentSummary, ...]: ...

    def set_skills(self, names: Collection[str] | None) -> tuple[str, ...]:
        """Offer only these skills, or all of them. Return the names of those that do not exist."""
        ...

    def make_loop_mode(self, agent: str) -> LoopMode:
        """Make the loop mode of an agent; its model is offered the Done tool while it is on."""
        ...


class MemoryControl(Protocol):
    async def change(self, op: ChangeMemory) -> str:
        """Change the memory as the user asks and return a sentence about it."""
        ...

    async def read(self) -> tuple[MemoryFile, ...]: ...


class ServerControl(Protocol):
    """MCP servers and language servers."""

    def add_server(self, name: str, exchange: ServerExchange) -> None: ...

    async def control(self, op: ControlServers) -> tuple[str, ...]:
        """Carry out an op on MCP servers and return those that were enabled or disabled."""
        ...

    def switch_language_server(self, name: str, action: LanguageServerAction) -> bool:
        """Restart, disable or enable a language server, or all. Raise UsageError for an unknown name."""
        ...


class RootControl(Protocol):
    """The folders besides the project."""

    async def add(self, text: str) -> bool:
        """Add a folder or change its access, and record it; False if nothing changed. Raise UsageError."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a folder and record it. Raise UsageError if it was not added."""
        ...


class FileSearch(Protocol):
    """The search for files of one client: a new query ends the previous one."""

    async def __call__(self, words: str, limit: int) -> tuple[str, ...]: ...

    async def close(self) -> None: ...


class Surroundings(Protocol):
    """What a session finds around it, and what it releases at its end."""

    def read_past(self) -> Iterator[Envelope]:
        """Yield the events of the session's log from its start."""
        ...

    def describe(self) -> SessionInfo: ...

    def report_context(self) -> ContextReport: ...

    async def read_status_line(self, facts: dict[str, Any]) -> str: ...

    def make_file_search(self) -> FileSearch: ...

    async def refresh(self) -> None:
        """Called before a prompt starts: bring the git status and the like up to date."""
        ...

    async def close(self) -> None:
        """Release everything the session does not own. The session is closed already."""
        ...
