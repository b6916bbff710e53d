"""Draw the pictures and the recording of the terminal app: the real app and a real session with a scripted model.

Run by hand (`.venv/bin/python bin/pictures.py`) when the look of the app changes.
Check the pictures before you commit them.
"""

import asyncio
import html
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.style import Style
from textual.pilot import Pilot
from textual.strip import Strip

from odin.config import Options
from odin.core.client import Sessions
from odin.core.tui_settings import ThemeSetting, TuiSettings
from odin.host.workspace_sessions import open_workspace_sessions
from odin.testing import ScriptedServer, SeenRequest, Turn, call, reply, say
from odin.ui.tui.app import OdinApp

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SHOWN_HOME = "/home/someone"
"""Stands in the pictures for the home folder they were taken in, whose path is as long as this one."""

CART = '''"""What is in the cart, and what it costs."""

TAX = 0.07


def discount(items):
    return sum(item.price for item in items) * 0.1 if len(items) > 3 else 0


def total(items):
    net = sum(item.price for item in items)
    return round(net * (1 + TAX), 2)
'''
OLD = "    net = sum(item.price for item in items)\n    return"
NEW = "    net = sum(item.price for item in items) - discount(items)\n    return"
TESTS = "from cart import discount, total\n\n\ndef test_nothing_costs_nothing():\n    assert total([]) == 0\n"
FIX = "Customers pay too much when they get a discount. Find out why and fix it."
TASK = "Customers pay too much when they get a discount. Find out why, fix it and write a test for it."
ANSWER = (
    "`total` never looked at the discount: it is taken off **before** the tax now.\n\n"
    "| four books of 10.00 | before | now |\n|---|---|---|\n| net | 40.00 | 36.00 |\n| total | 42.80 | 38.52 |"
)
NEXT = "\n\nThe test is next."
GENERATE = "Generate the price list."
GENERATOR = """import re, pathlib
cart = pathlib.Path("cart.py")
cart.write_text(cart.read_text().replace("TAX = 0.07", "TAX = 0.19"))
pathlib.Path("prices.py").write_text('PRICES = {\\n    "book": 10.00,\\n    "map": 4.50,\\n}\\n')
"""
GENERATED = "The price list is in `prices.py`; the tax rate comes from the same source now."
DONE = "Done: three files changed, and all tests pass."
OTHERS = (
    "Why does the login test fail on Mondays?",
    "Write the release notes for 2.4",
    "Rename Basket to Cart everywhere",
)


class Model:
    """The scripted model. Its last answer stays unfinished, so that the picture shows a running turn."""

    def __init__(self, work: Path) -> None:
        self.file = str(work / "cart.py")
        self.gate = threading.Event()

    def __call__(self, request: SeenRequest) -> Turn:
        said = str(request.json)
        if GENERATE in said:
            command = "python3 generate.py --prices"
            return say(GENERATED) if command in said else call("Bash", {"command": command})
        if TASK[:20] not in said:
            return say(DONE)
        if not request.results:
            steps = ("Read the cart", "Take off the discount", "Write a test", "Run all tests")
            states = ("completed", "in_progress", "pending", "pending")
            todos = [{"id": step, "content": step, "status": state} for step, state in zip(steps, states, strict=True)]
            calls = [call("TodoWrite", {"todos": todos}), call("Read", {"file_path": self.file})][FIX in said :]
            return reply("I look at the cart first.", calls, thinking="Where does the discount go?")
        if NEW not in Path(self.file).read_text():
            change = {"file_path": self.file, "old_string": OLD, "new_string": NEW}
            return reply("Here it is: the discount is computed and never used.", [call("EditTool", change)])
        answer = ANSWER if FIX in said else ANSWER + NEXT
        return say(answer, chunk=12).hold(self.gate, after=len(answer) // 12 + 3)


BACK = "#14171c"
CELL, ROW = 8.4, 19
"""Width and height of a character of the recording, in pixels."""


class Recording:
    """Screens with the seconds each is shown, drawn as one animated SVG. Equal rows are stored once."""

    def __init__(self) -> None:
        self._looks: dict[str, str] = {}
        self._rows: dict[str, int] = {}
        self._screens: list[tuple[list[int], float]] = []

    def add(self, strips: list[Strip], seconds: float) -> None:
        rows = [self._rows.setdefault(self._draw(strip), len(self._rows)) for strip in strips]
        self._screens.append((rows, seconds))

    def _draw(self, strip: Strip) -> str:
        drawn: list[str] = []
        column = 0
        for text, style, _ in strip:
            width, style = cell_len(text), style or Style()
            back = style.bgcolor.get_truecolor().hex if style.bgcolor else BACK
            if back != BACK:
                look = self._looks.setdefault(f"fill:{back}", f"s{len(self._looks)}")
                drawn.append(f'<rect x="{column * CELL:g}" width="{width * CELL:.1f}" height="{ROW}" class="{look}"/>')
            if text.strip():
                color = style.color.get_truecolor().hex if style.color else "#d3d6db"
                css = f"fill:{color}" + (";font-weight:bold" if style.bold else "")
                look = self._looks.setdefault(css, f"s{len(self._looks)}")
                start = column + len(text) - len(text.lstrip())
                shown = text.strip()
                place = f'x="{start * CELL:g}" y="14" textLength="{cell_len(shown) * CELL:g}"'
                drawn.append(f'<text {place} class="{look}">{html.escape(shown)}</text>')
            column += width
        return "".join(drawn)

    def draw(self, width: int, height: int) -> str:
        length = sum(seconds for _, seconds in self._screens)
        styles = [f".{name}{{{css}}}" for css, name in self._looks.items()]
        screens: list[str] = []
        since = 0.0
        for number, (rows, seconds) in enumerate(self._screens):
            start, since = since, since + seconds
            steps = [(0, "hidden"), (start, "visible"), (since, "hidden")][not number :]
            frames = "".join(f"{100 * at / length:.2f}%{{visibility:{what}}}" for at, what in steps)
            styles.append(f"@keyframes k{number}{{{frames}}}.f{number}{{animation-name:k{number}}}")
            used = "".join(f'<use href="#r{row}" y="{ROW * line}"/>' for line, row in enumerate(rows))
            screens.append(f'<g class="f f{number}">{used}</g>')
        # Without animation, the middle screen is shown: the edit and the answer.
        chosen = f".f{len(self._screens) // 2}{{visibility:visible!important}}"
        styles.append(f"@media(prefers-reduced-motion){{.f{{animation:none!important}}{chosen}}}")
        rows = "".join(f'<g id="r{number}">{row}</g>' for row, number in self._rows.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width * CELL + 24:g} {height * ROW + 24}" '
            f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" xml:space="preserve"><style>'
            f".f{{visibility:hidden;animation:{length:g}s step-end infinite}}{''.join(styles)}</style>"
            f'<defs>{rows}</defs><rect width="100%" height="100%" rx="10" fill="{BACK}"/>'
            f'<g transform="translate(12 12)">{"".join(screens)}</g></svg>\n'
        )


class Hands:
    """The app and a simulated user."""

    def __init__(self, app: OdinApp, pilot: Pilot[Any], model: Model, home: Path) -> None:
        self.app = app
        self.model = model
        self._pilot = pilot
        self._home = home

    async def send(self, text: str) -> None:
        self.app.composer.text = text
        await self._pilot.press("enter")

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def shows(self, *words: str) -> None:
        await self.until(lambda: all(word in self._screen() for word in words))

    async def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + 30
        while not holds():
            if time.monotonic() > end:
                raise SystemExit(f"It did not come to that; the screen shows:\n{self._screen()}")
            await self._pilot.pause(0.05)

    def _screen(self) -> str:
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())  # pyright: ignore[reportPrivateUsage]

    async def type(self, text: str, recording: Recording) -> None:
        """Type some words at a time, so that the recording shows it."""
        words = text.split(" ")
        for end in range(3, len(words) + 3, 3):
            self.app.composer.text = " ".join(words[:end])
            self.app.composer.move_cursor(self.app.composer.document.end)
            await self.record(recording, 0.25)
        await self._pilot.press("enter")

    async def record(self, recording: Recording, seconds: float) -> None:
        await self._pilot.pause(0.4)
        recording.add(self.app.screen._compositor.render_strips(), seconds)  # pyright: ignore[reportPrivateUsage]

    async def take(self, name: str) -> None:
        """Write the screen as SVG, without external fonts and without local paths."""
        await self._pilot.pause(0.8)
        svg = self.app.export_screenshot(title="odin")
        svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
        svg = re.sub(r"terminal-\d+", "odin", svg).replace(
            "Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace"
        )
        svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL).replace(str(self._home), SHOWN_HOME)
        (PICTURES / f"{name}.svg").write_text(re.sub(r"\s*\n\s*", "\n", svg).strip() + "\n", encoding="utf-8")
        sys.stdout.write(f"{name}.svg\n")


@asynccontextmanager
async def opened(size: tuple[int, int], theme: ThemeSetting = "dark", **options: Any) -> AsyncGenerator[Hands]:
    """Open the app in a temporary project."""
    folder = tempfile.TemporaryDirectory(prefix="", dir="/tmp")
    home = Path(folder.name)
    work = home / "shop"
    work.mkdir()
    (work / "cart.py").write_text(CART)
    (work / "test_cart.py").write_text(TESTS)
    (work / "generate.py").write_text(GENERATOR)
    (work / ".git").mkdir()
    (work / ".git" / "HEAD").write_text("ref: refs/heads/discount\n")
    model = Model(work)
    held: list[Sessions] = []
    try:
        with ScriptedServer(model) as server:
            env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **server.env("anthropic")}
            os.environ["HOME"] = str(home)

            async def connect() -> Sessions:
                held.append(await open_workspace_sessions(Options(env=env, cwd=str(work), can_ask=True, **options)))
                return held[0]

            app = OdinApp(connect, TuiSettings(bell=False, title=False, theme=theme))
            async with app.run_test(size=size) as pilot:
                hands = Hands(app, pilot, model, home)
                await hands.until(lambda: app.info is not None)
                yield hands
                model.gate.set()
    finally:
        model.gate.set()
        for sessions in held:
            await sessions.close()
        folder.cleanup()


async def at_work(name: str, size: tuple[int, int], theme: ThemeSetting) -> None:
    async with opened(size, theme, permission_mode="acceptEdits") as hands:
        await hands.send(TASK)
        await hands.shows("38.52")
        await hands.take(name)


async def asking() -> None:
    async with opened((100, 28)) as hands:
        await hands.send(TASK)
        await hands.shows("y Allow once")
        await hands.take("permission")
        await hands.press("escape")


async def keeping() -> None:
    async with opened((100, 34)) as hands:
        await hands.send(GENERATE)
        await hands.shows("Keep", "Discard")
        await hands.take("effects")
        await hands.press("escape")


async def choosing() -> None:
    async with opened((100, 28), permission_mode="acceptEdits") as hands:
        hands.model.gate.set()
        for prompt in (*OTHERS, TASK):
            await hands.send("/new")
            await hands.until(lambda: not hands.app.transcripts[""].blocks)
            await hands.send(prompt)
            await hands.until(lambda: hands.app.transcripts[""].blocks)
            await hands.until(lambda: not hands.app.executing)
        await hands.send("/sessions")
        await hands.shows(OTHERS[0][:12], OTHERS[2][:12])
        await hands.press("down", "down")
        await hands.shows(DONE[:12])
        await hands.take("sessions")


async def session(size: tuple[int, int]) -> None:
    """Record a session: a prompt, an edit that is approved, a command whose changes are kept, and undo."""
    recording = Recording()
    async with opened(size) as hands:
        await hands.record(recording, 1.5)
        await hands.type(FIX, recording)
        await hands.shows("y Allow once")
        await hands.record(recording, 4)
        await hands.press("y")
        await hands.shows("38.52")
        await hands.record(recording, 2)
        hands.model.gate.set()
        await hands.until(lambda: not hands.app.executing)
        await hands.record(recording, 1.5)
        await hands.type(GENERATE, recording)
        await hands.shows("Keep", "Discard")
        await hands.record(recording, 4)
        await hands.press("y")
        await hands.until(lambda: not hands.app.executing)
        await hands.record(recording, 2)
        await hands.type("/undo", recording)
        await hands.shows("/redo undoes this")
        await hands.record(recording, 3)
        drawn = recording.draw(*size).replace(str(hands._home), SHOWN_HOME)  # pyright: ignore[reportPrivateUsage]
    (PICTURES / "session.svg").write_text(drawn, encoding="utf-8")
    sys.stdout.write("session.svg\n")


async def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    await at_work("app", (110, 38), "dark")
    await at_work("narrow", (56, 30), "light")
    await asking()
    await keeping()
    await choosing()
    await session((96, 30))


if __name__ == "__main__":
    asyncio.run(main())
