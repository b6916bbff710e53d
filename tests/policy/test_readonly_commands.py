"""Commands that run without approval because they only read, and only inside the project."""

import os
import random
import re
from pathlib import Path

import pytest

from odin.core.tool import Target
from odin.policy.commands.analysis import is_read_only, locate_steps
from odin.policy.commands.parser import parse_command
from odin.policy.commands.readonly.check import READ_ONLY_COMMANDS
from odin.policy.commands.readonly.git import GIT_COMMANDS
from odin.policy.commands.readonly.options import _parse_long_options, _parse_short_options
from tests.policy.everyday_commands import EVERYDAY_COMMANDS, make_repository
from tests.policy.policies import make_policy, make_scope


@pytest.fixture
def repo(workspace: Path) -> Path:
    """A small repository with two links that lead outside."""
    make_repository(workspace)
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret\n")
    (workspace / "linkdir").symlink_to(outside)
    (workspace / "notes.txt").symlink_to(outside / "secret")
    return workspace


def is_readonly_in(command: str, repo: Path, cwd: Path | None = None) -> bool:
    return is_read_only(command, make_scope(str(cwd or repo), str(repo)))


def test_everyday_commands_are_read_only(workspace: Path):
    make_repository(workspace)
    assert [command for command in EVERYDAY_COMMANDS if not is_readonly_in(command, workspace)] == []


NOT_READ_ONLY = [
    # --- writing through an operand, an option or an embedded program ---
    "uniq names.txt out",
    "xxd -r names.txt",
    "xxd -r names.txt out",
    "xxd names.txt out",
    "sort names.txt -o out",
    "sort -uo out names.txt",
    "sort --outpu=out names.txt",
    "sort -T . names.txt",
    "sort --files0-from=names.txt",
    "shuf -o out names.txt",
    "base64 names.txt out",
    "split names.txt",
    "csplit names.txt 1",
    "tee out",
    "sed -i s/x/z/ names.txt",
    "sed -ni p names.txt",
    "sed --in-place=.b s/x/z/ names.txt",
    "sed -n 'w out' names.txt",
    "sed s/x/z/w names.txt",
    "sed 's/x/z/w out' names.txt",
    "sed 's/x/touch out/e' names.txt",
    "sed 's/x/z/ge' names.txt",
    "sed 1e names.txt",
    "sed '1e touch out' names.txt",
    "sed -n '/x/w out' names.txt",
    "sed 'r names.txt' README.md",
    "sed -n p -e 'w out' names.txt",
    "sed -nf script.sed README.md",
    "sed --file=script.sed README.md",
    "sed 's/x/\\\nw out/' names.txt",
    "sed 'a\\' -e 'w out' names.txt",
    "sed '1{p;w out\n}' names.txt",
    "sed -n p /etc/passwd",
    "sed -n p .env",
    "sed 's/[/]/;s/w src//g' names.txt",
    "sed 's/[^/]*/;s/w src//g' names.txt",
    "sed -n '/[/]/p;/w src/p' names.txt",
    "sed '1a\\' names.txt",
    "sed -n '1{p;w out\n}' names.txt",
    "sed '1{e\n}' names.txt",
    "sed ':a;ba' names.txt",
    "sed 'y/a/b/;w out' names.txt",
    "sed -n '\\|x|w out' names.txt",
    'awk \'{ if (1) /"/; system("sh x"); /"/ }\' README.md',
    'awk \'{ for (i in a) /"/; system("sh x"); /"/ }\' README.md',
    'awk \'{ x\n/"/; system("sh x"); /"/ }\' README.md',
    'awk \'{ x++ /"/; system("sh x"); /"/ }\' README.md',
    'awk \'{ print length /"/; system("sh x"); /"/ }\' README.md',
    "awk '{ system (\"sh x\") }' README.md",
    "awk '{ cmd | getline line }' README.md",
    "awk '{ getline line < \"x\" }' README.md",
    "awk '{ run(\"x\") }' README.md",
    "awk '{ print line > file }' README.md",
    "awk '{ print ENVIRON[name] }' README.md",
    "awk 'BEGIN { while (1) print }'",
    # --- archives and glob patterns ---
    "unzip data.csv",
    "unzip -o data.csv",
    "gzip data.csv",
    "gzip -d data.csv",
    "gunzip data.csv",
    "xz data.csv",
    "zcat linkdir/secret",
    "tar -xf data.csv",
    "tar -tf host:data.csv",
    "tar -tf data.csv --to-command=x",
    "tar -tf data.csv -I ./evil.sh",
    "tar -tf /etc/x.tar",
    "ls linkdir/*",
    "ls *dir",
    "ls -l *dir/",
    "ls -lC *dir",
    "ls -ld *dir/",
    "stat -L *dir",
    "stat -f *dir",
    "file -L *",
    "du -sh */",
    "find */ -name x",
    "find -H *dir -name x",
    "cat *",
    "wc -l *",
    "md5sum *",
    "readlink -f linkdir",
    # --- commands that only seem to report ---
    "top -b",
    "vmstat 1",
    "ip -b names.txt",
    "ip link set lo down",
    "ip netns exec x ls",
    "tput init",
    "tput reset",
    "fuser -k README.md",
    "sysctl kernel.x=1",
    "sysctl -w kernel.x=1",
    "mount /dev/x",
    "getent hosts example.invalid",
    "systemctl stop x",
    "dpkg -i x",
    "jobs -x ls",
    "npm run test",
    "npm explain x --prefix=/etc",
    "docker container rm x",
    "grep -f /etc/passwd README.md",
    "grep -f .env README.md",
    "rg --file=/etc/passwd",
    "git diff --no-index README.md .env",
    "git diff --no-index src tests",
    "git remote show origin",
    "git submodule update",
    "git submodule foreach ls",
    "git bisect start",
    "git fsck --lost-found",
    "git hash-object -w README.md",
    "git hash-object --stdin-paths",
    "git cat-file --batch",
    "git -c diff.external=x diff",
    "TZ=/etc/passwd date",
    "GIT_PAGER=./evil.sh git log",
    "GIT_OPTIONAL_LOCKS=1 git status",
    "/bin/env ls",
    "/usr/local/bin/ls",
    "./ls",
    "[[ -v x ]]",
    "[[ a -eq b ]]",
    "[[ linkdir/secret -nt README.md ]]",
    "[[ -f linkdir/secret ]]",
    "test -f README.md -a -v x",
    "test -f README.md -o -f /etc/passwd",
    "awk 'BEGIN{system(\"touch out\")}'",
    "awk '{print > \"out\"}' README.md",
    "awk '{print $1 > $2}' README.md",
    "awk '{print(1) > \"out\"}' README.md",
    'awk \'BEGIN{print "touch out" | "sh"}\'',
    "awk 'BEGIN{\"touch out\" | getline}'",
    "awk 'BEGIN{while((getline l < \"/etc/passwd\")>0) print l}'",
    "awk 'BEGIN{print ENVIRON[\"HOME\"]}'",
    "awk '@load \"filefuncs\"'",
    "awk -f prog.awk README.md",
    "awk -i inplace '{print}' README.md",
    'awk \'{print /"/, system("touch out"), /"/}\' README.md',
    "awk '{x = $1 / system(\"touch out\") / 2}' README.md",
    'awk \'BEGIN{for (print "x" > "out"; 0;) x}\'',
    "awk 'BEGIN{ARGV[1]=\"/etc/passwd\"; ARGC=2} {print}'",
    "awk '{print}' /etc/passwd",
    "jq -n env",
    "jq -n '$ENV'",
    "jq -n '$ENV.HOME'",
    "jq -n '{a: env}'",
    "jq -n '\"\\(env)\"'",
    'jq -n \'"\\(.a) \\("x" | env)"\'',
    "jq -n '\"\\((env))\"'",
    "jq -f prog.jq data.json",
    "jq -L . . data.json",
    "jq 'include \"x\"; .' data.json",
    "jq 'import \"x\" as $d; $d' data.json",
    "jq --slurpfile x /etc/passwd . data.json",
    "jq . /etc/passwd",
    "jq -n '.[env:2]'",
    "jq --arg a . data.json",
    # --- lists of files, secret files and files outside ---
    "wc --files0-from=names.txt",
    "du --files0-from=names.txt",
    "file -f names.txt",
    "file -m names.txt README.md",
    "file -z names.txt",
    "file --files-from names.txt",
    "date -f names.txt",
    "date --file=names.txt",
    "date -s tomorrow",
    "date --set tomorrow",
    "md5sum -c names.txt",
    "cat .env",
    "cat ./.env.local",
    "head -1 server.pem",
    "grep KEY .env",
    "grep -r KEY . --include=.env",
    "wc -l < .env",
    "base64 id_rsa",
    "strings @names.txt",
    "strings -n @names.txt README.md",
    "grep -d recurse KEY .",
    "grep -r KEY . --include='[[:punct:]]env'",
    "grep -r KEY . --include='\\.env'",
    "git show HEAD:.env",
    "git diff README.md .env",
    "git diff --no-index README.md .env",
    "date -r /etc/passwd",
    "cat < /etc/passwd",
    "cat < notes.txt",
    "cat <> README.md",
    "cat 3< README.md",
    "ls *",
    "cat n*",
    "cat [n]otes.txt",
    "cat .e*",
    "cat */secret",
    "echo /etc/*",
    "echo ../*",
    "head -c *",
    # --- searches that run programs or follow links ---
    "rg --pre ./evil.sh TODO",
    "rg --pre=./evil.sh TODO",
    "rg --hostname-bin ./evil.sh TODO",
    "rg -z TODO",
    "rg -nz TODO",
    "rg --search-zip TODO",
    "rg -L TODO",
    "rg --follow TODO",
    "rg TODO /etc",
    "rg --ignore-file /etc/passwd TODO",
    "fd -x touch",
    "fd -X touch",
    "fd --exec touch",
    "fd -Hx touch",
    "fd -l",
    "fd -L x",
    "fd x /etc",
    "find -L . -name x",
    "find . -follow -name x",
    "find . -fls out",
    "find . -fprint0 out",
    "find . -files0-from names.txt",
    "find . -newerXm /etc/passwd",
    "find . -ok cat {} +",
    "find linkdir",
    "tree -o out",
    "tree -R",
    "tree -l",
    "tree --fromfile names.txt",
    "diff -r . linkdir",
    "diff -r . src",
    "diff --from-file=/etc/passwd README.md",
    "diff -l README.md Makefile",
    "diff a b c",
    "grep -R TODO .",
    "grep --dereference-recursive TODO .",
    "grep",
    "ls -L linkdir",
    # --- system settings, processes, network and interactive programs ---
    "hostname newname",
    "hostname -F names.txt",
    "hostname -f",
    "env",
    "printenv",
    "printenv OPENAI_API_KEY",
    "export",
    "set",
    "declare -p",
    "history",
    "ps eww",
    "ps auxe",
    "ps -auxe",
    "ps -auxeww",
    "ps -u xe",
    "ps -o environ",
    "ps -eo pid,environ",
    "ss -K dst 10.0.0.1",
    "ss -D out",
    "tput reset",
    "free -s 1",
    "sleep 100000",
    "sleep 61",
    "yes",
    "shuf -re a b",
    "seq 1 inf",
    "seq 1 99999999999",
    "awk 'BEGIN{while(1) print}'",
    "jq -n 'repeat(1)'",
    "less README.md",
    "more README.md",
    "vim README.md",
    "man ls",
    "top",
    "watch ls",
    "kill 1",
    "ping -c1 example.com",
    "dig example.com",
    "nslookup example.com",
    "host example.com",
    "getent hosts example.com",
    "curl https://example.com",
    "wget https://example.com",
    "ssh host",
    "nc -l 1",
    "docker -H tcp://evil:2375 ps",
    "docker run x",
    "docker exec x ls",
    "docker ps x",
    "ulimit -n 1",
    "umask 022",
    "exit x",
    # --- programs that run code of the project ---
    "python3",
    "python3 -c 1",
    "python3 -m pip list",
    "python3 -m json.tool data.json out",
    "python3 src/app.py --version",
    "pytest --version",
    "node",
    "node -e 1",
    "node -p 1",
    "yarn --version",
    "pnpm --version",
    "npm test",
    "npm run build",
    "npm install",
    "npm ls --workspace x --foo",
    "npx foo --version",
    "pip install x",
    "pip list --outdated",
    "pip freeze -r names.txt",
    "cargo tree",
    "cargo build",
    "go list ./...",
    "go env -w X=1",
    "make -n",
    "make --version -f Makefile",
    "mvn -v",
    "gradle --version",
    "bundle --version",
    "bash --version -c ls",
    # --- wrappers ---
    "timeout 5 touch x",
    "timeout -k 1 5 touch x",
    "timeout 5 ./ls",
    "timeout",
    "timeout 5",
    "nice touch x",
    "nice -n 5 touch x",
    "nohup touch x",
    "stdbuf -oL touch x",
    "command touch x",
    "time touch x",
    "time -o out ls",
    "command -p ls",
    "xargs ls",
    "setsid ls",
    "watch -n1 ls",
    "env ls",
    "env -i ls",
    "sudo ls",
    "busybox ls",
    "timeout 5 nice nohup stdbuf -oL command time nice ls",
    "PAGER=./evil.sh ls",
    "GIT_DIR=x git log",
    "PATH=. ls",
    "TZ=/etc/passwd date",
    # --- git ---
    "git -C .. status",
    "git -C linkdir status",
    "git -C /etc status",
    "git -C nowhere status",
    "git -c alias.x=!ls x",
    "git -c core.fsmonitor=./evil.sh status",
    "git -c core.pager=./evil.sh log",
    "git -ccolor.ui=false status",
    "git --config-env=core.pager=X log",
    "git -p log",
    "git --paginate log",
    "git help log",
    "git log --help",
    "git log --output=x",
    "git log --outpu=x",
    "git log --show-signature",
    "git log --format='%h %G?'",
    "git log --pretty=format:%GK",
    "git show --ext-diff",
    "git rev-list --output=x HEAD",
    "git blame --output=x README.md",
    "git diff --submodule=diff",
    "git describe --dirty",
    "git branch new",
    "git branch -v new",
    "git branch -a new",
    "git branch --sort=x new",
    "git branch -m a b",
    "git branch -d x",
    "git branch --delete x",
    "git branch --edit-description",
    "git branch --set-upstream-to=x",
    "git branch --unset-upstream",
    "git tag v2",
    "git tag -n1 v2",
    "git tag -a v2 -m x",
    "git tag --sort=x v2",
    "git tag -v v1",
    "git for-each-ref '--format=%(signature)'",
    "git remote show origin",
    "git remote update",
    "git remote add x y",
    "git remote set-url origin x",
    "git remote prune origin",
    "git stash",
    "git stash push",
    "git stash pop",
    "git stash drop",
    "git stash show a b",
    "git reflog expire --all",
    "git reflog delete HEAD@1",
    "git reflog -5 expire",
    "git config user.name me",
    "git config --unset user.name",
    "git config --add a.b c",
    "git config edit",
    "git config set a.b c",
    "git config -e",
    "git config --file /etc/passwd --list",
    "git config -f x -l",
    "git config --blob HEAD:x -l",
    "git worktree add x",
    "git worktree prune",
    "git submodule update",
    "git for-each-ref --sort=signature",
    "git submodule foreach ls",
    "git symbolic-ref HEAD refs/heads/x",
    "git symbolic-ref -d HEAD",
    "git cat-file --textconv HEAD:README.md",
    "git cat-file --filters HEAD:README.md",
    "git cat-file --batch",
    "git ls-remote",
    "git ls-remote --upload-pack=./evil.sh .",
    "git fetch",
    "git pull",
    "git push",
    "git grep -O./evil.sh TODO",
    "git grep --open-fi=./evil.sh TODO",
    "git grep -f names.txt",
    "git grep --no-index TODO",
    "git notes add -m x",
    "git bisect run ls",
    "git archive HEAD",
    "git bundle create x HEAD",
    "git format-patch -1",
    "git hash-object -w README.md",
    "git update-index --refresh",
    "git gc",
    "git unknown",
    "git st",
]

MORE_NOT_READ_ONLY = [
    "",
    "   ",
    "touch x",
    "ls; touch x",
    "ls && touch x",
    "ls || touch x",
    "ls | tee x",
    "ls\ntouch x",
    "ls & touch x",
    "ls &",
    "! ls",
    "(ls)",
    "{ ls; }",
    "if true; then ls; fi",
    "ls $(touch x)",
    "ls `touch x`",
    "ls <(touch x)",
    "echo ${x@P}",
    "echo ~",
    "echo {a,b}",
    "echo $'a'",
    "ls ~/x",
    "echo hi > x",
    "echo hi >> x",
    "echo hi >| x",
    "echo hi &> x",
    "ls 1<> x",
    "> x",
    "cat <<EOF\nx\nEOF",
    "ls >& x",
    "ls 2>&3",
    "./ls",
    "cat /etc/passwd",
    "cat ../outside/secret",
    "cat src/../../outside/secret",
    "cat notes.txt",
    "cat linkdir/secret",
    "ls linkdir/*",
    "ls /*",
    "ls -- *.md /etc",
    "cat /dev/zero",
    "cat pipe",
    "tail -f app.log",
    "tail -5f app.log",
    "head -n",
    "uniq names.txt out",
    "sort -o out names.txt",
    "sort -onames.txt data.csv",
    "sort --compress-program=./evil.sh names.txt",
    "sort --output=x names.txt",
    "tree -o x",
    "file -f names.txt",
    "file -C -m names.txt",
    "date -f names.txt",
    "date -s tomorrow",
    "date 01010000",
    "hostname newname",
    "wc --files0-from=names.txt",
    "du --files0-from=names.txt",
    "diff --to-file=/etc/passwd README.md",
    "diff -r . /etc",
    "grep -R --include=x y .",
    "find . -delete",
    "find . -exec touch x \\;",
    "find . -fprint x",
    'find . "-del"ete',
    "find / -name x",
    "find -L . -name x",
    "find . -newer /etc/passwd",
    "printf -v 'a[$(touch x)]' y",
    "test -v 'a[$(touch x)]'",
    "[ 'a[$(touch x)]' -eq 0 ]",
    "ps eww",
    "env",
    "set",
    "export X=1",
    "LD_PRELOAD=./x.so ls",
    "GIT_EXTERNAL_DIFF=./evil.sh git diff",
    "TZ=/etc/passwd date",
    "X=1",
    "timeout 5 touch x",
    "command -v ./evil.sh",
    "python3 -c 1 --version",
    "sudo ls",
    "cd",
    "cd .. && ls",
    "cd - && ls",
    "cd /etc && ls",
    "cd linkdir && cat secret",
    "cd nowhere && cat ../x",
    "cd src || cat ../README.md",
    "false && cd src; cat ../README.md",
    "cd src | ls",
    "LANG=C cd .. && ls",
    "cd $HOME && ls",
    "git",
    "git -C / status",
    "git -c core.pager=./evil.sh log",
    "git --exec-path=. status",
    "git --git-dir=/x status",
    "git commit -m x",
    "git push",
    "git branch new",
    "git branch -D main",
    "git tag v1",
    "git tag -d v1",
    "git checkout .",
    "git log --output=x",
    "git log --outpu=x",
    "git shortlog --output=x HEAD",
    "git diff --no-index /etc/passwd README.md",
    "git diff /etc/passwd README.md",
    "git diff ../outside/secret README.md",
    "git diff --ext-diff",
    "git show --textconv HEAD",
    "git log --format=%G?",
    "git log --format %GK",
    "git grep -O./evil.sh TODO",
    "git grep --open-fi=./evil.sh TODO",
    "git stash",
    "git reflog expire --all",
    "git blame --contents /etc/passwd README.md",
    "git status -- /etc",
    "git cat-file --textconv HEAD:README.md",
    "git ls-remote --upload-pack=./evil.sh .",
]


def test_other_commands_are_not_read_only(repo: Path):
    os.mkfifo(repo / "pipe")
    for name in (".env", "server.pem", "id_rsa"):
        (repo / name).write_text("KEY=1\n")
    assert [command for command in (*MORE_NOT_READ_ONLY, *NOT_READ_ONLY) if is_readonly_in(command, repo)] == []


# --- options ---


@pytest.mark.slow
def test_unlisted_option_always_needs_approval(repo: Path):
    """Try every letter and a few hundred words as options of every command, alone and bundled."""
    words = re.findall(
        r"[a-z][a-z0-9-]{2,}", " ".join(known.long for known in (*READ_ONLY_COMMANDS.values(), *GIT_COMMANDS.values()))
    )
    words += [
        "output",
        "exec",
        "pre",
        "in-place",
        "compress-program",
        "upload-pack",
        "follow",
        "files0-from",
        "help-all",
    ]
    letters = [chr(code) for code in range(33, 127) if chr(code) not in "'\"`$\\&;|<>(){}*?[]!~#"]
    chosen = random.Random(7)
    lists = {
        **{(name,): known for name, known in READ_ONLY_COMMANDS.items()},
        **{("git", name): known for name, known in GIT_COMMANDS.items()},
    }
    wrong: list[str] = []
    for name, known in lists.items():
        short, long = _parse_short_options(known.short), _parse_long_options(known.long)
        tried = [f"-{letter}" for letter in letters if letter not in short and letter != "-"]
        tried += [f"--{word}" for word in words if word not in long]
        tried += [f"--{word}=x" for word in words if word not in long]
        tried += [f"--{word[:-1]}" for word in long if word[:-1] not in long]
        tried += [f"-{letter}{bad[1:]}" for letter in short if not short[letter] for bad in tried[:5]]
        for option in chosen.sample(tried, min(len(tried), 40)):
            command = [*name, option, "README.md"]
            if known.takes_number and option[1:].isdigit():
                continue
            if is_readonly_in(" ".join(command), repo):
                wrong.append(" ".join(command))
    assert wrong == []


def test_path_outside_the_project_needs_approval(repo: Path):
    """For every command that takes paths."""
    texts = {"tr", "seq", "factor", "numfmt", "basename", "dirname", "true", "false", ":", "printf", "cal", "shuf"}
    texts |= {"pgrep", "ss"}
    names = {"which", "whereis", "id", "groups", "pidof", "locale", "pstree", "pwdx", "w", "last", "sysctl", "readlink"}
    first_is_text = {"grep", "egrep", "fgrep", "rg", "awk", "gawk", "mawk", "nawk", "look", "jq", "sed"}
    wrong: list[str] = []
    for name in READ_ONLY_COMMANDS.keys() - texts:
        for path in ("/etc/passwd", "../outside/secret", "notes.txt", "linkdir/secret"):
            command = f"{name} x {path}" if name in first_is_text else f"{name} {path}"
            if is_readonly_in(command, repo) and not (name in names and "/" not in path):
                wrong.append(command)
    assert wrong == []


def test_glob_that_matches_a_file_named_like_an_option_needs_approval(repo: Path):
    assert is_readonly_in("sort *.txt", repo) is False  # notes.txt is a link that leads outside
    (repo / "notes.txt").unlink()
    (repo / "linkdir").unlink()
    assert is_readonly_in("sort *.txt", repo)
    assert is_readonly_in("ls *", repo)
    (repo / "-r").write_text("")
    assert not is_readonly_in("ls *", repo)
    (repo / "-r").unlink()
    (repo / "-ox.txt").write_text("")
    assert not is_readonly_in("sort *.txt", repo)
    assert not is_readonly_in("ls *", repo)
    assert is_readonly_in("sort -- *.txt", repo)
    assert is_readonly_in("sort ./*.txt", repo)
    (repo / "--compress-program=x.txt").write_text("")
    assert not is_readonly_in("sort *.txt", repo)


def test_glob_as_the_value_of_an_option_needs_approval(repo: Path):
    (repo / "linkdir").unlink()
    (repo / "notes.txt").unlink()
    assert is_readonly_in("head -n 1 *.md", repo)
    assert not is_readonly_in("head -n *.md", repo)
    assert not is_readonly_in("git log --format *.md", repo)


def test_search_that_would_open_secret_files_needs_approval(repo: Path):
    assert is_readonly_in("grep -rn KEY .", repo)
    (repo / ".env").write_text("KEY=1\n")
    assert not is_readonly_in("grep -rn KEY .", repo)
    assert not is_readonly_in("grep -rn KEY", repo)
    assert is_readonly_in("grep -rn KEY src", repo)
    assert is_readonly_in("grep -rn --include='*.py' KEY .", repo)
    assert not is_readonly_in("grep -rn --include='.e*' KEY .", repo)
    assert is_readonly_in("grep -rn KEY . --exclude=.env", repo)
    assert not is_readonly_in("grep -rn KEY . --exclude=.env --include=.env", repo)
    assert not is_readonly_in("grep -rn KEY . --exclude='*env'", repo)
    assert is_readonly_in("grep -rn KEY . --include=.env --exclude=.env", repo)
    assert not is_readonly_in("rg KEY", repo)
    assert not is_readonly_in("rg --hidden KEY", repo)
    assert not is_readonly_in("rg -uu KEY", repo)
    assert is_readonly_in("rg KEY -g '!.env'", repo)
    assert is_readonly_in("rg KEY -g '!.e*'", repo)
    assert is_readonly_in("rg -uu KEY --iglob '!{.ENV,x}'", repo)
    assert is_readonly_in("rg KEY -g '*.py'", repo)
    assert not is_readonly_in("rg KEY -g '!.env' -g '.env'", repo)
    assert not is_readonly_in("rg KEY -g '!.env' --iglob '.*'", repo)
    assert not is_readonly_in("rg KEY -g '!/.env'", repo)
    assert not is_readonly_in("rg KEY -g '!.en[v]'", repo)
    assert not is_readonly_in("cat .env", repo)
    assert is_readonly_in("ls -la .env", repo)
    (repo / "src" / "server.key").write_text("x\n")
    assert not is_readonly_in("rg KEY", repo)
    assert not is_readonly_in("grep -rn KEY src", repo)
    (repo / "link").symlink_to(".env")
    assert not is_readonly_in("cat link", repo)


def test_search_of_a_too_large_tree_needs_approval(repo: Path, monkeypatch: pytest.MonkeyPatch):
    from odin.policy.commands.readonly import searches
    from odin.policy.commands.readonly.searches import EVERY_SECRET

    monkeypatch.setattr(searches, "_MAX_ENTRIES", 3)
    assert not is_readonly_in("grep -rn KEY .", repo)
    assert not is_readonly_in("rg KEY", repo)
    assert is_readonly_in(f"rg KEY '--iglob={EVERY_SECRET}'", repo)
    assert not is_readonly_in(f"rg KEY '--iglob={EVERY_SECRET}' --iglob=.env", repo)
    assert is_readonly_in("grep -n KEY README.md", repo)


def test_diff_of_folders_with_links_needs_approval(repo: Path):
    assert is_readonly_in("diff -r src tests", repo)
    (repo / "tests" / "link").symlink_to("/etc/passwd")
    assert not is_readonly_in("diff -r src tests", repo)
    assert not is_readonly_in("diff src tests", repo)
    assert is_readonly_in("diff src/app.py tests/test_app.py", repo)


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("cargo --version", "rust-toolchain.toml"),
        ("rustc --version", "rust-toolchain"),
        ("go version", "go.mod"),
        ("npm --version", ".npmrc"),
        ("npm ls", ".npmrc"),
    ],
)
def test_program_that_a_project_file_configures_needs_approval(repo: Path, command: str, file: str):
    assert is_readonly_in(command, repo)
    assert is_readonly_in(command, repo, repo / "src")
    (repo / file).write_text("")
    assert not is_readonly_in(command, repo)
    assert not is_readonly_in(command, repo, repo / "src")


def test_ripgrep_with_a_config_file_needs_approval(repo: Path, monkeypatch: pytest.MonkeyPatch):
    assert is_readonly_in("rg TODO", repo)
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(repo / ".ripgreprc"))
    assert not is_readonly_in("rg TODO", repo)


def test_docker_on_a_remote_host_needs_approval(repo: Path, monkeypatch: pytest.MonkeyPatch):
    assert is_readonly_in("docker ps", repo)
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    assert not is_readonly_in("docker ps", repo)


# --- where a command runs ---


def test_command_that_runs_outside_the_project_needs_approval(repo: Path):
    assert is_readonly_in("cat README.md", repo)
    assert not is_readonly_in("cat README.md", repo, repo.parent)
    assert is_readonly_in("cat ../README.md", repo, repo / "src")
    assert not is_readonly_in("cat ../../outside/secret", repo, repo / "src")


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("cd src && a", ["", "src"]),
        ("cd src; a", ["", "", "src"]),
        ("a; cd src && b; c", ["", "", "src", "", "src"]),
        ("a || cd src && b", ["", "", "", "src"]),
        ("cd src && cd .. && a", ["", "src", ""]),
        ("a && cd src && b && c", ["", "", "src", "src"]),
        ("cd src/../tests && a", ["", "tests"]),
    ],
)
def test_cd_is_tracked_through_a_command_line(repo: Path, line: str, places: list[str]):
    placed = locate_steps(parse_command(line), make_scope(repo))
    assert placed is not None
    assert [str(Path(folder).relative_to(repo)).removeprefix(".") for _, folder in placed] == places


@pytest.mark.parametrize(
    "line", ["cd", "cd ..", "cd -", "cd ~", "cd nowhere", "cd README.md", "cd src | a", "a | cd src", "cd linkdir"]
)
def test_cd_to_an_unknown_folder_makes_the_location_unknown(repo: Path, line: str):
    assert locate_steps(parse_command(f"{line} && ls"), make_scope(repo)) is None


def test_cd_through_a_link_needs_approval(repo: Path):
    """After `cd link`, `..` is the parent of the link for the shell, but the parent of its target for programs."""
    (repo / "src" / "deep").mkdir()
    (repo / "door").symlink_to("src/deep")
    assert is_readonly_in("cd src/deep && cat ../app.py", repo)
    assert not is_readonly_in("cd door && cat ../app.py", repo)
    assert not is_readonly_in("cd door/.. && cat README.md", repo)
    assert not is_readonly_in("cd door && cd .. && cat README.md", repo)


def test_project_program_that_shadows_a_system_program_needs_approval(repo: Path, monkeypatch: pytest.MonkeyPatch):
    tools = repo / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert is_readonly_in("ls", repo)
    for name in ("ls", "timeout"):
        (tools / name).write_text("#!/bin/sh\ntouch PWNED\n")
    assert not is_readonly_in("ls", repo)
    assert not is_readonly_in("timeout 5 cat README.md", repo)
    assert is_readonly_in("cat README.md", repo)
    monkeypatch.setenv("PATH", f"bin:{os.environ['PATH'].split(':', 1)[1]}")
    assert not is_readonly_in("ls", repo)
    monkeypatch.setenv("PATH", f":{os.environ['PATH'].split(':', 1)[1]}")
    assert is_readonly_in("ls", repo)
    (repo / "ls").write_text("")
    assert not is_readonly_in("ls", repo)


def test_cd_with_cdpath_set_needs_approval(repo: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CDPATH", "/")
    assert not is_readonly_in("cd src && ls", repo)


# --- reasons ---


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ls; echo $TOKEN", "the value of '$TOKEN' is only known when it runs"),
        ("(ls; pwd)", "it is more than a list of simple commands"),
        ("ls && rg -z TODO", "rg -z is not known to be read-only"),
        ("git log --oneline --show-signature", "git log --show-signature is not known to be read-only"),
        ("docker logs x", "docker is not known to be read-only with these arguments"),
        ("ls | xargs wc", "'xargs' is not a known read-only command"),
        ("ls; cat .env", "cat would open .env, which may contain secrets"),
    ],
)
def test_reason_names_the_part_that_needs_approval(repo: Path, command: str, said: str):
    decision = make_policy(root=str(repo)).evaluate("ExecuteCommand", "execute", Target(command=command), "ask_mode")
    assert decision.action == "ask"
    assert decision.reason.endswith(f"run without approval: {said}.")


def test_reason_for_a_glob_names_the_link_that_leads_outside(repo: Path):
    decision = make_policy(root=str(repo)).evaluate("ExecuteCommand", "execute", Target(command="cat li*"), "ask_mode")
    assert decision.reason.startswith("The command names linkdir, outside the project")


def test_secret_files_of_dependencies_do_not_affect_a_search(repo: Path):
    fetched = repo / "node_modules" / "tls"
    fetched.mkdir(parents=True)
    (fetched / "sample.pem").write_text("-----BEGIN")
    policy = make_policy(root=str(repo))

    def find_action(command: str) -> str:
        return policy.evaluate("ExecuteCommand", "execute", Target(command=command), "ask_mode").action

    assert find_action("grep -rn x .") == "allow"
    assert find_action("grep -Rn x .") == "ask"
    assert find_action("cat node_modules/tls/sample.pem") == "ask"
    (repo / "src" / "server.pem").write_text("-----BEGIN")
    assert not is_readonly_in("grep -rn x .", repo)
