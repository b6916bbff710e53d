"""What a front end may ask of a session, in the imperative."""

from typing import Any, Literal

from msgspec import Struct

from odin.core.event import CompactionProfile, Delivery, Mode
from odin.core.message import Attachment
from odin.core.policy import RememberScope, RuleAction


class Prompt(Struct, frozen=True, tag=True):
    """Answer this. It runs at once when the session is idle and waits its turn when it is busy.

    With `wait` false a busy session refuses it with SessionBusy instead of queueing it. `lane` says how it gets in when
    the session is busy; None leaves that to the configuration. An id under which a prompt waits already is refused.
    `attached` comes beside the text; files that the text mentions as `@path` or `@path:10-20` need not be in it.
    `shown` is what people see in the place of the text; a text that has one is not looked at for a custom command.
    """

    id: str
    text: str
    mode: Mode = "edit_mode"
    wait: bool = True
    delivery: Delivery | None = None
    attachments: tuple[Attachment, ...] = ()
    display_text: str = ""


class ChangePrompt(Struct, frozen=True, tag=True):
    """Edit a queued prompt; what is None stays, also what is attached. False when it is unknown or was taken.

    A new text is what people see, too, unless it comes with `shown` or names a custom command.

    With the lane `steer` a waiting prompt is sent into the running turn. One that rests, because it was left by an
    earlier run of the session, is sent on its way by any lane: at once when the session is idle.
    """

    id: str
    text: str | None = None
    mode: Mode | None = None
    delivery: Delivery | None = None
    display_text: str = ""
    attachments: tuple[Attachment, ...] | None = None


class DropPrompt(Struct, frozen=True, tag=True):
    """Take a queued prompt back. False when it is unknown or was taken already."""

    id: str


QueuePolicy = Literal["join", "keep", "rest", "drop"]
"""What an interrupt makes of the prompts that wait: they join the conversation without being answered, stay in the
queue and are answered, rest there until somebody sends them, or go."""


class Interrupt(Struct, frozen=True, tag=True):
    """Stop the running turn, with its calls, sub-agents and processes. False when there is none."""

    queue: QueuePolicy = "join"


class Continue(Struct, frozen=True, tag=True):
    """Ask the model again with the conversation as it is, without a new prompt. Only an idle session can."""

    id: str
    mode: Mode | None = None


class SetLoop(Struct, frozen=True, tag=True):
    """Switch loop mode on or off. On, an idle session begins at once and a busy one after its turn.

    `target` says when it is done; "" means the session's remaining tasks. Off, the turn that runs goes on to its end;
    False when it was off already.
    """

    enabled: bool
    goal: str = ""
    mode: Mode | None = None


class RemoveLastMessage(Struct, frozen=True, tag=True):
    """Take the newest message out of the conversation. Only an idle session can; False when there is none."""


class RunUserShell(Struct, frozen=True, tag=True):
    """Run a command of the user's own now, also while the session is busy, and let the model know its output later."""

    id: str
    command: str


class Compact(Struct, frozen=True, tag=True):
    """Summarise the conversation so far; `focus` says what matters. It runs in the background."""

    focus: str = ""
    profile: CompactionProfile = "auto"


class CancelCompaction(Struct, frozen=True, tag=True):
    """Stop a summary that is being made or waits to be applied. False when there is none."""


class SetTitle(Struct, frozen=True, tag=True):
    title: str


class AnswerPermission(Struct, frozen=True, tag=True):
    """The reply to a permission question. The first answer wins; a late one is ignored.

    `args` replaces the arguments; they are validated and judged again; `summary` says what was changed. `by` names who
    answered. `rule` is one of the rules the question offered, or another text a person wrote; with `remember` it is
    added with this answer's action. A deny can be remembered, too.
    """

    ask_id: str
    allow: bool
    reason: str = ""
    args: dict[str, Any] | None = None
    by: str = "user"
    interrupt: bool = False
    summary: str = ""
    rule: str = ""
    remember: RememberScope | None = None


class AddRule(Struct, frozen=True, tag=True):
    """Allow, ask about or deny what this text means, from the next call on."""

    text: str
    action: RuleAction = "allow"
    scope: RememberScope = "session"


class RemoveRule(Struct, frozen=True, tag=True):
    """Take the rule with this number back; the numbers are those of `Client.rules`."""

    number: int


class AnswerQuestions(Struct, frozen=True, tag=True):
    """The reply to the questions of a tool: for each, the chosen labels or typed words; nothing means the default.

    The first answer wins. `cancelled` tells the model that the person would not answer.
    """

    ask_id: str
    answers: tuple[tuple[str, ...], ...] = ()
    cancelled: bool = False
    by: str = "user"


class Rewind(Struct, frozen=True, tag=True):
    """Go back to before the prompt `turn`: its files, its conversation, or both. Only an idle session can.

    A file that somebody else changed since is left alone, unless `force`; even then its bytes are kept first.
    """

    turn: str
    files: bool = True
    chat: bool = True
    force: bool = False


class Redo(Struct, frozen=True, tag=True):
    """Take the last rewind back, as long as nothing was asked since."""

    force: bool = False


class AddContext(Struct, frozen=True, tag=True):
    """Let the model know this with the next prompt, without asking it anything now: a file, a command's output."""

    content: str
    path: str = ""
    command: str = ""


class SetModel(Struct, frozen=True, tag=True):
    """Use this model from the next request on."""

    model: str


class SetPermissionMode(Struct, frozen=True, tag=True):
    mode: str


class SetBudget(Struct, frozen=True, tag=True):
    """Let the session cost this many US dollars in all, 0 for no limit, from the next call on."""

    usd: float


Op = (
    Prompt
    | ChangePrompt
    | DropPrompt
    | Continue
    | SetLoop
    | RemoveLastMessage
    | AddContext
    | RunUserShell
    | Interrupt
    | Compact
    | CancelCompaction
    | AnswerPermission
    | AnswerQuestions
    | AddRule
    | RemoveRule
    | Rewind
    | Redo
    | SetModel
    | SetPermissionMode
    | SetBudget
    | SetTitle
)
