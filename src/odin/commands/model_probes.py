"""The test requests of `odin doctor models`.

Each model is tried as a turn uses it: with a tool, with thinking and with an effort, all in one request. Only if that
is refused are they tried one by one, so that a model that takes them costs one small request.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from odin.config import Config, load
from odin.config.auth import read_auth_file
from odin.core.client import AvailableModel
from odin.core.errors import (
    AuthFailed,
    BadReply,
    BadRequest,
    ConfigError,
    EmptyReply,
    Misconfigured,
    ModelNotFound,
    NoUsableKeys,
    OdinError,
    Overloaded,
    PackageFailed,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    ReplyBlocked,
    StreamStalled,
    TlsFailed,
    Unreachable,
)
from odin.core.format import format_usd, pluralize
from odin.core.message import PromptMessage, Usage
from odin.core.provider import (
    CallChunk,
    ModelInfo,
    Provider,
    Request,
    StopChunk,
    TextChunk,
    ThinkingChunk,
    ToolSpec,
    UsageChunk,
    open_stream,
)
from odin.core.text import join_some
from odin.models.catalog import PRESETS, add_stored_keys, find_provider_default
from odin.models.connector import ModelConnector
from odin.models.model_lists import ON_THIS_MACHINE
from odin.models.pools import apply_effort

PROBE_TIMEOUT_S = 20.0
_WORD_PROMPT = "Answer with the one word: yes"
_TOOL_PROMPT = "Call the tool report_status with ok set to true. Do not explain it."
_TOOL = ToolSpec(
    "report_status",
    "Reports whether all is well.",
    {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False},
)
_MAX_TOKENS = 1024
_LEAST_THINKING = 1024
_USUAL_EFFORT = "low"
_SMALL_JOBS = {"small_model", "compaction.model"}


class ModelProbe(Struct, frozen=True):
    """The result of one test request. `why` says why this model was tested: it is the model, the small model, …

    `problem` names the kind of failure in a few words: "bad key", "no credit", "wrong URL". `tried` is what the request
    asked for, `refused` what the model refuses of it, with its words. `cost_usd` is that of all requests, None if
    unknown.
    """

    ref: str
    why: str
    ok: bool
    text: str
    seconds: float = 0.0
    problem: str = ""
    tried: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict[str, str])
    cost_usd: float | None = None


async def probe_models(cwd: str, env: Mapping[str, str], timeout: float = PROBE_TIMEOUT_S) -> tuple[ModelProbe, ...]:
    """Test all models concurrently: those of the settings, and one of every other configured provider."""
    config = load(cwd, env)
    models = ModelConnector(config, env)
    try:
        refs = collect_probe_refs(config, env)
        probes = (_probe_model(models, ref, why, timeout) for ref, why in refs.items())
        answers, found = await asyncio.gather(asyncio.gather(*probes), models.list_available("all"))
        others = [name for name in config.providers if not any(ref.startswith(f"{name}/") for ref in refs)]
        more = await asyncio.gather(*(_probe_listed(models, name, found, timeout) for name in others))
    finally:
        await models.close()
    known = {answer.ref for answer in (*answers, *more)}
    servers = (
        ModelProbe(item.ref, ON_THIS_MACHINE, True, f"its server is there ({item.address})")
        for item in found
        if item.note == ON_THIS_MACHINE and item.ref not in known
    )
    return (*answers, *more, *servers)


def collect_probe_refs(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return the models named in the settings, and the default model of every provider with a key."""
    found: dict[str, str] = {}
    named = {
        "model": config.model,
        "small_model": config.small_model,
        "compaction.model": config.compaction.model,
        **{f"fallback_model {number}": ref for number, ref in enumerate(config.fallback_model, 1)},
    }
    pools = [(f"pool {name}", ref) for name, refs in config.model_pools.items() for ref in refs]
    for why, ref in (*named.items(), *pools):
        if ref and ref not in config.model_pools:
            found[ref] = f"{found[ref]}, {why}" if ref in found else why
    settings = add_stored_keys(config.providers, read_auth_file(env))
    for provider in dict.fromkeys([*PRESETS, *settings]):
        ref = find_provider_default(provider, settings, env)
        if ref and not any(other.startswith(f"{provider}/") for other in found):
            found[ref] = "has a key" if settings.get(provider) is None else "configured"
    return found


async def _probe_listed(
    models: ModelConnector, provider: str, found: Sequence[AvailableModel], timeout: float
) -> ModelProbe:
    """Test the first model that the server of a provider lists."""
    ref = next((item.ref for item in found if item.ref.startswith(f"{provider}/")), "")
    if ref:
        return await _probe_model(models, ref, "configured", timeout)
    start = f"The models of {provider} "
    why = next((line for line in models.list_problems if line.startswith(start)), "It lists no models.")
    return ModelProbe(provider, "configured", False, why, problem="no models")


async def _probe_model(models: ModelConnector, ref: str, why: str, timeout: float) -> ModelProbe:
    """Try a model as a turn uses it, or as a small job does. If it refuses that, find out what it refuses."""
    started = time.monotonic()

    def report(ok: bool, text: str, problem: str = "", **more: Any) -> ModelProbe:
        return ModelProbe(ref, why, ok, text, round(time.monotonic() - started, 2), problem, **more)

    try:
        async with asyncio.timeout(timeout):
            provider, info = await models.connect(ref)
        trial = _ModelTrial(provider, info, timeout)
        parts = _list_parts(models.config, info) if set(why.split(", ")) - _SMALL_JOBS else {}
        try:
            called = await trial.send(*parts.values())
            refused: dict[str, str] = {}
        except (BadRequest, ModelNotFound) as error:
            called, refused = True, await trial.find_refused(parts, error)
    except TimeoutError:
        return report(False, f"no answer within {timeout:g} s", "no answer")
    except EmptyReply:
        return report(False, "its answer was empty", "no answer")
    except OdinError as error:
        return report(False, error.describe(), name_problem(error))
    took, tried = f"{time.monotonic() - started:.1f} s", join_some(list(parts), len(parts))
    cost = trial.describe_cost()
    if not refused:
        remark = "" if called else f", but did not call the {_TOOL.name} tool that it was asked to call"
        text = f"answers after {took}{f' with {tried}' if parts else ''}{remark}; {cost}"
        return report(True, text, tried=tuple(parts), cost_usd=trial.cost_usd)
    names, sentences = " and ".join(refused), " ".join(dict.fromkeys(refused.values()))
    is_needed = any(name not in parts or parts[name].is_used for name in refused)
    start = "" if is_needed else f"answers, but refuses {names}, which your settings do not ask for. "
    text = f"{start}{sentences} Otherwise it answers; {cost}"
    problem = f"refuses {names}" if is_needed else ""
    return report(not is_needed, text, problem, tried=tuple(parts), refused=refused, cost_usd=trial.cost_usd)


class _Part(Struct, frozen=True):
    """What a request may ask for. `is_used`: with the settings as they are, each turn does."""

    is_used: bool
    options: dict[str, Any]


def _list_parts(config: Config, info: ModelInfo) -> dict[str, _Part]:
    """Return what is tried with a model, by its name. What it is known not to have is left out."""
    if info.strategy == "files":
        return {}
    effort = info.options.effort or config.effort or ""
    thinking = config.thinking if info.options.thinking is None else info.options.thinking
    parts = {"a tool": _Part(True, {"tools": (_TOOL,)})}
    if info.thinking:
        parts["thinking"] = _Part(thinking > 0, {"thinking": thinking or _LEAST_THINKING})
    if info.takes_effort:
        asked = apply_effort(info, effort or _USUAL_EFFORT).options
        parts[f"effort {asked.effort}"] = _Part(bool(effort), {"effort": asked.effort, "thinking": asked.thinking or 0})
    return parts


class _ModelTrial:
    """Sends test requests to one model and adds up what they cost."""

    def __init__(self, provider: Provider, info: ModelInfo, timeout: float) -> None:
        self._provider = provider
        self._info = info
        self._timeout = timeout
        self._spent: list[Usage] = []

    @property
    def cost_usd(self) -> float | None:
        """None if the price is unknown."""
        return sum(map(self._info.calculate_cost, self._spent)) if self._info.has_price else None

    def describe_cost(self) -> str:
        cost = self.cost_usd
        amount = "of unknown cost" if cost is None else f"for {format_usd(cost)}"
        return f"{pluralize(len(self._spent), 'request')} {amount}"

    async def send(self, *parts: _Part) -> bool:
        """Ask for these parts, or for one word. True if the model did as it was told. Raise EmptyReply if it says
        nothing."""
        asked: dict[str, Any] = {"max_tokens": 64, "brief": True} if not parts else {"max_tokens": _MAX_TOKENS}
        for part in parts:
            asked |= part.options
        prompt = PromptMessage(_TOOL_PROMPT if "tools" in asked else _WORD_PROMPT)
        request = Request(self._info.id, (prompt,), max_output=self._info.max_output, **asked)
        usage, answered, called = Usage(), False, "tools" not in asked
        try:
            async with asyncio.timeout(self._timeout), open_stream(self._provider, request) as pieces:
                async for piece in pieces:
                    called = called or isinstance(piece, CallChunk)
                    answered = answered or isinstance(piece, TextChunk | ThinkingChunk | CallChunk)
                    answered = answered or (isinstance(piece, StopChunk) and piece.reason == "max_tokens")
                    usage = piece.usage if isinstance(piece, UsageChunk) else usage
        finally:
            self._spent += [usage] if usage.total else []
        if not answered:
            raise EmptyReply("The answer was empty.")
        return called

    async def find_refused(self, parts: Mapping[str, _Part], error: ProviderError) -> dict[str, str]:
        """Return what the model refuses, with its words. Raise `error`, its first one, if it refuses any request."""
        if not parts:
            raise error
        try:
            await self.send()
        except (OdinError, TimeoutError):
            raise error from None
        results = await asyncio.gather(*map(self.send, parts.values()), return_exceptions=True)
        refused = {
            name: str(result)
            for name, result in zip(parts, results, strict=True)
            if isinstance(result, BadRequest | ModelNotFound)
        }
        return refused or {" and ".join(parts) + " together": str(error)}


_PROBLEMS: tuple[tuple[type[OdinError], str], ...] = (
    (NoUsableKeys, "no key"),
    (AuthFailed, "bad key"),
    (QuotaExhausted, "no credit"),
    (RateLimited, "rate limit"),
    (TlsFailed, "certificate"),
    (BadReply, "wrong URL"),
    (Unreachable, "no network"),
    (StreamStalled, "no answer"),
    (Overloaded, "provider is failing"),
    (ReplyBlocked, "blocked"),
    (BadRequest, "refused request"),
    (ConfigError, "settings"),
    (Misconfigured, "settings"),
    (PackageFailed, "package fails"),
)


def name_problem(error: OdinError) -> str:
    """Return the kind of failure in a few words."""
    if isinstance(error, AuthFailed | Unreachable) and "proxy" in str(error):
        return "proxy"
    if isinstance(error, NoUsableKeys) and error.status:
        return "bad key"
    if isinstance(error, Unreachable) and "model server running" in error.hint:
        return "no server"
    if isinstance(error, ModelNotFound):
        said = str(error).partition("': ")[2]
        return "unknown model" if "model" in said.lower() else "wrong URL"
    return next((name for kind, name in _PROBLEMS if isinstance(error, kind)), "")
