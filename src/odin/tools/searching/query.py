"""What is looked for in files."""

from typing import Literal

from msgspec import Struct

SearchMode = Literal["lines", "counts", "paths"]
"""What is wanted of it: the lines, how many there are in each file, or only which files."""


class SearchQuery(Struct, frozen=True):
    """`before` and `after` are lines of context around each match."""

    pattern: str
    path: str
    glob: str = ""
    type: str = ""
    ignore_case: bool = False
    literal: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0

    @property
    def across_lines(self) -> bool:
        return self.multiline or "\n" in self.pattern

    @property
    def context(self) -> bool:
        return bool(self.before or self.after)
