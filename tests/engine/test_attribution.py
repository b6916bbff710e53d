"""Attribution of file changes to agents that work at the same time, and the rewind of only one of them."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import CallDiscarded, CallSpeculated, ToolEnded, ToolProgressed, ToolStarted
from odin.core.errors import UsageError
from odin.core.event import AgentStarted, AnyEvent, CheckpointSaved, Envelope, FilesChanged
from odin.core.event_values import FileChange, FileState, SkippedFile
from odin.core.op import Prompt, Rewind
from odin.core.timing import Timing
from odin.session.history import FileHistory
from odin.testing import call, reply, say

from .conftest import WITHOUT_VIEWS, Start, Talk
from .test_rewind import rewind
from .tree import read_tree

Script = dict[str, list[Any]]


def play(script: Script) -> Callable[[Any], Any]:
    """Return a script: the main agent starts one sub-agent for each task, and each sub-agent plays its own list."""

    def answer(request: Any) -> Any:
        messages = request.json["messages"]
        opening = str(messages[0]["content"])
        done = sum(message["role"] == "assistant" for message in messages)
        task = next((name for name in script if f"task {name}" in opening), None)
        if task is not None:
            return script[task][done] if done < len(script[task]) else say(f"{task} is done")
        if done:
            return say("All done.")
        tasks = [call("AgentTool", {"description": name, "prompt": f"task {name}"}, id=name) for name in script]
        return reply(calls=tasks)

    return answer


def run(command: str) -> Any:
    return call("ExecuteCommand", {"command": command})


def changes_by_agent(talk: Talk) -> dict[tuple[str, ...], set[str]]:
    """Return the names of the changed files by the agents that may have changed them."""
    found: dict[tuple[str, ...], set[str]] = {}
    names = {event.id: event.description for event in talk.all(AgentStarted)}
    for envelope in talk.heard:
        if isinstance(envelope.event, FilesChanged) and envelope.event.changes:
            agents = sorted(names.get(agent, agent) for agent in (envelope.agent, *envelope.event.shared_with))
            found.setdefault(tuple(agents), set()).update(Path(item.after.path).name for item in envelope.event.changes)
    return found


async def test_writing_commands_of_two_agents_take_turns(start: Start, workspace: Path) -> None:
    alone = "test ! -e busy && touch busy && sleep 0.2 && rm busy && echo {0} > {0}.txt"
    script = play({"a": [run(alone.format("a")), run("cat a.txt")], "b": [run(alone.format("b"))]})
    talk = await start(script, config=WITHOUT_VIEWS)
    await talk.say("go")
    assert {event.status for event in talk.all(ToolEnded)} == {"success"}
    assert changes_by_agent(talk) == {("a",): {"a.txt"}, ("b",): {"b.txt"}}
    waited = [event.text for event in talk.all(ToolProgressed) if "Waiting" in event.text]
    assert waited in (
        ["Waiting for a command of agent-1 in the same folder"],
        ["Waiting for a command of agent-2 in the same folder"],
    )


async def test_rewind_of_one_agent_keeps_the_changes_of_the_other(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("old\n")
    talk = await start(play({"a": [run("echo a > a.txt; mkdir of-a")], "b": [run("echo b > b.txt")]}))
    await talk.say("go")
    changed = read_tree(workspace)
    with pytest.raises(UsageError, match="files only"):
        await talk.client.submit(Rewind("p1", only_agent="agent-1"))
    names = {event.description: event.id for event in talk.all(AgentStarted)}
    rewound = await rewind(talk, chat=False, only_agent=names["a"])
    assert ((workspace / "a.txt").read_text(), rewound.skipped_files) == ("old\n", ())
    assert set(read_tree(workspace)) == {"a.txt", "b.txt"}
    assert [len(event.changes) for event in [await rewind(talk, chat=False, only_agent="agent-9")]] == [0]
    await rewind(talk, chat=False)
    assert set(read_tree(workspace)) == {"a.txt"} < set(changed)


async def test_overlapping_commands_share_the_files_changed_meanwhile(start: Start, workspace: Path) -> None:
    """Each command waits for a file of the other one, so both run at the same time."""
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.01; done; touch {0}-met; until [ -e {1}-met ]; do sleep 0.01; done"
    script = play({"a": [run(meet.format("a", "b"))], "b": [run(meet.format("b", "a"))]})
    talk = await start(script, timing=Timing(command_turn_s=0.0), config=WITHOUT_VIEWS)
    await talk.say("go")
    shared = changes_by_agent(talk)[("a", "b")]
    assert {"a-met", "b-met"} <= shared
    rewound = await rewind(talk, chat=False, only_agent="agent-1")
    assert {Path(file.path).name for file in rewound.skipped_files} == shared
    assert {file.reason for file in rewound.skipped_files} == {"also changed by agent-2"}
    assert (await rewind(talk, chat=False)).skipped_files == ()
    assert read_tree(workspace) == {}


async def test_edit_is_not_attributed_to_a_running_command_of_another_agent(start: Start, workspace: Path) -> None:
    gate = threading.Event()
    wait = "touch a1; until [ -e edited ]; do sleep 0.01; done; touch a2"
    edit = call("WriteFile", {"file_path": str(workspace / "edited"), "content": "by b\n"})
    talk = await start(play({"a": [run(wait)], "b": [edit.hold(gate)]}), config=WITHOUT_VIEWS)
    prompt = await talk.submit("go")
    while not (workspace / "a1").exists():
        await asyncio.sleep(0.01)
    gate.set()
    await talk.until_end(prompt)
    assert changes_by_agent(talk) == {("a",): {"a1", "a2"}, ("b",): {"edited"}}


async def test_after_a_crash_commands_that_ran_together_share_their_changes(
    start: Start, workspace: Path, home: Path
) -> None:
    """The second command copies the session log while both run: the copy is what a crash would leave."""
    sessions = home / ".local/state/odin/sessions"
    copy = f"for s in {sessions}/*; do mkdir $s/crashed; cp $s/*/main.jsonl $s/crashed/; done"
    first = "touch a1; until [ -e b1 ]; do sleep 0.01; done; touch a2"
    second = f"until [ -e a1 ]; do sleep 0.01; done; {copy}; touch b1; until [ -e a2 ]; do sleep 0.01; done"
    script, config = play({"a": [run(first)], "b": [run(second)]}), {"sandbox": {"backend": "off"}}
    talk = await start(script, config=config, timing=Timing(command_turn_s=0.0))
    await talk.say("go")
    await talk.client.close()
    again = await start(None, server=talk.server, resume="crashed")
    await again.client.submit(Prompt("next", "next"))
    await again.until_end("next")
    assert changes_by_agent(again)[("agent-1", "agent-2")] >= {"a2", "b1"}
    await rewind(again, 2)
    assert read_tree(workspace) == {}


@pytest.mark.parametrize("end", ["committed", "discarded"])
def test_changes_are_listed_in_the_order_in_which_they_were_made(end: str) -> None:
    """Another agent changes the file between a speculative edit and its commit or discard."""
    states = [FileState("/p/f", "file", name) for name in ("old", "first", "second")]
    ended = (
        ToolStarted("c1", "WriteFile", {})
        if end == "committed"
        else CallDiscarded("c1", "WriteFile", {}, "args_drift", skipped_files=(SkippedFile("/p/f", "changed"),))
    )
    events: list[tuple[str, AnyEvent]] = [
        ("a", CallSpeculated("c1", "WriteFile", {})),
        ("a", CheckpointSaved("c1", (states[0],))),
        ("a", FilesChanged("c1", (FileChange(states[0], states[1]),))),
        ("b", CheckpointSaved("c2", (states[1],))),
        ("b", FilesChanged("c2", (FileChange(states[1], states[2]),))),
        ("a", ended),
    ]
    history = FileHistory()
    for number, (agent, event) in enumerate(events):
        history.apply(Envelope(number, 0.0, "s", event, agent))
    assert [item.change.after.sha256 for item in history.list_since(0)] == ["first", "second"]
    assert [item.agents for item in history.list_since(0)] == [("a",), ("b",)]
