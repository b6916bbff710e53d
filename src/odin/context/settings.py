"""Settings for the file cache and for compaction."""

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
    eviction_policy: Annotated[
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


class CompactionSettings(Struct, frozen=True, kw_only=True):
    """When the older part of a conversation is summarized, and what stays."""

    enabled: Annotated[bool, Meta(description="Shorten the conversation when it fills the model's window.")] = True
    threshold: Annotated[
        float,
        Meta(
            description="How full the window may be, without the room for a reply, before something is done.",
            ge=0.2,
            le=0.95,
        ),
    ] = 0.8
    keep_turns: Annotated[
        int, Meta(description="The newest prompts whose turns stay word for word if they fit.", ge=1)
    ] = 2
    model: Annotated[
        str, Meta(description="The model that writes summaries. Empty: `small_model`, else the planner's own.")
    ] = ""
    timeout_s: Annotated[float, Meta(description="Seconds a summary may take.", gt=0, le=3600)] = 120.0
    max_messages: Annotated[
        int, Meta(description="Messages in a conversation at most, whatever the window; 0 means no limit.", ge=0)
    ] = 1000
