"""WebSearch against scripted engines on loopback."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from odin.core.errors import ConfigError
from odin.core.tool import Target, ToolOutput
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


def make_brave_results(count: int) -> dict[str, Any]:
    row = {"title": "T &amp; t", "url": "https://a.test/{}", "description": "About <strong>it</strong>."}
    return {"web": {"results": [{**row, "url": row["url"].format(number)} for number in range(count)]}}


class SearchHarness:
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
async def search(box: Toolbox) -> AsyncIterator[SearchHarness]:
    async with open_site() as site:
        harness = SearchHarness(site, box)
        yield harness
        await harness.fetcher.close()


async def test_brave_is_asked_with_its_key_and_its_results_are_numbered(search: SearchHarness):
    search.site.page("/s", json.dumps(make_brave_results(9)), "application/json")
    output = await search.call("brave", "ünder & over", max_results=2)
    assert search.site.paths == ["/s?q=%C3%BCnder+%26+over&count=2"]
    assert "x-subscription-token: secret-key\r\n" in search.site.heads[0].lower()
    assert output.text == "1. T & t\n   https://a.test/0\n   About it.\n2. T & t\n   https://a.test/1\n   About it."
    assert not output.is_error


async def test_at_most_five_results_are_returned(search: SearchHarness):
    search.site.page("/s", json.dumps(make_brave_results(9)), "application/json")
    assert "5. " in (text := (await search.call("brave")).text)
    assert "6. " not in text
    tool = search.tool("brave")
    for wrong in (0, 6):
        with pytest.raises(msgspec.ValidationError):
            tool.parse({"query": "x", "max_results": wrong})


async def test_duckduckgo_results_are_parsed_without_advertisements(search: SearchHarness):
    search.site.page("/s", DUCK)
    output = await search.call("duckduckgo", "it")
    assert output.text == (
        "1. The Docs & more\n   https://docs.test/a?x=1&y=2\n   All about it.\n"
        "2. Plain\n   https://plain.test/\n   Second."
    )
    assert "secret-key" not in search.site.heads[0]


async def test_searxng_is_asked_for_json(search: SearchHarness):
    rows = [{"title": "A", "url": "https://a.test", "content": "x"}, {"title": "no address"}, "not an object"]
    search.site.page("/base/search", json.dumps({"results": rows}), "application/json")
    assert (await search.call("searxng", "it", path="/base/")).text == "1. A\n   https://a.test\n   x"
    assert search.site.paths == ["/base/search?q=it&format=json"]


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
async def test_failures_are_error_results(search: SearchHarness, backend: str, status: str, body: str, words: str):
    search.site.page("/s", body, status=status)
    search.site.page("/s/search", body, status=status)
    output = await search.call(backend)
    assert output.is_error
    assert words in output.text
    assert "secret-key" not in output.text


async def test_a_redirect_to_another_host_is_not_followed_with_the_key(search: SearchHarness):
    search.site.redirect("/s", f"http://localhost:{search.site.port}/t")
    output = await search.call("brave")
    assert output.is_error
    assert "redirects to another place" in output.text
    assert len(search.site.heads) == 1


async def test_a_refused_connection_and_an_empty_query_are_errors(search: SearchHarness, box: Toolbox):
    tool = WebSearchTool(make_engine("duckduckgo", search.fetcher.fetch, url="http://127.0.0.1:9/"))
    assert "connection refused" in (await tool.run(tool.parse({"query": "x"}), box.context())).text
    output = await search.call("brave", "  ")
    assert output.is_error
    assert search.site.heads == []


@pytest.mark.parametrize(
    ("backend", "body"), [("brave", "{}"), ("duckduckgo", '<div class="no-results">No results.</div>')]
)
async def test_finding_nothing_is_not_an_error(search: SearchHarness, backend: str, body: str):
    search.site.page("/s", body)
    output = await search.call(backend, "xyzzy")
    assert not output.is_error
    assert output.text == "No results for 'xyzzy'. Try other words."


def test_permission_rules_see_the_url_but_never_the_key(search: SearchHarness):
    tool = search.tool("brave")
    assert tool.get_target(tool.parse({"query": "a b"})) == Target(url=f"{search.site.url}/s?q=a+b")


def test_an_engine_without_its_key_or_address_is_rejected():
    fetch = WebFetcher({}, "t").fetch
    with pytest.raises(ConfigError, match="needs a key"):
        make_engine("brave", fetch)
    with pytest.raises(ConfigError, match="needs its address"):
        make_engine("searxng", fetch)
    assert make_engine("brave", fetch, key="k").make_search_url("x").startswith("https://api.search.brave.com/")
    assert make_engine("duckduckgo", fetch).make_search_url("x") == "https://html.duckduckgo.com/html/?q=x"
