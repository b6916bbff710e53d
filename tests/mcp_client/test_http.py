"""HTTP servers: the official server side on loopback, headers, and signing in."""

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from odin.config.auth import read_auth_file
from odin.mcp.oauth import StoredTokens, key_name_of, log_out
from odin.testing import say
from tests.mcp_client.test_session import Open, configure, opened, use

__all__ = ["opened"]


@contextmanager
def serving(app: Any) -> Generator[str]:
    """Run a web application on loopback; yield its address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
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
        thread.join(5)


def make_server() -> MCPServer:
    server = MCPServer("web", version="2")

    @server.tool()
    async def header(name: str, context: Context) -> str:
        """Return a header of the request."""
        return str(context.request_context.request.headers.get(name))  # pyright: ignore

    return server


async def test_a_server_is_used_over_http_with_its_headers(opened: Open, home: Path):
    with serving(make_server().streamable_http_app()) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp", "headers": {"X-Key": "abc"}}})
        session = await opened([use("header", name="x-key"), say("done")])
        await session.ask()
        assert session.results() == ["abc"]
        assert (await session.state_of("tiny")).transport == "http"
        await session.client.close()


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """An application that wants every request to be signed in, and names no way to do so."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
        await send({"type": "http.response.body", "body": b"{}"})


async def test_a_server_that_wants_a_sign_in_says_how(opened: Open, home: Path):
    with serving(refuse) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        session = await opened([say("done")])
        await session.ask()
        state = await session.state_of("tiny")
        assert state.state == "failed"
        assert "odin mcp login tiny" in state.detail
        await session.client.close()


async def test_tokens_are_kept_with_the_keys(home: Path):
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

    env = {"HOME": str(home)}
    store = StoredTokens("web", env)
    assert await store.get_tokens() is None
    await store.set_tokens(OAuthToken(access_token="a b", refresh_token="r", scope="read write"))
    client = OAuthClientInformationFull.model_validate(
        {"client_id": "c", "redirect_uris": ["http://127.0.0.1:1/callback"]}
    )
    await store.set_client_info(client)
    token = await StoredTokens("web", env).get_tokens()
    assert (token.access_token, token.scope) == ("a b", "read write")
    assert (await StoredTokens("web", env).get_client_info()).client_id == "c"
    auth = read_auth_file(env)
    assert (list(auth.keys), auth.path.stat().st_mode & 0o777) == ([key_name_of("web")], 0o600)
    assert (log_out("web", env), log_out("web", env)) == (True, False)
    await asyncio.sleep(0)
