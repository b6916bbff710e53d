"""The words and choices for a plan that the model presents, for plain mode, the app and SDK clients."""

import os
import shlex
from typing import Any, cast

from msgspec import Struct

from odin.core.call_events import PlanAsked
from odin.core.event_values import PlanDecision
from odin.core.op import AnswerPlan, Interrupt
from odin.core.slash_commands import make_argument_error, make_usage_error

SDK_PLAN_TOOL = "ExitPlanMode"
"""SDK clients see a plan as a permission request for a tool of this name."""


SDK_PLAN_MODE = "plan"
"""SDK clients see plan mode as a permission mode of this name."""


class PlanChoice(Struct, frozen=True):
    """One answer to a plan. `short` is its label where there is little room."""

    decision: PlanDecision
    label: str
    short: str
    role: str = ""


def list_plan_choices(ask: PlanAsked) -> tuple[PlanChoice, ...]:
    """Return the answers that the user can choose from; the last one decides nothing."""
    several = len(ask.roles) > 1
    sessions = (
        PlanChoice(
            "approve_new_session",
            f"Approve, and carry it out in a new session{f' as {role}' if several else ''}",
            f"New session{f' as {role}' if several else ''}",
            role,
        )
        for role in ask.roles or ("",)
    )
    return (
        PlanChoice("approve", "Approve, and carry it out here in edit mode", "Approve"),
        *sessions,
        PlanChoice("revise", "Ask for changes", "Ask for changes"),
        PlanChoice("keep_planning", "Keep planning", "Keep planning"),
    )


def shorten_plan_path(path: str, cwd: str) -> str:
    """Return the path as the user would type it."""
    short = os.path.relpath(path, cwd)
    return path if short.startswith("..") else short


def parse_plan_choice(ask: PlanAsked, typed: str) -> AnswerPlan | None:
    """Parse a typed answer: the number of a choice, or a comment for the model. None: a comment is needed.

    An empty line keeps planning.
    """
    line = typed.strip()
    choices = list_plan_choices(ask)
    if not line:
        return AnswerPlan(ask.ask_id, "keep_planning")
    if not line.isdecimal():
        return AnswerPlan(ask.ask_id, "revise", line)
    if not 1 <= int(line) <= len(choices):
        raise ValueError(line)
    choice = choices[int(line) - 1]
    return None if choice.decision == "revise" else AnswerPlan(ask.ask_id, choice.decision, role=choice.role)


def format_execution(path: str, role: str) -> str:
    """Return the arguments of /execute for an approved plan."""
    return shlex.join([os.path.basename(path), *([role] if role else [])])  # noqa: PTH119


def parse_execution(rest: str) -> tuple[str, str]:
    """Return the plan and the role that /execute names; "" for what it does not."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise make_usage_error("execute", f"{error}.") from None
    if len(words) > 2:
        raise make_argument_error("execute", words[2])
    plan, role = (*words, "", "")[:2]
    return plan, role


def to_plan_input(ask: PlanAsked) -> dict[str, Any]:
    return {"plan": ask.text, "planFilePath": ask.path}


def make_plan_answer(
    ask: PlanAsked, *, allow: bool, message: str, changed: Any, interrupt: bool, by: str
) -> AnswerPlan | Interrupt:
    """Return the op for the answer of a program: an allowed plan is carried out, another one is changed."""
    if not allow:
        return Interrupt("keep") if interrupt else AnswerPlan(ask.ask_id, "revise", message, by=by)
    text = cast("dict[str, Any]", changed).get("plan") if isinstance(changed, dict) else None
    return AnswerPlan(ask.ask_id, "approve", message, text if isinstance(text, str) else "", by=by)
