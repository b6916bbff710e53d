"""`odin doctor` finds the editors that are configured for Odin: those of docs/editors.md are."""

import os
import re
from pathlib import Path

from odin.commands.editors import find_editors

FILES = {
    "Zed": ".config/zed/settings.json",
    "JetBrains": ".jetbrains/acp.json",
    "Neovim": ".config/nvim/lua/plugins/ai.lua",
    "Emacs": ".emacs.d/init.el",
    "VS Code": ".config/Code/User/settings.json",
}


def test_the_snippets_of_the_docs_are_found(home: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/editors.md").read_text()
    snippets = re.findall(r"\*\*(Zed|JetBrains|Neovim|Emacs|VS Code)\*\*.*?```\w+\n(.*?)```", text, re.DOTALL)
    assert {name for name, _ in snippets} == {*FILES}
    assert find_editors(os.environ) == {}
    for name, snippet in snippets:
        path = home / FILES[name]
        path.parent.mkdir(parents=True)
        path.write_text(snippet.replace("odin", "/opt/bin/odin") if name == "Zed" else snippet.replace("acp", "x"))
    assert find_editors(os.environ) == {"Zed": str(home / FILES["Zed"])}
    for name, snippet in snippets:
        (home / FILES[name]).write_text(snippet)
    assert find_editors(os.environ) == {name: str(home / path) for name, path in FILES.items()}
