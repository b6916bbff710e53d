"""What the page is made of: small, from this server alone, and as strict as browsers allow."""

import json
import re
from pathlib import Path

from playwright.async_api import expect

from odin.server.page.files import STATIC
from odin.testing import ScriptedServer, say
from tests.page.conftest import OpenStage, OpenVisit, play
from tests.page.routes import read_state
from tests.page.samples import make_blocks
from tests.server.served import serve
from tests.waiting import until

MAX_BYTES = 200_000


def test_the_files_are_small_and_have_no_inline_code() -> None:
    files = [path for path in STATIC.rglob("*") if path.is_file() and not path.name.startswith("LICENSE")]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES, {path.name: path.stat().st_size for path in files}
    index = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", index) == []
    scripts = "".join(path.read_text() for path in files if path.suffix == ".js" and path.parent == STATIC)
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", scripts) == []
    vendored = [path.stem for path in (STATIC / "vendor").glob("*.js")]
    assert vendored == [] or list((STATIC / "vendor").glob("LICENSE*"))


async def test_the_headers_keep_everything_foreign_out(workspace: Path) -> None:
    with ScriptedServer() as model:
        async with serve(model, workspace) as served:
            manifest = json.loads((STATIC / "manifest.webmanifest").read_text())
            assert manifest["name"] and manifest["start_url"] and manifest["display"] == "standalone"
            sizes = {icon["sizes"] for icon in manifest["icons"]}
            assert sizes == {"any", "192x192"}
            for icon in manifest["icons"]:
                found = await served.ask("", "GET", f"/page/{icon['src']}")
                assert found.status_code == 200 and found.headers["content-type"] == icon["type"], icon
            page = await served.ask("", "GET", "/")
            linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
            for path in ("", *linked):
                found = await served.ask("", "GET", f"/{path}")
                assert found.status_code == 200, path
                policy = dict(part.split(" ", 1) for part in found.headers["content-security-policy"].split("; "))
                assert policy["default-src"] == "'none'" and policy["script-src"] == policy["connect-src"] == "'self'"
                assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
                assert policy["require-trusted-types-for"] == "'script'"
                assert "unsafe" not in str(policy) and "*" not in str(policy)
                assert found.headers["x-content-type-options"] == "nosniff"
                assert found.headers["referrer-policy"] == "no-referrer"
            again = await served.ask("", "GET", "/", headers={"if-none-match": page.headers["etag"]})
            assert again.status_code == 304
            assert (await served.ask("", "GET", "/page/../view.py")).status_code in (401, 404)


_TRY_TO_RUN = """() => {
    const refused = [];
    const script = document.createElement('script');
    const link = document.createElement('a');
    try { script.textContent = 'owned = 1'; document.body.append(script); } catch { refused.push('script'); }
    try { document.body.innerHTML += '<img src=x onerror="owned = 2">'; } catch { refused.push('markup'); }
    Object.assign(link, {id: 'link', href: 'javascript:void (globalThis.owned = 3)', textContent: 'x'});
    document.body.append(link);
    return refused;
}"""


async def test_the_policy_is_in_force(open_stage: OpenStage) -> None:
    async with open_stage() as stage:
        visit = stage.visit
        assert await visit.page.evaluate(_TRY_TO_RUN) == ["script", "markup"]
        await visit.page.locator("#link").dispatch_event("click")
        await expect(visit.page.get_by_role("heading", level=1)).to_be_visible()
        assert await visit.page.evaluate("globalThis.owned ?? 0") == 0
        assert visit.problems != []
        visit.problems.clear()


async def test_the_page_works_below_a_base_path(open_visit: OpenVisit, workspace: Path) -> None:
    with ScriptedServer(play([say("Below.")])) as model:
        async with serve(model, workspace) as served:
            served.application._base = "/tools/odin"
            url = f"{served.url}/tools/odin"
            async with open_visit(url) as visit:
                answer = await visit.page.goto(url)  # without a slash at the end
                assert answer is not None and answer.status == 200, answer
                assert visit.page.url.startswith(f"{url}/")
                visit.requests.remove(url)
                await visit.pair(served.store)
                await visit.press("New session")
                await visit.send("Where are you?")
                await visit.shows("Below.")
                keys = await visit.page.evaluate("Object.keys(localStorage).filter((key) => key.includes('token'))")
                assert keys == ["odin:token:/tools/odin/"]
                await visit.page.reload()
                await expect(visit.block("answer")).to_contain_text("Below.")


_TELL = """globalThis.ask = fetch;
globalThis.fetch = (address, options) => String(address).includes('/view') ? Promise.resolve(new Response(
    new ReadableStream({start: (stream) => {
        globalThis.tell = (name, data) => stream.enqueue(
            new TextEncoder().encode(`event: ${name}\\ndata: ${JSON.stringify(data)}\\n\\n`));
    }}))) : ask(address, options);"""


async def test_the_first_blocks_are_shown_without_a_change_of_the_state(open_stage: OpenStage) -> None:
    """The state that a page is told may be ahead of the events."""
    async with open_stage() as stage:
        visit = stage.visit
        state = await read_state(stage.served, stage.session)
        await visit.context.add_init_script(_TELL)
        await visit.page.reload()
        await until(lambda: visit.page.evaluate("'tell' in globalThis"))
        await visit.page.evaluate("state => tell('start', {first: 0, blocks: [], state})", state)
        await visit.shows("Describe a task.")
        blocks = make_blocks(lambda name: f"The {name}.")
        await visit.page.evaluate("blocks => tell('change', {splice: [[0, 0, blocks]]})", blocks)
        await expect(visit.block("prompt").first).to_be_visible()
