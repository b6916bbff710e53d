"""Model pools: the selected model, the running model, and the remembered choice."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from odin.app import open_session
from odin.config import Options, load
from odin.core.call_events import Replied, ReplyRolledBack, RetryScheduled, TextStreamed, UsageRecorded
from odin.core.errors import ConfigError, Overloaded, RateLimited, UsageError
from odin.core.event import AnyEvent, ModelChanged
from odin.core.op import SetModel, SetRole
from odin.models.catalog import PRESETS, lookup_model
from odin.models.connector import ModelConnector
from odin.models.model_lists import find_small_ref
from odin.models.selection import ModelSelector
from odin.providers.settings import ModelSettings, ProviderSettings, VariantSettings
from odin.testing import ScriptedServer, call, fault, reply, say
from odin.testing.script import SeenRequest
from odin.ui.slash_commands.reports import gather_status
from tests.conftest import RunHere
from tests.pictures import png
from tests.table import each
from tests.waiting import TimeLimit

from .conftest import Start, Talk

ONE, TWO, THREE = "anthropic/one", "anthropic/two", "anthropic/three"
POOLS = {"main": [ONE, TWO, "spare"], "spare": [THREE]}
QUICK = {"retry": {"base_s": 0.001, "attempts": 4}}


def write_config(home: Path, **keys: Any) -> Path:
    path = home / ".config" / "odin" / "odinconfig.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(keys, indent=2))
    return path


@asynccontextmanager
async def open_selector(workspace: Path, env: dict[str, str] | None = None) -> AsyncGenerator[ModelSelector]:
    environ = {**os.environ, "ANTHROPIC_API_KEY": "k", **(env or {})}
    models = ModelSelector(ModelConnector(load(str(workspace), environ), environ, eager=False))
    yield models
    await models.connector.close()


class FailingApi:
    """Answers with the name of the model, or with its entry in `broken`."""

    def __init__(self, **broken: Any) -> None:
        self.broken = broken
        self.asked: list[str] = []

    def __call__(self, seen: SeenRequest) -> Any:
        self.asked.append(seen.model)
        return self.broken.get(seen.model) or say(f"I am {seen.model}.")


async def begin(start: Start, api: Any, **options: Any) -> Talk:
    config = {**QUICK, "model_pools": POOLS, **options.pop("config", {})}
    return await start(api, env={"ODIN_MODEL": "", **options.pop("env", {})}, config=config, **options)


# --- selected and running ---


async def test_first_pool_is_the_default_and_failures_move_to_its_next_model(start: Start) -> None:
    api = FailingApi(one=fault(529), two=fault(529))
    talk = await begin(start, api)
    assert (await talk.say("go")).text == "I am three."
    assert api.asked == ["one", "one", "two", "two", "three"]
    reason = "anthropic/one cannot answer: anthropic is overloaded or failing (status 529): Overloaded error."
    first, second = talk.all(ModelChanged)
    assert first == ModelChanged(TWO, reason, ONE, "main")
    assert (second.model, second.selected) == (THREE, ONE)
    info = await talk.client.get_info()
    assert (info.model, info.running_model, info.pool, info.pools) == (ONE, THREE, "main", ("main", "spare"))


async def test_all_models_are_asked_again_after_a_visible_wait(start: Start) -> None:
    failures = 0

    def play(seen: SeenRequest) -> Any:
        nonlocal failures
        failures += 1
        return fault(529) if failures <= 6 else say("at last")

    talk = await begin(start, play)
    assert (await talk.say("go")).text == "at last"
    waits = [(event.attempt, event.attempts) for event in talk.all(RetryScheduled)]
    assert waits[-1] == (1, 2), "the second round of two"
    assert (await talk.client.get_info()).running_model == ONE


@pytest.mark.parametrize("broken", [fault(401), fault(402), fault(404), fault(429, {"retry-after": "30"})], ids=str)
async def test_a_model_that_cannot_answer_now_is_replaced_at_once(start: Start, broken: Any) -> None:
    api = FailingApi(one=broken)
    talk = await begin(start, api)
    assert (await talk.say("go")).text == "I am two."
    assert api.asked == ["one", "two"]


async def test_a_misspelt_model_is_suggested_when_its_server_refuses_it(start: Start) -> None:
    with ScriptedServer([], models=["claude-sonnet-4-5"]) as server:
        talk = await start(None, server=server, model="anthropic/claude-sonet-4-5")
        ended = await talk.say("go")
    assert ended.error_kind == "ModelNotFound"
    assert ended.hint.startswith("Did you mean anthropic/claude-sonnet-4-5? Run `odin models`")


async def test_a_model_whose_proxy_cannot_be_used_is_replaced(start: Start) -> None:
    api = FailingApi()
    other = {"base_url": "https://other.test/v1", "proxy": "socks5://p:1080", "models": {"m": {"tools": "native"}}}
    config = {"providers": {"other": other}, "model_pools": {"main": ["other/m", TWO]}}
    talk = await begin(start, api, config=config)
    assert (await talk.say("go")).text == "I am two."
    (changed,) = talk.all(ModelChanged)
    assert "SOCKS proxies are not supported" in changed.reason


async def test_selected_model_is_tried_again_after_its_cooldown(workspace: Path, home: Path) -> None:
    """The provider sets the cooldown; else it is one minute, two, … up to five. The test controls the clock."""
    write_config(home, model_pools=POOLS)
    now = 0.0
    async with open_selector(workspace, {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}) as parent:
        models, events = ModelSelector(parent.connector, clock=lambda: now), list[AnyEvent]()
        models.emit = events.append
        await models.choose("main")
        for error, wait in (
            (RateLimited("slow", retry_after=7), 7),
            (Overloaded("busy"), 120),
            (Overloaded("busy"), 240),
        ):
            await models.fail_over(ONE, error)
            assert models.ref == TWO
            now += wait - 0.5
            models.begin_prompt()
            assert models.ref == TWO
            now += 0.5
            models.begin_request()
            assert models.ref == TWO, "not within a turn"
            models.begin_prompt()
            assert models.ref == ONE
            assert events[-1] == ModelChanged(ONE, "trying the selected model again.", ONE, "main")


# --- choosing ---


async def test_a_choice_is_remembered_by_session_and_project(start: Start) -> None:
    talk = await begin(start, FailingApi())
    await talk.client.submit(SetModel("spare"))
    assert (await talk.say("a")).text == "I am three."
    session = (await talk.client.get_info()).session
    await talk.client.close()
    new = await begin(start, None, server=talk.server)
    assert (await new.client.get_info()).pool == "spare", "the project remembers it"
    await new.client.submit(SetModel("main"))
    await new.client.submit(SetModel(TWO))
    assert (await new.client.get_info()).pool == "main", "a model of the pool was picked"
    await new.client.close()
    again = await begin(start, None, server=talk.server, resume=session)
    assert (await again.client.get_info()).pool == "spare", "the session remembers it"
    await again.client.close()
    third = await begin(start, None, server=talk.server)
    info = await third.client.get_info()
    assert (info.model, info.pool) == (TWO, "main"), "and the model that was picked in the pool"
    await third.client.submit(SetModel("anthropic/other"))
    assert ((await third.client.get_info()).model, (await third.client.get_info()).pool) == ("anthropic/other", "")
    await third.client.submit(SetModel(""))
    assert (await third.client.get_info()).pool == "main", "the default is restored"


@each(
    ("options", "model", "pool"),
    [
        ({"pool": "spare"}, THREE, "spare"),
        ({"model": "spare"}, THREE, "spare"),
        ({"model": TWO}, TWO, ""),
        ({"pool": "main", "model": TWO}, TWO, "main"),
        ({"config": {"model": "spare"}}, THREE, "spare"),
        ({"config": {"model": TWO}}, TWO, ""),
    ],
)
def test_options_and_settings_choose_model_and_pool(
    options: dict[str, Any], model: str, pool: str, workspace: Path, home: Path
) -> None:
    config = options.get("config", {})
    write_config(home, model_pools=POOLS, **config)
    flags = {key: value for key, value in options.items() if key != "config"}

    async def look() -> tuple[str, str]:
        env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
        client = await open_session(Options(env=env, cwd=str(workspace), reach_out=False, **flags))
        info = await client.get_info()
        await client.close()
        return info.model, info.pool

    assert asyncio.run(look()) == (model, pool)


async def test_a_switch_while_busy_applies_to_the_next_request(start: Start, workspace: Path) -> None:
    talk: Talk

    async def play_later() -> None:
        await talk.client.submit(SetModel("spare"))

    asked: list[str] = []

    def play(seen: SeenRequest) -> Any:
        asked.append(seen.model)
        return call("LS", {"path": str(workspace)}) if len(asked) < 3 else say("done")

    talk = await begin(start, play)
    prompt = await talk.submit("go")
    await talk.until(Replied)
    await play_later()
    assert (await talk.until_end(prompt)).text == "done"
    assert asked[0] == "one"
    assert asked[-1] == "three"


@pytest.mark.parametrize("nothing", [say(""), say("", stop="max_tokens")], ids=["empty", "truncated"])
async def test_model_with_empty_replies_is_replaced(start: Start, nothing: Any) -> None:
    """RECOV7: first another key is tried, then another model."""
    api = FailingApi(one=nothing)
    talk = await begin(start, api, env={"ANTHROPIC_API_KEY": "key-0123456789-1,key-0123456789-2"})
    assert (await talk.say("go")).text == "I am two."
    keys = [seen.headers["x-api-key"][-1] for seen in talk.server.requests]
    assert (api.asked, keys[:2]) == (["one", "one", "two"], ["1", "2"])


async def test_the_other_models_of_a_pool_are_connected_in_the_background(workspace: Path, home: Path) -> None:
    """Before the first request, and without warnings about models that cannot be connected."""
    connected = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        work = {"type": "anthropic", "base_url": url, "api_key": "k", "models": {"m": {"context": 9_000}}}
        write_config(home, providers={"w": work}, model_pools={"p": ["offline", "openai/gpt-5", "w/m"]})
        environ = {**os.environ, "ODIN_LOCAL_PORTS": ""}
        models = ModelSelector(ModelConnector(load(str(workspace), environ), environ))
        assert (await models.choose("p"), models.notice) == ("offline/planner", "")
        async with TimeLimit():
            await connected.wait()
        await models.connector.close()


async def test_agent_type_can_name_a_pool(start: Start) -> None:
    types = {"iso": {"description": "d", "prompt": "Work.", "model": "spare"}}

    def play(seen: SeenRequest) -> Any:
        if seen.model == "three":
            return say("from the pool")
        return (
            say("ok") if seen.results else call("AgentTool", {"prompt": "p", "description": "d", "agent_type": "iso"})
        )

    talk = await begin(start, play, agent_definitions=json.dumps(types))
    await talk.say("go")
    assert {seen.model for seen in talk.server.requests} == {"one", "three"}


async def test_an_agent_uses_only_the_pools_that_its_file_names(start: Start, home: Path) -> None:
    """For a sub-agent and a role: other models are refused, and leaving the role restores the default."""
    folder = home / ".config/odin/agents"
    folder.mkdir(parents=True)
    (folder / "iso.md").write_text("---\ndescription: d\npools: spare\n---\nWork.")
    (folder / "thrifty.md").write_text("---\nmode: main\npools: [spare, mian]\n---\nSave.")
    (folder / "keyless.md").write_text("---\nmode: main\npools: far\n---\nFar.")
    (folder / "lost.md").write_text("---\nname: lost\npools: [nothing]\n---\nLost.")

    def play(seen: SeenRequest) -> Any:
        if "Work." in str(seen.json["system"]):
            return say("It works.").stall()
        return say("ok") if seen.results else call("Delegate", {"description": "d", "agent_type": "iso"})

    talk = await begin(start, play, config={"model_pools": {**POOLS, "far": ["openai/gpt-6-sol"]}})
    warnings = " ".join((await talk.client.get_info()).warnings)
    assert f"{folder}/thrifty.md:3: There is no model pool 'mian'. Did you mean main?" in warnings
    assert f"{folder}/lost.md:3: There is no model pool 'nothing'. This agent is ignored." in warnings
    limit = f"The limit is set in {folder}/thrifty.md."
    await talk.client.submit(SetRole("thrifty"))
    assert ((await talk.client.get_info()).model, (await talk.client.get_info()).pool) == (THREE, "spare")
    for name in ("main", ONE, "offline"):
        with pytest.raises(UsageError, match="The role thrifty may only use the model pool spare, not ") as refused:
            await talk.client.submit(SetModel(name))
        assert refused.value.hint == limit
    await talk.client.submit(SetModel(THREE))
    await talk.client.submit(SetModel(""))
    assert (await talk.client.get_info()).pool == "spare"
    with pytest.raises(UsageError, match=r"of the role keyless cannot be used: No key for openai\."):
        await talk.client.submit(SetRole("keyless"))
    assert ((await talk.client.get_info()).role, (await talk.client.get_info()).pool) == ("thrifty", "spare")
    await talk.client.submit(SetRole("builder"))
    assert ((await talk.client.get_info()).model, (await talk.client.get_info()).pool) == (ONE, "main")
    await talk.say("go")
    (agent,) = (item.id for item in (await talk.client.snapshot()).sub_agents)
    with pytest.raises(UsageError, match="The sub-agent type iso may only use the model pool spare"):
        await talk.client.submit(SetModel(TWO, agent=agent))
    await talk.client.submit(SetModel("", agent=agent))
    (record,) = (await talk.client.snapshot()).sub_agents
    assert record.selected_model == THREE
    await asyncio.to_thread(talk.server.wait_for, 3)
    assert [seen.model for seen in talk.server.requests if "Work." in str(seen.json["system"])] == ["three"]


# --- mistakes ---


@each(
    ("pools", "providers", "said"),
    [
        ({"a": []}, {}, "line 3: the model pool 'a' is empty."),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, {}, "line 9: the model pool 'a' contains itself: a → b → c → a."),
        ({"a": [ONE], "b": ["b"]}, {}, "line 6: the model pool 'b' contains itself: b → b."),
        (
            {"a": [ONE, "anthropc/x"]},
            {},
            "line 5: the model 'anthropc/x' cannot be used: There is no provider 'anthropc'.",
        ),
        (
            {"a": [f"{ONE}@fast"]},
            {},
            "line 4: the model 'anthropic/one@fast' cannot be used: anthropic/one has no variant",
        ),
        (
            {"a": ["w/m@high"]},
            {"w": {"base_url": "http://127.0.0.1:9/v1", "models": {"m": {"thinking": False}}}},
            "line 4: the model 'w/m@high' cannot be used: w/m does not reason, so it rejects the variant 'high'.",
        ),
    ],
)
def test_mistake_in_a_pool_is_reported_with_file_and_line(
    workspace: Path, home: Path, pools: dict[str, Any], providers: dict[str, Any], said: str
) -> None:
    path = write_config(home, model_pools=pools, **({"providers": providers} if providers else {}))
    env = {**os.environ, "ANTHROPIC_API_KEY": "k"}
    warnings = ModelConnector(load(str(workspace), env), env, eager=False).warnings
    assert [text for text in warnings if text.startswith(f"{path}, {said}")]


def test_a_pool_that_does_not_exist_is_refused(home: Path, run_here: RunHere) -> None:
    write_config(home, model_pools=POOLS)
    code, _, said = run_here("-p", "--pool", "mian", "hi", env={"ANTHROPIC_API_KEY": "k"})
    assert (code, said) == (2, "odin: There is no model pool 'mian'. Did you mean main? Pools: main, spare.\n")


MODEL_MISTAKES = [
    ("model", "anthropc/x", "the model 'anthropc/x' cannot be used: There is no provider 'anthropc'. Did you mean"),
    ("model", "mian", "the model 'mian' cannot be used: There is no model pool 'mian'. Did you mean main?"),
    ("model", f"{ONE}@fsat", "the model 'anthropic/one@fsat' cannot be used: anthropic/one has no variant 'fsat'."),
    ("small_model", "anthropc/x", "small_model 'anthropc/x' cannot be used: There is no provider 'anthropc'."),
]


@each(("key", "ref", "said"), MODEL_MISTAKES)
def test_unknown_model_in_the_settings_is_reported_with_file_and_line(
    home: Path, run_here: RunHere, key: str, ref: str, said: str
) -> None:
    path = write_config(home, model_pools=POOLS, **{key: ref})
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if f'"{key}"' in text)
    flag = () if key == "model" else ("--model", "offline")
    assert f"{path}, line {line}: {said}" in run_here("-p", "hi", *flag, env={"ANTHROPIC_API_KEY": "k"})[2]


async def test_a_pool_without_a_usable_model_is_refused(workspace: Path, home: Path) -> None:
    path = write_config(home, model_pools={"a": ["anthropc/x"]})
    async with open_selector(workspace) as models:
        with pytest.raises(ConfigError, match=f"{path}, line 3: no model of the pool 'a' can be used"):
            await models.choose("a")


# --- variants ---

WORK = {
    "w": ProviderSettings(
        base_url="http://127.0.0.1:9/v1",
        models={
            "m": ModelSettings(
                variants={"deep": VariantSettings(effort="max", temperature=0.5, max_tokens=9, service_tier="flex")}
            ),
            "odd@name": ModelSettings(),
        },
    )
}


@each(
    ("ref", "model", "variant", "effort"),
    [
        ("w/m", "m", "", ""),
        ("w/m@deep", "m", "deep", "max"),
        ("w/m@low", "m", "low", "low"),
        ("w/odd@name", "odd@name", "", ""),
        ("w/odd@20240620", "odd@20240620", "", ""),
        ("m@deep", "m", "deep", "max"),
        ("anthropic/claude-opus-5@high", "claude-opus-5", "high", "high"),
    ],
)
def test_variant_selects_its_options(ref: str, model: str, variant: str, effort: str) -> None:
    info = lookup_model(ref, WORK)
    assert (info.id, info.variant, info.options.effort) == (model, variant, effort)


@pytest.mark.parametrize("api", ["anthropic", "openai-chat", "openai-responses"])
async def test_the_options_of_a_variant_are_sent(start: Start, api: str) -> None:
    """The scripted server rejects fields that the real APIs do not know."""
    with ScriptedServer([say("ok")]) as server:
        variants = {"deep": {"effort": "high", "max_tokens": 4000, "service_tier": "auto"}}
        name = "claude-opus-5" if api == "anthropic" else "gpt-5"
        url = server.url if api == "anthropic" else server.openai_url
        model = {"thinking": True, "tools": "native", "variants": variants}
        work = {"type": api, "base_url": url, "api_key": "k", "models": {name: model}}
        talk = await start(None, server=server, model=f"w/{name}@deep", config={"providers": {"w": work}})
        assert (await talk.say("go")).text == "ok"
        (seen,) = server.requests
        body = seen.body.decode()
        assert '"high"' in body
        assert "4000" in body
        assert '"service_tier":"auto"' in body
        assert server.rejected == []


async def test_rejected_variant_is_reported_with_file_and_line(start: Start, home: Path) -> None:
    models = {"one": {"variants": {"fast": {"service_tier": "standard_only"}}}}
    config = {"providers": {"anthropic": {"models": models}}}
    talk = await start([fault(400, message="service_tier: unknown")], model=f"{ONE}@fast", config=config)
    ended = await talk.say("go")
    assert (ended.reason, ended.error_kind) == ("error", "BadRequest")
    assert ended.hint == f"The variant 'fast' is set in {home / '.config/odin/odinconfig.json'}, line 1."


async def test_usage_of_a_cut_off_small_job_is_estimated(start: Start) -> None:
    def play(seen: SeenRequest) -> Any:
        return say("A title that is cut").cut(events=4) if seen.model == "small" else say("ok")

    talk = await start(play, config={"small_model": "anthropic/small"})
    await talk.say("go")
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(event := envelope.event, UsageRecorded) and event.purpose == "title":
                assert event.estimated
                assert event.usage.input > 0
                break


# --- mixed wire formats ---


WIRES = ("anthropic", "openai-responses", "openai-chat", "gemini")


@pytest.mark.parametrize(("first", "second"), [pair for pair in permutations(WIRES, 2) if pair[0] != "openai-chat"])
async def test_a_pool_may_mix_wire_formats_in_the_middle_of_a_conversation(
    start: Start, workspace: Path, first: str, second: str
) -> None:
    """The history has tool calls, an image and thinking; thinking is sent only to the model that produced it."""
    (workspace / "a.png").write_bytes(png())
    steps = [
        reply("Reading.", [call("Read", {"file_path": str(workspace / "a.png")})], "hidden thought"),
        *[say("half an ans").cut(events=1 if first == "gemini" else 5)] * 2,
    ]
    with ScriptedServer(steps) as one, ScriptedServer([call("LS", {"path": str(workspace)}), say("done")]) as two:

        def make_provider(api: str, server: ScriptedServer, model: str) -> dict[str, Any]:
            url = {"anthropic": server.url, "gemini": f"{server.url}/v1beta"}.get(api, server.openai_url)
            row = {"images": True, "thinking": True, "tools": "native"}
            return {"type": api, "base_url": url, "api_key": "k", "models": {model: row}}

        providers = {"p": make_provider(first, one, "gpt-5"), "q": make_provider(second, two, "gpt-5.1")}
        config = {**QUICK, "providers": providers, "model_pools": {"mix": ["p/gpt-5", "q/gpt-5.1"]}, "thinking": 2000}
        talk = await start(None, server=two, config=config, env={"ODIN_MODEL": ""})
        ended = await talk.say("go")
        assert (ended.reason, ended.text) == ("end_turn", "done")
        assert one.rejected == two.rejected == []
        assert "hidden thought" not in json.dumps([seen.body.decode() for seen in two.requests])
    screen = ""
    for event in talk.events:
        screen += event.text if isinstance(event, TextStreamed) else ""
        screen = "" if isinstance(event, ReplyRolledBack) else screen
    assert "half" not in screen


# --- the small model ---

AT_A_GATEWAY = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://gateway"}


@each(
    ("provider", "own", "env", "small"),
    [
        ("anthropic", None, {"ANTHROPIC_API_KEY": "k"}, "anthropic/claude-haiku-5-5"),
        ("openai", None, {"OPENAI_API_KEY": "k"}, "openai/gpt-6-luna"),
        ("openai", None, {}, ""),
        ("ollama", None, {}, ""),
        ("offline", None, {}, ""),
        ("anthropic", None, AT_A_GATEWAY, ""),
        ("anthropic", ["claude-haiku-5-5"], AT_A_GATEWAY, "anthropic/claude-haiku-5-5"),
    ],
)
def test_with_one_key_the_small_model_is_the_cheap_one_of_its_provider(
    provider: str, own: list[str] | None, env: dict[str, str], small: str
) -> None:
    """`own` are the models that a server at another address lists."""
    assert find_small_ref(provider, {}, env, lambda model: model in (own or ())) == small


def test_every_provider_with_keys_has_a_small_model_that_is_cheap() -> None:
    for name, preset in PRESETS.items():
        assert bool(preset.small) == bool(preset.key_names), name
        if preset.small and (small := lookup_model(f"{name}/{preset.small}", {})).has_price:
            assert small.price_output <= lookup_model(f"{name}/{preset.model}", {}).price_output, name


async def test_small_jobs_go_to_the_cheapest_configured_model(workspace: Path, home: Path) -> None:
    prices = {"big": {"price_input": 5, "price_output": 20}, "little": {"price_input": 1, "price_output": 2}}
    work = {"base_url": "http://10.0.0.1/anthropic", "api_key": "k", "models": prices}
    write_config(home, providers={"w": {**work, "models": {n: {**p, "context": 9000} for n, p in prices.items()}}})
    async with open_selector(workspace) as models:
        await models.choose("w/big")
        current = models.provider, models.info
        assert (await models.connect_small())[1].id == "little"
        assert (await models.connector.connect_summarizer("", current))[1].id == "little"
        assert (await models.connector.connect_summarizer("w/big", current))[1].id == "big"


# --- proxies ---


async def test_a_provider_is_asked_through_its_own_proxy(start: Start) -> None:
    """The scripted server is the proxy; the host of the provider does not exist."""
    with ScriptedServer([say("ok")]) as server:
        url = server.openai_url.replace("127.0.0.1", "model.invalid").replace("localhost", "model.invalid")
        work: dict[str, Any] = {
            "type": "openai-chat",
            "base_url": url,
            "proxy": server.url,
            "api_key": "k",
            "models": {"m": {}},
        }
        env = {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "*"}
        talk = await start(None, server=server, model="w/m", env=env, config={"providers": {"w": work}})
        assert (await talk.say("go")).text == "ok"
        assert [seen.model for seen in server.requests] == ["m"]
        assert dict(await gather_status(talk.client))["proxy"] == server.url.rstrip("/")
