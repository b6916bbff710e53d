"""A prefix rule never covers what runs other code: neither an option, nor a program whose arguments say what runs."""

from pathlib import Path

import pytest

from odin.app.policy import load_rule_set
from odin.app.roles import make_rules
from odin.config.layers import load
from odin.context.agent_definition import AgentDefinition
from odin.core.errors import UsageError
from odin.core.tool import Target
from odin.policy.rules.rule import RuleSet, parse_rule
from odin.policy.rules.rule_file import RuleReader
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
    ("uv run pytest:*", "uv run pytest -p evil"),
    ("uv run python -m pytest:*", "uv run python -m pytest --rootdir=evil"),
    ("npx eslint:*", "npx eslint --rulesdir evil a.js"),
    ("bundle exec rspec:*", "bundle exec rspec -r ./e"),
    ("time make:*", "time make SHELL=./e"),
    ("env CI=1 npm test:*", "env CI=1 npm test --script-shell=./e"),
    ("uv run npm:*", "uv run npm exec ./e"),
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
    ("npm:*", "npm exec ./e"),
    ("npm:*", "npm --silent x ./e"),
    ("uv:*", "uv run ./e"),
    ("poetry:*", "poetry -q run ./e"),
    ("docker compose:*", "docker compose run web ./e"),
    ("git:*", "git bisect run ./e"),
    ("git:*", "git submodule foreach ./e"),
    ("dotnet test:*", "dotnet test -p:CustomAfterMicrosoftCommonTargets=e.targets"),
    ("dotnet build:*", "dotnet build -logger:e.dll"),
    ("sqlite3 a.db", "echo .shell ./e | sqlite3 a.db"),
    ("python3", "echo 'import e' | python3"),
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
    ("npm:*", "npm run x"),
    ("npm exec prettier:*", "npm exec prettier src"),
    ("uv run pytest:*", "uv run pytest -x"),
    ("npx eslint:*", "npx eslint --fix src"),
    ("time make:*", "time make -j4 test"),
    ("docker compose:*", "docker compose up web"),
    ("python3 -m json.tool:*", "ls | python3 -m json.tool"),
]


def judge(root: Path, rule: str, command: str, mode: str) -> str:
    rules = RuleSet([parse_rule(f"Bash({rule})")])
    policy = make_policy(root=str(root), rule_set=rules, permission_mode=mode)
    return policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode").action


@each("rule, command", RUNS_CODE)
def test_an_option_that_runs_code_is_not_covered(rule: str, command: str, workspace: Path) -> None:
    assert judge(workspace, rule, command, "default") == "ask"
    assert judge(workspace, rule, command, "dontAsk") == "deny"
    assert judge(workspace, command, command, "default") == "allow", "a rule for the exact command covers it"


@each("rule, command", COVERED)
def test_other_options_are_covered(rule: str, command: str, workspace: Path) -> None:
    assert judge(workspace, rule, command, "default") == "allow"


TOO_BROAD = """
sed:*
sed -n:*
sed -i s/a/b/ *
awk:*
gawk -F , *
sqlite3:*
sqlite3 app.db:*
vite:*
vite build:*
webpack:*
webpack --mode production:*
swift:*
swift build:*
msbuild:*
psql:*
ed:*
vim:*
m4:*
less:*
find:*
python3:*
python3 *
/usr/bin/python3.12:*
python3 -c:*
python3 -u:*
python3 -m:*
python3 -m timeit:*
python3 * build.py
node:*
node -e *
node -r ./x.js:*
deno eval:*
bun:*
perl -pe:*
php -r:*
bash:*
bash -c:*
sh -x *
env:*
env X=1:*
env X=1 python3:*
xargs:*
nice:*
nice -n 5:*
timeout:*
timeout -k 1 60:*
timeout 60 sh:*
nohup nice python3:*
sudo:*
ssh:*
ssh host:*
ssh host uptime:*
watch:*
parallel:*
busybox sh:*
docker:*
docker run:*
docker run --rm alpine:*
docker compose exec web:*
kubectl exec:*
npx:*
npx -y:*
npx node:*
npm exec:*
npm --silent exec:*
uv run:*
uv run --with x:*
uv run python:*
poetry run python -c:*
bundle exec:*
git bisect run:*
git submodule foreach:*
*:*
* *
py*:*
* -c *
""".strip().split("\n")

NARROW = """
python3
python3 build.py:*
python3 -u tools/build.py --fast:*
python3 -m pytest:*
python3 scripts/*
node --test:*
php artisan:*
bun test:*
bun run build:*
deno task build:*
bash build.sh:*
env X=1 make:*
timeout 60 make:*
xargs grep:*
sudo apt:*
make:*
make test
npm:*
npm run:*
npm run test:*
npm test:*
npx prettier:*
npx -y tsc:*
uv run pytest:*
uv run python build.py:*
bundle exec rspec:*
docker ps:*
docker compose up:*
kubectl get:*
git:*
git * main
pytest:*
cargo:*
go test:*
dotnet test:*
swift --version
sed -n 1,5p a.txt
./scripts/*
./gradlew:*
* --version
""".strip().split("\n")


@each("pattern", TOO_BROAD)
def test_a_rule_that_leaves_open_what_runs_is_refused(pattern: str, workspace: Path) -> None:
    for text in (f"Bash({pattern})", f"Spawn({pattern})"):
        rule_set = RuleSet()
        with pytest.raises(UsageError, match=r"would allow .*\. Allow the exact command"):
            rule_set.add(text)
        reader = RuleReader("user", "rules.json").read([text, "Bash(make:*)"])
        assert [rule.text for rule in reader.rules] == ["Bash(make:*)"]
        assert f"rules.json: rules[0] is ignored: {text} would allow" in reader.warnings[0]
        for action in ("ask", "deny"):
            assert rule_set.add(text, action).text == text


@each("pattern", NARROW)
def test_a_rule_that_names_what_runs_is_accepted(pattern: str) -> None:
    assert RuleSet().add(f"Bash({pattern})").text == f"Bash({pattern})"


def test_too_broad_rules_of_flags_and_settings_are_ignored_with_a_warning(workspace: Path, home: Path) -> None:
    (workspace / "a").write_text("x\n")
    file = home / ".config/odin/odinconfig.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"AllowedCommands": ["awk"]}')
    env = {"HOME": str(home)}
    config = load(str(workspace), env, {"allowed_tools": ["Bash(sed:*)", "Bash(make:*)"]})
    rule_set = load_rule_set(config, env)
    assert [line.text for line in rule_set.list_rules()] == ["Bash(make:*)"]
    assert [warning.partition(" Allow the")[0] for warning in rule_set.warnings] == [
        f"{file}: AllowedCommands[0] is ignored: Bash(awk:*) would allow whatever awk can run.",
        "--allowed-tools is ignored: Bash(sed:*) would allow whatever sed can run.",
    ]
    policy = make_policy(root=str(workspace), rule_set=rule_set, permission_mode="dontAsk")
    for command in ("sed '1e ./e' a", "awk 'BEGIN { system(\"./e\") }'"):
        assert policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode").action == "deny"


def test_an_agent_may_be_limited_to_an_interpreter() -> None:
    """The rules of an agent allow nothing by themselves; an allow rule is an exception to a deny rule."""
    definition = AgentDefinition(name="x", rules={"bash": {"*": "deny", "python3 *": "allow"}})
    assert [(rule.action, rule.text) for rule in make_rules(definition)] == [
        ("deny", "bash"),
        ("allow", "bash(python3 *)"),
    ]
