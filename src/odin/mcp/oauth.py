"""Signing in to HTTP servers with OAuth, through the official package. Tokens are kept with the API keys in auth.json.

A session only uses and renews tokens. `odin mcp login NAME` opens the browser and receives the redirect on loopback.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from odin import __version__
from odin.config.auth import read_auth_file, remove_keys, store_key
from odin.config.settings import McpServerSettings
from odin.core.errors import OdinError, UsageError

_LOGIN_S = 300.0
_PAGE = "Odin is signed in. You can close this page."


class SignInRequired(OdinError):
    """A server wants the user to sign in."""

    def __init__(self, server: str) -> None:
        super().__init__(f"it wants you to sign in: run `odin mcp login {server}`")


def key_name_of(server: str) -> str:
    """Return the name in auth.json under which the tokens of a server are kept."""
    return f"mcp.{server}"


class StoredTokens:
    """The tokens and the client registration of one server, as the official package wants to store them."""

    def __init__(self, server: str, env: Mapping[str, str]) -> None:
        self._name = key_name_of(server)
        self._env = env

    def _read(self) -> dict[str, Any]:
        keys = read_auth_file(self._env).keys.get(self._name, ())
        try:
            return json.loads(keys[0]) if keys else {}
        except ValueError:
            return {}

    def _write(self, **changed: Any) -> None:
        stored = {**self._read(), **changed}
        remove_keys(self._name, self._env)
        store_key(
            self._name, json.dumps(stored, separators=(",", ":"), ensure_ascii=True).replace(" ", "\\u0020"), self._env
        )

    @property
    def has_tokens(self) -> bool:
        return "tokens" in self._read()

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthToken

        found = self._read().get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: Any) -> None:
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> Any:
        from mcp.shared.auth import OAuthClientInformationFull

        found = self._read().get("client")
        return None if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: Any) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))


def _make_sign_in_check(server: str) -> Any:
    """Return what fails with a message if a server answers that it wants a sign-in."""
    import httpx2

    class SignInCheck(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
            response = yield request
            if response.status_code in (401, 403):
                raise SignInRequired(server)

    return SignInCheck()


def make_stored_auth(server: str, settings: McpServerSettings, env: Mapping[str, str]) -> Any:
    """Return what signs requests with stored tokens. A server that wants a new sign-in fails with a message."""

    async def refuse_redirect(url: str) -> None:
        raise SignInRequired(server)

    async def refuse_callback() -> Any:
        raise SignInRequired(server)

    if any(name.casefold() == "authorization" for name in settings.headers):
        return None
    if not StoredTokens(server, env).has_tokens:
        return _make_sign_in_check(server)
    return _make_provider(server, settings, env, refuse_redirect, refuse_callback, "http://127.0.0.1:1/callback")


def _make_provider(
    server: str,
    settings: McpServerSettings,
    env: Mapping[str, str],
    on_redirect: Callable[[str], Awaitable[None]],
    on_callback: Callable[[], Awaitable[Any]],
    redirect_uri: str,
) -> Any:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": f"Odin {__version__}",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_post" if settings.oauth.client_secret else "none",
            **({"scope": settings.oauth.scope} if settings.oauth.scope else {}),
        }
    )
    storage: Any = StoredTokens(server, env)
    if settings.oauth.client_id:
        known = OAuthClientInformationFull.model_validate(
            {
                **metadata.model_dump(mode="json", exclude_none=True),
                "client_id": settings.oauth.client_id,
                "client_secret": settings.oauth.client_secret or None,
            }
        )

        async def get_known() -> Any:
            return known

        storage.get_client_info = get_known
    return OAuthClientProvider(
        server_url=settings.url,
        client_metadata=metadata,
        storage=storage,
        redirect_handler=on_redirect,
        callback_handler=on_callback,
    )


class LoginCallback:
    """A server on loopback that receives the redirect of a sign-in."""

    def __init__(self) -> None:
        self._received: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None

    async def open(self, port: int) -> str:
        """Start listening and return the redirect URI."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("ascii", "replace")
        target = line.split(" ")[1] if line.count(" ") > 1 else ""
        found = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        is_callback = urlsplit(target).path == "/callback" and ("code" in found or "error" in found)
        body = (_PAGE if is_callback else "Not found.").encode()
        status = "200 OK" if is_callback else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        if is_callback and not self._received.done():
            self._received.set_result(found)

    async def wait(self) -> Any:
        """Return the code that came with the redirect. Raise UsageError if the user declined or took too long."""
        from mcp.shared.auth import AuthorizationCodeResult

        try:
            async with asyncio.timeout(_LOGIN_S):
                found = await self._received
        except TimeoutError:
            raise UsageError(f"No sign-in within {_LOGIN_S:g} s.") from None
        if "code" not in found:
            raise UsageError(f"The sign-in was refused: {found.get('error_description') or found['error']}.")
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


async def log_in(
    server: str, settings: McpServerSettings, env: Mapping[str, str], open_page: Callable[[str], None]
) -> None:
    """Sign in to a server: `open_page` shows the page of the server to the user. Raise OdinError if that fails."""
    from mcp import Client

    from odin.mcp.http_transport import open_http

    callback = LoginCallback()
    redirect_uri = await callback.open(settings.oauth.callback_port)

    async def redirect(url: str) -> None:
        open_page(url)

    auth = _make_provider(server, settings, env, redirect, callback.wait, redirect_uri)
    try:
        async with open_http(settings, auth) as transport, Client(transport, mode="legacy"):
            pass
    finally:
        callback.close()


def log_out(server: str, env: Mapping[str, str]) -> bool:
    """Remove the tokens of a server. False if there were none."""
    return remove_keys(key_name_of(server), env) > 0
