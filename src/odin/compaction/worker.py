"""The event that puts a summary in the place of messages, with what is known for certain.

Asks a model for the summary of a conversation, in portions that it can hold, and judges what it answers.

Makes a conversation shorter: cheap pruning first, then a summary in the background, then whatever it takes.

A summary is made beside the running turn and waits, ready. It is applied before a later request, when no call
is open, or at once when the agent is idle. Only when the next request would not fit does the turn wait.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from odin.compaction.context_budget import ContextBudget
from odin.compaction.measure import tokens_of
from odin.compaction.prune import Pruner, write_history
from odin.compaction.summary import (
    SummaryFacts,
    body_of,
    build_local_summary,
    build_summary_block,
    collect_quotes,
    find_tail_start,
    find_weakness,
    merge_facts,
    parse_sections,
    quotes_of,
    render_sections,
    split_into_portions,
)
from odin.context.prompt import describe_environment
from odin.core.compactor import Compactor
from odin.core.errors import CompactionFailed, OdinError
from odin.core.event import (
    ActivityChanged,
    AnyEvent,
    Compacted,
    CompactionChanged,
    CompactionProfile,
    CompactionTrigger,
    Warned,
)
from odin.core.message import Message, PromptMessage
from odin.core.policy import HookCall
from odin.core.provider import ModelInfo, Provider
from odin.core.small_jobs import COMPACTION_JOB, SmallJob
from odin.engine.call import CallScope
from odin.engine.small_model import SmallModel
from odin.engine.turn import Planner
from odin.session.history import find_kept_start, find_paths_in_view


class PendingSummary(Struct, frozen=True):
    """A summary of the first `cut` messages, for a conversation that has not been taken back since."""

    text: str
    cut: int
    lineage: int
    trigger: CompactionTrigger
    profile: CompactionProfile


def facts_of(keeper: ContextBudget, scope: CallScope) -> SummaryFacts:
    """What the session knows, whatever a model remembers."""
    state, agent = keeper.deps.recorder.state, keeper.agent
    agents = {record.id: record for record in state.sub_agents.records}
    mine = agents.get(agent)
    others = tuple(f"- {record.id}: {record.task[:200]}" for record in agents.values()) if not agent else ()
    changed = dict.fromkeys(change.change.before.path for change in state.file_history.list_since(0))
    return SummaryFacts(
        environment=describe_environment(scope.cwd, scope.root),
        earlier=earlier_summary_of(keeper),
        prompt=keeper.thread.prompt,
        todos=(mine.todos if mine else ()) if agent else state.conversation.todos,
        agents=others,
        files=tuple(keeper.deps.files()),
        changed=tuple(changed),
    )


def earlier_summary_of(keeper: ContextBudget) -> str:
    """The summary that stands now, for the next one to go on from."""
    summary = keeper.thread.summary
    return body_of(summary) if summary and keeper.deps.custom_compactor is None else summary


def compacted_event_of(
    keeper: ContextBudget, ready: PendingSummary, messages: Sequence[Message], scope: CallScope, archive: str = ""
) -> Compacted:
    start = find_kept_start(messages, len(messages) - ready.cut)
    older, kept = messages[:start], messages[start:]
    facts = facts_of(keeper, scope)
    prompt = keeper.thread.prompt
    here = any(isinstance(message, PromptMessage) and message.text == prompt for message in kept)
    users = () if here or not prompt else (prompt,)
    quotes = collect_quotes([item for item in older if not _is_prompt(item, prompt)], tokens_of(ready.text) // 2)
    summary = ready.text if keeper.deps.custom_compactor is not None else merge_facts(ready.text, facts)
    text = build_summary_block(summary, quotes, facts, archive)
    measure = keeper.estimator
    before = measure.fixed_tokens + sum(map(measure.measure_message, messages)) + tokens_of(keeper.thread.summary)
    after = (
        measure.fixed_tokens + sum(map(measure.measure_message, kept)) + tokens_of(text) + sum(map(tokens_of, users))
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


def archive_messages(keeper: ContextBudget, messages: Sequence[Message]) -> str:
    """Where the messages are kept. A full disk must not stop the session here: the log has them."""
    try:
        return write_history(keeper.deps.folder, messages, keeper.thread.archive)
    except OSError:
        return ""


def _is_prompt(message: Message, prompt: str) -> bool:
    return isinstance(message, PromptMessage) and message.text == prompt


def make_failure(keeper: ContextBudget, planner: Planner, said: str = "", objection: str = "") -> CompactionFailed:
    """Why the request cannot be made to fit, in one sentence."""
    window = keeper.deps.windows.window_of(planner.info)
    fixed = keeper.estimator.estimate(keeper.estimator.measure_fixed(planner.system, planner.tools))
    prompt = tokens_of(keeper.thread.prompt)
    budget = keeper.budget_of(planner)
    if fixed > budget:
        cause = f"the system prompt and the tools alone take about {fixed:,} of {window:,} tokens"
    elif fixed + prompt > budget:
        cause = f"the last prompt takes about {prompt:,} of {window:,} tokens"
    elif objection:
        cause = f"a hook stopped the summary: {objection}"
    else:
        cause = said or f"it still takes about {keeper.estimate_size(planner):,} of {window:,} tokens"
    return CompactionFailed(
        f"The conversation cannot be made to fit the window of {planner.info.id}: {cause.rstrip('.')}.",
        "Use a model with a larger window, raise `context` or `max_context`, or start a new session.",
    )


MAX_PORTIONS = 6
_UNKNOWN_WINDOW = 32_768
_MAX_INPUT_TOKENS = 100_000
_OFFLINE_PROVIDER = "offline"


class UnusableSummary(OdinError):
    """The model answered, but not with a summary."""


async def summarize(
    keeper: ContextBudget, planner: Planner, messages: Sequence[Message], earlier: str, focus: str, most: int
) -> str:
    """A summary of the messages and of the earlier one, of at most about `most` tokens; "" when there is no model.

    A conversation that does not fit one question is asked about in portions, each with the summary of those before.
    """
    provider, info = await keeper.deps.connect_summarizer(planner)
    if info.provider == _OFFLINE_PROVIDER:
        return ""
    window = keeper.deps.windows.window_of(info) or _UNKNOWN_WINDOW
    room = max(1_000, min(_MAX_INPUT_TOKENS, window * 6 // 10 - most))
    job = msgspec.structs.replace(COMPACTION_JOB, max_tokens=max(512, min(COMPACTION_JOB.max_tokens, window // 4)))
    text = earlier
    for portion in split_into_portions(messages, room, MAX_PORTIONS):
        text = await _ask_model(keeper, provider, info, job, _build_question(portion, text, focus, most))
        why = find_weakness(text, most * 2)
        if why:
            raise UnusableSummary(f"The summary was not usable: {why}.")
    return render_sections(parse_sections(text))


async def _ask_model(keeper: ContextBudget, provider: Provider, info: ModelInfo, job: SmallJob, question: str) -> str:
    async def connect() -> tuple[Provider, ModelInfo]:
        return provider, info

    return await SmallModel(connect, keeper.deps.recorder, keeper.deps.budget).ask(job, question, keeper.agent)


def _build_question(portion: str, earlier: str, focus: str, most: int) -> str:
    parts = [f"Write at most {most * 3 // 4} words."]
    if focus:
        parts.append(f"What matters most: {focus}")
    if earlier:
        parts.append(f"=====> the summary of what came before\n{earlier}")
    parts.append(f"=====> the conversation\n{portion}")
    return "\n\n".join(parts)


MAX_FAILURES = 2
PAUSED_TURNS = 3
"""After so many failures in a row, summaries are not asked for during so many turns."""

MAX_ATTEMPTS = 3
TAIL_SHARES = (0.5, 0.25, 0.0)
"""The share of the free window that stays word for word, at the first attempt and at those after it."""

_MIN_SUMMARIZED = 4


class CompactionWorker:
    def __init__(self, keeper: ContextBudget) -> None:
        self.pruner = Pruner(keeper)
        self._budget = keeper
        self._deps = keeper.deps
        self._pending: PendingSummary | None = None
        self._task: asyncio.Task[None] | None = None
        self._trigger: CompactionTrigger = "auto"
        self._failures = 0
        self._paused_until = 0
        self._is_hook_approved = False
        self._objection = ""

    @property
    def is_running(self) -> bool:
        return self._pending is not None or (self._task is not None and not self._task.done())

    @property
    def _is_paused(self) -> bool:
        return self._budget.turn_number < self._paused_until

    def _get_messages(self) -> tuple[Message, ...]:
        return self._budget.thread.build_finished_history()

    # --- before a request ---

    async def make_room(self, planner: Planner, scope: CallScope, size: int) -> None:
        """Something has to be done about the size; the next request must fit, if the window is known."""
        budget = self._budget.budget_of(planner)
        if self._deps.custom_compactor is None:
            self.pruner.prune_if_worthwhile(planner)
            size = self._budget.estimate_size(planner)
            if not self._budget.is_crowded(planner, size):
                return
        if not self.is_running and not self._is_paused:
            await self._begin_summary(planner, scope, "auto", "", "continuation")
        if budget and size > budget:
            await self.ensure_fit(planner, scope, "auto")
        elif self._is_overfull() and not await self.apply(scope):
            await self._summarize_now(planner, scope, "auto", TAIL_SHARES[0], asks=False)

    def _is_overfull(self) -> bool:
        """Whether there are so many messages that the next summary cannot be waited for."""
        most = self._deps.settings.max_messages
        return 0 < most < len(self._get_messages()) // 2

    async def ensure_fit(self, planner: Planner, scope: CallScope, trigger: CompactionTrigger) -> None:
        """Shorten until the next request fits, in at most three attempts. Raises CompactionFailed."""
        for attempt in range(MAX_ATTEMPTS):
            self.pruner.prune_giants(planner)
            if attempt == 0 and self._task is not None and not self._task.done():
                await self._wait_for_summary()
            if not await self.apply(scope):
                asks = attempt == 0 and not self._is_paused and self._task is None
                await self._summarize_now(planner, scope, trigger, TAIL_SHARES[attempt], asks=asks)
            self._task = self._task if self._task is not None and not self._task.done() else None
            if attempt:
                self.pruner.prune(planner, 0, images=0)
            if self._fits(planner):
                return
        raise self.build_failure(planner)

    def _fits(self, planner: Planner) -> bool:
        return self._budget.estimate_size(planner) <= self._budget.budget_of(planner)

    async def compact_now(self, planner: Planner, scope: CallScope, trigger: CompactionTrigger) -> bool:
        """One compaction here and now; whether there is less to send."""
        before = self._budget.estimate_size(planner)
        if self._task is not None and not self._task.done():
            await self._wait_for_summary()
        if not await self.apply(scope):
            await self._summarize_now(planner, scope, trigger, TAIL_SHARES[0], asks=not self._is_paused)
        return self._budget.estimate_size(planner) < before

    async def _wait_for_summary(self) -> None:
        """The running summary, for as long as one may take. An interrupt leaves it running."""
        assert self._task is not None
        self._emit(ActivityChanged("compacting"))
        await asyncio.wait([self._task], timeout=self._deps.settings.timeout_s)

    async def _summarize_now(
        self, planner: Planner, scope: CallScope, trigger: CompactionTrigger, tail: float, *, asks: bool
    ) -> None:
        """Summarise while the turn waits: by the model if it may be asked, else by what is known."""
        if await self._check_denied(scope, "", trigger):
            return
        self._emit(ActivityChanged("compacting"))
        self._emit(CompactionChanged("started", trigger))
        cut = self._find_cut(planner, tail, self._deps.settings.keep_turns)
        text = ""
        if asks:
            try:
                text = await self._ask_for_summary(planner, cut, "")
            except OdinError as error:
                self._record_failure(error, trigger, final=False)
            except asyncio.CancelledError:
                self._emit(CompactionChanged("cancelled", trigger))
                raise
        text = text or self._build_local(planner, scope, cut)
        lineage = self._budget.thread.lineage
        self._pending = PendingSummary(text, cut, lineage, trigger, "continuation")
        await self.apply(scope)

    # --- in the background ---

    async def begin_manual(self, planner: Planner, scope: CallScope, focus: str, profile: CompactionProfile) -> bool:
        if self.is_running or len(self._get_messages()) < 2:
            return False
        busy = self._deps.recorder.state.conversation.is_executing
        chosen: CompactionProfile = profile if profile != "auto" else "continuation" if busy else "archival"
        return await self._begin_summary(planner, scope, "manual", focus, chosen)

    async def _begin_summary(
        self, planner: Planner, scope: CallScope, trigger: CompactionTrigger, focus: str, profile: CompactionProfile
    ) -> bool:
        tail, turns = (
            (TAIL_SHARES[0], self._deps.settings.keep_turns) if profile == "continuation" else (TAIL_SHARES[1], 1)
        )
        cut = self._find_cut(planner, tail, turns)
        if cut < (1 if trigger == "manual" else _MIN_SUMMARIZED) or await self._check_denied(scope, focus, trigger):
            return False
        self._trigger = trigger
        self._emit(CompactionChanged("started", trigger))
        made = self._make_summary(planner, scope, cut, trigger, focus, profile)
        self._task = asyncio.create_task(made)
        self._deps.tasks.add(self._task)
        self._task.add_done_callback(self._deps.tasks.discard)
        return True

    async def _make_summary(
        self,
        planner: Planner,
        scope: CallScope,
        cut: int,
        trigger: CompactionTrigger,
        focus: str,
        profile: CompactionProfile,
    ) -> None:
        lineage = self._budget.thread.lineage
        try:
            text = await self._ask_for_summary(planner, cut, focus) or self._build_local(planner, scope, cut)
        except OdinError as error:
            goes_on = trigger == "manual" or isinstance(error, UnusableSummary)
            self._record_failure(error, trigger, final=not goes_on)
            text = self._build_local(planner, scope, cut) if goes_on else ""
        if text and self._budget.thread.lineage == lineage:
            self._pending = PendingSummary(text, cut, lineage, trigger, profile)
            if not self._deps.recorder.state.conversation.is_executing and not self._budget.agent:
                with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
                    await self.apply(scope)

    def cancel(self) -> bool:
        """Stop what is being made and drop what waits. False when there is neither."""
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
            self._paused_until = self._budget.turn_number + PAUSED_TURNS + 1
            self._emit(
                Warned(
                    f"Summaries failed {MAX_FAILURES} times ({error}), so none are asked for "
                    f"during {PAUSED_TURNS} turns. "
                    "Until then older results are removed, and what is known is noted down without a model."
                )
            )

    # --- what a summary is made of ---

    def _find_cut(self, planner: Planner, tail: float, turns: int) -> int:
        messages = self._get_messages()
        size = self._budget.estimator.measure_message
        return find_tail_start(messages, size, room=int(self._budget.free_tokens_of(planner) * tail), turns=turns)

    def _max_tokens_of(self, planner: Planner) -> int:
        """Tokens a summary may have."""
        return max(300, min(4_000, self._budget.free_tokens_of(planner) * 15 // 100))

    async def _ask_for_summary(self, planner: Planner, cut: int, focus: str) -> str:
        """The model's summary of the first messages. Raises OdinError when there is none that is good enough."""
        older, earlier = self._get_messages()[:cut], earlier_summary_of(self._budget)
        quotes = quotes_of(self._budget.thread.summary)
        try:
            async with asyncio.timeout(self._deps.settings.timeout_s):
                if self._deps.custom_compactor is not None:
                    text = await _ask_custom_compactor(self._deps.custom_compactor, older, earlier)
                else:
                    said = f"{earlier}\n\n{quotes}" if quotes else earlier
                    text = await summarize(self._budget, planner, older, said, focus, self._max_tokens_of(planner))
        except TimeoutError as error:
            raise OdinError(f"The summary took longer than {self._deps.settings.timeout_s:g} s.") from error
        self._failures = 0
        return text

    def _build_local(self, planner: Planner, scope: CallScope, cut: int) -> str:
        return build_local_summary(
            self._get_messages()[:cut], facts_of(self._budget, scope), self._max_tokens_of(planner)
        )

    # --- applying ---

    async def apply(self, scope: CallScope) -> bool:
        """Put a ready summary in the place of the messages it stands for. False when there is none that fits."""
        thread = self._budget.thread
        if thread.open_calls:
            return False
        ready, self._pending = self._pending, None
        if ready is None or ready.lineage != thread.lineage or ready.cut < 1:
            return False
        messages = self._get_messages()
        sketch = compacted_event_of(self._budget, ready, messages, scope, str(self._deps.folder / "history-1.md"))
        if sketch.tokens_after >= sketch.tokens_before:
            self._emit(CompactionChanged("failed", ready.trigger, "A summary would not be shorter."))
            return False
        archive = archive_messages(self._budget, messages[: len(messages) - sketch.kept_messages])
        event = compacted_event_of(self._budget, ready, messages, scope, archive)
        self._emit(event)
        self._is_hook_approved = False
        self._deps.forget(find_paths_in_view(self._get_messages(), (file.path for file in self._deps.files())))
        self._emit(CompactionChanged("succeeded", ready.trigger))
        await self._fire_hook("after_compress", scope, event.text, ready.trigger)
        return True

    async def _check_denied(self, scope: CallScope, focus: str, trigger: CompactionTrigger) -> bool:
        """Whether a hook will not have it. A person is told; by itself nothing is summarised for some turns.

        Hooks are asked once for each summary, also when the model failed and what is known takes its place.
        """
        if self._is_hook_approved:
            return False
        if trigger != "manual" and self._objection and self._is_paused:
            return True
        self._objection = await self._fire_hook("before_compress", scope, focus, trigger)
        if not self._objection:
            self._is_hook_approved = True
            return False
        why = f"A hook stopped the summary: {self._objection}"
        self._emit(CompactionChanged("failed", trigger, why))
        if trigger == "manual":
            self._emit(Warned(why))
            self._objection = ""
        else:
            self._paused_until = self._budget.turn_number + PAUSED_TURNS + 1
        return True

    async def _fire_hook(self, point: str, scope: CallScope, text: str, trigger: CompactionTrigger) -> str:
        """What a hook that said no gives as its reason, or ""."""
        reason = "manual" if trigger == "manual" else "auto"
        call = HookCall(point, self._budget.agent, scope.mode, text=text, reason=reason)  # pyright: ignore[reportArgumentType]
        if not self._deps.hook_inbox.has_hook_for(call.point):
            return ""
        verdict = await self._deps.hook_inbox.fire(call)
        return (verdict.message or "it gave no reason.") if verdict.decision == "deny" else ""

    def build_failure(self, planner: Planner, said: str = "") -> CompactionFailed:
        return make_failure(self._budget, planner, said, self._objection)

    def _emit(self, event: AnyEvent) -> None:
        self._deps.recorder.emit(event, self._budget.agent)


async def _ask_custom_compactor(own: Compactor, messages: tuple[Message, ...], earlier: str) -> str:
    """The summary of the program that embeds the session. Whatever it raises is a summary that failed."""
    try:
        text = await own.compact(messages, earlier)
    except Exception as error:
        raise OdinError(f"The compactor failed ({type(error).__name__}: {error}).") from error
    if not text.strip():
        raise UnusableSummary("The compactor gave no summary.")
    return text
