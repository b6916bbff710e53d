"""The `providers` section of the configuration."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from odin.core.lazy_pattern import compile_lazily
from odin.core.provider import EditFormatSetting, Effort, PriceStep, StrategySetting, ToolStyleSetting

ProviderType = Literal["anthropic", "openai", "openai-chat", "openai-responses", "gemini"]

KeyRotation = Literal["on_failure", "per_request"]
KeyOrder = Literal["sequential", "random", "smart"]

DEFAULT_IDLE_TIMEOUT = 90.0
DEFAULT_HEADER_TIMEOUT = 120.0
LOCAL_TIMEOUT = 900.0
"""Seconds a local server may work on a prompt before it responds."""

Tokens = Annotated[int, Meta(ge=0)]
Price = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]


class VariantSettings(Struct, frozen=True, omit_defaults=True):
    """Request options under a name: `provider/model@name` is the model with these options."""

    effort: Effort | None = None
    """The reasoning effort. Which ones a model accepts depends on the model."""
    thinking: Tokens | None = None
    """The token budget for thinking; 0 turns it off."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """The temperature."""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Maximum tokens of one reply."""
    service_tier: str = ""
    """The provider's service tier, such as `flex` or `priority`."""


class ModelSettings(Struct, frozen=True, omit_defaults=True):
    """Properties of one model; they override the catalog."""

    context: Tokens | None = None
    """The context window in tokens."""
    max_output: Tokens | None = None
    """Maximum tokens of one reply."""
    price_input: Price | None = None
    """USD per million tokens of input."""
    price_output: Price | None = None
    """USD per million tokens of output."""
    price_cache_read: Price | None = None
    """USD per million tokens read from the provider's cache."""
    price_cache_write: Price | None = None
    """USD per million tokens written to the provider's cache. Default: 1.25 × `price_input`."""
    price_steps: tuple[PriceStep, ...] = ()
    """Other prices of prompts that are longer than `above` tokens, the shortest first."""
    tools: ToolStyleSetting = "auto"
    """How the model calls tools: natively, with the JSON contract, or detected automatically."""
    thinking: bool | None = None
    """Whether the model can reason before it answers."""
    images: bool | None = None
    """Whether the model accepts images."""
    calls_in_thinking: bool | None = None
    """Whether tool calls written inside the reasoning are run. Default: only for models whose `tools` are not `native`,
    if the reply has nothing else."""
    variants: dict[str, VariantSettings] = field(default_factory=dict[str, VariantSettings])
    """Variants of the model by name, to be used as `provider/model@name`."""
    edit_format: EditFormatSetting = "auto"
    """How the model edits files: `replace` with EditTool, `patch` with apply_patch, or `auto` by its family."""
    parameters: Annotated[float, Meta(ge=0)] | None = None
    """The number of parameters, for example 1.5e9. Default: what the server or the model's name says."""
    strategy: StrategySetting = "auto"
    """How the model works: it calls `tools`, or it is shown the files and writes whole `files`; `auto` by its size and
    family."""


class ProviderSettings(Struct, frozen=True, omit_defaults=True):
    """A provider's address and API. A preset name needs only what differs."""

    type: ProviderType | None = None
    """The API type. `openai` means Responses at api.openai.com, and elsewhere for GPT-5 and later if the server has it;
    else Chat Completions."""
    base_url: str = ""
    """The URL before /messages, /chat/completions, /responses or /models, for example http://localhost:11434/v1."""
    api_key: str = ""
    """The key, or $NAME to read it from an environment variable."""
    api_keys: tuple[str, ...] = ()
    """More keys. They are used when `api_key` cannot be, together with those in the environment and in auth.json."""
    key_rotation: KeyRotation = "on_failure"
    """When another key is used: if one cannot be used, or for each request."""
    key_order: KeyOrder = "sequential"
    """Which key comes next: in the order they are written, in a random order, or the one with the most of its rate
    limit left."""
    proxy: str = ""
    """The URL of the proxy for this provider, or `direct` for none. Default: that of the environment."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Additional request headers; they override Odin's own."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings for a provider of another package, which decides their meaning."""
    models: dict[str, ModelSettings] = field(default_factory=dict[str, ModelSettings])
    """Properties of its models by id. The first is the default model."""
    prompt_caching: bool = True
    """Request prompt caching from an Anthropic-compatible server; some gateways reject it."""
    prompt_cache_key: bool | None = None
    """Send a key for the session and the agent, by which OpenAI's servers find their cache. Default: to api.openai.com,
    and to Azure for the models of OpenAI."""
    idle_timeout: Seconds | None = None
    """Seconds of silence within a reply before Odin gives up. Default: 90, or 900 for a server on this machine."""
    header_timeout: Seconds | None = None
    """Seconds to wait for a reply to start. Default: 120, or 900 for a server on this machine."""


KEY_VARIABLE = compile_lazily(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
"""A key that is written as the name of an environment variable."""


def resolve_keys(text: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys in a text, or in the variable that it names; none if that is unset."""
    named = KEY_VARIABLE.fullmatch(text) if text.startswith("$") else None
    return split_keys(env.get(named[1] or named[2], "") if named else text)


def split_keys(text: str) -> tuple[str, ...]:
    """Return the keys in a text, which may hold several, separated by commas."""
    return tuple(key for part in text.split(",") if (key := part.strip()))
