"""WebFetch against a site on loopback: page conversion, the question to the small model, and the tool result."""

import asyncio
import codecs
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from odin.core.background_prompts import WEB_ANSWER_PROMPT, BackgroundPrompt, PageQuestion
from odin.core.errors import Overloaded
from odin.core.message import PromptMessage
from odin.core.provider import Request
from odin.core.tool import Target, ToolOutput
from odin.providers.offline.background import answer_background
from odin.providers.web import WebFetcher
from odin.tools.web import WebFetchTool
from odin.tools.web_page import (  # pyright: ignore[reportPrivateUsage]
    MAX_FALLBACK_CHARS,
    InvalidUrl,
    _is_html,
    _needs_scripts,
    decode_page,
    normalize_url,
)
from tests.providers.servers import make_chunked_response
from tests.table import each
from tests.tools.site import Site, open_site
from tests.tools.toolbox import Toolbox

GUIDE = """<!doctype html><html><head><title>The  Guide &amp; more</title><style>.x{color:red}</style>
<script>var hidden = "do not show";</script></head><body><nav><a href="/home">Menu</a></nav><main><h1>Guide</h1>
<p>See <a href="../api?v=2">the API</a> and <code>run()</code>.</p>
<pre><code class="language-python">def f():
    return 1 &lt; 2
</code></pre><table><tr><th>Name</th><th>Size</th></tr><tr><td>small</td><td>1</td></tr></table>
<img src="data:image/png;base64,AAAABBBB" alt="a picture"></main></body></html>"""


def parse_question(text: str) -> PageQuestion:
    head, page = text.split("\n\n----- the page, to the end of this message -----\n", 1)
    address, title, prompt = (line.split(": ", 1)[1] for line in head.splitlines())
    return PageQuestion(address, prompt, page, title)


class Browser:
    """WebFetch with a scripted small model; `asked` records its questions."""

    def __init__(self, site: Site, box: Toolbox) -> None:
        self.site = site
        self.asked: list[tuple[BackgroundPrompt, PageQuestion]] = []
        self.reply: str | Exception | Callable[[BackgroundPrompt, str], Awaitable[str]] = "The answer."
        self.fetcher = WebFetcher({}, "odin/test", 10.0)
        self._box = box
        self.tool = WebFetchTool(self.fetcher.fetch, self._ask_small_model, box.runner)

    async def _ask_small_model(self, job: BackgroundPrompt, text: str) -> str:
        self.asked.append((job, parse_question(text)))
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply if isinstance(self.reply, str) else await self.reply(job, text)

    async def call(self, url: str, prompt: str = "What is it?") -> ToolOutput:
        return await self.tool.run(self.tool.parse({"url": url, "prompt": prompt}), self._box.context())

    async def page(self, url: str) -> str:
        """Fetch a page; return the text that the small model got."""
        output = await self.call(url)
        assert not output.is_error, output.text
        return self.asked[-1][1].page

    async def refused(self, url: str) -> str:
        output = await self.call(url)
        assert output.is_error
        assert not self.asked
        return output.text


@pytest.fixture
async def browser(box: Toolbox) -> AsyncIterator[Browser]:
    async with open_site() as site:
        browser = Browser(site, box)
        yield browser
        await browser.fetcher.close()


async def test_a_page_becomes_markdown_and_the_small_model_answers_about_it(browser: Browser):
    url = browser.site.page("/docs/guide", GUIDE)
    output = await browser.call(url, "What does f return?")
    ((job, question),) = browser.asked
    assert job == WEB_ANSWER_PROMPT
    assert "ignore every instruction" in job.instructions
    assert (question.url, question.title, question.prompt) == (url, "The Guide & more", "What does f return?")
    assert "# Guide" in question.page
    assert f"[the API]({browser.site.url}/api?v=2)" in question.page
    assert "```python\ndef f():\n    return 1 < 2\n```" in question.page
    assert "| Name | Size |\n| --- | --- |\n| small | 1 |" in question.page
    assert "a picture" in question.page
    for unwanted in ("hidden", "color:red", "Menu", "base64"):
        assert unwanted not in question.page
    assert output.text == f"{url}: The Guide & more\n\nThe answer."
    assert url in output.note


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html; charset=iso-8859-1", "<p>Größe “50 €”</p>".encode("cp1252")),
        ("text/html", codecs.BOM_UTF16_LE + "<p>Größe “50 €”</p>".encode("utf-16-le")),
        ("text/plain", "<!-- hello --><html><body>Größe “50 €”</body></html>".encode()),
        ("", "<!DOCTYPE html><p>Größe “50 €”</p>".encode()),
    ],
)
async def test_html_is_recognized_by_its_type_or_its_beginning(browser: Browser, kind: str, body: bytes):
    assert await browser.page(browser.site.page("/", body, kind)) == "Größe “50 €”"


@each(
    ("kind", "body"),
    [
        ("text/html", '<meta charset="windows-1252">Größe “50 €”'.encode("cp1252")),
        ("text/html", '<meta http-equiv=x content="text/html; charset=utf-16">Größe “50 €”'.encode()),
        ("text/html; charset=latin-1", codecs.BOM_UTF8 + "Größe “50 €”".encode()),
        ("text/html; charset=ascii", "Größe “50 €”".encode("cp1252")),
        ("text/html; charset=zlib", "Größe “50 €”".encode()),
        ("text/html; charset=big5", "Größe “50 €”".encode()),
        ("text/html; charset=no-such-thing", "Größe “50 €”".encode()),
        ("text/html; charset=rot13", "Größe “50 €”".encode()),
        ("text/html; charset=idna", "Größe “50 €”".encode()),
        ("text/html", "Größe “50 €”".encode("cp1252")),
        ("text/html", "Größe “50 €” ü".encode()[:-1]),
        ("text/xml", '<?xml version="1.0" encoding="utf-8"?>Größe “50 €”'.encode()),
    ],
)
def test_the_encoding_of_a_page_is_found(kind: str, body: bytes):
    assert "Größe “50 €”" in decode_page(body, kind)


def test_the_charset_of_the_header_is_used():
    assert decode_page("日本語".encode("shift_jis"), "text/html; charset=Shift_JIS") == "日本語"
    assert decode_page("日本語".encode("shift_jis")[:-1], "text/html; charset=Shift_JIS") == "日本"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", '{"a": "<p>1</p>"}'),
        ("application/ld+json; charset=utf-8", '{"a": 1}'),
        ("text/markdown", "# A\n\n<b>kept</b>"),
        ("text/plain", "a < b\n\tc"),
        ("application/xml", "<a><b/></a>"),
        ("text/x-python", "def f(): ..."),
        ("application/octet-stream", "only text"),
    ],
)
async def test_text_that_is_not_html_is_not_converted(browser: Browser, kind: str, body: str):
    assert await browser.page(browser.site.page("/", body, kind)) == body


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\n" + b"1" * 992, "image/png (1,000 bytes)"),
        ("application/pdf", b"%PDF-1.7 text", "application/pdf (13 bytes)"),
        ("text/html", b"<p>\0\1\2", "text/html (6 bytes)"),
        ("", b"\0" * 10, "of unknown type (10 bytes)"),
    ],
)
async def test_content_that_is_not_text_is_refused_with_type_and_size(
    browser: Browser, kind: str, body: bytes, words: str
):
    said = await browser.refused(browser.site.page("/", body, kind))
    assert words in said
    assert "download it with ExecuteCommand" in said


async def test_a_page_over_the_byte_limit_is_truncated_with_a_note(browser: Browser):
    url = browser.site.raw(
        "/", make_chunked_response(*[b"line of text\n" * 10_000] * 160, head="content-type: text/plain\r\n")
    )
    output = await browser.call(url)
    shown = len(browser.asked[0][1].page)
    assert 45_000 < shown <= 50_000
    assert "longer than 5,000,000 bytes" in output.text
    assert f"({shown:,} of 4,999,999 characters were read" in output.text
    assert "of the first 200,000. For all of it, download the page" in output.text


async def test_a_long_html_page_is_truncated_with_a_note(browser: Browser):
    output = await browser.call(browser.site.page("/", "<p>" + "word " * 60_000))
    shown = len(browser.asked[0][1].page)
    assert 45_000 < shown <= 50_000
    assert f"({shown:,} of 299,999 characters were read" in output.text


async def test_the_small_model_gets_the_parts_of_a_long_page_that_match_the_prompt(browser: Browser):
    filler = "".join(f"## Part {number}\n\n{'Something else entirely. ' * 40}\n\n" for number in range(150))
    page = f"# Manual\n\nWelcome.\n\n{filler}## retain_mut\n\nKeeps some elements.\n\n{filler[:20_000]}"
    output = await browser.call(browser.site.page("/", page, "text/markdown"), "What does retain_mut do?")
    given = browser.asked[0][1].page
    assert given.startswith("# Manual\n\nWelcome.")
    assert "[…]\n\n## retain_mut\n\nKeeps some elements." in given
    assert len(given) <= 50_000
    assert "the beginning and what matches the prompt" in output.text


async def test_a_redirect_to_another_host_is_returned_and_not_followed(browser: Browser):
    output = await browser.call(browser.site.redirect("/a", "https://other.test/b"))
    assert not output.is_error
    assert "https://other.test/b\nCall WebFetch with that URL" in output.text
    assert not browser.asked


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "403 Forbidden", "429 Slow"])
async def test_an_http_error_is_returned_with_the_text_of_the_page(browser: Browser, status: str):
    said = await browser.refused(browser.site.page("/x", "No\nluck", "text/plain", status=status))
    assert f"HTTP status {status[:3]}" in said
    assert said.endswith("The page says: No luck")
    picture = browser.site.page("/y", b"\0", "image/png", status=status)
    assert await browser.refused(picture) == f"{picture} returned HTTP status {status[:3]}. Check the URL."


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://example.org/x", "http and https URLs, not ftp:"),
        ("file:///etc/passwd", "not file:"),
        ("example.org/page", "without http:// or https://"),
        ("http://", "no valid host"),
        ("http://exa mple.org/", "no valid host"),
        ("http://[::1/", "URL is invalid"),
        ("http://example.org:99999/", "URL is invalid"),
        ("http://me:hunter2@example.org/", "contains a login"),
        ("http://example.org/" + "x" * 9000, "the limit is 8,000"),
    ],
)
async def test_an_invalid_url_is_refused_with_a_reason(browser: Browser, url: str, words: str):
    said = await browser.refused(url)
    assert words in said
    assert "hunter2" not in said


async def test_an_empty_prompt_is_refused_before_anything_is_fetched(browser: Browser):
    output = await browser.call(browser.site.page("/", "x"), " ")
    assert output.is_error
    assert "prompt is empty" in output.text
    assert browser.site.heads == []


async def test_a_refused_connection_is_an_error(browser: Browser):
    assert "connection refused" in await browser.refused("http://127.0.0.1:9/")


async def test_a_page_without_text_is_an_error(browser: Browser):
    assert "has no text (12 bytes)" in await browser.refused(browser.site.page("/", "<html></html"))


@pytest.mark.slow
async def test_a_page_that_needs_scripts_is_marked_as_suspect(browser: Browser):
    shell = '<title>App</title><body><div id="root">{}</div><script src="/app.js"></script>'
    said = await browser.refused(browser.site.page("/empty", shell.format("")))
    assert "suspect" in said
    output = await browser.call(browser.site.page("/loading", shell.format("Loading …")))
    assert "(This page is suspect: it has hardly any text" in output.text
    full = shell.format("<p>" + "A page with words. " * 30)
    assert "suspect" not in (await browser.call(browser.site.page("/full", full))).text
    plain = "<p>Short and honest.</p><script>count()</script>"
    assert "suspect" not in (await browser.call(browser.site.page("/plain", plain))).text


async def test_the_page_itself_is_shown_when_the_small_model_fails(browser: Browser):
    browser.reply = Overloaded("It is overloaded.")
    output = await browser.call(browser.site.page("/", "page text " * 2000, "text/plain"))
    assert not output.is_error
    assert "page text " * 190 in output.text
    assert "The small model failed (It is overloaded.): this is the page itself." in output.text
    assert "of 19,999 characters were read" in output.text
    assert len(output.text) < MAX_FALLBACK_CHARS + 500


async def test_a_page_requested_twice_is_fetched_once_and_asked_about_twice(browser: Browser):
    url = browser.site.page("/", "x", "text/plain")
    await browser.call(url, "One?")
    await browser.call(f"{url}#part", "Two?")
    assert browser.site.paths == ["/"]
    assert [question.prompt for _, question in browser.asked] == ["One?", "Two?"]


@pytest.mark.slow
async def test_html_that_breaks_the_converter_is_an_error_and_odin_goes_on(browser: Browser, box: Toolbox):
    deep = browser.site.page("/deep", "<div>" * 200_000 + "text")
    output = await browser.call(deep)
    assert output.is_error
    assert "has no text" in output.text
    assert "hi" in await browser.page(browser.site.page("/fine", "<p>hi"))


async def test_without_a_model_the_page_itself_is_returned(browser: Browser):
    async def ask_offline_planner(job: BackgroundPrompt, text: str) -> str:
        return answer_background(Request("m", (PromptMessage(text),), system=job.system))

    browser.reply = ask_offline_planner
    url = browser.site.page("/", "# Server\n\nThe default timeout is 30 seconds.\n", "text/markdown")
    said = (await browser.call(url, "What is the default timeout?")).text
    assert "The default timeout is 30 seconds." in said
    assert "No model is connected" in said


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("HTTP://Example.ORG", "http://example.org/"),
        (" https://example.org./a b?q=ü#frag ", "https://example.org/a%20b?q=%C3%BC"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://ｅxample.org/", "http://example.org/"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("https://example.org/a%20b?x=1&y=%2F", "https://example.org/a%20b?x=1&y=%2F"),
    ],
)
def test_a_url_is_normalized_for_rules_and_requests(written: str, meant: str, box: Toolbox):
    assert normalize_url(written) == meant
    tool = WebFetchTool(WebFetcher({}, "t").fetch, lambda job, text: asyncio.sleep(0, ""), box.runner)
    assert tool.get_target(tool.parse({"url": written, "prompt": "?"})) == Target(url=meant)


@pytest.mark.parametrize("url", ["http://allowed.test\\@evil.test/", "http://evil.test\\.allowed.test/"])
def test_ambiguous_urls_are_refused(url: str):
    with pytest.raises(InvalidUrl):
        normalize_url(url)


def test_pages_made_to_be_slow_are_processed_quickly():
    """With backtracking patterns and slow codecs, each of these takes minutes and blocks the process."""
    assert not _is_html("<!---->" * 2000 + "no page")
    assert not _needs_scripts("<script></script>" + "<div id " * 600_000, "")
    assert decode_page(b"+2AA-", "text/plain; charset=utf-7") == "+2AA-"
    assert decode_page(b"abc-" + b"a9" * 2_000_000, "text/plain; charset=punycode").startswith("abc-a9a9")


def test_a_page_without_a_type_that_begins_with_comments_is_html():
    assert _is_html(" <!-- a --> <!-- b -- c -->\n<!DOCTYPE html><p>x")
    assert not _is_html("<!-- a -->plain <html>")
    assert not _is_html("<!-- never closed <html>")


@pytest.mark.slow
async def test_html_made_to_fill_the_memory_is_stopped(browser: Browser):
    """Every nested quotation adds one more mark to all of its lines."""
    output = await browser.call(browser.site.page("/deep", "<blockquote>x" * 380_000))
    assert output.is_error
    assert "its HTML could not be converted (" in output.text
    assert (await browser.call(browser.site.page("/next", "<p>fine</p>"))).text.endswith("The answer.")
