"""Finds secrets in a text by shape, by context and by known value. Loaded with the first text to redact.

- Shapes: tokens with a known prefix, and PEM private keys, even if cut off at the end.
- Context: values in URLs, in headers and after names such as `password=`. Only the value is redacted, and only if it
  can hardly be anything else, because most mentions of tokens and passwords are not secrets.
- Files: values in secret files that git or a search prints, in diffs and in lines that start with a file name.
- Known values: secrets from the environment and the configuration, in every encoding a program may print.

No pattern runs past a character at which it could start again, so the time is linear in the length of the text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property

from msgspec import Struct

from odin.core.path_names import is_secret_path
from odin.core.policy import MIN_SECRET_CHARS, list_encodings

_WORD = r"[A-Za-z0-9_-]"
_WORD_END = r"(?![A-Za-z0-9_-])"

MIN_SHAPE_CHARS = 20
"""Every shape is at least this long and has no space, so most texts need no further search."""

_UNFILLED = re.compile(r"[xX*.]{8}")


class SecretSpan(Struct, frozen=True):
    """The position of a secret in a text, and its name."""

    start: int
    end: int
    name: str


class SecretShape(Struct, frozen=True):
    """A secret that starts with one of `marks` at a word boundary and continues as the pattern `rest`.

    `rest` may match less than the whole secret if the marks are unambiguous: output may be cut in the middle.
    """

    name: str
    marks: tuple[str, ...]
    rest: str


SECRET_SHAPES = (
    SecretShape("Anthropic key", ("sk-ant-",), rf"{_WORD}{{20,}}+"),
    SecretShape("OpenAI key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), rf"{_WORD}{{20,}}+"),
    SecretShape("OpenRouter key", ("sk-or-",), rf"{_WORD}{{20,}}+"),
    SecretShape("API key", ("sk-",), rf"[A-Za-z0-9]{{32,}}+{_WORD_END}"),
    SecretShape("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{20,}+"),
    SecretShape("GitHub token", ("github_pat_",), r"[A-Za-z0-9_]{24,}+"),
    SecretShape(
        "GitLab token",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "glimt-"),
        rf"{_WORD}{{20,}}+",
    ),
    SecretShape(
        "Slack token",
        ("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
        r"(?=[A-Za-z%-]*+\d)[A-Za-z0-9%-]{20,}+",
    ),
    SecretShape("AWS access key id", ("AKIA", "ASIA", "ABIA", "ACCA"), rf"[A-Z0-9]{{16}}{_WORD_END}"),
    SecretShape("Google API key", ("AIza",), rf"{_WORD}{{35}}{_WORD_END}"),
    SecretShape("Google OAuth token", ("ya29.",), r"[A-Za-z0-9_.-]{20,}+"),
    SecretShape("Google OAuth secret", ("GOCSPX-",), rf"{_WORD}{{20,}}+"),
    SecretShape("Stripe key", ("sk_live_", "rk_live_"), r"[A-Za-z0-9]{16,}+"),
    SecretShape("Stripe webhook secret", ("whsec_",), r"[A-Za-z0-9+/]{24,}+=*"),
    SecretShape("npm token", ("npm_",), rf"[A-Za-z0-9]{{36}}{_WORD_END}"),
    SecretShape("PyPI token", ("pypi-Ag",), rf"{_WORD}{{24,}}+"),
    SecretShape("Hugging Face token", ("hf_",), rf"[A-Za-z0-9]{{30,}}+{_WORD_END}"),
    SecretShape("Twilio key", ("SK",), rf"[0-9a-f]{{32}}{_WORD_END}"),
    SecretShape("SendGrid key", ("SG.",), rf"{_WORD}{{16,32}}\.{_WORD}{{32,64}}{_WORD_END}"),
    SecretShape("Azure key", ("AccountKey=", "SharedAccessKey="), r"[A-Za-z0-9+/]{40,}+=*"),
    SecretShape("DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{24,}+"),
    SecretShape("Docker token", ("dckr_pat_",), rf"{_WORD}{{20,}}+"),
    SecretShape("Databricks token", ("dapi",), rf"[0-9a-f]{{32}}(?:-\d)?{_WORD_END}"),
    SecretShape("Groq key", ("gsk_",), r"[A-Za-z0-9]{24,}+"),
    SecretShape("xAI key", ("xai-",), r"[A-Za-z0-9]{24,}+"),
    SecretShape("Vault token", ("hvs.", "hvb."), rf"{_WORD}{{24,}}+"),
    SecretShape("Shopify token", ("shpat_", "shpss_", "shpca_", "shppa_"), rf"[0-9a-fA-F]{{32}}{_WORD_END}"),
    SecretShape("Figma token", ("figd_",), rf"{_WORD}{{35,}}+"),
    SecretShape("Notion token", ("ntn_",), r"[A-Za-z0-9]{40,}+"),
    SecretShape("New Relic key", ("NRAK-",), rf"[A-Z0-9]{{27}}{_WORD_END}"),
    SecretShape("Perplexity key", ("pplx-",), r"[A-Za-z0-9]{40,}+"),
    SecretShape("Replicate token", ("r8_",), rf"[A-Za-z0-9]{{37}}{_WORD_END}"),
    SecretShape("PlanetScale secret", ("pscale_tkn_", "pscale_pw_"), rf"{_WORD}{{32,}}+"),
    SecretShape("Grafana token", ("glsa_",), rf"[A-Za-z0-9]{{32}}_[0-9a-f]{{8}}{_WORD_END}"),
    SecretShape("Heroku key", ("HRKU-",), rf"{_WORD}{{36,}}+"),
    SecretShape("Supabase token", ("sbp_",), rf"[0-9a-f]{{40}}{_WORD_END}"),
    SecretShape("Doppler token", ("dp.pt.", "dp.st.", "dp.ct."), r"[A-Za-z0-9]{40,}+"),
    SecretShape("Linear key", ("lin_api_",), r"[A-Za-z0-9]{32,}+"),
    SecretShape("age key", ("AGE-SECRET-KEY-1",), r"[A-Z0-9]{58}"),
    SecretShape("JWT", ("eyJ",), rf"{_WORD}{{8,}}+\.eyJ{_WORD}{{8,}}+\.{_WORD}{{16,}}+"),
)


class SecretTail(Struct, frozen=True):
    """A secret found by a mark in its middle.

    `pattern` matches the text from the mark on, `before` the end of the `reach` characters before it.
    """

    name: str
    mark: str
    pattern: str
    before: str
    reach: int


SECRET_TAILS = (
    SecretTail("Telegram bot token", ":AA", rf":AA{_WORD}{{32,35}}{_WORD_END}", r"(?<![A-Za-z0-9])\d{8,10}$", 12),
    SecretTail("Discord token", ".", r"\.[\w-]{6}\.[\w-]{27,45}(?![\w.-])", r"(?<![\w.-])[MNO][\w-]{23,27}$", 30),
    SecretTail("Terraform token", ".atlasv1.", r"\.atlasv1\.[\w-]{60,}+", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}$", 16),
    SecretTail("Slack webhook", "hooks.slack.com/", r"/(?:services|workflows)/[\w/-]{20,}+", r"hooks\.slack\.com$", 16),
    SecretTail("Discord webhook", "/api/webhooks/", r"/\d{15,22}/[\w-]{50,}+", r"/api/webhooks$", 16),
)


@cache
def compile_cached(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


@cache
def _compile_shape(mark: str, rest: str) -> re.Pattern[str]:
    """Compile a shape. The mark comes first, because searching for a literal prefix is by far the fastest."""
    return compile_cached(rf"{re.escape(mark)}(?<![A-Za-z0-9_-]{re.escape(mark)}){rest}")


def find_by_shape(text: str) -> Iterator[SecretSpan]:
    long = " ".join(word for word in text.split() if len(word) >= MIN_SHAPE_CHARS)
    if not long:
        return
    for shape in SECRET_SHAPES:
        for mark in shape.marks:
            if mark in long and _compile_shape(mark, shape.rest).search(long):
                for match in _compile_shape(mark, shape.rest).finditer(text):
                    if is_real(match[0]):
                        yield SecretSpan(match.start(), match.end(), shape.name)
    for tail in SECRET_TAILS:
        if tail.mark in long and compile_cached(tail.pattern).search(long):
            yield from _find_with_tail(tail, text)


def _find_with_tail(tail: SecretTail, text: str) -> Iterator[SecretSpan]:
    for match in compile_cached(tail.pattern).finditer(text):
        begin = max(0, match.start() - tail.reach)
        before = compile_cached(tail.before).search(text[begin : match.start()])
        if before is not None:
            yield SecretSpan(begin + before.start(), match.end(), tail.name)


def is_real(value: str) -> bool:
    """False for a dummy value such as `ghp_xxxxxxxx`."""
    return _UNFILLED.search(value) is None


PRIVATE_KEY_MARK = "PRIVATE KEY"
MAX_BLOCK_CHARS = 30_000
"""The longest key block, including line prefixes of a listing."""

_BLOCK_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{2,10} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_END = re.compile(r"-----END (?:[A-Z0-9]{2,10} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_BODY = re.compile(r"[A-Za-z0-9+/=]{32}")
_BLOCK_LINES = re.compile(r"(?:(?:\\[nr]|\s|[ \t\d:|>→+-])*+[A-Za-z0-9+/=]{20,}+)+")


def find_key_blocks(text: str) -> Iterator[SecretSpan]:
    if PRIVATE_KEY_MARK not in text:
        return
    starts = list(_BLOCK_BEGIN.finditer(text))
    for number, begin in enumerate(starts):
        limit = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        limit = min(limit, begin.end() + MAX_BLOCK_CHARS)
        end = _BLOCK_END.search(text, begin.end(), limit)
        if end is not None and _BLOCK_BODY.search(text, begin.end(), end.start()):
            yield SecretSpan(begin.start(), end.end(), "private key")
        elif end is None and (lines := _BLOCK_LINES.match(text, begin.end(), limit)):
            yield SecretSpan(begin.start(), lines.end(), "private key")


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
"""The ends of variable names that hold secrets, and patterns for the text before: a page token is not a secret."""

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
"""Identifiers of programming languages, and words joined by hyphens or underscores."""


def find_by_context(text: str) -> Iterator[SecretSpan]:
    if "://" in text and "@" in text:
        yield from _find_in_addresses(text)
    folded = _fold_case(text)
    for name, pattern in _SCHEMES.items():
        for match in compile_cached(pattern).finditer(folded) if name.split()[0] in folded else ():
            if _is_opaque(text[slice(*match.span("value"))]):
                yield SecretSpan(*match.span("value"), name)
    for name, (stem, before) in _SECRET_STEMS.items():
        for match in compile_cached(stem + _ASSIGNED).finditer(folded) if stem in folded else ():
            if _is_named(before, folded, match) and _is_secret(text, stem, match):
                yield SecretSpan(*match.span("value"), name)


def _fold_case(text: str) -> str:
    """Return the text in lower case with the same length."""
    folded = text.lower()
    return folded if len(folded) == len(text) else "".join(char.lower()[0] for char in text)


def _find_in_addresses(text: str) -> Iterator[SecretSpan]:
    for match in compile_cached(_ADDRESS_PASSWORD).finditer(text):
        value = match["value"]
        if value != match["user"] and not _PLACEHOLDER.search(value) and not value.isdigit():
            yield SecretSpan(*match.span("value"), "password in an address")


def _is_named(before: str, folded: str, match: "re.Match[str]") -> bool:
    start = match.start()
    return not before or compile_cached(before).search(folded[max(0, start - _STEM_PREFIX_CHARS) : start]) is not None


def _is_secret(text: str, stem: str, match: "re.Match[str]") -> bool:
    value = text[slice(*match.span("value"))]
    if _PLACEHOLDER.search(value) or not is_real(value) or not _is_whole(match["open"], match["after"]):
        return False
    if _UUID.fullmatch(value) or not _is_opaque(value):
        return False
    if match["sign"] == "=" and not match["gap"] and _is_set_by(text, stem, match.start()):
        return True
    return len(value) >= 16 and len(set(value)) >= 8 and sum(char.isdigit() for char in value) >= 2


def _is_set_by(text: str, stem: str, start: int) -> bool:
    """True if the name is upper case, as in an environment file, or a `--` option."""
    return text.startswith(stem.upper(), start) or text[max(0, start - 2) : start] == "--"


def _is_whole(opening: str, after: str) -> bool:
    """True if the value ends at its closing quote and is not the start of an expression."""
    return after in (opening, "\\") if opening else after not in ("(", "[", "{", "$", "<")


def _is_opaque(value: str) -> bool:
    """True if a value looks random: letters and digits, not an identifier or a placeholder."""
    mixed = any(char.isdigit() for char in value) and any(char.isalpha() for char in value)
    return mixed and is_real(value) and not _PLACEHOLDER.search(value) and not _IDENTIFIER.fullmatch(value)


_LONG_LINE = 32

_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS|SECRET|PRIVATE)?_?KEYS?(?:_ID|_BASE64|_B64|_PEM|_\d+)?|TOKENS?(?:_SECRET|_\d+)?|PAT|JWT"
    r"|SECRETS?(?:_\w+)?|PASSWORDS?(?:_\w+)?|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|CREDS|AUTH|COOKIES?|DSN|WEBHOOK(?:_URL)?"
    r"|CONNECTION_STRING)$|^(?:PGPASSWORD|SSHPASS)$",
    re.IGNORECASE,
)
"""Variables whose values are redacted. Commands are denied more variables, but ordinary values must stay readable."""

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
    """Known secrets by name, in every encoding in which they may appear. Encodings are computed on first use."""

    def __init__(self, environ: Mapping[str, str], more: Iterable[tuple[str, str]]) -> None:
        self._environ = dict(environ)
        self._more = sorted(more)

    @cached_property
    def _forms(self) -> list[tuple[str, str]]:
        """Every encoded form with the name of its secret, longest first."""
        forms: dict[str, str] = {}
        known = [*self._more, *_find_environment_secrets(self._environ)]
        names = "\n".join(name for name, _ in known)
        for name, value in known:
            for text in _secret_parts_of(value):
                if text not in names:  # else it would match inside its own placeholder
                    forms.update((form, name) for form in list_encodings(text) if form not in forms)
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
        elif "://" in value and (match := _URL_PASSWORD.search(value)):
            yield name, match[1]


def _secret_parts_of(value: str) -> Iterator[str]:
    """Yield the whole value and, if it has several lines, each line long enough to be a secret itself."""
    whole = value.strip()
    lines = [line.strip() for line in whole.splitlines()]
    long = [line for line in lines if len(line) >= _LONG_LINE and not re.search(r"\s|-----", line)]
    yield from (part for part in dict.fromkeys((whole, *long)) if is_worth_hiding(part))


def is_worth_hiding(value: str) -> bool:
    """False for paths, numbers, flags and common words, which appear everywhere."""
    if len(value) < MIN_SECRET_CHARS or len(set(value)) < 4:
        return False
    if _PATH_OR_NUMBER.match(value) or _EVERYDAY_WORDS.fullmatch(value):
        return False
    return len(value) >= _LONG_NAME or not _WORD_SEQUENCE.fullmatch(value)


def find_secrets(text: str, values: KnownValues) -> list[SecretSpan]:
    listed = [
        SecretSpan(*span, "value of a secret file") for span in find_listed_values(text) if _is_hidden(text, *span)
    ]
    found = [*values.find_spans(text), *find_key_blocks(text), *find_by_shape(text), *find_by_context(text)]
    return merge_spans([*found, *listed])


def _is_hidden(text: str, start: int, end: int) -> bool:
    return not text.startswith("[redacted: ", start)


def redact_spans(text: str, spans: Iterable[SecretSpan]) -> str:
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += [text[at : span.start], f"[redacted: {span.name}]"]
        at = span.end
    return "".join([*pieces, text[at:]])


def merge_spans(spans: Iterable[SecretSpan]) -> list[SecretSpan]:
    """Return the spans in order. Overlapping spans are merged and keep the first name."""
    merged: list[SecretSpan] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = SecretSpan(last.start, max(last.end, span.end), last.name)
        else:
            merged.append(span)
    return merged


_STYLE = re.compile(r"\x1b\[[\d;]*[mK]")
_LINE_LEAD = re.compile(r"(?:\x1b\[[\d;]*[mK]|[^\w\x1b\"'\n])*")
"""What may stand before the text of a line in a diff: colors, `+` and `-`, a graph, marks of changed words."""
_DIFF_FILE = re.compile(
    r"(?:[|*/\\_ ]{2,})?(?:diff -.* (?P<file>\S+)|(?:\+\+\+|---) (?P<side>[^\t]+)|(?P<end>commit [0-9a-f]{7,64}))"
)
"""The start of a file's section, maybe behind a graph. A line of the file itself begins with a sign or one blank."""
_LISTED = re.compile(r"(?:[\w./@~^-]+:)?(?P<path>[\w./@+-]+)[:-](?:\d+[:-])?")
_LISTED_SETTING = re.compile(r"^(?=[^=:\n]*+[=:])[\w./@~^+:-]*[:-].*", re.MULTILINE)
"""Lines that may match `_LISTED` and then `_SETTING`: all others are skipped without a call of their own."""
_SETTING = re.compile(r"[+\- ]?\s*(?:export\s+)?[\"']?(?P<name>[A-Za-z_][\w.-]*)[\"']?\s*[=:]\s*(?P<value>\S.*)")
_PLAIN_VALUE = re.compile(r"[\"']?(?:true|false|yes|no|on|off|null|none|\d{1,5}|localhost|)[\"']?[,;]?", re.IGNORECASE)


def find_listed_values(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of every value of a secret file in the output of git or a search."""
    if "diff -" in text or "+++ " in text:
        yield from _find_diff_values(text)
        return
    for line in _LISTED_SETTING.finditer(text):
        start = _find_listed_start(line[0])
        span = _find_value(line[0], start) if start >= 0 else None
        if span is not None:
            yield line.start() + span[0], line.start() + span[1]


def _find_diff_values(text: str) -> Iterator[tuple[int, int]]:
    """Do the same for a text with diffs, in which every line of a secret file's section may hold a value."""
    secret_section = False
    at = 0
    for line in text.split("\n"):
        mark = _DIFF_FILE.match(_STYLE.sub("", line) if "\x1b" in line else line)
        if mark is not None and not mark["side"]:
            secret_section = mark["end"] is None and is_secret_path(mark["file"])
        elif mark is not None and is_secret_path(mark["side"]):
            secret_section = True
        else:
            start = _measure_lead(line) if secret_section else _find_listed_start(line)
            span = _find_value(line, start) if start >= 0 else None
            if span is not None:
                yield at + span[0], at + span[1]
        at += len(line) + 1


def _measure_lead(line: str) -> int:
    lead = _LINE_LEAD.match(line)
    return lead.end() if lead is not None else 0


def _find_value(line: str, start: int) -> tuple[int, int] | None:
    """Return the span of a setting's value, unless it is a plain one such as `true`."""
    setting = _SETTING.match(line, start)
    if setting is None or _PLAIN_VALUE.fullmatch(setting["value"]):
        return None
    return setting.span("value")


def _find_listed_start(line: str) -> int:
    """Return where the text of a secret file starts in a line such as `.env:3:KEY=value`, or -1."""
    listed = _LISTED.match(line)
    if listed is None or not is_secret_path(listed["path"]):
        return -1
    return listed.end()
