"""WebSearch: find pages. It exists only where the configuration names a search engine."""

from typing import Annotated

from msgspec import Meta

from odin.core.errors import OdinError
from odin.core.tool import Args, SearchEngine, Subject, Tool, ToolContext, ToolOutput, fail

MAX_RESULTS = 5
_SNIPPET_CHARS = 500


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

    def subject_of(self, args: WebSearchArgs) -> Subject:
        return Subject(url=self._engine.address_of(args.query))

    def title_of(self, args: WebSearchArgs) -> str:
        return args.query

    async def run(self, args: WebSearchArgs, ctx: ToolContext) -> ToolOutput:
        if not args.query.strip():
            return fail("The query is empty. Say what to search for.")
        try:
            hits = await self._engine.search(args.query.strip(), args.max_results)
        except OdinError as error:
            return fail(error.describe())
        note = f"Searched for {args.query!r}: {len(hits)} results"
        if not hits:
            return ToolOutput(text=f"Nothing was found for {args.query!r}. Try other words.", note=note)
        lines = [
            f"{number}. {hit.title or hit.url}\n   {hit.url}"
            + (f"\n   {_shorten_snippet(hit.snippet)}" if hit.snippet else "")
            for number, hit in enumerate(hits, 1)
        ]
        return ToolOutput(text="\n".join(lines), note=note)


def _shorten_snippet(text: str) -> str:
    return text if len(text) <= _SNIPPET_CHARS else f"{text[: _SNIPPET_CHARS - 1]}…"
