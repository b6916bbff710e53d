"""Addresses of pages, in one form for the rules, the cache and the wire, so that none of them reads another host."""

from urllib.parse import quote, urlsplit, urlunsplit

MAX_URL_CHARS = 8000
_SAFE_CHARS = "/!$&'()*+,;=:@%~?[]"


class InvalidUrl(ValueError):
    """Not an address WebFetch can use. The message says why and never repeats a login."""


def normalize_url(text: str) -> str:
    """The address with a lower-case ASCII host and an encoded path, without its fragment. Raises BadAddress."""
    text = text.strip()
    if len(text) > MAX_URL_CHARS:
        raise InvalidUrl(f"The address is {len(text):,} characters long; {MAX_URL_CHARS:,} is the limit.")
    try:
        parts = urlsplit(text)
        host, port, login = parts.hostname or "", parts.port, "@" in parts.netloc
    except ValueError:
        raise InvalidUrl("The address cannot be read. Write it like https://example.org/page.") from None
    if parts.scheme not in ("http", "https"):
        named = f"{parts.scheme}:" if parts.scheme and "." not in parts.scheme else "one without http:// or https://"
        raise InvalidUrl(f"WebFetch reads http and https addresses, not {named}. Write https://example.org/page.")
    if login:
        raise InvalidUrl("The address has a login in it, and WebFetch sends none. Leave it out.")
    name = _normalize_host(host)
    place = f"{name}:{port}" if port is not None else name
    return urlunsplit(
        (parts.scheme, place, quote(parts.path or "/", safe=_SAFE_CHARS), quote(parts.query, safe=_SAFE_CHARS), "")
    )


def _normalize_host(host: str) -> str:
    if ":" in host:
        return f"[{host}]"
    try:
        name = host.encode("idna").decode("ascii") if not host.isascii() else host
    except UnicodeError:
        name = ""
    name = name.lower().removesuffix(".")
    if not name or not all(char.isalnum() or char in "-._" for char in name):
        raise InvalidUrl("The address has no host that could be reached. Write it like https://example.org/page.")
    return name
