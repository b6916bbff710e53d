"""The arguments of LS, Glob and Grep, known to the tools and to the work that their first call loads."""

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, field

from odin.core.tool import Args

FindProgram = Callable[[], str | None]
"""Returns the path of ripgrep, or None."""


class LSArgs(Args, frozen=True):
    path: str
    ignore: tuple[str, ...] = ()


class GlobArgs(Args, frozen=True):
    pattern: Annotated[str, Meta(description="e.g. src/**/*.{ts,tsx}")]
    path: str | None = None


class GrepArgs(Args, frozen=True):
    pattern: str
    path: str | None = None
    glob: Annotated[str | None, Meta(description="e.g. *.{ts,tsx}")] = None
    type: Annotated[str | None, Meta(description="e.g. py")] = None
    output_mode: Annotated[
        Literal["content", "files_with_matches", "count"] | None, Meta(description="Default: content")
    ] = None
    line_numbers: bool | None = field(default=None, name="-n")
    ignore_case: bool | None = field(default=None, name="-i")
    after: float | None = field(default=None, name="-A")
    before: float | None = field(default=None, name="-B")
    around: float | None = field(default=None, name="-C")
    head_limit: float | None = None
    multiline: bool | None = None
    literal_text: bool | None = None
    offset: int | None = None
    limit: int | None = None
