"""The app on a screen that is not there, over a real session or one that is played from fixed events."""

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from textual import events
from textual._compositor import Compositor, LayoutUpdate
from textual._context import visible_screen_stack
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.strip import Strip

from odin.app.sessions import open_switcher
from odin.config import Options, load
from odin.core.client import Sessions
from odin.core.tui_settings import TuiSettings
from odin.testing import ScriptedServer
from odin.ui.tui.app import OdinApp
from odin.ui.tui.dialogs import permission
from odin.ui.tui.dialogs.dialog import RequestDialog

LOOKS = pytest.mark.parametrize(
    ("size", "theme"),
    [
        pytest.param((100, 30), "dark", id="100x30-dark"),
        pytest.param((100, 30), "light", id="100x30-light", marks=pytest.mark.slow),
        pytest.param((60, 20), "dark", id="60x20-dark", marks=pytest.mark.slow),
        pytest.param((60, 20), "light", id="60x20-light", marks=pytest.mark.slow),
    ],
)
"""Every screen is compared with its picture in one look; `make test-all` compares all looks."""

SNAPSHOTS = Path(__file__).parent / "snapshots"
TAKE = os.environ.get("ODIN_SNAPSHOTS") == "write"
"""Looked at before the tests get an environment of their own."""

STILL_S = 1.0
"""A picture is taken when nothing has moved for so long."""


def _describe_tasks() -> Iterator[str]:
    """Yield where each task of the loop waits, to tell what a test waited for in vain."""
    for task in asyncio.all_tasks():
        frames = [f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" for frame in task.get_stack(limit=3)]
        yield f"{task.get_name()}: {' '.join(frames)}"


POLL_S = 0.01
"""How often a test looks whether what it waits for is there."""

SOON_S = 0.02
"""What is due within this time belongs to what was just done: the next frame, the next part of a list."""

FAST = {"retry": {"base_s": 0.01}}


class Stage:
    """The app, a person's hands on it, and, where a real session runs, the model server behind it."""

    def __init__(self, app: OdinApp, pilot: Pilot[Any], server: ScriptedServer | None) -> None:
        self.app = app
        self.pilot = pilot
        self._server = server

    @property
    def server(self) -> ScriptedServer:
        assert self._server is not None, "no model is behind this stage"
        return self._server

    async def press(self, *keys: str) -> None:
        """Press one key after the other; each one has its effect before the next one comes."""
        for key in keys:
            self.look()
            await self.pilot.press(key)

    def look(self) -> None:
        """Look at an open request, which is only allowed when all of it was on the screen."""
        if isinstance(self.app.screen, RequestDialog):
            self.strips()

    async def type(self, text: str) -> None:
        """Type this in one go, as fast as a terminal delivers it."""
        driver = self.app._driver
        assert driver is not None
        for char in text:
            event = events.Key(_KEYS.get(char, char), None if char == "\n" else char)
            event.set_sender(self.app)
            driver.send_message(event)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        await self.type(text)
        await self.pilot.press("enter")

    async def until(self, holds: Callable[[], object], seconds: float = 30) -> None:
        """Wait until this is so; fail with what is on the screen when it does not become so."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                waiting = "\n".join(sorted(_describe_tasks()))
                raise AssertionError(f"it did not come to that; the screen shows:\n{self.screen()}\ntasks:\n{waiting}")
            await self.pilot.pause(POLL_S)

    async def shows(self, *words: str, seconds: float = 30) -> None:
        """Wait until all of these are on the screen."""

        def all_seen() -> bool:
            seen = self.screen()
            return all(word in seen for word in words)

        await self.until(all_seen, seconds)

    async def idle(self) -> None:
        """Wait until no turn runs and everything that happened is drawn."""
        await self.until(lambda: self.app.info is not None and not self.app.executing)
        await self.pilot.pause()

    def screen(self) -> str:
        """What a person sees, line by line."""
        width, height = self.app.size
        return "\n".join(strip.text.rstrip() for strip in self.strips()[:height]) if width else ""

    def strips(self) -> list[Strip]:
        """The lines of the screen, with what is behind a dialog.

        A dialog keeps the lines it draws. Drawn without the screens behind it, it would keep them blank.
        """
        app: Any = self.app
        visible_screen_stack.set(app._background_screens)
        return app.screen._compositor.render_strips()

    async def pictured(self, name: str, seconds: float = 30) -> None:
        """The screen comes to look like the picture of that name; ODIN_SNAPSHOTS=write takes a new one."""
        end = time.monotonic() + seconds
        seen, path = await self._still() if TAKE else self._picture(), SNAPSHOTS / f"{name}.svg"
        if TAKE:
            path.write_text(seen, encoding="utf-8")
        assert path.exists(), f"there is no picture {path.name} yet; ODIN_SNAPSHOTS=write takes it"
        wanted = path.read_text(encoding="utf-8")
        while seen != wanted and time.monotonic() < end:
            await self.pilot.pause(POLL_S)
            seen = self._picture()
        if seen != wanted:
            kept = Path(os.environ.get("ODIN_SNAPSHOTS_SEEN", tempfile.gettempdir())) / path.name
            kept.write_text(seen, encoding="utf-8")
            raise AssertionError(f"the screen is not the picture {path.name}; what was seen is in {kept}")

    async def _still(self) -> str:
        """What is on the screen when nothing moves any more."""
        seen, since = "", time.monotonic()
        while time.monotonic() - since < STILL_S:
            await self.pilot.pause(0.05)
            if (now := self._picture()) != seen:
                seen, since = now, time.monotonic()
        return seen

    def _picture(self) -> str:
        """The screen as SVG, without what differs from run to run and what no test needs."""
        svg = self.app.export_screenshot(title="Odin")
        svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
        svg = re.sub(r"terminal-\d+", "terminal", svg)
        return re.sub(r"\n\s*\n", "\n", re.sub(r"[ \t]+\n", "\n", svg))


_KEYS = {
    "\n": "shift+enter",
    " ": "space",
    "/": "slash",
    "@": "at",
    "!": "exclamation_mark",
    "?": "question_mark",
    "$": "dollar_sign",
    ".": "full_stop",
    ",": "comma",
    ":": "colon",
    "-": "minus",
    "_": "underscore",
}


@pytest.fixture(autouse=True)
def same_clock_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day on the screen are those of one zone, wherever the tests run."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def all_painted(app: OdinApp, faults: int = 0) -> None:
    """No painter failed, though the app would have gone on."""
    failed = [trouble.detail for trouble in app.error_log.newest_first if trouble.kind == "screen"]
    assert faults or not failed, failed[0]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests press keys faster than people; whether that matters is tested by itself."""
    monkeypatch.setattr(permission, "BURST_S", 0.0)


async def settled(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Wait until every task of the loop waits, and for what is due soon, however long that takes.

    This stands in for the pilot's wait for an idle process, which sleeps 20 ms or more whether there is work or not.
    """
    loop: Any = asyncio.get_running_loop()
    soon = loop.time() + SOON_S
    end = loop.time() + max_sleep
    calm = 0
    while calm < 3 and loop.time() < end:
        await asyncio.sleep(0)
        calm = 0 if loop._ready else calm + 1
        due = [timer.when() for timer in loop._scheduled if not timer.cancelled() and timer.when() <= soon]
        if calm == 3 and due:
            await asyncio.sleep(max(min(due) - loop.time(), 0))
            calm = 0


@pytest.fixture(autouse=True)
def no_waiting_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pilot waits until the app has nothing to do, not until time has passed."""
    monkeypatch.setattr("textual.pilot.wait_for_idle", settled)
    monkeypatch.setattr("textual.app.wait_for_idle", settled)
    monkeypatch.setattr("odin.ui.tui.dialogs.dialog.QUIET_S", 0.03)
    monkeypatch.setattr("odin.ui.tui.dialogs.sessions.SEARCH_DELAY_S", 0.05)
    monkeypatch.setattr("odin.ui.tui.dialog_queue._RETRY_S", 0.02)
    monkeypatch.setattr("odin.ui.tui.timers.FRAME_S", 0.005)


@pytest.fixture(autouse=True)
def painted_when_seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen is painted when a test looks at it and at the end, not for a terminal that is not there.

    Tests marked `every_frame` are about painting.
    """
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_once)
    if request.node.get_closest_marker("every_frame") is None:
        monkeypatch.setattr(Compositor, "render_update", _paint_if_all)


_paint: Callable[..., Any] = Compositor.render_update  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_parse = Stylesheet._parse_rules


def _paint_if_all(
    self: Compositor, full: bool = False, screen_stack: list[Any] | None = None, simplify: bool = False
) -> Any:
    """Only what the test asked for is painted; otherwise it is told whether everything would have been."""
    if full:
        return _paint(self, full, screen_stack, simplify)
    everything = self.size.region in self._dirty_regions
    self._dirty_regions.clear()
    return LayoutUpdate([], self.size.region) if everything else None


_parsed: dict[tuple[Any, ...], list[RuleSet]] = {}
"""The style rules of the widgets, which are the same in every app with the same colours."""


_variables_of: WeakKeyDictionary[Stylesheet, tuple[dict[str, str], frozenset[tuple[str, str]]]] = WeakKeyDictionary()


def _parse_once(self: Stylesheet, css: str, *args: Any, **named: Any) -> list[RuleSet]:
    if _variables_of.get(self, (None,))[0] is not self._variables:
        _variables_of[self] = self._variables, frozenset(self._variables.items())
    key = (_variables_of[self][1], css, args, *named.values())
    if key not in _parsed:
        _parsed[key] = _parse(self, css, *args, **named)
    return _parsed[key]


OpenApp = Callable[..., AbstractAsyncContextManager[Stage]]


@pytest.fixture
def open_app(workspace: Path, home: Path) -> OpenApp:
    """open_app(script, size=(100, 30), config={…}, tui={…}, **options): the app over a real session."""

    @asynccontextmanager
    async def begin(
        script: Any = (),
        *,
        size: tuple[int, int] = (100, 30),
        config: dict[str, Any] | None = None,
        tui: dict[str, Any] | None = None,
        first: str = "",
        server: ScriptedServer | None = None,
        through: Callable[[Sessions], Any] | None = None,
        faults: int = 0,
        **options: Any,
    ) -> AsyncGenerator[Stage]:
        folder = home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {**FAST, "tui": {"bell": False, "title": False, **(tui or {})}, **(config or {})}
        (folder / "odinconfig.json").write_text(json.dumps(settings))
        playing = server or ScriptedServer(script)
        if server is None:
            playing.start()
        environ = {**os.environ, **playing.env("anthropic")}
        given: dict[str, Any] = {"cwd": str(workspace), "can_ask": True, **options}
        held: list[Sessions] = []

        async def connect() -> Sessions:
            held.append(await open_switcher(Options(env=environ, **given)))
            return held[0] if through is None else through(held[0])

        app = OdinApp(connect, load(str(workspace), environ).tui, first=first)
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                stage = Stage(app, pilot, playing)
                await stage.until(lambda: app.info is not None)
                yield stage
                stage.strips()
            all_painted(app, faults)
        finally:
            for sessions in held:
                await sessions.close()
            if server is None:
                playing.stop()

    return begin


@asynccontextmanager
async def play(
    sessions: Sessions, *, size: tuple[int, int] = (100, 30), settings: TuiSettings | None = None, **more: Any
) -> AsyncGenerator[Stage]:
    """The app over sessions that are played, for pictures that must be the same every time."""

    async def connect() -> Sessions:
        return sessions

    app = OdinApp(connect, settings or TuiSettings(bell=False, title=False), **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        stage = Stage(app, pilot, None)
        await stage.until(lambda: app.info is not None)
        await asyncio.sleep(0)
        yield stage
        stage.strips()
    all_painted(app)
