"""Refuses secrets that protect nothing: short ones, placeholders, and one that is used twice."""

import re
from collections.abc import Callable

from odin.config.gateway_settings import GatewaySettings
from odin.core.errors import ConfigError

MIN_SECRET_CHARS = 16
"""Of a secret that is made for Odin. What a platform gives out, such as a password, may have half of that."""

_WORDS = frozenset(
    """
    your my the a some here this me insert enter add put paste change changeme replace with secret token password pass
    key bot api app access user webhook signing shared xoxb xapp placeholder example sample default dummy fake test demo
    undefined null none nil nan false true todo tbd fixme empty missing redacted hidden
    """.split()  # noqa: SIM905
)
"""What is made of these words alone is a placeholder. A token is not: it has letters and digits without a meaning."""


def check_secrets(settings: GatewaySettings, is_server_token: Callable[[str], bool]) -> None:
    """Raise ConfigError for a secret that is missing, short or a placeholder, or that opens something else, too."""
    known: dict[str, str] = {}
    for name, value in settings.list_secrets():
        is_ours = name.startswith("gateway.webhooks.")
        needed = MIN_SECRET_CHARS if is_ours else MIN_SECRET_CHARS // 2
        problem = ""
        if not value.strip():
            problem = f"{name} is not set."
        elif is_placeholder(value):
            problem = f"{name} is a placeholder."
        elif len(value) < needed or len(set(value)) < needed // 2:
            problem = f"{name} is too easy to guess: it needs {needed} characters, and not always the same."
        elif value in known:
            problem = f"{name} is the same as {known[value]}."
        elif is_server_token(value):
            problem = f"{name} is a token of `odin serve`."
        if problem:
            ours = "Make one for this purpose alone, such as with `openssl rand -hex 32`."
            raise ConfigError(problem, ours if is_ours else "Copy the one that the platform gives you.")
        known[value] = name


def is_placeholder(value: str) -> bool:
    words = re.findall("[a-z]+|[^a-z\\W_]+", value.casefold())
    return bool(words) and all(word in _WORDS or set(word) in ({"x"}, {"0"}) for word in words)
