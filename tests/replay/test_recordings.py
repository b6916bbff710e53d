"""Every session in tests/recordings is played again: what happened once still happens."""

import re
from pathlib import Path

import pytest

from odin.replay.replay import ReplayOptions, format_report, replay_session
from tests.replay.record import RECORDINGS, SCENES

KEPT = sorted(path.name for path in RECORDINGS.iterdir() if (path / "session.jsonl").is_file())


def test_there_is_a_recording_of_every_scene():
    assert set(SCENES) <= set(KEPT)


@pytest.mark.parametrize("name", KEPT)
async def test_the_same_happens_again(name: str):
    report = await replay_session(ReplayOptions(session=str(RECORDINGS / name), yes=True))
    assert report.same, format_report(report, verbose=True)
    assert report.prompts


@pytest.mark.parametrize("name", KEPT)
def test_a_recording_names_nothing_of_the_machine_it_was_made_on(name: str):
    text = (RECORDINGS / name / "session.jsonl").read_text()
    assert str(Path.home()) not in text
    assert set(re.findall(r"(?<![\w.<~/:])/[A-Za-z][\w-]*", text)) <= {"/project", "/session", "/home"}
