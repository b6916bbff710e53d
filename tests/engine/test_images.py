"""Images that a tool reads, from the file to the model, against a server as strict as the APIs."""

import base64
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.core.call_events import ToolEnded
from odin.core.event import Compacted, ResultsPruned
from odin.testing import call, fault, reply, say
from odin.testing.script import SeenRequest
from tests import pictures

from .conftest import Start

APIS = ("anthropic", "chat", "responses", "gemini")


def api_options(api: str) -> dict[str, Any]:
    """Return the options of `start` for a session that uses this API."""
    if api in ("anthropic", "gemini"):
        return {"api": {"gemini": "google"}.get(api, api)}
    return {"api": "openai", "config": {"providers": {"openai": {"type": f"openai-{api}"}}}}


def list_images(seen: SeenRequest) -> list[bytes]:
    """Return every image in a request, in order, for any wire format."""
    found = re.findall(rb'(?:"data":"|;base64,)([A-Za-z0-9+/=]+)"', msgspec.json.encode(seen.messages))
    return [base64.b64decode(data, validate=True) for data in found]


@pytest.mark.parametrize("api", APIS)
async def test_model_sees_a_read_image_in_later_requests_and_after_a_resume(
    start: Start, workspace: Path, api: str
) -> None:
    data = pictures.png(80, 60)
    (workspace / "shot.png").write_bytes(data)
    script = [call("Read", {"file_path": str(workspace / "shot.png")}), say("A grey box."), say("Yes."), say("Still.")]
    talk = await start(script, **api_options(api))
    assert (await talk.say("what is on it?")).text == "A grey box."
    assert (await talk.say("sure?")).text == "Yes."
    (result,) = talk.server.requests[1].results.values()
    assert result == f"(image: shot.png, 80x60, png, {len(data)} bytes)"
    assert [list_images(seen) for seen in talk.server.requests] == [[], [data], [data]]
    session = (await talk.client.get_info()).session
    await talk.client.close()
    (workspace / "shot.png").unlink()
    again = await start(None, server=talk.server, resume=session, **api_options(api))
    assert (await again.say("and now?")).text == "Still."
    assert list_images(talk.server.requests[3]) == [data]
    assert talk.server.rejected == []


@pytest.mark.parametrize("api", APIS)
async def test_model_without_image_support_gets_a_text_result(start: Start, workspace: Path, api: str) -> None:
    (workspace / "shot.png").write_bytes(pictures.png())
    options = api_options(api)
    name = options["api"]
    model = {"anthropic": "claude-sonnet-4-5", "google": "gemini-3.8-flash"}.get(name, "gpt-4.1")
    provider = options.pop("config", {}).get("providers", {}).get(name, {})
    config = {"providers": {name: {**provider, "models": {model: {"images": False}}}}}
    talk = await start(
        [call("Read", {"file_path": str(workspace / "shot.png")}), say("I cannot see.")], **options, config=config
    )
    await talk.say("look")
    (result,) = talk.server.requests[1].results.values()
    assert result.startswith("[Unsupported tool result type]")
    assert "(image: shot.png, 3x2, png" in result
    assert list_images(talk.server.requests[1]) == []


@pytest.mark.parametrize("api", APIS)
async def test_only_the_newest_of_seventy_images_are_shown(start: Start, workspace: Path, api: str) -> None:
    """Each image is wider than 2000 pixels, which an API accepts only in requests with few images."""
    files = [workspace / f"{number}.png" for number in range(70)]
    for number, file in enumerate(files):
        file.write_bytes(pictures.png(2500, 3, shade=number, noise=b"%d" % number))
    steps = [
        reply("", [call("Read", {"file_path": str(file)}) for file in files[at : at + 7]]) for at in range(0, 70, 7)
    ]
    talk = await start([*steps, say("seen"), say("fine")], **api_options(api))
    assert (await talk.say("look at all")).text == "seen"
    assert (await talk.say("text only")).text == "fine"
    assert talk.server.rejected == []
    for seen in talk.server.requests:
        assert len(list_images(seen)) <= 20
    last = list_images(talk.server.requests[-1])
    assert last == [file.read_bytes() for file in files[-len(last) :]]
    assert len(last) >= 10


@pytest.mark.slow
async def test_read_refuses_invalid_images(start: Start, workspace: Path) -> None:
    invalid = {
        "huge.png": pictures.png(12_000, 9_000),
        "fat.jpg": pictures.jpeg(6_000_000),
        "torn.png": pictures.png(40, 40)[:-30],
    }
    for name, data in invalid.items():
        (workspace / name).write_bytes(data)
    (workspace / "empty.png").write_bytes(b"")
    names = [*invalid, "empty.png"]
    talk = await start(
        [*[call("Read", {"file_path": str(workspace / name)}) for name in names], say("none"), say("fine")]
    )
    await talk.say("look")
    assert (await talk.say("text only")).text == "fine"
    ended = talk.all(ToolEnded)
    assert [event.status for event in ended] == ["error", "error", "error", "success"]
    assert ended[3].text == "(empty file)"
    assert talk.server.rejected == []
    assert not any(list_images(seen) for seen in talk.server.requests)


async def test_image_that_the_api_refuses_does_not_end_the_session(start: Start, workspace: Path, home: Path) -> None:
    """The stored copy is damaged after the first turn. The server refuses it once, and later requests leave it out."""
    (workspace / "shot.png").write_bytes(pictures.png())
    script = [call("Read", {"file_path": str(workspace / "shot.png")}), say("one"), say("two"), say("three")]
    talk = await start(script)
    await talk.say("look")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    (copy,) = home.glob("**/images/*.png")
    copy.write_bytes(pictures.png()[:20])
    again = await start(None, server=talk.server, resume=session)
    assert (await again.say("go on")).text == "two"
    assert (await again.say("go on")).text == "three"
    assert [why for _, why in talk.server.rejected] == ["Could not process image"]
    (result,) = talk.server.requests[-1].results.values()
    assert result.endswith("(image no longer shown: the model's API refused it)")


@pytest.mark.parametrize("api", APIS)
async def test_server_with_a_size_limit_gets_the_newest_image(start: Start, workspace: Path, api: str) -> None:
    """B11: a proxy answers 413 to large requests: for images that fit one by one, and for one that never fits."""
    files = [workspace / f"{number}.png" for number in range(4)]
    for number, file in enumerate(files):
        file.write_bytes(
            pictures.png(40, 30, shade=number, noise=bytes([number]) * (150_000 if number < 3 else 500_000))
        )
    reads = [call("Read", {"file_path": str(file)}) for file in files]
    script = iter([*reads[:3], say("seen"), say("fine"), reads[3], say("not seen"), say("still fine")])
    sizes: list[tuple[int, int]] = []

    def answer(seen: SeenRequest) -> Any:
        sizes.append((len(seen.body), len(list_images(seen))))
        return fault(413, body="<html>413 Request Entity Too Large</html>") if sizes[-1][0] > 600_000 else next(script)

    talk = await start(answer, **api_options(api))
    assert (await talk.say("look at three")).text == "seen"
    assert list_images(talk.server.requests[-1]) == [files[2].read_bytes()]
    assert (await talk.say("text only")).text == "fine"
    assert (await talk.say("look at the large one")).text == "not seen"
    assert (
        "no longer shown: the model's API refused it" in msgspec.json.encode(talk.server.requests[-1].messages).decode()
    )
    assert (await talk.say("text only")).text == "still fine"
    assert len([size for size, _ in sizes if size > 600_000]) == 2, sizes
    assert talk.all(Compacted) == []
    assert talk.all(ResultsPruned) == []


async def test_offline_planner_gets_the_description_of_an_image(start: Start, workspace: Path) -> None:
    data = pictures.png(80, 60)
    (workspace / "shot.png").write_bytes(data)
    talk = await start([], model="offline")
    await talk.say("read shot.png")
    assert [event.text for event in talk.all(ToolEnded)] == [f"(image: shot.png, 80x60, png, {len(data)} bytes)"]
