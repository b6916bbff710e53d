"""Finds model servers on this machine and what they offer.

Only the server knows how much context it was started with, so each kind is queried in its own way: Ollama /api/show and
/api/ps, LM Studio /api/v0/models, llama.cpp /props, vLLM /v1/models. Any other OpenAI-compatible server is taken as it
is. Ports that are silent, slow or answer something else are skipped. The size and the family of a model decide how it
works.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from odin.core.errors import OdinError
from odin.core.provider import SMALL_MODEL_PARAMETERS, ModelInfo, Strategy
from odin.providers.http import HttpClient
from odin.providers.settings import ModelSettings, ProviderSettings

LocalServerKind = Literal["ollama", "lmstudio", "llamacpp", "vllm", "local"]

PORTS: tuple[int, ...] = (11434, 1234, 8080, 8000)
"""The default ports of Ollama, LM Studio, llama.cpp and vLLM."""

_OLLAMA_CONTEXT = 4096
_MAX_CONCURRENT = 8
_ANSWER_TIMEOUT = 900.0
"""Seconds a local server may work on a prompt before its reply starts."""


class LocalServer(Struct, frozen=True):
    """A server that responded. Its models' provider is named after its kind."""

    kind: LocalServerKind
    base_url: str
    models: tuple[ModelInfo, ...]

    def to_settings(self) -> ProviderSettings:
        """Return provider settings for this server: URL, timeouts, and its models."""
        models = {
            model.id: ModelSettings(
                model.context or None,
                model.max_output or None,
                tools=model.tools,
                images=model.images or None,
                parameters=model.parameters or None,
            )
            for model in self.models
        }
        return ProviderSettings(
            "openai-chat", self.base_url, models=models, idle_timeout=_ANSWER_TIMEOUT, header_timeout=_ANSWER_TIMEOUT
        )


async def discover_servers(
    env: Mapping[str, str], http: HttpClient | None = None, *, ports: Iterable[int] | None = None, timeout: float = 0.5
) -> tuple[LocalServer, ...]:
    """Return the servers on the loopback ports, in port order. Takes at most `timeout` seconds."""
    wanted = read_ports(env) if ports is None else tuple(ports)
    if not wanted:
        return ()
    client = http or HttpClient(env)
    try:
        found = await asyncio.gather(
            *(probe_server(f"http://127.0.0.1:{port}", env, client, timeout=timeout) for port in wanted)
        )
    finally:
        if http is None:
            await client.close()
    return tuple(server for server in found if server is not None)


def read_ports(env: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ports to probe: ODIN_LOCAL_PORTS, where empty means none, or the defaults."""
    text = env.get("ODIN_LOCAL_PORTS")
    if text is None:
        return PORTS
    numbers = (int(part) for part in re.split(r"[,\s]+", text) if part.isascii() and part.isdigit())
    return tuple(dict.fromkeys(number for number in numbers if 0 < number < 65536))


async def probe_server(
    url: str, env: Mapping[str, str], http: HttpClient | None = None, *, timeout: float = 0.5
) -> LocalServer | None:
    """Return the server at a URL, with or without /v1; None if nothing there speaks the OpenAI API in time."""
    origin = re.sub(r"/v1/?$", "", url.rstrip("/"))
    client = http or HttpClient(env)
    queries = _ServerQueries(origin, client, timeout)
    try:
        async with asyncio.timeout(timeout * 2):
            entries = _get_entries(await queries.ask("/v1/models"), "data")
            owners = {str(entry.get("owned_by", "")) for entry in entries}
            if entries:
                queries.record_server("local", (_make_model(_get_id(entry), "local", 0) for entry in entries))
            if "llamacpp" in owners:
                return await _query_llamacpp(queries, entries)
            if "vllm" in owners or any("max_model_len" in entry for entry in entries):
                return queries.record_server(
                    "vllm", (_make_model(_get_id(e), "vllm", _parse_count(e.get("max_model_len"))) for e in entries)
                )
            tags, studio = await asyncio.gather(queries.ask("/api/tags"), queries.ask("/api/v0/models"))
            if isinstance(tags.get("models"), list):
                return await _query_ollama(queries, _get_entries(tags, "models"), env)
            if any("max_context_length" in entry for entry in _get_entries(studio, "data")):
                return queries.record_server("lmstudio", _parse_lmstudio_models(_get_entries(studio, "data")))
            props = await queries.ask("/props") if entries else {}
            if "default_generation_settings" in props:
                return await _query_llamacpp(queries, entries, props)
            return queries.found
    except TimeoutError:
        return queries.found
    finally:
        if http is None:
            await client.close()


_WINDOW_TIMEOUT_S = 1.0


async def fetch_context_window(url: str, model: str, env: Mapping[str, str], http: HttpClient | None = None) -> int:
    """Return the context window the server gives to a model; 0 if unknown."""
    base_url = re.sub(r"/(chat/completions|responses|messages)/?$", "", url)
    server = await probe_server(base_url, env, http, timeout=_WINDOW_TIMEOUT_S)
    if server is None or server.kind == "local":
        return 0
    names = (model, f"{model}:latest")
    return next((found.context for found in server.models if found.id in names), 0)


class _ServerQueries:
    """Queries to one server. A response that is not a JSON object counts as none."""

    def __init__(self, origin: str, http: HttpClient, timeout: float) -> None:
        self.origin = origin
        self.found: LocalServer | None = None
        self._http = http
        self._timeout = timeout
        self._gate = asyncio.Semaphore(_MAX_CONCURRENT)

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
            return _as_object(msgspec.json.decode(answer)) if status == 200 else {}
        except (OdinError, msgspec.DecodeError, UnicodeError):
            return {}

    def record_server(self, kind: LocalServerKind, models: Iterable[ModelInfo]) -> LocalServer:
        self.found = LocalServer(kind, self.base_url, tuple(models))
        return self.found


# --- one parser per kind of server ---


async def _query_llamacpp(
    queries: _ServerQueries, entries: list[dict[str, Any]], props: dict[str, Any] | None = None
) -> LocalServer:
    if props is None:
        queries.record_server("llamacpp", (_parse_llamacpp_model(entry, {}) for entry in entries))
        props = await queries.ask("/props")
    return queries.record_server("llamacpp", [_parse_llamacpp_model(entry, props) for entry in entries])


def _parse_llamacpp_model(entry: dict[str, Any], props: dict[str, Any]) -> ModelInfo:
    """`n_ctx` is what the server was started with; the trained context may be larger."""
    meta = _as_object(entry.get("meta"))
    settings = _as_object(props.get("default_generation_settings"))
    context = _parse_count(settings.get("n_ctx")) or _parse_count(props.get("n_ctx")) or _parse_count(meta.get("n_ctx"))
    caps = _as_object(props.get("chat_template_caps"))
    vision = _as_object(props.get("modalities")).get("vision") is True
    able = caps.get("supports_tools", True)
    return _make_model(_get_id(entry), "llamacpp", context, _parse_count(meta.get("n_params")), able, vision)


async def _query_ollama(queries: _ServerQueries, tags: list[dict[str, Any]], env: Mapping[str, str]) -> LocalServer:
    names = [_get_id(entry) for entry in tags]
    sizes = {
        _get_id(entry): parse_parameter_count(_as_object(entry.get("details")).get("parameter_size")) for entry in tags
    }
    usual = _parse_count(env.get("OLLAMA_CONTEXT_LENGTH")) or _OLLAMA_CONTEXT
    queries.record_server("ollama", (_make_model(name, "ollama", usual, sizes[name]) for name in names))
    running, *shown = await asyncio.gather(
        queries.ask("/api/ps"), *(queries.ask("/api/show", {"model": name}) for name in names)
    )
    loaded = {_get_id(entry): _parse_count(entry.get("context_length")) for entry in _get_entries(running, "models")}
    models: list[ModelInfo] = []
    for name, show in zip(names, shown, strict=True):
        context = loaded.get(name) or _parse_ollama_context(show, usual)
        skills = _as_list(show.get("capabilities"))
        able = "tools" in skills if "capabilities" in show else True
        if "capabilities" not in show or "completion" in skills:
            models.append(_make_model(name, "ollama", context, sizes[name], able, "vision" in skills))
    return queries.record_server("ollama", models)


def _parse_ollama_context(show: dict[str, Any], usual: int) -> int:
    """Return the context the model will be loaded with: its num_ctx or the default, at most what it supports."""
    own = re.search(r"^\s*num_ctx\s+(\d+)", str(show.get("parameters", "")), re.MULTILINE)
    trained = next(
        (_parse_count(n) for key, n in _as_object(show.get("model_info")).items() if key.endswith(".context_length")), 0
    )
    context = int(own[1]) if own else usual
    return min(context, trained) if trained else context


def _parse_lmstudio_models(entries: list[dict[str, Any]]) -> list[ModelInfo]:
    return [
        _make_model(
            _get_id(entry),
            "lmstudio",
            _parse_count(entry.get("loaded_context_length")) or _parse_count(entry.get("max_context_length")),
            calls_tools="tool_use" in _as_list(entry.get("capabilities")) if "capabilities" in entry else True,
            reads_images=entry.get("type") == "vlm",
        )
        for entry in sorted(entries, key=lambda entry: entry.get("state") != "loaded")
        if entry.get("type") in ("llm", "vlm")
    ]


# --- parsing untrusted responses ---


def _make_model(
    name: str,
    kind: LocalServerKind,
    context: int,
    parameters: float = 0,
    calls_tools: Any = True,
    reads_images: bool = False,
) -> ModelInfo:
    """Return the model's properties. A quarter of the context window is reserved for the reply."""
    size = parameters or parse_parameter_count(name)
    style = "json" if 0 < size < SMALL_MODEL_PARAMETERS or not calls_tools else "auto"
    strategy = choose_strategy(name, size)
    return ModelInfo(
        name, kind, context, context // 4, tools=style, images=reads_images, strategy=strategy, parameters=size
    )


def _get_id(entry: dict[str, Any]) -> str:
    return str(entry.get("id") or entry.get("model") or entry.get("name") or "")


def _get_entries(answer: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found: Any = answer.get(key)
    if not isinstance(found, list):
        return []
    objects = (_as_object(entry) for entry in cast("list[Any]", found))
    return [entry for entry in objects if _get_id(entry)]


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _parse_count(value: Any) -> int:
    """Return a positive number, however it was written; else 0."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15 else 0


# --- size and family ---

_MAX_UNTRAINED = 10e9
"""Below this size, families without training in tool calls write files better than they call tools."""

_UNTRAINED_FAMILIES = (
    r"qwen-?2\.5-coder|codeqwen|deepseek-coder|code-?llama|star-?coder|code-?gemma|stable-?code|granite-code|yi-coder"
    r"|opencoder|tinyllama|phi-?[123]|gemma-?[12]?(?=[-:]|$)|wizardcoder|codestral-mamba|refact"
)


def parse_parameter_count(text: Any) -> float:
    """Return the number of parameters in text such as 1.5B or qwen2.5-coder-1.5b; 0 if unknown."""
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", str(text).casefold())
    return float(found[1]) * (1e9 if found[2] == "b" else 1e6) if found else 0


def choose_strategy(model: str, parameters: float) -> Strategy:
    """Return `files` for small models, and for those of medium size whose family was not trained to call tools."""
    if 0 < parameters < SMALL_MODEL_PARAMETERS:
        return "files"
    is_untrained = re.search(_UNTRAINED_FAMILIES, model.casefold()) is not None
    return "files" if 0 < parameters < _MAX_UNTRAINED and is_untrained else "tools"
