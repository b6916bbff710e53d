"""WebFetch and WebSearch. The work of WebFetch is loaded with its first call."""

from typing import Annotated

from msgspec import Meta

from odin.core.errors import OdinError
from odin.core.format import clip, pluralize
from odin.core.provider import Fetch, SearchEngine
from odin.core.tool import Args, AskSmallModel, Target, Tool, ToolContext, ToolOutput, fail
from odin.sandbox.runner import ProcessRunner

MAX_RESULTS = 5
_SNIPPET_CHARS = 500


class WebFetchArgs(Args, frozen=True):
    url: str
    prompt: str


class WebFetchTool(Tool[WebFetchArgs]):
    """Fetch a web page and answer the prompt about it."""

    name = "WebFetch"
    kind = "network"
    short = "Answer a prompt about a web page."
    args = WebFetchArgs

    def __init__(self, fetch: Fetch, small_model: AskSmallModel, runner: ProcessRunner) -> None:
        self._fetch = fetch
        self._small_model = small_model
        self._runner = runner

    def get_target(self, args: WebFetchArgs) -> Target:
        from odin.tools.web_page import InvalidUrl, normalize_url

        try:
            return Target(url=normalize_url(args.url))
        except InvalidUrl:
            return Target(url=args.url)

    def validate(self, args: WebFetchArgs) -> str:
        from odin.tools.web_page import InvalidUrl, normalize_url

        try:
            normalize_url(args.url)
        except InvalidUrl as error:
            return str(error)
        return ""

    async def run(self, args: WebFetchArgs, ctx: ToolContext) -> ToolOutput:
        from odin.tools.web_page import answer_about_page

        return await answer_about_page(args.url, args.prompt, self._fetch, self._small_model, self._runner)


class WebSearchArgs(Args, frozen=True):
    query: Annotated[str, Meta(min_length=1)]
    max_results: Annotated[int, Meta(ge=1, le=MAX_RESULTS)] = MAX_RESULTS


class WebSearchTool(Tool[WebSearchArgs]):
    """Search the web for titles, addresses and snippets."""

    name = "WebSearch"
    kind = "network"
    short = "Search the web."
    args = WebSearchArgs

    def __init__(self, engine: SearchEngine) -> None:
        self._engine = engine

    def get_target(self, args: WebSearchArgs) -> Target:
        return Target(url=self._engine.make_search_url(args.query))

    def get_title(self, args: WebSearchArgs) -> str:
        return args.query

    async def run(self, args: WebSearchArgs, ctx: ToolContext) -> ToolOutput:
        if not args.query.strip():
            return fail("The query is empty. Say what to search for.")
        try:
            hits = await self._engine.search(args.query.strip(), args.max_results)
        except OdinError as error:
            return fail(error.describe())
        note = f"Searched for {args.query!r}: {pluralize(len(hits), 'result')}"
        if not hits:
            return ToolOutput(text=f"No results for {args.query!r}. Try other words.", note=note)
        lines = [
            f"{number}. {hit.title or hit.url}\n   {hit.url}"
            + (f"\n   {clip(hit.snippet, _SNIPPET_CHARS)}" if hit.snippet else "")
            for number, hit in enumerate(hits, 1)
        ]
        return ToolOutput(text="\n".join(lines), note=note)
