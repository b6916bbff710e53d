"""`fork_session`: copies a session, whole or up to a prompt."""

from pathlib import Path

import pytest

from odin.core.call_events import ToolEnded
from odin.core.errors import UsageError
from odin.core.event import PromptChanged, PromptDropped, PromptQueued, Redone, Rewound
from odin.core.message import Image
from odin.session.lifecycle import fork_session
from odin.session.log import read_header, read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

from .logs import opened, turn, write_session

EVENTS = [opened(), *turn("a", "one"), *turn("b", "two"), *turn("c", "three")]


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path, "/w")


def test_fork_copies_the_events_before_a_prompt_and_returns_its_text(store: SessionStore) -> None:
    original = write_session(store, "old", EVENTS)
    before = original.path.read_bytes()
    for at, left in (("1", "three"), ("2", "two"), ("3", "one"), ("b", "two")):
        made = fork_session(store, store.open("old"), "/w", at=at)
        made.log.close()
        bodies = [item.body for item in SessionState.fold(read_log(made.log.path)).turns]
        assert bodies == ["one", "two", "three"][: ["one", "two", "three"].index(left)]
        assert made.left_out_prompt == left
        header = read_header(made.log.path)
        assert (header.forked_from, header.forked_turn) == ("old", {"one": "a", "two": "b", "three": "c"}[left])
        past = list(read_log(made.log.path))
        assert past == made.past
        assert header.forked_seq == past[-1].seq
        assert {item.session for item in past} == {made.log.session}
    assert original.path.read_bytes() == before


def test_fork_without_a_prompt_copies_everything(store: SessionStore) -> None:
    write_session(store, "old", EVENTS)
    made = fork_session(store, store.open("old"), "/w", session="copy")
    made.log.close()
    assert [item.event for item in read_log(store.get_path("copy"))] == EVENTS
    assert made.left_out_prompt == ""


@pytest.mark.parametrize("at", ["0", "4", "-1", "zzz", "1.5"])
def test_unknown_prompt_is_refused_and_nothing_is_created(store: SessionStore, at: str) -> None:
    write_session(store, "old", EVENTS)
    before = sorted(path.name for path in store.folder.iterdir())
    with pytest.raises(UsageError, match="no prompt"):
        fork_session(store, store.open("old"), "/w", at=at)
    assert sorted(path.name for path in store.folder.iterdir()) == before


def test_fork_counts_prompts_after_rewind_and_redo(store: SessionStore) -> None:
    rewound = Rewound("r", "c", files=False, chat=True)
    write_session(store, "back", [*EVENTS, rewound, *turn("d", "four")])
    made = fork_session(store, store.open("back"), "/w", at="1")
    made.log.close()
    assert made.left_out_prompt == "four"
    assert [item.body for item in SessionState.fold(made.past).turns] == ["one", "two"]
    write_session(store, "again", [*EVENTS, rewound, Redone("r")])
    made = fork_session(store, store.open("again"), "/w", at="1")
    made.log.close()
    assert made.left_out_prompt == "three"
    assert [item.body for item in SessionState.fold(made.past).turns] == ["one", "two"]


def test_queued_prompts_are_not_copied(store: SessionStore) -> None:
    queued = [PromptQueued("b", "two", "edit_mode"), PromptQueued("z", "never begun", "edit_mode")]
    write_session(store, "old", [opened(), *turn("a", "one"), *queued, *turn("b", "two")])
    made = fork_session(store, store.open("old"), "/w", at="b")
    made.log.close()
    assert SessionState.fold(made.past).queue == ()
    whole = fork_session(store, store.open("old"), "/w")
    whole.log.close()
    assert SessionState.fold(whole.past).queue == ()
    assert [item.body for item in SessionState.fold(whole.past).turns] == ["one", "two"]


def test_queued_prompt_with_the_id_of_an_answered_one_is_not_copied(store: SessionStore) -> None:
    queued = PromptQueued("b", "two", "edit_mode")
    again = [PromptQueued("b", "once more", "edit_mode"), PromptChanged("b", "and again", "edit_mode")]
    taken_back = [PromptQueued("a", "no", "edit_mode"), PromptDropped("a")]
    write_session(store, "old", [opened(), *turn("a", "one"), queued, *turn("b", "two"), *taken_back, *again])
    made = fork_session(store, store.open("old"), "/w")
    made.log.close()
    assert SessionState.fold(made.past).queue == ()
    assert [item.event for item in made.past] == [opened(), *turn("a", "one"), queued, *turn("b", "two")]


def test_fork_copies_files_and_rewrites_their_paths(store: SessionStore) -> None:
    """Paths of other sessions whose ids start with the original's id stay as they are."""
    folder = store.get_path("old").parent
    picture = folder / "images" / "p.png"
    said = f"saved to {folder}/outputs/x.txt, not {folder}er/y nor {folder}2"
    ended = ToolEnded("c", "Read", "success", said, images=(Image(str(picture), "image/png"),))
    write_session(store, "old", [opened(), *turn("a", "one"), ended, *turn("b", "two")])
    for path in (picture, folder / "outputs" / "x.txt"):
        path.parent.mkdir()
        path.write_text("kept")
    (folder / "outputs" / "link").symlink_to("/etc/passwd")
    made = fork_session(store, store.open("old"), "/w", at="b")
    made.log.close()
    (copied,) = [item.event for item in made.past if isinstance(item.event, ToolEnded)]
    new = made.log.path.parent
    assert copied.images[0].path == str(new / "images" / "p.png")
    assert copied.text == f"saved to {new}/outputs/x.txt, not {folder}er/y nor {folder}2"
    assert (new / "images" / "p.png").read_text() == (new / "outputs" / "x.txt").read_text() == "kept"
    assert sorted(path.name for path in new.iterdir()) == ["images", "main.jsonl", "outputs"]
    assert not (new / "outputs" / "link").exists()
