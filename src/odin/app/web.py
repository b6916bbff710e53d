"""Web access of a session: the page fetcher and the configured search engine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odin import __version__
from odin.config import WebSettings
from odin.core.errors import ConfigError
from odin.core.tool import FetchResponse, SearchEngine

if TYPE_CHECKING:
    from odin.providers.web_fetch import WebFetcher


class WebAccess:
    """Fetches pages and searches. `warning` says why a configured search engine is unavailable."""

    def __init__(self, settings: WebSettings, env: Mapping[str, str]) -> None:
        self._settings = settings
        self._env = env
        self._fetcher: WebFetcher | None = None
        self.warning = ""
        self.search = self._make_engine(settings)

    async def fetch(self, url: str, **options: Any) -> FetchResponse:
        if self._fetcher is None:
            from odin.providers.web_fetch import WebFetcher

            agent = self._settings.user_agent or f"odin/{__version__}"
            self._fetcher = WebFetcher(self._env, agent, self._settings.timeout_s)
        return await self._fetcher.fetch(url, **options)

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()

    def _make_engine(self, settings: WebSettings) -> SearchEngine | None:
        search = settings.search
        if search.backend == "none":
            return None
        from odin.providers.web_search import make_engine

        try:
            return make_engine(search.backend, self.fetch, url=search.url, key=search.api_key)
        except ConfigError as error:
            self.warning = f"WebSearch is not available. {error.describe()}"
            return None
