"""Questions of a tool to a person: what typed words mean, and the form in which SDK clients are asked.

SDK clients know such questions as calls of a tool named AskUserQuestion that they are asked to permit. They answer by
permitting it with changed input, which holds under `answers` the chosen labels by the text of the question.

Functions of a Python program that decide: whether a tool may be used, and what hooks say.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from odin.core.event import PermissionAsked, Question, QuestionsAsked
from odin.core.op import AnswerPermission, AnswerQuestions, Interrupt, Op
from odin.core.policy import CallbackHook, HookPayload, RememberScope

SDK_TOOL = "AskUserQuestion"


def parse_choice(question: Question, typed: str) -> tuple[str, ...] | None:
    """What a typed line answers: numbers or labels of options, or words of one's own. None when it must be asked again.

    An empty line is no answer, which means the first option.
    """
    line = typed.strip()
    between = r"[\s,]+" if re.fullmatch(r"[\d\s,]+", line) else r"\s*,\s*"
    parts = [part for part in re.split(between, line) if part]
    picked = [_match_option(question, part) for part in parts]
    if len(picked) > 1 and all(picked):
        return tuple(dict.fromkeys(picked)) if question.multiple else None
    whole = _match_option(question, line)
    return (whole or line,) if line else ()


def _match_option(question: Question, word: str) -> str:
    """The label of the option with this number or this label, or ""."""
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
    """The answers in the input that a client gave back; where it has none, the question keeps its default."""
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


PendingQuestion = PermissionAsked | QuestionsAsked


class Allow(Struct, frozen=True):
    """The call may run; `updated_input` replaces its arguments, which are then judged again.

    With `remember` calls like it are not asked about again: `rule` says which, or else the narrowest rule of the
    question.
    """

    updated_input: dict[str, Any] | None = None
    rule: str = ""
    remember: RememberScope | None = None


class Deny(Struct, frozen=True):
    """The call may not run. The model reads `message`; `interrupt` ends the turn as well.

    With `remember` calls like it are denied from now on.
    """

    message: str = ""
    interrupt: bool = False
    rule: str = ""
    remember: RememberScope | None = None


Permission = Allow | Deny | bool

CanUseTool = Callable[..., Permission | Awaitable[Permission]]
"""Called with the tool's name and its arguments, and with the whole question when it takes a third argument."""


class Hook(Struct, frozen=True):
    """A function for an event, for the tools that `matcher` names; `timeout` seconds are how long it is waited for."""

    call: Callable[[HookPayload], HookPayload | Awaitable[HookPayload | None] | None]
    matcher: str = ""
    timeout: float = 30.0


HookFunction = Callable[[HookPayload], HookPayload | Awaitable[HookPayload | None] | None]

HookTable = Mapping[str, Sequence[Hook | HookFunction]]
"""What listens to an event: `{"PreToolUse": [check], "Stop": [Hook(tidy, timeout=5)]}`."""


async def decide(checker: CanUseTool | None, ask: PendingQuestion) -> Op:
    """What the program says to a question."""
    if isinstance(ask, QuestionsAsked):
        return _make_questions_answer(ask, await _ask_checker(checker, SDK_TOOL, to_sdk_input(ask.questions), ask))
    return _make_permission_answer(ask, await _ask_checker(checker, ask.name, dict(ask.args), ask))


def make_callback_hooks(table: HookTable) -> Iterator[CallbackHook]:
    """The hooks of a program as the session knows them."""
    for event, listeners in table.items():
        for listener in listeners:
            hook = listener if isinstance(listener, Hook) else Hook(listener)
            name = getattr(hook.call, "__name__", "callback")
            yield CallbackHook(str(name), event, _make_async(hook), hook.matcher, hook.timeout)


def _make_async(hook: Hook) -> Callable[[HookPayload], Awaitable[HookPayload | None]]:
    async def call(told: HookPayload) -> HookPayload | None:
        said = hook.call(told)
        return await said if inspect.isawaitable(said) else said

    return call


async def _ask_checker(checker: CanUseTool | None, name: str, args: dict[str, Any], ask: PendingQuestion) -> Permission:
    """What the checker says. One that fails has not allowed anything."""
    if checker is None:
        return Deny("Nobody can be asked.")
    try:
        said = checker(name, args, ask) if _accepts_event(checker) else checker(name, args)
        return await said if inspect.isawaitable(said) else said
    except Exception as error:  # the checker is the user's code: whatever it raises means no
        return Deny(f"The permission check failed: {error}")


def _accepts_event(checker: CanUseTool) -> bool:
    try:
        inspect.signature(checker).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def _make_permission_answer(ask: PermissionAsked, verdict: Permission) -> Op:
    if not isinstance(verdict, Allow | Deny):
        return AnswerPermission(ask.ask_id, allow=verdict is True, by="api")
    rule = (verdict.rule or next(iter(ask.rules), "")) if verdict.remember else ""
    if isinstance(verdict, Allow):
        return AnswerPermission(
            ask.ask_id, allow=True, args=verdict.updated_input, by="api", rule=rule, remember=verdict.remember
        )
    return AnswerPermission(
        ask.ask_id,
        allow=False,
        reason=verdict.message,
        by="api",
        interrupt=verdict.interrupt,
        rule=rule,
        remember=verdict.remember,
    )


def _make_questions_answer(ask: QuestionsAsked, verdict: Permission) -> Op:
    """Allowed with changed input that holds answers; allowed without takes every default."""
    if isinstance(verdict, Deny) and verdict.interrupt:
        return Interrupt()
    changed = verdict.updated_input if isinstance(verdict, Allow) else None
    cancelled = not isinstance(verdict, Allow) and verdict is not True
    return AnswerQuestions(ask.ask_id, parse_sdk_answers(ask.questions, changed), cancelled, by="api")
