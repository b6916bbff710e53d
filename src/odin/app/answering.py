"""`odin doctor models`: whether the models that would be used answer. Each is asked for one word, and not for long."""

import asyncio
import time
from collections.abc import Mapping

from msgspec import Struct

from odin.app.auth import with_stored
from odin.app.modellist import ON_THIS_MACHINE
from odin.app.models import Models
from odin.config import Config, load
from odin.config.auth import read_auth
from odin.core.errors import OdinError
from odin.core.message import UserMessage
from odin.core.provider import CallPiece, Request, TextPiece, ThinkingPiece
from odin.providers.catalog import PRESETS, usual_ref

PATIENCE_S = 20.0
_QUESTION = "Answer with the one word: yes"


class Answer(Struct, frozen=True):
    """What became of one question. `why` says why it was asked: it is the model, the small model, ..."""

    ref: str
    why: str
    ok: bool
    text: str
    seconds: float = 0.0


async def ask_models(cwd: str, env: Mapping[str, str], patience: float = PATIENCE_S) -> tuple[Answer, ...]:
    """Ask them all at the same time."""
    config = load(cwd, env)
    models = Models(config, env)
    try:
        questions = (_asked(models, ref, why, patience) for ref, why in wanted(config, env).items())
        answers, servers = await asyncio.gather(asyncio.gather(*questions), _local(models))
    finally:
        await models.close()
    known = {answer.ref for answer in answers}
    return (*answers, *(item for item in servers if item.ref not in known))


def wanted(config: Config, env: Mapping[str, str]) -> dict[str, str]:
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
    settings = with_stored(config.providers, read_auth(env), env)
    for provider in dict.fromkeys([*PRESETS, *settings]):
        ref = usual_ref(provider, settings, env)
        if ref and not any(other.startswith(f"{provider}/") for other in found):
            found[ref] = "has a key" if settings.get(provider) is None else "configured"
    return found


async def _asked(models: Models, ref: str, why: str, patience: float) -> Answer:
    begun, said = time.monotonic(), False

    def after() -> float:
        return round(time.monotonic() - begun, 2)

    try:
        async with asyncio.timeout(patience):
            provider, info = await models.named(ref)
            request = Request(info.id, (UserMessage(_QUESTION),), max_tokens=64)
            async for piece in provider.stream(request):
                said = said or isinstance(piece, TextPiece | ThinkingPiece | CallPiece)
        if said:
            return Answer(ref, why, True, f"answers after {after():.1f} s", after())
        return Answer(ref, why, False, "its answer was empty", after())
    except TimeoutError:
        return Answer(ref, why, False, f"no answer within {patience:g} s", after())
    except OdinError as error:
        return Answer(ref, why, False, error.sentence(), after())


async def _local(models: Models) -> tuple[Answer, ...]:
    found = await models.choices(look=True)
    return tuple(
        Answer(item.ref, ON_THIS_MACHINE, True, f"its server is there ({item.where})")
        for item in found
        if item.note == ON_THIS_MACHINE
    )
