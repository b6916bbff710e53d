"""The sessions of a project, as a front end sees them: which there are, and going from one to another."""

from typing import Literal, Protocol

from msgspec import Struct

from odin.core.client import Client
from odin.core.message import Usage
from odin.core.usage import UsageGrouping, UsageReport

ExportFormat = Literal["markdown", "json", "html"]


class SessionSummary(Struct, frozen=True):
    """One line of the list. `first` is the first prompt still in the conversation, `original` the first there ever was.

    `locked` names whoever has it open, or is empty. `forked_from` is the session it was copied from.
    """

    id: str
    modified: float
    created: float = 0.0
    title: str = ""
    first: str = ""
    original: str = ""
    turns: int = 0
    model: str = ""
    cwd: str = ""
    forked_from: str = ""
    locked: str = ""
    usage: Usage = Usage()
    cost_usd: float = 0.0
    bytes: int = 0


class SessionMatch(Struct, frozen=True):
    """A place where a search found its words: in which session, in whose words, and the words around them."""

    session: SessionSummary
    where: Literal["title", "prompt", "answer", "tool", "summary"]
    snippet: str
    seq: int = -1


class Exchange(Struct, frozen=True):
    """A prompt and the last words of its answer, both shortened. `started` is when it was asked."""

    prompt: str
    answer: str = ""
    started: float = 0.0


class SessionPreview(Struct, frozen=True):
    """The end of a conversation, at a glance. `earlier` says that there is more before it."""

    session: str
    exchanges: tuple[Exchange, ...] = ()
    earlier: bool = False


class Sessions(Protocol):
    """Holds the one session that is open, and knows the others.

    Whatever goes to another session opens and locks it first; when that fails, the open one stays as it is.
    """

    @property
    def client(self) -> Client:
        """The session that is open now."""
        ...

    async def open_new(self) -> Client: ...

    async def resume(self, session: str) -> Client: ...

    async def fork(self, turn: str = "") -> tuple[Client, str]:
        """A copy of the open session up to before the prompt `turn`, and that prompt's text to be edited.

        Without a turn everything is copied and there is no text.
        """
        ...

    async def list_sessions(self) -> tuple[SessionSummary, ...]: ...

    async def search(self, words: str) -> tuple[SessionMatch, ...]: ...

    async def list_prompts(self, limit: int = 200) -> tuple[str, ...]:
        """What was asked lately in the sessions of the project, as it was typed, the newest first and each once."""
        ...

    async def preview(self, session: str) -> SessionPreview:
        """How the conversation ended. Only the end of its log is read, so that a long one is shown at once."""
        ...

    async def report_usage(self, by: UsageGrouping = "day", *, days: int = 0, session: str = "") -> UsageReport:
        """What this project, or one session, has spent today and in the days before, `days` in all; 0 for ever."""
        ...

    async def rename(self, session: str, title: str) -> None: ...

    async def delete(self, session: str) -> None: ...

    async def export(self, session: str, form: ExportFormat, path: str = "") -> str:
        """Write a session to a file and say which. Without a path it is put beside the session."""
        ...

    async def close(self) -> None: ...
