"""Cost of a frame of the terminal app: early and late in a reply, in a short and in a long session.

CPU time is measured, so that other programs do not count. `run.py` calls `rows()`; run directly, this file prints the
results.
"""

import asyncio
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from textual.app import App, ComposeResult

from odin.core.call_events import Replied, TextStreamed, ToolEnded, ToolStarted
from odin.core.event import AnyEvent, Envelope, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, Thinking, ToolCall
from odin.ui.transcript.model import TranscriptModel
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.palette import DARK, make_palette
from odin.ui.tui.transcript import TranscriptView
from row import Row, table

SIZE = (120, 40)
LINES_A_FRAME = 33
"""1,000 lines a second at 30 frames a second."""
FRAMES = 15
SHORT, LONG = 50, 5_000
MANY_TURNS = 4_000

_PARAGRAPH = [
    "## A heading",
    "Some *words* about `things` with a [link](https://example.org/page) in them, long enough to be wrapped once.",
    "",
    "- one item of a list",
    "- another **item** of it",
    "",
    "```python",
    "def work(items: list[str]) -> int:",
    '    """Count them."""',
    "    return sum(1 for item in items if item)",
    "```",
    "",
]


class _Screen(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.theme = "odin-dark"

    def compose(self) -> ComposeResult:
        yield TranscriptView(KeyTable(), make_palette(DARK))

    def request_frame(self) -> None:
        """The measurements draw by themselves."""


def _text(first: int, count: int) -> str:
    return "".join(f"{_PARAGRAPH[number % len(_PARAGRAPH)]}\n" for number in range(first, first + count))


def _past(messages: int) -> Iterator[AnyEvent]:
    """Return turns of four messages: a prompt, a reply with a tool call, the result, an answer."""
    output = "\n".join(f"{number:>5}  what the file says on this line" for number in range(60))
    for turn in range(messages // 4):
        call = ToolCall(f"c{turn}", "Read", {"file_path": f"/project/file{turn}.py"})
        yield TurnStarted(f"t{turn}", f"Question {turn} about the code?", "edit_mode")
        yield Replied(ReplyMessage((Thinking("I wonder."), Text("I look at it."), call)))
        yield ToolStarted(call.id, call.name, call.args, call.args["file_path"])
        yield ToolEnded(call.id, call.name, "success", output, f"Read /project/file{turn}.py (lines 1-60)")
        yield Replied(ReplyMessage((Text(_text(0, 24)),)))
        yield TurnEnded(f"t{turn}", "end_turn", duration_ms=1_500)


def _story(events: Iterator[AnyEvent]) -> TranscriptModel:
    story = TranscriptModel()
    for number, event in enumerate(events):
        story.apply(Envelope(number, 1_700_000_000.0 + number, "s", event))
    return story


def _frame(view: TranscriptView) -> None:
    """Do the work of one frame: apply new events and draw each line of the screen."""
    view.sync()
    for line in range(view.size.height):
        view.render_line(line)


def _ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


def _stream(view: TranscriptView, story: TranscriptModel, frames: int, first: int) -> list[float]:
    """Return the cost of each frame while this many lines arrive."""
    costs: list[float] = []
    for frame in range(frames):
        for line in range(LINES_A_FRAME):
            text = _text(first + frame * LINES_A_FRAME + line, 1)
            story.apply(Envelope(10**6, 1_700_000_000.0, "s", TextStreamed(text)))
        costs.append(_ms(lambda: _frame(view)))
    return costs


async def _streaming(view: TranscriptView) -> tuple[float, float]:
    """Return the median frame cost for the first lines and around line 10,000."""
    story = _story(iter([TurnStarted("t", "Write much.", "edit_mode")]))
    view.show(story)
    costs = _stream(view, story, 10_000 // LINES_A_FRAME + FRAMES, 0)
    return median(costs[3 : 3 + FRAMES]), median(costs[-FRAMES:])


async def _one_piece(view: TranscriptView) -> tuple[float, float]:
    """Measure the same for one endless paragraph, which must be laid out again as it grows."""
    story = _story(iter([TurnStarted("t", "Write much.", "edit_mode")]))
    view.show(story)
    costs: list[float] = []
    for frame in range(12_000 // LINES_A_FRAME):
        words = "".join(f"line {frame} and {line} of *one* paragraph\n" for line in range(LINES_A_FRAME))
        story.apply(Envelope(10**6, 1_700_000_000.0, "s", TextStreamed(words)))
        costs.append(_ms(lambda: _frame(view)))
    return median(costs[3 : 3 + FRAMES]), median(costs[-FRAMES:])


async def _kept(view: TranscriptView) -> float:
    """Return the memory that a turn retains besides its text, in a session of thousands of turns."""
    story = _story(iter(()))
    view.show(story)
    before = 0
    for turn in range(MANY_TURNS):
        for event in _small_turn(turn):
            story.apply(Envelope(turn, 1_700_000_000.0 + turn, "s", event))
        view.sync()
        if turn == MANY_TURNS // 4:
            before = _resident()
    return (_resident() - before) / (MANY_TURNS * 3 / 4)


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _small_turn(turn: int) -> Iterator[AnyEvent]:
    call = ToolCall(f"c{turn}", "Read", {"file_path": f"/project/file{turn}.py"})
    yield TurnStarted(f"t{turn}", f"Question {turn} about the code?", "edit_mode")
    yield Replied(ReplyMessage((Thinking("I wonder."), Text("I look at it."), call)))
    yield ToolStarted(call.id, call.name, call.args, call.args["file_path"])
    yield ToolEnded(call.id, call.name, "success", f"line {turn}", f"Read /project/file{turn}.py (line 1)")
    yield Replied(ReplyMessage((Text(f"Answer {turn}."),)))
    yield TurnEnded(f"t{turn}", "end_turn", duration_ms=1_500)


async def _session(view: TranscriptView, messages: int) -> dict[str, float]:
    story = _story(_past(messages))
    found = {"opened": _ms(lambda: (view.show(story), _frame(view)))}
    found["streaming"] = median(_stream(view, story, FRAMES, 0))
    pages = [_ms(lambda: (view.scroll_page_up(animate=False), _frame(view))) for _ in range(FRAMES)]
    found["page up"] = median(pages)
    found["to the top"] = _ms(lambda: (view.scroll_home(animate=False), _frame(view)))
    view.to_end()
    return found


async def _measured() -> list[Row]:
    gc.collect()
    fold = _ms(lambda: _story(_past(20_000 * 4 // 6)))
    rows = [Row("20,000 events into the story", fold, None, 1_000, "ms", False)]
    app = _Screen()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        view = app.query_one(TranscriptView)
        kept = await _kept(view)
        early, late = await _streaming(view)
        first, last = await _one_piece(view)
        short, long = await _session(view, SHORT), await _session(view, LONG)
        rows += [
            Row("a frame at 10,000 lines, and at 100", late, early, 1.5, "ms", True, 1.0),
            Row("a frame at 10,000 lines, 1,000 lines a second", late, None, 15, "ms", False),
            Row("a frame at 12,000 lines of one paragraph, and at 100", last, first, 1.5, "ms", True, 1.0),
        ]
        for what, ms in long.items():
            allowed = 25.0 if what == "opened" else 3.0 if what == "to the top" else 1.0
            rows.append(Row(f"{what}, with 5,000 messages and 50", ms, short[what], 1.5, "ms", True, allowed))
        rows.append(Row("the screen's memory for a turn", kept, None, 5_000, "bytes", False))
    return rows


def rows() -> list[Row]:
    return asyncio.run(_measured())


if __name__ == "__main__":
    print(table(rows()))
