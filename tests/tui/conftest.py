"""Runs the app without a terminal, over a real session or over a fake one with fixed events."""

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
from msgspec.structs import replace
from textual import events
from textual._compositor import Compositor, LayoutUpdate
from textual._context import visible_screen_stack
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.strip import Strip

from odin.config import Options, load
from odin.core.client import Sessions
from odin.core.tui_settings import TuiSettings
from odin.host.workspace_sessions import open_workspace_sessions
from odin.testing import ScriptedServer
from odin.ui.tui.app import OdinApp
from odin.ui.tui.dialogs.dialog import RequestDialog
from odin.ui.tui.dialogs.widgets import TextPage
from odin.ui.tui.timing import AppTiming
from tests.waiting import LIMIT_S, describe_condition, until

SIZES_AND_THEMES = pytest.mark.parametrize(
    ("size", "theme"),
    [
        pytest.param((100, 30), "dark", id="100x30-dark"),
        pytest.param((100, 30), "light", id="100x30-light", marks=pytest.mark.slow),
        pytest.param((60, 20), "dark", id="60x20-dark", marks=pytest.mark.slow),
        pytest.param((60, 20), "light", id="60x20-light", marks=pytest.mark.slow),
    ],
)
"""Sizes and themes of the snapshots. Only `make test-all` compares all of them."""

SNAPSHOTS = Path(__file__).parent / "snapshots"
WRITE_SNAPSHOTS = os.environ.get("ODIN_SNAPSHOTS") == "write"
"""Read before fixtures replace the environment."""

STILL_S = 1.0
"""A snapshot is written when the screen has not changed for this long."""


def _describe_tasks() -> Iterator[str]:
    """Yield where each task of the loop waits, for the message of a timeout."""
    for task in asyncio.all_tasks():
        frames = [f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" for frame in task.get_stack(limit=3)]
        yield f"{task.get_name()}: {' '.join(frames)}"


POLL_S = 0.01
"""Interval at which `until` checks its condition."""

SOON_S = 0.02
"""Timers due within this time belong to the last action, for example the next frame."""

FAST = {"retry": {"base_s": 0.01}}


class Stage:
    """The running app with the pilot that presses its keys and, over a real session, the scripted model server."""

    def __init__(self, app: OdinApp, pilot: Pilot[Any], server: ScriptedServer | None) -> None:
        self.app = app
        self.pilot = pilot
        self._server = server

    @property
    def server(self) -> ScriptedServer:
        assert self._server is not None, "this stage has no model server"
        return self._server

    async def press(self, *keys: str) -> None:
        """Press the keys one after the other and let the app handle each before the next.

        A request that has just opened takes keys only after a pause, which is over first if the clock is a real one.
        """
        for key in keys:
            request = self.app.screen
            if isinstance(request, RequestDialog) and self.app.timing.clock is time.monotonic:
                await self.until(lambda request=request: not (request.is_current and request._is_checking))
            self.render_request()
            await self.pilot.press(key)

    def render_request(self) -> None:
        """Render what is visible of an open request: it can be allowed only after all of it was on the screen.

        The conversation behind it is not rendered.
        """
        shown: Any = self.app.screen
        if isinstance(shown, RequestDialog):
            visible = shown._compositor.visible_widgets
            for page in visible.keys() & set(shown.query(TextPage)):
                region, clip = visible[page]
                page.render_lines(region.intersection(clip).translate(-region.offset))

    async def type(self, text: str) -> None:
        """Type the text as fast as a terminal delivers it."""
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

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds. A timeout fails with the screen and the waiting tasks."""

        def describe() -> str:
            waiting = "\n".join(sorted(_describe_tasks()))
            return f"{describe_condition(condition)}\nthe screen shows:\n{self.screen()}\ntasks:\n{waiting}"

        await until(condition, describe, pause=self._pause)

    async def _pause(self, _: float) -> None:
        await self.pilot.pause(POLL_S)

    async def shows(self, *words: str) -> None:
        """Wait until all of these texts are on the screen, which is rendered again only after it was updated."""
        rendered_at, seen = -1, ""

        def all_seen() -> bool:
            nonlocal rendered_at, seen
            if rendered_at != (updates := _screen_updates.count):
                rendered_at, seen = updates, self.screen()
            return all(word in seen for word in words)

        await self.until(all_seen)

    async def idle(self) -> None:
        """Wait until no turn runs and all events are drawn."""
        await self.until(lambda: self.app.info is not None and not self.app.executing)
        await self.pilot.pause()

    def screen(self) -> str:
        """Return the text of the screen, line by line."""
        width, height = self.app.size
        return "\n".join(strip.text.rstrip() for strip in self.strips()[:height]) if width else ""

    def strips(self) -> list[Strip]:
        """Return the lines of the screen, including the screens behind a dialog.

        A dialog caches its lines. Rendered without the screens behind it, it would cache blank ones.
        """
        app: Any = self.app
        visible_screen_stack.set(app._background_screens)
        return app.screen._compositor.render_strips()

    async def assert_snapshot(self, name: str) -> None:
        """Wait until the screen equals the snapshot of that name. ODIN_SNAPSHOTS=write writes the snapshot."""
        path = SNAPSHOTS / f"{name}.svg"
        if WRITE_SNAPSHOTS:
            path.write_text(await self._wait_until_still(), encoding="utf-8")
        assert path.exists(), f"there is no snapshot {path.name} yet; ODIN_SNAPSHOTS=write writes it"
        expected = path.read_text(encoding="utf-8")

        def describe() -> str:
            actual_path = Path(os.environ.get("ODIN_SNAPSHOTS_SEEN", tempfile.gettempdir())) / path.name
            actual_path.write_text(self._render_svg(), encoding="utf-8")
            return f"the snapshot {path.name}; the actual screen is in {actual_path}"

        await until(lambda: self._render_svg() == expected, describe, pause=self._pause)

    async def _wait_until_still(self) -> str:
        """Return the screen as SVG once it no longer changes."""
        seen, since = "", time.monotonic()
        while time.monotonic() - since < STILL_S:
            await self.pilot.pause(0.05)
            if (now := self._render_svg()) != seen:
                seen, since = now, time.monotonic()
        return seen

    def _render_svg(self) -> str:
        """Return the screen as SVG, without fonts and other parts that differ between runs."""
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
def use_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show times of day in UTC, wherever the tests run."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def assert_all_painted(app: OdinApp, faults: int = 0) -> None:
    """Assert that no painter failed. The app only logs such failures."""
    failed = [entry.detail for entry in app.error_log.newest_first if entry.kind == "screen"]
    assert faults or not failed, failed[0]


SHORT_WAITS = AppTiming(quiet_s=0.03, typing_s=0.0, double_press_s=LIMIT_S, retry_s=0.02, search_s=0.05, frame_s=0.005)
"""Keys pressed in quick succession are accepted; with a `TypistClock` only after a pause."""


class TypistClock:
    """The clock of an app in whose composer somebody types: no time passes between keys, only in `pause`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timing = replace(SHORT_WAITS, clock=lambda: self.now, quiet_s=0.3, typing_s=1.0)

    async def pause(self, stage: Stage, seconds: float = 1.1) -> None:
        self.now += seconds
        await stage.pilot.pause(2 * SHORT_WAITS.retry_s)
        if isinstance(stage.app.screen, RequestDialog):
            stage.app.screen._check_pause()
        await stage.pilot.pause()


async def wait_until_settled(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Wait until every task of the loop waits and the timers due soon have run.

    This replaces the pilot's wait for an idle process, which always sleeps at least 20 ms.
    """
    loop: Any = asyncio.get_running_loop()
    soon = loop.time() + SOON_S
    end = loop.time() + max_sleep
    while await _wait_until_calm(end):
        due = [timer.when() for timer in loop._scheduled if not timer.cancelled() and timer.when() <= soon]
        if not due:
            return
        await asyncio.sleep(max(min(due) - loop.time(), 0))


async def _wait_until_calm(end: float) -> bool:
    """Return whether every task of the loop waits before this time of the loop."""
    loop: Any = asyncio.get_running_loop()
    calm = 0
    while calm < 3:
        if loop.time() >= end:
            return False
        await asyncio.sleep(0)
        calm = 0 if loop._ready else calm + 1
    return True


_wait_for_messages: Callable[..., Any] = Pilot._wait_for_screen  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


async def _wait_for_screen(self: Pilot[Any], timeout: float = 30.0) -> bool:
    """Wait until the messages are handled: all are when every task waits. Otherwise ask each widget as Textual does."""
    return await _wait_until_calm(asyncio.get_running_loop().time() + 1) or await _wait_for_messages(self, timeout)


@pytest.fixture(autouse=True)
def wait_for_idle_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pilot of Textual wait for an idle app instead of a fixed time."""
    monkeypatch.setattr("textual.pilot.wait_for_idle", wait_until_settled)
    monkeypatch.setattr("textual.app.wait_for_idle", wait_until_settled)
    monkeypatch.setattr(Pilot, "_wait_for_screen", _wait_for_screen)


@pytest.fixture(autouse=True)
def paint_on_demand(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paint the screen only when a test reads it and at the end, not again when its size has settled.

    Tests marked `every_frame` paint every frame.
    """
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_rules_once)
    monkeypatch.setattr("textual.strip.FIFOCache", _make_strip_cache)
    monkeypatch.setattr(Compositor, "render_update", _count_and_paint)
    if request.node.get_closest_marker("every_frame") is None:
        monkeypatch.setattr(Compositor, "render_update", _paint_full_updates_only)
        monkeypatch.setattr(OdinApp, "_redraw_after_resize", _paint_nothing)


_paint: Callable[..., Any] = Compositor.render_update  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_parse = Stylesheet._parse_rules


class _ScreenUpdates:
    """How often a screen was updated."""

    count = 0


_screen_updates = _ScreenUpdates()


def _count_and_paint(self: Compositor, *args: Any, **options: Any) -> Any:
    _screen_updates.count += 1
    return _paint(self, *args, **options)


def _make_strip_cache(_: int) -> dict[Any, Any]:
    """Return the cache of a strip, which has seven of them and is too short-lived to fill one."""
    return {}


def _paint_full_updates_only(
    self: Compositor, full: bool = False, screen_stack: list[Any] | None = None, simplify: bool = False
) -> Any:
    """Paint full updates only. For others return an empty update if the whole screen is dirty."""
    _screen_updates.count += 1
    if full:
        return _paint(self, full, screen_stack, simplify)
    everything = self.size.region in self._dirty_regions
    self._dirty_regions.clear()
    return LayoutUpdate([], self.size.region) if everything else None


def _paint_nothing(self: OdinApp) -> None: ...


_parsed_rules: dict[tuple[Any, ...], list[RuleSet]] = {}
"""Parsed style rules of the widgets, which are the same in every app with the same colors."""


_variables_of: WeakKeyDictionary[Stylesheet, tuple[dict[str, str], frozenset[tuple[str, str]]]] = WeakKeyDictionary()


def _parse_rules_once(self: Stylesheet, css: str, *args: Any, **named: Any) -> list[RuleSet]:
    if _variables_of.get(self, (None,))[0] is not self._variables:
        _variables_of[self] = self._variables, frozenset(self._variables.items())
    key = (_variables_of[self][1], css, args, *named.values())
    if key not in _parsed_rules:
        _parsed_rules[key] = _parse(self, css, *args, **named)
    return _parsed_rules[key]


OpenApp = Callable[..., AbstractAsyncContextManager[Stage]]


@pytest.fixture
def open_app(workspace: Path, home: Path) -> OpenApp:
    """open_app(script, size=(100, 30), config={…}, tui={…}, **options): runs the app over a real session."""

    @asynccontextmanager
    async def begin(
        script: Any = (),
        *,
        size: tuple[int, int] = (100, 30),
        config: dict[str, Any] | None = None,
        tui: dict[str, Any] | None = None,
        first: str = "",
        server: ScriptedServer | None = None,
        wrap_sessions: Callable[[Sessions], Any] | None = None,
        faults: int = 0,
        app_timing: AppTiming = SHORT_WAITS,
        **options: Any,
    ) -> AsyncGenerator[Stage]:
        folder = home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {**FAST, "tui": {"bell": False, "title": False, **(tui or {})}, **(config or {})}
        (folder / "odinconfig.json").write_text(json.dumps(settings))
        running_server = server or ScriptedServer(script)
        if server is None:
            running_server.start()
        environ = {**os.environ, **running_server.env("anthropic")}
        given: dict[str, Any] = {"cwd": str(workspace), "can_ask": True, **options}
        opened: list[Sessions] = []

        async def connect() -> Sessions:
            opened.append(await open_workspace_sessions(Options(env=environ, **given)))
            return opened[0] if wrap_sessions is None else wrap_sessions(opened[0])

        app = OdinApp(connect, load(str(workspace), environ).tui, first=first, timing=app_timing)
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                stage = Stage(app, pilot, running_server)
                await stage.until(lambda: app.info is not None)
                yield stage
                stage.strips()
            assert_all_painted(app, faults)
        finally:
            for sessions in opened:
                await sessions.close()
            if server is None:
                running_server.stop()

    return begin


@asynccontextmanager
async def run_app(
    sessions: Sessions,
    *,
    size: tuple[int, int] = (100, 30),
    settings: TuiSettings | None = None,
    timing: AppTiming = SHORT_WAITS,
    **more: Any,
) -> AsyncGenerator[Stage]:
    """Run the app over fake sessions, whose screens are the same every time."""

    async def connect() -> Sessions:
        return sessions

    app = OdinApp(connect, settings or TuiSettings(bell=False, title=False), timing=timing, **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        stage = Stage(app, pilot, None)
        await stage.until(lambda: app.info is not None)
        await asyncio.sleep(0)
        yield stage
        stage.strips()
    assert_all_painted(app)
