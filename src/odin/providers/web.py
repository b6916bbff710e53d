"""Web pages and web search engines, with the same client as model requests: same proxies, certificates and timeouts.

Redirects are followed within one host only. A redirect to another host is reported, not followed, because the user
approved only the first address. With a guard, names that lead into private networks are refused, also after a redirect.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast
from urllib.parse import parse_qs, quote, urlencode, urljoin, urlsplit

import msgspec

from odin.core.errors import (
    AuthFailed,
    BadReply,
    ConfigError,
    OdinError,
    Overloaded,
    PrivateAddress,
    ProviderError,
    RateLimited,
    StreamStalled,
    TlsFailed,
)
from odin.core.provider import Fetch, FetchResponse, SearchHit
from odin.providers.address import Address, parse_address
from odin.providers.address_guard import AddressGuard
from odin.providers.http import HttpClient, HttpResponse, TlsContexts

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
        tls: TlsContexts | None = None,
    ) -> None:
        self._http = HttpClient(env, user_agent=user_agent, guard=guard, tls=tls)
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
            connection = await self._http.acquire(address)
            response = await self._http.send(connection, "GET", address, headers, header_timeout=self._timeout)
            target = _find_redirect_target(response, address)
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


def _find_redirect_target(response: HttpResponse, address: Address) -> Address | None:
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


SearchBackend = Literal["brave", "duckduckgo", "searxng"]

_BRAVE = "https://api.search.brave.com/res/v1/web/search"
_DUCKDUCKGO = "https://html.duckduckgo.com/html/"
_MAX_BYTES = 2_000_000


def make_engine(backend: str, fetch: Fetch, *, url: str = "", key: str = "") -> "WebSearchEngine":
    """Return the configured engine. `url` overrides its default address."""
    if backend == "brave":
        if not key:
            raise ConfigError("Searching with Brave needs a key.", "Set web.search.api_key, such as $BRAVE_API_KEY.")
        return Brave(fetch, url or _BRAVE, key)
    if backend == "searxng":
        if not url:
            raise ConfigError("Searching with SearXNG needs its address.", "Set web.search.url.")
        return SearXNG(fetch, url.rstrip("/") + "/search")
    return DuckDuckGo(fetch, url or _DUCKDUCKGO)


class WebSearchEngine:
    """A search engine reached by GET. Subclasses build the query and parse the response."""

    name = ""
    accept = "application/json"

    def __init__(self, fetch: Fetch, url: str, key: str = "") -> None:
        self._fetch = fetch
        self._url = url
        self._key = key

    def make_search_url(self, query: str) -> str:
        return f"{self._url}?{urlencode(self.build_query(query, 0))}"

    async def search(self, query: str, count: int) -> tuple[SearchHit, ...]:
        url = f"{self._url}?{urlencode(self.build_query(query, count))}"
        found = await self._fetch(url, headers=self.build_headers(), limit=_MAX_BYTES)
        if found.status != 200 or found.location:
            raise self.make_error(found)
        hits = (hit for hit in self.parse_hits(found.body) if hit.url.startswith(("http://", "https://")))
        return tuple(hits)[:count]

    def build_query(self, query: str, count: int) -> dict[str, str]:
        return {"q": query}

    def build_headers(self) -> dict[str, str]:
        return {"accept": self.accept}

    def parse_hits(self, body: bytes) -> list[SearchHit]:
        raise NotImplementedError

    def make_error(self, found: FetchResponse) -> ProviderError:
        status = found.status
        if found.location:
            return BadReply(f"{self.name} redirects to another place.", "Set web.search.url to the final address.")
        if status in (401, 403, 422) and self._key:
            return AuthFailed(f"{self.name} refused the key (status {status}).", "Check web.search.api_key.")
        if status == 429:
            return RateLimited(f"{self.name}: rate limit reached.", "Search again in a moment.", status=status)
        kind = Overloaded if status >= 500 else BadReply
        return kind(f"{self.name} answered with HTTP status {status}.", "Try again later.", status=status)

    def parse_rows(self, body: bytes, *path: str) -> list[Mapping[str, Any]]:
        """Return the list of results in a JSON response."""
        try:
            value: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError):
            raise BadReply(f"{self.name} did not answer with JSON.", "Check web.search.url.") from None
        for name in path:
            value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
        rows = cast("list[Any]", value) if isinstance(value, list) else []
        return [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]


class Brave(WebSearchEngine):
    name = "Brave"

    def build_query(self, query: str, count: int) -> dict[str, str]:
        return {"q": query, "count": str(count)} if count else {"q": query}

    def build_headers(self) -> dict[str, str]:
        return {"accept": self.accept, "x-subscription-token": self._key}

    def parse_hits(self, body: bytes) -> list[SearchHit]:
        return [_make_hit(row, "description") for row in self.parse_rows(body, "web", "results")]


class SearXNG(WebSearchEngine):
    name = "SearXNG"

    def build_query(self, query: str, count: int) -> dict[str, str]:
        return {"q": query, "format": "json"}

    def parse_hits(self, body: bytes) -> list[SearchHit]:
        return [_make_hit(row, "content") for row in self.parse_rows(body, "results")]

    def make_error(self, found: FetchResponse) -> ProviderError:
        if found.status == 403:
            return BadReply("SearXNG does not answer in JSON.", "Add json to search.formats in its settings.yml.")
        return super().make_error(found)


class DuckDuckGo(WebSearchEngine):
    """The HTML page for browsers without scripts; it needs no key, but sometimes asks for a human."""

    name = "DuckDuckGo"
    accept = "text/html"

    def parse_hits(self, body: bytes) -> list[SearchHit]:
        html = body.decode("utf-8", "replace")
        if "anomaly-modal" in html or "anomaly.js" in html:
            raise self.make_error(FetchResponse("", 202, "", b""))
        parts = re.split(r'(?=<a\b[^>]*\bclass="[^"]*\bresult__a\b)', html)[1:]
        found = [_parse_result(part) for part in parts]
        if not found and "no-results" not in html and "No results" not in html:
            raise BadReply("DuckDuckGo answered with a page that is not its list of results.", "Try again later.")
        return [hit for hit in found if "duckduckgo.com/y.js" not in hit.url]

    def make_error(self, found: FetchResponse) -> ProviderError:
        if found.status in (202, 403):
            return RateLimited("DuckDuckGo asks for a human before it answers.", "Search again later.")
        return super().make_error(found)


def _parse_result(part: str) -> SearchHit:
    """Return one result of the page: a link with the title, and the snippet after it."""
    link = re.match(r"<a\b([^>]*)>(.*?)</a>", part, re.DOTALL)
    href = re.search(r'\bhref="([^"]*)"', link[1]) if link else None
    snippet = re.search(r'class="[^"]*\bresult__snippet\b[^"]*"[^>]*>(.*?)</(?:a|div|td)>', part, re.DOTALL)
    url = _strip_html(href[1]) if href else ""
    if url.startswith("//"):
        url = f"https:{url}"
    wrapped = parse_qs(urlsplit(url).query).get("uddg") if "/l/?" in url else None
    return SearchHit(
        _strip_html(link[2]) if link else "", wrapped[0] if wrapped else url, _strip_html(snippet[1] if snippet else "")
    )


def _make_hit(row: Mapping[str, Any], snippet: str) -> SearchHit:
    return SearchHit(*(_strip_html(str(row.get(name) or "")) for name in ("title", "url", snippet)))


def _strip_html(text: str) -> str:
    """Return the text without tags and entities, on one line."""
    from html import unescape

    return " ".join(unescape(re.sub(r"<[^>]{0,500}>", "", text)).split())
