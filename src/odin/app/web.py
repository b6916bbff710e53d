"""Web access of a session: the page fetcher and the configured search engine."""

from collections.abc import Mapping

from odin import __version__
from odin.config import WebSettings
from odin.core.errors import ConfigError
from odin.core.tool import SearchEngine
from odin.providers.web_fetch import WebFetcher


class WebAccess:
    """Fetches pages and searches. `warning` says why a configured search engine is unavailable."""

    def __init__(self, settings: WebSettings, env: Mapping[str, str]) -> None:
        self._fetcher = WebFetcher(env, settings.user_agent or f"odin/{__version__}", settings.timeout_s)
        self.fetch = self._fetcher.fetch
        self.warning = ""
        self.search = self._make_engine(settings)

    async def close(self) -> None:
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
