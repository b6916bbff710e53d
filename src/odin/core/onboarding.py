"""What a first run finds, and what a person may do about it.

The settings a folder brings along, and a person's word whether they count.
"""

from typing import Literal, Protocol

from msgspec import Struct


class ModelOption(Struct, frozen=True):
    """A way to a model. `name` is who has it, `ref` the model that choosing it means, `detail` where it was found.

    A `key` is in the environment or in the settings, a `stored` one in auth.json.
    """

    kind: Literal["key", "stored", "server", "planner"]
    name: str
    ref: str
    detail: str = ""


class Setup(Protocol):
    @property
    def is_done(self) -> bool:
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

    async def find_options(self) -> tuple[ModelOption, ...]:
        """What can be used without asking anybody: keys, and the offline planner, which comes last. No network."""
        ...

    async def find_local_servers(self) -> tuple[ModelOption, ...]:
        """The models of servers on this machine. Only for a person who asks: it knocks at ports of the loopback."""
        ...

    async def store_key(self, provider: str, key: str) -> ModelOption:
        """Keep a key for good, readable by nobody else. Raises UsageError when it cannot be one."""
        ...

    async def use_offline_planner(self) -> None:
        """Let the offline planner answer in this run. Nothing is written: a key that is set later is used then."""
        ...

    async def choose_model(self, ref: str) -> str:
        """Make this the model of every session that names none. Gives the file it was written to."""
        ...


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
