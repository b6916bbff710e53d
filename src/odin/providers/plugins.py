"""Providers of other packages, found by the entry-point group `odin.providers`.

An entry point has the name of a provider and refers to a callable that takes a `ProviderSetup` and returns a
`Provider`. Only the one that a model names is imported, and its failures are errors that name it: a broken package
never stops Odin from starting. It cannot take the name of a provider that Odin knows.
"""

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from odin.core.errors import ConfigError, Misconfigured, OdinError, PackageFailed, ProviderError, Unreachable
from odin.core.format import clip_line
from odin.core.policy import hide_key
from odin.core.provider import Chunk, Provider, Request, WaitChunk, open_stream
from odin.providers.settings import ModelSettings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "odin.providers"


class ProviderSetup(Struct, frozen=True):
    """What the user configured for a provider of another package.

    `options` is `providers.NAME.options`, whose meaning the package decides. `api_key` and `base_url` may be empty;
    `api_keys` are all keys of the provider in the order of use.
    """

    name: str
    api_key: str = ""
    base_url: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    api_keys: tuple[str, ...] = ()


class ProviderPlugin(Struct, frozen=True):
    """An entry point that has been loaded. `models` are the properties of its models, if it declares them."""

    name: str
    package: str
    connect: Callable[[ProviderSetup], Any]
    models: Mapping[str, ModelSettings]


@lru_cache(maxsize=4)
def _find_entry_points(path: tuple[str, ...]) -> "dict[str, EntryPoint]":
    """Return the installed entry points. The path is that of modules, which tests change."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def list_plugins() -> dict[str, str]:
    """Return the names of the installed providers, each with its package. Nothing of them is imported."""
    return {name: _get_package(point) for name, point in _find_entry_points(tuple(sys.path)).items()}


def has_plugin(name: str) -> bool:
    return name in _find_entry_points(tuple(sys.path))


def load_plugin(name: str) -> ProviderPlugin:
    """Import the package that provides `name`. Raise ConfigError if that fails."""
    point = _find_entry_points(tuple(sys.path))[name]
    package = _get_package(point)
    try:
        found: Any = point.load()
        models: dict[str, Any] = dict(getattr(found, "models", {}))
    except Exception as error:  # foreign code: report whatever it raises
        raise _make_load_error(name, package, error) from error
    wrong = next((model for model, one in models.items() if not isinstance(one, ModelSettings)), "")
    if not callable(found) or wrong:
        why = f"models[{wrong!r}] is no ModelSettings" if wrong else f"{point.value} cannot be called"
        raise ConfigError(f"The provider {name!r} of the package {package} cannot be used: {why}.", _HINT)
    return ProviderPlugin(name, package, found, models)


_HINT = "Update or uninstall the package, or choose another model."


def _get_package(point: "EntryPoint") -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _make_load_error(name: str, package: str, error: Exception) -> ConfigError:
    why = clip_line(f"{type(error).__name__}: {error}").rstrip(".")
    return ConfigError(f"The provider {name!r} of the package {package} cannot be loaded: {why}.", _HINT)


def connect_plugin(plugin: ProviderPlugin, setup: ProviderSetup) -> "PluginProvider":
    """Return the provider. Raise ConfigError if the package does not return one."""
    try:
        made = plugin.connect(setup)
    except OdinError:
        raise
    except Exception as error:  # foreign code: report whatever it raises
        raise _make_load_error(plugin.name, plugin.package, error) from error
    missing = next((part for part in ("stream", "close") if not callable(getattr(made, part, None))), "")
    if missing:
        why = f"it returns {type(made).__name__}, which has no {missing}()"
        raise ConfigError(f"The provider {plugin.name!r} of the package {plugin.package} cannot be used: {why}.", _HINT)
    return PluginProvider(plugin, made, setup.api_keys)


class PluginProvider:
    """A provider of another package. Whatever it raises becomes a ProviderError that names it, without the keys.

    A timeout or a broken connection is worth a retry; after anything else the next model of a pool can answer.
    """

    def __init__(self, plugin: ProviderPlugin, provider: Provider, keys: tuple[str, ...]) -> None:
        self.name = plugin.name
        self._package = plugin.package
        self._provider = provider
        self._keys = keys

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        is_accepted = False
        try:
            async with open_stream(self._provider, request) as chunks:
                async for chunk in chunks:
                    if not is_accepted and not isinstance(chunk, WaitChunk):
                        yield WaitChunk("waiting_token")
                    is_accepted = is_accepted or not isinstance(chunk, WaitChunk)
                    yield chunk
        except ProviderError:
            raise
        except OdinError as error:
            raise Misconfigured(str(error), error.hint) from error
        except Exception as error:  # foreign code: report whatever it raises
            why = f"{type(error).__name__}: {error}"
            for key in self._keys:
                why = hide_key(why, key)
            why = clip_line(why).rstrip(".")
            kind = Unreachable if isinstance(error, OSError) else PackageFailed
            raise kind(f"The provider {self.name!r} of the package {self._package} failed: {why}.", _HINT) from error

    async def close(self) -> None:
        """Close the provider. A failure is no concern of the user any more."""
        with suppress(Exception):
            await self._provider.close()
