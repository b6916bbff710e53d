"""The arguments of `lsp` and `lsp_rename`, known to the tools and to the work that their first call loads."""

from typing import Annotated, Literal

from msgspec import Meta

from odin.core.tool import Args

Action = Literal["definition", "references", "implementation", "hover", "symbols"]


class LspArgs(Args, frozen=True):
    action: Action
    path: str = ""
    line: Annotated[int, Meta(ge=1)] | None = None
    character: Annotated[int, Meta(ge=1)] | None = None
    symbol: str = ""
    query: str = ""


class RenameArgs(Args, frozen=True):
    path: str
    symbol: str
    new_name: Annotated[str, Meta(min_length=1)]
    line: Annotated[int, Meta(ge=1)] | None = None
