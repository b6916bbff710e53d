"""Pages over real HTTP: bounds, redirects, faults, and what is kept."""

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

from .servers import Line, answering, chunked, listening, whole

HTML = "content-type: text/html\r\n"


@asynccontextmanager
async def fetcher(env: Mapping[str, str] | None = None, timeout: float = 10.0) -> AsyncGenerator[WebFetcher]:
    made = WebFetcher(env or {}, "odin/test", timeout)
    try:
        yield made
    finally:
        await made.close()


async def test_a_page_comes_with_its_type_and_address():
    async with open_site() as site, fetcher() as web:
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
        chunked(b"hel", b"lo", head=HTML),
        whole(gzip.compress(b"hello"), HTML + "content-encoding: gzip\r\n"),
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\nhello",
    ],
)
async def test_bodies_in_every_wrapping(answer: bytes):
    async with answering(answer) as server, fetcher() as web:
        assert (await web.fetch(server.url + "/")).body == b"hello"


async def test_a_long_body_is_cut_and_its_connection_dropped():
    hung_up = asyncio.Event()

    async def play(line: Line) -> None:
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 20000000\r\n\r\n")
        try:
            for _ in range(200):
                await line.send(b"x" * 100_000)
        finally:
            hung_up.set()

    async with listening(play) as server, fetcher() as web:
        found = await web.fetch(server.url, limit=500_000)
        assert (len(found.body), found.complete) == (500_000, False)
        async with asyncio.timeout(5):
            await hung_up.wait()


async def test_a_body_of_exactly_the_limit_is_complete():
    async with open_site() as site, fetcher() as web:
        assert (await web.fetch(site.page("/", "x" * 1000), limit=1000)).complete


async def test_redirects_within_the_host_are_followed():
    async with open_site() as site, fetcher() as web:
        site.redirect("/a", "/b?x=1", "301 Moved")
        site.redirect("/b", f"{site.url}/c#part", "308 Permanent")
        site.page("/c", "there")
        found = await web.fetch(site.url + "/a")
    assert (found.url, found.body) == (f"{site.url}/c", b"there")
    assert site.paths == ["/a", "/b?x=1", "/c"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("http://other.test/x?y=1", "http://other.test/x?y=1"),
        ("https://user:secret@other.test/x", "https://other.test/x"),
        ("//www.127.0.0.1.test/", "http://www.127.0.0.1.test/"),
    ],
)
async def test_a_redirect_to_another_host_is_told_and_not_followed(target: str, told: str):
    async with open_site() as site, fetcher() as web:
        found = await web.fetch(site.redirect("/a", target))
    assert (found.location, found.body, found.status) == (told, b"", 302)
    assert site.paths == ["/a"]


async def test_another_name_for_the_same_machine_is_another_host():
    async with open_site() as site, fetcher() as web:
        found = await web.fetch(site.redirect("/a", f"http://localhost:{site.port}/b"))
    assert found.location == f"http://localhost:{site.port}/b"
    assert site.paths == ["/a"]


async def test_redirects_in_a_circle_and_without_end_are_named():
    async with open_site() as site, fetcher() as web:
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


async def test_a_page_that_does_not_come_to_an_end_in_time_is_given_up():
    async def play(line: Line) -> None:
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while True:
            await line.send(b"x", pause=0.05)

    async with listening(play) as server, fetcher(timeout=0.3) as web:
        with pytest.raises(StreamStalled, match=r"did not send the page within 0.3 s"):
            await web.fetch(server.url)


async def test_faults_are_said_without_advice_about_models():
    async with fetcher() as web:
        with pytest.raises(Unreachable, match="connection refused") as refused:
            await web.fetch("http://127.0.0.1:9/")
    assert refused.value.hint == "Check the address, or try again later."
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"
    for answer, kind in ((b"SSH-2.0-OpenSSH\r\n", BadReply), (cut, StreamCut)):

        async def play(line: Line, answer: bytes = answer) -> None:
            await line.request()
            await line.send(answer)

        async with listening(play) as server, fetcher() as web:
            with pytest.raises(kind) as caught:
                await web.fetch(server.url)
        assert "base URL" not in caught.value.describe()


async def test_the_same_page_is_fetched_once_and_errors_every_time():
    async with open_site() as site, fetcher() as web:
        url = site.page("/", "x")
        assert await web.fetch(url) is await web.fetch(url)
        assert (await web.fetch(site.url + "/none")).status == 404
        await web.fetch(site.url + "/none")
        await web.fetch(url, headers={"accept": "text/html"})
    assert site.paths == ["/", "/none", "/none", "/"]


async def test_a_page_that_is_asked_for_twice_at_once_is_fetched_once():
    async with open_site() as site, fetcher() as web:
        url = site.page("/", "x")
        one, other = await asyncio.gather(web.fetch(url), web.fetch(url))
        assert one is other
    assert site.paths == ["/"]


async def test_what_is_kept_gets_old():
    now = [0.0]
    async with open_site() as site:
        web = WebFetcher({}, "odin/test", clock=lambda: now[0])
        url = site.page("/", "x")
        for now[0] in (0.0, CACHE_SECONDS, CACHE_SECONDS + 1):
            await web.fetch(url)
        await web.close()
    assert site.paths == ["/", "/"]


async def test_what_is_kept_has_a_bound():
    async with open_site() as site, fetcher() as web:
        big = [site.page(f"/{number}", b"x" * 6_000_000, "text/plain") for number in range(4)]
        for each in big:
            await web.fetch(each, limit=6_000_000)
        assert CACHE_BYTES < 4 * 6_000_000
        await web.fetch(big[3], limit=6_000_000)
        await web.fetch(big[0], limit=6_000_000)
    assert site.paths == ["/0", "/1", "/2", "/3", "/0"]


async def test_a_proxy_of_the_environment_is_used():
    async with answering(whole(b"by proxy", HTML)) as proxy:
        async with fetcher({"HTTP_PROXY": f"http://u:p@127.0.0.1:{proxy.port}"}) as web:
            found = await web.fetch("http://pages.test/a")
        assert proxy.heads[0].startswith("GET http://pages.test/a HTTP/1.1\r\n")
        assert found.body == b"by proxy"
    async with fetcher({"HTTP_PROXY": "http://u:p@127.0.0.1:9"}) as web:
        with pytest.raises(ProviderError, match="Cannot reach the proxy") as caught:
            await web.fetch("http://pages.test/a")
    assert "NO_PROXY" in caught.value.hint
    assert "u:p" not in caught.value.describe()


async def test_a_certificate_nobody_vouches_for_is_refused_and_a_way_back_to_http_is_told(tmp_path: Path):
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

    async def play(line: Line) -> None:
        await line.request()
        await line.send(whole(b"", "location: http://127.0.0.1:80/plain\r\n", "301 Moved"))
        await line.closed()

    async with listening(play, context) as server:
        async with fetcher() as web:
            with pytest.raises(TlsFailed, match="cannot be trusted") as caught:
                await web.fetch(server.url)
        assert "SSL_CERT_FILE" in caught.value.hint
        async with fetcher({"SSL_CERT_FILE": str(certificate)}) as web:
            assert (await web.fetch(server.url)).location == "http://127.0.0.1/plain"
