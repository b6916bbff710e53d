"""Who may do what on the page, and what it says to the others; where the token is, and where not."""

import re
from pathlib import Path

from playwright.async_api import expect

from odin.core.op import Answer, Prompt
from odin.testing import ScriptedServer, call, say
from tests.page.conftest import OpenStage, OpenVisit, log_in, play
from tests.server.served import serve

WRITE = (call("WriteFile", {"path": "a.txt", "content": "one\n"}, id="c1"), say("Written."))


async def test_the_token_is_in_no_address_and_the_code_leaves_it(open_stage: OpenStage) -> None:
    async with open_stage([say("Yes.")]) as stage:
        visit = stage.visit
        await visit.send("Hello.")
        await visit.shows("Yes.")
        token = await visit.page.evaluate("Object.values(localStorage).find((text) => text.startsWith('odin_'))")
        assert {text for text in visit.authorized if text.strip() != "Bearer"} == {f"Bearer {token}"}
        assert [url for url in visit.requests if token in url] == []
        codes = [url for url in visit.requests if re.search(r"[A-Z0-9]{4}-?[A-Z0-9]{4}$", url)]
        assert [url for url in codes if "/#" not in url] == []  # the fragment does not leave the browser
        assert await visit.page.evaluate("document.cookie") == ""
        await visit.page.go_back()
        await expect(visit.page.get_by_role("heading", name="Sessions")).to_be_visible()
        history = await visit.page.evaluate("[location.href, document.referrer]")
        assert not re.search("[A-Z0-9]{8}|odin_", str(history))
        log = stage.served.log.read_text()
        assert token not in log


async def test_who_may_prompt_but_not_approve_sees_requests_without_answers(open_stage: OpenStage) -> None:
    async with open_stage(WRITE, right="prompt") as stage:
        visit = stage.visit
        await visit.send("Write it.")
        await visit.shows("a.txt", "one", "Only a client that may approve can answer.", place=visit.request)
        await expect(
            visit.request.get_by_role("button", name=re.compile("Allow|Deny|Edit|More|session"))
        ).to_have_count(0)
        await visit.page.keyboard.press("y")
        shot = await stage.served.wait_until(stage.session, idle=False)
        [asked] = shot["interactions"]
        await stage.served.submit("approve", stage.session, Answer(asked["id"], "allow_once"))
        await visit.shows("Written.")
        await expect(visit.request).to_have_count(0)
        await visit.shows("may approve", place=visit.toasts)  # who answered
        await visit.command("/permissions")
        await visit.shows("needs the right to approve", place=visit.toasts)


async def test_who_may_view_has_no_composer(open_stage: OpenStage) -> None:
    async with open_stage(WRITE, right="view") as stage:
        visit = stage.visit
        await stage.served.submit("prompt", stage.session, Prompt("p1", "Write it."))
        await visit.shows("Only a client that may approve can answer.", place=visit.request)
        await expect(visit.page.get_by_text("You can watch this session, but not write in it.")).to_be_visible()
        await expect(visit.prompt).to_have_count(0)
        await expect(visit.button(re.compile("New session|Stop|Send|Allow"))).to_have_count(0)
        await visit.press("Menu")
        await expect(visit.option("Usage")).to_be_visible()
        await expect(visit.option(re.compile("Rename|Delete|Rewind|copy"))).to_have_count(0)
        [asked] = (await stage.served.wait_until(stage.session, idle=False))["interactions"]
        await stage.served.submit("approve", stage.session, Answer(asked["id"], "deny"))
        await visit.shows("Written.")
        await visit.page.goto(f"{visit.url}/#/")
        await expect(visit.page.get_by_role("list", name="Sessions").get_by_role("listitem")).to_have_count(1)
        await expect(visit.button(re.compile("New session|Actions"))).to_have_count(0)


async def test_a_revoked_token_ends_at_the_pairing_form(open_stage: OpenStage) -> None:
    async with open_stage([say("Yes.")]) as stage:
        visit = stage.visit
        await visit.send("Hello.")
        await visit.shows("Yes.")
        stage.served.store.revoke("approve browser")
        await visit.send("Still here?")
        await expect(visit.page.get_by_role("heading", name="Pair this browser")).to_be_visible()
        await expect(visit.page.get_by_role("main")).to_contain_text("revoked")
        await expect(visit.page.get_by_text("Yes.")).to_have_count(0)
        assert (
            await visit.page.evaluate("Object.values(localStorage).some((text) => text.startsWith('odin_'))") is False
        )
        await log_in(visit, stage.served)
        await expect(visit.page.get_by_role("link", name=re.compile("Hello"))).to_be_visible()


async def test_a_wrong_code_is_refused_with_a_sentence(open_visit: OpenVisit, workspace: Path) -> None:
    with ScriptedServer(play([])) as model:
        async with serve(model, workspace) as served, open_visit(served.url) as visit:
            used = served.store.create_code("view").text
            served.store.redeem(used, "another", "127.0.0.1")
            await visit.page.goto(f"{served.url}/#{used}")
            alert = visit.page.get_by_role("alert")
            await expect(alert).to_contain_text("mistyped, was used already, or has expired")
            await expect(alert).to_contain_text("odin pair")
            assert used not in visit.page.url
            code = visit.page.get_by_label("Code", exact=True)
            await visit.hand.send(code, "ABC", "Pair")
            await expect(alert).to_contain_text("eight letters and digits")
            await visit.hand.send(code, "AAAA-AAAA", "Pair")
            await expect(alert).to_contain_text("mistyped")
            fresh = served.store.create_code("view").text
            await visit.hand.send(code, fresh.lower(), "Pair")
            await expect(visit.page.get_by_role("heading", name="Sessions")).to_be_visible()
            names = [one.name for one in served.store.list_tokens()]
            assert any("Chrome" in name for name in names), names


async def test_an_unknown_session_is_explained(open_stage: OpenStage) -> None:
    async with open_stage([say("Yes.")]) as stage:
        visit = stage.visit
        await visit.page.goto(f"{visit.url}/#/s/20200101000000000")
        await expect(visit.page.get_by_role("alert")).to_contain_text(re.compile("session", re.IGNORECASE))
        await visit.hand.press(visit.page.get_by_role("link", name="All sessions"))
        await expect(visit.page.get_by_role("heading", name="Sessions")).to_be_visible()
