"""Works through one prompt: its requests in order, each by its plan, replayed from the results so far.

The planner stores nothing between requests. It starts every plan again and feeds it the recorded results step by step;
what the plan wants next, calls or an answer, is the reply. So it continues after a resume as if nothing had happened.
"""

import re
from collections.abc import Iterable

from msgspec import Struct, field

from odin.core.errors import NeedsModel
from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolResult
from odin.core.provider import Request
from odin.core.tool import get_canonical_name
from odin.providers.offline.plan import Calls, Plan, PlanContext, PlanFailed
from odin.providers.offline.requests import CONNECT, parse_prompt

CALL_ID_PREFIX = "offline-"
"""The prefix of this planner's call ids. Calls of a model in the same turn are not part of its plan."""

MAX_STEPS = 60
_MAX_REMEMBERED_TURNS = 40
_CACHE_NOTE = "Cached files: "
_NO_RESULT = "The call has no result."


class PlannerStep(Struct, frozen=True):
    """The calls of one reply with their results."""

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]

    @property
    def is_own(self) -> bool:
        return all(call.id.startswith(CALL_ID_PREFIX) for call in self.calls)


class PlannerTurn(Struct):
    prompt: str
    steps: list[PlannerStep] = field(default_factory=list[PlannerStep])


class PlannerMove(Struct, frozen=True):
    """The planner's next reply: calls to make, or the answer."""

    calls: Calls = ()
    answer: str = ""


def choose_move(request: Request) -> PlannerMove:
    """Return what to do next in the newest turn. Raise NeedsModel if the table does not have all its requests."""
    context = PlanContext(
        _find_working_directory(request),
        _find_mode(request),
        {get_canonical_name(spec.name): spec for spec in request.tools},
    )
    *earlier, newest = collect_turns(request.messages) or [PlannerTurn("help")]
    for turn in earlier[-_MAX_REMEMBERED_TURNS:]:
        for step in turn.steps:
            context.memory.note_step(step.calls, step.results, context)
    return _replay_steps(_run_requests(newest.prompt, context), [step for step in newest.steps if step.is_own])


def _run_requests(prompt: str, context: PlanContext) -> Plan:
    """Run the requests of a prompt in order, up to the first one that fails."""
    requests = parse_prompt(prompt)
    if not requests:
        raise NeedsModel(f'This needs a model: {CONNECT} ("What can you do?" lists what works without one).')
    answers: list[str] = []
    for number, (request, match) in enumerate(requests, 1):
        try:
            answers.append((yield from _run_plan(request.plan(match, context), context)))
        except PlanFailed as failure:
            rest = "\n\nThe rest of the request was not run." if number < len(requests) else ""
            answers.append(f"{failure}{rest}")
            break
    return "\n\n".join(answers)


def _run_plan(plan: Plan, context: PlanContext) -> Plan:
    """Run a plan and record its steps for what comes after it."""
    try:
        calls = next(plan)
        while True:
            context.require(*(call.tool for call in calls))
            results = yield calls
            made = [ToolCall(result.call_id, call.tool, call.args) for call, result in zip(calls, results, strict=True)]
            context.memory.note_step(made, results, context)
            calls = plan.send(results)
    except StopIteration as done:
        return done.value


def _replay_steps(plan: Plan, steps: list[PlannerStep]) -> PlannerMove:
    """Feed a plan the recorded results. What it yields after the last one is the next move."""
    try:
        calls = next(plan)
        for step in steps[:MAX_STEPS]:
            missing = ToolResult("", _NO_RESULT, True)
            calls = plan.send((*step.results, *([missing] * len(calls)))[: len(calls)])
    except StopIteration as done:
        return PlannerMove(answer=done.value)
    if len(steps) < MAX_STEPS:
        return PlannerMove(calls)
    return PlannerMove(answer="I stopped here: this request needs too many steps. Ask for a part of it.")


def collect_turns(messages: Iterable[Message]) -> list[PlannerTurn]:
    """Return the turns of a history. A call without a result counts as failed."""
    found: list[PlannerTurn] = []
    calls: tuple[ToolCall, ...] = ()
    for message in messages:
        if isinstance(message, PromptMessage):
            if message.text.strip() and not message.text.startswith(_CACHE_NOTE):
                found.append(PlannerTurn(message.text))
        elif isinstance(message, ReplyMessage):
            calls = message.calls
        elif calls and found:
            by_id = {result.call_id: result for result in message.results}
            results = tuple(by_id.get(call.id) or ToolResult(call.id, _NO_RESULT, True) for call in calls)
            found[-1].steps.append(PlannerStep(calls, results))
            calls = ()
    return found


def _find_working_directory(request: Request) -> str:
    """Return the working directory named in the newest note or in the system prompt, or "."."""
    notes = [note for message in request.messages if not isinstance(message, ReplyMessage) for note in message.notes]
    for text in (*reversed(notes), *reversed(request.system)):
        found = re.search(r"^Working directory: (.+)$", text, re.MULTILINE)
        if found:
            return found[1].strip()
    return "."


def _find_mode(request: Request) -> str:
    """Return ask, plan or edit if the system prompt names it."""
    found = re.search(r"^# Mode: (\w+)", "\n".join(request.system), re.MULTILINE)
    return found[1] if found else ""
