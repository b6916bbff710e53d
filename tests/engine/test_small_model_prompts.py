"""Requests to a small model and the ends of its turns, for many prompts in small projects."""

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
async def test_files_in_a_reply_are_written_unless_the_prompt_is_a_question(runner: CaseRunner) -> None:
    fixed, wrong = {"calc.py": ADD}, {"calc.py": WRONG}
    await runner.check_all(
        *(
            Case(prompt, wrong, (block("calc.py", ADD),), after=fixed, requests=1)
            for prompt in ("Why is add wrong? Fix it.", "Check that add in calc.py adds", "add(1, 2) gives -1")
        ),
        Case("What does add in calc.py do?", wrong, (block("calc.py", ADD),), after=wrong),
        Case("Could you explain how to use calc.py?", fixed, ("Call add.",), answer="Call add.", requests=1),
        Case("Fix calc.py", wrong, ("Use +.",), answer="Use +.", requests=1),
        Case("Fix calc.py", wrong, (block("calc.py", WRONG), block("calc.py", ADD)), after=fixed, requests=2),
        Case("Fix add", {**wrong, "b.py": "x = 1\n"}, ("```\ny = 2\n```", block("calc.py", ADD)), after=fixed),
        Case("Create b.py with x = 1", wrong, ("Sure.", block("b.py", "x = 1\n")), after={"b.py": "x = 1\n"}),
    )


@pytest.mark.slow
async def test_turn_succeeds_only_if_something_was_done(runner: CaseRunner) -> None:
    files = {"calc.py": WRONG, "Makefile": "test:\n\tgrep -q 'a + b' calc.py\n"}
    still = block("calc.py", WRONG.replace("a - b", "b - a"))
    await runner.check_all(
        Case("The tests fail. Fix it.", files, (still, still, still), is_error=True, answer="still fails"),
        Case("The tests fail. Fix it.", files, (still, "Now it works.", "Now it works."), is_error=True),
        Case("The tests fail. Fix it.", files, (still, still, block("calc.py", ADD)), after={"calc.py": ADD}),
        Case("Run the tests. If one fails, fix it.", {**files, "calc.py": ADD}, ("All passed.",), answer="All passed."),
        Case(
            "Sort the lines in words.txt.",
            {"words.txt": "b\na\n"},
            ("RUN sort words.txt", block("words.txt", "a\nb\n")),
            last_request="Output of sort words.txt:\na\nb",
            after={"words.txt": "a\nb\n"},
        ),
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


@pytest.mark.slow
async def test_request_has_the_lines_and_files_that_answer_a_question(runner: CaseRunner) -> None:
    text = {"text/utils.py": "def slugify(text):\n    return text\n", "main.py": "from text.utils import slugify\n"}
    ports = {"server.js": "const c = require('./config');\n", "config.js": "exports.port = 8080;\n"}
    ports |= {f"part{number}.js": "x();\n" * 60 for number in range(4)}
    await runner.check_all(
        Case("How many TODOs are in a.py?", {"a.py": "# TODO a\n"}, shown=("TODO occurs in 1 line:\na.py:1:# TODO a",)),
        Case("Where is the function slugify used?", text, shown=("main.py:1:from text.utils import slugify",)),
        Case("what port does the server use by default?", ports, shown=("exports.port = 8080",)),
    )


@pytest.mark.slow
async def test_a_project_with_too_many_files_to_list_is_searched(runner: CaseRunner) -> None:
    files = {f"a/part{number}.py": f"x = {number}\n" for number in range(140)}
    files |= {"z/deep.py": "def find_deep():\n    return 1\n", "z/user.py": "find_deep()\n"}
    await runner.check_all(
        Case("What does find_deep return?", files, shown=("z/deep.py\n```python\ndef find_deep():",)),
        Case("What is in deep.py?", files, shown=("z/deep.py\n```python\ndef find_deep():",)),
        Case("How often is find_deep called?", files, shown=("find_deep occurs in 2 lines:",)),
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
        Case(
            "Fix part0.py",
            files,
            ("", block("part0.py", "x = 1\n"), block("part0.py", "x = (\n")),
            is_error=True,
            answer="3 times in a row",
        ),
    )
