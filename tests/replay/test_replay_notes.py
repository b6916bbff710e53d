"""What a replay notes that it cannot repeat, recordings that it refuses, and removal of its scratch folder."""

import json
import tempfile
from pathlib import Path

import pytest

from odin.core.errors import LogDamaged
from odin.core.op import AnswerQuestions
from odin.replay.recording import find_recording
from odin.replay.replay import ReplayOptions, replay_session
from odin.session.store import SessionStore
from odin.testing import call, say
from tests.engine.conftest import Start
from tests.engine.hook_programs import claude_hook, new_kit
from tests.engine.test_questions import NAME, ask, wait_for_event
from tests.session.logs import turn, write_session


@pytest.mark.parametrize("file", ["odinconfig.json", ".claude/settings.json"])
async def test_hooks_that_had_an_effect_are_noted(
    start: Start, workspace: Path, home: Path, tmp_path: Path, file: str
) -> None:
    kit = new_kit(tmp_path)
    declared = {"hooks": {"PreToolUse": [claude_hook(kit.script_blocking("no"), "Bash")]}}
    if file != "odinconfig.json":
        (home / ".claude").mkdir()
        (home / file).write_text(json.dumps(declared))
    talk = await start(
        [call("ExecuteCommand", {"command": "echo hello"}), say("Well.")],
        config=declared if file == "odinconfig.json" else {},
    )
    await talk.say("go")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    report = await replay_session(ReplayOptions(session=session, cwd=str(workspace), yes=True))
    assert "Hooks are not run in a replay; in the recording, 1 had an effect." in report.notes
    assert kit.event_names() == ["PreToolUse"]


def test_log_without_a_folder_is_refused(tmp_path: Path) -> None:
    log = write_session(SessionStore(tmp_path, "/w"), "lost", turn("p1", "hello"))
    with pytest.raises(LogDamaged, match="does not name the folder"):
        find_recording(str(log.path))


async def test_question_without_a_recorded_answer_does_not_stop_the_replay(
    start: Start, workspace: Path, home: Path
) -> None:
    talk = await start([ask(NAME), say("Well.")], can_ask=True)
    prompt = await talk.submit("go")
    await talk.client.submit(AnswerQuestions((await wait_for_event(talk)).ask_id, cancelled=True))
    await talk.until_end(prompt)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    log = SessionStore(home / ".local/state/odin", str(workspace)).get_path(session)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"QuestionsAnswered"' not in line))
    report = await replay_session(ReplayOptions(session=session, cwd=str(workspace), yes=True))
    assert report.prompts == 1
    assert not [found for found in report.differences if "did not finish" in found.what]


async def test_scratch_folder_is_removed_unless_kept(
    start: Start, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    talk = await start([call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}), say("Done.")])
    await talk.say("go")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    report = await replay_session(ReplayOptions(session=session, cwd=str(workspace), yes=True))
    assert (report.same, report.scratch) == (True, "")
    assert list(scratch.iterdir()) == []
    report = await replay_session(ReplayOptions(session=session, cwd=str(workspace), yes=True, keep=True))
    assert [str(folder) for folder in scratch.iterdir()] == [str(Path(report.scratch).parent)]
