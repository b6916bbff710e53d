"""Read-only commands that run without approval print nothing secret and nothing from outside the project.

The policy judges every command of the tables; those it allows run for real, and no canary may be in their output.
"""

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from odin.core.call_events import ToolEnded
from odin.core.path_names import SECRET_GLOBS
from odin.core.tool import Target
from odin.policy.decision import Decision
from odin.testing import call, say
from tests.engine.conftest import Start
from tests.policy.policies import make_policy
from tests.table import each

CANARY = "canary-7f3a"


@pytest.fixture
def project(workspace: Path, home: Path) -> Path:
    """A project without a repository, with a secret file in it and a file next to it."""
    (workspace.parent / "outside.txt").write_text(f"{CANARY}\n")
    (workspace / ".env").write_text(f"TODO={CANARY}\n")
    (workspace / "notes.txt").write_text("TODO notes\n")
    (workspace / "other.txt").write_text("TODO other\n")
    (workspace / "src").mkdir()
    (workspace / "src" / "app.py").write_text("# TODO app\n")
    (workspace / ".hidden").mkdir()
    (workspace / ".hidden" / "x.txt").write_text("TODO hidden\n")
    return workspace


def judge(root: Path, command: str, permission_mode: str = "default") -> Decision:
    policy = make_policy(root=str(root), permission_mode=permission_mode)
    return policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode")


def get_output(command: str, folder: Path, shell: str = "/bin/sh") -> str:
    done = subprocess.run([shell, "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=20)
    return done.stdout + re.sub(r"(?m)^(rg: No files|Running with --debug).*\n", "", done.stderr)


# --- globs that match the parent folder ---

PARENT_GLOBS = [
    "cat .*/outside.txt",
    "cat .?/outside.txt",
    "cat ..*/outside.txt",
    "cat .[.]/outside.txt",
    "cat .[!a]/outside.txt",
    'cat "."*/outside.txt',
    "head -5 src/.*/.*/outside.txt",
    "cd src && cat ../.*/outside.txt",
    "grep -h . .*/outside.txt",
    "cat .*/not-there-yet.txt",
    "ls .*",
    "wc -l .*/*.txt",
]


@each("command", PARENT_GLOBS)
def test_a_glob_that_may_match_the_parent_folder_needs_approval(command: str, project: Path) -> None:
    assert judge(project, command).action == "ask"


@each("command", ["cat *.txt", "cat src/*.py", "ls -d .h*", "cat .hid*/x.txt", "cat .[a-z]*/x.txt"])
def test_other_globs_are_allowed(command: str, project: Path) -> None:
    assert judge(project, command).action == "allow"
    assert CANARY not in get_output(command, project)


def test_dash_expands_dot_globs_to_the_parent_folder(project: Path) -> None:
    if not Path("/bin/dash").exists():
        pytest.skip("no dash here")
    assert CANARY in get_output("cat .*/outside.txt", project, "/bin/dash")


# --- git outside of a repository reads any two files ---

SECRET_DIFFS = [
    "git diff .env notes.txt",
    "git diff notes.txt .env",
    "git diff --no-index notes.txt .env",
    "git diff --no-index -- .env /dev/null",
    "git diff linked notes.txt",
    "git diff --no-index linked notes.txt",
    "git diff src/../.env notes.txt",
    "git diff --stat -p .env notes.txt",
    "cd src && git diff ../.env app.py",
    "git -C src diff ../.env app.py",
    "git diff . src",
    "git diff ../outside.txt notes.txt",
    "git --no-pager diff -U0 .env notes.txt",
]


@each("command", SECRET_DIFFS)
@each("repository", ["none", "project"])
def test_git_diff_of_a_secret_file_needs_approval(command: str, repository: str, project: Path) -> None:
    (project / "linked").unlink(missing_ok=True)
    (project / "linked").symlink_to(".env")
    shutil.rmtree(project / ".git", ignore_errors=True)
    if repository == "project":
        subprocess.run(["git", "init", "-q"], cwd=project, check=True)
        if command == "git diff . src":  # in a repository these are pathspecs
            return
    assert judge(project, command).action == "ask"


@each("command", ["git diff notes.txt other.txt", "git diff --no-index notes.txt other.txt", "git diff --stat"])
def test_git_diff_of_ordinary_files_is_allowed(command: str, project: Path) -> None:
    assert judge(project, command).action == "allow"
    assert CANARY not in get_output(command, project)


# --- version managers run programs that project files name ---

VERSION_FILES = [".tool-versions", "mise.toml", ".node-version", ".prototools", "package.json", ".nvmrc"]
MANAGERS = [
    (".asdf/shims", "#!/usr/bin/env bash\n# asdf-plugin: nodejs 1\nexec asdf exec 'node' \"$@\"\n"),
    (".local/share/mise/shims", '#!/bin/sh\nexec mise x -- node "$@"\n'),
    (".pyenv/shims", "#!/bin/sh\n"),
    (".rbenv/shims", "#!/bin/sh\n"),
    (".nodenv/shims", "#!/bin/sh\n"),
    (".volta/bin", "#!/bin/sh\n"),
    (".proto/bin", "#!/bin/sh\n"),
    (".local/share/aquaproj-aqua/bin", "#!/bin/sh\n"),
    ("tools/bin", '#!/usr/bin/env bash\nexec "/opt/pyenv/libexec/pyenv" exec "$program" "$@"\n'),
    ("own/bin", "-> .local/bin/mise"),
]
QUERIES = ["node --version", "node -v", "npm ls", "python3 --version", "pip list", "go version", "jq --version", "ls"]


@each("folder, text", MANAGERS)
@each("file", VERSION_FILES)
@each("command", QUERIES)
def test_a_shim_needs_approval_if_a_project_file_configures_it(
    command: str, file: str, folder: str, text: str, project: Path, home: Path
) -> None:
    shims = home / folder
    shutil.rmtree(shims, ignore_errors=True)
    shims.mkdir(parents=True)
    names = [command.split()[0], *(["node"] if command.startswith("npm") else [])]
    for name in names:
        if text.startswith("-> "):
            target = home / text[3:]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("#!/bin/sh\n")
            target.chmod(0o755)
            (shims / name).symlink_to(target)
        else:
            (shims / name).write_text(text)
            (shims / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
        assert judge(project, command).action == "allow", "nothing in the project tells the shim what to run"
        (project / file).write_text("nodejs path:./evil\n")
        for line in (command, f"cd src && {command}"):
            decision = judge(project, line)
            assert (decision.action, "shim" in decision.reason, file in decision.reason) == ("ask", True, True)
        (project / file).unlink()


def test_a_program_that_links_into_the_project_needs_approval(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "node").write_text("#!/bin/sh\ntouch PWNED\n")
    (project / "node").chmod(0o755)
    (home / "bin").mkdir()
    (home / "bin" / "node").symlink_to(project / "node")
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    decision = judge(project, "node --version")
    assert (decision.action, "program of the project" in decision.reason) == ("ask", True)


@each("folder", [".nvm/versions/node/v22/bin", ".pyenv/versions/3.12/bin", ".asdf/installs/nodejs/22/bin", "bin"])
def test_a_real_program_of_a_version_manager_is_allowed(folder: str, project: Path, home: Path) -> None:
    (home / folder).mkdir(parents=True)
    (home / folder / "node").write_text("#!/bin/sh\necho v22\n")
    (home / folder / "node").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{home / folder}:{os.environ['PATH']}")
        assert judge(project, "node --version").action == "allow"


# --- searches, with ignore files of the project that would include secret files ---

IGNORES: list[dict[str, str]] = [
    {},
    {".gitignore": " !.env\n"},
    {".gitignore": "*\n!.env\n"},
    {".gitignore": "/conf\n", "conf/.gitignore": "!.env\n"},
    {".gitignore": "conf\n", ".ignore": "!conf\n!.env\n"},
    {".gitignore": "# " + "x" * 30_000 + "\n!.env\n!*.key\n"},
    {".rgignore": "!.*\n"},
    {"conf/.rgignore": "!.env\n"},
    {".git/info/exclude": "!.env\n"},
    {"../.ignore": "!.env\n"},
]
SEARCHES = [
    "rg TODO",
    "rg TODO .",
    "rg TODO conf",
    "rg -n TODO ./conf src",
    "rg --no-ignore-parent TODO",
    "rg --no-ignore TODO",
    "rg --hidden TODO",
    "rg -uuu TODO",
    "rg TODO -g '.e*'",
    "rg TODO -g '*'",
    "rg TODO --iglob '.ENV'",
    "rg TODO -t sh -t all",
    "rg TODO -g '!src' -g '**/.env'",
    "rg --count TODO",
    "rg -l TODO",
    "rg -e TODO -- .",
    "rg --json TODO",
    "cd conf && rg TODO",
    "rg TODO | head -50",
    "rg --no-config TODO; rg -N TODO conf",
    "timeout 20 rg TODO",
    "grep -rn TODO .",
    "grep -rn TODO",
    "grep -rn TODO . --include='.e*'",
    "grep -rn --include='*' TODO .",
    "grep -rh TODO . --exclude=nothing",
    "grep -r -- TODO .",
    "grep -rl TODO . | sort",
    "egrep -r 'TODO' ./",
    "cd src && grep -rn TODO ..",
    "grep -rn TODO . && grep -rn TODO .",
    "nice grep -rc TODO .",
]


@pytest.fixture
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the ripgrep of the tests on PATH."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("RIPGREP_CONFIG_PATH", raising=False)
    assert shutil.which("rg"), "the tests install ripgrep"


def fill_with_secrets(project: Path) -> None:
    for name in ("conf/.env", "conf/server.key", "conf/prod.ENV", "deep/er/.ssh/config", "src/credentials.json"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"TODO {CANARY}\n")
    (project / "conf" / "open.txt").write_text("TODO open\n")


@pytest.mark.usefixtures("search_path")
@each("ignores", IGNORES)
def test_allowed_searches_skip_secret_files(ignores: dict[str, str], project: Path) -> None:
    fill_with_secrets(project)
    shutil.rmtree(project / ".git", ignore_errors=True)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    for name, text in ignores.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    for command in SEARCHES:
        decision = judge(project, command, "acceptEdits")
        assert decision.action == "allow", (command, decision.reason)
        assert decision.amended is not None, command
        shown = get_output(decision.amended.command, project)
        assert CANARY not in shown, command
        assert not re.search(r"\.env|server\.key|\.ENV|credentials", shown), command
        assert "error" not in shown, (command, shown)
    for name in ignores:
        (project / name).unlink()


@pytest.mark.slow
@pytest.mark.usefixtures("search_path")
@each("command", SEARCHES)
def test_amended_searches_still_find_all_other_files(command: str, project: Path) -> None:
    fill_with_secrets(project)
    before = get_output(command, project).splitlines()
    amended = judge(project, command).amended
    assert amended is not None
    secret = re.compile(rf"{CANARY}|\.env|server\.key|prod\.ENV|\.ssh|credentials|elapsed|\"stats\"", re.IGNORECASE)
    after = {line for line in get_output(amended.command, project).splitlines() if not secret.search(line)}
    assert after == {line for line in before if not secret.search(line)}


@pytest.mark.usefixtures("search_path")
@each("command", ["rg TODO .env", "grep TODO .env", "grep -rn TODO conf/.env", "rg TODO deep/er/.ssh", "rg -L TODO"])
def test_searching_a_named_secret_file_needs_approval(command: str, project: Path) -> None:
    fill_with_secrets(project)
    (project / "link").unlink(missing_ok=True)
    (project / "link").symlink_to(".env")
    assert judge(project, command).action == "ask"


def test_every_secret_name_is_covered_by_a_glob() -> None:
    names = [
        ".env",
        ".env.local",
        ".ENV.prod",
        "a.env",
        "id_rsa",
        "id_ed25519_work",
        "x.PEM",
        "y.key",
        ".ssh",
        ".netrc",
    ]
    assert [name for name in names if not any(fnmatch(name.lower(), glob) for glob in SECRET_GLOBS)] == []


async def test_the_result_names_the_secret_files_that_were_not_searched(start: Start, workspace: Path) -> None:
    (workspace / ".env").write_text(f"TODO={CANARY}\n")
    (workspace / "a.txt").write_text("TODO a\n")
    talk = await start([call("ExecuteCommand", {"command": "grep -rn TODO ."}), say("ok")], yes=False)
    await talk.say("go")
    (ended,) = talk.all(ToolEnded)
    assert (ended.status, CANARY in ended.text) == ("success", False)
    assert "a.txt:1:TODO a" in ended.text
    assert "[Not searched, because they may contain secrets: .env. Name a file to ask for it.]" in ended.text


# --- commands that xargs and find -exec run on found files ---

READS_OF_FOUND_FILES = [
    "find . -name '*.py' | xargs wc -l",
    "find . -name '*.py' | xargs wc -l | tail -1",
    "find src -type f | xargs cat",
    "find . -type f -name '*.py' -print0 | xargs -0 grep -n TODO",
    "find . -type f | xargs wc -l",
    "find . -name '*.txt' | sort | head -5 | xargs wc -c",
    "find . -name '*.txt' | grep -v other | xargs -n1 head -2",
    "find . -name '*.py' | xargs -I{} grep -c TODO {}",
    "find . -name '*.py' -not -path './node_modules/*' | xargs wc -l",
    "find . -name '*.py' -exec wc -l {} +",
    "find . -name '*.py' -exec wc -l {} \\;",
    "find . -type f -exec wc -l {} +",
    "find src -type f -exec cat {} +",
    "find . -name '*.py' -exec grep -l TODO {} +",
    "find . -name '*.py' -exec head -1 {} \\; -print",
    "git ls-files | xargs wc -l",
    "grep -l TODO notes.txt | xargs wc -l",
    "cd src && find . -name '*.py' | xargs cat",
]


@each("command", READS_OF_FOUND_FILES)
def test_commands_that_only_read_found_files_are_allowed(command: str, project: Path) -> None:
    if not (project / ".git").exists():
        subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    decision = judge(project, command)
    assert decision.action == "allow", decision.reason
    assert CANARY not in get_output(command, project)


UNSAFE_READS_OF_FOUND_FILES = [
    "find . -type f | xargs cat",
    "find . | xargs cat",
    "find . -type f -exec cat {} +",
    "find . -name '.e*' | xargs cat",
    "find . -print -name '*.py' | xargs cat",
    "find . -exec cat {} + -name '*.py'",
    "find . -name '*.py' -o -type f | xargs cat",
    "find . ! -name '*.py' | xargs cat",
    "find . -type f -exec md5sum {} +",
    "find . -type f -print0 | xargs -0 head -1",
    "find . -type f | sed s/notes.txt/.env/ | xargs cat",
    "find . -type f | xargs -I{} sh -c 'cat {}'",
    "find . -type f -exec sh -c 'cat {}' \\;",
    "find . -type f -exec cp {} /tmp \\;",
    "find . -type f -execdir cat {} \\;",
    "find . -type f | xargs rm",
    "find . -type f | xargs -a .env cat",
    "find .. -name '*.txt' | xargs cat",
    "find . -name '*.lnk' | xargs cat",
    "find . -name '*.lnk' -exec cat {} +",
    "find . -name '*.lnk' -exec wc -l {} +",
    "find blank -name '*.txt' | xargs cat",
    "find . -name '*.py' | grep -n . | xargs wc -l",
    "find . -name '*.py' | xargs grep -r TODO",
    "find . -name '*.py' -exec grep -r TODO . {} +",
    "find . -name '*.py' | xargs sort -o x",
    "find . -name '*.py' | xargs",
    "cat notes.txt | xargs cat",
    "echo .env | xargs cat",
    "git ls-files | xargs cat",
    "ls | xargs cat",
    "xargs cat < notes.txt",
    "find . -printf '/etc/%f\\n' | xargs cat",
]


@each("command", UNSAFE_READS_OF_FOUND_FILES)
def test_commands_that_could_read_other_files_need_approval(command: str, project: Path) -> None:
    (project / "out.lnk").unlink(missing_ok=True)
    (project / "out.lnk").symlink_to(project.parent / "outside.txt")
    folder = project / "blank" / f"x {project.parent}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "outside.txt").write_text("")
    if command.endswith("xargs"):
        assert judge(project, command).action == "allow", "it only prints names"
        return
    assert judge(project, command).action in ("ask", "deny")


# --- loops over literal words, and printed variables ---

SAFE_LOOPS = [
    "for f in notes.txt other.txt; do wc -l $f; done",
    'for f in notes.txt other.txt; do wc -l "$f"; done',
    'for f in notes.txt other.txt; do echo "== $f"; cat "$f"; done',
    "for f in notes.txt other.txt\ndo\n  head -1 ${f}\ndone",
    "for i in 1 2 3; do echo $i; done",
    "for i in {1..5}; do echo step $i; done",
    "for d in src .hidden; do ls $d; done",
    "for f in *.txt; do wc -l $f; done",
    'for f in *.txt; do wc -l "$f"; done | sort',
    "for f in src/*.py; do grep -c TODO $f; done",
    "for d in src; do for f in app.py; do cat $d/$f; done; done",
    "for i in 1 2; do ls; done && echo done",
    "ls; for x in a; do echo $x; done; pwd",
    "for f in notes.txt; do cat $f | head -1; done",
    "for c in ls pwd; do $c; done",
    "for f in 'notes.txt' \"other.txt\"; do cat $f 2>/dev/null; done",
    "cd src && for f in app.py; do cat $f; done",
    "echo $HOME",
    'echo "$HOME"',
    "echo $PATH | tr ':' '\\n'",
    "echo ${USER} $SHELL",
    'printf "%s\\n" "$PWD"',
    'echo "home: $HOME" && ls',
]


@each("command", SAFE_LOOPS)
def test_simple_loops_and_printed_variables_are_allowed(command: str, project: Path) -> None:
    decision = judge(project, command)
    assert decision.action == "allow", decision.reason
    assert CANARY not in get_output(command, project, "/bin/bash")


UNSAFE_LOOPS = [
    "for f in .env notes.txt; do cat $f; done",
    "for f in .e*; do cat $f; done",
    "for f in nv; do cat .e$f; done",
    "for f in ..; do cat $f/outside.txt; done",
    "for f in .*; do cat $f/outside.txt; done",
    "for f in ../outside.txt; do cat $f; done",
    "for f in a; do for f in .env; do cat $f; done; done",
    "for f in a; do f=.env; cat $f; done",
    "for f in a; do read f < notes.txt; cat $f; done",
    "for f in a; do eval cat .env; done",
    "for f in a; do touch $f; done",
    "for f in a b; do rm $f; done",
    "for f in a; do cat $g; done",
    "for f in a; do cat $f > b; done",
    "for f in a; do cat notes.txt; done > b",
    "for f in a; do cat notes.txt & done",
    "for PATH in ./bin; do ls; done",
    "for path in ./bin; do ls; done",
    "for IFS in x; do ls; done",
    "for HOME in x; do cat notes.txt; done",
    "for LD_PRELOAD in ./x.so; do ls; done",
    "for f in $(ls); do cat $f; done",
    "for f in `ls`; do cat $f; done",
    "for f in a; do cat $(echo .env); done",
    "for f in a; do if true; then cat .env; fi; done",
    "for f in a; do cat .env; done",
    "for f in *.lnk; do cat $f; done",
    'for f in *.lnk; do cat "$f"; done',
    'for f in lnk; do cat "out.$f"; done',
    'for f in out*; do cat "./$f"; done',
    "for c in rm; do $c notes.txt; done",
    "for f in -delete; do find . $f; done",
    "for f in -o; do sort $f x notes.txt; done",
    "for f in a; do g() { cat .env; }; g; done",
    "for ((i=0;i<3;i++)); do echo $i; done",
    "while read f; do cat $f; done < notes.txt",
    "for f; do cat $f; done",
    "for f in a\ndo cat $f\ndone\ncat .env",
    "for f in a; do echo $f; done; cat .env",
    "for f in a; do cat notes.txt; done | xargs cat",
    "echo $SECRET_TOKEN",
    "echo $AWS_SECRET_ACCESS_KEY",
    "echo $HOME/*",
    "echo $(cat .env)",
    "cat $HOME/.bashrc",
    "ls $HOME",
    "echo ${HOME:-$(cat .env)}",
    "echo ${!HOME}",
    "echo $HOME > x",
    "HOME=.env; cat $HOME",
]


@each("command", UNSAFE_LOOPS)
def test_unsafe_loops_and_variables_need_approval(command: str, project: Path) -> None:
    (project / "out.lnk").unlink(missing_ok=True)
    (project / "out.lnk").symlink_to(project.parent / "outside.txt")
    (project / "env").write_text("")
    assert judge(project, command).action in ("ask", "deny")
