"""bench/history.py replays git history through the engine: after every commit, all files are as in git."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "bench"


def replay(repo: Path, *options: str) -> dict[str, Any]:
    argv = [sys.executable, str(BENCH / "history.py"), str(repo), "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["refusals"] == []
    assert found["differences"] == []
    assert done.returncode == 0
    return found


@pytest.mark.slow
def test_history_of_this_repository_is_replayed() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("there is no git history here")
    found = replay(ROOT, "--commits", "40", "--most-changes", "120")
    assert found["commits"] >= 1
    assert sum(found["calls"].values()) > 0


@pytest.mark.slow
def test_history_with_unusual_files_is_replayed(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(BENCH / "odd_history.py"), str(tmp_path / "odd"), "--commits", "150"], check=True
    )
    found = replay(tmp_path / "odd", "--whole-every", "25")
    assert found["commits"] == 150
    assert {"Read", "EditTool", "MultiEditTool", "WriteFile", "Delete"} <= found["calls"].keys()
    assert {"binary", "symbolic link", "mode"} <= found["skipped"].keys()


DEFECTS = {
    "one byte too many": (
        "import odin.tools.atomic_write as tool; right = tool.replace_file\n"
        "tool.replace_file = lambda target, data, before: right(target, data + b'!', before)\n"
    ),
    "byte order marks are lost": (
        "from odin.tools.files import DecodedText; right = DecodedText.encode\n"
        "DecodedText.encode = lambda self, text: right(self, text).removeprefix(b'\\xef\\xbb\\xbf')\n"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS.keys())
def test_a_wrong_byte_is_found(tmp_path: Path, defect: str) -> None:
    """Tests the comparison itself: it reports a tool that writes wrong bytes."""
    subprocess.run(
        [sys.executable, str(BENCH / "odd_history.py"), str(tmp_path / "odd"), "--commits", "40"], check=True
    )
    program = f"{defect}import sys, history; sys.exit(history.main())"
    argv = [sys.executable, "-c", program, str(tmp_path / "odd"), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=110, check=False, cwd=BENCH)
    assert done.returncode == 1, done.stderr
    assert "instead of" in json.loads(done.stdout)["differences"][0]
