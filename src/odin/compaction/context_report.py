"""What fills the context window, by source.

The model reports the total with every reply. The share of each source is estimated by its length and scaled to that
total. After the conversation was shortened or rewound, the total is an estimate until the next reply.
"""

from collections.abc import Iterator, Sequence

from odin.compaction.measure import IMAGE_TOKENS, encode_json_text, tokens_of
from odin.core.client import ContextPart, ContextReport
from odin.core.message import Message, PromptMessage, ReplyMessage, Text, ToolCall, ToolMessage
from odin.engine.turn import RequestTemplate
from odin.session.state import SessionState

_INSTRUCTIONS_HEADING = "# Instructions of this project"
"""The start of the system blocks with project instructions."""


def build_context_report(
    state: SessionState, template: RequestTemplate, *, limit: int, threshold: int = 0, expected: int = 0
) -> ContextReport:
    """`expected`, the estimated size of the next request, is used if the model has not reported a size."""
    measured = state.conversation.is_measured and state.conversation.tokens > 0
    history = state.build_history()
    counted = _trim_to_last_reply(history) if measured else history
    parts = _sum_by_source(
        [*_measure_fixed(template), *_measure_summary(state), *_measure_messages(counted, images=template.info.images)]
    )
    used = state.conversation.tokens if measured else expected or sum(part.tokens for part in parts)
    info = template.info
    model = f"{info.provider}/{info.id}" if info.provider else info.id
    return ContextReport(model, used, limit, threshold, measured, scale_parts(parts, used))


def _trim_to_last_reply(history: Sequence[Message]) -> Sequence[Message]:
    """The messages up to the last reply: the reported total does not include later ones."""
    for end in range(len(history), 0, -1):
        if isinstance(history[end - 1], ReplyMessage):
            return history[:end]
    return history


def _measure_fixed(template: RequestTemplate) -> Iterator[ContextPart]:
    for block in template.system:
        source = "project instructions" if block.startswith(_INSTRUCTIONS_HEADING) else "system prompt"
        yield ContextPart(source, tokens_of(block))
    for tool in template.tools:
        size = tokens_of(tool.name) + tokens_of(tool.description) + tokens_of(encode_json_text(tool.schema))
        yield ContextPart("tools", size)


def _measure_summary(state: SessionState) -> Iterator[ContextPart]:
    if summary := state.thread_of().summary:
        yield ContextPart("summary", tokens_of(summary))


def _measure_messages(messages: Sequence[Message], *, images: bool) -> Iterator[ContextPart]:
    """Thinking counts only after the last prompt: it is not sent back later."""
    last = max((index for index, message in enumerate(messages) if isinstance(message, PromptMessage)), default=-1)
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        if isinstance(message, PromptMessage):
            yield ContextPart("prompts", tokens_of(message.text))
            yield from (ContextPart("notes and context", tokens_of(note)) for note in message.notes)
            if images and message.images:
                yield ContextPart("images", IMAGE_TOKENS * len(message.images), len(message.images))
        elif isinstance(message, ReplyMessage):
            names.update((call.id, call.name) for call in message.calls)
            yield from _measure_reply(message, thinking=index > last)
        else:
            yield from _measure_results(message, names, images)


def _measure_reply(message: ReplyMessage, *, thinking: bool) -> Iterator[ContextPart]:
    for part in message.parts:
        if isinstance(part, Text):
            yield ContextPart("answers", tokens_of(part.text))
        elif isinstance(part, ToolCall):
            yield ContextPart("tool calls", tokens_of(part.name) + tokens_of(encode_json_text(part.args)))
        elif thinking:
            yield ContextPart("reasoning", tokens_of(part.text))


def _measure_results(message: ToolMessage, names: dict[str, str], images: bool) -> Iterator[ContextPart]:
    for result in message.results:
        yield ContextPart(f"results of {names.get(result.call_id, 'tools')}", tokens_of(result.text))
        if images and result.images:
            yield ContextPart("images", IMAGE_TOKENS * len(result.images), len(result.images))
    yield from (ContextPart("notes and context", tokens_of(note)) for note in message.notes)


def _sum_by_source(parts: Sequence[ContextPart]) -> list[ContextPart]:
    """One part per source, in order of first appearance."""
    sums: dict[str, ContextPart] = {}
    for part in parts:
        before = sums.get(part.source, ContextPart(part.source, 0, 0))
        sums[part.source] = ContextPart(part.source, before.tokens + part.tokens, before.count + part.count)
    return list(sums.values())


def scale_parts(parts: Sequence[ContextPart], used: int) -> tuple[ContextPart, ...]:
    """Scale the parts in proportion, so that they add up to exactly `used`."""
    total = sum(part.tokens for part in parts)
    if not total:
        return tuple(parts)
    raw_sum = scaled_sum = 0
    scaled: list[ContextPart] = []
    for part in parts:
        raw_sum += part.tokens
        upto = raw_sum * used // total
        scaled.append(ContextPart(part.source, upto - scaled_sum, part.count))
        scaled_sum = upto
    return tuple(scaled)
