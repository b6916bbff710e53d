"""Detection of a project's checks (tests, linters, builds) from its own files."""

import itertools
import os
from pathlib import Path

import pytest

from odin.engine.verification import is_checked_file
from odin.tools.project_checks import find_folder_checks, find_project_checks
from tests.table import each

PROGRAMS = "make just npm pnpm yarn ruff tox nox cargo go mvn gradle bundle composer ctest cmake uv poetry"
_numbers = itertools.count()

Files = dict[str, str]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which every program exists."""
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS.split():
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def write_project(base: Path, files: Files) -> Path:
    folder = base / f"p{next(_numbers)}"
    folder.mkdir()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)
    return folder


NODE = '{"scripts": {"test": "jest", "test:watch": "jest -w", "lint": "eslint .", "format": "prettier -w ."}}'
CI = """
jobs:
  test:
    steps:
      - uses: actions/checkout@v4
      - run: pip install -e .
      - run: python -m pytest -q
      - run: |
          make all
          ./upload ${{ secrets.KEY }}
"""


@each(
    ("files", "checks"),
    [
        ({}, ()),
        ({"README.md": "make test"}, ()),
        ({"Makefile": "test:\n\techo\nlint:\n\techo\ninstall:\n\techo\n"}, ("make test", "make lint")),
        ({"Makefile": "check: build\n\techo\n"}, ("make check",)),
        ({"Makefile": "all:\n\techo\n"}, ()),
        ({"justfile": "test:\n  echo\n"}, ("just test",)),
        ({"package.json": NODE}, ("npm test", "npm run lint")),
        ({"package.json": NODE, "pnpm-lock.yaml": ""}, ("pnpm test", "pnpm run lint")),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, ()),
        ({"package.json": "{"}, ()),
        ({"package.json": '{"scripts": {"test-$(x)": "y", "-test": "z"}}'}, ("npm run 'test-$(x)'",)),
        ({"composer.json": '{"scripts": {"test-;x": "y"}}'}, ("composer run-script 'test-;x'",)),
        ({"Makefile": "test:\n\tnpm test\n", "package.json": NODE}, ("make test", "npm run lint")),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, ("python3 -m pytest",)),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "uv.lock": ""}, ("uv run python -m pytest",)),
        (
            {"pyproject.toml": "[tool.pytest.ini_options]\n[tool.ruff]\nfix = true\n", ".venv/bin/python": "#!"},
            (".venv/bin/python -m pytest", "ruff check"),
        ),
        ({"tests/conftest.py": ""}, ("python3 -m pytest",)),
        ({"tests/test_a.py": "import a\n\ndef test_it():\n    pass\n"}, ("python3 -m pytest",)),
        ({"tox.ini": "[tox]\n"}, ("tox",)),
        ({"tox.ini": "[tox]\n", "pytest.ini": ""}, ("python3 -m pytest",)),
        ({"noxfile.py": "@nox.session\ndef tests(session):\n    pass\n"}, ("nox -s tests",)),
        ({"Cargo.toml": '[package]\nname = "x"\n'}, ("cargo test",)),
        ({"go.mod": "module x\n"}, ("go test ./...",)),
        ({"pom.xml": "", "mvnw": "#!/bin/sh\n"}, ("./mvnw test",)),
        ({"Makefile": "format:\n"}, ()),
        ({"Cargo.toml": "[package]\n", "package.json": NODE}, ("npm test", "cargo test", "npm run lint")),
        ({"test.sh": "#!/bin/sh\n"}, ("./test.sh",)),
        ({".github/workflows/ci.yml": CI}, ("python3 -m pytest -q", "make all")),
        ({".gitlab-ci.yml": "test:\n  script:\n    - make test\n    - echo done\n"}, ("make test",)),
        ({".github/workflows/ci.yml": CI, "Makefile": "test:\n\techo\n"}, ("make test",)),
    ],
)
def test_checks_are_found_in_the_files_of_a_folder(
    tmp_path: Path, programs: str, files: Files, checks: tuple[str, ...]
) -> None:
    assert find_folder_checks(write_project(tmp_path, files), {"PATH": programs}) == checks


def test_checks_of_programs_that_are_not_installed_are_left_out(tmp_path: Path) -> None:
    folder = write_project(tmp_path, {"Makefile": "test:\n\techo\n", "package.json": NODE})
    assert find_folder_checks(folder, {"PATH": "/nowhere"}) == ()


def test_the_nearest_folder_with_checks_up_to_the_root_is_used(tmp_path: Path, programs: str) -> None:
    files = {"Makefile": "test:\n", "web/package.json": NODE, "web/src/a.js": "", "lib/a.py": ""}
    root = write_project(tmp_path, files)
    (tmp_path / "Makefile").write_text("lint:\n")
    found = {}
    for place in ("", "web", "web/src", "lib"):
        checks = find_project_checks(str(root / place), str(root), {"PATH": programs})
        assert checks is not None
        found[place] = (os.path.relpath(checks.folder, root), checks.commands[0])
    assert found == {
        "": (".", "make test"),
        "web": ("web", "npm test"),
        "web/src": ("web", "npm test"),
        "lib": (".", "make test"),
    }
    assert find_project_checks(str(root / "lib"), str(root / "lib"), {"PATH": programs}) is None


@each(
    ("path", "is_checked"),
    [
        ("/p/a.py", True),
        ("a.py", True),
        ("/p/Makefile", True),
        ("/p/requirements.txt", True),
        ("/p/CMakeLists.txt", True),
        ("/p/data/x.json", True),
        ("/p/docs/conf.py", True),
        ("/p/logo.png", True),
        ("/p/README.md", False),
        ("/p/notes.txt", False),
        ("/p/LICENSE", False),
        ("/p/docs/logo.png", False),
        ("/p/.odin/plans/plan-001.md", False),
        ("/p/src/__pycache__/a.pyc", False),
        ("/p/node_modules/x/index.js", False),
        ("/tmp/a.py", False),
    ],
)
def test_changed_files_that_need_checks_are_recognized(path: str, is_checked: bool) -> None:
    assert is_checked_file(path, "/p") == is_checked
