"""Git commands run without approval only if the repository parses exactly and uses nothing outside itself."""

import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from odin.policy.commands.analysis import is_read_only
from odin.policy.commands.git_config import find_git_problem
from odin.policy.commands.git_folder import list_submodules
from tests.policy.policies import make_scope
from tests.table import each

_IDENTITY = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}


def git(folder: Path, *words: str, **more: str) -> str:
    argv = ["git", "-C", str(folder), "-c", "protocol.file.allow=always", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, **_IDENTITY, **more})
    return done.stdout.strip()


def make_repository(folder: Path, *init: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main", *init)
    (folder / "a").write_text("a\n")
    git(folder, "add", "a")
    git(folder, "commit", "-qm", "one")
    return folder


def runs_without_asking(command: str, folder: Path) -> bool:
    return is_read_only(command, make_scope(folder))


@pytest.fixture
def repo(workspace: Path) -> Path:
    return make_repository(workspace)


# --- the index ---


def test_a_crafted_sha256_id_hides_no_submodule(workspace: Path) -> None:
    """A parser that expects ids of 20 bytes takes a part of the crafted id for the name of another submodule."""
    git(workspace, "init", "-q", "--object-format=sha256")
    inner = make_repository(workspace / "sub")
    (inner / ".gitattributes").write_text("a filter=evil\n")
    git(inner, "config", "filter.evil.clean", f"touch {workspace}/RAN; cat")
    (inner / "a").write_text("b\n")
    crafted = b"\x11" * 20 + struct.pack(">H", 5) + b"decoy" + b"\0" * 5
    git(workspace, "update-index", "--add", "--cacheinfo", f"160000,{crafted.hex()},sub")
    (workspace / "RAN").unlink(missing_ok=True)
    for command in ("git status", "git diff", "git diff --stat"):
        assert not runs_without_asking(command, workspace), command
    git(workspace, "status")
    assert (workspace / "RAN").exists(), "git no longer runs the filter, so the check can be removed"
    git(inner, "config", "--unset", "filter.evil.clean")
    assert runs_without_asking("git status", workspace)


FORMATS = [
    ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n", False),
    ("[core]\n\trepositoryformatversion = 0\n[extensions]\n\tobjectformat = sha256\n", False),
    ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha1\n", True),
    ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha1\n\tobjectformat = sha256\n", False),
    ('[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = "sha1"\n', False),
    ('[core]\n\trepositoryformatversion = 1\n[extensions "x"]\n\tobjectformat = sha1\n', False),
    ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha3\n", False),
    ("[core]\n\trepositoryformatversion = 2\n", False),
    ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefstorage = files\n", True),
    ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefstorage = files:///elsewhere\n", False),
    ("[core]\n\trepositoryformatversion = 0\n\twhitespace = x\r[color]\n\tpager = ./evil\n", False),
    ("[core]\n\trepositoryformatversion = 0\n", True),
]


def test_repository_formats_are_recognized_as_git_does(repo: Path) -> None:
    make_repository(repo / "sub")
    git(repo, "-c", "advice.addEmbeddedRepo=false", "add", "sub")
    wrong: list[tuple[str, str]] = []
    for text, is_fine in FORMATS:
        (repo / ".git/config").write_bytes(text.encode())
        if runs_without_asking("git status", repo) != is_fine:
            wrong.append((text, find_git_problem(str(repo), str(repo), os.environ)))
    assert wrong == []


def add_checksum(data: bytes) -> bytes:
    return data + hashlib.sha1(data).digest()


def entry(name: bytes, mode: int = 0o100644, flags: int = 0, extended: bytes = b"", length: int | None = None) -> bytes:
    """Return an entry of a version 2 or 3 index."""
    size = min(len(name), 0xFFF) if length is None else length
    body = bytes(24) + struct.pack(">I", mode) + bytes(12) + b"\x22" * 20 + struct.pack(">H", flags | size) + extended
    return (body + name).ljust((len(body) + len(name) + 8) & ~7, b"\0")


def index(*entries: bytes, version: int = 2, count: int | None = None, more: bytes = b"") -> bytes:
    return add_checksum(
        b"DIRC" + struct.pack(">II", version, len(entries) if count is None else count) + b"".join(entries) + more
    )


def extension(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">I", len(body)) + body


_SUB = entry(b"sub", 0o160000)
_END = 12 + len(entry(b"a"))

INDEXES: list[tuple[str, bytes, tuple[str, ...] | None]] = [
    ("nothing in it", index(), ()),
    ("one file", index(entry(b"a")), ()),
    ("a submodule", index(entry(b"a"), _SUB), ("sub",)),
    ("three stages", index(*(entry(b"a", flags=stage << 12) for stage in (1, 2, 3))), ()),
    ("a long name", index(entry(b"n" * 5000), _SUB), ("sub",)),
    ("no checksum", index(_SUB)[:-20] + bytes(20), ("sub",)),
    ("an extended entry", index(entry(b"a", flags=0x4000, extended=b"\x20\0"), _SUB, version=3), ("sub",)),
    ("a known extension", index(_SUB, more=extension(b"TREE", b"x")), ("sub",)),
    ("the right end", index(entry(b"a"), more=extension(b"EOIE", struct.pack(">I", _END) + bytes(20))), ()),
    ("an empty file", b"", None),
    ("half a header", b"DIRC\0\0", None),
    ("version 5", index(_SUB, version=5), None),
    ("another checksum", index(_SUB)[:-1] + b"!", None),
    ("bytes after the entries", index(_SUB, more=b"\0" * 4), None),
    ("bytes after the checksum", index(_SUB) + b"\0", None),
    ("fewer entries than there are", index(entry(b"a"), _SUB, count=1), None),
    ("more entries than there are", index(_SUB, count=2), None),
    ("a submodule with another mode", index(entry(b"sub", 0o160755)), None),
    ("a mode of more bits", index(entry(b"sub", 0x1E000)), None),
    ("a folder of a sparse index", index(entry(b"sub/", 0o040000)), None),
    ("a shorter length", index(entry(b"sub", 0o160000, length=1)), None),
    ("a longer length", index(entry(b"sub\0more", 0o160000)), None),
    ("an empty name", index(entry(b"", 0o160000)), None),
    ("padding that is used", add_checksum(index(_SUB)[:-21] + b"x"), None),
    ("an extended entry in version 2", index(entry(b"a", flags=0x4000, extended=b"\x20\0"), _SUB), None),
    ("an unknown extended flag", index(entry(b"a", flags=0x4000, extended=b"\x80\0"), version=3), None),
    ("another order", index(_SUB, entry(b"a")), None),
    ("a name twice", index(entry(b"a"), entry(b"a")), None),
    ("a stage beside none", index(entry(b"a"), entry(b"a", flags=0x1000)), None),
    ("a required extension", index(_SUB, more=extension(b"abcd")), None),
    ("an unknown extension", index(_SUB, more=extension(b"ABCD")), None),
    ("an extension twice", index(_SUB, more=extension(b"TREE") * 2), None),
    ("a split index", index(_SUB, more=extension(b"link", bytes(20))), None),
    ("a sparse index", index(_SUB, more=extension(b"sdir")), None),
    ("an extension that is too long", index(_SUB, more=extension(b"TREE", b"x")[:-1] ), None),
    ("another end", index(_SUB, more=extension(b"EOIE", struct.pack(">I", 12) + bytes(20))), None),
    ("blocks that skip", index(entry(b"a"), _SUB, more=extension(b"IEOT", struct.pack(">III", 1, _END, 1))), None),
    ("blocks", index(entry(b"a"), _SUB, more=extension(b"IEOT", struct.pack(">IIIII", 1, 12, 1, _END, 1))), ("sub",)),
]  # fmt: skip


@each(("case", "data", "expected"), INDEXES)
def test_an_index_is_parsed_exactly_or_rejected(
    case: str, data: bytes, expected: tuple[str, ...] | None, tmp_path: Path
) -> None:
    path = tmp_path / "index"
    path.write_bytes(data)
    assert list_submodules(str(path), 20) == expected, case


def entry_v4(name: bytes, dropped: int, whole: int, mode: int = 0o100644) -> bytes:
    """Return an entry of a version 4 index. `name` follows the previous name without its last `dropped` bytes."""
    head = bytes(24) + struct.pack(">I", mode) + bytes(12) + b"\x22" * 20 + struct.pack(">H", whole)
    return head + bytes([dropped]) + name + b"\0"


@each(
    ("entries", "expected"),
    [
        ([entry_v4(b"lib/a", 0, 5), entry_v4(b"b", 1, 5, 0o160000)], ("lib/b",)),
        ([entry_v4(b"lib/a", 0, 5), entry_v4(b"lic", 5, 3, 0o160000)], ("lic",)),
        ([entry_v4(b"lib/a", 0, 5), entry_v4(b"b", 9, 5, 0o160000)], None),
        ([entry_v4(b"lib/a", 0, 5), entry_v4(b"b", 1, 1, 0o160000)], None),
        ([entry_v4(b"lib/a", 0, 5), entry_v4(b"", 0, 5, 0o160000)], None),
    ],
)
def test_prefix_compressed_names_are_expanded_exactly(
    entries: list[bytes], expected: tuple[str, ...] | None, tmp_path: Path
) -> None:
    path = tmp_path / "index"
    path.write_bytes(index(*entries, version=4))
    assert list_submodules(str(path), 20) == expected


@pytest.mark.slow
@each("algorithm", ["sha1", "sha256"])
def test_every_index_that_git_writes_is_parsed(algorithm: str, tmp_path: Path) -> None:
    repo = tmp_path / algorithm
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main", f"--object-format={algorithm}")
    for number in range(300):
        path = repo / f"folder{number % 7}" / ("n" * (number % 90)) / f"ü {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    Path(os.fsdecode(os.fsencode(repo) + b"/\xff\xfe")).write_text("x")
    for name in ("sub", "vendor/deep"):
        make_repository(repo / name, f"--object-format={algorithm}")
    git(repo, "-c", "advice.addEmbeddedRepo=false", "add", ".")
    git(repo, "commit", "-qm", "all")
    (repo / "intended").write_text("x")
    id_bytes = 20 if algorithm == "sha1" else 32
    for setting in ("", "index.threads=2", "core.untrackedCache=true", "index.skipHash=true"):
        for version in ("2", "3", "4"):
            more = ["-c", setting] if setting else []
            record = ["-c", "index.recordOffsetTable=true", "-c", "index.recordEndOfIndexEntries=true"]
            git(repo, *more, *record, "update-index", "--force-write-index", "--index-version", version)
            git(repo, *more, *record, "add", "-N", "intended")
            git(repo, *more, *record, "update-index", "--skip-worktree", f"folder0/{'n' * 0}ü 0")
            git(repo, *more, "status")
            assert list_submodules(str(repo / ".git/index"), id_bytes) == ("sub", "vendor/deep"), (setting, version)
            git(repo, "reset", "-q", "--", "intended")
    assert runs_without_asking("git status", repo), find_git_problem(str(repo), str(repo), os.environ)
    git(repo, "update-index", "--split-index")
    assert not runs_without_asking("git status", repo)


def test_an_index_with_a_merge_conflict_is_parsed(repo: Path) -> None:
    git(repo, "checkout", "-qb", "other")
    (repo / "a").write_text("other\n")
    git(repo, "commit", "-qam", "other")
    git(repo, "checkout", "-q", "main")
    (repo / "a").write_text("main\n")
    git(repo, "commit", "-qam", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, "merge", "other")
    assert runs_without_asking("git status", repo)
    git(repo, "add", "a")
    assert runs_without_asking("git status", repo)


# --- objects and refs of another repository ---


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """Another repository of the user, with a secret file."""
    private = make_repository(tmp_path / "private")
    (private / "secret").write_text("SECRET\n")
    git(private, "add", "secret")
    git(private, "commit", "-qm", "SECRET")
    return private


def add_alternates(repo: Path, private: Path) -> None:
    (repo / ".git/objects/info").mkdir(exist_ok=True)
    (repo / ".git/objects/info/alternates").write_text(f"{private}/.git/objects\n")


def add_relative_alternates(repo: Path, private: Path) -> None:
    (repo / ".git/objects/info/alternates").write_text(f"# a comment\n{os.path.relpath(private, repo)}/.git/objects\n")


def link_alternates(repo: Path, private: Path) -> None:
    (private / "list").write_text(f"{private}/.git/objects\n")
    (repo / ".git/objects/info/alternates").symlink_to(private / "list")


def add_http_alternates(repo: Path, private: Path) -> None:
    (repo / ".git/objects/info/http-alternates").write_text("https://example.org/objects\n")


def link_to_private(name: str) -> Callable[[Path, Path], None]:
    def replace(repo: Path, private: Path) -> None:
        mine, other = repo / ".git" / name, private / ".git" / name
        if mine.is_dir():
            shutil.rmtree(mine)
        mine.unlink(missing_ok=True)
        mine.parent.mkdir(parents=True, exist_ok=True)
        mine.symlink_to(other)

    return replace


def link_object(repo: Path, private: Path) -> None:
    name = git(private, "rev-parse", "HEAD:secret")
    mine = repo / ".git/objects" / name[:2] / name[2:]
    mine.parent.mkdir(exist_ok=True)
    mine.symlink_to(private / ".git/objects" / name[:2] / name[2:])


def link_rebase_todo(repo: Path, private: Path) -> None:
    """`git status` prints the next lines of the rebase todo list, whatever they are."""
    (repo / ".git/rebase-merge").mkdir()
    (repo / ".git/rebase-merge/git-rebase-todo").symlink_to(private / "secret")


def borrow_commondir(repo: Path, private: Path) -> None:
    (repo / ".git/commondir").write_text(f"{private}/.git\n")


def point_gitdir_to_private(repo: Path, private: Path) -> None:
    shutil.rmtree(repo / ".git")
    (repo / ".git").write_text(f"gitdir: {private}/.git\n")


def point_gitdir_through_symlink(repo: Path, private: Path) -> None:
    shutil.rmtree(repo / ".git")
    (repo / "link").symlink_to(private)
    (repo / ".git").write_text("gitdir: link/.git\n")


def fake_worktree(repo: Path, private: Path) -> None:
    shutil.rmtree(repo / ".git")
    (repo / "main/worktrees/w").mkdir(parents=True)
    (repo / "main/worktrees/w/commondir").write_text(f"{private}/.git\n")
    (repo / "main/worktrees/w/gitdir").write_text(f"{repo}/.git\n")
    shutil.copy(private / ".git/HEAD", repo / "main/worktrees/w/HEAD")
    (repo / ".git").write_text("gitdir: main/worktrees/w\n")


BORROW_FUNCTIONS = [
    add_alternates,
    add_relative_alternates,
    link_alternates,
    add_http_alternates,
    *map(
        link_to_private,
        ("objects", "refs", "refs/heads", "refs/heads/main", "logs", "logs/HEAD", "HEAD", "objects/pack"),
    ),
    *map(link_to_private, ("packed-refs", "info", "objects/info", "shallow", "MERGE_HEAD")),
    link_object,
    link_rebase_todo,
    borrow_commondir,
    point_gitdir_to_private,
    point_gitdir_through_symlink,
    fake_worktree,
]


def test_content_of_another_repository_is_not_printed_without_approval(tmp_path: Path, private: Path) -> None:
    shown: list[tuple[int, str, str]] = []
    for number, borrow in enumerate(BORROW_FUNCTIONS):
        repo = make_repository(tmp_path / f"project{number}").resolve()
        assert runs_without_asking("git show HEAD", repo)
        borrow(repo, private)
        for command in ("git show HEAD", "git log --all", "git cat-file -p HEAD:secret", "git status", "git reflog"):
            if runs_without_asking(command, repo):
                shown.append((number, getattr(borrow, "__name__", ""), command))
    assert shown == []


def test_the_verdict_is_not_cached_when_a_symlink_appears(repo: Path, private: Path) -> None:
    for number in range(20):
        assert runs_without_asking("git log", repo)
        (repo / f".git/logs/refs/{number}").symlink_to(private)
        assert not runs_without_asking("git log", repo)
        (repo / f".git/logs/refs/{number}").unlink()


@each(
    "name",
    ["GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_OBJECT_DIRECTORY", "GIT_DIR", "GIT_COMMON_DIR", "GIT_NAMESPACE"],
)
def test_environment_variables_that_redirect_git_need_approval(
    name: str, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not runs_without_asking(f"{name}=/elsewhere git show HEAD", repo)
    assert not runs_without_asking(f"export {name}=/elsewhere; git show HEAD", repo)
    with monkeypatch.context() as patch:
        patch.setenv(name, "/elsewhere")
        assert not runs_without_asking("git show HEAD", repo)
    assert runs_without_asking("git show HEAD", repo)


def test_an_invalid_git_folder_is_not_trusted(repo: Path) -> None:
    """Git ignores it and uses the repository above, with other settings."""
    inner = repo / "src"
    (inner / ".git/objects").mkdir(parents=True)
    (inner / ".git/refs").mkdir()
    shutil.copy(repo / ".git/config", inner / ".git/config")
    git(repo, "config", "core.fsmonitor", "./evil.sh")
    for head in (None, "", "nonsense\n", "ref: elsewhere\n", "ref: refs/heads/main\nmore\n"):
        if head is not None:
            (inner / ".git/HEAD").write_text(head)
        assert not is_read_only("git status", make_scope(str(inner), str(repo))), head


def test_worktrees_and_submodules_of_the_project_are_trusted(repo: Path, tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin")
    git(repo, "submodule", "--quiet", "add", str(origin), "libs/part")
    git(repo, "commit", "-qm", "part")
    assert runs_without_asking("git status", repo)
    assert is_read_only("git log", make_scope(str(repo / "libs/part"), str(repo)))
    tree = (tmp_path / "tree").resolve()
    git(repo, "worktree", "add", "-q", str(tree))
    assert runs_without_asking("git show HEAD", tree)
    add_alternates(repo, origin)
    assert not runs_without_asking("git show HEAD", tree)
