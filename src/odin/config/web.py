"""What may be set about the web: how pages are fetched, and whether and where is searched."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

SearchBackend = Literal["none", "brave", "duckduckgo", "searxng"]


class SearchSettings(Struct, frozen=True, kw_only=True):
    backend: Annotated[
        SearchBackend, Meta(description="The search engine of WebSearch, which is not there without one.")
    ] = "none"
    api_key: Annotated[
        str, Meta(description="The key `brave` needs, or $NAME to take it from an environment variable.")
    ] = ""
    url: Annotated[
        str, Meta(description="The address of your `searxng`; for the others, one to use instead of the usual.")
    ] = ""


class WebSettings(Struct, frozen=True, kw_only=True):
    timeout_s: Annotated[float, Meta(description="Seconds a page or a search may take.", gt=0, le=120)] = 30.0
    user_agent: Annotated[str, Meta(description="How Odin names itself to web servers. Empty: odin/VERSION.")] = ""
    search: Annotated[SearchSettings, Meta(description="Searching the web.")] = SearchSettings()
