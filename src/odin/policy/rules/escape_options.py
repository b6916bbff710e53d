"""Options that make a command write a file or run another program ("escape options").

A prefix rule such as `Bash(go vet:*)` never covers them: `go vet -vettool=./x` runs x.
"""

import re
from collections.abc import Sequence

_LONG: dict[str, str] = {
    "git": "output output-directory exec upload-pack receive-pack open-files-in-pager ext-diff textconv config "
    "config-env template extcmd exec-path sendmail-cmd to-cmd cc-cmd header-cmd smtp-server tree-filter env-filter "
    "index-filter msg-filter commit-filter parent-filter tag-name-filter strategy",
    "sort": "output compress-program files0-from",
    "split": "filter",
    "rg": "pre hostname-bin",
    "fd": "exec exec-batch",
    "tar": "to-command checkpoint-action use-compress-program rsh-command info-script new-volume-script",
    "rsync": "rsh rsync-path remote-option",
    "curl": "output remote-name config upload-file dump-header cookie-jar trace trace-ascii libcurl stderr",
    "wget": "output-document output-file use-askpass execute config",
    "cargo": "config",
    "make": "eval",
    "gmake": "eval",
    "npm": "script-shell prefix globalconfig userconfig node-options shell git viewer editor init-module call",
    "pnpm": "script-shell config.script-shell node-options dir",
    "yarn": "use-yarnrc cwd script-shell",
    "node": "require import loader experimental-loader eval print env-file",
    "man": "pager html config-file",
    "less": "log-file lesskey-src",
    "pytest": "rootdir config-file override-ini confcutdir pyargs",
    "mypy": "config-file python-executable install-types shadow-file custom-typeshed-dir",
    "pylint": "load-plugins init-hook rcfile",
    "flake8": "config append-config",
    "coverage": "rcfile",
    "eslint": "config rulesdir plugin parser format resolve-plugins-relative-to",
    "prettier": "plugin plugin-search-dir config",
    "jest": "config globalSetup setupFiles setupFilesAfterEnv runner testRunner transform reporters testEnvironment "
    "resolver",
    "vitest": "config globalSetup reporter environment",
    "mocha": "require config package reporter ui",
    "rspec": "require options format",
    "rubocop": "require plugin config",
    "phpunit": "bootstrap extension configuration loader printer",
    "rake": "rakefile require execute execute-print execute-continue",
    "bundle": "gemfile",
    "gradle": "init-script build-file settings-file include-build",
    "mvn": "file settings global-settings",
    "dotnet": "logger settings",
    "helm": "post-renderer",
    "kubectl": "kubeconfig",
    "ansible-playbook": "inventory module-path vault-password-file connection",
    "tox": "conf",
    "nox": "noxfile",
    "pre-commit": "config",
    "cmake": "toolchain",
    "gdb": "command eval-command init-command",
    "zip": "unzip-command",
}
"""Long escape options by program. Any prefix counts, since most programs accept abbreviations."""

_SINGLE_DASH: dict[str, str] = {
    "go": "exec toolexec overlay vettool modfile pkgdir ldflags gcflags asmflags gccgoflags compiler",
    "terraform": "chdir plugin-dir",
    "gcc": "wrapper specs fplugin",
    "clang": "fplugin load",
    "mvn": "gs",
    "sqlite3": "cmd init",
}
"""Programs whose long options have one dash."""

_SHORT: dict[str, str] = {
    "git grep": "O",
    "git rebase": "x",
    "git difftool": "x",
    "git clone": "cu",
    "git format-patch": "o",
    "git merge": "s",
    "sort": "oT",
    "fd": "xX",
    "tar": "IF",
    "rsync": "eM",
    "ssh": "oFS",
    "scp": "oFSD",
    "sftp": "oFSDb",
    "curl": "oOKTDc",
    "wget": "Ooei",
    "zip": "T",
    "tree": "o",
    "man": "PHC",
    "less": "oOk",
    "tcpdump": "zw",
    "pytest": "pco",
    "node": "rep",
    "ruby": "re",
    "perl": "eEM",
    "npm": "c",
    "eslint": "cf",
    "mocha": "rRu",
    "jest": "c",
    "rspec": "rOf",
    "rubocop": "rc",
    "rake": "freRpE",
    "make": "E",
    "gradle": "Ibc",
    "mvn": "fst",
    "gcc": "B",
    "tox": "cx",
    "nox": "f",
    "gdb": "x",
    "cmake": "PDEC",
    "vim": "cSu",
    "psql": "cf",
}
"""Short escape options by program, for git by subcommand. They also count inside a bundle."""

_ASSIGNED: dict[str, str] = dict.fromkeys(
    ("make", "gmake"),
    r"(SHELL|\.SHELLFLAGS|MAKE|MAKEFLAGS|MAKEFILES|CC|CXX|CPP|LD|AR|AS|PYTHON|GO|CARGO|NPM|NODE|BASH|SH)(\?|\+|:|::)?=.*",
)
"""Operands that set a variable which names a program."""

_FIND_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls")
_SAFE_OPTIONS = re.compile(r"-p=?no:[\w.-]+")


def find_escape_option(words: Sequence[str], rest: Sequence[str]) -> str:
    """Return the first escape option in `rest`, or "". `words` is the whole command."""
    known = _strip_module(words)
    name = known[0].rsplit("/", 1)[-1]
    assigned = _ASSIGNED.get(name, "")
    for index, text in enumerate(rest):
        if assigned and re.fullmatch(assigned, text):
            return text
        if not text.startswith("-") or len(text) < 2 or _SAFE_OPTIONS.fullmatch(text):
            continue
        if name == "pytest" and text == "-p" and rest[index + 1 : index + 2] and rest[index + 1].startswith("no:"):
            continue
        if _is_escape_option(known, name, text):
            return text
    return ""


def _strip_module(words: Sequence[str]) -> Sequence[str]:
    """Return `pytest …` for `python -m pytest …`."""
    if len(words) > 2 and re.fullmatch(r"python[\d.]*", words[0].rsplit("/", 1)[-1]) and words[1] == "-m":
        return words[2:]
    return words


def _is_escape_option(words: Sequence[str], name: str, text: str) -> bool:
    if name == "find":
        return text in _FIND_ACTIONS
    option = text.lstrip("-").split("=", 1)[0]
    if name in _SINGLE_DASH and option in _SINGLE_DASH[name].split():
        return True
    if text.startswith("--"):
        return len(option) > 1 and any(known.startswith(option) for known in _LONG.get(name, "").split())
    if name in ("go", "terraform"):
        return False
    if name == "git" and words[1].startswith("-"):
        return text.startswith("-c")
    letters = _SHORT.get(name, "") or _SHORT.get(" ".join(words[:2]), "")
    return any(letter in text[1:] for letter in letters)
