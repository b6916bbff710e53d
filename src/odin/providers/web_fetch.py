"""Fetches web pages with the same client as model requests: same proxies, certificates and timeouts.

Redirects are followed within one host only. A redirect to another host is reported, not followed, because the user
approved only the first address. With a guard, names that lead into private networks are refused, also after a redirect.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, urljoin

from odin.core.errors import AuthFailed, BadReply, OdinError, PrivateAddress, ProviderError, StreamStalled, TlsFailed
from odin.core.tool import FetchResponse
from odin.providers.address import Address, parse_address
from odin.providers.address_guard import AddressGuard
from odin.providers.http import HttpClient, HttpResponse

MAX_HOPS = 5
CACHE_SECONDS = 15 * 60.0
CACHE_BYTES = 20_000_000
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_ACCEPT = "text/html, text/markdown;q=0.9, text/plain;q=0.9, application/json;q=0.8, */*;q=0.5"
_SAFE_URL_CHARS = "/?#[]@!$&'()*+,;=:%~"


class WebFetcher:
    """Fetches pages for one session. Pages fetched without custom headers are cached for a while."""

    def __init__(
        self,
        env: Mapping[str, str],
        user_agent: str,
        timeout: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        guard: AddressGuard | None = None,
    ) -> None:
        self._http = HttpClient(env, user_agent=user_agent, guard=guard)
        self._timeout = timeout
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}
        self._cache: dict[tuple[str, int], tuple[float, FetchResponse]] = {}

    async def fetch(
        self, url: str, *, headers: Mapping[str, str] | None = None, limit: int = 5_000_000
    ) -> FetchResponse:
        """GET the URL. At most `limit` bytes of the body are read."""
        if headers is not None:
            return await self._get(url, headers, limit)
        gate = self._locks.setdefault(url, asyncio.Lock())  # two questions about one page in one reply run together
        try:
            async with gate:
                found = self._get_cached(url, limit)
                if found is None:
                    found = await self._get(url, {}, limit)
                    if found.status == 200:
                        self._cache_page(url, limit, found)
                return found
        finally:
            self._locks.pop(url, None)

    async def _get(self, url: str, headers: Mapping[str, str], limit: int) -> FetchResponse:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(url, {"accept": _ACCEPT, **headers}, limit)
        except TimeoutError:
            raise StreamStalled(
                f"{parse_address(url).origin} did not send the page within {self._timeout:g} s.",
                "Try again later, or raise web.timeout_s.",
            ) from None
        except ProviderError as error:
            raise _rewrite_error(error) from None

    async def close(self) -> None:
        await self._http.close()

    async def _follow(self, url: str, headers: Mapping[str, str], limit: int) -> FetchResponse:
        seen: list[str] = []
        while True:
            address = parse_address(url)
            if address.url in seen:
                raise BadReply(f"{address.origin} redirects in a circle.", "This page cannot be read this way.")
            if len(seen) > MAX_HOPS:
                raise BadReply(
                    f"{address.origin} redirects more than {MAX_HOPS} times.", "This page cannot be read this way."
                )
            seen.append(address.url)
            wire = await self._http.lease(address)
            response = await self._http.send(wire, "GET", address, headers, header_timeout=self._timeout)
            target = _redirect_target_of(response, address)
            if target is None:
                return await _read_page(response, address, self._timeout, limit)
            response.discard()
            if not _is_same_host(address, target):
                return FetchResponse(address.url, response.status, "", b"", location=target.url)
            url = target.url

    def _get_cached(self, url: str, limit: int) -> FetchResponse | None:
        now = self._clock()
        for key, (since, _) in list(self._cache.items()):
            if now - since > CACHE_SECONDS:
                del self._cache[key]
        return self._cache[url, limit][1] if (url, limit) in self._cache else None

    def _cache_page(self, url: str, limit: int, found: FetchResponse) -> None:
        """Evict the oldest pages if needed. Entries are never renewed, which bounds a page's age."""
        self._cache[url, limit] = self._clock(), found
        while sum(len(page.body) for _, page in self._cache.values()) > CACHE_BYTES:
            del self._cache[next(iter(self._cache))]


async def _read_page(response: HttpResponse, address: Address, timeout: float, limit: int) -> FetchResponse:
    body = await response.read_all(timeout, limit + 1)
    return FetchResponse(
        address.url, response.status, response.headers.get("content-type", ""), body[:limit], len(body) <= limit
    )


def _redirect_target_of(response: HttpResponse, address: Address) -> Address | None:
    """Return where a redirect points, or None if the response is not a redirect."""
    location = response.headers.get("location", "")
    if response.status not in _REDIRECT_STATUSES or not location:
        return None
    try:
        written = quote(location.encode("latin-1"), safe=_SAFE_URL_CHARS)
        return parse_address(urljoin(address.url, written))
    except (OdinError, ValueError):
        response.discard()
        raise BadReply(
            f"{address.origin} redirects to something that is not an http or https address.",
            "This page cannot be read this way.",
        ) from None


def _is_same_host(one: Address, other: Address) -> bool:
    """True for the same host on any port. Downgrading from https to http counts as another host."""
    return one.host == other.host and not (one.scheme == "https" and other.scheme == "http")


def _rewrite_error(error: ProviderError) -> ProviderError:
    """Return the same error without the hint about models."""
    about_the_way = isinstance(error, TlsFailed | AuthFailed | PrivateAddress) or "proxy" in str(error)
    kept = about_the_way or error.hint.startswith("This page")
    return type(error)(str(error), error.hint if kept else "Check the address, or try again later.")
