"""The `allowed-tools` of a skill: what they allow, and what they never allow."""

from pathlib import Path

import pytest

from odin.core.call_events import SkillUsed
from odin.core.event_values import Mode
from odin.core.tool import Kind, Target
from odin.policy.policy import Policy
from odin.policy.rules.rule import RuleSet, parse_rule
from odin.policy.rules.skill_rules import explain_no_effect
from tests.policy.policies import make_policy
from tests.table import each


class Skill:
    """A skill with a script, in a user's folder or in the project, and a project with a script of the same name."""

    def __init__(self, top: Path, where: str) -> None:
        self.root, self.folder = top / "project", top / where
        for folder in (self.root, self.folder):
            (folder / "scripts").mkdir(parents=True, exist_ok=True)
            (folder / "scripts/fill.py").write_text("")
            (folder / "README.md").write_text("")
        (self.folder / "run.sh").write_text("")

    def judge_command(self, rules: str, command: str, *, mode: Mode = "edit_mode", policy: Policy | None = None) -> str:
        return self.judge_call(rules, "ExecuteCommand", "execute", Target(command=command), mode=mode, policy=policy)

    def judge_call(
        self,
        rules: str,
        tool: str,
        kind: Kind,
        target: Target,
        *,
        mode: Mode = "edit_mode",
        policy: Policy | None = None,
    ) -> str:
        used = SkillUsed("pdf", f"{self.folder}/SKILL.md", rules=(rules,))
        base = policy or make_policy(root=str(self.root))
        return base.with_skills([used]).evaluate(tool, kind, target, mode).action


@pytest.fixture
def skill(tmp_path: Path) -> Skill:
    return Skill(tmp_path.resolve(), "home/skills/pdf")


TOO_BROAD = """
* ** Execute* E* Ex?cuteCommand Bash Spawn Bash(*) Bash(**) Bash(***) Bash(:*) Bash(*:*) Bash(?*:*) Bash(?*) Bash(m*:*)
Bash('':*) Spawn(*) Spawn(?*:*) mcp__* mcp__github mcp__github__* M* Delete(**)
""".split()  # noqa: SIM905


@each("rule", [*TOO_BROAD, "Bash(* *)", "Read(", "Bash(a\u200bb:*)"])
def test_too_broad_rule_has_no_effect(skill: Skill, rule: str) -> None:
    assert explain_no_effect(rule)
    commands = ("make deploy", "python -c 1", "curl https://x.example -d @file", "sudo ls", "rm -rf src")
    assert [skill.judge_command(rule, command) for command in commands] == ["ask"] * 5
    assert skill.judge_call(rule, "mcp__github__delete", "network", Target()) == "ask"


@each("rule", ["Bash(make:*)", "Bash(git log)", "Read", "Edit(src/**)", "WebFetch(domain:x.org)", "mcp__a__b", "Write"])
def test_a_rule_that_names_its_tool_has_an_effect(rule: str) -> None:
    assert explain_no_effect(rule) == ""


@each(
    ("rule", "command"),
    [
        ("Bash(rm:*)", "rm -rf src"),
        ("Bash(rm -rf src)", "rm -rf src"),
        ("Bash(git:*)", "git push --force"),
        ("Bash(git:*)", "git reset --hard"),
        ("Bash(npm publish:*)", "npm publish"),
        ("Bash(make:*)", "make a && rm -rf src"),
    ],
)
def test_destructive_command_always_needs_approval(skill: Skill, rule: str, command: str) -> None:
    assert skill.judge_command(rule, command) == "ask"
    assert skill.judge_command("Bash(make:*)", "make a") == "allow"


def test_stronger_rules_and_modes_override_a_skill(skill: Skill) -> None:
    root = str(skill.root)
    for mode in ("default", "acceptEdits", "auto", "bypassPermissions"):
        denied = make_policy(root=root, permission_mode=mode, rule_set=RuleSet([parse_rule("Bash(make:*)", "deny")]))
        assert skill.judge_command("Bash(make:*)", "make a", policy=denied) == "deny"
        assert (
            skill.judge_command("Bash(rm:*)", "rm -rf /", policy=make_policy(root=root, permission_mode=mode)) == "deny"
        )
    asking = make_policy(root=root, rule_set=RuleSet([parse_rule("Bash(make:*)", "ask")]))
    assert skill.judge_command("Bash(make:*)", "make a", policy=asking) == "ask"
    assert skill.judge_command("Bash(make:*)", "make a", mode="plan_mode") == "ask"
    kept = Target(name="project", persists=True)
    assert skill.judge_call("Memory", "Memory", "interactive", kept, mode="ask_mode") == "ask"


@each(
    ("rule", "url", "action"),
    [
        ("WebFetch", "https://example.org/x", "allow"),
        ("WebFetch", "http://169.254.169.254/x", "ask"),
        ("WebFetch", "http://localhost:80/x", "ask"),
        ("WebFetch(domain:254)", "http://169.254.169.254/x", "ask"),
        ("WebFetch(domain:localhost)", "http://localhost:80/x", "allow"),
        ("WebFetch(http://10.0.0.1/*)", "http://10.0.0.1/x", "allow"),
        ("WebFetch(http://10.0.0.1/*)", "http://10.0.0.2/x", "ask"),
    ],
)
def test_private_address_must_be_named_in_the_rule(skill: Skill, rule: str, url: str, action: str) -> None:
    assert skill.judge_call(rule, "WebFetch", "network", Target(url=url)) == action


OWN = "Bash(python scripts/fill.py:*)"


@pytest.mark.parametrize("where", ["home/skills/my pdf", "project/.odin/skills/pdf"])
def test_relative_script_path_means_the_file_of_the_skill(tmp_path: Path, where: str) -> None:
    skill = Skill(tmp_path.resolve(), where)
    at, root = f"'{skill.folder}'", skill.root
    allowed = (
        f"python {at}/scripts/fill.py --list form.pdf",
        f"python {at}/scripts/fill.py {at}/README.md",
        f"cd {at} && python scripts/fill.py {root}/form.pdf",
        f"cd {at} && python ./scripts/fill.py README.md",
        f"cd {at}/scripts && python ../scripts/fill.py",
    )
    asking = (
        "python scripts/fill.py",
        f"python {at}/scripts/other.py",
        f"python {at}/scripts/fill.py /etc/passwd",
        f"python {at}/scripts/fill.py > {root}/x",
        f"cd {at} && python scripts/fill.py > README.md",
        f"cd {at} && make",
        f"cd {at}/.. && python pdf/scripts/fill.py /etc",
    )
    assert [skill.judge_command(OWN, command) for command in allowed] == ["allow"] * 5
    assert [skill.judge_command(OWN, command) for command in asking] == ["ask"] * 7
    for rule in ("Bash(${CLAUDE_SKILL_DIR}/run.sh:*)", "Bash(./run.sh:*)"):
        assert skill.judge_command(rule, f"{at}/run.sh a") == "allow"
        assert skill.judge_command(rule, "./run.sh a") == "ask"


def test_other_relative_paths_mean_files_of_the_project(skill: Skill) -> None:
    """A skill with a README.md may still allow a command that names the project's."""
    assert skill.judge_command("Bash(git add README.md)", "git add README.md") == "allow"
    assert skill.judge_command("Bash(cp README.md:*)", f"cp {skill.folder}/README.md a") == "allow"
    assert skill.judge_command("Bash(cp README.md:*)", f"cp README.md {skill.folder}/README.md") == "ask"
    assert skill.judge_command("Bash(scripts/own.sh:*)", "scripts/own.sh a") == "allow"


def test_changing_a_skill_needs_approval(skill: Skill) -> None:
    """Also in a folder of `skills.paths`, which has no special name."""
    for path, action in (("tools/skills/a/SKILL.md", "ask"), ("tools/skills/a/notes.md", "allow")):
        assert skill.judge_call("Write", "Write", "edit", Target(paths=(path,))) == action
        edits = make_policy(root=str(skill.root), permission_mode="acceptEdits")
        assert edits.evaluate("Write", "edit", Target(paths=(path,)), "edit_mode").action == action
