"""The models that servers list themselves, at `/models` of their API.

A list is asked for when the user wants to see or choose a model, never before a prompt. It is kept in the cache folder,
so that a server without configured models has a default model at the next start, and while it cannot be reached.
"""

import time
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from odin.config import get_cache_dir, make_private_folder
from odin.config.files import write_atomically
from odin.core.errors import ConfigError, OdinError
from odin.core.text import suggest_similar
from odin.providers.wire import ListedModel, WireProvider

LIST_TIMEOUT_S = 3.0
CACHE_NAME = "model-lists.json"
_MAX_SERVERS = 50
_MAX_MODELS = 2_000
_MAX_NAMED = 5


class StoredList(Struct, frozen=True):
    """The list of one server as it was at `time`."""

    time: float
    models: tuple[ListedModel, ...]


class ModelLists:
    """Asks each server at most once and remembers the answers."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._path = get_cache_dir(env) / CACHE_NAME
        self._stored: dict[str, StoredList] | None = None
        self._asked: dict[str, tuple[ListedModel, ...]] = {}

    def find(self, url: str) -> tuple[ListedModel, ...]:
        """Return the last known list of the server at this URL, without asking it."""
        stored = self._load().get(url)
        return self._asked.get(url) or (stored.models if stored is not None else ())

    async def ask(self, adapter: WireProvider) -> tuple[ListedModel, ...]:
        """Return the list of a server. Raise ProviderError if it gives none in time."""
        if not self._asked.get(adapter.url):
            self._asked[adapter.url] = (await adapter.list_models(LIST_TIMEOUT_S))[:_MAX_MODELS]
            self._store(adapter.url)
        return self._asked[adapter.url]

    async def ask_or_find(self, adapter: WireProvider) -> tuple[ListedModel, ...]:
        """Return the list of a server, or the last known one if it gives none."""
        try:
            return await self.ask(adapter)
        except OdinError:
            return self.find(adapter.url)

    def _load(self) -> dict[str, StoredList]:
        if self._stored is None:
            try:
                self._stored = msgspec.json.decode(self._path.read_bytes(), type=dict[str, StoredList])
            except (OSError, msgspec.MsgspecError, UnicodeError):
                self._stored = {}
        return self._stored

    def _store(self, url: str) -> None:
        """Keep the list for later runs. A cache that cannot be written is no error."""
        self._stored = None
        stored = {**self._load(), url: StoredList(time.time(), self._asked[url])}
        newest = sorted(stored, key=lambda key: stored[key].time)[-_MAX_SERVERS:]
        self._stored = {key: stored[key] for key in newest}
        try:
            make_private_folder(self._path.parent)
            write_atomically(self._path, msgspec.json.encode(self._stored))
        except OdinError:
            return


def is_listed(model: str, names: list[str]) -> bool:
    """True if a server has this model under this name, or with the tag or date that it leaves out."""
    return any(
        name in (model, f"{model}:latest") or (name.startswith(f"{model}-") and name[len(model) + 1 :].isdigit())
        for name in names
    )


def make_unknown_model(provider: str, model: str, names: list[str]) -> ConfigError:
    """Return the error for a model that its server does not list."""
    suggestion = suggest_similar(model, names, f"{provider}/{{}}")
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ConfigError(
        f"{provider} has no model {model!r}.{suggestion}",
        f"It has {', '.join(names[:_MAX_NAMED])}{more}. /models and `odin models` list them.",
    )
