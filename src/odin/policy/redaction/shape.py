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
_END = r"(?![A-Za-z0-9_-])"

SHORTEST = 20
"""No shape is shorter, and none has a space in it: in most texts there is little to look at."""

_BLANK = re.compile(r"[xX*.]{8}")


class Span(Struct, frozen=True):
    """A piece of text that is a secret, and what it is called."""

    start: int
    end: int
    name: str


class Shape(Struct, frozen=True):
    name: str
    marks: tuple[str, ...]
    rest: str


SHAPES = (
    Shape("Anthropic key", ("sk-ant-",), rf"{_WORD}{{20,}}+"),
    Shape("OpenAI key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), rf"{_WORD}{{20,}}+"),
    Shape("OpenRouter key", ("sk-or-",), rf"{_WORD}{{20,}}+"),
    Shape("API key", ("sk-",), rf"[A-Za-z0-9]{{32,}}+{_END}"),
    Shape("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{20,}+"),
    Shape("GitHub token", ("github_pat_",), r"[A-Za-z0-9_]{24,}+"),
    Shape(
        "GitLab token",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "glimt-"),
        rf"{_WORD}{{20,}}+",
    ),
    Shape(
        "Slack token",
        ("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
        r"(?=[A-Za-z%-]*+\d)[A-Za-z0-9%-]{20,}+",
    ),
    Shape("AWS access key id", ("AKIA", "ASIA", "ABIA", "ACCA"), rf"[A-Z0-9]{{16}}{_END}"),
    Shape("Google API key", ("AIza",), rf"{_WORD}{{35}}{_END}"),
    Shape("Google OAuth token", ("ya29.",), r"[A-Za-z0-9_.-]{20,}+"),
    Shape("Google OAuth secret", ("GOCSPX-",), rf"{_WORD}{{20,}}+"),
    Shape("Stripe key", ("sk_live_", "rk_live_"), r"[A-Za-z0-9]{16,}+"),
    Shape("Stripe webhook secret", ("whsec_",), r"[A-Za-z0-9+/]{24,}+=*"),
    Shape("npm token", ("npm_",), rf"[A-Za-z0-9]{{36}}{_END}"),
    Shape("PyPI token", ("pypi-Ag",), rf"{_WORD}{{24,}}+"),
    Shape("Hugging Face token", ("hf_",), rf"[A-Za-z0-9]{{30,}}+{_END}"),
    Shape("Twilio key", ("SK",), rf"[0-9a-f]{{32}}{_END}"),
    Shape("SendGrid key", ("SG.",), rf"{_WORD}{{16,32}}\.{_WORD}{{32,64}}{_END}"),
    Shape("Azure key", ("AccountKey=", "SharedAccessKey="), r"[A-Za-z0-9+/]{40,}+=*"),
    Shape("DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{24,}+"),
    Shape("Docker token", ("dckr_pat_",), rf"{_WORD}{{20,}}+"),
    Shape("Databricks token", ("dapi",), rf"[0-9a-f]{{32}}(?:-\d)?{_END}"),
    Shape("Groq key", ("gsk_",), r"[A-Za-z0-9]{24,}+"),
    Shape("xAI key", ("xai-",), r"[A-Za-z0-9]{24,}+"),
    Shape("Vault token", ("hvs.", "hvb."), rf"{_WORD}{{24,}}+"),
    Shape("Shopify token", ("shpat_", "shpss_", "shpca_", "shppa_"), rf"[0-9a-fA-F]{{32}}{_END}"),
    Shape("Figma token", ("figd_",), rf"{_WORD}{{35,}}+"),
    Shape("Notion token", ("ntn_",), r"[A-Za-z0-9]{40,}+"),
    Shape("New Relic key", ("NRAK-",), rf"[A-Z0-9]{{27}}{_END}"),
    Shape("Perplexity key", ("pplx-",), r"[A-Za-z0-9]{40,}+"),
    Shape("Replicate token", ("r8_",), rf"[A-Za-z0-9]{{37}}{_END}"),
    Shape("PlanetScale secret", ("pscale_tkn_", "pscale_pw_"), rf"{_WORD}{{32,}}+"),
    Shape("Grafana token", ("glsa_",), rf"[A-Za-z0-9]{{32}}_[0-9a-f]{{8}}{_END}"),
    Shape("Heroku key", ("HRKU-",), rf"{_WORD}{{36,}}+"),
    Shape("Supabase token", ("sbp_",), rf"[0-9a-f]{{40}}{_END}"),
    Shape("Doppler token", ("dp.pt.", "dp.st.", "dp.ct."), r"[A-Za-z0-9]{40,}+"),
    Shape("Linear key", ("lin_api_",), r"[A-Za-z0-9]{32,}+"),
    Shape("age key", ("AGE-SECRET-KEY-1",), r"[A-Z0-9]{58}"),
    Shape("JWT", ("eyJ",), rf"{_WORD}{{8,}}+\.eyJ{_WORD}{{8,}}+\.{_WORD}{{16,}}+"),
)


class Tail(Struct, frozen=True):
    """A secret that is found by something in its middle: what comes from there on, and what must stand before it."""

    name: str
    mark: str
    pattern: str
    before: str
    reach: int


TAILS = (
    Tail("Telegram bot token", ":AA", rf":AA{_WORD}{{32,35}}{_END}", r"(?<![A-Za-z0-9])\d{8,10}$", 12),
    Tail("Discord token", ".", r"\.[\w-]{6}\.[\w-]{27,45}(?![\w.-])", r"(?<![\w.-])[MNO][\w-]{23,27}$", 30),
    Tail("Terraform token", ".atlasv1.", r"\.atlasv1\.[\w-]{60,}+", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}$", 16),
    Tail("Slack webhook", "hooks.slack.com/", r"/(?:services|workflows)/[\w/-]{20,}+", r"hooks\.slack\.com$", 16),
    Tail("Discord webhook", "/api/webhooks/", r"/\d{15,22}/[\w-]{50,}+", r"/api/webhooks$", 16),
)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


@cache
def _after(mark: str, rest: str) -> re.Pattern[str]:
    """The mark stands first, because the search for a plain beginning is by far the fastest."""
    return compiled(rf"{re.escape(mark)}(?<![A-Za-z0-9_-]{re.escape(mark)}){rest}")


def by_shape(text: str) -> Iterator[Span]:
    long = " ".join(word for word in text.split() if len(word) >= SHORTEST)
    if not long:
        return
    for shape in SHAPES:
        for mark in shape.marks:
            if mark in long and _after(mark, shape.rest).search(long):
                for found in _after(mark, shape.rest).finditer(text):
                    if is_real(found[0]):
                        yield Span(found.start(), found.end(), shape.name)
    for tail in TAILS:
        if tail.mark in long and compiled(tail.pattern).search(long):
            yield from _with_tail(tail, text)


def _with_tail(tail: Tail, text: str) -> Iterator[Span]:
    for found in compiled(tail.pattern).finditer(text):
        begin = max(0, found.start() - tail.reach)
        before = compiled(tail.before).search(text[begin : found.start()])
        if before is not None:
            yield Span(begin + before.start(), found.end(), tail.name)


def is_real(value: str) -> bool:
    """Whether it is more than a form to be filled in, such as `ghp_xxxxxxxx`."""
    return _BLANK.search(value) is None
