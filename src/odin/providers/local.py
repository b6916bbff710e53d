"""Finds model servers on this machine and what they really offer.

A catalogue knows what a model was trained for; only the server knows how much context it was given here. So each kind
is asked in its own way: Ollama /api/show and /api/ps, LM Studio /api/v0/models, llama.cpp /props, vLLM /v1/models.
Whatever else answers like OpenAI is taken as it is. A port that is silent, slow or says something else is passed over.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from odin.core.errors import OdinError
from odin.core.provider import ModelInfo
from odin.providers.http import Http
from odin.providers.settings import ModelSettings, ProviderSettings

Kind = Literal["ollama", "lmstudio", "llamacpp", "vllm", "local"]

PORTS: tuple[int, ...] = (11434, 1234, 8080, 8000)
"""Where Ollama, LM Studio, llama.cpp and vLLM usually listen."""

SMALL_MODEL = 4e9
"""Below this many parameters models seldom call tools natively with success, whatever their template says."""

_OLLAMA_CONTEXT = 4096
_AT_ONCE = 8
_PATIENCE = 900.0
"""Seconds a server on this machine may work on a prompt before its answer begins."""


class LocalServer(Struct, frozen=True):
    """A server that answered. The provider of its models is named after its kind."""

    kind: Kind
    base_url: str
    models: tuple[ModelInfo, ...]

    def settings(self) -> ProviderSettings:
        """How to reach it, in the terms of the configuration: address, patience, and what is known of each model."""
        models = {
            model.id: ModelSettings(
                model.context or None, model.max_output or None, tools=model.tools, images=model.images or None
            )
            for model in self.models
        }
        return ProviderSettings(
            "openai-chat", self.base_url, models=models, idle_timeout=_PATIENCE, header_timeout=_PATIENCE
        )


async def discover(
    env: Mapping[str, str] | None = None,
    http: Http | None = None,
    *,
    ports: Iterable[int] | None = None,
    timeout: float = 0.5,
) -> tuple[LocalServer, ...]:
    """The servers on this machine's loopback ports, in the order of the ports. Takes at most `timeout` seconds."""
    env = os.environ if env is None else env
    wanted = ports_from(env) if ports is None else tuple(ports)
    if not wanted:
        return ()
    client = http or Http(env)
    try:
        found = await asyncio.gather(
            *(probe(f"http://127.0.0.1:{port}", env, client, timeout=timeout) for port in wanted)
        )
    finally:
        if http is None:
            await client.close()
    return tuple(server for server in found if server is not None)


def ports_from(env: Mapping[str, str]) -> tuple[int, ...]:
    """The ports to look at: ODIN_LOCAL_PORTS, where empty means none, or the usual ones."""
    text = env.get("ODIN_LOCAL_PORTS")
    if text is None:
        return PORTS
    numbers = (int(part) for part in re.split(r"[,\s]+", text) if part.isascii() and part.isdigit())
    return tuple(dict.fromkeys(number for number in numbers if 0 < number < 65536))


async def probe(
    url: str, env: Mapping[str, str] | None = None, http: Http | None = None, *, timeout: float = 0.5
) -> LocalServer | None:
    """The server at an address, with or without its /v1; None when nothing there speaks the OpenAI API in time."""
    origin = re.sub(r"/v1/?$", "", url.rstrip("/"))
    client = http or Http(env)
    questions = _Questions(origin, client, timeout)
    try:
        async with asyncio.timeout(timeout * 2):
            return await _identify(questions, os.environ if env is None else env)
    except TimeoutError:
        return questions.known
    finally:
        if http is None:
            await client.close()


async def window_of(
    url: str, model: str, env: Mapping[str, str] | None = None, http: Http | None = None, *, timeout: float = 1.0
) -> int:
    """The context that the server at this address gives to a model; 0 when it does not say."""
    base_url = re.sub(r"/(chat/completions|responses|messages)/?$", "", url)
    server = await probe(base_url, env, http, timeout=timeout)
    if server is None or server.kind == "local":
        return 0
    names = (model, f"{model}:latest")
    return next((found.context for found in server.models if found.id in names), 0)


class _Questions:
    """Small questions to one server. An answer that is no JSON object is no answer."""

    def __init__(self, origin: str, http: Http, timeout: float) -> None:
        self.origin = origin
        self.known: LocalServer | None = None
        self._http = http
        self._timeout = timeout
        self._gate = asyncio.Semaphore(_AT_ONCE)

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            async with self._gate:
                status, answer = await self._http.fetch(
                    self.origin + path, headers=headers, body=data, timeout=self._timeout
                )
            return _object(msgspec.json.decode(answer)) if status == 200 else {}
        except (OdinError, msgspec.DecodeError, UnicodeError):
            return {}

    def server(self, kind: Kind, models: Iterable[ModelInfo]) -> LocalServer:
        self.known = LocalServer(kind, self.base_url, tuple(models))
        return self.known


async def _identify(questions: _Questions, env: Mapping[str, str]) -> LocalServer | None:
    entries = _entries(await questions.ask("/v1/models"), "data")
    owners = {str(entry.get("owned_by", "")) for entry in entries}
    if entries:
        questions.server("local", (_model(_id(entry), "local", 0) for entry in entries))
    if "llamacpp" in owners:
        return await _llamacpp(questions, entries)
    if "vllm" in owners or any("max_model_len" in entry for entry in entries):
        return questions.server("vllm", (_model(_id(e), "vllm", _count(e.get("max_model_len"))) for e in entries))
    tags, studio = await asyncio.gather(questions.ask("/api/tags"), questions.ask("/api/v0/models"))
    if _is_ollama(tags):
        return await _ollama(questions, _entries(tags, "models"), env)
    if any("max_context_length" in entry for entry in _entries(studio, "data")):
        return questions.server("lmstudio", _lmstudio(_entries(studio, "data")))
    props = await questions.ask("/props") if entries else {}
    if "default_generation_settings" in props:
        return await _llamacpp(questions, entries, props)
    return questions.known


# --- each kind in its own words ---


async def _llamacpp(
    questions: _Questions, entries: list[dict[str, Any]], props: dict[str, Any] | None = None
) -> LocalServer:
    if props is None:
        questions.server("llamacpp", (_llamacpp_model(entry, {}) for entry in entries))
        props = await questions.ask("/props")
    return questions.server("llamacpp", [_llamacpp_model(entry, props) for entry in entries])


def _llamacpp_model(entry: dict[str, Any], props: dict[str, Any]) -> ModelInfo:
    """`n_ctx` is what the server was started with; the trained context is no promise."""
    meta = _object(entry.get("meta"))
    settings = _object(props.get("default_generation_settings"))
    context = _count(settings.get("n_ctx")) or _count(props.get("n_ctx")) or _count(meta.get("n_ctx"))
    caps = _object(props.get("chat_template_caps"))
    sees = _object(props.get("modalities")).get("vision") is True
    able = caps.get("supports_tools", True)
    return _model(_id(entry), "llamacpp", context, _count(meta.get("n_params")), able, sees)


def _is_ollama(tags: dict[str, Any]) -> bool:
    return isinstance(tags.get("models"), list)


async def _ollama(questions: _Questions, tags: list[dict[str, Any]], env: Mapping[str, str]) -> LocalServer:
    names = [_id(entry) for entry in tags]
    sizes = {_id(entry): _parameters(_object(entry.get("details")).get("parameter_size")) for entry in tags}
    usual = _count(env.get("OLLAMA_CONTEXT_LENGTH")) or _OLLAMA_CONTEXT
    questions.server("ollama", (_model(name, "ollama", usual, sizes[name]) for name in names))
    running, *shown = await asyncio.gather(
        questions.ask("/api/ps"), *(questions.ask("/api/show", {"model": name}) for name in names)
    )
    loaded = {_id(entry): _count(entry.get("context_length")) for entry in _entries(running, "models")}
    models: list[ModelInfo] = []
    for name, show in zip(names, shown, strict=True):
        context = loaded.get(name) or _ollama_context(show, usual)
        skills = _strings(show.get("capabilities"))
        able = "tools" in skills if "capabilities" in show else True
        if "capabilities" not in show or "completion" in skills:
            models.append(_model(name, "ollama", context, sizes[name], able, "vision" in skills))
    return questions.server("ollama", models)


def _ollama_context(show: dict[str, Any], usual: int) -> int:
    """What the model will be loaded with: its own num_ctx, else the server's default, never more than it learned."""
    own = re.search(r"^\s*num_ctx\s+(\d+)", str(show.get("parameters", "")), re.MULTILINE)
    trained = next(
        (_count(n) for key, n in _object(show.get("model_info")).items() if key.endswith(".context_length")), 0
    )
    context = int(own[1]) if own else usual
    return min(context, trained) if trained else context


def _lmstudio(entries: list[dict[str, Any]]) -> list[ModelInfo]:
    return [
        _model(
            _id(entry),
            "lmstudio",
            _count(entry.get("loaded_context_length")) or _count(entry.get("max_context_length")),
            able="tool_use" in _strings(entry.get("capabilities")) if "capabilities" in entry else True,
            sees=entry.get("type") == "vlm",
        )
        for entry in sorted(entries, key=lambda entry: entry.get("state") != "loaded")
        if entry.get("type") in ("llm", "vlm")
    ]


# --- reading answers that may hold anything ---


def _model(
    name: str, kind: Kind, context: int, parameters: float = 0, able: Any = True, sees: bool = False
) -> ModelInfo:
    """What is known of one model. A quarter of the window is for the answer: more would crowd out the conversation."""
    small = 0 < (parameters or _parameters(name)) < SMALL_MODEL
    style = "json" if small or not able else "auto"
    return ModelInfo(name, kind, context, context // 4, tools=style, images=sees)


def _id(entry: dict[str, Any]) -> str:
    return str(entry.get("id") or entry.get("model") or entry.get("name") or "")


def _entries(answer: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found: Any = answer.get(key)
    if not isinstance(found, list):
        return []
    objects = (_object(entry) for entry in cast("list[Any]", found))
    return [entry for entry in objects if _id(entry)]


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _strings(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _count(value: Any) -> int:
    """A positive number, however it was written; 0 for everything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15 else 0


def _parameters(text: Any) -> float:
    """The number of parameters in words such as 1.5B or qwen2.5-coder-1.5b; 0 when it is not said."""
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", str(text).casefold())
    return float(found[1]) * (1e9 if found[2] == "b" else 1e6) if found else 0
