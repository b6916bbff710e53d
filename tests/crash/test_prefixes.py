"""Any part of a log that a crash leaves behind folds to a conversation that every API accepts.

The session is recorded by playing it. Then it is cut at every event and at many bytes, lines are taken out of its
middle, and each time the next request is judged by the rules of the strict server, in all formats.
"""

import random
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import pytest

from odin.core.call_events import Replied, ToolEnded, ToolStarted
from odin.core.event import AnyEvent, Compacted, Envelope, ResultsPruned, TurnStarted
from odin.core.message import Message, ToolMessage
from odin.engine.crash_recovery import find_dangling
from odin.session.log import SessionLog, read_header, read_log
from odin.session.state import SessionState
from odin.session.thread import INTERRUPTED, NOT_STARTED

from .recording import Api, Recording, record
from .wires import refusals

_recorded: dict[str, Recording] = {}


@pytest.fixture(params=["anthropic", pytest.param("openai", marks=pytest.mark.slow)])
async def recording(request: pytest.FixtureRequest, workspace: Path, home: Path) -> Recording:
    api: Api = request.param
    if api not in _recorded:
        _recorded[api] = await record(api, workspace, home)
    return _recorded[api]


def asked(state: SessionState, agent: str = "") -> SessionState:
    """The state when the next prompt has come. The one given is changed."""
    prompt = TurnStarted("next", "go on", "edit_mode")
    state.apply(Envelope(state.seq + 1, 0.0, "s", prompt, agent))
    return state


def closed(state: SessionState) -> SessionState:
    """The state when somebody resumed and closed what was open."""
    for event, agent in find_dangling(state).events:
        state.apply(Envelope(state.seq + 1, 0.0, "s", event, agent))
    return state


def objections(events: Iterable[Envelope], recording: Recording) -> list[str]:
    """What any API has against the next request of the main agent, with and without the closings before it."""
    kept = list(events)
    state = SessionState.fold(kept)
    nothing_to_close = not find_dangling(state).events
    found = judged(asked(state).build_history(), recording)
    return (
        found if nothing_to_close else found + judged(asked(closed(SessionState.fold(kept))).build_history(), recording)
    )


_good: deque[tuple[int, tuple[Message, ...]]] = deque(maxlen=30)


def judged(history: tuple[Message, ...], recording: Recording) -> list[str]:
    """What any API has against this conversation. One that was found good a moment ago is not judged again."""
    if (id(recording), history) in _good:
        return []
    found = refusals(history, recording.memory)
    if not found:
        _good.append((id(recording), history))
    return found


def test_every_prefix_can_go_on(recording: Recording) -> None:
    for length in range(len(recording.events) + 1):
        assert objections(recording.events[:length], recording) == [], length


@pytest.mark.slow
def test_every_prefix_can_be_continued_without_a_prompt(recording: Recording) -> None:
    for length in range(len(recording.events) + 1):
        state = closed(SessionState.fold(recording.events[:length]))
        if state.build_history():
            again = TurnStarted("next", "", "edit_mode", continues=True)
            state.apply(Envelope(state.seq + 1, 0.0, "s", again))
            assert judged(state.build_history(), recording) == [], length


@pytest.mark.slow
def test_closing_closes_everything_and_changes_nothing_that_was_sent(recording: Recording) -> None:
    for length in range(len(recording.events) + 1):
        before = SessionState.fold(recording.events[:length])
        after = closed(SessionState.fold(recording.events[:length]))
        assert after.build_history() == before.build_history(), length
        assert not after.open_work
        assert after.open_threads == ()
        assert find_dangling(after).events == ()


def test_an_interrupted_call_is_told_in_words(recording: Recording) -> None:
    """Each call of the newest reply that has no result yet has one that says whether it began."""
    told = 0
    for length in range(1, len(recording.events) + 1):
        events = recording.events[:length]
        state = SessionState.fold(events)
        calls = state.thread_of().open_calls
        begun = {envelope.event.call_id for envelope in events if isinstance(envelope.event, ToolStarted)}
        last = next(
            (message for message in reversed(asked(state).build_history()) if isinstance(message, ToolMessage)), None
        )
        texts = {result.call_id: result.text for result in last.results} if last is not None else {}
        for call in calls:
            assert texts[call.id] == (INTERRUPTED if call.id in begun else NOT_STARTED)
            told += 1
    assert told > 20


def test_a_reply_is_stored_before_its_results_and_a_prompt_once(recording: Recording) -> None:
    replied: set[tuple[str, str]] = set()
    prompts: list[str] = []
    for envelope in recording.events:
        event = envelope.event
        if isinstance(event, Replied):
            replied |= {(envelope.agent, call.id) for call in event.message.calls}
        elif isinstance(event, ToolEnded):
            assert (envelope.agent, event.call_id) in replied
        elif isinstance(event, TurnStarted) and not envelope.agent:
            prompts.append(event.id)
    assert len(prompts) == len(set(prompts))


@pytest.mark.slow
def test_every_cut_in_the_middle_of_a_line_leaves_the_lines_before_it(recording: Recording, tmp_path: Path) -> None:
    """The reader passes over what is torn, the writer goes on after it, and both see the same session afterwards."""
    whole = recording.data
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    chance = random.Random(5)
    path = tmp_path / "s" / "main.jsonl"
    path.parent.mkdir()
    for number in range(len(ends) - 1):
        cut = chance.randrange(ends[number] + 1, ends[number + 1])
        path.write_bytes(whole[:cut])
        assert list(read_log(path)) == recording.events[: number + (cut == ends[number + 1] - 1)]
        log = SessionLog(path, read_header(path))
        log.append(recording.events[-1])
        log.close()
        assert path.read_bytes().startswith(whole[:cut])
        assert list(read_log(path))[-1] == recording.events[-1]
        assert list(read_log(path))[number : number + 1] != []


@pytest.mark.slow
def test_any_line_may_be_lost(recording: Recording) -> None:
    """At the end, and right after the loss, where the wound is fresh."""
    events = recording.events
    for lost in range(len(events)):
        for length in {lost + 2, lost + 5, len(events)}:
            kept = events[:lost] + events[lost + 1 : length]
            assert objections(kept, recording) == [], (lost, length)


@pytest.mark.slow
def test_any_lines_may_be_lost(recording: Recording) -> None:
    chance = random.Random(11)
    events = recording.events
    for number in range(400):
        share = chance.choice([0.02, 0.1, 0.3, 0.7])
        kept = [envelope for envelope in events if chance.random() > share]
        kept = kept[: chance.randrange(len(kept) + 1)]
        assert objections(kept, recording) == [], number


@pytest.mark.slow
def test_blocks_of_lines_may_be_lost(recording: Recording) -> None:
    """As a damaged sector takes them."""
    chance = random.Random(17)
    events = recording.events
    for number in range(300):
        start = chance.randrange(len(events))
        end = min(len(events), start + chance.randrange(1, 40))
        assert objections(events[:start] + events[end:], recording) == [], (number, start, end)


@pytest.mark.slow
def test_a_summary_may_come_anywhere(recording: Recording) -> None:
    """Also where it was never meant to be: in the middle of calls, or when what it speaks of is gone."""
    chance = random.Random(23)
    events = recording.events
    calls = [call.id for item in events if isinstance(item.event, Replied) for call in item.event.message.calls]
    for number in range(300):
        at = chance.randrange(len(events))
        shorter: AnyEvent = Compacted("In short.", kept_messages=chance.randrange(9), user_prompts=("an older prompt",))
        if chance.random() < 0.5:
            shorter = ResultsPruned(tuple(chance.sample(calls, 5)))
        kept = [*events[:at], Envelope(events[at].seq, 0.0, "s", shorter), *events[at:]]
        kept = [item for item in kept if chance.random() > 0.02][: chance.randrange(at, len(kept) + 1)]
        assert objections(kept, recording) == [], (number, at)


def test_sub_agents_can_go_on_at_every_prefix_too(recording: Recording) -> None:
    for length in range(len(recording.events) + 1):
        state = SessionState.fold(recording.events[:length])
        for agent in {envelope.agent for envelope in recording.events[:length]} - {""}:
            assert judged(asked(state, agent).build_history(agent), recording) == [], (length, agent)


def test_the_title_that_a_person_gave_stays(recording: Recording) -> None:
    """The one that is made up comes late, and not at all when there is one."""
    assert SessionState.fold(recording.events).title == "A rich session"


@pytest.mark.slow
def test_numbers_go_past_those_that_were_used(recording: Recording) -> None:
    """Also when the line that used one is lost."""
    for lost in range(len(recording.events)):
        events = recording.events[:lost] + recording.events[lost + 1 :]
        state = SessionState.fold(events)
        names = {envelope.agent for envelope in events} - {""}
        assert f"agent-{state.sub_agents.agent_count + 1}" not in names
        assert state.seq == max(envelope.seq for envelope in events)
