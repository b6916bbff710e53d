"""What a client of a session may do: watch it (`view`), give it work (`prompt`), or decide for its user (`approve`)."""

from typing import Literal

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

Right = Literal["view", "prompt", "approve"]

_ORDER: tuple[Right, ...] = ("view", "prompt", "approve")

RIGHTS: dict[type[Op], Right] = {
    **dict.fromkeys((Prompt, ChangePrompt, DropPrompt, Continue, Interrupt, SetLoop), "prompt"),
    **dict.fromkeys((AddMessage, RemoveLastMessage, AddContext, Compact, CancelCompaction), "prompt"),
    **dict.fromkeys((CancelTask, CloseAgent, MoveToBackground, SetMode, SetModel, SetEffort, SetTitle), "prompt"),
    **dict.fromkeys((Answer, AnswerPermission, AnswerQuestions, AnswerPlan, AddRule, RemoveRule), "approve"),
    **dict.fromkeys((SetPermissionMode, SetRole, SetSkills, SetSystemPrompt, SetTools, SetBudget), "approve"),
    **dict.fromkeys((RunUserShell, Rewind, Redo, ChangeMemory, DefineAgents, ControlServers), "approve"),
    **dict.fromkeys((ControlLanguageServer, ControlProcess), "approve"),
}
"""The right that each op needs. What changes files, runs programs or widens what the agent may do needs `approve`."""


def allows(right: Right, op: Op) -> bool:
    """True if a client with this right may submit the op."""
    return _ORDER.index(right) >= _ORDER.index(RIGHTS[type(op)])
