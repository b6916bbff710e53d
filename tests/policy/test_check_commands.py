"""Commands that check a project, such as tests and linters, and whether their exit status is masked."""

from odin.policy.commands.checks import choose_fitting, find_check
from tests.table import each


@each(
    "command",
    [
        "pytest",
        "pytest -q tests/test_a.py",
        "python -m pytest",
        ".venv/bin/python -m pytest -x",
        "timeout 60 python3.12 -m unittest discover",
        "uv run pytest",
        "uv run -m pytest",
        "uv run --with x pytest",
        "poetry run mypy src",
        "FOO=1 npm test",
        "npm run lint -- --fix",
        "pnpm exec vitest run",
        "npx --yes tsc --noEmit",
        "yarn typecheck",
        "make",
        "make -j4 check",
        "cd sub && make test",
        "bash -c 'cargo test'",
        "cargo clippy --all",
        "go vet ./...",
        "./gradlew build",
        "mvn -q verify",
        "dotnet test",
        "bundle exec rspec",
        "cmake --build build",
        "./run_tests.sh",
        "sh scripts/check.sh",
        "python tests/test_a.py",
        "python manage.py test",
        "python -m py_compile a.py",
        "node --test",
        "sed -i s/a/b/ x.py && ruff check x.py",
    ],
)
def test_check_commands_are_recognized(command: str) -> None:
    assert find_check(command) is not None


@each(
    "command",
    [
        "",
        "ls tests",
        "cat tests/test_a.py",
        "grep -r pytest .",
        "echo make test",
        "git commit -m 'make test'",
        "make install",
        "npm install",
        "npm run start",
        "pip install pytest",
        "pytest --version",
        "python app.py",
        "python -c 'print(1)'",
        "python -m http.server",
        "cargo run",
        "go run .",
        "uv sync",
        "sed -n 1,10p test.py",
        "for ((",
    ],
)
def test_other_commands_are_not_checks(command: str) -> None:
    assert find_check(command) is None


@each(
    ("command", "known", "label"),
    [
        ("sh my-checker", ["sh my-checker"], "sh my-checker"),
        ("cd x && sh my-checker --all", ["sh my-checker"], "sh my-checker"),
        ("uv run verify-all src", ["verify-all"], "verify-all"),
        ("/opt/bin/verify-all", ["verify-all"], "verify-all"),
        ("make -s deploy-dry", ["cd infra && make deploy-dry"], "cd infra && make deploy-dry"),
        ("sh other", ["sh my-checker"], None),
        ("cd infra", ["cd infra && make deploy-dry"], None),
    ],
)
def test_commands_listed_as_checks_are_recognized(command: str, known: list[str], label: str | None) -> None:
    found = find_check(command, known)
    assert (found.label if found else None) == label


@each(
    ("command", "is_masked"),
    [
        ("make test", False),
        ("cd x && make test", False),
        ("make lint && make test", False),
        ("timeout 9 make test 2>&1", False),
        ("make test | tail -5", True),
        ("make test; echo done", True),
        ("make test || true", True),
        ("make test && make docs; true", True),
    ],
)
def test_masked_exit_status_is_detected(command: str, is_masked: bool) -> None:
    found = find_check(command)
    assert found is not None
    assert found.is_masked == is_masked


MIXED = ("npm test", ".venv/bin/python3 -m pytest", "make lint")


@each(
    ("commands", "files", "fitting"),
    [
        (MIXED, ["src/a.py"], MIXED[1:]),
        (MIXED, ["web/a.tsx", "web/a.css"], ("npm test", "make lint")),
        (MIXED, ["a.py", "a.js"], MIXED),
        (MIXED, ["a.py", "data.json"], MIXED),
        (("npm test",), ["a.py"], ("npm test",)),
        ((), ["a.py"], ()),
    ],
)
def test_checks_of_other_languages_are_left_out(
    commands: tuple[str, ...], files: list[str], fitting: tuple[str, ...]
) -> None:
    assert choose_fitting(commands, files) == fitting
