"""`odin doctor config` and `odin doctor models`."""

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odin.commands.model_probes import name_problem, probe_models
from odin.config.settings import ConfigKeys
from odin.core.errors import NoUsableKeys
from odin.testing import ScriptedServer, SeenRequest, Turn, Usage, call, fault, reply, say
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
        assert server.requests[-1].tool_names == ["report_status"]


SAID = "x refused the request (status 400): This is too much."
SIGNS = {
    "tool": b'"tools":',
    "thinking": b'"type":"enabled"',
    "effort": b'"reasoning_effort":',
    "everything": b'"model":',
    "both": b"",
}
"""How a request looks that asks for this; `both` is one that asks for a tool and an effort."""


@pytest.mark.parametrize(
    ("wire", "refuses", "settings", "told"),
    [
        (
            "anthropic",
            "",
            {},
            "  x/m (model): answers after 0 s with a tool, thinking, effort low; 1 request for $0.0123",
        ),
        ("openai-chat", "", {}, "  x/m (model): answers after 0 s with a tool, effort low; 1 request for $0.0123"),
        (
            "anthropic",
            "tool",
            {},
            f"! x/m (model): refuses a tool. {SAID} Otherwise it answers; 3 requests for $0.0369",
        ),
        (
            *("anthropic", "thinking", {}),
            "  x/m (model): answers, but refuses thinking and effort low, which your settings do not ask for. "
            f"{SAID} Otherwise it answers; 2 requests for $0.0246",
        ),
        (
            "anthropic",
            "thinking",
            {"thinking": 2000},
            f"! x/m (model): refuses thinking and effort low. {SAID} Otherwise",
        ),
        (
            "openai-chat",
            "effort",
            {},
            "  x/m (model): answers, but refuses effort low, which your settings do not ask",
        ),
        (
            "openai-chat",
            "effort",
            {"effort": "high"},
            f"! x/m (model): refuses effort high. {SAID} Otherwise it answers",
        ),
        (
            "openai-chat",
            "both",
            {},
            f"! x/m (model): refuses a tool and effort low together. {SAID} Otherwise it answers",
        ),
        ("anthropic", "everything", {}, f"! x/m (model): refused request. {SAID}"),
    ],
)
def test_models_says_what_a_model_refuses_and_what_the_try_cost(
    run_here: RunHere, user_config: Path, wire: str, refuses: str, settings: dict[str, Any], told: str
) -> None:
    def answer(seen: SeenRequest) -> Turn:
        is_refused = bool(refuses) and SIGNS[refuses] in seen.body
        if refuses == "both":
            is_refused = SIGNS["tool"] in seen.body and SIGNS["effort"] in seen.body
        if is_refused:
            return fault(400, message="This is too much.")
        return reply(
            calls=[call("report_status", {"ok": True})] * bool(seen.tool_names), usage=Usage(100, 40), text="yes"
        )

    prices: dict[str, Any] = {"price_input": 3, "price_output": 300, "tools": "native"}
    prices |= {"thinking": True} if wire == "anthropic" else {}
    with ScriptedServer(answer) as server:
        address = server.url if wire == "anthropic" else server.openai_url
        provider = {"type": wire, "base_url": address, "api_key": KEY, "models": {"m": prices}}
        user_config.write_text(json.dumps({"model": "x/m", "providers": {"x": provider}, **settings}))
        done, text, _ = run_here("doctor", "models")
        tried = len(server.requests)
        rows = json.loads(run_here("doctor", "models", "--json")[1])
    assert done == told.startswith("!")
    assert re.sub(r"after [\d.]+ s", "after 0 s", text).startswith(told)
    assert tried <= 5
    assert bool(rows[0]["refused"]) == (refuses not in ("", "everything"))


def test_models_says_that_a_model_does_not_call_its_tool_and_that_its_price_is_unknown(
    run_here: RunHere, user_config: Path
) -> None:
    with ScriptedServer(lambda _: say("yes")) as server:
        provider = {"type": "anthropic", "base_url": server.url, "api_key": KEY, "models": {"m": {"tools": "native"}}}
        settings = {"model": "x/m", "small_model": "x/small", "providers": {"x": provider}}
        user_config.write_text(json.dumps(settings))
        code, text, _ = run_here("doctor", "models")
        assert {seen.model: seen.tool_names for seen in server.requests} == {"m": ["report_status"], "small": []}
    big, small = text.splitlines()
    assert code == 0
    assert big.endswith("but did not call the report_status tool that it was asked to call; 1 request of unknown cost")
    assert small.startswith("  x/small (small_model): answers after ")


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
