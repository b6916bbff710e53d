"""Secrets that are recognised by where they stand: in an address, in a header, after the name of a secret.

Only the value is taken out, and only when it can hardly be anything else: programs name tokens and passwords on every
page, and most of what follows is no secret.
"""

import re
from collections.abc import Iterator

from odin.policy.redaction.shape import SecretSpan, compile_cached, is_real

_STEM_PREFIX_CHARS = 24

_ADDRESS_PASSWORD = r"://(?P<user>[^\s/:@\"'<>`\\]{0,80}):(?P<value>[^\s/@\"'<>`\\]{4,200})@(?=[\w\[])"

_SCHEMES = {
    "authorization header": r"authorization\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}\\{0,3}[\"']?"
    r"(?:(?:bearer|basic|token)\s{1,4})?(?P<value>[a-z0-9._~+/=-]{16,2000})",
    "bearer token": r"bearer\s{1,4}(?P<value>[a-z0-9._~+/=-]{20,2000})",
}

_ASSIGNED = (
    r"s?(?P<quote>\\{0,3}[\"']?)(?P<gap>\s{0,8})(?P<sign>=>|:=|=|:)\s{0,8}"
    r"\\{0,3}(?P<open>[\"'`]?)(?P<value>[a-z0-9+/_=.~!@#%^&*?-]{8,500})(?P<after>[^\s]?)"
)

_SECRET_STEMS = {
    "api key": ("key", r"(?:api|access|secret|private|account|encryption|signing|master|auth)[_-]?$"),
    "secret": ("secret", r""),
    "token": ("token", r"(?<!page)(?<!next)(?<!ation)(?<!sync)(?<!start)(?<!csrf)(?<!xsrf)[_-]?$"),
    "password": ("password", r""),
    "passwd": ("passwd", r""),
    "passphrase": ("passphrase", r""),
}
"""What ends the name of a secret, and what may stand before that: a page token is none."""

_PLACEHOLDER = re.compile(
    r"(?i)^(?:[<{(\[$%*]|x{4,}|\.{3})"
    r"|^(?:your|my|the|some|an?|insert|replace|change|enter|todo|example|sample|dummy|fake|test)[_-]"
    r"|^(?:change_?me\w*|passw\w{0,6}|pass|redacted|none|null|undefined|user|admin|root|postgres|mysql|guest|test\w{0,4})$"
    r"|\$\{|\{\{|%s|_here$"
)
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_IDENTIFIER = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z]+(?:[_-][a-z]+)+|(?:[A-Z]?[a-z]+\d{0,5})(?:[A-Z][a-z]+\d{0,5})+"
)
"""Names of programming languages, and words with strokes between them."""


def find_by_context(text: str) -> Iterator[SecretSpan]:
    if "://" in text and "@" in text:
        yield from _find_in_addresses(text)
    folded = _fold_case(text)
    for name, pattern in _SCHEMES.items():
        for found in compile_cached(pattern).finditer(folded) if name.split()[0] in folded else ():
            if _is_opaque(text[slice(*found.span("value"))]):
                yield SecretSpan(*found.span("value"), name)
    for name, (stem, before) in _SECRET_STEMS.items():
        for found in compile_cached(stem + _ASSIGNED).finditer(folded) if stem in folded else ():
            if _is_named(before, folded, found) and _is_secret(text, stem, found):
                yield SecretSpan(*found.span("value"), name)


def _fold_case(text: str) -> str:
    """In lower case, character for character."""
    folded = text.lower()
    return folded if len(folded) == len(text) else "".join(char.lower()[0] for char in text)


def _find_in_addresses(text: str) -> Iterator[SecretSpan]:
    for found in compile_cached(_ADDRESS_PASSWORD).finditer(text):
        value = found["value"]
        if value != found["user"] and not _PLACEHOLDER.search(value) and not value.isdigit():
            yield SecretSpan(*found.span("value"), "password in an address")


def _is_named(before: str, folded: str, found: "re.Match[str]") -> bool:
    start = found.start()
    return not before or compile_cached(before).search(folded[max(0, start - _STEM_PREFIX_CHARS) : start]) is not None


def _is_secret(text: str, stem: str, found: "re.Match[str]") -> bool:
    value = text[slice(*found.span("value"))]
    if _PLACEHOLDER.search(value) or not is_real(value) or not _is_whole(found["open"], found["after"]):
        return False
    if _UUID.fullmatch(value) or not _is_opaque(value):
        return False
    if found["sign"] == "=" and not found["gap"] and _is_set_by(text, stem, found.start()):
        return True
    return len(value) >= 16 and len(set(value)) >= 8 and sum(char.isdigit() for char in value) >= 2


def _is_set_by(text: str, stem: str, start: int) -> bool:
    """Whether a name is one of an environment file, or an option of a command."""
    return text.startswith(stem.upper(), start) or text[max(0, start - 2) : start] == "--"


def _is_whole(opening: str, after: str) -> bool:
    """Whether the value ends where it should: at its quotation mark, and not as the beginning of an expression."""
    return after in (opening, "\\") if opening else after not in ("(", "[", "{", "$", "<")


def _is_opaque(value: str) -> bool:
    """Whether a value is made of letters and digits at random: no words, no name, no placeholder."""
    mixed = any(char.isdigit() for char in value) and any(char.isalpha() for char in value)
    return mixed and is_real(value) and not _PLACEHOLDER.search(value) and not _IDENTIFIER.fullmatch(value)
