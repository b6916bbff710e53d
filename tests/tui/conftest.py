"""The app on a screen that is not there, over a real session or one that is played from fixed events."""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from odin.app.host import open_host
from odin.config import Options, load
from odin.core.screen import ScreenSettings
from odin.core.sessions import Sessions
from odin.testing import ScriptedServer
from odin.ui.tui.app import OdinApp

SNAPSHOTS = Path(__file__).parent / "snapshots"
TAKE = os.environ.get("ODIN_SNAPSHOTS") == "write"
"""Looked at before the tests get an environment of their own."""

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
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Type it key by key."""
        await self.pilot.press(*(_KEYS.get(char, char) for char in text))

    async def send(self, text: str) -> None:
        await self.type(text)
        await self.pilot.press("enter")

    async def until(self, holds: Callable[[], object], seconds: float = 30) -> None:
        """Wait until this is so; fail with what is on the screen when it does not become so."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise AssertionError(f"it did not come to that; the screen shows:\n{self.screen()}")
            await self.pilot.pause(0.02)

    async def shows(self, *words: str, seconds: float = 30) -> None:
        """Wait until all of these are on the screen."""
        await self.until(lambda: all(word in self.screen() for word in words), seconds)

    async def idle(self) -> None:
        """Wait until no turn runs and everything that happened is drawn."""
        await self.until(lambda: self.app.info is not None and not self.app.executing)
        await self.pilot.pause(0.1)

    def screen(self) -> str:
        """What a person sees, line by line."""
        screen = self.app.screen
        width, height = self.app.size
        lines = screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in lines[:height]) if width else ""

    def snapshot(self, name: str) -> None:
        """Compare the screen with the picture of that name; ODIN_SNAPSHOTS=write takes a new one."""
        compare(name, self.app.export_screenshot(title="Odin"))


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


def compare(name: str, svg: str) -> None:
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    svg = re.sub(r"[ \t]+\n", "\n", svg)
    path = SNAPSHOTS / f"{name}.svg"
    if TAKE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg, encoding="utf-8")
        return
    assert path.exists(), f"there is no picture {path.name} yet; ODIN_SNAPSHOTS=write takes it"
    if path.read_text(encoding="utf-8") != svg:
        seen = Path(os.environ.get("ODIN_SNAPSHOTS_SEEN", "/tmp")) / f"{name}.svg"
        seen.write_text(svg, encoding="utf-8")
        raise AssertionError(f"the screen is not the picture {path.name}; what was seen is in {seen}")


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
        **options: Any,
    ) -> AsyncIterator[Stage]:
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
            held.append(await open_host(Options(env=environ, **given)))
            return held[0]

        app = OdinApp(connect, load(str(workspace), environ).tui, first=first)
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                stage = Stage(app, pilot, playing)
                await stage.until(lambda: app.info is not None)
                yield stage
        finally:
            for sessions in held:
                await sessions.close()
            if server is None:
                playing.stop()

    return begin


@asynccontextmanager
async def play(
    sessions: Sessions, *, size: tuple[int, int] = (100, 30), settings: ScreenSettings | None = None, **more: Any
) -> AsyncIterator[Stage]:
    """The app over sessions that are played, for pictures that must be the same every time."""

    async def connect() -> Sessions:
        return sessions

    app = OdinApp(connect, settings or ScreenSettings(bell=False, title=False), **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        stage = Stage(app, pilot, None)
        await stage.until(lambda: app.info is not None)
        await asyncio.sleep(0)
        yield stage
