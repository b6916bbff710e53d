"""The reasoning effort, set by flag, setting or slash command: it applies from the next request for the session."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odin.core.errors import UsageError
from odin.core.event import EffortChanged
from odin.core.op import SetEffort, SetModel
from odin.testing import ScriptedServer, say
from odin.ui.slash_commands.actions import ACTIONS
from odin.ui.slash_commands.reports import gather_status

from .conftest import Start, Talk

VARIANTS = {"cheap": {"effort": "minimal"}}


def make_config(server: ScriptedServer, **more: Any) -> dict[str, Any]:
    models: dict[str, Any] = {"gpt-6-sol": {"tools": "native", "variants": VARIANTS}, "gpt-4o": {"tools": "native"}}
    work = {"type": "openai-responses", "base_url": server.openai_url, "api_key": "k", "models": models}
    return {"providers": {"w": work}, **more}


def list_efforts(server: ScriptedServer) -> list[str]:
    """Return the effort of each request to the strict server."""
    assert server.rejected == []
    return [json.loads(seen.body).get("reasoning", {}).get("effort", "") for seen in server.requests]


async def start_session(start: Start, server: ScriptedServer, model: str = "w/gpt-6-sol", **how: Any) -> Talk:
    config = make_config(server, **how.pop("config", {}))
    return await start(None, server=server, config=config, model=model, env={"ODIN_MODEL": ""}, **how)


async def test_an_effort_applies_to_the_next_request_and_holds_for_the_session(start: Start) -> None:
    with ScriptedServer([say(f"{number}") for number in range(6)]) as server:
        talk = await start_session(start, server)
        await talk.say("a")
        await talk.client.submit(SetEffort("high"))
        await talk.say("b")
        info = await talk.client.get_info()
        assert info.effort == "high"
        assert ("effort", "high") in await gather_status(talk.client)
        await talk.client.close()
        again = await start_session(start, server, resume=info.session)
        await again.say("c")
        await again.client.submit(SetEffort("none"))
        await again.say("d")
        await again.client.submit(SetEffort(""))
        await again.say("e")
        assert list_efforts(server) == ["", "high", "high", "none", ""]
        assert [event.effort for event in again.all(EffortChanged)][-2:] == ["none", ""]


async def test_the_budget_of_an_effort_stays_within_the_output_limit(start: Start) -> None:
    talk = await start([say("ok")], model="anthropic/claude-opus-4-1", effort="max")
    assert (await talk.say("go")).text == "ok"
    assert talk.server.rejected == []
    assert json.loads(talk.server.requests[0].body)["thinking"]["budget_tokens"] == 32_000 - 8192


async def test_later_variant_replaces_the_effort_and_a_plain_model_keeps_it(start: Start) -> None:
    with ScriptedServer([say(f"{number}") for number in range(4)]) as server:
        talk = await start_session(start, server, effort="high")
        await talk.say("a")
        await talk.client.submit(SetModel("w/gpt-6-luna"))
        await talk.say("b")
        await talk.client.submit(SetModel("w/gpt-6-sol@cheap"))
        await talk.say("c")
        session = (await talk.client.get_info()).session
        await talk.client.close()
        again = await start_session(start, server, model="", resume=session)
        await again.say("d")
        assert list_efforts(server) == ["high", "high", "none", "none"]


async def test_model_that_does_not_reason_takes_no_effort(start: Start) -> None:
    with ScriptedServer([say("ok"), say("ok"), say("ok")]) as server:
        talk = await start_session(start, server, "w/gpt-4o", effort="low", config={"effort": "high"})
        sentence = "w/gpt-4o does not reason, so it takes no effort."
        assert sentence in (await talk.client.get_info()).warnings
        with pytest.raises(UsageError, match=sentence):
            await talk.client.submit(SetEffort("high"))
        with pytest.raises(UsageError, match=r"Unknown effort 'hihg'\. Did you mean high\?"):
            await talk.client.submit(SetEffort("hihg"))
        await talk.say("a")
        await talk.client.submit(SetModel("w/gpt-6-sol"))
        await talk.say("b")
        await talk.client.submit(SetModel("w/gpt-6-sol@cheap"))
        await talk.say("c")
        assert list_efforts(server) == ["", "low", "none"]


async def test_effort_command_sets_saves_and_shows_the_effort(start: Start, workspace: Path) -> None:
    saved: list[tuple[str, str]] = []

    async def save_setting(key: str, value: str) -> Any:
        saved.append((key, value))
        return SimpleNamespace(path="/x.json", overridden_by="")

    with ScriptedServer([]) as server:
        talk = await start_session(start, server)
        context = cast("Any", SimpleNamespace(client=talk.client, sessions=SimpleNamespace(save_setting=save_setting)))
        set_effort = ACTIONS["effort"]
        assert await set_effort(context, "") == "Effort: default (w/gpt-6-sol)"
        assert await set_effort(context, "High --session") == "Effort set to high. Only for this session."
        assert saved == []
        assert await set_effort(context, "low") == "Effort set to low. Saved in /x.json."
        assert saved == [("effort", "low")]
        assert await set_effort(context, "") == "Effort: low (w/gpt-6-sol)"
        assert await set_effort(context, "default") == "Effort set to default."
        with pytest.raises(UsageError, match=r"Unknown effort 'hihg'\. Did you mean high\?"):
            await set_effort(context, "hihg")


async def test_offline_planner_takes_no_effort(start: Start) -> None:
    with ScriptedServer([]) as server:
        talk = await start_session(start, server, "offline", effort="high")
        sentence = "offline/planner does not reason, so it takes no effort."
        assert sentence in (await talk.client.get_info()).warnings
        with pytest.raises(UsageError, match=sentence):
            await talk.client.submit(SetEffort("low"))
        assert (await talk.client.get_info()).effort == ""
