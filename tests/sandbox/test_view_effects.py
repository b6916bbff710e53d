"""Views of real overlay file systems, mounted by root and by an ordinary user: their effects, applied and removed."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odin.core.effect_summary import summarize_effects
from odin.core.effects import EffectKind, FileEffect, FolderSummary
from odin.core.event_values import FileKind
from odin.sandbox.views.caches import parse_index
from tests.sandbox import view_scenarios
from tests.sandbox.sandboxes import explain_missing, explain_missing_view, run_program
from tests.sandbox.users import NOBODY, USERS, find_python, make_prefix, run_process, shared_folder
from tests.sandbox.view_commands import COMMANDS
from tests.soak import FIRST_SEED, choose, soak

REPOSITORY = str(Path(__file__).parents[2])

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="overlay file systems are those of Linux")


def run_as(who: str, module: str, *arguments: str) -> str:
    """Run the `main` function of a test module as this user, and return what it prints."""
    prefix = make_prefix(who)
    code = f"import sys; sys.path.append(sys.argv[1]); from tests.sandbox.{module} import main; main(*sys.argv[2:])"
    with shared_folder() as folder:
        if prefix:
            os.chown(folder, NOBODY, NOBODY)
        if run_program(*prefix, "test", "-r", __file__).returncode:
            pytest.skip("this user cannot read the tests")
        if missing := explain_missing("bubblewrap", prefix) or explain_missing_view(folder, prefix):
            pytest.skip(missing)
        argv = [*prefix, find_python(tuple(prefix)), "-c", code, REPOSITORY, str(folder), *arguments]
        done = run_process(argv, timeout=3600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("scenario", [scenario.__name__ for scenario in view_scenarios.FOR_ALL])
def test_view(scenario: str, who: str) -> None:
    run_as(who, "view_scenarios", scenario)


def test_view_moves_folders() -> None:
    run_as("root", "view_scenarios", view_scenarios.moves_folders.__name__)


@soak
@pytest.mark.slow
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize(
    "options", [("undo",), ("copy",), ("links",)], ids=["same file system", "other file system", "hard links"]
)
def test_random_sequences_are_the_same_in_a_view(options: tuple[str, ...], who: str) -> None:
    """A third is killed while it is applied. `view_sequences` tells how they are compared."""
    count = choose(sample=12, full=600)
    told = run_as(who, "view_sequences", str(FIRST_SEED), str(count), *options)
    results = [json.loads(line) for line in told.splitlines()]
    assert len(results) == count
    # In a view, the kernel may overlook that another name of a file has made it read-only: programs see a difference.
    differing = [result for result in results if result.get("why") == "operations differ"]
    assert len(differing) <= count // 100, differing
    rest = [result for result in results if result not in differing and not result.get("refused")]
    assert [result for result in rest if not result["equal"]] == []
    assert "links" in options or not any("refused" in result for result in results)


def make_effect(path: str, kind: EffectKind = "created", after: FileKind = "file", size: int = 1000) -> FileEffect:
    before: FileKind = "absent" if kind == "created" else after
    return FileEffect(f"/p/{path}", kind, before, "absent" if kind == "deleted" else after, size=size)


def test_summary_shows_large_folders_and_caches_as_one_line() -> None:
    effects = [
        make_effect("", "touched", "folder"),
        FileEffect("/p/.git/HEAD", "changed", "file", "file", group="git"),
        make_effect("build/a.py", "changed"),
        make_effect("gone", "deleted", "folder"),
        *(make_effect(f"gone/{number}", "deleted") for number in range(30)),
        make_effect("new", after="folder"),
        make_effect("new/one.py"),
        make_effect("mode", "attributes", "folder"),
        make_effect("mode/a", "changed"),
        make_effect("moved", "moved", "folder"),
        make_effect("moved/a", "changed"),
        make_effect("venv", "moved", "folder"),
        make_effect("link", "linked"),
        make_effect("old/node_modules/a.js", "changed"),
        make_effect("node_modules", after="folder"),
        *(make_effect(f"node_modules/m/{number}.js", size=7_000) for number in range(12_403)),
        FileEffect("/p/src/__pycache__/a.pyc", "created", after="file", size=10, group="cache"),
        *(make_effect(f"target/{number}", "changed") for number in range(30)),
        make_effect("target/new"),
        make_effect("void", after="folder"),
    ]
    summary = summarize_effects(effects, ["/p"])
    assert [effect.path.removeprefix("/p/") for effect in summary.files] == [
        *(
            "build/a.py",
            "new/one.py",
            "mode",
            "mode/a",
            "moved",
            "moved/a",
            "venv",
            "link",
            "old/node_modules/a.js",
            "void",
        ),
    ]
    assert [effect.path for effect in summary.git] == ["/p/.git/HEAD"]
    assert {line.path: line.describe() for line in (*summary.folders, *summary.caches)} == {
        "/p/gone": "30 files deleted",
        "/p/node_modules": "12,403 files, 86.8 MB",
        "/p/src/__pycache__": "1 file, 10 B",
        "/p/target": "1 created, 30 changed, 31.0 kB",
    }
    assert summarize_effects(effects[-3:-2], ["/p/target"]).folders == (), "names above the root do not count"
    assert FolderSummary("/p").describe() == "0 files"


def test_index_with_another_tree_is_not_just_refreshed(tmp_path: Path) -> None:
    """Git commits the trees that the index names for folders in which nothing was added."""
    (tmp_path / "a").write_text("1")
    who = "-c user.name=a -c user.email=a"
    subprocess.run(f"git init -q; git add a; git {who} commit -qm one", shell=True, cwd=tmp_path, check=True)
    index = (tmp_path / ".git/index").read_bytes()
    forged = index[:-21] + bytes([index[-21] ^ 1])
    assert parse_index(forged + hashlib.sha1(forged).digest()) != parse_index(index)


@soak
@pytest.mark.slow
@pytest.mark.parametrize("who", USERS)
def test_everyday_commands_are_the_same_in_a_view(who: str) -> None:
    step = choose(sample=7, full=1)
    told = [json.loads(line) for line in run_as(who, "view_commands", str(FIRST_SEED % step), str(step)).splitlines()]
    assert len(told) >= len(COMMANDS) // step
    assert [one for one in told if not one["equal"]] == []
