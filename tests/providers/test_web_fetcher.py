"""Fetching web pages over real HTTP: limits, redirects, errors and the cache."""

import asyncio
import gzip
import ssl
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odin.core.errors import BadReply, ProviderError, StreamCut, StreamStalled, TlsFailed, Unreachable
from odin.providers.web import CACHE_BYTES, CACHE_SECONDS, WebFetcher
from tests.tools.site import open_site
from tests.waiting import TimeLimit

from .servers import Connection, make_chunked_response, make_response, serve, serve_answers

HTML = "content-type: text/html\r\n"


@asynccontextmanager
async def open_fetcher(env: Mapping[str, str] | None = None, timeout: float = 10.0) -> AsyncGenerator[WebFetcher]:
    fetcher = WebFetcher(env or {}, "odin/test", timeout)
    try:
        yield fetcher
    finally:
        await fetcher.close()


async def test_page_has_its_type_and_url():
    async with open_site() as site, open_fetcher() as web:
        found = await web.fetch(site.page("/a?b=c", "<p>hi", "text/html; charset=x"))
        head = site.heads[0].lower()
    assert (found.url, found.status, found.content_type) == (f"{site.url}/a?b=c", 200, "text/html; charset=x")
    assert found.body == b"<p>hi"
    assert found.complete
    assert "user-agent: odin/test\r\n" in head
    assert "accept: text/html" in head


@pytest.mark.parametrize(
    "answer",
    [
        make_chunked_response(b"hel", b"lo", head=HTML),
        make_response(gzip.compress(b"hello"), HTML + "content-encoding: gzip\r\n"),
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\nhello",
    ],
)
async def test_body_is_read_in_every_encoding(answer: bytes):
    async with serve_answers(answer) as server, open_fetcher() as web:
        assert (await web.fetch(server.url + "/")).body == b"hello"


async def test_long_body_is_truncated_and_its_connection_dropped():
    hung_up = asyncio.Event()

    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 20000000\r\n\r\n")
        try:
            for _ in range(200):
                await connection.send(b"x" * 100_000)
        finally:
            hung_up.set()

    async with serve(handle) as server, open_fetcher() as web:
        found = await web.fetch(server.url, limit=500_000)
        assert (len(found.body), found.complete) == (500_000, False)
        async with TimeLimit():
            await hung_up.wait()


async def test_a_body_of_exactly_the_limit_is_complete():
    async with open_site() as site, open_fetcher() as web:
        assert (await web.fetch(site.page("/", "x" * 1000), limit=1000)).complete


async def test_redirects_within_the_host_are_followed():
    async with open_site() as site, open_fetcher() as web:
        site.redirect("/a", "/b?x=1", "301 Moved")
        site.redirect("/b", f"{site.url}/c#part", "308 Permanent")
        site.page("/c", "there")
        found = await web.fetch(site.url + "/a")
    assert (found.url, found.body) == (f"{site.url}/c", b"there")
    assert site.paths == ["/a", "/b?x=1", "/c"]


@pytest.mark.parametrize(
    ("target", "reported"),
    [
        ("http://other.test/x?y=1", "http://other.test/x?y=1"),
        ("https://user:secret@other.test/x", "https://other.test/x"),
        ("//www.127.0.0.1.test/", "http://www.127.0.0.1.test/"),
    ],
)
async def test_redirect_to_another_host_is_reported_and_not_followed(target: str, reported: str):
    async with open_site() as site, open_fetcher() as web:
        found = await web.fetch(site.redirect("/a", target))
    assert (found.location, found.body, found.status) == (reported, b"", 302)
    assert site.paths == ["/a"]


async def test_another_name_for_the_same_machine_is_another_host():
    async with open_site() as site, open_fetcher() as web:
        found = await web.fetch(site.redirect("/a", f"http://localhost:{site.port}/b"))
    assert found.location == f"http://localhost:{site.port}/b"
    assert site.paths == ["/a"]


async def test_circular_endless_and_non_http_redirects_are_refused():
    async with open_site() as site, open_fetcher() as web:
        site.redirect("/a", "/b")
        site.redirect("/b", "/a")
        with pytest.raises(BadReply, match="redirects in a circle"):
            await web.fetch(site.url + "/a")
        for number in range(9):
            site.redirect(f"/{number}", f"/{number + 1}")
        with pytest.raises(BadReply, match="more than 5 times"):
            await web.fetch(site.url + "/0")
        with pytest.raises(BadReply, match="not an http or https address"):
            await web.fetch(site.redirect("/file", "file:///etc/passwd"))


async def test_page_that_takes_too_long_is_given_up():
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while True:
            await connection.send(b"x", pause=0.05)

    async with serve(handle) as server, open_fetcher(timeout=0.3) as web:
        with pytest.raises(StreamStalled, match=r"did not send the page within 0.3 s"):
            await web.fetch(server.url)


async def test_fetch_errors_give_no_advice_about_models():
    async with open_fetcher() as web:
        with pytest.raises(Unreachable, match="connection refused") as refused:
            await web.fetch("http://127.0.0.1:9/")
    assert refused.value.hint == "Check the address, or try again later."
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"
    for answer, kind in ((b"SSH-2.0-OpenSSH\r\n", BadReply), (cut, StreamCut)):

        async def handle(connection: Connection, answer: bytes = answer) -> None:
            await connection.read_request()
            await connection.send(answer)

        async with serve(handle) as server, open_fetcher() as web:
            with pytest.raises(kind) as caught:
                await web.fetch(server.url)
        assert "base URL" not in caught.value.describe()


async def test_pages_are_cached_and_errors_are_not():
    async with open_site() as site, open_fetcher() as web:
        url = site.page("/", "x")
        assert await web.fetch(url) is await web.fetch(url)
        assert (await web.fetch(site.url + "/none")).status == 404
        await web.fetch(site.url + "/none")
        await web.fetch(url, headers={"accept": "text/html"})
    assert site.paths == ["/", "/none", "/none", "/"]


async def test_concurrent_fetches_of_a_page_share_one_request():
    async with open_site() as site, open_fetcher() as web:
        url = site.page("/", "x")
        one, other = await asyncio.gather(web.fetch(url), web.fetch(url))
        assert one is other
    assert site.paths == ["/"]


async def test_cached_page_expires():
    now = [0.0]
    async with open_site() as site:
        web = WebFetcher({}, "odin/test", clock=lambda: now[0])
        url = site.page("/", "x")
        for now[0] in (0.0, CACHE_SECONDS, CACHE_SECONDS + 1):
            await web.fetch(url)
        await web.close()
    assert site.paths == ["/", "/"]


async def test_cache_size_is_bounded():
    async with open_site() as site, open_fetcher() as web:
        big = [site.page(f"/{number}", b"x" * 6_000_000, "text/plain") for number in range(4)]
        for each in big:
            await web.fetch(each, limit=6_000_000)
        assert CACHE_BYTES < 4 * 6_000_000
        await web.fetch(big[3], limit=6_000_000)
        await web.fetch(big[0], limit=6_000_000)
    assert site.paths == ["/0", "/1", "/2", "/3", "/0"]


async def test_proxy_of_the_environment_is_used():
    async with serve_answers(make_response(b"by proxy", HTML)) as proxy:
        async with open_fetcher({"HTTP_PROXY": f"http://u:p@127.0.0.1:{proxy.port}"}) as web:
            found = await web.fetch("http://pages.test/a")
        assert proxy.heads[0].startswith("GET http://pages.test/a HTTP/1.1\r\n")
        assert found.body == b"by proxy"
    async with open_fetcher({"HTTP_PROXY": "http://u:p@127.0.0.1:9"}) as web:
        with pytest.raises(ProviderError, match="Cannot reach the proxy") as caught:
            await web.fetch("http://pages.test/a")
    assert "NO_PROXY" in caught.value.hint
    assert "u:p" not in caught.value.describe()


async def test_untrusted_certificate_is_refused_and_redirect_to_http_is_reported(tmp_path: Path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}",
        shell=True,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(make_response(b"", "location: http://127.0.0.1:80/plain\r\n", "301 Moved"))
        await connection.wait_closed()

    async with serve(handle, context) as server:
        async with open_fetcher() as web:
            with pytest.raises(TlsFailed, match="cannot be trusted") as caught:
                await web.fetch(server.url)
        assert "SSL_CERT_FILE" in caught.value.hint
        async with open_fetcher({"SSL_CERT_FILE": str(certificate)}) as web:
            assert (await web.fetch(server.url)).location == "http://127.0.0.1/plain"
