"""Analysis of shell text: the commands it would run, its redirections, and destructive commands."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.policy.commands.analysis import analyze_command, is_plainly_read_only
from odin.policy.commands.hard_stop import find_harm
from odin.policy.commands.parser import parse_command
from odin.policy.commands.syntax import MAX_COMMAND_CHARS, Unparseable
from tests.policy.policies import make_scope
from tests.table import each
from tests.waiting import LIMIT_S

# --- commands and redirections ---


@each(
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
        ("(a; b) && { c; }", [["a"], ["b"], ["c"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("case x in x) a;; y) b;; esac", [["a"], ["b"]]),
        ("f() { a; }", [["a"]]),
        ("function f { a; }", [["a"]]),
        ("cat <(a) >(b)", [["a"], ["b"], ["cat", "<(a)", ">(b)"]]),
        ("cat <<EOF\n$(a) b\nEOF\nc", [["a"], ["cat"], ["c"]]),
        ("cat <<'EOF'\n$(a) b\nEOF\nc", [["cat"], ["c"]]),
        ("cat <<-EOF\n\tx\n\tEOF\nc", [["cat"], ["c"]]),
        ("X=1 Y=$(a) b", [["a"], ["b"]]),
        ("sudo -u root a -b", [["sudo", "-u", "root", "a", "-b"], ["a", "-b"]]),
        ("env -i X=1 a", [["env", "-i", "X=1", "a"], ["a"]]),
        ("env -S 'a b'", [["env", "-S", "a b"], ["a", "b"]]),
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
        ("a b#c", [["a", "b#c"]]),
        ("", []),
    ],
)
def test_every_command_in_a_text_is_found(command: str, parts: list[list[str]]):
    found = analyze_command(command)
    assert [list(part.texts) for part in found.commands] == parts
    assert found.is_complete


@each(
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
        "a" * (MAX_COMMAND_CHARS + 1),
        "$(" * 40 + "a" + ")" * 40,
        "sudo " * 40 + "a",
    ],
)
def test_analysis_of_ambiguous_text_is_incomplete(command: str):
    assert not analyze_command(command).is_complete


def test_heredoc_for_a_shell_is_analyzed_as_a_script():
    seen = analyze_command("bash <<EOF\nrm -rf x\nEOF")
    assert ("rm", "-rf", "x") in [part.texts for part in seen.commands]
    assert ("rm", "-rf", "x") not in [part.texts for part in analyze_command("cat <<EOF\nrm -rf x\nEOF").commands]


@each(
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
    assert [redirect.target.text for redirect in analyze_command(command).writes] == written


QUOTABLE_TEXT = st.text(st.characters(categories=("L", "N", "P", "S"), include_characters=" "), max_size=12)


def quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


@pytest.mark.slow
@given(
    st.lists(st.lists(QUOTABLE_TEXT, min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from([";", "&&", "||", "|", "\n"]),
)
def test_quoted_words_are_parsed_unchanged(commands: list[list[str]], joint: str):
    text = f" {joint} ".join(" ".join(quote(word) for word in words) for words in commands)
    script = parse_command(text)
    assert [[word.text for word in simple.words] for simple in script.commands] == commands
    assert all(word.literal for simple in script.commands for word in simple.words)
    assert script.plain


@given(
    QUOTABLE_TEXT,
    st.sampled_from(
        ["{}; rm -rf x", "{} && rm -rf x", "{} | rm -rf x", "$(rm -rf x) {}", "{}\nrm -rf x", "sudo rm -rf x {}"]
    ),
)
def test_command_next_to_any_other_is_always_found(word: str, frame: str):
    found = analyze_command(frame.format(quote(word) if word else "a"))
    assert any(part.texts[:3] == ("rm", "-rf", "x") for part in found.commands)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_unparseable(text: str):
    try:
        script = parse_command(text)
    except Unparseable:
        assert not analyze_command(text).is_complete
        return
    assert all(simple.words or simple.redirects for simple in script.commands)


SHELLISH = st.text(st.sampled_from(list("ab '\"\\$(){}`;|&<>#*~=\n")), max_size=24)


@pytest.mark.slow
@given(SHELLISH)
def test_text_that_bash_rejects_is_not_read_only(text: str):
    ran = subprocess.run(["bash", "-n", "-c", text], capture_output=True, check=False, timeout=LIMIT_S)
    if ran.returncode:
        assert not is_plainly_read_only(text, make_scope("/"))


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
"""Pieces of shell that combine to almost anything except an endless loop."""


@pytest.fixture(scope="module")
def recording_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a PATH with programs `one` and `two` that record their runs."""
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
def test_bash_runs_only_commands_that_the_analysis_found(recording_path: Path, text: str):
    """The guarantee behind every deny rule: a complete analysis contains every command that bash runs."""
    seen = analyze_command(text)
    if not seen.is_complete:
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cwd:
        ran = Path(cwd, "ran")
        env = {"PATH": str(recording_path), "RAN": str(ran)}
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "check": False, "timeout": 10}
        subprocess.run(["/bin/bash", "-c", text], cwd=cwd, env=env, **quiet)
        started = set(ran.read_text().split()) if ran.exists() else set[str]()
    assert started <= {part.name for part in seen.commands}


# --- destructive commands ---

DESTRUCTIVE = [
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
]


@each("command", DESTRUCTIVE)
def test_destructive_commands_are_recognized(command: str):
    assert find_harm(command, analyze_command(command), make_scope("/ws/project"))


@pytest.mark.parametrize("target", ["/ws/project", "/ws", "/ws/project/", "/ws/project/*"])
def test_removal_of_the_project_is_destructive(target: str):
    command = f"rm -rf {target}"
    assert find_harm(command, analyze_command(command), make_scope("/ws/project"))


@each(
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
def test_similar_commands_are_not_destructive(command: str):
    assert find_harm(command, analyze_command(command), make_scope("/ws/project")) == ""
