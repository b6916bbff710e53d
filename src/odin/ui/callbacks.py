"""Answers to interactions, from typed text, SDK clients and Python callbacks.

SDK clients see a question as a permission request for a tool named AskUserQuestion. They answer by allowing it with
changed input, in which `answers` maps the text of each question to the chosen labels. A plan is a request for
ExitPlanMode.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, structs

from odin.core.call_events import AskEvent, PermissionAsked, ToolEnded, UsageRecorded
from odin.core.errors import OdinError
from odin.core.event_values import Question
from odin.core.interaction import FormField, Interaction, make_interaction
from odin.core.message import ToolCall
from odin.core.op import Answer, Interrupt, Op
from odin.core.policy import CallbackHook, HookPayload, RememberScope
from odin.ui.plan_text import SDK_PLAN_TOOL

if TYPE_CHECKING:
    from odin.ui.stream_json.types import ResultMessage

SDK_TOOL = "AskUserQuestion"


def parse_choice(question: Question | FormField, typed: str) -> tuple[str, ...] | None:
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


def _match_option(question: Question | FormField, word: str) -> str:
    """Return the label of the option with this number or label, or ""."""
    if word.isdecimal() and 1 <= int(word) <= len(question.options):
        return question.options[int(word) - 1].label
    return next((option.label for option in question.options if option.label.casefold() == word.casefold()), "")


def get_sdk_call(interaction: Interaction) -> tuple[str, dict[str, Any]]:
    """Return the tool and the input that a program sees."""
    if interaction.kind == "permission":
        return interaction.permission.name, dict(interaction.permission.args)
    if interaction.kind == "plan":
        return SDK_PLAN_TOOL, {"plan": interaction.plan.text, "planFilePath": interaction.plan.path}
    questions = [
        {
            "question": question.text,
            "header": question.header,
            "options": [{"label": option.label, "description": option.detail} for option in question.options],
            "multiSelect": question.multiple,
        }
        for question in interaction.questions
    ]
    return SDK_TOOL, {"questions": questions}


def make_sdk_answer(
    interaction: Interaction, by: str, *, allow: bool, message: str, changed: Any, interrupt: bool
) -> Answer | Interrupt:
    """Return the answer of a program, which allows the call with this changed input, or denies it with this message.

    A question takes its answers from the changed input, or else its defaults. A plan that is not allowed is changed.
    """
    given = cast("dict[str, Any]", changed) if isinstance(changed, dict) else None
    if interaction.kind == "permission":
        choice = "allow_once" if allow else "deny"
        return Answer(interaction.id, choice, message, given, interrupt=interrupt, by=by)
    if interrupt and not allow:
        return Interrupt("keep")
    if interaction.kind == "plan":
        text = (given or {}).get("plan")
        plan = text if allow and isinstance(text, str) else ""
        return Answer(interaction.id, "approve" if allow else "revise", message, plan=plan, by=by)
    if not allow:
        return Answer(interaction.id, "cancel", by=by)
    filled = (given or {}).get("answers")
    answers = cast("dict[str, Any]", filled) if isinstance(filled, dict) else {}
    found = (_parse_sdk_answer(question, answers.get(question.text)) for question in interaction.questions)
    return Answer(interaction.id, "answer", answers=tuple(found), by=by)


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


async def decide(checker: CanUseTool | None, ask: AskEvent, agent: str = "") -> Op:
    """Return the program's answer to an interaction."""
    interaction = make_interaction(ask, agent)
    decision = await _ask_checker(checker, *get_sdk_call(interaction), ask)
    if not isinstance(decision, Allow | Deny):
        decision = Allow() if decision is True else Deny()
    message, changed, stops, mode = "", None, False, ""
    if isinstance(decision, Allow):
        changed, mode = decision.updated_input, decision.permission_mode
    else:
        message, stops = decision.message, decision.interrupt
    is_allowed = isinstance(decision, Allow)
    answer = make_sdk_answer(interaction, "api", allow=is_allowed, message=message, changed=changed, interrupt=stops)
    if not isinstance(answer, Answer):
        return answer
    answer = structs.replace(answer, permission_mode=mode)
    if not isinstance(ask, PermissionAsked):
        return answer
    rule = (decision.rule or next(iter(ask.rules), "")) if decision.remember else ""
    return structs.replace(answer, rule=rule, scope=decision.remember)


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
