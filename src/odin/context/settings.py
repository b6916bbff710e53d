"""How much of the files an agent has read is kept, and how edits are checked against it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

EvictionPolicy = Literal["lru", "lfu", "hybrid"]

Validation = Literal["auto", "always", "never"]


class CacheSettings(Struct, frozen=True, kw_only=True):
    """The limits of one agent's file cache."""

    max_bytes: Annotated[int, Meta(description="Bytes of file text kept in all.", ge=0)] = 100 * 1024 * 1024
    max_file_bytes: Annotated[
        int, Meta(description="Bytes kept of one file; a larger one is not kept whole.", ge=0)
    ] = 10 * 1024 * 1024
    max_entries: Annotated[int, Meta(description="Files known at once.", ge=1)] = 500
    max_segments: Annotated[int, Meta(description="Line ranges known of one file that was read in parts.", ge=10)] = 50
    policy: Annotated[
        EvictionPolicy,
        Meta(
            description="What is forgotten first: the file used longest ago (`lru`), the one used least (`lfu`), or "
            "the one used longest ago that this session did not change (`hybrid`)."
        ),
    ] = "hybrid"
    ttl_s: Annotated[float, Meta(description="Seconds after which a file must be read again; 0 means never.", ge=0)] = (
        0.0
    )
    auto_refresh: Annotated[
        bool, Meta(description="Look, before text is given from the cache, whether the file on disk is still the same.")
    ] = True
    validation: Annotated[
        Validation,
        Meta(
            description="When the lesser model is asked whether enough of a file was seen for an edit: if only parts "
            "of it were (`auto`), before every edit (`always`), or `never`."
        ),
    ] = "auto"
