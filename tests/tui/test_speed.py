"""The app stays fast; these tests count work instead of measuring time."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.signal import Signal

from odin.core.call_events import TextStreamed
from odin.core.event import TurnStarted
from odin.ui.tui.paint import markdown
from odin.ui.tui.paint.answer import MAX_CHARS, MarkdownSplitter
from odin.ui.tui.paint.canvas import Canvas, Line
from odin.ui.tui.palette import DARK, make_palette
from tests.tui.conftest import run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

pytestmark = pytest.mark.every_frame

TURN_STARTED = TurnStarted("p1", "Write much.", "edit_mode")
CANVAS = Canvas(40, make_palette(DARK))

LAZY_MODULES = {
    "PIL",
    "markdown_it",
    "odin.app",
    "odin.engine",
    "odin.providers.wire",
    "odin.tools",
    "odin.ui.tui.dialogs.dialog",
    "odin.ui.tui.dialogs.interaction",
    "odin.ui.tui.dialogs.picker",
    "odin.ui.tui.dialogs.onboarding",
    "odin.ui.tui.paint.markdown",
    "pygments",
    "rich.markdown",
    "rich.progress",
    "rich.syntax",
    "rich.traceback",
    "sqlite3",
}
"""Modules and packages that must not be loaded before the first frame."""

FIRST_FRAME_SCRIPT = """
import asyncio, os, sys
import odin.commands.tui
from odin.ui.tui.app import OdinApp

async def connect():
    print("\\n".join(sys.modules), file=sys.__stdout__, flush=True)
    os._exit(0)

async def main():
    async with OdinApp(connect).run_test() as pilot:
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_first_frame_loads_no_lazy_module() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", FIRST_FRAME_SCRIPT], capture_output=True, text=True, timeout=120, check=True
    )
    loaded = done.stdout.split()
    assert "odin.ui.tui.app" in loaded
    assert [name for name in loaded if any(name == item or name.startswith(f"{item}.") for item in LAZY_MODULES)] == []


@pytest.mark.slow
async def test_a_streamed_answer_causes_no_layout() -> None:
    """Textual's layout pass runs only when a widget changes its size."""
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        client.emit(TextStreamed("line 0\n\n"))
        await stage.shows("line 0")
        await stage.pilot.pause(0.2)
        layouts: list[object] = []
        signal = cast("Signal[Any]", stage.app.screen.screen_layout_refresh_signal)  # pyright: ignore[reportUnknownMemberType]
        signal.subscribe(stage.app, layouts.append)
        for first in range(1, 200, 20):
            client.emit(*(TextStreamed(f"line {number}\n\n") for number in range(first, first + 20)))
            await stage.shows(f"line {first + 19}")
        view = stage.app.transcript
        assert layouts == []
        assert view.vertical_scrollbar.window_virtual_size == view.virtual_size.height > 200
        assert view.scroll_offset.y == view.max_scroll_y


@pytest.mark.slow
async def test_text_that_arrives_between_frames_is_painted_in_the_next_frame() -> None:
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        client.emit(TextStreamed("one line"))
        await stage.shows("one line")
        view = stage.app.transcript
        before = [view.render_line(y).text for y in range(view.size.height)]
        view.model.blocks[-1].append(" that goes on")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        view.model.blocks[-1].touch()
        assert [view.render_line(y).text for y in range(view.size.height)] == before


SHAPES: dict[str, Callable[[int], str]] = {
    "paragraph": lambda number: f"Line {number} of a paragraph that does not end.\n",
    "list": lambda number: f"- item {number} of a list that does not end\n",
    "numbers": lambda number: f"{number}. item of a list that does not end\n",
    "nested": lambda number: f"{'  ' * (number % 8)}- item {number}\n",
    "quote": lambda number: f"> line {number} of a quote\n",
    "table": lambda number: ("" if number else "| a | b |\n|---|---|\n") + f"| {number} | words |\n",
    "code": lambda number: ("" if number else "```python\n") + f"x = call({number})  # of code\n",
    "inner code": lambda number: ("" if number else "- item\n  ```\n") + f"  x = call({number})\n",
    "one line": lambda number: f"words {number} of a line that does not end ",
    "no spaces": lambda number: f"word{number}",
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_the_repainted_part_of_an_answer_is_bounded(shape: str) -> None:
    """Of 12,000 lines without a blank line, a frame parses only a bounded part."""
    splitter, longest_rest = MarkdownSplitter(), 0
    for number in range(12_000):
        splitter.feed(SHAPES[shape](number))
        splitter.take_done()
        if not number % 50:
            longest_rest = max(longest_rest, sum(len(chunk.text) for chunk in splitter.peek_rest()))
    assert 0 < longest_rest <= 3 * MAX_CHARS


WORDS = st.sampled_from(
    ["Word", "é", "文字", "don't", *" \n=-+#!:\t\r\x00\xa0\u2028\u200b", "  ", "\n ", " \n", "---", "===", "1.", "2)"]
)


@pytest.mark.slow
@given(st.lists(WORDS, min_size=1, max_size=12))
def test_plain_text_is_painted_as_if_it_had_been_parsed(words: list[str]) -> None:
    text = "".join(["Words that may have to be wrapped ", *words]).rstrip()
    assert list_segments(markdown.paint_markdown(text, CANVAS)) == list_segments(markdown.paint_parsed(text, CANVAS))


def list_segments(lines: list[Line]) -> list[list[tuple[str, str]]]:
    return [[(segment.text, str(segment.style)) for segment in line] for line in lines]
