"""A server that gives every call the id `call_1`, or none: readers tell the calls apart all the same.

The conversation goes through a compaction, rewinds to before and after it, a redo, sub-agents that work at once, a
resume and a fork.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from odin.acp.protocol import ChangedCall, NewCall
from odin.acp.updates import SessionUpdates
from odin.core.event import Compacted, Envelope, Redone, Rewound
from odin.core.op import Compact, Redo, Rewind
from odin.core.policy import redact_nothing
from odin.replay.replay import ReplayOptions, format_report, replay_session
from odin.server.page.blocks import encode_block
from odin.session.export_entries import CallEntry, build_entries, build_overview
from odin.session.log import read_log
from odin.testing import SeenRequest, Turn, call, reply, say
from odin.ui.stream_json.translator import StreamTranslator
from odin.ui.transcript.blocks import CallBlock
from odin.ui.transcript.model import TranscriptModels
from odin.ui.transcript.words import ShownFolders
from tests.session.test_call_ids import list_calls

from .conftest import Start, Talk
from .test_compaction import GOOD_SUMMARY, is_summary
from .test_compaction_safety import FILLER


class CountingServer:
    """Reads the file that the prompt names, and gives each call the same id."""

    def __init__(self, call_id: str, *, thinks: bool = False) -> None:
        self._id = call_id
        self._thinks = thinks

    def __call__(self, seen: SeenRequest) -> Turn:
        if is_summary(seen):
            return say(GOOD_SUMMARY)
        last = json.dumps(seen.messages[-1])
        if "content of file" in last or "was read" in last:
            return say(f"It was read: {re.findall('content of file ([0-9]+)', last)}. {FILLER}")
        if "delegate" in last:
            jobs = [
                call("AgentTool", {"description": "a job", "prompt": f"read {number}"}, id=self._id)
                for number in (7, 8)
            ]
            return reply(calls=jobs)
        number = re.findall("read ([0-9]+)", last)[-1]
        return reply("", [call("Read", {"file_path": f"f{number}.txt"}, id=self._id)], "hm" if self._thinks else "")


def list_ids(found: Iterable[Any]) -> list[str]:
    """Return what was found, after a check that nothing was found twice."""
    ids = list(found)
    assert len(set(ids)) == len(ids), ids
    return ids


async def check_readers(talk: Talk, log: Path, past: list[Envelope], count: int) -> None:
    """All readers of a session know `count` calls, live and from the log."""
    info = await talk.client.get_info()
    ids = list_ids(part.id for part in list_calls([envelope.event for envelope in read_log(log)]))
    assert len(ids) == count
    assert all(len(name) <= 40 and re.fullmatch("[a-zA-Z0-9_-]+", name) for name in ids)
    entries = build_entries(read_log(log), build_overview(read_log(log)), redact_nothing)
    assert set(list_ids(entry.id for entry in entries if isinstance(entry, CallEntry))) <= set(ids)
    for envelopes in ([*past, *talk.heard], list(read_log(log))):
        translator, models = StreamTranslator(info, partial=True), TranscriptModels()
        updates = SessionUpdates(info, "/home", has_notices=True)
        messages: list[dict[str, Any]] = []
        told: list[Any] = []
        for envelope in envelopes:
            messages += translator.translate(envelope)
            models.apply(envelope)
            updates.apply(envelope, live=False)
            told += updates.take()
        contents = [message["message"]["content"] for message in messages if message["type"] in ("assistant", "user")]
        blocks = [block for content in contents for block in content]
        used = list_ids(block["id"] for block in blocks if block["type"] == "tool_use")
        assert used == ids
        assert set(list_ids(block["tool_use_id"] for block in blocks if block["type"] == "tool_result")) == set(ids)
        assert {message["parent_tool_use_id"] for message in messages if message.get("parent_tool_use_id")} <= set(ids)
        opened = list_ids(update.tool_call_id for update in told if isinstance(update, NewCall))
        ended = [
            update for update in told if isinstance(update, NewCall | ChangedCall) and update.status == "completed"
        ]
        assert set(list_ids(update.tool_call_id for update in ended)) == set(opened)
        assert len(opened) == count
        for model in models.values():
            shown = [encode_block(block, ShownFolders()) for block in model.blocks]
            list_ids(block["key"] for block in shown if block["kind"] != "prompt")
        for block in (block for model in models.values() for block in model.blocks if isinstance(block, CallBlock)):
            if block.name == "Read":
                assert f"content of file {re.findall('[0-9]+', block.args['file_path'])[-1]}" in block.result


@pytest.mark.parametrize(
    ("api", "call_id", "model"),
    [("anthropic", "call_1", ""), ("google", "", ""), ("anthropic", "call_1", "anthropic/claude-sonnet-5-5")],
    ids=["repeated", "none", "bound thinking"],
)
async def test_every_reader_tells_the_calls_apart(
    start: Start, workspace: Path, home: Path, api: Literal["anthropic", "google"], call_id: str, model: str
) -> None:
    for number in range(20):
        (workspace / f"f{number}.txt").write_text(f"content of file {number}\n")
    options: dict[str, Any] = {"model": model, "effort": "high"} if model else {}
    script = CountingServer(call_id, thinks=bool(model))
    talk = await start(script, api, config={"compaction": {"keep_turns": 1}}, **options)
    for number in (1, 2):
        await talk.say(f"read {number}")
    await talk.client.submit(Compact())
    await talk.until_live(Compacted)
    for number in (3, 4):
        await talk.say(f"read {number}")
    turns = (await talk.client.snapshot()).messages
    for at, kind in ((3, Rewound), (1, Rewound)):  # after the compaction, and to before it
        await talk.client.submit(Rewind(turns[at].id))
        await talk.until_live(kind)
        await talk.say(f"read {at + 10}")
    await talk.client.submit(Rewind((await talk.client.snapshot()).messages[-1].id))
    await talk.client.submit(Redo())
    await talk.until_live(Redone)
    await talk.say("delegate")
    (log,) = home.rglob("main.jsonl")
    await check_readers(talk, log, [], 10)
    written = [msgspec.json.decode(line, type=Envelope) for line in log.read_bytes().splitlines()[1:]]
    assert written == list(read_log(log)), "the ids are unique as they are written"
    session = (await talk.client.get_info()).session
    await talk.client.close()
    past = list(read_log(log))
    resumed = await start(None, api, server=talk.server, resume=session, **options)
    await resumed.say("read 5")
    await check_readers(resumed, log, past, 11)
    await resumed.client.close()
    past = list(read_log(log))
    forked = await start(None, api, server=talk.server, resume=session, fork=True, **options)
    await forked.say("read 6")
    (copy,) = set(home.rglob("main.jsonl")) - {log}
    await check_readers(forked, copy, past, 12)
    report = await replay_session(ReplayOptions(session=session, cwd=str(workspace), yes=True))
    assert report.same, format_report(report, verbose=True)
    assert talk.server.rejected == talk.server.dropped == []
    if api == "anthropic":
        contents = [block for seen in talk.server.requests for message in seen.messages for block in message["content"]]
        uses = [block for block in contents if block["type"] == "tool_use" and block["name"] == "Read"]
        assert any(block["type"] == "thinking" for block in contents) == bool(model)
        list_ids(path for path, _ in {(block["input"]["file_path"], block["id"]) for block in uses})


async def test_a_log_with_repeated_ids_is_read_the_same_by_all_and_continued(
    start: Start, workspace: Path, home: Path
) -> None:
    """Thinking that is bound to the conversation with the ids as they were sent is left out, not refused."""
    for number in range(1, 5):
        (workspace / f"f{number}.txt").write_text(f"content of file {number}\n")
    options: dict[str, Any] = {"model": "anthropic/claude-sonnet-5-5", "effort": "high"}
    talk = await start(CountingServer("call_1", thinks=True), **options)
    for number in (1, 2, 3):
        await talk.say(f"read {number}")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    (log,) = home.rglob("main.jsonl")
    log.write_text(re.sub('"call_1-[0-9]"', '"call_1"', log.read_text()))
    past = list(read_log(log))
    resumed = await start(None, server=talk.server, resume=session, **options)
    await resumed.say("read 4")
    await check_readers(resumed, log, past, 4)
    assert talk.server.rejected == talk.server.dropped == []
