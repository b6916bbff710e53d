"""Which folders can be added to a project: on the command line, in settings, and in those of Claude Code."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from odin.config import load
from odin.config.roots import find_root
from odin.core.errors import UsageError
from odin.testing import ScriptedServer, say
from tests.conftest import Run

from .test_claude_settings import write as write_claude

REFUSED: dict[str, tuple[str, str]] = {
    "missing": ("../gone", "Folder not found: "),
    "a file": ("../file", "../file is not a folder."),
    "no name": (":ro", "The folder has no name."),
    "the project": (".", "it is already in the project."),
    "in the project": ("src", "it is already in the project."),
    "above the project": ("..", "it contains the project. Start Odin there instead."),
    "the home": ("~", "it is your home folder."),
    "the root": ("/", "it contains the project."),
    "secrets": ("~/.ssh:ro", "it may hold secrets."),
    "settings of Odin": ("~/.config/odin", "it contains Odin's own files, or is one of its folders."),
    "above those": ("~/.config", "it contains Odin's own files, or is one of its folders."),
    "temporary files": ("/var/tmp", "it contains a folder for temporary files."),
    "kernel settings": ("/proc:ro", "it is a folder of the system."),
    "programs": ("/usr/share", "To read it, add /usr/share:ro."),
    "a repository's folder": ("../lib/.git", "programs or agents run or obey .git."),
}


@pytest.fixture
def project(workspace: Path, home: Path) -> Path:
    for folder in ("src", "../lib/.git", "../lib/inner"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "../file").write_text("")
    for name in (".ssh", ".config/odin", "other"):
        (home / name).mkdir(parents=True, exist_ok=True)
    return workspace


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_added_is_refused_in_a_sentence(project: Path, name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(UsageError) as refused:
        load(str(project), os.environ, add_dirs=[text])
    assert why in refused.value.describe()


@pytest.mark.parametrize("given", [("../lib", "../lib/inner"), ("../lib/inner", "../lib")])
def test_folders_do_not_overlap(project: Path, given: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="which was added"):
        load(str(project), os.environ, add_dirs=given)


def test_the_nearest_setting_decides_about_access(project: Path, home: Path) -> None:
    lib = str((project / "../lib").resolve())
    settings: dict[str, Any] = {"additional_directories": ["../lib:ro", "~/other", "../gone"]}
    (home / ".config/odin/odinconfig.json").write_text(json.dumps(settings))
    config = load(str(project), os.environ)
    assert [(root.path, root.access) for root in config.roots] == [(lib, "read"), (f"{home.resolve()}/other", "write")]
    assert "'../gone' is ignored: Folder not found" in config.warnings[0]
    (project / "odinconfig.json").write_text(json.dumps({"additional_directories": ["../lib"]}))
    assert load(str(project), os.environ, trust=True).roots[0].access == "read", "a project cannot widen it"
    assert load(str(project), os.environ, add_dirs=["../lib"]).roots[-1].access == "write"


@pytest.mark.parametrize("is_claude", [False, True])
def test_a_project_names_only_folders_beside_it_and_only_if_it_is_trusted(
    project: Path, home: Path, *, is_claude: bool
) -> None:
    (project / "../.hidden").mkdir()
    names = ["../lib:ro", "../.hidden", "/usr/share:ro", str(home / "other")]
    if is_claude:
        write_claude(project, {"permissions": {"additionalDirectories": names}})
    else:
        (project / "odinconfig.json").write_text(json.dumps({"additional_directories": names}))
    assert load(str(project), os.environ).roots == ()
    config = load(str(project), os.environ, trust=True)
    assert config.roots == (find_root("../lib:ro", str(project), str(project), os.environ),)
    assert not config.roots[0].trusted, "what the project names does not inherit its trust"
    outside = [text for text in config.warnings if "does not lie beside the project" in text]
    beside_home = home.resolve().parent == project.parent
    assert len(outside) == (2 if beside_home else 3)


def test_the_command_line_adds_folders(run_odin: Run, project: Path) -> None:
    (project / "../lib/AGENTS.md").write_text("Use tabs.\n")
    lib = str((project / "../lib").resolve())
    with ScriptedServer([say("ok"), say("ok")]) as server:
        untrusted = run_odin("-p", "go", "--add-dir", "../lib", env=server.env("anthropic"))
        trusted = run_odin("-p", "go", "--add-dir", "../lib:ro", "--trust", env=server.env("anthropic"))
        bodies = [request.body.decode() for request in server.requests]
    assert f"{lib} is not trusted" in untrusted.stderr and "not trusted" not in trusted.stderr
    assert f"- {lib} (writable)" in bodies[0] and f"- {lib} (read-only)" in bodies[1]
    assert ["Use tabs." in body for body in bodies] == [False, True]
    wrong = run_odin("-p", "go", "--add-dir", "../gone")
    assert wrong.returncode == 2 and "Folder not found" in wrong.stderr
