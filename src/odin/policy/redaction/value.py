"""Secrets that are known, because Odin itself was given them: they are found in whatever form a program prints them."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from odin.policy.redaction import MIN_SECRET_CHARS
from odin.policy.redaction.shape import SecretSpan

_LONG_LINE = 32

_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS|SECRET|PRIVATE)?_?KEYS?(?:_ID|_BASE64|_B64|_PEM|_\d+)?|TOKENS?(?:_SECRET|_\d+)?|PAT|JWT"
    r"|SECRETS?(?:_\w+)?|PASSWORDS?(?:_\w+)?|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|CREDS|AUTH|COOKIES?|DSN|WEBHOOK(?:_URL)?"
    r"|CONNECTION_STRING)$|^(?:PGPASSWORD|SSHPASS)$",
    re.IGNORECASE,
)
"""Names of variables whose values are hidden. More is kept from commands, but everyday values must stay readable."""

_URL_PASSWORD = re.compile(r"://[^\s/:@]{0,100}:([^\s/@]{8,200})@")
_PATH_OR_NUMBER = re.compile(r"[~.]{0,2}/|[A-Za-z]:\\|[\d.,:+-]+$")
_WORD_SEQUENCE = re.compile(r"[A-Za-z]+(?:[ _-][A-Za-z]+)+")
_LONG_NAME = 16
_EVERYDAY_WORDS = re.compile(
    r"anonymous|automatic|basicauth|change(?:me|it)|default|(?:develop|require)ment|(?:dis|en)abled|external|interactive"
    r"|internal|key(?:chain|ring)|localhost|optional|passphrase|passw[o0]rds?\d?|placeholder|platform|postgres|production"
    r"|redacted|required|security|standard|testtest|undefined|username",
    re.IGNORECASE,
)


class KnownValues:
    """The values of secrets with their names, each in the forms in which it may appear. They are made when needed."""

    def __init__(self, environ: Mapping[str, str], more: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._more = dict(more)

    @cached_property
    def _forms(self) -> list[tuple[str, str]]:
        """Every form with the name of its secret, the longest first."""
        forms: dict[str, str] = {}
        known = [*self._more.items(), *_find_environment_secrets(self._environ)]
        names = "\n".join(name for name, _ in known)
        for name, value in known:
            for text in _secret_parts_of(value):
                if text not in names:  # or it would be found in what stands for it
                    forms.update((form, name) for form in _encodings_of(text) if form not in forms)
        return sorted(forms.items(), key=lambda item: -len(item[0]))

    def find_spans(self, text: str) -> Iterator[SecretSpan]:
        for form, name in self._forms:
            start = text.find(form)
            while start >= 0:
                yield SecretSpan(start, start + len(form), name)
                start = text.find(form, start + len(form))


def _find_environment_secrets(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if _SECRET_VARIABLE.search(name):
            yield name, value
        elif "://" in value and (found := _URL_PASSWORD.search(value)):
            yield name, found[1]


def _secret_parts_of(value: str) -> Iterator[str]:
    """The whole of a value and, of one with several lines, those that are secret by themselves."""
    whole = value.strip()
    lines = [line.strip() for line in whole.splitlines()]
    long = [line for line in lines if len(line) >= _LONG_LINE and not re.search(r"\s|-----", line)]
    yield from (part for part in dict.fromkeys((whole, *long)) if is_worth_hiding(part))


def is_worth_hiding(value: str) -> bool:
    """Whether a value is worth hiding: not a path, a number, a switch or an everyday word, which stand everywhere."""
    if len(value) < MIN_SECRET_CHARS or len(set(value)) < 4:
        return False
    if _PATH_OR_NUMBER.match(value) or _EVERYDAY_WORDS.fullmatch(value):
        return False
    return len(value) >= _LONG_NAME or not _WORD_SEQUENCE.fullmatch(value)


def _encodings_of(value: str) -> set[str]:
    """The value as it is, and as addresses, JSON, quoted shell words, base64 and hexadecimal digits show it."""
    import json
    from base64 import b64encode
    from urllib.parse import quote, quote_plus

    raw = value.encode("utf-8", "surrogateescape")
    forms = {value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1], value.replace("'", "'\\''")}
    forms |= {quote(raw, safe=""), quote(raw), quote_plus(raw), raw.hex()}
    for offset in range(3):
        forms |= _base64_forms_of(b64encode(b"\0" * offset + raw).decode(), offset, len(raw))
    return {form for form in forms if len(form) >= MIN_SECRET_CHARS}


def _base64_forms_of(encoded: str, offset: int, length: int) -> set[str]:
    """The characters that depend on the value alone, whatever was encoded before and after it."""
    first = -(-offset * 8 // 6)
    last = (offset + length) * 8 // 6
    core = encoded[first:last]
    if len(core) < 12:
        return set()
    return {core, core.replace("+", "-").replace("/", "_")}
