"""The sandbox grants of an approved command: paths, network and removal."""

from pathlib import Path

import pytest

from odin.core.event_values import Mode
from odin.core.profile import SandboxGrants
from odin.core.tool import Target
from odin.policy.policy import Policy
from odin.policy.rules.rule import RuleSet
from tests.policy.policies import make_policy
from tests.table import each

CASES: list[tuple[str, tuple[str, ...], bool, bool]] = [
    ("touch ../beside/new", ("beside/new",), False, False),
    ("echo x >../beside/file", ("beside/file",), False, False),
    ("mkdir -p ../beside/a/b", ("beside/a/b",), False, False),
    ("cd ../beside && make", ("beside",), False, False),
    ("cd ../beside && touch new", ("beside",), False, False),
    ("make -C ../beside", ("beside",), False, False),
    ("make PREFIX={0}/beside install", ("beside",), False, False),
    ("bash -c 'touch ../beside/new'", ("beside/new",), False, False),
    ("cp ../beside/file ../other/file", ("other/file", "beside/file"), False, False),
    ("rm -rf ../beside", ("beside",), False, True),
    ("touch ~/sub/new", ("home/sub/new",), False, False),
    ("touch $HOME/sub/new", ("home/sub/new",), False, False),
    ("npm install", (), True, False),
    ("rm -rf build && git push --force", (), True, False),
    ("sudo apt-get install jq", (), True, False),
    ("git clone https://example.org/x ../beside/x", ("beside/x",), True, False),
    ("make", (), False, False),
    # paths that are only read
    ("cat ../beside/file > copy", (), False, False),
    ("cat /etc/hosts ~/sub/file > copy", (), False, False),
    ("grep -rn TODO ../beside > copy", (), False, False),
    ("diff ../beside/file copy | tee out", (), False, False),
    ("wc -l < ../beside/file > copy", (), False, False),
    # paths that are known only at run time
    ("rm ../beside/*.o", (), False, False),
    ("touch ../beside/$NAME", (), False, False),
    # paths that are never granted
    ("touch ~/new", (), False, False),
    ("chmod -R a+r ~", (), False, False),
    ("chmod -R a+r ..", (), False, False),
    ("sed -i /x/d file", (), False, False),
    ("echo x > ~/.ssh/config", (), False, False),
    ("echo x > ../beside/.git/hooks/pre-commit", (), False, False),
    ("echo x > ../beside/.env", (), False, False),
    ("touch ../denied/new", (), False, False),
    ("make -C ../other/below", (), False, False),
    ("echo x > /proc/sys/kernel/hostname", (), False, False),
]


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    for name in ("project", "home/sub", "home/.ssh", "beside/.git/hooks", "other/below/secret", "denied"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "beside/file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    rules = RuleSet()
    for text in (f"Edit(/{tmp_path}/denied/**)", f"Edit(/{tmp_path}/other/below/secret/*)"):
        rules.add(text, "deny", "session")
    return make_policy(root=str(tmp_path / "project"), rule_set=rules)


def find_grants(policy: Policy, command: str, mode: Mode = "edit_mode") -> SandboxGrants:
    return policy.find_grants("ExecuteCommand", "execute", Target(command=command), mode)


@each("command, paths, network, removes", CASES)
def test_grants_of_an_approved_command(
    policy: Policy, tmp_path: Path, command: str, paths: tuple[str, ...], network: bool, removes: bool
) -> None:
    expected = SandboxGrants(tuple(f"{tmp_path}/{path}" for path in paths), network, removes)
    found = find_grants(policy, command.format(tmp_path) if "{0}" in command else command)
    assert (sorted(found.paths), found.network, found.removes) == (
        sorted(expected.paths),
        expected.network,
        expected.removes,
    )


def test_ask_and_plan_mode_grant_nothing(policy: Policy) -> None:
    assert not find_grants(policy, "touch ../beside/new && npm install", "ask_mode")
    assert not find_grants(policy, "touch ../beside/new && npm install", "plan_mode")
