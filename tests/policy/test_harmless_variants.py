"""Commands that look read-only by the usual option syntax, but not by that of the program itself."""

from pathlib import Path

import pytest

from odin.policy.commands.analysis import is_read_only
from tests.policy.everyday import make_repository


@pytest.fixture
def repo(workspace: Path) -> Path:
    make_repository(workspace)
    (workspace / "a.zip").write_text("x\n")
    return workspace


def harmless(command: str, repo: Path) -> bool:
    return is_read_only(command, str(repo), str(repo))


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        # --- after the first operand an option is a file, and the second file is written ---
        ("xxd -p names.txt", "xxd names.txt -p"),
        ("uniq -c names.txt", "uniq names.txt -c"),
        ("unzip -l a.zip", "unzip a.zip -l"),
        ("gzip -dc data.csv", "gzip data.csv -dc"),
        ("sed -e p names.txt", "sed 'w out' names.txt -e p"),
        # --- a bundle is not read letter by letter, or goes on behind an option that takes the next word ---
        ("xxd -p -l 16 names.txt", "xxd -pl names.txt out"),
        ("xxd -l16 names.txt", "xxd -bs names.txt out"),
        ("tree -L 2 -I node_modules", "tree -Lo 2 out"),
        ("tree -L2", "tree -Po x out"),
        # --- an option that takes a value here takes none elsewhere ---
        ("sed -n p names.txt", "sed -l 'w out' p names.txt"),
        ("ls -I x", "ls -I /etc"),
        ("ls -w 80", "ls -w /etc"),
        ("fmt -w 60 README.md", "fmt -p /etc/passwd"),
        # --- a comment ends where a text only seems to begin ---
        ("jq '.a + \"#\"' data.json", "jq -n '1 # \"\n|env # \"'"),
        # --- what never ends ---
        ("sed '$!N;P;D' names.txt", "sed 'G;D' names.txt"),
        ("sed -n '/TODO/s/a/b/p' names.txt", "sed -e 's/^/\\n/' -e D names.txt"),
        ("awk '{for (i=1;i<=NF;i++) print $i}' names.txt", "awk 'BEGIN {for (;;) x = 1}'"),
        ("awk '{a[$1]++} END {for (k in a) print k, a[k]}' names.txt", "awk 'BEGIN {for (i = 1; i; ) x = 1}'"),
        ("vmstat 1 5", "vmstat 99 99"),
        ("lsof -nP -i :8080", "lsof +r1"),
        # --- names that are asked of other machines ---
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
        # --- a line that goes on right behind a word goes on with that word ---
        ("TERM=x \\\ncat ./evil.sh", "TERM=x\\\ncat ./evil.sh"),
        ("TERM=x\\\n cat ./evil.sh", "LANG=C LC_ALL=C\\\n\\\ncat ./evil.sh"),
        ("ls \\\n2>/dev/null", "ls 2\\\n>/dev/null"),
        # --- small things ---
        ("uuidgen -r", "uuidgen -t"),
        ("iconv -f utf-8 -t ascii//TRANSLIT names.txt", "iconv -f ../../evil names.txt"),
        ("awk 'NR > 1' names.txt", "awk 'print 1 > \"out\"' names.txt"),
    ],
)
def test_only_one_of_two_that_look_alike_is_harmless(repo: Path, known: str, unknown: str):
    assert harmless(known, repo)
    assert not harmless(unknown, repo)


def test_a_search_that_also_leaves_out_files_may_open_any_other(repo: Path):
    (repo / ".env").write_text("KEY=1\n")
    assert harmless("grep -rn KEY . --include='*.py'", repo)
    assert not harmless("grep -rn KEY . --exclude='*.js' --include='*.py'", repo)
    assert not harmless("grep -rn KEY . --include='*/.env'", repo)


@pytest.mark.parametrize("command", ["grep", "egrep -n", "sed", "awk", "jq", "rg", "look", "git grep"])
def test_a_pattern_of_the_shell_is_not_the_first_word_of_a_search(repo: Path, command: str):
    """The first file is not opened, and which one that is depends on the shell's sort order."""
    (repo / "p1").write_text("x\n")
    assert not harmless(f"{command} p?", repo)
    assert not harmless(f"{command} p? README.md", repo)


def test_a_folder_is_left_out_only_by_its_plain_name(repo: Path):
    (repo / "a[b]").mkdir()
    (repo / "a[b]" / ".env").write_text("KEY=1\n")
    assert not harmless("grep -rn KEY . --exclude-dir='a[b]'", repo)
    (repo / "a[b]").rename(repo / "ab")
    assert harmless("grep -rn KEY . --exclude-dir=ab", repo)


@pytest.mark.parametrize("value", ["format:%G?", '"format:%""G?"', "format:%+GK"])
def test_a_format_of_the_repository_with_signatures_is_a_question(repo: Path, value: str):
    assert harmless("git log -1", repo)
    with (repo / ".git" / "config").open("a") as config:
        config.write(f"[format]\n\tpretty = {value}\n")
    assert not harmless("git log -1", repo)
