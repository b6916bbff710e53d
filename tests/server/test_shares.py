"""Shared sessions: who may read a copy and for how long, what is on the disk, and the public endpoint."""

import asyncio
import gc
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from odin.app.shared_copy import copy_session
from odin.config.paths import get_state_dir, make_environment
from odin.core.call_events import Replied, ToolEnded, ToolStarted
from odin.core.errors import ConfigError, UsageError
from odin.core.event import SessionOpened, TurnEnded, TurnStarted
from odin.core.message import Image, ReplyMessage, Text, ToolCall
from odin.core.timing import Timing
from odin.host.stored_sessions import ProjectSessions
from odin.remote.protocol import ENDPOINTS
from odin.server.guard import TooManyRequests
from odin.server.shares import MAX_SHARES, NewShare, ShareRefused, ShareStore
from odin.session.store import SessionStore
from odin.testing import ScriptedServer
from tests.pictures import png
from tests.server.served import serve
from tests.session.logs import turn
from tests.shared_sessions import SECRETS, list_full_events, make_text, plant_secrets, write_log

UNKNOWN = "There is no such share, or it was revoked."
DAY = 86_400.0


class SetClock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(clock: SetClock) -> ShareStore:
    return open_store(clock)


def open_store(clock: SetClock) -> ShareStore:
    return ShareStore(get_state_dir(os.environ), Timing(clock=clock, monotonic=clock))


def share_session(
    store: ShareStore, workspace: Path, text: str = "hello", *, ttl: float = DAY, keep: bool = False
) -> NewShare:
    log = write_log(workspace, [SessionOpened(str(workspace), "test/model", "1"), *turn("t1", text)])
    return share_log(store, workspace, log, ttl=ttl, keep=keep)


def share_log(store: ShareStore, workspace: Path, log: Path, *, ttl: float = DAY, keep: bool = False) -> NewShare:
    copy = copy_session(log, make_environment(os.environ, str(workspace)), with_images=True)
    return store.create(log, copy.review.title, copy.list_files(), ttl=ttl, is_kept=keep)


def refuse(store: ShareStore, share: str, secret: str) -> str:
    with pytest.raises(ShareRefused) as caught:
        store.open(share, secret, "10.0.0.1")
    return str(caught.value)


def delete_session(workspace: Path, session: str) -> None:
    ProjectSessions(SessionStore(get_state_dir(os.environ), str(workspace))).delete(session)


def test_a_link_opens_its_own_share(store: ShareStore, workspace: Path, clock: SetClock) -> None:
    first, second = share_session(store, workspace), share_session(store, workspace)
    assert len(first.secret) == 22
    assert first.fragment == f"share/{first.record.id}/{first.secret}"
    opened = store.open(first.record.id, first.secret, "10.0.0.1")
    assert "hello" in (opened.folder / "main.jsonl").read_text()
    clock.now += 600
    for name, secret in (
        (second.record.id, first.secret),
        (first.record.id, second.secret),
        (first.record.id, ""),
        (first.record.id, first.record.digest),
        ("", first.secret),
        (f"../shares/{first.record.id}", first.secret),
        (f"{first.record.id}/", first.secret),
        ("\udcff", "\udcff"),
    ):
        assert refuse(store, name, secret) == UNKNOWN
        clock.now += 60
    (record, other) = store.list_shares()
    assert (record.opened, record.last_opened, other.opened) == (1, 1_000_000, 0)


def test_only_the_user_can_read_what_is_on_the_disk(store: ShareStore, workspace: Path) -> None:
    share = share_session(store, workspace)
    folder = get_state_dir(os.environ) / "shares"
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in paths} == {"shares.json", "shares.json.lock", "main.jsonl"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    assert stat.S_IMODE((folder / share.record.id).stat().st_mode) == 0o700
    assert all(share.secret not in path.read_text() for path in paths)


def test_a_share_expires_and_its_copy_is_removed(store: ShareStore, workspace: Path, clock: SetClock) -> None:
    share = share_session(store, workspace, ttl=DAY)
    folder = store.open(share.record.id, share.secret, "::1").folder
    clock.now += DAY - 1
    assert store.open(share.record.id, share.secret, "::1").folder == folder
    clock.now += 1
    assert refuse(store, share.record.id, "x") == UNKNOWN
    assert folder.exists(), "a wrong secret does nothing"
    assert refuse(store, share.record.id, share.secret).startswith("This share expired on ")
    assert not folder.exists()
    assert store.list_shares() == ()
    clock.now += 31 * DAY
    share_session(store, workspace)
    assert refuse(store, share.record.id, share.secret) == UNKNOWN


def test_listing_removes_what_has_expired(store: ShareStore, workspace: Path, clock: SetClock) -> None:
    kept, gone = share_session(store, workspace, ttl=9 * DAY), share_session(store, workspace)
    clock.now += DAY
    assert [item.id for item in store.list_shares()] == [kept.record.id]
    names = {path.name for path in (get_state_dir(os.environ) / "shares").iterdir() if path.is_dir()}
    assert names == {kept.record.id}
    assert gone.record.id not in names


def test_revoking(store: ShareStore, workspace: Path, clock: SetClock) -> None:
    shares = [share_session(store, workspace) for _ in range(4)]
    server = open_store(clock)
    folder = server.open(shares[0].record.id, shares[0].secret, "::1").folder
    assert store.revoke("nothing") == store.revoke("") == ()
    assert [item.id for item in store.revoke(shares[0].record.id)] == [shares[0].record.id]
    assert not folder.exists()
    assert refuse(server, shares[0].record.id, shares[0].secret) == UNKNOWN
    assert [item.id for item in store.revoke(shares[1].record.session)] == [shares[1].record.id]
    assert [item.id for item in store.revoke_all()] == [item.record.id for item in shares[2:]]
    assert refuse(server, shares[2].record.id, shares[2].secret) == UNKNOWN
    assert [path for path in (get_state_dir(os.environ) / "shares").iterdir() if path.is_dir()] == []


def test_a_deleted_session_ends_its_shares_unless_they_are_kept(store: ShareStore, workspace: Path) -> None:
    log = write_log(workspace, [SessionOpened(str(workspace), "test/model", "1"), *turn("t1", "hello")])
    bound, kept = share_log(store, workspace, log), share_log(store, workspace, log, keep=True)
    folder = store.open(bound.record.id, bound.secret, "::1").folder
    delete_session(workspace, log.parent.name)
    assert refuse(store, bound.record.id, bound.secret) == "This share ended when its session was deleted."
    assert not folder.exists()
    assert "hello" in (store.open(kept.record.id, kept.secret, "::1").folder / "main.jsonl").read_text()
    assert [item.id for item in store.list_shares()] == [kept.record.id]


def test_wrong_links_are_limited_and_readers_are_not_locked_out(
    store: ShareStore, workspace: Path, clock: SetClock
) -> None:
    share = share_session(store, workspace)
    for _ in range(5):
        assert refuse(store, share.record.id, "wrong") == UNKNOWN
    with pytest.raises(TooManyRequests):
        store.open(share.record.id, "wrong", "10.0.0.1")
    assert store.open(share.record.id, share.secret, "10.0.0.1").record.id == share.record.id
    for number in range(15):
        with pytest.raises(ShareRefused):
            store.open("unknown", "wrong", f"10.0.1.{number}")
    with pytest.raises(TooManyRequests):
        store.open("unknown", "wrong", "10.0.2.1")
    clock.now += 60
    assert refuse(store, share.record.id, "wrong") == UNKNOWN


def test_visits_of_one_share_are_limited(store: ShareStore, workspace: Path, clock: SetClock) -> None:
    share, other = share_session(store, workspace), share_session(store, workspace)
    for _ in range(60):
        store.open(share.record.id, share.secret, "::1")
    with pytest.raises(TooManyRequests):
        store.open(share.record.id, share.secret, "::1")
    store.open(other.record.id, other.secret, "::1")
    clock.now += 1
    store.open(share.record.id, share.secret, "::1")
    assert store.list_shares()[0].opened == 61


def test_a_damaged_file_shares_nothing(store: ShareStore, workspace: Path) -> None:
    share = share_session(store, workspace)
    (get_state_dir(os.environ) / "shares/shares.json").write_text("{")
    for use in (store.list_shares, store.revoke_all, lambda: store.open(share.record.id, share.secret, "::1")):
        with pytest.raises(ConfigError):
            use()


def test_the_number_of_shares_is_limited(store: ShareStore, workspace: Path) -> None:
    log = write_log(workspace, [SessionOpened(str(workspace), "test/model", "1"), *turn("t1", "hello")])
    for _ in range(MAX_SHARES):
        store.create(log, "t", [("main.jsonl", b"")], ttl=DAY)
    with pytest.raises(UsageError, match="There are 200 shares already"):
        store.create(log, "t", [("main.jsonl", b"")], ttl=DAY)


def test_links_that_have_ended_do_not_fill_the_file(store: ShareStore, workspace: Path, clock: SetClock) -> None:
    log = write_log(workspace, [SessionOpened(str(workspace), "test/model", "1"), *turn("t1", "hello")])
    first = store.create(log, "t", [("main.jsonl", b"")], ttl=DAY)
    last = first
    for _ in range(MAX_SHARES + 20):
        last = store.create(log, "t", [("main.jsonl", b"")], ttl=1)
        clock.now += 2
    saved = json.loads((get_state_dir(os.environ) / "shares/shares.json").read_text())
    assert len(saved["shares"]) == MAX_SHARES + 2
    assert [item.id for item in store.list_shares()] == [first.record.id]
    assert refuse(store, last.record.id, last.secret).startswith("This share expired on ")


def test_what_a_crash_leaves_behind_is_removed(store: ShareStore, workspace: Path) -> None:
    share_session(store, workspace)
    left = get_state_dir(os.environ) / "shares/deadbeef"
    left.mkdir()
    outside = workspace / "mine"
    outside.mkdir()
    (left.parent / "link").symlink_to(outside)
    share_session(store, workspace)
    assert not left.exists()
    assert outside.exists()


# --- the endpoint ---


async def read_share(served: Any, share: NewShare, **more: str) -> Any:
    body = {"id": share.record.id, "secret": share.secret, **more}
    return await served.ask("", "POST", "/shared", body)


async def test_anybody_with_the_link_reads_the_session(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            log = write_log(
                workspace,
                [
                    SessionOpened(str(workspace), "test/model", "1"),
                    TurnStarted("p1", "Mend it", "edit_mode", images=(Image("shot.png", "image/png", 3, 2),)),
                    Replied(ReplyMessage((Text("I look."), ToolCall("c1", "Read", {"file_path": "a.py"})))),
                    ToolStarted("c1", "Read", {"file_path": "a.py"}, "a.py"),
                    ToolEnded("c1", "Read", "success", "the \x1b[1mcontent\x1b[0m"),
                    Replied(ReplyMessage((Text("It is **mended**."),))),
                    TurnEnded("p1", "end_turn"),
                ],
            )
            (log.parent / "shot.png").write_bytes(png())
            share = share_log(served.shares, workspace, log)
            got = await read_share(served, share)
            assert (got.status_code, got.headers["cache-control"]) == (200, "no-store")
            page = got.json()
            assert {name: page[name] for name in ("title", "cwd", "model", "first")} == {
                "title": "Mend it",
                "cwd": str(workspace),
                "model": "test/model",
                "first": 0,
            }
            assert page["expires"] - page["created"] == DAY
            blocks = page["blocks"]
            assert [block["kind"] for block in blocks] == ["prompt", "answer", "call", "answer", "end"]
            assert (blocks[0]["text"], blocks[3]["text"]) == ("Mend it", "It is **mended**.")
            assert (blocks[2]["state"], blocks[2]["result"]) == ("success", "the content")
            (image,) = blocks[0]["images"]
            assert image["data"].startswith("iVBOR")
            assert str(log.parent) not in got.text
            assert (await read_share(served, share)).json() == page
            assert served.shares.list_shares()[0].opened == 2


async def test_no_secret_is_in_the_answer(workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in plant_secrets(home, workspace).items():
        monkeypatch.setenv(name, value)
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            log = write_log(workspace, list_full_events(make_text(home)))
            got = await read_share(served, share_log(served.shares, workspace, log))
            assert (got.status_code, "visible" in got.text) == (200, True)
            assert [secret for secret in (*SECRETS, str(home)) if secret in got.text] == []


async def test_a_link_gives_access_to_nothing_else(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            share = share_session(served.shares, workspace)
            for token in (share.secret, share.fragment, share.record.id):
                for endpoint in ENDPOINTS.values():
                    if endpoint.right is None:
                        continue
                    path = endpoint.path.replace("{session}", share.record.session)
                    got = await served.ask(token, endpoint.method, path, {} if endpoint.method == "POST" else None)
                    assert got.status_code in (401, 429), (endpoint.name, got.text)
            for method in ("GET", "PUT", "DELETE"):
                assert (await served.ask("", method, "/shared")).status_code == 401
            for path in ("/shared/", f"/shared/{share.record.id}", "/shares", "/shared?id=x"):
                got = await served.ask("", "POST", path, {})
                assert got.status_code in (400, 401), path


async def test_slow_readers_cost_no_memory(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            share = share_session(served.shares, workspace, "x" * 8_000_000)
            body = json.dumps({"id": share.record.id, "secret": share.secret})
            head = f"POST /shared HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: {len(body)}\r\n\r\n"
            writers: list[asyncio.StreamWriter] = []
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1000)
                writer.write(f"{head}{body}".encode())
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                writers.append(writer)
            ends = [item for item in gc.get_objects() if isinstance(item, asyncio.WriteTransport)]
            assert sum(end.get_write_buffer_size() for end in ends if not end.is_closing()) < 1_000_000
            for writer in writers:
                writer.transport.abort()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def test_bad_links_get_the_same_answer(workspace: Path) -> None:
    clock = SetClock()
    with ScriptedServer([]) as model:
        async with serve(model, workspace, timing=Timing(clock=clock, monotonic=clock)) as served:
            first, second = (share_session(served.shares, workspace) for _ in range(2))
            texts: set[str] = set()
            for name, secret in (
                (second.record.id, first.secret),
                (first.record.id, "A" * 22),
                ("../../server/access", first.secret),
                ("%2e%2e/x", first.secret),
                (first.record.id, first.record.digest),
                ("x" * 1000, "\0"),
            ):
                got = await read_share(served, first, id=name, secret=secret)
                assert got.status_code == 404
                texts.add(got.text)
                clock.now += 60
            assert [json.loads(text)["error"] for text in texts] == [UNKNOWN]
            for body, status in (
                (b"{}", 400),
                (b'{"id": 1, "secret": "x"}', 400),
                (b"[" * 5000, 400),
                (b'{"id": "' + b"x" * 20_000 + b'", "secret": ""}', 413),
            ):
                assert (await served.ask("", "POST", "/shared", body)).status_code == status
            for _ in range(5):
                assert (await read_share(served, first, secret="wrong")).status_code == 404
            assert (await read_share(served, first, secret="wrong")).status_code == 429
            assert (await read_share(served, first)).status_code == 200


async def test_ended_shares_say_why(workspace: Path) -> None:
    clock = SetClock()
    with ScriptedServer([]) as model:
        async with serve(model, workspace, timing=Timing(clock=clock, monotonic=clock)) as served:
            revoked, deleted, kept, expired = (
                share_session(served.shares, workspace, ttl=9 * DAY),
                share_session(served.shares, workspace, ttl=9 * DAY),
                share_session(served.shares, workspace, ttl=9 * DAY, keep=True),
                share_session(served.shares, workspace),
            )
            assert (await read_share(served, revoked)).status_code == 200  # and so it is cached
            served.shares.revoke(revoked.record.id)
            delete_session(workspace, deleted.record.session)
            delete_session(workspace, kept.record.session)
            clock.now += DAY
            said = [(await read_share(served, share)).json().get("error", "") for share in (revoked, deleted, kept)]
            assert said == [UNKNOWN, "This share ended when its session was deleted.", ""]
            assert (await read_share(served, expired)).json()["error"].startswith("This share expired on ")


async def test_a_client_that_deletes_a_session_removes_its_copy(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            share = share_session(served.shares, workspace)
            folder = served.shares.open(share.record.id, share.secret, "::1").folder
            got = await served.ask("approve", "DELETE", f"/sessions/{share.record.session}")
            assert (got.status_code, folder.exists()) == (200, False)


async def test_a_damaged_file_is_not_described_to_strangers(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            share = share_session(served.shares, workspace)
            (get_state_dir(os.environ) / "shares/shares.json").write_text("{")
            got = await read_share(served, share)
            assert (got.status_code, "shares.json" in got.text) == (404, False)


async def test_the_log_has_visits_but_no_links(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            share = share_session(served.shares, workspace)
            await read_share(served, share)
            await read_share(served, share, id="unknown")
            await served.ask("", "POST", f"/shared?secret={share.secret}", {})
            await served.ask("", "GET", f"/{share.fragment}")
            log = served.log.read_text()
            assert share.secret not in log + served.err.getvalue()
            assert f"shared 127.0.0.1 '{share.record.id}'" in log
            assert "refused 127.0.0.1 '' POST /shared 404" in log


async def test_pages_of_other_sites_cannot_read_a_share(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            share = share_session(served.shares, workspace)
            body = {"id": share.record.id, "secret": share.secret}
            for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
                assert (await served.ask("", "POST", "/shared", body, headers=headers)).status_code == 403
