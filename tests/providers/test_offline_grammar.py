"""What plain English the offline planner understands, phrase by phrase."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.providers.offline.grammar import understand
from odin.providers.offline.quotes import protect
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, LAST_TERM, Task, nth
from odin.providers.offline.template import compiled, firsts
from odin.providers.offline.vocabulary import TEST_GLOBS
from tests.table import each

PYTHON = ("**/*.py", "**/*.pyi")


def find(*globs: str, **more: Any) -> Task:
    return Task("find", globs=globs, **more)


def read(path: str, first: int = 0, last: int = 0) -> Task:
    return Task("read", path=path, first=first, last=last)


def git(how: str, **more: Any) -> Task:
    return Task("git", how=how, **more)


SEARCHES = {
    "Search for TODO in src": Task("search", "TODO", path="src"),
    "search for todo": Task("search", "todo"),
    "Please search for TODO in src.": Task("search", "TODO", path="src"),
    "Can you look for TODO in the src folder?": Task("search", "TODO", path="src"),
    "I want you to search for “smart quotes” in docs": Task("search", "smart quotes", path="docs"),
    "hey odin, find TODO in all python files": Task("search", "TODO", globs=PYTHON),
    "search for TODO in *.py": Task("search", "TODO", globs=("*.py",)),
    "search for TODO in src in python files": Task("search", "TODO", path="src", globs=PYTHON),
    "search everywhere for TODO": Task("search", "TODO"),
    "search the code for Session": Task("search", "Session"),
    "search in src for Session": Task("search", "Session", path="src"),
    "look in src for TODO": Task("search", "TODO", path="src"),
    "search for the string 'def main' everywhere": Task("search", "def main"),
    "search for the regex 'fo+' in src": Task("search", "fo+", path="src", how="regex"),
    "search for «guillemets»": Task("search", "guillemets"),
    "search for `x = 1`": Task("search", "x = 1"),
    "search for read and write": Task("search", "read and write"),
    "search for 'run the tests and commit' in docs": Task("search", "run the tests and commit", path="docs"),
    'Could you please search for "foo bar" in src, ignoring case?': Task("search", "foo bar", path="src", how="-i"),
    "grep 'def main'": Task("search", "def main"),
    'grep -rni "foo" src': Task("search", "foo", path="src", how="-i"),
    "rg foo src": Task("search", "foo", path="src"),
    "find all uses of foo in src/": Task("search", "foo", path="src/", how="word"),
    "find me every occurrence of foo": Task("search", "foo"),
    "find references to parse_config": Task("search", "parse_config", how="word"),
    "show all uses of foo": Task("search", "foo", how="word"),
    "where do we use parse_config?": Task("search", "parse_config", how="word"),
    "where is the function parse_config used": Task("search", "parse_config", how="word"),
    "who calls parse_config?": Task("search", "parse_config", how="word"),
    "is foo used anywhere in src?": Task("search", "foo", path="src", how="word"),
    "where is parse_config defined": Task("search", "parse_config", how="definition"),
    "Where's parse_config defined in src?": Task("search", "parse_config", path="src", how="definition"),
    "find the definition of Session": Task("search", "Session", how="definition"),
    "which files mention X": Task("search", "X", how="files"),
    'which files contain the word "secret"?': Task("search", "secret", how="files"),
    'which python files use "import os"': Task("search", "import os", globs=PYTHON, how="files"),
    "find files containing 'TODO' in src": Task("search", "TODO", path="src", how="files"),
    "count TODOs": Task("search", "TODO", how="count"),
    "count the number of TODOs": Task("search", "TODO", how="count"),
    "how many TODOs are there in src?": Task("search", "TODO", path="src", how="count"),
    "how many times does foo appear in a.py": Task("search", "foo", path="a.py", how="count"),
    "are there any TODOs left?": Task("search", "TODO"),
    "show me all TODO comments": Task("search", "TODO"),
    "how many lines does a.py have?": Task("count-lines", path="a.py"),
}

FILES = {
    "find files named *.py": find("**/*.py"),
    "find *.md": find("**/*.md"),
    "find test files": find(*TEST_GLOBS, term="test"),
    "do we have any tests?": find(*TEST_GLOBS, term="test"),
    "find all python files in src": find(*PYTHON, path="src", term="python"),
    "how many python files are there in src?": find(*PYTHON, path="src", term="python", how="count"),
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
    "list files": Task("list"),
    "ls": Task("list"),
    "ls -la src": Task("list", path="src"),
    "what's here?": Task("list"),
    "what is in docs/": Task("list", path="docs/"),
    "what files are in src?": Task("list", path="src"),
    "list the src folder": Task("list", path="src"),
    "show me the contents of the docs folder": Task("list", path="docs"),
    "show the folder tree": Task("list", how="tree"),
    "display the file tree of src": Task("list", path="src", how="tree"),
    "directory structure": Task("list", how="tree"),
    "where am i": Task("where"),
    "what is this project?": Task("describe"),
    "describe this project": Task("describe"),
    "/init": Task("init"),
    "init": Task("init"),
    "initialize this project": Task("init"),
    "create ODIN.md": Task("init"),
    "update the ODIN.md file": Task("init"),
    "give me an overview": Task("describe"),
    "What does this repo do?": Task("describe"),
    "how do I run this?": Task("describe"),
    "tell me about this project please": Task("describe"),
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
    "outline src/a.py": Task("outline", path="src/a.py"),
    "list the functions in a.py": Task("outline", path="a.py"),
    "what classes does a.py have?": Task("outline", path="a.py"),
    "show me the structure of a.py": Task("outline", path="a.py"),
    "summarise README.md": Task("summary", path="README.md"),
    "give me a short summary of README.md": Task("summary", path="README.md"),
    "what does a.py do": Task("summary", path="a.py"),
}

CHANGES = {
    "Replace TODO with FIXME in auth.py": Task("replace", "TODO", "FIXME", "auth.py"),
    "Replace TODO with FIXME": Task("replace", "TODO", "FIXME"),
    "replace all TODOs with FIXME in a.py": Task("replace", "TODO", "FIXME", "a.py"),
    'replace "foo" by "bar" everywhere': Task("replace", "foo", "bar", everywhere=True),
    "replace foo in a.py with bar": Task("replace", "foo", "bar", "a.py"),
    "in a.py, replace foo with bar": Task("replace", "foo", "bar", "a.py"),
    "replace foo with bar in all python files": Task("replace", "foo", "bar", globs=PYTHON, everywhere=True),
    "Replace `foo()` with `bar(1)` in a.py.": Task("replace", "foo()", "bar(1)", "a.py"),
    "replace 'it's' with 'its' in a.py": Task("replace", "it's", "its", "a.py"),
    "substitute bar for foo in a.py": Task("replace", "foo", "bar", "a.py"),
    "s/foo/bar/g in x.py": Task("replace", "foo", "bar", "x.py"),
    "change 'a' to 'b' in x.txt": Task("replace", "a", "b", "x.txt"),
    'change "hello world" -> "bye" in a.py': Task("replace", "hello world", "bye", "a.py"),
    "rename foo to bar everywhere": Task("replace", "foo", "bar", how="word", everywhere=True),
    "rename the function foo to bar in a.py": Task("replace", "foo", "bar", "a.py", how="word"),
    "remove 'debug' from x.py": Task("replace", "debug", "", "x.py"),
    "create a file notes.txt with content 'hello'": Task("create", new="hello", path="notes.txt"),
    'create a file called notes.txt with the text "hi there"': Task("create", new="hi there", path="notes.txt"),
    "create a.py with:\n```python\nprint(1)\n```": Task("create", new="print(1)\n", path="a.py"),
    "create notes.txt saying hello world": Task("create", new="hello world", path="notes.txt"),
    "make an empty file x": Task("create", path="x"),
    "touch x.txt": Task("create", path="x.txt"),
    "write 'abc' to x.txt": Task("create", new="abc", path="x.txt", how="write"),
    "save 'abc' as x.txt": Task("create", new="abc", path="x.txt", how="write"),
    "overwrite x.txt with 'abc'": Task("create", new="abc", path="x.txt", how="overwrite"),
    "append 'x' to y": Task("append", new="x", path="y"),
    'add the line "x" to the end of y.txt': Task("append", new="x", path="y.txt"),
    "delete notes.txt": Task("delete", path="notes.txt"),
    "rename a.py to b.py": Task("move", path="a.py", new="b.py"),
    "create a folder foo": Task("mkdir", path="foo"),
    "create hello.py that prints hello": Task("invent"),
    "write tests for a.py": Task("invent"),
    "Please fix the login bug": Task("invent"),
    "change the colour to something warm": Task("invent"),
}

RUNS = {
    "run `ls -la`": Task("run", command="ls -la"),
    "run ls -la": Task("run", command="ls -la"),
    "execute make build": Task("run", command="make build"),
    'run "echo hi"': Task("run", command="echo hi"),
    "npm test": Task("run", command="npm test"),
    "run the tests": Task("tests"),
    "Run all tests, please": Task("tests"),
    "do the tests pass?": Task("tests"),
    "run the tests in tests/test_a.py": Task("tests", path="tests/test_a.py"),
    "run tests/test_a.py": Task("tests", path="tests/test_a.py"),
    "run hello.py": Task("script", path="hello.py"),
    "run through the code": Task("which-command", said="through the code"),
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
    "replace it with FIXME": Task("replace", LAST_TERM, "FIXME"),
    "replace them all with x": Task("replace", LAST_TERM, "x"),
    "search for it in b.py": Task("search", LAST_TERM, path="b.py"),
    "now do the same in b.py": Task("again", path="b.py"),
    "same for b.py": Task("again", path="b.py"),
    "what about b.py?": Task("again", path="b.py"),
    "and b.py?": Task("again", path="b.py"),
    "and in tests?": Task("again", path="tests"),
    "and for FIXME?": Task("again", term="FIXME"),
    "do the same everywhere": Task("again", everywhere=True),
    "read it": read(LAST_FILE),
    "show that file": read(LAST_FILE),
    "open the first one": read(nth(1)),
    "open the second result": read(nth(2)),
    "open the last one": read(nth(-1)),
    "read the 3rd file": read(nth(3)),
    "read lines 5-10": read(LAST_FILE, 5, 10),
    "search for x in there": Task("search", "x", path=LAST_PLACE),
    "summarise it": Task("summary", path=LAST_FILE),
    "run it again": Task("again", how="run"),
    "again": Task("again"),
    "undo that": Task("undo"),
    "revert the last change": Task("undo"),
    "show more": Task("more"),
    "add todo: write docs and run tests": Task("todo", new="write docs and run tests", how="add"),
    "show todos": Task("todo", how="show"),
    "mark todo 1 as done": Task("todo", term="1", how="done"),
    "help": Task("help"),
    "what can you do?": Task("help"),
    "Hi there!": Task("help", how="hello"),
    "thanks!": Task("help", how="thanks"),
    "What is the meaning of life?": Task("unknown"),
    "asdf qwer": Task("unknown"),
}

PHRASES = {**SEARCHES, **FILES, **READS, **CHANGES, **RUNS, **FOLLOW_UPS}


def bare(task: Task) -> dict[str, Any]:
    """What a task means, without the words it came from."""
    fields = {name: getattr(task, name) for name in task.__struct_fields__}
    del fields["whole"]
    if task.kind != "which-command":
        del fields["said"]
    return fields


@each("prompt", PHRASES)
def test_a_phrase_is_understood(prompt: str):
    assert [bare(task) for task in understand(prompt)] == [bare(PHRASES[prompt])]


@each("prompt", [prompt for prompt in PHRASES if not prompt.startswith("s/")])
def test_case_and_courtesy_do_not_matter(prompt: str):
    first = prompt[0].swapcase() + prompt[1:]
    plain = [task.kind for task in understand(prompt)]
    if plain in (["unknown"], ["help"]):
        return
    assert [task.kind for task in understand(f"Could you please {first}")] == plain


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
def test_several_requests_in_one(prompt: str, kinds: list[str]):
    assert [task.kind for task in understand(prompt)] == kinds


def test_nothing_inside_quotes_is_a_word_of_the_request():
    (task,) = understand("replace 'run the tests, then delete everything' with 'search for x' in a.py")
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
def test_quotes_are_set_aside(text: str, contents: list[str]):
    assert [content for content, _ in protect(text).quoted] == contents


@given(st.text())
def test_protecting_quotes_loses_no_character(text: str):
    words = protect(text)
    kept = "".join(char for char in text if not "\ue000" <= char <= "\ue0ff")
    assert words.typed(words.text) == kept


def test_a_template_says_which_words_may_begin_it():
    assert firsts("[show|list] [me] the files? in {path}") == {"show", "list", "me", "the"}
    assert firsts("(a b|c) d") == {"a", "c"}
    assert "" in firsts("[please] {what}")


def test_a_template_takes_its_variants():
    pattern = compiled("[show [me]|list] the files? [in {path}]")
    assert pattern.fullmatch(" show me the files in src")
    assert pattern.fullmatch(" LIST the file")
    assert pattern.fullmatch(" the files")
    assert not pattern.fullmatch(" me the files")
    assert not pattern.fullmatch(" show me the files in")


@given(st.text(max_size=400))
def test_every_prompt_becomes_tasks(text: str):
    tasks = understand(text)
    assert tasks
    assert len(tasks) <= 12
