"""The pages: all can be found, and every Python example of the API page runs as it stands, without a model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "python-api.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
PRINTED = [
    "auth.py",
    "success end_turn 2\n",
    "hello, checked\n",
    "['ExecuteCommand']\n",
    "calls ExecuteCommand\nended ExecuteCommand success\n",
    "DONE",
    "True\n",
    "You said: good morning\n",
]


def test_the_index_names_every_page_and_every_link_leads_somewhere() -> None:
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


def test_every_example_is_known() -> None:
    assert len(EXAMPLES) == len(PRINTED)


@pytest.mark.parametrize(("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=False)), ids=PRINTED)
def test_an_example_runs(example: str, printed: str, workspace: Path) -> None:
    (workspace / "auth.py").write_text("def login(): ...\n")
    ran = subprocess.run(
        [sys.executable, "-I", "-c", example], cwd=workspace, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert printed in ran.stdout
