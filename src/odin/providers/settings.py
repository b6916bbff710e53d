"""What a person may say about a provider and its models in the configuration: `providers.<name>`."""

from typing import Literal

from msgspec import Struct, field

from odin.core.provider import StyleChoice

ProviderType = Literal["anthropic", "openai", "openai-chat", "openai-responses"]
"""The wire API. `openai` means Responses at api.openai.com and Chat Completions at any other address."""

DEFAULT_IDLE_TIMEOUT = 90.0
DEFAULT_HEADER_TIMEOUT = 120.0


class ModelSettings(Struct, frozen=True, omit_defaults=True):
    """What is known of one model; it wins over the built-in catalogue. What is left out keeps the catalogue's value."""

    context: int | None = None
    """Tokens the model can hold, prompt and answer together."""
    max_output: int | None = None
    """Tokens one answer may have."""
    price_input: float | None = None
    """USD per million tokens."""
    price_output: float | None = None
    price_cache_read: float | None = None
    price_cache_write: float | None = None
    tools: StyleChoice = "auto"
    """How the model calls tools: by the API's own calls, by the JSON contract, or as the catalogue says."""
    thinking: bool | None = None
    """Whether the model can reason before it answers."""


class ProviderSettings(Struct, frozen=True, omit_defaults=True):
    """Where a provider is and how to speak to it. A name that is a preset needs only what differs from it."""

    type: ProviderType | None = None
    base_url: str = ""
    """The address before /messages, /chat/completions or /responses, for example http://localhost:11434/v1."""
    api_key: str = ""
    """The key, or $NAME to take it from an environment variable."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Sent with every request, after Odin's own."""
    models: dict[str, ModelSettings] = field(default_factory=dict[str, ModelSettings])
    idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    """Seconds of silence in the middle of an answer after which it is given up."""
    header_timeout: float = DEFAULT_HEADER_TIMEOUT
    """Seconds to wait for an answer to begin."""
