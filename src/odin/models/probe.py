"""For `odin models` and `odin doctor models`: lists the models, and sends each a test request."""

import asyncio
import time
from collections.abc import Mapping

from msgspec import Struct

from odin.config import Config, load
from odin.config.auth import read_auth_file
from odin.core.client import AvailableModel
from odin.core.errors import OdinError
from odin.core.message import PromptMessage
from odin.core.provider import CallChunk, Request, TextChunk, ThinkingChunk
from odin.models.catalog import PRESETS, default_ref_of
from odin.models.keys import add_stored_keys
from odin.models.model_lists import ON_THIS_MACHINE
from odin.models.selection import ModelSelector


async def list_models(env: Mapping[str, str], cwd: str) -> tuple[tuple[AvailableModel, ...], tuple[str, ...]]:
    """Return all usable models, including those of local servers, and what is wrong with the lists of models."""
    models = ModelSelector(load(cwd, env), env)
    try:
        found = await models.list_available("all")
        return found, tuple(filter(None, (*models.list_problems, models.warning)))
    finally:
        await models.close()


PROBE_TIMEOUT_S = 20.0
_PROBE_PROMPT = "Answer with the one word: yes"


class ModelProbe(Struct, frozen=True):
    """The result of one test request. `why` says why this model was tested: it is the model, the small model, …"""

    ref: str
    why: str
    ok: bool
    text: str
    seconds: float = 0.0


async def probe_models(cwd: str, env: Mapping[str, str], timeout: float = PROBE_TIMEOUT_S) -> tuple[ModelProbe, ...]:
    """Test all models concurrently."""
    config = load(cwd, env)
    models = ModelSelector(config, env)
    try:
        probes = (_probe_model(models, ref, why, timeout) for ref, why in collect_probe_refs(config, env).items())
        answers, servers = await asyncio.gather(asyncio.gather(*probes), _probe_local_servers(models))
    finally:
        await models.close()
    known = {answer.ref for answer in answers}
    return (*answers, *(item for item in servers if item.ref not in known))


def collect_probe_refs(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return the models named in the settings, and the default model of every provider with a key."""
    found: dict[str, str] = {}
    named = {
        "model": config.model,
        "small_model": config.small_model,
        "compaction.model": config.compaction.model,
        **{f"fallback_model {number}": ref for number, ref in enumerate(config.fallback_model, 1)},
    }
    for why, ref in named.items():
        if ref:
            found[ref] = f"{found[ref]}, {why}" if ref in found else why
    settings = add_stored_keys(config.providers, read_auth_file(env), env)
    for provider in dict.fromkeys([*PRESETS, *settings]):
        ref = default_ref_of(provider, settings, env)
        if ref and not any(other.startswith(f"{provider}/") for other in found):
            found[ref] = "has a key" if settings.get(provider) is None else "configured"
    return found


async def _probe_model(models: ModelSelector, ref: str, why: str, timeout: float) -> ModelProbe:
    started, answered = time.monotonic(), False

    def after() -> float:
        return round(time.monotonic() - started, 2)

    try:
        async with asyncio.timeout(timeout):
            provider, info = await models.connect_other(ref)
            request = Request(info.id, (PromptMessage(_PROBE_PROMPT),), max_tokens=64)
            async for piece in provider.stream(request):
                answered = answered or isinstance(piece, TextChunk | ThinkingChunk | CallChunk)
        if answered:
            return ModelProbe(ref, why, True, f"answers after {after():.1f} s", after())
        return ModelProbe(ref, why, False, "its answer was empty", after())
    except TimeoutError:
        return ModelProbe(ref, why, False, f"no answer within {timeout:g} s", after())
    except OdinError as error:
        return ModelProbe(ref, why, False, error.describe(), after())


async def _probe_local_servers(models: ModelSelector) -> tuple[ModelProbe, ...]:
    found = await models.list_available("all")
    return tuple(
        ModelProbe(item.ref, ON_THIS_MACHINE, True, f"its server is there ({item.address})")
        for item in found
        if item.note == ON_THIS_MACHINE
    )
