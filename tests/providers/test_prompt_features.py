"""What a prompt for a small model names: paths, terms, a command, the tests."""

from typing import Any

from odin.providers.whole_files.project_tests import PYTEST
from odin.providers.whole_files.prompt_features import classify_prompt
from tests.table import each


@each(
    "prompt, command",
    [
        ("write a python script that prints the sum of 1 to 10", ""),
        ("write tests for slugify, run them and make sure they pass", ""),
        ("fix the error in calc.py and make it work", ""),
        ("make the output upper case", ""),
        ("please make main.py print the date", ""),
        ("create a bash script that prints the date", ""),
        ("write a go program that prints hello", ""),
        ("The output should go to stdout", ""),
        ("Add a node that prints its name", ""),
        ("Run pytest and tell me the result", PYTEST),
        ("run make and report", "make"),
        ("add an npm script that runs the tests", ""),
        ("what does `python3 cli.py --name Ann` print?", "python3 cli.py --name Ann"),
        ("run `python3 cli.py add 1 2` now", "python3 cli.py add 1 2"),
        ("Run go test ./... and report", "go test ./..."),
        ("run main.py", "python3 main.py"),
        ("Run the script main.py and tell me its output", "python3 main.py"),
        ("Run node index.js and tell me the total it prints.", "node index.js"),
        ("Run python3 a/b.py --fast 3 and tell me what it prints.", "python3 a/b.py --fast 3"),
        ("python3 check.py fails. Find the bug and fix it.", "python3 check.py"),
        ("Use python3 main.py as an example.", ""),
        ("run npm test", "npm test"),
        ("Change the Makefile so that `make deploy` fails without a token", ""),
        ("Add a script that I can run with `npm run deploy`", ""),
        ("Run `make clean` and tell me the output", "make clean"),
        ("npm start prints an error", ""),
        ("run npm start", "npm start"),
        ("when I run `python main.py data.csv` it fails", "python main.py data.csv"),
        ("run python -m unittest and report", "python -m unittest"),
        ("make test fails", "make test"),
        ("Run pytest tests/test_a.py -q.", f"{PYTEST} tests/test_a.py -q"),
        ("python main.py --name Bob crashes", "python main.py --name Bob"),
        ("running node cli.js --verbose prints too much", "node cli.js --verbose"),
        ("node server.js fails with an error", ""),
        ("Run python3 main.py.", "python3 main.py"),
        ("Run `./build.sh` and tell me the output", "./build.sh"),
        ("the program should run go vet", "go vet"),
    ],
)
def test_only_a_certain_command_is_extracted(prompt: str, command: str) -> None:
    assert classify_prompt(prompt).command == command


@each(
    "prompt, expected",
    [
        ("Fix the typo 'recieve' in README.md.", {"paths": ("README.md",), "terms": ("recieve",), "only_edits": True}),
        ("Add a docstring to the function discount in a/b.py.", {"terms": ("discount",), "paths": ("a/b.py",)}),
        ("Rename calc_sum to totalOf everywhere", {"terms": ("calc_sum", "totalOf")}),
        ("How many TODO comments are in the shop folder?", {"is_question": True, "paths": ("shop",)}),
        ("In which file is the class Invoice defined?", {"terms": ("Invoice",), "only_edits": False}),
        ("Why is it wrong? Fix it.", {"is_question": False}),
        ("Run python3 a/b.py and tell me what it prints.", {"command": "python3 a/b.py", "only_edits": False}),
        ("The tests fail. Fix them.", {"runs_tests": True, "trusts_tests": True, "only_edits": False}),
        ("The tests fail. Fix test_a.py.", {"runs_tests": True, "trusts_tests": False}),
        ("Why do the tests fail?", {"runs_tests": True, "trusts_tests": False}),
        ("Set DEBUG to false in .env", {"paths": (".env",)}),
        ("Add *.log to .gitignore", {"paths": (".gitignore",)}),
        ("Fix a/b.py, c.js and .github/w/x.yml", {"paths": ("a/b.py", "c.js", ".github/w/x.yml")}),
        ("As in e.g. this: ... it prints .5 only", {"paths": ()}),
        ("Use math.pi instead of 3.14 and os.path in a.py", {"paths": ("a.py",)}),
        ("The function total uses area() in cart.js", {"terms": ("area", "total")}),
        ("Delete sub/.env.old", {"paths": ("sub/.env.old",)}),
        ("Call fooBar 'My App'.", {"terms": ("fooBar", "My App")}),
    ],
)
def test_names_and_flags_of_a_prompt_are_read(prompt: str, expected: dict[str, Any]) -> None:
    features = classify_prompt(prompt)
    assert {name: getattr(features, name) for name in expected} == expected


def test_only_both_ends_of_a_very_long_prompt_are_read() -> None:
    features = classify_prompt("Fix a.py.\n" + "word " * 9_000 + "x" * 50_000 + "\nRun the tests in b.py.")
    assert features.paths == ("a.py", "b.py")
    assert len(features.text) < 7_000
