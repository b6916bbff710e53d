"""The list of sessions: it hides headless runs and numbers the titles of copies."""

from pathlib import Path

from odin.core.client import SessionSummary
from odin.core.event import SessionOpened
from odin.session.index import SessionIndex
from odin.session.lifecycle import fork_session
from odin.session.store import SessionStore
from odin.ui.slash_commands.sessions import describe_hidden, format_session, list_conversations

from .logs import opened, turn, write_session


def list_sessions(store: SessionStore) -> dict[str, SessionSummary]:
    return {item.id: item for item in SessionIndex(store.folder).list_summaries()}


def test_headless_runs_are_hidden_without_all(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, "/w")
    headless = SessionOpened("/w", "m", "1", headless=True)
    write_session(store, "talk", [opened(), *turn("a", "one")])
    write_session(store, "run", [headless, *turn("b", "two")])
    write_session(
        store, "both", [headless, *turn("c", "three"), SessionOpened("/w", "m", "1", resumed=True), *turn("d", "on")]
    )
    found = tuple(list_sessions(store).values())
    assert {item.id for item in found if item.headless} == {"run"}
    assert {item.id for item in list_conversations(found, "")} == {"talk", "both"}
    assert {item.id for item in list_conversations(found, "", here="run")} == {"talk", "both", "run"}
    assert list_conversations(found, "--all") == list(found)
    assert describe_hidden(found, "") == "1 run of `odin -p` not listed; --all lists them."
    assert describe_hidden(found, "--all") == ""
    assert "odin -p" in format_session(list_sessions(store)["run"])


def test_copies_have_numbered_titles(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, "/w")
    write_session(store, "old", [opened(), *turn("a", "Fix the login")])
    made = [fork_session(store, store.open("old"), "/w") for _ in range(2)]
    for fork in made:
        fork.log.close()
    titles = {name: item.title for name, item in list_sessions(store).items()}
    assert titles["old"] == "Fix the login"
    assert {titles[fork.log.session] for fork in made} == {"Fix the login (copy)", "Fix the login (copy 2)"}
