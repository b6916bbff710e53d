"""Take the pictures of the page in the documentation: real Chromium, a real server and session, a scripted model.

Run by hand (`.venv/bin/python bin/page_pictures.py`) when the look of the page changes. Check the pictures before you
commit them.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Page, async_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bin.pictures import ANSWER, CART, NEW, OLD, PICTURES, TASK
from tests.page.visit import ARGUMENTS, CHROMIUM
from tests.server.served import Served, serve

from odin.core.op import Prompt
from odin.testing import ScriptedServer, call, say

TODOS = [
    {"id": "1", "content": "Find out why", "status": "completed"},
    {"id": "2", "content": "Fix the total", "status": "completed"},
    {"id": "3", "content": "Write a test", "status": "in_progress"},
]
TEST = "from cart import discount, total\n\n\ndef test_four_books():\n    assert total([Book(10)] * 4) == 38.52\n"


async def take(page: Page, name: str, width: int, height: int, scheme: str) -> None:
    await page.set_viewport_size({"width": width, "height": height})
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    await page.wait_for_timeout(400)
    await page.screenshot(path=PICTURES / f"{name}.png")


async def open_page(served: Served, session: str, page: Page) -> None:
    code = served.store.create_code("approve", "browser").text
    await page.goto(f"{served.url}/#{code}")
    await page.get_by_role("heading", name="Sessions").wait_for()
    await page.goto(f"{served.url}/#/s/{session}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "bookshop"
        project.mkdir()
        (project / "cart.py").write_text(CART)
        subprocess.run(["git", "init", "-qb", "main"], cwd=project, check=True)  # noqa: ASYNC221
        script = [
            call("Read", {"file_path": str(project / "cart.py")}, id="c1"),
            call("TodoWrite", {"todos": TODOS}, id="c2"),
            call("Edit", {"file_path": str(project / "cart.py"), "old_string": OLD, "new_string": NEW}, id="c3"),
            say(ANSWER),
            call("Write", {"file_path": str(project / "test_cart.py"), "content": TEST}, id="c4"),
            say("The test is there."),
        ]
        with ScriptedServer(script) as model:
            async with serve(model, project) as served, async_playwright() as player:
                browser = await player.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
                page = await browser.new_page(device_scale_factor=1.5)
                session = await served.open()
                await open_page(served, session, page)
                await served.submit("approve", session, Prompt("p1", TASK, "edit_mode"))
                await served.wait_until(session, idle=False)
                await page.get_by_role("button", name="Allow once").wait_for()
                await take(page, "page-360-request", 360, 740, "light")
                await page.get_by_role("button", name="Allow once").click()
                await served.wait_until(session)
                await take(page, "page-360-light", 360, 740, "light")
                await take(page, "page-360-dark", 360, 740, "dark")
                await take(page, "page-768-light", 768, 1024, "light")
                await served.submit("approve", session, Prompt("p2", "Now the test.", "edit_mode"))
                await served.wait_until(session, idle=False)
                await page.get_by_role("button", name="Allow once").wait_for()
                await take(page, "page-768-dark", 768, 1024, "dark")
                await take(page, "page-1440-light", 1440, 900, "light")
                await take(page, "page-1440-dark", 1440, 900, "dark")
                await browser.close()


asyncio.run(main())
