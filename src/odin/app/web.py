"""The web of one session: how its pages are fetched, and its search engine, if one is set."""

from collections.abc import Mapping

from odin import __version__
from odin.config import WebSettings
from odin.core.errors import ConfigError
from odin.core.tool import SearchEngine
from odin.providers.web_fetch import WebFetcher


class WebAccess:
    """`warning` says why there is no search engine although one was asked for."""

    def __init__(self, settings: WebSettings, env: Mapping[str, str]) -> None:
        self._fetcher = WebFetcher(env, settings.user_agent or f"odin/{__version__}", settings.timeout_s)
        self.fetch = self._fetcher.fetch
        self.warning = ""
        self.search = self._make_engine(settings)

    async def close(self) -> None:
        await self._fetcher.close()

    def _make_engine(self, settings: WebSettings) -> SearchEngine | None:
        wanted = settings.search
        if wanted.backend == "none":
            return None
        from odin.providers.web_search import make_engine

        try:
            return make_engine(wanted.backend, self.fetch, url=wanted.url, key=wanted.api_key)
        except ConfigError as error:
            self.warning = f"There is no WebSearch. {error.describe()}"
            return None
