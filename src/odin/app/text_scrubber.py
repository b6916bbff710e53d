"""Removes from texts what others should not read: secrets, e-mail addresses, the home folder, the name of the user.

Control codes are removed first: a secret with colors in it is none to a pattern, but is one where they are dropped.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from odin.core.environment import ExecutionEnvironment
from odin.core.text import to_valid_unicode
from odin.policy.secret_patterns import is_opaque, is_secret_setting
from odin.policy.secrets import Redactor

_MAX_SAMPLES = 3

HOME_KIND = "home folder, shown as ~"
USER_KIND = "user name, shown as user"
EMAIL_KIND = "e-mail address"
FILE_KIND = "content of a secret file"
LIKELY_KIND = "likely secret"


class Redaction(Struct, frozen=True):
    """What was replaced of one kind: how often, the starts of some of them, and where."""

    kind: str
    count: int
    samples: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069]"
)
"""Escape sequences, control characters but tab and line break, and invisible characters that could split a secret."""

_HAS_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069]")

_PLACEHOLDER = re.compile(r"\[redacted: ([^\]\n]{1,200})\]")
_VARIABLE = re.compile(
    r"(?<![\w$])(?P<name>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)[\"']?(?P<sign>=| ?: ?)"
    r"[\"']?(?P<value>[^\s\"'`()\[\]{}$<]{8,}+)(?![(\[{])"
)
"""A variable as `env` of another machine, a `.env` file, YAML or JSON has it."""

_LIKELY = {
    "passw": r"(?i)passw(?:or)?d[\"']?(?: ?[:=] ?| )[\"']?(?P<value>[^\s\"'`;,()\[\]{}<>$]{6,}+)(?![(\[{])",
    "://": r"://(?P<value>[\w-]{20,})@",
    "curl": r"curl\b[^\n|;]{0,200}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']+:(?P<value>[^\s\"']{6,})",
    " -p": r"\b(?:login|mysql\w*|sshpass)\b[^\n|;]{0,200}?\s-p ?[\"']?(?P<value>[^\s\"']{6,})",
    "cookie": r"(?i)cookie[\"']?: ?[\"']?[\w.-]+=(?P<value>[^\n\"']{8,})",
}
"""Patterns by a mark in lower case, for what is more likely a secret than anything else.

Tool results keep it: the model may need it."""

_EMAIL = re.compile(r"(?<![\w.+-])(?<!//)([\w.+-]{1,64})(?:@|%40)((?:[\w-]{1,63}\.)+([^\W\d_]{2,24}))(?![^\W_]|-\w)")
_NO_EMAIL = re.compile(r"(?i)git|no-?reply|example|user|name|you|someone|.*\[bot\]")
_NO_HOST = re.compile(r"(?i)(?:.*\.)?(?:example\.(?:com|org|net)|noreply\.github\.com|test|invalid|localhost)")
_FILE_ENDINGS = frozenset("png jpg jpeg gif svg webp ico js ts css json md py html tgz zip".split())  # noqa: SIM905
_SECRET_KEY = re.compile(r"(?i)KEY|TOKEN|SECRET|PASS|PWD|COOKIE|CREDENTIAL|AUTH")
_COMMON_NAMES = frozenset(
    "root user users home admin ubuntu debian runner node app odin test work dev build vagrant git www data".split()  # noqa: SIM905
)
_USER_FOLDERS = (
    *("/home/", "/Users/", "/media/", "/mail/", "/tmp/", "/spool/", "-of-"),
    *(r"Users\\", r"Users\\\\"),
)
"""What stands before the name of a folder that is named after a user."""

_BEFORE_USERS = ("USER=", "NAME=", r"\d\(", "chown ", "ssh -l ", "~")
"""What else stands before the name of a user, as in the output of `env` and `id`."""


class TextScrubber:
    """Removes secrets and what tells who the user is, and keeps count. `place` is what the texts belong to."""

    def __init__(self, redactor: Redactor, environment: ExecutionEnvironment) -> None:
        self.place = ""
        self._redactor = redactor
        self._counts: dict[str, int] = {}
        self._samples: dict[str, dict[str, None]] = {}
        self._places: dict[str, dict[str, None]] = {}
        self._homes = tuple(_compile_homes(environment.home))
        self._users = tuple(_compile_users(environment))

    def scrub(self, text: str) -> str:
        text = to_valid_unicode(text)
        if _HAS_CONTROL.search(text):
            text = _CONTROL.sub("", text)
        if not text.strip():
            return text
        for match in _PLACEHOLDER.finditer(text) if "[redacted: " in text else ():
            self._note(match[1])
        text = self._redactor.hide_each(text, self._note)
        text = _VARIABLE.sub(self._replace_variable, text)
        folded = text.lower()
        for mark, pattern in _LIKELY.items():
            text = re.sub(pattern, self._replace_likely, text) if mark in folded else text
        for mark in ("@", "%40"):
            text = _replace_in_lines(text, mark, _EMAIL, self._replace_email)
        for name, pattern in self._homes:
            text = _replace_in_lines(text, name, pattern, partial(self._replace, HOME_KIND, "~"))
        for name, pattern in self._users:
            text = _replace_in_lines(text, name, pattern, partial(self._replace, USER_KIND, "user"))
        return text

    def scrub_value(self, value: Any, name: str = "") -> Any:
        """Return a JSON value with its texts scrubbed. `name` is its key, which can tell that it is a secret."""
        if isinstance(value, str):
            return self._scrub_named(name, value) if _SECRET_KEY.search(name) else self.scrub(value)
        if isinstance(value, list | tuple):
            return [self.scrub_value(item, name) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value).items()
            return {self.scrub(str(key)): self.scrub_value(item, str(key)) for key, item in items}
        return value

    def hide_file(self) -> str:
        """Return what stands for the content of a secret file."""
        self._note(FILE_KIND)
        return f"[redacted: {FILE_KIND}]"

    def list_redactions(self) -> tuple[Redaction, ...]:
        """Return what was replaced, secrets first and by number."""
        personal = (EMAIL_KIND, HOME_KIND, USER_KIND)
        kinds = sorted(self._counts, key=lambda kind: (kind in personal, -self._counts[kind], kind))
        return tuple(
            Redaction(kind, self._counts[kind], tuple(self._samples.get(kind, ())), tuple(self._places[kind]))
            for kind in kinds
        )

    def _scrub_named(self, name: str, value: str) -> str:
        """Scrub a value as if it were assigned to an environment variable of this name."""
        variable = re.sub("[^A-Za-z0-9]", "_", re.sub("(?<=[a-z])(?=[A-Z])", "_", name)).upper()
        is_password = re.search("PASS(W|PHRASE)|SECRET", variable) is not None and not value.startswith(("$", "["))
        if value.strip() and (is_password or is_secret_setting(variable, value)):
            self._note(LIKELY_KIND, value)
            return f"[redacted: {LIKELY_KIND}]"
        start = f"{variable}="
        whole = self.scrub(f"{start}{value}")
        return whole.removeprefix(start) if whole.startswith(start) else self.scrub(value)

    def _replace(self, kind: str, shown: str, match: re.Match[str]) -> str:
        self._note(kind)
        return shown

    def _replace_variable(self, match: re.Match[str]) -> str:
        is_set = match["sign"] == "=" or is_opaque(match["value"])
        return self._hide_value(match) if is_set and is_secret_setting(match["name"], match["value"]) else match[0]

    def _replace_likely(self, match: re.Match[str]) -> str:
        return self._hide_value(match) if is_opaque(match["value"]) else match[0]

    def _hide_value(self, match: re.Match[str]) -> str:
        self._note(LIKELY_KIND, match["value"])
        before, after = match.start("value") - match.start(), match.end("value") - match.start()
        return f"{match[0][:before]}[redacted: {LIKELY_KIND}]{match[0][after:]}"

    def _replace_email(self, match: re.Match[str]) -> str:
        local, host, ending = match.groups()
        if ending.lower() in _FILE_ENDINGS or _NO_EMAIL.fullmatch(local) or _NO_HOST.fullmatch(host):
            return match[0]
        self._note(EMAIL_KIND, match[0])
        return "[redacted: e-mail]"

    def _note(self, kind: str, value: str = "") -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if value and len(samples := self._samples.setdefault(kind, {})) < _MAX_SAMPLES:
            samples[f"{value[: min(4, len(value) // 4)]}…"] = None
        if len(places := self._places.setdefault(kind, {})) < _MAX_SAMPLES and self.place:
            places[self.place] = None


def _replace_in_lines(text: str, mark: str, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> str:
    """Return the text with what the pattern finds replaced. It finds nothing in a line without the mark."""
    if mark not in text:
        return text
    return "\n".join(pattern.sub(replace, line) if mark in line else line for line in text.split("\n"))


def _compile_homes(home: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the last name of the home folder, and a pattern for it in paths, URLs, JSON and names made of a path."""
    paths = {home.rstrip("/"), str(Path(home).resolve())} - {"", "/"}
    for path in sorted(paths, key=lambda path: -len(path)):
        parts = [re.escape(part) for part in path.strip("/").split("/")]
        if len(parts) == 1:  # such as /root, which may also be the end of another path
            forms = [rf"(?<![\w.~-])/{parts[0]}"]
        else:
            separators = (r"(?:\\{0,2}/|%2[Ff])", "-")
            forms = [rf"(?:\\{{0,2}}/|%2[Ff])?{separator.join(parts)}" for separator in separators]
        yield Path(path).name, re.compile(rf"(?:{'|'.join(forms)})(?!\w)")


def _compile_users(environment: ExecutionEnvironment) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the user's name, and a pattern for it where it can be nothing else: paths, logins and lists of files."""
    variables = environment.variables
    for user in {variables.get("USER", ""), variables.get("LOGNAME", ""), Path(environment.home).name}:
        if len(user) < 3 or user.lower() in _COMMON_NAMES:
            continue
        name = re.escape(user)
        folders = "|".join(rf"(?<={before}){name}(?!\w)" for before in _USER_FOLDERS)
        listed = rf"\b{name}(?=[ \t]+{name}\b)|(?:(?<=[ \t])|^){name}(?=[ \t]+(?:staff|users|wheel|root|\d+)\b)"
        named = "|".join(rf"(?<={before}){name}\b" for before in _BEFORE_USERS)
        login = rf"\b{name}(?=@[\w-]|:{name}\b)|(?<=\b{name}:){name}\b"
        yield user, re.compile(f"{login}|{listed}|{folders}|{named}")
