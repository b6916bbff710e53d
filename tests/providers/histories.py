"""Hypothesis strategies for session histories, and helpers that hold conversations with a provider."""

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from odin.core.message import Message, PromptMessage, ReplyMessage, Text, Thinking, ToolCall, ToolMessage, ToolResult
from odin.core.provider import Provider, Request, ToolSpec
from odin.testing import Turn, call, reply, say

from .servers import get_reply

TOOLS = (
    ToolSpec("Read", "Read a file.", {"type": "object", "properties": {"file_path": {"type": "string"}}}),
    ToolSpec("Grep", "Search.", {"type": "object", "properties": {"pattern": {"type": "string"}}}),
)

words = st.text(max_size=12) | st.sampled_from(["", " ", "\n", "hello", "\ud800 broken", "世界 🌍", '"quoted" \\ \x00'])
ids = st.sampled_from(["call_1", "toolu_01AB", "functions.Read:0", "", "x" * 64, "a b", "ü", "call_1"]) | st.text(
    max_size=8
)
names = st.sampled_from(["Read", "Grep", "functions.Read", "two words", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
notes = st.lists(words, max_size=2).map(tuple)
prompts = st.builds(PromptMessage, words.map(lambda text: text + "prompt"), notes)


@st.composite
def steps(draw: st.DrawFn, provider: str = "here", model: str = "a-model", thinking: bool = False) -> list[Message]:
    """Draw a reply with calls, and their results."""
    calls = draw(
        st.lists(st.builds(ToolCall, ids, names, st.dictionaries(words, values, max_size=2)), min_size=1, max_size=3)
    )
    parts: list[Text | Thinking | ToolCall] = []
    if thinking and draw(st.booleans()):
        parts.append(Thinking(draw(words), draw(st.sampled_from(["", "signed"]))))
    if draw(st.booleans()):
        parts.append(Text(draw(words)))
    results = tuple(ToolResult(call.id, draw(words), draw(st.booleans())) for call in calls)
    reply = ReplyMessage((*parts, *calls), provider, model, "tool_use")
    return [reply, ToolMessage(results, draw(notes))]


@st.composite
def turns(draw: st.DrawFn, thinking: bool = False) -> list[Message]:
    """Draw a prompt, some steps, and perhaps an answer: an interrupted turn has none."""
    found: list[Message] = [draw(prompts)]
    for step in draw(st.lists(steps(thinking=thinking), max_size=3)):
        found += step
    if draw(st.booleans()):
        found.append(ReplyMessage((Text(draw(words)),), "here", "a-model"))
    return found


def join_messages(parts: Sequence[list[Message]]) -> tuple[Message, ...]:
    """Return the messages of a history, in which each call has its own id, as in a log."""
    used: set[str] = set()
    names: list[str] = []
    found: list[Message] = []
    for message in (message for part in parts for message in part):
        if isinstance(message, ReplyMessage):
            names = _choose_ids(message, used)
            calls = iter(names)
            kept = [replace(part, id=next(calls)) if isinstance(part, ToolCall) else part for part in message.parts]
            message = replace(message, parts=tuple(kept))
        elif isinstance(message, ToolMessage):
            results = [replace(one, call_id=name) for one, name in zip(message.results, names, strict=True)]
            message = replace(message, results=tuple(results))
        found.append(message)
    return tuple(found)


def _choose_ids(message: ReplyMessage, used: set[str]) -> list[str]:
    names: list[str] = []
    for made in message.calls:
        names.append(made.id if made.id not in used else f"{made.id} {len(used)}")
        used.add(names[-1])
    return names


histories = st.lists(turns(), min_size=1, max_size=3).map(join_messages)


reply_kinds = st.lists(st.sampled_from(["call", "stopped call", "answer", "lost"]), min_size=2, max_size=6).map(tuple)
"""Kinds of replies of a thinking model: a call; a call after whose results the turn stops and a new prompt comes; an
answer, before a new prompt; and a reply that was interrupted after its thinking."""


def make_script(kinds: Sequence[str]) -> list[Turn]:
    return [
        reply("", [call("Read", {"step": step})], "hmm") if kind.endswith("call") else say("done", thinking="so")
        for step, kind in enumerate(kinds)
    ]


async def hold_conversation(
    provider: Provider, kinds: Sequence[str], make_request: Callable[[tuple[Message, ...]], Request]
) -> None:
    """Hold a conversation with replies of these kinds. Each request contains all messages so far."""
    history: tuple[Message, ...] = (PromptMessage("go"),)
    for kind in kinds:
        reply_message, _ = await get_reply(provider, make_request(history))
        if kind == "lost":
            thoughts = tuple(part for part in reply_message.parts if isinstance(part, Thinking))
            reply_message = ReplyMessage(
                thoughts, reply_message.provider, reply_message.model, reply_message.stop, interrupted=True
            )
        history += (reply_message,)
        if reply_message.calls:
            history += (ToolMessage(tuple(ToolResult(one.id, "ok") for one in reply_message.calls)),)
        if kind != "call":
            history += (PromptMessage("go on"),)


def list_request_prefixes(history: tuple[Message, ...]) -> list[tuple[Message, ...]]:
    """Return every prefix that can be sent as a request: it ends with a message for the model to answer."""
    return [history[:n] for n in range(1, len(history) + 1) if not isinstance(history[n - 1], ReplyMessage)]


def strip_closing_brackets(body: bytes) -> bytes:
    """Return a request body without its closing brackets: the next request must start with these bytes."""
    return body.rstrip(b"]}")
