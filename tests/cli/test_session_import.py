"""`odin import`: reads transcripts of other agents, exports and session logs into a new session."""

import json
from pathlib import Path
from typing import Any

import pytest

from odin.core.message import PromptMessage, ReplyMessage, ToolMessage
from odin.session.log import read_log
from odin.session.messages import NO_PROMPT, NO_RESULT, read_json_lines
from odin.session.state import SessionState
from odin.session.store import SessionStore
from odin.testing import ScriptedServer, call, say
from tests.conftest import Run, RunHere

KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"


def jsonl(*lines: Any) -> str:
    return "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)


def make_user_line(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def make_assistant_line(*blocks: Any, id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": id, "role": "assistant", "content": list(blocks)}, **more}


def make_text_block(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def make_tool_use_block(name: str, id: str, **args: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": args}


def make_result_block(id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


TRANSCRIPT = jsonl(
    {"type": "summary", "summary": "Fixing the parser", "leafUuid": "x"},
    {"type": "file-history-snapshot", "snapshot": {}},
    make_user_line("<caveat>", isMeta=True),
    make_user_line("What is in a.py?", timestamp="2026-03-04T05:06:07.000Z"),
    make_assistant_line({"type": "thinking", "thinking": "Look first.", "signature": "s"}),
    make_assistant_line(make_text_block("I will look.")),
    make_assistant_line(make_tool_use_block("Read", "t1", file_path="a.py")),
    make_user_line([make_result_block("t1", [make_text_block("print(1)"), {"type": "image", "source": {}}])]),
    make_assistant_line(make_text_block("in a sub-agent"), isSidechain=True),
    "{not json",
    make_assistant_line(make_text_block("It prints 1."), id="m2"),
    make_user_line([make_text_block("Thanks."), make_text_block("Now run it.")]),
    make_assistant_line(make_tool_use_block("Bash", "t2", command=f"python a.py {KEY}"), id="m3"),
)


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "transcript.jsonl"
    path.write_text(TRANSCRIPT)
    return path


def test_transcript_of_another_agent_becomes_a_session(
    run_here: RunHere, store: SessionStore, transcript: Path
) -> None:
    code, printed, said = run_here("import", str(transcript), "--json")
    assert code == 0, said
    made = json.loads(printed)
    assert (made["title"], made["prompts"]) == ("Fixing the parser", 2)
    assert made["skipped"] == {
        "lines of type 'file-history-snapshot'": 1,
        "lines of type 'user'": 1,
        "blocks of type 'image'": 1,
        "lines of sub-agents": 1,
        "lines that are not JSON": 1,
    }
    path = store.get_path(made["session"])
    state = SessionState.fold(read_log(path), made["session"])
    first, looked, read, answered, second, ran, ended = state.build_history()
    assert isinstance(first, PromptMessage) and first.text == "What is in a.py?"
    assert isinstance(looked, ReplyMessage) and looked.text == "I will look."
    assert looked.thinking == "Look first."
    assert [(one.name, one.args) for one in looked.calls] == [("Read", {"file_path": "a.py"})]
    assert isinstance(read, ToolMessage) and read.results[0].text == "print(1)\n[image]"
    assert isinstance(answered, ReplyMessage) and answered.text == "It prints 1."
    assert isinstance(second, PromptMessage) and second.text == "Thanks.\n\nNow run it."
    assert isinstance(ran, ReplyMessage) and KEY not in str(ran.calls[0].args)
    assert isinstance(ended, ToolMessage) and ended.results[0].text == NO_RESULT
    assert next(read_log(path)).ts == 1772600767.0
    assert KEY not in path.read_text()
    assert "Fixing the parser" in run_here("sessions")[1]


SETUPS = Path(__file__).parent / "setups"


@pytest.mark.parametrize(
    "path",
    [*SETUPS.rglob("home/**/????????-*.jsonl"), *SETUPS.rglob("*-*-*T*.jsonl"), SETUPS / "opencode-export.json"],
    ids=lambda path: path.name,
)
def test_real_transcripts_of_other_agents_become_sessions(run_here: RunHere, store: SessionStore, path: Path) -> None:
    """The agents themselves wrote them: Claude Code, Codex, Gemini CLI and OpenCode."""
    code, printed, said = run_here("import", str(path), "--json")
    assert code == 0, said
    session = json.loads(printed)["session"]
    state = SessionState.fold(read_log(store.get_path(session)), session)
    prompt, looked, read, answered = state.build_history()
    assert isinstance(prompt, PromptMessage) and prompt.text.strip('"') == "What is in hello.txt?"
    assert isinstance(looked, ReplyMessage) and "hello.txt" in str([one.args for one in looked.calls])
    assert isinstance(read, ToolMessage) and "hello" in read.results[0].text and not read.results[0].is_error
    assert isinstance(answered, ReplyMessage) and answered.text == "The file says hello."
    assert 0 < next(read_log(store.get_path(session))).ts < 1795013100


def test_repeated_and_parallel_calls_of_other_agents_count_once() -> None:
    """Gemini CLI repeats a reply when its calls have ended; Codex writes one line for each of several calls."""
    made: dict[str, Any] = {"id": "c1", "name": "glob", "args": {}, "status": "error", "result": []}
    reply = {"id": "r1", "type": "gemini", "content": "Looking."}
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>x"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "name": "a", "call_id": "c1", "arguments": "not json"},
        {"type": "custom_tool_call", "name": "b", "call_id": "c2", "input": "patch"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        *(None, 3, {"type": 7}, {"type": "function_call", "arguments": 1}),
    ]
    lines = jsonl(reply, {**reply, "toolCalls": [made]}, {**reply, "toolCalls": [made]})
    codex = jsonl(*({"type": "response_item", "payload": item} for item in items))
    _, looked, failed = read_json_lines(lines.encode().splitlines()).build_messages()
    assert (looked.content, [one.id for one in looked.calls], failed.results[0].is_error) == ("Looking.", ["c1"], True)
    prompt, reply, results, *_ = read_json_lines(codex.encode().splitlines()).build_messages()
    assert (prompt.content, reply.reasoning) == ("go", "Hm.")
    assert [one.args for one in reply.calls] == [{"input": "not json"}, {"input": "patch"}]
    assert [one.text for one in results.results] == ["one", "two"]


def test_import_prints_the_number_of_skipped_lines(run_here: RunHere, transcript: Path) -> None:
    printed = run_here("import", str(transcript), "--title", "Mine")[1]
    assert ": Mine\nImported 2 prompts. Continue with: odin --resume " in printed
    assert "Skipped: lines of sub-agents (1)\n" in printed


def test_imported_session_can_be_resumed(run_odin: Run, transcript: Path) -> None:
    session = json.loads(run_odin("import", str(transcript), "--json").stdout)["session"]
    with ScriptedServer([say("On it.")]) as server:
        done = run_odin("resume", session, "-p", "go on", env=server.env("anthropic"))
        assert done.stdout == "On it.\n", done.stderr
        words = [message["content"] for message in server.requests[0].messages]
    assert "It prints 1." in str(words) and "go on" in str(words[-1])


def test_export_and_session_log_import_to_the_same_history(
    run_odin: Run, run_here: RunHere, store: SessionStore, workspace: Path, tmp_path: Path
) -> None:
    """The model sees the same conversation after the import of an export and of the bare log."""
    (workspace / "a.txt").write_text("hello")
    with ScriptedServer([call("Read", {"file_path": "a.txt"}), say("It says hello.")]) as server:
        assert run_odin("-p", "read a.txt", env=server.env("anthropic")).returncode == 0
    (original,) = (item.id for item in store.list())
    exported = tmp_path / "e.json"
    assert run_here("sessions", "export", original, "-o", str(exported))[0] == 0
    wanted = _list_texts(store, original)
    assert [kind for kind, _ in wanted] == ["PromptMessage", "ReplyMessage", "ToolMessage", "ReplyMessage"]
    for transcript in (exported, store.get_path(original)):
        code, printed, said = run_here("import", str(transcript), "--json")
        assert code == 0, said
        made = json.loads(printed)
        assert _list_texts(store, made["session"]) == wanted
        assert made["skipped"] == {}
    assert json.loads(run_here("usage", "--all", "--json")[1])["total"]["calls"] == 2, (
        "imported usage does not count again"
    )


def _list_texts(store: SessionStore, session: str) -> list[tuple[str, str]]:
    state = SessionState.fold(read_log(store.get_path(session)), session)
    found: list[tuple[str, str]] = []
    for message in state.build_history():
        said = "".join(one.text for one in message.results) if isinstance(message, ToolMessage) else message.text
        found.append((type(message).__name__, said))
    return found


def test_permissions_are_not_imported(run_here: RunHere, store: SessionStore, tmp_path: Path) -> None:
    """A file from someone else must not allow anything."""
    from odin.core.event import PermissionModeChanged
    from tests.session.logs import opened, turn, write_session

    write_session(store, "bold", [opened(), *turn("t1", "hi"), PermissionModeChanged("bypassPermissions")])
    made = json.loads(run_here("import", str(store.get_path("bold")), "--json")[1])
    events = [type(item.event).__name__ for item in read_log(store.get_path(made["session"]))]
    assert "PermissionModeChanged" not in events and "SessionOpened" not in events


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "No conversation"),
        ("hello\n", "No conversation"),
        ('{"odin_export":1,"messages":[', "not a complete export"),
        ('{"odin_export":1,"messages":{}}', "No conversation"),
        ('{"odin_log":99,"session":"x","cwd":"/","created":1}\n', "newer"),
        ("[" * 100_000, "No conversation"),
        ('{"type":"user","message":5}\n{"type":5}\nnull\n[1]\n', "No conversation"),
    ],
)
def test_file_without_a_conversation_is_refused(
    run_here: RunHere, store: SessionStore, tmp_path: Path, content: str, why: str
) -> None:
    path = tmp_path / "bad"
    path.write_text(content)
    code, _, said = run_here("import", str(path))
    assert code != 0 and why in said, said
    assert "inside Odin" not in said
    assert store.list() == ()


@pytest.mark.parametrize("depth", [60, 900, 100_000])
@pytest.mark.parametrize("shape", ["export", "lines"])
def test_deeply_nested_arguments_do_not_crash_the_import(
    run_here: RunHere, store: SessionStore, tmp_path: Path, shape: str, depth: int
) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    path = tmp_path / "deep"
    if shape == "export":
        call = f'{{"type":"call","id":"../c","name":"Bash","status":"success","text":"x","args":{deep}}}'
        path.write_text(f'{{"odin_export":1,"messages":[{{"type":"prompt","text":"hi"}},{call}]}}')
    else:
        call = f'{{"type":"tool_use","id":"../c","name":"Bash","input":{deep}}}'
        prompt = '{"type":"user","message":{"role":"user","content":"hi"}}'
        path.write_text(f'{prompt}\n{{"type":"assistant","message":{{"content":[{call}]}}}}\n')
    code, printed, said = run_here("import", str(path), "--json")
    assert "inside Odin" not in said
    if code:
        assert "not a complete export" in said and store.list() == ()
    else:
        assert '"a":{' not in store.get_path(json.loads(printed)["session"]).read_text()


def test_missing_file_folder_and_argument_are_refused(run_here: RunHere, tmp_path: Path) -> None:
    assert (
        run_here("import", str(tmp_path / "none"))[0]
        == run_here("import", str(tmp_path))[0]
        == run_here("import")[0]
        == 2
    )


def test_stream_json_output_without_a_prompt_is_imported() -> None:
    lines = [
        {"type": "system", "subtype": "init", "model": "m", "cwd": "/w"},
        make_assistant_line(make_text_block("First."), id="a"),
        make_assistant_line(make_text_block("Second."), id="b"),
        make_user_line([make_result_block("nobody", "lost")]),
        {"type": "result", "subtype": "success"},
    ]
    found = read_json_lines(jsonl(*lines).encode().splitlines())
    assert [(item.role, item.content) for item in found.build_messages()] == [
        ("user", NO_PROMPT),
        ("assistant", "First.\n\nSecond."),
    ]
    assert found.skipped == {"results without a call": 1, "lines of type 'result'": 1}
    assert (found.model, found.cwd) == ("m", "/w")
