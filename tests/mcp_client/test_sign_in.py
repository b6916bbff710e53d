"""Signing in to servers that are strict: refresh tokens that work once, missing rights, the ways to send a secret.

The server refuses what the standards let it refuse: RFC 6749 (OAuth 2.0), 6750 (bearer tokens and their challenges),
8414 and 9728 (metadata), OAuth 2.1 section 4.3.1 (a refresh token that comes again ends the sign-in).
"""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx2
import pytest

from odin.config.settings import McpOAuth, McpServerSettings
from odin.mcp.oauth import StoredTokens, log_in, make_stored_auth
from odin.testing import ScriptedServer, SeenRequest, Turn, say
from tests.mcp_client.test_http import FaultyHttpServer, serve_app
from tests.mcp_client.test_session import StartSession, call_tiny, configure, describe_tool, start_session
from tests.waiting import LIMIT_S, until

__all__ = ["start_session"]

METHODS = ("client_secret_basic", "client_secret_post")


class StrictSignIn(FaultyHttpServer):
    """A server with its own sign-in. `open_methods` need none; calling a tool needs the right `needed`.

    Each refresh token works once. One that comes again ends the sign-in. With `holds`, the answer to a renewal is held
    back until `release` is set, after the old token is used up.
    """

    def __init__(self, *, open_methods: tuple[str, ...] = (), needed: str = "", grants: bool = True) -> None:
        super().__init__([describe_tool("echo")])
        self.url = ""
        self.open_methods = open_methods
        self.needed = needed
        self.grants = grants
        self.methods: tuple[str, ...] | None = None
        self.has_metadata_clients = False
        self.registered = 0
        self.asked: list[dict[str, str]] = []
        self.scopes: dict[str, str] = {}
        self.refresh = ""
        self.used: set[str] = set()
        self.renewals: list[str] = []
        self.secrets: list[tuple[str, str]] = []
        self.holds = False
        self.release = threading.Event()
        self.count = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if scope["type"] == "lifespan" or path == "/mcp":
            await super().__call__(scope, receive, send)
            return
        body = (await receive()).get("body", b"").decode()
        query = dict(item.split("=", 1) for item in scope["query_string"].decode().split("&") if item)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if path.startswith("/.well-known/oauth-protected-resource"):
            await self.send_json(send, {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})
        elif path.startswith("/.well-known/oauth-authorization-server"):
            await self.send_json(send, self.describe())
        elif path == "/register" and not self.has_metadata_clients:
            self.registered += 1
            await self.send_json(send, {**json.loads(body), "client_id": "registered"}, 201)
        elif path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
            self.asked.append(asked)
            location = f"{asked['redirect_uri']}?{urlencode({'code': 'the-code', 'state': asked['state']})}"
            await self.reply(send, 302, b"", more=[(b"location", location.encode())])
        elif path == "/token":
            form = {name: values[0] for name, values in parse_qs(body).items()}
            await self.give_tokens(send, form, headers.get("authorization", ""))
        else:
            await self.reply(send, 404, str(query).encode())

    def describe(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            **({} if self.has_metadata_clients else {"registration_endpoint": f"{self.url}/register"}),
            **({"client_id_metadata_document_supported": True} if self.has_metadata_clients else {}),
            **({} if self.methods is None else {"token_endpoint_auth_methods_supported": self.methods}),
        }

    async def send_json(self, send: Any, value: Any, status: int = 200) -> None:
        await self.reply(send, status, json.dumps(value).encode(), b"application/json")

    async def give_tokens(self, send: Any, form: dict[str, str], authorization: str) -> None:
        if authorization:
            name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            self.secrets.append(("client_secret_basic", secret))
            form.setdefault("client_id", name)
        elif "client_secret" in form:
            self.secrets.append(("client_secret_post", form["client_secret"]))
        if self.secrets and self.secrets[-1][0] not in (self.methods or METHODS[:1]):
            await self.send_json(send, {"error": "invalid_client"}, 401)
            return
        if form["grant_type"] == "refresh_token":
            self.renewals.append(form["refresh_token"])
            if form["refresh_token"] != self.refresh:
                self.refresh = "" if form["refresh_token"] in self.used else self.refresh
                self.scopes.clear()
                await self.send_json(send, {"error": "invalid_grant"}, 400)
                return
        granted = self.asked[-1].get("scope", "") if self.asked and self.grants else ""
        answer = self.make_tokens(granted)
        if self.holds and form["grant_type"] == "refresh_token":
            await asyncio.to_thread(self.release.wait, LIMIT_S)
        await self.send_json(send, answer)

    def make_tokens(self, scope: str = "") -> dict[str, Any]:
        self.count += 1
        self.used.add(self.refresh)
        self.refresh = f"refresh-{self.count}"
        self.scopes = {f"access-{self.count}": scope}
        return {
            "access_token": f"access-{self.count}",
            "refresh_token": self.refresh,
            "token_type": "bearer",
            "expires_in": 3600,
            "scope": scope,
        }

    async def handle(self, send: Any, request: Any, headers: dict[str, str]) -> None:
        granted = self.scopes.get(headers.get("authorization", "").removeprefix("Bearer "))
        if granted is None and request["method"] not in self.open_methods:
            challenge = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
            await self.reply(send, 401, b"", more=[(b"www-authenticate", challenge.encode())])
        elif request["method"] == "tools/call" and self.needed and self.needed not in (granted or "").split():
            challenge = f'Bearer error="insufficient_scope", scope="{self.needed}"'
            await self.reply(send, 403, b"", more=[(b"www-authenticate", challenge.encode())])
        else:
            await super().handle(send, request, headers)


def follow(page: str) -> None:
    """Stand for a user who says yes to everything."""

    def open_it() -> None:
        with urllib.request.urlopen(page) as answer:
            answer.read()

    threading.Thread(target=open_it, daemon=True).start()


def get_env(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home)}


async def store_expired(web: StrictSignIn, home: Path, server: str = "tiny") -> StoredTokens:
    """Store a sign-in whose access token has expired."""
    storage = StoredTokens(server, f"{web.url}/mcp", get_env(home))
    await log_in(server, McpServerSettings(url=f"{web.url}/mcp"), get_env(home), follow)
    token = await storage.get_tokens()
    await storage.set_tokens(token.model_copy(update={"expires_in": -1}))
    return storage


async def get_once(web: StrictSignIn, home: Path) -> int:
    """Return the status of a request with the stored sign-in."""
    settings = McpServerSettings(url=f"{web.url}/mcp")
    async with httpx2.AsyncClient(auth=make_stored_auth("tiny", settings, get_env(home))) as client:
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
        return (await client.post(settings.url, json=request)).status_code


async def test_who_renews_at_the_same_time_renews_once(home: Path):
    web = StrictSignIn()
    with serve_app(web) as web.url:
        await store_expired(web, home)
        assert await asyncio.gather(*(get_once(web, home) for _ in range(3))) == [200] * 3
        assert web.renewals == ["refresh-1"]


async def test_a_renewal_that_nobody_waits_for_is_stored(home: Path):
    web = StrictSignIn()
    web.holds = True
    with serve_app(web) as web.url:
        storage = await store_expired(web, home)
        renewing = asyncio.create_task(get_once(web, home))
        await until(lambda: web.renewals)
        renewing.cancel()
        await asyncio.wait([renewing])
        web.release.set()
        assert await get_once(web, home) == 200, "it waits for the other one"
        assert (web.renewals, (await storage.get_tokens()).access_token) == (["refresh-1"], "access-2")


async def test_a_refused_token_is_not_sent_again(home: Path):
    web = StrictSignIn()
    with serve_app(web) as web.url:
        await store_expired(web, home)
        web.make_tokens()  # as if the answer to a renewal had been lost
        for _ in range(2):
            with pytest.raises(Exception, match=r"refused to renew it.*, so it wants you to sign in"):
                await get_once(web, home)
        assert web.renewals == ["refresh-1"]
        assert (await log_in("tiny", McpServerSettings(url=f"{web.url}/mcp"), get_env(home), follow))[0]
        assert await get_once(web, home) == 200


async def test_a_server_that_cannot_renew_now_is_asked_again(home: Path):
    web = StrictSignIn()
    with serve_app(web) as web.url:
        storage = await store_expired(web, home)
        stored = storage.read()
        for endpoint, why in (("http://127.0.0.1:1/token", "127.0.0.1 did not answer"), (f"{web.url}/no", "HTTP 404")):
            storage._write(issuer={"server": {**stored["issuer"]["server"], "token_endpoint": endpoint}})
            with pytest.raises(Exception, match=f"could not be renewed: .*{why}"):
                await get_once(web, home)
        storage._write(issuer=stored["issuer"])
        assert await get_once(web, home) == 200


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
async def test_a_run_that_ends_while_it_renews_loses_no_sign_in(workspace: Path, home: Path, number: signal.Signals):
    web = StrictSignIn()
    web.holds = True
    command = [sys.executable, "-m", "odin", "-p", "--yes", "Go."]
    with serve_app(web) as web.url, ScriptedServer([say("done")]) as model:
        configure(home, {"tiny": {"url": f"{web.url}/mcp"}})
        storage = await store_expired(web, home)
        run = subprocess.Popen(command, cwd=workspace, env={**get_env(home), **model.env("anthropic")})
        await until(lambda: web.renewals)
        os.kill(run.pid, number)
        await asyncio.to_thread(run.wait, LIMIT_S)
        web.release.set()
        await until(lambda: storage.read()["tokens"]["access_token"] == "access-2")
        assert await get_once(web, home) == 200
        assert web.renewals == ["refresh-1"]


@pytest.mark.slow
async def test_two_runs_at_once_renew_once(workspace: Path, home: Path):
    web = StrictSignIn()
    command = [sys.executable, "-m", "odin", "-p", "--yes", "Go."]

    def play(seen: SeenRequest) -> Turn:
        return say("done") if seen.results else call_tiny("echo")

    with serve_app(web) as web.url, ScriptedServer(play) as model:
        configure(home, {"tiny": {"url": f"{web.url}/mcp"}})
        await store_expired(web, home)
        env = {**get_env(home), **model.env("anthropic")}
        runs = [
            subprocess.Popen(command, cwd=workspace, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        said = [await asyncio.to_thread(run.communicate, None, LIMIT_S) for run in runs]
        assert [run.returncode for run in runs] == [0, 0], said
        assert web.renewals == ["refresh-1"]
        assert not any(b"sign in" in err for _, err in said), said


# --- rights, secrets, registration ---


async def test_a_sign_in_that_is_wanted_after_the_handshake(start_session: StartSession, home: Path):
    web = StrictSignIn(open_methods=("initialize", "notifications/initialized"))
    with serve_app(web) as web.url:
        configure(home, {"tiny": {"url": f"{web.url}/mcp"}})
        before = await start_session([say("done")])
        await before.prompt()
        assert "it wants you to sign in: run `odin mcp login tiny`" in (await before.get_state("tiny")).detail
        assert await log_in("tiny", McpServerSettings(url=f"{web.url}/mcp"), get_env(home), follow) == (True, None)
        script = [call_tiny("echo"), say("done")]
        after = await start_session(script, allowed_tools=("mcp__tiny",), headless=True)
        await after.prompt()
        assert after.results() == ["x"]


@pytest.mark.parametrize("grants", [True, False])
async def test_a_missing_right_fails_its_call_and_is_asked_for(start_session: StartSession, home: Path, grants: bool):
    web = StrictSignIn(needed="mcp:write", grants=grants)
    with serve_app(web) as web.url:
        configure(home, {"tiny": {"url": f"{web.url}/mcp"}})
        settings = McpServerSettings(url=f"{web.url}/mcp", oauth=McpOAuth(scope="mcp:basic"))
        await log_in("tiny", settings, get_env(home), follow)
        script = [turn for number in range(3) for turn in (call_tiny("echo", number), say("done"))]
        session = await start_session(script, allowed_tools=("mcp__tiny",))
        await session.prompt()
        missing = "it wants rights that your sign-in does not have (mcp:write)"
        assert session.results() == [f"The MCP server tiny refused the call: {missing}: run `odin mcp login tiny`."]
        assert (await session.get_state("tiny")).state == "ready"
        await log_in("tiny", settings, get_env(home), follow)
        assert web.asked[-1]["scope"].split() == ["mcp:basic", "mcp:write"]
        await session.prompt()
        assert session.results()[1:] == (
            ["x"]
            if grants
            else [
                f"The MCP server tiny refused the call: {missing}, although the last sign-in has asked for them: "
                "only its operator can grant them."
            ]
        )
        assert web.opened == 3, "two sign-ins, and a connection that goes on"


@pytest.mark.parametrize(
    ("methods", "sent"),
    [
        (None, "client_secret_basic"),
        (("client_secret_basic",), "client_secret_basic"),
        (("client_secret_post",), "client_secret_post"),
        (METHODS, "client_secret_basic"),
    ],
)
async def test_a_secret_is_sent_as_the_server_takes_it(home: Path, methods: tuple[str, ...] | None, sent: str):
    web = StrictSignIn()
    web.methods = methods
    with serve_app(web) as web.url:
        oauth = McpOAuth(client_id="mine", client_secret="a secret/1")
        settings = McpServerSettings(url=f"{web.url}/mcp", oauth=oauth)
        assert (await log_in("tiny", settings, get_env(home), follow))[0]
        assert [method for method, _ in web.secrets] == [sent]
        assert web.registered == 0


async def test_a_metadata_document_names_the_client(home: Path):
    web = StrictSignIn()
    web.has_metadata_clients = True
    document = "https://example.org/odin.json"
    with serve_app(web) as web.url:
        settings = McpServerSettings(url=f"{web.url}/mcp", oauth=McpOAuth(client_metadata_url=document))
        assert (await log_in("tiny", settings, get_env(home), follow))[0]
        assert (web.asked[0]["client_id"], web.registered) == (document, 0)


@pytest.mark.parametrize("challenge", ["", 'Basic realm="x"'])
async def test_a_refusal_that_is_about_no_sign_in_says_what_it_is(
    start_session: StartSession, home: Path, challenge: str
):
    class Wall(FaultyHttpServer):
        async def handle(self, send: Any, request: Any, headers: dict[str, str]) -> None:
            more = [(b"www-authenticate", challenge.encode())] if challenge else []
            await self.reply(send, 403, b"<html>Your address is blocked.</html>", b"text/html", more)

    with serve_app(Wall([])) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        session = await start_session([say("done")])
        await session.prompt()
        detail = (await session.get_state("tiny")).detail
        assert "it answered with HTTP 403 Forbidden" in detail
        assert "sign in" not in detail
