"""Redaction: secrets are removed, other text stays. The keys are made up from pieces and do not exist."""

import base64
import json
import random
import string
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.policy.secrets import Redactor
from tests.table import each

MIXED = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"
HEX = "0123456789abcdef" * 4
PATTERN_REDACTOR = Redactor({})

KEYS = [
    ("Anthropic key", "sk-ant-" + "api03-" + MIXED * 2),
    ("OpenAI key", "sk-" + "proj-" + MIXED + "_" + MIXED),
    ("OpenAI key", "sk-" + "svcacct-" + MIXED),
    ("OpenRouter key", "sk-" + "or-v1-" + HEX),
    ("API key", "sk-" + MIXED + MIXED[:16]),
    ("Cerebras key", "csk-" + MIXED + MIXED[:16]),
    ("Together key", "tgp_v1_" + MIXED + "-_345678901"),
    ("Fireworks key", "fw_" + MIXED[:24]),
    ("NVIDIA key", "nvapi-" + MIXED * 2),
    ("Brave key", "BSA" + MIXED[:26] + "-_"),
    ("Bedrock key", "ABSK" + MIXED * 3 + "=="),
    ("Bedrock key", "bedrock-api-key-" + MIXED * 4),
    ("Google API key", "AQ." + "Ab8" + MIXED + "-_345678901"),
    ("Azure key", MIXED + MIXED[:20] + "JQQJ99" + MIXED[:26]),
    ("1Password token", "ops_eyJ" + MIXED * 4),
    ("Stripe key", "sk_" + "test_" + MIXED[:24]),
    ("GitHub token", "ghp_" + MIXED + "1234"),
    ("GitHub token", "gho_" + MIXED + "1234"),
    ("GitHub token", "ghs_" + MIXED + "1234"),
    ("GitHub token", "github" + "_pat_" + MIXED[:22] + "_" + MIXED + MIXED[:27]),
    ("GitLab token", "glpat-" + MIXED[:20]),
    ("Slack token", "xoxb-" + "123456789012-123456789012-" + MIXED[:24]),
    ("AWS access key id", "AKIA" + "Q3EGRGS4XMPL7ZY2"),
    ("AWS access key id", "ASIA" + "Q3EGRGS4XMPL7ZY2"),
    ("Google API key", "AIza" + MIXED + "-_9"),
    ("Google OAuth token", "ya29." + MIXED),
    ("Stripe key", "sk_" + "live_" + MIXED[:24]),
    ("Stripe key", "rk_" + "live_" + MIXED[:24]),
    ("Odin token", "odin_" + MIXED + "1234-6_8901"),
    ("npm token", "npm_" + MIXED + "1234"),
    ("PyPI token", "pypi-" + "AgEIcHlwaS5vcmc" + MIXED * 2),
    ("Hugging Face token", "hf_" + MIXED + "ab"),
    ("Twilio key", "SK" + HEX[:32]),
    ("SendGrid key", "SG." + MIXED[:22] + "." + MIXED + MIXED[:11]),
    ("Telegram bot token", "123456789:AA" + MIXED + "z"),
    ("Discord token", "M" + MIXED[:23] + "." + MIXED[:6] + "." + MIXED[:27]),
    ("JWT", "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + MIXED),
    ("Vault token", "hvs." + MIXED),
    ("Shopify token", "shpat" + "_" + HEX[:32]),
    ("Figma token", "figd" + "_" + MIXED + MIXED[:8]),
    ("Notion token", "ntn" + "_" + MIXED + MIXED[:14]),
    ("New Relic key", "NRAK" + "-" + "Q3EGRGS4XMPL7ZY2Q3EGRGS4XMP"),
    ("Perplexity key", "pplx" + "-" + MIXED + MIXED[:16]),
    ("Replicate token", "r8" + "_" + MIXED + MIXED[:5]),
    ("PlanetScale secret", "pscale" + "_tkn_" + MIXED + MIXED[:11]),
    ("Grafana token", "glsa" + "_" + MIXED + "_" + HEX[:8]),
    ("Heroku key", "HRKU" + "-" + MIXED + MIXED[:8]),
    ("Supabase token", "sbp" + "_" + HEX[:40]),
    ("Doppler token", "dp" + ".pt." + MIXED + MIXED[:11]),
    ("Linear key", "lin" + "_api_" + MIXED + MIXED[:8]),
    ("Terraform token", MIXED[:14] + ".atlasv1." + MIXED + MIXED),
]


@each(("name", "key"), KEYS)
@each("frame", ["{}", "key: {}\n", '{{"a": "{}"}}', "x={};", "curl -H '{}' u", "   12\t{}", "a\n{}\nb"])
def test_key_of_a_known_format_is_redacted(name: str, key: str, frame: str):
    done = PATTERN_REDACTOR(frame.format(key))
    assert key not in done.text
    assert key[8:-2] not in done.text
    assert frame.split("{}")[0].replace("{{", "{") in done.text
    assert done.secrets
    assert f"[redacted: {done.secrets[0]}]" in done.text
    if frame == "{}":
        assert done.text == f"[redacted: {name}]"
        assert done.secrets == (name,)


def make_pem(kind: str = "RSA ", lines: int = 6) -> str:
    body = "\n".join(MIXED + MIXED for _ in range(lines))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\nabc=\n-----END {kind}PRIVATE KEY-----"


@pytest.mark.parametrize("mark", ["ghp_", "github" + "_pat_", "gsk_", "xai-", "pypi-" + "Ag", "dop_v1_"])
def test_truncated_key_is_redacted(mark: str):
    """Output may be cut in the middle of a secret."""
    rest = HEX[:30] if mark == "dop_v1_" else MIXED[:30]
    assert PATTERN_REDACTOR(f"2591 line {mark}{rest}").text.startswith("2591 line [redacted: ")


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_private_key_is_redacted_as_a_whole(kind: str):
    assert PATTERN_REDACTOR(f"before\n{make_pem(kind)}\nafter").text == "before\n[redacted: private key]\nafter"


def test_private_key_is_redacted_in_json_in_numbered_lines_and_without_its_end():
    assert (
        PATTERN_REDACTOR(json.dumps({"private_key": make_pem()})).text == '{"private_key": "[redacted: private key]"}'
    )
    numbered = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(make_pem().splitlines(), 1))
    assert MIXED not in PATTERN_REDACTOR(numbered).text
    cut = PATTERN_REDACTOR("\n".join(make_pem().splitlines()[:4]) + "\n\nThe file is longer.")
    assert cut.text == "[redacted: private key]\n\nThe file is longer."


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgres://app:Sup3rS3cret@db:5432/x", "postgres://app:[redacted: password in an address]@db:5432/x"),
        (f"Authorization: Bearer {MIXED}", "Authorization: Bearer [redacted: authorization header]"),
        (f"authorization: Basic {MIXED}==", "authorization: Basic [redacted: authorization header]"),
        (f"-H 'X-Api-Key: {MIXED}'", "-H 'X-Api-Key: [redacted: api key]'"),
        (f'"aws_secret_access_key": "{MIXED}+/Abcdef"', '"aws_secret_access_key": "[redacted: api key]"'),
        (f"SecretAccessKey = {MIXED}/x1+Zzzz", "SecretAccessKey = [redacted: api key]"),
        (f"client_secret: '{MIXED}'", "client_secret: '[redacted: secret]'"),
        ("DB_PASSWORD=tr0ub4dor3", "DB_PASSWORD=[redacted: password]"),
        ("mysql --password=tr0ub4dor3 shop", "mysql --password=[redacted: password] shop"),
        (f'{{"access_token":"{MIXED}"}}', '{"access_token":"[redacted: token]"}'),
        (json.dumps(json.dumps({"password": MIXED})), '"{\\"password\\": \\"[redacted: password]\\"}"'),
    ],
)
def test_value_after_a_secret_name_or_in_a_url_is_redacted(text: str, kept: str):
    assert PATTERN_REDACTOR(text).text == kept


NOT_SECRET = [
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "sha256:" + HEX,
    '"integrity": "sha512-' + base64.b64encode(bytes(range(64))).decode() + '"',
    "id = 123e4567-e89b-12d3-a456-426614174000",
    "token: 123e4567-e89b-12d3-a456-426614174000",
    "use a key such as sk-... or ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    'api_key = os.environ["OPENAI_API_KEY"]',
    "password = config.database.password2",
    "token = generate_token_2(user_id_1, 16)",
    "private_key: Ed25519PrivateKey | None",
    "const accessToken = await getAccessTokenFromStore2();",
    'password="${DB_PASSWORD}"',
    "PASSWORD=changeme",
    "API_KEY=your-api-key-123",
    "https://user:password@example.com/",
    "redis://user:$PASS@host",
    "max_tokens: 4096",
    '"nextPageToken": "CAUQAA1234567890abcdEFGH"',
    "git@github.com:me/repo.git",
    "class sk-fading-circle-and-some-more-words { }",
    "-----BEGIN PUBLIC KEY-----\n" + MIXED * 4 + "\n-----END PUBLIC KEY-----",
    'if "-----BEGIN RSA PRIVATE KEY-----" in text and "-----END RSA PRIVATE KEY-----" in text: pass',
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <your-token-here>",
    "the bearer of this authentication-certificate-document",
    "eyJhbGciOiJIUzI1NiJ9",
    "tokenizer_revision: 3f786850e387550fdab836ed7e6dc881de23001b",
    "mysql --password=mysecret --token=$TOKEN --passwords=yes",
    "SKIP_TESTS=1 ASIA AKIA AIza hf_ npm_config_yes=true",
]


@each("text", NOT_SECRET)
def test_text_that_only_looks_like_a_secret_is_kept(text: str):
    assert PATTERN_REDACTOR(text) == type(PATTERN_REDACTOR(text))(text)


# --- the values of the environment ---

VALUE = "pa$$w0rd/with+'odd\" chars"
ENVIRONMENT_REDACTOR = Redactor(
    {"SHOP_PASSWORD": VALUE, "DEPLOY_TOKEN": MIXED[:20], "PATH": "/usr/bin:/bin", "HOME": "/home/me"}
)


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        quote(VALUE, safe=""),
        json.dumps(VALUE),
        "'" + VALUE.replace("'", "'\\''") + "'",
        base64.b64encode(VALUE.encode()).decode(),
        base64.b64encode(b"user:" + VALUE.encode()).decode(),
        base64.b64encode(b"me:" + VALUE.encode() + b"\n").decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
        VALUE.encode().hex(),
    ],
)
def test_environment_value_is_redacted_in_every_encoding(form: str):
    done = ENVIRONMENT_REDACTOR(f"before {form} after")
    assert done.secrets == ("SHOP_PASSWORD",)
    assert "[redacted: SHOP_PASSWORD]" in done.text
    assert form not in done.text
    assert done.text.startswith("before ")
    assert done.text.endswith(" after")


def test_every_secret_is_named_once_and_in_order():
    done = ENVIRONMENT_REDACTOR(f"{MIXED[:20]} and {VALUE} and {MIXED[:20]}")
    assert done.text == "[redacted: DEPLOY_TOKEN] and [redacted: SHOP_PASSWORD] and [redacted: DEPLOY_TOKEN]"
    assert done.secrets == ("DEPLOY_TOKEN", "SHOP_PASSWORD")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_TOKEN", "true"),
        ("API_TOKEN", "disabled"),
        ("API_TOKEN", "password"),
        ("API_TOKEN", "1234567890"),
        ("API_TOKEN", "short7"),
        ("SSH_KEY", "/home/me/.ssh/id_ed25519"),
        ("SSH_KEY", "~/.ssh/id_ed25519"),
        ("SORT_KEY", "created_at"),
        ("A_SECRET", "aaaaaaaaaaaa"),
        ("EDITOR", "a-value-of-Some-2-kind"),
        ("KEYBOARD", "a-value-of-Some-2-kind"),
    ],
)
def test_everyday_environment_values_are_kept(name: str, value: str):
    text = f"say {value} twice: {value}"
    assert Redactor({name: value})(text).text == text


@pytest.mark.parametrize("value", ["supersecret", "hunter2hunter2", "correct-horse-battery-staple", "s3cr3t!!"])
def test_password_variable_with_an_ordinary_word_is_redacted(value: str):
    assert Redactor({"DB_PASSWORD": value})(f"say {value}").text == "say [redacted: DB_PASSWORD]"


def test_password_in_a_url_of_the_environment_is_redacted():
    made = Redactor({"DATABASE_URL": "postgres://app:correct-h0rse@db/shop"})
    assert made("it is correct-h0rse").text == "it is [redacted: DATABASE_URL]"
    assert made("host db, user app").secrets == ()


def test_lines_of_a_key_in_the_environment_are_redacted_but_not_its_header():
    made = Redactor({"DEPLOY_PRIVATE_KEY": make_pem()})
    assert made(f"1: {MIXED}{MIXED}").text == "1: [redacted: DEPLOY_PRIVATE_KEY]"
    assert made("-----BEGIN RSA PRIVATE KEY-----").secrets == ()


def test_configured_keys_are_redacted_with_their_names():
    made = Redactor({}, {"key of work": "w0rk-key-of-mine"})
    assert made("w0rk-key-of-mine").text == "[redacted: key of work]"


def test_value_that_is_part_of_a_variable_name_is_kept():
    made = Redactor({"THE_T0KEN_AB_KEY": "T0KEN_AB", "OTHER_TOKEN": MIXED})
    assert made(f"T0KEN_AB {MIXED}").text == "T0KEN_AB [redacted: OTHER_TOKEN]"


# --- properties of all texts ---

PIECES = st.one_of(
    st.text(max_size=40),
    st.sampled_from([key for _, key in KEYS]),
    st.sampled_from(NOT_SECRET),
    st.sampled_from(
        [VALUE, make_pem(), "token=", "password: ", "Authorization: Bearer ", "://a:", "@host", "[redacted: ", "]"]
    ),
)


@pytest.mark.slow
@given(st.lists(PIECES, max_size=8))
def test_redaction_is_idempotent(pieces: list[str]):
    once = ENVIRONMENT_REDACTOR("".join(pieces))
    assert ENVIRONMENT_REDACTOR(once.text).text == once.text
    assert bool(once.secrets) == (once.text != "".join(pieces))


@given(st.text(max_size=60), st.sampled_from(KEYS), st.text(max_size=60))
def test_key_between_spaces_is_always_redacted(before: str, key: tuple[str, str], after: str):
    assert key[1] not in PATTERN_REDACTOR(f"{before} {key[1]} {after}").text


def test_key_inside_a_placeholder_is_redacted():
    key = KEYS[5][1]
    assert key not in PATTERN_REDACTOR(f"[redacted: {key}]").text


LONG_TEXTS = [
    "a" * 1_000_000,
    "sk-" * 333_000,
    "sk-ant-" * 140_000,
    "eyJ" * 333_000,
    "eyJaaaaaaaaa." * 77_000,
    "-----BEGIN RSA PRIVATE KEY-----\n" * 31_000,
    ("-----BEGIN PRIVATE KEY-----" + "\n" * 50) * 13_000,
    "-----BEGIN PRIVATE KEY-----" + ("\n" + "A" * 19) * 50_000,
    "token=" * 166_000,
    "token : " * 120_000,
    "token" + " " * 999_000,
    "bearer " * 140_000,
    "://a:b" * 160_000,
    "://" + "a" * 500_000 + ":" + "b" * 499_000,
    "Mabcdefghijklmnopqrstuvw.abcdef." * 31_000,
    "12345678:AA" * 90_000,
    "SG." + "a" * 32 + "." * 900_000,
    "İ" * 300_000 + "token=",
]


@pytest.mark.slow
def test_redaction_time_is_not_quadratic():
    """Each of these takes a fraction of a second; with quadratic time they would take hours."""
    made = Redactor(
        {f"SERVICE{n}_TOKEN": "".join(random.Random(n).choices(string.ascii_letters, k=40)) for n in range(9)}
    )
    started = time.process_time()
    for text in LONG_TEXTS:
        made(text)
    assert time.process_time() - started < 60


@each(
    "start",
    [
        ".env:",
        "./.env:3:",
        "/a/my-project/prod.env:12:",
        "a-1/b.env-12-",
        ".env-",
        "HEAD:.env:3:",
        "HEAD~2:a/.env:",
    ],
)
def test_a_search_in_secret_files(start: str):
    """With and without line numbers, lines of context, and of a revision."""
    assert PATTERN_REDACTOR(f"{start}NAME=two words").text == f"{start}NAME=[redacted: value of a secret file]"
    other = f"{start.replace('.env', '.py')}NAME=two words"
    assert PATTERN_REDACTOR(other).text == other
