"""What a prompt for a small model is read as."""

from typing import Any

from odin.providers.whole_files.project_tests import PYTEST
from odin.providers.whole_files.prompt_intent import Intent, PromptReading, read_prompt
from tests.table import each


@each(
    "prompt, intent",
    [
        ("Why does the test fail? Fix it.", Intent.CHANGE),
        ("When the list is empty, mean should return 0.", Intent.CHANGE),
        ("Print hello instead of hi in main.go", Intent.CHANGE),
        ("print the sum in main.py instead of the list", Intent.CHANGE),
        ("Do not print the debug line anymore", Intent.CHANGE),
        ("in config.json change the port to 9090", Intent.CHANGE),
        ("In main.py replace foo by bar", Intent.CHANGE),
        ("please get rid of the file old.py", Intent.CHANGE),
        ("the version should be 2.0.0 in package.json", Intent.CHANGE),
        ("mean in stats.py should return 0 for an empty list", Intent.CHANGE),
        ("Handle division by zero in divide", Intent.CHANGE),
        ("Return None instead of raising", Intent.CHANGE),
        ("Prevent negative amounts", Intent.CHANGE),
        ("Log each call", Intent.CHANGE),
        ("Swap the arguments", Intent.CHANGE),
        ("Reverse the list", Intent.CHANGE),
        ("Comment out the debug line", Intent.CHANGE),
        ("Define a constant MAX", Intent.CHANGE),
        ("give foo a default argument", Intent.CHANGE),
        ("capitalize the names", Intent.CHANGE),
        ("translate the README", Intent.CHANGE),
        ("copy a.py to b.py", Intent.CHANGE),
        ("merge the two functions", Intent.CHANGE),
        ("now fix the bug", Intent.CHANGE),
        ("kindly update the version", Intent.CHANGE),
        ("Let's rename foo", Intent.CHANGE),
        ("Can you add a flag --x to main.py?", Intent.CHANGE),
        ("The door shall also open with silver.", Intent.CHANGE),
        ("The tests fail. Fix them.", Intent.CHANGE),
        ("python3 check.py fails. Find the bug and fix it.", Intent.CHANGE),
        ("Fix the typo 'recieve' in README.md.", Intent.CHANGE),
        ("If the list is empty, return 0.", Intent.CHANGE),
        ("greet is no longer needed", Intent.CHANGE),
        ("Explain the bug and fix it", Intent.CHANGE),
        ("I want you to write a test", Intent.CHANGE),
        ("Add a function but do not change anything else", Intent.CHANGE),
        ("In ledger/interest.py, extract the number 0.035 in monthly into a module constant BASE_RATE.", Intent.CHANGE),
        ("Write a unittest for Account.withdraw in tests/test_account.py and run it.", Intent.CHANGE),
        ("Could you please rename add to plus?", Intent.CHANGE),
        ("when I run `python main.py data.csv` it fails", Intent.LIKELY),
        ("main.py has a syntax error", Intent.LIKELY),
        ("the loop in sum_list skips the last element", Intent.LIKELY),
        ("chnage the port", Intent.LIKELY),
        ("We need a new function mul", Intent.LIKELY),
        ("do the same for sub", Intent.LIKELY),
        ("Can we rename add to plus?", Intent.CHANGE),
        ("Is it possible to add a flag?", Intent.EITHER),
        ("How about renaming add?", Intent.EITHER),
        ("Describe the options in README.md.", Intent.EITHER),
        ("Summarize README.md", Intent.ASK),
        ("Two things:\n1. add a flag\n2. remove the other", Intent.CHANGE),
        ("make test fails with an error. why?", Intent.ASK),
        ("Can you check if main.py is correct and fix it if not?", Intent.EITHER),
        ("Change nothing, just tell me what add does", Intent.ASK),
        ("Is there a bug in calc.py? If yes, fix it", Intent.EITHER),
        ("Check whether the tests pass and if not fix the code", Intent.EITHER),
        ("Run the tests. If one fails, fix the code.", Intent.EITHER),
        ("Print a usage message if no arguments are given", Intent.EITHER),
        ("Check that amount is positive in withdraw", Intent.EITHER),
        ("Show the version with --version", Intent.EITHER),
        ("Report an error if the file is missing", Intent.EITHER),
        ("Name the magic number 42 ANSWER", Intent.EITHER),
        ("List the users sorted by name in main.py", Intent.EITHER),
        ("Can the greeting be changed to Hi?", Intent.EITHER),
        ("is the port 8080? if not change it to 8080", Intent.EITHER),
        ("Run the tests and report", Intent.EITHER),
        ("hi there", Intent.EITHER),
        ("Run the tests and tell me how many tests ran and whether they passed.", Intent.EITHER),
        ("Could you explain how to use calc.py?", Intent.ASK),
        ("Can you explain how to add a flag?", Intent.ASK),
        ("Which function is used to format the price, and in which file?", Intent.ASK),
        ("Please tell me where to set the port", Intent.ASK),
        ("Could you tell me which function to use?", Intent.ASK),
        ("What do I need to change and where?", Intent.ASK),
        ("can you show me the function that is used to sort users?", Intent.ASK),
        ("Tell me what main.py prints, and change nothing.", Intent.ASK),
        ("In which file is the class Invoice defined?", Intent.ASK),
        ("in which file is foo defined", Intent.ASK),
        ("How many TODO comments are in the shop folder?", Intent.ASK),
        ("What has to be added to make it work?", Intent.ASK),
        ("How do I add and remove users?", Intent.ASK),
        ("What does `add x` do?", Intent.ASK),
        ("Run the tests. Do not change any files.", Intent.ASK),
        ("How many functions are in server.js?", Intent.ASK),
        ("The result is wrong. Why?", Intent.ASK),
        ("count the python files in this project", Intent.ASK),
        ("Explain how to add a flag and remove another.", Intent.ASK),
    ],
)
def test_the_intent_of_a_prompt(prompt: str, intent: Intent) -> None:
    assert read_prompt(prompt).intent is intent


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
def test_only_what_is_certainly_a_command_is_one(prompt: str, command: str) -> None:
    assert read_prompt(prompt).command == command


@each(
    "prompt, expected",
    [
        (
            "Fix the typo 'recieve' in README.md.",
            {"paths": ("README.md",), "terms": ("recieve",), "wants_change": True},
        ),
        ("Add a docstring to the function discount in a/b.py.", {"terms": ("discount",), "paths": ("a/b.py",)}),
        ("Rename calc_sum to totalOf everywhere", {"terms": ("calc_sum", "totalOf")}),
        ("How many TODO comments are in the shop folder?", {"counts": True, "is_question": True, "paths": ("shop",)}),
        (
            "In which file is the class Invoice defined?",
            {"locates": True, "terms": ("Invoice",), "wants_change": False},
        ),
        ("Run python3 a/b.py --fast 3 and tell me what it prints.", {"command": "python3 a/b.py --fast 3"}),
        ("python3 check.py fails. Find the bug and fix it.", {"command": "python3 check.py", "wants_change": True}),
        ("The tests fail. Fix them.", {"runs_tests": True, "wants_change": True}),
        ("Run the tests and report", {"runs_tests": True, "is_question": True, "wants_change": False}),
        ("What has to be added to make it work?", {"is_question": True, "wants_change": False}),
        ("Can you add a flag --x to main.py?", {"wants_change": True, "paths": ("main.py",)}),
        ("Set DEBUG to false in .env", {"paths": (".env",)}),
        ("Add *.log to .gitignore", {"paths": (".gitignore",)}),
        ("Fix a/b.py, c.js and .github/w/x.yml", {"paths": ("a/b.py", "c.js", ".github/w/x.yml")}),
        ("As in e.g. this: ... it prints .5 only", {"paths": ()}),
        ("Use math.pi instead of 3.14 and os.path in a.py", {"paths": ("a.py",)}),
        ("The function total uses area() in cart.js", {"terms": ("area", "total"), "locates": False}),
        ("Delete sub/.env.old", {"paths": ("sub/.env.old",)}),
        ("Call fooBar 'My App'.", {"terms": ("fooBar", "My App")}),
        ("Run the tests. If one fails, fix the code.", {"fixes_failures": True, "runs_tests": True}),
        ("Use python3 main.py as an example.", {"command": ""}),
    ],
)
def test_what_a_prompt_asks_for(prompt: str, expected: dict[str, Any]) -> None:
    reading: PromptReading = read_prompt(prompt)
    assert {name: getattr(reading, name) for name in expected} == expected


def test_a_very_long_prompt_is_read_at_its_ends() -> None:
    reading = read_prompt("Fix a.py.\n" + "word " * 9_000 + "x" * 50_000 + "\nRun the tests in b.py.")
    assert reading.paths == ("a.py", "b.py")
    assert reading.wants_change
    assert len(reading.text) < 7_000
