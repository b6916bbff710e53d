"""The folders besides the project that a session works in."""

from typing import Literal

from msgspec import Struct

RootAccess = Literal["write", "read"]


class Root(Struct, frozen=True):
    """A folder besides the project, by its path without links.

    What is in it may be read like the project, and changed if `access` is `write`. Its instructions and what its rules
    allow count only if it is `trusted`.
    """

    path: str
    access: RootAccess = "write"
    trusted: bool = False

    @property
    def is_writable(self) -> bool:
        return self.access == "write"

    @property
    def access_name(self) -> str:
        return "writable" if self.is_writable else "read-only"

    def describe(self) -> str:
        """Return its access and trust for people: `writable, not trusted`."""
        return f"{self.access_name}, {'trusted' if self.trusted else 'not trusted'}"
