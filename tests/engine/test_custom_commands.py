"""A custom command is expanded on submission; the typed text is displayed."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from odin.core.call_events import PermissionAsked, RequestStarted, SkillUsed, ToolEnded
from odin.core.client import CustomCommand
from odin.core.event import PromptChanged, PromptInjected, PromptQueued, TurnStarted, Warned
from odin.core.op import AnswerPermission, ChangePrompt, Interrupt, Prompt
from odin.session.index import read_index_entry
from odin.testing import ScriptedServer, call, say

from .conftest import Start
from .test_recovery import APIS, make_options

Run = Callable[..., "subprocess.CompletedProcess[str]"]


INIT = CustomCommand(
    "init", "Write or improve AGENTS.md, the project's instructions for coding agents.", "[INSTRUCTIONS]", "built-in"
)
REVIEW = CustomCommand(
    "review", "Review the uncommitted changes, or a branch or commit.", "[BRANCH|COMMIT]", "built-in"
)


@pytest.fixture(autouse=True)
def fix_file(workspace: Path) -> Path:
    path = workspace / ".odin/commands/fix.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\ndescription: Fix an issue\nargument-hint: NUMBER\n---\nFix issue $ARGUMENTS, then test.\n")
    return path


def get_text(body: bytes) -> str:
    return body.decode()


@pytest.mark.parametrize("api", APIS)
async def test_model_reads_the_expanded_text_and_the_user_sees_the_typed_text(start: Start, api: str) -> None:
    talk = await start([say("fixed"), say("again")], **make_options(api))
    await talk.say("/FIX 12")
    (started,) = talk.all(TurnStarted)
    assert (started.text, started.display_text) == ("Fix issue 12, then test.", "/FIX 12")
    first = get_text(talk.server.requests[0].body)
    assert "Fix issue 12, then test." in first
    assert "/FIX" not in first
    await talk.say("thanks")
    snapshot = await talk.client.snapshot()
    assert [turn.body for turn in snapshot.messages] == ["/FIX 12", "thanks"]
    assert snapshot.title == "/FIX 12"
    assert talk.server.rejected == []


async def test_unknown_command_goes_to_the_model_unchanged(start: Start) -> None:
    talk = await start([say("a"), say("b"), say("c")])
    for text in ("/unknown thing", "/etc/passwd is broken", "/help"):
        await talk.say(text)
    assert [(event.text, event.display_text) for event in talk.all(TurnStarted)] == [
        ("/unknown thing", ""),
        ("/etc/passwd is broken", ""),
        ("/help", ""),
    ]
    assert "/unknown thing" in get_text(talk.server.requests[0].body)


async def test_command_list_names_the_source_of_each_command(start: Start, home: Path, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"commands": {"fix": "never", "lint": "Lint. $ARGUMENTS"}}))
    user_file = home / ".config/odin/commands/git/commit.md"
    user_file.parent.mkdir(parents=True)
    user_file.write_text("Commit what is staged.")
    talk = await start([say("ok")], config={"commands": {"tidy": {"body": "Tidy up.", "description": "Tidies"}}})
    assert await talk.client.list_commands() == (
        CustomCommand("fix", "Fix an issue", "NUMBER", "project"),
        CustomCommand("git/commit", "Commit what is staged.", "", "user"),
        INIT,
        CustomCommand("lint", "Lint. $ARGUMENTS", "", "project config"),
        REVIEW,
        CustomCommand("tidy", "Tidies", "", "user config"),
    )
    await talk.say("/tidy src")
    assert "Tidy up.\\n\\nsrc" in get_text(talk.server.requests[0].body)
    assert "commands" not in (await talk.client.snapshot()).config, (
        "the recorded configuration leaves out the command texts"
    )


async def test_custom_command_replaces_a_built_in_prompt(start: Start, workspace: Path) -> None:
    talk = await start([say("a"), say("b"), say("c")])
    await talk.say("/init Mention the fonts.")
    await talk.say("/review main")
    first, second = (get_text(request.body) for request in talk.server.requests)
    assert "in AGENTS.md at its root" in first
    assert "Mention the fonts." in first
    assert "What to review: main" in second
    assert [event.display_text for event in talk.all(TurnStarted)] == ["/init Mention the fonts.", "/review main"]
    (workspace / ".odin/commands/review.md").write_text("Look at $ARGUMENTS our way.")
    await talk.say("/review main")
    assert "Look at main our way." in get_text(talk.server.requests[2].body)
    assert any(event.text.startswith("/review is the project's") for event in talk.all(Warned))


@pytest.mark.parametrize("mode", ["acceptEdits", "auto"])
async def test_init_writes_the_instruction_file_once_it_is_approved(start: Start, workspace: Path, mode: str) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "AGENTS.md"), "content": "Run make.\n"}, id="w")
    talk = await start([write, say("ok")], yes=False, can_ask=True, permission_mode=mode)
    talk.answers = [AnswerPermission("", True)]
    await talk.say("/init")
    (asked,) = talk.all(PermissionAsked)
    assert "agents.md" in asked.reason
    assert (workspace / "AGENTS.md").read_text() == "Run make.\n"


async def test_queued_command_is_edited_as_typed_text(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one").hold(gate), say("two")])
    first = await talk.submit("go")
    second = await talk.submit("/fix 12")
    (waiting,) = (await talk.client.snapshot()).queue
    assert (waiting.body, waiting.text) == ("/fix 12", "Fix issue 12, then test.")
    await talk.client.submit(ChangePrompt(second, "/fix 13"))
    (waiting,) = (await talk.client.snapshot()).queue
    assert waiting.body == "/fix 13"
    await talk.client.submit(ChangePrompt(second, mode="plan_mode"))
    gate.set()
    await talk.until_end(first)
    await talk.until_end(second)
    assert "Fix issue 13, then test." in get_text(talk.server.requests[1].body)
    assert [event.display_text for event in talk.all(PromptQueued)] == ["/fix 12"]
    assert [event.display_text for event in talk.all(PromptChanged)] == ["/fix 13", "/fix 13"]
    assert talk.all(TurnStarted)[-1].display_text == "/fix 13"


async def test_queued_command_can_be_changed_to_plain_text(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one").hold(gate), say("two")])
    first = await talk.submit("go")
    second = await talk.submit("/fix 12")
    await talk.client.submit(ChangePrompt(second, "rather this"))
    gate.set()
    await talk.until_end(first)
    await talk.until_end(second)
    started = talk.all(TurnStarted)[-1]
    assert (started.text, started.display_text) == ("rather this", "")


async def test_queued_command_keeps_both_texts_after_a_resume(start: Start) -> None:
    gate = threading.Event()
    server = ScriptedServer([say("one").hold(gate), say("two"), say("three")]).start()
    talk = await start(None, server=server)
    await talk.submit("go")
    waiting = await talk.submit("/fix 12")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    gate.set()
    again = await start(None, server=server, resume=session)
    assert [item.body for item in (await again.client.snapshot()).queue] == ["/fix 12"]
    await again.client.submit(ChangePrompt(waiting, delivery="queue"))
    await again.until_end(waiting)
    started = again.all(TurnStarted)[-1]
    assert (started.text, started.display_text) == ("Fix issue 12, then test.", "/fix 12")


async def test_injected_command_keeps_both_texts(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one").hold(gate), say("two")])
    first = await talk.submit("go")
    await talk.until_live(RequestStarted)
    await talk.client.submit(Prompt("s", "/fix 7"))
    await talk.client.submit(Interrupt("inject"))
    await talk.until_end(first)
    gate.set()
    (joined,) = talk.all(PromptInjected)
    assert (joined.text, joined.display_text) == ("Fix issue 7, then test.", "/fix 7")


@pytest.mark.slow
async def test_lists_titles_and_exports_show_the_typed_text(start: Start, run_odin: Run) -> None:
    talk = await start([say("fixed")])
    await talk.say("/fix 12")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    (row,) = json.loads(run_odin("sessions", "list", "--json").stdout)
    assert row["first"] == "/fix 12"
    exported = Path(run_odin("sessions", "export", session).stdout.strip()).read_text()
    assert "/fix 12" in exported
    assert "Fix issue" not in exported
    for words in ("/fix 12", "Fix issue 12"):
        assert session in run_odin("sessions", "search", words).stdout, "search finds the typed and the expanded text"


async def test_project_command_that_shadows_a_user_command_causes_a_warning(start: Start, home: Path) -> None:
    user_file = home / ".config/odin/commands/fix.md"
    user_file.parent.mkdir(parents=True)
    user_file.write_text("My own way of fixing.")
    talk = await start([say("ok")])
    await talk.say("/fix 1")
    warnings = [event.text for event in talk.all(Warned) if event.text.startswith("/fix is the project's")]
    assert len(warnings) == 1
    assert str(user_file) in warnings[0]
    trusted = await start([say("ok")], trust=True)
    await trusted.say("/fix 1")
    assert [event for event in trusted.all(Warned) if "/fix" in event.text] == []


async def test_ignored_command_file_is_warned_about_once(start: Start, fix_file: Path) -> None:
    fix_file.with_name("help.md").write_text("mine")
    talk = await start([say("a"), say("b")])
    await talk.say("/fix 1")
    await talk.say("/fix 2")
    assert sum("/help is a built-in command" in event.text for event in talk.all(Warned)) == 1


async def test_prompt_without_a_slash_loads_no_commands(start: Start, fix_file: Path) -> None:
    fix_file.with_name("help.md").write_text("mine")
    talk = await start([say("a")])
    await talk.say("fix 1")
    assert talk.all(Warned) == []
    assert "Fix issue" not in get_text(talk.server.requests[0].body)


async def test_command_text_attaches_nothing_outside_the_project(start: Start, tmp_path: Path, fix_file: Path) -> None:
    secret = tmp_path / "private.txt"
    secret.write_text("the launch code\n")
    fix_file.write_text(f"Read @{secret} and $ARGUMENTS.")
    talk = await start([say("a"), say("b")])
    await talk.say("/fix it")
    assert "the launch code" not in get_text(talk.server.requests[0].body)
    await talk.say(f"/fix @{secret}")
    assert "the launch code" in get_text(talk.server.requests[1].body), "the user may name the file"


def test_headless_run_expands_a_command(run_odin: Run) -> None:
    with ScriptedServer([say("fixed")]) as server:
        done = run_odin("-p", "/fix 12", env=server.env("anthropic"))
        assert done.stdout == "fixed\n"
        assert "Fix issue 12, then test." in get_text(server.requests[0].body)


def test_initialize_response_lists_the_commands(run_odin: Run) -> None:
    request = {"type": "control_request", "request_id": "r", "request": {"subtype": "initialize"}}
    with ScriptedServer([]) as server:
        said = run_odin(
            *("-p", "--input-format", "stream-json", "--output-format", "stream-json"),
            env=server.env("anthropic"),
            input=json.dumps(request) + "\n",
        )
    answers = [json.loads(line) for line in said.stdout.splitlines() if "control_response" in line]
    listed = answers[0]["response"]["response"]["commands"]
    assert listed[0] == {"name": "fix", "description": "Fix an issue", "argumentHint": "NUMBER"}
    assert [item["name"] for item in listed] == ["fix", "init", "review"]


def test_index_entry_from_a_log_has_the_typed_text(tmp_path: Path) -> None:
    header = '{"odin_log":2,"session":"s","cwd":"/","created":1.0}'
    event = '{"type":"TurnStarted","id":"p","text":"long text","mode":"edit_mode","display_text":"/fix 1"}'
    log = tmp_path / "s.jsonl"
    log.write_text(f'{header}\n{{"seq":0,"ts":1.0,"session":"s","event":{event}}}\n')
    assert read_index_entry("s", log, log.stat().st_size, 1).first == "/fix 1"


class TestShellCommands:
    """What a command writes as `` !`command` `` is replaced by its output only if it may run."""

    BODY = (
        "Issue $1 of $2, all: $ARGUMENTS.\n\n!`echo out-$((6*7))`; not`!`echo no``\n"
        "- !`printf '%s|' \"$1\" $2`\n- !`cat .env`\n- !`echo x > written; echo wrote $?`\n"
    )

    @pytest.fixture(autouse=True)
    def command_file(self, workspace: Path) -> Path:
        path = workspace / ".claude/commands/frontend/test.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\nallowed-tools: Bash(echo:*), Bash\nmodel: opus\ncolor: red\n---\n{self.BODY}")
        (workspace / ".env").write_text("TOP_SECRET=1")
        return path

    async def test_trusted_project_gets_output_without_writing_or_secrets(self, start: Start, workspace: Path) -> None:
        talk = await start([say("ok"), say("ok")], trust=True, yes=False)
        await talk.say("/frontend:test '12 $(id)' high")
        await talk.say("/frontend/test a b")
        text = talk.all(TurnStarted)[0].text
        assert text.startswith("Issue 12 $(id) of high, all: '12 $(id)' high.\n\nout-42; not`!`echo no``\n")
        assert "- 12 $(id)|high|\n" in text
        assert "wrote 1" in text and "TOP_SECRET" not in text
        assert not (workspace / "written").exists()
        ignored = [item.text for item in talk.all(Warned) if "front matter" in item.text]
        assert ignored == [
            f"{workspace}/.claude/commands/frontend/test.md: model, color in its front matter has no effect."
        ]

    async def test_untrusted_project_runs_nothing_and_the_user_is_told_once(
        self, start: Start, workspace: Path
    ) -> None:
        (workspace / ".claude/commands/mark.md").write_text(f"!`touch {workspace}/ran` !`touch /tmp/x$1`")
        talk = await start([say("ok"), say("ok")], yes=True)
        await talk.say("/mark")
        await talk.say("/mark")
        assert talk.all(TurnStarted)[1].text == f"!`touch {workspace}/ran` !`touch /tmp/x`"
        assert not (workspace / "ran").exists()
        told = [item.text for item in talk.all(Warned) if item.text.startswith("/mark is only text")]
        assert told == [
            "/mark is only text, and runs and allows nothing: its files are not trusted, or have changed. "
            "`odin trust` shows them."
        ]

    async def test_changed_file_runs_nothing_any_more(self, start: Start, run_odin: Run, workspace: Path) -> None:
        path = workspace / ".claude/commands/mark.md"
        path.write_text("---\nallowed-tools: Read(/etc/hosts)\n---\n!`echo one`")
        assert (await asyncio.to_thread(run_odin, "trust", "add", "--yes")).returncode == 0
        talk = await start([say("ok"), say("ok")], yes=False)
        await talk.say("/mark")
        path.write_text("---\nallowed-tools: Read(/etc/hosts)\n---\n!`echo two`")
        await talk.say("/mark")
        assert [event.text for event in talk.all(TurnStarted)] == ["one", "!`echo two`"]
        assert len(talk.all(SkillUsed)) == 1

    async def test_arguments_and_outputs_are_never_run(self, start: Start, workspace: Path) -> None:
        path = workspace / ".claude/commands/echo.md"
        path.write_text("Say $1 and $ARGUMENTS[1].\n!`echo '!`touch ran2` $1 $ARGUMENTS'`\n!`echo \"$2\"`")
        talk = await start([say("ok")], trust=True)
        await talk.say("/echo '!`touch ran`' '$(touch ran3)'")
        text = talk.all(TurnStarted)[0].text
        assert text.startswith("Say !`touch ran` and $(touch ran3).\n")
        assert text.endswith("\n$(touch ran3)")
        assert not list(workspace.glob("ran*"))

    async def test_commands_of_the_user_run_what_is_allowed(self, start: Start, home: Path, workspace: Path) -> None:
        folder = home / ".claude/commands"
        folder.mkdir(parents=True)
        (folder / "mine.md").write_text("---\nallowed-tools: Bash(make:*)\n---\n!`make --version` !`sh x` !`pwd`")
        talk = await start([say("ok")], yes=False)
        await talk.say("/mine")
        text = talk.all(TurnStarted)[0].text
        assert text.startswith("GNU Make") and text.endswith(f" !`sh x` {workspace}")
        assert "add the command to `allowed-tools`" in " ".join(item.text for item in talk.all(Warned))

    async def test_denied_command_does_not_run_in_a_trusted_folder(self, start: Start, workspace: Path) -> None:
        (workspace / ".claude/commands/no.md").write_text("!`echo denied` !`pwd`")
        talk = await start([say("ok")], trust=True, config={"disallowed_tools": ["Bash(echo:*)"]})
        await talk.say("/no")
        assert talk.all(TurnStarted)[0].text == f"!`echo denied` {workspace}"

    async def test_allowed_tools_apply_to_the_turn_of_a_trusted_command(self, start: Start, workspace: Path) -> None:
        command = {"command": "make --version"}
        (workspace / ".claude/commands/py.md").write_text("---\nallowed-tools: Bash(make:*)\n---\nGo.")
        for trust, status in ((True, "success"), (False, "denied")):
            talk = await start(
                [call("ExecuteCommand", command), say("ok")], trust=trust, yes=False, commands_ask="before"
            )
            await talk.say("/py")
            assert [event.status for event in talk.all(ToolEnded)] == [status]


def test_trust_lists_what_commands_run_and_allow(run_odin: Run, workspace: Path) -> None:
    (workspace / ".claude/commands").mkdir(parents=True)
    assert "nothing here needs trust" in run_odin("trust").stdout
    (workspace / ".claude/commands/a.md").write_text(
        "---\nallowed-tools: Bash(git add:*), Bash\n---\n!`git status` now"
    )
    line = "command: .claude/commands/a.md, which runs git status and allows Bash(git add:*)"
    assert line in run_odin("trust").stdout
