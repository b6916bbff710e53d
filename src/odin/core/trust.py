"""The settings a folder brings along, and a person's word whether they count."""

from typing import Protocol

from msgspec import Struct


class TrustRequest(Struct, frozen=True):
    """What counts only when the folder is trusted: programs that start, and what is allowed or set.

    `changed` names the files that are not what they were when it was trusted before.
    """

    folder: str
    changed: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()


class TrustGate(Protocol):
    """A folder that asks for something and is not trusted yet."""

    @property
    def request(self) -> TrustRequest: ...

    async def grant(self) -> None:
        """Trust it with the content that the wish was read from, and with nothing that came later."""
        ...
