"""Secrets that can be recognised by how they look, wherever they stand.

A shape begins with one of its `marks`, where no word is already running, and goes on as its `rest` says. No pattern
runs past a character after which it could begin again, so the time grows with the text and not with its square. Where
the marks leave no doubt less than the whole is enough, since an output may be cut in the middle of a secret.
"""

import re
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

_WORD = r"[A-Za-z0-9_-]"
_WORD_END = r"(?![A-Za-z0-9_-])"

MIN_SHAPE_CHARS = 20
"""No shape is shorter, and none has a space in it: in most texts there is little to look at."""

_UNFILLED = re.compile(r"[xX*.]{8}")


class SecretSpan(Struct, frozen=True):
    """A piece of text that is a secret, and what it is called."""

    start: int
    end: int
    name: str


class SecretShape(Struct, frozen=True):
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
    """A secret that is found by something in its middle: what comes from there on, and what must stand before it."""

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
    """The mark stands first, because the search for a plain beginning is by far the fastest."""
    return compile_cached(rf"{re.escape(mark)}(?<![A-Za-z0-9_-]{re.escape(mark)}){rest}")


def find_by_shape(text: str) -> Iterator[SecretSpan]:
    long = " ".join(word for word in text.split() if len(word) >= MIN_SHAPE_CHARS)
    if not long:
        return
    for shape in SECRET_SHAPES:
        for mark in shape.marks:
            if mark in long and _compile_shape(mark, shape.rest).search(long):
                for found in _compile_shape(mark, shape.rest).finditer(text):
                    if is_real(found[0]):
                        yield SecretSpan(found.start(), found.end(), shape.name)
    for tail in SECRET_TAILS:
        if tail.mark in long and compile_cached(tail.pattern).search(long):
            yield from _find_with_tail(tail, text)


def _find_with_tail(tail: SecretTail, text: str) -> Iterator[SecretSpan]:
    for found in compile_cached(tail.pattern).finditer(text):
        begin = max(0, found.start() - tail.reach)
        before = compile_cached(tail.before).search(text[begin : found.start()])
        if before is not None:
            yield SecretSpan(begin + before.start(), found.end(), tail.name)


def is_real(value: str) -> bool:
    """Whether it is more than a form to be filled in, such as `ghp_xxxxxxxx`."""
    return _UNFILLED.search(value) is None
