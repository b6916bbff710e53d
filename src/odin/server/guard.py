"""Who may reach the server: the address it listens on, Host and Origin of a request, limits, and the log of clients."""

import ipaddress
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TextIO

from msgspec import Struct

from odin.core.errors import OdinError, UsageError
from odin.core.format import clip
from odin.core.private_folders import append_to_log

# --- the address to listen on ---

_LOOPBACK = "127.0.0.1"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class BindAddress(Struct, frozen=True):
    """An IP address and port to listen on, and the files for TLS, if any."""

    host: str
    port: int
    cert: str = ""
    key: str = ""

    @property
    def scheme(self) -> str:
        return "https" if self.cert else "http"

    @property
    def is_wildcard(self) -> bool:
        return ipaddress.ip_address(self.host).is_unspecified


def parse_bind(host: str, port: int, cert: str = "", key: str = "", *, without_tls: bool = False) -> BindAddress:
    """Return the address for these flags of `odin serve`. Raise UsageError if it is invalid or would not be safe."""
    given = host.strip().removeprefix("[").removesuffix("]")
    address = _parse_ip(_LOOPBACK if given.lower() == "localhost" else given)
    if address is None:
        raise UsageError(
            f"--host must be an IP address of this machine or localhost, not {host!r}.",
            "Names by which browsers reach it go to --allow-host.",
        )
    if not 0 <= port <= 65535:
        raise UsageError(f"--port must be from 0 to 65535, not {port}.", "0 picks a free one.")
    if bool(cert) != bool(key):
        raise UsageError("--tls-cert and --tls-key belong together.", "Give both files.")
    if cert:
        _check_tls(cert, key)
    elif not address.is_loopback and not without_tls:
        raise UsageError(
            f"Other machines reach {address}; without TLS anyone on the way can read and change everything.",
            "Add --tls-cert and --tls-key; or listen on 127.0.0.1 and use `ssh -L` or a proxy with TLS; or add "
            "--without-tls in a network that encrypts by itself, such as a VPN.",
        )
    return BindAddress(str(address), port, cert, key)


def _check_tls(cert: str, key: str) -> None:
    import ssl

    for flag, path in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise UsageError(
                f"{flag}: {path} cannot be read: {error.strerror or error}.", "Name a PEM file."
            ) from error
    try:
        # Without a password OpenSSL would ask for the one of an encrypted key on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(
                f"The key {key} does not belong to the certificate {cert}.", "Name its own key."
            ) from error
        raise UsageError(
            f"{cert} and {key} cannot be used for TLS ({error.reason or error}).",
            "They must be a certificate and its unencrypted private key, both in PEM form.",
        ) from error


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


# --- Host and Origin ---

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::([0-9]{0,5}))?")
_URL = re.compile(r"(https?)://([^/?#\s]+)/?", re.IGNORECASE)
_BASE_PATH = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")

Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case and values, as in ASGI."""


class WebOrigin(Struct, frozen=True):
    """What browsers call an origin: pages of the same one share their rights. `host` has no brackets."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{'' if self.port == _DEFAULT_PORTS[self.scheme] else f':{self.port}'}"


class HostCheck:
    """Tells requests to this server from those that another site makes a browser send.

    A request must name the server by an address of its own, or by one of `allow_hosts`: `NAME` or `NAME:PORT`, or the
    URL that browsers use if a proxy has another scheme or port. If it listens on all addresses, any IP address will do,
    because a site that rebinds its name (DNS rebinding) has a name. `bind` has the port that it really listens on.
    Raise UsageError for an invalid name or `base_path`, the path below which a proxy serves it.
    """

    def __init__(self, bind: BindAddress, allow_hosts: Sequence[str] = (), base_path: str = "") -> None:
        self._bind = bind
        self.base_path = base_path.rstrip("/")
        if not _BASE_PATH.fullmatch(self.base_path):
            raise UsageError(f"The base path {base_path!r} is not valid.", "Write it as /odin.")
        allowed = [_parse_allowed(text, bind) for text in allow_hosts]
        own = _LOOPBACK if bind.is_wildcard else bind.host
        self.origins = (
            *allowed,
            *(WebOrigin(bind.scheme, host, bind.port) for host in (own, _LOOPBACK, "localhost", "::1")),
        )

    @property
    def url(self) -> str:
        """The URL to open, without a slash at its end: with the first allowed host, if there is one."""
        return f"{self.origins[0]}{self.base_path}"

    def strip_base(self, path: str) -> str | None:
        """Return the path below the base path; None if it is not below it."""
        if path == self.base_path:
            return "/"
        return path[len(self.base_path) :] if path.startswith(f"{self.base_path}/") else None

    def check(self, method: str, headers: Headers) -> str:
        """Return why the request is refused, as a sentence, or ""."""
        found: dict[bytes, list[str]] = {}
        for name, value in headers:
            found.setdefault(name, []).append(value.decode("latin-1"))
        hosts, origins = found.get(b"host", []), found.get(b"origin", [])
        if len(hosts) != 1 or len(origins) > 1:
            return "A request needs exactly one Host header, and at most one Origin."
        host = _parse_authority(hosts[0])
        if host is None or not any(
            self._is_own(WebOrigin(scheme, host[0], host[1] or port), host[0])
            for scheme, port in _DEFAULT_PORTS.items()
        ):
            return (
                f"This server does not answer as {_shorten(hosts[0])}. Use the address that `odin serve` printed, "
                "or add `--allow-host NAME` to it."
            )
        if origins and ((origin := _parse_origin(origins[0])) is None or not self._is_own(origin, host[0])):
            return (
                f"Pages of {_shorten(origins[0])} may not use this server. If that is the address of a proxy in front "
                "of it, add `--allow-host URL` to `odin serve`."
            )
        # `same-site` is another port or subdomain, so another program. A link to the page is harmless: the page opens
        # without its cookie, and the one with the link cannot read it.
        is_foreign = found.get(b"sec-fetch-site", ["none"]) not in (["none"], ["same-origin"])
        opened = method, found.get(b"sec-fetch-mode"), found.get(b"sec-fetch-dest")
        is_link = opened == ("GET", ["navigate"], ["document"])
        return "Other sites may not use this server." if is_foreign and not is_link else ""

    def _is_own(self, origin: WebOrigin, host: str) -> bool:
        """True for an origin of the server. `host` is the one that the request names."""
        if origin in self.origins:
            return True
        is_bound = (origin.scheme, origin.port) == (self._bind.scheme, self._bind.port)
        return self._bind.is_wildcard and is_bound and origin.host == host and _parse_ip(host) is not None


def _parse_authority(text: str) -> tuple[str, int | None] | None:
    """Return the host, normalized, and the port of `HOST:PORT`; None if it is anything else."""
    match = _AUTHORITY.fullmatch(text)
    if match is None or int(match[3] or 0) > 65535:
        return None
    address = _parse_ip(match[1] or match[2])
    if match[1] and (address is None or ":" not in match[1]):
        return None
    host = str(address) if address is not None else match[2].lower().removesuffix(".")
    return (host, int(match[3]) if match[3] else None) if host else None


def _parse_origin(text: str) -> WebOrigin | None:
    match = _URL.fullmatch(text)
    found = _parse_authority(match[2]) if match else None
    if match is None or found is None:
        return None
    scheme = match[1].lower()
    return WebOrigin(scheme, found[0], found[1] or _DEFAULT_PORTS[scheme])


def _parse_allowed(text: str, bind: BindAddress) -> WebOrigin:
    if (origin := _parse_origin(text)) is not None:
        return origin
    if (found := _parse_authority(text)) is not None:
        return WebOrigin(bind.scheme, found[0], found[1] or bind.port)
    raise UsageError(
        f"--allow-host: {text!r} is not a host.",
        "Use NAME, NAME:PORT or the URL that browsers use, without a path; other letters than a to z as xn--.",
    )


def check_url(text: str) -> str:
    """Return the URL of a server, without a slash at its end. Raise UsageError if it is none."""
    start = text.find("/", text.find("//") + 2)
    address, path = (text[:start], text[start:].rstrip("/")) if start >= 0 else (text, "")
    origin = _parse_origin(address)
    if origin is None or not _BASE_PATH.fullmatch(path):
        raise UsageError(
            f"{text!r} is not the URL of a server.", "Write it as https://odin.example.com or http://IP:PORT."
        )
    return f"{origin}{path}"


# --- limits ---


class TooManyRequests(OdinError):
    """The limit is reached. `wait_s` is how long to wait, in whole seconds."""

    def __init__(self, what: str, wait: float) -> None:
        self.wait_s = max(1, math.ceil(wait))
        super().__init__(f"Too many {what}.", f"Try again in {self.wait_s} s.")


class RequestLimit:
    """Allows `burst` requests of each key at once, and then `per_minute`: a token bucket."""

    def __init__(self, per_minute: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 60 / per_minute
        self._burst = burst
        self._clock = clock
        self._full_at: dict[str, float] = {}
        """When the bucket of a key will be full again. The others are full."""

    def get_wait(self, key: str = "") -> float:
        """Return the seconds until a request is allowed; 0 if it is now."""
        missing_s = self._full_at.get(key, 0.0) - self._clock()
        return max(0.0, missing_s - (self._burst - 1) * self._interval)

    def take(self, key: str = "") -> float:
        """Count a request if it is allowed. Return 0, or the seconds to wait."""
        wait = self.get_wait(key)
        if not wait:
            now = self._clock()
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
            self._full_at[key] = self._full_at.get(key, now) + self._interval
        return wait


# --- the log ---

MAX_LOG_BYTES = 5_000_000

TOKEN_PREFIX = "odin_"
CODE_ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""Without 0, O, 1, I and L, which look alike."""

_SECRET = re.compile(
    rf"(?<=share/)[0-9a-f]{{8}}/[\w-]+|{TOKEN_PREFIX}[\w-]{{8,}}|(?<![\w-])[{CODE_ALPHABET}]{{4}}-[{CODE_ALPHABET}]{{4}}(?![\w-])",
    re.I,
)
"""The link of a share, a token, or what may be a pairing code. None belongs into a path or a name, but somebody may
type it there."""

ClientEvent = Literal["connected", "left", "paired", "shared", "refused", "op"]


class ClientLog:
    """`<state>/logs/server.log`: what clients did, also on `err`. It has no token, code or text of a prompt."""

    def __init__(self, path: Path, err: TextIO, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._err = err
        self._clock = clock

    def write(
        self,
        event: ClientEvent,
        address: str,
        *,
        client: str = "",
        method: str = "",
        path: str = "",
        status: int = 0,
        note: str = "",
    ) -> None:
        """Write one line. What follows `?` in the path is left out. Failing to write is ignored."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self._clock()))
        route = clip(path.partition("?")[0].partition("#")[0], 200).replace(" ", "%20")
        name = f'"{client}"'.replace('"', "'")
        words = (when, event, address, name, method, route, str(status or ""), note)
        line = _SECRET.sub("[hidden]", " ".join(_escape(word) for word in words if word))
        with suppress(OSError, OdinError):
            append_to_log(self._path, f"{line}\n".encode(), MAX_LOG_BYTES)
        with suppress(OSError, ValueError):
            self._err.write(f"{line}\n")


def _shorten(text: str) -> str:
    return _escape(clip(text, 100))


def _escape(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
