"""Ops: what a front end can ask of a session. `agent` names the agent that an op is for; "" is the main agent."""

from typing import Any, Literal

from msgspec import Struct

from odin.core.event_values import CompactionProfile, Delivery, Mode, PlanDecision
from odin.core.message import Attachment
from odin.core.policy import RememberScope, RuleAction
from odin.core.prompt import PromptData, PromptSource


class Prompt(PromptData, frozen=True, tag=True):
    """Answer a prompt. It starts at once if the session is idle and is queued if it is busy.

    `wait=False` raises SessionBusy instead of queueing. Without a `delivery` the configuration decides. An id that is
    already queued is rejected. Files mentioned in the text as `@path` or `@path:10-20` need not be in `attachments`. A
    prompt that has a `display_text` is not expanded as a custom command; one with a `temperature`, `max_tokens` or
    `output_schema` never joins another turn.
    """

    mode: Mode = "edit_mode"
    wait: bool = True
    agent: str = ""


class ChangePrompt(Struct, frozen=True, tag=True):
    """Edit a queued prompt. Fields that are None stay as they are. False if the prompt is unknown or has started.

    A new text also becomes the displayed text, unless `display_text` is given or the text names a custom command.

    The delivery `steer` sends the prompt into the running turn. Any delivery sends a paused prompt, at once if the
    session is idle. `source` says who wrote the new text or chose the new attachments.
    """

    id: str
    text: str | None = None
    mode: Mode | None = None
    delivery: Delivery | None = None
    display_text: str = ""
    attachments: tuple[Attachment, ...] | None = None
    agent: str = ""
    source: PromptSource | None = None


class DropPrompt(Struct, frozen=True, tag=True):
    """Remove a queued prompt. False if it is unknown or has started."""

    id: str
    agent: str = ""


QueuePolicy = Literal["pause", "keep", "inject", "drop"]
"""What an interrupt does to queued prompts: `pause` them until the user sends them, `keep` them queued and answer them,
`inject` them into the conversation without answering them, or `drop` them."""


class Interrupt(Struct, frozen=True, tag=True):
    """Stop the running turn with its tool calls and processes. False if nothing is running.

    Interrupting the main agent also stops all sub-agents at work and cancels their tasks, unless it is to stop `alone`.
    Interrupting a sub-agent stops only its own turn. Idle tasks stay idle, and no other agent starts a turn for it.
    """

    queue: QueuePolicy = "pause"
    agent: str = ""
    alone: bool = False


class CancelTask(Struct, frozen=True, tag=True):
    """Cancel a delegated task and the tasks below it. Their agents stop, and the tasks cannot be continued.

    False if the task has ended already. An unknown task raises UsageError.
    """

    task_id: str
    reason: str = ""


class CloseAgent(Struct, frozen=True, tag=True):
    """End a live sub-agent. Its task stays idle, and its owner can continue it with a new agent."""

    agent: str
    reason: str = ""


class Continue(Struct, frozen=True, tag=True):
    """Ask the model again with the conversation as it is, without a new prompt. The session must be idle."""

    id: str
    mode: Mode | None = None
    agent: str = ""


class SetLoop(Struct, frozen=True, tag=True):
    """Enable or disable loop mode. An idle session starts at once, a busy one after its turn.

    `goal` says when the work is done; "" means when the task list is done. `limit` is the maximum of iterations; 0 uses
    the configuration. `agent` is the agent that works; "" is the main agent. Disabling lets the running turn finish;
    False if loop mode was off.
    """

    enabled: bool
    goal: str = ""
    mode: Mode | None = None
    limit: int = 0
    agent: str = ""


class AddSchedule(Struct, frozen=True, tag=True):
    """Prompt the session again and again, `every` interval such as 10m, or once, `at` a time such as 18:00.

    It ends after `limit` runs (0 means 50), with an interrupt of one of them, and with the process of the session.
    While the session is busy, what is due again and again is left out, and what is due once is queued.
    """

    text: str
    every: str = ""
    at: str = ""
    mode: Mode | None = None
    limit: int = 0


class RemoveSchedule(Struct, frozen=True, tag=True):
    """End a schedule of the session, or with an empty id all of them. False if there is none."""

    id: str = ""


class AddMessage(Struct, frozen=True, tag=True):
    """Add a message to the conversation without asking the model. The session must be idle."""

    role: Literal["user", "assistant"]
    text: str


class RemoveLastMessage(Struct, frozen=True, tag=True):
    """Remove the newest message. The session must be idle; False if there is no message."""


class RunUserShell(Struct, frozen=True, tag=True):
    """Run a shell command for the user (`!cmd`), also while the session is busy. The model sees its output later."""

    id: str
    command: str
    agent: str = ""


class Compact(Struct, frozen=True, tag=True):
    """Summarize the conversation in the background; `focus` says what matters."""

    focus: str = ""
    profile: CompactionProfile = "auto"
    agent: str = ""


class CancelCompaction(Struct, frozen=True, tag=True):
    """Cancel a summary that is being written or waits to be applied. False if there is none."""

    agent: str = ""


ServerAction = Literal["enable", "disable", "reconnect"]


class ControlServers(Struct, frozen=True, tag=True):
    """Enable, disable or reconnect MCP servers; no names mean all manual ones. It takes effect with the next request.

    Raise UsageError for an unknown server, for one that is not manual unless `force` is set, and while an earlier
    change has not taken effect.
    """

    action: ServerAction
    names: tuple[str, ...] = ()
    force: bool = False


class SetTitle(Struct, frozen=True, tag=True):
    title: str


class Answer(Struct, frozen=True, tag=True, omit_defaults=True):
    """Answer an interaction: a permission request, questions, a plan. The first answer wins.

    False if there is no such interaction, or it is answered. `choice` is the key of one of its choices; UsageError if
    it has none with that key. The other fields are those of its form. `text` is what the user says to the model: the
    reason of a denial, a comment on a plan. `args` replaces the arguments of a call, which are validated and checked
    again; `summary` says what was changed. `rule` is one of the offered rules or another one; with a `scope` it is
    saved, to allow or to deny. `permission_mode` is one of the offered modes. `answers` has the chosen labels or typed
    text for each question; an empty one means the default. `plan` replaces the text of a plan, and `role`, one of those
    offered, carries it out. `interrupt` also stops the turn, as the choice `stop` does. `by` says who answered, and
    `client` names the remote client of the user.
    """

    id: str
    choice: str
    text: str = ""
    args: dict[str, Any] | None = None
    summary: str = ""
    rule: str = ""
    scope: RememberScope | None = None
    permission_mode: str = ""
    answers: tuple[tuple[str, ...], ...] = ()
    plan: str = ""
    role: str = ""
    interrupt: bool = False
    by: str = "user"
    client: str = ""

    @property
    def allow(self) -> bool:
        return self.choice.startswith("allow")

    @property
    def plan_decision(self) -> PlanDecision:
        if self.choice.startswith("approve_new_session"):
            return "approve_new_session"
        if self.choice in ("approve", "approve_edits"):
            return "approve"
        return "revise" if self.choice == "revise" else "keep_planning"


class AnswerPermission(Struct, frozen=True, tag=True):
    """Answer a permission request; short for `Answer`. `interrupt`: a denial also stops the turn."""

    ask_id: str
    allow: bool
    reason: str = ""
    args: dict[str, Any] | None = None
    by: str = "user"
    interrupt: bool = False
    summary: str = ""
    rule: str = ""
    remember: RememberScope | None = None
    permission_mode: str = ""


class AddRule(Struct, frozen=True, tag=True):
    """Allow, ask about or deny what this rule matches, from the next tool call on."""

    text: str
    action: RuleAction = "allow"
    scope: RememberScope = "session"


class RemoveRule(Struct, frozen=True, tag=True):
    """Remove the rule with this number, as numbered by `Client.list_rules`."""

    number: int


class AnswerQuestions(Struct, frozen=True, tag=True):
    """Answer questions; short for `Answer`. `cancelled` tells the model that the user declined to answer."""

    ask_id: str
    answers: tuple[tuple[str, ...], ...] = ()
    cancelled: bool = False
    by: str = "user"


class AnswerPlan(Struct, frozen=True, tag=True):
    """Decide about a plan; short for `Answer`. `text` replaces the plan, `role` "" means the first one offered."""

    ask_id: str
    decision: PlanDecision
    comment: str = ""
    text: str = ""
    role: str = ""
    by: str = "user"


class Rewind(Struct, frozen=True, tag=True):
    """Go back to before the prompt `turn`: files, conversation, or both. The session must be idle.

    Files that something else changed since are left alone unless `force` is set; even then their content is saved
    first. `only_agent` limits it to the files that one agent changed ("" is the main agent); `chat` must then be False.
    """

    turn: str
    files: bool = True
    chat: bool = True
    force: bool = False
    only_agent: str | None = None


class Redo(Struct, frozen=True, tag=True):
    """Reverse the last rewind. Possible until the next prompt."""

    force: bool = False


class AddContext(Struct, frozen=True, tag=True):
    """Add a file or a command's output to the next prompt without asking the model now."""

    content: str
    path: str = ""
    command: str = ""
    agent: str = ""


class SetModel(Struct, frozen=True, tag=True):
    """Use this model from the next request on. With `check`, a model that its server does not have is refused."""

    model: str
    check: bool = False
    agent: str = ""


class SetEffort(Struct, frozen=True, tag=True):
    """Use this reasoning effort from the next request on; "" for the usual one.

    A model that does not reason refuses it with UsageError.
    """

    effort: str
    agent: str = ""


class SetSystemPrompt(Struct, frozen=True, tag=True):
    """Replace the main text of an agent's system prompt, from its next request on; None restores the usual one.

    The rules of the mode, the project's instructions and the prompt of the agent's role stay.
    """

    text: str | None = None
    agent: str = ""


class SetTools(Struct, frozen=True, tag=True):
    """Offer an agent only these tools, from its next request on; None offers the usual ones again.

    Calls of other tools are refused. Modes, rules and `--tools` still apply. An unknown tool raises UsageError.
    """

    tools: tuple[str, ...] | None = None
    agent: str = ""


BYPASS_PERMISSIONS = "bypassPermissions"
"""The permission mode in which nothing is asked. It holds until the session is closed, and is never restored."""

PREVIOUS_PERMISSION_MODE = "previous"


class SetPermissionMode(Struct, frozen=True, tag=True):
    """Set the permission mode. `previous` ends bypassPermissions: the mode before it holds again."""

    mode: str


class AddRoot(Struct, frozen=True, tag=True):
    """Work in another folder besides the project: `PATH`, or `PATH:ro` if it is read-only.

    For a folder that was added already, change its access; False if it has that. A relative path starts at the working
    directory. A folder that does not exist or may not be added raises UsageError.
    """

    path: str


class RemoveRoot(Struct, frozen=True, tag=True):
    """Work no longer in this folder besides the project. One that was not added raises UsageError."""

    path: str


class SetRole(Struct, frozen=True, tag=True):
    """Give the main agent this role, from its next request on: prompt, tools, rules and model.

    False if it has that role already. An unknown role raises UsageError and changes nothing.
    """

    role: str


class DefineAgents(Struct, frozen=True, tag=True):
    """Add agent definitions for this run: name → description, prompt, tools and model, as `--agents` does.

    Mistakes are reported as warnings.
    """

    agents: dict[str, Any]


class SetSkills(Struct, frozen=True, tag=True):
    """Offer only these skills, by name or `plugin:name`, from the next request on; None: all of them.

    Agents whose definition names skills keep theirs. Unknown names are reported as warnings.
    """

    skills: tuple[str, ...] | None


class SetMode(Struct, frozen=True, tag=True):
    """Switch the running turn to this mode, from the next tool call on. False if no turn is running.

    A prompt that is sent later has its own mode.
    """

    mode: Mode


class ChangeMemory(Struct, frozen=True, tag=True):
    """Add a text to the memory of the project or the user, `daily` to today's note, or remove a text from it.

    Raise UsageError if it cannot be added, or if the text to remove does not occur exactly once.
    """

    text: str
    scope: Literal["project", "user"] = "project"
    daily: bool = False
    remove: bool = False


class SetBudget(Struct, frozen=True, tag=True):
    """Set the session's budget in US dollars, from the next model request on; 0 means no limit."""

    usd: float


LanguageServerAction = Literal["restart", "disable", "enable"]


class ControlLanguageServer(Struct, frozen=True, tag=True):
    """Restart, disable or enable a language server of this session; without a name all of them.

    False if there was nothing to do. An unknown name raises UsageError.
    """

    action: LanguageServerAction
    name: str = ""


ProcessAction = Literal["stop", "open"]


class ControlProcess(Struct, frozen=True, tag=True):
    """Stop a background process, or open a port of it to the host; 0 opens all ports that it listens on.

    False if there was nothing to do. Raise UsageError for an unknown process or port.
    """

    action: ProcessAction
    id: str
    port: int = 0


class MoveToBackground(Struct, frozen=True, tag=True):
    """Let the command that an agent waits for go on in the background, and so the `!` commands for it. False if none
    runs."""

    agent: str = ""


Op = (
    Prompt
    | ChangePrompt
    | DropPrompt
    | Continue
    | SetLoop
    | AddSchedule
    | RemoveSchedule
    | AddMessage
    | RemoveLastMessage
    | AddContext
    | RunUserShell
    | Interrupt
    | CancelTask
    | CloseAgent
    | Compact
    | CancelCompaction
    | Answer
    | AnswerPermission
    | AnswerQuestions
    | AnswerPlan
    | AddRule
    | RemoveRule
    | Rewind
    | Redo
    | SetModel
    | SetEffort
    | SetSystemPrompt
    | SetTools
    | SetPermissionMode
    | AddRoot
    | RemoveRoot
    | SetRole
    | DefineAgents
    | SetSkills
    | SetMode
    | ChangeMemory
    | SetBudget
    | ControlLanguageServer
    | SetTitle
    | ControlServers
    | ControlProcess
    | MoveToBackground
)
