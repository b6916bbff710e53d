"""The secrets of one session: those of its environment and of the user's own settings, which nobody shall read."""

from collections.abc import Iterable, Iterator, Mapping

from odin.config import Config
from odin.core.event import Envelope, ToolEnded
from odin.policy.secrets import Redactor


def redactor(config: Config, env: Mapping[str, str], past: Iterable[Envelope]) -> Redactor:
    """`past` is what an earlier run of the session recorded: what was taken out then still stands in the history."""
    made = Redactor(env, dict(_configured(config)))
    for envelope in past:
        if isinstance(envelope.event, ToolEnded):
            made.recall(envelope.event.redacted)
    return made


def _configured(config: Config) -> Iterator[tuple[str, str]]:
    for name, settings in config.providers.items():
        yield f"key of {name}", settings.api_key
        yield from ((f"{header} of {name}", value) for header, value in settings.headers.items() if _secret(header))
    yield "key of the search engine", config.web.search.api_key


def _secret(header: str) -> bool:
    return any(part in header.lower() for part in ("auth", "key", "token", "secret", "cookie"))
