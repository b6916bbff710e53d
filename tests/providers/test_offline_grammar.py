"""The English phrases that the offline planner understands."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.providers.offline.grammar import parse_prompt
from odin.providers.offline.language import TEST_GLOBS, compile_template, first_words_of, protect_quotes
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, LAST_TERM, PlannerTask, make_entry_ref
from tests.table import each

PYTHON = ("**/*.py", "**/*.pyi")


def find(*globs: str, **more: Any) -> PlannerTask:
    return PlannerTask("find", globs=globs, **more)


def read(path: str, first: int = 0, last: int = 0) -> PlannerTask:
    return PlannerTask("read", path=path, first=first, last=last)


def git(how: str, **more: Any) -> PlannerTask:
    return PlannerTask("git", variant=how, **more)


SEARCHES = {
    "Search for TODO in src": PlannerTask("search", "TODO", path="src"),
    "search for todo": PlannerTask("search", "todo"),
    "Please search for TODO in src.": PlannerTask("search", "TODO", path="src"),
    "Can you look for TODO in the src folder?": PlannerTask("search", "TODO", path="src"),
    "I want you to search for “smart quotes” in docs": PlannerTask("search", "smart quotes", path="docs"),
    "hey odin, find TODO in all python files": PlannerTask("search", "TODO", globs=PYTHON),
    "search for TODO in *.py": PlannerTask("search", "TODO", globs=("*.py",)),
    "search for TODO in src in python files": PlannerTask("search", "TODO", path="src", globs=PYTHON),
    "search everywhere for TODO": PlannerTask("search", "TODO"),
    "search the code for Session": PlannerTask("search", "Session"),
    "search in src for Session": PlannerTask("search", "Session", path="src"),
    "look in src for TODO": PlannerTask("search", "TODO", path="src"),
    "search for the string 'def main' everywhere": PlannerTask("search", "def main"),
    "search for the regex 'fo+' in src": PlannerTask("search", "fo+", path="src", variant="regex"),
    "search for «guillemets»": PlannerTask("search", "guillemets"),
    "search for `x = 1`": PlannerTask("search", "x = 1"),
    "search for read and write": PlannerTask("search", "read and write"),
    "search for 'run the tests and commit' in docs": PlannerTask("search", "run the tests and commit", path="docs"),
    'Could you please search for "foo bar" in src, ignoring case?': PlannerTask(
        "search", "foo bar", path="src", variant="-i"
    ),
    "grep 'def main'": PlannerTask("search", "def main"),
    'grep -rni "foo" src': PlannerTask("search", "foo", path="src", variant="-i"),
    "rg foo src": PlannerTask("search", "foo", path="src"),
    "find all uses of foo in src/": PlannerTask("search", "foo", path="src/", variant="word"),
    "find me every occurrence of foo": PlannerTask("search", "foo"),
    "find references to parse_config": PlannerTask("search", "parse_config", variant="word"),
    "show all uses of foo": PlannerTask("search", "foo", variant="word"),
    "where do we use parse_config?": PlannerTask("search", "parse_config", variant="word"),
    "where is the function parse_config used": PlannerTask("search", "parse_config", variant="word"),
    "who calls parse_config?": PlannerTask("search", "parse_config", variant="word"),
    "is foo used anywhere in src?": PlannerTask("search", "foo", path="src", variant="word"),
    "where is parse_config defined": PlannerTask("search", "parse_config", variant="definition"),
    "Where's parse_config defined in src?": PlannerTask("search", "parse_config", path="src", variant="definition"),
    "find the definition of Session": PlannerTask("search", "Session", variant="definition"),
    "which files mention X": PlannerTask("search", "X", variant="files"),
    'which files contain the word "secret"?': PlannerTask("search", "secret", variant="files"),
    'which python files use "import os"': PlannerTask("search", "import os", globs=PYTHON, variant="files"),
    "find files containing 'TODO' in src": PlannerTask("search", "TODO", path="src", variant="files"),
    "count TODOs": PlannerTask("search", "TODO", variant="count"),
    "count the number of TODOs": PlannerTask("search", "TODO", variant="count"),
    "how many TODOs are there in src?": PlannerTask("search", "TODO", path="src", variant="count"),
    "how many times does foo appear in a.py": PlannerTask("search", "foo", path="a.py", variant="count"),
    "are there any TODOs left?": PlannerTask("search", "TODO"),
    "show me all TODO comments": PlannerTask("search", "TODO"),
    "how many lines does a.py have?": PlannerTask("count-lines", path="a.py"),
}

FILES = {
    "find files named *.py": find("**/*.py"),
    "find *.md": find("**/*.md"),
    "find test files": find(*TEST_GLOBS, term="test"),
    "do we have any tests?": find(*TEST_GLOBS, term="test"),
    "find all python files in src": find(*PYTHON, path="src", term="python"),
    "how many python files are there in src?": find(*PYTHON, path="src", term="python", variant="count"),
    "list all markdown files in docs": find("**/*.md", path="docs", term="markdown"),
    "which files end in .md": find("**/*.md"),
    "which files start with test_": find("**/test_*"),
    "files with the extension py": find("**/*.py"),
    "find files in src named *.txt": find("**/*.txt", path="src"),
    "list files with foo in the name": find("**/*foo*"),
    "locate config.json": find("**/config.json"),
    "where's the README?": find("**/README*"),
    "where is config.json?": find("**/config.json"),
    "find the file called config.yaml": find("**/config.yaml"),
    "list files": PlannerTask("list"),
    "ls": PlannerTask("list"),
    "ls -la src": PlannerTask("list", path="src"),
    "what's here?": PlannerTask("list"),
    "what is in docs/": PlannerTask("list", path="docs/"),
    "what files are in src?": PlannerTask("list", path="src"),
    "list the src folder": PlannerTask("list", path="src"),
    "show me the contents of the docs folder": PlannerTask("list", path="docs"),
    "show the folder tree": PlannerTask("list", variant="tree"),
    "display the file tree of src": PlannerTask("list", path="src", variant="tree"),
    "directory structure": PlannerTask("list", variant="tree"),
    "where am i": PlannerTask("where"),
    "what is this project?": PlannerTask("describe"),
    "describe this project": PlannerTask("describe"),
    "/init": PlannerTask("init"),
    "init": PlannerTask("init"),
    "initialize this project": PlannerTask("init"),
    "create ODIN.md": PlannerTask("init"),
    "update the ODIN.md file": PlannerTask("init"),
    "give me an overview": PlannerTask("describe"),
    "What does this repo do?": PlannerTask("describe"),
    "how do I run this?": PlannerTask("describe"),
    "tell me about this project please": PlannerTask("describe"),
}

READS = {
    "read README.md": read("README.md"),
    "cat x": read("x"),
    "Open 'my file.txt'": read("my file.txt"),
    "show me the file a.py": read("a.py"),
    "show src/a.py": read("src/a.py"),
    "what's in README.md": read("README.md"),
    "what does README.md say?": read("README.md"),
    "take a look at src/a.py": read("src/a.py"),
    "show lines 10-20 of src/a.py": read("src/a.py", 10, 20),
    "read a.py from line 10 to 20": read("a.py", 10, 20),
    "a.py lines 10-20": read("a.py", 10, 20),
    "show a.py:10-20": read("a.py", 10, 20),
    "lines 20 to 10 of a.py": read("a.py", 10, 20),
    "open x.py at line 40": read("x.py", 35, 60),
    "show line 1050 of logs.txt with context": read("logs.txt", 1045, 1055),
    "first 20 lines of x.py": read("x.py", 1, 20),
    "head -n 5 a.py": read("a.py", 1, 5),
    "show me the last 5 lines of x.py": read("x.py", -5),
    "tail log.txt": read("log.txt", -10),
    "outline src/a.py": PlannerTask("outline", path="src/a.py"),
    "list the functions in a.py": PlannerTask("outline", path="a.py"),
    "what classes does a.py have?": PlannerTask("outline", path="a.py"),
    "show me the structure of a.py": PlannerTask("outline", path="a.py"),
    "summarise README.md": PlannerTask("summary", path="README.md"),
    "give me a short summary of README.md": PlannerTask("summary", path="README.md"),
    "what does a.py do": PlannerTask("summary", path="a.py"),
}

CHANGES = {
    "Replace TODO with FIXME in auth.py": PlannerTask("replace", "TODO", "FIXME", "auth.py"),
    "Replace TODO with FIXME": PlannerTask("replace", "TODO", "FIXME"),
    "replace all TODOs with FIXME in a.py": PlannerTask("replace", "TODO", "FIXME", "a.py"),
    'replace "foo" by "bar" everywhere': PlannerTask("replace", "foo", "bar", everywhere=True),
    "replace foo in a.py with bar": PlannerTask("replace", "foo", "bar", "a.py"),
    "in a.py, replace foo with bar": PlannerTask("replace", "foo", "bar", "a.py"),
    "replace foo with bar in all python files": PlannerTask("replace", "foo", "bar", globs=PYTHON, everywhere=True),
    "Replace `foo()` with `bar(1)` in a.py.": PlannerTask("replace", "foo()", "bar(1)", "a.py"),
    "replace 'it's' with 'its' in a.py": PlannerTask("replace", "it's", "its", "a.py"),
    "substitute bar for foo in a.py": PlannerTask("replace", "foo", "bar", "a.py"),
    "s/foo/bar/g in x.py": PlannerTask("replace", "foo", "bar", "x.py"),
    "change 'a' to 'b' in x.txt": PlannerTask("replace", "a", "b", "x.txt"),
    'change "hello world" -> "bye" in a.py': PlannerTask("replace", "hello world", "bye", "a.py"),
    "rename foo to bar everywhere": PlannerTask("replace", "foo", "bar", variant="word", everywhere=True),
    "rename the function foo to bar in a.py": PlannerTask("replace", "foo", "bar", "a.py", variant="word"),
    "remove 'debug' from x.py": PlannerTask("replace", "debug", "", "x.py"),
    "create a file notes.txt with content 'hello'": PlannerTask("create", new="hello", path="notes.txt"),
    'create a file called notes.txt with the text "hi there"': PlannerTask("create", new="hi there", path="notes.txt"),
    "create a.py with:\n```python\nprint(1)\n```": PlannerTask("create", new="print(1)\n", path="a.py"),
    "create notes.txt saying hello world": PlannerTask("create", new="hello world", path="notes.txt"),
    "make an empty file x": PlannerTask("create", path="x"),
    "touch x.txt": PlannerTask("create", path="x.txt"),
    "write 'abc' to x.txt": PlannerTask("create", new="abc", path="x.txt", variant="write"),
    "save 'abc' as x.txt": PlannerTask("create", new="abc", path="x.txt", variant="write"),
    "overwrite x.txt with 'abc'": PlannerTask("create", new="abc", path="x.txt", variant="overwrite"),
    "append 'x' to y": PlannerTask("append", new="x", path="y"),
    'add the line "x" to the end of y.txt': PlannerTask("append", new="x", path="y.txt"),
    "delete notes.txt": PlannerTask("delete", path="notes.txt"),
    "rename a.py to b.py": PlannerTask("move", path="a.py", new="b.py"),
    "create a folder foo": PlannerTask("mkdir", path="foo"),
    "create hello.py that prints hello": PlannerTask("invent"),
    "write tests for a.py": PlannerTask("invent"),
    "Please fix the login bug": PlannerTask("invent"),
    "change the colour to something warm": PlannerTask("invent"),
}

RUNS = {
    "run `ls -la`": PlannerTask("run", command="ls -la"),
    "run ls -la": PlannerTask("run", command="ls -la"),
    "execute make build": PlannerTask("run", command="make build"),
    'run "echo hi"': PlannerTask("run", command="echo hi"),
    "npm test": PlannerTask("run", command="npm test"),
    "run the tests": PlannerTask("tests"),
    "Run all tests, please": PlannerTask("tests"),
    "do the tests pass?": PlannerTask("tests"),
    "run the tests in tests/test_a.py": PlannerTask("tests", path="tests/test_a.py"),
    "run tests/test_a.py": PlannerTask("tests", path="tests/test_a.py"),
    "run hello.py": PlannerTask("script", path="hello.py"),
    "run through the code": PlannerTask("which-command", source_text="through the code"),
    "git status": git("status"),
    "is the working tree clean?": git("status"),
    "what changed": git("changes"),
    "what has changed since the last commit?": git("changes"),
    "which files have changed?": git("changes"),
    "what changed in a.py": git("diff", path="a.py"),
    "show the diff": git("diff"),
    "show me the diff of a.py": git("diff", path="a.py"),
    "show me the last 5 commits": git("log", first=5),
    "show the last three commits": git("log", first=3),
    "git log": git("log", first=10),
    "show the commit history": git("log", first=10),
    "show the last commit": git("log", first=1),
    "git log --oneline -5": git("typed", command="git log --oneline -5"),
    "who changed src/a.py last?": git("who", path="src/a.py"),
    "when was a.py last changed": git("who", path="a.py"),
    "which branch am I on": git("branch"),
    "list branches": git("branches"),
    "how many commits are there?": git("count"),
    "show commit abc123": git("show", term="abc123"),
}

FOLLOW_UPS = {
    "replace it with FIXME": PlannerTask("replace", LAST_TERM, "FIXME"),
    "replace them all with x": PlannerTask("replace", LAST_TERM, "x"),
    "search for it in b.py": PlannerTask("search", LAST_TERM, path="b.py"),
    "now do the same in b.py": PlannerTask("again", path="b.py"),
    "same for b.py": PlannerTask("again", path="b.py"),
    "what about b.py?": PlannerTask("again", path="b.py"),
    "and b.py?": PlannerTask("again", path="b.py"),
    "and in tests?": PlannerTask("again", path="tests"),
    "and for FIXME?": PlannerTask("again", term="FIXME"),
    "do the same everywhere": PlannerTask("again", everywhere=True),
    "read it": read(LAST_FILE),
    "show that file": read(LAST_FILE),
    "open the first one": read(make_entry_ref(1)),
    "open the second result": read(make_entry_ref(2)),
    "open the last one": read(make_entry_ref(-1)),
    "read the 3rd file": read(make_entry_ref(3)),
    "read lines 5-10": read(LAST_FILE, 5, 10),
    "search for x in there": PlannerTask("search", "x", path=LAST_PLACE),
    "summarise it": PlannerTask("summary", path=LAST_FILE),
    "run it again": PlannerTask("again", variant="run"),
    "again": PlannerTask("again"),
    "undo that": PlannerTask("undo"),
    "revert the last change": PlannerTask("undo"),
    "show more": PlannerTask("more"),
    "add todo: write docs and run tests": PlannerTask("todo", new="write docs and run tests", variant="add"),
    "show todos": PlannerTask("todo", variant="show"),
    "mark todo 1 as done": PlannerTask("todo", term="1", variant="done"),
    "help": PlannerTask("help"),
    "what can you do?": PlannerTask("help"),
    "Hi there!": PlannerTask("help", variant="hello"),
    "thanks!": PlannerTask("help", variant="thanks"),
    "What is the meaning of life?": PlannerTask("unknown"),
    "asdf qwer": PlannerTask("unknown"),
}

PHRASES = {**SEARCHES, **FILES, **READS, **CHANGES, **RUNS, **FOLLOW_UPS}


def meaning_of(task: PlannerTask) -> dict[str, Any]:
    """Return the fields of a task without the text that it came from."""
    fields = {name: getattr(task, name) for name in task.__struct_fields__}
    del fields["whole_term"]
    if task.kind != "which-command":
        del fields["source_text"]
    return fields


@each("prompt", PHRASES)
def test_a_phrase_is_understood(prompt: str):
    assert [meaning_of(task) for task in parse_prompt(prompt)] == [meaning_of(PHRASES[prompt])]


@each("prompt", [prompt for prompt in PHRASES if not prompt.startswith("s/")])
def test_case_and_courtesy_do_not_matter(prompt: str):
    first = prompt[0].swapcase() + prompt[1:]
    plain = [task.kind for task in parse_prompt(prompt)]
    if plain in (["unknown"], ["help"]):
        return
    assert [task.kind for task in parse_prompt(f"Could you please {first}")] == plain


@each(
    ("prompt", "kinds"),
    [
        ("search for TODO in a.py and replace it with FIXME", ["search", "replace"]),
        ("read a.py, then b.py", ["read", "again"]),
        ("read a.py, b.py and c.py", ["read", "again", "again"]),
        ("1. read a.py\n2. list files\n3. run the tests", ["read", "list", "tests"]),
        ("- read a.py\n- read b.py", ["read", "read"]),
        ("Do the following steps:\n1) list files\n2) read README.md", ["list", "read"]),
        ("search for foo; read a.py; run the tests", ["search", "read", "tests"]),
        ("search for foo. Then read a.py.", ["search", "read"]),
        ("First read a.py, then replace foo with bar in it, and finally run the tests", ["read", "replace", "tests"]),
        ("replace foo with bar in a.py and b.py", ["replace", "again"]),
        ("search for FIXME in src and make it nice", ["search", "invent"]),
        ("think hard and run the tests", ["unknown"]),
    ],
)
def test_several_requests_in_one_prompt_are_split(prompt: str, kinds: list[str]):
    assert [task.kind for task in parse_prompt(prompt)] == kinds


def test_text_in_quotes_is_not_part_of_the_request():
    (task,) = parse_prompt("replace 'run the tests, then delete everything' with 'search for x' in a.py")
    assert (task.kind, task.term, task.new) == ("replace", "run the tests, then delete everything", "search for x")


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("say 'a b' and \"c d\"", ["a b", "c d"]),
        ("what's in it's", []),
        ("'it's fine'", ["it's fine"]),
        ("x 'print('hi')'", ["print('hi')"]),
        ('x "print("hi")"', ['print("hi")']),
        ('"a","b"', ["a", "b"]),
        ("an 'unclosed quote", []),
        ("„so“ and «so» and ‘so’", ["so", "so", "so"]),
        ("```\nx = 'y'\n```", ["x = 'y'\n"]),
        ("replace x with ''", [""]),
    ],
)
def test_quoted_texts_are_found(text: str, contents: list[str]):
    assert [content for content, _ in protect_quotes(text).quoted] == contents


@given(st.text())
def test_protecting_quotes_loses_no_character(text: str):
    words = protect_quotes(text)
    kept = "".join(char for char in text if not "\ue000" <= char <= "\ue0ff")
    assert words.restore_quotes(words.text) == kept


def test_first_words_of_a_template_are_found():
    assert first_words_of("[show|list] [me] the files? in {path}") == {"show", "list", "me", "the"}
    assert first_words_of("(a b|c) d") == {"a", "c"}
    assert "" in first_words_of("[please] {what}")


def test_template_matches_all_its_variants():
    pattern = compile_template("[show [me]|list] the files? [in {path}]")
    assert pattern.fullmatch(" show me the files in src")
    assert pattern.fullmatch(" LIST the file")
    assert pattern.fullmatch(" the files")
    assert not pattern.fullmatch(" me the files")
    assert not pattern.fullmatch(" show me the files in")


@given(st.text(max_size=400))
def test_every_text_becomes_tasks(text: str):
    tasks = parse_prompt(text)
    assert tasks
    assert len(tasks) <= 12
