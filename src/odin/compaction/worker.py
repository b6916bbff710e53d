"""Shortens a conversation: first by pruning, then by a summary in the background, and finally by
keeping less and less verbatim, without the model.

The summary is written while the turn goes on, and is applied before a later request, when no call is open, or at once
if the agent is idle. Only if the next request would not fit does the turn wait. If the model fails, Odin builds the
summary from what the session knows. Compaction is an event like any other, so a resumed session folds to the same
messages.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from odin.compaction.agent_context import AgentContext
from odin.compaction.measure import count_message_tokens, estimate_tokens
from odin.compaction.prune import Pruner, write_history
from odin.compaction.summary import (
    SummaryFacts,
    build_local_summary,
    build_summary_block,
    collect_quotes,
    extract_body,
    extract_quotes,
    find_tail_start,
    find_weakness,
    merge_facts,
    parse_sections,
    render_sections,
    split_into_portions,
)
from odin.context.system_prompt import describe_environment, format_date
from odin.core.background_prompts import COMPACTION_PROMPT, BackgroundPrompt
from odin.core.call_events import ActivityChanged
from odin.core.errors import CompactionFailed, OdinError
from odin.core.event import AnyEvent, Compacted, CompactionChanged, Warned
from odin.core.event_values import CompactionProfile, CompactionTrigger
from odin.core.message import Message, PromptMessage
from odin.core.policy import HookCall
from odin.core.provider import Compactor, ModelInfo, Provider
from odin.engine.call import CallScope
from odin.engine.stream import SmallModel
from odin.engine.turn import RequestTemplate
from odin.session.history import find_kept_start, find_paths_in_view


class PendingSummary(Struct, frozen=True):
    """A finished summary of the first `cut` messages.

    It is valid while message positions are unchanged (`Thread.lineage`).
    """

    text: str
    cut: int
    lineage: int
    trigger: CompactionTrigger
    profile: CompactionProfile


def collect_facts(context: AgentContext, scope: CallScope) -> SummaryFacts:
    state, agent = context.deps.recorder.state, context.agent
    agents = {record.id: record for record in state.sub_agents.records}
    own_state = agents.get(agent)
    others = tuple(f"- {record.id}: {record.task[:200]}" for record in agents.values()) if not agent else ()
    changed = dict.fromkeys(change.change.before.path for change in state.file_history.list_since(0))
    return SummaryFacts(
        environment=describe_environment(
            scope.cwd,
            scope.root,
            context.deps.shell,
            format_date(time.time()),
            state.permissions.list_roots(scope.root),
        ),
        earlier=get_earlier_summary(context),
        prompt=context.thread.prompt,
        todos=(own_state.todos if own_state else ()) if agent else state.conversation.todos,
        agents=others,
        files=tuple(context.deps.files()),
        changed=tuple(changed),
    )


def get_earlier_summary(context: AgentContext) -> str:
    """The current summary, for the next one to continue from."""
    summary = context.thread.summary
    return extract_body(summary) if summary and context.deps.custom_compactor is None else summary


def make_compacted_event(
    context: AgentContext, ready: PendingSummary, messages: Sequence[Message], scope: CallScope, archive: str = ""
) -> Compacted:
    start = find_kept_start(messages, len(messages) - ready.cut)
    older, kept = messages[:start], messages[start:]
    facts = collect_facts(context, scope)
    prompt = context.thread.prompt
    is_prompt_kept = any(_is_prompt(message, prompt) for message in kept)
    users = () if is_prompt_kept or not prompt else (prompt,)
    quotes = collect_quotes([item for item in older if not _is_prompt(item, prompt)], estimate_tokens(ready.text) // 2)
    summary = ready.text if context.deps.custom_compactor is not None else merge_facts(ready.text, facts)
    text = build_summary_block(summary, quotes, facts, archive)
    measure = context.estimator
    before = measure.fixed_tokens + sum(map(count_message_tokens, messages)) + estimate_tokens(context.thread.summary)
    after = (
        measure.fixed_tokens
        + sum(map(count_message_tokens, kept))
        + estimate_tokens(text)
        + sum(map(estimate_tokens, users))
    )
    return Compacted(
        text=text,
        kept_messages=len(kept),
        user_prompts=users,
        archive=archive,
        trigger=ready.trigger,
        profile=ready.profile,
        tokens_before=measure.estimate(before),
        tokens_after=measure.estimate(after),
    )


def archive_messages(context: AgentContext, messages: Sequence[Message]) -> str:
    """Archive the messages and return the path; "" if that fails, which is no loss: the log has them."""
    try:
        return write_history(context.deps.folder, messages, context.thread.archive)
    except OSError:
        return ""


def _is_prompt(message: Message, prompt: str) -> bool:
    return isinstance(message, PromptMessage) and message.text == prompt


def make_failure(
    context: AgentContext, template: RequestTemplate, detail: str = "", objection: str = ""
) -> CompactionFailed:
    """The error that names the most likely reason why the request cannot fit."""
    window = context.deps.windows.get_window(template.info)
    fixed = context.estimator.estimate(context.estimator.measure_fixed(template.system, template.tools))
    prompt = estimate_tokens(context.thread.prompt)
    limit = context.get_budget(template)
    if fixed > limit:
        cause = f"the system prompt and the tools alone take about {fixed:,} of {window:,} tokens"
    elif fixed + prompt > limit:
        cause = f"the last prompt takes about {prompt:,} of {window:,} tokens"
    elif objection:
        cause = f"a hook stopped the summary: {objection}"
    else:
        cause = detail or f"it still takes about {context.estimate_size(template):,} of {window:,} tokens"
    return CompactionFailed(
        f"The conversation cannot be made to fit the window of {template.info.id}: {cause.rstrip('.')}.",
        "Use a model with a larger window, raise `context` or `max_context`, or start a new session.",
    )


MAX_PORTIONS = 6
_UNKNOWN_WINDOW = 32_768
_MAX_INPUT_TOKENS = 100_000


class UnusableSummary(OdinError):
    """The model's answer is not a usable summary."""


async def summarize(
    context: AgentContext,
    template: RequestTemplate,
    messages: Sequence[Message],
    earlier: str,
    focus: str,
    max_tokens: int,
) -> str:
    """Ask the model for a summary of about `max_tokens` tokens that continues `earlier`; "" if it writes none.

    A conversation too long for one request is sent in portions, each with the summary of the previous ones.
    """
    provider, info = await context.deps.connect_summarizer(template)
    if not info.takes_instructions:
        return ""
    window = context.deps.windows.get_window(info) or _UNKNOWN_WINDOW
    room = max(1_000, min(_MAX_INPUT_TOKENS, window * 6 // 10 - max_tokens))
    job = msgspec.structs.replace(
        COMPACTION_PROMPT, max_tokens=max(512, min(COMPACTION_PROMPT.max_tokens, window // 4))
    )
    text = earlier
    for portion in split_into_portions(messages, room, MAX_PORTIONS):
        parts = [f"Write at most {max_tokens * 3 // 4} words."]
        if focus:
            parts.append(f"Focus on: {focus}")
        if text:
            parts.append(f"=====> the summary of what came before\n{text}")
        parts.append(f"=====> the conversation\n{portion}")
        text = await _ask_model(context, provider, info, job, "\n\n".join(parts))
        why = find_weakness(text, max_tokens * 2)
        if why:
            raise UnusableSummary(f"The summary was not usable: {why}.")
    return render_sections(parse_sections(text))


async def _ask_model(
    context: AgentContext, provider: Provider, info: ModelInfo, job: BackgroundPrompt, text: str
) -> str:
    async def connect() -> tuple[Provider, ModelInfo]:
        return provider, info

    return await SmallModel(connect, context.deps.recorder, context.deps.budget).ask(job, text, context.agent)


MAX_FAILURES = 2
PAUSED_TURNS = 3
"""After MAX_FAILURES in a row, the model is not asked for summaries for PAUSED_TURNS turns."""

MAX_ATTEMPTS = 3
TAIL_SHARES = (0.5, 0.25, 0.0)
"""The share of the free window that stays verbatim, for each attempt."""

_MIN_SUMMARIZED = 4


class CompactionWorker:
    def __init__(self, context: AgentContext) -> None:
        self.pruner = Pruner(context)
        self._context = context
        self._deps = context.deps
        self._pending: PendingSummary | None = None
        self._task: asyncio.Task[None] | None = None
        self._trigger: CompactionTrigger = "auto"
        self._failures = 0
        self._paused_until = 0
        self._is_hook_approved = False
        self._objection = ""

    @property
    def is_running(self) -> bool:
        """True while a summary is being written, and while a finished one waits to be applied."""
        return self._pending is not None or (self._task is not None and not self._task.done())

    @property
    def _is_paused(self) -> bool:
        return self._context.turn_number < self._paused_until

    def _get_messages(self) -> tuple[Message, ...]:
        return self._context.thread.build_finished_history()

    async def make_room(self, template: RequestTemplate, scope: CallScope, size: int) -> None:
        """Shorten a crowded conversation; if the window is known, the next request fits afterwards."""
        limit = self._context.get_budget(template)
        if self._deps.custom_compactor is None:
            self.pruner.prune_if_worthwhile(template)
            size = self._context.estimate_size(template)
            if not self._context.is_crowded(template, size):
                return
        if not self.is_running and not self._is_paused:
            await self._begin_summary(template, scope, "auto", "", self._choose_profile("auto", "continuation"))
        if limit and size > limit:
            await self.ensure_fit(template, scope, "auto")
        elif self._is_overfull() and not await self.apply(scope):
            await self._summarize_now(template, scope, "auto", TAIL_SHARES[0], ask_model=False)

    def _is_overfull(self) -> bool:
        """True if there are more than twice `max_messages` messages, so a background summary comes too late."""
        limit = self._deps.settings.max_messages
        return 0 < limit < len(self._get_messages()) // 2

    async def ensure_fit(self, template: RequestTemplate, scope: CallScope, trigger: CompactionTrigger) -> None:
        """Shorten until the next request fits, in at most three attempts, or raise CompactionFailed."""
        for attempt in range(MAX_ATTEMPTS):
            self.pruner.prune_giants(template)
            if attempt == 0 and self._task is not None and not self._task.done():
                await self._wait_for_summary()
            if not await self.apply(scope):
                ask_model = attempt == 0 and not self._is_paused and self._task is None
                await self._summarize_now(template, scope, trigger, TAIL_SHARES[attempt], ask_model=ask_model)
            if self._task is not None and self._task.done():
                self._task = None
            if attempt:
                self.pruner.prune(template, 0, images=0)
            if self._fits(template):
                return
        raise self.build_failure(template)

    def _fits(self, template: RequestTemplate) -> bool:
        return self._context.estimate_size(template) <= self._context.get_budget(template)

    async def compact_now(self, template: RequestTemplate, scope: CallScope, trigger: CompactionTrigger) -> bool:
        """Compact while the turn waits. True if the next request became smaller."""
        before = self._context.estimate_size(template)
        if self._task is not None and not self._task.done():
            await self._wait_for_summary()
        if not await self.apply(scope):
            await self._summarize_now(template, scope, trigger, TAIL_SHARES[0], ask_model=not self._is_paused)
        return self._context.estimate_size(template) < before

    async def _wait_for_summary(self) -> None:
        """Wait for the running summary up to its timeout. An interrupt leaves it running."""
        assert self._task is not None
        self._emit(ActivityChanged("compacting"))
        await asyncio.wait([self._task], timeout=self._deps.settings.timeout_s)

    async def _summarize_now(
        self, template: RequestTemplate, scope: CallScope, trigger: CompactionTrigger, tail: float, *, ask_model: bool
    ) -> None:
        """Summarize while the turn waits: by the model if `ask_model`, else from what the session knows."""
        if await self._check_denied(scope, "", trigger):
            return
        self._emit(ActivityChanged("compacting"))
        self._emit(CompactionChanged("started", trigger))
        cut = self._find_cut(template, tail, self._deps.settings.keep_turns)
        text = ""
        if ask_model:
            try:
                text = await self._ask_for_summary(template, cut, "")
            except OdinError as error:
                self._record_failure(error, trigger, final=False)
            except asyncio.CancelledError:
                self._emit(CompactionChanged("cancelled", trigger))
                raise
        text = text or self._build_local(template, scope, cut)
        lineage = self._context.thread.lineage
        self._pending = PendingSummary(text, cut, lineage, trigger, "continuation")
        await self.apply(scope)

    async def begin_manual(
        self, template: RequestTemplate, scope: CallScope, focus: str, profile: CompactionProfile
    ) -> bool:
        """Start a summary that the user asked for. False if one is running or there is too little to summarize.

        Also True if a hook denies it; a `CompactionChanged` event reports that.
        """
        if self.is_running or len(self._get_messages()) < 2:
            return False
        busy = self._deps.recorder.state.conversation.is_executing
        chosen = self._choose_profile(profile, "continuation" if busy else "archival")
        return await self._begin_summary(template, scope, "manual", focus, chosen)

    def _choose_profile(self, wanted: CompactionProfile, usual: CompactionProfile) -> CompactionProfile:
        chosen = self._deps.settings.profile if wanted == "auto" else wanted
        return usual if chosen == "auto" else chosen

    async def _begin_summary(
        self,
        template: RequestTemplate,
        scope: CallScope,
        trigger: CompactionTrigger,
        focus: str,
        profile: CompactionProfile,
    ) -> bool:
        tail, turns = (
            (TAIL_SHARES[0], self._deps.settings.keep_turns) if profile == "continuation" else (TAIL_SHARES[1], 1)
        )
        cut = self._find_cut(template, tail, turns)
        if cut < (1 if trigger == "manual" else _MIN_SUMMARIZED):
            return False
        if await self._check_denied(scope, focus, trigger):
            return True
        self._trigger = trigger
        self._emit(CompactionChanged("started", trigger))
        made = self._make_summary(template, scope, cut, trigger, focus, profile)
        self._task = asyncio.create_task(made)
        self._deps.tasks.add(self._task)
        self._task.add_done_callback(self._deps.tasks.discard)
        return True

    async def _make_summary(
        self,
        template: RequestTemplate,
        scope: CallScope,
        cut: int,
        trigger: CompactionTrigger,
        focus: str,
        profile: CompactionProfile,
    ) -> None:
        lineage = self._context.thread.lineage
        try:
            text = await self._ask_for_summary(template, cut, focus) or self._build_local(template, scope, cut)
        except OdinError as error:
            use_local = trigger == "manual" or isinstance(error, UnusableSummary)
            self._record_failure(error, trigger, final=not use_local)
            text = self._build_local(template, scope, cut) if use_local else ""
        if text and self._context.thread.lineage == lineage:
            self._pending = PendingSummary(text, cut, lineage, trigger, profile)
            if not self._deps.recorder.state.conversation.is_executing and not self._context.agent:
                with suppress(OdinError):  # the next turn reports a log that cannot be written
                    await self.apply(scope)

    def cancel(self) -> bool:
        """Stop the running summary and drop a pending one. False if there is neither."""
        if not self.is_running:
            return False
        trigger = self._pending.trigger if self._pending is not None else self._trigger
        if self._task is not None:
            self._task.cancel()
        self._task = self._pending = None
        self._is_hook_approved = False
        self._emit(CompactionChanged("cancelled", trigger))
        return True

    def _record_failure(self, error: OdinError, trigger: CompactionTrigger, *, final: bool) -> None:
        self._emit(CompactionChanged("failed", trigger, error.describe(), final))
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._failures = 0
            self._paused_until = self._context.turn_number + PAUSED_TURNS + 1
            self._emit(
                Warned(
                    f"Summaries failed {MAX_FAILURES} times ({error}); the model is not asked again for {PAUSED_TURNS} "
                    "turns. Until then Odin prunes older results and writes summaries without a model."
                )
            )

    def _find_cut(self, template: RequestTemplate, tail: float, turns: int) -> int:
        messages = self._get_messages()
        room = int(self._context.count_free_tokens(template) * tail)
        return find_tail_start(messages, count_message_tokens, room=room, turns=turns)

    def _get_max_tokens(self, template: RequestTemplate) -> int:
        """The token limit of a summary."""
        return max(300, min(4_000, self._context.count_free_tokens(template) * 15 // 100))

    async def _ask_for_summary(self, template: RequestTemplate, cut: int, focus: str) -> str:
        """The model's summary of the first `cut` messages. Raise OdinError if it fails or is not usable."""
        older, earlier = self._get_messages()[:cut], get_earlier_summary(self._context)
        quotes = extract_quotes(self._context.thread.summary)
        try:
            async with asyncio.timeout(self._deps.settings.timeout_s):
                if self._deps.custom_compactor is not None:
                    text = await _ask_custom_compactor(self._deps.custom_compactor, older, earlier)
                else:
                    previous = f"{earlier}\n\n{quotes}" if quotes else earlier
                    text = await summarize(
                        self._context, template, older, previous, focus, self._get_max_tokens(template)
                    )
        except TimeoutError as error:
            raise OdinError(f"The summary took longer than {self._deps.settings.timeout_s:g} s.") from error
        self._failures = 0
        return text

    def _build_local(self, template: RequestTemplate, scope: CallScope, cut: int) -> str:
        return build_local_summary(
            self._get_messages()[:cut], collect_facts(self._context, scope), self._get_max_tokens(template)
        )

    async def apply(self, scope: CallScope) -> bool:
        """Replace the summarized messages by the pending summary.

        False if there is none, or it is outdated or not shorter, or a call is open.
        """
        thread = self._context.thread
        if thread.open_calls:
            return False
        ready, self._pending = self._pending, None
        if ready is None or ready.lineage != thread.lineage or ready.cut < 1:
            return False
        messages = self._get_messages()
        sketch = make_compacted_event(self._context, ready, messages, scope, str(self._deps.folder / "history-1.md"))
        if sketch.tokens_after >= sketch.tokens_before:
            self._emit(CompactionChanged("failed", ready.trigger, "The summary is not shorter."))
            return False
        archive = archive_messages(self._context, messages[: len(messages) - sketch.kept_messages])
        event = make_compacted_event(self._context, ready, messages, scope, archive)
        self._emit(event)
        self._is_hook_approved = False
        self._deps.keep_in_view(find_paths_in_view(self._get_messages(), (file.path for file in self._deps.files())))
        self._emit(CompactionChanged("succeeded", ready.trigger))
        await self._fire_hook("PostCompact", scope, event.text, ready.trigger)
        return True

    async def _check_denied(self, scope: CallScope, focus: str, trigger: CompactionTrigger) -> bool:
        """True if a `before_compress` hook denies the summary. An automatic one is then paused for some turns.

        The hook is asked once per summary, even if the model fails and Odin builds the summary instead.
        """
        if self._is_hook_approved:
            return False
        if trigger != "manual" and self._objection and self._is_paused:
            return True
        self._objection = await self._fire_hook("PreCompact", scope, focus, trigger)
        if not self._objection:
            self._is_hook_approved = True
            return False
        why = f"A hook stopped the summary: {self._objection}"
        self._emit(CompactionChanged("failed", trigger, why))
        if trigger == "manual":
            self._objection = ""
        else:
            self._paused_until = self._context.turn_number + PAUSED_TURNS + 1
        return True

    async def _fire_hook(self, point: str, scope: CallScope, text: str, trigger: CompactionTrigger) -> str:
        """The reason of a hook that denied, or ""."""
        reason = "manual" if trigger == "manual" else "auto"
        call = HookCall(point, self._context.agent, scope.mode, text=text, reason=reason)  # pyright: ignore[reportArgumentType]
        if not self._deps.hook_inbox.has_hook_for(call.point):
            return ""
        effect = await self._deps.hook_inbox.fire(call)
        return (effect.message or "no reason given.") if effect.decision == "deny" else ""

    def build_failure(self, template: RequestTemplate, detail: str = "") -> CompactionFailed:
        return make_failure(self._context, template, detail, self._objection)

    def _emit(self, event: AnyEvent) -> None:
        self._deps.recorder.emit(event, self._context.agent)


async def _ask_custom_compactor(custom: Compactor, messages: tuple[Message, ...], earlier: str) -> str:
    """Ask the embedding program's compactor. Any exception counts as a failed summary."""
    try:
        text = await custom.compact(messages, earlier)
    except Exception as error:
        raise OdinError(f"The compactor failed ({type(error).__name__}: {error}).") from error
    if not text.strip():
        raise UnusableSummary("The compactor returned no summary.")
    return text
