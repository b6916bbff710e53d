"""What commands are kept in, and what is let out of it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

SandboxBackend = Literal["auto", "bubblewrap", "landlock", "off"]
SandboxEntry = Annotated[str, Meta(min_length=1)]


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """By default the strongest sandbox that works here, without a network."""

    backend: Annotated[
        SandboxBackend,
        Meta(description="Which sandbox: `auto` takes the strongest; one that does not work runs no commands."),
    ] = "auto"
    network: Annotated[bool, Meta(description="Whether commands in the sandbox reach the network.")] = False
    writable_paths: Annotated[
        tuple[SandboxEntry, ...],
        Meta(description="Folders that commands may write beside the project, such as `~/.cache`."),
    ] = ()
    unsandboxed_commands: Annotated[
        tuple[SandboxEntry, ...],
        Meta(description="Commands that run outside at once, as the words they begin with, such as `docker`."),
    ] = ()
