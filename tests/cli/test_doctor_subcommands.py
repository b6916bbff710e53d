"""`odin doctor config` and `odin doctor models`."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odin.commands.models import name_problem, probe_models
from odin.config.settings import ConfigKeys
from odin.core.errors import NoUsableKeys
from odin.testing import ScriptedServer, fault, say
from tests.conftest import Run, RunHere

KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"


@pytest.fixture
def user_config(home: Path) -> Path:
    path = home / ".config/odin/odinconfig.json"
    path.parent.mkdir(parents=True)
    return path


def test_config_lists_every_key_with_its_value_and_source(
    run_here: RunHere, user_config: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = {"api_key": KEY, "headers": {"X-Api-Key": KEY, "x-team": "a"}, "base_url": "http://h/v1"}
    user_config.write_text(
        '{\n  "model": "work/big",\n  "max_tokens": 100,\n\n  "providers": ' + json.dumps({"work": secret}) + "\n}\n"
    )
    project = workspace / "odinconfig.json"
    project.write_text('{"max_tokens": 50}')
    monkeypatch.setenv("ODIN_MAX_TURNS", "7")
    code, printed, _ = run_here("doctor", "config", "--json")
    found = json.loads(printed)
    rows = {row["key"]: row for row in found["settings"]}
    assert code == 0 and list(rows) == list(ConfigKeys.__struct_encode_fields__)
    assert found["files"] == [str(user_config), str(project)] and found["wrong"] == []
    assert rows["model"] == {
        "key": "model",
        "value": "work/big",
        "layer": "user",
        "source": str(user_config),
        "line": 2,
    }
    assert (rows["max_tokens"]["value"], rows["max_tokens"]["layer"], rows["max_tokens"]["line"]) == (50, "project", 1)
    assert (rows["max_turns"]["value"], rows["max_turns"]["source"]) == (7, "ODIN_MAX_TURNS")
    assert rows["mode"]["layer"] == "default"
    assert rows["providers"]["value"]["work"]["headers"] == {"X-Api-Key": "sk-ant-…1234", "x-team": "a"}
    assert rows["providers"]["line"] == 5
    text = run_here("doctor", "config")[1]
    assert KEY not in text + printed
    assert f'model: "work/big"  ({user_config}:2)\n' in text and "max_turns: 7  (ODIN_MAX_TURNS)\n" in text
    assert text.endswith("No problems found.\n")


def test_config_shows_the_name_of_a_variable_instead_of_its_value(
    run_here: RunHere, user_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    user_config.write_text('{"providers": {"anthropic": {"api_key": "$MY_KEY"}}}')
    printed = run_here("doctor", "config")[1]
    assert '"$MY_KEY"' in printed and KEY not in printed


@pytest.mark.unknown_keys
def test_config_reports_problems_with_file_and_line(run_here: RunHere, user_config: Path) -> None:
    user_config.write_text('{\n  "mdoel": "x",\n  "mode": "edit",\n  "max_turns": "many"\n}')
    wrong = json.loads(run_here("doctor", "config", "--json")[1])["wrong"]
    assert [(item["file"], item["line"]) for item in wrong] == [(str(user_config), 2), (str(user_config), 4)]
    text = run_here("doctor", "config")[1]
    assert f'{user_config}:2: unknown key "mdoel" is ignored. Did you mean "model"?' in text
    user_config.write_text('{\n  "mode": "edit"\n  "model": "x"}')
    code, printed, _ = run_here("doctor", "config")
    assert code == 1 and f"{user_config}, line 3, column 3: not valid JSON" in printed


def test_models_reports_which_models_answer(run_odin: Run, user_config: Path) -> None:
    with ScriptedServer([say("yes")]) as server:
        settings = {
            "model": "main",
            "model_pools": {"main": ["here/good", "spare"], "spare": ["here/good"]},
            "small_model": "gone/bad",
            "fallback_model": ["here/good"],
            "providers": {
                "here": {"type": "anthropic", "base_url": server.url, "api_key": KEY},
                "gone": {"base_url": "http://127.0.0.1:9/v1"},
            },
        }
        user_config.write_text(json.dumps(settings))
        done = run_odin("doctor", "models")
        assert done.returncode == 1, done.stderr
        bad, good = done.stdout.splitlines()
        assert good.startswith("  here/good (fallback_model 1, pool main, pool spare): answers after ")
        assert bad.startswith(
            "! gone/bad (small_model): no server. Cannot reach http://127.0.0.1:9: connection refused."
        )
        assert server.requests[-1].json["max_tokens"] == 64


async def test_silent_model_fails_after_the_timeout(workspace: Path, user_config: Path) -> None:
    from tests.providers.servers import Connection, serve

    async def silent(connection: Connection) -> None:
        await connection.read_request()
        await connection.wait_closed()

    async with serve(silent) as spot:
        slow: dict[str, Any] = {"base_url": f"{spot.url}/v1", "models": {"x": {}}}
        user_config.write_text(json.dumps({"model": "slow/x", "providers": {"slow": slow}}))
        env = {"HOME": str(user_config.parent.parent.parent), "ODIN_LOCAL_PORTS": ""}
        (answer,) = await probe_models(str(workspace), env, timeout=0.3)
    assert (answer.ref, answer.ok, answer.text) == ("slow/x", False, "no answer within 0.3 s")


async def test_each_kind_of_failure_has_a_plain_name(workspace: Path, user_config: Path) -> None:
    """One provider for each kind of failure, and one that lists its models only on request."""
    faults = {
        "key": (fault(400, code="API_KEY_INVALID", message="API key not valid."), "bad key"),
        "credit": (fault(402, message="Payment required"), "no credit"),
        "name": (fault(404, message="models/m is not found for API version v1beta"), "unknown model"),
        "page": (fault(404, {"content-type": "text/html"}, "<html>nothing</html>"), "wrong URL"),
        "path": (fault(404, body={"detail": "Not Found"}), "wrong URL"),
        "busy": (fault(503), "provider is failing"),
        "limit": (fault(429), "rate limit"),
        "filter": (say("", stop="SAFETY"), "blocked"),
        "brief": (say("", stop="max_tokens"), ""),
        "fine": (say("yes"), ""),
    }
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(ScriptedServer([turn], models=["m"])) for name, (turn, _) in faults.items()
        }
        providers: dict[str, Any] = {
            name: {"type": "gemini", "base_url": server.url, "api_key": KEY, "models": {"m": {}}}
            for name, server in servers.items()
        }
        providers["fine"].pop("models")
        providers["proxy"] = {"base_url": "http://model.test/v1", "api_key": KEY, "models": {"m": {}}}
        providers["empty"] = {"base_url": "http://127.0.0.1:9/v1"}
        user_config.write_text(json.dumps({"providers": providers}))
        env = {
            "HOME": str(user_config.parent.parent.parent),
            "ODIN_LOCAL_PORTS": "",
            "HTTP_PROXY": "http://127.0.0.1:9",
        }
        answers = {
            answer.ref.partition("/")[0]: answer for answer in await probe_models(str(workspace), env, timeout=9)
        }
    wanted = {name: problem for name, (_, problem) in faults.items()}
    found = {name: answer.problem for name, answer in answers.items()}
    assert found == {**wanted, "proxy": "proxy", "empty": "no models"}
    assert answers["fine"].ref == "fine/m" and answers["fine"].ok
    assert all(KEY not in answer.text for answer in answers.values())
    named = [name_problem(error) for error in (NoUsableKeys("No key."), NoUsableKeys("All rejected.", status=401))]
    assert named == ["no key", "bad key"]


def test_models_lists_servers_on_this_machine(run_odin: Run) -> None:
    with ScriptedServer([], local="ollama") as server:
        done = run_odin("doctor", "models", "--json", env={"ODIN_LOCAL_PORTS": str(server.port)})
    assert done.returncode == 0, done.stderr
    assert [(item["ref"], item["ok"]) for item in json.loads(done.stdout)] == [("ollama/scripted-model", True)]


def test_models_without_a_configured_model_exits_with_zero(run_odin: Run) -> None:
    done = run_odin("doctor", "models")
    assert done.returncode == 0 and done.stdout.startswith("No models configured")
