"""Attacks on `odin serve`: who gets in, what a right allows, and what a hostile client or page can cause."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest

from odin.config import Options
from odin.core.client import SessionSummary
from odin.core.op import (
    Answer,
    AnswerPermission,
    ChangePrompt,
    ControlProcess,
    Interrupt,
    Op,
    Prompt,
    Redo,
    Rewind,
    SetLoop,
    SetTitle,
)
from odin.core.rights import OP_RIGHTS, RIGHTS, get_needed_right, has_right
from odin.host.manager import SessionManager
from odin.remote.protocol import ENDPOINTS, MAX_BODY_BYTES
from odin.server.http import HttpServer
from odin.testing import ScriptedServer, call, say
from tests.server.served import Served, serve
from tests.waiting import LIMIT_S, TimeLimit, until

NEVER = ("set-cookie", "access-control-allow-origin", "access-control-allow-headers", "location", "server")
UNKNOWN = "20200101000000000"


def list_requests(session: str) -> list[tuple[str, str]]:
    """Return method and path of every route but `POST /pair`."""
    return [
        (item.method, item.path.replace("{session}", session)) for item in ENDPOINTS.values() if item.right is not None
    ]


async def test_nothing_is_answered_without_a_valid_token(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            revoked = served.store.create_token("lost", "approve")
            expired = served.store.create_token("old", "approve", ttl=1e-9)
            served.store.revoke("lost")
            asked = [
                *list_requests(session),
                *(
                    ("GET", path)
                    for path in (
                        "/page",
                        "/page/",
                        "/page/../x",
                        "/page/nothing.js",
                        "/pair",
                        "/pair/",
                        "/openapi.json",
                        "/me/",
                        "//me",
                        "/%6De",
                        "/me%00",
                    )
                ),
                *((method, "/pair") for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD")),
                *((method, "/me") for method in ("HEAD", "OPTIONS", "PUT", "TRACE", "PROPFIND")),
            ]
            answers: dict[str, set[str]] = {}
            for name, token in (("", ""), ("wrong", "odin_wrong"), ("revoked", revoked), ("expired", expired)):
                for method, path in asked:
                    answer = await served.ask(token, method, path, b"{}" if method == "POST" else None)
                    assert answer.status_code == 401, (name, method, path)
                    assert not set(NEVER) & set(answer.headers), (name, method, path)
                    if method != "HEAD":
                        answers.setdefault(name, set()).add(answer.text)
            assert [len(texts) for texts in answers.values()] == [1] * 4, "it tells which routes there are"
            assert answers["wrong"] == answers["revoked"] == answers["expired"]
            for header in ("Basic odin", "Bearer", f"Token {served.tokens['view']}", served.tokens["view"]):
                got = await served.ask("", "GET", "/me", headers={"authorization": header})
                assert got.status_code == 401, header
            both = f"/me?token={served.tokens['view']}&access_token={served.tokens['view']}"
            assert (await served.ask("", "GET", both)).status_code == 401
            log = served.log.read_text()
            assert all(token not in log + served.err.getvalue() for token in (revoked, *served.tokens.values()))


async def test_a_damaged_file_of_tokens_is_not_described_to_strangers(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            served.store._path.write_text("{")
            got = await served.ask("approve", "GET", "/me")
            assert (got.status_code, "access.json" in got.text) == (401, False)


async def test_every_route_needs_its_right(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            for endpoint in ENDPOINTS.values():
                for right in RIGHTS:
                    if endpoint.right is None:
                        continue
                    body = b"[" if endpoint.method == "POST" else None
                    if has_right(right, endpoint.right):  # an unknown session, so that nothing happens
                        path = endpoint.path.replace("{session}", UNKNOWN)
                        got = await served.ask(right, endpoint.method, path, body)
                        assert got.status_code in (200, 400, 404), (endpoint.name, right, got.text)
                    else:
                        path = endpoint.path.replace("{session}", session)
                        got = await served.ask(right, endpoint.method, path, body)
                        assert (got.status_code, got.json()["kind"]) == (403, "Forbidden"), (endpoint.name, right)
            for new in ({"permission_mode": "bypassPermissions"}, {"role": "reviewer"}):
                assert (await served.ask("prompt", "POST", "/sessions", new)).status_code == 403, new
            role = {"plan": "", "role": "reviewer"}
            assert (await served.ask("prompt", "POST", f"/sessions/{session}/plan", role)).status_code == 403


def make_op(kind: type[Op]) -> Op:
    """Return an op of this kind with some value for each field that it needs."""

    def make(type_: Any) -> Any:
        if get_origin(type_) is Literal:
            return get_args(type_)[0]
        return {} if get_origin(type_) is dict else {str: "x", bool: False, int: 0, float: 1.0}.get(type_, ())

    fields = {item.name: make(item.type) for item in msgspec.structs.fields(kind) if item.required}
    return kind(**fields)


async def test_every_op_needs_its_right(workspace: Path) -> None:
    ops = [make_op(kind) for kind in OP_RIGHTS]
    ops += [Rewind("t", force=True), Redo(force=True), ControlProcess("open", "p", 1)]
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            for op in ops:
                for right in RIGHTS:
                    is_allowed = has_right(right, get_needed_right(op))
                    got = await served.submit(right, UNKNOWN if is_allowed else session, op)
                    assert got.status_code == (404 if is_allowed else 403), (op, right, got.text)


async def test_a_client_that_may_not_approve_cannot_pass_for_the_user(workspace: Path, tmp_path: Path) -> None:
    """Its prompts, and those that it changes, are marked and attach nothing outside the project."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the launch code")
    (workspace / "in.txt").write_text("public text")
    (workspace / "link.txt").symlink_to(secret)
    named = f"read @{secret} @link.txt @in.txt @../secret.txt"
    script = [call("Bash", {"command": "curl example.com"}), say("one"), say("two"), say("three")]
    with ScriptedServer(script) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            await served.submit("approve", session, Prompt("p1", "fetch"))
            shot = await served.wait_until(session, idle=False)
            await served.submit("approve", session, Prompt("p2", "harmless", delivery="queue"))
            got = await served.submit("prompt", session, ChangePrompt("p2", named, display_text="harmless"))
            assert got.json()["done"], got.text
            forged = AnswerPermission(shot["interactions"][0]["id"], False, by="hook")
            assert (await served.submit("prompt", session, forged)).status_code == 403
            assert (await served.submit("approve", session, forged)).json()["done"]
            await served.wait_until(session)
            files = [{"path": str(secret)}, {"path": "in.txt"}]
            op = {"type": "Prompt", "id": "p3", "text": named, "mode": "edit_mode", "attachments": files}
            op |= {"source": "user", "display_text": "hello"}
            body = {"id": "1", "op": op}
            assert (await served.ask("prompt", "POST", f"/sessions/{session}/ops", body)).json()["done"]
            await until(lambda: len(model.requests) >= 4)
            shot = await served.wait_until(session)
            sent = repr([request.body for request in model.requests])
            assert "public text" in sent
            assert "the launch code" not in sent
            turns = {turn["id"]: turn for turn in shot["messages"]}
            assert [(turns[name]["source"], turns[name]["body"]) for name in ("p2", "p3")] == [("channel", named)] * 2
            exported = (await served.ask("view", "GET", f"/sessions/{session}/export?form=json")).text
            assert "may approve" in exported
            assert "hook" not in {answer["by"] for answer in find_answers(served, session)}


def find_answers(served: Served, session: str) -> list[dict[str, Any]]:
    log, _ = served.sessions.locate(session)
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()[1:]]
    return [event for event in events if event["type"] == "PermissionAnswered"]


async def test_the_goal_of_a_loop_attaches_nothing_outside_the_project(workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the launch code")
    with ScriptedServer([say("one"), say("two"), say("three")]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            goal = f"read @{secret}\n@{secret} @../secret.txt"
            assert (await served.submit("prompt", session, SetLoop(True, goal, limit=2))).json()["done"]
            await until(lambda: len(model.requests) >= 2)
            await served.submit("prompt", session, Interrupt())
            await served.wait_until(session)
            assert "the launch code" not in repr([request.body for request in model.requests])


async def test_a_viewer_lists_no_folder_outside_the_project(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/private.txt").touch()
    (workspace / "mine.txt").touch()
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()

            async def find(right: str, words: str) -> list[str]:
                path = f"/sessions/{session}/files"
                got = await served.http.get(
                    f"{served.url}{path}",
                    params={"words": words, "limit": 10**9},
                    headers={"authorization": f"Bearer {served.tokens[right]}"},
                )
                return got.json()

            outside = ("../elsewhere/", "./../elsewhere/", f"{tmp_path}/elsewhere/", "~/")
            assert [await find("view", words) for words in outside] == [[]] * 4
            assert await find("view", "mine") == ["mine.txt"]
            assert await find("approve", "../elsewhere/") == ["../elsewhere/private.txt"]


# --- pages, and malformed requests ---


async def test_pages_and_names_of_others_get_nothing(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            own, bearer = f"Host: 127.0.0.1:{served.port}\r\n", f"Authorization: Bearer {served.tokens['approve']}\r\n"
            cases = [
                ("GET /me HTTP/1.1", own, 200),
                ("GET /me HTTP/1.1", "Host: rebound.example\r\n", 403),
                ("GET /me HTTP/1.1", f"Host: localhost:{served.port + 1}\r\n", 403),
                ("GET /me HTTP/1.1", "", 400),
                ("GET /me HTTP/1.1", own + own, 400),
                ("GET /me HTTP/1.1", f"{own}Host: rebound.example\r\n", 400),
                ("GET /me HTTP/1.0", own, 200),
                ("GET /me HTTP/1.0", "", 403),
                ("GET http://rebound.example/me HTTP/1.1", own, 404),
                ("GET http://rebound.example/me HTTP/1.1", "Host: rebound.example\r\n", 403),
                ("CONNECT rebound.example:80 HTTP/1.1", own, 404),
                ("GET /me HTTP/1.1", f"{own}Origin: null\r\n", 403),
                ("GET /me HTTP/1.1", f"{own}Origin: http://localhost:1\r\n", 403),
                ("GET /me HTTP/1.1", f"{own}Sec-Fetch-Site: cross-site\r\n", 403),
                ("POST /pair HTTP/1.1", f"{own}Origin: https://evil.example\r\nContent-Length: 2\r\n", 403),
                (
                    "OPTIONS /me HTTP/1.1",
                    f"{own}Origin: http://a.example\r\nAccess-Control-Request-Method: POST\r\n",
                    403,
                ),
                ("OPTIONS /me HTTP/1.1", own, 405),
                ("GET /me HTTP/1.1", f"{own}Connection: upgrade\r\nUpgrade: websocket\r\n", 200),
                ("GET /sessions HTTP/1.1", f"{own}X-Forwarded-Host: a\r\nX-Forwarded-For: 1.2.3.4\r\n", 200),
                ("POST /sessions HTTP/1.1", f"{own}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
                ("POST /sessions HTTP/1.1", f"{own}Content-Length: 3\r\nContent-Length: 4\r\n", 400),
                ("POST /sessions HTTP/1.1", f"{own}Transfer-Encoding: chunked, identity\r\n", 400),
                ("POST /sessions HTTP/1.1", f"{own}Content-Length: -1\r\n", 400),
                ("POST /sessions HTTP/1.1", f"{own}Content-Length : 3\r\n", 400),
                ("GET /me HTTP/1.1", f"{own}X: a\x00b\r\n", 400),
                ("GET /me\x0b HTTP/1.1", own, 400),
                ("nonsense", "", 400),
            ]
            for line, headers, status in cases:
                got = await served.send_raw(f"{line}\r\n{headers}{bearer}\r\n{{}}".encode())
                said = got.partition(b"\r\n\r\n")[0].decode().lower()
                assert said.startswith(f"http/1.1 {status} "), (line, headers, got)
                assert not any(f"\n{name}:" in said for name in NEVER), (line, headers, said)
            assert "1.2.3.4" not in served.log.read_text()


async def test_a_second_request_is_not_smuggled_in_the_first(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            head = f"Host: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.tokens['approve']}\r\n"
            inner = f"DELETE /sessions/{UNKNOWN} HTTP/1.1\r\n{head}\r\n"
            for framing in ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: xchunked\r\n"):
                data = f"POST /sessions HTTP/1.1\r\n{head}{framing}\r\n0\r\n\r\n{inner}"
                got = await served.send_raw(data.encode())
                assert b"HTTP/1.1 4" in got or b"HTTP/1.1 5" in got
            # A broken body after the answer has begun ends the connection, and prints nothing.
            refused = f"POST /sessions HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            problems: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
            writer.write(refused.encode())
            assert b" 401 " in await reader.readline()
            writer.write(b"no chunk\r\n")
            async with TimeLimit():
                with suppress(ConnectionError):
                    await reader.read()
            writer.close()
            assert problems == []


# --- what lies outside the roots ---


async def make_session(model: ScriptedServer, folder: Path, text: str) -> str:
    """Return a stored session of this folder, with one answered prompt."""
    options = Options(env={**os.environ, **model.env("anthropic")}, cwd=str(folder))
    client = await SessionManager().open(options)
    await client.submit(Prompt("p1", text))
    async with TimeLimit():
        while (shot := await client.snapshot()).executing or not shot.messages:
            await asyncio.sleep(0.01)
    await client.close()
    return shot.session


async def test_sessions_outside_the_roots_do_not_exist(workspace: Path, tmp_path: Path) -> None:
    other, linked = tmp_path / "other", workspace / "linked"
    other.mkdir()
    linked.symlink_to(other)
    with ScriptedServer([say("zebra"), say("mine")]) as model:
        hidden = await make_session(model, other, "zebra")
        own = await make_session(model, workspace, "mine")
        async with serve(model, workspace) as served:
            for method, path in list_requests(hidden):
                if "{session}" in path or hidden in path:
                    body = {"title": "x"} if path.endswith("/title") else {"id": "1", "op": {"type": "Redo"}}
                    body |= {
                        "key": "theme",
                        "value": "x",
                        "url": "http://x",
                        "type": "Rewind",
                        "turn": "t",
                        "line": "/x",
                    }
                    query = "?name=x&words=x&id=x&end=1&block=x&line=x&column=0" if method == "GET" else ""
                    got = await served.ask("approve", method, f"{path}{query}", None if method == "GET" else body)
                    assert got.status_code == 404, (method, path, got.text)
            assert [item["id"] for item in (await served.ask("view", "GET", "/sessions")).json()] == [own]
            for query in ("sessions", "search?words=zebra", "prompts", "usage?by=session", f"usage?session={hidden}"):
                got = await served.ask("view", "GET", f"/sessions/{own}/{query}")
                assert got.status_code == 200
                assert hidden not in got.text and "zebra" not in got.text, query
            for name in (hidden, hidden[:12], "zebra", f"../{other.name}/{hidden}", "..", "/", "%2e%2e", "*", ""):
                for query in ("find", "preview"):
                    got = await served.ask("view", "GET", f"/sessions/{own}/{query}", params={"name": name})
                    known = name and own.startswith(name)  # the same minute
                    assert got.status_code in (400, 404) or known, (query, name, got.text)
                    assert got.text.count(hidden) == name.count(hidden) and '"events"' not in got.text
            for name in ("..", "../sessions", "..%2f..", "%2e%2e%2f", "a%00b", "a%0ab", "*", "%E2%80%A8", "x" * 5000):
                got = await served.ask("approve", "DELETE", f"/sessions/{name}")
                assert got.status_code in (400, 404, 405), (name, got.text)
            outside = ("..", "../other", str(other), "linked", "a/../../other", "a\0b", "~", "/", "\ud800")
            for cwd in outside:
                got = await served.ask("approve", "POST", "/sessions", {"cwd": cwd})
                assert got.status_code == 400, (cwd, got.text)
            for plan in ("../../etc/passwd", "/etc/passwd", "..", "a\0b"):
                got = await served.ask("prompt", "POST", f"/sessions/{own}/plan", {"plan": plan})
                assert got.status_code == 400, (plan, got.text)
            assert served.sessions._hosted.keys() == {own}


async def test_a_root_within_a_project_shows_only_its_sessions(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / "part").mkdir()
    with ScriptedServer([say("zebra"), say("mine")]) as model:
        hidden = await make_session(model, workspace, "zebra")
        own = await make_session(model, workspace / "part", "mine zebra")
        async with serve(model, workspace / "part") as served:
            for query in ("sessions", "search?words=zebra"):
                got = (await served.ask("view", "GET", f"/sessions/{own}/{query}")).json()
                assert [item.get("id") or item["session"]["id"] for item in got] == [own], query
            assert (await served.ask("view", "GET", f"/sessions/{own}/prompts")).json() == []
            assert (await served.ask("view", "GET", f"/sessions/{own}/find?name={hidden}")).status_code == 404


# --- injection ---

HOSTILE = 'a\r\nevent: closed\r\n\r\ndata: {}\n\nid: 999999\x00\u2028\u2029\x85\x1b[2J{"'


async def read_events(served: Served, session: str, **more: Any) -> list[dict[str, str]]:
    """Return the fields of the events of a stream up to the end of the turn."""
    events: list[dict[str, str]] = []
    headers = {"authorization": f"Bearer {served.tokens['view']}", **more.pop("headers", {})}
    buffer = b""
    stream = served.http.stream("GET", f"{served.url}/sessions/{session}/events", headers=headers, **more)
    async with TimeLimit(), stream as response:
        assert response.status_code == 200
        async for data in response.aiter_raw():
            *whole, buffer = (buffer + data).split(b"\n\n")
            events += [dict(line.split(": ", 1) for line in one.decode().split("\n")) for one in whole]  # pyright: ignore
            if any('"TurnEnded"' in event.get("data", "") for event in events):
                return events
    return events


async def test_text_does_not_break_events_or_the_log(workspace: Path) -> None:
    with ScriptedServer([say(HOSTILE), say("two")]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            got = await served.submit("prompt", session, Prompt(HOSTILE, HOSTILE))
            assert got.status_code == 200, got.text
            shot = await served.wait_until(session)
            assert shot["messages"][0]["id"] == HOSTILE
            title = {"title": HOSTILE}
            assert (await served.ask("prompt", "POST", f"/sessions/{session}/title", title)).status_code == 200
            events = await read_events(served, session, params={"after": -1})
            assert {event.get("event", "") for event in events} == {"open", ""}
            parsed = [json.loads(event["data"]) for event in events]
            assert [item["event"]["text"] for item in parsed if item.get("event", {}).get("type") == "TurnStarted"] == [
                HOSTILE
            ]
            raw = b'{"id":"1","op":{"type":"Prompt","id":"p","text":"\\ud800 \\udfff x","mode":"edit_mode"}}'
            got = await served.ask("prompt", "POST", f"/sessions/{session}/ops", raw)
            assert got.status_code == 400, got.text
            for last in ("x", "-1", "1e5", "9" * 5000, "٣", "1 2"):
                got = await served.ask(
                    "view", "GET", f"/sessions/{session}/events", headers={"last-event-id": last.encode()}
                )
                assert got.status_code == 400, last
            for query in ("after=x", f"after={'9' * 5000}", "after=1.5"):
                got = await served.ask("view", "GET", f"/sessions/{session}/events?{query}")
                assert got.status_code == 400, query
            before = len(served.log.read_text().splitlines())
            target = "/a%0d%0ab%00%e2%80%a8%1b%5b2J%ff"
            await served.send_raw(f"GET {target} HTTP/1.1\r\nHost: localhost:{served.port}\r\n\r\n".encode())
            code = served.store.create_code("view").text
            pairing = {"code": code, "name": HOSTILE}
            got = await served.ask("", "POST", "/pair", pairing)
            assert got.json()["name"].isprintable()
            token = got.json()["token"]
            await served.ask(token, "POST", f"/sessions/{token}/ops", {"id": "1", "op": {"type": "Redo"}})
            lines = served.log.read_text().splitlines()
            assert len(lines) == before + 3 or len(lines) == before + 4
            assert all(line.isprintable() for line in lines)
            assert served.err.getvalue().splitlines() == lines
            assert not any(secret in "\n".join(lines) for secret in (token, code, "launch"))


async def test_a_crash_is_reported_without_secrets(workspace: Path, home: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:

            def fail() -> Any:
                raise RuntimeError(f"broken {served.tokens['view']}")

            served.sessions.list_all = fail
            got = await served.ask("view", "GET", "/sessions")
            assert (got.status_code, got.json()["error"]) == (422, "Internal error.")
            crash = (home / ".local/state/odin/logs/odin.log").read_text()
            assert "RuntimeError: broken" in crash
            assert served.tokens["view"] not in crash + got.text


# --- load ---


async def test_requests_that_are_too_large_or_deep_are_refused(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            path = f"/sessions/{session}/ops"
            too_long = await served.ask("prompt", "POST", path, b" " * (MAX_BODY_BYTES + 1))
            assert (too_long.status_code, too_long.json()["kind"]) == (413, "BodyTooLarge")

            async def pieces() -> AsyncGenerator[bytes]:
                for _ in range(33):
                    yield b" " * 1_000_000

            headers = {"authorization": f"Bearer {served.tokens['prompt']}"}
            chunked = await served.http.post(f"{served.url}{path}", content=pieces(), headers=headers)
            assert chunked.status_code == 413
            assert (await served.ask("", "POST", "/pair", b" " * 10_001)).status_code == 413
            assert served.application._reading_bytes == 0
            deep = b'{"id":"1","op":' + b'{"type":"Answer","id":"x","choice":"y","args":{"a":' + b"[" * 100_000
            assert (await served.ask("approve", "POST", path, deep)).status_code == 400
            nested = b"[" * 900 + b"]" * 900
            for body in (
                b'{"id":"1","op":{"type":"Answer","id":"x","choice":"y","args":{"a":%b}}}' % nested,
                b'{"id":"2","op":{"type":"SetLoop","enabled":true,"limit":1%b}}' % (b"0" * 400),
                b'{"id":"3","op":{"type":"Prompt","id":"p","text":"x","mode":"edit_mode","output_schema":{"a":%b}}}'
                % nested,
                b'{"id":"4","op":{"type":"Prompt","id":"p","text":"x","mode":"edit_mode","temperature":1e999}}',
                b"null",
                b"\xff\xfe",
                b"",
            ):
                got = await served.ask("approve", "POST", path, body)
                assert "Internal error." not in got.text, body[:80]
            for query in ("process?id=x&after=-1", "files?words=a&limit=-5", "prompts?limit=-1", "changes?path=%00"):
                got = await served.ask("view", "GET", f"/sessions/{session}/{query}")
                assert "Internal error." not in got.text, query


async def test_a_slow_body_is_given_up(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odin.server.application._BODY_S", 0.05)
    monkeypatch.setattr("odin.server.http._LINGER_S", 0.05)
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            head = f"Host: localhost:{served.port}\r\nAuthorization: Bearer {served.tokens['prompt']}\r\n"
            writer.write(f"POST /sessions HTTP/1.1\r\n{head}Content-Length: 1000\r\n\r\n{{".encode())
            async with TimeLimit():
                assert b" 400 " in await reader.readline()
                with suppress(ConnectionError):
                    assert b"was not complete within 0.05 s" in await reader.read()
            writer.close()


async def test_receipts_are_bounded(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odin.server.sessions._MAX_RECEIPTS", 3)
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            for number in range(6):
                assert (await served.submit("prompt", session, SetTitle(f"title {number}"))).json()["done"]
            receipts = served.sessions._hosted[session]._receipts
            assert len(receipts) == 3
            assert max(len(content) for content, _ in receipts.values()) == 32


async def test_idle_and_slow_connections_make_room(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            half_open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
            for _ in range(300):
                half_open.append(await asyncio.open_connection("127.0.0.1", served.port))
                half_open[-1][1].write(b"GET /me HTTP/1.1\r\n")
            assert (await served.ask("view", "GET", "/me")).status_code == 200
            async with TimeLimit():
                with suppress(ConnectionError):
                    assert await half_open[0][0].read() == b"", "the oldest is ended"
            for _, writer in half_open:
                writer.close()


async def test_a_slow_head_ends_the_connection_also_after_a_request(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace, head_s=0.05) as served:
            head = f"Host: localhost:{served.port}\r\nAuthorization: Bearer {served.tokens['view']}\r\n"
            for first in ("", f"GET /me HTTP/1.1\r\n{head}\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
                writer.write(f"{first}GET /me HTTP/1.1\r\n{head}".encode())
                async with TimeLimit():
                    with suppress(ConnectionError):
                        assert (b" 200 " in await reader.read()) == bool(first)
                writer.close()


async def test_a_client_that_takes_no_answer_is_cut_off() -> None:
    ended = asyncio.Event()

    async def send_much(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while (await asyncio.wait_for(receive(), 0.001))["type"] != "http.disconnect":
                pass
        except TimeoutError:
            pass
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b" " * 1_000_000, "more_body": True})
        ended.set()

    server = HttpServer(send_much, stalled_s=0.05)
    listener = socket.create_server(("127.0.0.1", 0))
    await server.listen(listener)
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with TimeLimit():
            await ended.wait()
    await server.close()


async def test_one_client_does_not_keep_the_threads_busy(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            is_over = threading.Event()

            def list_slowly() -> tuple[SessionSummary, ...]:
                is_over.wait(LIMIT_S)
                return ()

            served.sessions.list_all = list_slowly
            waiting = [asyncio.create_task(served.ask("view", "GET", "/sessions")) for _ in range(30)]
            try:
                assert (await served.ask("view", "GET", "/me")).status_code == 200
                assert (await served.ask("", "POST", "/pair", {"code": "2222-2222"})).status_code == 403
            finally:
                is_over.set()
            assert {got.status_code for got in await asyncio.gather(*waiting)} == {200}


async def test_streams_of_one_client_are_limited(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odin.server.application._MAX_STREAMS_OF_CLIENT", 3)
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()

            async def watch(right: str) -> int:
                path = f"{served.url}/sessions/{session}/events"
                headers = {"authorization": f"Bearer {served.tokens[right]}"}
                request = served.http.build_request("GET", path, headers=headers)
                response = await served.http.send(request, stream=True)
                if response.status_code == 200:
                    parts = response.aiter_raw()
                    await anext(parts)
                    open_streams.append(response)
                    kept.append(parts)
                return response.status_code

            open_streams: list[Any] = []
            kept: list[Any] = []
            assert [await watch("view") for _ in range(4)] == [200, 200, 200, 429]
            assert await watch("prompt") == 200
            for response in open_streams:
                await response.aclose()
            await until(lambda: not served.application._streams)
            assert await watch("view") == 200
            await open_streams[-1].aclose()


async def test_requests_are_limited_and_the_log_is_not_filled(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odin.server.token_access._REQUESTS_PER_MINUTE", 600)
    monkeypatch.setattr("odin.server.token_access._BURST", 80)
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            codes = [(await served.ask("odin_wrong", "GET", "/me")).status_code for _ in range(200)]
            assert set(codes) == {401, 429}
            assert len(served.log.read_text().splitlines()) < 80
            assert (await served.ask("view", "GET", "/me")).status_code == 200, "guessing does not lock out"
            pairing = [(await served.ask("", "POST", "/pair", {"code": "2222-2222"})).status_code for _ in range(6)]
            assert pairing == [403] * 5 + [429]
            unknown = [(await served.ask("view", "GET", f"/sessions/{n}x/info")).status_code for n in range(20)]
            assert set(unknown) == {404}
            assert len(served.sessions._locks) == 0


async def test_open_sessions_are_limited(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odin.server.sessions._MAX_OPEN", 2)
    with ScriptedServer([call("Bash", {"command": "curl example.com"})] * 2) as model:
        async with serve(model, workspace) as served:
            for _ in range(3):
                session = await served.open()
            assert len(served.sessions._hosted) == 2
            for session in list(served.sessions._hosted):
                await served.submit("approve", session, Prompt("p", "x"))
                await served.wait_until(session, idle=False)
            assert (await served.ask("approve", "POST", "/sessions", {})).status_code == 429


# --- one session, another session, and the end of a token ---


async def test_ids_of_one_session_mean_nothing_in_another(workspace: Path) -> None:
    with ScriptedServer([call("Bash", {"command": "curl example.com"}), say("done"), say("other")]) as model:
        async with serve(model, workspace) as served:
            first, second = await served.open(), await served.open()
            await served.submit("approve", first, Prompt("p1", "fetch"), id="same")
            shot = await served.wait_until(first, idle=False)
            answer = Answer(shot["interactions"][0]["id"], "allow_once", client="forged", by="rule")
            got = await served.submit("approve", second, answer, id="a1")
            assert got.json()["done"] is False
            assert (await served.ask("view", "GET", f"/sessions/{first}/snapshot")).json()["interactions"]
            changed = await served.submit("approve", first, Prompt("p9", "another"), id="same")
            assert (changed.status_code, changed.json()["kind"]) == (409, "OpConflict")
            again = await served.submit("approve", first, Prompt("p1", "fetch"), id="same")
            assert again.json()["done"]
            denied = Answer(answer.id, "deny", client="forged", by="rule")
            receipts = [(await served.submit("approve", first, denied, id="a2")).json()["done"] for _ in range(2)]
            assert receipts == [True, True]
            await served.wait_until(first)
            assert [(one["by"], one["client"]) for one in find_answers(served, first)] == [("user", "may approve")]
            assert len(model.requests) == 2, "the repeated prompt was carried out once"
            seq = (await served.ask("view", "GET", f"/sessions/{first}/snapshot")).json()["seq"]
            watching = asyncio.create_task(read_events(served, second, headers={"last-event-id": str(seq)}))
            await until(lambda: served.sessions._hosted[second].feed.watchers)
            await served.submit("prompt", second, Prompt("p1", "hello"))
            events = await watching
            assert {json.loads(event["data"]).get("session", second) for event in events} == {second}


async def test_a_revoked_token_ends_streams_and_requests(workspace: Path) -> None:
    with ScriptedServer([say("one")]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            body = json.dumps({"id": "1", "op": {"type": "Prompt", "id": "p", "text": "x", "mode": "edit_mode"}})
            head = f"Host: localhost:{served.port}\r\nAuthorization: Bearer {served.tokens['prompt']}\r\n"
            head += f"Content-Length: {len(body)}\r\n"
            writer.write(f"POST /sessions/{session}/ops HTTP/1.1\r\n{head}\r\n{body[:9]}".encode())
            path = f"{served.url}/sessions/{session}"
            headers = {"authorization": f"Bearer {served.tokens['view']}"}
            async with (
                served.http.stream("GET", f"{path}/events", headers=headers) as stream,
                served.http.stream("GET", f"{path}/view", headers=headers) as view,
            ):
                parts, shown = stream.aiter_raw(), view.aiter_raw()
                assert b"event: open" in await anext(parts)
                assert b"event: start" in await anext(shown)
                served.store.revoke_all()
                writer.write(body[9:].encode())
                assert b" 401 " in await reader.readline()
                approve = served.store.create_token("new", "approve")
                got = await served.ask(approve, "POST", f"/sessions/{session}/title", {"title": "private"})
                assert got.status_code == 200
                async with TimeLimit():
                    assert b"private" not in b"".join([part async for part in parts])
                    assert b"private" not in b"".join([part async for part in shown])
            writer.close()
            assert not model.requests
