"""The prompt queue, injected prompts and removed messages in the state of every prefix of a log."""

from odin.core.call_events import ToolStarted
from odin.core.event import (
    MessageRemoved,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import PromptMessage
from odin.session.state import SessionState
from odin.session.thread import CONTINUE_PROMPT

from .test_state import assert_legal, ended, reply, wrap

LOG = wrap(
    SessionOpened("/w", "m", "1"),
    TurnStarted("t", "hi", "edit_mode"),
    PromptQueued("a", "first", "edit_mode"),
    PromptQueued("b", "second", "plan_mode", "merge"),
    PromptQueued("c", "third", "edit_mode", "steer"),
    reply("x", "y"),
    ToolStarted("x", "T", {}),
    ended("x"),
    PromptChanged("b", "second, better", "edit_mode", "steer"),
    PromptInjected("c", "third", "edit_mode", turn="t"),
    reply("z"),
    PromptInjected("b", "second, better", "edit_mode"),
    TurnEnded("t", "interrupted"),
    TurnStarted("u", "", "edit_mode", continues=True),
    reply(),
    TurnEnded("u", "end_turn", "ok"),
    MessageRemoved(),
    PromptDropped("a"),
    TurnStarted("v", "", "edit_mode", notes=("a note",), continues=True),
    MessageRemoved(),
    MessageRemoved(),
)


def test_every_prefix_gives_a_legal_history() -> None:
    for count in range(len(LOG) + 1):
        assert_legal(SessionState.fold(LOG[:count]).build_history())


def test_queued_prompts_keep_their_order_after_a_resume() -> None:
    state = SessionState.fold([*LOG[:9], *wrap(SessionOpened("/w", "m", "1", resumed=True))])
    assert [(item.id, item.body, item.mode, item.delivery) for item in state.queue] == [
        ("a", "first", "edit_mode", "queue"),
        ("b", "second, better", "edit_mode", "steer"),
        ("c", "third", "edit_mode", "steer"),
    ]
    assert [item.id for item in SessionState.fold(LOG[:13]).queue] == ["a"]
    assert SessionState.fold(LOG).queue == ()


def test_injected_prompt_follows_the_tool_results() -> None:
    last = SessionState.fold(LOG[:10]).build_history()[-1]
    assert last == PromptMessage("third")


def test_continue_adds_a_prompt_only_after_a_reply() -> None:
    assert SessionState.fold(LOG[:14]).build_history() == SessionState.fold(LOG[:13]).build_history()
    answered = [*LOG[:16], *wrap(TurnStarted("w", "", "edit_mode", continues=True))]
    assert SessionState.fold(answered).build_history()[-1] == PromptMessage(CONTINUE_PROMPT, origin="odin")
