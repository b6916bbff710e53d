"""The protocol between `odin serve`, or a process that has a session open, and its clients: HTTP/1.1 and JSON.

It is the events and ops of a session, its snapshot and the queries of `Client` and `Sessions`. Every endpoint is in
`ENDPOINTS` with the right that it needs: the server routes by this table, the remote client calls by it, and the
OpenAPI description is made of it. The endpoint `events` answers with server-sent events: each envelope is the data of
one, and its number the id if it is durable; `heartbeat`, `resync` and `closed` are events of the stream itself. `view`
is the same for the web page, which gets blocks of the transcript instead of events.
"""

from typing import Any, Literal

from msgspec import Struct, field

from odin.core.call_events import UsageGrouping, UsageReport
from odin.core.client import (
    AgentSummary,
    AvailableModel,
    ChangedFile,
    ContextReport,
    CustomCommand,
    ExportFormat,
    LoopStatus,
    MemoryFile,
    ProcessOutput,
    ProcessRecord,
    RewindPlan,
    SavedSetting,
    ServerScope,
    SessionInfo,
    SessionMatch,
    SessionPreview,
    SessionSummary,
    Snapshot,
)
from odin.core.event_values import Mode
from odin.core.op import Op, Prompt, Rewind
from odin.core.policy import RuleLine
from odin.core.rights import Right

VERSION_HEADER = "odin-version"
"""The version of Odin. A client that sends another one than the server's is refused."""

RUN_HEADER = "odin-run"
"""A random name of this run of the server. An op that a client repeats after a restart may have been carried out."""

HEARTBEAT_S = 10.0
FRAME_S = 0.03
"""How long events of a session are collected before they are sent."""

MAX_BODY_BYTES = 32_000_000


class Problem(Struct, frozen=True):
    """Why a request was refused: a sentence, what to do, and the class of the error."""

    error: str
    hint: str = ""
    kind: str = "OdinError"


class Pairing(Struct, frozen=True):
    code: str
    name: str = ""


class Paired(Struct, frozen=True):
    token: str
    name: str
    right: Right


class ShareLink(Struct, frozen=True):
    """What stands in the link of a shared session: `#share/ID/SECRET`."""

    id: str
    secret: str


class SharedSession(Struct, frozen=True):
    """A shared session as it was when it was shared. `blocks` are those of its transcript, `first` is 0."""

    title: str
    created: float
    expires: float
    cwd: str
    model: str
    first: int
    blocks: tuple[dict[str, Any], ...]


class Identity(Struct, frozen=True):
    """Who the client is to the server. `run` is the name of this run of the server."""

    name: str
    right: Right
    version: str
    run: str


class OpRequest(Struct, frozen=True):
    """An op. `id` is made by the client: repeated with the same content it is not carried out twice.

    `turn` is the running turn that it means, if it means one: what has ended meanwhile is not interrupted.
    """

    id: str
    op: Op
    turn: str = ""


class Receipt(Struct, frozen=True):
    """The outcome of an op. `done` is False if there was nothing to act on. `seq` is the last number at that time."""

    done: bool
    seq: int


class NewSession(Struct, frozen=True):
    """What a new session starts with; "" is the default. A permission mode and a role need the right to approve."""

    cwd: str = ""
    role: str = ""
    model: str = ""
    permission_mode: str = ""


class ForkRequest(Struct, frozen=True):
    turn: str = ""


class PlanRequest(Struct, frozen=True):
    """The name of a plan; "" is the newest. A role needs the right to approve."""

    plan: str = ""
    role: str = ""


class OpenedSession(Struct, frozen=True):
    """A session to go on with. `draft` is the prompt that a fork left out, `prompt` the first of a plan's session."""

    session: str
    draft: str = ""
    prompt: Prompt | None = None


class TitleRequest(Struct, frozen=True):
    title: str


class SettingRequest(Struct, frozen=True):
    key: str
    value: str


class ServerRequest(Struct, frozen=True):
    url: str


class StatusFacts(Struct, frozen=True):
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


class NoArguments(Struct, frozen=True):
    pass


class EventsFrom(Struct, frozen=True):
    """`after`: first the durable events with a higher number; without it only those from now on."""

    after: int | None = None


class StreamStart(Struct, frozen=True):
    """The data of the stream's first event, `open`: the number of the last event before it."""

    seq: int


class Words(Struct, frozen=True):
    words: str = ""
    limit: int = 20


class NamedSession(Struct, frozen=True):
    """A session of the project by id, or what identifies it: a prefix of the id, words of the title."""

    name: str


class ServersAsked(Struct, frozen=True):
    servers: ServerScope = "none"


class AgentNamed(Struct, frozen=True):
    agent: str = ""


class ProcessNamed(Struct, frozen=True):
    id: str
    after: int = 0


class PromptsAsked(Struct, frozen=True):
    limit: int = 200


class UsageAsked(Struct, frozen=True):
    by: UsageGrouping = "day"
    days: int = 0
    session: str = ""


class PathsAsked(Struct, frozen=True):
    path: tuple[str, ...] = ()


class ExportAsked(Struct, frozen=True):
    form: ExportFormat = "markdown"


class BlocksAsked(Struct, frozen=True):
    """The blocks of an agent's transcript before the index `end`."""

    end: int
    agent: str = ""
    limit: int = 200


class EarlierBlocks(Struct, frozen=True):
    """Blocks of a transcript; `first` is the index of the first of them."""

    blocks: list[dict[str, Any]]
    first: int = 0


class ImageAsked(Struct, frozen=True):
    """An image of a block of an agent's transcript."""

    block: str
    agent: str = ""
    index: int = 0


class CompletionAsked(Struct, frozen=True):
    """A line of a prompt with the cursor in `column`. `first`: it is the first one, where commands are completed."""

    line: str
    column: int
    first: bool = True


class Suggestion(Struct, frozen=True):
    """What can stand in place of the letters before the cursor. `continues`: more has to be typed after it.

    `is_runnable`: the line can be sent as it is then.
    """

    label: str
    insert: str
    hint: str = ""
    help: str = ""
    continues: bool = False
    is_runnable: bool = False


class Completion(Struct, frozen=True):
    """Suggestions for the letters between two columns."""

    start: int = 0
    end: int = 0
    items: tuple[Suggestion, ...] = ()


class EditRequest(Struct, frozen=True):
    """New texts for arguments of the call that a permission request is about, by their names; at first none."""

    id: str
    texts: dict[str, str] = {}


class EditedRequest(Struct, frozen=True):
    """The name of each argument, the name as it is shown, and its text; with edits, an answer has `args`, `summary`."""

    fields: tuple[tuple[str, str, str], ...]
    args: dict[str, Any]
    summary: str
    request: dict[str, Any]


class CommandRequest(Struct, frozen=True):
    """A slash command as typed. `mode` is that of the next prompt, `agent` the one it would go to.

    What it says is made for lines of so many `columns`.
    """

    line: str
    mode: Mode = "edit_mode"
    agent: str = ""
    columns: int = 100


class CommandAnswer(Struct, frozen=True):
    """What a slash command says, and what it changes for its client.

    `session` is another session to go on with, `draft` a text for the composer, `prompt` one to be sent there.
    """

    text: str
    session: str = ""
    draft: str = ""
    prompt: Prompt | None = None
    mode: Mode = "edit_mode"
    agent: str = ""


BoardTone = Literal["", "good", "warn", "bad", "dim"]


class BoardCell(Struct, frozen=True, omit_defaults=True):
    """`progress`, from 0 to 1, is drawn as a bar before the text. `session` is one that the text opens."""

    text: str = ""
    tone: BoardTone = ""
    progress: float | None = None
    session: str = ""


class BoardAction(Struct, frozen=True, omit_defaults=True):
    """A button of a row. `id` is for the server alone; a `question` is asked first, and answered with the label."""

    label: str
    id: str
    question: str = ""


class BoardRow(Struct, frozen=True, omit_defaults=True):
    """`key` is the same as long as the row is about the same thing."""

    key: str
    cells: tuple[BoardCell, ...]
    actions: tuple[BoardAction, ...] = ()


class BoardSection(Struct, frozen=True, omit_defaults=True):
    """A line of facts and a table, which may be empty. `more` is how many rows were left out."""

    heading: str
    facts: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[BoardRow, ...] = ()
    more: int = 0


class BoardSummary(Struct, frozen=True):
    name: str
    title: str


class Board(Struct, frozen=True):
    """What the page shows of something besides the sessions, such as the gateway. Its texts are for people."""

    name: str
    title: str
    sections: tuple[BoardSection, ...]


class BoardNamed(Struct, frozen=True):
    name: str


class BoardRequest(Struct, frozen=True):
    """The action of a row to carry out."""

    name: str
    action: str


class BoardAnswer(Struct, frozen=True):
    """What was done, in a sentence."""

    text: str


class ApiEndpoint(Struct, frozen=True):
    """One route. `right` None: no token is needed. `query` are its parameters, `body` and `result` are JSON.

    `{session}` in the path is the id of a session.
    """

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    right: Right | None
    summary: str
    result: Any
    query: type[Struct] = NoArguments
    body: Any = None


def _ask(name: str, summary: str, result: Any, query: type[Struct] = NoArguments) -> ApiEndpoint:
    return ApiEndpoint(name, "GET", f"/sessions/{{session}}/{name}", "view", summary, result, query)


_S = "/sessions/{session}"

_LIST = (
    ApiEndpoint("pair", "POST", "/pair", None, "Exchange a pairing code for a token.", Paired, body=Pairing),
    ApiEndpoint("shared", "POST", "/shared", None, "Read a shared session.", SharedSession, body=ShareLink),
    ApiEndpoint("me", "GET", "/me", "view", "Name and right of the client, version and run of the server.", Identity),
    ApiEndpoint("all", "GET", "/sessions", "view", "Sessions that can be opened.", tuple[SessionSummary, ...]),
    ApiEndpoint("new", "POST", "/sessions", "prompt", "Start a session.", OpenedSession, body=NewSession),
    ApiEndpoint("events", "GET", f"{_S}/events", "view", "Events, as server-sent events.", None, EventsFrom),
    ApiEndpoint("view", "GET", f"{_S}/view", "view", "Blocks and state for the page, as events.", None, AgentNamed),
    ApiEndpoint("ops", "POST", f"{_S}/ops", "view", "Submit an op; it needs its own right.", Receipt, body=OpRequest),
    _ask("snapshot", "The state, with the number of the last event and what waits for an answer.", Snapshot),
    _ask("info", "What a front end shows before the first event.", SessionInfo),
    _ask("context", "The content of the context window, by source.", ContextReport),
    _ask("rules", "The permission rules in force.", tuple[RuleLine, ...]),
    _ask("models", "The models that can be used.", tuple[AvailableModel, ...], ServersAsked),
    _ask("commands", "The custom commands.", tuple[CustomCommand, ...]),
    _ask("agents", "The agent definitions.", tuple[AgentSummary, ...]),
    _ask("memory", "The memory of the user and of the project.", tuple[MemoryFile, ...]),
    _ask("processes", "The background processes.", tuple[ProcessRecord, ...]),
    _ask("process", "Recent output of a background process.", ProcessOutput, ProcessNamed),
    _ask("loop", "The state of loop mode.", LoopStatus, AgentNamed),
    _ask("files", "Paths of the project that match the letters.", tuple[str, ...], Words),
    _ask("blocks", "Earlier blocks of a transcript.", EarlierBlocks, BlocksAsked),
    _ask("image", "An image of a block.", bytes, ImageAsked),
    _ask("complete", "Complete a command or a file name.", Completion, CompletionAsked),
    _ask("sessions", "The sessions of the project.", tuple[SessionSummary, ...]),
    _ask("search", "Search the sessions of the project.", tuple[SessionMatch, ...], Words),
    _ask("find", "The id of the session of the project with this name.", str, NamedSession),
    _ask("preview", "The end of the conversation of a session of the project.", SessionPreview, NamedSession),
    _ask("prompts", "Recent prompts of the project, newest first.", tuple[str, ...], PromptsAsked),
    _ask("usage", "Tokens and cost of the project or one session.", UsageReport, UsageAsked),
    _ask("changes", "The uncommitted changes in git.", tuple[ChangedFile, ...], PathsAsked),
    _ask("export", "The session as Markdown, JSON or HTML.", str, ExportAsked),
    ApiEndpoint("rewind", "POST", f"{_S}/rewind", "view", "What a rewind would do to files.", RewindPlan, body=Rewind),
    ApiEndpoint("status", "POST", f"{_S}/status", "prompt", "The user's own status line.", str, body=StatusFacts),
    ApiEndpoint("command", "POST", f"{_S}/command", "view", "Run a slash command.", CommandAnswer, body=CommandRequest),
    ApiEndpoint(
        "edit", "POST", f"{_S}/edit", "approve", "Edit a call that is asked about.", EditedRequest, body=EditRequest
    ),
    ApiEndpoint("next", "POST", f"{_S}/new", "prompt", "Start a session in the same folder.", OpenedSession),
    ApiEndpoint("fork", "POST", f"{_S}/fork", "prompt", "Copy the session.", OpenedSession, body=ForkRequest),
    ApiEndpoint("plan", "POST", f"{_S}/plan", "prompt", "A new session for a plan.", OpenedSession, body=PlanRequest),
    ApiEndpoint("title", "POST", f"{_S}/title", "prompt", "Rename the session.", None, body=TitleRequest),
    ApiEndpoint("delete", "DELETE", _S, "approve", "Delete the session.", None),
    ApiEndpoint("setting", "POST", f"{_S}/setting", "approve", "Save a setting.", SavedSetting, body=SettingRequest),
    # A board is not limited to the sessions that are served: it has texts and names from all chats of the user.
    ApiEndpoint("boards", "GET", "/boards", "approve", "The boards that there are.", tuple[BoardSummary, ...]),
    ApiEndpoint("board", "GET", "/board", "approve", "A board, as it is now.", Board, BoardNamed),
    ApiEndpoint("act", "POST", "/board", "approve", "Do what a row offers.", BoardAnswer, body=BoardRequest),
    ApiEndpoint("server", "POST", f"{_S}/server", "approve", "Add a server.", tuple[str, ...], body=ServerRequest),
)

ENDPOINTS = {endpoint.name: endpoint for endpoint in _LIST}

TURN_OPS = ("Interrupt", "SetMode", "MoveToBackground")
"""The ops that mean the running turn: one that names an earlier turn does nothing."""
