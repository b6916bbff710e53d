"""What a session keeps in memory of each prompt: there may be thousands, and only the log may grow with them."""

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
MOST_BYTES = 900


@pytest.mark.slow
def test_a_prompt_that_is_over_takes_less_than_a_kilobyte() -> None:
    state, numbers = SessionState("s"), count()

    def happens(event: AnyEvent) -> None:
        line = msgspec.json.encode(Envelope(next(numbers), 1_800_000_000.5, "s", event))
        state.apply(msgspec.json.decode(line, type=Envelope))

    def prompts(first: int, number: int) -> None:
        """As many turns, of which a summary then leaves nothing but what the session keeps of each."""
        for turn in range(first, first + number):
            call = ToolCall(f"call_{turn}", "ExecuteCommand", {"command": "seq 1 150000"})
            happens(TurnStarted(f"p{turn}", f"Print the numbers, please ({turn}).", "edit_mode"))
            happens(UsageRecorded("m", Usage(10_000, 20), 0.1, 48_000))
            happens(Replied(ReplyMessage((Text("I print them."), call))))
            happens(ToolStarted(call.id, call.name, call.args))
            happens(ToolEnded(call.id, call.name, "success", "1\n" * 10_000, note="exit code 0"))
            happens(Replied(ReplyMessage((Text("Here they are."),))))
            happens(TurnEnded(f"p{turn}", "end_turn", "Here they are."))
        happens(Compacted("They were printed.", kept_messages=2))

    prompts(0, 50)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        prompts(50, TURNS)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(state.conversation.turns) == 50 + TURNS
    assert grown / TURNS < MOST_BYTES
