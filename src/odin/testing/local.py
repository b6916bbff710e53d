"""The pages a client finds models on: the cloud's model list, and what each local server tells about itself."""

from collections.abc import Collection
from typing import Any

import msgspec

from odin.testing.script import EmulatedServer
from odin.testing.seen import SeenRequest
from odin.testing.strict import RequestRefused

_DEFAULT_WINDOW = {"ollama": 4096, "llamacpp": 8192, "lmstudio": 4096, "vllm": 32768}
_CREATED = 1_750_000_000
_CREATED_AT = "2025-06-15T00:00:00Z"


def find_page(
    seen: SeenRequest,
    local: EmulatedServer | None,
    *,
    models: Collection[str] | None,
    window: int | None,
    trained: int,
    tools: bool,
) -> dict[str, Any] | str:
    """The page at this address, as JSON or as text. What such a server does not have is refused with 404."""
    names = tuple(models or ("scripted-model",))
    path = seen.path.partition("?")[0]
    size = window or _DEFAULT_WINDOW.get(local or "", 0)
    if (seen.method, path) == ("GET", "/v1/models"):
        return _build_model_list(seen, local, names, size, trained)
    if local == "ollama":
        found = _build_ollama_page(seen, path, names, size, trained, tools)
    elif local == "llamacpp":
        found = _build_llamacpp_page(path, names, size)
    elif local == "lmstudio":
        found = _build_lmstudio_page(path, names, size, trained, tools)
    elif local == "vllm" and path == "/health":
        found = ""
    else:
        found = None
    if found is None:
        raise RequestRefused(
            f"Invalid URL ({seen.method} {path})", status=404, type="invalid_request_error", code="unknown_url"
        )
    return found


def _build_model_list(
    seen: SeenRequest, local: EmulatedServer | None, names: tuple[str, ...], size: int, trained: int
) -> dict[str, Any]:
    if local is None and "anthropic-version" in seen.headers:
        entries = [{"type": "model", "id": name, "display_name": name, "created_at": _CREATED_AT} for name in names]
        return {"data": entries, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    entries = [_build_model_entry(name, local, size, trained) for name in names]
    return {"object": "list", "data": entries}


def _build_model_entry(name: str, local: EmulatedServer | None, size: int, trained: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": name, "object": "model", "created": _CREATED, "owned_by": local or "scripted"}
    if local == "vllm":
        entry |= {"root": name, "parent": None, "max_model_len": size, "permission": []}
    elif local == "llamacpp":
        entry["meta"] = {"vocab_type": 2, "n_vocab": 128256, "n_ctx_train": trained, "n_embd": 4096}
    return entry


def _build_ollama_page(
    seen: SeenRequest, path: str, names: tuple[str, ...], size: int, trained: int, tools: bool
) -> dict[str, Any] | str | None:
    details = {"format": "gguf", "family": "llama", "parameter_size": "8B", "quantization_level": "Q4_K_M"}
    listed = [
        {"name": n, "model": n, "modified_at": _CREATED_AT, "size": 4, "digest": "0", "details": details} for n in names
    ]
    if path == "/":
        return "Ollama is running"
    if path == "/api/version":
        return {"version": "0.12.0"}
    if path == "/api/tags":
        return {"models": listed}
    if path == "/api/ps":
        return {"models": [{**entry, "context_length": size} for entry in listed]}
    if (seen.method, path) != ("POST", "/api/show"):
        return None
    wanted = _requested_model_of(seen.body)
    if wanted not in names:
        raise RequestRefused(f"model '{wanted}' not found", status=404)
    return {
        "modelfile": "",
        "parameters": f"num_ctx                        {size}",
        "template": "{{ .Prompt }}",
        "details": details,
        "model_info": {"general.architecture": "llama", "llama.context_length": trained},
        "capabilities": ["completion", "tools"] if tools else ["completion"],
    }


def _requested_model_of(body: bytes) -> str:
    try:
        asked: Any = msgspec.json.decode(body)
        return str(asked.get("model") or asked.get("name"))
    except (msgspec.DecodeError, AttributeError) as error:
        raise RequestRefused("invalid request", status=400) from error


def _build_llamacpp_page(path: str, names: tuple[str, ...], size: int) -> dict[str, Any] | str | None:
    if path == "/health":
        return {"status": "ok"}
    if path == "/props":
        return {
            "default_generation_settings": {"id": 0, "n_ctx": size, "params": {"n_predict": -1}},
            "total_slots": 1,
            "model_path": f"/models/{names[0]}.gguf",
            "chat_template": "{{ messages }}",
            "build_info": "b6000-scripted",
        }
    return None


def _build_lmstudio_page(
    path: str, names: tuple[str, ...], size: int, trained: int, tools: bool
) -> dict[str, Any] | str | None:
    if path != "/api/v0/models":
        return None
    entries = [
        {
            "id": name,
            "object": "model",
            "type": "llm",
            "publisher": "scripted",
            "arch": "llama",
            "compatibility_type": "gguf",
            "quantization": "Q4_K_M",
            "state": "loaded",
            "max_context_length": trained,
            "loaded_context_length": size,
            "capabilities": ["tool_use"] if tools else [],
        }
        for name in names
    ]
    return {"object": "list", "data": entries}
