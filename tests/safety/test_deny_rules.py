"""A deny rule applies to every spelling of a command: a word that is not literal and could match counts as a match.

Where Odin asks, such a command needs approval; where it does not (`--yes`, bypassPermissions, dontAsk), it is denied,
and the reason names the rule. Commands that have nothing to do with the rule still run.
"""

from pathlib import Path
from typing import Any

import pytest

from odin.core.tool import Target
from odin.policy.decision import Decision
from odin.policy.rules.rule import RuleSet, parse_rule
from tests.policy.policies import make_policy
from tests.table import each

TAG = "Bash(git tag:*)"

NOT_ASKING: list[dict[str, Any]] = [
    {"yes": True},
    {"permission_mode": "bypassPermissions"},
    {"permission_mode": "dontAsk"},
    {"permission_mode": "dontAsk", "yes": True},
]

EVASIONS = [
    # substitutions and variables
    "git $(echo tag) M",
    "git `echo tag` M",
    'git "$(printf tag)" M',
    "x=tag; git $x M",
    "x=tag\ngit ${x} M",
    "x=t; x+=ag; git $x M",
    "x=ag; git t$x M",
    "export x=tag && git $x M",
    "declare -l x=TAG; git $x M",
    "for x in log tag; do git $x M; done",
    "read x <<< tag; git $x M",
    "echo tag | while read x; do git $x M; done",
    "printf -v x tag; git $x M",
    ": tag; git $_ M",
    "set -- tag; git $1 M",
    "set -- tag M; git $@",
    "a=(tag M); git ${a[@]}",
    "git ${y:-tag} M",
    "git ${HOME:+tag} M",
    "x=xtag; git ${x#x} M",
    "git $((1))tag M",
    "git $'ta\\x67' M",
    "git $undefined tag M",
    "git {tag,M}",
    "git {t..t}ag M",
    "{git,tag,M}",
    # globs that match a file with that name
    "git t?g M",
    "git [t]ag M",
    "git ta* M",
    # the program
    "p=git; $p tag M",
    "p='git tag'; $p M",
    '"$p" tag M',
    "$(which git) tag M",
    "$(echo git) tag M",
    "/usr/bin/gi? tag M",
    "g\\it tag M",
    '"git" tag M',
    "$'git' tag M",
    "/usr/bin/git tag M",
    "git-tag M",
    "/usr/lib/git-core/git-tag M",
    "ln -s /usr/bin/git x; ./x tag M",
    "cp $(command -v git) ./x && ./x tag M",
    # options before the subcommand
    "git -C . tag M",
    "git --no-pager tag M",
    "git --git-dir .git tag M",
    "git -c alias.t=tag t M",
    "git --config-env=alias.t=T t M",
    "git config alias.t tag; git t M",
    "git -C $(pwd) tag M",
    "git $opts tag M",
    "git -C ./$x",
    "git --git-dir=$x M",
    "git {-C,.} tag M",
    # wrappers
    "env git tag M",
    "env X=1 git tag M",
    "env -S 'git tag M'",
    "sudo git tag M",
    "sudo -u me -- git tag M",
    "nohup git tag M",
    "timeout 5 git tag M",
    "timeout -k 1 5 nice -n 5 git tag M",
    "command git tag M",
    "exec git tag M",
    "coproc git tag M",
    "busybox sh -c 'git tag M'",
    "uv run git tag M",
    "npx -c 'git tag M'",
    "chronic git tag M",
    "tmux new -d 'git tag M'",
    "echo M | xargs git tag",
    "echo tag M | xargs git",
    "cat words | xargs git",
    "cat words | xargs -I% git % M",
    "echo tag | xargs -I% git % M",
    "find . -maxdepth 0 -exec git tag M \\;",
    "find tag -exec git {} M \\;",
    "find . -name x | xargs -n1 sh -c 'git tag $0'",
    # text that becomes a command
    "eval 'git tag M'",
    'eval "git $x"',
    "eval git ta''g M",
    "bash -c 'git tag M'",
    "bash -c 'git $0 M' tag",
    'bash -c "$x"',
    "sh <<X\ngit tag M\nX",
    "sh <<X\ngit t\\\\ag M\nX",
    "bash <<< 'git tag M'",
    "echo 'git tag M' | sh",
    "printf 'git t\\141g M' | sh",
    "echo Z2l0IHRhZyBN | base64 -d | sh",
    "trap 'git tag M' EXIT",
    "alias g=git\ng tag M",
    'g() { git "$@"; }; g tag M',
    "g() { $1 tag M; }; g git",
    "python3 -c \"import os; os.system('git '+'tag M')\"",
    "python3 -c \"import os; os.system('gi'+'t ta'+'g M')\"",
    "python3 <<X\nimport subprocess\nsubprocess.run(['gi' + 't', 'tag'])\nX",
    "perl -e 'system(qw(git tag M))'",
    'awk \'BEGIN { system("gi" "t tag M") }\'',
    "ed <<< '!git tag M'",
    "ed -s a.txt <<< 'r !g\\it tag M'",
    "ed <<< '!$(echo git) tag M'",
    "echo '!git tag M' | ed",
    "ed <<X\n1,5!git tag M\nX",
    "ed <<X\n!gi${x}t tag M\nX",
    "ex -s <<< ':!git tag M'",
    "vim -es <<< '!git tag M'",
    "dc <<< '!git tag M'",
    "m4 <<< 'syscmd(git tag M)'",
    "m4 <<< 'esyscmd(gi''t tag M)'",
    "echo 'define(x,gi)syscmd(x()t tag M)' | m4",
    "m4 <<X\nsyscmd(git tag M)\nX",
    "sqlite3 <<< '.shell git tag M'",
    "gdb <<< 'shell git tag M'",
    "psql <<< '\\! git tag M'",
    "sh -c 'ed <<< \"!git tag M\"'",
    "python3 tool.py <<X\ngit tag M\nX",
    "uv run python tool.py <<X\ngit tag M\nX",
    "less '+!git tag M' a.txt",
    "vim '+!git tag M'",
    "sed '1e git tag M' a.txt",
    "sed 's|x|gi\"\"t tag M|ge' a.txt",
    "awk '{ print | s }' s=sh words",
    "sqlite3 a.db '.shell gi\"\"t tag M'",
    "perl -e'system(shift)' x",
    "uv run python -c 'import os; os.system(x)'",
    "python3 -c \"import os; os.__dict__['sys' + 'tem']('x')\"",
    "cat words | python3",
    '"$x/sh" -c \'git t""ag M\'',
    # scripts
    "sh no-such-script",
    "sh tagging.sh",
    "./tagging.sh",
    ". ./tagging.sh",
    "source tagging.sh",
    "bash hidden.sh",
    "echo 'git tag M' > new.sh; sh new.sh",
    "cp tagging.sh plain.sh; sh plain.sh",
    "sh < tagging.sh",
    "linked tag M; ./linked tag M",
    "cd venv; ../linked tag M",
    "git checkout other -- plain.sh; sh plain.sh",
    "sort -o plain.sh words; sh plain.sh",
]

UNRELATED = [
    "git status",
    "git log tag",
    "git log --oneline $(git merge-base a b)..HEAD",
    'git commit -m "$(cat message)"',
    "git commit -m 'git tag M'",
    'git commit -m "release $VERSION"',
    "git -C $HOME/x log",
    'git -C "$folder" log',
    "git format-patch -1",
    "git diff $BASE",
    "git checkout -b $branch",
    "git add *.py",
    "for f in a b; do git add $f; done",
    "git --no-pager log tag",
    "echo git tag",
    "grep -rn 'git tag' docs",
    "x=1; echo $x",
    'echo "$HOME"',
    "npm test",
    "npm run tag",
    "make tag",
    "make -j$(nproc)",
    "pytest -k tag",
    "find . -name '*.py' | xargs wc -l",
    "find . -name '*.py' -exec wc -l {} +",
    "find . -name '*.py' -exec git add {} +",
    "docker build -t app:$TAG .",
    "python3 tool.py tag",
    "echo 'run git tag M' | tee notes.txt",
    "bash plain.sh",
    "./plain.sh",
    "sh -x plain.sh > log",
    "source venv/bin/activate && pytest",
    "bash <<'X'\nls\nX",
    "~/bin/tool tag",
    "apt install git",
    "which git",
    "cp -r src dst",
    "timeout 5 pytest",
]


@pytest.fixture
def project(workspace: Path, home: Path) -> Path:
    (workspace / "tagging.sh").write_text("#!/bin/sh\ngit tag M\n")
    (workspace / "tagging.sh").chmod(0o755)
    (workspace / "hidden.sh").write_text('a=gi; b=t; "$a$b" tag M\n')
    (workspace / "plain.sh").write_text("#!/bin/sh\nset -e\nmake all\nls\n")
    (workspace / "plain.sh").chmod(0o755)
    (workspace / "tool.py").write_text("print('tag')\n")
    (workspace / "venv" / "bin").mkdir(parents=True)
    (workspace / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (workspace / "venv" / "bin" / "activate").write_text('VIRTUAL_ENV=/x\nPATH="$VIRTUAL_ENV/bin:$PATH"\nhash -r\n')
    (workspace / ".env").write_text("A=1\n")
    (workspace / "linked").symlink_to("/usr/bin/git")
    return workspace


def judge(root: Path, command: str, *denied: str, **settings: Any) -> Decision:
    rules = RuleSet([parse_rule(text, "deny") for text in denied])
    policy = make_policy(root=str(root), rule_set=rules, **settings)
    return policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode")


@each("settings", NOT_ASKING)
@each("command", EVASIONS)
def test_every_spelling_of_a_denied_command_is_denied_where_odin_does_not_ask(
    command: str, settings: dict[str, Any], project: Path
) -> None:
    decision = judge(project, command, TAG, **settings)
    assert decision.action == "deny"
    assert TAG in decision.reason


@each("command", EVASIONS)
def test_every_spelling_is_denied_or_needs_approval_where_odin_asks(command: str, project: Path) -> None:
    decision = judge(project, command, TAG)
    assert decision.action in ("ask", "deny")
    assert TAG in decision.reason


@each("command", EVASIONS)
def test_the_same_commands_are_allowed_without_the_rule(command: str, project: Path) -> None:
    assert judge(project, command, yes=True).action == "allow"


@each("command", UNRELATED)
def test_unrelated_commands_are_allowed(command: str, project: Path) -> None:
    decision = judge(project, command, TAG, yes=True)
    assert decision.action == "allow", decision.reason


OTHER_RULES = [
    ("Bash(npm publish:*)", "npm $(echo publish)"),
    ("Bash(npm publish:*)", "npm publ"),
    ("Bash(npm publish:*)", "npm --prefix x publish"),
    ("Bash(docker push:*)", "docker --context x push y"),
    ("Bash(kubectl delete:*)", "kubectl -n x delete pod y"),
    ("Bash(git push --force:*)", "git push --forc"),
    ("Bash(git push --force:*)", "git push $(echo --force)"),
    ("Bash(git push --force:*)", 'git push "$x"'),
    ("Bash(git push)", "git push $x"),
    ("Bash(git push)", "git $x"),
    ("Bash(curl:*)", "c=curl; $c x"),
    ("Bash(curl:*)", "uv run curl x"),
    ("Bash(curl:*)", "cu{r,}l x"),
    ("Bash(rm *)", "find . -name x | xargs $cmd"),
    ("Read(.env)", "cat $(echo .env)"),
    ("Read(.env)", "x=$(echo .env); cat $x"),
    ("Read(.env)", "cat < $x"),
    ("Read(.env)", "find . | xargs cat"),
    ("Read(.env)", "find . -type f -exec cat {} +"),
    ("Read(.env)", "$x .env"),
    ("Read(.env)", "cat $PWD/.en?"),
    ("Read(.env)", 'eval "cat $x"'),
    ("Read(.env)", 'cat "src/$x"'),
    ("Read(.env)", "cat $x.py"),
    ("Read(.env)", "cd $x && cat .env"),
    ("Read(.env)", "grep -r x ."),
    ("Read(.env)", "python3 -c \"print(open('.e' + 'nv').read())\""),
    ("Read(.env)", "ed <<< 'r .env'"),
    ("Read(.env)", "sed 'r .env' a.txt"),
    ("Read(config/**)", "cat $x/a.txt"),
    ("Edit(config/**)", "echo x > $target"),
    ("Read(~/.ssh/**)", "cat ~/.ssh/id_rsa"),
    ("Read(~/.ssh/**)", "cat $HOME/.ssh/id_rsa"),
    ("Read(~/.ssh/**)", "cat ${HOME}/.ssh/id_rsa"),
    ("Read(~/.ssh/**)", "cd ~ && cat .ssh/id_rsa"),
]


@each("rule, command", OTHER_RULES)
def test_evasions_of_other_deny_rules_are_denied(rule: str, command: str, project: Path) -> None:
    decision = judge(project, command, rule, yes=True)
    assert decision.action == "deny"
    assert rule in decision.reason


CODE = [
    "python3 -c 'print(1)'",
    "python3 -I -c 'print(1)'",
    "python3 - <<< 'print(1)'",
    "python3 -v <<< 'print(1)'",
    "uv run --with x python -c 'print(1)'",
    "node -e 'return !x'",
    "npx tsx -e x",
    "deno eval x",
    "perl -I lib -ne print a.txt",
    "node --eval=x y",
    "php -B 'x();' a.php",
    "ocaml -w A -e x",
    "uv run php -B 'x();' a.php",
    "python3 -u -m timeit x",
    "awk '{print $2}' a.txt",
    "ed -s a.txt <<< '1d'",
    "m4 a.m4 > a.txt",
    "sqlite3 a.db .tables",
    "sed -f script a.txt",
    "sed -n 1e a.txt",
    "sed -i '' 1e a.txt",
    "sed p -e 'w b.txt' a.txt",
    "sed --expression='1e x' a.txt",
    "sed 's/x/y/;s,x,y,2e' a.txt",
    'sed "$x" a.txt',
    "sed $x '1e git' a.txt",
    "sed p $x '1e git' a.txt",
    "node $x 'y()'",
    "python3 -u $x 'y()'",
    "echo -c x | xargs python3",
    "less +!x a.txt",
]

PLAIN_PROGRAMS = [
    "python3 --version",
    "node -v",
    "python3 -m pytest -k 'a or b' -p no:x",
    "python3 tool.py -c 'a b'",
    "node script.js 'a b'",
    "node --test",
    "php -l x.php",
    "uv run pytest -q",
    "uv run python tool.py",
    "git add python",
    "npm install node",
    "python3 -W ignore -m pytest -x",
    "npx prettier --check .",
    "make test",
    "sed -n '10,20p' a.txt",
    "sed -n '10,20p' \"src/$f.py\"",
    'sed -i "s/a $x/b/" a.txt',
    'python3 tool.py "src/$x.py"',
    "sed -i -E 's/(a|b)/\\1e/g; /^e/d' a.txt",
    "sed -e ':a;N;$!ba;s/x/ /g' -e '$a e x' a.txt",
]


@each("command", CODE)
@each("rule", [TAG, "Read(.env)", "Edit(config/**)"])
def test_code_of_which_nobody_knows_what_it_does_is_denied(rule: str, command: str, project: Path) -> None:
    assert judge(project, command, rule).action == "ask"
    decision = judge(project, command, rule, yes=True)
    assert decision.action == "deny"
    assert "is only known when it runs" in decision.reason


OTHER_UNRELATED = [
    ("Bash(npm publish:*)", "npm run $task"),
    ("Bash(git push --force:*)", "git push origin main"),
    ("Bash(git push --force:*)", 'git commit -m "$x"'),
    ("Bash(curl:*)", "which curl"),
    ("Bash(curl:*)", "apt-get install -y curl"),
    ("Read(.env)", "echo $(date)"),
    ("Read(.env)", 'git commit -m "$(date)"'),
    ("Read(.env)", "for f in src/*.py; do echo $f; done"),
    ("Read(.env)", 'cat "$folder/main.py" src/*.py $HOME/x'),
    ("Bash(git push:*)", "ls $HOME/x"),
    ("Bash(git push:*)", 'echo "$FOO"'),
    ("Bash(git push:*)", "pytest tests/*.py"),
    ("Bash(git push:*)", '"$VENV/bin/python" -m pytest $ARGS'),
    ("Bash(git push:*)", "sed -i 's/me/you/g' a.txt && sed -e 's/a/b/' -e 's/c/d/' a.txt"),
    ("Bash(git push:*)", "git log | less"),
    ("Bash(git push:*)", "kubectl -n $ns get pods"),
    ("Read(.env)", "source venv/bin/activate && pytest"),
    ("Read(.env)", "make -j4"),
    *(("Bash(git push:*)", command) for command in PLAIN_PROGRAMS),
    *(("Read(.env)", command) for command in PLAIN_PROGRAMS),
]


@each("rule, command", OTHER_UNRELATED)
def test_other_deny_rules_allow_unrelated_commands(rule: str, command: str, project: Path) -> None:
    decision = judge(project, command, rule, yes=True)
    assert decision.action == "allow", decision.reason


def test_an_unknown_command_of_git_may_be_an_alias(project: Path) -> None:
    for command in ("git t M", "git my-tag M", "git T M"):
        assert judge(project, command, TAG).action == "ask"
        assert judge(project, command, TAG, yes=True).action == "deny"
    assert judge(project, "git status", TAG, yes=True).action == "allow"


def test_an_allow_rule_for_exactly_this_command_still_applies(project: Path) -> None:
    rules = RuleSet([parse_rule(TAG, "deny"), parse_rule("Bash(git $x M)", "allow")])
    policy = make_policy(root=str(project), rule_set=rules, yes=True)
    decision = policy.evaluate("ExecuteCommand", "execute", Target(command="git $x M"), "edit_mode")
    assert decision.action == "allow"


def test_an_ask_rule_applies_to_commands_that_cannot_be_resolved(project: Path) -> None:
    rules = RuleSet([parse_rule("Bash"), parse_rule(TAG, "ask")])
    policy = make_policy(root=str(project), rule_set=rules)
    for command, action in (
        ("x=tag; git $x M", "ask"),
        ("x=log; git $x M", "ask"),
        ("x=1; git log $x", "allow"),
        ("make", "allow"),
    ):
        decision = policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode")
        assert decision.action == action, command
