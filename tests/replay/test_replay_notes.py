"""What a replay cannot do again it says, and what cannot be played at all it names."""

import tempfile
from pathlib import Path

import pytest

from odin.core.errors import LogDamaged
from odin.core.event import Compacted, Envelope
from odin.core.op import AnswerQuestions
from odin.replay.recording import find_recording
from odin.replay.replay import ReplayOptions, _note_summaries, replay_session
from odin.session.store import SessionStore
from odin.testing import call, say
from tests.engine.conftest import Start
from tests.engine.hookkit import claude, new_kit
from tests.engine.test_questions import NAME, ask, asked
from tests.session.logs import turn, write


async def test_hooks_that_had_a_say_are_told_of(start: Start, workspace: Path, tmp_path: Path) -> None:
    blocks = claude(new_kit(tmp_path).blocks("no"), "Bash")
    talk = await start(
        [call("ExecuteCommand", {"command": "echo hello"}), say("Well.")],
        config={"hooks": {"PreToolUse": [blocks]}},
    )
    await talk.say("go")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    report = await replay_session(ReplayOptions(session=session, cwd=str(workspace), yes=True))
    assert "Hooks are not run in a replay; in the recording, 1 had an effect." in report.notes


def test_a_log_that_does_not_say_where_it_took_place(tmp_path: Path) -> None:
    log = write(SessionStore(tmp_path, "/w"), "lost", turn("p1", "hello"))
    with pytest.raises(LogDamaged, match="does not name the folder"):
        find_recording(str(log.path))


async def test_a_question_that_nobody_answered_then_is_left_and_the_replay_goes_on(
    start: Start, workspace: Path, home: Path
) -> None:
    talk = await start([ask(NAME), say("Well.")], can_ask=True)
    prompt = await talk.submit("go")
    await talk.client.submit(AnswerQuestions((await asked(talk)).ask_id, cancelled=True))
    await talk.until_end(prompt)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    log = SessionStore(home / ".local/state/odin", str(workspace)).path_of(session)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"QuestionsAnswered"' not in line))
    report = await replay_session(ReplayOptions(session=session, cwd=str(workspace), yes=True))
    assert report.prompts == 1
    assert not [found for found in report.differences if "did not finish" in found.what]


async def test_nothing_is_left_of_a_replay_unless_it_is_kept(
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


def test_another_number_of_summaries_is_told() -> None:
    envelopes = [Envelope(number, 1.0, "s", Compacted("short", 0)) for number in range(2)]
    assert _note_summaries(envelopes, envelopes) == []
    told = "The conversation was summarized 1 times, in the recording 2 times."
    assert _note_summaries(envelopes, envelopes[:1]) == [told]
