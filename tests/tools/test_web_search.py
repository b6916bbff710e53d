"""WebSearch against scripted engines on loopback."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from odin.core.errors import ConfigError
from odin.core.tool import Subject, ToolOutput
from odin.providers.web import WebFetcher, make_engine
from odin.tools.web import WebSearchTool
from tests.tools.site import Site, open_site
from tests.tools.toolbox import Toolbox

DUCK = """<html><body><div class="result results_links result--ad"><h2 class="result__title">
<a rel="nofollow" class="result__a" href="//duckduckgo.com/y.js?ad_domain=shop.test">Buy now</a></h2></div>
<div class="result results_links"><h2 class="result__title"><a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fdocs.test%2Fa%3Fx%3D1%26y%3D2&amp;rut=abc">The <b>Docs</b> &amp; more</a>
<a class="result__snippet" href="x">All about <b>it</b>.</a></div>
<div class="result"><h2><a class="result__a" href="https://plain.test/">Plain</a></h2>
<a class="result__snippet" href="y">Second.</a></div></body></html>"""


def brave(count: int) -> dict[str, Any]:
    row = {"title": "T &amp; t", "url": "https://a.test/{}", "description": "About <strong>it</strong>."}
    return {"web": {"results": [{**row, "url": row["url"].format(number)} for number in range(count)]}}


class Searching:
    def __init__(self, site: Site, box: Toolbox) -> None:
        self.site = site
        self.fetcher = WebFetcher({}, "odin/test", 10.0)
        self._box = box

    async def call(self, backend: str, query: str = "how to", path: str = "/s", **options: Any) -> ToolOutput:
        tool = self.tool(backend, path)
        return await tool.run(tool.parse({"query": query, **options}), self._box.context())

    def tool(self, backend: str, path: str = "/s") -> WebSearchTool:
        return WebSearchTool(make_engine(backend, self.fetcher.fetch, url=self.site.url + path, key="secret-key"))


@pytest.fixture
async def web(box: Toolbox) -> AsyncIterator[Searching]:
    async with open_site() as site:
        searching = Searching(site, box)
        yield searching
        await searching.fetcher.close()


async def test_brave_is_asked_with_its_key_and_its_results_are_numbered(web: Searching):
    web.site.page("/s", json.dumps(brave(9)), "application/json")
    output = await web.call("brave", "ünder & over", max_results=2)
    assert web.site.paths == ["/s?q=%C3%BCnder+%26+over&count=2"]
    assert "x-subscription-token: secret-key\r\n" in web.site.heads[0].lower()
    assert output.text == "1. T & t\n   https://a.test/0\n   About it.\n2. T & t\n   https://a.test/1\n   About it."
    assert not output.is_error


async def test_at_most_five_results_come(web: Searching):
    web.site.page("/s", json.dumps(brave(9)), "application/json")
    assert "5. " in (text := (await web.call("brave")).text)
    assert "6. " not in text
    tool = web.tool("brave")
    for wrong in (0, 6):
        with pytest.raises(msgspec.ValidationError):
            tool.parse({"query": "x", "max_results": wrong})


async def test_duckduckgo_is_read_from_its_page_without_its_advertisements(web: Searching):
    web.site.page("/s", DUCK)
    output = await web.call("duckduckgo", "it")
    assert output.text == (
        "1. The Docs & more\n   https://docs.test/a?x=1&y=2\n   All about it.\n"
        "2. Plain\n   https://plain.test/\n   Second."
    )
    assert "secret-key" not in web.site.heads[0]


async def test_searxng_is_asked_for_json(web: Searching):
    rows = [{"title": "A", "url": "https://a.test", "content": "x"}, {"title": "no address"}, "not an object"]
    web.site.page("/base/search", json.dumps({"results": rows}), "application/json")
    assert (await web.call("searxng", "it", path="/base/")).text == "1. A\n   https://a.test\n   x"
    assert web.site.paths == ["/base/search?q=it&format=json"]


@pytest.mark.parametrize(
    ("backend", "status", "body", "words"),
    [
        ("brave", "401 No", "", "Brave refused the key"),
        ("brave", "429 Slow", "", "Brave: rate limit reached"),
        ("brave", "503 Down", "", "Brave answered with HTTP status 503"),
        ("brave", "200 OK", "<html>", "did not answer with JSON"),
        ("duckduckgo", "202 Accepted", "<div class='anomaly-modal'>", "asks for a human"),
        ("duckduckgo", "200 OK", "<div class='anomaly-modal'>", "asks for a human"),
        ("duckduckgo", "200 OK", "<p>a new design", "not its list of results"),
        ("searxng", "403 Forbidden", "", "Add json to search.formats"),
    ],
)
async def test_failures_are_results(web: Searching, backend: str, status: str, body: str, words: str):
    web.site.page("/s", body, status=status)
    web.site.page("/s/search", body, status=status)
    output = await web.call(backend)
    assert output.is_error
    assert words in output.text
    assert "secret-key" not in output.text


async def test_a_redirect_to_another_host_is_not_followed_with_the_key(web: Searching):
    web.site.redirect("/s", f"http://localhost:{web.site.port}/t")
    output = await web.call("brave")
    assert output.is_error
    assert "redirects to another place" in output.text
    assert len(web.site.heads) == 1


async def test_an_engine_that_is_not_there_and_an_empty_query_are_errors(web: Searching, box: Toolbox):
    tool = WebSearchTool(make_engine("duckduckgo", web.fetcher.fetch, url="http://127.0.0.1:9/"))
    assert "connection refused" in (await tool.run(tool.parse({"query": "x"}), box.context())).text
    output = await web.call("brave", "  ")
    assert output.is_error
    assert web.site.heads == []


@pytest.mark.parametrize(
    ("backend", "body"), [("brave", "{}"), ("duckduckgo", '<div class="no-results">No results.</div>')]
)
async def test_nothing_found_is_no_error(web: Searching, backend: str, body: str):
    web.site.page("/s", body)
    output = await web.call(backend, "xyzzy")
    assert not output.is_error
    assert output.text == "No results for 'xyzzy'. Try other words."


def test_the_rules_see_the_address_and_never_the_key(web: Searching):
    tool = web.tool("brave")
    assert tool.subject_of(tool.parse({"query": "a b"})) == Subject(url=f"{web.site.url}/s?q=a+b")


def test_an_engine_without_what_it_needs_is_refused():
    fetch = WebFetcher({}, "t").fetch
    with pytest.raises(ConfigError, match="needs a key"):
        make_engine("brave", fetch)
    with pytest.raises(ConfigError, match="needs its address"):
        make_engine("searxng", fetch)
    assert make_engine("brave", fetch, key="k").address_of("x").startswith("https://api.search.brave.com/")
    assert make_engine("duckduckgo", fetch).address_of("x") == "https://html.duckduckgo.com/html/?q=x"
