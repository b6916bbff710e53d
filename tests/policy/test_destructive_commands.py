"""Destructive commands in every spelling, and commands that only look destructive."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.tool import Target
from odin.policy.commands.analysis import analyze_command
from odin.policy.commands.hard_stop import find_harm, find_risk
from tests.policy.policies import make_policy, make_scope
from tests.table import each

ROOT = "/ws/project"


def describe_harm(command: str, root: str = ROOT, cwd: str = "") -> str:
    return find_harm(command, analyze_command(command), make_scope(cwd or root, root))


# --- removals ---

PROTECTED_TARGETS = [
    "/",
    "//",
    "/.",
    "/./",
    "/*",
    "/.*",
    "/../",
    "/usr/..",
    "'/'",
    '"/"',
    "\\/",
    "/usr",
    "/etc/",
    "/usr/bin",
    "/var/lib/",
    "/usr/*",
    "/home",
    "/home/someone",
    "/home/someone/",
    "/home/someone/*",
    "/root",
    "/Users/someone",
    "~",
    "~/",
    "~/.",
    "~/*",
    "~/.*",
    "~root",
    "~someone/",
    "$HOME",
    "${HOME}",
    '"$HOME"',
    '"$HOME"/',
    '"${HOME}/"*',
    "$HOME/.",
    "${HOME:?}",
    ".",
    "./",
    "./.",
    "*",
    "./*",
    ".*",
    "./* ./.*",
    "*/",
    "*/*",
    "..",
    "../",
    "../*",
    "../..",
    "../project",
    "src/..",
    "src/../../project",
    "$PWD",
    "${PWD}",
    '"$PWD"/',
    "$PWD/*",
    "$(pwd)",
    '"$(pwd)"',
    "`pwd`",
    "$(git rev-parse --show-toplevel)",
    "/ws",
    "/ws/",
    "/ws/project",
    "/ws/project/",
    "/ws//project/.",
    "/ws/project/*",
    ".git",
    "./.git",
    ".git/",
    ".git/*",
    ".git/objects",
    ".GIT",
    "/ws/project/.git",
    "/{usr,etc}",
    "{/,x}",
    "/e*",
    "x y /",
    "-- /",
]


@each("target", PROTECTED_TARGETS)
def test_removal_of_system_home_and_project_folders_is_destructive(target: str):
    assert describe_harm(f"rm -rf {target}").startswith("it ")


FLAGS = ["-rf", "-fr", "-Rf", "-r -f", "-f -r", "-R", "-r", "--recursive", "--recurs --force", "--r", "-vrf", "-dfr"]


@each("flags", FLAGS)
def test_recursive_options_are_recognized_in_any_spelling(flags: str):
    assert describe_harm(f"rm {flags} /")
    assert describe_harm(f"rm ~/ {flags}")


WRAPPERS = [
    "{}",
    "/bin/{}",
    "'r'm{tail}",
    "r\\m{tail}",
    '"rm"{tail}',
    "ls; {}",
    "ls && {}",
    "ls || {}",
    "ls | {}",
    "ls & {}",
    "ls\n{}",
    "! {}",
    "({})",
    "{{ {}; }}",
    "if true; then {}; fi",
    "if false; then ls; else {}; fi",
    "for x in 1 2; do {}; done",
    "while true; do {}; done",
    "until false; do {}; done",
    "case x in x) {};; esac",
    "select x in a; do {}; done",
    "f() {{ {}; }}; f",
    "function f {{ {}; }}; f",
    "echo $({})",
    'echo "$({})"',
    "echo `{}`",
    "cat <({})",
    "ls > >({})",
    "x=$({})",
    "X=1 {}",
    "cat <<E\n$({})\nE",
    "cat <<E\n`{}`\nE",
    "bash <<E\n{}\nE",
    "bash <<'E'\n{}\nE",
    "sudo {}",
    "sudo -u root -n {}",
    "sudo -EH {}",
    "doas {}",
    "env {}",
    "env -i X=1 {}",
    "env -u X {}",
    "nice -n 19 {}",
    "ionice -c3 {}",
    "nohup {} &",
    "setsid {}",
    "timeout 5 {}",
    "timeout -k 5 -s KILL 10 {}",
    "timeout --signal KILL 10 {}",
    "time {}",
    "time -p {}",
    "time ! {}",
    "stdbuf -o0 {}",
    "command {}",
    "builtin {}",
    "exec {}",
    "exec -a x {}",
    "coproc {}",
    "coproc N {{ {}; }}",
    "busybox {}",
    "chroot /mnt {}",
    "unshare -m {}",
    "nsenter -t 1 -m {}",
    "strace -o x {}",
    "flock /tmp/x {}",
    "flock /tmp/x -c '{}'",
    "taskset 1 {}",
    "chrt 1 {}",
    "xargs {}",
    "bash -c '{}'",
    "bash -lc '{}'",
    "sh -ec '{}'",
    "bash -c 'bash -c \"{}\"'",
    "bash -O extglob -c '{}'",
    "sudo bash -c '{}'",
    "su -c '{}'",
    "su - someone -c '{}'",
    "eval '{}'",
    "eval {}",
    "env -S '{}'",
    "script -qc '{}' /dev/null",
    "watch -n 1 '{}'",
    "trap '{}' EXIT",
    "find . -maxdepth 0 -exec {} \\;",
    "find . -maxdepth 0 -execdir {} +",
    "git -c alias.x='!{}' x",
    "git submodule foreach '{}'",
    "git rebase -x '{}' HEAD~1",
    "bash <<< '{}'",
    "echo '{}' | sh",
    "parallel {} ::: 1",
    "ssh host '{}'",
    "[ -d x ] && {}",
    "(( 1 )) && {}",
    "{} # tidy up",
    "{} >/dev/null 2>&1",
    ">/dev/null {}",
    "{} '",
    "{} && (",
]


@each("frame", WRAPPERS)
def test_destructive_command_is_found_in_any_wrapper(frame: str):
    command = frame.format("rm -rf /", tail=" -rf /")
    assert describe_harm(command)
    assert not describe_harm(frame.format("rm -rf build/out", tail=" -rf build/out"))


@each(
    "command",
    [
        "cd / && rm -rf *",
        "cd /; rm -rf *",
        "cd / && rm -rf .",
        "cd /ws && rm -rf project",
        "cd .. && rm -rf project",
        "cd src && rm -rf ..",
        "cd ~ && rm -rf *",
        "cd && rm -rf *",
        "cd $HOME && rm -rf ./*",
        "cd src && cd .. && rm -rf *",
        "pushd / && rm -rf *",
        "(cd src); rm -rf *",
        "cd src | true; rm -rf *",
        "cd nowhere || rm -rf *",
        "bash -c 'cd / && rm -rf *'",
        "cd / && bash -c 'rm -rf *'",
        "env -C / rm -rf usr",
        "cd /usr && sudo rm -rf lib",
        "D=/; rm -rf $D",
        'D=/usr; rm -rf "$D"',
        "D=~; rm -rf ${HOME}",
        "for d in /etc /usr; do rm -rf $d; done",
        'for d in a /; do rm -rf "$d"; done',
        "rm -rf $'/'",
        'rm -rf "$DIR"/*',
        "rm -rf $DIR/*",
        "rm -rf ${DIR}/*",
        "rm -rf $DIR/.*",
        "rimraf /",
        "find / -delete",
        "find . -delete",
        "find -delete",
        "find . -type f -delete",
        "find . -mindepth 1 -delete",
        "find . -name '*' -delete",
        "find . ! -name keep -delete",
        "find -L . -delete",
        "find ~ -delete",
        "find .. -delete",
        "find / -name x -delete",
        "find . -exec rm -rf {} +",
        "find . -type f -exec rm {} \\;",
        "find . -exec sh -c 'rm \"$1\"' _ {} \\;",
        "find /usr -exec rm {} +",
        "echo / | xargs rm -rf",
        "printf '%s' ~ | xargs rm -rf",
        "rsync -a --delete empty/ ~/",
        "rsync -a --delete empty/ /",
        "mv ~ /tmp/x",
        "mv / /tmp",
        "mv /usr /tmp",
        "mv . /dev/null",
        "mv README.md /dev/null",
        "mv /ws/project /tmp",
    ],
)
def test_indirect_removals_are_destructive(command: str):
    assert describe_harm(command)


# --- disks and the system ---


@each(
    "command",
    [
        "mkfs /dev/sda",
        "mkfs.ext4 -F /dev/sda1",
        "sudo mkfs.xfs /dev/nvme0n1",
        "mke2fs /dev/sda1",
        "mkswap /dev/sda2",
        "dd if=/dev/zero of=/dev/sda",
        "dd of=/dev/nvme0n1 if=x bs=1M",
        "dd of=//dev/../dev/sda",
        "D=/dev/sda; dd if=x of=$D",
        "> /dev/sda",
        "echo x > /dev/sdb1",
        "cat x >> /dev/nvme0n1",
        "cat x >| /dev/vda",
        "cat x &> /dev/mmcblk0",
        "cat x 1<> /dev/sda",
        "cat x | tee /dev/sda",
        "cat x | sudo tee /dev/sda >/dev/null",
        "cp x /dev/sda",
        "install x /dev/sda",
        "truncate -s 0 /dev/sda",
        "wipefs -a /dev/sda",
        "wipefs --all /dev/sda",
        "shred /dev/sda",
        "shred -n 1 -z /dev/nvme0n1",
        "blkdiscard /dev/sda",
        "sgdisk --zap-all /dev/sda",
        "parted /dev/sda mklabel gpt",
        "cryptsetup luksFormat /dev/sda2",
        "shutdown now",
        "shutdown -h now",
        "sudo reboot",
        "/sbin/reboot -f",
        "poweroff",
        "halt",
        "init 0",
        "init 6",
        "telinit 0",
        "systemctl poweroff",
        "systemctl --force reboot",
        ":(){ :|:& };:",
        ":(){ :|: & };:",
        "bomb() { bomb | bomb & }; bomb",
        "f(){ f|f& }\nf",
        "chmod -R 777 /",
        "chmod --recursive 000 /usr",
        "chmod -R 777 ~",
        "chmod -R -x /",
        "chown -R me:me /",
        "chown -R nobody /etc",
        "sudo chown -R me ..",
        "chgrp -R x /home",
        "kill -9 -1",
        "kill -KILL -- -1",
        "kill -- -1",
        "crontab -r",
        "sudo crontab -u x -r",
    ],
)
def test_disk_and_system_commands_are_destructive(command: str):
    assert describe_harm(command).startswith("it ")


# --- commands that are not destructive ---


@each(
    "command",
    [
        "rm -rf build",
        "rm -rf ./build",
        "rm -rf build/",
        "rm -rf build/*",
        "rm -rf src/../build",
        "rm -rf *.pyc",
        "rm -rf build*",
        "rm -rf src/*",
        "rm -rf node_modules dist .cache",
        "rm -rf /ws/project/build",
        "rm -rf /ws/project-old",
        "rm -rf /tmp/thing",
        "rm -rf /home/someone/project/build",
        "rm -rf ~/.cache/thing",
        "rm -rf '~'",
        "rm -rf '$HOME'",
        'rm -rf "*"',
        "rm -rf .github",
        "rm -rf .gitignore",
        "rm -rf vendor/lib/.git",
        "rm -rf .git/index.lock",
        "rm -f .git/index.lock",
        "rm -f *",
        "rm *",
        "rm x",
        "rm /etc/x",
        "rm -r /etc/nginx/sites-enabled/x",
        'rm -rf "$DIR"',
        'rm -rf "$DIR"/',
        "rm -rf $DIR/build",
        "rm -rf ${DIR:?}/*",
        'rm -rf "${DIR:?}"/x',
        "rm -rf -- -",
        "cd build && rm -rf *",
        "cd build && rm -rf .",
        "cd /tmp/x && rm -rf *",
        'cd "$X" && rm -rf *',
        "unset HOME; cd; rm -rf ./*",
        'echo "rm -rf /"',
        "echo rm -rf /",
        "echo 'a; rm -rf /'",
        "printf '%s\\n' 'rm -rf /'",
        "grep 'rm -rf /' file",
        "grep -rn 'rm -rf ~' .",
        "git commit -m 'rm -rf /'",
        'git commit -m "do not rm -rf /"',
        "git commit -m \"$(cat <<'E'\nrm -rf /\nE\n)\"",
        "cat <<E\nrm -rf /\nE",
        "cat > x.sh <<'E'\nrm -rf /\nE",
        "python3 -c 'print(\"rm -rf /\")'",
        "# rm -rf /",
        "ls # rm -rf /",
        "man rm",
        "git rm -r build",
        "git clean -fdx",
        "git push --force",
        "docker run --rm x rm -rf build",
        "find . -name x -delete",
        "find . -name '*.pyc' -delete",
        "find build -delete",
        "find . -name x -exec rm {} +",
        "find / -name x",
        "find . -type d -empty -delete",
        "find . -name '*.o' | xargs rm -f",
        "git ls-files -d | xargs git rm",
        "ls build | xargs echo",
        "mv a b",
        "mv * sub/",
        "mv ./src/* lib/",
        "rsync -a --delete build/ dist/",
        "rsync -a / backup",
        "chmod -R u+w .",
        "chmod -R 755 build",
        "chmod 777 /",
        "chown -R me src",
        "dd if=a of=b",
        "dd if=/dev/sda of=disk.img",
        "dd if=/dev/zero of=/dev/null count=1",
        "cat /dev/sda",
        "cp /dev/sda1 x",
        "echo x > /dev/null",
        "echo x > /dev/stderr",
        "echo x > /dev/shm/x",
        "wipefs /dev/sda",
        "parted -l",
        "fdisk -l /dev/sda",
        "shred x",
        "tee x",
        "shutdown -c",
        "reboot --help",
        "mkfs.ext4 --help",
        "systemctl status",
        "systemctl restart x",
        "init 3",
        "echo reboot",
        "which shutdown",
        "git format-patch -1",
        "format src",
        "npm run format",
        "rmdir x",
        "kill -9 123",
        "kill -1 123",
        "kill 1",
        "crontab -l",
        ": > file",
        "f() { a | b & }; f",
        "f() { echo hi; }; f",
        "walk() { for x in *; do walk $x; done; }; walk",
        "sleep 1 & sleep 1",
        "",
        "   ",
    ],
)
def test_similar_commands_are_not_destructive(command: str):
    assert describe_harm(command) == ""


# --- warnings ---


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('rm -rf "$DIR"/', "if the variable in '$DIR/' is empty"),
        ("rm -rf $DIR/", "root of the file system"),
        ("rm -rf /$DIR", "root of the file system"),
        ('rm -rf "$A/$B"', "root of the file system"),
        ("rm -rf /usr/$DIR", "system folder"),
        ("rm -rf ./$DIR", "the project itself"),
        ("rm -rf ~/$DIR", "home"),
        ("rm -rf $(cat x)/", "root of the file system"),
        ('cd "$X" && rm -rf *', "unknown folder"),
        ("unset HOME; cd; rm -rf ./*", "unknown folder"),
    ],
)
def test_variable_that_may_be_empty_gets_a_warning(command: str, said: str):
    assert describe_harm(command) == ""
    assert said in find_risk(analyze_command(command), make_scope(ROOT))


@pytest.mark.parametrize(
    "command", ["rm -rf build", 'rm -rf "$DIR"', "rm -rf ${DIR:?}/", "rm $DIR/", "ls $DIR/", "rm -rf $DIR/x"]
)
def test_safe_commands_get_no_warning(command: str):
    assert find_risk(analyze_command(command), make_scope(ROOT)) == ""


# --- working directory, git and links ---


def test_working_directory_decides_about_relative_paths():
    assert describe_harm("rm -rf *", ROOT, f"{ROOT}/build") == ""
    assert describe_harm("rm -rf ..", ROOT, f"{ROOT}/build")
    assert describe_harm("rm -rf ../..", ROOT, f"{ROOT}/build/deep")
    assert describe_harm("rm -rf ..", ROOT, f"{ROOT}/build/deep") == ""
    assert describe_harm("cd .. && rm -rf *", ROOT, f"{ROOT}/build")


@each(
    ("command", "says"),
    [
        ("git checkout -- .", "uncommitted changes"),
        ("git checkout -f main", "uncommitted changes"),
        ("git restore .", "uncommitted changes"),
        ("git restore --staged --worktree a", "uncommitted changes"),
        ("git -C src reset --hard HEAD~1", "uncommitted changes"),
        ("git switch --discard-changes main", "uncommitted changes"),
        ("git clean -fdx", "untracked files"),
        ("bash -c 'git clean -xdf'", "untracked files"),
        ("git stash -u && git stash drop", "stashed changes"),
        ("git checkout main", ""),
        ("git restore --staged a", ""),
        ("git reset HEAD a", ""),
        ("git clean -n", ""),
        ("git stash", ""),
    ],
)
def test_permission_request_names_what_git_discards(command: str, says: str):
    decision = make_policy(root=ROOT).evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode")
    assert decision.action == "ask"
    assert (says in decision.reason) if says else ("destructive" not in decision.reason)


def test_links_to_the_project_are_resolved(tmp_path: Path):
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    (root / "up").symlink_to(tmp_path)
    assert describe_harm(f"rm -rf {tmp_path}/link/", str(root))
    assert describe_harm("rm -rf up/", str(root))


@given(st.sampled_from(PROTECTED_TARGETS), st.sampled_from(FLAGS), st.sampled_from(WRAPPERS))
def test_combinations_of_target_options_and_wrapper_are_destructive(target: str, flags: str, frame: str):
    """Skip combinations in which quotes in the target would end the quotes around it."""
    if "'" in frame or '"' in target or "'" in target or "`" in target + frame or "tail" in frame:
        return
    assert describe_harm(frame.format(f"rm {flags} {target}"))


@given(st.text(max_size=80))
def test_quoted_text_is_never_destructive(text: str):
    quoted = "'" + text.replace("'", "'\\''") + "'"
    if analyze_command(f"echo {quoted}").is_complete:
        assert describe_harm(f"echo {quoted}") == ""
