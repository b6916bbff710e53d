"""Web search engines."""

import re
from collections.abc import Mapping
from typing import Any, Literal, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from odin.core.errors import AuthFailed, BadReply, ConfigError, Overloaded, ProviderError, RateLimited
from odin.core.tool import Fetch, FetchResponse, SearchHit

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

    def address_of(self, query: str) -> str:
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
            return RateLimited(f"{self.name} asks to slow down.", "Search again in a moment.", status=status)
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
