"""Whatever a model, a tool, a file or another client says is text on the page, in every place that shows it."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from odin.testing import call, say
from tests.page.conftest import OpenStage, Stage
from tests.page.routes import change_answers, give_answers, read_state, show_view
from tests.page.samples import Raw, fill_state, make_blocks, make_requests
from tests.page.visit import Visit

pytestmark = pytest.mark.slow

EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)></svg></title></textarea></script>"
    "<iframe src=javascript:alert(4)></iframe><b class=evil>evil</b>[x](javascript:alert(5)) ![p](http://evil.test/p.png)"
    " <a href=http://evil.test>a</a> <javascript:alert(6)> ${alert(7)} {{alert(8)}} &lt;b&gt; __proto__ \u202ecod.exe"
)
BAD = (
    "script:not([src]), iframe, object, embed, .evil, [onerror], [onload], [srcdoc], a[href^='javascript'], [src*=evil]"
)
KEPT = frozenset(
    ("id", "key", "kind", "type", "session", "choice", "choices", "scope", "format", "digest", "use", "path_id")
)
"""Fields that are for the page itself: it shows none of them."""


class Poison:
    """Makes hostile texts, each with a mark of its own, and finds the marks that are on the page."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}

    def text(self, name: str) -> str:
        mark = f"mark{len(self.marks)}z"
        self.marks[mark] = name
        return f"{mark} {EVIL}"

    def spoil(self, value: Any, name: str = "") -> Any:
        """Return JSON with a hostile text in place of each text that is not for the page itself."""
        if isinstance(value, str):
            return self.text(name) if name.rpartition(".")[2] not in KEPT else value
        if isinstance(value, list):
            return [self.spoil(item, name) for item in value]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, dict):
            return {key: self.spoil(item, f"{name}.{key}") for key, item in value.items()}  # pyright: ignore
        return value

    async def list_shown(self, visit: Visit) -> set[str]:
        """Return the names of the texts that are on the page. None of them must have become anything else."""
        assert await visit.page.locator(BAD).count() == 0
        assert await visit.page.evaluate("document.title.includes('<') || document.scripts.length === 2")
        words = await visit.page.evaluate(
            "[...document.body.textContent.matchAll(/mark\\d+z(?= <script>alert\\(1\\))/g)].map((found) => found[0])"
        )
        return {self.marks[mark] for mark in words}


async def unfold_all(visit: Visit) -> None:
    """Press O, which folds all cards, or unfolds them."""
    await visit.page.keyboard.press("Alt+ArrowUp")
    folded = visit.conversation.locator("[aria-expanded=false]")
    for _ in range(2):
        await visit.page.keyboard.press("Shift+O")
        await visit.page.evaluate("new Promise(requestAnimationFrame)")
        if not await folded.count():
            return
    await expect(folded).to_have_count(0)


async def make_hostile(stage: Stage, poison: Poison, request: str = "") -> Raw:
    """Show a session full of hostile texts, with this request."""
    asked = [make_requests(poison.text)[request]] if request else []
    state = fill_state(await read_state(stage.served, stage.session), poison.text, asked)
    await show_view(stage.visit, make_blocks(poison.text), state)
    await stage.visit.page.reload()
    await expect(stage.visit.block("prompt").first).to_be_visible()
    return state


async def test_a_session_full_of_hostile_texts(open_stage: OpenStage) -> None:
    poison = Poison()
    async with open_stage() as stage:
        visit = stage.visit
        await make_hostile(stage, poison)
        await unfold_all(visit)
        await expect(visit.block("summary")).to_contain_text("alert(1)")
        shown = await poison.list_shown(visit)
        missing = set(poison.marks.values()) - shown
        # What another sheet shows, what the shown one replaces, and what is never shown.
        assert missing <= {
            *(
                "state warning",
                "outcome",
                "agent's model",
                "type",
                "task id",
                "process state",
            ),
            *("running command", "url", "agent type", "agent model", "image name", "busy doing", "doing", "agent task"),
        }, missing
        assert "alert" in await visit.page.title()
        for command in ("/errors", "/agents", "/ps", "/contents"):
            await visit.command(command)
            await expect(visit.page.get_by_role("dialog")).to_contain_text("alert(1)")
            assert await poison.list_shown(visit)
            await visit.page.keyboard.press("Escape")


@pytest.mark.parametrize("kind", ["permission", "effects", "questions", "elicitation", "plan"])
async def test_hostile_requests(kind: str, open_stage: OpenStage) -> None:
    poison = Poison()
    async with open_stage() as stage:
        visit = stage.visit
        await make_hostile(stage, poison, kind)
        await expect(visit.request).to_be_visible()
        await visit.shows("alert(1)", place=visit.request)
        await poison.list_shown(visit)
        # Nothing hides in what somebody approves, and a name cannot be turned around.
        shown = await visit.request.inner_text()
        if kind == "plan":
            return
        assert "\u202e" not in shown and "\\u202e" in shown
        if kind in ("permission", "effects"):
            await expect(visit.request).to_be_focused()
            await visit.page.keyboard.press("v")
            rule = visit.request.get_by_label("Allow and save this rule")
            for _ in range(30):  # until all of it was seen
                await visit.page.keyboard.press("s")
                await visit.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
                if await rule.count():
                    break
            await expect(rule).to_have_value("Bash(other)")  # not the one with hidden characters
            await poison.list_shown(visit)


async def test_hostile_answers_of_the_server(open_stage: OpenStage) -> None:
    poison = Poison()
    async with open_stage([call("WriteFile", {"path": "a.txt", "content": "x"}), say("Done.")]) as stage:
        visit = stage.visit
        await visit.send("Write.")
        await visit.answer("Allow once", "y")
        await visit.shows("Done.")
        await visit.finish()
        for name in ("models", "complete", "changes", "snapshot", "rewind", "commands"):
            await change_answers(visit, f"**/sessions/*/{name}*", lambda found, name=name: poison.spoil(found, name))
        await give_answers(visit, "**/command", {"text": f"{poison.text('report')}\n" * 3, "mode": "edit_mode"})
        for command in ("/model", "/role", "/context", "/diff", "/rewind", "/cost"):
            await visit.hand.write(visit.prompt, command)
            await expect(visit.page.get_by_role("listbox")).to_be_visible()
            await visit.page.keyboard.press("Escape")
            await visit.page.keyboard.press("Enter")
            await expect(visit.page.get_by_role("dialog"), command).to_contain_text("alert(1)")
            assert await poison.list_shown(visit)
            await visit.page.keyboard.press("Escape")
        await change_answers(visit, "**/sessions/*/complete*", lambda found: poison.spoil(found, "complete"))
        await visit.hand.write(visit.prompt, "/h")
        await expect(visit.page.get_by_role("listbox")).to_contain_text("alert(1)")
        assert await poison.list_shown(visit)
        await visit.page.keyboard.press("Escape")
        await give_answers(visit, "**/ops", {"error": poison.text("refusal"), "hint": poison.text("tip")}, 400)
        await visit.send("Refuse this.")
        await expect(visit.toasts).to_contain_text("alert(1)")
        assert await poison.list_shown(visit) >= {"refusal", "tip"}


async def test_hostile_sessions_and_a_hostile_shared_page(open_stage: OpenStage) -> None:
    poison = Poison()
    async with open_stage([say("Yes.")]) as stage:
        visit = stage.visit
        await visit.send("Hello.")
        await visit.shows("Yes.")

        def spoil(found: Any) -> Any:
            return [poison.spoil(one, "sessions") | {"id": one["id"], "modified": one["modified"]} for one in found]

        await change_answers(visit, "**/sessions", spoil)
        await change_answers(visit, "**/sessions/*/preview*", lambda found: poison.spoil(found, "preview"))
        await change_answers(visit, "**/sessions/*/search*", lambda found: poison.spoil(found, "search"))
        await visit.hand.press(visit.page.get_by_role("link", name="All sessions"))
        await expect(visit.page.get_by_label("Preview")).to_contain_text("alert(1)")
        await expect(visit.page.get_by_label("Preview").locator(".exchange")).to_contain_text("alert(1)")
        shown = await poison.list_shown(visit)
        assert {"sessions.title", "sessions.cwd", "preview.exchanges.prompt", "preview.exchanges.answer"} <= shown
        await visit.hand.press(visit.button("Settings"))
        await visit.page.keyboard.press("Escape")

        shared = {"title": poison.text("shared title"), "created": 1, "expires": 0, "cwd": poison.text("shared folder")}
        shared |= {"model": f"x/{poison.text('shared model')}", "first": 0, "blocks": make_blocks(poison.text)}
        await give_answers(visit, "**/shared", shared)
        await visit.page.goto(f"{visit.url}/#share/abc/def")
        await expect(visit.page.locator("[data-block=answer]")).to_contain_text("alert(1)")
        assert {"shared title", "answer", "prompt", "error"} <= await poison.list_shown(visit)
        await visit.context.unroute("**/shared")
        await give_answers(visit, "**/shared", {"error": poison.text("why not"), "hint": ""}, 403)
        await visit.page.goto(f"{visit.url}/#share/abc/other")
        await expect(visit.page.get_by_role("alert")).to_contain_text("alert(1)")
        assert await poison.list_shown(visit) == {"why not"}


async def test_hostile_texts_from_end_to_end(open_stage: OpenStage, workspace: Path) -> None:
    """The same through the server, with the characters that it removes: terminal escapes and direction changes."""
    evil = f"{EVIL} \x1b[31mred\x1b]0;owned\x07 \u202egnp.exe\u2066 tags\U000e0041"
    name = "a <img src=x onerror=alert(1)>.txt"
    (workspace / name).write_text(evil)
    todos = [{"id": "1", "content": evil, "status": "pending"}]
    question = {"header": "Way", "text": evil, "options": [{"label": evil[:60]}, {"label": "right", "detail": evil}]}
    turns = [
        call("Read", {"path": name}, id="c1", text=evil),
        call("TodoWrite", {"todos": todos}, id="c2"),
        call("Question", {"questions": [question]}, id="c3"),
        call("WriteFile", {"path": name, "content": f"{evil} again"}, id="c4"),
        say(evil, thinking=evil),
    ]
    async with open_stage(turns) as stage:
        visit = stage.visit
        await visit.hand.write(visit.prompt, EVIL.replace("\u202e", ""))
        await visit.page.keyboard.press("Enter")
        await visit.shows("alert(1)", place=visit.request)
        await check_texts(visit)
        await visit.hand.press(visit.request.get_by_role("radio", name="right"))
        await visit.press("Answer")
        await expect(visit.request).to_have_attribute("data-kind", "permission")
        await check_texts(visit)
        await visit.answer("Allow once", "y")
        await expect(visit.block("answer").last).to_contain_text("alert(1)")
        await visit.finish()
        await unfold_all(visit)
        await expect(visit.block("reasoning")).to_contain_text("alert(1)")
        await check_texts(visit)
        await stage.served.ask("approve", "POST", f"/sessions/{stage.session}/title", {"title": f"mine {EVIL}"})
        await expect(visit.page.get_by_role("heading", level=1)).to_contain_text("mine <script>")
        await check_texts(visit)


async def check_texts(visit: Visit) -> None:
    assert await visit.page.locator(BAD).count() == 0
    text: str = await visit.page.evaluate("document.body.textContent")
    found = re.search("[\x1b\x07\u202e\u2066\U000e0000-\U000e0fff]", text)
    assert not found, repr(text[max(found.start() - 100, 0) : found.start() + 40])
