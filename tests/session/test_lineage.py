"""The lineage of a thread: it changes when messages are removed, so that a summary made before no longer applies."""

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

INITIAL_EVENTS: list[AnyEvent] = [opened(), *turn("p1", "one"), *turn("p2", "two"), *turn("p3", "three")]


def fold_with(*more: AnyEvent) -> SessionState:
    """Fold the initial events and these."""
    return SessionState.fold(
        [Envelope(number, 1.0, "s", event) for number, event in enumerate((*INITIAL_EVENTS, *more))]
    )


@pytest.mark.parametrize(
    "event",
    [
        Compacted("What happened.", 2),
        MessageRemoved(),
        Rewound("r", "p3", files=False, chat=True),
    ],
    ids=lambda event: type(event).__name__,
)
def test_removed_messages_change_the_lineage(event: AnyEvent) -> None:
    assert fold_with(event).get_thread().lineage > fold_with().get_thread().lineage


@pytest.mark.parametrize(
    "event",
    [ResultsPruned(("c",)), NoteAdded("by the way"), PromptInjected("p4", "and this", "edit_mode")],
    ids=lambda event: type(event).__name__,
)
def test_events_that_keep_the_messages_keep_the_lineage(event: AnyEvent) -> None:
    assert fold_with(event).get_thread().lineage == fold_with().get_thread().lineage


def test_every_rewind_redo_and_compaction_gives_a_new_lineage() -> None:
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
    seen = [fold_with(*moves[:count]).get_thread().lineage for count in range(len(moves) + 1)]
    assert sorted(set(seen)) == seen
