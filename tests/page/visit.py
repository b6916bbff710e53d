"""The page in a real browser, as a user sees and operates it: by keyboard alone, or by touch on a telephone."""

import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, Playwright, Request, expect

from odin.core.rights import Right
from odin.server.access import AccessStore
from odin.testing import ScriptedServer
from tests.waiting import LIMIT_S

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
WAIT_MS = LIMIT_S * 1000

HandName = Literal["keyboard", "touch"]
Name = str | re.Pattern[str]

expect.set_options(timeout=WAIT_MS)


def require_chromium() -> None:
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"There is no {CHROMIUM}: apt install chromium")


async def use_token(window: "Visit", token: str) -> None:
    """Let the browser have been paired before."""
    await window.context.add_init_script(f"localStorage.setItem('odin:token:/', {json.dumps(token)})")


async def launch_browser(playwright: Playwright, home: Path) -> Browser:
    return await playwright.chromium.launch(
        executable_path=CHROMIUM,
        args=list(ARGUMENTS),
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"},
    )


class Hand(Protocol):
    """How a user operates the page. `key` is the shortcut of a control: only who has a keyboard uses it."""

    async def press(self, target: Locator, key: str = "") -> None:
        """Activate a control."""
        ...

    async def write(self, target: Locator, text: str) -> None:
        """Replace the text of a field."""
        ...

    async def send(self, target: Locator, text: str, button: Name) -> None:
        """Write into a field, and give it with Enter, or by this button."""
        ...


class Keyboard:
    """Tab, arrows, Enter and shortcuts; no pointer."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def focus(self, target: Locator) -> None:
        """Go to a control with Tab: it must be reachable."""
        await expect(target).to_be_visible()
        for _ in range(150):
            where = await target.evaluate(_COMPARE_WITH_FOCUS)
            if where == "here":
                return
            await self._page.keyboard.press("Shift+Tab" if where == "before" else "Tab")
        raise AssertionError(f"Tab does not reach {target}")

    async def press(self, target: Locator, key: str = "") -> None:
        await expect(target).to_be_visible()
        if key:
            await self._page.keyboard.press(key)
        elif await target.get_attribute("role") == "option":
            await self._choose_option(target)
        elif await target.get_attribute("type") == "radio":
            await self._choose_radio(target)
        else:
            await self.focus(target)
            await self._page.keyboard.press("Space" if await target.get_attribute("type") == "checkbox" else "Enter")

    async def _choose_option(self, target: Locator) -> None:
        await expect(target).to_be_visible()
        for _ in range(100):
            if await target.get_attribute("aria-selected") == "true":
                await self._page.keyboard.press("Enter")
                return
            await self._page.keyboard.press("ArrowDown")
        raise AssertionError(f"the arrows do not reach {target}")

    async def _choose_radio(self, target: Locator) -> None:
        await expect(target).to_be_visible()
        for _ in range(150):
            if await target.evaluate("node => node.name === document.activeElement.name"):
                break
            where = await target.evaluate(_COMPARE_WITH_FOCUS)
            await self._page.keyboard.press("Shift+Tab" if where == "before" else "Tab")
        for _ in range(20):
            if await target.evaluate("node => node === document.activeElement"):
                await self._page.keyboard.press("Space")
                return
            await self._page.keyboard.press("ArrowDown")
        raise AssertionError(f"the arrows do not reach {target}")

    async def write(self, target: Locator, text: str) -> None:
        await self.focus(target)
        await self._page.keyboard.press("Control+a")
        await self._page.keyboard.type(text)

    async def send(self, target: Locator, text: str, button: Name) -> None:
        await self.write(target, text)
        await self._page.keyboard.press("Enter")


class Finger:
    """Taps. Text comes from the keyboard of the screen, which has no keys but that one."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def press(self, target: Locator, key: str = "") -> None:
        await target.tap(timeout=WAIT_MS)

    async def write(self, target: Locator, text: str) -> None:
        await target.tap(timeout=WAIT_MS)
        await target.fill("")
        await self._page.keyboard.insert_text(text)

    async def send(self, target: Locator, text: str, button: Name) -> None:
        await self.write(target, text)
        await self._page.get_by_role("button", name=button, exact=isinstance(button, str)).tap(timeout=WAIT_MS)


_COMPARE_WITH_FOCUS = """node => {
    const here = document.activeElement;
    if (here === node) return 'here';
    return here && here !== document.body && node.compareDocumentPosition(here) & 4 ? 'before' : 'after';
}"""


class Visit:
    """One browser of a user: its page, what it requested, and what went wrong in it."""

    def __init__(self, context: BrowserContext, page: Page, url: str, hand: HandName) -> None:
        self.page = page
        self.context = context
        self.url = url
        self.hand: Hand = Keyboard(page) if hand == "keyboard" else Finger(page)
        self.is_touch = hand == "touch"
        self.requests: list[str] = []
        self.authorized: list[str] = []
        self.answers: list[str] = []
        self.problems: list[str] = []
        context.on("request", self._note_request)
        context.on("response", lambda one: self.answers.append(f"{one.status} {one.request.method} {one.url}"))
        context.on("console", lambda message: self._note(message.type, message.text))
        context.on(
            "weberror", lambda error: self.problems.append(f"uncaught: {getattr(error.error, 'stack', error.error)}")
        )
        context.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))

    def _note_request(self, request: Request) -> None:
        self.requests.append(request.url)
        if "authorization" in request.headers:
            self.authorized.append(request.headers["authorization"])

    def _note(self, kind: str, text: str) -> None:
        # The browser reports every answer that is not 200; what the page makes of it is tested where it matters.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.problems.append(f"{kind}: {text}")

    def check(self) -> None:
        """Assert that nothing went wrong, nothing came from outside, and no address had the token."""
        assert self.problems == [], self.problems
        outside = [url for url in self.requests if not url.startswith((f"{self.url}/", "blob:", "data:"))]
        assert outside == [], outside
        assert [url for url in self.requests if "odin_" in url] == []

    # --- what is on the screen ---

    def button(self, name: Name) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str))

    def dialog(self, name: Name) -> Locator:
        return self.page.get_by_role("dialog", name=name, exact=isinstance(name, str))

    def option(self, name: Name) -> Locator:
        return self.page.get_by_role("option", name=name)

    def region(self, name: Name) -> Locator:
        return self.page.get_by_role("region", name=name, exact=isinstance(name, str))

    def block(self, kind: str) -> Locator:
        return self.conversation.locator(f"[data-block={kind}]")

    @property
    def prompt(self) -> Locator:
        return self.page.get_by_role("textbox", name=re.compile("^Prompt"))

    @property
    def conversation(self) -> Locator:
        return self.region("Conversation")

    @property
    def request(self) -> Locator:
        return self.region("Request")

    @property
    def toasts(self) -> Locator:
        return self.page.get_by_label("Messages")

    @property
    def side(self) -> Locator:
        return self.page.get_by_label("Side panel").and_(self.page.locator("aside, dialog"))

    async def shows(self, *texts: str, place: Locator | None = None) -> None:
        """Wait until the place, which is the conversation, shows all texts."""
        for text in texts:
            try:
                await expect(place or self.conversation).to_contain_text(text)
            except AssertionError as error:
                answers = "\n".join(self.answers[-20:])
                written = [await one.input_value() for one in await self.prompt.all()]
                error.add_note(f"prompts: {written}, problems: {self.problems}, the last answers:\n{answers}")
                raise

    # --- what a user does ---

    async def send(self, text: str) -> None:
        """Send a prompt or a command, or queue it."""
        await self.hand.send(self.prompt, text, re.compile("the prompt$"))

    async def command(self, line: str, item: str = "") -> None:
        """Give a slash command; with a finger, choose the item of the menu if there is one."""
        if item and self.is_touch:
            await self.hand.press(self.button("Menu"))
            await self.hand.press(self.option(item))
            return
        await self.hand.write(self.prompt, line)
        await expect(self.prompt).to_have_value(line)
        await self.page.keyboard.press("Escape")  # the list of suggestions
        await self.send(line) if self.is_touch else await self.page.keyboard.press("Enter")

    async def press(self, name: Name, key: str = "", within: Locator | None = None) -> None:
        target = (within or self.page).get_by_role("button", name=name, exact=isinstance(name, str))
        await self.hand.press(target, key)

    async def answer(self, name: Name, key: str) -> None:
        """Answer the request, by its key or a tap."""
        await expect(self.request).to_be_visible()
        if isinstance(self.hand, Keyboard):  # it may not have the focus yet: somebody has just typed a prompt
            await self.hand.focus(self.request.get_by_role("button").first)
            await self.page.keyboard.press(key)
        else:
            await self.press(name, within=self.request)

    async def finish(self) -> None:
        """Wait until nothing works any more."""
        await expect(self.button("Stop")).to_have_count(0)

    async def pair(self, store: AccessStore, right: Right = "approve") -> None:
        """Pair with a code, typed in."""
        code = store.create_code(right, f"{right} browser").text
        await self.page.goto(f"{self.url}/")
        await self.hand.send(self.page.get_by_label("Code", exact=True), code, "Pair")
        await expect(self.page.get_by_role("heading", name="Sessions")).to_be_visible()

    async def open(self, session: str, agent: str = "") -> None:
        await self.page.goto(f"{self.url}/#/s/{session}{f'/{agent}' if agent else ''}")
        await expect(self.prompt.or_(self.page.get_by_text("You can watch this session"))).to_be_visible()


@asynccontextmanager
async def visit(
    browser: Browser, url: str, hand: HandName = "keyboard", *, theme: Literal["light", "dark"] = "light", **more: Any
) -> AsyncGenerator[Visit]:
    """Open a browser window without a page in it. Afterwards nothing must have gone wrong in it."""
    shape: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
    if hand == "touch":
        shape = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    context = await browser.new_context(**shape, color_scheme=theme, accept_downloads=True, **more)
    context.set_default_timeout(WAIT_MS)
    try:
        one = Visit(context, await context.new_page(), url, hand)
        yield one
        one.check()
    finally:
        await context.close()


def list_prompts(server: ScriptedServer) -> list[str]:
    """Return the last message of each request to the model that has tools, as text."""
    return [str(one.messages[-1]["content"]) for one in list(server.requests) if one.json.get("tools")]
