"""One prompt worked through: its tasks in order, each by its plan, replayed from the results there already are.

The planner keeps nothing between two requests. It starts every plan anew and feeds it the recorded results step by
step; what the plan wants next, a call or an answer, is the reply. So it goes on after a resume as if nothing had
happened.
"""

from collections.abc import Callable

from msgspec import Struct

from odin.core.message import ToolCall, ToolResult
from odin.core.provider import Request
from odin.core.registry import canonical_name_of
from odin.providers.offline import (
    plan_change,
    plan_files,
    plan_git,
    plan_project,
    plan_run,
    plan_search,
    plan_talk,
)
from odin.providers.offline.grammar import parse_prompt
from odin.providers.offline.history import PlannerStep, PlannerTurn, collect_turns, find_working_directory, mode_of
from odin.providers.offline.memory import PlannerMemory, UnclearReference, resolve_task
from odin.providers.offline.task import Plan, PlanContext, PlannedCall, PlannerTask
from odin.providers.offline.wording import HELLO, STOPPED, explain_not_offered, explain_not_understood

MAX_STEPS = 60
_MAX_REMEMBERED_TURNS = 40

_PLANS: dict[str, Callable[[PlannerTask, PlanContext], Plan]] = {
    "search": plan_search.plan_text_search,
    "count-lines": plan_search.plan_line_count,
    "find": plan_files.plan_find,
    "list": plan_files.plan_list,
    "read": plan_files.plan_read,
    "outline": plan_files.plan_outline,
    "summary": plan_files.plan_summary,
    "replace": plan_change.plan_replace,
    "create": plan_change.plan_create,
    "append": plan_change.plan_append,
    "delete": plan_change.plan_delete,
    "run": plan_run.plan_command,
    "script": plan_run.plan_script,
    "tests": plan_run.plan_tests,
    "which-command": plan_run.plan_unknown_command,
    "git": plan_git.plan_git_query,
    "describe": plan_project.plan_description,
    "init": plan_project.plan_init,
    "where": plan_talk.plan_where,
    "mkdir": plan_talk.plan_mkdir,
    "move": plan_talk.plan_move,
    "help": plan_talk.plan_help,
}


class PlannerMove(Struct, frozen=True):
    """The planner's next reply: calls to make, or the answer."""

    calls: tuple[PlannedCall, ...] = ()
    answer: str = ""


def choose_move(request: Request) -> PlannerMove:
    """What to do next in the newest turn of a request."""
    desk = PlanContext(
        find_working_directory(request),
        mode_of(request),
        {canonical_name_of(spec.name): spec for spec in request.tools},
    )
    history = collect_turns(request.messages)
    if not history:
        return PlannerMove(answer=HELLO)
    memory = PlannerMemory()
    for turn in history[-_MAX_REMEMBERED_TURNS - 1 : -1]:
        _remember_turn(turn, memory, desk)
    memory.begin_turn()
    newest = history[-1]
    return _replay_steps(_run_tasks(newest.prompt, memory, desk), [step for step in newest.steps if step.is_own])


def _remember_turn(turn: PlannerTurn, memory: PlannerMemory, desk: PlanContext) -> None:
    """Take from an earlier turn what later words may refer to: what was asked, then what was really done."""
    memory.begin_turn()
    for task in parse_prompt(turn.prompt):
        try:
            memory.note_task(resolve_task(task, memory, desk))
        except UnclearReference:
            continue
    for step in turn.steps:
        memory.note_step(zip(step.calls, step.results, strict=True), desk)


def _run_tasks(prompt: str, memory: PlannerMemory, desk: PlanContext) -> Plan:
    """All tasks of a prompt, one after the other. Each may refer to what the one before it found."""
    answers: list[str] = []
    for task in parse_prompt(prompt):
        if task.kind in ("unknown", "invent"):
            answers.append(explain_not_understood(task.source_text, task.kind == "invent", bool(answers)))
            continue
        try:
            resolved = resolve_task(task, memory, desk)
        except UnclearReference as question:
            answers.append(str(question))
            break
        memory.note_task(resolved)
        answers.append((yield from _run_plan(_choose_plan(resolved, desk, memory), memory, desk)))
    return "\n\n".join(answer for answer in answers if answer)


def _choose_plan(task: PlannerTask, desk: PlanContext, memory: PlannerMemory) -> Plan:
    if task.kind == "todo":
        return plan_talk.plan_todo(task, desk, memory)
    if task.kind == "undo":
        return plan_talk.plan_undo(task, desk, memory)
    return _PLANS[task.kind](task, desk)


def _run_plan(plan: Plan, memory: PlannerMemory, desk: PlanContext) -> Plan:
    """Run a plan, remember what it does, and end it when it wants a tool that is not offered."""
    try:
        acts = next(plan)
        while True:
            missing = tuple(dict.fromkeys(act.tool for act in acts if not desk.has_tools(act.tool)))
            if missing:
                plan.close()
                return explain_not_offered(missing, desk)
            results = yield acts
            calls = [ToolCall(result.call_id, act.tool, act.args) for act, result in zip(acts, results, strict=True)]
            memory.note_step(zip(calls, results, strict=True), desk)
            acts = plan.send(results)
    except StopIteration as done:
        return done.value


def _replay_steps(plan: Plan, steps: list[PlannerStep]) -> PlannerMove:
    """Feed a plan the results there are. What it yields after the last of them is the next move."""
    try:
        acts = next(plan)
        for step in steps[:MAX_STEPS]:
            acts = plan.send(_fit_results(step, len(acts)))
    except StopIteration as done:
        return PlannerMove(answer=done.value)
    return PlannerMove(acts) if len(steps) < MAX_STEPS else PlannerMove(answer=STOPPED)


def _fit_results(step: PlannerStep, count: int) -> tuple[ToolResult, ...]:
    """One result for each call of the plan, also when the recorded reply had fewer."""
    lost = ToolResult("", "The call has no result.", True)
    return (*step.results, *([lost] * count))[:count]
