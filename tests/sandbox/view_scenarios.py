"""What commands do in views, and what becomes of it. Each function is a scenario for one user, run by `test_views`."""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec.structs import replace

from odin.core.effects import FileEffect
from odin.sandbox.views import open_tree
from odin.sandbox.views.applier import ApplyResult, apply_effects, find_conflicts, resume_apply
from odin.sandbox.views.caches import is_kept_unasked
from odin.sandbox.views.effects import read_effects
from odin.sandbox.views.git_changes import describe_git_changes
from odin.sandbox.views.layer import remove_layer
from tests.sandbox.view_sequences import create_layer, read_clock, run_in_view, take_picture, wait_for_tick

IS_ROOT = os.geteuid() == 0
TAG = "Signature: 8a477f597d28d172789f06886806bc55\n"


class Project:
    """A folder `project`, and views of it. `files` maps paths to contents; a path that ends in `/` is a folder."""

    def __init__(self, base: Path, files: dict[str, str], *others: Path) -> None:
        self.base, self.root = base, base / "project"
        self.root.mkdir()
        self.write(files)
        self.layer = create_layer(str(base / "layer"), [str(self.root), *map(str, others)])
        self.start()

    def start(self) -> None:
        """Make what was written until now older than the view."""
        wait_for_tick(str(self.base))
        self.layer = replace(self.layer, since=read_clock(str(self.base)))

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            if name.endswith("/"):
                path.mkdir(parents=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def run(self, command: "str | Callable[[], object]") -> tuple[FileEffect, ...]:
        """Run a command in the view, without touching the project, and return its effects."""
        before = take_picture(str(self.root), changed=True)
        work = command if callable(command) else lambda: subprocess.run(["sh", "-ec", command], check=True).returncode
        run_in_view(self.layer, work)
        assert take_picture(str(self.root), changed=True) == before
        return read_effects(self.layer)

    def apply(self, effects: Iterable[FileEffect], stage: str = "stage") -> ApplyResult:
        return apply_effects(self.layer, effects, f"{self.layer.folder}/{stage}")

    def list_effects(self, effects: Iterable[FileEffect]) -> list[str]:
        """Return `kind path`, without the times of folders."""
        shown = [effect for effect in effects if (effect.kind, effect.after) != ("touched", "folder")]
        return [f"{effect.kind} {os.path.relpath(effect.path, self.root)}" for effect in shown]

    def read(self, name: str) -> str:
        return (self.root / name).read_text()


def equal(found: object, expected: object) -> None:
    """Compare values that a failure should show: pytest does not see these asserts."""
    assert found == expected, f"{found!r}"


def list_reasons(result: ApplyResult) -> dict[str, str]:
    return {os.path.basename(item.path): item.reason for item in result.conflicts}


def lists_exactly_what_differs(base: Path) -> None:
    files = {"same": "1", "text": "1", "mode": "1", "old": "1", "gone/a": "1", "gone/b/c": "1", "again/x": "1"}
    files |= {"again/y": "1", "to-folder": "1", "to-file/z": "1", "timed": "1", "shared": "1"}
    project = Project(base, files)
    os.symlink("text", project.root / "link")
    project.start()
    effects = project.run(
        """
        : >> same; cp -p same s; cat s > same; touch -r s same; rm s
        echo 2 > text; chmod 755 mode; rm old; rm -r gone; mkdir -p new/empty; echo 1 > new/file; ln -sf mode link
        rm -r again; mkdir again; printf 1 > again/x; printf 2 > again/w; touch -d 2001-01-01 timed
        rm to-folder; mkdir to-folder; rm -r to-file; printf 1 > to-file; ln shared shared2
        """
    )
    assert project.list_effects(effects) == [
        *("created again/w", "touched again/x", "deleted again/y", "deleted gone", "deleted gone/a", "deleted gone/b"),
        *("deleted gone/b/c", "changed link", "attributes mode", "created new", "created new/empty"),
        *("created new/file", "deleted old", "linked shared", "created shared2", "changed text", "touched timed"),
        *("deleted to-file", "created to-file", "deleted to-file/z", "deleted to-folder", "created to-folder"),
    ]
    assert project.apply(effects).conflicts == ()
    assert os.path.samefile(project.root / "shared", project.root / "shared2")
    assert sorted(os.listdir(project.root / "again")) == ["w", "x"]
    kept = {path for path in Path(project.layer.folder, "stage").glob("[0-9]*") if not path.is_symlink()}
    assert [path.read_text() for path in kept] == ["1"] * 8, "what was replaced or deleted is in the stage"


def moves_folders(base: Path) -> None:
    project = Project(base, {"one/a": "1", "one/b/c": "1", "two/d": "1", "three/e": "1"})
    inode = (project.root / "one").stat().st_ino
    effects = project.run("mv one moved; echo 2 > moved/a; mv moved/b two/; mv three tmp; mv two three; mv tmp two")
    moves = {os.path.relpath(effect.source, project.root): effect.path for effect in effects if effect.kind == "moved"}
    assert {source: os.path.relpath(path, project.root) for source, path in moves.items()} == {
        "one": "moved",
        "one/b": "three/b",
        "two": "three",
        "three": "two",
    }
    assert project.apply(effects).conflicts == ()
    assert (project.root / "moved").stat().st_ino == inode, "it is still the same folder"
    assert [project.read(name) for name in ("moved/a", "three/b/c", "three/d", "two/e")] == ["2\n", "1", "1", "1"]
    assert sorted(os.listdir(project.root)) == ["moved", "three", "two"]


def never_overwrites_what_others_changed(base: Path) -> None:
    files = {"edited": "1", "removed": "1", "gone/a": "1", "gone/b": "1", "lost/a": "1", "fine": "1", "extra/a": "1"}
    project = Project(base, files)
    command = "for f in edited removed lost/a fine; do echo mine > $f; done; rm -r gone extra; echo mine > new"
    project.run(command)
    project.write({"edited": "theirs", "new": "theirs", "gone/a": "theirs", "extra/late": "theirs"})
    (project.root / "removed").unlink()
    (project.root / "lost").rename(project.root / "found")
    effects = read_effects(project.layer)
    before = take_picture(str(project.root), changed=True)
    assert {name: reason.partition(" mean")[0] for name, reason in list_reasons(project.apply(effects)).items()} == {
        "edited": "it was changed",
        "new": "it was changed",
        "a": "it was changed",
        "extra": "it was changed",
        "late": "it was changed",
        "lost": "it was moved or deleted",
    }
    assert take_picture(str(project.root), changed=True) == before, "with a conflict, nothing is applied"
    conflicts = {item.path for item in find_conflicts(project.layer, effects)}
    rest = [effect for effect in effects if not any(f"{effect.path}/".startswith(f"{path}/") for path in conflicts)]
    rest = [effect for effect in rest if not any(path.startswith(f"{effect.path}/") for path in conflicts)]
    assert project.apply(rest, "again").conflicts == ()
    assert [project.read(name) for name in ("edited", "new", "gone/a", "extra/late", "found/a")] == [
        *["theirs"] * 4,
        "1",
    ]
    assert project.read("fine") == "mine\n"
    assert not (project.root / "gone/b").exists()


def never_overwrites_a_folder_that_others_put_there(base: Path) -> None:
    """Its files are older than the command, but not those that it has seen."""
    folders = ("one", "two", "new-one", "new-two")
    project = Project(base, {f"{folder}/{name}": folder for folder in folders for name in "abc"})
    effects = project.run("echo mine > one/a; rm one/b; chmod 700 one/c; rm -r two")
    assert find_conflicts(project.layer, effects) == ()
    for folder in folders[:2]:
        (project.root / folder).rename(project.root / f"old-{folder}")
        (project.root / f"new-{folder}").rename(project.root / folder)
    gone = "abc" if IS_ROOT else ""  # the view of an ordinary user does not say which folder it has seen
    reasons = {**dict.fromkeys(gone, "it was moved or deleted meanwhile"), "two": "it was changed meanwhile"}
    equal(list_reasons(project.apply(effects)), reasons)
    assert [project.read(f"one/{name}") + project.read(f"two/{name}") for name in "abc"] == ["new-onenew-two"] * 3


def swaps_back_what_changes_at_the_last_moment(base: Path) -> None:
    project = Project(base, {"changed": "1", "deleted": "1", "fine": "1", "sub/x": "1"})
    outside = base / "outside"
    outside.mkdir()
    (outside / "x").write_text("1")
    effects = project.run(
        "echo mine > changed; rm deleted; echo mine > new; echo mine > fine; echo mine > sub/x; : > sub/y"
    )
    theirs = {"changed": ["theirs", "latest"], "deleted": ["theirs"], "new": ["theirs"]}

    def interfere(frame: FrameType, event: str, argument: object) -> Any:
        """Write when a file was checked and is about to be renamed."""
        if frame.f_code is open_tree.rename.__code__ and event == "call":
            place = frame.f_locals["target"] if frame.f_locals["source"][1] != "deleted" else frame.f_locals["source"]
            if theirs.get(place[1]):
                (project.root / "tmp").write_text(theirs[place[1]].pop(0))
                (project.root / "tmp").rename(project.root / place[1])
            elif place[1] == "fine":  # a folder that is still to come becomes a link out of the project
                (project.root / "sub").rename(base / "was-sub")
                os.symlink(outside, project.root / "sub")

    sys.settrace(interfere)
    result = project.apply(effects)
    sys.settrace(None)
    assert not any(theirs.values())
    equal(sorted(list_reasons(result)), ["changed", "deleted", "new", "sub", "x", "y"])
    assert [project.read(name) for name in ("changed", "deleted", "new")] == ["latest", "theirs", "theirs"]
    assert project.read("fine") == "mine\n"
    assert os.listdir(outside) == ["x"]
    assert (outside / "x").read_text() == (base / "was-sub/x").read_text() == "1"


def refuses_hard_links(base: Path) -> None:
    project = Project(base, {"a": "1", "c": "1", "e": "1", "other": "1"})
    for name in "ace":
        os.link(project.root / name, project.root / f"{name}2")
    project.start()
    effects = project.run("echo 2 > a; echo 2 > other; mv c d; rm e")
    refused = {os.path.basename(effect.path) for effect in effects if effect.refusal}
    assert refused == {"a", "c", "e"}
    assert set(list_reasons(project.apply(effects))) == refused
    assert project.read("other") == "1"
    assert project.apply([effect for effect in effects if not effect.refusal], "rest").conflicts == ()
    assert project.read("other") == "2\n"


def refuses_very_large_files(base: Path) -> None:
    project = Project(base, {"a": "1"})
    for name in ("large", "touched"):
        os.truncate(os.open(project.root / name, os.O_CREAT | os.O_WRONLY, 0o644), 600_000_000)
    project.start()
    command = "echo 2 >> large; touch -d @1 touched; truncate -s 600M new; echo 2 > a"
    before = [path.stat().st_ctime_ns for path in (project.root, *sorted(project.root.iterdir()))]
    run_in_view(project.layer, lambda: subprocess.run(["sh", "-ec", command], check=True).returncode)
    assert [path.stat().st_ctime_ns for path in (project.root, *sorted(project.root.iterdir()))] == before
    effects = read_effects(project.layer)
    assert [os.path.basename(effect.path) for effect in effects if effect.refusal] == ["large"]


def deletes_one_of_several_hard_links(base: Path) -> None:
    project = Project(base, {"a": "1"})
    os.link(project.root / "a", project.root / "b")
    project.start()
    assert project.apply(project.run("rm a")).conflicts == ()
    assert os.listdir(project.root) == ["b"]


def names_but_leaves_out_special_files(base: Path) -> None:
    project = Project(base, {"a": "1"})
    result = project.apply(project.run("mkfifo pipe; mkdir d; mkfifo d/pipe; echo 2 > a; echo 1 > d/file"))
    assert [os.path.relpath(item.path, project.root) for item in result.skipped] == ["d/pipe", "pipe"]
    assert sorted(os.listdir(project.root)) == ["a", "d"]
    assert os.listdir(project.root / "d") == ["file"]


def applies_a_part(base: Path) -> None:
    project = Project(base, {"keep": "1", "folder/keep": "1", "text": "1"})
    effects = project.run(
        "rm keep; rm -r folder; echo 2 > text; mkdir -p new/in; echo 1 > new/in/file; echo 1 > .envrc"
    )
    chosen = [effect for effect in effects if effect.kind != "deleted" and not effect.path.endswith(".envrc")]
    assert project.apply([effect for effect in chosen if effect.after == "file"]).conflicts == ()
    assert sorted(os.listdir(project.root)) == ["folder", "keep", "new", "text"]
    assert project.read("new/in/file") == "1\n"
    rest = [effect for effect in effects if effect.kind == "deleted"]
    assert project.apply(rest, "second").conflicts == ()
    assert sorted(os.listdir(project.root)) == ["new", "text"]


def keeps_holes_and_attributes(base: Path) -> None:
    def work() -> None:
        with open("sparse", "wb") as file:
            file.truncate(50_000_000)
            file.seek(25_000_000)
            file.write(b"x")
        os.link("sparse", "sparse2")
        os.setxattr("text", "user.note", b"new")
        os.mkdir("folder")
        os.setxattr("folder", "user.note", b"new")
        os.chmod("folder", 0o2750)
        os.chmod("suid", 0o4755)
        os.rename("case", "CASE")

    project = Project(base, {"text": "1", "suid": "1", "case": "1"})
    assert project.apply(project.run(work)).conflicts == ()
    assert (project.root / "sparse").stat().st_blocks < 1000
    assert os.path.samefile(project.root / "sparse", project.root / "sparse2")
    for name, expected in (("text", {"user.note"}), ("folder", {"user.note"}), ("sparse", set[str]())):
        assert set(os.listxattr(project.root / name)) == expected
    assert stat.S_IMODE((project.root / "folder").stat().st_mode) == 0o2750
    assert stat.S_IMODE((project.root / "suid").stat().st_mode) == 0o4755
    assert (project.root / "CASE").exists()
    assert not (project.root / "case").exists()


def copies_from_another_file_system(base: Path) -> None:
    project = Project(base, {"text": "1", "old": "1"})
    folder = f"/dev/shm/odin-{os.getpid()}-{os.getuid()}"
    project.layer = create_layer(folder, [str(project.root)])
    try:
        keeps = "truncate -s 50M sparse; ln sparse sparse2; chmod 600 text; echo 2 >> text; rm old; ln -s text link"
        assert project.apply(project.run(keeps)).conflicts == ()
        assert (project.root / "sparse").stat().st_blocks < 1000
        assert os.path.samefile(project.root / "sparse", project.root / "sparse2")
        assert sorted(os.listdir(project.root)) == ["link", "sparse", "sparse2", "text"]
        assert project.read("text") == "12\n"
    finally:
        remove_layer(project.layer)


def believes_only_its_own_attributes(base: Path) -> None:
    """A program sets the attributes of an upper layer itself: they mean nothing, and are kept as any other."""
    project = Project(base, {"a/secret": "1", "b/x": "1"})

    def work() -> None:
        os.mkdir("fake")
        os.setxattr("fake", "user.overlay.redirect", b"/a")
        os.setxattr("b", "user.overlay.opaque", b"y")
        Path("b/x").write_text("2")
        os.setxattr("b/x", "user.overlay.origin", b"mine")  # where the kernel has its own

    effects = project.run(work)
    assert project.list_effects(effects) == ["attributes b", "changed b/x", "created fake"]
    assert project.apply(effects).conflicts == ()
    assert sorted(os.listdir(project.root)) == ["a", "b", "fake"]
    assert os.listdir(project.root / "b") == ["x"]
    assert os.getxattr(project.root / "fake", "user.overlay.redirect") == b"/a"
    assert {name: os.getxattr(project.root / "b/x", name) for name in os.listxattr(project.root / "b/x")} == {
        "user.overlay.origin": b"mine"
    }


def tells_caches(base: Path) -> None:
    project = Project(base, {"src/a.py": "1", "tagged/CACHEDIR.TAG": TAG, "tagged/x": "1", "lie/a.py": "1", "mode": ""})
    project.write({".venv/CACHEDIR.TAG": TAG, ".venv/lib/a.py": "1", ".env3/CACHEDIR.TAG": TAG, ".env3/bin/a": "1"})
    project.write({".env3/pyvenv.cfg": "1", ".git/COMMIT_EDITMSG": "1", "tagged/env/pyvenv.cfg": "1"})
    project.start()
    effects = project.run(
        f"""
        mkdir src/__pycache__ target json; echo 1 > src/__pycache__/a.pyc; ln -s / tagged/link
        echo 2 | tee tagged/x src/a.py
        printf '{TAG.strip()}' > target/CACHEDIR.TAG; echo 1 > target/x; mkdir target/sub; echo 1 > target/sub/y
        printf '{TAG.strip()}' > json/CACHEDIR.TAG; echo 1 > json/a.py; echo 2 > .venv/lib/a.py
        printf '{TAG.strip()}' > lie/CACHEDIR.TAG; echo 2 > lie/a.py; ln -s src .ruff_cache
        echo 2 > .env3/bin/a; echo 2 > tagged/env/b; ln -sf / .git/COMMIT_EDITMSG; cp src/a.py tagged/program
        chmod 4755 tagged/program; chmod 777 mode; ln mode tagged/mode
        mkdir .hidden .x_cache; printf '{TAG.strip()}' | tee .hidden/CACHEDIR.TAG > .x_cache/CACHEDIR.TAG
        """
    )
    shown = [effect for effect in effects if effect.group != "cache"]
    assert project.list_effects(shown) == [
        *("changed .env3/bin/a", "changed .git/COMMIT_EDITMSG", "created .hidden", "created .hidden/CACHEDIR.TAG"),
        *("created .ruff_cache", "changed .venv/lib/a.py", "created json", "created json/CACHEDIR.TAG"),
        *("created json/a.py", "created lie/CACHEDIR.TAG", "changed lie/a.py", "changed mode", "changed src/a.py"),
        *("created tagged/env/b", "created tagged/link", "created tagged/program"),
    ]
    kept = project.list_effects([effect for effect in effects if is_kept_unasked(effect)])
    names = ("created target", "created target/CACHEDIR.TAG", "created target/sub", "created target/sub/y")
    names = ("created .x_cache", "created .x_cache/CACHEDIR.TAG", "created tagged/mode", "changed tagged/x", *names)
    equal(kept, [*names, "created target/x"])  # no byte code, and nothing that could be imported


def tells_what_was_moved_into_a_cache(base: Path) -> None:
    project = Project(base, {"docs/a": "1", "tagged/CACHEDIR.TAG": TAG, "tagged/old/x": "1"})
    moved = project.run("mv docs tagged/docs; mv tagged/old tagged/new")
    lost = [effect for effect in moved if f"{project.root}/docs" in (effect.path, effect.source)]
    assert lost
    assert not any(effect.group == "cache" for effect in lost)
    assert all(effect.group == "cache" for effect in moved if effect.path.startswith(f"{project.root}/tagged/new"))


def tells_git_in_its_words(base: Path) -> None:
    project = Project(base, {"a.txt": "1", "b.txt": "1"})
    environment = {"HOME": str(base), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"], "LANG": "C"}
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]

    def git(text: str) -> None:
        for command in text.split("; "):
            argv = ["git", *who, *(word.replace("_", " ") for word in command.split())]
            subprocess.run(argv, env=environment, check=True, capture_output=True, cwd=project.root)

    def forge() -> None:
        """Move a branch, and write into its log what git has not done."""
        Path(".git/refs/heads/topic").write_text("2" * 40)
        with open(".git/logs/refs/heads/topic", "a") as log:
            log.write(f"{'0' * 40} {'1' * 40} A <a@b.c> 1700000000 +0000\tcommit: Harmless\n")

    def describe(text: "str | Callable[[], None]") -> list[str]:
        """Return what the commands did, with hashes as X; then start again from there in a new view."""
        number = len(list(base.iterdir()))
        project.layer = create_layer(str(base / f"layer{number}"), [str(project.root)])
        project.start()
        effects = project.run(text if callable(text) else lambda: git(text))
        said = [re.sub(r"\b[0-9a-f]{7}\b", "X", line) for line in describe_git_changes(effects, project.layer)]
        assert project.apply(effects).conflicts == ()
        return said

    equal(describe("init"), ["new repository"])
    equal(describe("add ."), ["changed what is staged"])
    equal(describe("commit -m First_one"), ["commit X on main: First one"])
    equal(describe("branch topic; tag v1"), ["new branch topic at X", "new tag v1 at X"])
    equal(describe(forge), ["moved branch topic from X to X"])
    equal(describe("branch -f topic main"), ["moved branch topic from X to X"])
    os.utime(project.root / "a.txt")
    equal(describe("status"), [])  # the index was only refreshed
    equal(
        describe("switch topic; commit --allow-empty -m Two; commit --amend --allow-empty -m Three"),
        [
            *("switched to branch topic", "commit X on topic: Two", "amended commit X on topic: Three"),
        ],
    )
    equal(describe("pack-refs --all"), [])
    equal(
        describe("reset --hard HEAD~1; branch -D main"),
        [
            *("moved branch topic from X to X", "deleted branch main, which was at X"),
        ],
    )
    (project.root / "a.txt").write_text("2")
    equal(describe("stash push -m Later"), ["stashed changes: On topic: Later"])
    equal(describe("stash drop"), ["dropped 1 of the stashes"])
    equal(describe("checkout --detach"), ["HEAD is now at X, on no branch"])
    equal(describe("config core.pager evil"), ["changed .git/config"])
    equal(describe("worktree add -b side ../side"), ["new branch side at X", "new worktree side"])


def works_with_several_roots(base: Path) -> None:
    other = base / "other"
    other.mkdir()
    (other / "o").write_text("1")
    project = Project(base, {"a": "1"}, other)
    effects = project.run("echo 2 > a; rm ../other/o; mkdir ../other/d; mv a ../other/d/a")
    assert project.list_effects(effects) == [
        "deleted a",
        "created ../other/d",
        "created ../other/d/a",
        "deleted ../other/o",
    ]
    assert project.apply(effects).conflicts == ()
    assert os.listdir(project.root) == []
    assert (other / "d/a").read_text() == "2\n"


def removes_layers_whatever_is_in_them(base: Path) -> None:
    outside = base / "outside"
    outside.mkdir()
    (outside / "file").write_text("1")

    def work() -> None:
        os.symlink(outside, "link")
        os.mkdir("locked")
        os.symlink(outside, "locked/link")
        os.chmod("locked", 0)
        for _ in range(1500):
            os.mkdir("deep")
            os.chdir("deep")

    project = Project(base, {"a": "1"})
    effects = project.run(work)
    assert {effect.refusal for effect in effects} == {"", "there are too many folders around it"}
    assert len(effects) < 600, "what lies deeper is not looked at, but removed"
    remove_layer(project.layer)
    assert not os.path.lexists(project.layer.folder)
    assert (outside / "file").read_text() == project.read("a") == "1"
    remove_layer(project.layer)


def resumes_or_has_not_begun(base: Path) -> None:
    project = Project(base, {"a": "1", "to-file/x": "1", "gone/x": "1", "again/x": "1"})
    effects = project.run(
        "echo 2 > a; rm -r to-file gone again; echo 2 > to-file; mkdir again; : > again/y; echo 1 > new"
    )
    stage = f"{project.layer.folder}/stage"
    assert resume_apply(stage) is None
    result = project.apply(effects)
    assert result.conflicts == ()
    before = take_picture(str(project.root))
    Path(stage, "done").unlink()  # as if it had been killed at the very end
    assert resume_apply(stage) == result
    assert take_picture(str(project.root)) == before
    project.write({"a": "theirs"})
    assert resume_apply(stage) == result
    assert project.read("a") == "theirs", "what is done is not done again"


FOR_ROOT = (moves_folders,)
FOR_ALL = (
    lists_exactly_what_differs,
    never_overwrites_what_others_changed,
    never_overwrites_a_folder_that_others_put_there,
    swaps_back_what_changes_at_the_last_moment,
    refuses_hard_links,
    refuses_very_large_files,
    deletes_one_of_several_hard_links,
    names_but_leaves_out_special_files,
    applies_a_part,
    keeps_holes_and_attributes,
    copies_from_another_file_system,
    believes_only_its_own_attributes,
    tells_caches,
    tells_what_was_moved_into_a_cache,
    tells_git_in_its_words,
    works_with_several_roots,
    removes_layers_whatever_is_in_them,
    resumes_or_has_not_begun,
)


def main(folder: str, name: str) -> None:
    os.umask(0o022)
    globals()[name](Path(folder))
