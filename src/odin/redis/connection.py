"""Connects to the Redis server, and says in one sentence what is wrong with it.

Loading this module takes 0.15 s, because of the package `redis`; only a session that is published does it, in a thread.
"""

import asyncio
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeout

from odin.core.errors import OdinError
from odin.redis.settings import RedisSettings

_MAX_REASON_CHARS = 200
_PROBE_KEPT_S = 10
_GOODBYE_S = 0.2


class RedisFailed(OdinError):
    """Redis cannot be used."""


def connect(settings: RedisSettings) -> Redis:
    """Return a client. It connects with its first command, and tries nothing twice."""
    address = settings.parse_url()
    for key, path in (("ca", settings.ca_file), ("cert", settings.cert_file), ("key", settings.key_file)):
        if path and not os.access(path, os.R_OK):
            raise RedisFailed(f"The file {path} cannot be read.", f"Set redis.{key}_file to another one.")
    return Redis(
        host=address.host,
        port=address.port,
        unix_socket_path=address.socket or None,
        db=address.db,
        username=address.username or None,
        password=address.password or None,
        ssl=address.is_tls,
        ssl_ca_certs=settings.ca_file or None,
        ssl_certfile=settings.cert_file or None,
        ssl_keyfile=settings.key_file or settings.cert_file or None,
        protocol=2,
        driver_info=None,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=None,  # every wait is limited by its caller
        socket_connect_timeout=None,
    )


async def disconnect(redis: Redis) -> None:
    with suppress(RedisError, OSError):
        async with asyncio.timeout(_GOODBYE_S):
            await redis.aclose()


async def probe(settings: RedisSettings, limit_s: float) -> str:
    """Return the version of the server. Raise RedisFailed if Odin could not publish there."""
    redis, key = connect(settings), f"{settings.prefix}:doctor"
    try:
        async with asyncio.timeout(limit_s):
            pipe: Any = redis.pipeline()
            await pipe.xadd(key, {"ok": "1"}, maxlen=1).expire(key, _PROBE_KEPT_S).publish(key, "1").execute()
            try:
                facts: Any = await redis.info("server")  # pyright: ignore[reportUnknownMemberType]
                return str(facts.get("redis_version", ""))
            except NoPermissionError:
                return ""
    except (RedisError, OSError) as error:
        raise explain_failure(error, settings) from error
    finally:
        await disconnect(redis)


def explain_failure(error: BaseException, settings: RedisSettings) -> OdinError:
    """Return what is wrong, and what to do, for any error of this package or of the one below."""
    if isinstance(error, OdinError):
        return error
    redis, causes = f"Redis at {settings.parse_url().place}", [*_list_causes(error)]
    error = next((cause for cause in causes if isinstance(cause, AuthenticationError)), error)
    text = str(error.args[0]) if error.args else type(error).__name__
    # In a transaction, redis-py puts the whole command before the reason.
    reason = re.sub(r"(?s)^Command # .* of pipeline caused error: \(.(.*).,\)$", r"\1", text)[
        :_MAX_REASON_CHARS
    ].rstrip(".")
    system = next((_name_error(cause) for cause in causes if isinstance(cause, OSError)), reason)
    match error:
        case AuthenticationError() | AuthorizationError():
            hint = "Check redis.username and redis.password, or store the password with `odin auth add redis`."
            return RedisFailed(f"{redis} refuses the user or the password.", hint)
        case NoPermissionError():
            hint = f"Allow its user the keys and channels {settings.prefix}:*, with all commands of docs/redis.md."
            return RedisFailed(f"{redis} does not permit a command: {reason}.", hint)
        case OutOfMemoryError():
            return RedisFailed(f"{redis} is out of memory.", "Raise its maxmemory, or lower redis.max_events.")
        case ReadOnlyError():
            return RedisFailed(f"{redis} is a replica that cannot be written.", "Set redis.url to the primary server.")
        case ResponseError():
            return RedisFailed(f"{redis} refuses a command: {reason}.", "Check the server and its keys.")
        case TimeoutError() | RedisTimeout():
            return RedisFailed(f"{redis} does not answer.", "Check the server and redis.url.")
        case _ if any(isinstance(cause, ssl.SSLError) for cause in causes):
            hint = "Check redis.url, redis.ca_file and the certificate of the server."
            return RedisFailed(f"The TLS connection to {redis} failed: {system}.", hint)
        case _:
            return RedisFailed(f"{redis} cannot be reached: {system}.", "Start it, or check redis.url.")


def _name_error(error: OSError) -> str:
    """Return the usual name of an error. asyncio has texts of its own, such as `Multiple exceptions: [Errno 111] …`."""
    if isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    named = re.search(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(named[1])) if named else error.strerror or str(error)


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
