"""What an editor does with each capability: the scripts of the model, the answers, and what must come of it."""

import asyncio
import base64
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from odin.testing import SeenRequest, Turn, call, reply, say
from tests.acp.conversation import TITLE
from tests.acp.editor import FORMS, Editor, Message
from tests.pictures import png

Play = Callable[[Editor, Path], Awaitable[None]]


class Scenario(Struct, frozen=True):
    play: Play
    script: Any = ()
    answers: tuple[Any, ...] = ()
    capabilities: Message = {}
    files: dict[str, str] = field(default_factory=dict[str, str])


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    script: Any = (), answers: Any = (), capabilities: Message | None = None, **files: str
) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        named = {name.replace("_", "."): text for name, text in files.items()}
        SCENARIOS[play.__name__] = Scenario(play, script, tuple(answers), capabilities or {}, named)
        return play

    return add


async def open_session(editor: Editor, workspace: Path, **more: Any) -> str:
    """Open a session and wait for what comes after the answer."""
    session = await editor.open(workspace, **more)
    await settle(editor)
    return session


async def settle(editor: Editor) -> None:
    """Wait for what is told about an opened session later than its answer."""
    await editor.wait_until(lambda: editor.all("available_commands_update"))


def edit(old: str = "two", new: str = "2", name: str = "e1") -> Any:
    return call("EditTool", {"file_path": "a.txt", "old_string": old, "new_string": new}, id=name)


EDIT = call("EditTool", {"file_path": "a.txt", "old_string": "two", "new_string": "2"}, id="e1")
READ = call("Read", {"file_path": "a.txt"}, id="r1")
TEXT = "one\ntwo\n"


# --- prompts and what comes of them ---


@scenario([reply("Let me see.", [READ]), say("It has two lines.")], a_txt=TEXT)
async def streaming(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    assert await editor.prompt(session, "What is in a.txt?") == "end_turn"
    assert editor.text() == "Let me see.It has two lines."
    read = editor.call("r1")
    assert (read["title"], read["kind"], read["status"]) == ("Read a.txt", "read", "completed")
    assert read["rawInput"] == {"file_path": "a.txt"}
    assert read["locations"] == [{"path": f"{workspace}/a.txt"}]
    assert "two" in read["content"][0]["content"]["text"]
    usage = editor.all("usage_update")[-1]
    assert usage["used"] > 0 and usage["size"] == 200_000 and usage["cost"]["amount"] > 0


@scenario([READ, edit(), say("Done.")], ["allow_once"], a_txt=TEXT)
async def edits(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    assert await editor.prompt(session, "Write 2.") == "end_turn"
    assert (workspace / "a.txt").read_text() == "one\n2\n"
    diff = {"type": "diff", "path": f"{workspace}/a.txt", "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    asked = editor.asked[0]["params"]["toolCall"]
    assert diff in asked["content"] and asked["rawInput"]["new_string"] == "2"
    assert asked["locations"] == [{"path": f"{workspace}/a.txt", "line": 1}]
    assert editor.call("e1")["content"] == [diff]
    assert editor.call("e1")["status"] == "completed"


COMMAND = "echo new >>a.txt; echo fresh >b.txt"


@scenario([call("ExecuteCommand", {"command": COMMAND}, id="x1"), say("Done.")], ["allow_once"], a_txt=TEXT)
async def effects_of_commands(editor: Editor, workspace: Path) -> None:
    """What a command has written is asked about afterwards, with its diffs."""
    session = await open_session(editor, workspace)
    await editor.prompt(session, "Run it.")
    content = editor.asked[0]["params"]["toolCall"]["content"]
    diffs = {one["path"].removeprefix(f"{workspace}/"): one for one in content if one["type"] == "diff"}
    assert diffs["a.txt"]["newText"] == "one\ntwo\nnew\n"
    assert diffs["b.txt"]["newText"] == "fresh\n" and "oldText" not in diffs["b.txt"]
    assert any(COMMAND in one["content"]["text"] for one in content if one["type"] == "content")
    assert (workspace / "b.txt").read_text() == "fresh\n"


TODOS = [
    {"id": "1", "content": "Look", "status": "completed"},
    {"id": "2", "content": "Write", "status": "in_progress"},
    {"id": "3", "content": "Test", "status": "pending"},
]


@scenario([call("TodoWrite", {"todos": TODOS}, id="t1"), say("Going on.")])
async def plans(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    await editor.prompt(session, "Plan it.")
    told = [(one["content"], one["status"], one["priority"]) for one in editor.all("plan")[-1]["entries"]]
    assert told == [("Look", "completed", "medium"), ("Write", "in_progress", "medium"), ("Test", "pending", "medium")]


@scenario([say("A dot.")])
async def images(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    data = base64.b64encode(png()).decode()
    assert (
        await editor.prompt(session, "What is it?", {"type": "image", "data": data, "mimeType": "image/png"})
        == "end_turn"
    )


@scenario([say("Both read.")], a_txt=TEXT)
async def embedded_context(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    link = {"type": "resource_link", "uri": f"file://{workspace}/a.txt", "name": "a.txt"}
    embedded = {"type": "resource", "resource": {"uri": "file:///elsewhere/b.txt", "text": "from the editor"}}
    await editor.prompt(session, "Compare ", link, embedded)


# --- permissions and questions ---


@scenario(
    [READ, edit(), edit("one", "1", "e2"), edit("1", "eins", "e3"), say("Done.")], ["deny", "allow_session"], a_txt=TEXT
)
async def permissions(editor: Editor, workspace: Path) -> None:
    """A denial changes nothing; the narrowest rule covers the next call."""
    session = await open_session(editor, workspace)
    assert await editor.prompt(session, "Write.") == "end_turn"
    assert (workspace / "a.txt").read_text() == "eins\ntwo\n"
    assert len(editor.asked) == 2
    options = [(one["optionId"], one["kind"]) for one in editor.asked[0]["params"]["options"]]
    assert options == [
        ("allow_once", "allow_once"),
        ("allow_session", "allow_always"),
        ("allow_project", "allow_always"),
        ("deny", "reject_once"),
        ("deny_always", "reject_always"),
    ]
    names = [one["name"] for one in editor.asked[0]["params"]["options"]]
    assert names[2] == "In this project: Edit(./a.txt)"
    assert editor.call("e1")["status"] == "failed"


@scenario([READ, edit(), edit("one", "1", "e2"), say("Done.")], [None], a_txt=TEXT)
async def dismissed_permissions(editor: Editor, workspace: Path) -> None:
    """A request that the editor closes stops the work, as Escape does in the app."""
    session = await open_session(editor, workspace)
    assert await editor.prompt(session, "Write.") == "cancelled"
    assert (workspace / "a.txt").read_text() == TEXT and len(editor.asked) == 1


@scenario(
    [READ, edit(), edit("one", "1", "e2"), say("Done.")],
    ["edit", {"file_path": "a.txt", "old_string": "two", "new_string": "zwei"}, "deny_reason", {"text": "Keep one."}],
    FORMS,
    a_txt=TEXT,
)
async def elicitation_of_permissions(editor: Editor, workspace: Path) -> None:
    """With forms the arguments can be edited, and a denial can have a reason."""
    session = await open_session(editor, workspace)
    await editor.prompt(session, "Write.")
    assert (workspace / "a.txt").read_text() == "one\nzwei\n"
    form = editor.asked[1]["params"]["requestedSchema"]["properties"]
    assert form["new_string"] == {"type": "string", "title": "new_string", "default": "2"}


QUESTIONS = [
    {
        "header": "Color",
        "question": "Which color?",
        "options": [{"label": "Red"}, {"label": "Blue", "description": "calm"}],
    },
    {
        "header": "Parts",
        "question": "Which parts?",
        "options": [{"label": "Head"}, {"label": "Tail"}],
        "multiSelect": True,
    },
]


@scenario(
    [call("Question", {"questions": QUESTIONS}, id="q1"), say("Thanks.")],
    [{"q0": "Blue", "q0_own": "", "q1": ["Head", "Tail"]}],
    FORMS,
)
async def elicitation(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    await editor.prompt(session, "Ask me.")
    fields = editor.asked[0]["params"]["requestedSchema"]["properties"]
    assert [one["title"] for one in fields["q0"]["oneOf"]] == ["Red", "Blue: calm"]
    assert fields["q1"]["type"] == "array"


@scenario([call("Question", {"questions": QUESTIONS}, id="q1"), say("Thanks.")], ["1", "0"])
async def questions_without_forms(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    await editor.prompt(session, "Ask me.")
    assert [one["name"] for one in editor.asked[0]["params"]["options"]] == ["Red", "Blue", "No answer"]


PLAN = call("Handoff", {"plan": "1. Look.\n2. Write.", "title": "Write it"}, id="h1")


@scenario([PLAN, say("Carried out.")], ["approve"])
async def plan_approval(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    await editor.ask("session/set_config_option", sessionId=session, configId="mode", value="plan")
    assert editor.option("mode") == "plan"
    await editor.prompt(session, "Plan it.")
    asked = editor.asked[0]["params"]
    assert asked["toolCall"]["kind"] == "switch_mode"
    assert "2. Write." in asked["toolCall"]["content"][0]["content"]["text"]
    await editor.wait_until(lambda: editor.option("mode") == "edit")


# --- sessions ---


@scenario([READ, say("Two lines."), say("Again.")], a_txt=TEXT)
async def load(editor: Editor, workspace: Path) -> None:
    """A loaded session is told in full before the answer."""
    session = await open_session(editor, workspace)
    await editor.prompt(session, "What is in a.txt?")
    before = editor.call("r1")
    await editor.ask("session/close", sessionId=session)
    editor.updates.clear()
    loaded = await editor.ask("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
    assert loaded["configOptions"]
    await settle(editor)
    assert editor.text("user_message_chunk") == "What is in a.txt?"
    assert editor.text() == "Two lines."
    assert {**editor.call("r1"), "sessionUpdate": ""} == {**before, "sessionUpdate": ""}
    assert await editor.prompt(session, "Again?") == "end_turn"
    assert editor.text() == "Two lines.Again."


@scenario([say("One."), say("Two.")])
async def resume(editor: Editor, workspace: Path) -> None:
    """A resumed session is not told again."""
    session = await open_session(editor, workspace)
    await editor.prompt(session, "First.")
    await editor.ask("session/close", sessionId=session)
    editor.updates.clear()
    assert (await editor.ask("session/resume", sessionId=session, cwd=str(workspace)))["configOptions"]
    await settle(editor)
    assert await editor.prompt(session, "Second.") == "end_turn"
    assert editor.text() == "Two." and editor.text("user_message_chunk") == ""


@scenario([say("One."), say("Two.")])
async def list_and_delete(editor: Editor, workspace: Path) -> None:
    for text in ("First", "Second"):  # which is also the title that Odin makes, if the session is not closed before
        session = await open_session(editor, workspace)
        await editor.prompt(session, text)
        await editor.ask("session/close", sessionId=session)
    listed = (await editor.ask("session/list", cwd=str(workspace)))["sessions"]
    assert {one["cwd"] for one in listed} == {str(workspace)} and len(listed) == 2
    assert (await editor.ask("session/list", cwd="/"))["sessions"] == []
    await editor.ask("session/delete", sessionId=listed[0]["sessionId"])
    assert (await editor.ask("session/list"))["sessions"] == listed[1:]


# --- settings, commands, cancelling ---


@scenario()
async def config_options(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    for name, value in (
        ("mode", "ask"),
        ("role", "planner"),
        ("model", "anthropic/scripted-model"),
        ("effort", "high"),
        ("permission_mode", "acceptEdits"),
    ):
        told = await editor.ask("session/set_config_option", sessionId=session, configId=name, value=value)
        assert next(one["currentValue"] for one in told["configOptions"] if one["id"] == name) == value


@scenario([say("A haiku.")])
async def slash_commands(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    assert await editor.prompt(session, f"/rename {TITLE}") == "end_turn"
    await editor.wait_until(lambda: editor.all("session_info_update"))
    assert editor.all("session_info_update")[-1]["title"] == TITLE
    assert await editor.prompt(session, "/ask Write a haiku.") == "end_turn"
    assert editor.text().endswith("A haiku.")
    assert editor.option("mode") == "ask"


@scenario([call("ExecuteCommand", {"command": "sleep 600"}, id="x1"), say("After.")])
async def cancel(editor: Editor, workspace: Path) -> None:
    session = await open_session(editor, workspace)
    running = asyncio.create_task(editor.prompt(session, "Wait."))
    await editor.wait_until(lambda: editor.all("tool_call") and editor.call()["status"] == "in_progress")
    await editor.notify("session/cancel", sessionId=session)
    assert await running == "cancelled"
    assert editor.call("x1")["status"] == "failed"
    assert await editor.prompt(session, "Go on.") == "end_turn"


# --- MCP servers and sub-agents ---


def make_server(**more: Any) -> Message:
    return {
        "name": "sample",
        "command": sys.executable,
        "args": [str(Path(__file__).parents[1] / "mcp_client/server.py")],
        "env": [],
        **more,
    }


@scenario([say("Ready."), call("mcp__sample__echo", {"text": "ping"}, id="m1"), say("Done.")], ["allow_once"])
async def mcp_servers(editor: Editor, workspace: Path) -> None:
    session = (await editor.ask("session/new", cwd=str(workspace), mcpServers=[make_server()]))["sessionId"]
    await settle(editor)
    await editor.prompt(session, "Start.")
    await editor.prompt(session, "Call it.")
    assert editor.call("m1")["status"] == "completed", editor.call("m1")


TASK = {"description": "Look around", "prompt": "List the files."}


def answer_agents(seen: SeenRequest) -> Turn:
    if "AgentTool" in seen.tool_names:
        return say("The agent has looked.") if seen.results else call("AgentTool", TASK, id="t1")
    return say("Only a.txt.") if seen.results else call("LS", {"path": "."}, id="l1")


@scenario(answer_agents, a_txt=TEXT)
async def sub_agents(editor: Editor, workspace: Path) -> None:
    """The calls of a sub-agent are shown under its name; its text is not part of the answer."""
    session = await open_session(editor, workspace)
    await editor.prompt(session, "Let an agent look.")
    assert editor.text() == "The agent has looked."
    own = next(one for one in editor.all("tool_call") if one["title"].endswith(": LS ."))
    assert own["toolCallId"] == "l1"
    agent = editor.call("t1")
    assert "Look around" in agent["title"] and agent["status"] == "completed"
    assert "Only a.txt." in str(agent["content"])


WRITE = call("WriteFile", {"file_path": "../lib/new.txt", "content": "x\n"}, id="w1")


@scenario([WRITE, say("Written.")], ["allow_once"])
async def additional_directories(editor: Editor, workspace: Path) -> None:
    """A folder beside the project can be changed like it; one inside it is part of it anyway."""
    library = workspace.parent / "lib"
    session = await open_session(editor, workspace, additionalDirectories=[str(library), str(workspace)])
    assert await editor.prompt(session, "Write it.") == "end_turn"
    assert (library / "new.txt").read_text() == "x\n"
    assert editor.call("w1")["locations"] == [{"path": f"{library}/new.txt", "line": 1}]
