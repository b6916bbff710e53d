"""The offline planner with real tools, files and processes: every documented request, and what it must refuse."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from itertools import cycle
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core.background_prompts import EDIT_CONTEXT_PROMPT, TITLE_PROMPT, WEB_ANSWER_PROMPT
from odin.core.errors import NeedsModel
from odin.core.message import Message, PromptMessage, ReplyMessage, Text, ToolCall, ToolMessage, ToolResult, Usage
from odin.core.provider import CallChunk, Chunk, ReplyBuilder, Request, StopChunk, ToolSpec, UsageChunk
from odin.providers.offline import OfflinePlanner, stream_reply
from odin.providers.offline.background import answer_background, make_title
from odin.providers.offline.conversation import MAX_STEPS
from odin.providers.offline.plans import find_test_command
from odin.providers.offline.requests import REQUESTS, parse_prompt
from odin.providers.offline.results import count_results
from tests.providers.offline_talk import Talk
from tests.table import each
from tests.waiting import LIMIT_S

APP = '''"""The app."""

import os  # TODO: remove


def parse_config(text):
    return "a b"  # TODO


class App:
    def main(self):
        pass
'''
FILES = {
    "src/app.py": APP,
    "tests/test_app.py": "",
    "README.md": "# Demo\n\nA demo of\nthings.\n\n## Use\n\nRun it. foo FIXME\n",
    "docs/guide.md": "# Guide\n",
    "notes.txt": "",
    "old.txt": "old\n",
    "Makefile": "build:\n\t@echo built\ntest:\n\t@echo '== 3 passed in 0.01s =='\n",
}


def run_git(folder: Path, *args: str) -> None:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
async def talk(workspace: Path) -> AsyncIterator[Talk]:
    """A conversation in a project with files and one commit."""
    talk = Talk(workspace)
    for name, text in FILES.items():
        talk.write(name, text)
    run_git(workspace, "init", "-q", "-b", "main")
    run_git(workspace, "add", "-A")
    run_git(workspace, "commit", "-q", "-m", "First step")
    yield talk
    await talk.runner.close()


def list_changes(folder: Path) -> set[str]:
    """Return the files that differ from `FILES`."""
    ignored = {".git", ".pytest_cache", "__pycache__"}
    paths = [path for path in folder.rglob("*") if path.is_file() and ignored.isdisjoint(path.parts)]
    now = {str(path.relative_to(folder)): path.read_text() for path in paths}
    return {name for name in now.keys() | FILES.keys() if now.get(name) != FILES.get(name)}


# --- the table ---

# What the answer to each example contains, and the files it changes.
EXAMPLES: dict[str, tuple[str, set[str]]] = {
    "Search for TODO in src": (
        "2 matches for `TODO` in 1 file in `src`.\n\nsrc/app.py (2)\n  3: import os  # TODO",
        set(),
    ),
    "Search for 'def main'": ("1 match for `def main` in 1 file.", set()),
    "Search for TODO in *.py": ("2 matches for `TODO` in 1 file.", set()),
    "grep TODO": ("2 matches for `TODO`", set()),
    "Search for the regex 'fo+' in src": ("No match for the pattern `fo+` in `src`.", set()),
    "Where is parse_config defined?": ("  6: def parse_config(text):", set()),
    "Find the definition of parse_config": ("1 match for a definition of `parse_config`", set()),
    "Which files mention TODO?": ("1 file with `TODO`:\n\n- src/app.py", set()),
    "Which files contain 'import os' in src?": ("1 file with `import os` in `src`:", set()),
    "Count the lines with TODO in src": ("`TODO` is on 2 lines in 1 file in `src`:\n\n- src/app.py: 2", set()),
    "Count lines with 'import os'": ("`import os` is on 1 line in 1 file", set()),
    "Find files named *.py": ("2 files named `*.py`:\n\n- src/app.py\n- tests/test_app.py", set()),
    "Find *.md in docs": ("1 file named `*.md` in `docs`:\n\n- docs/guide.md", set()),
    "List files": ("This folder has 4 folders and 4 files:\n\n", set()),
    "List files in src": ("`src` has 1 file:\n\napp.py", set()),
    "ls src": ("`src` has 1 file:\n\napp.py", set()),
    "Read README.md": ("`README.md`, 8 lines:\n\n```md\n1  # Demo\n2  \n3  A demo of\n", set()),
    "Show src/app.py": ("`src/app.py`, 12 lines:", set()),
    "Read it": ("I do not know which file you mean.", set()),
    "Read lines 1-2 of src/app.py": ('lines 1-2 of 12:\n\n```py\n1  """The app."""\n2  \n```', set()),
    "Show line 3 of README.md": ("lines 3-3 of 8:\n\n```md\n3  A demo of\n```", set()),
    "Outline src/app.py": (
        "- def parse_config(text) (line 6)\n- class App (line 10)\n  - def main(self) (line 11)",
        set(),
    ),
    "Show the outline of README.md": ("- Demo (line 1)\n  - Use (line 6)", set()),
    "List the functions in src/app.py": ("- def parse_config(text) (line 6)", set()),
    "Replace TODO with FIXME in src/app.py": (
        "Replaced `TODO` with `FIXME`: 2 occurrences in `src/app.py`.",
        {"src/app.py"},
    ),
    "Replace 'a b' with 'c' everywhere": ("Replaced `a b` with `c`: 1 occurrence in `src/app.py`.", {"src/app.py"}),
    "Search for FIXME in src, then replace it with TODO": ("`FIXME` does not occur in `src`, so nothing was", set()),
    "Create an empty file notes.txt": ("`notes.txt` already exists and is empty.", set()),
    "Create a file todo.txt": ("Created the empty file `todo.txt`.", {"todo.txt"}),
    "touch empty.txt": ("Created the empty file `empty.txt`.", {"empty.txt"}),
    "Create a file hello.txt with 'hello'": ("Created `hello.txt` (1 line).", {"hello.txt"}),
    "Write 'hello' to greeting.txt": ("Created `greeting.txt` (1 line).", {"greeting.txt"}),
    "Overwrite README.md with 'new'": ("Overwrote `README.md` (1 line).", {"README.md"}),
    "Append 'the end' to README.md": ("Appended 1 line to `README.md`.", {"README.md"}),
    "Add the line 'x' to notes.txt": ("Appended 1 line to `notes.txt`.", {"notes.txt"}),
    "Delete old.txt": ("Deleted `old.txt`.", {"old.txt"}),
    "Delete the file Makefile": ("Deleted `Makefile`.", {"Makefile"}),
    "Run `echo hi`": ("`echo hi` ran without an error:\n\n```\nhi\n```", set()),
    "Run echo hi": ("`echo hi` ran without an error:\n\n```\nhi\n```", set()),
    "Run make build": ("`make build` ran without an error:\n\n```\nbuilt\n```", set()),
    "Run the tests": ("The tests pass: 3 passed in 0.01s. I ran `make test`, because there is Makefile.", set()),
    "Run the tests in tests/test_app.py": ("`python3 -m pytest -q tests/test_app.py`", set()),
    "Do the tests pass?": ("The tests pass", set()),
    "git status": ("## main", set()),
    "What changed?": ("## main", set()),
    "Show the changed files": ("## main", set()),
    "git diff": ("`git diff HEAD` ran without an error and printed nothing.", set()),
    "Show the diff of README.md": ("`git diff HEAD -- README.md` ran", set()),
    "What changed in README.md?": ("`git diff HEAD -- README.md` ran", set()),
    "git log": ("First step", set()),
    "Show the last 5 commits": ("`git log -n 5 --oneline` ran", set()),
    "Show the commits of README.md": ("First step", set()),
    "Which branch am I on?": ("```\nmain\n```", set()),
    "Show the current branch": ("```\nmain\n```", set()),
    "Who changed README.md last?": ("Ann: First step", set()),
    "Describe this project": ("A demo of things.\n\n- Contains: .git/, Makefile, README.md,", set()),
    "What is this project?": ("- To test: `make test`", set()),
    "Create ODIN.md": ("/ODIN.md", {"ODIN.md"}),
    "init": ("/ODIN.md", {"ODIN.md"}),
    "Undo that": ("`/undo` undoes", set()),
    "What can you do?": ("- Search for TODO in src\n- Search for the regex 'fo+' in src\n", set()),
    "help": ("connect a model: set ANTHROPIC_API_KEY", set()),
    "Hello": ("No model is connected", set()),
}


def test_every_documented_example_is_tested():
    assert list(EXAMPLES) == [example for request in REQUESTS for example in request.examples]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_example_does_what_it_says_and_nothing_else(talk: Talk, example: str):
    part, changed = EXAMPLES[example]
    assert part in await talk.say(example)
    assert list_changes(talk.folder) == changed


@each(
    "prompt",
    [
        # what a model is for
        *("fix the failing test", "why does the build fail?", "explain monads to me", "asdf", "?!"),
        *("Create hello.py that prints hello", "write tests for a.py", "Add type hints to app.py"),
        "Replace the login function with a better one in a.py",
        *("Find bugs in app.py", "Search for a bug in the parser", "Outline the plan", "open issues"),
        # a request with more to it
        *("read a.py and make it nicer", "delete old.txt if it is unused", "Read old.txt, then improve it"),
        *("Run `echo hi` and tell me why", "run npm test and explain it", "run ls, then tell me what you see"),
        *("replace a with b in a.py and b.py", "Delete all old files", "Delete it", "remove foo"),
        # words that only look like a command or a path
        *("run go through the code", "Run make sure the tests pass", "run everything", "run the tests in parallel"),
        *("count lines in old.txt", "list branches", "what changed in React?", "who changed the world last?"),
        *("Create a file", "Append to notes.txt", "replace foo", "Overwrite README.md", "git push", "git branch"),
        "read old.txt\n\n<stdin>\ntext from a pipe\n</stdin>",
        "search for " + "x" * 30_000,
    ],
)
def test_what_is_not_in_the_table_is_not_run_and_needs_a_model(prompt: str):
    assert parse_prompt(prompt) == []
    tools = tuple(ToolSpec(name, "", {}) for name in TOOLS)
    with pytest.raises(NeedsModel) as error:
        next(stream_reply(Request("m", (PromptMessage(prompt),), tools=tools)))
    said = error.value.describe()
    assert said.startswith("This needs a model: set ANTHROPIC_API_KEY")
    assert re.findall(r"[.!?](?=\s|$)", said.replace('do?"', "")) == ["."], "one sentence"


@each(
    ("prompt", "fields"),
    [
        ("Please search for TODO in the src folder.", {"term": "TODO", "path": "src"}),
        ("could you search for TODO everywhere, please?", {"term": "TODO", "everywhere": "everywhere"}),
        ("SEARCH FOR “smart quotes”", {"term": "smart quotes"}),
        ("Replace 'it's' by \"its, then\" in a.py!", {"term": "it's", "new": "its, then", "path": "a.py"}),
        ("replace `x` with ''", {"term": "x", "new": ""}),
        ("read 'my file.txt'", {"path": "my file.txt"}),
        ("create a.py with:\n```python\nprint('hi')\n```", {"path": "a.py", "content": "print('hi')\n"}),
        ("run `echo one, then two`", {"command": "echo one, then two"}),
    ],
)
def test_courtesy_case_and_kind_of_quotes_do_not_matter(prompt: str, fields: dict[str, str]):
    ((_, match),) = parse_prompt(prompt)
    assert {name: match[name] for name in match.fields} == fields


@given(st.text(max_size=200))
def test_any_text_can_be_parsed(text: str):
    assert len(parse_prompt(text)) < 40


# --- follow-ups ---


async def test_replace_after_a_search_is_in_the_same_place(talk: Talk):
    talk.write("other.py", "# TODO\n")
    await talk.say("Search for TODO in app.py")
    assert await talk.say("Replace TODO with FIXME") == "Replaced `TODO` with `FIXME`: 2 occurrences in `src/app.py`."
    assert talk.read("other.py") == "# TODO\n"
    await talk.say("Search for FIXME")
    assert "3 occurrences in 2 files.\n\n- README.md: 1\n- src/app.py: 2" in await talk.say("Replace it with DONE")


async def test_replace_after_reading_is_in_that_file(talk: Talk):
    await talk.say("Read old.txt")
    await talk.say("Replace old with new")
    assert list_changes(talk.folder) == {"old.txt"}
    assert "1  new" in await talk.say("Read it")


async def test_replace_asks_where_if_that_is_not_certain(talk: Talk):
    assert (await talk.say("Replace old with new")).startswith("Where? Say \"Replace 'old' with 'new' in FILE\"")
    assert "Nothing was searched for yet." in await talk.say("Replace it with new")
    await talk.say("Search for TODO")
    assert (await talk.say("Replace old with new")).startswith("Where?"), "the search was for another text"
    await talk.say("Search for the regex 'o+' in old.txt")
    assert "Nothing was searched for yet." in await talk.say("Replace it with new"), "a pattern is no text to replace"
    assert list_changes(talk.folder) == set()


async def test_requests_run_in_order_up_to_the_first_that_fails(talk: Talk):
    answer = await talk.say("Search for TODO in src, then replace it with DONE, then read old.txt")
    first, second, third = (answer.index(part) for part in ("2 matches", "Replaced `TODO`", "1  old"))
    assert first < second < third
    answer = await talk.say("Read missing.txt; then delete old.txt")
    assert answer == "There is no `missing.txt` here.\n\nThe rest of the request was not run."
    assert (talk.folder / "old.txt").exists()
    answer = await talk.say("Run `exit 3` and then delete old.txt")
    assert answer.startswith("`exit 3` failed with exit code 3")
    assert (talk.folder / "old.txt").exists()


async def test_files_that_a_model_has_read_are_remembered(talk: Talk):
    path = str(talk.folder / "old.txt")
    talk.messages += [
        PromptMessage("think about old.txt", (f"Working directory: {talk.folder}",)),
        ReplyMessage((ToolCall("toolu_1", "Read", {"file_path": path}),)),
        ToolMessage((ToolResult("toolu_1", "     1\told"),)),
        ReplyMessage((Text("It says old."),)),
    ]
    assert "1  old" in await talk.say("Read it")


# --- places ---


async def test_a_file_is_found_by_its_name_if_that_is_unique(talk: Talk):
    assert "`src/app.py`, 12 lines" in await talk.say("Read app.py")
    talk.write("lib/app.py", "")
    answer = await talk.say("Read app.py")
    assert answer.startswith("There are 2 files called `app.py`: `")
    assert (await talk.say("Read nodes.txt")).startswith("There is no `nodes.txt` here. Did you mean")


# --- changes ---


async def test_text_is_taken_literally_and_longer_words_are_part_of_it(talk: Talk):
    talk.write("a.txt", "f(x)[0].y\r\nfxx0zy\r\n")
    await talk.say("Replace 'f(x)[0].y' with '$1' in a.txt")
    assert talk.read("a.txt") == "$1\r\nfxx0zy\r\n"


async def test_many_files_are_changed_in_several_replies_but_not_too_many(talk: Talk):
    for number in range(25):
        talk.write(f"few/{number}.txt", "needle needle\n")
    assert "50 occurrences in 25 files." in await talk.say("Replace needle with pin everywhere")
    assert [len(message.calls) for message in talk.messages if isinstance(message, ReplyMessage)] == [1, 20, 5, 0]
    for number in range(201):
        talk.write(f"many/{number}.txt", "needle\n")
    assert "too many places, so nothing was changed" in await talk.say("Replace needle with pin everywhere")
    assert talk.read("many/0.txt") == "needle\n"


async def test_a_long_file_is_changed_to_its_end(talk: Talk):
    talk.write("big.txt", "needle\n" + "".join(f"{n} {'x' * 60}\n" for n in range(4000)) + "needle")
    assert "2 occurrences in `big.txt`" in await talk.say("Replace needle with pin in big.txt")
    assert talk.read("big.txt").endswith("x\npin")
    await talk.say("Append 'end' to big.txt")
    assert talk.read("big.txt").endswith("x\npin\nend")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\n", "a\nb\nend\n"),
        ("a\nb", "a\nb\nend"),
        ("b\na\nb\na\nb\n", "b\na\nb\na\nb\nend\n"),
        ("}\n\n}\n", "}\n\n}\nend\n"),
        ("", "end\n"),
    ],
)
async def test_text_is_appended(talk: Talk, before: str, after: str):
    talk.write("old.txt", before)
    await talk.say("Append 'end' to old.txt")
    assert talk.read("old.txt") == after


async def test_an_existing_file_is_not_overwritten_unless_asked(talk: Talk):
    assert "already exists, so it was left alone" in await talk.say("Create a file old.txt with 'x'")
    assert "already exists" in await talk.say("Write 'x' to old.txt")
    assert list_changes(talk.folder) == set()


async def test_in_ask_mode_nothing_is_changed_and_edit_mode_is_named(talk: Talk):
    talk.mode = "ask"
    for prompt in ("Replace old with new in old.txt", "Create a file x.txt", "Append 'x' to old.txt", "Delete old.txt"):
        answer = await talk.say(prompt)
        assert answer.startswith("Nothing was changed: in ask mode no tool that writes files is offered. Ask again in")
    assert talk.calls == []


async def test_a_refused_call_is_reported_with_its_reason_and_not_repeated(talk: Talk):
    talk.refusals = {"EditTool": "EditTool requires confirmation. Pass --yes.", "ExecuteCommand": "Denied: no."}
    answer = await talk.say("Replace old with new in old.txt")
    assert answer.startswith("Nothing was changed.\n`old.txt` was not changed: EditTool requires confirmation.")
    assert talk.tools_called == ["Grep", "EditTool"]
    assert await talk.say("git status") == "`git status --short --branch` did not run to its end: Denied: no."
    del talk.tools["Grep"]
    assert "needs Grep, which this session does not offer" in await talk.say("Search for x")


# --- tests of the project ---


async def test_failing_and_missing_tests_are_reported(talk: Talk):
    talk.write("Makefile", "test:\n\t@echo 'E assert 1 == 2'; echo '1 failed, 2 passed in 0.02s'; exit 1\n")
    answer = await talk.say("Run the tests")
    assert answer.startswith("The tests fail: 1 failed, 2 passed in 0.02s. I ran `make test`")
    assert "E assert 1 == 2" in answer
    (talk.folder / "Makefile").unlink()
    (talk.folder / "tests" / "test_app.py").unlink()
    (talk.folder / "tests").rmdir()
    assert "no way to run tests here" in await talk.say("Run the tests")


@each(
    ("names", "texts", "command"),
    [
        ({"Makefile", "pyproject.toml"}, {"Makefile": "test: x\n"}, "make test"),
        ({"Makefile", "pyproject.toml"}, {"Makefile": "build:\n"}, "python3 -m pytest -q"),
        ({"pyproject.toml", ".venv/"}, {}, ".venv/bin/python -m pytest -q"),
        ({"package.json"}, {"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
        ({"package.json", "yarn.lock"}, {"package.json": '{"scripts": {"test": "jest"}}'}, "yarn test"),
        ({"package.json"}, {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\""}}'}, ""),
        ({"package.json"}, {"package.json": "{broken"}, ""),
        ({"package.json"}, {"package.json": "[]"}, ""),
        ({"Cargo.toml"}, {}, "cargo test"),
        ({"justfile"}, {"justfile": "test:\n  true\n"}, "just test"),
        ({"README.md"}, {}, ""),
    ],
)
def test_test_command_of_a_project_is_found(names: set[str], texts: dict[str, str], command: str):
    assert find_test_command(names, texts)[0] == command


@each(
    ("text", "counts"),
    [
        ("...\n== 3 passed, 1 skipped in 0.12s ==\n", "3 passed, 1 skipped in 0.12s"),
        ("Tests:       1 failed, 2 passed, 3 total\nTime: 1s\n", "Tests: 1 failed, 2 passed, 3 total"),
        ("test result: ok. 5 passed; 0 failed\n", "test result: ok. 5 passed; 0 failed"),
        ("Ran 3 tests in 0.01s\n\nOK\n", "Ran 3 tests in 0.01s"),
        ("nothing here", ""),
    ],
)
def test_results_of_a_test_run_are_found(text: str, counts: str):
    assert count_results(text) == counts


# --- background prompts ---


@each(
    ("prompt", "title"),
    [
        ("please search for TODO in src.", "Search for TODO in src"),
        ("Hi, can you fix the `login` bug?", "Fix the login bug"),
        ("\n\n  first line\nsecond line", "First line"),
        ("?!", "New session"),
    ],
)
def test_title_is_the_prompt_without_courtesy(prompt: str, title: str):
    assert answer_background(Request("m", (PromptMessage(prompt),), system=TITLE_PROMPT.system)) == title


@given(st.text())
def test_a_title_is_one_short_line(text: str):
    title = make_title(text)
    assert 0 < len(title) <= 60
    assert len(title.splitlines()) == 1


@each("system", [EDIT_CONTEXT_PROMPT.system, WEB_ANSWER_PROMPT.system, ("odin-job: sampling\nDo it.",)])
def test_other_background_prompts_need_a_model(system: tuple[str, ...]):
    with pytest.raises(NeedsModel):
        list(stream_reply(Request("m", (PromptMessage("Search for TODO"),), system=system)))


# --- the provider ---


async def test_reply_streams_calls_an_empty_usage_and_one_stop(talk: Talk):
    talk.messages.append(PromptMessage("read old.txt", (f"Working directory: {talk.folder}",)))
    call, usage, stop = [piece async for piece in OfflinePlanner().stream(talk.request())]
    assert isinstance(call, CallChunk)
    assert call.done
    assert msgspec.json.decode(call.json) == {"file_path": str(talk.folder / "old.txt")}
    assert (usage, stop) == (UsageChunk(Usage()), StopChunk("tool_use", "offline"))


async def test_the_same_history_gives_the_same_reply_after_a_resume(talk: Talk):
    await talk.say("Search for TODO in app.py, then replace it with FIXME")
    await talk.say("Read it")
    ids = [call.id for message in talk.messages if isinstance(message, ReplyMessage) for call in message.calls]
    assert len(ids) == len(set(ids))
    stored = msgspec.json.encode(talk.messages)
    messages = msgspec.json.decode(stored, type=list[PromptMessage | ReplyMessage | ToolMessage])
    for length, said in enumerate(messages):
        if not isinstance(said, ReplyMessage):
            continue
        builder = ReplyBuilder("offline")
        for piece in stream_reply(msgspec.structs.replace(talk.request(), messages=tuple(messages[:length]))):
            builder.add(piece)
        assert builder.finish().message.parts == said.parts


async def test_turn_started_by_a_model_is_continued(talk: Talk):
    call = ToolCall("toolu_1", "Bash", {"command": "ls"})
    talk.messages += [
        PromptMessage("read old.txt", (f"Working directory: {talk.folder}",)),
        ReplyMessage((Text("Let me look."), call)),
        ToolMessage((ToolResult("toolu_1", "old.txt"),)),
    ]
    assert [piece.name for piece in stream_reply(talk.request()) if isinstance(piece, CallChunk)] == ["Read"]


def test_importing_the_planner_does_not_load_its_table():
    code = (
        "import sys, odin.providers.offline\n"
        "print([name for name in sys.modules if name.startswith('odin.providers.offline.')])"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert run.stdout.strip() == "['odin.providers.offline.background']"


# --- every conversation ends ---

TOOLS = ("LS", "Read", "Grep", "Glob", "ExecuteCommand", "WriteFile", "EditTool", "Delete", "InitTool")
RESULTS = st.sampled_from(
    [
        ("", False),
        ("No matches found", False),
        ("/w/a.py does not exist.", True),
        ("/w/a.py is a directory. Use LS to list it.", True),
        ("Denied: no. Ask.", True),
        ("/w/a.py\n/w/b.py", False),
        ("/w/a.py:3:foo TODO\n/w/b.py:1:x", False),
        ("     1\tfoo TODO\n     2\tbar\n(showing lines 1-2 of 9 total; go on with offset=3)", False),
        ("(empty file)", False),
        ("Must read lines 7-9 first: you have not seen them.", True),
        ("Edited /w/a.py: 2 replacements, +2 -2 lines.", False),
        ("/w/\n  src/\n  Makefile\n  package.json", False),
        ("1 passed in 0.1s\n(exit code 1)", True),
        ("{", False),
    ]
)


def converse(prompts: list[str], offered: tuple[str, ...], answer: Callable[[], tuple[str, bool]]) -> int:
    """Answer every call with a made-up result. Return the number of steps of the longest turn."""
    specs = tuple(ToolSpec(name, "", {}) for name in offered)
    messages: list[Message] = []
    longest = 0
    for prompt in prompts:
        messages.append(PromptMessage(prompt, ("Working directory: /w",)))
        for step in range(1, MAX_STEPS + 3):
            builder = ReplyBuilder("offline")
            pieces: list[Chunk] = []
            try:
                for piece in stream_reply(Request("m", tuple(messages), tools=specs)):
                    builder.add(piece)
                    pieces.append(piece)
            except NeedsModel:
                break
            assert isinstance(pieces[-1], StopChunk)
            message = builder.finish().message
            messages.append(message)
            assert {call.name for call in message.calls} <= set(offered)
            longest = max(longest, step)
            if not message.calls:
                assert message.text.strip()
                break
            messages.append(ToolMessage(tuple(ToolResult(call.id, *answer()) for call in message.calls)))
    return longest


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(EXAMPLES)) | st.text(max_size=60), min_size=1, max_size=4),
    st.lists(st.sampled_from(TOOLS), unique=True).map(tuple),
    st.lists(RESULTS, min_size=1, max_size=8),
)
def test_any_conversation_ends_and_keeps_to_the_tools_it_was_offered(
    prompts: list[str], offered: tuple[str, ...], results: list[tuple[str, bool]]
):
    supply = cycle(results)
    assert converse(prompts, offered, lambda: next(supply)) <= MAX_STEPS + 1
