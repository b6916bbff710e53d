"""Answers to permission requests, questions and plans, from typed text, SDK clients and Python callbacks.

SDK clients see a question as a permission request for a tool named AskUserQuestion. They answer by allowing it with
changed input, in which `answers` maps the text of each question to the chosen labels. A plan is a request for
ExitPlanMode.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from odin.core.call_events import AskEvent, PermissionAsked, PlanAsked, QuestionsAsked, ToolEnded, UsageRecorded
from odin.core.errors import OdinError
from odin.core.event_values import Question
from odin.core.message import ToolCall
from odin.core.op import AnswerPermission, AnswerQuestions, Interrupt, Op
from odin.core.policy import CallbackHook, HookPayload, RememberScope
from odin.ui.plan_text import SDK_PLAN_TOOL, make_plan_answer, to_plan_input

if TYPE_CHECKING:
    from odin.ui.stream_json.types import ResultMessage

SDK_TOOL = "AskUserQuestion"


def parse_choice(question: Question, typed: str) -> tuple[str, ...] | None:
    """Parse a typed answer: numbers or labels of options, or free text. Return None to ask again.

    An empty line is an empty answer, which stands for the first option.
    """
    line = typed.strip()
    separator = r"[\s,]+" if re.fullmatch(r"[\d\s,]+", line) else r"\s*,\s*"
    parts = [part for part in re.split(separator, line) if part]
    picked = [_match_option(question, part) for part in parts]
    if len(picked) > 1 and all(picked):
        return tuple(dict.fromkeys(picked)) if question.multiple else None
    whole = _match_option(question, line)
    return (whole or line,) if line else ()


def _match_option(question: Question, word: str) -> str:
    """Return the label of the option with this number or label, or ""."""
    if word.isdecimal() and 1 <= int(word) <= len(question.options):
        return question.options[int(word) - 1].label
    return next((option.label for option in question.options if option.label.casefold() == word.casefold()), "")


def to_sdk_input(questions: Sequence[Question]) -> dict[str, Any]:
    return {
        "questions": [
            {
                "question": question.text,
                "header": question.header,
                "options": [{"label": option.label, "description": option.detail} for option in question.options],
                "multiSelect": question.multiple,
            }
            for question in questions
        ]
    }


def parse_sdk_answers(questions: Sequence[Question], changed: Any) -> tuple[tuple[str, ...], ...]:
    """Return the answers in the input that a client changed; () for a question without one."""
    given = cast("dict[str, Any]", changed).get("answers") if isinstance(changed, dict) else None
    answers = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return tuple(_parse_sdk_answer(question, answers.get(question.text)) for question in questions)


def _parse_sdk_answer(question: Question, given: Any) -> tuple[str, ...]:
    if isinstance(given, list):
        return tuple(str(item) for item in cast("list[Any]", given))
    if given is None or not str(given).strip():
        return ()
    text = str(given)
    labels = {option.label for option in question.options}
    parts = text.split(", ")
    return tuple(parts) if question.multiple and text not in labels and labels.issuperset(parts) else (text,)


class Allow(Struct, frozen=True):
    """Allow the call. `updated_input` replaces its arguments, which are then checked again.

    `remember` adds an allow rule: `rule`, or else the narrowest rule that the request offers. `permission_mode` is one
    of the modes that the request offers; the session then has it from now on.
    """

    updated_input: dict[str, Any] | None = None
    rule: str = ""
    remember: RememberScope | None = None
    permission_mode: str = ""


class Deny(Struct, frozen=True):
    """Deny the call. The model reads `message`; `interrupt` also ends the turn; `remember` adds a deny rule."""

    message: str = ""
    interrupt: bool = False
    rule: str = ""
    remember: RememberScope | None = None


Permission = Allow | Deny | bool

CanUseTool = Callable[..., Permission | Awaitable[Permission]]
"""Called with the tool name and its arguments, and with the whole request if it takes a third argument."""


class Hook(Struct, frozen=True):
    """A callback for a hook event, limited to tools that match `matcher`, with a timeout in seconds."""

    call: Callable[[HookPayload], HookPayload | Awaitable[HookPayload | None] | None]
    matcher: str = ""
    timeout: float = 30.0


HookFunction = Callable[[HookPayload], HookPayload | Awaitable[HookPayload | None] | None]

HookTable = Mapping[str, Sequence[Hook | HookFunction]]
"""Callbacks by hook event: `{"PreToolUse": [check], "Stop": [Hook(tidy, timeout=5)]}`."""


async def decide(checker: CanUseTool | None, ask: AskEvent) -> Op:
    """Return the program's answer to a permission request, question or plan."""
    if isinstance(ask, QuestionsAsked):
        return _make_questions_answer(ask, await _ask_checker(checker, SDK_TOOL, to_sdk_input(ask.questions), ask))
    if isinstance(ask, PlanAsked):
        return _make_plan_answer(ask, await _ask_checker(checker, SDK_PLAN_TOOL, to_plan_input(ask), ask))
    return _make_permission_answer(ask, await _ask_checker(checker, ask.name, dict(ask.args), ask))


def make_callback_hooks(table: HookTable) -> Iterator[CallbackHook]:
    """Yield the hooks of a Python program in the form that sessions accept."""
    for event, listeners in table.items():
        for listener in listeners:
            hook = listener if isinstance(listener, Hook) else Hook(listener)
            name = getattr(hook.call, "__name__", "callback")
            yield CallbackHook(str(name), event, _make_async(hook), hook.matcher, hook.timeout)


def _make_async(hook: Hook) -> Callable[[HookPayload], Awaitable[HookPayload | None]]:
    async def call(payload: HookPayload) -> HookPayload | None:
        result = hook.call(payload)
        return await result if inspect.isawaitable(result) else result

    return call


async def _ask_checker(checker: CanUseTool | None, name: str, args: dict[str, Any], ask: AskEvent) -> Permission:
    """Return the checker's decision. A checker that raises denies the call."""
    if checker is None:
        return Deny("No permission callback is set.")
    try:
        decision = checker(name, args, ask) if _accepts_event(checker) else checker(name, args)
        return await decision if inspect.isawaitable(decision) else decision
    except Exception as error:  # user code: any exception denies the call
        return Deny(f"The permission check failed: {error}")


def _accepts_event(checker: CanUseTool) -> bool:
    try:
        inspect.signature(checker).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def _make_permission_answer(ask: PermissionAsked, decision: Permission) -> Op:
    if not isinstance(decision, Allow | Deny):
        return AnswerPermission(ask.ask_id, allow=decision is True, by="api")
    rule = (decision.rule or next(iter(ask.rules), "")) if decision.remember else ""
    if isinstance(decision, Allow):
        return AnswerPermission(
            ask.ask_id,
            allow=True,
            args=decision.updated_input,
            by="api",
            rule=rule,
            remember=decision.remember,
            permission_mode=decision.permission_mode,
        )
    return AnswerPermission(
        ask.ask_id,
        allow=False,
        reason=decision.message,
        by="api",
        interrupt=decision.interrupt,
        rule=rule,
        remember=decision.remember,
    )


def _make_questions_answer(ask: QuestionsAsked, decision: Permission) -> Op:
    """Take the answers from the changed input; if allowed without one, every question takes its default."""
    if isinstance(decision, Deny) and decision.interrupt:
        return Interrupt("keep")
    changed = decision.updated_input if isinstance(decision, Allow) else None
    cancelled = not isinstance(decision, Allow) and decision is not True
    return AnswerQuestions(ask.ask_id, parse_sdk_answers(ask.questions, changed), cancelled, by="api")


def _make_plan_answer(ask: PlanAsked, decision: Permission) -> Op:
    allow = isinstance(decision, Allow) or decision is True
    denial = decision if isinstance(decision, Deny) else Deny()
    changed = decision.updated_input if isinstance(decision, Allow) else None
    return make_plan_answer(
        ask, allow=allow, message=denial.message, changed=changed, interrupt=denial.interrupt, by="api"
    )


class Callbacks(Struct, frozen=True, kw_only=True):
    """Functions, sync or async, that are called in stream order while a prompt runs.

    At the end either `on_complete` or `on_error` is called, exactly once.
    """

    on_text_delta: Callable[[str], Any] | None = None
    on_tool_call: Callable[[ToolCall], Any] | None = None
    on_tool_result: Callable[[ToolEnded], Any] | None = None
    on_usage: Callable[[UsageRecorded], Any] | None = None
    on_complete: "Callable[[ResultMessage], Any] | None" = None
    on_error: Callable[[OdinError], Any] | None = None


async def invoke_callback(callback: Callable[[Any], Any] | None, value: Any) -> None:
    """Call it, if there is one, and wait for it if it is async."""
    if callback is not None:
        done = callback(value)
        if inspect.isawaitable(done):
            await done
