"""What the policy says about folders besides the project: one that is writable and one that is read-only."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.core.root import Root
from odin.core.tool import Kind, Target
from odin.policy.rules.rule import RuleSet, parse_rule

from .policies import make_policy, make_scope

CASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "read": ("Read", "{lib}/a", "allow", {}),
    "read the read-only one": ("Read", "{docs}/a", "allow", {}),
    "read beside them": ("Read", "{top}/a", "ask", {}),
    "read a secret": ("Read", "{docs}/.env", "ask", {}),
    "edit": ("EditTool", "{lib}/a", "ask", {}),
    "edit with acceptEdits": ("EditTool", "{lib}/a", "allow", {"permission_mode": "acceptEdits"}),
    "edit what is protected": ("EditTool", "{lib}/.git/hooks/x", "ask", {"permission_mode": "acceptEdits"}),
    "edit the settings": ("EditTool", "{lib}/odinconfig.json", "ask", {"permission_mode": "acceptEdits"}),
    "edit the read-only one": ("EditTool", "{docs}/a", "deny", {"yes": True}),
    "edit through a link": ("EditTool", "{lib}/link/a", "deny", {"yes": True}),
    "edit the folder": ("EditTool", "{lib}", "deny", {"yes": True}),
    "edit by a bare rule": ("EditTool", "{lib}/a", "allow", {"allowed_tools": ["Edit"]}),
    "edit by a relative rule": ("EditTool", "{lib}/src/a", "ask", {"allowed_tools": ["Edit(src/**)"]}),
    "edit against a relative rule": ("EditTool", "{lib}/src/a", "deny", {"disallowed_tools": ["Edit(src/**)"]}),
    "restricted": ("EditTool", "{lib}/a", "ask", {"restrict_to_workspace": True}),
    "restricted beside them": ("EditTool", "{top}/a", "deny", {"restrict_to_workspace": True}),
    "remove a folder": ("Bash", "rm -rf {lib}", "deny", {"yes": True}),
    "remove a repository": ("Bash", "cd {lib} && rm -rf .git", "deny", {"yes": True}),
    "list": ("Bash", "ls {lib} && cd {lib} && cat a", "allow", {}),
    "write without a sandbox": ("Bash", "make -C {lib}", "ask", {}),
    "write by a rule without a sandbox": ("Bash", "touch {lib}/b", "allow", {"allowed_tools": ["Bash"]}),
    "write the read-only one by a rule without a sandbox": (
        "Bash",
        "touch {docs}/b",
        "ask",
        {"allowed_tools": ["Bash"]},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_other_folders_are_treated_as_their_access_says(tmp_path: Path, name: str) -> None:
    tool, text, expected, settings = CASES[name]
    top = tmp_path.resolve() / "top"
    places = {folder: str(top / folder) for folder in ("project", "lib", "docs")}
    for place in places.values():
        Path(place, "src").mkdir(parents=True)
        Path(place, "a").write_text("a")
    Path(places["lib"], "link").symlink_to(places["docs"])
    roots = (Root(places["lib"]), Root(places["docs"], "read"))
    env = {"TMPDIR": str(tmp_path / "temporary"), "HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    policy = make_policy(root=places["project"], env=env, roots=roots, **settings)
    text = text.format(top=top, **places)
    kinds: dict[str, Kind] = {"Read": "read", "EditTool": "edit", "Bash": "execute"}
    target = Target(command=text) if tool == "Bash" else Target(paths=(text,))
    assert policy.evaluate(tool, kinds[tool], target, "edit_mode").action == expected


def test_an_agent_in_a_worktree_has_the_other_folders_read_only(tmp_path: Path) -> None:
    lib, tree = str(tmp_path.resolve() / "lib"), str(tmp_path.resolve() / "tree")
    policy = make_policy(root=str(tmp_path.resolve() / "project"), roots=(Root(lib),), yes=True)
    apart = policy.with_root(tree, make_scope(tree).environment, None, is_worktree=True)
    expectations: tuple[tuple[Kind, str, str], ...] = (("read", "Read", "allow"), ("edit", "EditTool", "deny"))
    for kind, tool, expected in expectations:
        assert apart.evaluate(tool, kind, Target(paths=(f"{lib}/a",)), "edit_mode").action == expected
    assert policy.evaluate("EditTool", "edit", Target(paths=(f"{lib}/a",)), "edit_mode").action == "allow"


def test_rules_of_a_folder_are_about_its_own_files(tmp_path: Path) -> None:
    lib, project = str(tmp_path.resolve() / "lib"), str(tmp_path.resolve() / "project")
    rules = RuleSet()
    elsewhere = f"{tmp_path.resolve()}/elsewhere"
    given = {"Edit(src/**)": "allow", f"Edit({elsewhere}/**)": "allow", "Edit(gen/**)": "ask"}
    given["Bash(git push:*)"] = "deny"
    rules.set_root_rules(replace(parse_rule(text, action), root=lib) for text, action in given.items())  # pyright: ignore[reportArgumentType]
    policy = make_policy(root=project, rule_set=rules, roots=(Root(lib),), permission_mode="acceptEdits")

    def decide(path: str) -> str:
        found = policy.evaluate("EditTool", "edit", Target(paths=(path,)), "edit_mode")
        return found.rule if "(" in found.rule else ""

    assert decide(f"{lib}/src/a").startswith("allow Edit(src/**)")
    assert decide(f"{lib}/gen/a").startswith("ask Edit(gen/**)")
    assert decide(f"{project}/src/a") == decide(f"{project}/gen/a") == decide(f"{elsewhere}/a") == ""
    pushed = policy.evaluate("Bash", "execute", Target(command="git push origin"), "edit_mode")
    assert pushed.action == "deny"
