"""The documentation: the index is complete, links work, and every example that can run does run."""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

import odin
from odin.commands.main import COMMANDS, SHORTHANDS
from odin.fleet.task import read_tasks
from odin.testing import ScriptedServer, call, fault, say
from odin.testing.script import read_script
from tests.conftest import Run
from tests.inprocess import run_odin as run_odin_here
from tests.waiting import LIMIT_S

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python-api.md"


class Example(NamedTuple):
    """One block of code in a page, the `number`th of its language there."""

    page: str
    language: str
    number: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.page} {self.language} {self.number}"


FENCE = re.compile(r"^ *(?:\d+\. )?```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def find_examples() -> list[Example]:
    examples: list[Example] = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        seen: dict[str, int] = {}
        for language, text in re.findall(
            r"^ *(?:\d+\. )?```(\w*)\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE
        ):
            seen[language] = number = seen.get(language, 0) + 1
            examples.append(Example(page.name, language or "plain", number, dedent(text)))
    return examples


EXAMPLES = find_examples()


def test_index_lists_every_page_and_no_link_is_dead() -> None:
    docs = PAGE.parent
    index = (docs / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in docs.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index] == []
    assert "(docs/README.md)" in (docs.parent / "README.md").read_text(encoding="utf-8")
    dead = [
        f"{page.name}: {link}"
        for page in (*docs.glob("*.md"), *docs.parent.glob("*.md"))
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert dead == []


def test_documented_signatures_match_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    tables = re.split(r"\n\| of a `(Query|Session)` \|", page)
    owners = [(odin, rf"`odin\.({name})\((.*?)\)` (?:starts|returns)", page) for name in ("query", "new")]
    owners += [
        (getattr(odin, name), r"`(?:await )?(\w+)\((.*?)\)`(?=[^|\n]*\|)", table.split("\n\n")[0])
        for name, table in zip(tables[1::2], tables[2::2], strict=True)
    ]
    checked = 0
    for owner, pattern, text in owners:
        for name, written in re.findall(pattern, text):
            found = [param for param in inspect.signature(getattr(owner, name)).parameters if param != "self"]
            names = [word.split("=")[0].strip(" *") for word in re.split(r",\s*(?![^()]*\))", written)]
            assert [word for word in names if word] == found, name
            checked += 1
    assert checked >= 12


SHOWN = "It is what Odin prints, or a text that Odin reads."
OF_OTHERS = "It is a setting of another program."
ABBREVIATED = "It shows some of the fields, with an ellipsis for the others."

FRAGMENTS = {
    "plain": SHOWN,
    "text": SHOWN,
    "editors.md": OF_OTHERS,
    "channels.md yaml": OF_OTHERS,
    "gateway.md toml": "It is a part of the pyproject.toml of a package.",
    "export.md json": ABBREVIATED,
    "plans.md json": ABBREVIATED,
    "stream-json.md json 3": "Odin asks and a program answers: tests/ui/test_stream_json.py has this conversation.",
    "stream-json.md json 4": "Odin asks and a program answers: tests/test_claude_sdk_hooks.py has this conversation.",
    "local-models.md json 2": "It is a reply of a model: tests/providers/test_json_contract.py has such replies.",
    "mcp.md yaml": "It is a part of the head of an agent file: tests/mcp_client/test_session.py runs such agents.",
}
"""What is not run, and why: a page, a language, a page with a language, or one example."""

ELSEWHERE = {
    "ci.md": "tests/ui/test_docs_ci.py",
    "gateway.md python": "tests/gateway/test_settings.py",
    "redis.md python": "tests/redis/test_settings.py",
}

PRINTED = {
    "python-api.md python 1": "auth.py",
    "python-api.md python 2": "success end_turn 2\n",
    "python-api.md python 3": "DONE",
    "python-api.md python 4": "hello, checked\n",
    "python-api.md python 5": "['ExecuteCommand']\n",
    "python-api.md python 6": "calls ExecuteCommand\nended ExecuteCommand success\n",
    "python-api.md python 7": "True\n",
    "python-api.md python 8": "You said: good morning\n",
    "events.md python 1": "tool_result ToolEnded main\n",
    "jsonl.md python 1": "1 match for `TODO` in `auth.py`",
    "testing.md python 1": "3 passed",
    "replay.md python 1": "1 passed",
}
"""A part of what each program prints, without a model: the built-in planner answers."""


def find(table: dict[str, str], example: Example) -> str:
    keys = (example.name, f"{example.page} {example.language}", example.page, example.language)
    return next((table[key] for key in keys if key in table), "")


def choose(*languages: str) -> list[Any]:
    """Return the examples in these languages that run here, as parameters of a test."""
    return [
        pytest.param(example, id=example.name)
        for example in EXAMPLES
        if example.language in languages and not find(FRAGMENTS, example) and not find(ELSEWHERE, example)
    ]


PYTHON, SHELL, JSON = choose("python"), choose("sh", "bash", "console"), choose("json")
HEADS, TOML = choose("markdown"), choose("toml")


def test_every_example_has_a_test_or_a_reason() -> None:
    tested = {param.id for param in (*PYTHON, *SHELL, *JSON, *HEADS, *TOML)}
    left = [example for example in EXAMPLES if example.name not in tested]
    assert [example.name for example in left if not (find(FRAGMENTS, example) or find(ELSEWHERE, example))] == []
    known = {key for one in EXAMPLES for key in (one.name, f"{one.page} {one.language}", one.page, one.language)}
    assert {*FRAGMENTS, *ELSEWHERE, *PRINTED, *LINES, *FILES} - known == set()
    for path in (*ELSEWHERE.values(), *re.findall(r"tests/\S+\.py", " ".join(FRAGMENTS.values()))):
        assert (ROOT / path).exists(), path


# --- Python ---


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with the command `odin`."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "odin").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -m odin "$@"\n')
    (folder / "odin").chmod(0o755)
    return folder


def run_python(example: Example, workspace: Path, tools: Path, env: dict[str, str]) -> str:
    """Run a program of the documentation and return what it prints."""
    (workspace / "auth.py").write_text("def login(): ...  # TODO: hash\n")
    shutil.copytree(ROOT / "tests/recordings/edits", workspace / "tests/recordings/edits")
    text = example.text.replace("/usr/local/bin/odin", str(tools / "odin"))
    argv = [sys.executable, "-I", "-c", text]
    if "\ndef test_" in text:
        (workspace / "test_example.py").write_text(text)
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "test_example.py"]
    ran = subprocess.run(
        argv,
        cwd=workspace,
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("example", [param for param in PYTHON if param.id in PRINTED])
def test_a_program_runs_without_a_model(example: Example, workspace: Path, tools: Path) -> None:
    assert PRINTED[example.name] in run_python(example, workspace, tools, {})


@pytest.mark.slow
@pytest.mark.parametrize("example", [param for param in PYTHON if "pytest" not in param.values[0].text])
def test_a_program_runs_with_a_model_that_fails_at_first(example: Example, workspace: Path, tools: Path) -> None:
    (workspace / "notes.txt").write_text("as one example wants it")
    with ScriptedServer([fault(529, {"retry-after": "0"}), say("Here.")], repeat=True) as server:
        run_python(example, workspace, tools, server.env("anthropic"))
        assert server.rejected == []
        assert len(server.requests) >= 2 or "class Parrot" in example.text


# --- commands ---


@pytest.mark.parametrize("example", SHELL)
def test_commands_are_bash_and_exist(example: Example) -> None:
    lines = example.text.replace("\\\n", " ").splitlines()
    if example.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    done = subprocess.run(["bash", "-n"], input="\n".join(lines), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for line in lines:
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            if word == "odin" and (at == 0 or words[at - 1] in ("|", "&&", "exec")):
                check_command(words[at + 1 :])


@cache
def get_help(*words: str) -> str:
    return run_odin_here([*words, "--help"], {}, None, ROOT).stdout


def check_command(words: list[str]) -> None:
    """The subcommand exists, and each flag is one of its own or of all commands."""
    names = [word for word in words[:2] if re.fullmatch("[a-z]+", word)]
    assert not names or names[0] in (*COMMANDS, *SHORTHANDS), words
    known = get_help() + "".join(get_help(*names[: count + 1]) for count in range(len(names)))
    assert [word for word in words if re.fullmatch("--[a-z-]+", word) and word not in known] == [], words


# --- settings and other files ---

FILES = {
    "rules.md json 1": "~/.config/odin/rules.json",
    "usage.md json 1": "~/.config/odin/models.json",
    "agents.md markdown 1": ".odin/agents/docs.md",
    "commands.md markdown 1": ".odin/commands/fix.md",
    "configuration.md markdown 1": ".odin/rules/api.md",
    "memory.md markdown 1": "~/.config/odin/output-styles/reviewer.md",
    "skills.md markdown 1": ".odin/skills/pdf/SKILL.md",
}
"""Where an example is stored; JSON that is not named here or in LINES is an odinconfig.json."""

LINES = {
    "stream-json.md json 1": "stream-json",
    "stream-json.md json 2": "stream-json",
    "jsonl.md json 1": "jsonl",
    "fleet.md json 1": "tasks",
    "testing.md json 1": "script",
}
"""JSON that is not a file of settings."""


NOTICES = {
    "language-servers.md": "lua",
    "mcp.md": "MCP",
    "redis.md": "Redis",
    "sandbox.md": "sandbox",
}
"""Pages whose settings name what is not there when a test runs: the word that the notices about it have."""


@pytest.mark.parametrize("example", [param for param in (*JSON, *HEADS) if param.id not in LINES])
@pytest.mark.usefixtures("no_network")
def test_settings_and_files_are_taken_without_a_warning(
    example: Example, workspace: Path, home: Path, run_odin: Run
) -> None:
    place = FILES.get(example.name, "~/.config/odin/odinconfig.json")
    path = home / place[2:] if place.startswith("~/") else workspace / place
    path.parent.mkdir(parents=True, exist_ok=True)
    with ScriptedServer([say("Here.")]) as server:
        path.write_text(example.text.replace("https://gateway.example.com/anthropic", server.url))
        env = dict.fromkeys(re.findall(r"\$([A-Z_]+)", example.text), "x" * 20)
        ran = run_odin("-p", "hello", "--trust", env={**env, **server.env("anthropic")})
        assert server.requests, ran.stderr
    assert (ran.returncode, ran.stdout) == (0, "Here.\n"), ran.stderr
    expected = NOTICES.get(example.page, "")
    assert [line for line in ran.stderr.splitlines() if not expected or expected not in line] == []


@pytest.mark.parametrize("example", [param for param in JSON if LINES.get(param.id) in ("stream-json", "jsonl")])
def test_lines_are_accepted(example: Example, workspace: Path, run_odin_process: Run) -> None:
    args = {"stream-json": ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]}
    (workspace / "tests").mkdir()
    (workspace / "tests/test_auth.py").write_text("")
    with ScriptedServer([say("Here.")], repeat=True) as server:
        chosen = args.get(LINES[example.name], ["headless", "--format", "jsonl"])
        ran = run_odin_process(*chosen, input=example.text, env=server.env("anthropic"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "input_error" not in ran.stdout and "unknown" not in ran.stdout.lower()


def test_tasks_and_scripts_are_read(tmp_path: Path) -> None:
    examples = {example.name: example.text for example in EXAMPLES}
    (tmp_path / "tasks.jsonl").write_text(examples["fleet.md json 1"])
    (tmp_path / "docs.toml").write_text(examples["fleet.md toml 1"])
    assert [task.id for task in read_tasks(tmp_path / "tasks.jsonl", tmp_path)] == ["api", "web"]
    assert [task.id for task in read_tasks(tmp_path, tmp_path)] == ["docs"]
    assert len(read_script(examples["testing.md json 1"]).turns) == 6


def test_the_hooks_of_the_documentation_run(workspace: Path, home: Path, tools: Path, run_odin_process: Run) -> None:
    (example,) = [one for one in EXAMPLES if one.name == "hooks.md json 1"]
    for tool in ("jq", "ruff", "notify-send"):
        (tools / tool).write_text(
            f'#!/bin/sh\necho {tool} "$@" >> "{workspace}/ran"\n[ {tool} = jq ] && echo a.py\nexit 0\n'
        )
        (tools / tool).chmod(0o755)
    (workspace / "check.sh").write_text(f'#!/bin/sh\ncat >> "{workspace}/checked"\n')
    (workspace / "check.sh").chmod(0o755)
    (workspace / "Makefile").write_text("lint:\n\t@echo linted\n")
    (home / ".config/odin").mkdir(parents=True)
    (home / ".config/odin/odinconfig.json").write_text(example.text)
    write = call("Write", {"file_path": "src/a.py", "content": "a = 1\n"})
    with ScriptedServer([call("Bash", {"command": "true"}), write, say("Done."), say("Done.")]) as server:
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        ran = run_odin_process("-p", "Go.", "--yes", env={**server.env("anthropic"), "PATH": path})
        assert "linted" in str(server.requests[2].messages)
    assert ran.stdout == "Done.\n", ran.stderr
    assert '"tool_name":"Bash"' in (workspace / "checked").read_text()
    named = {line.split()[0] for line in (workspace / "ran").read_text().splitlines()}
    assert named == {"jq", "ruff", "notify-send"}
