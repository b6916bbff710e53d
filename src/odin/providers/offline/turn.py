"""One prompt worked through: its tasks in order, each by its plan, replayed from the results there already are.

The planner keeps nothing between two requests. It starts every plan anew and feeds it the recorded results step by
step; what the plan wants next, a call or an answer, is the reply. So it goes on after a resume as if nothing had
happened.
"""

from collections.abc import Callable

from msgspec import Struct

from odin.core.message import ToolCall, ToolResult
from odin.core.provider import Request
from odin.core.registry import canonical
from odin.providers.offline import (
    plan_change,
    plan_files,
    plan_git,
    plan_project,
    plan_run,
    plan_search,
    plan_talk,
)
from odin.providers.offline.grammar import understand
from odin.providers.offline.history import Step, Turn, mode_of, turns, working_directory
from odin.providers.offline.memory import Memory, Unclear, resolve
from odin.providers.offline.task import Act, Desk, Plan, Task
from odin.providers.offline.wording import HELLO, STOPPED, not_offered, not_understood

MAX_STEPS = 60
_REMEMBERED_TURNS = 40

_PLANS: dict[str, Callable[[Task, Desk], Plan]] = {
    "search": plan_search.search,
    "count-lines": plan_search.count_lines,
    "find": plan_files.find_files,
    "list": plan_files.list_folder,
    "read": plan_files.read,
    "outline": plan_files.outline,
    "summary": plan_files.summary,
    "replace": plan_change.replace,
    "create": plan_change.create,
    "append": plan_change.append,
    "delete": plan_change.delete,
    "run": plan_run.run,
    "script": plan_run.script,
    "tests": plan_run.run_tests,
    "which-command": plan_run.which_command,
    "git": plan_git.git,
    "describe": plan_project.describe,
    "init": plan_project.init,
    "where": plan_talk.where,
    "mkdir": plan_talk.mkdir,
    "move": plan_talk.move,
    "help": plan_talk.help_,
}


class Move(Struct, frozen=True):
    """The planner's next reply: calls to make, or the answer."""

    acts: tuple[Act, ...] = ()
    answer: str = ""


def next_move(request: Request) -> Move:
    """What to do next in the newest turn of a request."""
    desk = Desk(working_directory(request), mode_of(request), {canonical(spec.name): spec for spec in request.tools})
    history = turns(request.messages)
    if not history:
        return Move(answer=HELLO)
    memory = Memory()
    for turn in history[-_REMEMBERED_TURNS - 1 : -1]:
        _remember(turn, memory, desk)
    memory.begin_turn()
    newest = history[-1]
    return _replay(_work(newest.prompt, memory, desk), [step for step in newest.steps if step.own])


def _remember(turn: Turn, memory: Memory, desk: Desk) -> None:
    """Take from an earlier turn what later words may refer to: what was asked, then what was really done."""
    memory.begin_turn()
    for task in understand(turn.prompt):
        try:
            memory.note_task(resolve(task, memory, desk))
        except Unclear:
            continue
    for step in turn.steps:
        memory.note_step(zip(step.calls, step.results, strict=True), desk)


def _work(prompt: str, memory: Memory, desk: Desk) -> Plan:
    """All tasks of a prompt, one after the other. Each may refer to what the one before it found."""
    answers: list[str] = []
    for task in understand(prompt):
        if task.kind in ("unknown", "invent"):
            answers.append(not_understood(task.said, task.kind == "invent", bool(answers)))
            continue
        try:
            resolved = resolve(task, memory, desk)
        except Unclear as question:
            answers.append(str(question))
            break
        memory.note_task(resolved)
        answers.append((yield from _watched(_plan(resolved, desk, memory), memory, desk)))
    return "\n\n".join(answer for answer in answers if answer)


def _plan(task: Task, desk: Desk, memory: Memory) -> Plan:
    if task.kind == "todo":
        return plan_talk.todo(task, desk, memory)
    if task.kind == "undo":
        return plan_talk.undo(task, desk, memory)
    return _PLANS[task.kind](task, desk)


def _watched(plan: Plan, memory: Memory, desk: Desk) -> Plan:
    """Run a plan, remember what it does, and end it when it wants a tool that is not offered."""
    try:
        acts = next(plan)
        while True:
            missing = tuple(dict.fromkeys(act.tool for act in acts if not desk.offers(act.tool)))
            if missing:
                plan.close()
                return not_offered(missing, desk)
            results = yield acts
            calls = [ToolCall(result.call_id, act.tool, act.args) for act, result in zip(acts, results, strict=True)]
            memory.note_step(zip(calls, results, strict=True), desk)
            acts = plan.send(results)
    except StopIteration as done:
        return done.value


def _replay(plan: Plan, steps: list[Step]) -> Move:
    """Feed a plan the results there are. What it yields after the last of them is the next move."""
    try:
        acts = next(plan)
        for step in steps[:MAX_STEPS]:
            acts = plan.send(_fitted(step, len(acts)))
    except StopIteration as done:
        return Move(answer=done.value)
    return Move(acts) if len(steps) < MAX_STEPS else Move(answer=STOPPED)


def _fitted(step: Step, count: int) -> tuple[ToolResult, ...]:
    """One result for each call of the plan, also when the recorded reply had fewer."""
    lost = ToolResult("", "The call has no result.", True)
    return (*step.results, *([lost] * count))[:count]
