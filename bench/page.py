"""Time the web page of `odin serve` in Chromium: until it is painted, while a reply streams, and in a long session.

`run.py` calls `rows()`; run directly, this file prints the results. Without Chromium there is nothing to measure.
"""

import asyncio
import os
import re
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from odin.core.call_events import Replied, TextStreamed, ToolEnded, UsageRecorded
from odin.core.event import AnyEvent, Envelope, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, ToolCall, Usage
from odin.core.op import Prompt
from odin.server.sessions import HostedSessions
from odin.testing import ScriptedServer, say
from row import Row, table

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ROUNDS = 5
EVENTS = 20_000
LINES_A_S = 1_000
FRAMES_A_S = 100
SECONDS = 5.0
SESSION = "20260101000000000"

_WATCH_FRAMES = """() => {
    globalThis.frames_seen = [];
    let last = 0;
    const step = (now) => {
        if (last) frames_seen.push(now - last);
        last = now;
        globalThis.watching = requestAnimationFrame(step);
    };
    globalThis.watching = requestAnimationFrame(step);
}"""
_READ_FRAMES = "() => { cancelAnimationFrame(globalThis.watching); return frames_seen; }"


@asynccontextmanager
async def serve(home: Path, model: ScriptedServer) -> AsyncGenerator[tuple[str, str, HostedSessions]]:
    """Serve a folder, and give the URL, a token and the sessions."""
    from odin.config import Options
    from odin.server.access import open_access
    from odin.server.guard import HostCheck, parse_bind
    from odin.server.service import serve_sessions

    os.environ.update(HOME=str(home), ODIN_LOCAL_PORTS="")
    work = home / "work"
    work.mkdir()
    write_long_session(work)
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    token = open_access(os.environ).create_token("bench", "approve")
    check = HostCheck(parse_bind("127.0.0.1", port))
    options = Options(env={**os.environ, **model.env("anthropic")}, cwd=str(work))
    with Path(os.devnull).open("w") as null:
        async with serve_sessions(listener, check, options, [str(work)], err=null) as sessions:
            yield f"http://127.0.0.1:{port}", token, sessions


def write_long_session(work: Path) -> None:
    from odin.config.paths import get_state_dir
    from odin.session.store import SessionStore

    log = SessionStore(get_state_dir(os.environ), str(work)).create(str(work), SESSION)
    events: list[AnyEvent] = []
    for turn in range(EVENTS // 5):
        call = ToolCall(f"c{turn}", "Read", {"file_path": "/w/a.py"})
        events += [
            TurnStarted(f"t{turn}", f"Please look at part {turn}.", "edit_mode"),
            UsageRecorded("anthropic/some-model", Usage(100, 10), 0.01),
            Replied(ReplyMessage((Text(f"I will **read** part {turn} with `Read`."), call))),
            ToolEnded(call.id, "Read", "success", f"def function_{turn}(): pass\n" * 20),
            TurnEnded(f"t{turn}", "end_turn", "It is fine."),
        ]
    for number, event in enumerate(events):
        log.append(Envelope(number, 1_700_000_000.0 + number, SESSION, event))
    log.close()


async def open_page(browser: Browser, url: str, token: str, route: str) -> Page:
    """Open the page in a browser that has nothing cached."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    await context.add_init_script(f"localStorage.setItem('odin:token:/', '{token}')")
    page = await context.new_page()
    await page.goto(f"{url}/{route}")
    return page


async def time_first_paint(browser: Browser, url: str, token: str) -> float:
    times: list[float] = []
    for _ in range(ROUNDS):
        page = await open_page(browser, url, token, "#/")
        await page.get_by_role("list", name="Sessions").wait_for()
        times.append(await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        await page.context.close()
    return statistics.median(times)


async def time_opening(page: Page) -> float:
    """Open the long session, which the server has not opened yet, from the list. Return the milliseconds."""
    link = page.locator(f"a[data-session='{SESSION}']")
    await link.wait_for()
    began = time.perf_counter()
    await link.click()
    await page.get_by_text(f"Please look at part {EVENTS // 5 - 1}.").wait_for()
    return (time.perf_counter() - began) * 1000


async def list_frames_while_used(page: Page) -> list[float]:
    """Scroll up through the long session and type a prompt; return the gaps between frames."""
    await page.get_by_role("region", name="Conversation").hover()
    await page.evaluate(_WATCH_FRAMES)
    for _ in range(60):
        await page.mouse.wheel(0, -400)
        await asyncio.sleep(0.016)
    await page.get_by_role("textbox", name="Prompt").click()
    await page.keyboard.type("A prompt that is typed at the speed of a fast typist. " * 2, delay=25)
    return await page.evaluate(_READ_FRAMES)


async def list_frames_while_streaming(browser: Browser, url: str, token: str, sessions: HostedSessions) -> list[float]:
    from odin.remote.protocol import NewSession

    session = await sessions.create(NewSession())
    client: Any = (await sessions.get(session)).client
    await client.submit(Prompt("p1", "Write a lot."))
    page = await open_page(browser, url, token, f"#/s/{session}")
    await page.get_by_text("Begin.").wait_for()
    loop = asyncio.get_running_loop()
    recorder = client.session.deps.recorder
    began = loop.time()
    for number in range(int(SECONDS * FRAMES_A_S)):
        if number == FRAMES_A_S // 2:  # not the first moments
            await page.evaluate(_WATCH_FRAMES)
        await asyncio.sleep(max(0.0, began + number / FRAMES_A_S - loop.time()))
        lines = (f"Line {number} of a **long** answer with `code`.\n" for _ in range(LINES_A_S // FRAMES_A_S))
        recorder.emit(TextStreamed(f"{''.join(lines)}\n"))
    frames = await page.evaluate(_READ_FRAMES)
    await page.get_by_text(re.compile("^Line 4[0-9]+ of")).first.wait_for()
    await page.context.close()
    return frames


async def measure() -> list[Row]:
    turn = say("Begin. " * 4, chunk=8).stall(after=6)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ScriptedServer(lambda _: turn) as model:
        async with serve(Path(name), model) as (url, token, sessions), async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
            )
            paint = await time_first_paint(browser, url, token)
            page = await open_page(browser, url, token, "#/")
            opening = await time_opening(page)
            used = sorted(await list_frames_while_used(page))
            await page.context.close()
            streamed = sorted(await list_frames_while_streaming(browser, url, token, sessions))
            await browser.close()
    a_second = 1000 * len(streamed) / sum(streamed)
    streaming = f"{LINES_A_S:,} lines a second stream"
    return [
        Row("page: first contentful paint", paint, None, 500, "ms", False),
        Row(f"page: opening a session of {EVENTS:,} events", opening, None, 1500, "ms", False),
        Row("page: scrolling and typing in it: 95th of 100 frames", _find(used, 0.95), None, 34, "ms", False),
        Row(f"page: {streaming}: frames a second less than 60", max(60 - a_second, 0), None, 2, "", False),
        Row(f"page: {streaming}: 95th of 100 frames", _find(streamed, 0.95), None, 20, "ms", False),
    ]


def _find(values: list[float], share: float) -> float:
    return values[int(len(values) * share)]


def rows() -> list[Row]:
    if not Path(CHROMIUM).exists():
        raise SystemExit("There is no Chromium, so the page cannot be measured: apt install chromium")
    return asyncio.run(measure())


if __name__ == "__main__":
    print(table(rows()))
