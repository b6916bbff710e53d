"""Discovery of local model servers, and the facts they report."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import msgspec
import pytest

from odin.core.provider import ModelInfo
from odin.models.local_servers import PORTS, LocalServer, discover_servers, probe_server, read_ports
from odin.providers.settings import ModelSettings
from odin.testing import EmulatedLocal, ScriptedServer
from tests.waiting import LIMIT_S, TimeLimit

Local = Literal["ollama", "lmstudio", "llamacpp", "vllm"]


async def discover_server(server: ScriptedServer, env: dict[str, str] | None = None) -> LocalServer:
    (one,) = await discover_servers(env or {}, ports=[server.port], timeout=LIMIT_S)
    return one


@pytest.mark.parametrize("kind", ["ollama", "lmstudio", "llamacpp", "vllm"])
async def test_kind_and_context_of_a_server_are_detected_on_any_port(kind: Local) -> None:
    with ScriptedServer(
        local=EmulatedLocal(kind, trained=131_072), models=["qwen3-coder:30b"], window=12_000
    ) as server:
        one = await discover_server(server)
    size = 8e9 if kind == "ollama" else 30e9  # the emulated Ollama reports this size for every model
    model = ModelInfo("qwen3-coder:30b", kind, 12_000, 3000, parameters=size)
    assert one == LocalServer(kind, server.openai_url, (model,))


@pytest.mark.parametrize("kind", ["ollama", "lmstudio"])
async def test_model_without_tool_support_uses_the_json_contract(kind: Local) -> None:
    with ScriptedServer(local=EmulatedLocal(kind, tools=False), models=["gemma-2-27b"]) as server:
        (model,) = (await discover_server(server)).models
    assert model.tools == "json"


async def test_openai_compatible_server_is_accepted() -> None:
    async with serve_pages({"/v1/models": {"object": "list", "data": [{"id": "one"}, {"id": "two"}]}}) as port:
        (one,) = await discover_servers({}, ports=[port], timeout=LIMIT_S)
    assert one.base_url == f"http://127.0.0.1:{port}/v1"
    assert (one.kind, [(model.id, model.context) for model in one.models]) == ("local", [("one", 0), ("two", 0)])


async def test_discovered_server_becomes_settings() -> None:
    with ScriptedServer(local="llamacpp", models=["qwen2.5-coder-1.5b", "big-70b"], window=16_384) as server:
        settings = (await discover_server(server)).to_settings()
    assert settings.type == "openai-chat"
    assert settings.base_url == server.openai_url
    assert settings.header_timeout is not None
    assert settings.header_timeout >= 600, "a slow machine needs minutes to read a long prompt"
    assert settings.models == {
        "qwen2.5-coder-1.5b": ModelSettings(16_384, 4096, tools="json", parameters=1.5e9),
        "big-70b": ModelSettings(16_384, 4096, tools="auto", parameters=70e9),
    }


async def test_ports_are_probed_at_once_and_servers_keep_their_order() -> None:
    with ScriptedServer(local="vllm") as first, ScriptedServer(local="ollama") as second, unused_port() as silent:
        servers = await discover_servers({}, ports=[second.port, silent, first.port], timeout=LIMIT_S)
    assert [server.kind for server in servers] == ["ollama", "vllm"]


@contextmanager
def unused_port() -> Generator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


# --- ports and URLs ---


@pytest.mark.parametrize(
    ("text", "ports"),
    [("", ()), ("11434,18080", (11434, 18080)), (" 1 , 1 2,", (1, 2)), ("0,99999,x,-4,²", ())],
)
def test_ports_come_from_the_environment(text: str, ports: tuple[int, ...]) -> None:
    assert read_ports({"ODIN_LOCAL_PORTS": text}) == ports


def test_default_ports_are_used_without_the_variable() -> None:
    assert read_ports({}) == PORTS


async def test_no_ports_means_no_servers() -> None:
    assert await discover_servers({"ODIN_LOCAL_PORTS": ""}) == ()


async def test_probe_server_asks_one_url() -> None:
    with ScriptedServer(local="llamacpp", window=8192) as server:
        for url in (server.url, server.openai_url, f"{server.openai_url}/"):
            one = await probe_server(url, {}, timeout=LIMIT_S)
            assert one is not None
            assert one.models[0].context == 8192
    assert await probe_server(server.url, {}, timeout=LIMIT_S) is None


# --- servers with fixed answers ---

Pages = dict[str, Any]


@asynccontextmanager
async def serve_pages(
    answers: Pages, *, raw: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None
) -> AsyncGenerator[int]:
    """Serve a fixed JSON page for each path. `/api/show` is looked up by the model in the body. Yield the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await respond(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0)
        body = await reader.readexactly(length)
        if raw is not None:
            await raw(writer)
            return
        if path == "/api/show":
            path = f"/api/show {msgspec.json.decode(body)['model']}"
        status = "200 OK" if path in answers else "404 Not Found"
        data = msgspec.json.encode(answers.get(path, {"error": "not found"}))
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n".encode() + data)
        await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def make_show_page(
    parameters: str = "", trained: int = 32_768, capabilities: list[str] | None = None
) -> dict[str, Any]:
    page: dict[str, Any] = {"parameters": parameters, "model_info": {"qwen.context_length": trained}}
    return page if capabilities is None else {**page, "capabilities": capabilities}


OLLAMA: Pages = {
    "/api/tags": {
        "models": [
            {"name": "plain", "details": {"parameter_size": "7.6B"}},
            {"name": "wide", "details": {"parameter_size": "7.6B"}},
            {"name": "narrow", "details": {"parameter_size": "7.6B"}},
            {"name": "loaded", "details": {"parameter_size": "7.6B"}},
            {"name": "tiny", "details": {"parameter_size": "494.03M"}},
            {"name": "embedder", "details": {"parameter_size": "137M"}},
            {"name": "vanished", "details": {}},
        ]
    },
    "/api/ps": {"models": [{"name": "loaded", "context_length": 20_000}]},
    "/api/show plain": make_show_page(capabilities=["completion", "tools"]),
    "/api/show wide": make_show_page('stop "x"\nnum_ctx                        24576'),
    "/api/show narrow": make_show_page("num_ctx 24576", trained=2048),
    "/api/show loaded": make_show_page("num_ctx 24576"),
    "/api/show tiny": make_show_page(capabilities=["completion", "tools"]),
    "/api/show embedder": make_show_page(capabilities=["embedding"]),
}


async def test_context_of_an_ollama_model_is_the_one_in_effect() -> None:
    async with serve_pages(OLLAMA) as port:
        (server,) = await discover_servers({}, ports=[port], timeout=LIMIT_S)
        (configured,) = await discover_servers({"OLLAMA_CONTEXT_LENGTH": "10000"}, ports=[port], timeout=LIMIT_S)
    contexts = {model.id: model.context for model in server.models}
    assert contexts == {"plain": 4096, "wide": 24_576, "narrow": 2048, "loaded": 20_000, "tiny": 4096, "vanished": 4096}
    assert {model.id: model.context for model in configured.models}["plain"] == 10_000
    assert [model.id for model in server.models if model.tools == "json"] == ["tiny"]


async def test_llamacpp_without_props_has_models() -> None:
    entry = {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_ctx_train": 99_999, "n_params": 1.7e9}}
    async with serve_pages({"/v1/models": {"data": [entry]}}) as port:
        (server,) = await discover_servers({}, ports=[port], timeout=LIMIT_S)
    assert server.models == (ModelInfo("m", "llamacpp", 4096, 1024, tools="json", strategy="files", parameters=1.7e9),)


async def test_llamacpp_template_without_tools_uses_the_json_contract() -> None:
    props = {"default_generation_settings": {"n_ctx": 9000}, "chat_template_caps": {"supports_tools": False}}
    answers: Pages = {"/v1/models": {"data": [{"id": "m", "owned_by": "me"}]}, "/props": props}
    async with serve_pages(answers) as port:
        (server,) = await discover_servers({}, ports=[port], timeout=LIMIT_S)
    assert server.models == (ModelInfo("m", "llamacpp", 9000, 2250, tools="json"),)


async def test_image_support_is_detected() -> None:
    props = {"default_generation_settings": {"n_ctx": 9000}, "modalities": {"vision": True, "audio": False}}
    llama: Pages = {"/v1/models": {"data": [{"id": "m", "owned_by": "llamacpp"}]}, "/props": props}
    ollama: Pages = {
        "/v1/models": {"data": [{"id": "eyes"}, {"id": "none"}]},
        "/api/tags": {"models": [{"name": "eyes"}, {"name": "none"}]},
        "/api/show eyes": {"capabilities": ["completion", "tools", "vision"]},
        "/api/show none": {"capabilities": ["completion", "tools"]},
    }
    async with serve_pages(llama) as one, serve_pages(ollama) as two:
        first, second = await discover_servers({}, ports=[one, two], timeout=LIMIT_S)
    assert [model.images for model in first.models] == [True]
    assert [model.images for model in second.models] == [True, False]
    assert second.to_settings().models["eyes"].images is True


async def test_lmstudio_lists_loaded_models_first_and_no_embedding_models() -> None:
    data = [
        {"id": "resting", "type": "llm", "state": "not-loaded", "max_context_length": 50_000},
        {"id": "embedder", "type": "embeddings", "state": "loaded", "max_context_length": 512},
        {"id": "awake", "type": "vlm", "state": "loaded", "max_context_length": 50_000, "loaded_context_length": 6000},
    ]
    async with serve_pages({"/v1/models": {"data": [{"id": "awake"}]}, "/api/v0/models": {"data": data}}) as port:
        (server,) = await discover_servers({}, ports=[port], timeout=LIMIT_S)
    assert [(model.id, model.context) for model in server.models] == [("awake", 6000), ("resting", 50_000)]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"data": None},
        {"data": [None, 1, "x", {}, {"id": ""}]},
        {"data": {"id": "x"}},
        {"models": [{"name": "x"}]},
    ],
)
async def test_answer_of_another_shape_is_not_a_model_server(answer: Any) -> None:
    async with serve_pages({"/v1/models": answer}) as port:
        assert await discover_servers({}, ports=[port], timeout=LIMIT_S) == ()


async def test_invalid_context_sizes_are_unknown() -> None:
    entries = [{"id": str(at), "max_model_len": value} for at, value in enumerate([True, -5, "x", [], 1e300, "8192"])]
    async with serve_pages({"/v1/models": {"data": entries}}) as port:
        (server,) = await discover_servers({}, ports=[port], timeout=LIMIT_S)
    assert [model.context for model in server.models] == [0, 0, 0, 0, 0, 8192]


async def write_all(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def send_html(writer: asyncio.StreamWriter) -> None:
    await write_all(
        writer, b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<html>hello</html>"
    )


async def send_other_protocol(writer: asyncio.StreamWriter) -> None:
    await write_all(writer, b"220 mail.example ESMTP\r\n")


async def send_endless_body(writer: asyncio.StreamWriter) -> None:
    await write_all(writer, b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"data": [')
    for _ in range(200):
        await write_all(writer, b" " * 65_536)


async def drop_connection(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.mark.parametrize("raw", [send_html, send_other_protocol, send_endless_body, drop_connection])
async def test_other_services_are_skipped(raw: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> None:
    async with serve_pages({}, raw=raw) as port:
        assert await discover_servers({}, ports=[port], timeout=LIMIT_S) == ()


async def test_the_other_servers_are_asked_while_one_is_silent() -> None:
    is_asked = asyncio.Event()

    async def stay_silent(writer: asyncio.StreamWriter) -> None:
        await is_asked.wait()

    async def answer(writer: asyncio.StreamWriter) -> None:
        is_asked.set()
        await write_all(writer, b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"data": [{"id": "x"}]}')

    async with serve_pages({}, raw=stay_silent) as silent, serve_pages({}, raw=answer) as other, TimeLimit():
        (server,) = await discover_servers({}, ports=[silent, other], timeout=2 * LIMIT_S)
    assert [model.id for model in server.models] == ["x"]


async def test_a_silent_server_does_not_end_discovery_late() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with TimeLimit():
            assert await discover_servers({}, ports=[listener.getsockname()[1]], timeout=0.2) == ()
