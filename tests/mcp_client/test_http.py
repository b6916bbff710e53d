"""MCP servers over HTTP: the official server on loopback, headers, faults, and sign-in."""

import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from odin.app.policy import read_stored_keys
from odin.config.auth import read_auth_file, store_key
from odin.config.settings import McpServerSettings
from odin.core.errors import UsageError
from odin.core.timing import Timing
from odin.mcp.oauth import StoredTokens, log_in, log_out, make_key_name
from odin.testing import say
from tests.mcp_client.test_session import StartSession, call_tiny, configure, describe_tool, start_session
from tests.waiting import LIMIT_S, TimeLimit

__all__ = ["start_session"]


@contextmanager
def serve_app(app: Any, port: int = 0) -> Generator[str]:
    """Run a web application on loopback; yield its address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", port))
        port = found.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(LIMIT_S)


def make_server() -> MCPServer:
    server = MCPServer("web", version="2")

    @server.tool()
    async def header(name: str, context: Context) -> str:
        """Return a header of the request."""
        return str(context.request_context.request.headers.get(name))  # pyright: ignore

    return server


async def test_a_server_is_used_over_http_with_its_headers(start_session: StartSession, home: Path):
    with serve_app(make_server().streamable_http_app()) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp", "headers": {"X-Key": "abc"}}})
        session = await start_session([call_tiny("header", name="x-key"), say("done")])
        await session.prompt()
        assert session.results() == ["abc"]
        assert (await session.get_state("tiny")).transport == "http"
        await session.client.close()


async def answer_unauthorized(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers every request with 401 and offers no way to sign in."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
        await send({"type": "http.response.body", "body": b"{}"})


async def test_a_server_that_requires_a_sign_in_names_the_login_command(start_session: StartSession, home: Path):
    with serve_app(answer_unauthorized) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        session = await start_session([say("done")])
        await session.prompt()
        state = await session.get_state("tiny")
        assert state.state == "failed"
        assert "odin mcp login tiny" in state.detail
        await session.client.close()


class FaultyHttpServer:
    """An MCP server over HTTP in plain ASGI, which can lose its sessions, require a sign-in or ignore DELETE."""

    def __init__(self, tools: list[Any], *, streams: bool = False) -> None:
        self.tools = tools
        self.streams = streams
        self.sessions: set[str] = set()
        self.opened = 0
        self.is_locked = False
        self.is_mute = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await answer_unauthorized(scope, receive, send)
            return
        part = await receive()
        body = part.get("body", b"")
        while part.get("more_body", False):
            part = await receive()
            body += part.get("body", b"")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["method"] == "DELETE" and self.is_mute:
            await receive()  # until the client gives up
            return
        if scope["method"] != "POST":
            await self.reply(send, 405, b"")
            return
        request = json.loads(body)
        await self.handle(send, request, headers)

    async def handle(self, send: Any, request: Any, headers: dict[str, str]) -> None:
        session = headers.get("mcp-session-id", "")
        if self.is_locked:
            await self.reply(send, 401, b"{}")
        elif request["method"] == "initialize":
            self.opened += 1
            self.sessions.add(f"s{self.opened}")
            info: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
            result = {"protocolVersion": request["params"]["protocolVersion"], **info}
            await self.answer(send, request, result, f"s{self.opened}")
        elif session not in self.sessions:
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
            await self.reply(send, 404, json.dumps(error).encode(), b"application/json")
        elif "id" not in request:
            await self.reply(send, 202, b"")
        elif request["method"] == "tools/list":
            await self.answer(send, request, {"tools": self.tools})
        else:
            size = int(request["params"]["arguments"].get("size", 1))
            await self.answer(send, request, {"content": [{"type": "text", "text": "x" * size}]})

    async def answer(self, send: Any, request: Any, result: Any, session: str = "") -> None:
        data = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        more = [(b"mcp-session-id", session.encode())] if session else []
        if self.streams:
            await self.reply(send, 200, b"event: message\ndata: " + data + b"\n\n", b"text/event-stream", more)
        else:
            await self.reply(send, 200, data, b"application/json", more)

    async def reply(self, send: Any, status: int, body: bytes, kind: bytes = b"text/plain", more: Any = ()) -> None:
        headers = [(b"content-type", kind), *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def test_a_session_that_the_server_forgot_is_opened_again(start_session: StartSession, home: Path):
    web = FaultyHttpServer([describe_tool("echo")])
    with serve_app(web) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        session = await start_session(
            [call_tiny("echo", 1), say("one"), call_tiny("echo", 2), say("two"), call_tiny("echo", 3), say("three")],
            allowed_tools=("mcp__tiny",),
        )
        await session.prompt()
        web.sessions.clear()  # as after a new deployment
        await session.prompt()
        assert (session.results(), web.opened) == (["x", "x"], 2)
        assert session.warnings() == []
        web.is_locked = True
        await session.prompt()
        assert "it wants you to sign in: run `odin mcp login tiny`" in session.results()[-1]
        web.is_locked = False
        await session.client.close()


@pytest.mark.parametrize("streams", [False, True])
async def test_a_result_over_the_size_limit_fails_only_its_call(start_session: StartSession, home: Path, streams: bool):
    web = FaultyHttpServer(
        [describe_tool("echo", description=5), describe_tool("wrong", ["no"]), {"name": 5}], streams=streams
    )
    sizes = (1_100_000, 17_000_000, 3)
    with serve_app(web) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        calls = [call_tiny("echo", number, size=size) for number, size in enumerate(sizes)]
        session = await start_session([*calls, say("done")], allowed_tools=("mcp__tiny",))
        await session.prompt()
        fine, refused, last = session.results()
        assert "result cut" in fine
        problem = "exceeded the 16000000 byte limit" if streams else "it sent a response of more than 16 MB"
        assert refused.startswith("The MCP server tiny ")
        assert problem in refused
        assert (last, web.opened) == ("xxx", 1), "the connection is still the same"
        assert [name for name in session.tools() if name.startswith("mcp__")] == ["mcp__tiny__echo"]
        await session.client.close()


async def test_a_screenshot_fits_into_a_message_over_sse(start_session: StartSession, home: Path):
    server = make_server()

    @server.tool()
    async def shoot() -> str:  # pyright: ignore[reportUnusedFunction]
        """Return as much text as a screenshot has."""
        return "x" * 2_000_000

    with serve_app(server.sse_app()) as url:
        configure(home, {"tiny": {"type": "sse", "url": f"{url}/sse", "headers": {"X-Key": "abc"}}})
        calls = [call_tiny("shoot"), call_tiny("header", 2, name="x-key"), say("done")]
        session = await start_session(calls, allowed_tools=("mcp__tiny",))
        await session.prompt()
        shot, header = session.results()
        assert ("result cut" in shot, header) == (True, "abc"), shot[:300]
        await session.client.close()


@pytest.mark.parametrize("status", [502, 404])
async def test_a_page_of_a_gateway_is_named_by_its_status(start_session: StartSession, home: Path, status: int):
    class Gateway(FaultyHttpServer):
        async def handle(self, send: Any, request: Any, headers: dict[str, str]) -> None:
            if request["method"] == "tools/call":
                await self.reply(send, status, b"<html>It is not here.</html>", b"text/html")
            else:
                await super().handle(send, request, headers)

    web = Gateway([describe_tool("echo")])
    with serve_app(web) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        session = await start_session([call_tiny("echo"), say("done")], allowed_tools=("mcp__tiny",))
        await session.prompt()
        (result,) = session.results()
        said = "it answered with HTTP 502 Bad Gateway" if status == 502 else "ended the session twice"
        assert said in result
        await session.client.close()


async def test_a_connection_that_is_lost_in_a_call_is_no_refusal(start_session: StartSession, home: Path):
    class Lost(FaultyHttpServer):
        async def handle(self, send: Any, request: Any, headers: dict[str, str]) -> None:
            if request["method"] == "tools/call":
                await self.reply(send, 200, b": nothing\n\n", b"text/event-stream")
            else:
                await super().handle(send, request, headers)

    with serve_app(Lost([describe_tool("echo")])) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        session = await start_session([call_tiny("echo"), say("done")], allowed_tools=("mcp__tiny",))
        await session.prompt()
        why = "SSE stream ended without a response"
        assert session.results() == [f"The MCP server tiny did not answer the call: {why}."]
        await session.client.close()


async def test_closing_does_not_wait_for_a_server_that_does_not_answer(start_session: StartSession, home: Path):
    web = FaultyHttpServer([describe_tool("echo")])
    web.is_mute = True
    with serve_app(web) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        timing = Timing(mcp_goodbye_s=0.05)
        session = await start_session([call_tiny("echo"), say("done")], allowed_tools=("mcp__tiny",), timing=timing)
        await session.prompt()
        async with TimeLimit():
            await session.client.close()


async def test_tokens_are_stored_with_the_keys(home: Path):
    env = {"HOME": str(home)}
    store_key("anthropic", "sk-1", env)
    url = "https://example.org/mcp"
    store = StoredTokens("web", url, env)
    assert await store.get_tokens() is None
    await store.set_tokens(OAuthToken(access_token="a b", refresh_token="r" * 12_000, scope="read write"))
    client = OAuthClientInformationFull.model_validate(
        {"client_id": "c", "client_secret": "s", "redirect_uris": ["http://127.0.0.1:1/callback"]}
    )
    await store.set_client_info(client)
    token = await StoredTokens("web", f"{url}/", env).get_tokens()
    assert (token.access_token, token.scope, len(token.refresh_token)) == ("a b", "read write", 12_000)
    assert (await StoredTokens("web", url, env).get_client_info()).client_id == "c"
    assert await StoredTokens("web", "https://evil.example/mcp", env).get_tokens() is None, "another address"
    with pytest.raises(UsageError, match="too long"):
        await store.set_tokens(OAuthToken(access_token="x" * 300_000))
    assert (await store.get_tokens()).access_token == "a b"
    auth = read_auth_file(env)
    assert (list(auth.keys), list(auth.tokens), auth.warnings) == (["anthropic"], [make_key_name("web", url)], ())
    assert auth.path.stat().st_mode & 0o777 == 0o600
    assert sorted(read_stored_keys(env).values(), key=len) == ["s", "a b", "sk-1", "r" * 12_000]
    assert (log_out("web", env), log_out("web", env)) == (True, False)
    assert list(read_auth_file(env).keys) == ["anthropic"]


class InMemoryAuth:
    """An authorization server that accepts every sign-in."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.renewals: dict[str, RefreshToken] = {}
        self.resource: Any = None
        self.renewed = 0

    async def get_client(self, client_id: str) -> Any:
        return self.clients.get(client_id)

    async def register_client(self, client_info: Any) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: Any, params: Any) -> str:
        code = AuthorizationCode(
            code=os.urandom(8).hex(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> Any:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: Any) -> OAuthToken:
        self.resource = authorization_code.resource
        return self._make_tokens(client, authorization_code.scopes)

    def _make_tokens(self, client: Any, scopes: list[str]) -> OAuthToken:
        token, renewal = f"token-{os.urandom(8).hex()}", f"renewal-{os.urandom(8).hex()}"
        self.tokens = {
            token: AccessToken(
                token=token,
                client_id=client.client_id,
                scopes=scopes,
                expires_at=int(time.time()) + 3600,
                resource=self.resource,
            )
        }
        self.renewals = {renewal: RefreshToken(token=renewal, client_id=client.client_id, scopes=scopes)}
        return OAuthToken(access_token=token, token_type="Bearer", expires_in=3600, refresh_token=renewal)

    async def load_access_token(self, token: str) -> Any:
        return self.tokens.get(token)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> Any:
        return self.renewals.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> OAuthToken:
        self.renewed += 1
        return self._make_tokens(client, scopes)


@pytest.mark.slow
async def test_oauth_sign_in_and_token_renewal(start_session: StartSession, home: Path):
    provider: Any = InMemoryAuth()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    url: Any = f"http://127.0.0.1:{port}"
    settings = AuthSettings(
        issuer_url=url,
        resource_server_url=f"{url}/mcp",  # pyright: ignore[reportArgumentType]
        client_registration_options=ClientRegistrationOptions(enabled=True),
        validate_token_resource=True,
    )
    server = MCPServer("web", auth_server_provider=provider, auth=settings)

    @server.tool()
    async def secret() -> str:  # pyright: ignore[reportUnusedFunction]
        """Return a secret."""
        return "you are in"

    def open_page(page: str) -> None:
        threading.Thread(target=lambda: urllib.request.urlopen(page).read(), daemon=True).start()

    with serve_app(server.streamable_http_app(), port):
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        env, web = {"HOME": str(home)}, McpServerSettings(url=f"{url}/mcp")
        for _ in range(2):
            assert (await log_in("tiny", web, env, open_page))[0]
        assert len(provider.clients) == 2, "the second sign-in has another redirect, so another registration"
        calls = [turn for number in range(4) for turn in (call_tiny("secret", number), say("done"))]
        session = await start_session(calls, allowed_tools=("mcp__tiny",))
        await session.prompt()
        assert (session.results(), provider.renewed) == (["you are in"], 0)
        provider.tokens.clear()
        await session.prompt()
        assert (session.results()[1:], provider.renewed) == (["you are in"], 1), "refused, so renewed"
        await session.client.close()
        store = StoredTokens("tiny", web.url, env)
        token = await store.get_tokens()
        await store.set_tokens(token.model_copy(update={"expires_in": -1}))
        again = await start_session(calls, allowed_tools=("mcp__tiny",))
        await again.prompt()
        assert (again.results(), provider.renewed) == (["you are in"], 2), "expired, so renewed before the request"
        provider.tokens.clear()
        provider.renewals.clear()
        await again.prompt()
        assert "it wants you to sign in: run `odin mcp login tiny`" in again.results()[1]
        await again.client.close()


async def test_login_reports_a_server_that_requires_no_sign_in(home: Path):
    with serve_app(FaultyHttpServer([])) as url:
        settings = McpServerSettings(url=f"{url}/mcp")
        assert await log_in("tiny", settings, {"HOME": str(home)}, lambda page: None) == (False, None)
