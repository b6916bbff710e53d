"""What is saved before something changes files, so that it can be taken back."""

from typing import Annotated

from msgspec import Meta, Struct


class CheckpointSettings(Struct, frozen=True, kw_only=True):
    """The limits hold for the copy of the project before a command. A file that is edited is always saved."""

    enabled: Annotated[bool, Meta(description="Save files before they are changed. Without it there is no undo.")] = (
        True
    )
    max_files: Annotated[int, Meta(description="Files of the project saved before a command at most.", ge=0)] = 20_000
    max_bytes: Annotated[int, Meta(description="Bytes of all of them together at most.", ge=0)] = 200_000_000
    max_file_bytes: Annotated[int, Meta(description="Larger files are not saved before a command.", ge=0)] = 10_000_000
    max_store_bytes: Annotated[
        int, Meta(description="When a project's store is larger, what is older than 30 days is removed.", ge=0)
    ] = 2_000_000_000
