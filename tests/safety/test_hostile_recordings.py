"""A recording from an untrusted source is replayed in a scratch copy and changes nothing else."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.core.call_events import Replied, ToolEnded, ToolStarted
from odin.core.errors import OdinError
from odin.core.event import AnyEvent, Envelope, SessionOpened, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, ToolCall
from odin.replay.recording import save_recording
from odin.replay.replay import ReplayOptions, ReplayReport, format_report, replay_session
from odin.session.log import LOG_FORMAT, LogHeader
from odin.testing import call, say
from tests.engine.conftest import Start
from tests.engine.speculation import snapshot_folder


def write_recording(
    folder: Path, calls: list[ToolCall], *, cwd: str = "/project", root: str = "", config: dict[str, Any] | None = None
) -> Path:
    """Write a recording of one prompt and one reply with these calls; `cwd` and `root` are the claimed folders."""
    notes = (f"Project root: {root}",) if root else ()
    events: list[AnyEvent] = [
        SessionOpened(cwd, "anthropic/claude-sonnet-4-5", "1", config=config or {}),
        TurnStarted("p1", "go", "edit_mode", notes=notes),
        Replied(ReplyMessage(tuple(calls))),
    ]
    for item in calls:
        events += [ToolStarted(item.id, item.name, item.args), ToolEnded(item.id, item.name, "success", "done")]
    events += [Replied(ReplyMessage((Text("Done."),))), TurnEnded("p1", "end_turn", "Done.")]
    lines: list[Any] = [LogHeader(LOG_FORMAT, "evil", cwd, 1.7e9)]
    lines += [Envelope(number, 1.7e9 + number, "evil", event) for number, event in enumerate(events)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "files").mkdir(exist_ok=True)
    (folder / "session.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return folder


TOUCH = ToolCall("c1", "ExecuteCommand", {"command": "touch made-by-a-recording"})


async def replay_recording(folder: Path | str, **options: Any) -> ReplayReport:
    """Replay a recording. Commands also run without a sandbox: those in these tests only create a file."""
    return await replay_session(ReplayOptions(session=str(folder), yes=True, **options))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "victim"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine\n")
    return folder


@pytest.mark.parametrize(
    ("cwd", "root"),
    [
        ("{victim}", "/project"),
        ("/project/../../../../../../../../../..{victim}", "/project"),
        ("/../../../../../../../../../..{victim}", "/project"),
        ("/project/sub", "/project"),
        ("/project/sub/new", "/project"),
        ("project", "project"),
        (".", "."),
        ("", ""),
    ],
)
async def test_a_recording_that_would_leave_the_copy_is_rejected(
    tmp_path: Path, workspace: Path, victim: Path, monkeypatch: pytest.MonkeyPatch, cwd: str, root: str
):
    monkeypatch.chdir(workspace)
    before = snapshot_folder(victim), snapshot_folder(workspace)
    folder = write_recording(tmp_path / "recording", [TOUCH], cwd=cwd.format(victim=victim), root=root)
    (folder / "files" / "sub").symlink_to(victim)
    with pytest.raises(OdinError):
        await replay_recording(folder)
    assert (snapshot_folder(victim), snapshot_folder(workspace)) == before


async def test_a_recording_in_a_subfolder_of_the_root_is_replayed(tmp_path: Path):
    folder = write_recording(tmp_path / "recording", [TOUCH], cwd="/project/sub", root="/project")
    report = await replay_recording(folder, keep=True)
    assert (Path(report.scratch) / "sub" / "made-by-a-recording").exists()
    shutil.rmtree(Path(report.scratch).parent)


@pytest.mark.parametrize("root", ["/", "{home}", "{above}"])
async def test_a_whole_file_system_or_home_folder_is_not_copied(tmp_path: Path, home: Path, root: str):
    """The log names the folder to copy; replay refuses a folder that is too large."""
    folder = write_recording(tmp_path / "recording", [TOUCH], cwd=root.format(home=home, above=home.parent))
    with pytest.raises(OdinError, match="too large"):
        await replay_recording(folder / "session.jsonl")


async def test_symlinks_cannot_lead_changes_out_of_the_copy(tmp_path: Path, victim: Path):
    calls = [
        ToolCall("c1", "WriteFile", {"file_path": "/project/sub/mine.txt", "content": "theirs\n"}),
        ToolCall("c2", "WriteFile", {"file_path": "/project/file", "content": "theirs\n"}),
        ToolCall("c3", "WriteFile", {"file_path": str(victim / "new.txt"), "content": "theirs\n"}),
        ToolCall("c4", "Delete", {"file_path": "/project/sub/mine.txt"}),
        ToolCall("c5", "WriteFile", {"file_path": "/project/../../../../../.." + str(victim / "up"), "content": "x"}),
    ]
    folder = write_recording(tmp_path / "recording", calls)
    (folder / "files" / "sub").symlink_to(victim)
    (folder / "files" / "file").symlink_to(victim / "mine.txt")
    before = snapshot_folder(victim)
    await replay_recording(folder)
    assert snapshot_folder(victim) == before


async def test_settings_of_a_recording_are_ignored(tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither the settings in its log nor those in its untrusted files apply to the replay."""
    monkeypatch.setenv("ACME_API_KEY", "sk-acme-not-for-strangers-0123456789")
    started = f"touch {victim}/started"
    hooks = {"SessionStart": [{"command": started}], "PreToolUse": [{"command": started}]}
    config = {
        "hooks": hooks,
        "env_passthrough": ["ACME_API_KEY"],
        "permission_mode": "bypassPermissions",
        "sandbox": {"backend": "off", "network": True, "writable_paths": ["/"]},
        "providers": {"x": {"base_url": "http://127.0.0.1:9/"}},
        "web": {"fetch": True},
        "compaction": {"model": "x/y"},
        "fallback_model": ["x/y"],
        "small_model": "x/y",
    }
    show = ToolCall("c1", "ExecuteCommand", {"command": "env > env.txt"})
    folder = write_recording(tmp_path / "recording", [show], config=config)
    (folder / "files" / "odinconfig.json").write_text(json.dumps({"hooks": hooks, "env_passthrough": ["ACME_API_KEY"]}))
    report = await replay_recording(folder, keep=True)
    seen = Path(report.scratch) / "env.txt"
    assert seen.exists(), format_report(report, verbose=True)
    assert "not-for-strangers" not in seen.read_text()
    shutil.rmtree(Path(report.scratch).parent)
    assert os.listdir(victim) == ["mine.txt"]


async def test_network_calls_are_not_replayed(tmp_path: Path):
    calls = [
        ToolCall("c1", "WebFetch", {"url": "http://page.example/", "prompt": "x"}),
    ]
    report = await replay_recording(write_recording(tmp_path / "recording", calls))
    assert any("network calls" in note for note in report.notes)


@pytest.mark.parametrize("session", ["../../up", "a/b", "", "\x1b[2J"])
async def test_a_recording_with_an_invalid_session_id_is_rejected(tmp_path: Path, session: str):
    folder = write_recording(tmp_path / "recording", [TOUCH])
    log = folder / "session.jsonl"
    lines = log.read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "session": session})
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(OdinError):
        await replay_recording(folder)


async def test_a_saved_recording_contains_no_secrets(
    start: Start, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    secret = "sk-acme-not-for-strangers-0123456789"
    monkeypatch.setenv("ACME_API_KEY", secret)
    (workspace / ".env").write_text("KEY=1\n")
    talk = await start([call("ExecuteCommand", {"command": f"echo {secret}"}), say("Done.")])
    await talk.say(f"Use {secret} please.")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    summary = save_recording(session, str(tmp_path / "saved"), str(workspace))
    assert secret not in (tmp_path / "saved" / "session.jsonl").read_text()
    assert "Removed from the log" in summary
    assert ".env" in summary
    assert (tmp_path / "saved").stat().st_mode & 0o077 == 0
