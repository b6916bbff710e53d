"""The HTTP client: addresses, proxies, bodies, connections, timeouts and TLS."""

import asyncio
import gzip
import os
import socket
import ssl
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odin.core.errors import (
    AuthFailed,
    BadReply,
    ConfigError,
    ProviderError,
    StreamCut,
    StreamStalled,
    TlsFailed,
    Unreachable,
)
from odin.providers.address import find_route, parse_address, set_proxy
from odin.providers.http import HttpClient
from odin.testing import ScriptedServer, say
from tests.table import each
from tests.waiting import LIMIT_S, within_limit

from .servers import Connection, Listener, make_chunked_response, make_response, serve, serve_answers


@asynccontextmanager
async def open_client(env: Mapping[str, str] | None = None, **options: float) -> AsyncGenerator[HttpClient]:
    http = HttpClient(env or {}, **options)  # pyright: ignore[reportArgumentType]
    try:
        yield http
    finally:
        await http.close()


async def fetch_answer(answer: bytes) -> tuple[int, bytes]:
    async with serve_answers(answer) as server, open_client() as http:
        return await http.fetch(server.url + "/v1/models")


# --- addresses and proxies ---


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://api.anthropic.com", "api.anthropic.com", 443, "/", "api.anthropic.com"),
        ("HTTP://LocalHost:11434/v1", "localhost", 11434, "/v1", "localhost:11434"),
        ("http://[::1]:8080/v1?a=b#c", "::1", 8080, "/v1?a=b", "[::1]:8080"),
        ("https://example.org:443?x", "example.org", 443, "/?x", "example.org"),
        ("http://bücher.example/a", "xn--bcher-kva.example", 80, "/a", "xn--bcher-kva.example"),
    ],
)
def test_url_is_split_into_its_parts(url: str, host: str, port: int, path: str, authority: str) -> None:
    found = parse_address(url)
    assert (found.host, found.port, found.path, found.authority) == (host, port, path, authority)


@pytest.mark.parametrize(
    "url", ["", "localhost:1234", "ftp://x/y", "http://", "http:///v1", "http://x:99999", "http://x:y", "http://a b/"]
)
def test_invalid_url_is_refused_and_named(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(url)
    assert repr(url) in str(caught.value)
    assert "http://" in caught.value.hint


def test_credentials_in_a_url_are_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address("http://user:secret@proxy:nonsense")
    assert "secret" not in caught.value.describe()


@pytest.mark.parametrize(
    ("env", "url", "proxy"),
    [
        ({}, "https://api.test", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "https://api.test", "http://p:3128"),
        ({"https_proxy": "p:3128"}, "https://api.test", "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128"}, "http://api.test", None),
        ({"ALL_PROXY": "http://p:3128"}, "http://api.test", "http://p:3128"),
        ({"HTTP_PROXY": "http://h:1", "ALL_PROXY": "http://a:2"}, "http://api.test", "http://h:1"),
        ({"HTTPS_PROXY": "http://p:3128"}, "https://localhost:8443", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "https://127.0.0.1", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*"}, "https://api.test", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "other, api.test"}, "https://api.test", None),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": ".test"}, "https://api.test", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*.test"}, "https://deep.api.test", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "pi.test"}, "https://api.test", "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "api.test:8443"}, "https://api.test", "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "api.test:8443"}, "https://api.test:8443", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, "https://10.1.2.3", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, "https://api.test", "http://p:3128"),
    ],
)
def test_environment_selects_the_proxy(env: dict[str, str], url: str, proxy: str | None) -> None:
    route = find_route(parse_address(url), env)
    assert (route.proxy.origin if route.proxy else None) == proxy


@each(
    "proxy, used",
    [("http://own:1", "http://own:1"), ("own:1", "http://own:1"), ("direct", None)],
)
def test_proxy_of_a_provider_overrides_the_environment(proxy: str, used: str | None) -> None:
    env = {"HTTPS_PROXY": "http://p:3128", "http_proxy": "http://p:3128", "NO_PROXY": "*", "HOME": "/h"}
    for url in ("https://api.test", "http://api.test"):
        route = find_route(parse_address(url), set_proxy(env, proxy))
        assert (route.proxy.origin if route.proxy else None) == used


def test_socks_proxy_is_refused_with_an_explanation() -> None:
    with pytest.raises(ConfigError, match="SOCKS"):
        find_route(parse_address("https://api.test"), {"ALL_PROXY": "socks5://p:1080"})


# --- bodies ---


@pytest.mark.parametrize(
    "answer",
    [
        make_response(b"hello"),
        make_chunked_response(b"he", b"llo"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;name=value\r\nhello\r\n0\r\nx-trailer: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + make_response(b"hello"),
        b"HTTP/1.1 200\ncontent-length: 5\n\nhello",
        make_response(gzip.compress(b"hello"), "content-encoding: gzip\r\n"),
        make_response(zlib.compress(b"hello"), "content-encoding: deflate\r\n"),
        make_response(zlib.compress(b"hello", wbits=-15), "content-encoding: deflate\r\n"),
        make_chunked_response(*(bytes([byte]) for byte in gzip.compress(b"hello")), head="content-encoding: gzip\r\n"),
        make_response(gzip.compress(b"he") + gzip.compress(b"llo") + bytes(9), "content-encoding: gzip\r\n"),
        make_chunked_response(gzip.compress(b"he"), gzip.compress(b"llo"), head="content-encoding: gzip\r\n"),
    ],
    ids=[
        "length",
        "chunks",
        "extensions and trailers",
        "until close",
        "old protocol",
        "interim answers",
        "bare line feeds",
        "gzip",
        "deflate",
        "raw deflate",
        "gzip in small chunks",
        "two gzip members",
        "two gzip members in two chunks",
    ],
)
async def test_a_body_is_read_however_it_is_framed(answer: bytes) -> None:
    assert await fetch_answer(answer) == (200, b"hello")


async def test_response_without_a_body_keeps_the_connection() -> None:
    async with (
        serve_answers(b"HTTP/1.1 204 No Content\r\nx: chunked\r\n\r\n", make_response(b"x")) as server,
        open_client() as http,
    ):
        assert await http.fetch(server.url) == (204, b"")
        assert await http.fetch(server.url) == (200, b"x")
        assert server.accepted == 1


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nhello", StreamCut, "cut off"),
        (b"HTTP/1.1 200 OK\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhello", StreamCut, "cut off"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", StreamCut, "cut off"),
        (b"HTTP/1.1 200 O", StreamCut, "cut off"),
        (b"", StreamCut, "before it answered"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello", BadReply, "no size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nhello", BadReply, "no size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n", BadReply, "longer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", BadReply, "not a status line"),
        (b"HTTP/2 200\r\n\r\n", BadReply, "not a status line"),
        (b"HTTP/1.1 abc\r\n\r\n", BadReply, "not a status line"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", BadReply, "too long"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: yyyyyyyyyyyyyyyyyy\r\n" * 4000 + b"\r\n", BadReply, "too long"),
        (make_response(b"\x1f\x8b damaged"[:20], "content-encoding: gzip\r\n"), BadReply, "damaged"),
        (make_response(b"x", "content-encoding: br\r\n"), BadReply, "compressed with br"),
    ],
    ids=range(15),
)
async def test_broken_response_raises_its_error_type(answer: bytes, error: type[ProviderError], words: str) -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(answer)

    async with serve(handle) as server, open_client() as http:
        with pytest.raises(error, match=words):
            await http.fetch(server.url)


async def test_decompression_bomb_is_refused() -> None:
    bomb = gzip.compress(b"\0" * (40 * 1024 * 1024))
    with pytest.raises(BadReply, match="too large"):
        await fetch_answer(make_response(bomb, "content-encoding: gzip\r\n"))


async def test_large_body_is_read_whole_with_a_bounded_buffer() -> None:
    body = os.urandom(1024 * 1024) * 24
    async with serve_answers(make_response(body)) as server, open_client() as http:
        address = parse_address(server.url)
        connection = await http.acquire(address)
        response = await http.send(connection, "GET", address, {})
        await asyncio.sleep(0.1)
        assert len(connection._buffer) < 4 * 1024 * 1024
        assert await response.read_all(5, limit=len(body) + 1) == body


async def test_chunks_that_arrived_together_are_read_at_once() -> None:
    """A chunk that has not arrived completely does not delay those before it, and the end is not read twice."""
    first, rest = make_chunked_response(b"he", b"ll", b"o", b"!").split(b"1\r\n!")

    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(first + b"1")
        await is_read.wait()
        await connection.send(b"\r\n!" + rest)
        await connection.read_request()
        await connection.send(make_response(b"next"))

    is_read = asyncio.Event()
    async with serve(handle) as server, open_client() as http:
        address = parse_address(server.url)
        response = await http.send(await http.acquire(address), "GET", address, {})
        await asyncio.sleep(0.05)
        assert await response.read(5) == b"hello"
        is_read.set()
        assert await response.read(5) == b"!"
        response.release()
        assert (await http.fetch(server.url))[1] == b"next"
        assert server.accepted == 1


# --- connections ---


async def test_connection_is_reused_for_the_next_request() -> None:
    async with (
        serve_answers(make_response(b"1"), make_chunked_response(b"2"), make_response(b"3")) as server,
        open_client() as http,
    ):
        assert [(await http.fetch(server.url))[1] for _ in range(3)] == [b"1", b"2", b"3"]
        assert server.accepted == 1


@pytest.mark.parametrize("header", ["connection: close\r\n", "Connection: Close\r\n"])
async def test_connection_with_a_close_header_is_not_reused(header: str) -> None:
    async with serve_answers(make_response(b"1", header), make_response(b"2")) as server, open_client() as http:
        await http.fetch(server.url)
        await http.fetch(server.url)
        assert server.accepted == 2


async def test_idle_connection_expires() -> None:
    async with serve_answers(make_response(b"1"), make_response(b"2")) as server, open_client(keep_alive=0.0) as http:
        await http.fetch(server.url)
        await asyncio.sleep(0.01)
        await http.fetch(server.url)
        assert server.accepted == 2


async def test_dead_idle_connection_is_replaced_once() -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        if connection.number == 1:
            await connection.send(make_response(b"1"))
            await connection.read_request()
            return
        await connection.send(make_response(b"2"))

    async with serve(handle) as server, open_client() as http:
        assert (await http.fetch(server.url))[1] == b"1"
        assert (await http.fetch(server.url))[1] == b"2"
        assert server.accepted == 2


async def test_dead_new_connection_is_not_retried() -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()

    async with serve(handle) as server, open_client() as http:
        with pytest.raises(StreamCut, match="before it answered"):
            await http.fetch(server.url)
        assert server.accepted == 1


async def test_connection_closed_while_idle_is_not_used() -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(make_response(b"x"))

    async with serve(handle) as server, open_client() as http:
        await http.fetch(server.url)
        await asyncio.sleep(0.05)
        assert (await http.fetch(server.url))[1] == b"x"
        assert server.accepted == 2


async def test_warmed_connection_is_used_for_the_request() -> None:
    async with serve_answers(make_response(b"1")) as server, open_client() as http:
        await http.preconnect(server.url)
        await http.preconnect(server.url)
        for _ in range(100):
            await asyncio.sleep(0.005)
            if server.accepted:
                break
        assert server.accepted == 1
        assert await http.fetch(server.url) == (200, b"1")
        assert server.accepted == 1


async def test_expired_warmed_connection_is_not_used() -> None:
    async with serve_answers(make_response(b"1")) as server, open_client(keep_alive=0.01) as http:
        await http.preconnect(server.url)
        await asyncio.sleep(0.05)
        assert server.accepted == 1
        assert await http.fetch(server.url) == (200, b"1")
        assert server.accepted == 2


async def test_failed_warm_up_is_repeated_by_the_request() -> None:
    async with open_client() as http:
        with ScriptedServer([]) as server:
            port = server.port
        await http.preconnect(f"http://127.0.0.1:{port}/v1/models")
        await asyncio.sleep(0.05)
        with ScriptedServer([], port=port, strict=False) as server:
            assert (await http.fetch(f"{server.url}/v1/models"))[0] == 200


async def test_warming_never_raises() -> None:
    async with open_client() as http:
        await http.preconnect("nonsense")
        await http.preconnect(f"http://127.0.0.1:{find_free_port()}")
        await asyncio.sleep(0.02)


async def test_closing_the_client_stops_a_warm_up() -> None:
    async with serve(lambda connection: asyncio.sleep(5)) as server:
        http = HttpClient({})
        await http.preconnect(server.url)
        await http.close()


async def test_cancelling_a_request_closes_the_connection() -> None:
    gone = asyncio.Event()
    asked = asyncio.Event()

    async def handle(connection: Connection) -> None:
        await connection.read_request()
        asked.set()
        await connection.wait_closed()
        gone.set()

    async with serve(handle) as server, open_client() as http:
        task = asyncio.create_task(http.fetch(server.url))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await within_limit(gone.wait())


# --- waiting ---


async def test_response_that_never_starts_times_out() -> None:
    async def handle(connection: Connection) -> None:
        await connection.wait_closed()

    async with serve(handle) as server, open_client(header_timeout=0.05) as http:
        address = parse_address(server.url)
        with pytest.raises(StreamStalled, match=r"within 0\.05 s"):
            await http.send(await http.acquire(address), "GET", address, {})


async def test_response_that_goes_silent_times_out() -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        await connection.wait_closed()

    async with serve(handle) as server, open_client() as http:
        address = parse_address(server.url)
        response = await http.send(await http.acquire(address), "GET", address, {})
        assert await response.read(5) == b"hello"
        with pytest.raises(StreamStalled, match="silent"):
            await response.read(0.05)


async def test_timeout_of_fetch_covers_the_whole_request() -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", *([b"x"] * 100), pause=0.02)

    async with serve(handle) as server, open_client() as http:
        with pytest.raises(StreamStalled):
            await http.fetch(server.url, timeout=0.1)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_refused_connection_is_explained(host: str) -> None:
    port = find_free_port()
    async with open_client() as http:
        with pytest.raises(Unreachable) as caught:
            await http.fetch(f"http://{host}:{port}/v1")
    assert str(caught.value) == f"Cannot reach http://{host}:{port}: connection refused."
    assert caught.value.hint == "Is the model server running there?"
    assert caught.value.exit_code == 75


async def test_unknown_host_is_explained() -> None:
    async with open_client() as http:
        with pytest.raises(Unreachable) as caught:
            await http.fetch("http://no-such-host.invalid/v1", timeout=30)
    assert "http://no-such-host.invalid" in str(caught.value)
    assert "HTTPS_PROXY" in caught.value.hint


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "schlüssel", "emoji 🔑"])
async def test_invalid_header_is_refused_and_not_shown(value: str) -> None:
    async with serve_answers(make_response(b"")) as server, open_client() as http:
        with pytest.raises(ConfigError) as caught:
            await http.fetch(server.url, headers={"authorization": value})
    assert value not in caught.value.describe()


# --- TLS ---


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a private certificate authority (ca.pem) and its certificate for 127.0.0.1 and model.test (server.pem)."""
    folder = tmp_path_factory.mktemp("ca")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=LIMIT_S)

    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
        *("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Private Authority"),
        *("-addext", "keyUsage=critical,keyCertSign"),
    )
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=model.test"),
    )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:model.test\n")
    openssl(
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"),
        *("-extfile", "names", "-out", "server.pem"),
    )
    return folder


@asynccontextmanager
async def open_secure_server(authority: Path) -> AsyncGenerator[Listener]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "server.key")

    async def handle(connection: Connection) -> None:
        while True:
            await connection.read_request()
            await connection.send(make_response(b"secret"))

    async with serve(handle, context) as server:
        yield server


async def test_untrusted_certificate_is_refused(authority: Path) -> None:
    async with open_secure_server(authority) as server, open_client() as http:
        with pytest.raises(TlsFailed) as caught:
            await http.fetch(server.url)
    assert "certificate of 127.0.0.1 cannot be trusted" in str(caught.value)
    assert "SSL_CERT_FILE" in caught.value.hint
    assert not caught.value.retryable


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"])
async def test_private_authority_is_trusted_if_configured(authority: Path, variable: str) -> None:
    value = authority / "ca.pem"
    if variable == "SSL_CERT_DIR":
        value = authority / "hashed"
        value.mkdir(exist_ok=True)
        ran = subprocess.run(
            ["openssl", "x509", "-hash", "-noout", "-in", str(authority / "ca.pem")],
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        (value / f"{ran.stdout.strip()}.0").write_text((authority / "ca.pem").read_text())
    async with open_secure_server(authority) as server, open_client({variable: str(value)}) as http:
        await http.preconnect(server.url)
        assert await http.fetch(server.url) == (200, b"secret")
        assert await http.fetch(server.url) == (200, b"secret")
        assert server.accepted == 1


async def test_odin_uses_https_although_it_imports_ssl_late(authority: Path, workspace: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "server.key")

    async def relay(connection: Connection) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", model.port)
        try:
            head, body = await connection.read_request()
            writer.write(head.encode("latin-1") + body)
            while data := await reader.read(65536):
                await connection.send(data)
        finally:
            writer.close()

    with ScriptedServer([say("secured")]) as model:
        async with serve(relay, context) as server:
            env = {**model.env("openai"), "OPENAI_BASE_URL": f"{server.url}/v1"}
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-X", "importtime", "-m", "odin", "-p", "hello"),
                cwd=workspace,
                env={**os.environ, **env, "SSL_CERT_FILE": str(authority / "ca.pem")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, err = await process.communicate()
    assert out == b"secured\n", err[-1000:]
    imported = [line.rpartition(b"|")[2].strip() for line in err.splitlines()]
    assert imported.index(b"_ssl") > imported.index(b"asyncio")


async def test_unreadable_certificate_file_is_named(authority: Path) -> None:
    async with open_secure_server(authority) as server, open_client({"SSL_CERT_FILE": "/does/not/exist.pem"}) as http:
        for _ in range(2):
            with pytest.raises(TlsFailed, match=r"/does/not/exist\.pem cannot be read"):
                await http.fetch(server.url)


async def test_https_to_a_plain_http_server_fails_with_a_hint() -> None:
    async def handle(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await connection.wait_closed()

    async with serve(handle) as server, open_client() as http:
        with pytest.raises(TlsFailed) as caught:
            await http.fetch(server.url.replace("http:", "https:"))
    assert "speaks https" in caught.value.hint


# --- proxies ---


def make_tunnel(target: int, heads: list[str], answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"):
    """Return the handler of a proxy that tunnels every CONNECT to one port of this machine."""

    async def handle(connection: Connection) -> None:
        heads.append((await connection.reader.readuntil(b"\r\n\r\n")).decode())
        await connection.send(answer)
        if b" 200 " not in answer:
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", target)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()

        try:
            await asyncio.gather(pump(connection.reader, writer), pump(reader, connection.writer))
        finally:
            writer.transport.abort()

    return handle


async def test_https_request_goes_through_a_proxy_tunnel(authority: Path) -> None:
    heads: list[str] = []
    async with open_secure_server(authority) as server, serve(make_tunnel(server.port, heads)) as proxy:
        env = {
            "HTTPS_PROXY": f"http://us%65r:pass@127.0.0.1:{proxy.port}",
            "SSL_CERT_FILE": str(authority / "ca.pem"),
        }
        async with open_client(env) as http:
            assert await http.fetch("https://model.test/v1") == (200, b"secret")
            assert await http.fetch("https://model.test/v1") == (200, b"secret")
    assert len(heads) == 1
    assert heads[0].startswith("CONNECT model.test:443 HTTP/1.1\r\nhost: model.test:443\r\n")
    assert "proxy-authorization: Basic dXNlcjpwYXNz\r\n" in heads[0]


async def test_connection_to_the_proxy_may_use_tls(authority: Path) -> None:
    heads: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "server.key")
    async with open_secure_server(authority) as server, serve(make_tunnel(server.port, heads), context) as proxy:
        env = {"HTTPS_PROXY": f"https://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(authority / "ca.pem")}
        async with open_client(env) as http:
            assert await http.fetch("https://model.test/v1") == (200, b"secret")
    assert len(heads) == 1


async def test_certificate_is_checked_behind_a_proxy(authority: Path) -> None:
    async with open_secure_server(authority) as server, serve(make_tunnel(server.port, [])) as proxy:
        env = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(authority / "ca.pem")}
        async with open_client(env) as http:
            with pytest.raises(TlsFailed, match=r"certificate of other\.test"):
                await http.fetch("https://other.test/v1")


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", AuthFailed, "requires a login"),
        (b"HTTP/1.1 403 Blocked\r\n\r\n", Unreachable, "403 Blocked"),
        (b"nonsense\r\n\r\n", Unreachable, "does not speak HTTP"),
        (b"", Unreachable, "does not speak HTTP"),
    ],
    ids=["login", "blocked", "nonsense", "silence"],
)
async def test_refusal_by_a_proxy_is_explained(answer: bytes, error: type[ProviderError], words: str) -> None:
    async with (
        serve(make_tunnel(0, [], answer)) as proxy,
        open_client({"https_proxy": f"http://me:secret@127.0.0.1:{proxy.port}"}) as http,
    ):
        with pytest.raises(error, match=words) as caught:
            await http.fetch("https://model.test/v1")
    assert f"127.0.0.1:{proxy.port}" in str(caught.value)
    assert "secret" not in caught.value.describe()


async def test_unreachable_proxy_is_named() -> None:
    async with open_client({"HTTPS_PROXY": f"http://127.0.0.1:{find_free_port()}"}) as http:
        with pytest.raises(Unreachable, match="Cannot reach the proxy"):
            await http.fetch("https://model.test/v1")


async def test_http_request_through_a_proxy_has_an_absolute_url() -> None:
    async with (
        serve_answers(make_response(b"1"), make_response(b"2")) as proxy,
        open_client({"HTTP_PROXY": f"http://u:p@127.0.0.1:{proxy.port}"}) as http,
    ):
        assert await http.fetch("http://one.test/v1/models?a=b", body=b"{}") == (200, b"1")
        assert await http.fetch("http://two.test:8080/") == (200, b"2")
    assert proxy.heads[0].startswith("POST http://one.test/v1/models?a=b HTTP/1.1\r\nhost: one.test\r\n")
    assert proxy.heads[1].startswith("GET http://two.test:8080/ HTTP/1.1\r\nhost: two.test:8080\r\n")
    assert "proxy-authorization: Basic dTpw\r\n" in proxy.heads[0]
    assert proxy.accepted == 1
