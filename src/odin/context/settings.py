"""Settings for the file cache and for compaction."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from odin.core.event_values import CompactionProfile

EvictionPolicy = Literal["lru", "lfu", "hybrid"]

Validation = Literal["auto", "always", "never"]


class CacheSettings(Struct, frozen=True, kw_only=True):
    """The limits of one agent's file cache."""

    max_bytes: Annotated[int, Meta(description="Maximum size of the cached text in bytes.", ge=0)] = 100 * 1024 * 1024
    max_file_bytes: Annotated[
        int, Meta(description="Maximum size of one cached file; larger files are not cached.", ge=0)
    ] = 10 * 1024 * 1024
    max_entries: Annotated[int, Meta(description="Maximum number of cached files.", ge=1)] = 500
    max_segments: Annotated[int, Meta(description="Maximum number of cached line ranges per file.", ge=10)] = 50
    eviction_policy: Annotated[
        EvictionPolicy,
        Meta(
            description="Which file is evicted first: the least recently used (`lru`), the least frequently used "
            "(`lfu`), or the least recently used one that this session did not change (`hybrid`)."
        ),
    ] = "hybrid"
    ttl_s: Annotated[
        float, Meta(description="Seconds until a cached file must be read again; 0 means never.", ge=0)
    ] = 0.0
    auto_refresh: Annotated[
        bool, Meta(description="Check that the file on disk is unchanged before returning cached text.")
    ] = True
    validation: Annotated[
        Validation,
        Meta(
            description="When the small model checks whether enough of a file was read for an edit: if only parts were "
            "read (`auto`), before every edit (`always`), or `never`."
        ),
    ] = "auto"


class CompactionSettings(Struct, frozen=True, kw_only=True):
    """When the older part of a conversation is summarized, and what stays."""

    enabled: Annotated[bool, Meta(description="Shorten the conversation when it fills the context window.")] = True
    threshold: Annotated[
        float,
        Meta(
            description="Fraction of the context window, minus the room for the reply and `reserved`, at which "
            "compaction starts; 0 turns it off.",
            ge=0,
            le=0.95,
        ),
    ] = 0.8
    reserved: Annotated[
        int, Meta(description="Tokens of the context window to keep free; at most half of it is.", ge=0)
    ] = 0
    profile: Annotated[
        CompactionProfile,
        Meta(
            description="How much stays verbatim: the recent turns (`continuation`), or only the last one "
            "(`archival`). `auto`: the recent turns unless you ask for it while nothing runs."
        ),
    ] = "auto"
    keep_turns: Annotated[int, Meta(description="Number of recent turns that stay verbatim if they fit.", ge=1)] = 2
    model: Annotated[
        str, Meta(description="The model that writes summaries. Empty: `small_model`, or the main model.")
    ] = ""
    timeout_s: Annotated[float, Meta(description="Timeout of a summary in seconds.", gt=0, le=3600)] = 120.0
    max_messages: Annotated[
        int, Meta(description="Maximum number of messages in a conversation; 0 means no limit.", ge=0)
    ] = 1000

    @property
    def is_automatic(self) -> bool:
        return self.enabled and self.threshold > 0
