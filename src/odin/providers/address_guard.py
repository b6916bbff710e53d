"""Keeps web pages from leading into private networks.

Permission rules check the name in a URL, but a name can resolve to anything: to this machine, to a device at home or to
the metadata service of a cloud machine. So names are resolved here, private addresses are refused, and the connection
goes to an address that was checked. A URL that itself names a private address shows what it is, so it is the permission
rules' decision.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase

from odin.core.errors import PrivateAddress

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
ResolveName = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a host name. Raise OSError if it has none."""

_SHARED = ipaddress.ip_network("100.64.0.0/10")
"""Behind the gateways of providers, and in virtual private networks."""

_METADATA = frozenset(("169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16"))
_EMBEDDING = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
"""IPv6 networks whose last 32 bits are an IPv4 address."""


async def resolve_name(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host name, each once. Raise OSError if it has none."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


class AddressGuard:
    """`private_hosts` may be private: names (`*` stands for anything), addresses, and networks such as 10.0.0.0/8."""

    def __init__(self, private_hosts: Sequence[str] = (), resolve: ResolveName = resolve_name) -> None:
        self._private_hosts = [entry.strip().lower().rstrip(".") for entry in private_hosts]
        self._resolve = resolve

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host to which a connection may be made. Raise PrivateAddress or OSError."""
        addresses = await self._resolve(host, port)
        allowed = [address for address in addresses if self.is_allowed(host, address)]
        if addresses and not allowed:
            raise _make_error(host, addresses[0])
        return allowed

    async def check_for_proxy(self, host: str, port: int) -> None:
        """Check a host that a proxy will resolve. A name that is unknown here is left to the proxy."""
        try:
            await self.resolve(host, port)
        except OSError:
            return

    def is_allowed(self, host: str, address: str) -> bool:
        """True if a URL with this host may lead to this address."""
        ip = _parse_ip(address.partition("%")[0])
        if ip is None:
            return False
        if any(_matches(entry, host, ip) for entry in self._private_hosts):
            return True
        if _is_public(ip):
            return True
        # True if the host is `localhost`, or this private address in its usual form.
        if host == "localhost" or host.endswith(".localhost"):
            return ip.is_loopback
        if host.lower() != str(ip) or str(ip) in _METADATA:
            return False
        is_odd = ip.is_link_local or ip.is_multicast or ip.is_unspecified or _find_embedded_address(ip) is not None
        return not is_odd and (ip.is_private or ip in _SHARED)


def _parse_ip(text: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_public(ip: IpAddress) -> bool:
    inner = _find_embedded_address(ip)
    if inner is not None:
        return False
    return ip.is_global and not ip.is_multicast and ip not in _SHARED and str(ip) not in _METADATA


def _find_embedded_address(ip: IpAddress) -> IpAddress | None:
    """Return the IPv4 address that an IPv6 address stands for, or None."""
    if isinstance(ip, ipaddress.IPv4Address):
        return None
    if ip.ipv4_mapped or ip.sixtofour:
        return ip.ipv4_mapped or ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    if ip.is_loopback or ip.is_unspecified or not any(ip in network for network in _EMBEDDING):
        return None
    return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)


def _matches(entry: str, host: str, ip: IpAddress) -> bool:
    if "/" in entry:
        try:
            return ip in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    return fnmatchcase(host.lower(), entry) or _parse_ip(entry) == ip


def _make_error(host: str, address: str) -> PrivateAddress:
    what = f"{host} is not a public address" if host == address else f"{host} leads to {address}, which is not public"
    return PrivateAddress(
        f"{what}.", f'If it should be read, the user can add it to their configuration: web.private_hosts: ["{host}"].'
    )
