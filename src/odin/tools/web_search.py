"""WebSearch: find pages. It exists only where the configuration names a search engine."""

from typing import Annotated

from msgspec import Meta

from odin.core.errors import OdinError
from odin.core.tool import Args, SearchEngine, Subject, Tool, ToolContext, ToolOutput, failed

MOST = 5
_SNIPPET = 500


class WebSearchArgs(Args, frozen=True):
    query: Annotated[str, Meta(min_length=1)]
    max_results: Annotated[int, Meta(ge=1, le=MOST)] = MOST


class WebSearch(Tool[WebSearchArgs]):
    """Search the web for titles, addresses and snippets."""

    name = "WebSearch"
    kind = "network"
    short = "Search the web."
    args = WebSearchArgs

    def __init__(self, engine: SearchEngine) -> None:
        self._engine = engine

    def subject(self, args: WebSearchArgs) -> Subject:
        return Subject(url=self._engine.address(args.query))

    def title(self, args: WebSearchArgs) -> str:
        return args.query

    async def run(self, args: WebSearchArgs, ctx: ToolContext) -> ToolOutput:
        if not args.query.strip():
            return failed("The query is empty. Say what to search for.")
        try:
            hits = await self._engine.search(args.query.strip(), args.max_results)
        except OdinError as error:
            return failed(error.sentence())
        note = f"Searched for {args.query!r}: {len(hits)} results"
        if not hits:
            return ToolOutput(text=f"Nothing was found for {args.query!r}. Try other words.", note=note)
        lines = [
            f"{number}. {hit.title or hit.url}\n   {hit.url}" + (f"\n   {_short(hit.snippet)}" if hit.snippet else "")
            for number, hit in enumerate(hits, 1)
        ]
        return ToolOutput(text="\n".join(lines), note=note)


def _short(text: str) -> str:
    return text if len(text) <= _SNIPPET else f"{text[: _SNIPPET - 1]}…"
