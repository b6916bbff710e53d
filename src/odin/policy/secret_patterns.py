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


SECRET_SHAPES = (
    ("Anthropic key", "sk-ant-", rf"{_WORD}{{20,}}+"),
    ("OpenAI key", "sk-proj- sk-svcacct- sk-admin-", rf"{_WORD}{{20,}}+"),
    ("OpenRouter key", "sk-or-", rf"{_WORD}{{20,}}+"),
    ("API key", "sk-", rf"[A-Za-z0-9]{{32,}}+{_WORD_END}"),
    ("Cerebras key", "csk-", r"[A-Za-z0-9]{32,}+"),
    ("Together key", "tgp_v1_", rf"{_WORD}{{32,}}+"),
    ("Fireworks key", "fw_", rf"(?=[a-z0-9]*+[A-Z])[A-Za-z0-9]{{22,}}+{_WORD_END}"),
    ("Brave key", "BSA", rf"(?=[A-Za-z_-]*+\d){_WORD}{{28}}{_WORD_END}"),
    ("NVIDIA key", "nvapi-", rf"{_WORD}{{40,}}+"),
    ("Bedrock key", "ABSK", r"[A-Za-z0-9+/]{80,}+=*"),
    ("Bedrock key", "bedrock-api-key-", r"[A-Za-z0-9+/]{40,}+=*"),
    ("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{20,}+"),
    ("GitHub token", "github_pat_", r"[A-Za-z0-9_]{24,}+"),
    ("GitLab token", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- glimt-", rf"{_WORD}{{20,}}+"),
    (
        "Slack token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-",
        r"(?=[A-Za-z%-]*+\d)[A-Za-z0-9%-]{20,}+",
    ),
    ("AWS access key id", "AKIA ASIA ABIA ACCA", rf"[A-Z0-9]{{16}}{_WORD_END}"),
    ("Google API key", "AIza", rf"{_WORD}{{35}}{_WORD_END}"),
    ("Google API key", "AQ.", rf"Ab8{_WORD}{{40,}}+"),
    ("Google OAuth token", "ya29.", r"[A-Za-z0-9_.-]{20,}+"),
    ("Google OAuth secret", "GOCSPX-", rf"{_WORD}{{20,}}+"),
    ("Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[A-Za-z0-9]{16,}+"),
    ("Stripe webhook secret", "whsec_", r"[A-Za-z0-9+/]{24,}+=*"),
    ("Odin token", "odin_", rf"(?=[a-z0-9_-]*+[A-Z]){_WORD}{{43}}{_WORD_END}"),
    ("npm token", "npm_", rf"[A-Za-z0-9]{{36}}{_WORD_END}"),
    ("PyPI token", "pypi-Ag", rf"{_WORD}{{24,}}+"),
    ("Hugging Face token", "hf_", rf"[A-Za-z0-9]{{30,}}+{_WORD_END}"),
    ("Twilio key", "SK", rf"[0-9a-f]{{32}}{_WORD_END}"),
    ("SendGrid key", "SG.", rf"{_WORD}{{16,32}}\.{_WORD}{{32,64}}{_WORD_END}"),
    ("Azure key", "AccountKey= SharedAccessKey=", r"[A-Za-z0-9+/]{40,}+=*"),
    ("DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{24,}+"),
    ("Docker token", "dckr_pat_", rf"{_WORD}{{20,}}+"),
    ("Databricks token", "dapi", rf"[0-9a-f]{{32}}(?:-\d)?{_WORD_END}"),
    ("Groq key", "gsk_", r"[A-Za-z0-9]{24,}+"),
    ("xAI key", "xai-", r"[A-Za-z0-9]{24,}+"),
    ("Vault token", "hvs. hvb.", rf"{_WORD}{{24,}}+"),
    ("Shopify token", "shpat_ shpss_ shpca_ shppa_", rf"[0-9a-fA-F]{{32}}{_WORD_END}"),
    ("Figma token", "figd_", rf"{_WORD}{{35,}}+"),
    ("Notion token", "ntn_", r"[A-Za-z0-9]{40,}+"),
    ("New Relic key", "NRAK-", rf"[A-Z0-9]{{27}}{_WORD_END}"),
    ("Perplexity key", "pplx-", r"[A-Za-z0-9]{40,}+"),
    ("Replicate token", "r8_", rf"[A-Za-z0-9]{{37}}{_WORD_END}"),
    ("PlanetScale secret", "pscale_tkn_ pscale_pw_", rf"{_WORD}{{32,}}+"),
    ("Grafana token", "glsa_", rf"[A-Za-z0-9]{{32}}_[0-9a-f]{{8}}{_WORD_END}"),
    ("Heroku key", "HRKU-", rf"{_WORD}{{36,}}+"),
    ("Supabase token", "sbp_", rf"[0-9a-f]{{40}}{_WORD_END}"),
    ("Doppler token", "dp.pt. dp.st. dp.ct.", r"[A-Za-z0-9]{40,}+"),
    ("Linear key", "lin_api_", r"[A-Za-z0-9]{32,}+"),
    ("1Password token", "ops_eyJ", rf"{_WORD}{{40,}}+"),
    ("age key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{58}"),
    ("JWT", "eyJ", rf"{_WORD}{{8,}}+\.eyJ{_WORD}{{8,}}+\.{_WORD}{{16,}}+"),
)
"""Names of secrets, the marks they start with at a word boundary, and how they go on.

The last part may match less than the whole secret if the marks are unambiguous: output may be cut in the middle.
"""

MIDDLE_SHAPES = (
    ("Azure key", "JQQJ99", r"(?<![A-Za-z0-9])[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{20,}+"),
    ("Telegram bot token", ":AA", rf"(?<![A-Za-z0-9])\d{{8,10}}:AA{_WORD}{{32,35}}{_WORD_END}"),
    ("Discord token", ".", r"(?<![\w.-])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,45}(?![\w.-])"),
    ("Terraform token", ".atlasv1.", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}+"),
    ("link of a share", "#share/", rf"#share/[0-9a-f]{{8}}/[\w-]{{22}}{_WORD_END}"),
    ("Slack webhook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows)/[\w/-]{20,}+"),
    ("Discord webhook", "/api/webhooks/", r"/api/webhooks/\d{15,22}/[\w-]{50,}+"),
)
"""Names of secrets, a mark in their middle, and the whole pattern."""


@cache
def compile_cached(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def find_by_shape(text: str) -> Iterator[SecretSpan]:
    long = " ".join(word for word in text.split() if len(word) >= MIN_SHAPE_CHARS)
    found = [(name, pattern) for name, mark, pattern in MIDDLE_SHAPES if mark in long]
    for name, marks, rest in SECRET_SHAPES:
        # The mark comes before the check of the boundary, because searching for a literal prefix is by far the fastest.
        in_text = (re.escape(mark) for mark in marks.split() if mark in long)
        found += [(name, rf"{mark}(?<![A-Za-z0-9_-]{mark}){rest}") for mark in in_text]
    for name, pattern in found:
        for match in compile_cached(pattern).finditer(text) if compile_cached(pattern).search(long) else ():
            if is_real(match[0]):
                yield SecretSpan(match.start(), match.end(), name)


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
    for match in compile_cached(_ADDRESS_PASSWORD).finditer(text) if "://" in text and "@" in text else ():
        value = match["value"]
        if value != match["user"] and not _PLACEHOLDER.search(value) and not value.isdigit():
            yield SecretSpan(*match.span("value"), "password in an address")
    folded = text.lower()
    if len(folded) != len(text):  # a few letters become two
        folded = "".join(char.lower()[0] for char in text)
    for name, pattern in _SCHEMES.items():
        for match in compile_cached(pattern).finditer(folded) if name.split()[0] in folded else ():
            if is_opaque(text[slice(*match.span("value"))]):
                yield SecretSpan(*match.span("value"), name)
    for name, (stem, before) in _SECRET_STEMS.items():
        for match in compile_cached(stem + _ASSIGNED).finditer(folded) if stem in folded else ():
            start = match.start()
            if compile_cached(before).search(folded[max(0, start - _STEM_PREFIX_CHARS) : start]) is None:
                continue
            if _is_assigned_secret(text, stem, match):
                yield SecretSpan(*match.span("value"), name)


def _is_assigned_secret(text: str, stem: str, match: "re.Match[str]") -> bool:
    value, opening, after = text[slice(*match.span("value"))], match["open"], match["after"]
    # The value must end at its closing quote and not be the start of an expression.
    is_whole = after in (opening, "\\") if opening else after not in ("(", "[", "{", "$", "<")
    if not is_whole or _UUID.fullmatch(value) or not is_opaque(value):
        return False
    # An upper-case name, as in an environment file, or a `--` option is followed by a value of any length.
    start = match.start()
    is_set = text.startswith(stem.upper(), start) or text[max(0, start - 2) : start] == "--"
    if is_set and match["sign"] == "=" and not match["gap"]:
        return True
    return len(value) >= 16 and len(set(value)) >= 8 and sum(char.isdigit() for char in value) >= 2


def is_opaque(value: str) -> bool:
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
            for text in _list_secret_parts(value):
                if text not in names:  # else it would match inside its own placeholder
                    forms.update((form, name) for form in list_encodings(text) if form not in forms)
        return sorted(forms.items(), key=lambda item: -len(item[0]))

    def find_spans(self, text: str) -> Iterator[SecretSpan]:
        for form, name in self._forms:
            start = text.find(form)
            while start >= 0:
                yield SecretSpan(start, start + len(form), name)
                start = text.find(form, start + len(form))

    @cached_property
    def _phrases(self) -> list[str]:
        """The forms that have several words."""
        return [form for form, _ in self._forms if len(form.split()) > 1]

    def find_open_end(self, text: str) -> int:
        """Return where the text ends with the beginning of a known value of several words, or its length."""
        sizes = (
            size
            for form in self._phrases
            for size in range(min(len(form) - 1, len(text)), 0, -1)
            if text.endswith(form[:size])
        )
        return len(text) - max(sizes, default=0)


def _find_environment_secrets(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if _SECRET_VARIABLE.search(name):
            yield name, value
        elif "://" in value and (match := _URL_PASSWORD.search(value)):
            yield name, match[1]


def _list_secret_parts(value: str) -> Iterator[str]:
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


def is_secret_setting(name: str, value: str) -> bool:
    """True if a variable with this name and value would be redacted if it were in the environment."""
    return bool(_SECRET_VARIABLE.search(name)) and is_worth_hiding(value) and _PLACEHOLDER.search(value) is None


def find_secrets(text: str, values: KnownValues) -> list[SecretSpan]:
    """Return the spans in order. Overlapping spans are merged and keep the first name."""
    listed = (
        SecretSpan(start, end, "value of a secret file")
        for start, end in find_listed_values(text)
        if not text.startswith("[redacted: ", start)
    )
    found = [*values.find_spans(text), *find_key_blocks(text), *find_by_shape(text), *find_by_context(text), *listed]
    merged: list[SecretSpan] = []
    for span in sorted(found, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = SecretSpan(last.start, max(last.end, span.end), last.name)
        else:
            merged.append(span)
    return merged


_CONTEXT_MARKS = ("://", *(name.split()[0] for name in _SCHEMES), *(stem for stem, _ in _SECRET_STEMS.values()))


def find_open_end(text: str, values: KnownValues) -> int:
    """Return where a secret may begin that goes on after the text; its length if none can.

    It may be in the last word, in a line that speaks of secrets, or in a block that has not ended.
    """
    words = text.rsplit(maxsplit=1)
    start = len(text) if not words or text[-1:].isspace() else len(text) - len(words[-1])
    line = text.rfind("\n", 0, start) + 1
    if any(mark in text[line:].lower() for mark in _CONTEXT_MARKS):
        start = line
    block = text.rfind("-----BEGIN")
    is_key = block >= 0 and (_BLOCK_BEGIN.match(text, block) or "\n" not in text[block:])
    if is_key and _BLOCK_END.search(text, block) is None:
        start = min(start, block)
    start = min(start, values.find_open_end(text))
    inside = (span.start for span in find_secrets(text, values) if span.start < start < span.end)
    return next(inside, start)


_STYLE = re.compile(r"\x1b\[[\d;]*[mK]")
_LINE_LEAD = re.compile(r"(?:\x1b\[[\d;]*[mK]|[^\w\x1b\"'\n])*")
"""What may stand before the text of a line in a diff: colors, `+` and `-`, a graph, marks of changed words."""
_DIFF_FILE = re.compile(
    r"(?:[|*/\\_ ]{2,})?(?:diff -.* (?P<file>\S+)|(?:\+\+\+|---) (?P<side>[^\t]+)|(?P<end>commit [0-9a-f]{7,64}))"
)
"""The start of a file's section, maybe behind a graph. A line of the file itself begins with a sign or one blank."""
_LISTED = (
    re.compile(r"(?:[\w./@~^-]+:)?(?P<path>[\w./@+-]+?)(?P<sign>[:-])\d+(?P=sign)"),
    re.compile(r"(?:[\w./@~^-]+:)?(?P<path>[\w./@+-]+)[:-]"),
)
"""What stands before a line in the output of a search, with and without line numbers, maybe after a revision."""
_LISTED_SETTING = re.compile(r"^(?=[^=:\n]*+[=:])[\w./@~^+:-]*[:-].*", re.MULTILINE)
"""Lines that may match `_LISTED` and then `_SETTING`: all others are skipped without a call of their own."""
_SETTING = re.compile(r"[+\- ]?\s*(?:export\s+)?[\"']?(?P<name>[A-Za-z_][\w.-]*)[\"']?\s*[=:]\s*(?P<value>\S.*)")
_PLAIN_VALUE = re.compile(r"[\"']?(?:true|false|yes|no|on|off|null|none|\d{1,5}|localhost|)[\"']?[,;]?", re.IGNORECASE)


def find_listed_values(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of every value of a secret file in the output of git or a search.

    In a diff, every line in the section of a secret file may hold a value.
    """
    has_diff = "diff -" in text or "+++ " in text
    in_secret_file = False
    for line in re.finditer(r".+", text) if has_diff else _LISTED_SETTING.finditer(text):
        mark = _DIFF_FILE.match(_STYLE.sub("", line[0])) if has_diff else None
        if mark is not None and (not mark["side"] or is_secret_path(mark["side"])):
            in_secret_file = is_secret_path(mark["file"] or mark["side"] or "")
            continue
        # A search prints lines such as `.env:3:KEY=value`.
        listed = (found for pattern in _LISTED if (found := pattern.match(line[0])) and is_secret_path(found["path"]))
        before = _LINE_LEAD.match(line[0]) if in_secret_file else next(listed, None)
        if before is None:
            continue
        setting = _SETTING.match(line[0], before.end())
        if setting is not None and not _PLAIN_VALUE.fullmatch(setting["value"]):
            yield line.start() + setting.start("value"), line.start() + setting.end("value")
