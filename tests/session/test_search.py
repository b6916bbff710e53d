"""Full-text search: finds the texts of a conversation, and not the JSON around them."""

from pathlib import Path

import pytest

from odin.core.call_events import ToolEnded
from odin.core.event import AnyEvent, Compacted, ContextSummarized, PromptInjected
from odin.session.search import make_snippet, search_sessions
from odin.session.store import SessionStore
from odin.tools.ripgrep import find_ripgrep

from .logs import opened, titled, turn, write_session

RG = find_ripgrep() or ""


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path, "/w")


@pytest.mark.parametrize("ripgrep", [RG, "", "/nowhere/rg"])
@pytest.mark.parametrize(
    ("event", "where"),
    [
        (titled("the Needle here"), "title"),
        (PromptInjected("p", "the Needle here", "edit_mode"), "prompt"),
        (ToolEnded("c", "Read", "success", "the Needle here"), "tool"),
        (Compacted("the Needle here", 0), "summary"),
        (ContextSummarized("the Needle here"), "summary"),
    ],
)
def test_titles_prompts_results_and_summaries_are_found(
    store: SessionStore, event: AnyEvent, where: str, ripgrep: str
) -> None:
    write_session(store, "hay", [opened(), *turn("t", "nothing")], 300)
    write_session(store, "one", [opened(), *turn("t", "hello"), event], 200)
    (match,) = search_sessions(store.folder, "needle", ripgrep=ripgrep)
    assert (match.session.id, match.where, match.snippet, match.seq) == ("one", where, "the Needle here", 5)


def test_match_shows_the_text_with_the_most_words(store: SessionStore) -> None:
    write_session(store, "one", [opened(), *turn("t1", "alpha"), *turn("t2", "beta", "Alpha and beta together.")])
    (match,) = search_sessions(store.folder, "ALPHA beta", ripgrep=RG)
    assert (match.where, match.snippet) == ("answer", "Alpha and beta together.")
    (match,) = search_sessions(store.folder, "alpha", ripgrep=RG)
    assert (match.where, match.seq) == ("prompt", 1)


@pytest.mark.parametrize("ripgrep", [RG, ""])
def test_all_words_must_occur_and_newer_sessions_come_first(store: SessionStore, ripgrep: str) -> None:
    write_session(store, "old", [opened(), *turn("t", "red green")], 100)
    write_session(store, "new", [opened(), *turn("t", "red", "green")], 200)
    write_session(store, "half", [opened(), *turn("t", "red only")], 300)
    assert [match.session.id for match in search_sessions(store.folder, "green red", ripgrep=ripgrep)] == ["new", "old"]
    assert search_sessions(store.folder, "green purple", ripgrep=ripgrep) == ()
    assert search_sessions(store.folder, "   ", ripgrep=ripgrep) == ()


@pytest.mark.parametrize("ripgrep", [RG, ""])
def test_names_of_fields_and_events_are_not_found(store: SessionStore, ripgrep: str) -> None:
    write_session(store, "one", [opened(), *turn("t", "hello")])
    for word in ("TurnStarted", "edit_mode", "session", "cost_usd"):
        assert search_sessions(store.folder, word, ripgrep=ripgrep) == ()


@pytest.mark.parametrize("ripgrep", [RG, ""])
@pytest.mark.parametrize(
    "said", ['say "quoted"', "back\\slash", "tab\there", "ÄPFEL und Straße", "日本語の文", "a/b/c.py"]
)
def test_words_that_json_escapes_are_found(store: SessionStore, ripgrep: str, said: str) -> None:
    write_session(store, "hay", [opened(), *turn("t", "nothing of that")])
    write_session(store, "one", [opened(), *turn("t", f"before {said} after")])
    for word in [said, *said.split(), said.lower()]:
        assert [match.session.id for match in search_sessions(store.folder, word, ripgrep=ripgrep)] == ["one"], word


def test_a_snippet_is_one_line_around_the_word() -> None:
    text = "x" * 300 + "\n\n a \x1b[31mNeedle\n" + "y" * 300
    found = make_snippet(text, ["needle"])
    assert "Needle" in found
    assert "\n" not in found
    assert len(found) < 180
    assert found.startswith("…") and found.endswith("…")


def test_a_project_without_sessions_has_no_matches(store: SessionStore) -> None:
    assert search_sessions(store.folder, "word", ripgrep=RG) == ()
