"""Estimates the tokens of a request, learns the context windows of models, and reports what fills the window.

No tokenizer is available for every model, so text is measured by its length, rather too high than too low, and the
estimate is calibrated by what the model last reported. Prose and code have three to five characters per token, base64
and minified code fewer, and a non-ASCII character may take one and a half tokens. Messages are immutable, so each is
measured once.

In the report, the share of each source is estimated by its length and scaled to the total that the model reported with
its last reply. After the conversation was shortened or rewound, the total is an estimate until the next reply.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from odin.context.instructions import PROJECT_HEADING, USER_HEADING
from odin.core.client import ContextPart, ContextReport, LoadedInstructions
from odin.core.lazy_pattern import compile_lazily
from odin.core.message import (
    HistoryFold,
    Image,
    Message,
    PromptMessage,
    ReplyMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
)
from odin.core.provider import ModelInfo, ToolSpec
from odin.engine.turn import RequestTemplate
from odin.session.state import SessionState

IMAGE_TOKENS = 1_600
"""Upper bound for one image: APIs scale larger ones down."""

_MESSAGE_TOKENS = 10
_PART_TOKENS = 12
_DENSE_WORD_CHARS = 12
"""Text with a longer average word is neither prose nor readable code."""

_SHORT_CHARS = 200
_MIN_DOUBTED_TOKENS = 2_000
_MAX_CHARS_PER_TOKEN = 8
"""Over a whole conversation, no tokenizer gets more characters into a token."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too high than too low."""
    count = len(text)
    dense = count > _SHORT_CHARS and (text.count(" ") + text.count("\n")) * _DENSE_WORD_CHARS < count
    plain = count * 5 // 8 if dense else count // 3
    if text.isascii():
        return plain + 1
    wide = len(text.encode("utf-8", "surrogatepass")) - count
    return plain + wide * 3 // 5 + 1


def count_message_tokens(message: Message) -> int:
    if isinstance(message, PromptMessage):
        notes = sum(_PART_TOKENS + estimate_tokens(note) for note in message.notes)
        return _MESSAGE_TOKENS + estimate_tokens(message.text) + notes + IMAGE_TOKENS * len(message.images)
    if isinstance(message, ReplyMessage):
        return _MESSAGE_TOKENS + sum(_PART_TOKENS + _count_part_tokens(part) for part in message.parts)
    results = sum(
        _PART_TOKENS + estimate_tokens(result.text) + IMAGE_TOKENS * len(result.images) for result in message.results
    )
    return _MESSAGE_TOKENS + results + sum(_PART_TOKENS + estimate_tokens(note) for note in message.notes)


def _count_part_tokens(part: Text | Thinking | ToolCall) -> int:
    if isinstance(part, ToolCall):
        return (
            estimate_tokens(part.name) + estimate_tokens(encode_json_text(part.args)) + estimate_tokens(part.signature)
        )
    return estimate_tokens(part.text) + (estimate_tokens(part.signature) if isinstance(part, Thinking) else 0)


def encode_json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError):
        return repr(value)


def list_images(message: Message) -> tuple[Image, ...]:
    if isinstance(message, PromptMessage):
        return message.images
    return tuple(image for one in message.results for image in one.images) if isinstance(message, ToolMessage) else ()


def _add_size(size: tuple[int, int], message: Message) -> tuple[int, int]:
    return size[0] + count_message_tokens(message), size[1] + len(list_images(message))


class TokenEstimator:
    """Estimates the size of one agent's requests. Each message is measured once."""

    def __init__(self) -> None:
        self._sizes = HistoryFold[tuple[int, int]](lambda: (0, 0), _add_size)
        self._fixed_part: tuple[tuple[str, ...], tuple[ToolSpec, ...], int] = ((), (), 0)
        self._sent = 0
        self._reported = 0

    def measure_messages(self, messages: tuple[Message, ...], max_images: int = 0) -> int:
        """The raw tokens of these messages, with at most `max_images` images. Only new messages are measured."""
        tokens, images = self._sizes.update(messages)
        return tokens - IMAGE_TOKENS * max(0, images - max_images)

    def measure_fixed(self, system: tuple[str, ...], tools: tuple[ToolSpec, ...]) -> int:
        """The raw tokens of system blocks and tools, which rarely change."""
        if self._fixed_part[0] is not system or self._fixed_part[1] is not tools:
            size = sum(_PART_TOKENS + estimate_tokens(block) for block in system) + sum(
                _PART_TOKENS
                + estimate_tokens(tool.name)
                + estimate_tokens(tool.description)
                + estimate_tokens(encode_json_text(tool.schema))
                for tool in tools
            )
            self._fixed_part = (system, tools, size)
        return self._fixed_part[2]

    @property
    def is_calibrated(self) -> bool:
        return self._reported > 0

    @property
    def fixed_tokens(self) -> int:
        """The raw tokens of the system blocks and tools of the last request."""
        return self._fixed_part[2]

    def estimate(self, raw: int) -> int:
        """Estimate the real tokens of a request from its raw size.

        A request that grew counts as the last reported size plus the raw size of the addition. One that shrank is
        scaled by the last ratio of reported to raw size, plus a margin of 10 %.
        """
        if not self._reported or not self._sent:
            return raw
        if raw >= self._sent:
            return self._reported + (raw - self._sent)
        return min(raw, int(raw * min(1.0, self._reported / self._sent * 1.1)))

    def calibrate(self, raw: int, real: int) -> None:
        """Learn that a request of raw size `raw` took `real` tokens."""
        if raw and real:
            self._sent, self._reported = raw, real

    def reset(self) -> None:
        """Forget the calibration, because another model counts differently."""
        self._sent = self._reported = 0

    def is_truncated(self, raw: int, real: int) -> bool:
        """True if a server that counted `real` tokens must have truncated a request of raw size `raw`.

        The count is far too low for the text, or hardly higher than last time although much was added. Must be called
        before `calibrate`.
        """
        if real <= 0 or raw < _MIN_DOUBTED_TOKENS:
            return False
        grown = raw - self._sent if self._sent else 0
        if grown >= _MIN_DOUBTED_TOKENS and real < self._reported + grown // 20:
            return True
        return real < raw * 3 // _MAX_CHARS_PER_TOKEN * 4 // 5


class ContextWindows:
    """The context windows of a session's models: as known, or smaller if the server refused more. 0: unknown."""

    def __init__(self) -> None:
        self._learned: dict[tuple[str, str], int] = {}

    def get_window(self, info: ModelInfo) -> int:
        learned = self._learned.get((info.provider, info.id), 0)
        return min(info.context, learned) if info.context and learned else info.context or learned

    def learn(self, info: ModelInfo, limit: int) -> bool:
        """Record that the server refuses longer requests. False if the known window is not larger."""
        known = self.get_window(info)
        if limit <= 0 or (known and known <= limit):
            return False
        self._learned[(info.provider, info.id)] = limit
        return True


_HEADINGS = {
    PROJECT_HEADING: "project instructions",
    USER_HEADING: "user instructions",
    "# Skill": "skills",
    "# Memory": "memory",
}
"""How system blocks start that are not part of the system prompt itself."""

_INSTRUCTIONS_NOTE = compile_lazily(rf"(?:{PROJECT_HEADING}|{USER_HEADING}) \((.*?)\), (.*)")


def build_context_report(
    state: SessionState,
    template: RequestTemplate,
    *,
    limit: int,
    budget: int = 0,
    threshold: int = 0,
    expected: int = 0,
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
    return ContextReport(model, used, limit, threshold, measured, scale_parts(parts, used), budget=budget)


def list_sent_instructions(messages: Iterable[Message]) -> Iterator[LoadedInstructions]:
    """Yield the instructions that the model got as notes because it touched a file."""
    for message in messages:
        for note in () if isinstance(message, ReplyMessage) else message.notes:
            if found := _INSTRUCTIONS_NOTE.match(note):
                yield LoadedInstructions(found[1], estimate_tokens(note), found[2])


def _trim_to_last_reply(history: Sequence[Message]) -> Sequence[Message]:
    """The messages up to the last reply: the reported total does not include later ones."""
    for end in range(len(history), 0, -1):
        if isinstance(history[end - 1], ReplyMessage):
            return history[:end]
    return history


def _measure_fixed(template: RequestTemplate) -> Iterator[ContextPart]:
    for block in template.system:
        source = next((name for start, name in _HEADINGS.items() if block.startswith(start)), "system prompt")
        yield ContextPart(source, estimate_tokens(block))
    for tool in template.tools:
        size = (
            estimate_tokens(tool.name)
            + estimate_tokens(tool.description)
            + estimate_tokens(encode_json_text(tool.schema))
        )
        yield ContextPart("tools", size)


def _measure_summary(state: SessionState) -> Iterator[ContextPart]:
    if summary := state.get_thread().summary:
        yield ContextPart("summary", estimate_tokens(summary))


def _measure_messages(messages: Sequence[Message], *, images: bool) -> Iterator[ContextPart]:
    """Thinking counts only after the last prompt: it is not sent back later."""
    last = max((index for index, message in enumerate(messages) if isinstance(message, PromptMessage)), default=-1)
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        if isinstance(message, PromptMessage):
            yield ContextPart("prompts", estimate_tokens(message.text))
            yield from map(_measure_note, message.notes)
            if images and message.images:
                yield ContextPart("images", IMAGE_TOKENS * len(message.images), len(message.images))
        elif isinstance(message, ReplyMessage):
            names.update((call.id, call.name) for call in message.calls)
            for part in message.parts:
                if isinstance(part, Text):
                    yield ContextPart("answers", estimate_tokens(part.text))
                elif isinstance(part, ToolCall):
                    yield ContextPart(
                        "tool calls", estimate_tokens(part.name) + estimate_tokens(encode_json_text(part.args))
                    )
                elif index > last:
                    yield ContextPart("reasoning", estimate_tokens(part.text))
        else:
            for result in message.results:
                yield ContextPart(f"results of {names.get(result.call_id, 'tools')}", estimate_tokens(result.text))
                if images and result.images:
                    yield ContextPart("images", IMAGE_TOKENS * len(result.images), len(result.images))
            yield from map(_measure_note, message.notes)


def _measure_note(note: str) -> ContextPart:
    source = next((name for start, name in _HEADINGS.items() if note.startswith(start)), "notes and context")
    return ContextPart(source, estimate_tokens(note))


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
