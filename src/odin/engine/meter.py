"""What fills the model's window, by source.

How much there is in all, the model says with every reply. Which part of it is whose can only be estimated, so the parts
are measured by their length and then scaled to the real number. After the conversation was made shorter, or taken back,
all of it is an estimate until the next reply.
"""

from collections.abc import Iterator, Sequence

from odin.context.size import IMAGE, json_text, tokens_of
from odin.core.client import ContextPart, ContextReport
from odin.core.message import AssistantMessage, Message, Text, ToolCall, ToolMessage, UserMessage
from odin.engine.kit import Planner
from odin.session.state import State

_INSTRUCTIONS = "# Instructions of this project"
"""How the prompt begins the blocks with the project's own words."""


def context_report(
    state: State, planner: Planner, *, limit: int, threshold: int = 0, expected: int = 0
) -> ContextReport:
    """`expected` is what the next request will take, for when the model has not said how much there is."""
    measured = state.context_measured and state.context_tokens > 0
    history = state.history()
    heard = _heard(history) if measured else history
    parts = _added_up([*_fixed(planner), *_summary(state), *_spoken(heard, images=planner.info.images)])
    used = state.context_tokens if measured else expected or sum(part.tokens for part in parts)
    info = planner.info
    model = f"{info.provider}/{info.id}" if info.provider else info.id
    return ContextReport(model, used, limit, threshold, measured, scaled(parts, used))


def _heard(history: Sequence[Message]) -> Sequence[Message]:
    """Up to the last reply: what came after it the model has not read yet, and so not counted."""
    for at in range(len(history), 0, -1):
        if isinstance(history[at - 1], AssistantMessage):
            return history[:at]
    return history


def _fixed(planner: Planner) -> Iterator[ContextPart]:
    for block in planner.system:
        source = "project instructions" if block.startswith(_INSTRUCTIONS) else "system prompt"
        yield ContextPart(source, tokens_of(block))
    for tool in planner.tools:
        size = tokens_of(tool.name) + tokens_of(tool.description) + tokens_of(json_text(tool.schema))
        yield ContextPart("tools", size)


def _summary(state: State) -> Iterator[ContextPart]:
    if summary := state.thread().summary:
        yield ContextPart("summary", tokens_of(summary))


def _spoken(messages: Sequence[Message], *, images: bool) -> Iterator[ContextPart]:
    """Thinking is sent back only within the running tool loop: after the last prompt."""
    last = max((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1)
    names: dict[str, str] = {}
    for at, message in enumerate(messages):
        if isinstance(message, UserMessage):
            yield ContextPart("prompts", tokens_of(message.text))
            yield from (ContextPart("notes and context", tokens_of(note)) for note in message.notes)
            if images and message.images:
                yield ContextPart("images", IMAGE * len(message.images), len(message.images))
        elif isinstance(message, AssistantMessage):
            names.update((call.id, call.name) for call in message.calls)
            yield from _said(message, thinking=at > last)
        else:
            yield from _results(message, names, images)


def _said(message: AssistantMessage, *, thinking: bool) -> Iterator[ContextPart]:
    for part in message.parts:
        if isinstance(part, Text):
            yield ContextPart("answers", tokens_of(part.text))
        elif isinstance(part, ToolCall):
            yield ContextPart("tool calls", tokens_of(part.name) + tokens_of(json_text(part.args)))
        elif thinking:
            yield ContextPart("reasoning", tokens_of(part.text))


def _results(message: ToolMessage, names: dict[str, str], images: bool) -> Iterator[ContextPart]:
    for result in message.results:
        yield ContextPart(f"results of {names.get(result.call_id, 'tools')}", tokens_of(result.text))
        if images and result.images:
            yield ContextPart("images", IMAGE * len(result.images), len(result.images))
    yield from (ContextPart("notes and context", tokens_of(note)) for note in message.notes)


def _added_up(parts: Sequence[ContextPart]) -> list[ContextPart]:
    """One part for each source, in the order in which the model reads them first."""
    sums: dict[str, ContextPart] = {}
    for part in parts:
        before = sums.get(part.source, ContextPart(part.source, 0, 0))
        sums[part.source] = ContextPart(part.source, before.tokens + part.tokens, before.count + part.count)
    return list(sums.values())


def scaled(parts: Sequence[ContextPart], used: int) -> tuple[ContextPart, ...]:
    """The parts in the same proportion, and exactly `used` in all."""
    total = sum(part.tokens for part in parts)
    if not total:
        return tuple(parts)
    done = shown = 0
    found: list[ContextPart] = []
    for part in parts:
        done += part.tokens
        upto = done * used // total
        found.append(ContextPart(part.source, upto - shown, part.count))
        shown = upto
    return tuple(found)
