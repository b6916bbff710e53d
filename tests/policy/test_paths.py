"""Resolved paths, protected files, and paths in the words of a command."""

import os
import socket
from pathlib import Path

import pytest

from odin.core.path_names import contains, is_secret_path
from odin.policy import paths
from odin.policy.commands.analysis import analyze_command, find_outside_word, is_outside_word
from tests.policy.policies import make_scope
from tests.table import each


@pytest.fixture
def root(workspace: Path) -> Path:
    (workspace / "src").mkdir()
    (workspace / "src" / "app.py").write_text("x\n")
    outside = workspace.parent / f"{workspace.name}-evil"
    outside.mkdir()
    (outside / "secret").write_text("x\n")
    (workspace / "link").symlink_to(outside)
    (workspace / "inner").symlink_to("src")
    return workspace


# --- folder cursor ---


def test_folder_cursor_enters_folders_but_not_links(root: Path):
    (root / "src" / "a" / "b").mkdir(parents=True)
    (root / "src" / "a" / "up").symlink_to("..")
    with paths.open_folder(str(root)) as top, paths.FolderCursor(top) as cursor:
        for path in ("src/a/b", "src/a", "", "src", "src/a/b"):
            assert os.path.samestat(os.fstat(cursor.enter(path)), (root / path).stat())
        for path in ("link", "inner", "src/a/up", "src/a/up/a", "src/app.py", "src/gone"):
            with pytest.raises(OSError):
                cursor.enter(path)
        assert os.path.samestat(os.fstat(cursor.enter("src/a")), (root / "src" / "a").stat())


def test_folder_cursor_holds_few_descriptors_at_any_depth(root: Path):
    names = ["d"] * 400
    for at in (40, 400):
        (root / "/".join(names[:at])).mkdir(parents=True, exist_ok=True)
    before = len(os.listdir("/dev/fd"))
    with paths.open_folder(str(root)) as top, paths.FolderCursor(top) as cursor:
        for depth in (400, 399, 400, 1):
            assert os.path.samestat(
                os.fstat(cursor.enter("/".join(names[:depth]))), (root / "/".join(names[:depth])).stat()
            )
            assert len(os.listdir("/dev/fd")) < before + 150
    assert len(os.listdir("/dev/fd")) == before


# --- inside or outside the project ---


@each(
    ("path", "expected"),
    [
        ("src/app.py", True),
        ("src/new/file", True),
        (".", True),
        ("inner/app.py", True),
        ("inner/../README.md", True),
        ("./a b", True),
        ("...", True),
        ("..data", True),
        ("..", False),
        ("src/../..", False),
        ("src/../../project-evil/secret", False),
        ("link", False),
        ("link/secret", False),
        ("link/new", False),
        ("inner/../../x", False),
        ("/etc/passwd", False),
        ("/", False),
        ("~", False),
        ("~/x", False),
        ("~root/x", False),
        ("a\0b", False),
    ],
)
def test_is_inside_compares_resolved_path_components(root: Path, path: str, expected: bool):
    assert paths.is_inside(path, str(root)) is expected


def test_sibling_folder_whose_name_starts_like_the_projects_is_outside(root: Path):
    assert not paths.is_inside(f"{root}-evil/secret", str(root))
    assert not contains(str(root), f"{root}-evil")
    assert contains(str(root), f"{root}/x")
    assert contains("/", "/x")


def test_link_that_is_created_later_is_followed(root: Path):
    assert paths.is_inside("later/file", str(root))
    (root / "later").symlink_to("/etc")
    assert not paths.is_inside("later/file", str(root))


def test_dangling_link_is_judged_by_its_target(root: Path):
    (root / "dangling").symlink_to("/nowhere/at/all")
    assert not paths.is_inside("dangling", str(root))
    (root / "loop").symlink_to("loop")
    assert paths.is_special_file("loop", str(root)) is False


# --- special files ---


def test_pipes_sockets_and_devices_are_special_files(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(root)
    os.mkfifo(root / "pipe")
    (root / "door").symlink_to(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        for name in (
            "pipe",
            "door",
            "sock",
            "/dev/zero",
            "/dev/sda",
            "/proc/self/environ",
            "/sys/kernel",
            "/dev/tcp/x/1",
        ):
            assert paths.is_special_file(name, str(root)), name
    for name in ("src", "src/app.py", "nowhere", "/etc/passwd", "/process", "/system"):
        assert not paths.is_special_file(name, str(root)), name


def test_hard_links_are_detected(root: Path):
    assert not paths.has_hard_links("src/app.py", str(root))
    os.link(root.parent / f"{root.name}-evil" / "secret", root / "hard.txt")
    assert paths.has_hard_links("hard.txt", str(root))
    assert not paths.has_hard_links("nowhere", str(root))
    assert not paths.has_hard_links("src", str(root))


# --- protected names ---

PROTECTED = [
    ".git/config",
    ".git",
    "vendor/x/.git/hooks/pre-commit",
    ".GIT/config",
    ".Git/config",
    ".git./config",
    ".git /config",
    ".git. . /config",
    ".git::$INDEX_ALLOCATION/config",
    ".gi\u200ct/config",
    ".g\u200dit/config",
    "GIT~1/config",
    "git~2/config",
    "CLAUDE~1/settings.json",
    "VSCODE~1/tasks.json",
    "ODINCO~1.JSO",
    ".odin/settings.json",
    "odinconfig.json",
    "OdinConfig.json",
    "odinconfig.json::$DATA",
    ".claude/settings.json",
    ".codex/config.toml",
    ".gemini/x",
    ".Cursor/MCP.json",
    ".agents/x",
    ".mcp.json",
    ".vscode/tasks.json",
    ".v\u017fcode/tasks.json",
    ".idea/workspace.xml",
    ".husky/pre-commit",
    ".devcontainer/devcontainer.json",
    ".cargo/config.toml",
    ".yarn/plugins/x",
    ".yarnrc.yml",
    ".pnp.cjs",
    ".mvn/jvm.config",
    ".npmrc",
    "bunfig.toml",
    ".bazelrc",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    ".lefthook.toml",
    ".envrc",
    ".ripgreprc",
    "pyrightconfig.json",
    "gradle/wrapper/gradle-wrapper.properties",
    ".gitconfig",
    ".gitmodules",
    ".config/git/config",
    ".config/odin/odinconfig.json",
    ".local/state/odin/x",
    ".bashrc",
    ".BashRC",
    ".zshenv",
    ".profile",
    ".config/fish/config.fish",
    ".ssh/authorized_keys",
    ".vimrc",
    ".github/workflows/ci.yml",
    ".GitHub/Workflows/ci.yml",
    ".gitlab-ci.yml",
    "rust-toolchain.toml",
    ".jj/repo/config.toml",
    "shop.code-workspace",
    "Shop.Code-Workspace",
    ".run/All.run.xml",
    ".vs/tasks.vs.json",
    ".nova/Configuration.json",
    ".helix/languages.toml",
    "gradle/wrapper/gradle-wrapper.jar",
    ".venv/bin/python",
    ".venv/bin/activate",
    "venv/Scripts/activate.bat",
    "myenv/bin/activate",
    ".venv/lib/python3.12/site-packages/x.pth",
    "node_modules/.bin/prettier",
    "web/node_modules/.BIN/prettier",
    ".lvimrc",
    ".local.vimrc",
    ".ocamlinit",
    ".ghci",
    ".Renviron",
    ".tool-versions",
    ".python-version",
    "mise.local.toml",
    ".githooks/pre-commit",
    ".lintstagedrc.json",
    "sitecustomize.py",
    "tools/bazel",
    ".gitpod.yml",
    ".github/copilot-instructions.md",
    "AGENTS.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "ODIN.md",
    "GEMINI.md",
    "AGENTS.md. ",
]


@each("path", PROTECTED)
def test_protected_names_are_protected_before_they_exist(root: Path, path: str):
    assert make_scope(root).find_protected_part(path)
    assert make_scope(root).find_protected_part(f"src/{path}")
    assert make_scope(root).find_protected_part(f"{root}/{path}")
    assert make_scope(root).find_protected_part(f"src/../{path}")


@each(
    "path",
    [
        "src/app.py",
        ".gitignore",
        ".gitattributes",
        ".github/ISSUE_TEMPLATE.md",
        ".github/dependabot.yml",
        "git/config",
        "digit~1",
        "config",
        "my.git.md",
        ".config/other/x",
        "workflows/x",
        "package.json",
        "claude.md",
        "docs/agents.md",
        "model.pth",
        "checkpoints/last.pth",
        ".venv/lib/python3.12/site-packages/x.py",
        "node_modules/prettier/index.js",
        "bin/run",
        ".jj/repo/store/x",
        "activate",
        "tools/bazel.md",
        "github/workflows/x",
        "café.txt",
    ],
)
def test_ordinary_names_are_not_protected(root: Path, path: str):
    assert make_scope(root).find_protected_part(path) == ""


def test_a_link_to_a_protected_file_is_protected(root: Path):
    (root / ".git").mkdir()
    (root / "innocent").symlink_to(".git")
    assert make_scope(root).find_protected_part("innocent/config")
    (root / "x.txt").symlink_to(".bashrc")
    assert make_scope(root).find_protected_part("x.txt")


def test_protected_name_above_the_project_does_not_count(root: Path):
    inner = root / ".git" / "worktree"
    inner.mkdir(parents=True)
    assert make_scope(inner).find_protected_part("file") == ""
    assert make_scope(inner).find_protected_part(".bashrc")


@pytest.mark.parametrize("variable", ["ODIN_CONFIG_DIR", "ODIN_STATE_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"])
def test_odin_folders_are_protected_wherever_they_are(root: Path, variable: str, monkeypatch: pytest.MonkeyPatch):
    place = root / "mine"
    own = place if variable.startswith("ODIN") else place / "odin"
    assert make_scope(root).find_protected_part(f"{own}/x") == ""
    monkeypatch.setenv(variable, str(place))
    assert make_scope(root).find_protected_part(f"{own}/x")
    assert make_scope(root).find_protected_part(f"{place}-other/x") == ""
    own.mkdir(parents=True)
    assert make_scope(own).find_protected_part("x") == "", "a project inside that folder is not protected"


# --- secrets ---


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".env", True),
        (".env.local", True),
        (".env.production", True),
        (".ENV", True),
        ("prod.env", True),
        ("server.pem", True),
        ("server.key", True),
        ("id_rsa", True),
        ("id_ed25519", True),
        ("keys/ID_RSA", True),
        ("credentials", True),
        ("credentials.json", True),
        (".netrc", True),
        (".npmrc", True),
        (".aws/config", True),
        (".ssh/known_hosts", True),
        ("x.p12", True),
        (".env.example", False),
        (".env.sample", False),
        ("id_rsa.pub", False),
        ("README.md", False),
        ("environment.py", False),
        ("key.py", False),
        ("credentials.py", False),
        ("env", False),
        (".env.local.example", False),
        ("app/.env.production.sample", False),
        ("local.example.env", False),
        (".env.example.local", True),
        ("tests/fixtures/server.key", False),
        ("tests/fixtures/tls/id_rsa", False),
        ("testdata/ca.pem", False),
        ("tests/server.key", True),
        ("fixtures/a/b/server.key", True),
        ("tests/fixtures/.env", True),
        ("tests/fixtures/credentials.json", True),
        ("src/token.json", False),
        ("token.json", True),
        ("/home/me/.config/tool/token.json", True),
        ("docs/auth.json", False),
        ("shadow", False),
        ("src/shadow", False),
        ("/etc/shadow", True),
        ("release.tar.gz.asc", False),
        ("KEYS.asc", False),
        (".aws/sso/cache/x.json", True),
        (".ssh/keys/deploy", True),
    ],
)
def test_secret_files_are_recognized_by_name(path: str, expected: bool):
    assert is_secret_path(path) is expected


# --- paths in the words of a command ---


@pytest.mark.parametrize(
    "word",
    [
        "/etc/passwd",
        "../x",
        "src/../../x",
        "link/secret",
        "~/x",
        "~root",
        "$HOME/x",
        "${HOME}",
        "--file=/etc/passwd",
        "--file=../x",
        "--file=link/secret",
        "-I/usr/include",
        "-I../include",
        "-xvf/etc/x",
        "-C..",
        "if=/etc/passwd",
        "of=../x",
        "X=~/x",
        "PATH=src:/bin",
        "a=b=/etc",
        "-Wl,-rpath,/etc",
        "host:/etc/passwd",
        "{/etc/passwd,x}",
        "file:///etc/passwd",
        "a\0b",
    ],
    ids=repr,
)
def test_words_that_point_outside_are_recognized(root: Path, word: str):
    assert is_outside_word(word, str(root), str(root))


@each(
    "word",
    [
        "src/app.py",
        "inner/app.py",
        "--file=src/app.py",
        "-Isrc",
        "-Isrc/include",
        "-Lsrc/lib",
        "-n",
        "--",
        "-",
        "a=b",
        "x=src/app.py",
        "HEAD~1",
        "main..feature",
        "main...feature",
        "HEAD^",
        "/dev/null",
        "2>/dev/null",
        "https://example.com/x/y",
        "s/a/b/",
        "fix: a thing",
        "feat(x): look at this, and that",
        "node:20",
        "@scope/name",
    ],
)
def test_words_that_stay_inside_are_recognized(root: Path, word: str):
    assert not is_outside_word(word, str(root), str(root))


@each(
    ("command", "word"),
    [
        ("cp README.md /etc/x", "/etc/x"),
        ("cp README.md ../x", "../x"),
        ("cd src && cp app.py ../../x", "../../x"),
        ("cd src && cp app.py ../x", ""),
        ("echo x > /etc/x", "/etc/x"),
        ("echo x > ~/x", "~/x"),
        ("make -C /etc", "/etc"),
        ("cp link/* .", "link/*"),
        ("cp */secret .", "link/secret"),
        ("cp l* .", "link"),
        ("cp s* x", ""),
        ("PYTHONPATH=/evil make", "PYTHONPATH=/evil"),
        ("bash -c 'cat /etc/passwd'", "/etc/passwd"),
        ("make test", ""),
        ("git commit -m 'fix /etc/passwd: it was wrong'", ""),
        ("grep -rn /api/v1 src", ""),
        ("echo /etc/passwd", ""),
        ("ls 2>/dev/null", ""),
        ("make > /dev/null", ""),
        ("dd if=/dev/zero of=a bs=1 count=9", ""),
        ("head -c 9 /dev/urandom", ""),
        ("head -c 9 /dev/mem", "/dev/mem"),
    ],
)
def test_first_word_that_points_outside_is_returned(root: Path, command: str, word: str):
    found = find_outside_word(analyze_command(command), make_scope(root))
    assert found == word or (word and found.startswith(word))
