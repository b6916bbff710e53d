"""The store as programs with a loop of their own use it, compared with plain lists by random use."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from odin.core.errors import SessionLocked, SessionNotFound
from odin.core.event import Compacted
from odin.core.message import PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.session.book import MOST, NEW, SessionBook
from odin.session.log import read_log
from odin.session.messages import StoredMessage
from odin.session.state import SessionState
from odin.session.store import SessionStore

from .logs import opened, turn, write


@pytest.fixture
def book(tmp_path: Path) -> SessionBook:
    return SessionBook(SessionStore(tmp_path, "/w"), "/w")


def user(text: str) -> StoredMessage:
    return StoredMessage("user", text)


def test_a_session_is_made_when_there_is_no_current_one(book: SessionBook) -> None:
    first = book.current()
    assert book.current() == first
    found = book.get(first)
    assert found is not None and found.title == NEW
    second = book.create("Plans")
    assert book.current() == second
    assert not book.set_current("unknown")
    assert not book.set_current("../escape")
    assert book.set_current(first)
    assert book.delete(first)
    assert not book.delete(first)
    third = book.current()
    assert third not in (first, second)
    assert {item.title for item in book.list()} == {"Plans", NEW}
    book.close()


def test_messages_survive_a_restart_with_everything_they_hold(tmp_path: Path, book: SessionBook) -> None:
    session = book.create("Talk")
    call, other = ToolCall("c1", "Read", {"file_path": "/a"}), ToolCall("c2", "Read", {"file_path": "/b"})
    said = [
        StoredMessage("system", "Be brief."),
        user("Read it."),
        StoredMessage("assistant", "I will.", reasoning="Hm.", calls=(call, other)),
        StoredMessage("tool", results=(ToolResult("c1", "contents"), ToolResult("c2", "No such file.", True))),
        StoredMessage("assistant", "It is empty."),
    ]
    kept = [book.add_message(session, message) for message in said]
    assert len({message.id for message in kept}) == len(kept)
    book.close()
    again = SessionBook(SessionStore(tmp_path, "/w"), "/w")
    read = again.messages(session)
    assert [(item.role, item.content, item.reasoning, item.calls, item.results) for item in read] == [
        (item.role, item.content, item.reasoning, item.calls, item.results) for item in said
    ]
    assert [item.id for item in read] == [item.id for item in kept]
    assert [item.created for item in read] == [item.created for item in kept]
    history = SessionState.fold(read_log(SessionStore(tmp_path, "/w").path_of(session))).build_history()
    assert [type(item) for item in history][1:] == [PromptMessage, ReplyMessage, ToolMessage, ReplyMessage]
    again.close()


def test_the_newest_hundred_are_handed_out_and_never_begin_with_a_result(book: SessionBook) -> None:
    session = book.create()
    for number in range(60):
        call = ToolCall(f"c{number}", "Read", {})
        book.add_message(session, user(f"prompt {number}"))
        book.add_message(session, StoredMessage("assistant", calls=(call,)))
        book.add_message(session, StoredMessage("tool", results=(ToolResult(call.id, "ok"),)))
    read = book.messages(session)
    assert len(read) == MOST - 1, "the hundredth last is a result whose call is not among them"
    assert read[0].role == "user"
    assert read[-1].results == (ToolResult("c59", "ok"),)
    book.close()


def test_clearing_takes_out_everything_from_the_first_prompt_on(book: SessionBook) -> None:
    session = book.create()
    for text in ("one", "two", "three"):
        book.add_message(session, user(text))
        book.add_message(session, StoredMessage("assistant", "Yes."))
    book.clear_messages(session)
    assert book.messages(session) == ()
    book.add_message(session, user("anew"))
    assert [item.content for item in book.messages(session)] == ["anew"]
    book.close()


def test_the_summary_of_a_session_is_part_of_its_record(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, "/w")
    write(store, "talk", [opened(), *turn("p1", "hi"), Compacted("# Summary\nThey said hi.", 0)])
    record = SessionBook(store, "/w").record("talk")
    assert "They said hi." in record.summary
    assert [item.content for item in record.messages] == ["hi", "Done."]


def test_a_session_of_a_key_is_found_again(tmp_path: Path, book: SessionBook) -> None:
    session = book.for_key("telegram:42")
    book.add_message(session, user("hi"))
    book.close()
    again = SessionBook(SessionStore(tmp_path, "/w"), "/w")
    assert again.for_key("telegram:42") == session
    assert again.for_key("telegram:43") != session
    record = again.record(session)
    assert (record.key, record.summary, [item.content for item in record.messages]) == ("telegram:42", "", ["hi"])
    assert record.created <= record.updated
    again.close()


def test_two_books_do_not_write_one_session(tmp_path: Path, book: SessionBook) -> None:
    session = book.create()
    other = SessionBook(SessionStore(tmp_path, "/w"), "/w")
    with pytest.raises(SessionLocked):
        other.add_message(session, user("me too"))
    with pytest.raises(SessionLocked):
        other.delete(session)
    book.close()
    other.add_message(session, user("now"))
    other.close()
    with pytest.raises(SessionNotFound):
        other.messages("nope")


class BookMachine(RuleBasedStateMachine):
    """Any order of acts, with a restart now and then, gives what plain lists would give."""

    sessions: Bundle[str] = Bundle("sessions")
    folder: Path

    @initialize()
    def begin(self) -> None:
        import tempfile

        self._temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self._temporary.name)
        self.book = SessionBook(SessionStore(self.folder, "/w"), "/w")
        self.model: dict[str, tuple[str, list[tuple[str, str]]]] = {}
        self.now = ""

    @rule(target=sessions, title=st.sampled_from(["one", "zwei", "日本"]))
    def create(self, title: str) -> str:
        session = self.book.create(title)
        self.model[session] = (title, [])
        self.now = session
        return session

    @rule(session=sessions, text=st.sampled_from(["a", "b\nc", "é"]), role=st.sampled_from(["user", "assistant"]))
    def add(self, session: str, text: str, role: Any) -> None:
        said = self.model[session][1]
        if role == "user" or said:
            self.book.add_message(session, StoredMessage(role, text))
            said.append((role, text))

    @rule(session=sessions)
    def clear(self, session: str) -> None:
        self.book.clear_messages(session)
        self.model[session][1].clear()

    @rule(session=sessions, title=st.sampled_from(["x", "y"]))
    def rename(self, session: str, title: str) -> None:
        self.book.rename(session, title)
        self.model[session] = (title, self.model[session][1])

    @rule(session=sessions)
    def choose(self, session: str) -> None:
        assert self.book.set_current(session)
        self.now = session

    @rule(session=consumes(sessions))
    def delete(self, session: str) -> None:
        assert self.book.delete(session)
        del self.model[session]
        assert not self.book.set_current(session)
        self.now = "" if self.now == session else self.now

    @rule()
    def restart(self) -> None:
        self.book.close()
        self.book = SessionBook(SessionStore(self.folder, "/w"), "/w")
        if self.now:
            self.book.set_current(self.now)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "book"):
            return
        assert {item.id: item.title for item in self.book.list()} == {
            session: title for session, (title, _) in self.model.items()
        }
        for session, (_, said) in self.model.items():
            assert [(item.role, item.content) for item in self.book.messages(session)] == said[-MOST:]
        if self.now:
            assert self.book.current() == self.now

    def teardown(self) -> None:
        if hasattr(self, "book"):
            self.book.close()
            self._temporary.cleanup()


BookMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestBook = BookMachine.TestCase
