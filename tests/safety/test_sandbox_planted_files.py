"""Commands that plant files which other programs run later: at any depth they are prevented or reported.

Under bubblewrap, existing files are read-only. Under Landlock, and for new files, the change is reported.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odin.sandbox import protected_files
from odin.sandbox.protected_files import ProtectedFiles, find_tampered_files
from tests.sandbox.users import BACKENDS, USERS, UserProject, shared_folder
from tests.table import each

_HOOK = "#!/bin/sh\nexit 0\n"

_FILES = {
    ".envrc": "export A=1\n",
    ".git/hooks/pre-push": _HOOK,
    ".husky/pre-commit": _HOOK,
    ".vscode/tasks.json": '{"tasks": []}\n',
    "packages/web/.idea/workspace.xml": "<x/>\n",
    "packages/web/.vscode/tasks.json": '{"tasks": []}\n',
    "node_modules/dep/.envrc": "export A=1\n",
    "sub/.git/HEAD": "ref: refs/heads/main\n",
    "sub/.git/config": "[core]\n\tbare = false\n",
    "sub/.git/hooks/pre-commit.sample": _HOOK,
    "src/a.txt": "a\n",
    "AGENTS.md": "Be kind.\n",
    ".venv/bin/activate": "A=1\n",
    ".venv/lib/python3/site-packages/a.py": "",
    ".jj/repo/config.toml": "",
    "node_modules/dep/index.js": "",
}

_KEEP_TIMES = 't=$(stat -c %y "{0}"); {1}; touch -d "$t" "{0}"'

PLANTED: list[tuple[str, str, str]] = [
    # the command, the file it plants, and the name that must be reported if that succeeds ("": the file)
    ("echo x >>.git/hooks/pre-push", ".git/hooks/pre-push", ""),
    (_KEEP_TIMES.format(".git/hooks", "echo x >.git/hooks/pre-commit"), ".git/hooks/pre-commit", ""),
    (_KEEP_TIMES.format(".vscode/tasks.json", "sed -i s/tasks/Tasks/ .vscode/tasks.json"), ".vscode/tasks.json", ""),
    (_KEEP_TIMES.format(".git/config", "sed -i 's/false/true /' .git/config"), ".git/config", ""),
    ("chmod +x .git/hooks/pre-push", ".git/hooks/pre-push", ""),
    ("ln .husky/pre-commit hard && echo x >>hard", ".husky/pre-commit", ""),
    ("mv .husky/pre-commit y; echo x >y; mv y .husky/pre-commit", ".husky/pre-commit", ""),
    ("echo x >packages/web/.envrc", "packages/web/.envrc", ""),
    ("echo x >>packages/web/.idea/workspace.xml", "packages/web/.idea/workspace.xml", ""),
    (_KEEP_TIMES.format("packages/web/.vscode", "echo x >packages/web/.vscode/a"), "packages/web/.vscode/a", ""),
    ("echo x >node_modules/dep/.envrc", "node_modules/dep/.envrc", ""),
    ("cd node_modules/dep; mkdir .zed; echo x >.zed/tasks", "node_modules/dep/.zed/tasks", "node_modules/dep/.zed"),
    ("printf '[core]\\nfsmonitor=x\\n' >>sub/.git/config", "sub/.git/config", ""),
    ("echo x >sub/.git/hooks/post-checkout", "sub/.git/hooks/post-checkout", ""),
    ("mkdir -p a/b/c/.git/hooks && echo x >$_/pre-commit", "a/b/c/.git/hooks/pre-commit", "a/b/c/.git"),
    ("mkdir -p a/x.git/refs a/x.git/objects; cd a/x.git; echo x >HEAD; echo x >config", "a/x.git/config", ""),
    ("mkdir -p src/tmp && echo x >src/tmp/.envrc && mv src/tmp moved", "moved/.envrc", ""),
    ("echo x >src/real && ln -s real src/.envrc", "src/.envrc", ""),
    ("cd .git; mkdir -p modules/a/b; cd modules/a/b; echo x >HEAD; echo x >config", ".git/modules/a/b/config", ""),
    ("echo x >>.jj/repo/config.toml", ".jj/repo/config.toml", ""),
    ("echo x >shop.code-workspace", "shop.code-workspace", ""),
    ("mkdir .run && echo x >.run/a.run.xml", ".run/a.run.xml", ".run"),
    ("echo x >>AGENTS.md", "AGENTS.md", ""),
    ("echo x >src/CLAUDE.md", "src/CLAUDE.md", ""),
    ("echo x >>.venv/bin/activate", ".venv/bin/activate", ""),
    ("echo x >.venv/bin/git", ".venv/bin/git", ""),
    ("echo import os >.venv/lib/python3/site-packages/a.pth", ".venv/lib/python3/site-packages/a.pth", ""),
    ("mkdir node_modules/.bin; echo x >node_modules/.bin/tsc", "node_modules/.bin/tsc", "node_modules/.bin"),
    ("mkdir -p Src/.VSCode && echo x >Src/.VSCode/tasks.json", "Src/.VSCode/tasks.json", "Src/.VSCode"),
]


@pytest.fixture(params=[(user, backend) for user in USERS for backend in BACKENDS], ids=lambda pair: "-".join(pair))
def project(request: pytest.FixtureRequest) -> Iterator[UserProject]:
    with shared_folder() as folder:
        made = UserProject(folder, *request.param)
        subprocess.run(["git", "init", "-q", str(made.root)], check=True)
        for name, text in _FILES.items():
            path = made.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        made.give_to_owner()
        yield made


def test_planted_files_are_prevented_or_reported(project: UserProject) -> None:
    before = [_read_content(project.root / planted) for _, planted, _ in PLANTED]
    done = project.run(*(command for command, _, _ in PLANTED))
    unnoticed = [
        (command, finished.output, finished.tampered_files)
        for (command, planted, name), finished, content in zip(PLANTED, done, before, strict=True)
        if (name or planted) not in finished.tampered_files and _read_content(project.root / planted) != content
    ]
    assert not unnoticed
    reported = sum(bool(finished.tampered_files) for finished in done)
    assert reported == (len(PLANTED) if project.backend == "landlock" else 17)


@pytest.mark.slow
def test_ordinary_work_is_not_reported(project: UserProject) -> None:
    work = [
        "echo more >>src/a.txt && mkdir -p build/x && echo y >build/x/y",
        "git add src && git -c user.name=a -c user.email=a@b commit -qm one && git branch other && git stash list",
        "touch .git/hooks/pre-push .envrc 2>/dev/null; cat .envrc sub/.git/config",
        "mkdir -p node_modules/other/.github/workflows && echo x >$_/ci.yml; echo x >node_modules/other/.travis.yml",
        "rm -rf node_modules",
    ]
    done = project.run(*work)
    assert [finished.tampered_files for finished in done] == [[]] * len(work)
    assert done[-1].code == 0, "packages can be removed although they contain protected names"


@pytest.mark.slow
def test_package_managers_and_git_can_write_what_is_only_watched(project: UserProject) -> None:
    done = project.run(
        "rm -rf .venv && python3 -m venv --without-pip .venv && .venv/bin/python -c 1",
        "mkdir -p node_modules/tool node_modules/.bin && ln -s ../tool/x node_modules/.bin/x",
        "ln -sf ../tool/x node_modules/.bin/x",
        "git add AGENTS.md && git -c user.name=a -c user.email=a@b commit -qm one && git switch -qc other"
        " && echo b >AGENTS.md && git -c user.name=a -c user.email=a@b commit -qam two",
        "git switch -q - && cat AGENTS.md",
    )
    assert [finished.code for finished in done] == [0] * 5, [finished.output for finished in done]
    assert done[-1].output == "Be kind.\n"
    assert [finished.tampered_files for finished in done][1:] == [
        ["node_modules/.bin"],
        ["node_modules/.bin/x"],
        ["AGENTS.md"],
        ["AGENTS.md"],
    ]
    assert ".venv/bin/activate" in done[0].tampered_files


@each("name", ["AGENTS.md", "src/CLAUDE.md", ".venv/bin/tool", "venv/bin/tool", "env/bin/activate", ".tool-versions"])
def test_watched_files_are_reported_and_never_read_only(name: str, tmp_path: Path) -> None:
    (tmp_path / ".envrc").touch()
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a")
    files = ProtectedFiles(str(tmp_path))
    before = files.read_state()
    assert files.list_read_only() == [str(tmp_path / ".envrc")]
    path.write_text("changed")
    assert find_tampered_files(before, files.read_state(), str(tmp_path)) == (name,)
    before = files.read_state()
    assert find_tampered_files(before, files.read_state(), str(tmp_path)) == ()


@each("name", ["docs/agents.md", "model.pth", "node_modules/p/AGENTS.md", ".venv/lib/python3/site-packages/a.py"])
def test_other_files_of_that_kind_are_not_reported(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    files = ProtectedFiles(str(tmp_path))
    before = files.read_state()
    (tmp_path / name).write_text("a")
    assert find_tampered_files(before, files.read_state(), str(tmp_path)) == ()


def _read_content(path: Path) -> tuple[bytes, int]:
    try:
        return path.read_bytes(), path.stat().st_mode & 0o111
    except OSError:
        return b"", 0


@pytest.mark.slow
def test_a_change_within_one_clock_tick_is_found(tmp_path: Path) -> None:
    """The times and the size of a file that was just written may stay the same when it is written again."""
    files = ProtectedFiles(str(tmp_path))
    for number in range(200):
        (tmp_path / ".envrc").write_text(f"{number:03}")
        before = files.read_state()
        (tmp_path / ".envrc").write_text(f"{999 - number:03}")
        assert find_tampered_files(before, files.read_state(), str(tmp_path)) == (".envrc",)


@pytest.mark.slow
def test_a_new_file_within_one_clock_tick_is_found(tmp_path: Path) -> None:
    files = ProtectedFiles(str(tmp_path))
    for number in range(200):
        folder = tmp_path / f"f{number}"
        folder.mkdir()
        before = files.read_state()
        (folder / ".envrc").touch()
        assert find_tampered_files(before, files.read_state(), str(tmp_path)) == (f"f{number}/.envrc",)


def test_files_beyond_the_folder_limit_are_not_reported_as_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that existed but was not listed may have contained the file before."""
    for number in range(10):
        (tmp_path / f"f{number}/inner").mkdir(parents=True)
        (tmp_path / f"f{number}/inner/.envrc").touch()
    files = ProtectedFiles(str(tmp_path))
    monkeypatch.setattr(protected_files, "_MAX_FOLDERS", 12)
    before = files.read_state()
    monkeypatch.setattr(protected_files, "_MAX_FOLDERS", 100)
    (tmp_path / "new").mkdir()
    (tmp_path / "new/.envrc").touch()
    assert find_tampered_files(before, files.read_state(), str(tmp_path)) == ("new/.envrc",)


def test_packages_do_not_use_up_the_folder_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / f"node_modules/p{number}").mkdir(parents=True)
    deep = tmp_path / "a/b/c/d"
    deep.mkdir(parents=True)
    monkeypatch.setattr(protected_files, "_MAX_FOLDERS", 10)
    files = ProtectedFiles(str(tmp_path))
    before = files.read_state()
    (deep / ".envrc").touch()
    assert find_tampered_files(before, files.read_state(), str(tmp_path)) == ("a/b/c/d/.envrc",)


@each("name", ["CACHEDIR.TAG", "pyvenv.cfg", ".gitignore", ".odinignore"])
def test_marker_files_do_not_hide_a_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name.strip(".")
    folder.mkdir()
    (folder / name).write_text("*\n")
    files = ProtectedFiles(str(tmp_path))
    before = files.read_state()
    (folder / ".envrc").touch()
    assert find_tampered_files(before, files.read_state(), str(tmp_path)) == (f"{folder.name}/.envrc",)
