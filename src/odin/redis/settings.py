"""The `redis` section of the configuration. Importing it loads no Redis client."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

SCHEMES = ("redis", "rediss", "unix")

Accept = Literal["none", "prompt", "approve"]


class RedisAddress(Struct, frozen=True):
    """The parts of the URL. `place` names the server without the user and the password."""

    is_tls: bool
    host: str
    port: int
    db: int
    username: str
    password: str
    socket: str

    @property
    def place(self) -> str:
        return self.socket or f"{self.host}:{self.port}"


class RedisSettings(Struct, frozen=True, kw_only=True):
    """Where sessions are published. Without a URL they are not."""

    url: Annotated[
        str,
        Meta(
            description="`redis://HOST:PORT/DB`, `rediss://…` for TLS, or `unix:///SOCKET`. Empty: sessions are not "
            "published."
        ),
    ] = ""
    username: Annotated[str, Meta(description="The user of Redis. Empty: that of the URL, or the default one.")] = ""
    password: Annotated[
        str,
        Meta(
            description="The password, or $NAME to read it from an environment variable. Empty: that of the URL, or "
            "the one stored with `odin auth add redis`."
        ),
    ] = ""
    ca_file: Annotated[
        str, Meta(description="The certificates that the server's is checked with. Empty: the system's.")
    ] = ""
    cert_file: Annotated[str, Meta(description="Odin's own certificate, for a server that asks for one.")] = ""
    key_file: Annotated[str, Meta(description="The private key of `cert_file`, if it is in a file of its own.")] = ""
    prefix: Annotated[str, Meta(description="The start of all keys and channels.")] = "odin"
    max_events: Annotated[int, Meta(description="About how many events of a session Redis keeps.", ge=1)] = 10_000
    keep_h: Annotated[
        float, Meta(description="Hours that Redis keeps a session after it was closed; 0 means for ever.", ge=0)
    ] = 168.0
    snapshots: Annotated[bool, Meta(description="Publish the whole state, too, at most twice per second.")] = True
    accept: Annotated[
        Accept,
        Meta(
            description="Commands that are taken from Redis: none, what `prompt`s and stops the agent, or also what "
            "`approve`s calls and changes settings."
        ),
    ] = "none"

    def __post_init__(self) -> None:
        if not self.prefix or not self.prefix.isprintable() or any(char in " *?[]\\" for char in self.prefix):
            raise ValueError("prefix must be a name without spaces and wildcards")
        if not self.url:
            return
        address = self.parse_url()
        if not address.is_tls and (self.ca_file or self.cert_file):
            raise ValueError("ca_file and cert_file need a url that begins with rediss://")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs a cert_file")

    def parse_url(self) -> RedisAddress:
        """Return the parts of the URL. Raise ValueError, without the URL in the message: it may hold a password."""
        from urllib.parse import unquote, urlsplit

        try:
            parts = urlsplit(self.url)
            port = parts.port or 6379
        except ValueError:
            raise ValueError("url has an invalid host or port") from None
        if parts.scheme not in SCHEMES:
            raise ValueError("url must begin with redis://, rediss:// or unix://")
        if parts.query or parts.fragment:
            raise ValueError("url must have no ? and no #; in a password, write them as %3F and %23")
        is_socket = parts.scheme == "unix"
        name = parts.path.strip("/")
        if is_socket and not parts.path.startswith("/"):
            raise ValueError("url names no socket, such as unix:///run/redis.sock")
        if not is_socket and not parts.hostname:
            raise ValueError("url names no host")
        if not is_socket and name and not (name.isascii() and name.isdecimal()):
            raise ValueError("url may end with the number of a database, such as /0, and with nothing else")
        return RedisAddress(
            is_tls=parts.scheme == "rediss",
            host=parts.hostname or "",
            port=port,
            db=0 if is_socket else int(name or 0),
            username=self.username or unquote(parts.username or ""),
            password=self.password or unquote(parts.password or ""),
            socket=unquote(parts.path) if is_socket else "",
        )
