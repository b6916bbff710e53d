"""Web access of a session: fetches pages and searches. The clients are imported with the first request."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odin.config import WebSettings
from odin.core.errors import ConfigError
from odin.core.provider import FetchResponse, SearchEngine
from odin.providers.http import TlsContexts
from odin.version import __version__

if TYPE_CHECKING:
    from odin.providers.web import WebFetcher


class WebAccess:
    """Fetches pages and searches. `warning` says why a configured search engine is unavailable."""

    def __init__(self, settings: WebSettings, env: Mapping[str, str], tls: TlsContexts) -> None:
        self._settings = settings
        self._tls = tls
        self._env = env
        self._fetchers: dict[bool, WebFetcher] = {}  # by whether they are guarded
        self.warning = ""
        self.search = self._make_engine(settings)

    async def fetch(self, url: str, **options: Any) -> FetchResponse:
        """Fetch a page. Names that lead into private networks are refused."""
        return await self._get_fetcher(guarded=True).fetch(url, **options)

    async def _fetch_results(self, url: str, **options: Any) -> FetchResponse:
        """Fetch from the search engine, which the user has configured, wherever it is."""
        return await self._get_fetcher(guarded=False).fetch(url, **options)

    def _get_fetcher(self, *, guarded: bool) -> "WebFetcher":
        if guarded not in self._fetchers:
            from odin.providers.address_guard import AddressGuard
            from odin.providers.web import WebFetcher

            agent = self._settings.user_agent or f"odin/{__version__}"
            guard = AddressGuard(self._settings.private_hosts) if guarded else None
            self._fetchers[guarded] = WebFetcher(self._env, agent, self._settings.timeout_s, guard=guard, tls=self._tls)
        return self._fetchers[guarded]

    async def close(self) -> None:
        for fetcher in self._fetchers.values():
            await fetcher.close()

    def _make_engine(self, settings: WebSettings) -> SearchEngine | None:
        search = settings.search
        if search.backend == "none":
            return None
        from odin.providers.web import make_engine

        try:
            return make_engine(search.backend, self._fetch_results, url=search.url, key=search.api_key)
        except ConfigError as error:
            self.warning = f"WebSearch is not available. {error.describe()}"
            return None
