"""The offline planner with real tools, files and processes."""

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

from odin.core.errors import NeedsModel
from odin.core.message import Message, PromptMessage, ReplyMessage, Text, ToolCall, ToolMessage, ToolResult, Usage
from odin.core.provider import CallChunk, Chunk, ReplyBuilder, Request, StopChunk, TextChunk, ToolSpec, UsageChunk
from odin.providers.offline import OfflinePlanner, stream_reply
from odin.providers.offline.grammar import parse_prompt
from odin.providers.offline.task import STOPPED
from odin.providers.offline.turn import MAX_STEPS
from tests.providers.offline_talk import Talk
from tests.providers.test_offline_grammar import PHRASES
from tests.table import each

AUTH = """\"\"\"Signing in.\"\"\"

# TODO: check the password
# TODO: limit the rate


class Session:
    def login(self, user):
        return user  # TODO log
"""


@pytest.fixture
async def talk(workspace: Path) -> AsyncIterator[Talk]:
    talk = Talk(workspace)
    yield talk
    await talk.runner.close()


@pytest.fixture
async def ask_talk(workspace: Path) -> AsyncIterator[Talk]:
    """A conversation in ask mode: no tool that writes files is offered."""
    talk = Talk(workspace, mode="ask")
    yield talk
    await talk.runner.close()


def run_git(folder: Path, *args: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.org", *args],
        cwd=folder,
        check=True,
        capture_output=True,
    )


# --- search ---


async def test_search_groups_matches_by_file(talk: Talk):
    talk.write("src/auth.py", AUTH)
    talk.write("src/app.py", "x = 1  # TODO\n")
    talk.write("docs/notes.md", "TODO elsewhere\n")
    answer = await talk.say("Search for TODO in src")
    assert answer.startswith("4 matches for `TODO` in 2 files in `src`.")
    assert "src/auth.py (3)\n  3: # TODO: check the password\n" in answer
    assert "notes.md" not in answer


async def test_search_without_a_match_tries_any_case_and_says_so(talk: Talk):
    talk.write("a.py", "Todo = 1\n")
    assert "other upper and lower case" in await talk.say("search for TODO")
    assert await talk.say("search for nothing_here") == "No match for `nothing_here`."


async def test_search_takes_special_characters_literally(talk: Talk):
    talk.write("a.py", "f(x)[0].y\nfxx0zy\n")
    answer = await talk.say("search for 'f(x)[0].y'")
    assert "1 match for" in answer
    assert "fxx0zy" not in answer


async def test_definition_is_distinguished_from_uses(talk: Talk):
    talk.write("a.py", "def parse(x):\n    return x\n\n\nparse(1)\n")
    answer = await talk.say("where is parse defined?")
    assert "1 definition of `parse`" in answer
    assert "1: def parse(x):" in answer
    assert "5:" not in answer


async def test_a_missing_definition_falls_back_to_mentions(talk: Talk):
    talk.write("a.txt", "we call parse here\n")
    assert "no definition of `parse`, but it is mentioned" in await talk.say("where is parse defined?")


async def test_matches_and_lines_are_counted(talk: Talk):
    talk.write("src/auth.py", AUTH)
    talk.write("b.py", "# TODO\n")
    answer = await talk.say("count TODOs")
    assert answer.startswith("`TODO` is on 4 lines in 2 files:")
    assert "- src/auth.py: 3\n- b.py: 1" in answer
    assert await talk.say("how many lines does b.py have?") == "`b.py` has 1 line."


async def test_long_search_result_is_counted_completely(talk: Talk):
    talk.write("big.txt", "needle\n" * 900)
    answer = await talk.say("search for needle")
    assert answer.startswith("900 matches for `needle` in 1 file.")
    assert "more lines" in answer
    assert len(answer) < 4000


async def test_a_file_is_found_by_its_name_alone(talk: Talk):
    talk.write("src/deep/auth.py", AUTH)
    answer = await talk.say("Search for TODO in auth.py")
    assert "3 matches for `TODO` in `src/deep/auth.py`" in answer


async def test_words_after_in_that_name_no_path_belong_to_the_search_term(talk: Talk):
    talk.write("a.txt", "the logged in user\n")
    assert "1 match for `logged in user`" in await talk.say("search for logged in user")


async def test_ambiguous_file_name_is_asked_about(talk: Talk):
    talk.write("a/conf.py", "x\n")
    talk.write("b/conf.py", "x\n")
    answer = await talk.say("read conf.py")
    assert answer == "There are 2 files called `conf.py`: `b/conf.py`, `a/conf.py`. Which one do you mean?" or (
        answer == "There are 2 files called `conf.py`: `a/conf.py`, `b/conf.py`. Which one do you mean?"
    )


# --- files ---


async def test_files_are_found_by_kind_and_name(talk: Talk):
    talk.write("tests/test_a.py", "")
    talk.write("src/a.py", "")
    talk.write("README.md", "")
    assert await talk.say("find test files") == "1 test file:\n\n- tests/test_a.py"
    assert await talk.say("find all python files in src") == "1 python file in `src`:\n\n- src/a.py"
    assert await talk.say("which files end in .rst") == "No files match `*.rst`."


async def test_a_folder_is_listed_and_a_tree_is_bounded(talk: Talk):
    talk.write("src/pkg/inner/deep/x.py", "")
    talk.write("README.md", "")
    assert await talk.say("list files") == "This folder has 1 folder and 1 file:\n\nREADME.md\nsrc/"
    tree = await talk.say("show the folder tree")
    assert "src/\n  pkg/\n    inner/" in tree
    assert "x.py" not in tree


async def test_a_file_is_shown_whole_in_part_and_from_its_end(talk: Talk):
    talk.write("a.txt", "".join(f"line {n}\n" for n in range(1, 31)))
    assert "`a.txt`, 30 lines:" in await talk.say("read a.txt")
    part = await talk.say("show lines 10-12 of a.txt")
    assert "`a.txt`, lines 10-12 of 30:" in part
    assert "10  line 10\n11  line 11\n12  line 12" in part
    assert 'Say "show lines 13-30"' in part
    assert "28  line 28\n29  line 29\n30  line 30" in await talk.say("last 3 lines of a.txt")


async def test_long_file_is_shown_in_parts(talk: Talk):
    talk.write("a.txt", "".join(f"line {n}\n" for n in range(1, 501)))
    assert "lines 1-200 of 500" in await talk.say("read a.txt")
    assert "201  line 201" in await talk.say("show lines 201-400")


async def test_missing_file_is_reported_with_similar_names(talk: Talk):
    talk.write("notes.txt", "x\n")
    answer = await talk.say("read nodes.txt")
    assert answer.startswith("There is no `nodes.txt` here. Did you mean")
    assert "notes.txt" in answer


async def test_opening_a_folder_lists_it(talk: Talk):
    talk.write("src/a.py", "")
    assert await talk.say("open src") == "`src` has 1 file:\n\na.py"


async def test_an_outline_has_classes_and_functions_with_lines(talk: Talk):
    talk.write("auth.py", AUTH)
    answer = await talk.say("outline auth.py")
    assert answer.endswith("- class Session (line 7)\n  - def login(self, user) (line 8)")


async def test_summary_is_an_extract_and_says_that_more_needs_a_model(talk: Talk):
    talk.write("README.md", "# Demo\n\nA demo of things.\n\n## Use\n\nRun it.\n")
    answer = await talk.say("summarise README.md")
    assert "A demo of things." in answer
    assert "- Demo (line 1)\n  - Use (line 5)" in answer
    assert "needs a model" in answer


async def test_project_is_described_from_its_files(talk: Talk):
    talk.write("README.md", "# demo\n\nDoes one thing well.\n")
    talk.write(
        "pyproject.toml",
        '[project]\nname = "demo"\ndescription = "Shows things."\n[project.scripts]\ndemo = "demo.cli:main"\n',
    )
    talk.write("src/demo/cli.py", "")
    talk.write("Makefile", "run:\n\ttrue\ntest:\n\ttrue\n")
    answer = await talk.say("what is this project?")
    assert answer.startswith("**demo**: Shows things.\n\nDoes one thing well.")
    assert "- Written in: Python (1 file)" in answer
    assert "- Entry points: `demo` (demo.cli:main)" in answer
    assert "- To run: `make run`" in answer
    assert "- To test: `make test`" in answer


# --- changes ---


async def test_replace_in_a_file_reads_it_and_changes_every_occurrence(talk: Talk):
    talk.write("auth.py", AUTH)
    answer = await talk.say("Replace TODO with FIXME in auth.py")
    assert answer == "Replaced `TODO` with `FIXME`: 3 occurrences in `auth.py`."
    assert talk.read("auth.py") == AUTH.replace("TODO", "FIXME")
    assert talk.tools_called == ["Read", "EditTool"]


async def test_replace_everywhere_edits_each_file_and_adds_up(talk: Talk):
    names = [f"src/m{n:02}.txt" for n in range(25)]
    for name in names:
        talk.write(name, "a.b(c) and a.b(c)\naxb(c)\n")
    talk.write("other.txt", "axb(c)\n")
    answer = await talk.say("replace 'a.b(c)' with 'd' everywhere")
    assert answer.startswith("Replaced `a.b(c)` with `d`: 50 occurrences in 25 files.")
    assert all(talk.read(name) == "d and d\naxb(c)\n" for name in names)
    assert talk.read("other.txt") == "axb(c)\n"
    steps = [message for message in talk.messages if isinstance(message, ReplyMessage)]
    assert len(steps[1].calls) == 20


async def test_replace_in_a_folder_and_in_a_kind_of_file(talk: Talk):
    talk.write("src/a.py", "foo\n")
    talk.write("src/a.md", "foo\n")
    talk.write("b.py", "foo\n")
    await talk.say("replace foo with bar in src")
    assert (talk.read("src/a.py"), talk.read("src/a.md"), talk.read("b.py")) == ("bar\n", "bar\n", "foo\n")
    await talk.say("replace bar with baz in all markdown files")
    assert (talk.read("src/a.py"), talk.read("src/a.md")) == ("bar\n", "baz\n")


async def test_nothing_to_replace_changes_nothing(talk: Talk):
    talk.write("a.py", "x\n")
    assert await talk.say("replace foo with bar in a.py") == "`foo` does not occur in `a.py`, so nothing was changed."
    assert await talk.say("replace foo with bar everywhere") == "`foo` does not occur, so nothing was changed."
    assert "EditTool" not in talk.tools_called


async def test_too_many_files_are_left_alone(talk: Talk):
    for number in range(201):
        talk.write(f"f{number}.txt", "foo\n")
    answer = await talk.say("replace foo with bar everywhere")
    assert "more than 200 files, so I changed nothing" in answer
    assert talk.read("f0.txt") == "foo\n"


async def test_a_file_longer_than_one_page_is_changed_to_its_end(talk: Talk):
    lines = [f"line {n} {'x' * 60}" for n in range(4000)]
    lines[3999] = "foo"
    lines[2500] = "foo"
    talk.write("big.txt", "\n".join(lines) + "\n")
    assert "2 occurrences in `big.txt`" in await talk.say("replace foo with bar in big.txt")
    assert talk.read("big.txt").count("bar") == 2


async def test_a_word_is_renamed_to_the_end_of_a_long_file(talk: Talk):
    talk.write("big.txt", "foobar\n" + "x" * 70 + "\n" + "line of text\n" * 6000 + "foo\n")
    assert "1 occurrence in `big.txt`" in await talk.say("rename foo to baz everywhere")
    assert talk.read("big.txt").endswith("text\nbaz\n")
    assert talk.read("big.txt").startswith("foobar\n")


async def test_line_endings_are_kept(talk: Talk):
    talk.write("a.txt", "foo\r\nx\r\nfoo bar\r\nfoobar\r\n")
    await talk.say("rename foo to baz in a.txt")
    assert talk.read("a.txt") == "baz\r\nx\r\nbaz bar\r\nfoobar\r\n"


async def test_rename_leaves_longer_words_alone(talk: Talk):
    talk.write("a.py", "foo = 1\nfoobar = foo + my_foo\nprint(foo)\n\nfoo\n")
    talk.write("b.py", "foo\n")
    answer = await talk.say("rename foo to baz everywhere")
    assert answer.startswith("Replaced `foo` with `baz`: 5 occurrences in 2 files.")
    assert talk.read("a.py") == "baz = 1\nfoobar = baz + my_foo\nprint(baz)\n\nbaz\n"


async def test_a_text_is_removed(talk: Talk):
    talk.write("a.txt", "one debug two\n")
    assert await talk.say("remove ' debug' from a.txt") == "Removed ` debug`: 1 occurrence in `a.txt`."
    assert talk.read("a.txt") == "one two\n"


async def test_a_file_is_created_with_literal_content(talk: Talk):
    assert await talk.say("create a file notes/todo.txt with content 'hello'") == "Created `notes/todo.txt` (1 line)."
    assert talk.read("notes/todo.txt") == "hello\n"
    assert await talk.say("make an empty file x") == "Created the empty file `x`."
    assert talk.read("x") == ""
    await talk.say("create a.py with:\n```python\nprint('hi')\n```")
    assert talk.read("a.py") == "print('hi')\n"


async def test_existing_file_is_not_overwritten_unless_asked(talk: Talk):
    talk.write("a.txt", "precious\n")
    assert "already exists (1 line), so I left it alone" in await talk.say("create a.txt with content 'x'")
    assert "already exists" in await talk.say("write 'x' to a.txt")
    assert talk.read("a.txt") == "precious\n"
    assert await talk.say("overwrite a.txt with 'x'") == "Overwrote `a.txt` (1 line; it had 1)."
    assert talk.read("a.txt") == "x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\n", "a\nb\nend\n"),
        ("a\nb", "a\nb\nend"),
        ("b\na\nb\na\nb\n", "b\na\nb\na\nb\nend\n"),
        ("}\n\n}\n", "}\n\n}\nend\n"),
        ("", "end\n"),
        (None, "end\n"),
    ],
)
async def test_text_is_appended(talk: Talk, before: str | None, after: str):
    if before is not None:
        talk.write("a.txt", before)
    await talk.say("append 'end' to a.txt")
    assert talk.read("a.txt") == after


async def test_code_is_not_invented(talk: Talk):
    assert await talk.say("create hello.py that prints hello") == ""
    assert "cannot write code" in str(talk.failure)
    assert talk.calls == []
    assert not (talk.folder / "hello.py").exists()


async def test_a_file_is_deleted_and_moving_one_is_explained(talk: Talk):
    talk.write("a.txt", "x\n")
    assert "run `mv a.txt b.txt`" in await talk.say("rename a.txt to b.txt")
    assert (talk.folder / "a.txt").exists()
    assert await talk.say("delete a.txt") == "Deleted `a.txt`."
    assert not (talk.folder / "a.txt").exists()
    assert await talk.say("delete a.txt") == "There is no `a.txt`."


async def test_without_a_delete_tool_the_rm_command_is_suggested():
    request = Request("m", (PromptMessage("delete a.txt", ("Working directory: /w",)),), tools=())
    assert any("run `rm a.txt`" in piece.text for piece in stream_reply(request) if isinstance(piece, TextChunk))


async def test_odin_md_is_written_when_asked_for(talk: Talk, ask_talk: Talk):
    talk.write("Makefile", "test:\n\ttrue\n")
    assert "edit mode" in await ask_talk.say("init")
    assert (await talk.say("create ODIN.md")).startswith(f"Created {talk.folder}/ODIN.md")
    assert "`make test`" in talk.read("ODIN.md")


async def test_a_delete_tool_is_used_when_there_is_one():
    schema = {"type": "object", "properties": {"paths": {"type": "array"}, "reason": {"type": "string"}}}
    tools = (ToolSpec("Delete", "", schema),)
    request = Request("m", (PromptMessage("delete a.txt", ("Working directory: /w",)),), tools=tools)
    (call,) = [piece for piece in stream_reply(request) if isinstance(piece, CallChunk)]
    assert msgspec.json.decode(call.json) == {"paths": ["/w/a.txt"], "reason": "asked for by the user"}


# --- modes and refusals ---


async def test_in_ask_mode_nothing_is_changed_and_edit_mode_is_named(ask_talk: Talk):
    ask_talk.write("auth.py", AUTH)
    answer = await ask_talk.say("Replace TODO with FIXME in auth.py")
    assert answer.startswith("Nothing was changed: in ask mode no tool that writes files is offered.")
    assert "edit mode" in answer
    assert "3 lines in 1 file: `auth.py`" in answer
    for prompt in ("create x.txt with 'a'", "append 'a' to auth.py"):
        assert "edit mode" in await ask_talk.say(prompt)
    assert ask_talk.read("auth.py") == AUTH
    assert not (ask_talk.folder / "x.txt").exists()


async def test_a_refused_edit_is_reported_with_its_reason_and_not_repeated(talk: Talk):
    talk.write("a.txt", "foo\n")
    talk.refusals["EditTool"] = "EditTool requires confirmation: it changes files. Pass --yes to allow it."
    answer = await talk.say("replace foo with bar in a.txt")
    assert "Nothing was changed." in answer
    assert "Pass --yes to allow it." in answer
    assert talk.tools_called.count("EditTool") == 1
    assert talk.read("a.txt") == "foo\n"


async def test_a_refused_command_is_reported_with_its_reason(talk: Talk):
    talk.refusals["ExecuteCommand"] = "Denied: it deletes files. Use --permission-mode to allow it."
    answer = await talk.say("run `rm -rf build`")
    assert answer == ("`rm -rf build` was not run: Denied: it deletes files. Use --permission-mode to allow it.")
    assert "was not run" in await talk.say("git status")


async def test_a_tool_that_is_not_offered_is_named(talk: Talk):
    del talk.tools["Grep"]
    assert "needs Grep, which this session does not offer" in await talk.say("search for x")
    assert talk.calls == []


# --- commands, tests, git ---


async def test_a_command_runs_and_its_output_is_shown(talk: Talk):
    assert (
        await talk.say("run `echo hi; echo there`")
        == "`echo hi; echo there` ran without an error:\n\n```\nhi\nthere\n```"
    )
    assert await talk.say("run `echo no; exit 3`") == "`echo no; exit 3` failed with exit code 3:\n\n```\nno\n```"
    assert await talk.say("run true") == "`true` ran without an error and printed nothing."


async def test_words_that_are_no_command_are_not_run(talk: Talk):
    assert "Put it in backticks" in await talk.say("run everything you can think of")
    assert talk.calls == []


async def test_the_tests_are_found_run_and_summed_up(talk: Talk):
    talk.write("Makefile", "test:\n\t@echo '== 3 passed in 0.01s =='\n")
    answer = await talk.say("run the tests")
    assert answer == "The tests pass: 3 passed in 0.01s. I ran `make test`, because there is Makefile."
    assert talk.tools_called == ["LS", "Read", "ExecuteCommand"]


async def test_failing_tests_show_the_end_of_their_output(talk: Talk):
    talk.write("Makefile", "test:\n\t@echo 'E assert 1 == 2'; echo '1 failed, 2 passed in 0.02s'; exit 1\n")
    answer = await talk.say("do the tests pass?")
    assert answer.startswith("The tests fail: 1 failed, 2 passed in 0.02s. I ran `make test`")
    assert "E assert 1 == 2" in answer


async def test_missing_tests_are_reported(talk: Talk):
    talk.write("a.txt", "")
    assert "no way to run tests here" in await talk.say("run the tests")


async def test_script_is_run_by_its_extension(talk: Talk):
    talk.write("hello.sh", "echo hello\n")
    assert "`sh hello.sh` ran without an error" in await talk.say("run hello.sh")


async def test_git_questions_are_answered(talk: Talk):
    run_git(talk.folder, "init", "-q", "-b", "main")
    talk.write("a.txt", "one\n")
    run_git(talk.folder, "add", "-A")
    run_git(talk.folder, "commit", "-q", "-m", "First | step")
    assert await talk.say("git status") == "On branch `main`: nothing has changed since the last commit."
    talk.write("a.txt", "one\ntwo\n")
    talk.write("b.txt", "")
    changed = await talk.say("what changed?")
    assert "2 files have changed.\n\n- a.txt (modified)\n- b.txt (untracked)" in changed
    assert "1 file changed, 1 insertion(+)" in changed
    diff = await talk.say("show the diff")
    assert "1 line added, 0 removed" in diff
    assert "+two" in diff
    assert "Ann: First | step" in await talk.say("show me the last 5 commits")
    assert await talk.say("which branch am I on?") == "You are on branch `main`."
    assert (await talk.say("who changed a.txt last?")).startswith("Ann changed `a.txt` last, on 2")
    assert await talk.say("how many commits are there?") == "There is 1 commit."


async def test_git_outside_a_repository_and_before_the_first_commit_is_explained(talk: Talk):
    assert await talk.say("git status") == "This folder is not a git repository."
    run_git(talk.folder, "init", "-q", "-b", "main")
    assert await talk.say("git log") == "This repository has no commits yet."
    assert await talk.say("show the diff") == "This repository has no commits yet."


# --- follow-ups ---


async def test_replace_after_a_search_is_in_the_same_file(talk: Talk):
    talk.write("src/auth.py", AUTH)
    talk.write("other.py", "# TODO\n")
    await talk.say("Search for TODO in auth.py")
    assert "3 occurrences in `src/auth.py`" in await talk.say("Replace TODO with FIXME")
    assert talk.read("other.py") == "# TODO\n"


async def test_replace_after_a_search_of_everything_is_everywhere(talk: Talk):
    talk.write("a.py", "TODO\n")
    talk.write("b.py", "TODO\n")
    await talk.say("search for TODO")
    assert "2 occurrences in 2 files" in await talk.say("replace it with FIXME")


async def test_replace_after_reading_is_in_that_file(talk: Talk):
    talk.write("a.py", "foo\n")
    talk.write("b.py", "foo\n")
    await talk.say("read a.py")
    await talk.say("replace foo with bar")
    assert (talk.read("a.py"), talk.read("b.py")) == ("bar\n", "foo\n")


async def test_replace_without_a_place_asks_where(talk: Talk):
    assert (await talk.say("replace foo with bar")).startswith("Where? Say \"replace 'foo' with 'bar' in FILE\"")
    assert "nothing was searched for yet" in await talk.say("replace it with bar")


async def test_last_task_is_repeated_in_another_place(talk: Talk):
    talk.write("a.py", "foo\n")
    talk.write("b.py", "foo foo\n")
    talk.write("tests/c.py", "foo\n")
    await talk.say("replace foo with bar in a.py")
    assert "2 occurrences in `b.py`" in await talk.say("now do the same in b.py")
    await talk.say("search for foo in a.py")
    assert "in `tests`" in await talk.say("and in tests?")
    assert "No match for `bar` in `tests`." in await talk.say("and for bar?")


async def test_pronoun_refers_to_the_last_file(talk: Talk):
    talk.write("a.py", "one\ntwo\nthree\n")
    await talk.say("search for two in a.py")
    assert "2  two" in await talk.say("read it")
    assert "`a.py`, lines 2-3 of 3" in await talk.say("read lines 2-3")
    assert "`a.py`, 3 lines" in await talk.say("show that file")


async def test_an_entry_of_the_last_list_is_opened(talk: Talk):
    talk.write("src/a.py", "needle a\n")
    talk.write("src/b.py", "needle b\n")
    await talk.say("which files mention needle")
    assert "needle a" in await talk.say("open the first one")
    assert "needle b" in await talk.say("open the second one")
    await talk.say("find files named *.py")
    assert "needle b" in await talk.say("show the last one")
    assert "from 1 to 2" in await talk.say("open the 5th one")


async def test_ambiguous_pronoun_is_asked_about(talk: Talk):
    talk.write("a.py", "needle\n")
    talk.write("b.py", "needle\n")
    assert "Name it, for example" in await talk.say("read it")
    await talk.say("search for needle")
    assert (await talk.say("read it")).startswith("Which one: `a.py`, `b.py`?")


async def test_last_command_is_run_again(talk: Talk):
    await talk.say("run `echo once >> log.txt`")
    await talk.say("run it again")
    assert talk.read("log.txt") == "once\nonce\n"
    talk.write("Makefile", "test:\n\t@echo '1 passed in 0.1s'\n")
    await talk.say("run the tests")
    assert (await talk.say("run it again")).startswith("The tests pass")
    assert talk.tools_called == ["ExecuteCommand"]


async def test_undo_reverts_a_replacement(talk: Talk):
    talk.write("a.py", "foo bar foo\n")
    talk.write("b.py", "foo\n")
    assert "nothing to undo" in await talk.say("undo that")
    await talk.say("replace foo with baz everywhere")
    await talk.say("read a.py")
    answer = await talk.say("undo that")
    assert answer == "Reverted the last change in `a.py`.\nReverted the last change in `b.py`."
    assert (talk.read("a.py"), talk.read("b.py")) == ("foo bar foo\n", "foo\n")


async def test_undo_reverts_a_rename_and_an_append(talk: Talk):
    before = "foo\nfoobar\nfoo x\n"
    talk.write("a.py", before)
    await talk.say("rename foo to baz in a.py")
    assert talk.read("a.py") != before
    await talk.say("undo")
    assert talk.read("a.py") == before
    await talk.say("append 'end' to a.py")
    await talk.say("undo")
    assert talk.read("a.py") == before


async def test_undo_is_refused_if_it_would_change_other_text(talk: Talk):
    talk.write("a.py", "foo bar\n")
    await talk.say("replace foo with bar in a.py")
    answer = await talk.say("undo that")
    assert "I cannot take the change in `a.py` back by itself" in answer
    assert "git checkout -- a.py" in answer
    assert talk.read("a.py") == "bar bar\n"
    await talk.say("create new.txt with 'x'")
    assert "Say: delete new.txt" in await talk.say("undo that")


async def test_several_requests_run_in_order(talk: Talk):
    talk.write("a.py", "TODO\n")
    talk.write("b.py", "bee\n")
    answer = await talk.say("search for TODO in a.py and replace it with FIXME, then read b.py")
    first, second, third = (answer.index(part) for part in ("1 match for", "Replaced `TODO`", "bee"))
    assert first < second < third
    assert talk.read("a.py") == "FIXME\n"
    both = await talk.say("read a.py, then b.py")
    assert "FIXME" in both
    assert "bee" in both


async def test_request_that_is_not_understood_stops_the_work_and_is_named(talk: Talk):
    talk.write("a.py", "x\n")
    answer = await talk.say("read a.py and make it nicer")
    assert "`a.py`, 1 line" in answer
    assert talk.failure is not None
    assert '"make it nicer" needs a model' in str(talk.failure)


async def test_todo_list_is_kept(talk: Talk):
    assert "is empty" in await talk.say("show todos")
    await talk.say("add todo: write docs")
    await talk.say("add todo: test it")
    assert await talk.say("mark todo 1 done") == "2 todos:\n\n1. [x] write docs\n2. [ ] test it"
    assert await talk.say("show todos") == "2 todos:\n\n1. [x] write docs\n2. [ ] test it"


# --- help ---


@pytest.mark.parametrize("prompt", ["explain monads to me", "asdf", "What is love?", "hi", "help", "fix it"])
async def test_one_paragraph_says_what_is_possible_without_a_model(talk: Talk, prompt: str):
    answer = await talk.say(prompt)
    assert (talk.failure is None) == (prompt in ("hi", "help"))
    answer = talk.failure.describe() if talk.failure else answer
    assert "\n" not in answer
    for word in ("search", "tests", "git", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "odin models", "odinconfig.json"):
        assert word in answer
    assert "odel is connected" in answer or "none is connected" in answer
    assert talk.calls == []


# --- the provider ---


async def test_reply_streams_a_call_an_empty_usage_and_one_stop(talk: Talk):
    talk.write("a.txt", "x\n")
    talk.messages.append(PromptMessage("read a.txt", (f"Working directory: {talk.folder}",)))
    pieces = [piece async for piece in OfflinePlanner().stream(talk.request())]
    call, usage, stop = pieces
    assert isinstance(call, CallChunk)
    assert call.done
    assert msgspec.json.decode(call.json) == {"file_path": str(talk.folder / "a.txt")}
    assert usage == UsageChunk(Usage())
    assert stop == StopChunk("tool_use", "offline")


async def test_long_answer_is_streamed_in_chunks(talk: Talk):
    talk.messages.append(PromptMessage("help"))
    pieces = [piece async for piece in OfflinePlanner().stream(talk.request())]
    texts = [piece for piece in pieces if isinstance(piece, TextChunk)]
    assert len(texts) > 1
    assert pieces[-1] == StopChunk("end_turn", "offline")


async def test_the_same_history_gives_the_same_reply_after_a_resume(talk: Talk):
    talk.write("a.py", "TODO\n")
    await talk.say("search for TODO in a.py")
    await talk.say("replace it with FIXME")
    stored = msgspec.json.encode(talk.messages)
    messages = msgspec.json.decode(stored, type=list[PromptMessage | ReplyMessage | ToolMessage])
    for length in range(1, len(messages)):
        if isinstance(messages[length - 1], ReplyMessage):
            continue
        request = msgspec.structs.replace(talk.request(), messages=tuple(messages[:length]))
        builder = ReplyBuilder("offline")
        for piece in stream_reply(request):
            builder.add(piece)
        said = talk.messages[length]
        assert isinstance(said, ReplyMessage)
        assert builder.finish().message.parts == said.parts


async def test_call_ids_are_never_used_twice(talk: Talk):
    talk.write("a.py", "TODO\n")
    for prompt in ("search for TODO", "replace it with FIXME", "undo", "list files"):
        await talk.say(prompt)
    ids = [call.id for message in talk.messages if isinstance(message, ReplyMessage) for call in message.calls]
    assert len(ids) == len(set(ids))


async def test_turn_started_by_a_model_is_continued(talk: Talk):
    talk.write("a.py", "foo\n")
    call = ToolCall("toolu_1", "Bash", {"command": "ls"})
    talk.messages += [
        PromptMessage("replace foo with bar in a.py", (f"Working directory: {talk.folder}",)),
        ReplyMessage((Text("Let me look."), call)),
        ToolMessage((ToolResult("toolu_1", "a.py"),)),
    ]
    pieces = list(stream_reply(talk.request()))
    assert [piece.name for piece in pieces if isinstance(piece, CallChunk)] == ["Read"]


async def test_calls_of_a_model_are_remembered_for_follow_ups(talk: Talk):
    path = talk.write("a.py", "one\n")
    call = ToolCall("toolu_1", "Read", {"file_path": str(path)})
    talk.messages += [
        PromptMessage("please have a think about a.py", (f"Working directory: {talk.folder}",)),
        ReplyMessage((call,)),
        ToolMessage((ToolResult("toolu_1", "     1\tone"),)),
        ReplyMessage((Text("It says one."),)),
    ]
    assert "1  one" in await talk.say("read it")


def test_without_a_working_directory_paths_stay_relative():
    request = Request("m", (PromptMessage("read a.py"),), tools=(ToolSpec("Read", "", {}),))
    (call,) = [piece for piece in stream_reply(request) if isinstance(piece, CallChunk)]
    assert msgspec.json.decode(call.json) == {"file_path": "./a.py"}


def test_importing_the_planner_does_not_load_its_grammar():
    code = (
        "import sys, odin.providers.offline\n"
        "print([name for name in sys.modules if '_phrases' in name or '_plans' in name or name.endswith('.turn')])"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert run.stdout.strip() == "[]"


# --- docs/offline.md ---

PAGE = Path(__file__).parents[2] / "docs" / "offline.md"


async def test_conversation_in_the_documentation_is_real(talk: Talk):
    talk.write(
        "src/auth.py",
        """\"\"\"Signing in and out.\"\"\"

import os

# TODO: check the password
# TODO: rate limit


class Session:
    def login(self, user):
        foo = os.getenv("FOO")
        return foo_bar(foo)  # TODO log

    def logout(self):
        pass


def foo_bar(foo):
    return foo
""",
    )
    talk.write("src/app.py", "from src.auth import Session  # TODO remove\nfoo = 1\nfoobar = foo + 2\n")
    run_git(talk.folder, "init", "-q", "-b", "main")
    run_git(talk.folder, "add", "-A")
    run_git(talk.folder, "commit", "-q", "-m", "First")
    (run,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    turns = re.findall(r"^> ([^\n]+)\n(.*?)(?=^> |\Z)", run, re.MULTILINE | re.DOTALL)
    assert len(turns) == 6
    for prompt, answer in turns:
        assert await talk.say(prompt) == answer.strip()


def test_every_example_in_the_documentation_is_understood():
    text = PAGE.read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| ") and "`" in row]
    examples = [one.strip("` ") for row in rows for one in re.findall(r"`` .*? ``|``.*?``|`[^`]+`", row)]
    assert len(examples) > 60
    lost = [one for one in examples if any(task.kind in ("unknown", "invent") for task in parse_prompt(one))]
    assert lost == []


# --- every conversation ends ---

TOOLS = (
    "LS",
    "Read",
    "Grep",
    "Glob",
    "ExecuteCommand",
    "TodoWrite",
    "WriteFile",
    "EditTool",
    "MultiEditTool",
    "Delete",
)

RESULTS = st.sampled_from(
    [
        ("", False),
        ("No matches found", False),
        ("/w/a.py does not exist.", True),
        ("/w/a.py is a directory. Use LS to list it.", True),
        ("Denied: no. Ask.", True),
        ("/w/a.py\n/w/b.py", False),
        ("/w/a.py:3:foo TODO\n/w/b.py:1:x", False),
        ("/w/a.py:3", False),
        ("     1\tfoo TODO\n     2\tbar\n(showing lines 1-2 of 9 total; go on with offset=3)", False),
        ("     1\tfoo TODO", False),
        ("(empty file)", False),
        ("Must read lines 7-9 first: you have not seen them.", True),
        ("Edited /w/a.py: 2 replacements, +2 -2 lines.", False),
        ("/w/\n  src/\n  Makefile\n  package.json", False),
        ("1 passed in 0.1s\n(exit code 1)", True),
        ("{", False),
    ]
)


AnswerCall = Callable[[ToolCall], tuple[str, bool]]


def cycle_results(results: list[tuple[str, bool]]) -> AnswerCall:
    """Return a function that gives these results one after the other, whatever is called."""
    supply = cycle(results)
    return lambda call: next(supply)


def converse(prompts: list[str], offered: tuple[str, ...], answer: AnswerCall) -> tuple[int, str]:
    """Answer every call with a made-up result. Return the number of steps of the longest turn, and the last answer."""
    specs = tuple(ToolSpec(name, "", {"properties": {"paths": {}}}) for name in offered)
    messages: list[Message] = []
    longest, last = 0, ""
    for prompt in prompts:
        messages.append(PromptMessage(prompt, ("Working directory: /w",)))
        for step in range(1, MAX_STEPS + 3):
            builder = ReplyBuilder("offline")
            pieces: list[Chunk] = []
            failure = ""
            try:
                for piece in stream_reply(Request("m", tuple(messages), tools=specs)):
                    builder.add(piece)
                    pieces.append(piece)
                assert isinstance(pieces[-1], StopChunk)
            except NeedsModel as error:
                failure = str(error)
            message = builder.finish().message
            messages.append(message)
            assert {call.name for call in message.calls} <= set(offered)
            longest, last = max(longest, step), f"{message.text}{failure}"
            if not message.calls:
                assert last.strip()
                break
            results = [ToolResult(call.id, *answer(call)) for call in message.calls]
            messages.append(ToolMessage(tuple(results)))
    return longest, last


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(PHRASES)) | st.text(max_size=60), min_size=1, max_size=4),
    st.lists(st.sampled_from(TOOLS), unique=True).map(tuple),
    st.lists(RESULTS, min_size=1, max_size=8),
)
def test_any_conversation_ends_and_keeps_to_the_tools_it_was_offered(
    prompts: list[str], offered: tuple[str, ...], results: list[tuple[str, bool]]
):
    longest, _ = converse(prompts, offered, cycle_results(results))
    assert longest <= MAX_STEPS + 1


@pytest.mark.slow
@each("prompt", sorted(PHRASES))
def test_every_phrase_ends_whatever_the_tools_return(prompt: str):
    for result in (("Denied: no.", True), ("     1\tx\n(showing lines 1-1 of 9 total)", False), ("", False)):
        longest, _ = converse([prompt], TOOLS, cycle_results([result]))
        assert longest <= MAX_STEPS + 1


@pytest.mark.slow
def test_a_plan_that_needs_too_many_steps_is_stopped():
    def answer(call: ToolCall) -> tuple[str, bool]:
        if call.name == "Grep":
            return "\n".join(f"/w/f{n}" for n in range(200)), False
        if call.name == "Read":
            return "     1\tfoo\n(showing lines 1-1 of 9 total)", False
        return "Must read lines 7-9 first: you have not seen them.", True

    longest, last = converse(["replace foo with bar everywhere"], TOOLS, answer)
    assert longest == MAX_STEPS + 1
    assert last == STOPPED


def test_file_that_stays_unread_is_reported():
    def answer(call: ToolCall) -> tuple[str, bool]:
        if call.name == "Read":
            return "     1\tfoo", False
        return "Must read lines 7-9 first: you have not seen them.", True

    _, last = converse(["replace foo with bar in a.py"], TOOLS, answer)
    assert last == "Nothing was changed.\n`a.py` was not changed: too many parts of it were not read yet"
