"""Unified diffs: git can apply them, and changed lines are counted."""

import subprocess
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.tools.diff import compare, split_lines

texts = st.lists(st.sampled_from(["a", "b", "", "c\x0cd", "long line"]), max_size=25).flatmap(
    lambda rows: st.sampled_from(["\n".join(rows), "".join(f"{row}\n" for row in rows)])
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=texts, after=texts)
def test_git_can_apply_the_diff_and_gets_the_new_text(tmp_path: Path, before: str, after: str) -> None:
    diff = compare(before, after, "f")
    if before == after:
        assert (diff.text, diff.added, diff.removed) == ("", 0, 0)
        return
    (tmp_path / "f").write_text(before)
    done = subprocess.run(
        ["git", "apply", "-p0", "--unidiff-zero", "-"],
        cwd=tmp_path,
        input=diff.text.encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode() + diff.text
    assert (tmp_path / "f").read_text() == after
    assert len(split_lines(after)) - len(split_lines(before)) == diff.added - diff.removed


def test_only_the_changed_lines_are_counted() -> None:
    before = "".join(f"{n}\n" for n in range(1000))
    diff = compare(before, before.replace("\n500\n", "\nfive hundred\n500\n"), "f")
    assert diff.counts == "+1 -0"
    assert "@@ -498,6 +498,7 @@\n" in diff.text
    assert diff.first == 498
    assert diff.around[3] == "five hundred\n"
