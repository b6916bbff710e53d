"""The documentation: the index is complete, links work, and every Python example of the API page runs."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import odin
from tests.waiting import LIMIT_S

PAGE = Path(__file__).parent.parent.parent / "docs" / "python-api.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
PRINTED = [
    "auth.py",
    "success end_turn 2\n",
    "DONE",
    "hello, checked\n",
    "['ExecuteCommand']\n",
    "calls ExecuteCommand\nended ExecuteCommand success\n",
    "True\n",
    "You said: good morning\n",
]


def test_index_lists_every_page_and_no_link_is_dead() -> None:
    docs = PAGE.parent
    index = (docs / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in docs.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index] == []
    assert "(docs/README.md)" in (docs.parent / "README.md").read_text(encoding="utf-8")
    dead = [
        f"{page.name}: {link}"
        for page in (*docs.glob("*.md"), *docs.parent.glob("*.md"))
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert dead == []


def test_every_example_has_an_expected_output() -> None:
    assert len(EXAMPLES) == len(PRINTED)


def test_documented_signatures_match_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    tables = re.split(r"\n\| of a `(Query|Session)` \|", page)
    owners = [(odin, rf"`odin\.({name})\((.*?)\)` (?:starts|returns)", page) for name in ("query", "new")]
    owners += [
        (getattr(odin, name), r"`(?:await )?(\w+)\((.*?)\)`(?=[^|\n]*\|)", table.split("\n\n")[0])
        for name, table in zip(tables[1::2], tables[2::2], strict=True)
    ]
    checked = 0
    for owner, pattern, text in owners:
        for name, written in re.findall(pattern, text):
            found = [param for param in inspect.signature(getattr(owner, name)).parameters if param != "self"]
            names = [word.split("=")[0].strip(" *") for word in re.split(r",\s*(?![^()]*\))", written)]
            assert [word for word in names if word] == found, name
            checked += 1
    assert checked >= 12


@pytest.mark.slow
@pytest.mark.parametrize(("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=False)), ids=PRINTED)
def test_an_example_runs(example: str, printed: str, workspace: Path) -> None:
    (workspace / "auth.py").write_text("def login(): ...\n")
    ran = subprocess.run(
        [sys.executable, "-I", "-c", example],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert printed in ran.stdout
