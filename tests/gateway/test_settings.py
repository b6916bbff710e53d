"""What is refused before the gateway runs, and what its parts do without one."""

import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.config import Options, load
from odin.core.errors import OdinError
from odin.core.rights import Right
from odin.gateway.parts import split_text
from odin.gateway.secrets_check import is_placeholder
from odin.gateway.service import open_gateway
from odin.server.access import open_access
from odin.testing import ScriptedServer, say
from tests.conftest import RunHere
from tests.gateway.platform import TOKEN, Platform, locate_gateway, run_gateway, write_settings
from tests.table import each
from tests.waiting import until

GOOD = "8c1f5e0b9d7a42638c1f"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no secret", {"webhooks": {"ci": {}}}, "webhooks.ci.secret is not set"),
    ("blank", {"webhooks": {"ci": {"secret": "  "}}}, "is not set"),
    ("short", {"webhooks": {"ci": {"secret": "s3cret"}}}, "too easy to guess"),
    ("the same character", {"webhooks": {"ci": {"secret": "aaaaaaaaaaaaaaaaaaaaaaaa"}}}, "too easy to guess"),
    ("a literal undefined", {"webhooks": {"ci": {"secret": "undefined-undefined"}}}, "is a placeholder"),
    ("a placeholder", {"webhooks": {"ci": {"secret": "your-webhook-secret-here"}}}, "is a placeholder"),
    ("a template", {"webhooks": {"ci": {"secret": "<INSERT SECRET HERE>"}}}, "is a placeholder"),
    ("an unset variable", {"webhooks": {"ci": {"secret": "$NOT_SET_ANYWHERE"}}}, "NOT_SET_ANYWHERE is not set"),
    ("twice", {"webhooks": {"ci": {"secret": GOOD}, "cd": {"secret": GOOD}}}, "is the same as gateway.webhooks.ci"),
    ("a token that is too short", {"token": "abc"}, "it needs 8 characters, and not always "),
    ("of a channel", {"webhooks": {"ci": {"secret": TOKEN}}}, "is the same as gateway.channels.chatty.token"),
    ("of odin serve", {"webhooks": {"ci": {"secret": "SERVER"}}}, "is a token of `odin serve`"),
    ("a mistake", {"max_turns": 0}, "gateway.max_turns is ignored"),
    ("another mistake", {"max_budget_usd_per_day": "much"}, "gateway.max_budget_usd_per_day is ignored"),
]


def test_placeholders() -> None:
    """Words that stand for a secret are refused, and no token of a platform that happens to contain one."""
    refused = (
        "undefined, NULL, todo, changeme, change-me, <token>, ${TOKEN}, {{ api_key }}, xoxb-your-token-here, x-x_X"
    )
    accepted = "1234567890:AAE-todo_null_xxxx, xoxb-1234567-password-Zk9, syt_dXNlcg_undefined_1a2b3c, $k7rT0q!m"
    assert [value for value in refused.split(", ") if not is_placeholder(value)] == []
    assert [value for value in accepted.split(", ") if is_placeholder(value)] == []


@pytest.mark.parametrize(("name", "settings", "said"), REFUSED, ids=[case[0] for case in REFUSED])
async def test_it_does_not_start(home: Path, name: str, settings: dict[str, Any], said: str) -> None:
    right: Right = "prompt"
    token = open_access(os.environ).create_token("phone", right)
    if name == "of odin serve":
        settings = {"webhooks": {"ci": {"secret": token}}}
    platform = Platform()
    with ScriptedServer([]) as model, pytest.raises(OdinError, match=re.escape(said)) as refused:
        async with run_gateway(model, platform, home, **settings):
            pass
    assert TOKEN not in refused.value.describe() and token not in refused.value.describe()
    assert platform.setup is None
    assert ("platform gives you" in refused.value.describe()) == (name == "a token that is too short")


@each(
    ("channels", "said"),
    [
        ({"mychat": {"token": GOOD}}, r"gateway\.channels\.mychat: there is no channel of the type 'mychat'\. Known"),
        ({"mychat": {"token": GOOD, "type": "x"}}, r"there is no channel of the type 'x'"),
        ({"webhook": {}}, r"'webhook' is a name of Odin's own"),
        ({"system": {}}, r"'system' is a name of Odin's own"),
    ],
)
def test_unknown_channels(home: Path, run_here: RunHere, channels: dict[str, Any], said: str) -> None:
    write_settings(home, channels=channels)
    code, out, err = run_here("gateway")
    assert code == 2 and out == "" and re.search(said, err), err


def test_variables(home: Path, run_here: RunHere) -> None:
    write_settings(home, channels={"my_bot": {"token": GOOD, "owners": ["1"]}}, port=1)
    env = {
        "ODIN_GATEWAY_PORT": "2",
        "ODIN_GATEWAY_CHANNELS_MY_BOT_ALLOW_FROM": "7,8",
        "ODIN_GATEWAY_CHANNELS_OTHER_TOKEN": TOKEN,
        "ODIN_GATEWAY_WEBHOOKS_CI_SECRET": GOOD,
    }
    settings = load("/", {**os.environ, **env}).read_gateway()
    assert (settings.port, settings.channels["my_bot"].owners) == (2, ("1",))
    assert settings.channels["my_bot"].allow_from == ("7", "8") and settings.channels["other"].token == TOKEN
    assert settings.webhooks["ci"].secret == GOOD
    code, _, err = run_here("gateway", env={"ODIN_GATEWAY_PORT": "many"})
    assert code == 2 and "ODIN_GATEWAY_PORT cannot be used" in err


def test_a_project_sets_nothing(home: Path, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text('{"gateway": {"port": 1}}')
    config = load(str(workspace), os.environ)
    assert config.read_gateway().port == 18790 and "gateway is ignored in a project file" in str(config.problems)


def test_commands_without_a_gateway(home: Path, run_here: RunHere) -> None:
    assert run_here("gateway", "failed") == (0, "Nothing has failed.\n", "")
    assert run_here("gateway", "pair", "--list") == (0, "Nobody.\n", "")
    code, out, _ = run_here("gateway", "pair", "--owner")
    assert code == 0 and re.search(r"\n\n[2-9A-Z]{4}-[2-9A-Z]{4}\n$", out)
    assert run_here("gateway", "pair", "AAAA-AAAA")[2].startswith("odin: This code is not valid")
    assert run_here("gateway", "pair", "--revoke", "x:y")[2].startswith("odin: 'x:y' is not paired.")
    assert {path.stat().st_mode & 0o077 for path in locate_gateway().iterdir()} == {0}


@each(
    ("text", "limit", "parts"),
    [
        ("", 10, []),
        ("  \n\n ", 10, []),
        ("one\n\ntwo", 10, ["one\n\ntwo"]),
        ("one\n\ntwo\n\nthree", 10, ["one\n\ntwo", "three"]),
        ("one\ntwo\nthree", 8, ["one\ntwo", "three"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("a\n\n```\nb\n\nc\n```\n\nd", 14, ["a", "```\nb\n\nc\n```", "d"]),
        ("```py\n1111\n2222\n```", 14, ["```py\n1111\n```", "```py\n2222\n```"]),
        ("~~~\n```\nx\n~~~\n\ny", 15, ["~~~\n```\nx\n~~~", "y"]),
        ("```\nnever closed", 30, ["```\nnever closed"]),
    ],
)
def test_texts_are_cut_between_paragraphs(text: str, limit: int, parts: list[str]) -> None:
    assert split_text(text, limit) == parts


async def test_the_channel_of_the_documentation(home: Path, tmp_path: Path) -> None:
    """The example answers a file, and a package with its entry point is what provides it."""
    text = Path(__file__).parents[2].joinpath("docs/gateway.md").read_text()
    names: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], names)
    channels = {"folder": {"options": {"path": str(tmp_path)}, "owners": ["me"]}}
    write_settings(home, channels=channels)
    (tmp_path / "question.txt").write_text("how are you?")
    with ScriptedServer([say("fine")]) as model:
        options = Options(env={**os.environ, **model.env("anthropic")})
        async with open_gateway(options, io.StringIO(), built_in={"folder": names["FolderChannel"]}):
            answers = await until(lambda: list(tmp_path.glob("question.*.answer")))
    assert [answer.read_text() for answer in answers] == ["fine"]
    assert (tmp_path / "question.taken").exists()


def test_entry_points(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: RunHere) -> None:
    """A channel of a package is found, and one that cannot be loaded is named."""
    dist = tmp_path / "broken_chat-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-chat\nVersion: 1.0\n")
    (dist / "entry_points.txt").write_text("[odin.channels]\nbroken = broken_chat:Channel\n")
    (tmp_path / "broken_chat.py").write_text(f"raise RuntimeError('no {TOKEN}')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    write_settings(home, channels={"broken": {"token": TOKEN}})
    code, _, err = run_here("gateway")
    assert code == 2 and "The channel 'broken' (broken_chat:Channel) cannot be used: RuntimeError" in err
    assert TOKEN not in err
