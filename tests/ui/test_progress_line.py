"""`ProgressLine` and verbose output: thinking, retries and model changes."""

import io

import pytest

from odin.core.call_events import ActivityChanged, RetryScheduled, ThinkingEnded, ThinkingStarted
from odin.core.event import AnyEvent, Envelope, ModelChanged
from odin.testing import ScriptedServer, say
from odin.ui.progress import EventLines, ProgressLine

from ..conftest import Run


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        """The text of the last line."""
        return self.getvalue().rpartition("\x1b[K")[2].replace("\x1b[2m", "").replace("\x1b[0m", "")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> TerminalStream:
    monkeypatch.setenv("TERM", "xterm")
    return TerminalStream()


def handle_events(progress: ProgressLine, *events: AnyEvent) -> None:
    for event in events:
        progress.handle_event(Envelope(0, 0.0, "s", event))


def test_thinking_is_shown_with_its_seconds(screen: TerminalStream) -> None:
    now = 100.0
    progress = ProgressLine(screen, clock=lambda: now)
    handle_events(progress, ActivityChanged("streaming"), ThinkingStarted())
    assert screen.line == "thinking 0s"
    now += 3.5
    handle_events(progress, ActivityChanged("waiting_token"), ThinkingEnded("so", 3.5))
    assert screen.line.startswith("the model is answering")


def test_retry_wait_is_counted_down(screen: TerminalStream) -> None:
    now = 100.0
    progress = ProgressLine(screen, clock=lambda: now)
    handle_events(progress, RetryScheduled(1, 6, 8.0, "full.", "Overloaded"), ActivityChanged("retrying", "retry 1/6"))
    assert screen.line == "waiting to retry, 8s left"
    now = 103.2
    handle_events(progress, ActivityChanged("retrying", "retry 1/6"))
    assert screen.line == "waiting to retry, 5s left"
    handle_events(progress, ActivityChanged("connecting"))
    assert screen.line == "connecting to the model 0s"


def test_automatic_model_change_is_reported() -> None:
    event_lines = EventLines()
    told = event_lines.format_line(Envelope(0, 0.0, "s", ModelChanged("b/two", "a/one cannot answer: it is full.")))
    assert told == "Switched to b/two: a/one cannot answer: it is full."
    assert event_lines.format_line(Envelope(0, 0.0, "s", ModelChanged("b/two"))) == ""


def test_thinking_is_printed_only_with_verbose(run_odin: Run) -> None:
    with ScriptedServer([say("4", thinking="two and two")] * 2) as server:
        plain = run_odin("-p", "2+2?", env=server.env("openai"))
        told = run_odin("-p", "--verbose", "2+2?", env=server.env("openai"))
    assert (plain.stdout, told.stdout) == ("4\n", "4\n")
    assert "two and two" not in plain.stderr
    assert "Thought for 0 s:\n  two and two\n" in told.stderr


def test_switch_to_the_fallback_model_is_reported(run_odin: Run) -> None:
    from odin.testing import fault

    with ScriptedServer(lambda seen: say("hi") if seen.model == "other" else fault(402)) as server:
        done = run_odin("-p", "--fallback-model", "anthropic/other", "hello", env=server.env("anthropic"))
    assert (done.stdout, done.returncode) == ("hi\n", 0)
    assert "Switched to anthropic/other" in done.stderr
