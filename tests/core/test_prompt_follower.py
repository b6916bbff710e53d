"""What becomes of a prompt, for every way that it can go."""

import pytest

from odin.core.event import (
    AnyEvent,
    Envelope,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    TurnEnded,
    TurnStarted,
    Warned,
    WorkEnded,
)
from odin.core.prompt_follower import PromptFollower, PromptState

MINE, OTHER = "mine", "other"
QUEUED = PromptQueued(MINE, "Do it.", "edit_mode")
STARTED = TurnStarted(MINE, "Do it.", "edit_mode")
OTHER_STARTED = TurnStarted(OTHER, "Else.", "edit_mode")
JOINED = PromptInjected(MINE, "Do it.", "edit_mode", turn=OTHER)
KEPT = PromptInjected(MINE, "Do it.", "edit_mode")


def end(turn: str, reason: str = "end_turn") -> TurnEnded:
    return TurnEnded(turn, reason, text=f"the answer of {turn}")  # pyright: ignore[reportArgumentType]


CASES: dict[str, tuple[list[AnyEvent], PromptState, str]] = {
    "nothing has happened": ([Warned("x")], "submitted", ""),
    "another turn runs": ([OTHER_STARTED, end(OTHER), WorkEnded()], "submitted", ""),
    "it runs": ([STARTED], "running", MINE),
    "another turn ends while it runs": ([STARTED, end(OTHER)], "running", MINE),
    "it has its answer": ([STARTED, end(MINE)], "ended", MINE),
    "its turn fails": ([STARTED, end(MINE, "error")], "ended", MINE),
    "its turn is interrupted": ([STARTED, end(MINE, "interrupted")], "ended", MINE),
    "what follows changes nothing": ([STARTED, end(MINE), OTHER_STARTED, end(OTHER), WorkEnded()], "ended", MINE),
    "it is queued": ([QUEUED], "queued", ""),
    "it is edited": ([QUEUED, PromptChanged(MINE, "Do that.", "edit_mode")], "queued", ""),
    "it runs after the other turn": ([QUEUED, end(OTHER), STARTED], "running", MINE),
    "it has its answer after the other turn": ([QUEUED, end(OTHER), STARTED, end(MINE)], "ended", MINE),
    "the other turn was interrupted and it is due": ([QUEUED, end(OTHER, "interrupted"), STARTED], "running", MINE),
    "it joins the other turn": ([QUEUED, JOINED], "running", OTHER),
    "the turn that it has joined ends": ([QUEUED, JOINED, end(OTHER)], "ended", OTHER),
    "the joined turn is interrupted": ([QUEUED, JOINED, end(OTHER, "interrupted")], "ended", OTHER),
    "an interrupt puts it into the conversation": ([QUEUED, KEPT, end(OTHER, "interrupted")], "unanswered", ""),
    "it is dropped": ([QUEUED, PromptDropped(MINE)], "dropped", ""),
    "another prompt is dropped": ([QUEUED, PromptDropped(OTHER)], "queued", ""),
    "an interrupt leaves it in the queue": ([QUEUED, end(OTHER, "interrupted"), WorkEnded()], "paused", ""),
    "a user sends it later": ([QUEUED, end(OTHER, "interrupted"), WorkEnded(), STARTED, end(MINE)], "ended", MINE),
    "a user drops it later": ([QUEUED, end(OTHER, "interrupted"), WorkEnded(), PromptDropped(MINE)], "dropped", ""),
}
LOST = ("dropped", "paused", "unanswered")


@pytest.mark.parametrize("agent", ["", "general-1"])
@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_a_prompt(case: str, agent: str) -> None:
    events, state, turn = CASES[case]
    follower = PromptFollower()
    prompt = follower.follow(MINE, agent)
    for event in events:
        follower.apply(Envelope(0, 0.0, "s", event, "" if isinstance(event, WorkEnded) else agent))
    assert (prompt.state, prompt.turn) == (state, turn)
    assert (prompt.ended is not None) == (state == "ended")
    assert prompt.ended is None or prompt.ended.text == f"the answer of {turn}"
    assert bool(prompt.loss) == (state in LOST)
    assert prompt.is_pending == follower.is_waiting == (state not in (*LOST, "ended"))


def test_the_turn_of_another_agent_with_the_same_id_is_another_turn() -> None:
    follower = PromptFollower()
    prompt = follower.follow(MINE)
    follower.apply(Envelope(0, 0.0, "s", STARTED))
    assert follower.apply(Envelope(1, 0.0, "s", end(MINE), "general-1")) == []
    assert follower.apply(Envelope(2, 0.0, "s", end(MINE))) == [prompt]


def test_work_begins_with_any_turn_and_ends_with_its_event() -> None:
    follower, known = PromptFollower(), list[tuple[bool, str]]()
    sub = TurnStarted("sub", "x", "edit_mode")
    for event, agent in (
        (OTHER_STARTED, ""),
        (sub, "general-1"),
        (end(OTHER), ""),
        (end("sub"), "general-1"),
        (WorkEnded(), ""),
        (sub, "general-1"),
    ):
        follower.apply(Envelope(0, 0.0, "s", event, agent))
        known.append((follower.is_working, follower.running))
    assert known == [(True, OTHER), (True, OTHER), (True, ""), (True, ""), (False, ""), (True, "")]
    assert follower.prompts == {}


def test_a_prompt_can_be_forgotten() -> None:
    follower = PromptFollower()
    follower.follow(MINE)
    follower.forget(MINE)
    follower.forget(OTHER)
    assert follower.apply(Envelope(0, 0.0, "s", STARTED)) == [] and not follower.is_waiting
