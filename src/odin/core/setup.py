"""The protocols of the first run: choosing a model, and trusting the folder's own settings."""

from typing import Literal, Protocol

from msgspec import Struct

from odin.core.interaction import TrustRequest

OFFLINE_MODEL = "offline/planner"
"""The model that answers while none is connected."""


class ModelOption(Struct, frozen=True):
    """A model the user can choose. `name` is its provider, `ref` the model, `detail` where it was found.

    `key`: an API key in the environment or the settings. `stored`: a key in auth.json; `unchecked` says why it is not
    known whether its provider accepts it.
    """

    kind: Literal["key", "stored", "server", "planner"]
    name: str
    ref: str
    detail: str = ""
    unchecked: str = ""


class Setup(Protocol):
    @property
    def is_done(self) -> bool:
        """True if Odin has been used or configured here before, or this run names a model."""
        ...

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers a key can be stored for, best known first."""
        ...

    @property
    def keys_file(self) -> str:
        """The file that stores keys."""
        ...

    @property
    def other_agents(self) -> str:
        """A sentence about the setups of other agents, or ""."""
        ...

    async def find_options(self) -> tuple[ModelOption, ...]:
        """Return what is available now without network access: keys, servers of the settings, the offline planner."""
        ...

    async def find_local_servers(self) -> tuple[ModelOption, ...]:
        """Return the models of servers on this machine. Probes loopback ports, so only on request."""
        ...

    async def store_key(self, provider: str, key: str) -> ModelOption:
        """Store a key, readable only by the user. Raise UsageError if it cannot be a key or its provider refuses it."""
        ...

    async def use_offline_planner(self) -> None:
        """Use the offline planner for this run. Nothing is saved, so a key added later is used."""
        ...

    async def add_server(self, url: str) -> tuple[ModelOption, ...]:
        """Add an OpenAI-compatible server to the settings; return its models. Raise UsageError or ConfigError."""
        ...

    async def choose_model(self, ref: str) -> str:
        """Make this the default model and return the file it was written to."""
        ...


TrustAnswer = Literal["no", "yes", "network"]
"""`network`: the folder is trusted, and its MCP servers may use the network."""


class TrustGate(Protocol):
    """An untrusted folder whose settings request something."""

    @property
    def request(self) -> TrustRequest: ...

    async def grant(self, *, network: bool = False) -> None:
        """Trust the folder with exactly the content the request was read from. `network`: for its servers, too."""
        ...

    async def refuse(self) -> None:
        """Do not ask again as long as the folder has this content."""
        ...
