"""Events of model requests and tool calls: chunks, permission requests, questions, background processes.

Token usage and cost, summed up.
"""

from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, field

from odin.core.effects import EffectSummary
from odin.core.event_values import (
    Activity,
    CachedFile,
    CallAudit,
    CallStatus,
    DiscardReason,
    Event,
    FileChange,
    PlanDecision,
    Question,
    SkippedFile,
    Todo,
)
from odin.core.message import Image, ReplyMessage, Usage
from odin.core.policy import Danger, RecordedHookPoint, RememberScope, RuleAction

# --- one model request ---


class Replied(Event, frozen=True):
    """The model's complete reply. It is final: no rollback follows."""

    message: ReplyMessage


class ReplyDrafted(Event, frozen=True):
    """Text of a reply that still streams, from its character `start` on. This is what a crash leaves of the reply."""

    text: str
    start: int


CacheMissCause = Literal["model", "tools", "system", "settings", "history", "expired", "dropped"]
"""What was different from the request before. `settings`: the effort or how it thinks; `history`: messages that had
been sent were left out or edited; `dropped`: nothing, and no time had passed, but the provider had it no more."""


class CacheMiss(Struct, frozen=True):
    """Tokens that the provider's cache had, or was given, with the request before, and that were not read from it."""

    cause: CacheMissCause
    tokens: int


class PromptMark(Struct, frozen=True):
    """Hashes of what was sent `at` this time: enough to tell how the next request differs. `history` is that of all
    `count` messages."""

    at: float
    tools: int
    system: int
    settings: int
    count: int
    history: int


class UsageRecorded(Event, frozen=True):
    """Tokens and cost of one model request. A cost of 0 means unknown, unless the model is `free`.

    `context_window` is 0 if unknown; `purpose` is `main` for the main model, or the name of the small job.
    `estimated`: the reply was cut off before the provider reported all tokens, so some are counted by length.
    `sent` is None for small jobs, and if the provider does not say what it sends.
    """

    model: str
    usage: Usage
    cost_usd: float = 0.0
    context_window: int = 0
    purpose: str = "main"
    free: bool = False
    estimated: bool = False
    sent: PromptMark | None = None
    cache_miss: CacheMiss | None = None


class ReplyDiscarded(Event, frozen=True):
    """A reply was dropped because it was cut off, malformed or empty."""

    reason: str


class RetryScheduled(Event, frozen=True):
    attempt: int
    attempts: int
    delay_s: float
    error: str
    error_kind: str

    @property
    def number(self) -> str:
        """`2 of 6`, or `2` if there is no limit."""
        return f"{self.attempt} of {self.attempts}" if self.attempts else str(self.attempt)


class RateLimitUpdated(Event, frozen=True):
    """The provider's remaining rate limits; -1 if not reported. They reset in `reset_s` seconds.

    `key` is the end of the key that they are about.
    """

    durable = False
    provider: str
    requests_left: int = -1
    requests_limit: int = -1
    tokens_left: int = -1
    tokens_limit: int = -1
    reset_s: float = 0.0
    key: str = ""


class KeyPoolChanged(Event, frozen=True):
    """The keys of a provider changed. `healthy` of `total` can be used and have not failed since their last success.

    `key` is the end of the one in use. `next_s` is the time until one more can be used, 0 if none is in cooldown.
    """

    durable = False
    provider: str
    healthy: int
    total: int
    key: str = ""
    next_s: float = 0.0


class RequestStarted(Event, frozen=True):
    """A model request is about to be sent: number `step` of this turn, with about `tokens` tokens."""

    durable = False
    step: int
    model: str = ""
    tokens: int = 0


class RequestProgressed(Event, frozen=True):
    """How much of the reply has arrived; published a few times per second."""

    durable = False
    chunks: int
    chars: int


class TextStreamed(Event, frozen=True):
    durable = False
    text: str


class ThinkingStarted(Event, frozen=True):
    durable = False


class ThinkingStreamed(Event, frozen=True):
    durable = False
    text: str


class ThinkingEnded(Event, frozen=True):
    """One complete thinking block and its duration."""

    durable = False
    text: str
    seconds: float = 0.0


class CallStreamed(Event, frozen=True):
    """A tool call is streaming in. With `done` it carries the final arguments and `chars` is 0."""

    durable = False
    call_id: str
    name: str
    json_delta: str = ""
    chars: int = 0
    done: bool = False
    args: dict[str, Any] = field(default_factory=dict[str, Any])


class ReplyRolledBack(Event, frozen=True):
    """Front ends drop the unfinished text and calls: the reply starts again."""

    durable = False
    reason: str


class ActivityChanged(Event, frozen=True):
    """What an agent does now. `agent` is set for observers, which get no envelope: its name, or `main`."""

    durable = False
    activity: Activity
    detail: str = ""
    agent: str = ""


# --- tools ---


class ToolStarted(Event, frozen=True):
    """A tool call starts. Recorded before any side effect, with the arguments that run."""

    call_id: str
    name: str
    args: dict[str, Any]
    description: str = ""


class ToolEnded(Event, frozen=True):
    """A tool call finished.

    `text` is for the model, `display` for people (a diff, a list), `note` for the tool history, `images` for the model.
    `asynchronous`: work continues after the call. `audit` records changed arguments, `redacted` the names of removed
    secrets, `error_kind` the class of the error, such as `UnreadFile` or `NeedsConfirmation`. `aside` is a line for the
    user that needs no attention, such as caches that were kept.
    """

    call_id: str
    name: str
    status: CallStatus
    text: str
    note: str = ""
    display: str = ""
    for_user: str = ""
    files: tuple[str, ...] = ()
    duration_ms: int = 0
    images: tuple[Image, ...] = ()
    asynchronous: bool = False
    audit: CallAudit | None = None
    redacted: tuple[str, ...] = ()
    error_kind: str = ""
    aside: str = ""


class CallQueued(Event, frozen=True):
    """A call is authorized and waits for a free slot; `ToolStarted` follows."""

    durable = False
    call_id: str
    name: str


class CallSpeculated(Event, frozen=True):
    """A tool call starts while its reply is still streaming. Recorded before the call runs.

    `ToolStarted` with the same id commits it; `CallDiscarded` rolls it back.
    """

    call_id: str
    name: str
    args: dict[str, Any]


class CallDiscarded(Event, frozen=True):
    """A speculative call was rolled back.

    `restored` lists the file changes undone; `skipped_files` could not be, usually because something else changed them.
    `kept_changes` are changes of a killed call that another call has built on.
    """

    call_id: str
    name: str
    args: dict[str, Any]
    reason: DiscardReason
    started: bool = True
    completed: bool = False
    restored: tuple[FileChange, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()
    kept_changes: tuple[FileChange, ...] = ()


class ToolProgressed(Event, frozen=True):
    durable = False
    call_id: str
    name: str
    text: str = ""
    elapsed_s: float = 0.0


class StatusUpdated(Event, frozen=True):
    """A live progress line for people, dropped when the turn ends."""

    durable = False
    text: str


class TodosChanged(Event, frozen=True):
    todos: tuple[Todo, ...]


class SkillUsed(Event, frozen=True, omit_defaults=True):
    """An agent read the text of a skill. `prompt` is the prompt with which the user called it as a slash command.

    `rules` are the tool calls that the skill allows until the turn ends. A custom command with `allowed-tools` counts.
    """

    name: str
    path: str = ""
    prompt: str = ""
    rules: tuple[str, ...] = ()


class MemoryChanged(Event, frozen=True):
    """The user changed the memory; `text` says how."""

    durable = False
    text: str


class FileCached(Event, frozen=True):
    """The model has now seen this file, fully or in part, or Odin has changed it."""

    file: CachedFile


class PermissionAsked(Event, frozen=True):
    """A tool call waits for approval.

    `title` is the call in a few words. `reason` says why it needs approval, `effect` in one sentence what it would do,
    and `danger` how dangerous that is.
    `rules` are the rules that would answer it from now on, narrowest first. `preview` shows what would change.
    `sandbox` names the sandbox the command would run in; `unsandboxed`: the request is to run it again without one.
    `asked_paths` need this approval, `allowed_paths` of the same call do not. `permission_modes` are the modes in which
    the session would not ask about it. `task` is what the sub-agent that asks works on. Approving it lets the command
    write `granted_paths` outside the project, and use the network if `granted_network`, in spite of the sandbox.

    With `effects`, the command has run in a view and the request is to keep what it wrote: `preview` is the diff of
    the text files, `git_changes` are the changes of the repository in git's words. `reason` says so if the command was
    interrupted or files changed meanwhile.
    """

    ask_id: str
    call_id: str
    name: str
    args: dict[str, Any]
    reason: str
    subject: str = ""
    rules: tuple[str, ...] = ()
    preview: str = ""
    sandbox: str = ""
    unsandboxed: bool = False
    asked_paths: tuple[str, ...] = ()
    allowed_paths: tuple[str, ...] = ()
    danger: Danger = "changes_files"
    effect: str = ""
    permission_modes: tuple[str, ...] = ()
    task: str = ""
    title: str = ""
    granted_paths: tuple[str, ...] = ()
    granted_network: bool = False
    effects: EffectSummary | None = None
    git_changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.danger == "harmless":  # the name in logs of earlier versions
            msgspec.structs.force_setattr(self, "danger", "read_only")


class PermissionAnswered(Event, frozen=True):
    """The answer to a request. `args` are the edited arguments, if any; `rule` is saved for the scope `remember`.

    `client` names the remote client from which the user answered; so it does for questions and plans.
    """

    ask_id: str
    call_id: str
    allowed: bool
    by: str = "user"
    reason: str = ""
    args: dict[str, Any] | None = None
    summary: str = ""
    rule: str = ""
    remember: RememberScope | None = None
    client: str = ""


class RuleAdded(Event, frozen=True):
    """The user added a rule. `role` is the role in which it holds, "": in every role."""

    text: str
    action: RuleAction
    scope: RememberScope = "session"
    role: str = ""


class RuleRemoved(Event, frozen=True):
    text: str
    action: RuleAction
    scope: RememberScope = "session"
    role: str = ""


class HookRan(Event, frozen=True):
    """A hook ran. `outcome` is one word; `detail` is its message or the error."""

    point: RecordedHookPoint
    hook: str
    outcome: Literal["silent", "allowed", "asked", "denied", "modified", "context", "halted", "failed", "timed_out"]
    detail: str = ""
    call_id: str = ""
    duration_ms: int = 0


class QuestionsAsked(Event, frozen=True):
    """A tool call asks the user, or the MCP server `server` does."""

    ask_id: str
    call_id: str
    questions: tuple[Question, ...]
    server: str = ""


class QuestionsAnswered(Event, frozen=True):
    """The chosen labels or typed text per question. `cancelled`: the user declined to answer."""

    ask_id: str
    call_id: str
    answers: tuple[tuple[str, ...], ...] = ()
    cancelled: bool = False
    by: str = "user"
    client: str = ""


class PlanAsked(Event, frozen=True):
    """The model presents a plan, saved in the file `path`, and waits for the user's decision.

    `roles` can carry it out, the suggested one first. `permission_modes` can be chosen with its approval.
    """

    ask_id: str
    call_id: str
    path: str
    title: str
    text: str
    roles: tuple[str, ...] = ()
    permission_modes: tuple[str, ...] = ()


class PlanAnswered(Event, frozen=True):
    """The decision about a plan. `comment` is for the model, `role` carries out an approved plan.

    `text` is the plan as the user edited it, or "".
    """

    ask_id: str
    call_id: str
    decision: PlanDecision
    comment: str = ""
    role: str = ""
    text: str = ""
    by: str = "user"
    client: str = ""


TOOL_EVENTS = (ToolStarted, ToolEnded, ToolProgressed)
"""The events of the topic `tool`: a call started, completed or failed. All others are of the topic `agent`."""

AskEvent = PermissionAsked | QuestionsAsked | PlanAsked
AnswerEvent = PermissionAnswered | QuestionsAnswered | PlanAnswered


# --- background processes ---


class SpawnStarted(Event, frozen=True):
    """A background process started. `max_runtime_s` is 0 for a service without a time limit."""

    id: str
    call_id: str
    command: str
    description: str = ""
    max_runtime_s: float = 0.0
    log: str = ""


class SpawnListening(Event, frozen=True):
    """A background process listens on a TCP port. `url` is where the host reaches it, or "" if it is not open."""

    id: str
    port: int
    url: str = ""


class SpawnFinished(Event, frozen=True):
    """A background process ended. `output` is the tail of its output."""

    id: str
    status: Literal["finished", "failed", "timed_out", "stopped"]
    code: int = 0
    output: str = ""


UsageGrouping = Literal["day", "model", "agent", "session", "purpose", "project"]
USAGE_GROUPINGS: tuple[UsageGrouping, ...] = get_args(UsageGrouping)


class MissedTokens(Struct, frozen=True):
    times: int
    tokens: int

    def __add__(self, other: "MissedTokens") -> "MissedTokens":
        return MissedTokens(self.times + other.times, self.tokens + other.tokens)


class UsageRow(Struct, frozen=True):
    """One line of a usage report. `cost_usd` excludes `unpriced_tokens`, the tokens of models without a known price.

    `estimated_tokens` belong to replies that were cut off before the provider had reported their usage. `cache_misses`
    are the tokens that the provider's cache did not have any more, by the reason.
    """

    name: str
    title: str
    calls: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost_usd: float
    unpriced_tokens: int
    cache_hit_rate: float | None
    estimated_tokens: int = 0
    cache_misses: dict[CacheMissCause, MissedTokens] = field(default_factory=dict["CacheMissCause", "MissedTokens"])


class UsageReport(Struct, frozen=True):
    period: str
    by: UsageGrouping
    rows: tuple[UsageRow, ...]
    total: UsageRow


def add_missed(
    one: dict[CacheMissCause, MissedTokens], other: dict[CacheMissCause, MissedTokens]
) -> dict[CacheMissCause, MissedTokens]:
    causes = dict.fromkeys((*one, *other))
    return {cause: one.get(cause, MissedTokens(0, 0)) + other.get(cause, MissedTokens(0, 0)) for cause in causes}


class UsageTotals(Struct, frozen=True, omit_defaults=True):
    """The sum of model requests. `unpriced` counts tokens without a known price; `cost_usd` excludes them.

    `estimated` counts the tokens of replies that were cut off before the provider had reported them all.
    """

    calls: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    unpriced: int = 0
    estimated: int = 0
    missed: dict[CacheMissCause, MissedTokens] = field(default_factory=dict["CacheMissCause", "MissedTokens"])

    @classmethod
    def from_event(cls, event: UsageRecorded) -> "UsageTotals":
        """Return the totals of one request. A cost of 0 means unknown unless the model is free."""
        unknown = event.cost_usd == 0 and not event.free
        tokens = event.usage.total
        miss = event.cache_miss
        missed: dict[CacheMissCause, MissedTokens] = {miss.cause: MissedTokens(1, miss.tokens)} if miss else {}
        return cls(1, event.usage, event.cost_usd, tokens if unknown else 0, tokens if event.estimated else 0, missed)

    def __add__(self, other: "UsageTotals") -> "UsageTotals":
        return UsageTotals(
            self.calls + other.calls,
            self.usage + other.usage,
            self.cost_usd + other.cost_usd,
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
            add_missed(self.missed, other.missed),
        )

    @property
    def known_cost_usd(self) -> float | None:
        """The cost; None if a price is unknown."""
        return None if self.unpriced else self.cost_usd

    @property
    def cache_hit_rate(self) -> float | None:
        """Return the share of input tokens served from the provider's cache, 0 to 1; None without input."""
        sent = self.usage.input + self.usage.cache_read + self.usage.cache_write
        return self.usage.cache_read / sent if sent else None
