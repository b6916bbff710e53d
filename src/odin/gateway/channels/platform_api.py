"""Requests to the API of a chat platform, over the HTTP client of the process."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from odin.core.errors import OdinError, ProviderError
from odin.gateway.channel import DeliveryFailed
from odin.providers.address import parse_address
from odin.providers.http import HttpClient, HttpResponse

TIMEOUT_S = 30.0
DOWNLOAD_S = 120.0
_MAX_REPLY_BYTES = 32_000_000


class ApiReply(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    content: bytes

    def read_json(self) -> dict[str, Any]:
        """Return the object that the reply is, or an empty one."""
        try:
            return msgspec.json.decode(self.content, type=dict[str, Any])
        except msgspec.MsgspecError:
            return {}

    @property
    def wait_s(self) -> float:
        """The seconds that the platform asks to wait."""
        given = self.headers.get("retry-after", "")
        return float(given) if given.isdecimal() else 0.0


class PlatformApi:
    """Raises DeliveryFailed if a request was not sent. After any other error it may have been carried out."""

    def __init__(self, http: HttpClient, name: str) -> None:
        self._http = http
        self._name = name

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: object = None,
        *,
        timeout: float = TIMEOUT_S,
    ) -> ApiReply:
        """Send JSON, or `body` as it is if it is bytes, and return the reply. The whole may take `timeout` seconds."""
        is_raw = isinstance(body, bytes)
        content = body if is_raw else b"" if body is None else msgspec.json.encode(body)
        kind = {} if is_raw or body is None else {"content-type": "application/json"}
        try:
            async with asyncio.timeout(timeout):
                response = await self._open(method, url, {**kind, **(headers or {})}, content, timeout)
                return ApiReply(response.status, response.headers, await response.read_all(timeout, _MAX_REPLY_BYTES))
        except TimeoutError:
            raise OdinError(f"{self._name} did not answer within {timeout:.0f} s.") from None

    async def download(self, url: str, path: Path, headers: Mapping[str, str] | None = None, *, limit: int) -> None:
        """Write what is at the URL to a file. Raise FileRefused if it has more than `limit` bytes or is not there."""
        async with asyncio.timeout(DOWNLOAD_S):
            response = await self._open("GET", url, headers or {}, b"", TIMEOUT_S)
            if response.status != 200:
                response.discard()
                raise FileRefused(f"{self._name} answered with {response.status}")
            content = await response.read_all(TIMEOUT_S, limit + 1)
        if len(content) > limit:
            raise FileRefused("it is too large")
        path.touch(0o600)
        path.write_bytes(content)

    async def _open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> HttpResponse:
        address = parse_address(url)
        try:
            connection = await self._http.acquire(address)
        except ProviderError as error:
            raise DeliveryFailed(error.describe()) from error
        return await self._http.send(
            connection, method, address, headers, body, header_timeout=timeout, is_repeatable=method in ("GET", "PUT")
        )


class FileRefused(OdinError):
    """A file cannot be had. The message is the end of a sentence."""
