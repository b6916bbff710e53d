"""What a command would run, and which commands are known to change nothing."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.policy.command.grammar import MAX_CHARS, Unclear, parse
from odin.policy.command.ruinous import critical
from odin.policy.shell import read_only, split, survey

CASES = Path(__file__).parents[3] / "shared" / "safety" / "commands.json"
"""A larger collection that may stand beside the repository."""


@pytest.fixture
def repo(workspace: Path) -> Path:
    """A small repository with a link that leads out of it."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(workspace)], check=True)
    for folder in ("src", "tests", "docs"):
        (workspace / folder).mkdir()
    for name in ("README.md", "Makefile", "data.csv", "names.txt", "evil.sh", "app.log", "src/app.py"):
        (workspace / name).write_text("TODO\n")
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret\n")
    (workspace / "linkdir").symlink_to(outside)
    (workspace / "notes.txt").symlink_to(outside / "secret")
    return workspace


def harmless(command: str, repo: Path, cwd: Path | None = None) -> bool:
    return read_only(command, str(cwd or repo), str(repo))


# --- splitting ---


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("ls -la 'a b' \"c d\" e\\ f", [["ls", "-la", "a b", "c d", "e f"]]),
        ("a; b && c || d | e", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a\nb", [["a"], ["b"]]),
        ("a && \n b |\n c", [["a"], ["b"], ["c"]]),
        ("a & b", [["a"], ["b"]]),
        ("a \\\n -b", [["a", "-b"]]),
        ("t''ou\"c\"h x", [["touch", "x"]]),
        ("echo \"a $(b 'c d') e\"", [["b", "c d"], ["echo", "a $(b 'c d') e"]]),
        ("echo `a \\`b\\``", [["b"], ["a", "`b`"], ["echo", "`a \\`b\\``"]]),
        ("(a; b) && { c; }", [["a"], ["b"], ["c"], ["}"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"], ["fi"]]),
        ("case x in x) a;; y) b;; esac", [["case", "x", "in", "x"], ["a"], ["y"], ["b"], ["esac"]]),
        ("f() { a; }", [["f"], ["a"], ["}"]]),
        ("function f { a; }", [["function", "f", "{", "a"], ["{", "a"], ["a"], ["}"]]),
        ("cat <(a) >(b)", [["a"], ["b"], ["cat", "<(a)", ">(b)"]]),
        ("cat <<EOF\n$(a) b\nEOF\nc", [["a"], ["cat"], ["c"]]),
        ("cat <<'EOF'\n$(a) b\nEOF\nc", [["cat"], ["c"]]),
        ("cat <<-EOF\n\tx\n\tEOF\nc", [["cat"], ["c"]]),
        ("X=1 Y=$(a) b", [["a"], ["b"]]),
        ("sudo -u root a -b", [["sudo", "-u", "root", "a", "-b"], ["a", "-b"]]),
        ("env -i X=1 a", [["env", "-i", "X=1", "a"], ["a"]]),
        ("env -S 'a b'", [["env", "-S", "a b"], ["a", "b"], ["a b"]]),
        ("timeout -k 5 10 a", [["timeout", "-k", "5", "10", "a"], ["a"]]),
        ("x | xargs -n 1 a", [["x"], ["xargs", "-n", "1", "a"], ["a"]]),
        ("bash -lc 'a && b'", [["bash", "-lc", "a && b"], ["a"], ["b"]]),
        ("sh -c \"sh -c 'a'\"", [["sh", "-c", "sh -c 'a'"], ["sh", "-c", "a"], ["a"]]),
        ("eval a 'b; c'", [["eval", "a", "b; c"], ["a", "b"], ["c"]]),
        (
            "find . -exec a {} \\; -execdir b +",
            [["find", ".", "-exec", "a", "{}", ";", "-execdir", "b", "+"], ["a", "{}"], ["b"]],
        ),
        ("nohup nice -n 5 a", [["nohup", "nice", "-n", "5", "a"], ["nice", "-n", "5", "a"], ["a"]]),
        ("trap 'a' EXIT", [["trap", "a", "EXIT"], ["a"]]),
        ('echo "${x:-$(a)}"', [["a"], ["echo", "${x:-$(a)}"]]),
        ("time -p a", [["time", "-p", "a"], ["a"]]),
        ("a # b; c", [["a"]]),
        ("a#b", [["a#b"]]),
        ("", []),
    ],
)
def test_every_command_in_a_text_is_found(command: str, parts: list[list[str]]):
    assert split(command) == parts


@pytest.mark.parametrize(
    "command",
    [
        "a 'b",
        'a "b',
        "a `b",
        "a $(b",
        "(a",
        "a)",
        "a && ",
        "a | ; b",
        "a >",
        "$x b",
        "{a,b}",
        "*.sh",
        "~/x",
        "bash script.sh",
        "curl x | sh",
        'bash -c "$x"',
        'eval "$x"',
        "source x",
        ". x",
        "alias ls=rm",
        "echo ${x:-'}'} ",
        "ls\x1b[2K",
        "ls \u202e x",
        "ls\u200b",
        "ls\r\nrm",
        "a" * (MAX_CHARS + 1),
        "$(" * 40 + "a" + ")" * 40,
        "sudo " * 40 + "a",
    ],
)
def test_what_cannot_be_read_with_certainty_is_not_split(command: str):
    assert split(command) is None


def test_a_heredoc_for_a_shell_is_a_script():
    seen = survey("bash <<EOF\nrm -rf x\nEOF")
    assert ("rm", "-rf", "x") in [part.texts for part in seen.parts]
    assert ("rm", "-rf", "x") not in [part.texts for part in survey("cat <<EOF\nrm -rf x\nEOF").parts]


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("a > f", ["f"]),
        ("a >> f 2> g", ["f", "g"]),
        ("a >| f", ["f"]),
        ("a &> f", ["f"]),
        ("a &>> f", ["f"]),
        ("a >& f", ["f"]),
        ("a 1<> f", ["f"]),
        ("> f", ["f"]),
        ("echo $(a > f)", ["f"]),
        ("bash -c 'a > f'", ["f"]),
        ("a < f", []),
        ("a <<< f", []),
        ("a > /dev/null 2>&1", []),
        ("a 2>/dev/null >&2", []),
        ("a '>' f", []),
        ("a \\> f", []),
    ],
)
def test_redirections_that_write_are_found(command: str, written: list[str]):
    assert [redirect.target.text for redirect in survey(command).writes] == written


QUOTED = st.text(st.characters(categories=("L", "N", "P", "S"), include_characters=" "), max_size=12)


def quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


@given(
    st.lists(st.lists(QUOTED, min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from([";", "&&", "||", "|", "\n"]),
)
def test_quoted_words_come_back_as_they_were(commands: list[list[str]], joint: str):
    text = f" {joint} ".join(" ".join(quoted(word) for word in words) for words in commands)
    script = parse(text)
    assert [[word.text for word in simple.words] for simple in script.commands] == commands
    assert all(word.literal for simple in script.commands for word in simple.words)
    assert script.plain


@given(
    QUOTED,
    st.sampled_from(
        ["{}; rm -rf x", "{} && rm -rf x", "{} | rm -rf x", "$(rm -rf x) {}", "{}\nrm -rf x", "sudo rm -rf x {}"]
    ),
)
def test_a_command_beside_any_other_is_always_found(word: str, frame: str):
    found = survey(frame.format(quoted(word) if word else "a"))
    assert any(part.texts[:3] == ("rm", "-rf", "x") for part in found.parts)


@given(st.text(max_size=60))
def test_any_text_is_read_or_declared_unclear(text: str):
    try:
        script = parse(text)
    except Unclear:
        assert split(text) is None
        return
    assert all(simple.words or simple.redirects for simple in script.commands)


SHELLISH = st.text(st.sampled_from(list("ab '\"\\$(){}`;|&<>#*~=\n")), max_size=24)


@given(SHELLISH)
def test_a_shell_agrees_about_what_is_incomplete(text: str):
    """What bash would refuse to run is never found harmless."""
    ran = subprocess.run(["bash", "-n", "-c", text], capture_output=True, check=False, timeout=10)
    if ran.returncode:
        assert not read_only(text, "/", "/")


FRAGMENTS = [
    *(
        "one",
        "two",
        "one ",
        " two",
        "'one'",
        '"two"',
        "'one; two'",
        '"$(two)"',
        " ",
        " ",
        "'",
        '"',
        "\\",
        "$(",
        ")",
        "`",
    ),
    *(
        ";",
        "&&",
        "||",
        "|",
        "|&",
        "\n",
        "{ ",
        "; }",
        "(",
        "if ",
        "; then ",
        "; fi",
        "case x in x) ",
        ";;",
        "esac",
        "! ",
    ),
    *(
        "<<E\n",
        "\nE\n",
        "<<'E'\n",
        "<<<",
        "<(",
        ">(",
        "${x:-",
        "}",
        "$x",
        "x=",
        "$((",
        "))",
        "[[ ",
        "]] ",
        "#",
        "--",
        "-c",
    ),
    *("bash -c ", "sh -c ", "eval ", "env ", "command ", "exec ", "time ", "function f ", "f() ", "f", ">o", " 2>&1 "),
]
"""Pieces of shell from which almost anything can be put together, and no loop that might not end."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search path on which `one` and `two` write down that they ran."""
    folder = tmp_path_factory.mktemp("watched")
    for name in ("one", "two"):
        program = folder / name
        program.write_text('#!/bin/bash\nbuiltin echo "${0##*/}" >> "$RAN"\nexit 1\n')
        program.chmod(0o755)
    for name in ("bash", "sh", "env"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=9).map("".join))
def test_a_real_shell_runs_nothing_that_was_not_found(watched: Path, text: str):
    """The claim behind every prohibition: when the survey is sure, it has seen all that bash would run."""
    seen = survey(text)
    if not seen.sure:
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cwd:
        ran = Path(cwd, "ran")
        env = {"PATH": str(watched), "RAN": str(ran)}
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "check": False, "timeout": 10}
        subprocess.run(["/bin/bash", "-c", text], cwd=cwd, env=env, **quiet)
        started = set(ran.read_text().split()) if ran.exists() else set[str]()
    assert started <= {part.name for part in seen.parts}


# --- commands that change nothing ---

HARMLESS = [
    "pwd",
    "ls",
    "ls -la src tests",
    "ls *.md",
    "cat README.md",
    "cat src/../README.md",
    "cat no-such-file",
    "head -20 README.md",
    "head -n 5 -- README.md",
    "tail -n +2 README.md",
    "wc -l README.md",
    "which python3",
    "echo hello 'and; more'",
    'echo "hello world"',
    "printf '%s\\n' hi",
    "date +%Y",
    "stat README.md",
    "du -sh src",
    "file README.md",
    "sort -u names.txt",
    "uniq -c names.txt",
    "cut -d, -f1 data.csv",
    "diff README.md Makefile",
    "grep -n 'def ' src/app.py",
    "grep -E 'a|b' data.csv",
    "grep -rn --include='*.py' import .",
    "find . -name '*.py' -not -path './.git/*'",
    "find src -maxdepth 2 -type d",
    "[ -d src ] && echo yes",
    "test -f README.md || echo no",
    "cd src && cat app.py",
    "cd src && cat ../README.md",
    "ls; pwd",
    "ls | head -3 | wc -l",
    "ls 2>/dev/null",
    "ls >/dev/null 2>&1",
    "NO_COLOR=1 LC_ALL=C git status",
    "timeout 5 ls",
    "command -v git",
    "python3 --version",
    "git status",
    "git status --short --branch",
    "git --no-pager log -3 --oneline",
    "git log -p -1 -- README.md",
    "git log --since='2 weeks ago' --format='%h %s'",
    "git diff --cached",
    "git diff main...feature --name-only",
    "git show HEAD:README.md",
    "git branch -vv",
    "git branch --show-current",
    "git tag",
    "git rev-parse --abbrev-ref HEAD",
    "git blame -L 1,2 README.md",
    "git ls-files",
    "git stash list",
    "git grep -n TODO",
    "cd src && git status",
]


@pytest.mark.parametrize("command", HARMLESS)
def test_everyday_looking_is_harmless(repo: Path, command: str):
    assert harmless(command, repo)


NOT_HARMLESS = [
    "",
    "   ",
    "touch x",
    "ls; touch x",
    "ls && touch x",
    "ls || touch x",
    "ls | tee x",
    "ls\ntouch x",
    "ls & touch x",
    "ls &",
    "! ls",
    "(ls)",
    "{ ls; }",
    "time ls",
    "ls # comment",
    "if true; then ls; fi",
    "ls $(touch x)",
    "ls `touch x`",
    "ls <(touch x)",
    "echo $HOME",
    "echo ${x@P}",
    "echo ~",
    "echo {a,b}",
    "echo $'a'",
    "cat *.md",
    "ls ~/x",
    "echo hi > x",
    "echo hi >> x",
    "echo hi >| x",
    "echo hi &> x",
    "ls 1<> x",
    "> x",
    "cat < README.md",
    "cat <<EOF\nx\nEOF",
    "ls >& x",
    "ls 2>&3",
    "./ls",
    "/bin/ls",
    "cat /etc/passwd",
    "cat ../outside/secret",
    "cat src/../../outside/secret",
    "cat notes.txt",
    "cat linkdir/secret",
    "ls linkdir/*",
    "ls /*",
    "ls -- *.md /etc",
    "cat /dev/zero",
    "cat pipe",
    "tail -f app.log",
    "tail -5f app.log",
    "head -n",
    "uniq names.txt out",
    "sort -o out names.txt",
    "sort -onames.txt data.csv",
    "sort --compress-program=./evil.sh names.txt",
    "sort --output=x names.txt",
    "tree -o x",
    "file -f names.txt",
    "file -C -m names.txt",
    "date -f names.txt",
    "date -s tomorrow",
    "date 01010000",
    "hostname newname",
    "wc --files0-from=names.txt",
    "du --files0-from=names.txt",
    "diff --to-file=/etc/passwd README.md",
    "diff -r . /etc",
    "grep -r SECRET .",
    "grep -R --include=x y .",
    "grep -f names.txt README.md",
    "grep -rf names.txt --include=x .",
    "find . -delete",
    "find . -exec touch x \\;",
    "find . -fprint x",
    'find . "-del"ete',
    "find / -name x",
    "find -L . -name x",
    "find . -newer /etc/passwd",
    "printf -v 'a[$(touch x)]' y",
    "test -v 'a[$(touch x)]'",
    "[ 'a[$(touch x)]' -eq 0 ]",
    "[[ -d src ]]",
    "ps eww",
    "env",
    "set",
    "export X=1",
    "LD_PRELOAD=./x.so ls",
    "GIT_EXTERNAL_DIFF=./evil.sh git diff",
    "TZ=/etc/passwd date",
    "X=1",
    "timeout 5 touch x",
    "timeout --foreground 5 ls",
    "command ls",
    "command -v ./evil.sh",
    "python3 -c 1 --version",
    "sudo ls",
    "cd",
    "cd .. && ls",
    "cd - && ls",
    "cd /etc && ls",
    "cd linkdir && cat secret",
    "cd nowhere && cat ../x",
    "cd src; cat app.py",
    "cd src || cat ../README.md",
    "false && cd src; cat ../README.md",
    "ls && cd src && cat app.py",
    "cd src | ls",
    "LANG=C cd .. && ls",
    "cd $HOME && ls",
    "git",
    "git -C / status",
    "git -c core.pager=./evil.sh log",
    "git --exec-path=. status",
    "git --git-dir=/x status",
    "git commit -m x",
    "git push",
    "git branch new",
    "git branch -D main",
    "git tag v1",
    "git tag -d v1",
    "git checkout .",
    "git log --output=x",
    "git log --outpu=x",
    "git shortlog --output=x HEAD",
    "git diff --no-index /etc/passwd README.md",
    "git diff /etc/passwd README.md",
    "git diff ../outside/secret README.md",
    "git diff --ext-diff",
    "git show --textconv HEAD",
    "git log --format=%G?",
    "git log --format %GK",
    "git grep -O./evil.sh TODO",
    "git grep --open-fi=./evil.sh TODO",
    "git stash",
    "git stash list -p",
    "git reflog expire --all",
    "git blame --contents /etc/passwd README.md",
    "git status -- /etc",
    "git cat-file --textconv HEAD:README.md",
    "git ls-remote --upload-pack=./evil.sh .",
]


@pytest.mark.parametrize("command", NOT_HARMLESS)
def test_everything_else_is_not(repo: Path, command: str):
    os.mkfifo(repo / "pipe")
    assert not harmless(command, repo)


def test_a_command_that_runs_elsewhere_is_not_harmless(repo: Path):
    assert harmless("cat README.md", repo)
    assert not harmless("cat README.md", repo, repo.parent)
    assert harmless("cat ../README.md", repo, repo / "src")
    assert not harmless("cat ../../outside/secret", repo, repo / "src")


def test_a_program_of_the_project_does_not_pass_for_the_systems(repo: Path, monkeypatch: pytest.MonkeyPatch):
    tools = repo / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert harmless("ls", repo)
    (tools / "ls").write_text("#!/bin/sh\ntouch PWNED\n")
    assert not harmless("ls", repo)
    assert harmless("cat README.md", repo)
    monkeypatch.setenv("PATH", f"bin:{os.environ['PATH'].split(':', 1)[1]}")
    assert not harmless("ls", repo)


def test_cdpath_makes_cd_uncertain(repo: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CDPATH", "/")
    assert not harmless("cd src && ls", repo)


POISON = [
    "core.fsmonitor ./evil.sh",
    "core.hooksPath ./hooks",
    "core.pager ./evil.sh",
    "core.worktree /etc",
    "diff.external ./evil.sh",
    "diff.evil.textconv ./evil.sh",
    "filter.evil.clean ./evil.sh",
    "gpg.program ./evil.sh",
    "alias.status '!./evil.sh'",
    "include.path ../inc",
    "includeIf.gitdir:/.path ../inc",
    "extensions.worktreeConfig true",
    "log.showSignature true",
]


@pytest.mark.parametrize("setting", POISON)
def test_a_repository_that_names_programs_makes_git_a_question(repo: Path, setting: str):
    assert harmless("git status", repo)
    key, value = setting.split(" ", 1)
    subprocess.run(["git", "-C", str(repo), "config", key, value], check=True)
    assert not harmless("git status", repo)
    assert not harmless("cd src && git log", repo)
    assert harmless("git --version", repo)


@pytest.mark.parametrize(
    "setting", ["user.name me", "remote.origin.url https://x/y", "branch.main.remote origin", "core.autocrlf input"]
)
def test_ordinary_settings_of_a_repository_change_nothing(repo: Path, setting: str):
    key, value = setting.split(" ", 1)
    subprocess.run(["git", "-C", str(repo), "config", key, value], check=True)
    assert harmless("git status", repo)


@pytest.mark.parametrize(
    "text",
    ["[core] fsmonitor = x\n", "[core]\n\tfsmonitor = x", "[Core]\nFSMonitor=x\n", "fsmonitor = x\n", "nonsense\n"],
)
def test_the_configuration_is_read_as_git_reads_it(repo: Path, text: str):
    config = repo / ".git" / "config"
    config.write_text(config.read_text() + text)
    assert not harmless("git status", repo)


def test_a_repository_elsewhere_or_in_disguise_makes_git_a_question(repo: Path):
    inner = repo / "vendor"
    subprocess.run(["git", "init", "-q", "--bare", str(inner)], check=True)
    assert not harmless("cd vendor && git status", repo)
    (repo / "src" / ".git").write_text("gitdir: ../vendor\n")
    assert not harmless("cd src && git status", repo)
    (repo / ".git" / "hooks").mkdir(exist_ok=True)
    (repo / ".git" / "hooks" / "post-index-change").write_text("")
    assert not harmless("git status", repo)


def test_without_a_repository_in_the_project_git_is_a_question(workspace: Path):
    assert not harmless("git status", workspace)


# --- what never runs ---

CRITICAL = [
    "rm -rf /",
    "rm -fr /",
    "rm -r -f /",
    "rm --recursive --force /",
    "/bin/rm -rf /",
    "sudo rm -rf /",
    "rm -rf /*",
    "rm -rf ~",
    "rm -rf ~/",
    "rm -rf ~/*",
    "rm -rf ~root",
    'rm -rf "$HOME"',
    "rm -rf $HOME/*",
    "rm -rf .",
    "rm -rf ./",
    "rm -rf *",
    "rm -rf ./*",
    "rm -rf ..",
    "rm -rf ../*",
    "rm -rf src/..",
    "rm -rf src/../..",
    'rm -rf "$DIR"/*',
    "rm -rf $DIR/",
    "rm -rf ${DIR}/",
    "rm -rf /usr",
    "rm -rf /usr/",
    "rm -rf /usr/../etc",
    "rm -rf //",
    "rm -rf /home/someone",
    "rm -rf --no-preserve-root /x",
    "rm -rf -- /",
    "ls; rm -rf /",
    "ls && (cd x; rm -rf ~)",
    "echo $(rm -rf /)",
    "bash -c 'rm -rf /'",
    "bash -c \"bash -c 'rm -rf ~'\"",
    "env X=1 timeout 5 rm -rf /",
    "find . -exec rm -rf / \\;",
    "if true; then rm -rf /; fi",
    "function f { rm -rf /; }; f",
    "bash <<EOF\nrm -rf /\nEOF",
    "rm -rf / '",
    "find / -delete",
    "find ~ -delete",
    "find /usr -exec rm {} +",
    "mkfs.ext4 /dev/sda1",
    "mkfs /dev/sda",
    "dd if=/dev/zero of=/dev/sda",
    "echo x > /dev/sda",
    "cat x >> /dev/nvme0n1",
    "cp x /dev/sda",
    "chmod -R 777 /",
    "chown -R me /usr",
    "kill -9 -1",
    "shutdown -h now",
    "sudo reboot",
    "systemctl poweroff",
    ":(){ :|:& };:",
    "del /f x",
    "rmdir /s x",
    "format c:",
]


@pytest.mark.parametrize("command", CRITICAL)
def test_catastrophes_are_recognised(command: str):
    assert critical(command, survey(command), "/ws/project")


@pytest.mark.parametrize("target", ["/ws/project", "/ws", "/ws/project/", "/ws/project/*"])
def test_the_project_itself_is_not_removed(target: str):
    command = f"rm -rf {target}"
    assert critical(command, survey(command), "/ws/project")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build",
        "rm -rf ./build",
        "rm -rf build/*",
        "rm -rf *.pyc",
        "rm -rf /ws/project/build",
        "rm -rf /tmp/thing",
        'rm -rf "$DIR"',
        "rm -rf ${DIR:?}/x",
        "rm x",
        "rm -f *",
        "rm /etc/x",
        "echo 'rm -rf /'",
        "cat <<EOF\nrm -rf /\nEOF",
        "git commit -m 'rm -rf /'",
        "grep -r 'mkfs' .",
        "find . -name x -delete",
        "find / -name x",
        "chmod -R u+w .",
        "chmod 777 /",
        "kill -1 123",
        "kill 1",
        "dd if=a of=b",
        "echo reboot",
        "rmdir x",
        "git format-patch -1",
        "f() { a | b & }; f",
    ],
)
def test_what_is_no_catastrophe_is_left_to_the_other_rules(command: str):
    assert critical(command, survey(command), "/ws/project") == ""


# --- the larger collection, where it is present ---


def cases() -> list[dict[str, Any]]:
    return json.loads(CASES.read_text(encoding="utf-8")) if CASES.is_file() else []


@pytest.mark.skipif(not CASES.is_file(), reason="the collection is not beside the repository")
def test_the_collection_is_judged_without_a_single_unsafe_yes(repo: Path):
    unsafe = [case["command"] for case in cases() if case["expect"] != "auto" and harmless(case["command"], repo)]
    assert unsafe == []


@pytest.mark.skipif(not CASES.is_file(), reason="the collection is not beside the repository")
def test_the_everyday_commands_of_the_collection_are_harmless(repo: Path):
    everyday = [case["command"] for case in cases() if case["kind"] == "benign"]
    assert len(everyday) > 50
    assert [command for command in everyday if not harmless(command, repo)] == []


@pytest.mark.skipif(not CASES.is_file(), reason="the collection is not beside the repository")
def test_the_catastrophes_of_the_collection_are_recognised(repo: Path):
    worst = [case["command"] for case in cases() if case["expect"] == "deny"]
    assert worst
    assert [command for command in worst if not critical(command, survey(command), str(repo))] == []
