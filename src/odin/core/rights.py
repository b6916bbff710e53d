"""What a client may do in a session: `view` it, `prompt` the model as well, or also `approve`.

With `prompt`, a client works within the rules of the session. Whatever decides what may be done there needs `approve`:
answers, rules, permission modes, tools and instructions for later, and what a user does without being asked.
"""

import re
from typing import Literal, get_args

from odin.core.op import (
    AddContext,
    AddMessage,
    AddRule,
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
    RemoveRule,
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
from odin.core.prompt import MENTION

Right = Literal["view", "prompt", "approve"]
RIGHTS: tuple[Right, ...] = get_args(Right)
"""Each includes those before it."""

OP_RIGHTS: dict[type[Op], Right] = {
    Prompt: "prompt",
    ChangePrompt: "prompt",
    DropPrompt: "prompt",
    Continue: "prompt",
    SetLoop: "prompt",
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

_RESOURCE = re.compile(r"[^:]*:[A-Za-z][\w+.-]*:")
"""`server:uri`, the resource of an MCP server."""


def has_right(right: Right, needed: Right) -> bool:
    return RIGHTS.index(right) >= RIGHTS.index(needed)


def get_needed_right(op: Op) -> Right:
    """Return the right that a client needs for this op.

    A file outside the project or a resource that a user names is read without asking; the model would have to ask. So
    naming one needs `approve`. That is decided without looking at files: any absolute path, `~` or `..` counts.
    """
    text, paths = "", []
    match op:
        case Rewind(force=True) | Redo(force=True) | ControlProcess(action="open"):
            return "approve"
        case Prompt() | ChangePrompt():
            text, paths = op.text or "", [item.path for item in op.attachments or () if not item.data]
        case SetLoop():
            text = op.goal
        case _:
            pass
    named = (*paths, *(match[1] or match[3] for match in MENTION.finditer(text)))
    return "approve" if any(map(_leads_outside, named)) else OP_RIGHTS[type(op)]


def _leads_outside(path: str) -> bool:
    return path.startswith(("/", "~")) or "/../" in f"/{path}/" or _RESOURCE.match(path) is not None
