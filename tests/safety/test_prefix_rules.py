"""A prefix rule never covers an option that runs other code."""

from pathlib import Path

from odin.core.tool import Subject
from odin.policy.rules.rule import RuleSet, rule_of
from tests.policy.policies import make_policy
from tests.table import each

RUNS_CODE = [
    ("go vet:*", "go vet -vettool=./e ./..."),
    ("go vet:*", "go vet --vettool ./e"),
    ("go test:*", "go test -exec ./e ./..."),
    ("go build:*", "go build -toolexec ./e"),
    ("go build:*", "go build -ldflags=-extld=./e"),
    ("git log:*", "git log --output=x"),
    ("git log:*", "git log --ext-diff -p"),
    ("git:*", "git -c core.pager=./e log"),
    ("git:*", "git --exec-path=./e log"),
    ("git fetch:*", "git fetch --upload-pack=./e origin"),
    ("git fetch:*", "git fetch --upload-pac ./e origin"),
    ("git grep:*", "git grep -O./e TODO"),
    ("git merge:*", "git merge -s evil main"),
    ("tar:*", "tar xf a.tar --to-command=./e"),
    ("tar:*", "tar cf a.tar b --checkpoint-action=exec=./e"),
    ("tar:*", "tar -I ./e -xf a.tar"),
    ("rsync:*", "rsync -e ./e a b"),
    ("ssh host:*", "ssh host -oProxyCommand=./e"),
    ("find:*", "find . -exec ./e {} +"),
    ("sort:*", "sort --compress-program=./e a"),
    ("man:*", "man -P ./e ls"),
    ("npm test:*", "npm test --script-shell=./e"),
    ("pytest:*", "pytest -p evil"),
    ("pytest:*", "pytest -c evil.ini"),
    ("pytest:*", "pytest --rootdir=evil"),
    ("python -m pytest:*", "python -m pytest -p evil"),
    ("make:*", "make SHELL=./e"),
    ("make:*", "make test CC=./e"),
    ("make:*", "make --eval=x"),
    ("cargo build:*", "cargo build --config build.rustc-wrapper=./e"),
    ("mypy:*", "mypy --config-file evil.ini a.py"),
    ("eslint:*", "eslint --rulesdir evil a.js"),
    ("node app.js:*", "node app.js --require ./e"),
    ("git fetch:*", "GIT_SSH_COMMAND=./e git fetch"),
    ("ls:*", "LD_PRELOAD=./e.so ls"),
    ("make:*", "env LD_PRELOAD=./e.so make"),
]
COVERED = [
    ("go vet:*", "go vet ./..."),
    ("go test:*", "go test -run X -v ./..."),
    ("pytest:*", "pytest -x -q -p no:cacheprovider tests"),
    ("python -m pytest:*", "python -m pytest -n 2 tests"),
    ("make:*", "make -j4 test V=1"),
    ("npm test:*", "npm test -- --watch=false"),
    ("git fetch:*", "git fetch --prune origin"),
    ("cargo build:*", "cargo build --release"),
]


def judge(root: Path, rule: str, command: str, mode: str) -> str:
    rules = RuleSet([rule_of(f"Bash({rule})")])
    policy = make_policy(root=str(root), rule_set=rules, permission_mode=mode)
    return policy.judge("ExecuteCommand", "execute", Subject(command=command), "edit_mode").action


@each("rule, command", RUNS_CODE)
def test_an_option_that_runs_code_is_not_covered(rule: str, command: str, workspace: Path) -> None:
    assert judge(workspace, rule, command, "default") == "ask"
    assert judge(workspace, rule, command, "dontAsk") == "deny"
    assert judge(workspace, command, command, "default") == "allow", "a rule for the exact command covers it"


@each("rule, command", COVERED)
def test_other_options_are_covered(rule: str, command: str, workspace: Path) -> None:
    assert judge(workspace, rule, command, "default") == "allow"
