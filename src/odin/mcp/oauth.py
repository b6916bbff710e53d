"""Signing in to HTTP servers with OAuth, through the official package. Tokens are kept with the API keys in auth.json.

A session only uses and renews tokens. `odin mcp login NAME` opens the browser and receives the redirect on loopback.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from odin.config.auth import TOKENS_PREFIX, read_auth_file, remove_tokens, update_tokens
from odin.config.settings import McpServerSettings
from odin.core.errors import OdinError, UsageError
from odin.version import __version__

_LOGIN_S = 300.0
_PAGE = "Odin is signed in. You can close this page."
_UNUSED_REDIRECT = "http://127.0.0.1:1/callback"


class SignInRequired(OdinError):
    """A server wants the user to sign in."""

    def __init__(self, server: str) -> None:
        super().__init__(f"it wants you to sign in: run `odin mcp login {server}`")


def make_key_name(server: str, url: str) -> str:
    """Return the name in auth.json of a server's tokens. Another address with the same name has other tokens."""
    import hashlib

    return f"{TOKENS_PREFIX}{server}.{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:12]}"


class StoredTokens:
    """The tokens and the client registration of one server, as the official package wants to store them."""

    def __init__(self, server: str, url: str, env: Mapping[str, str]) -> None:
        self._name = make_key_name(server, url)
        self._env = env

    def _read(self) -> dict[str, Any]:
        return _parse_stored(read_auth_file(self._env).tokens.get(self._name, ""))

    def _write(self, **changed: Any) -> None:
        def change(text: str) -> str:
            return json.dumps({**_parse_stored(text), **changed}, separators=(",", ":"))

        update_tokens(self._name, change, self._env)

    @property
    def has_tokens(self) -> bool:
        return "tokens" in self._read()

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthToken

        found = self._read().get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: Any) -> None:
        """Store tokens. Their lifetime counts from now."""
        expires = {} if tokens.expires_in is None else {"expires_at": time.time() + tokens.expires_in}
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True) | expires)

    async def get_client_info(self) -> Any:
        from mcp.shared.auth import OAuthClientInformationFull

        found = self._read().get("client")
        return None if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: Any) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def store_issuer(self, context: Any) -> None:
        """Store where the tokens come from and where they are renewed, which the package finds out by signing in."""
        found = {"server": context.oauth_metadata, "resource": context.protected_resource_metadata}
        self._write(
            issuer={name: item.model_dump(mode="json", exclude_none=True) for name, item in found.items() if item}
        )

    def restore_issuer(self, context: Any) -> None:
        """Give the package what it knew when the tokens were stored, and when they expire."""
        from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

        stored = self._read()
        context.token_expiry_time = stored.get("tokens", {}).get("expires_at")
        issuer = stored.get("issuer", {})
        if context.oauth_metadata is None and "server" in issuer:
            context.oauth_metadata = OAuthMetadata.model_validate(issuer["server"])
        if context.protected_resource_metadata is None and "resource" in issuer:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(issuer["resource"])


def _parse_stored(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


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
    """Return what signs requests with stored tokens, and renews them once if they are refused.

    A server that wants a new sign-in fails with a message.
    """
    if any(name.casefold() == "authorization" for name in settings.headers):
        return None
    storage = StoredTokens(server, settings.url, env)
    if not storage.has_tokens:
        return _make_sign_in_check(server)
    from mcp.client.auth import OAuthClientProvider

    class StoredAuth(OAuthClientProvider):
        async def _initialize(self) -> None:
            await super()._initialize()
            storage.restore_issuer(self.context)

        async def _perform_authorization(self) -> Any:
            """The package calls this to ask the user. Renew the tokens instead: another session may have done so."""
            await self._initialize()
            if not self.context.can_refresh_token():
                raise SignInRequired(server)
            return await self._refresh_token()

        async def _handle_token_response(self, response: Any) -> None:
            if not await self._handle_refresh_response(response):
                raise SignInRequired(server)
            storage.store_issuer(self.context)

    return StoredAuth(
        server_url=settings.url,
        client_metadata=_make_metadata(settings, _UNUSED_REDIRECT),
        storage=_with_client_id(storage, settings, _UNUSED_REDIRECT),
    )


def _make_metadata(settings: McpServerSettings, redirect_uri: str) -> Any:
    from mcp.shared.auth import OAuthClientMetadata

    return OAuthClientMetadata.model_validate(
        {
            "client_name": f"Odin {__version__}",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_post" if settings.oauth.client_secret else "none",
            **({"scope": settings.oauth.scope} if settings.oauth.scope else {}),
        }
    )


def _with_client_id(storage: Any, settings: McpServerSettings, redirect_uri: str) -> Any:
    """Return the storage, with the registered client of the settings if they name one."""
    if settings.oauth.client_id:
        from mcp.shared.auth import OAuthClientInformationFull

        known = OAuthClientInformationFull.model_validate(
            {
                **_make_metadata(settings, redirect_uri).model_dump(mode="json", exclude_none=True),
                "client_id": settings.oauth.client_id,
                "client_secret": settings.oauth.client_secret or None,
            }
        )

        async def get_known() -> Any:
            return known

        storage.get_client_info = get_known
    return storage


class NewTokens(StoredTokens):
    """The storage of a sign-in, which uses no earlier tokens, and only a registration with the same redirect."""

    def __init__(self, server: str, url: str, env: Mapping[str, str], redirect_uri: str) -> None:
        super().__init__(server, url, env)
        self.is_stored = False
        self._redirect_uri = redirect_uri

    async def get_tokens(self) -> Any:
        return None

    async def set_tokens(self, tokens: Any) -> None:
        await super().set_tokens(tokens)
        self.is_stored = True

    async def get_client_info(self) -> Any:
        found = await super().get_client_info()
        is_same = found is not None and self._redirect_uri in [str(uri) for uri in found.redirect_uris or ()]
        return found if is_same else None


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
) -> bool:
    """Sign in to a server: `open_page` shows the page of the server to the user. Raise OdinError if that fails.

    Return False if the server did not ask for it.
    """
    from mcp import Client
    from mcp.client.auth import OAuthClientProvider

    from odin.mcp.transport import open_http

    callback = LoginCallback()
    redirect_uri = await callback.open(settings.oauth.callback_port)

    async def redirect(url: str) -> None:
        open_page(url)

    storage = NewTokens(server, settings.url, env, redirect_uri)
    wait: Callable[[], Awaitable[Any]] = callback.wait
    auth = OAuthClientProvider(
        server_url=settings.url,
        client_metadata=_make_metadata(settings, redirect_uri),
        storage=_with_client_id(storage, settings, redirect_uri),
        redirect_handler=redirect,
        callback_handler=wait,
    )
    try:
        async with open_http(settings, auth) as transport, Client(transport, mode="legacy"):
            if storage.is_stored:
                storage.store_issuer(auth.context)
    finally:
        callback.close()
    return storage.is_stored


def log_out(server: str, env: Mapping[str, str]) -> bool:
    """Remove the tokens of a server. False if there were none."""
    return remove_tokens(rf"{re.escape(TOKENS_PREFIX + server)}(\.[0-9a-f]{{12}})?", env) > 0
