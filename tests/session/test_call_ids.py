"""Call ids of a log: those of logs of earlier versions are made unique as they are read, the same way each time."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from odin.core.call_events import CallDiscarded, CallSpeculated, CallStreamed, Replied, ReplyRolledBack, ToolEnded
from odin.core.event import AgentStarted, AnyEvent, ContextSummarized, Envelope, ResultsPruned
from odin.core.message import ReplyMessage, Text, Thinking, ToolCall
from odin.session.call_ids import CallIds, LoggedCallIds
from odin.session.state import SessionState


def read(*events: AnyEvent | tuple[str, AnyEvent]) -> list[AnyEvent]:
    """Return the events of a log as they are read. With an agent they are its own."""
    ids = LoggedCallIds()
    pairs = [event if isinstance(event, tuple) else ("", event) for event in events]
    return [ids.apply(Envelope(seq, 0.0, "s", event, agent)).event for seq, (agent, event) in enumerate(pairs)]


def make_reply(*ids: str, number: int = 0) -> Replied:
    calls = (ToolCall(call_id, "LS", {"number": number}) for call_id in ids)
    return Replied(ReplyMessage((Thinking("hm", "signed"), Text("I look."), *calls), "p", "m", "tool_use"))


def end(call_id: str, text: str = "") -> ToolEnded:
    return ToolEnded(call_id, "LS", "success", text)


def test_a_log_with_unique_ids_is_read_as_it_is() -> None:
    events = [make_reply("a", "b"), end("a"), end("b"), CallSpeculated("c", "LS", {}), make_reply("c"), end("c")]
    assert all(found is event for found, event in zip(read(*events), events, strict=True))


def test_each_mention_of_a_repeated_id_is_that_of_its_call() -> None:
    first, one, second, two, other, three, started = read(
        make_reply("call_1"),
        end("call_1", "one"),
        make_reply("call_1"),
        end("call_1", "two"),
        ("agent-1", make_reply("call_1")),
        ("agent-1", end("call_1", "three")),
        AgentStarted("agent-2", "work", "edit_mode", "", "call_1", owner="agent-1"),
    )
    assert isinstance(first, Replied) and isinstance(second, Replied) and isinstance(other, Replied)
    ids = [event.message.calls[0].id for event in (first, second, other)]
    assert ids == ["call_1", "call_1-1", "call_1-2"]
    assert [getattr(event, "call_id", "") for event in (one, two, three, started)] == [*ids, ids[2]]


def test_a_call_that_started_early_keeps_its_id_in_the_reply() -> None:
    lost = CallDiscarded("x", "LS", {}, "rollback")
    speculated, discarded, again, reply, ended = read(
        CallSpeculated("x", "LS", {}), lost, CallSpeculated("x", "LS", {}), make_reply("x"), end("x")
    )
    assert discarded is lost and speculated == CallSpeculated("x", "LS", {})
    assert isinstance(reply, Replied)
    assert [getattr(again, "call_id", ""), reply.message.calls[0].id, getattr(ended, "call_id", "")] == ["x-1"] * 3


def test_calls_of_one_reply_have_ids_of_their_own() -> None:
    reply, ended = read(make_reply("x", "x", "y"), end("x"))
    assert isinstance(reply, Replied)
    assert [call.id for call in reply.message.calls] == ["x", "x-1", "y"]
    assert getattr(ended, "call_id", "") == "x-1"


def test_what_was_pruned_or_summarized_is_left_out_whatever_the_id_is_now() -> None:
    *_, pruned, summarized = read(
        make_reply("a"), make_reply("b"), make_reply("a"), ResultsPruned(("a", "b")), ContextSummarized("s", ("a",))
    )
    assert pruned == ResultsPruned(("a", "a-2", "b"))
    assert summarized == ContextSummarized("s", ("a", "a-2"))


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[str, AnyEvent]]:
    """Draw a log in which ids come again: replies of two agents, some calls of which start early or twice."""
    found: list[tuple[str, AnyEvent]] = []
    for number in range(draw(st.integers(1, 8))):
        agent = draw(st.sampled_from(["", "agent-1"]))
        ids = draw(st.lists(st.sampled_from(["call_1", "call_2", "a b", "x" * 50]), unique=True, max_size=3))
        for call_id in ids:
            for _ in range(draw(st.integers(0, 1))):
                found.append((agent, CallSpeculated(call_id, "LS", {})))
                found.append((agent, CallDiscarded(call_id, "LS", {}, "rollback")))
            found += [(agent, CallSpeculated(call_id, "LS", {}))] * draw(st.integers(0, 1))
        found.append((agent, make_reply(*ids, number=number)))
        found += [(agent, end(call_id, str(number))) for call_id in draw(st.permutations(ids))]
    return found


def list_calls(events: list[AnyEvent]) -> Iterator[ToolCall]:
    return (call for event in events if isinstance(event, Replied) for call in event.message.calls)


@given(logs())
def test_any_log_has_unique_ids_and_each_result_its_call(log: list[tuple[str, AnyEvent]]) -> None:
    events = read(*log)
    calls = list(list_calls(events))
    assert len({call.id for call in calls}) == len(calls)
    numbers = {call.id: str(call.args["number"]) for call in calls}
    ended = [event for event in events if isinstance(event, ToolEnded)]
    assert [event.text for event in ended] == [numbers[event.call_id] for event in ended]
    assert len(ended) == len(calls)
    for cut in range(len(log)):
        assert read(*log[:cut]) == events[:cut]
    agents = [agent for agent, _ in log]
    assert read(*zip(agents, events, strict=True)) == events


def test_an_id_is_free_again_if_its_reply_is_not_part_of_the_log() -> None:
    ids = CallIds()

    def tell(event: AnyEvent, agent: str = "") -> None:
        ids.apply(Envelope(0, 0.0, "s", event, agent))

    tell(CallStreamed("a", "LS"))
    tell(CallStreamed("b", "LS"), "agent-1")
    assert [ids.choose("a"), ids.choose("b"), ids.choose("c")] == ["a-2", "b-2", "c"]
    tell(ReplyRolledBack("cut"))
    assert [ids.choose("a"), ids.choose("b")] == ["a", "b-1"]
    tell(CallSpeculated("a", "LS", {}))
    tell(ReplyRolledBack("cut"))
    assert ids.choose("a") == "a-2"


def test_a_made_id_is_one_that_every_api_takes() -> None:
    ids = CallIds()
    for wanted in ("", "a b/ü", "x" * 64, "x" * 64, "", "functions.Read:0", "functions.Read:0"):
        chosen = ids.choose(wanted)
        assert 0 < len(chosen) <= 40 and chosen.isascii() and chosen.replace("-", "").replace("_", "").isalnum()
        ids.apply(Envelope(0, 0.0, "s", make_reply(chosen)))


def test_the_state_of_a_session_knows_all_ids_of_its_log() -> None:
    events = [make_reply("a"), make_reply("b"), CallSpeculated("c", "LS", {})]
    agents = ["", "agent-1", ""]
    pairs = enumerate(zip(agents, events, strict=True))
    state = SessionState.fold([Envelope(seq, 0.0, "s", event, agent) for seq, (agent, event) in pairs])
    assert [state.call_ids.choose(wanted) for wanted in "abcd"] == ["a-3", "b-3", "c-3", "d"]
