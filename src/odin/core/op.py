"""What a front end may ask of a session, in the imperative."""

from typing import Any

from msgspec import Struct

from odin.core.event import Mode
from odin.core.rule import Action, RememberScope


class Prompt(Struct, frozen=True, tag=True):
    """Answer this. It runs at once when the session is idle and waits its turn when it is busy.

    With `wait` false a busy session refuses it with SessionBusy instead of queueing it.
    """

    id: str
    text: str
    mode: Mode = "edit_mode"
    wait: bool = True


class DropPrompt(Struct, frozen=True, tag=True):
    """Take a queued prompt back."""

    id: str


class Interrupt(Struct, frozen=True, tag=True):
    """Stop the running turn. Prompts that wait stay where they are."""


class Answer(Struct, frozen=True, tag=True):
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
    action: Action = "allow"
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


Op = (
    Prompt
    | DropPrompt
    | AddContext
    | Interrupt
    | Answer
    | AnswerQuestions
    | AddRule
    | RemoveRule
    | Rewind
    | Redo
    | SetModel
    | SetPermissionMode
)
