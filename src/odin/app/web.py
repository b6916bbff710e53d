"""The web of one session: how its pages are fetched, and its search engine, if one is set."""

from collections.abc import Mapping

from odin import __version__
from odin.config import WebSettings
from odin.core.errors import ConfigError
from odin.core.tool import SearchEngine
from odin.providers.fetch import Fetcher


class Web:
    """`warning` says why there is no search engine although one was asked for."""

    def __init__(self, settings: WebSettings, env: Mapping[str, str]) -> None:
        self._fetcher = Fetcher(env, settings.user_agent or f"odin/{__version__}", settings.timeout_s)
        self.fetch = self._fetcher.fetch
        self.warning = ""
        self.search = self._engine(settings)

    async def close(self) -> None:
        await self._fetcher.close()

    def _engine(self, settings: WebSettings) -> SearchEngine | None:
        wanted = settings.search
        if wanted.backend == "none":
            return None
        from odin.providers.search import engine_for

        try:
            return engine_for(wanted.backend, self.fetch, url=wanted.url, key=wanted.api_key)
        except ConfigError as error:
            self.warning = f"There is no WebSearch. {error.sentence()}"
            return None
