"""When what was planned for a conversation, above all a summary, no longer fits it."""

import pytest

from odin.core.event import (
    AnyEvent,
    Compacted,
    Envelope,
    MessageRemoved,
    NoteAdded,
    PromptInjected,
    Redone,
    ResultsPruned,
    Rewound,
)
from odin.session.state import SessionState
from tests.session.logs import opened, turn

BEGUN: list[AnyEvent] = [opened(), *turn("p1", "one"), *turn("p2", "two"), *turn("p3", "three")]


def folded(*more: AnyEvent) -> SessionState:
    return SessionState.fold([Envelope(number, 1.0, "s", event) for number, event in enumerate((*BEGUN, *more))])


@pytest.mark.parametrize(
    "event",
    [
        Compacted("What happened.", 2),
        MessageRemoved(),
        Rewound("r", "p3", files=False, chat=True),
    ],
    ids=lambda event: type(event).__name__,
)
def test_messages_that_went_change_the_lineage(event: AnyEvent) -> None:
    assert folded(event).thread_of().lineage > folded().thread_of().lineage


@pytest.mark.parametrize(
    "event",
    [ResultsPruned(("c",)), NoteAdded("by the way"), PromptInjected("p4", "and this", "edit_mode")],
    ids=lambda event: type(event).__name__,
)
def test_what_leaves_the_messages_in_their_places_does_not(event: AnyEvent) -> None:
    assert folded(event).thread_of().lineage == folded().thread_of().lineage


def test_no_two_conversations_of_a_session_share_a_lineage() -> None:
    """Also not by going back and forth, over a summary or not."""
    moves: list[AnyEvent] = [
        Rewound("r1", "p3", files=False, chat=True),
        Redone("r1"),
        Rewound("r2", "p2", files=False, chat=True),
        Redone("r2"),
        Compacted("What happened.", 2),
        Rewound("r3", "p2", files=False, chat=True),
        Redone("r3"),
        MessageRemoved(),
    ]
    seen = [folded(*moves[:count]).thread_of().lineage for count in range(len(moves) + 1)]
    assert sorted(set(seen)) == seen
