"""`odin auth`: how API keys are stored, listed, chosen and masked."""

import json
import os
import stat
import time
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest

from odin.app import open_session
from odin.app.policy import build_redactor
from odin.config import Options, load
from odin.config.auth import mask_key, read_auth_file, store_key, validate_key
from odin.config.paths import locate_key_states
from odin.core.errors import ConfigError, UsageError
from odin.core.op import SetModel
from odin.core.path_names import is_secret_path
from odin.models.key_states import KeyLimits, KeyState, KeyStates, make_fingerprint
from odin.testing import ScriptedServer, say
from tests.conftest import Run, RunHere
from tests.ui.pseudo_terminal import open_terminal

KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"
OTHER = "sk-ant-api03-ZxCvBnMaSdFgHjKlQwEr9876"

pytestmark = pytest.mark.usefixtures("no_network")


@pytest.fixture
def auth(home: Path) -> Path:
    return home / ".config/odin/auth.json"


def write_private_file(path: Path, text: str, mode: int = 0o600) -> None:
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def get_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_piped_key_is_stored_listed_and_removed(run_odin: Run, auth: Path) -> None:
    done = run_odin("auth", "add", "anthropic", input=f"{KEY}\n")
    assert done.returncode == 0, done.stderr
    assert str(auth) in done.stdout and KEY not in done.stdout + done.stderr
    assert "The key was not checked: " in done.stderr and "accepts" not in done.stdout
    assert json.loads(auth.read_text()) == {"anthropic": KEY}
    assert (get_mode(auth), get_mode(auth.parent)) == (0o600, 0o700)
    listed = run_odin("auth").stdout
    assert "* anthropic  sk-ant-…1234" in listed and KEY not in listed
    assert run_odin("auth", "remove", "anthropic").returncode == 0
    assert json.loads(auth.read_text()) == {}
    assert run_odin("auth", "remove", "anthropic").returncode == 2


def test_typed_key_is_not_shown(workspace: Path, auth: Path) -> None:
    with open_terminal("auth", "add", "openai", cwd=workspace, env={}) as terminal:
        terminal.see("API key for openai (hidden): ")
        terminal.type(f"{KEY}\n")
        code, printed = terminal.wait_for_exit()
    assert code == 0 and "Stored the openai key in" in printed
    assert KEY not in terminal.shown + printed
    assert read_auth_file(os.environ).keys == {"openai": (KEY,)}


def test_key_is_refused_as_an_argument(run_here: RunHere, auth: Path) -> None:
    code, _, said = run_here("auth", "add", "anthropic", KEY)
    assert code == 2 and not auth.exists()
    assert "odin auth --help" in said and KEY not in said
    code, _, said = run_here("auth", "add", KEY)
    assert code == 2 and "Do not pass a key as an argument" in said and KEY not in said


@pytest.mark.parametrize("text", ["", "  \n", "two words", "two\nlines", "kéy", "\x1b[2Jkey", "k" * 10_001])
def test_malformed_key_is_refused(run_odin: Run, auth: Path, text: str) -> None:
    done = run_odin("auth", "add", "anthropic", input=text)
    assert done.returncode == 2 and not auth.exists()
    assert text.strip() not in done.stderr or not text.strip()
    with pytest.raises(UsageError):
        validate_key(text)


def test_auth_lists_the_state_of_each_key(run_odin: Run, auth: Path) -> None:
    keys = [f"sk-ant-{name}-0123456789-{name}" for name in ("first", "second", "third", "fourth")]
    write_private_file(auth, json.dumps({"anthropic": keys}))
    states = KeyStates.get_shared(locate_key_states(os.environ))
    rejected = KeyState("anthropic", until=time.time() + 60, rejected="invalid.")
    known = (rejected, KeyState("anthropic", until=time.time() + 10_830, failures=1))
    for key, state in zip(keys, (*known, KeyState("anthropic", failures=1)), strict=False):
        states.set(make_fingerprint("anthropic", key), state)
    for at, until in ((2, time.time() - 1), (3, time.time() + 99)):
        states.set_limits(make_fingerprint("anthropic", keys[at]), "anthropic", "", KeyLimits(until, 40, 50, 9000))
    states.save()
    printed = run_odin("auth").stdout.replace(str(auth), "auth.json").splitlines()
    assert printed == [
        "  anthropic  sk-ant-…irst  auth.json  rejected: invalid.",
        "  anthropic  sk-ant-…cond  auth.json  cooling down, 3 h 0 min left",
        "* anthropic  sk-ant-…hird  auth.json  failed before, not tried again yet",
        "  anthropic  sk-ant-…urth  auth.json  40 of 50 requests, 9,000 tokens left",
        "",
        "* in use",
        "anthropic: 1 of 4 keys healthy, the next one in 3 h 0 min",
    ]
    run_odin("auth", "add", "anthropic", input=keys[0])
    assert "* anthropic  sk-ant-…irst  " in run_odin("auth").stdout, "a key that is stored again gets another chance"


def test_unknown_provider_is_refused_with_a_suggestion(run_odin: Run, auth: Path) -> None:
    done = run_odin("auth", "add", "antropic", input=KEY)
    assert (
        done.returncode == 2
        and "There is no provider 'antropic'. Did you mean anthropic? Known: anthropic, openai" in done.stderr
    )
    assert run_odin("auth", "add", input=KEY).returncode == 2
    assert not auth.exists()


def test_newest_key_is_used_first_and_the_others_stay(run_odin: Run, auth: Path) -> None:
    write_private_file(auth, json.dumps({"anthropic": "$WORK_KEY", "$schema": "x", "strange": 5}))
    done = run_odin("auth", "add", "anthropic", input=KEY, env={"WORK_KEY": OTHER})
    assert "2 keys are stored; this one is used first." in done.stdout
    assert json.loads(auth.read_text()) == {"anthropic": [KEY, "$WORK_KEY"], "$schema": "x", "strange": 5}
    assert OTHER not in auth.read_text(), "the value of a variable is never written to the file"
    listed = run_odin("auth", env={"WORK_KEY": OTHER})
    assert "  anthropic  $WORK_KEY" in listed.stdout
    assert "strange must be a key or a list of keys; it is ignored." in listed.stderr
    assert read_auth_file({**os.environ, "WORK_KEY": OTHER}).keys == {"anthropic": (KEY, OTHER)}


def test_settings_win_over_the_environment_and_the_auth_file(
    run_here: RunHere, home: Path, auth: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the settings is used first, then one in the environment, then a stored one."""

    def describe_keys() -> str:
        rows = json.loads(run_here("auth", "--json")[1])
        return " ".join(f"{row['kind']}{'*' if row['used'] else ''}" for row in rows)

    write_private_file(auth, json.dumps({"anthropic": ["$NOT_SET", KEY]}))
    assert describe_keys() == "stored stored*"
    monkeypatch.setenv("ANTHROPIC_API_KEY", OTHER)
    assert describe_keys() == "environment* stored stored"
    write_private_file(
        home / ".config/odin/odinconfig.json", json.dumps({"providers": {"anthropic": {"api_key": "$MINE"}}})
    )
    monkeypatch.setenv("MINE", "sk-mine-aaaaaaaaaaaaaaaaaaaaaa")
    assert describe_keys() == "settings* environment stored stored"


def test_stored_key_is_sent_unless_the_environment_has_one(run_odin: Run, auth: Path) -> None:
    write_private_file(auth, json.dumps({"anthropic": [KEY, OTHER]}))
    with ScriptedServer([say("hi")] * 2) as server:
        env = {"ANTHROPIC_BASE_URL": server.url}
        assert run_odin("-p", "hello", env=env).stdout == "hi\n"
        assert server.requests[0].headers["x-api-key"] == KEY
        assert run_odin("-p", "hello", env={**env, "ANTHROPIC_API_KEY": OTHER}).stdout == "hi\n"
        assert server.requests[1].headers["x-api-key"] == OTHER


def test_auth_file_readable_by_others_is_made_private(run_odin: Run, run_odin_process: Run, auth: Path) -> None:
    for mode in (0o640, 0o644, 0o604):
        write_private_file(auth, json.dumps({"anthropic": KEY}), mode)
        done = run_odin("auth")
        assert "was readable by other users" in done.stderr and "sk-ant-…1234" in done.stdout
        assert get_mode(auth) == 0o600
    assert run_odin_process("auth").stderr == ""


def test_auth_file_writable_by_others_is_not_used(run_odin: Run, auth: Path) -> None:
    write_private_file(auth, json.dumps({"anthropic": KEY}), 0o622)
    done = run_odin("auth")
    assert "No stored key is used:" in done.stderr and "chmod 600" in done.stderr
    assert "No API keys" in done.stdout
    assert run_odin("auth", "add", "openai", input=OTHER).returncode == 2
    assert json.loads(auth.read_text()) == {"anthropic": KEY}


def test_damaged_auth_file_is_ignored_and_not_overwritten(run_odin: Run, auth: Path) -> None:
    write_private_file(auth, "{oops")
    with ScriptedServer([say("hi")]) as server:
        done = run_odin("-p", "hello", env=server.env("anthropic"))
    assert done.stdout == "hi\n" and "No stored key is used:" in done.stderr
    assert run_odin("auth", "add", "openai", input=OTHER).returncode == 2
    assert auth.read_text() == "{oops"


@pytest.mark.parametrize("end", ["\nX-Evil: 1", "\x1b[2J", "\x00", " b", "é", "k" * 10_000], ids=ascii)
def test_malformed_stored_key_is_not_used(run_odin: Run, auth: Path, end: str) -> None:
    write_private_file(auth, json.dumps({"anthropic": [KEY + end, OTHER]}))
    with ScriptedServer([say("hi")]) as server:
        done = run_odin("-p", "hello", env={"ANTHROPIC_BASE_URL": server.url})
    assert done.stdout == "hi\n" and server.requests[0].headers["x-api-key"] == OTHER
    assert "a key of anthropic is invalid" in done.stderr and KEY not in done.stderr


def test_auth_file_of_another_user_is_not_used(auth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private_file(auth, json.dumps({"anthropic": KEY}))
    real = Path.stat

    def get_stat(path: Path, **how: bool) -> os.stat_result:
        found = list(real(path, **how))
        found[4] = 54_321 if path == auth else os.geteuid()
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", get_stat)
    found = read_auth_file(os.environ)
    assert found.keys == {} and "belongs to another user" in found.warnings[0]
    with pytest.raises(ConfigError):
        store_key("openai", OTHER, os.environ)
    assert json.loads(auth.read_text()) == {"anthropic": KEY}


def test_environment_variable_may_hold_several_keys(
    run_here: RunHere, auth: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"sk-ant-{name}-0123456789-{name}" for name in ("first", "second")]
    monkeypatch.setenv("MINE", ", ".join(keys))
    write_private_file(auth, json.dumps({"anthropic": "$MINE"}))
    assert read_auth_file(os.environ).keys == {"anthropic": tuple(keys)}
    (auth.parent / "odinconfig.json").write_text(json.dumps({"providers": {"openai": {"api_key": "$MINE"}}}))
    states = KeyStates.get_shared(locate_key_states(os.environ))
    for provider in ("anthropic", "openai"):
        states.set(make_fingerprint(provider, keys[0]), KeyState(provider, until=time.time() + 100, failures=1))
    printed = run_here("auth")[1].replace(str(auth), "auth.json").splitlines()
    assert [line.partition("  cooling")[0] for line in printed[:4]] == [
        "  anthropic  $MINE sk-ant-…irst  auth.json",
        "* anthropic  $MINE sk-ant-…cond  auth.json",
        "  openai     sk-ant-…irst        odinconfig.json",
        "* openai     sk-ant-…cond        odinconfig.json",
    ]


def test_symbolic_link_stays_and_its_target_becomes_private(run_odin: Run, auth: Path, tmp_path: Path) -> None:
    write_private_file(auth, "{}")
    elsewhere = tmp_path / "elsewhere.json"
    auth.rename(elsewhere)
    elsewhere.chmod(0o644)
    auth.symlink_to(elsewhere)
    auth.parent.chmod(0o777)
    assert run_odin("auth", "add", "anthropic", input=KEY).returncode == 0
    assert auth.is_symlink() and json.loads(elsewhere.read_text()) == {"anthropic": KEY}
    assert (get_mode(elsewhere), get_mode(auth.parent)) == (0o600, 0o700)


@pytest.mark.parametrize("kind", ["pipe", "endless", "circle"])
def test_auth_path_that_is_not_a_regular_file_is_ignored_without_blocking(run_odin: Run, auth: Path, kind: str) -> None:
    write_private_file(auth, "{}")
    auth.unlink()
    if kind == "pipe":
        os.mkfifo(auth)
    else:
        auth.symlink_to("/dev/zero" if kind == "endless" else auth)
    done = run_odin("auth")
    assert done.returncode == 0 and "No stored key is used:" in done.stderr
    assert run_odin("auth", "add", "anthropic", input=KEY).returncode == 2


async def test_stored_keys_are_redacted(workspace: Path, auth: Path) -> None:
    write_private_file(auth, json.dumps({"anthropic": [KEY, OTHER]}))
    redact = build_redactor(load(str(workspace), os.environ), os.environ, ())
    assert redact(f"a {KEY} b {OTHER} c").text == "a [redacted: key of anthropic] b [redacted: key of anthropic (2)] c"
    assert is_secret_path(str(auth))


def test_every_configured_secret_is_redacted_in_every_encoding(workspace: Path, home: Path, auth: Path) -> None:
    write_private_file(auth, json.dumps({"work": "st0red-key-of-work"}))
    work = {"api_key": "key-0ne-of-work", "api_keys": ["key-tw0-of-work"], "base_url": "http://u:pa55%2Fw0rd-1@h/v1"}
    web = {"url": "https://u:pa55w0rd-4-web@h/mcp"}
    settings = {"providers": {"work": {**work, "proxy": "http://u:pa55w0rd-2@p:1"}}, "mcp": {"web": web}}
    file = home / ".config/odin/odinconfig.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**settings, "catalog_url": "https://u:pa55w0rd-3@c/"}))
    redact = build_redactor(load(str(workspace), os.environ), os.environ, ())
    passwords = ("pa55/w0rd-1", "pa55w0rd-2", "pa55w0rd-3", "pa55w0rd-4-web")
    for secret in ("st0red-key-of-work", "key-0ne-of-work", "key-tw0-of-work", *passwords):
        login = b64encode(f"u:{secret}".encode()).decode()
        for form in (secret, quote(secret, safe=""), login):
            assert redact(f"got {form} there").secrets, form


async def test_key_stored_during_a_session_is_usable_and_redacted_at_once(workspace: Path, auth: Path) -> None:
    env = {**os.environ, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    client = await open_session(Options(cwd=str(workspace), env=env, model="offline"))
    try:
        assert [item.ref for item in await client.list_models()] == ["offline/planner"]
        assert client._deps.redact("nothing is known to be secret so far").secrets == ()
        store_key("anthropic", KEY, env)
        notes = {item.ref: item.note for item in await client.list_models()}
        assert notes["anthropic/claude-sonnet-5-5"] == "key: auth.json"
        await client.submit(SetModel("anthropic/claude-sonnet-5-5"))
        assert (await client.get_info()).model == "anthropic/claude-sonnet-5-5"
        assert client._deps.redact(f"x {KEY}").text == "x [redacted: key of anthropic]"
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("key", "shown"),
    [(KEY, "sk-ant-…1234"), ("$WORK", "$WORK"), ("${WORK}", "${WORK}"), ("abc", "…"), ("abcdefgh", "…gh")],
)
def test_masked_key_shows_its_ends_or_its_variable(key: str, shown: str) -> None:
    assert mask_key(key) == shown


def test_prompt_run_warns_of_a_readable_auth_file_and_bad_entries(run_odin: Run, auth: Path) -> None:
    write_private_file(auth, '{\n  "antropic": "sk-ant-0123456789-0123",\n  "openai": 7\n}')
    auth.chmod(0o644)
    said = run_odin("-p", "hi", "--model", "offline").stderr
    assert f"{auth} was readable by other users and is now private." in said and auth.stat().st_mode & 0o077 == 0
    assert f"{auth}, line 2: There is no provider 'antropic'. Did you mean anthropic?" in said
    assert f"{auth}, line 3: openai must be a key or a list of keys; it is ignored." in said
    assert "line 2: There is no provider 'antropic'" in run_odin("auth").stderr
