"""Snapshots of the transcript at two sizes and in both themes."""

import pytest

from odin.core.call_events import (
    CallSpeculated,
    CallStreamed,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    RetryScheduled,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from odin.core.event import AgentStarted, AnyEvent, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, Thinking, ToolCall, Usage
from odin.core.tui_settings import ThemeSetting, TuiSettings
from tests.tui.conftest import run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

CWD = "/home/me/project"
SIZES = ((100, 30), (60, 20))
THEMES: tuple[ThemeSetting, ...] = ("dark", "light")

DIFF = f"""--- {CWD}/src/parser.py
+++ {CWD}/src/parser.py
@@ -10,4 +10,5 @@
 class Parser:
     def __init__(self, text: str) -> None:
-        self.position = 0
+        self.position = start
+        self.line = 1
         self.text = text
"""

ANSWER = """## What was wrong
The parser began at **0**, see `Parser` and [the notes](https://example.org/notes).

1. It skipped the first token
2. It failed on empty files
   - and on files with 文字

| File | Lines | What |
|:-----|------:|------|
| parser.py | 120 | begins where it is told to |

```python
def parse(text: str) -> Tree:
    return Parser(text, start=0).tree()
```
"""


def tool_call(number: int, name: str, **args: object) -> ToolCall:
    return ToolCall(f"c{number}", name, args)


def past_events() -> list[AnyEvent]:
    path = f"{CWD}/src/parser.py"
    read, edit, test, gone = (
        tool_call(1, "Read", file_path=path),
        tool_call(2, "EditTool", file_path=path),
        tool_call(3, "ExecuteCommand", command="make test"),
        tool_call(4, "Delete", paths=[f"{CWD}/old.py"]),
    )
    return [
        TurnStarted("t1", "Why does the parser fail on empty files?", "edit_mode"),
        Replied(ReplyMessage((Thinking("Look first."), Text("I look at the parser."), read, edit))),
        ToolStarted("c1", "Read", read.args, path),
        ToolEnded("c1", "Read", "success", "1 x", f"Read {path} (lines 1-20)", duration_ms=240),
        ToolStarted("c2", "EditTool", edit.args, path),
        ToolEnded("c2", "EditTool", "success", "Edited", f"Edited {path} (+2 -1)", display=DIFF),
        Replied(ReplyMessage((test, gone))),
        ToolStarted("c3", "ExecuteCommand", test.args, "make test"),
        ToolEnded(
            "c3", "ExecuteCommand", "error", "\x1b[31mFAIL\x1b[0m a\n(exit code 1)", "Ran: make test (exit code 1)"
        ),
        PermissionAsked("a1", "c4", "Delete", {}, "It deletes a file."),
        PermissionAnswered("a1", "c4", False, reason="keep it"),
        ToolEnded("c4", "Delete", "denied", "Denied."),
        RetryScheduled(1, 6, 0.5, "Overloaded.", "overloaded"),
        Replied(ReplyMessage((Text(ANSWER),))),
        TurnEnded("t1", "end_turn", usage=Usage(12_000, 800), cost_usd=0.0312, duration_ms=34_000),
    ]


def live_events() -> list[AnyEvent]:
    return [
        TurnStarted("t2", "Run the tests again.", "plan_mode"),
        ThinkingStarted(),
        ThinkingEnded("Hm.", 12.3),
        TextStreamed("I run **the te"),
        CallStreamed("d1", "ExecuteCommand", chars=10),
        CallSpeculated("d1", "ExecuteCommand", {"command": "make test"}),
        ToolProgressed("d1", "ExecuteCommand", "\x1b[32mok\x1b[0m 12 tests"),
        CallStreamed("d2", "WriteFile", chars=1_234),
        AgentStarted("agent-1", "Say which tests are slow", "ask_mode"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_transcript_snapshots(size: tuple[int, int], theme: ThemeSetting) -> None:
    name = f"{size[0]}x{size[1]}-{theme}"
    client = FakeClient(past_events(), cwd=CWD)
    settings = TuiSettings(bell=False, title=False, theme=theme, side_panel=False)
    async with run_app(FakeSessions(client), size=size, settings=settings, clock=lambda: client.now + 2.0) as stage:
        await stage.shows("34 s · $0.0312")
        await stage.assert_snapshot(f"conversation-answer-{name}")
        await stage.press("ctrl+home")
        await stage.shows("Why does the parser")
        await stage.assert_snapshot(f"conversation-cards-{name}")
        await stage.press("ctrl+end")
        client.emit(*live_events())
        await stage.shows("1,234 chars")
        await stage.assert_snapshot(f"conversation-live-{name}")


@pytest.mark.slow
async def test_side_by_side_diff_snapshot() -> None:
    client = FakeClient(past_events(), cwd=CWD)
    settings = TuiSettings(bell=False, title=False, theme="dark", side_panel=False)
    async with run_app(FakeSessions(client), size=(160, 24), settings=settings, clock=lambda: client.now) as stage:
        await stage.shows("34 s · $0.0312")
        await stage.press("ctrl+home")
        await stage.shows("self.position = 0", "self.position = start")
        await stage.assert_snapshot("conversation-split-160x24-dark")


@pytest.mark.slow
async def test_search_snapshot() -> None:
    client = FakeClient(past_events(), cwd=CWD)
    settings = TuiSettings(bell=False, title=False, theme="dark", side_panel=False)
    async with run_app(FakeSessions(client), settings=settings, clock=lambda: client.now) as stage:
        await stage.shows("34 s · $0.0312")
        await stage.press("ctrl+up", "slash")
        await stage.type("parser")
        await stage.shows("of ")
        await stage.press("enter")
        await stage.assert_snapshot("conversation-search-100x30-dark")


async def test_without_colors_the_state_is_shown_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    client = FakeClient(past_events(), cwd=CWD)
    async with run_app(FakeSessions(client), clock=lambda: client.now) as stage:
        client.emit(*live_events())
        await stage.shows("running", "writing · 1,234 chars", "working")
        await stage.press("ctrl+home")
        await stage.shows("failed", "denied", "denied by you: keep it", "+2 -1")
