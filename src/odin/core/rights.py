"""What a client may do in a session: `view` it, `prompt` the model as well, or also `approve`.

With `prompt`, a client works within the rules of the session. Whatever decides what may be done there needs `approve`:
answers, rules, permission modes, tools and instructions for later, and what a user does without being asked. Prompts of
clients without it are marked (`PromptSource`), and attach no files outside the project.
"""

from typing import Literal, get_args

from msgspec.structs import replace

from odin.core.interaction import read_answer
from odin.core.op import (
    AddContext,
    AddMessage,
    AddRoot,
    AddRule,
    AddSchedule,
    Answer,
    AnswerPermission,
    AnswerPlan,
    AnswerQuestions,
    CancelCompaction,
    CancelTask,
    ChangeMemory,
    ChangePrompt,
    CloseAgent,
    Compact,
    Continue,
    ControlLanguageServer,
    ControlProcess,
    ControlServers,
    DefineAgents,
    DropPrompt,
    Interrupt,
    MoveToBackground,
    Op,
    Prompt,
    Redo,
    RemoveLastMessage,
    RemoveRoot,
    RemoveRule,
    RemoveSchedule,
    Rewind,
    RunUserShell,
    SetBudget,
    SetEffort,
    SetLoop,
    SetMode,
    SetModel,
    SetPermissionMode,
    SetRole,
    SetSkills,
    SetSystemPrompt,
    SetTitle,
    SetTools,
)

Right = Literal["view", "prompt", "approve"]
RIGHTS: tuple[Right, ...] = get_args(Right)
"""Each includes those before it."""

OP_RIGHTS: dict[type[Op], Right] = {
    Prompt: "prompt",
    ChangePrompt: "prompt",
    DropPrompt: "prompt",
    Continue: "prompt",
    SetLoop: "prompt",
    AddSchedule: "approve",  # it prompts when its author is gone
    RemoveSchedule: "prompt",
    AddMessage: "prompt",
    RemoveLastMessage: "prompt",
    AddContext: "prompt",
    RunUserShell: "approve",  # nobody is asked about it
    Interrupt: "prompt",
    CancelTask: "prompt",
    CloseAgent: "prompt",
    MoveToBackground: "prompt",
    Compact: "prompt",
    CancelCompaction: "prompt",
    Answer: "approve",
    AnswerPermission: "approve",
    AnswerQuestions: "approve",
    AnswerPlan: "approve",
    AddRule: "approve",
    RemoveRule: "approve",
    Rewind: "prompt",
    Redo: "prompt",
    SetModel: "prompt",
    SetEffort: "prompt",
    SetTitle: "prompt",
    SetMode: "prompt",  # a prompt chooses its mode, too; the permission mode holds in all of them
    SetPermissionMode: "approve",
    AddRoot: "approve",
    RemoveRoot: "approve",
    SetRole: "approve",  # a role has its own rules, tools and permission mode
    SetSystemPrompt: "approve",
    SetTools: "approve",
    SetSkills: "approve",  # a skill can allow tools
    DefineAgents: "approve",
    ChangeMemory: "approve",  # later sessions read it as instructions of the user
    SetBudget: "approve",
    ControlServers: "approve",
    ControlLanguageServer: "approve",
    ControlProcess: "prompt",
}
"""The least right that each op needs; `get_needed_right` looks at its fields as well."""


def has_right(right: Right, needed: Right) -> bool:
    return RIGHTS.index(right) >= RIGHTS.index(needed)


def get_needed_right(op: Op) -> Right:
    """Return the right that a client needs for this op."""
    if isinstance(op, Rewind | Redo) and op.force:  # it overwrites what something else changed
        return "approve"
    if isinstance(op, ControlProcess) and op.action == "open":
        return "approve"
    return OP_RIGHTS[type(op)]


def attribute(op: Op, right: Right, client: str) -> Op:
    """Return the op as one of this client: it speaks for its user, and for nobody else."""
    if isinstance(op, AnswerPermission | AnswerQuestions | AnswerPlan):
        op = read_answer(op)
    if isinstance(op, Answer):
        return replace(op, by="user", client=client)
    is_trusted = right == "approve"
    if isinstance(op, Prompt):
        # A server that passes the prompt of its client on to another process has marked it.
        source = "user" if is_trusted and op.source != "channel" else "channel"
        shown = op.display_text if is_trusted else ""
        return replace(op, source=source, display_text=shown, provenance=None)
    if isinstance(op, ChangePrompt):
        if is_trusted:
            return replace(op, source="channel" if op.source == "channel" else None)
        # One that a client without `approve` has changed stays marked, whoever changes it again.
        is_changed = op.text is not None or op.attachments is not None
        return replace(op, source="channel" if is_changed else None, display_text="")
    return op
