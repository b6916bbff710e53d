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

from .servers import Line, Listener, answering, chunked, listening, whole


@asynccontextmanager
async def client(env: Mapping[str, str] | None = None, **options: float) -> AsyncGenerator[HttpClient]:
    http = HttpClient(env or {}, **options)  # pyright: ignore[reportArgumentType]
    try:
        yield http
    finally:
        await http.close()


async def fetch(answer: bytes) -> tuple[int, bytes]:
    async with answering(answer) as server, client() as http:
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
def test_an_address_is_taken_apart(url: str, host: str, port: int, path: str, authority: str) -> None:
    found = parse_address(url)
    assert (found.host, found.port, found.path, found.authority) == (host, port, path, authority)


@pytest.mark.parametrize(
    "url", ["", "localhost:1234", "ftp://x/y", "http://", "http:///v1", "http://x:99999", "http://x:y", "http://a b/"]
)
def test_what_is_not_an_address_is_named(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(url)
    assert repr(url) in str(caught.value)
    assert "http://" in caught.value.hint


def test_a_login_in_an_address_is_not_shown() -> None:
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
def test_the_environment_decides_about_proxies(env: dict[str, str], url: str, proxy: str | None) -> None:
    route = find_route(parse_address(url), env)
    assert (route.proxy.origin if route.proxy else None) == proxy


@each(
    "proxy, used",
    [("http://own:1", "http://own:1"), ("own:1", "http://own:1"), ("direct", None)],
)
def test_a_proxy_of_a_provider_replaces_those_of_the_environment(proxy: str, used: str | None) -> None:
    env = {"HTTPS_PROXY": "http://p:3128", "http_proxy": "http://p:3128", "NO_PROXY": "*", "HOME": "/h"}
    for url in ("https://api.test", "http://api.test"):
        route = find_route(parse_address(url), set_proxy(env, proxy))
        assert (route.proxy.origin if route.proxy else None) == used


def test_a_socks_proxy_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="SOCKS"):
        find_route(parse_address("https://api.test"), {"ALL_PROXY": "socks5://p:1080"})


# --- bodies ---


@pytest.mark.parametrize(
    "answer",
    [
        whole(b"hello"),
        chunked(b"he", b"llo"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;name=value\r\nhello\r\n0\r\nx-trailer: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + whole(b"hello"),
        b"HTTP/1.1 200\ncontent-length: 5\n\nhello",
        whole(gzip.compress(b"hello"), "content-encoding: gzip\r\n"),
        whole(zlib.compress(b"hello"), "content-encoding: deflate\r\n"),
        whole(zlib.compress(b"hello", wbits=-15), "content-encoding: deflate\r\n"),
        chunked(*(bytes([byte]) for byte in gzip.compress(b"hello")), head="content-encoding: gzip\r\n"),
        whole(gzip.compress(b"he") + gzip.compress(b"llo") + bytes(9), "content-encoding: gzip\r\n"),
        chunked(gzip.compress(b"he"), gzip.compress(b"llo"), head="content-encoding: gzip\r\n"),
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
    assert await fetch(answer) == (200, b"hello")


async def test_an_answer_without_a_body_keeps_the_connection() -> None:
    async with (
        answering(b"HTTP/1.1 204 No Content\r\nx: chunked\r\n\r\n", whole(b"x")) as server,
        client() as http,
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
        (whole(b"\x1f\x8b damaged"[:20], "content-encoding: gzip\r\n"), BadReply, "damaged"),
        (whole(b"x", "content-encoding: br\r\n"), BadReply, "compressed with br"),
    ],
    ids=range(15),
)
async def test_a_broken_answer_is_named(answer: bytes, error: type[ProviderError], words: str) -> None:
    async def play(line: Line) -> None:
        await line.request()
        await line.send(answer)

    async with listening(play) as server, client() as http:
        with pytest.raises(error, match=words):
            await http.fetch(server.url)


async def test_a_bomb_is_refused() -> None:
    bomb = gzip.compress(b"\0" * (40 * 1024 * 1024))
    with pytest.raises(BadReply, match="too large"):
        await fetch(whole(bomb, "content-encoding: gzip\r\n"))


async def test_a_large_body_arrives_whole_and_waits_for_its_reader() -> None:
    body = os.urandom(1024 * 1024) * 24
    async with answering(whole(body)) as server, client() as http:
        address = parse_address(server.url)
        wire = await http.lease(address)
        response = await http.send(wire, "GET", address, {})
        await asyncio.sleep(0.1)
        assert len(wire._buffer) < 4 * 1024 * 1024
        assert await response.read_all(5, limit=len(body) + 1) == body


# --- connections ---


async def test_a_connection_serves_the_next_request() -> None:
    async with answering(whole(b"1"), chunked(b"2"), whole(b"3")) as server, client() as http:
        assert [(await http.fetch(server.url))[1] for _ in range(3)] == [b"1", b"2", b"3"]
        assert server.accepted == 1


@pytest.mark.parametrize("header", ["connection: close\r\n", "Connection: Close\r\n"])
async def test_a_connection_that_shall_close_is_not_kept(header: str) -> None:
    async with answering(whole(b"1", header), whole(b"2")) as server, client() as http:
        await http.fetch(server.url)
        await http.fetch(server.url)
        assert server.accepted == 2


async def test_an_old_connection_is_not_trusted() -> None:
    async with answering(whole(b"1"), whole(b"2")) as server, client(keep_alive=0.0) as http:
        await http.fetch(server.url)
        await asyncio.sleep(0.01)
        await http.fetch(server.url)
        assert server.accepted == 2


async def test_a_kept_connection_that_died_is_replaced_once() -> None:
    async def play(line: Line) -> None:
        await line.request()
        if line.number == 1:
            await line.send(whole(b"1"))
            await line.request()
            return
        await line.send(whole(b"2"))

    async with listening(play) as server, client() as http:
        assert (await http.fetch(server.url))[1] == b"1"
        assert (await http.fetch(server.url))[1] == b"2"
        assert server.accepted == 2


async def test_a_new_connection_that_dies_is_not_tried_again() -> None:
    async def play(line: Line) -> None:
        await line.request()

    async with listening(play) as server, client() as http:
        with pytest.raises(StreamCut, match="before it answered"):
            await http.fetch(server.url)
        assert server.accepted == 1


async def test_a_connection_closed_while_it_waits_is_not_used() -> None:
    async def play(line: Line) -> None:
        await line.request()
        await line.send(whole(b"x"))

    async with listening(play) as server, client() as http:
        await http.fetch(server.url)
        await asyncio.sleep(0.05)
        assert (await http.fetch(server.url))[1] == b"x"
        assert server.accepted == 2


async def test_a_warmed_connection_is_the_one_that_is_used() -> None:
    async with answering(whole(b"1")) as server, client() as http:
        await http.warm(server.url)
        await http.warm(server.url)
        for _ in range(100):
            await asyncio.sleep(0.005)
            if server.accepted:
                break
        assert server.accepted == 1
        assert await http.fetch(server.url) == (200, b"1")
        assert server.accepted == 1


async def test_a_connection_that_was_warmed_long_ago_is_not_used() -> None:
    async with answering(whole(b"1")) as server, client(keep_alive=0.01) as http:
        await http.warm(server.url)
        await asyncio.sleep(0.05)
        assert server.accepted == 1
        assert await http.fetch(server.url) == (200, b"1")
        assert server.accepted == 2


async def test_a_warm_attempt_that_failed_is_made_again() -> None:
    async with client() as http:
        with ScriptedServer([]) as server:
            port = server.port
        await http.warm(f"http://127.0.0.1:{port}/v1/models")
        await asyncio.sleep(0.05)
        with ScriptedServer([], port=port, strict=False) as server:
            assert (await http.fetch(f"{server.url}/v1/models"))[0] == 200


async def test_warming_never_fails() -> None:
    async with client() as http:
        await http.warm("nonsense")
        await http.warm(f"http://127.0.0.1:{free_port()}")
        await asyncio.sleep(0.02)


async def test_closing_stops_a_connection_that_is_being_warmed() -> None:
    async with listening(lambda line: asyncio.sleep(5)) as server:
        http = HttpClient({})
        await http.warm(server.url)
        await http.close()


async def test_cancelling_closes_the_connection() -> None:
    gone = asyncio.Event()
    asked = asyncio.Event()

    async def play(line: Line) -> None:
        await line.request()
        asked.set()
        await line.closed()
        gone.set()

    async with listening(play) as server, client() as http:
        task = asyncio.create_task(http.fetch(server.url))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 5)


# --- waiting ---


async def test_an_answer_that_does_not_begin_is_given_up() -> None:
    async def play(line: Line) -> None:
        await line.closed()

    async with listening(play) as server, client(header_timeout=0.05) as http:
        address = parse_address(server.url)
        with pytest.raises(StreamStalled, match=r"within 0\.05 s"):
            await http.send(await http.lease(address), "GET", address, {})


async def test_an_answer_that_goes_silent_is_given_up() -> None:
    async def play(line: Line) -> None:
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        await line.closed()

    async with listening(play) as server, client() as http:
        address = parse_address(server.url)
        response = await http.send(await http.lease(address), "GET", address, {})
        assert await response.read(5) == b"hello"
        with pytest.raises(StreamStalled, match="silent"):
            await response.read(0.05)


async def test_a_small_question_is_bounded_as_a_whole() -> None:
    async def play(line: Line) -> None:
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", *([b"x"] * 100), pause=0.02)

    async with listening(play) as server, client() as http:
        with pytest.raises(StreamStalled):
            await http.fetch(server.url, timeout=0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_nobody_there(host: str) -> None:
    port = free_port()
    async with client() as http:
        with pytest.raises(Unreachable) as caught:
            await http.fetch(f"http://{host}:{port}/v1")
    assert str(caught.value) == f"Cannot reach http://{host}:{port}: connection refused."
    assert caught.value.hint == "Is the model server running there?"
    assert caught.value.exit_code == 75


async def test_a_name_that_does_not_exist() -> None:
    async with client() as http:
        with pytest.raises(Unreachable) as caught:
            await http.fetch("http://no-such-host.invalid/v1", timeout=30)
    assert "http://no-such-host.invalid" in str(caught.value)
    assert "HTTPS_PROXY" in caught.value.hint


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "schlüssel", "emoji 🔑"])
async def test_a_header_that_cannot_be_sent_is_said_and_not_shown(value: str) -> None:
    async with answering(whole(b"")) as server, client() as http:
        with pytest.raises(ConfigError) as caught:
            await http.fetch(server.url, headers={"authorization": value})
    assert value not in caught.value.describe()


# --- TLS ---


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private certificate authority (ca.pem) and what it vouches for: 127.0.0.1 and model.test (server.pem)."""
    folder = tmp_path_factory.mktemp("ca")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=60)

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
async def secure_server(authority: Path) -> AsyncGenerator[Listener]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "server.key")

    async def play(line: Line) -> None:
        while True:
            await line.request()
            await line.send(whole(b"secret"))

    async with listening(play, context) as server:
        yield server


async def test_a_certificate_nobody_vouches_for_is_refused(authority: Path) -> None:
    async with secure_server(authority) as server, client() as http:
        with pytest.raises(TlsFailed) as caught:
            await http.fetch(server.url)
    assert "certificate of 127.0.0.1 cannot be trusted" in str(caught.value)
    assert "SSL_CERT_FILE" in caught.value.hint
    assert not caught.value.retryable


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"])
async def test_a_private_authority_is_trusted_when_named(authority: Path, variable: str) -> None:
    value = authority / "ca.pem"
    if variable == "SSL_CERT_DIR":
        value = authority / "hashed"
        value.mkdir(exist_ok=True)
        ran = subprocess.run(
            ["openssl", "x509", "-hash", "-noout", "-in", str(authority / "ca.pem")],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        (value / f"{ran.stdout.strip()}.0").write_text((authority / "ca.pem").read_text())
    async with secure_server(authority) as server, client({variable: str(value)}) as http:
        await http.warm(server.url)
        assert await http.fetch(server.url) == (200, b"secret")
        assert await http.fetch(server.url) == (200, b"secret")
        assert server.accepted == 1


async def test_the_command_speaks_https_although_it_starts_without_ssl(authority: Path, workspace: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "server.key")

    async def relay(line: Line) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", model.port)
        try:
            head, body = await line.request()
            writer.write(head.encode("latin-1") + body)
            while data := await reader.read(65536):
                await line.send(data)
        finally:
            writer.close()

    with ScriptedServer([say("secured")]) as model:
        async with listening(relay, context) as server:
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


async def test_certificates_that_cannot_be_read_are_named(authority: Path) -> None:
    async with secure_server(authority) as server, client({"SSL_CERT_FILE": "/does/not/exist.pem"}) as http:
        for _ in range(2):
            with pytest.raises(TlsFailed, match=r"/does/not/exist\.pem cannot be read"):
                await http.fetch(server.url)


async def test_https_to_a_server_that_does_not_speak_it() -> None:
    async def play(line: Line) -> None:
        await line.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await line.closed()

    async with listening(play) as server, client() as http:
        with pytest.raises(TlsFailed) as caught:
            await http.fetch(server.url.replace("http:", "https:"))
    assert "speaks https" in caught.value.hint


# --- proxies ---


def tunnel(target: int, heads: list[str], answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"):
    """A proxy that connects every CONNECT to one port of this machine."""

    async def play(line: Line) -> None:
        heads.append((await line.reader.readuntil(b"\r\n\r\n")).decode())
        await line.send(answer)
        if b" 200 " not in answer:
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", target)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()

        try:
            await asyncio.gather(pump(line.reader, writer), pump(reader, line.writer))
        finally:
            writer.transport.abort()

    return play


async def test_https_goes_through_a_proxy_by_a_tunnel(authority: Path) -> None:
    heads: list[str] = []
    async with secure_server(authority) as server, listening(tunnel(server.port, heads)) as proxy:
        env = {
            "HTTPS_PROXY": f"http://us%65r:pass@127.0.0.1:{proxy.port}",
            "SSL_CERT_FILE": str(authority / "ca.pem"),
        }
        async with client(env) as http:
            assert await http.fetch("https://model.test/v1") == (200, b"secret")
            assert await http.fetch("https://model.test/v1") == (200, b"secret")
    assert len(heads) == 1
    assert heads[0].startswith("CONNECT model.test:443 HTTP/1.1\r\nhost: model.test:443\r\n")
    assert "proxy-authorization: Basic dXNlcjpwYXNz\r\n" in heads[0]


async def test_the_way_to_the_proxy_may_be_secure_too(authority: Path) -> None:
    heads: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.pem", authority / "server.key")
    async with secure_server(authority) as server, listening(tunnel(server.port, heads), context) as proxy:
        env = {"HTTPS_PROXY": f"https://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(authority / "ca.pem")}
        async with client(env) as http:
            assert await http.fetch("https://model.test/v1") == (200, b"secret")
    assert len(heads) == 1


async def test_the_certificate_is_checked_behind_a_proxy_too(authority: Path) -> None:
    async with secure_server(authority) as server, listening(tunnel(server.port, [])) as proxy:
        env = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(authority / "ca.pem")}
        async with client(env) as http:
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
async def test_a_proxy_that_refuses_is_named(answer: bytes, error: type[ProviderError], words: str) -> None:
    async with (
        listening(tunnel(0, [], answer)) as proxy,
        client({"https_proxy": f"http://me:secret@127.0.0.1:{proxy.port}"}) as http,
    ):
        with pytest.raises(error, match=words) as caught:
            await http.fetch("https://model.test/v1")
    assert f"127.0.0.1:{proxy.port}" in str(caught.value)
    assert "secret" not in caught.value.describe()


async def test_a_proxy_that_is_down_is_named() -> None:
    async with client({"HTTPS_PROXY": f"http://127.0.0.1:{free_port()}"}) as http:
        with pytest.raises(Unreachable, match="Cannot reach the proxy"):
            await http.fetch("https://model.test/v1")


async def test_http_goes_through_a_proxy_with_the_whole_address() -> None:
    async with (
        answering(whole(b"1"), whole(b"2")) as proxy,
        client({"HTTP_PROXY": f"http://u:p@127.0.0.1:{proxy.port}"}) as http,
    ):
        assert await http.fetch("http://one.test/v1/models?a=b", body=b"{}") == (200, b"1")
        assert await http.fetch("http://two.test:8080/") == (200, b"2")
    assert proxy.heads[0].startswith("POST http://one.test/v1/models?a=b HTTP/1.1\r\nhost: one.test\r\n")
    assert proxy.heads[1].startswith("GET http://two.test:8080/ HTTP/1.1\r\nhost: two.test:8080\r\n")
    assert "proxy-authorization: Basic dTpw\r\n" in proxy.heads[0]
    assert proxy.accepted == 1
