"""One tool call of the model as a value, and everything its execution needs (execution.py)."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from odin.core.call_events import ToolEnded
from odin.core.effects import FileEffect, ViewLayer
from odin.core.errors import Denied, OdinError
from odin.core.event_values import CachedFile, CallAudit, CallStatus, DiscardReason, Mode
from odin.core.message import ToolCall
from odin.core.policy import Redact, redact_nothing
from odin.core.profile import NO_GRANTS, SandboxGrants
from odin.core.text import to_valid_unicode
from odin.core.tool import Registry, ResolvedPath, Target, Tool, ToolContext, ToolOutput, fail
from odin.engine.hooks import HookInbox
from odin.engine.interactions import Interactions
from odin.engine.limits import RepetitionGuard
from odin.engine.recorder import Recorder
from odin.engine.rule_changes import RuleChanges
from odin.policy.decision import Decision
from odin.sandbox.background import BackgroundProcess
from odin.session.history import FileHistory

if TYPE_CHECKING:
    from odin.policy.policy import Policy
    from odin.sandbox.views.applier import ApplyResult

CallStage = Literal["requested", "evaluated", "authorized", "refused", "running", "finished", "recorded"]
"""`evaluated`: the arguments are valid and no rule denies the call; hooks and the user have not been asked yet."""


class CallRefusal(Struct, frozen=True):
    """Why a call does not run. `text` is the result the model reads.

    `discard_reason` is recorded if the call had been started speculatively. `error_type` names the error; a denied
    call without one counts as `Denied`.
    """

    text: str
    status: CallStatus = "error"
    discard_reason: DiscardReason = "not_run"
    error_type: type[OdinError] | None = None

    @property
    def error_kind(self) -> str:
        return (self.error_type or Denied).__name__ if self.error_type or self.status == "denied" else ""


class Call(Struct, frozen=True):
    """One tool call. Every step of the pipeline returns a new value; nothing changes one in place.

    `request` holds the arguments that run, which a hook or the user may have replaced; `audit` then tells the original
    ones. `args` are the same arguments parsed. `asked_paths` need permission, `allowed_paths` of the same call do not.
    If a hook wants the user to be asked (`is_asked_by_hook`), a rule added meanwhile does not allow the call.
    `left_out` are the secret files that the arguments were made to leave out. `grants` is what the user's approval lets
    a command do in spite of the sandbox.
    `stops_turn`: the user's answer also ends the turn.
    """

    request: ToolCall
    stage: CallStage = "requested"
    registered_tool: Tool[Any] | None = None
    args: Any = None
    target: Target = Target()
    decision: Decision = Decision("deny")
    asked_paths: tuple[str, ...] = ()
    allowed_paths: tuple[str, ...] = ()
    is_asked_by_hook: bool = False
    left_out: tuple[str, ...] = ()
    grants: SandboxGrants = NO_GRANTS
    audit: CallAudit | None = None
    refusal: CallRefusal | None = None
    output: ToolOutput = ToolOutput("")
    duration_ms: int = 0
    stops_turn: bool = False

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def name(self) -> str:
        """The name of the tool; as the model wrote it if the call was refused."""
        return self.request.name if self.registered_tool is None or self.is_refused else self.registered_tool.name

    @property
    def tool(self) -> Tool[Any]:
        """The tool. Raise LookupError for a call that was not checked."""
        if self.registered_tool is None:
            raise LookupError(self.request.name)
        return self.registered_tool

    @property
    def is_refused(self) -> bool:
        return self.refusal is not None

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that an evaluated call acts on, as absolute paths without links."""
        return tuple(item.path for item in self.target.resolved)

    def refuse(
        self,
        text: str,
        status: CallStatus = "error",
        *,
        discard_reason: DiscardReason = "not_run",
        error_type: type[OdinError] | None = None,
        stops_turn: bool = False,
    ) -> "Call":
        refusal = CallRefusal(text, status, discard_reason, error_type)
        return msgspec.structs.replace(self, stage="refused", refusal=refusal, output=fail(text), stops_turn=stops_turn)

    def refuse_with(self, output: ToolOutput) -> "Call":
        """Refuse the call with the error that its tool would give."""
        return msgspec.structs.replace(self, stage="refused", refusal=CallRefusal(output.text), output=output)


def _return_false() -> bool:
    return False


def _ignore_result(call: Call, ended: ToolEnded) -> None:
    return


class CallScope(Struct):
    """The turn a call belongs to. While a steering prompt waits (`is_steered`), calls not yet started are skipped.

    `on_result` is called with every call whose result was recorded. A call can change the rest of the turn: `mode` is
    its mode, an `answer` ends it. `plan_path` is the file of the last plan that was presented. `is_approved`: the user
    has approved its calls beforehand. `is_denied`: every call that would have changed something was denied; None while
    there was no such call.
    `told_hidden` are the files of which the model knows that commands cannot read them. `channel` and `chat` name the
    origin of the conversation.
    """

    agent: str
    mode: Mode
    cwd: str
    root: str
    guard: RepetitionGuard
    is_steered: Callable[[], bool] = _return_false
    on_result: Callable[[Call, ToolEnded], None] = _ignore_result
    answer: str = ""
    plan_path: str = ""
    is_approved: bool = False
    is_denied: bool | None = None
    told_hidden: tuple[str, ...] = ()
    channel: str = "cli"
    chat: str = "direct"

    def follow(self, output: ToolOutput) -> None:
        """Change the rest of the turn as the output of a call says."""
        self.mode = output.mode or self.mode
        self.answer = "" if output.keeps_turn else output.answer or self.answer
        self.plan_path = output.plan_path or self.plan_path


class FinishedCall(Struct, frozen=True):
    """A call that ran a command or changed files. `asynchronous`: its process went on in the background."""

    command: str
    status: CallStatus
    error_kind: str = ""
    asynchronous: bool = False
    changed: tuple[str, ...] = ()


_SUB_AGENT_TOOL = "AgentTool"
"""The tool that runs a sub-agent to its end, whose changes belong to the turn."""


class TurnCalls:
    """The commands and file changes of one turn of `agent`, in order. `add` is the `on_result` of its scope.

    `touched` are the files that calls named since the last request.
    """

    def __init__(self, history: FileHistory, agent: str) -> None:
        self.finished: list[FinishedCall] = []
        self.has_changes = False
        self.touched: list[str] = []
        self._history = history
        self._agent = agent
        self._mark = history.mark()

    def add(self, call: Call, ended: ToolEnded) -> None:
        if ended.status == "success":
            self.touched += call.paths
        history, mark = self._history, self._mark
        self._mark = history.mark()
        is_shared = call.name == _SUB_AGENT_TOOL
        made = history.list_since(mark) if is_shared else history.list_made_by(self._agent, mark)
        changed = [item.change.before.path for item in made]
        if not call.is_refused and call.tool.kind == "edit" and ended.status == "success":
            changed += ended.files
        command = call.target.command
        if command or changed:
            files = tuple(dict.fromkeys(changed))
            self.finished.append(FinishedCall(command, ended.status, ended.error_kind, ended.asynchronous, files))
            self.has_changes = self.has_changes or bool(changed)


BeforeStep = Callable[[Tool[Any], Any, ToolContext], Awaitable[ToolOutput | None]]
"""A step before a call runs. If it returns an output, the call does not run and that is its result."""

AroundStep = Callable[[Tool[Any], Any, ToolContext], AbstractAsyncContextManager[None]]
"""A context manager around the running tool. It exits however the call ends, also on cancellation."""

AfterStep = Callable[[Tool[Any], Any, ToolOutput, ToolContext], Awaitable[ToolOutput]]
"""A step after a call ran. It returns the output to use."""


ApplyStep = Callable[[str, str, ViewLayer, Sequence[FileEffect]], Awaitable["ApplyResult"]]
"""Makes effects of a command real, and records them for undo. Takes the ids of the call and the agent."""


FollowStep = Callable[[ResolvedPath, str], str]
"""Tells the model how a hook has changed a file that a call in this folder wrote; "" if it has not."""


class CallSteps(Struct, frozen=True):
    """Steps the application adds around every call."""

    before: Sequence[BeforeStep] = ()
    around: AroundStep = lambda tool, args, context: nullcontext()
    after: Sequence[AfterStep] = ()
    apply: ApplyStep | None = None
    follow: FollowStep = lambda place, cwd: ""


PreviewCall = Callable[[Any, tuple[ResolvedPath, ...]], Awaitable[str]]
"""Return the change that arguments would make to the checked paths, as text for the user; "" if there is none."""


async def skip_preview(args: Any, resolved_paths: tuple[ResolvedPath, ...]) -> str:
    return ""


PreviewEffects = Callable[[ViewLayer, Sequence[FileEffect], str], Awaitable[str]]
"""Return the diff of the text files among these effects; the path is the project's, for the names of files."""


async def _skip_effects(layer: ViewLayer, effects: Sequence[FileEffect], root: str) -> str:
    return ""


class CallDeps(Struct, frozen=True):
    """The collaborators of one agent's tool calls.

    `rules` is None where answers cannot be remembered. `sandbox` describes the sandbox commands run in.
    `take_seen_files` returns the files that entered the cache since it was last called. `save` stores a result that is
    too long for the model and returns its path; it only receives redacted text. `set_permission_mode` sets the mode of
    the session and returns its name. `list_secret_files` returns the files of the project that may contain secrets.
    `keep_layer` keeps what a command wrote with the session, and returns where. `find_moved` returns the process of a
    command in a view that the user has sent to the background.
    """

    registry: Registry
    policy: Callable[[], "Policy"]
    interactions: Interactions
    recorder: Recorder
    hooks: HookInbox
    redact: Redact = redact_nothing
    rules: RuleChanges | None = None
    preview: PreviewCall = skip_preview
    preview_effects: PreviewEffects = _skip_effects
    list_secret_files: Callable[[], tuple[str, ...]] = tuple
    keep_layer: Callable[[ViewLayer], str] = lambda layer: layer.folder
    find_moved: Callable[[str], BackgroundProcess | None] = lambda call_id: None
    sandbox: Callable[[], str] = lambda: ""
    steps: CallSteps = CallSteps()
    take_seen_files: Callable[[], Iterable[CachedFile]] = tuple
    save: Callable[[str], str] | None = None
    set_permission_mode: Callable[[str], Awaitable[str]] | None = None

    def clean(self, text: str) -> str:
        """Return the text without secrets, and as valid Unicode."""
        return to_valid_unicode(self.redact(text).text) if text else ""
