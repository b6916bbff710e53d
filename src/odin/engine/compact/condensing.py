"""The event that puts a summary in the place of messages, with what is known for certain."""

from collections.abc import Sequence

from msgspec import Struct

from odin.context.archive import write_history
from odin.context.compact import Facts, body_of, evidence, settled, whole
from odin.context.prompt import environment
from odin.context.size import tokens_of
from odin.core.errors import CompactionFailed
from odin.core.event import Compacted, CompactionProfile, CompactionTrigger
from odin.core.message import Message, UserMessage
from odin.engine.call.admitted import Scope
from odin.engine.compact.compaction import WindowKeeper
from odin.engine.kit import Planner
from odin.session.shrink import boundary


class ReadySummary(Struct, frozen=True):
    """A summary of the first `cut` messages, for a conversation that has not been taken back since."""

    text: str
    cut: int
    lineage: int
    trigger: CompactionTrigger
    profile: CompactionProfile


def facts_of(keeper: WindowKeeper, scope: Scope) -> Facts:
    """What the session knows, whatever a model remembers."""
    state, agent = keeper.means.recorder.state, keeper.agent
    agents = {record.id: record for record in state.agents}
    mine = agents.get(agent)
    others = tuple(f"- {record.id}: {record.task[:200]}" for record in agents.values()) if not agent else ()
    changed = dict.fromkeys(change.before_after.before.path for change in state.changes.since(0))
    return Facts(
        place=environment(scope.cwd, scope.root),
        earlier=earlier_of(keeper),
        prompt=keeper.thread.prompt,
        todos=(mine.todos if mine else ()) if agent else state.todos,
        agents=others,
        files=tuple(keeper.means.files()),
        changed=tuple(changed),
    )


def earlier_of(keeper: WindowKeeper) -> str:
    """The summary that stands now, for the next one to go on from."""
    summary = keeper.thread.summary
    return body_of(summary) if summary and keeper.means.own is None else summary


def event_of(
    keeper: WindowKeeper, ready: ReadySummary, messages: Sequence[Message], scope: Scope, archive: str = ""
) -> Compacted:
    start = boundary(messages, len(messages) - ready.cut)
    older, kept = messages[:start], messages[start:]
    facts = facts_of(keeper, scope)
    prompt = keeper.thread.prompt
    here = any(isinstance(message, UserMessage) and message.text == prompt for message in kept)
    users = () if here or not prompt else (prompt,)
    quotes = evidence([item for item in older if not _is_prompt(item, prompt)], tokens_of(ready.text) // 2)
    summary = ready.text if keeper.means.own is not None else settled(ready.text, facts)
    text = whole(summary, quotes, facts, archive)
    measure = keeper.measure
    before = measure.base + sum(map(measure.of, messages)) + tokens_of(keeper.thread.summary)
    after = measure.base + sum(map(measure.of, kept)) + tokens_of(text) + sum(map(tokens_of, users))
    return Compacted(
        text=text,
        kept=len(kept),
        users=users,
        archive=archive,
        trigger=ready.trigger,
        profile=ready.profile,
        tokens_before=measure.estimate(before),
        tokens_after=measure.estimate(after),
    )


def archived(keeper: WindowKeeper, messages: Sequence[Message]) -> str:
    """Where the messages are kept. A full disk must not stop the session here: the log has them."""
    try:
        return write_history(keeper.means.folder, messages, keeper.thread.archive)
    except OSError:
        return ""


def _is_prompt(message: Message, prompt: str) -> bool:
    return isinstance(message, UserMessage) and message.text == prompt


def failure(keeper: WindowKeeper, planner: Planner, said: str = "", objection: str = "") -> CompactionFailed:
    """Why the request cannot be made to fit, in one sentence."""
    window = keeper.means.windows.of(planner.info)
    fixed = keeper.measure.estimate(keeper.measure.fixed(planner.system, planner.tools))
    prompt = tokens_of(keeper.thread.prompt)
    budget = keeper.budget(planner)
    if fixed > budget:
        cause = f"the system prompt and the tools alone take about {fixed:,} of {window:,} tokens"
    elif fixed + prompt > budget:
        cause = f"the last prompt takes about {prompt:,} of {window:,} tokens"
    elif objection:
        cause = f"a hook stopped the summary: {objection}"
    else:
        cause = said or f"it still takes about {keeper.size(planner):,} of {window:,} tokens"
    return CompactionFailed(
        f"The conversation cannot be made to fit the window of {planner.info.id}: {cause.rstrip('.')}.",
        "Use a model with a larger window, raise `context` or `max_context`, or start a new session.",
    )
