"""Signing in to HTTP servers with OAuth, through the official package. Tokens are kept with the API keys in auth.json.

A session only uses and renews tokens (`config.token_renewal`). `odin mcp login NAME` opens the browser and receives the
redirect on loopback. It asks for the rights that the server missed in a session, besides those that were granted.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from odin.config.auth import TOKENS_PREFIX, read_auth_file, remove_tokens, update_tokens
from odin.config.settings import McpServerSettings
from odin.config.token_renewal import Renewal, TokenRequest, renew_tokens
from odin.core.errors import OdinError, UsageError
from odin.mcp.failures import import_package
from odin.mcp.listing import fetch_listing
from odin.mcp.messages import fail_request
from odin.version import __version__

_LOGIN_S = 300.0
_PAGE = "Odin is signed in. You can close this page."
_UNUSED_REDIRECT = "http://127.0.0.1:1/callback"


class SignInRequired(OdinError):
    """A server wants the user to sign in."""

    def __init__(self, server: str, why: str = "") -> None:
        super().__init__(f"{f'{why}, so ' if why else ''}it wants you to sign in: run `odin mcp login {server}`")


def make_key_name(server: str, url: str) -> str:
    """Return the name in auth.json of a server's tokens. Another address with the same name has other tokens."""
    import hashlib

    return f"{TOKENS_PREFIX}{server}.{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:12]}"


class StoredTokens:
    """The tokens and the client registration of one server, as the official package wants to store them."""

    def __init__(self, server: str, url: str, env: Mapping[str, str]) -> None:
        self._name = make_key_name(server, url)
        self._env = env

    def read(self) -> dict[str, Any]:
        return _parse_stored(read_auth_file(self._env).tokens.get(self._name, ""))

    def _write(self, **changed: Any) -> None:
        def change(text: str) -> str:
            return json.dumps({**_parse_stored(text), **changed}, separators=(",", ":"))

        update_tokens(self._name, change, self._env)

    async def renew(self, access_token: str, request: Any) -> Renewal:
        """Send the request that renews the tokens, unless others than this access token are stored."""
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        body = (await request.aread()).decode()
        return await renew_tokens(TokenRequest(self._name, access_token, str(request.url), headers, body), self._env)

    def want_scope(self, scope: str) -> bool:
        """Note rights that the server misses, for the next sign-in. False if the last one has asked for them."""
        stored = self.read()
        if set(scope.split()) <= set(stored.get("asked_scope", "").split()):
            return False
        granted = stored.get("tokens", {}).get("scope") or ""
        self._write(wanted_scope=" ".join(dict.fromkeys(f"{granted} {stored.get('wanted_scope', '')} {scope}".split())))
        return True

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthToken

        found = self.read().get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: Any) -> None:
        """Store tokens. Their lifetime counts from now."""
        expires = {} if tokens.expires_in is None else {"expires_at": time.time() + tokens.expires_in}
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True) | expires)

    async def get_client_info(self) -> Any:
        from mcp.shared.auth import OAuthClientInformationFull

        found = self.read().get("client")
        return None if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: Any) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def store_issuer(self, context: Any) -> None:
        """Store where the tokens come from and where they are renewed, which the package finds out by signing in."""
        found = {"server": context.oauth_metadata, "resource": context.protected_resource_metadata}
        self._write(
            issuer={name: item.model_dump(mode="json", exclude_none=True) for name, item in found.items() if item},
            asked_scope=context.client_metadata.scope or "",
        )

    def restore_issuer(self, context: Any) -> None:
        """Give the package what it knew when the tokens were stored, and when they expire."""
        from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

        stored = self.read()
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


def make_stored_auth(server: str, settings: McpServerSettings, env: Mapping[str, str]) -> Any:
    """Return what signs requests with stored tokens, and renews them if they have expired or are refused.

    A server that wants a new sign-in fails with a message. A call for which a right is missing fails alone.
    """
    if any(name.casefold() == "authorization" for name in settings.headers):
        return None
    import httpx2

    storage = StoredTokens(server, settings.url, env)

    class StoredAuth(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            tokens = storage.read().get("tokens", {})
            expires_at = tokens.get("expires_at")
            if expires_at is not None and expires_at <= time.time() and tokens.get("refresh_token"):
                tokens = await self._renew(tokens, request)
            self._sign(request, tokens)
            response = yield request
            if response.status_code == 401 and tokens.get("refresh_token"):
                tokens = await self._renew(tokens, request)
                self._sign(request, tokens)
                response = yield request
            challenge = response.headers.get("www-authenticate", "").casefold()
            if response.status_code == 401 or (response.status_code == 403 and "bearer" in challenge and not tokens):
                raise SignInRequired(server)
            if response.status_code == 403 and "insufficient_scope" in challenge:
                fail_request(response, _describe_missing_scope(server, storage, response))

        def _sign(self, request: httpx2.Request, tokens: dict[str, Any]) -> None:
            if tokens:
                request.headers["Authorization"] = f"Bearer {tokens['access_token']}"

        async def _renew(self, tokens: dict[str, Any], request: httpx2.Request) -> dict[str, Any]:
            renewal = await storage.renew(tokens["access_token"], await _make_renewal(storage, settings, request))
            if renewal.outcome == "failed":
                raise OdinError(f"its sign-in could not be renewed: {renewal.why}")
            if renewal.outcome == "refused":
                raise SignInRequired(server, renewal.why)
            return storage.read()["tokens"]

    return StoredAuth()


async def _make_renewal(storage: StoredTokens, settings: McpServerSettings, request: Any) -> Any:
    """Return the request that renews the tokens, as the package makes it with what was known when they were stored."""
    provider = _make_provider(storage, settings, _UNUSED_REDIRECT)
    await provider._initialize()
    storage.restore_issuer(provider.context)
    provider.context.protocol_version = request.headers.get("mcp-protocol-version")
    return await provider._refresh_token()


def _describe_missing_scope(server: str, storage: StoredTokens, response: Any) -> str:
    from mcp.client.auth.utils import extract_scope_from_www_auth

    scope = extract_scope_from_www_auth(response) or ""
    rights = f"rights that your sign-in does not have{f' ({scope})' if scope else ''}"
    if storage.want_scope(scope):
        return f"it wants {rights}: run `odin mcp login {server}`"
    return f"it wants {rights}, although the last sign-in has asked for them: only its operator can grant them"


def _make_provider(
    storage: StoredTokens,
    settings: McpServerSettings,
    redirect_uri: str,
    redirect: Callable[[str], Awaitable[None]] | None = None,
    wait: Callable[[], Awaitable[Any]] | None = None,
) -> Any:
    """Return the package's side of a sign-in, with what its user knows of the server and the settings say."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.utils import union_scopes
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

    oauth = settings.oauth
    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": f"Odin {__version__}",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            **({"scope": oauth.scope} if oauth.scope else {}),
        }
    )

    class SignIn(OAuthClientProvider):
        async def _initialize(self) -> None:
            await super()._initialize()
            if oauth.client_id:
                self.context.client_info = OAuthClientInformationFull.model_validate(
                    {
                        "client_id": oauth.client_id,
                        "client_secret": oauth.client_secret or None,
                        "redirect_uris": [redirect_uri],
                    }
                )

        async def _perform_authorization(self) -> Any:
            """Ask also for the rights that the settings name, and that the server missed in a session."""
            found, wanted = self.context.client_metadata.scope, storage.read().get("wanted_scope")
            self.context.client_metadata.scope = union_scopes(oauth.scope or found, wanted)
            return await super()._perform_authorization()

        async def _exchange_token_authorization_code(self, auth_code: str, code_verifier: str) -> Any:
            self._choose_method()
            return await super()._exchange_token_authorization_code(auth_code, code_verifier)

        async def _refresh_token(self) -> Any:
            self._choose_method()
            return await super()._refresh_token()

        def _choose_method(self) -> None:
            """Send the secret of the settings as the server takes it. All must take Basic (RFC 6749, 2.3.1)."""
            context = self.context
            if oauth.client_id and oauth.client_secret and context.client_info is not None:
                known = context.oauth_metadata and context.oauth_metadata.token_endpoint_auth_methods_supported
                is_post = known and "client_secret_basic" not in known and "client_secret_post" in known
                chosen = "client_secret_post" if is_post else "client_secret_basic"
                context.client_info.token_endpoint_auth_method = oauth.token_endpoint_auth_method or chosen

        async def _handle_token_response(self, response: Any) -> None:
            await super()._handle_token_response(response)
            storage.store_issuer(self.context)

    return SignIn(
        server_url=settings.url,
        client_metadata=metadata,
        storage=storage,
        redirect_handler=redirect,
        callback_handler=wait,
        client_metadata_url=oauth.client_metadata_url or None,
    )


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
        self._received: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._state = ""
        self._server: asyncio.Server | None = None

    async def open(self, port: int) -> str:
        """Start listening and return the redirect URI."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"

    def expect(self, page: str) -> None:
        """Wait for the redirect of this page only: a sign-in may need a second one, with more rights."""
        self._state = parse_qs(urlsplit(page).query).get("state", [""])[0]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("ascii", "replace")
        target = line.split(" ")[1] if line.count(" ") > 1 else ""
        found = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        is_callback = urlsplit(target).path == "/callback" and ("code" in found or "error" in found)
        is_callback = is_callback and found.get("state", self._state) == self._state
        body = (_PAGE if is_callback else "Not found.").encode()
        status = "200 OK" if is_callback else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        if is_callback:
            self._received.put_nowait(found)

    async def wait(self) -> Any:
        """Return the code that came with the redirect. Raise UsageError if the user declined or took too long."""
        from mcp.shared.auth import AuthorizationCodeResult

        try:
            async with asyncio.timeout(_LOGIN_S):
                found = await self._received.get()
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
) -> tuple[bool, Exception | None]:
    """Sign in to a server: `open_page` shows the page of the server to the user. Raise what keeps them from it.

    Return False if the server did not ask for it, and why it cannot be used although the user is signed in. Some
    servers ask only for their lists.
    """
    await asyncio.to_thread(import_package)
    from mcp import Client

    from odin.mcp.transport import open_http

    callback = LoginCallback()
    redirect_uri = await callback.open(settings.oauth.callback_port)

    async def redirect(page: str) -> None:
        callback.expect(page)
        open_page(page)

    storage = NewTokens(server, settings.url, env, redirect_uri)
    auth = _make_provider(storage, settings, redirect_uri, redirect, callback.wait)
    try:
        async with open_http(settings, auth) as transport, Client(transport) as client:
            await fetch_listing(client)
    except Exception as error:
        if not storage.is_stored:
            raise
        return True, error
    finally:
        callback.close()
    return storage.is_stored, None


def log_out(server: str, env: Mapping[str, str]) -> bool:
    """Remove the tokens of a server. False if there were none."""
    return remove_tokens(rf"{re.escape(TOKENS_PREFIX + server)}(\.[0-9a-f]{{12}})?", env) > 0
