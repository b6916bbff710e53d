"""The whole-file strategy for small models: parsing replies, completing files, making edits and choosing files."""

from typing import Any

from odin.core.message import PromptMessage, ReplyMessage, Text, ToolCall, ToolResult
from odin.models.local_servers import choose_strategy, parse_parameter_count
from odin.providers.whole_files.context_choice import ContextChoice
from odin.providers.whole_files.file_change import find_elision, find_error, make_call, make_edits
from odin.providers.whole_files.project_state import LookupHits, ProjectState
from odin.providers.whole_files.prompt_features import classify_prompt
from odin.providers.whole_files.request_text import build_examples
from odin.providers.whole_files.turn_history import Step, TurnFacts, read_turns
from odin.providers.whole_files.written_reply import parse_reply, split_commands
from tests.table import each

CODE = (
    "import os\n\n\ndef one():\n    return 1\n\n\ndef two():\n    return 2\n\n\nif __name__ == '__main__':\n    one()\n"
)


@each(
    "text, path, body",
    [
        ("a.py\n```python\nx = 1\n```", "a.py", "x = 1\n"),
        ("Here is it:\n\n**`src/a.py`**\n\n```\nx = 1\n```\nDone.", "src/a.py", "x = 1\n"),
        ("### File: ./a.py\n```python\nx = 1\n```", "a.py", "x = 1\n"),
        ("Here is the updated `a.py`:\n```python\nx = 1\n```", "a.py", "x = 1\n"),
        ("```python a.py\nx = 1\n```", "a.py", "x = 1\n"),
        ("```a.py\nx = 1\n```", "a.py", "x = 1\n"),
        ("```python\n# a.py\nx = 1\n```", "a.py", "# a.py\nx = 1\n"),
        ("Makefile\n```makefile\ntest:\n\ttrue\n```", "Makefile", "test:\n\ttrue\n"),
        ("README.md\n```markdown\n# A\n\n```sh\nrun\n```\n\nend\n```", "README.md", "# A\n\n```sh\nrun\n```\n\nend\n"),
        ("README.md\n````markdown\n# A\n```\nrun\n```\n````", "README.md", "# A\n```\nrun\n```\n"),
    ],
)
def test_path_of_a_code_block_is_found(text: str, path: str, body: str) -> None:
    reply = parse_reply(text)
    assert [(block.path, block.text, block.is_closed) for block in reply.files] == [(path, body, True)]
    assert reply.loose == ()


def test_commands_deletions_replacements_and_prose_are_separated() -> None:
    text = (
        "I look first.\nRUN pytest -q\n`RUN ls`\nDELETE old.txt\nDELETE all hope\n\nbig.py\n```\n"
        "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n```\nThen done.\n```bash\n$ make test\n# comment\n```"
    )
    reply = parse_reply(text, ("old.txt",))
    assert reply.commands == ("pytest -q", "ls")
    assert reply.deletions == ("old.txt",)
    assert [(one.path, one.old, one.new) for one in reply.replacements] == [("big.py", "a", "b")]
    assert reply.prose == "I look first.\nDELETE all hope\n\nThen done."
    assert list(split_commands(reply.loose)) == ["make test"]
    assert parse_reply("a.py\n```python\nx = 1").is_cut
    assert parse_reply("```sh\nRUN make\n```").commands == ("make",)


@each(
    "path, text, error",
    [
        ("a.py", "def f(:\n", "line 1"),
        ("a.json", '{"a" 1}', "a.json would not be valid"),
        ("a.toml", "a = \n", "a.toml would not be valid"),
        ("a.go", "func f() {\n", "'{' is never closed"),
        ("a.js", "f(')');\n// )\nconst s = `}`;\n", ""),
        ("a.js", "const a = /[(]/;\n", ""),
        ("a.py", "x = 1\n# ... rest of the code\n", "not complete"),
        ("a.md", "", "DELETE a.md"),
        ("a.py", "x = 1\n", ""),
    ],
)
def test_invalid_file_content_is_found_before_it_is_written(path: str, text: str, error: str) -> None:
    found = find_error(path, text, "{}" if path == "a.json" else "old = 1\nolder = 2\n")
    assert (error in found) if error else not found


def test_ellipsis_counts_as_elision_unless_the_file_had_it() -> None:
    assert find_elision("def f():\n    ...\n", "def f():\n    ...\n") == ""
    assert find_elision("def f():\n    ...\n", "def f():\n    a\n    b\n") == "..."
    assert find_elision("def f():\n    ...\n") == "", "a new file may have stubs"
    assert find_elision("def f():\n    # ... rest of the code\n") == "# ... rest of the code"
    assert find_elision("a\nb\n...\n", "a\nb\n") == "..."
    assert find_elision("const x = {\n  ...rest,\n};\n", "const x = {};\n") == ""


@each(
    "old, new",
    [
        (CODE, CODE.replace("return 2", "return 3")),
        (CODE, CODE.replace("import os", "import os\nimport sys").replace("return 1", "return 7")),
        ("a\nb\na\nb\na\n", "a\nb\na\nc\na\n"),
        ("x\n" * 40, "x\n" * 20 + "y\n" + "x\n" * 20),
        ("one\n", "one\ntwo\n"),
    ],
)
def test_edits_are_exact_and_unique(old: str, new: str) -> None:
    name, args = make_call("a", new, old)
    if name == "WriteFile":
        assert args["content"] == new
        return
    edits: list[dict[str, Any]] = args.get("edits", [args])
    text = old
    for edit in edits:
        assert text.count(edit["old_string"]) == 1
        text = text.replace(edit["old_string"], edit["new_string"])
    assert text == new


def test_small_change_of_a_long_file_is_a_small_edit() -> None:
    old = "".join(f"line {number}\n" for number in range(300))
    edits = make_edits(old, old.replace("line 7\n", "line seven\n"))
    assert edits is not None
    assert [(edit.old, edit.new) for edit in edits] == [("line 7\n", "line seven\n")]
    assert make_call("a", "new\n", None) == ("WriteFile", {"file_path": "a", "content": "new\n"})


def choose_files(prompt: str, sizes: dict[str, int], *defining: str, window: int = 16_384) -> tuple[str, ...]:
    """Return the files that are read for a prompt. `defining` are those that define a name of it."""
    features = classify_prompt(prompt)
    lookup = LookupHits({"f_one": list(defining)} if defining else {})
    facts = TurnFacts(prompt, ProjectState(features.paths, sizes=sizes, lookup=lookup))
    return ContextChoice(features, facts, window, can_edit=True, can_run=True).choose_files()


def test_named_files_are_chosen_first_then_matches_then_the_rest() -> None:
    project = {"z.py": 10, "a.py": 10, "b/c.py": 10, "b/d.py": 10, "long.py": 5000, "x.lock": 3}
    named = ("b/c.py", "z.py")
    assert choose_files("Rename f_one in c.py.", project, "z.py") == named, "other files would distract the model"
    assert choose_files("What does f_one in c.py return?", project, "z.py") == named
    assert len(choose_files("What is this?", project)) == 4, "the whole project, if it is small"
    assert choose_files("Fix long.py", project, window=4_096)[0] == "long.py", "a named file is always read"
    data = {"a.py": 10, "s.json": 4, "README.md": 9}
    assert choose_files("Fix 'teh' in README.md.", data) == ("README.md",), "the quoted text needs no other file"
    assert len(choose_files("Update the options in README.md.", data)) == 3
    assert choose_files("Set limit to 7 in s.json.", data) == ("s.json",), "no code is needed"


def test_examples_alternate_prompts_and_replies() -> None:
    roles = [type(message).__name__ for message in build_examples(can_edit=True, can_run=True)]
    assert roles == ["PromptMessage", "ReplyMessage"] * 3


@each(
    "name, strategy",
    [
        ("qwen2.5-coder-1.5b", "files"),
        ("llama3.2:3b", "files"),
        ("smollm2-360m-instruct", "files"),
        ("qwen2.5-coder:7b", "files"),
        ("deepseek-coder-6.7b-instruct", "files"),
        ("qwen3-8b", "tools"),
        ("qwen2.5-coder-32b", "tools"),
        ("gpt-oss:20b", "tools"),
        ("some-model", "tools"),
    ],
)
def test_size_and_family_choose_the_strategy(name: str, strategy: str) -> None:
    assert choose_strategy(name, parse_parameter_count(name)) == strategy


def test_test_command_that_timed_out_before_the_change_is_unavailable() -> None:
    call = ToolCall("gather_1", "ExecuteCommand", {"command": "make test"})
    result = ToolResult("gather_1", "", is_error=True, error_kind="CommandTimedOut")
    facts = TurnFacts()
    facts.add_step(Step(ReplyMessage((call,)), {"gather_1": result}))
    assert facts.commands.unavailable == {"make test"}


def test_a_note_of_odin_is_no_prompt() -> None:
    messages = (
        PromptMessage("Do it."),
        ReplyMessage((Text("Done."),)),
        PromptMessage("A check failed.", origin="checks"),
    )
    (turn,) = read_turns(messages)
    assert turn.prompt == "Do it."
    assert turn.steps[0].note == messages[-1]
