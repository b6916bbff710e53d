"""File lookups are cached during one judgement and repeated for the next."""

from pathlib import Path

from odin.core.tool import Target
from odin.policy.paths import keep_lookups, look_up_once
from tests.policy.policies import make_policy


def test_a_lookup_is_made_once_per_judgement():
    made: list[str] = []

    @look_up_once
    def find(name: str) -> str:
        made.append(name)
        return name

    @keep_lookups
    def evaluator() -> tuple[str, ...]:
        return (find("a"), find("a"), find("b"))

    assert evaluator() == ("a", "a", "b")
    assert made == ["a", "b"]
    assert keep_lookups(evaluator)() == ("a", "a", "b"), "a nested judgement"
    assert made == ["a", "b"] * 2
    assert (find("a"), find("a")) == ("a", "a")
    assert made == [*["a", "b"] * 2, "a", "a"], "outside a judgement nothing is cached"


def test_every_judgement_sees_the_current_files(workspace: Path):
    outside = workspace.parent / "elsewhere"
    for folder in (workspace / "d", outside):
        folder.mkdir()
        (folder / "f").write_text("x\n")
    policy = make_policy(root=str(workspace))

    def evaluator() -> str:
        return policy.evaluate("ExecuteCommand", "execute", Target(command="cat d/f"), "edit_mode").action

    assert evaluator() == "allow"
    (workspace / "d").rename(workspace / "e")
    (workspace / "d").symlink_to(outside)
    assert evaluator() == "ask"
    (workspace / "d").unlink()
    (workspace / "e").rename(workspace / "d")
    assert evaluator() == "allow"
