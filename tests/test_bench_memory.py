"""bench/memory.py counts all processes that a program starts, also those that lose their parent."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"
SCRIPT = """
import os, subprocess
from memory import adopt_orphans, list_below, read_kb
adopt_orphans()
reader, writer = os.pipe()
command = f"cat <&{reader} >/dev/null & echo $!"  # ends when nobody can write any more
shell = subprocess.Popen(["sh", "-c", command], pass_fds=[reader], stdout=subprocess.PIPE)
left = int(shell.stdout.readline())
shell.wait()
assert left in list_below(os.getpid())
assert read_kb(left, "Rss") >= read_kb(left, "Pss") > 0
os.close(writer)
os.waitpid(left, 0)
assert list_below(os.getpid()) == [] and read_kb(left, "Rss") == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_process_that_has_lost_its_parent_is_counted() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=BENCH, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
