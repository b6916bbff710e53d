"""Any part of a log that a crash leaves behind folds to a conversation that every API accepts.

The tests record a session, cut its log at every event and at many bytes, and remove lines from its middle. Each time
they check the next request for every API by the rules of the strict scripted server.
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
from tests.soak import choose, soak

from .api_checks import find_refusals
from .recording import Api, Recording, record

_recorded: dict[str, Recording] = {}


@pytest.fixture(params=["anthropic", pytest.param("openai", marks=pytest.mark.slow)])
async def recording(request: pytest.FixtureRequest, workspace: Path, home: Path) -> Recording:
    api: Api = request.param
    if api not in _recorded:
        _recorded[api] = await record(api, workspace, home)
    return _recorded[api]


def start_next_turn(state: SessionState, agent: str = "") -> SessionState:
    """Start the next turn in `state`, and return it."""
    prompt = TurnStarted("next", "go on", "edit_mode")
    state.apply(Envelope(state.seq + 1, 0.0, "s", prompt, agent))
    return state


def recover(state: SessionState) -> SessionState:
    """Apply crash recovery to `state`, as a resume does, and return it."""
    for event, agent in find_dangling(state).events:
        state.apply(Envelope(state.seq + 1, 0.0, "s", event, agent))
    return state


def find_next_request_refusals(events: Iterable[Envelope], recording: Recording) -> list[str]:
    """Return why APIs refuse the next request of the main agent, with and without crash recovery before it."""
    kept = list(events)
    state = SessionState.fold(kept)
    nothing_to_close = not find_dangling(state).events
    found = find_refusals_cached(start_next_turn(state).build_history(), recording)
    return (
        found
        if nothing_to_close
        else found + find_refusals_cached(start_next_turn(recover(SessionState.fold(kept))).build_history(), recording)
    )


_accepted: deque[tuple[int, tuple[Message, ...]]] = deque(maxlen=30)


def find_refusals_cached(history: tuple[Message, ...], recording: Recording) -> list[str]:
    """Return why APIs refuse this conversation. Recently accepted conversations are not checked again."""
    if (id(recording), history) in _accepted:
        return []
    found = find_refusals(history, recording.memory)
    if not found:
        _accepted.append((id(recording), history))
    return found


def test_every_prefix_can_be_continued_with_a_prompt(recording: Recording) -> None:
    for length in range(len(recording.events) + 1):
        assert find_next_request_refusals(recording.events[:length], recording) == [], length


@pytest.mark.slow
def test_every_prefix_can_be_continued_without_a_prompt(recording: Recording) -> None:
    for length in range(len(recording.events) + 1):
        state = recover(SessionState.fold(recording.events[:length]))
        if state.build_history():
            again = TurnStarted("next", "", "edit_mode", continues=True)
            state.apply(Envelope(state.seq + 1, 0.0, "s", again))
            assert find_refusals_cached(state.build_history(), recording) == [], length


def test_crash_recovery_ends_all_open_work_and_keeps_the_history(recording: Recording) -> None:
    for length in range(len(recording.events) + 1):
        before = SessionState.fold(recording.events[:length])
        after = recover(SessionState.fold(recording.events[:length]))
        assert after.build_history() == before.build_history(), length
        assert not after.open_work
        assert after.open_threads == ()
        assert find_dangling(after).events == ()


def test_result_of_an_open_call_says_whether_it_started(recording: Recording) -> None:
    """Every call of the last reply without a result gets a result that says whether it had started."""
    checked = 0
    for length in range(1, len(recording.events) + 1):
        events = recording.events[:length]
        state = SessionState.fold(events)
        calls = state.get_thread().open_calls
        started = {envelope.event.call_id for envelope in events if isinstance(envelope.event, ToolStarted)}
        last = next(
            (
                message
                for message in reversed(start_next_turn(state).build_history())
                if isinstance(message, ToolMessage)
            ),
            None,
        )
        texts = {result.call_id: result.text for result in last.results} if last is not None else {}
        for call in calls:
            assert texts[call.id] == (INTERRUPTED if call.id in started else NOT_STARTED)
            checked += 1
    assert checked > 20


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
    """The reader skips the torn line, and the writer appends after it."""
    whole = recording.data
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    rng = random.Random(5)
    path = tmp_path / "s" / "main.jsonl"
    path.parent.mkdir()
    for number in range(len(ends) - 1):
        cut = rng.randrange(ends[number] + 1, ends[number + 1])
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
    """Checks the whole log without the line, and logs that end soon after the lost line."""
    events = recording.events
    for lost in range(len(events)):
        for length in {lost + 2, lost + 5, len(events)}:
            kept = events[:lost] + events[lost + 1 : length]
            assert find_next_request_refusals(kept, recording) == [], (lost, length)


@soak
@pytest.mark.slow
def test_any_set_of_lines_may_be_lost(recording: Recording) -> None:
    rng = random.Random(11)
    events = recording.events
    for number in range(choose(sample=60, full=400)):
        share = rng.choice([0.02, 0.1, 0.3, 0.7])
        kept = [envelope for envelope in events if rng.random() > share]
        kept = kept[: rng.randrange(len(kept) + 1)]
        assert find_next_request_refusals(kept, recording) == [], number


@soak
@pytest.mark.slow
def test_blocks_of_lines_may_be_lost(recording: Recording) -> None:
    """A damaged sector of the disk loses such a block."""
    rng = random.Random(17)
    events = recording.events
    for number in range(choose(sample=60, full=300)):
        start = rng.randrange(len(events))
        end = min(len(events), start + rng.randrange(1, 40))
        assert find_next_request_refusals(events[:start] + events[end:], recording) == [], (number, start, end)


@soak
@pytest.mark.slow
def test_a_summary_may_come_anywhere(recording: Recording) -> None:
    """Even between calls and their results, and where the summarized lines are lost."""
    rng = random.Random(23)
    events = recording.events
    calls = [call.id for item in events if isinstance(item.event, Replied) for call in item.event.message.calls]
    for number in range(choose(sample=60, full=300)):
        at = rng.randrange(len(events))
        shorter: AnyEvent = Compacted("In short.", kept_messages=rng.randrange(9), user_prompts=("an older prompt",))
        if rng.random() < 0.5:
            shorter = ResultsPruned(tuple(rng.sample(calls, 5)))
        kept = [*events[:at], Envelope(events[at].seq, 0.0, "s", shorter), *events[at:]]
        kept = [item for item in kept if rng.random() > 0.02][: rng.randrange(at, len(kept) + 1)]
        assert find_next_request_refusals(kept, recording) == [], (number, at)


def test_sub_agents_can_continue_at_every_prefix(recording: Recording) -> None:
    for length in range(len(recording.events) + 1):
        state = SessionState.fold(recording.events[:length])
        for agent in {envelope.agent for envelope in recording.events[:length]} - {""}:
            assert find_refusals_cached(start_next_turn(state, agent).build_history(agent), recording) == [], (
                length,
                agent,
            )


def test_title_set_by_the_user_is_kept(recording: Recording) -> None:
    """A generated title does not replace it."""
    assert SessionState.fold(recording.events).title == "A rich session"


@pytest.mark.slow
def test_agent_and_event_numbers_are_not_reused(recording: Recording) -> None:
    """Not even if the line that used a number is lost."""
    for lost in range(len(recording.events)):
        events = recording.events[:lost] + recording.events[lost + 1 :]
        state = SessionState.fold(events)
        names = {envelope.agent for envelope in events} - {""}
        assert f"agent-{state.sub_agents.agent_count + 1}" not in names
        assert state.seq == max(envelope.seq for envelope in events)
