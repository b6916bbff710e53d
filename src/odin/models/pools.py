"""Model pools: named, ordered lists of models in the configuration. An entry may be another pool. And variants.

{"model_pools": {"main": ["anthropic/claude-opus-5@high", "openai/gpt-6-sol", "cheap"], "cheap": ["groq/…"]}}
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from odin.config import CONFIG_NAME, Config, get_config_dir
from odin.config.files import locate_value
from odin.core.errors import ConfigError, OdinError
from odin.core.provider import ModelInfo, RequestOptions
from odin.core.text import suggest_similar
from odin.providers.settings import ModelSettings, VariantSettings

SECTION = "model_pools"


class CyclicPool(ConfigError):
    """A pool contains itself. `names` lead from it to itself."""

    def __init__(self, place: str, names: tuple[str, ...]) -> None:
        super().__init__(f"{place}: the model pool {names[0]!r} contains itself: {' → '.join(names)}.")
        self.names = names


class ModelPools:
    """The pools of a session. `normalize` returns the full name of a model, and `check` raises if it cannot exist."""

    def __init__(
        self, config: Config, env: Mapping[str, str], normalize: Callable[[str], str], check: Callable[[str], object]
    ) -> None:
        self._pools = config.model_pools
        self._files = (Path(config.root, CONFIG_NAME), get_config_dir(env) / CONFIG_NAME)
        self._normalize = normalize
        self._check = check

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._pools)

    def list_models(self, name: str) -> tuple[str, ...]:
        """Return the models of a pool in order. Raise ConfigError if there is no such pool, or it has no model."""
        if name not in self._pools:
            known = f"Pools: {', '.join(self._pools)}." if self._pools else f"Set {SECTION} in your odinconfig.json."
            raise ConfigError(f"There is no model pool {name!r}.{suggest_similar(name, self._pools)}", known)
        return tuple(dict.fromkeys(self._expand(name, ())))

    def list_usable(self, name: str) -> tuple[str, ...]:
        """Return the models of a pool that can exist. Raise ConfigError if there is none."""
        models = [ref for ref in self.list_models(name) if not self._find_problem(ref)]
        if not models:
            text = f"{self._locate(name)}: no model of the pool {name!r} can be used."
            raise ConfigError(text, "`odin models` lists the models.")
        return tuple(models)

    def list_problems(self) -> Iterator[str]:
        """Yield one sentence with file and line for each mistake."""
        cyclic: set[str] = set()
        for name, entries in self._pools.items():
            try:
                self.list_models(name)
            except CyclicPool as error:
                if cyclic.isdisjoint(error.names):
                    yield str(error)
                cyclic.update(error.names)
                continue
            except ConfigError as error:
                yield str(error)
                continue
            for number, entry in enumerate(entries):
                problem = "" if entry in self._pools else self._find_problem(self._normalize(entry))
                if problem:
                    yield f"{self._locate(name, number)}: the model {entry!r} cannot be used: {problem}"

    def _expand(self, name: str, outer: tuple[str, ...]) -> Iterator[str]:
        if name in outer:
            raise CyclicPool(self._locate(outer[-1]), (*outer[outer.index(name) :], name))
        if not self._pools[name]:
            raise ConfigError(f"{self._locate(name)}: the model pool {name!r} is empty.", "Name at least one model.")
        for entry in self._pools[name]:
            if entry in self._pools:
                yield from self._expand(entry, (*outer, name))
            else:
                yield self._normalize(entry)

    def _find_problem(self, ref: str) -> str:
        try:
            self._check(ref)
        except OdinError as error:
            return error.describe()
        return ""

    def _locate(self, name: str, *path: int) -> str:
        """Return the file and line where a pool, or one of its entries, is written."""
        for file in self._files:
            if line := locate_value(file, SECTION, name, *path):
                return f"{file}, line {line}"
        return SECTION


# --- variants ---


_USUAL_EFFORTS = ("low", "medium", "high")
"""Variants that every model which reasons has without configuration."""


THINKING_BY_EFFORT = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 24576,
    "xhigh": 32768,
    "max": 65536,
}
"""Token budgets, for models that take no effort by name."""


def locate_variant(info: ModelInfo, env: Mapping[str, str]) -> str:
    """Return the file and line where the variant of a model is written, or its setting if it is built in."""
    file, path = get_config_dir(env) / CONFIG_NAME, ("providers", info.provider, "models", info.id, "variants")
    line = locate_value(file, *path, info.variant)
    return f"{file}, line {line}" if line else ".".join((*path, info.variant))


def apply_effort(info: ModelInfo, effort: str) -> ModelInfo:
    """Return the model with another reasoning effort."""
    return replace(info, options=replace(info.options, effort=effort, thinking=THINKING_BY_EFFORT.get(effort)))


def find_options(name: str, variant: str, rows: Sequence[ModelSettings], *, thinks: bool | None) -> RequestOptions:
    """Return the options of a variant. Raise ConfigError if there is none, or if the model is known to reject it."""
    found = next((row.variants[variant] for row in rows if variant in row.variants), None)
    if found is None and variant in _USUAL_EFFORTS:
        found = VariantSettings(effort=variant)
    if found is None:
        known = list(dict.fromkeys([*(key for row in rows for key in row.variants), *_USUAL_EFFORTS]))
        suggestion = suggest_similar(variant, known, f"{name}@{{}}")
        raise ConfigError(f"{name} has no variant {variant!r}.{suggestion}", f"Variants: {', '.join(known)}.")
    if thinks is False and (found.thinking or found.effort not in (None, "none")):
        raise ConfigError(
            f"{name} does not reason, so it rejects the variant {variant!r}.",
            "Remove its effort and thinking, or set thinking: true for the model.",
        )
    return RequestOptions(
        effort=found.effort or "",
        thinking=found.thinking if found.thinking is not None else THINKING_BY_EFFORT.get(found.effort or ""),
        temperature=found.temperature,
        max_tokens=found.max_tokens or 0,
        service_tier=found.service_tier,
    )
