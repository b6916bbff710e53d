"""The secrets of one session: those of its environment and of the user's own settings, which nobody shall read."""

from collections.abc import Iterable, Iterator, Mapping

from odin.config import Config
from odin.config.auth import read_auth_file
from odin.core.event import Envelope, PromptInjected, ToolEnded, TurnStarted
from odin.policy.secrets import Redactor


def build_redactor(config: Config, env: Mapping[str, str], past: Iterable[Envelope]) -> Redactor:
    """`past` is what an earlier run of the session recorded: what was taken out then still stands in the history."""
    made = Redactor(env, {**dict(_list_configured_secrets(config)), **read_stored_keys(env)})
    for envelope in past:
        if isinstance(envelope.event, ToolEnded):
            made.recall(envelope.event.redacted)
        elif isinstance(envelope.event, TurnStarted | PromptInjected):
            made.recall_from(envelope.event.notes)
    return made


def read_stored_keys(env: Mapping[str, str]) -> dict[str, str]:
    """The keys of auth.json by names that say whose they are; also those that are not in use."""
    return {
        f"key of {provider}{f' ({number})' if number > 1 else ''}": key
        for provider, keys in read_auth_file(env).keys.items()
        for number, key in enumerate(keys, 1)
    }


def _list_configured_secrets(config: Config) -> Iterator[tuple[str, str]]:
    for name, settings in config.providers.items():
        yield f"key of {name}", settings.api_key
        yield from (
            (f"{header} of {name}", value) for header, value in settings.headers.items() if _is_secret_header(header)
        )
    yield "key of the search engine", config.web.search.api_key


def _is_secret_header(header: str) -> bool:
    return any(part in header.lower() for part in ("auth", "key", "token", "secret", "cookie"))
