"""What a tool call would do, in a sentence or a few, and how dangerous that is.

For permission requests, and for the decision whether a command must be asked about before it runs (`explain_need`): the
sandbox keeps every command from the network, from files outside the project and from secrets, so those that are known
to need one of these are asked about in advance. A call that does several things gets the danger of the worst, and a
sentence for each that does more than change files. A program that is not known "can change files".
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from odin.core.format import clip
from odin.core.path_names import is_secret_path
from odin.core.policy import Danger
from odin.core.profile import CommandLevel
from odin.core.tool import get_display_name
from odin.policy import paths
from odin.policy.commands.analysis import find_danger, find_outside_word, find_path_words
from odin.policy.commands.globs import expand_glob
from odin.policy.commands.programs import SHELLS, WRAPPERS, is_assignment
from odin.policy.commands.short_list import read_call
from odin.policy.commands.syntax import CommandAnalysis, ExtractedCommand, ShellWord, split_names
from odin.policy.policy_call import PolicyCall, list_spellings


class Effect(Struct, frozen=True):
    """`sentence` says what a call would do, such as "Deletes build recursively.". `uses_network`: as part of that."""

    danger: Danger
    sentence: str
    uses_network: bool = False


ONLY_READS = "Only reads."

_MAX_SHOWN = 60
_MAX_NAMED = 2
_REMOVING_CODE = re.compile(
    r"\b(?:rmtree|unlink(?:Sync)?|rmdir(?:Sync)?|rm_rf?|rmSync|rimraf|truncate|remove(?:_dir(?:_all)?|Sync|dirs|_tree)?)"
    r"\s*[( ]"
)
"""Calls in code of any language that delete files. `list.remove(x)` matches, too: better asked than lost."""

_ENVIRONMENT_CODE = re.compile(r"\benviron\b|\bgetenv\b|process\.env|\bENVIRON\b|%ENV|\$ENV|\bENV\[|\$_ENV|\bDeno\.env")
_SECRET_VARIABLE = re.compile(r"\$\{?!?\w*(?:KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH)\w*", re.IGNORECASE)
_FILTER_PROGRAMS = split_names("jq yq awk gawk mawk nawk")
_FILTER_ENVIRONMENT = re.compile(r"\bENVIRON\b|\$ENV\b|(?<![.\w])env\b")
_INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|node|nodejs|php|lua|deno|bun|osascript|tclsh|Rscript)[\d.]*")


def describe_program(part: ExtractedCommand, *, as_root: bool) -> Effect:
    """Return what one command that is not read-only would do."""
    name = part.name
    texts = part.texts
    if _INTERPRETERS.fullmatch(name) and "-m" in texts[1:2] and len(texts) > 2:
        if texts[2] in ("http.server", "smtpd", "ensurepip"):
            return Effect("network", f"Runs the module {texts[2]}, which uses the network.")
        if texts[2] in ("pip", "pipx", "twine", "uv"):
            part = ExtractedCommand(part.words[2:], part.is_inner, part.folder)
            name = part.name
    if (name in ("yarn", "pnpm") and len(part.words) == 1) or name in ("uvx", "bunx", "pnpx"):
        return Effect("network", f"Downloads packages with {name}.")
    describe = _PROGRAMS.get(name)
    effect = describe(part.words[1:]) if describe is not None else None
    if effect is not None:
        return effect
    for programs, verbs, danger, sentence in _VERB_EFFECTS:
        if name in programs and any(word.text in verbs for word in part.words[1:4]):
            text = sentence.format(name=name, whom="as root" if as_root else "on this machine")
            return Effect(danger, text, uses_network=sentence in _NETWORK_SENTENCES)
    if name in _FILTER_PROGRAMS and any(_FILTER_ENVIRONMENT.search(text) for text in part.texts[1:]):
        return Effect("credentials", f"Runs code given to {name} that reads environment variables.")
    if not part.words[0].literal:
        return Effect("changes_files", f"Runs a program whose name is only known when it runs: {shorten(name)}.")
    if name in SHELLS or _INTERPRETERS.fullmatch(name):
        texts = part.texts[1:]
        if any(re.fullmatch(r"-[A-Za-z]*[ceE]|--eval|--command", text) for text in texts):
            if any(_ENVIRONMENT_CODE.search(text) for text in texts):
                return Effect("credentials", f"Runs code given to {part.name} that reads environment variables.")
            if any(_REMOVING_CODE.search(text) for text in texts):
                return Effect("hard_to_undo", f"Runs code given to {part.name} that deletes files.")
            return Effect("changes_files", f"Runs code given to {part.name}, which can change files.")
        script = next((text for text in texts if not text.startswith("-")), "")
        if "-m" in texts and script:
            return Effect("changes_files", f"Runs the module {shorten(script)}, which can change files.")
        what = f"the script {shorten(script)}" if script else f"code that {part.name} reads from its input"
        return Effect("changes_files", f"Runs {what}, which can change files.")
    return Effect("changes_files", f"Runs {shorten(part.words[0].text)}, which can change files.")


def shorten(text: str) -> str:
    return clip(text, _MAX_SHOWN)


def list_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = [shorten(name) for name in names[:_MAX_NAMED]]
    if len(names) > _MAX_NAMED:
        return f"{', '.join(shown)} and {len(names) - _MAX_NAMED} more"
    return " and ".join(shown)


DescribeArguments = Callable[[Sequence[ShellWord]], Effect | None]
"""Return the effect of a program with these arguments, or None to use what is known about its verbs."""


def _list_operands(words: Sequence[ShellWord]) -> list[str]:
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
    names = list_names(_list_operands(words)) or "files"
    how = " recursively" if _has_option(words, "rR", "--recursive") else ""
    return Effect("hard_to_undo", f"Deletes {names}{how}.")


def _name_operands(verb: str, danger: Danger = "changes_files") -> DescribeArguments:
    return lambda words: Effect(danger, f"{verb} {list_names(_list_operands(words)) or 'files'}.")


def _name_transfer(verb: str) -> DescribeArguments:
    """Describe a program that takes sources and a target."""

    def describe(words: Sequence[ShellWord]) -> Effect | None:
        names = _list_operands(words)
        if len(names) < 2:
            return None
        return Effect("changes_files", f"{verb} {list_names(names[:-1])} to {shorten(names[-1])}.")

    return describe


def _make_constant(danger: Danger, sentence: str) -> DescribeArguments:
    return lambda words: Effect(danger, sentence)


def _describe_mode_change(words: Sequence[ShellWord]) -> Effect:
    names = list_names(_list_operands(words)[1:]) or "files"
    how = " recursively" if _has_option(words, "R", "--recursive") else ""
    return Effect("changes_files", f"Changes the owner or permissions of {names}{how}.")


def _describe_sed(words: Sequence[ShellWord]) -> Effect | None:
    if not any(re.match(r"-[a-zA-Z]*i|--in-place", word.text) for word in words):
        return None
    names = _list_operands(words)
    files = names if _has_option(words, "ef", "--expression", "--file") else names[1:]
    return Effect("changes_files", f"Edits {list_names(files) or 'files'} in place.")


def _describe_find(words: Sequence[ShellWord]) -> Effect | None:
    texts = [word.text for word in words]
    if "-delete" in texts:
        return Effect("hard_to_undo", f"Deletes every file that find matches below {_format_start(texts)}.")
    if any(text in ("-exec", "-execdir", "-ok", "-okdir") for text in texts):
        return Effect("changes_files", f"Runs a command for every file that find matches below {_format_start(texts)}.")
    return None


def _format_start(texts: Sequence[str]) -> str:
    return shorten(texts[0]) if texts and not texts[0].startswith("-") else "the current folder"


def _describe_curl(words: Sequence[ShellWord]) -> Effect:
    given = [word.text for word in words if "." in word.text and not word.text.startswith(("-", "@"))]
    address = next((text for text in given if "://" in text), given[0] if given else "the network")
    sends = _has_option(words, "dFT", "--data", "--data-binary", "--data-raw", "--form", "--upload-file", "--json")
    sends = sends or any(word.text in ("POST", "PUT", "PATCH", "DELETE") for word in words)
    sends = sends or _has_option(words, "", "--post-data", "--post-file", "--body-data", "--body-file")
    return Effect("network", f"{'Sends data to' if sends else 'Downloads from'} {shorten(address)}.")


def _describe_remote_copy(words: Sequence[ShellWord]) -> Effect | None:
    names = _list_operands(words)
    remote = next((name for name in names if re.match(r"(?:[\w.-]+@)?[\w.-]+:|rsync://", name)), "")
    if remote:
        return Effect("network", f"Copies files to or from {shorten(remote)}.")
    if _has_option(words, "", "--delete", "--remove-source-files"):
        return Effect("hard_to_undo", "Copies files and deletes others.")
    return _name_transfer("Copies")(words)


def _describe_ssh(words: Sequence[ShellWord]) -> Effect:
    host = next(iter(_list_operands(words)), "another machine")
    return Effect("network", f"Runs commands on {shorten(host)}.")


_GIT_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
_GIT_EFFECTS: dict[str, tuple[Danger, str]] = {
    "fetch": ("network", "Fetches commits from a remote."),
    "pull": ("network", "Fetches commits from a remote and merges them."),
    "clone": ("network", "Clones a repository from a remote."),
    "ls-remote": ("network", "Lists the branches of a remote."),
    "send-email": ("network", "Sends patches by e-mail."),
    "lfs": ("network", "Transfers large files from or to a remote."),
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
        if "--delete" in rest or "d" in letters or any(re.match(r":\S", text) for text in rest):
            return Effect("hard_to_undo", "Deletes a branch or tag on a remote.", uses_network=True)
        forced = "f" in letters or any(text.startswith(("--force", "--mirror", "+")) for text in rest)
        if forced:
            return Effect("hard_to_undo", "Pushes to a remote and can overwrite its history.", uses_network=True)
        return Effect("network", "Pushes commits to a remote.")
    if (verb == "submodule" and {"update", "add", "init", "sync"} & set(rest)) or (
        verb == "remote" and {"update", "show", "prune"} & set(rest[:2])
    ):
        return Effect("network", f"Runs git {verb}, which may fetch from a remote.")
    if verb == "archive" and any(text.startswith("--remote") for text in rest):
        return Effect("network", "Reads a repository on a remote.")
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


_CLOUD_CLIENTS = split_names(
    "kubectl helm terraform tofu pulumi aws gcloud gsutil az doctl flyctl fly heroku vercel netlify wrangler firebase "
    "supabase ansible ansible-playbook vagrant"
)
_CLOUD_CHANGES = re.compile(r"delete|destroy|apply|rm|rb|terminate.*|uninstall|deploy|remove|drain|purge")


def _describe_cloud(words: Sequence[ShellWord]) -> Effect:
    if any(_CLOUD_CHANGES.fullmatch(word.text) for word in words):
        return Effect("hard_to_undo", "Changes or deletes resources on other machines.", uses_network=True)
    return Effect("network", "Uses an account on other machines.")


def _describe_variables(words: Sequence[ShellWord]) -> Effect:
    if any("=" in word.text for word in words):
        return Effect("read_only", "Sets variables for the commands after it.")
    if any(re.match(r"[-+]\w", word.text) and "p" not in word.text for word in words):
        return Effect("read_only", "Sets options of the shell or of variables.")
    return Effect("credentials", "Prints environment variables, which may contain secrets.")


_PROCESS_ENDERS = split_names("kill pkill killall")


def _describe_containers(words: Sequence[ShellWord]) -> Effect:
    texts = {word.text for word in words[:3]}
    if texts & {"publish", "push"}:
        return Effect("hard_to_undo", "Publishes an image, which cannot be undone.", uses_network=True)
    if texts & {"rm", "rmi", "prune", "down", "kill", "volume"}:
        return Effect("hard_to_undo", "Removes containers, images or volumes.", uses_network=True)
    return Effect("network", "Uses the container daemon, which acts outside the sandbox.")


def _describe_processes(words: Sequence[ShellWord]) -> Effect | None:
    """`ps e` and `ps -E` print the environment of processes; `ps -e` does not."""
    prints = any("E" in word.text or ("e" in word.text and not word.text.startswith("-")) for word in words[:1])
    return Effect("credentials", "Prints the environment of processes, which may contain secrets.") if prints else None


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
    **dict.fromkeys(
        split_names("nc ncat netcat socat ftp tftp lftp nmap aria2c lynx w3m links ngrok cloudflared mail sendmail"),
        _make_constant("network", "Opens a network connection."),
    ),
    **dict.fromkeys(
        split_names("ping ping6 dig nslookup host traceroute tracepath whois getent ntpdate"),
        _make_constant("network", "Contacts another machine."),
    ),
    **dict.fromkeys(
        split_names(
            "psql pg_dump pg_restore mysql mysqldump mariadb mongo mongosh mongodump redis-cli sqlcmd clickhouse"
        ),
        _make_constant("network", "Connects to a database server."),
    ),
    **dict.fromkeys(split_names("docker podman nerdctl docker-compose"), _describe_containers),
    **dict.fromkeys(_CLOUD_CLIENTS, _describe_cloud),
    "gh": _make_constant("network", "Uses your GitHub account."),
    "glab": _make_constant("network", "Uses your GitLab account."),
    **dict.fromkeys(_PROCESS_ENDERS, _name_operands("Ends processes:", "outside_project")),
    "ps": _describe_processes,
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

_INSTALLS = "Installs packages {whom}."
_PUBLISHES = "Publishes with {name}, which cannot be undone."
_NETWORK_SENTENCES = (_INSTALLS, _PUBLISHES)

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
        _INSTALLS,
    ),
    (
        _SYSTEM_PACKAGES,
        split_names("remove purge uninstall autoremove del erase -R -Rns"),
        "outside_project",
        "Removes packages {whom}.",
    ),
    (
        _PACKAGES | {"twine"},
        split_names("publish upload push"),
        "hard_to_undo",
        _PUBLISHES,
    ),
    (
        _PACKAGES,
        split_names(
            "install i ci add update upgrade sync get download fetch restore require create dlx search deps.get"
        ),
        "network",
        "Downloads and installs packages with {name}, which may run their scripts.",
    ),
    (
        _PACKAGES,
        split_names("uninstall remove rm prune"),
        "changes_files",
        "Removes packages with {name}.",
    ),
)
"""Programs, verbs among their first arguments, and what they do."""


_WEAKEST_FIRST: tuple[Danger, ...] = (
    "read_only",
    "changes_files",
    "network",
    "outside_project",
    "hard_to_undo",
    "credentials",
)
_MAX_SENTENCES = 3
_ELEVATING = split_names("sudo doas su pkexec run0 runuser gosu su-exec")


def describe_call(call: PolicyCall) -> Effect:
    """Return what a call would do, and how dangerous the worst of it is."""
    if call.analysis is not None and call.command.strip():
        found = list(_describe_command(call))
        return _combine_effects(found) if found else Effect("changes_files", "Sets variables or runs nothing.")
    if used := call.target.server_tool:
        does = f"Calls {shorten(used.tool)}" if used.tool else "Reads a resource"
        changes = ", which says that it changes something" if call.kind == "edit" else ""
        return Effect("network", f"{does} of the MCP server {shorten(used.server)}{changes}.")
    if call.kind == "network":
        return Effect("network", f"Fetches {shorten(call.target.url)}." if call.target.url else "Uses the network.")
    if call.kind == "interactive":
        if call.target.persists:
            return Effect("changes_files", "Changes what later sessions are told.")
        asks = call.name == "Question"
        return Effect("read_only", "Asks the user a question." if asks else "Changes no files itself.")
    given = call.target.paths
    reads = call.kind == "read"
    verb = "Reads" if reads else "Deletes" if all(map(call.is_removed, call.list_paths())) else "Changes"
    outside = [path for path in given if all(not paths.is_inside(path, root, call.cwd) for root in call.scope.folders)]
    secret = [path for path in given if is_secret_path(path)]
    if secret:
        return Effect("credentials", f"{verb} {list_names(secret)}, which may contain secrets.")
    if outside:
        return Effect("outside_project", f"{verb} {list_names(outside)}, outside the project.")
    names = list_names([_shorten_path(call.root, path) for path in given]) or "files"
    return Effect("read_only" if reads else "changes_files", f"{verb} {names}.")


def is_hard_to_undo(call: PolicyCall) -> bool:
    """True if a command is known to delete or discard something, or to publish it."""
    return any(effect.danger == "hard_to_undo" for effect in _describe_command(call))


def is_using_network(call: PolicyCall) -> bool:
    """True if a command is known to use the network."""
    return any(effect.danger == "network" or effect.uses_network for effect in _describe_command(call))


def explain_need(call: PolicyCall, may_read_secret: Callable[[str], bool]) -> str:
    """Return what a command is known to need that the sandbox keeps it from, as a sentence, or ""."""
    needs = ("network", "outside_project", "credentials")
    effects = _describe_command(call, may_read_secret)
    return next((effect.sentence for effect in effects if effect.uses_network or effect.danger in needs), "")


def _combine_effects(effects: Sequence[Effect]) -> Effect:
    """Return the worst danger, with the sentences of all effects that do more than change files, the worst first."""
    ranked = sorted(effects, key=lambda effect: -_WEAKEST_FIRST.index(effect.danger))
    worst = ranked[0]
    serious = [effect.sentence for effect in ranked if effect.danger not in ("read_only", "changes_files")]
    sentences = list(dict.fromkeys(serious)) or [worst.sentence]
    more = f" {len(sentences) - _MAX_SENTENCES} more." if len(sentences) > _MAX_SENTENCES else ""
    return Effect(worst.danger, " ".join(sentences[:_MAX_SENTENCES]) + more)


def name_call(call: PolicyCall) -> str:
    """Return a call in a few words: the tool as users know it and its URL, or its file relative to the project."""
    name, target = get_display_name(call.name), call.target
    if target.url:
        return f"{name} {target.url}"
    files = [
        (_shorten_path(call.root, item.shown) + item.text.removeprefix(item.shown)) for item in target.resolved
    ] or [_shorten_path(call.root, path) for path in target.paths]
    if not files:
        return name
    if len(files) > 1:
        return f"{name} {len(files)} files"
    creates = name in ("Write", "Append") and not os.path.lexists(paths.join_path(call.cwd, target.paths[0]))
    return f"{'Create file' if creates else name} {files[0]}"


def _shorten_path(root: str, path: str) -> str:
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else path


def _describe_command(
    call: PolicyCall, may_read_secret: Callable[[str], bool] = lambda path: False
) -> Iterator[Effect]:
    """Yield everything a command would do, in the order it is found."""
    analysis, scope = call.analysis, call.scope
    if analysis is None:
        return
    elevated = [part for part in analysis.commands if part.name in _ELEVATING]
    as_root = os.geteuid() == 0 or bool(elevated)
    is_root_named = False
    for part in analysis.commands:
        if part.name in _ELEVATING:
            continue
        if read_call(part.words) is not None:
            yield Effect("read_only", ONLY_READS)
        elif part.name not in WRAPPERS or not _name_wrapped(part):
            effect = describe_program(part, as_root=as_root)
            if part.name in _PROCESS_ENDERS and call.level == "view":  # in a view it sees only its own processes
                effect = Effect("changes_files", effect.sentence)
            is_root_named = is_root_named or effect.sentence.endswith(" as root.")
            yield effect
        if any(word.expands and _SECRET_VARIABLE.search(word.text) for word in part.words):
            yield Effect("credentials", "Uses an environment variable that may contain a secret.")
    for part in () if is_root_named else elevated:
        yield Effect("outside_project", f"Runs {_name_wrapped(part) or 'a shell'} as another user.")
    for redirect in analysis.writes:
        verb = "Appends to" if ">>" in redirect.op else "Writes to"
        yield Effect("changes_files", f"{verb} {shorten(redirect.target.text)}.")
    secret = _find_secret(call, analysis, may_read_secret)
    if secret:
        yield Effect("credentials", f"Uses {shorten(secret)}, which may contain secrets.")
    outside = find_outside_word(analysis, scope)
    if outside:
        yield Effect("outside_project", f"Uses {shorten(outside)}, outside the project.")
    harm = find_danger(analysis, scope).removeprefix("it ")
    if harm:
        yield Effect("hard_to_undo", f"{harm[0].upper()}{harm[1:]}.")
    if not analysis.is_complete:
        yield Effect("changes_files", "Runs commands that cannot be fully analyzed.")


def _find_secret(call: PolicyCall, analysis: CommandAnalysis, may_read_secret: Callable[[str], bool]) -> str:
    """Return the first word that names a file which may contain secrets, or ""."""
    for word, folder in find_path_words(analysis, call.scope):
        matches = expand_glob(word.text, folder) if word.glob else []
        for text in (*list_spellings(word), *matches):
            path = paths.resolve_path(text, folder) or ""
            if (is_secret_path(text) or is_secret_path(path)) and not may_read_secret(path):
                return text
    return ""


def _name_wrapped(part: ExtractedCommand) -> str:
    """Return the first word of a wrapper that is neither an option nor an assignment, or ""."""
    words = (word for word in part.words[1:] if not word.text.startswith("-") and not is_assignment(word))
    return next((shorten(word.text) for word in words), "")


class Confinement(Protocol):
    """What is known about the sandbox of a session."""

    async def examine(self) -> None:
        """Find out what the sandbox can do. Before, the other methods may say less than it can."""
        ...

    def is_confining(self, command: str = "") -> bool:
        """True if a command would run in a sandbox; without a command, if commands in general do."""
        ...

    def find_level(self, command: str = "") -> CommandLevel:
        """Return how a command would be confined; without a command, how commands in general are."""
        ...

    def find_temporary_file(self, path: str) -> str:
        """Return where the file that commands made or changed under this path of a temporary folder lies, or ""."""
        ...

    def explain_unconfined(self, command: str = "") -> str:
        """Return why a command would not be confined to the project and cut off from the network, as a clause.

        Return "" if it would be. Without a command, answer for commands in general.
        """
        ...
