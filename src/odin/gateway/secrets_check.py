"""Refuses secrets that protect nothing: short ones, placeholders, and one that is used twice."""

import re
from collections.abc import Callable

from odin.core.errors import ConfigError
from odin.core.gateway_settings import GatewaySettings

MIN_SECRET_CHARS = 16
_PLACEHOLDER = re.compile(
    r"(?i)(your|my|the|some|enter|insert|change|replace)[ _-]?.*(secret|token|key|password|me|this|here)"
    r"|.*(change[ _-]?me|placeholder|example|undefined|null|dummy|todo|xxxx|password|1234567).*|<.*>|\[.*\]|\{.*\}|\$.*"
)


def check_secrets(settings: GatewaySettings, is_server_token: Callable[[str], bool]) -> None:
    """Raise ConfigError for a secret that is missing, short or a placeholder, or that opens something else, too."""
    known: dict[str, str] = {}
    for name, value in settings.list_secrets():
        problem = ""
        if not value.strip():
            problem = f"{name} is not set."
        elif _PLACEHOLDER.fullmatch(value):
            problem = f"{name} is a placeholder."
        elif len(value) < MIN_SECRET_CHARS or len(set(value)) < MIN_SECRET_CHARS // 2:
            problem = f"{name} is too easy to guess: it needs {MIN_SECRET_CHARS} characters, and not always the same."
        elif value in known:
            problem = f"{name} is the same as {known[value]}."
        elif is_server_token(value):
            problem = f"{name} is a token of `odin serve`."
        if problem:
            raise ConfigError(problem, "Make one for this purpose alone, such as with `openssl rand -hex 32`.")
        known[value] = name
