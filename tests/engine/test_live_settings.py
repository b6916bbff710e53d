"""Settings of a live agent: changed system prompt, tools and prompt options apply to the next request."""

from typing import Any, cast

import pytest

from odin.core.call_events import ToolEnded
from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import PromptQueued, SystemPromptChanged, ToolsChanged, TurnStarted
from odin.core.op import ChangePrompt, Op, Prompt, SetSystemPrompt, SetTools
from odin.core.tool import Args, Tool, ToolContext, ToolOutput
from odin.testing import ScriptedServer, call, say

from .conftest import Start, Talk

APIS = ("anthropic", "chat", "responses", "gemini")


async def begin(start: Start, server: ScriptedServer, api: str = "anthropic", **how: Any) -> Talk:
    name = {"anthropic": "anthropic", "gemini": "google"}.get(api, "openai")
    kind = {"type": f"openai-{api}"} if name == "openai" else {}
    models = {"m": {"context": 100_000, "tools": "native"}}
    config = {"providers": {name: {**kind, "models": models}}}
    return await start(None, api=name, server=server, config=config, env={"ODIN_MODEL": f"{name}/m"}, **how)


def list_tools(body: dict[str, Any]) -> list[str]:
    tools: list[Any] = body.get("tools") or []
    if tools and "functionDeclarations" in tools[0]:
        tools = tools[0]["functionDeclarations"]
    return [tool.get("name") or tool["function"]["name"] for tool in tools]


class AskArgs(Args, frozen=True):
    pass


class Changer(Tool[AskArgs]):
    """Performs ops on the session that runs it, while its turn runs."""

    name = "Changer"
    kind = "execute"
    short = "Changes the session."
    args = AskArgs

    def __init__(self, *ops: Op) -> None:
        self.client: Client | None = None
        self._ops = ops

    async def run(self, args: AskArgs, ctx: ToolContext) -> ToolOutput:
        assert self.client is not None
        for op in self._ops:
            await self.client.submit(op)
        return ToolOutput("done")


@pytest.mark.parametrize("api", APIS)
async def test_prompt_and_tools_change_with_the_next_request_of_the_running_turn(start: Start, api: str) -> None:
    changer = Changer(SetSystemPrompt("You are a poet."), SetTools(("Read", "Bash")))
    script = [call("Changer"), call("Grep", {"pattern": "x"}), say("one"), say("two"), say("three"), say("four")]
    with ScriptedServer(script) as server:
        talk = await begin(start, server, api, own_tools=[changer])
        changer.client = talk.client
        await talk.say("a")
        await talk.client.submit(SetTools(()))
        await talk.say("b")
        session = (await talk.client.get_info()).session
        await talk.client.close()
        again = await begin(start, server, api, own_tools=[changer], resume=session)
        await again.say("c")
        await again.client.submit(SetSystemPrompt(None))
        await again.client.submit(SetTools(None))
        await again.say("d")
        bodies = [seen.json for seen in server.requests]
        assert server.rejected == []
    assert ["You are a poet." in str(body) for body in bodies] == [False, True, True, True, True, False]
    offered = [list_tools(body) for body in bodies]
    assert offered[1] == offered[2] == ["Read", "ExecuteCommand"]
    for body in bodies[3:5]:
        assert not list_tools(body) or body["tool_choice"] == {"type": "none"}, "only what the history needs"
    assert offered[0] == offered[5] and {"Read", "Grep", "Changer"} < set(offered[0])
    refused = [event for event in talk.all(ToolEnded) if event.name == "Grep"]
    assert [event.status for event in refused] == ["denied"]
    recorded = await again.recorded_events(object)
    changes = [event for event in recorded if isinstance(event, SystemPromptChanged | ToolsChanged)]
    assert changes == [
        SystemPromptChanged("You are a poet."),
        ToolsChanged(("Read", "ExecuteCommand")),
        ToolsChanged(()),
        SystemPromptChanged(None),
        ToolsChanged(None),
    ]


async def test_a_tool_can_be_added_and_replaced_and_an_unknown_one_is_refused(start: Start) -> None:
    class Louder(Changer):
        """CHANGES IT."""

    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        talk = await begin(start, server)
        client = talk.client
        with pytest.raises(UsageError, match=r"There is no tool 'Reed'\. Did you mean Read\?"):
            await client.submit(SetTools(("Reed",)))
        await talk.say("a")
        client.add_tools([Changer()])
        await talk.say("b")
        client.add_tools([Louder()])
        await talk.say("c")
        shown = [[tool["description"] for tool in seen.json["tools"]] for seen in server.requests]
        await client.submit(SetTools(("LS", "Changer")))
        session = (await client.get_info()).session
        assert [text for text in (await client.get_info()).warnings if "Changer" in text] == []
        await client.close()
        later = await begin(start, server, resume=session)
        warnings = (await later.client.get_info()).warnings
        assert [text for text in warnings if "only the tools LS, Changer; there is no Changer here" in text]
        assert (await later.client.get_info()).tools == ("LS",)
    assert [sum("Performs ops" in text for text in texts) for texts in shown] == [0, 1, 0]
    assert any("CHANGES IT." in text for text in shown[2])


async def test_prompt_options_apply_only_to_that_prompt(start: Start) -> None:
    """A queued prompt keeps its options, also when it is edited, and does not join the running turn."""
    more = [
        Prompt("hot", "hot", temperature=1.5, max_tokens=77, delivery="steer"),
        ChangePrompt("hot", "hotter"),
        Prompt("plain", "plain", delivery="queue"),
    ]
    changer = Changer(*more)
    with ScriptedServer([call("Changer"), say("one"), call("LS"), say("two"), say("three")]) as server:
        talk = await begin(start, server, own_tools=[changer])
        changer.client = talk.client
        await talk.client.submit(Prompt("p", "a", max_tokens=55))
        await talk.until_end("plain")
        sent = [(seen.json.get("temperature"), seen.json["max_tokens"]) for seen in server.requests]
        assert server.rejected == []
        assert sent == [(None, 55), (None, 55), (1.0, 77), (1.0, 77), (None, 8192)]
        (queued, _) = talk.all(PromptQueued)
        assert (queued.temperature, queued.max_tokens) == (1.5, 77)
        started = {event.id: event for event in talk.all(TurnStarted)}
        assert (started["hot"].text, started["hot"].temperature, started["p"].max_tokens) == ("hotter", 1.5, 55)
        for bad in ({"temperature": 3.0}, {"temperature": -0.1}, {"max_tokens": -1}):
            with pytest.raises(UsageError):
                await talk.client.submit(Prompt("bad", "x", **cast("Any", bad)))


async def test_prompt_options_win_over_those_of_a_variant(start: Start) -> None:
    models = {"m": {"tools": "native", "max_output": 500, "variants": {"v": {"temperature": 0.3, "max_tokens": 100}}}}
    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        config = {"providers": {"anthropic": {"models": models}}, "temperature": 0.9}
        talk = await start(None, server=server, config=config, env={"ODIN_MODEL": "anthropic/m@v"})
        await talk.say("a")
        await talk.client.submit(Prompt("q", "b", temperature=0.0, max_tokens=9000))
        await talk.until_end("q")
        sent = [(seen.json.get("temperature"), seen.json["max_tokens"]) for seen in server.requests]
    assert sent == [(0.3, 100), (0.0, 500)], "the model's own limit still holds"
