"""`odin undo` and `odin redo`, and /undo, /redo and /rewind in the chat."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from tests.waiting import LIMIT_S, wait_until

from .conftest import Run, RunHere
from .ui.pseudo_terminal import ODIN, open_terminal


def make_edit_script(file: Path, *pairs: tuple[str, str]) -> list[Turn]:
    """Return the turns of one prompt per pair: read the file, replace the text, answer."""
    script: list[Turn] = []
    for old, new in pairs:
        script += [
            call("Read", {"file_path": str(file)}),
            call("EditTool", {"file_path": str(file), "old_string": old, "new_string": new}),
            say(f"{old} is {new}"),
        ]
    return script


@pytest.fixture
def file(workspace: Path) -> Path:
    path = workspace / "a.txt"
    path.write_text("one\n")
    return path


CHAT_WOULD_BE_REWOUND, CHAT_WAS_REWOUND = (
    "The conversation would be rewound, too.\n",
    "The conversation was rewound, too.\n",
)


def test_long_list_of_files_is_truncated(run_odin: Run, workspace: Path) -> None:
    make = call("ExecuteCommand", {"command": "for n in $(seq 60); do echo $n > made-$n; done"})
    with ScriptedServer([make, say("done")]) as server:
        assert run_odin("-p", "make many", "-y", env=server.env("anthropic")).returncode == 0
    assert len(list(workspace.iterdir())) == 60
    lines = run_odin("undo", "--files").stdout.splitlines()
    assert len([line for line in lines if line.startswith("removed")]) == 50
    assert lines[-1] == "... and 10 more of 60 (--json prints all)"
    assert list(workspace.iterdir()) == []


def test_the_work_of_one_agent_is_undone(run_odin: Run, run_here: RunHere, workspace: Path) -> None:
    task = call("AgentTool", {"description": "d", "prompt": "write b"})
    script = [
        *(call("WriteFile", {"file_path": str(workspace / "a"), "content": "a"}), task),
        *(call("WriteFile", {"file_path": str(workspace / "b"), "content": "b"}), say("done"), say("done")),
    ]
    with ScriptedServer(script) as server:
        assert run_odin("-p", "go", "-y", env=server.env("anthropic")).returncode == 0
    code, _, stderr = run_here("undo", "--agent", "agent-7")
    assert code == 2 and "agent-7 has changed no files since that prompt. Agents that have: main, agent-1." in stderr
    assert run_here("undo", "--agent", "main", "--chat")[0] == 2
    assert (
        run_here("undo", "--agent", "agent-1")[1] == 'Went back to before "go" in the files of agent-1.\nremoved   b\n'
    )
    assert [path.name for path in workspace.iterdir()] == ["a"]
    assert run_here("undo", "--agent", "main", "--dry-run")[1].endswith("would be removed   a\n")
    assert run_here("redo")[0] == 0 and (workspace / "b").exists()


def test_undo_and_redo_a_prompt(run_odin: Run, run_here: RunHere, file: Path) -> None:
    with ScriptedServer([*make_edit_script(file, ("one", "two")), say("I know nothing.")]) as server:
        env = server.env("anthropic")
        assert run_odin("-p", "make it two", "-y", env=env).returncode == 0
        assert file.read_text() == "two\n"
        assert run_here("undo", "--list")[1].endswith("1 file   make it two\n")
        tried = run_here("undo", "--dry-run")
        assert tried == (
            0,
            'Would go back to before "make it two".\nwould be restored  a.txt\n' + CHAT_WOULD_BE_REWOUND,
            "",
        )
        assert file.read_text() == "two\n"
        undone = run_odin("undo")
        assert (undone.returncode, undone.stderr, file.read_text()) == (0, "", "one\n")
        assert undone.stdout == 'Went back to before "make it two".\nrestored  a.txt\n' + CHAT_WAS_REWOUND
        redone = run_odin("redo")
        assert (redone.returncode, redone.stderr, file.read_text()) == (0, "", "two\n")
        assert run_here("undo")[0] == 0
        code, _, stderr = run_here("undo")
        assert (code, "has no prompts to undo" in stderr) == (2, True)
        assert run_odin("-p", "what did you do?", "--continue", env=env).stdout == "I know nothing.\n"
        assert server.rejected == []
        assert "make it two" not in str(server.requests[-1].json)
        code, _, stderr = run_here("redo")
        assert (code, "nothing to redo" in stderr) == (2, True)


def test_undo_to_an_earlier_prompt_in_json(run_here: RunHere, file: Path) -> None:
    with ScriptedServer(make_edit_script(file, ("one", "two"), ("two", "three"), ("three", "four"))) as server:
        for number in range(3):
            more = ("--continue",) if number else ()
            assert run_here("-p", f"prompt {number}", "-y", *more, env=server.env("anthropic"))[0] == 0
    rows = json.loads(run_here("undo", "--list", "--json")[1])
    assert [(row["number"], row["text"], row["files"]) for row in rows] == [
        (1, "prompt 2", 1),
        (2, "prompt 1", 1),
        (3, "prompt 0", 1),
    ]
    report = json.loads(run_here("undo", "--to", rows[1]["id"], "--files", "--json")[1])
    assert (report["restored"], report["kept"], report["chat"]) == ([str(file)], [], False)
    assert file.read_text() == "two\n"
    assert len(json.loads(run_here("undo", "--list", "--json")[1])) == 3
    assert run_here("undo", "--to", "3", "--chat")[0] == 0
    assert file.read_text() == "two\n"
    code, _, stderr = run_here("undo", "--to", "1")
    assert (code, "no prompt" in stderr) == (2, True)


def test_user_edits_are_kept_and_change_the_exit_code(run_here: RunHere, file: Path) -> None:
    with ScriptedServer(make_edit_script(file, ("one", "two"))) as server:
        run_here("-p", "make it two", "-y", env=server.env("anthropic"))
    file.write_text("mine\n")
    code, stdout, _ = run_here("undo")
    assert (code, file.read_text()) == (1, "mine\n")
    assert "skipped   a.txt (changed outside this session)" in stdout
    assert "`odin redo`, then `odin undo --force`" in stdout
    assert run_here("redo")[0] == 0
    assert (run_here("undo", "--force")[0], file.read_text()) == (0, "one\n")
    assert (run_here("redo")[0], file.read_text()) == (0, "mine\n")


def test_file_names_and_prompts_cannot_send_terminal_sequences(run_here: RunHere, workspace: Path) -> None:
    script = [call("WriteFile", {"file_path": str(workspace / "a\x1b[2Jb"), "content": "x\n"}), say("done")]
    with ScriptedServer(script) as server:
        assert run_here("-p", "clear \x1b[2J it", "-y", env=server.env("anthropic"))[0] == 0
    assert all("\x1b" not in run_here(*words)[1] for words in (("undo", "--list"), ("undo", "--dry-run"), ("undo",)))
    assert list(workspace.iterdir()) == []


def test_wrong_usage_is_reported(run_here: RunHere, tmp_path: Path) -> None:
    stderr = run_here("undo")[2]
    assert "There is no earlier session" in stderr
    assert "--continue" not in stderr
    assert "There is no session nonsense" in run_here("redo", "--session", "nonsense")[2]
    assert "Folder not found" in run_here("undo", "--cwd", str(tmp_path / "nowhere"))[2]


def test_a_killed_session_can_be_undone(run_odin: Run, file: Path, workspace: Path, without_views: None) -> None:
    """Without views: in one, nothing has changed when Odin is killed."""
    command = {"command": "echo new > a.txt; touch made; sleep 30"}
    with ScriptedServer([call("ExecuteCommand", command), say("never")]) as server:
        process = subprocess.Popen(
            [*ODIN, "-p", "go", "-y"],
            cwd=workspace,
            env={**os.environ, **server.env("anthropic")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until((workspace / "made").exists)
        locked = run_odin("undo")
        assert (locked.returncode, "Use /rewind there" in locked.stderr) == (1, True)
        process.kill()
        process.wait(LIMIT_S)
    undone = run_odin("undo")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert (file.read_text(), (workspace / "made").exists()) == ("one\n", False)
    assert undone.stdout.splitlines()[1:] == ["restored  a.txt", "removed   made", CHAT_WAS_REWOUND.strip()]


def test_undo_and_redo_in_the_chat(file: Path, workspace: Path) -> None:
    with open_terminal("-y", cwd=workspace, env={}, with_stdout=True) as chat:
        chat.see("edit> ")
        chat.type("/rewind\n")
        chat.see("No prompts to rewind yet.")
        chat.type("replace one with two in a.txt\n")
        chat.see("1 occurrence")
        assert file.read_text() == "two\n"
        chat.type("/rewind\n")
        chat.see("/rewind N goes back")
        assert "1 file   replace one with two in a.txt" in chat.shown
        chat.type("/rewind 5\n")
        chat.see("No prompt number 5")
        chat.type("/undo nonsense\n")
        chat.see("Unknown argument 'nonsense'.")
        chat.type("/undo\n")
        chat.see("/redo undoes this")
        assert "restored  a.txt" in chat.shown
        assert file.read_text() == "one\n"
        chat.type("/redo\n")
        chat.see("Rewind undone.")
        assert file.read_text() == "two\n"
        chat.type("/exit\n")
        assert chat.wait_for_exit()[0] == 0
