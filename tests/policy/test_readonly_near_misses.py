"""Commands that look read-only by the usual syntax, but not by the rules of the program itself."""

from pathlib import Path

import pytest

from odin.policy.commands.analysis import is_read_only
from tests.policy.everyday_commands import make_repository
from tests.policy.policies import make_scope


@pytest.fixture
def repo(workspace: Path) -> Path:
    make_repository(workspace)
    (workspace / "a.zip").write_text("x\n")
    return workspace


def is_readonly_in(command: str, repo: Path) -> bool:
    return is_read_only(command, make_scope(repo))


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        # --- after the first operand an option is a file, and the second file is written ---
        ("xxd -p names.txt", "xxd names.txt -p"),
        ("uniq -c names.txt", "uniq names.txt -c"),
        ("unzip -l a.zip", "unzip a.zip -l"),
        ("gzip -dc data.csv", "gzip data.csv -dc"),
        ("sed -e p names.txt", "sed 'w out' names.txt -e p"),
        # --- bundled options are not read letter by letter, or continue after an option that takes the next word ---
        ("xxd -p -l 16 names.txt", "xxd -pl names.txt out"),
        ("xxd -l16 names.txt", "xxd -bs names.txt out"),
        ("tree -L 2 -I node_modules", "tree -Lo 2 out"),
        ("tree -L2", "tree -Po x out"),
        # --- an option takes a value in one version of the program and none in another ---
        ("sed -n p names.txt", "sed -l 'w out' p names.txt"),
        ("ls -I x", "ls -I /etc"),
        ("ls -w 80", "ls -w /etc"),
        ("fmt -w 60 README.md", "fmt -p /etc/passwd"),
        # --- a quote inside a comment does not start a string ---
        ("jq '.a + \"#\"' data.json", "jq -n '1 # \"\n|env # \"'"),
        # --- programs that may never end ---
        ("sed '$!N;P;D' names.txt", "sed 'G;D' names.txt"),
        ("sed -n '/TODO/s/a/b/p' names.txt", "sed -e 's/^/\\n/' -e D names.txt"),
        ("awk '{for (i=1;i<=NF;i++) print $i}' names.txt", "awk 'BEGIN {for (;;) x = 1}'"),
        ("awk '{a[$1]++} END {for (k in a) print k, a[k]}' names.txt", "awk 'BEGIN {for (i = 1; i; ) x = 1}'"),
        ("vmstat 1 5", "vmstat 99 99"),
        ("lsof -nP -i :8080", "lsof +r1"),
        # --- host names that need a network query ---
        ("ss -tn dst 127.0.0.1", "ss dst a.example.com"),
        ("ss -tn sport = :22", "ss -t src a.example.com"),
        ("lsof -n -iTCP", "lsof -n -i@a.example.com"),
        ("lsof -n -i :80", "lsof -n -i @a.example.com"),
        ("lsof -ni", "lsof -i"),
        ("netstat -tuln", "netstat -tul"),
        # --- -V is not always the version ---
        ("python3 -V", "echo 'touch x' | zsh -V"),
        ("ssh -V", "vim -V"),
        ("curl -V", "redis-server -V"),
        # --- git ---
        ("git stash list -p", "git stash -p list"),
        ("git stash list --format=%h", "git stash list --format=%GK"),
        ("git log --format='%+h'", "git log --format='%+G?'"),
        ("git log --format='% h'", "git log --format='% GK'"),
        ("git log -L1,2:README.md", "git log -L1,2:.env"),
        # --- a line continuation right after a word continues that word ---
        ("TERM=x \\\ncat ./evil.sh", "TERM=x\\\ncat ./evil.sh"),
        ("TERM=x\\\n cat ./evil.sh", "LANG=C LC_ALL=C\\\n\\\ncat ./evil.sh"),
        ("ls \\\n2>/dev/null", "ls 2\\\n>/dev/null"),
        # --- others ---
        ("uuidgen -r", "uuidgen -t"),
        ("iconv -f utf-8 -t ascii//TRANSLIT names.txt", "iconv -f ../../evil names.txt"),
        ("awk 'NR > 1' names.txt", "awk 'print 1 > \"out\"' names.txt"),
    ],
)
def test_only_the_first_of_two_similar_commands_is_read_only(repo: Path, known: str, unknown: str):
    assert is_readonly_in(known, repo)
    assert not is_readonly_in(unknown, repo)


def test_include_limits_a_search_only_without_an_earlier_exclude(repo: Path):
    (repo / ".env").write_text("KEY=1\n")
    assert is_readonly_in("grep -rn KEY . --include='*.py'", repo)
    assert not is_readonly_in("grep -rn KEY . --exclude='*.js' --include='*.py'", repo)
    assert not is_readonly_in("grep -rn KEY . --include='*/.env'", repo)


@pytest.mark.parametrize("command", ["grep", "egrep -n", "sed", "awk", "jq", "rg", "look", "git grep"])
def test_glob_as_the_first_word_of_a_search_needs_approval(repo: Path, command: str):
    """The command takes the first match as its pattern, and the shell's sort order decides which match is first."""
    (repo / "p1").write_text("x\n")
    assert not is_readonly_in(f"{command} p?", repo)
    assert not is_readonly_in(f"{command} p? README.md", repo)


def test_exclude_dir_counts_only_with_a_plain_name(repo: Path):
    (repo / "a[b]").mkdir()
    (repo / "a[b]" / ".env").write_text("KEY=1\n")
    assert not is_readonly_in("grep -rn KEY . --exclude-dir='a[b]'", repo)
    (repo / "a[b]").rename(repo / "ab")
    assert is_readonly_in("grep -rn KEY . --exclude-dir=ab", repo)


@pytest.mark.parametrize("value", ["format:%G?", '"format:%""G?"', "format:%+GK"])
def test_git_config_format_that_checks_signatures_needs_approval(repo: Path, value: str):
    assert is_readonly_in("git log -1", repo)
    with (repo / ".git" / "config").open("a") as config:
        config.write(f"[format]\n\tpretty = {value}\n")
    assert not is_readonly_in("git log -1", repo)
