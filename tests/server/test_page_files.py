"""The files of the page: public, compressed, and with a policy that lets them load nothing else."""

import gzip
import re
from pathlib import Path

from odin.core.event import Envelope, SessionOpened, TurnStarted
from odin.core.message import Image
from odin.session.store import SessionStore
from odin.testing import ScriptedServer
from tests.pictures import png
from tests.server.served import serve


async def test_files_are_public_and_can_load_nothing_else(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            page = await served.ask("", "GET", "/")
            assert page.headers["content-type"].startswith("text/html")
            linked = re.findall(r'(?:src|href)="(page/[^"]+)"', page.text)
            assert linked and not re.search(r"https?://|<script>|\sstyle=|\son\w+=", page.text)
            for path in ("", *linked):
                got = await served.ask("", "GET", f"/{path}")
                policy = got.headers["content-security-policy"]
                assert got.status_code == 200 and "default-src 'none'" in policy and "unsafe" not in policy, path
                again = await served.ask("", "GET", f"/{path}", headers={"if-none-match": got.headers["etag"]})
                assert (again.status_code, again.content) == (304, b""), path
            plain = await served.ask("", "GET", "/page/main.js", headers={"accept-encoding": "identity"})
            packed = await served.send_raw(
                f"GET /page/main.js HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
                "Accept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode()
            )
            head, _, body = packed.partition(b"\r\n\r\n")
            assert b"content-encoding: gzip" in head and gzip.decompress(body) == plain.content


async def test_other_paths_are_not_found(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            for path in ("nothing", "page", "page/", "page/vendor", "page//main.js", "main.js", "page/%2e%2e/view.py"):
                assert (await served.ask("", "GET", f"/{path}")).status_code == 401, path
                got = await served.ask("view", "GET", f"/{path}")
                assert (got.status_code, got.json()["kind"]) == (404, "SessionNotFound"), path


async def test_a_page_below_a_path_has_a_folder(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            served.application._base = "/odin"
            got = await served.ask("", "GET", "/odin", follow_redirects=False)
            assert (got.status_code, got.headers["location"]) == (308, "/odin/")
            assert (await served.ask("", "GET", "/odin/")).text.startswith("<!doctype html>")
            assert (await served.ask("", "GET", "/odin/page/main.js")).status_code == 200


async def test_an_image_is_read_only_from_the_folder_of_its_session(workspace: Path, tmp_path: Path) -> None:
    """The log of a session that somebody else has made may name any file."""
    outside = tmp_path / "secret.png"
    outside.write_bytes(png(2, 2))
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            log = SessionStore(served.store._path.parent.parent, str(workspace)).create(str(workspace), "made")
            folder = log.path.parent
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "own.png").write_bytes(png(3, 3))
            images = tuple(Image(str(path), "image/png") for path in (folder / "own.png", outside))
            events = (SessionOpened(str(workspace), "x/y", "0"), TurnStarted("p1", "look", "edit_mode", images=images))
            for seq, event in enumerate(events):
                log.append(Envelope(seq, 1.0, "made", event))
            log.close()
            own = await served.ask("view", "GET", "/sessions/made/image?block=p1")
            assert (own.status_code, own.headers["content-type"], own.content) == (200, "image/png", png(3, 3))
            got = await served.ask("view", "GET", "/sessions/made/image?block=p1&index=1")
            assert got.status_code == 400 and got.json()["error"] == "The file of this image is gone."


BROWSERS = {
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0 Safari/537.36": "Chrome on Linux",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) AppleWebKit/605 FxiOS/130.0 Safari/605": "Firefox on iPhone",
    "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/130.0 Safari/537.36 Edg/130.0": "Edge on Windows",
}


async def test_a_browser_is_named_by_what_it_says_of_itself(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            for agent, name in BROWSERS.items():
                code = {"code": served.store.create_code("view").text}
                paired = await served.ask("", "POST", "/pair", code, headers={"user-agent": agent})
                assert paired.json()["name"] == name
