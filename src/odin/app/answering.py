"""`odin doctor models`: whether the models that would be used answer. Each is asked for one word, and not for long."""

import asyncio
import time
from collections.abc import Mapping

from msgspec import Struct

from odin.app.auth import add_stored_keys
from odin.app.modellist import ON_THIS_MACHINE
from odin.app.models import ModelSelector
from odin.config import Config, load
from odin.config.auth import read_auth_file
from odin.core.errors import OdinError
from odin.core.message import PromptMessage
from odin.core.provider import CallChunk, Request, TextChunk, ThinkingChunk
from odin.providers.catalog import PRESETS, default_ref_of

PROBE_TIMEOUT_S = 20.0
_PROBE_PROMPT = "Answer with the one word: yes"


class ModelProbe(Struct, frozen=True):
    """What became of one question. `why` says why it was asked: it is the model, the small model, ..."""

    ref: str
    why: str
    ok: bool
    text: str
    seconds: float = 0.0


async def probe_models(cwd: str, env: Mapping[str, str], timeout: float = PROBE_TIMEOUT_S) -> tuple[ModelProbe, ...]:
    """Ask them all at the same time."""
    config = load(cwd, env)
    models = ModelSelector(config, env)
    try:
        questions = (_probe_model(models, ref, why, timeout) for ref, why in collect_probe_refs(config, env).items())
        answers, servers = await asyncio.gather(asyncio.gather(*questions), _probe_local_servers(models))
    finally:
        await models.close()
    known = {answer.ref for answer in answers}
    return (*answers, *(item for item in servers if item.ref not in known))


def collect_probe_refs(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """The models that are named in the settings, and the usual one of every provider with a key."""
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
    begun, said = time.monotonic(), False

    def after() -> float:
        return round(time.monotonic() - begun, 2)

    try:
        async with asyncio.timeout(timeout):
            provider, info = await models.connect_other(ref)
            request = Request(info.id, (PromptMessage(_PROBE_PROMPT),), max_tokens=64)
            async for piece in provider.stream(request):
                said = said or isinstance(piece, TextChunk | ThinkingChunk | CallChunk)
        if said:
            return ModelProbe(ref, why, True, f"answers after {after():.1f} s", after())
        return ModelProbe(ref, why, False, "its answer was empty", after())
    except TimeoutError:
        return ModelProbe(ref, why, False, f"no answer within {timeout:g} s", after())
    except OdinError as error:
        return ModelProbe(ref, why, False, error.describe(), after())


async def _probe_local_servers(models: ModelSelector) -> tuple[ModelProbe, ...]:
    found = await models.list_available(probe_servers=True)
    return tuple(
        ModelProbe(item.ref, ON_THIS_MACHINE, True, f"its server is there ({item.address})")
        for item in found
        if item.note == ON_THIS_MACHINE
    )
