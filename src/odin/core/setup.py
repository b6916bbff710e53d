"""What a first run finds, and what a person may do about it."""

from typing import Literal, Protocol

from msgspec import Struct


class Found(Struct, frozen=True):
    """A way to a model. `name` is who has it, `ref` the model that choosing it means, `detail` where it was found.

    A `key` is in the environment or in the settings, a `stored` one in auth.json.
    """

    kind: Literal["key", "stored", "server", "planner"]
    name: str
    ref: str
    detail: str = ""


class Setup(Protocol):
    @property
    def done(self) -> bool:
        """Whether Odin was used or configured here before, or this run was told its model."""
        ...

    @property
    def providers(self) -> tuple[str, ...]:
        """The names a key can be stored for, the best known first."""
        ...

    @property
    def keys_file(self) -> str:
        """Where keys are stored."""
        ...

    async def found(self) -> tuple[Found, ...]:
        """What can be used without asking anybody: keys, and the offline planner, which comes last. No network."""
        ...

    async def servers(self) -> tuple[Found, ...]:
        """The models of servers on this machine. Only for a person who asks: it knocks at ports of the loopback."""
        ...

    async def store_key(self, provider: str, key: str) -> Found:
        """Keep a key for good, readable by nobody else. Raises UsageError when it cannot be one."""
        ...

    async def go_without(self) -> None:
        """Let the offline planner answer in this run. Nothing is written: a key that is set later is used then."""
        ...

    async def choose(self, ref: str) -> str:
        """Make this the model of every session that names none. Gives the file it was written to."""
        ...
