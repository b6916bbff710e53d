"""The event that puts a summary in the place of messages, with what is known for certain."""

from collections.abc import Sequence

from msgspec import Struct

from odin.context.archive import write_history
from odin.context.compact import SummaryFacts, body_of, build_summary_block, collect_quotes, merge_facts
from odin.context.prompt import describe_environment
from odin.context.size import tokens_of
from odin.core.errors import CompactionFailed
from odin.core.event import Compacted, CompactionProfile, CompactionTrigger
from odin.core.message import Message, PromptMessage
from odin.engine.call.admitted import CallScope
from odin.engine.compact.compaction import ContextBudget
from odin.engine.kit import Planner
from odin.session.shrink import find_kept_start


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
    agents = {record.id: record for record in state.agents}
    mine = agents.get(agent)
    others = tuple(f"- {record.id}: {record.task[:200]}" for record in agents.values()) if not agent else ()
    changed = dict.fromkeys(change.change.before.path for change in state.file_history.list_since(0))
    return SummaryFacts(
        environment=describe_environment(scope.cwd, scope.root),
        earlier=earlier_summary_of(keeper),
        prompt=keeper.thread.prompt,
        todos=(mine.todos if mine else ()) if agent else state.todos,
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
