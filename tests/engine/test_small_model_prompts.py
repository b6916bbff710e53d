"""Requests to a small model and the ends of its turns, for many prompts in small projects."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from msgspec import Struct

from odin.testing import ScriptedServer, say
from tests.engine.conftest import Start, Talk

NAME = "qwen2.5-coder-1.5b"


class Case(Struct, frozen=True):
    """A prompt in a project, the replies of the model, and the expected outcome."""

    prompt: str
    files: Mapping[str, str]
    replies: tuple[str, ...] = ("It is so.",)
    shown: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Texts that are, and are not, in the first request."""
    last_request: str = ""
    """A text in the last request."""
    answer: str = ""
    """A text in the answer or in the error."""
    after: Mapping[str, str | None] = {}
    is_error: bool = False
    requests: int | None = None


class Player:
    """Answers each request with the next reply of the running case."""

    def __init__(self) -> None:
        self.replies: list[str] = []
        self.requests: list[str] = []

    def __call__(self, seen: Any) -> Any:
        self.requests.append(seen.json["messages"][-1]["content"])
        return say(self.replies.pop(0) if self.replies else "No more.")


class CaseRunner:
    def __init__(self, talk: Talk, player: Player, workspace: Path) -> None:
        self.talk = talk
        self.player = player
        self.workspace = workspace

    async def check_all(self, *cases: Case) -> None:
        """Run all cases and fail with a list of those that have another outcome."""
        wrong = [f"{case.prompt!r}: {fault}" for case in cases for fault in await self._check_case(case)]
        assert not wrong, "\n\n".join(wrong)

    async def _check_case(self, case: Case) -> list[str]:
        self._set_up(case)
        ended = await self.talk.say(case.prompt)
        first, last = self.player.requests[:1], self.player.requests[-1:]
        text = f"{ended.text}{ended.error}"
        checks = {
            f"error {ended.error_kind}: {text}": (ended.reason == "error") == case.is_error,
            f"the answer is {text!r}": case.answer in text,
            f"{len(self.player.requests)} requests": case.requests in (None, len(self.player.requests)),
            f"the last request is {last}": case.last_request in "".join(last),
        }
        checks |= {f"{one!r} is not shown in {first[0]}": one in first[0] for one in case.shown}
        checks |= {f"{one!r} is shown in {first[0]}": one not in first[0] for one in case.hidden}
        checks |= {f"{path} is {self._read(path)!r}": self._read(path) == text for path, text in case.after.items()}
        return [fault for fault, is_right in checks.items() if not is_right]

    def _set_up(self, case: Case) -> None:
        for entry in self.workspace.iterdir():
            rmtree(entry) if entry.is_dir() else entry.unlink()
        for path, text in case.files.items():
            file = self.workspace / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode("latin-1"))
        self.player.replies, self.player.requests = list(case.replies), []

    def _read(self, path: str) -> str | None:
        file = self.workspace / path
        return file.read_text() if file.exists() else None


@pytest.fixture
async def runner(start: Start, workspace: Path) -> AsyncIterator[CaseRunner]:
    player = Player()
    server = ScriptedServer(player, local="llamacpp", models=[NAME], window=16_384)
    server.start()
    own: dict[str, Any] = {"base_url": server.openai_url, "type": "openai-chat", "models": {NAME: {}}}
    talk = await start([], "openai", server=server, config={"providers": {"llamacpp": own}}, model=f"llamacpp/{NAME}")
    yield CaseRunner(talk, player, workspace)
    server.stop()


def block(path: str, text: str) -> str:
    return f"{path}\n```\n{text}```"


ADD = "def add(a, b):\n    return a + b\n"
WRONG = ADD.replace("+", "-")
TEST = (
    "import unittest\n\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
)


@pytest.mark.slow
async def test_ordinary_words_are_not_run_as_commands(runner: CaseRunner) -> None:
    total = "print(sum(range(1, 11)))\n"
    await runner.check_all(
        Case(
            "write a python script sum.py that prints the sum of 1 to 10",
            {"a.py": "x = 1\n"},
            (block("sum.py", total),),
            hidden=("Output of",),
            after={"sum.py": total},
            requests=1,
        ),
        Case("What does main.py print?", {"main.py": "print(6 * 7)\n"}, shown=("Output of python3 main.py:\n42",)),
        Case("Run the program and tell me what it prints", {"go.py": "print(6)\n"}, shown=("python3 go.py:\n6",)),
        Case("run main.py", {"main.py": "print(6 * 7)\n"}, shown=("Output of python3 main.py:\n42",), requests=1),
        Case(
            "Create hi.py that prints hi and run it with python3 hi.py.",
            {"a.py": "x = 1\n"},
            (block("hi.py", "print('hi')\n"),),
            hidden=("Output of",),
            answer="`python3 hi.py`:\nhi",
        ),
    )


@pytest.mark.slow
async def test_files_in_a_reply_are_written_unless_the_prompt_is_a_pure_question(runner: CaseRunner) -> None:
    fixed = {"calc.py": ADD}
    await runner.check_all(
        *(
            Case(prompt, {"calc.py": WRONG}, (block("calc.py", ADD),), after=fixed, requests=1)
            for prompt in (
                "Why is add wrong? Fix it.",
                "Is there a bug in calc.py? If yes, fix it",
                "Check that add in calc.py adds",
                "When I call add(1, 2) it gives -1",
            )
        ),
        Case("What does add in calc.py do?", {"calc.py": WRONG}, (block("calc.py", ADD),), after={"calc.py": WRONG}),
        Case("How do I add and fix things?", {"calc.py": WRONG}, (block("calc.py", ADD),), after={"calc.py": WRONG}),
        Case("Could you explain how to use calc.py?", {"calc.py": ADD}, ("Call add.",), answer="Call add.", requests=1),
        Case("calc.py has a bug", {"calc.py": WRONG}, ("It has.", "Use +."), answer="Use +.", requests=2),
        Case("Fix calc.py", {"calc.py": WRONG}, ("It has.", "Use +."), is_error=True, requests=2),
    )


@pytest.mark.slow
async def test_turn_succeeds_only_if_something_was_done(runner: CaseRunner) -> None:
    files = {"calc.py": WRONG, "Makefile": "test:\n\tgrep -q 'a + b' calc.py\n"}
    still = block("calc.py", WRONG.replace("a - b", "b - a"))
    await runner.check_all(
        Case("the test suite fails, fix it", files, ("Use +.", "Use +."), is_error=True, after={"calc.py": WRONG}),
        Case("Fix the failing tests.", files, ("RUN cat calc.py", "It subtracts.", "It subtracts."), is_error=True),
        Case("The tests fail. Fix it.", files, (still, still, still), is_error=True, answer="still fails"),
        Case("The tests fail. Fix it.", files, (still, "Now it works.", "Now it works."), is_error=True),
        Case("The tests fail. Fix it.", files, (still, still, block("calc.py", ADD)), after={"calc.py": ADD}),
        Case("Run the tests. If one fails, fix it.", files, ("One failed.",) * 2, is_error=True),
        Case("Run the tests. If one fails, fix it.", {**files, "calc.py": ADD}, ("All passed.",), answer="All passed."),
        Case(
            "Sort the lines in words.txt.",
            {"words.txt": "b\na\n"},
            ("RUN sort words.txt", block("words.txt", "a\nb\n")),
            last_request="This command has changed no file.",
            after={"words.txt": "a\nb\n"},
        ),
        Case("Sort the lines in words.txt.", {"words.txt": "b\na\n"}, ("RUN sort words.txt",) * 3, is_error=True),
        Case(
            "Sort the lines in words.txt.",
            {"words.txt": "b\na\n"},
            ("RUN sort -o words.txt words.txt",),
            answer="Changed words.txt.",
            requests=1,
        ),
    )


async def test_checks_that_failed_before_do_not_fail_a_change(runner: CaseRunner) -> None:
    red = TEST + "\n    def test_other(self):\n        self.fail()\n"
    documented = ADD.replace("):\n", '):\n    """Add."""\n')
    doc = "Add a docstring to add in calc.py."
    reply = (block("calc.py", documented),)
    after = {"calc.py": documented}
    await runner.check_all(
        Case(
            doc,
            {"calc.py": ADD, "tests/test_calc.py": red},
            (block("calc.py", WRONG), *reply),
            hidden=("Output of",),
            last_request="python3 -B -m unittest discover -s tests fails:",
            answer="fails, as it did before.",
            after=after,
        ),
        Case(
            "sub in sub.py is wrong. Fix it.",
            {"sub.py": "sub = 1\n", "Makefile": "test:\n\tgrep -q 3 sub.py\n"},
            (block("sub.py", "sub = 2\n"), "I cannot."),
            last_request="It failed before, too. If the task is about it, write the complete files again.",
            answer="I cannot.",
            requests=2,
        ),
        Case(doc, {"calc.py": ADD, "Makefile": "test:\n\tno-such-program\n"}, reply, after=after, requests=1),
    )


async def test_implemented_function_must_pass_its_tests_and_examples(runner: CaseRunner) -> None:
    """Before the change, tests and examples fail because the function is missing; afterwards for another reason."""
    missing = (
        'def half(n):\n    """Return half of n.\n\n    >>> half(4)\n    2\n    """\n    raise NotImplementedError\n'
    )
    wrong, right = (
        missing.replace("raise NotImplementedError", "return n"),
        missing.replace("raise NotImplementedError", "return n // 2"),
    )
    check = {"Makefile": "test:\n\tgrep -q '//' half.py || (echo half is wrong; exit 1)\n"}
    replies = (block("half.py", wrong), block("half.py", right))
    task = "Implement half in half.py as its docstring says."
    await runner.check_all(
        Case(
            task, {"half.py": missing}, replies, last_request="Expected:\n    2\nGot:\n    4", after={"half.py": right}
        ),
        Case(task, {"half.py": missing.replace(">>>", ""), **check}, replies, last_request="half is wrong"),
    )


@pytest.mark.slow
async def test_hidden_ignored_empty_and_binary_files_are_found(runner: CaseRunner) -> None:
    env = {".env": "DEBUG=true\nPORT=1\n", "a.py": "x = 1\n"}
    await runner.check_all(
        Case(
            "Set DEBUG to false in .env",
            env,
            (block(".env", "DEBUG=false\nPORT=1\n"),),
            shown=("PORT=1",),
            answer="Changed .env.",
            requests=1,
        ),
        Case("Delete the file empty.txt", {"empty.txt": ""}, ("DELETE empty.txt",), after={"empty.txt": None}),
        Case("Delete the folder old", {"old/a": "x\n", "b": "y\n"}, ("DELETE old",), after={"old/a": None, "b": "y\n"}),
        Case(
            "Rename a.txt to b.txt",
            {"a.txt": "x\n"},
            ("RUN mv a.txt b.txt",),
            answer="Created b.txt. Deleted a.txt.",
            requests=1,
        ),
        Case("Delete logo.png", {"logo.png": "\x89PNG\0", "a.py": ""}, ("DELETE logo.png",), after={"logo.png": None}),
        Case("Delete sub/.env.old", {"sub/.env.old": "x\n"}, ("DELETE sub/.env.old",), after={"sub/.env.old": None}),
        Case(
            "Delete debug.log",
            {"debug.log": "x\n", ".gitignore": "*.log\n"},
            ("DELETE debug.log",),
            after={"debug.log": None},
        ),
    )


USERS = '[{"name": "Ann"}, {"name": "Bob"}, {"name": "Cy"}]\n'
FRUITS = "apple pear\nApple apple pineapple\n"
BOX = (
    "class Box:\n    def open(self):\n        pass\n\n    def close(self):\n        pass\n\n\n"
    "def main():\n    print(Box())\n"
)
SERVER = "const f = (a) => a;\nfunction g() {}\nclass A {\n  run(x) {\n  }\n}\n"


SHOP = {
    "shop.py": "def price(count):\n    return count * 3\n\n\nclass Pot:\n    def __init__(self, level):\n"
    "        self.level = level\n\n    def add(self, more):\n        self.level += more\n        return self.level\n"
}
TRIP = {
    "trip.py": "class Trip:\n    def __init__(self, km):\n        self.km = km\n\n"
    "    def hours(self):\n        return self.km / 5\n"
}
CALLED = {
    "lib/tags.py": "def tag(n, word):\n    if n < 0:\n        raise ValueError('too few')\n    return word * n\n",
    "wipe.py": "import os\n\n\ndef wipe(n):\n    os.remove('a.js')\n    return n\n",
    "loud.py": "def loud(n):\n    return n\n\n\nprint(loud(2))\n",
    "a.js": "function total(xs) {\n  console.log(xs.length);\n}\nmodule.exports = { total };\n",
}


@pytest.mark.slow
async def test_request_has_the_counts_and_lookups_that_answer_a_question(runner: CaseRunner) -> None:
    todo = {"utils.py": "# TODO a\n# TODO b\n", "main.py": "# TODO c\n"}
    text = {"text/utils.py": "def slugify(text):\n    return text\n", "main.py": "from text.utils import slugify\n"}
    ports = {"server.js": "const c = require('./config');\n", "config.js": "exports.port = 8080;\n"}
    ports |= {f"part{number}.js": "x();\n" * 60 for number in range(4)}
    await runner.check_all(
        Case("How many TODO comments are in utils.py?", todo, shown=("TODO occurs 2 times in utils.py, in 2 lines.",)),
        Case("How many TODOs are there?", todo, shown=("TODO occurs 3 times in 2 files",)),
        Case(
            "how many times does the word apple appear in fruits.txt",
            {"fruits.txt": FRUITS},
            shown=("apple occurs 2 times in fruits.txt, in 2 lines.\nWith any case, apple occurs 3 times.",),
        ),
        Case("How many words are in fruits.txt?", {"fruits.txt": FRUITS}, shown=("fruits.txt has 5 words.",)),
        Case("How many users are in users.json?", {"users.json": USERS}, shown=("users.json is a list of 3 items.",)),
        Case("how many rows are in d.csv", {"d.csv": "a,b\n1,2\n3,4\n"}, shown=("d.csv has 2 rows below the header",)),
        Case("how many methods does the class Box have?", {"box.py": BOX}, shown=("2 methods (Box.open, Box.close)",)),
        Case("How many functions are in s.js?", {"s.js": SERVER}, shown=("2 functions (f, g) and 1 method (run).",)),
        Case("count the python files in this project", todo, shown=("There are 2 files: 2 with .py.",)),
        Case("How many lines of code are in text?", text, shown=("text/utils.py has 2 lines.",), hidden=("Together",)),
        Case("How many exports does s.js have?", {"s.js": SERVER}, hidden=("lines",)),
        Case("What's the sum in d.csv?", {"d.csv": "a,n\nx,2\ny,4.5\n"}, shown=("column n: 2 numbers, sum 6.5",)),
        Case("What is the largest number in n.txt?", {"n.txt": "3\n-7\n12\n"}, shown=("smallest -7, largest 12.",)),
        Case("How many lines are there in total?", todo, shown=("Together 3 lines.",)),
        Case("How many times is print called in box.py?", {"box.py": BOX}, shown=("print is called 1 time.",)),
        Case("How many files import slugify?", text, shown=("slugify is imported in 1 file (main.py).",)),
        Case("How many tests are there?", {"test_calc.py": TEST}, shown=("test_calc.py has 1 test (test_add).",)),
        Case("Where is slugify defined?", text, shown=("slugify is defined in text/utils.py, line 1.",)),
        Case("who calls slugify", text, shown=("main.py:1:from text.utils import slugify",)),
        Case('What does tag(2, "x") return?', CALLED, shown=("tag(2, \"x\") returns 'xx'",)),
        Case("what does tag return for -1, 'b'?", CALLED, shown=("tag(-1, 'b') raises ValueError: too few.",)),
        Case("What does total([1, 2]) in a.js print?", CALLED, shown=("total([1, 2]) prints 2",)),
        Case("Which price does shop.py compute for 12 plants?", SHOP, shown=("price(12) returns 36",)),
        Case(
            "I make a Pot(5), call add(3) and then add(4). What does the last call return?", SHOP, shown=("returns 12",)
        ),
        Case("How long does a trip of 4 km take by hours?", TRIP, shown=("print(Trip(km).hours())",)),
        Case("What does tag(2 return?", CALLED, hidden=("returns",)),
        Case("What is wrong with price in line 12?", SHOP, hidden=("price(12) returns",)),
        Case("What does wipe(1) return?", CALLED, hidden=("wipe(1) returns",)),
        Case("What does loud(1) return?", CALLED, hidden=("loud(1) returns",)),
        Case("What does tag(n, word) return?", CALLED, hidden=("tag(n, word) returns",)),
        Case("what port does the server use by default?", ports, shown=("exports.port = 8080",)),
    )


async def test_omissions_of_a_change_are_noticed(runner: CaseRunner) -> None:
    users = {
        "a.js": "function getUser() {}\nmodule.exports = { getUser };\n",
        "b.js": "const { getUser } = require('./a');\ngetUser();\n",
        "README.md": "Call getUser.\n",
    }
    renamed = {path: text.replace("getUser", "fetchUser") for path, text in users.items()}
    sums = {"calc.py": ADD, "main.py": "from calc import add\n\nprint(add(1, 2))\n", "README.md": "To add, add.\n"}
    plus = {path: text.replace("add", "plus") for path, text in sums.items()}
    await runner.check_all(
        Case(
            "rename getUser to fetchUser in all files, and keep it short",
            users,
            (block("a.js", renamed["a.js"]),),
            after=renamed,
            answer="Changed a.js, README.md, b.js.",
            requests=1,
        ),
        Case(
            "Rename the function add to plus, and keep it short",
            sums,
            (block("calc.py", plus["calc.py"]), block("main.py", plus["main.py"])),
            last_request="add still occurs in main.py:1, main.py:3. Change these files, too.",
            after={**plus, "README.md": sums["README.md"]},
        ),
        Case(
            "Set the limit in s.json to 750",
            {"s.json": '{"limit": 500}\n'},
            (block("s.json", '{"limit": 700}\n'), block("s.json", '{"limit": 750}\n')),
            last_request="750 is not in s.json.",
            after={"s.json": '{"limit": 750}\n'},
        ),
        Case(
            "Extract the number 0.19 in tax.py into a constant VAT",
            {"tax.py": "def tax(net):\n    return net * 0.19\n"},
            (block("tax.py", "VAT = 0.19\n"), block("tax.py", "VAT = 0.19\n\n\ndef tax(net):\n    return net * VAT\n")),
            last_request="VAT is defined, but nothing uses it. Write it where its value is used in tax.py.",
            after={"tax.py": "VAT = 0.19\n\n\ndef tax(net):\n    return net * VAT\n"},
        ),
    )


@pytest.mark.slow
async def test_wrong_values_in_a_new_test_are_replaced_by_results_of_the_code(runner: CaseRunner) -> None:
    test = TEST.replace("3)", "4)\n        self.assertEqual(add(2, 2), 5)")
    right = TEST.replace("3)", "3)\n        self.assertEqual(add(2, 2), 4)")
    await runner.check_all(
        Case(
            "Write a unittest for add in test_calc.py",
            {"calc.py": ADD},
            (block("test_calc.py", test), block("test_calc.py", test)),
            last_request="add(1, 2) is 3: line 8 of test_calc.py expects a wrong value.",
            after={"calc.py": ADD, "test_calc.py": right},
            answer="test_calc.py now expects what the code returns. Check that these values are right.",
            requests=2,
        ),
        Case(
            "Write a unittest in test_calc.py that shows the bug in add",
            {"calc.py": WRONG},
            (block("test_calc.py", TEST), block("test_calc.py", TEST)),
            is_error=True,
        ),
        Case(
            "The tests fail. Fix them.",
            {"calc.py": WRONG, "test_calc.py": TEST},
            (block("calc.py", WRONG.replace("- b", "* b")), block("calc.py", WRONG)),
            is_error=True,
        ),
        Case(
            "Write a test of f with node:test in f.test.js",
            {"f.js": "exports.f = (n) => n;\n"},
            (block("f.test.js", "test('f', () => {});\n"), block("f.test.js", "require('node:test');\n")),
            last_request='f.test.js must start with const test = require("node:test");',
            after={"f.test.js": "require('node:test');\n"},
        ),
    )


async def test_a_new_script_is_run(runner: CaseRunner) -> None:
    wrong, right = "import sys\n\nprint(sys.argv[1])\n", "print(add(1, 2))\n"
    await runner.check_all(
        Case(
            "Create a script sum.py that prints what add(1, 2) returns",
            {"calc.py": ADD},
            (block("sum.py", wrong), block("sum.py", right)),
            last_request="python3 sum.py fails:",
            after={"sum.py": f"from calc import add\n\n\n{right}"},
        ),
    )


@pytest.mark.slow
async def test_existing_assertions_are_not_changed(runner: CaseRunner) -> None:
    old = TEST.replace("3)", "4)")
    new = old + "\n    def test_more(self):\n        self.assertEqual(add(2, 2), 5)\n"
    await runner.check_all(
        Case(
            "Add a test of add with 2 and 2 to test_calc.py",
            {"calc.py": ADD, "test_calc.py": old},
            (block("test_calc.py", new),) * 2,
            after={"test_calc.py": new.replace("5)", "4)")},
        ),
        Case(
            "Should I rename add to plus?",
            {"calc.py": ADD},
            ("Yes.",),
            answer="Yes.",
            after={"calc.py": ADD},
            requests=1,
        ),
    )


@pytest.mark.slow
async def test_unambiguous_rename_needs_no_model(runner: CaseRunner) -> None:
    users = {"a.js": "function getUser() {}\nmodule.exports = { getUser };\n", "b.js": "const a = require('./a');\n"}
    sums = {"calc.py": ADD, "main.py": "from calc import add\n\nprint(add(1, 2), 'to add')\n", "test_calc.py": TEST}
    plus = {path: re.sub(r"(?<!to )(?<!_)add", "plus", text) for path, text in sums.items()}
    store = {"s.go": "package s\n\nfunc (s *Store) Add(x int) {}\n", "f.go": "package s\n\nfunc f() {\n\ts.Add(1)\n}\n"}
    more = {path: text.replace("Add", "Put") for path, text in store.items()}
    await runner.check_all(
        Case(
            "rename getUser to fetchUser in all files",
            users,
            after={"a.js": users["a.js"].replace("getUser", "fetchUser")},
            answer="Renamed getUser to fetchUser.\n\nChanged a.js.",
            requests=0,
        ),
        Case("Rename the function add to plus.", sums, after=plus, requests=0),
        Case("add in calc.py is a bad name, plus would be better", sums, after=plus, requests=0),
        Case(
            "Rename the method Add to Put",
            store,
            (block("s.go", more["s.go"]), block("f.go", more["f.go"])),
            last_request="Add still occurs in f.go:4. Change these files, too.",
            after=more,
        ),
    )


@pytest.mark.slow
async def test_a_project_with_too_many_files_to_list_is_searched(runner: CaseRunner) -> None:
    files = {f"a/part{number}.py": f"x = {number}\n" for number in range(140)}
    files |= {"z/deep.py": "def find_deep():\n    return 1\n", "z/user.py": "find_deep()\n"}
    await runner.check_all(
        Case("What does find_deep return?", files, shown=("z/deep.py\n```python\ndef find_deep():",)),
        Case("What is in deep.py?", files, shown=("z/deep.py\n```python\ndef find_deep():",)),
        Case("How many times is find_deep called?", files, shown=("find_deep is called 1 time.",)),
        Case("How many files are there?", files, shown=("There are 142 files.",)),
        Case("How many functions are there?", files, hidden=("functions (", "Together")),
    )


async def test_tests_are_not_adapted_to_a_bug(runner: CaseRunner) -> None:
    files = {"calc.py": WRONG, "test_calc.py": TEST, "Makefile": "test:\n\tgrep -q 'a + b' calc.py\n"}
    wrong = block("test_calc.py", TEST.replace(", 3)", ", -1)"))
    await runner.check_all(
        Case(
            "The tests fail. Fix it.",
            files,
            (wrong, block("calc.py", ADD)),
            last_request="The tests are right. Fix the code, not test_calc.py.",
            after={"calc.py": ADD, "test_calc.py": TEST},
        ),
        Case("The tests fail. Fix it.", files, (f"{wrong}\n\n{block('calc.py', ADD)}",), after={"test_calc.py": TEST}),
    )


async def test_file_not_yet_shown_is_shown_before_the_model_writes_it(runner: CaseRunner) -> None:
    lines = "x = 1\n" + "".join(f"y{number} = 1\n" for number in range(60))
    files = {f"part{number}.py": lines for number in range(9)}
    await runner.check_all(
        Case(
            "Set x to 2 in part0.py and wherever it is needed.",
            files,
            (block("part8.py", "x = 2\n"), block("part8.py", lines.replace("x = 1", "x = 2"))),
            last_request="part8.py was not shown yet.\n\nTask: ",
            after={"part8.py": lines.replace("x = 1", "x = 2")},
        ),
        Case("Fix part0.py", files, ("", "So.", "part0.py\n```\nx = (\n```"), is_error=True, answer="3 times in a row"),
    )
