"""The `files` strategy for small models, as a provider around a provider.

A model of a few billion parameters writes whole files well, and calls tools badly. So Odin looks by itself, shows what
it found in one request, and makes ordinary tool calls of the files, commands and deletions in the reply. The engine,
the log, permissions and undo are those of every other model. `strategy` in the model's settings chooses it.
"""

import os
from collections.abc import AsyncGenerator, Iterable
from functools import cached_property

import msgspec

from odin.core.message import Usage
from odin.core.provider import (
    CallChunk,
    Chunk,
    Provider,
    Request,
    StopChunk,
    TextChunk,
    UsageChunk,
    open_stream,
)
from odin.core.structured_output import get_output_tool, is_correction
from odin.providers.json_contract import JsonContract, flatten_messages, make_call_id
from odin.providers.whole_files.reply_judgement import NO_REPLY
from odin.providers.whole_files.strategy import Action, WholeFileStrategy
from odin.providers.whole_files.written_reply import starts_action

_NEEDED_TOOLS = frozenset(("Grep", "LS", "Read"))


class WholeFileProvider:
    """Looks, asks and acts. `context` is the model's context window, 0 if unknown."""

    def __init__(self, provider: Provider, context: int) -> None:
        self.name = provider.name
        self._provider = provider
        self._context = context

    @cached_property
    def _contract(self) -> JsonContract:
        return JsonContract(self._provider)

    async def close(self) -> None:
        await self._provider.close()

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        """Requests that are no turns (titles, summaries) pass through; agents without the tools get the contract.

        So does a model that has answered in prose and must now give its answer as structured output.
        """
        if (tool := get_output_tool(request)) is not None and is_correction(request):
            request = msgspec.structs.replace(request, tools=(tool,))
        if not request.tools or request.schema is not None:
            plain = msgspec.structs.replace(request, messages=flatten_messages(request.messages))
            async with open_stream(self._provider, plain) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        if not _NEEDED_TOOLS.issubset(tool.name for tool in request.tools):
            async with open_stream(self._contract, request) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        strategy = WholeFileStrategy(request, self._context)
        action = strategy.choose_next_action()
        if action.request is None:
            for chunk in _stream_action(action, request.model):
                yield chunk
            return
        async for chunk in self._ask(action.request, strategy):
            yield chunk

    async def _ask(self, request: Request, strategy: WholeFileStrategy) -> AsyncGenerator[Chunk]:
        """Stream what can be shown of the reply, then what it becomes. A reply that only repeats is not read on."""
        shown = _ShownText()
        async with open_stream(self._provider, request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    if text := shown.feed(chunk.text):
                        yield TextChunk(text)
                    if "\n" in chunk.text and strategy.is_repeating(shown.text):
                        for last in _finish(shown, strategy, StopChunk("end_turn", request.model), request.model):
                            yield last
                        return
                elif isinstance(chunk, StopChunk):
                    for last in _finish(shown, strategy, chunk, request.model):
                        yield last
                else:
                    yield chunk


def _stream_action(action: Action, model: str) -> Iterable[Chunk]:
    if action.answer:
        yield TextChunk(action.answer)
    for index, (name, args) in enumerate(action.calls):
        call_id = f"{action.prefix}{os.urandom(6).hex()}"
        yield CallChunk(index, call_id, name, msgspec.json.encode(args).decode(), done=True)
    yield UsageChunk(Usage())
    yield StopChunk("tool_use" if action.calls else "end_turn", model)


def _finish(shown: "_ShownText", strategy: WholeFileStrategy, stop: StopChunk, model: str) -> Iterable[Chunk]:
    outcome = strategy.judge_reply(shown.text, is_cut=stop.reason == "max_tokens")
    if outcome.error:
        strategy.check_patience()
        yield TextChunk(shown.take_rest() if shown.text.strip() else NO_REPLY)
        yield StopChunk("unfinished", stop.model)
        return
    if rest := shown.find_rest(outcome.text):
        yield TextChunk(rest)
    for index, (name, args) in enumerate(outcome.calls):
        yield CallChunk(index, make_call_id(model), name, msgspec.json.encode(args).decode(), done=True)
    if outcome.calls:
        yield StopChunk("tool_use", stop.model)
    else:
        yield StopChunk("end_turn" if stop.reason == "tool_use" else stop.reason, stop.model)


class _ShownText:
    """The text of a reply, of which only prose is shown while it streams.

    A line may be the path of the code block below it, so each is held until the next one starts.
    """

    def __init__(self) -> None:
        self.text = ""
        self.shown = ""
        self._holds = False

    def feed(self, text: str) -> str:
        self.text += text
        if self._holds:
            return ""
        lines = self.text[len(self.shown) :].splitlines(keepends=True)
        free = ""
        for at, line in enumerate(lines):
            if starts_action(line):
                self._holds = True
                break
            following = "".join(lines[at + 1 :]).strip()
            if not following or starts_action(following.splitlines()[0]) or following[0] in "`~RD<":
                break
            free += line
        self.shown += free
        return free

    def find_rest(self, text: str) -> str:
        """Return what is left to show of the text that the reply becomes."""
        if text.startswith(self.shown):
            return text[len(self.shown) :]
        return "" if text.strip() in self.shown else f"\n\n{text}"

    def take_rest(self) -> str:
        rest = self.text[len(self.shown) :]
        self.shown = self.text
        return rest
