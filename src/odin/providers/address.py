"""URLs and the proxy route to them."""

from collections.abc import Mapping

from msgspec import Struct

from odin.core.errors import ConfigError
from odin.core.policy import mask_logins

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Address(Struct, frozen=True):
    """A parsed http or https URL. `login` is a proxy's user:password and is never shown."""

    scheme: str
    host: str
    port: int
    path: str = "/"
    login: str = ""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        return self.origin + self.path

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.endswith(".localhost") or self.host.startswith("127.")


class Route(Struct, frozen=True):
    """The way to an address: direct, or through a proxy."""

    to: Address
    proxy: Address | None = None

    @property
    def key(self) -> str:
        """Connections with the same key are interchangeable."""
        if self.proxy is None:
            return self.to.origin
        return f"{self.to.origin if self.to.scheme == 'https' else ''} by {self.proxy.origin}"


def parse_address(url: str) -> Address:
    """Return the parsed URL. Raise a configuration error if it is invalid."""
    scheme, separator, rest = url.strip().partition("://")
    scheme = scheme.lower()
    rest = rest.partition("#")[0]
    cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:]
    login, _, place = authority.rpartition("@")
    host, port = _split_host_port(place)
    if not separator or scheme not in _DEFAULT_PORTS or not host or any(char <= " " for char in host + path):
        raise make_address_error(url)
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise make_address_error(url)
    if not path.startswith("/"):
        path = "/" + path
    return Address(scheme, _normalize_host(host), int(port) if port else _DEFAULT_PORTS[scheme], path, login)


def make_address_error(url: str) -> ConfigError:
    shown = mask_logins(url if "://" in url else f"://{url}").removeprefix("://")
    return ConfigError(f"{shown!r} is not an http or https address.", "Write it like http://localhost:11434/v1.")


def _split_host_port(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = place.partition(":")
    return host, port


def _normalize_host(host: str) -> str:
    host = host.lower()
    return host if host.isascii() else host.encode("idna").decode("ascii")


DIRECT = "direct"
"""The proxy setting of a provider that is reached without one."""


def find_route(address: Address, env: Mapping[str, str]) -> Route:
    """Return the route given by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, in either case.

    Loopback addresses never use a proxy.
    """
    if address.is_loopback or _is_exempt(address, _read_variable(env, "no_proxy")):
        return Route(address)
    proxy = _read_variable(env, f"{address.scheme}_proxy") or _read_variable(env, "all_proxy")
    if not proxy:
        return Route(address)
    if proxy.lower().startswith("socks"):
        raise ConfigError(
            "SOCKS proxies are not supported.", "Set HTTPS_PROXY to an http proxy, or list the host in NO_PROXY."
        )
    return Route(address, parse_address(proxy if "://" in proxy else f"http://{proxy}"))


def set_proxy(env: Mapping[str, str], proxy: str) -> Mapping[str, str]:
    """Return an environment in which this proxy is used for every address; none if it is `direct`."""
    others = {name: value for name, value in env.items() if not name.lower().endswith("_proxy")}
    return others | ({} if proxy == DIRECT else {"all_proxy": proxy})


def _read_variable(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()


def _is_exempt(address: Address, no_proxy: str) -> bool:
    return any(_matches(address, entry.strip().lower()) for entry in no_proxy.split(","))


def _matches(address: Address, entry: str) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    if "/" in entry:
        import ipaddress

        try:
            return ipaddress.ip_address(address.host) in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    host, port = (entry, "") if entry.count(":") > 1 and not entry.startswith("[") else _split_host_port(entry)
    if port and port != str(address.port):
        return False
    suffix = host.removeprefix("*").removeprefix(".")
    return address.host == suffix or address.host.endswith("." + suffix)


def build_proxy_login(proxy: Address) -> list[str]:
    if not proxy.login:
        return []
    import base64
    from urllib.parse import unquote

    return [f"proxy-authorization: Basic {base64.b64encode(unquote(proxy.login).encode()).decode()}"]
