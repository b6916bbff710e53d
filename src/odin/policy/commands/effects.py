"""What single programs would do, as one sentence each, and how dangerous that is.

For permission requests, and for the permission mode `auto`, in which the sandbox confines what nothing here knows. A
program that is not known "can change files".
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from odin.core.policy import Danger
from odin.policy.commands.programs import SHELLS
from odin.policy.commands.syntax import ExtractedCommand, ShellWord, split_names


class Effect(Struct, frozen=True):
    """`sentence` says what a call would do, such as "Deletes build recursively."."""

    danger: Danger
    sentence: str


_MAX_SHOWN = 60
_MAX_NAMED = 2
_REMOVING_CODE = re.compile(
    r"\b(?:rmtree|unlink(?:Sync)?|rmdir(?:Sync)?|rm_rf?|rmSync|rimraf|truncate|remove(?:_dir(?:_all)?|Sync|dirs|_tree)?)"
    r"\s*[( ]"
)
"""Calls in code of any language that delete files. `list.remove(x)` matches, too: better asked than lost."""

_INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|node|nodejs|php|lua|deno|bun|osascript|tclsh|Rscript)[\d.]*")


def describe_program(part: ExtractedCommand, *, as_root: bool) -> Effect:
    """Return what one command that is not read-only would do."""
    name = part.name
    describe = _PROGRAMS.get(name)
    effect = describe(part.words[1:]) if describe is not None else None
    if effect is not None:
        return effect
    for programs, verbs, danger, sentence in _VERB_EFFECTS:
        if name in programs and any(word.text in verbs for word in part.words[1:4]):
            return Effect(danger, sentence.format(name=name, whom="as root" if as_root else "on this machine"))
    if not part.words[0].literal:
        return Effect("changes_files", f"Runs a program whose name is only known when it runs: {shorten(name)}.")
    if name in SHELLS or _INTERPRETERS.fullmatch(name):
        return _describe_interpreter(part)
    return Effect("changes_files", f"Runs {shorten(part.words[0].text)}, which can change files.")


def _describe_interpreter(part: ExtractedCommand) -> Effect:
    texts = part.texts[1:]
    if any(re.fullmatch(r"-[A-Za-z]*[ceE]|--eval|--command", text) for text in texts):
        if any(_REMOVING_CODE.search(text) for text in texts):
            return Effect("hard_to_undo", f"Runs code given to {part.name} that deletes files.")
        return Effect("changes_files", f"Runs code given to {part.name}, which can change files.")
    script = next((text for text in texts if not text.startswith("-")), "")
    what = f"the script {shorten(script)}" if script else f"code that {part.name} reads from its input"
    return Effect("changes_files", f"Runs {what}, which can change files.")


def shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def list_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = [shorten(name) for name in names[:_MAX_NAMED]]
    if len(names) > _MAX_NAMED:
        return f"{', '.join(shown)} and {len(names) - _MAX_NAMED} more"
    return " and ".join(shown)


DescribeArguments = Callable[[Sequence[ShellWord]], Effect | None]
"""Return the effect of a program with these arguments, or None to use what is known about its verbs."""


def _operands_of(words: Sequence[ShellWord]) -> list[str]:
    texts = [word.text for word in words]
    if "--" in texts:
        at = texts.index("--")
        return [*(text for text in texts[:at] if not text.startswith("-")), *texts[at + 1 :]]
    return [text for text in texts if not text.startswith("-") or text == "-"]


def _has_option(words: Sequence[ShellWord], short: str, *long: str) -> bool:
    for word in words:
        text = word.text
        if text.startswith("--"):
            if text.split("=", 1)[0] in long:
                return True
        elif text.startswith("-") and set(text[1:]) & set(short):
            return True
    return False


def _describe_removal(words: Sequence[ShellWord]) -> Effect:
    names = list_names(_operands_of(words)) or "files"
    how = " recursively" if _has_option(words, "rR", "--recursive") else ""
    return Effect("hard_to_undo", f"Deletes {names}{how}.")


def _name_operands(verb: str, danger: Danger = "changes_files") -> DescribeArguments:
    return lambda words: Effect(danger, f"{verb} {list_names(_operands_of(words)) or 'files'}.")


def _name_transfer(verb: str) -> DescribeArguments:
    """Describe a program that takes sources and a target."""

    def describe(words: Sequence[ShellWord]) -> Effect | None:
        names = _operands_of(words)
        if len(names) < 2:
            return None
        return Effect("changes_files", f"{verb} {list_names(names[:-1])} to {shorten(names[-1])}.")

    return describe


def _make_constant(danger: Danger, sentence: str) -> DescribeArguments:
    return lambda words: Effect(danger, sentence)


def _describe_mode_change(words: Sequence[ShellWord]) -> Effect:
    names = list_names(_operands_of(words)[1:]) or "files"
    how = " recursively" if _has_option(words, "R", "--recursive") else ""
    return Effect("changes_files", f"Changes the owner or permissions of {names}{how}.")


def _describe_sed(words: Sequence[ShellWord]) -> Effect | None:
    if not any(re.match(r"-[a-zA-Z]*i|--in-place", word.text) for word in words):
        return None
    names = _operands_of(words)
    files = names if _has_option(words, "ef", "--expression", "--file") else names[1:]
    return Effect("changes_files", f"Edits {list_names(files) or 'files'} in place.")


def _describe_find(words: Sequence[ShellWord]) -> Effect | None:
    texts = [word.text for word in words]
    if "-delete" in texts:
        return Effect("hard_to_undo", f"Deletes every file that find matches below {_start_of(texts)}.")
    if any(text in ("-exec", "-execdir", "-ok", "-okdir") for text in texts):
        return Effect("changes_files", f"Runs a command for every file that find matches below {_start_of(texts)}.")
    return None


def _start_of(texts: Sequence[str]) -> str:
    return shorten(texts[0]) if texts and not texts[0].startswith("-") else "the current folder"


def _describe_curl(words: Sequence[ShellWord]) -> Effect:
    address = next((word.text for word in words if "." in word.text and not word.text.startswith("-")), "the network")
    sends = _has_option(words, "dFT", "--data", "--data-binary", "--data-raw", "--form", "--upload-file", "--json")
    sends = sends or any(word.text in ("POST", "PUT", "PATCH", "DELETE") for word in words)
    sends = sends or _has_option(words, "", "--post-data", "--post-file", "--body-data", "--body-file")
    return Effect("network", f"{'Sends data to' if sends else 'Downloads from'} {shorten(address)}.")


def _describe_remote_copy(words: Sequence[ShellWord]) -> Effect | None:
    names = _operands_of(words)
    remote = next((name for name in names if re.match(r"(?:[\w.-]+@)?[\w.-]+:|rsync://", name)), "")
    if remote:
        return Effect("network", f"Copies files to or from {shorten(remote)}.")
    if _has_option(words, "", "--delete", "--remove-source-files"):
        return Effect("hard_to_undo", "Copies files and deletes others.")
    return _name_transfer("Copies")(words)


def _describe_ssh(words: Sequence[ShellWord]) -> Effect:
    host = next(iter(_operands_of(words)), "another machine")
    return Effect("network", f"Runs commands on {shorten(host)}.")


_GIT_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
_GIT_EFFECTS: dict[str, tuple[Danger, str]] = {
    "fetch": ("network", "Fetches commits from a remote."),
    "pull": ("network", "Fetches commits from a remote and merges them."),
    "clone": ("network", "Clones a repository from a remote."),
    "ls-remote": ("network", "Lists the branches of a remote."),
    "submodule": ("network", "Updates submodules, which may fetch them from a remote."),
    "add": ("changes_files", "Stages changes."),
    "commit": ("changes_files", "Creates a commit."),
    "merge": ("changes_files", "Merges commits into the current branch."),
    "cherry-pick": ("changes_files", "Applies commits to the current branch."),
    "revert": ("changes_files", "Reverts commits with a new one."),
    "mv": ("changes_files", "Renames files."),
    "rm": ("hard_to_undo", "Deletes files and stages that."),
    "stash": ("changes_files", "Moves uncommitted changes to the stash, or back."),
    "tag": ("changes_files", "Creates or deletes tags."),
    "branch": ("changes_files", "Creates, renames or deletes branches."),
    "checkout": ("changes_files", "Switches branches or restores files."),
    "switch": ("changes_files", "Switches branches."),
    "reset": ("changes_files", "Moves the current branch or unstages files."),
    "rebase": ("hard_to_undo", "Rewrites the commits of the current branch."),
    "filter-branch": ("hard_to_undo", "Rewrites the history of the repository."),
    "filter-repo": ("hard_to_undo", "Rewrites the history of the repository."),
    "gc": ("hard_to_undo", "Removes commits that no branch or tag reaches."),
    "prune": ("hard_to_undo", "Removes commits that no branch or tag reaches."),
    "update-ref": ("hard_to_undo", "Changes branches or tags directly."),
    "reflog": ("hard_to_undo", "Removes entries that are needed to restore commits."),
    "credential": ("credentials", "Reads or changes stored git passwords."),
    "init": ("changes_files", "Creates a git repository."),
    "apply": ("changes_files", "Applies a patch."),
    "am": ("changes_files", "Applies patches as commits."),
    "worktree": ("changes_files", "Creates or removes a worktree."),
}


def _describe_git(words: Sequence[ShellWord]) -> Effect | None:
    texts = [word.text for word in words]
    while texts and texts[0].startswith("-"):
        texts = texts[2 if texts[0] in _GIT_VALUED else 1 :]
    if not texts:
        return None
    verb, rest = texts[0], texts[1:]
    letters = {letter for text in rest if re.match(r"-\w", text) for letter in text[1:]}
    if verb == "push":
        return _describe_push(rest, letters)
    if verb == "config":
        wide = "--global" in rest or "--system" in rest
        where = " for all repositories" if wide else ""
        return Effect("outside_project" if wide else "changes_files", f"Changes the git configuration{where}.")
    if verb == "commit" and "--amend" in rest:
        return Effect("hard_to_undo", "Replaces the last commit.")
    if (verb == "branch" and "D" in letters) or (verb == "tag" and ("d" in letters or "--delete" in rest)):
        return Effect("hard_to_undo", f"Deletes a {verb}, even if its commits are nowhere else.")
    known = _GIT_EFFECTS.get(verb)
    return Effect(*known) if known is not None else None


def _describe_push(rest: Sequence[str], letters: set[str]) -> Effect:
    if "--delete" in rest or "d" in letters or any(re.match(r":\S", text) for text in rest):
        return Effect("hard_to_undo", "Deletes a branch or tag on a remote.")
    forced = "f" in letters or any(text.startswith(("--force", "--mirror", "+")) for text in rest)
    if forced:
        return Effect("hard_to_undo", "Pushes to a remote and can overwrite its history.")
    return Effect("network", "Pushes commits to a remote.")


_CLOUD_CLIENTS = split_names(
    "kubectl helm terraform tofu pulumi aws gcloud az doctl flyctl fly heroku vercel netlify ansible ansible-playbook"
)
_CLOUD_CHANGES = re.compile(r"delete|destroy|apply|rm|rb|terminate.*|uninstall|deploy|remove|drain|purge")


def _describe_cloud(words: Sequence[ShellWord]) -> Effect:
    if any(_CLOUD_CHANGES.fullmatch(word.text) for word in words):
        return Effect("hard_to_undo", "Changes or deletes resources on other machines.")
    return Effect("network", "Uses an account on other machines.")


def _describe_variables(words: Sequence[ShellWord]) -> Effect:
    if any("=" in word.text for word in words):
        return Effect("harmless", "Sets variables for the commands after it.")
    if any(re.match(r"[-+]\w", word.text) and "p" not in word.text for word in words):
        return Effect("harmless", "Sets options of the shell or of variables.")
    return Effect("credentials", "Prints environment variables, which may contain secrets.")


_PROGRAMS: dict[str, DescribeArguments] = {
    **dict.fromkeys(("rm", "unlink", "shred", "srm", "rimraf", "trash"), _describe_removal),
    "rmdir": _name_operands("Removes the empty folder"),
    "mv": _name_transfer("Moves"),
    "cp": _name_transfer("Copies"),
    "install": _name_transfer("Copies"),
    "ln": _name_transfer("Links"),
    "mkdir": _name_operands("Creates the folder"),
    "touch": _name_operands("Creates or touches"),
    "tee": _name_operands("Writes to"),
    "truncate": _name_operands("Cuts off the content of", "hard_to_undo"),
    "dd": _make_constant("hard_to_undo", "Overwrites a file or device with raw data."),
    "patch": _make_constant("changes_files", "Applies a patch."),
    **dict.fromkeys(("chmod", "chown", "chgrp"), _describe_mode_change),
    **dict.fromkeys(("sed", "gsed"), _describe_sed),
    "find": _describe_find,
    "git": _describe_git,
    **dict.fromkeys(("curl", "wget", "http", "https", "xh"), _describe_curl),
    **dict.fromkeys(("rsync", "scp", "sftp"), _describe_remote_copy),
    **dict.fromkeys(("ssh", "mosh", "telnet"), _describe_ssh),
    **dict.fromkeys(("nc", "ncat", "socat"), _make_constant("network", "Opens a network connection.")),
    **dict.fromkeys(
        ("ping", "dig", "nslookup", "host", "traceroute"), _make_constant("network", "Contacts another machine.")
    ),
    **dict.fromkeys(_CLOUD_CLIENTS, _describe_cloud),
    "gh": _make_constant("network", "Uses your GitHub account."),
    "glab": _make_constant("network", "Uses your GitLab account."),
    **dict.fromkeys(("kill", "pkill", "killall"), _name_operands("Ends processes:", "outside_project")),
    **dict.fromkeys(
        ("systemctl", "service", "launchctl"), _make_constant("outside_project", "Changes services of the machine.")
    ),
    "crontab": _make_constant("outside_project", "Changes scheduled jobs."),
    **dict.fromkeys(("mount", "umount"), _make_constant("outside_project", "Mounts or unmounts a file system.")),
    **dict.fromkeys(
        ("useradd", "usermod", "userdel", "passwd"), _make_constant("outside_project", "Changes user accounts.")
    ),
    **dict.fromkeys(("printenv", "env", "export", "set", "declare"), _describe_variables),
    "dropdb": _make_constant("hard_to_undo", "Deletes a database."),
    **dict.fromkeys(
        ("gpg", "pass", "op", "vault", "ssh-add"), _make_constant("credentials", "Uses stored keys or passwords.")
    ),
}

_SYSTEM_PACKAGES = split_names(
    "apt apt-get aptitude dnf yum zypper pacman apk brew port snap flatpak emerge choco winget"
)
_PACKAGES = split_names(
    "pip pip3 pipx uv poetry pdm pipenv conda mamba npm pnpm yarn bun npx pnpx bunx uvx cargo go gem bundle composer "
    "dotnet nuget cpan cabal stack opam mix hex luarocks deno rustup"
)
_VERB_EFFECTS: tuple[tuple[frozenset[str], frozenset[str], Danger, str], ...] = (
    (
        _SYSTEM_PACKAGES,
        split_names("install add upgrade update dist-upgrade full-upgrade -S -Syu -Sy refresh"),
        "outside_project",
        "Installs packages {whom}.",
    ),
    (
        _SYSTEM_PACKAGES,
        split_names("remove purge uninstall autoremove del erase -R -Rns"),
        "outside_project",
        "Removes packages {whom}.",
    ),
    (
        _PACKAGES | {"twine", "docker", "podman"},
        split_names("publish upload push"),
        "hard_to_undo",
        "Publishes with {name}, which cannot be undone.",
    ),
    (
        _PACKAGES,
        split_names("install i ci add update upgrade sync get download fetch restore require create dlx"),
        "network",
        "Downloads and installs packages with {name}, which may run their scripts.",
    ),
    (
        _PACKAGES,
        split_names("uninstall remove rm prune"),
        "changes_files",
        "Removes packages with {name}.",
    ),
    (
        split_names("docker podman nerdctl"),
        split_names("rm rmi prune down kill system volume"),
        "hard_to_undo",
        "Removes containers, images or volumes.",
    ),
    (
        split_names("docker podman nerdctl docker-compose"),
        split_names("run exec up start build pull login compose"),
        "outside_project",
        "Runs or builds containers.",
    ),
)
"""Programs, verbs among their first arguments, and what they do."""
