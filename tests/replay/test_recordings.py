"""Every recording in tests/recordings replays with the same result."""

import re
from pathlib import Path

import pytest

from odin.replay.replay import ReplayOptions, format_report, replay_session
from tests.replay.record import RECORDINGS, SCENES

RECORDED_NAMES = sorted(path.name for path in RECORDINGS.iterdir() if (path / "session.jsonl").is_file())


def test_every_scene_has_a_recording():
    assert set(SCENES) <= set(RECORDED_NAMES)


@pytest.mark.parametrize("name", RECORDED_NAMES)
async def test_replay_gives_the_recorded_result(name: str):
    report = await replay_session(ReplayOptions(session=str(RECORDINGS / name), yes=True))
    assert report.same, format_report(report, verbose=True)
    assert report.prompts


@pytest.mark.parametrize("name", RECORDED_NAMES)
def test_recording_contains_no_path_of_its_machine(name: str):
    text = (RECORDINGS / name / "session.jsonl").read_text()
    assert str(Path.home()) not in text
    assert set(re.findall(r"(?<![\w.<~/:])/[A-Za-z][\w-]*", text)) <= {"/project", "/session", "/home"}
