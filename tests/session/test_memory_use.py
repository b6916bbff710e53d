"""Memory of a session per prompt: only the log may grow with thousands of prompts."""

import gc
import tracemalloc
from itertools import count

import msgspec
import pytest

from odin.core.call_events import Replied, ToolEnded, ToolStarted, UsageRecorded
from odin.core.event import AnyEvent, Compacted, Envelope, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, ToolCall, Usage
from odin.session.state import SessionState

TURNS = 400
MOST_BYTES = 1000


@pytest.mark.slow
def test_finished_prompt_takes_less_than_a_kilobyte() -> None:
    state, numbers = SessionState("s"), count()

    def apply_event(event: AnyEvent) -> None:
        line = msgspec.json.encode(Envelope(next(numbers), 1_800_000_000.5, "s", event))
        state.apply(msgspec.json.decode(line, type=Envelope))

    def run_turns(first: int, number: int) -> None:
        """Apply the events of this many turns, then compact them, so that only the record of each turn stays."""
        for turn in range(first, first + number):
            call = ToolCall(f"call_{turn}", "ExecuteCommand", {"command": "seq 1 150000"})
            apply_event(TurnStarted(f"p{turn}", f"Print the numbers, please ({turn}).", "edit_mode"))
            apply_event(UsageRecorded("m", Usage(10_000, 20), 0.1, 48_000))
            apply_event(Replied(ReplyMessage((Text("I print them."), call))))
            apply_event(ToolStarted(call.id, call.name, call.args))
            apply_event(ToolEnded(call.id, call.name, "success", "1\n" * 10_000, note="exit code 0"))
            apply_event(Replied(ReplyMessage((Text("Here they are."),))))
            apply_event(TurnEnded(f"p{turn}", "end_turn", "Here they are."))
        apply_event(Compacted("They were printed.", kept_messages=2))

    run_turns(0, 50)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run_turns(50, TURNS)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(state.conversation.turns) == 50 + TURNS
    assert grown / TURNS < MOST_BYTES
