"""What a person may say about a provider and its models in the configuration: `providers.<name>`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from odin.core.provider import ToolStyleSetting

ProviderType = Literal["anthropic", "openai", "openai-chat", "openai-responses"]

DEFAULT_IDLE_TIMEOUT = 90.0
DEFAULT_HEADER_TIMEOUT = 120.0
LOCAL_TIMEOUT = 900.0
"""Seconds a server on this machine may work on a prompt before it says something."""

Tokens = Annotated[int, Meta(ge=0)]
Price = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]


class ModelSettings(Struct, frozen=True, omit_defaults=True):
    """What is known of one model; it wins over the built-in catalogue. What is left out keeps the catalogue's value."""

    context: Tokens | None = None
    """Tokens the model can hold, prompt and answer together."""
    max_output: Tokens | None = None
    """Tokens one answer may have."""
    price_input: Price | None = None
    """USD per million tokens of input."""
    price_output: Price | None = None
    """USD per million tokens of output."""
    price_cache_read: Price | None = None
    """USD per million tokens read from the provider's cache."""
    price_cache_write: Price | None = None
    """USD per million tokens written to the provider's cache."""
    tools: ToolStyleSetting = "auto"
    """How the model calls tools: by the API's own calls, by the JSON contract, or as it turns out."""
    thinking: bool | None = None
    """Whether the model can reason before it answers."""
    images: bool | None = None
    """Whether the model can be shown images."""
    calls_in_thinking: bool | None = None
    """Whether calls that it writes into its reasoning are run. Left out: by a model whose `tools` are not `native`,
    when its reply has nothing else."""


class ProviderSettings(Struct, frozen=True, omit_defaults=True):
    """Where a provider is and how to speak to it. A name that is a preset needs only what differs from it."""

    type: ProviderType | None = None
    """The API it speaks. `openai` means Responses at api.openai.com and Chat Completions at any other address."""
    base_url: str = ""
    """The address before /messages, /chat/completions or /responses, for example http://localhost:11434/v1."""
    api_key: str = ""
    """The key, or $NAME to take it from an environment variable."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Sent with every request; they win over Odin's own."""
    models: dict[str, ModelSettings] = field(default_factory=dict[str, ModelSettings])
    """What is known of its models, by their ids. The first is used when no model was chosen."""
    prompt_caching: bool = True
    """Whether an Anthropic-shaped server is asked to cache prompts; some gateways refuse the request for it."""
    idle_timeout: Seconds | None = None
    """Seconds of silence in the middle of an answer after which it is given up: 90, or 900 on this machine."""
    header_timeout: Seconds | None = None
    """Seconds to wait for an answer to begin: 120, or 900 on this machine."""
