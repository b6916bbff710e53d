"""Publishes the open sessions to Redis, if the user has configured a server. Loaded only then."""

from contextlib import suppress
from typing import Literal

from msgspec.structs import replace

from odin.app.workspace import Workspace
from odin.config import Config
from odin.config.auth import read_auth_file
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError
from odin.core.event import Warned
from odin.core.timing import DEFAULT_TIMING
from odin.engine.client import OpenSession
from odin.redis.publisher import Publisher, load_connection
from odin.redis.settings import RedisSettings


def publish_session(session: OpenSession, workspace: Workspace) -> None:
    """Publish a session until it is closed, as a guest that answers only if commands from Redis may approve."""
    settings, recorder = read_redis_settings(workspace.config, workspace.environment), session.deps.recorder

    def warn(text: str, level: Literal["info", "warn"]) -> None:
        with suppress(OdinError):
            recorder.emit(Warned(text, level))

    client = session.attach(answers=settings.accept == "approve", guest=True)
    timing = workspace.environment.timing
    session.finish = Publisher(client, session.id, settings, session.deps.redact, warn, timing).close


def read_redis_settings(config: Config, environment: ExecutionEnvironment) -> RedisSettings:
    """Return the settings with the paths of files, and with the password that `odin auth add redis` has stored."""
    settings = config.redis
    stored = read_auth_file(environment.variables).keys.get("redis", ())
    return replace(
        settings,
        password=settings.parse_url().password or next(iter(stored), ""),
        ca_file=environment.expand_home(settings.ca_file),
        cert_file=environment.expand_home(settings.cert_file),
        key_file=environment.expand_home(settings.key_file),
    )


async def probe_redis(settings: RedisSettings) -> str:
    """Return the version of the server. Raise OdinError if sessions could not be published there."""
    return await load_connection().probe(settings, DEFAULT_TIMING.redis_answer_s)
