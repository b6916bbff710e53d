"""ContextSummarizer: replaces older tool results and collected context by a summary of the small model."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from odin.context.file_cache import FileCache
from odin.core.background_prompts import CONTEXT_SUMMARY_PROMPT, CollectedContext
from odin.core.errors import OdinError
from odin.core.policy import HookCall, Hooks, NoHooks
from odin.core.text import join_some
from odin.core.tool import Args, AskSmallModel, CollectedItem, Tool, ToolContext, ToolOutput, fail

KEPT_RESULTS = 2
"""The newest results are not summarized: the model is working with them."""

SHORT_CHARS = 400
"""Results up to this length are left alone: a summary would not be shorter."""

MAX_INPUT = 200_000

MAX_CONTEXT = 100_000
"""Maximum characters summarized at once, and how many of them may be pieces of context."""

_ANSWER_SECONDS = 300.0
_MAX_NAMED = 20


class SummarizerArgs(Args, frozen=True):
    focus: str = ""


class _Selection(Struct, frozen=True):
    """The items to summarize, those that stay in view, and how many older results did not fit."""

    items: tuple[CollectedItem, ...]
    staying: tuple[CollectedItem, ...]
    omitted: int = 0
    cut: bool = False

    @property
    def size(self) -> int:
        return sum(len(item.text) for item in self.items)


class ContextSummarizerTool(Tool[SummarizerArgs]):
    """Replace older results by a summary when the context fills up."""

    name = "ContextSummarizer"
    kind = "interactive"
    short = "Replace older results and context by a summary."
    args = SummarizerArgs
    exclusive = True

    def __init__(
        self,
        collected: Callable[[], Sequence[CollectedItem]],
        small_model: AskSmallModel,
        files: FileCache,
        hooks: Hooks | None = None,
    ) -> None:
        self._hooks = hooks or NoHooks()
        self._collected = collected
        self._small_model = small_model
        self._files = files

    def get_title(self, args: SummarizerArgs) -> str:
        return args.focus

    async def run(self, args: SummarizerArgs, ctx: ToolContext) -> ToolOutput:
        chosen = _select_items(self._collected())
        if not chosen.items:
            return ToolOutput(
                text="Nothing has been collected that a summary would shorten.", note="Nothing to summarize"
            )
        result = await self._hooks.fire(HookCall("PreCompact", ctx.agent, ctx.mode, text=args.focus, reason="auto"))
        if result.decision == "deny":
            return fail(f"A hook stopped the summary: {result.message} Nothing was replaced.")
        collected = CollectedContext(args.focus.strip(), tuple((item.title, item.text) for item in chosen.items))
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                summary = await self._small_model(CONTEXT_SUMMARY_PROMPT, collected.render())
        except (OdinError, TimeoutError) as error:
            timeout = f"It did not answer within {_ANSWER_SECONDS:g} s."
            reason = error.describe() if isinstance(error, OdinError) else timeout
            return fail(f"The small model could not summarize: {reason} Nothing was replaced.")
        if len(summary) >= chosen.size:
            return ToolOutput(text="A summary would be longer than what it replaces. Nothing was replaced.")
        await self._hooks.fire(HookCall("PostCompact", ctx.agent, ctx.mode, text=summary, reason="auto"))
        calls = tuple(item.call_id for item in chosen.items if item.call_id)
        counts = f"{len(calls)} results and {len(chosen.items) - len(calls)} pieces of context"
        size = f"{chosen.size:,} characters became {len(summary):,}"
        remarks: list[str] = []
        # The files the model has read whose text no longer is in any remaining item.
        covered = "\n".join(f"{item.title}\n{item.text}" for item in chosen.items)
        staying = "\n".join(f"{item.title}\n{item.text}" for item in chosen.staying)
        paths = [file.path for file in self._files.list_files()]
        lost = [path for path in paths if path in covered and path not in staying]
        if lost:
            remarks.append(
                f"(The text of these files is no longer in view: {join_some(lost, _MAX_NAMED)}. "
                "Read the lines you need again before you quote or edit them.)"
            )
        if chosen.cut:
            remarks.append("(The middle of the longest pieces of context was left out.)")
        if chosen.omitted:
            remarks.append(
                f"({chosen.omitted} older results did not fit and stay as they are; call this tool again for them.)"
            )
        parts = [f"Summary of {counts} ({size}):", summary, *remarks]
        return ToolOutput(text="\n\n".join(parts), note=f"Summarized {counts}: {size}", summary=summary, covers=calls)


def _select_items(collected: Sequence[CollectedItem]) -> _Selection:
    """Select all context, and the newest results that fit the limit, except the last few and short ones."""
    times = Counter(item.call_id for item in collected)
    results = [item for item in collected if item.call_id]
    older = [item for item in results[:-KEPT_RESULTS] if len(item.text) > SHORT_CHARS and times[item.call_id] == 1]
    context = [item for item in collected if not item.call_id and not any(item.text in other.text for other in older)]
    context_items = [_truncate_item(item, MAX_CONTEXT // len(context)) for item in context]
    room = MAX_INPUT - sum(len(item.text) for item in context_items)
    fitting: list[CollectedItem] = []
    for item in reversed(older):
        if len(item.text) > room:
            break
        room -= len(item.text)
        fitting.insert(0, item)
    items = (*context_items, *fitting)
    if not fitting and sum(len(item.text) for item in context_items) <= SHORT_CHARS:
        items = ()
    staying = tuple(item for item in results if item not in fitting)
    return _Selection(items, staying, len(older) - len(fitting), cut=context_items != context)


def _truncate_item(item: CollectedItem, limit: int) -> CollectedItem:
    if len(item.text) <= limit:
        return item
    half = limit // 2
    dropped = len(item.text) - 2 * half
    return CollectedItem(
        item.title, f"{item.text[:half]}\n[... {dropped:,} characters left out ...]\n{item.text[-half:]}"
    )
