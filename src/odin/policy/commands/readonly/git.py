"""Read-only git commands. `git_config` checks the repository, since its settings can name programs to run."""

import re
from collections.abc import Callable, Sequence

from odin.core.path_names import contains, is_secret_path
from odin.policy.command_scope import CommandScope
from odin.policy.commands.git_config import find_git_folder, find_git_problem, has_safe_git_config
from odin.policy.commands.git_objects import may_name_secret_blob
from odin.policy.commands.readonly.options import (
    OperandCheck,
    ParsedOptions,
    ReadOnlyCommand,
    has_any_operands,
    has_no_operands,
)
from odin.policy.commands.syntax import split_names
from odin.policy.paths import is_folder, join_path, resolve_path

_NO_SIGNATURES = r"(?s)(?!.*%[-+ ]?G)(?!.*signature).*"
"""A format with %G or %+G makes git run a signature program."""

_DIFF_SHORT = "puswabWzRU:M?C?D?B?S:G:O@l:rtmc"
_DIFF_LONG = (
    "patch no-patch raw patch-with-raw patch-with-stat stat? stat-width= stat-count= shortstat numstat dirstat? "
    "cumulative summary name-only name-status compact-summary no-color color? color-moved? no-color-moved minimal "
    "patience histogram anchored= diff-algorithm= indent-heuristic no-indent-heuristic ignore-space-change "
    "ignore-all-space ignore-blank-lines ignore-space-at-eol ignore-cr-at-eol ignore-matching-lines= function-context "
    "no-renames find-renames? find-copies? find-copies-harder irreversible-delete word-diff? color-words? "
    "word-diff-regex= no-prefix default-prefix full-index unified= diff-filter= "
    "abbrev? no-abbrev no-ext-diff no-textconv text binary pickaxe-all pickaxe-regex relative? no-relative "
    "inter-hunk-context= exit-code quiet check ignore-submodules? ita-visible-in-index ita-invisible-in-index cc "
    "combined-all-paths root rotate-to= skip-to= ws-error-highlight= no-rename-empty rename-empty "
    "find-object= "
)
_WALK_LONG = (
    "all branches? tags? remotes? glob= exclude= merges no-merges first-parent reverse parents children left-right "
    "left-only right-only cherry cherry-pick cherry-mark boundary full-history simplify-merges simplify-by-decoration "
    "ancestry-path? dense sparse remove-empty topo-order date-order author-date-order walk-reflogs no-walk? max-count= "
    "skip= since= after= until= before= since-as-filter= min-parents= max-parents= no-min-parents no-max-parents "
    "author= committer= grep= grep-reflog= all-match invert-grep regexp-ignore-case extended-regexp fixed-strings "
    "perl-regexp basic-regexp format= pretty? oneline abbrev-commit no-abbrev-commit date= relative-date timestamp "
    "count not encoding= graph no-graph show-linear-break? "
)
_LOG_LONG = (
    _DIFF_LONG
    + _WALK_LONG
    + (
        "decorate? no-decorate decorate-refs= decorate-refs-exclude= clear-decorations follow no-notes notes? "
        "show-notes? source mailmap no-mailmap use-mailmap log-size no-diff-merges "
    )
)


def _check_revisions(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Revisions or paths. Read as a path, each must stay inside, since git may compare any two files."""
    lines = (value.rpartition(":")[2] for value in parsed.list_values("L"))
    return not any(map(is_secret_path, lines)) and all(_is_safe_revision(word, scope) for word in parsed.operands)


def _is_safe_revision(word: str, scope: CommandScope) -> bool:
    """True if a word stays inside and names no secret file, neither itself nor the file that it links to."""
    if not scope.is_within(word) or is_secret_path(word.rpartition(":")[2]):
        return False
    path = join_path(scope.cwd, word)
    return not is_secret_path(path) and not is_secret_path(resolve_path(path, "/") or path)


def _check_shown_objects(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """For commands that print a blob without its name if it is named by its id."""
    return _check_revisions(parsed, scope) and all(_is_no_secret_blob(word, scope) for word in parsed.operands)


def _is_no_secret_blob(word: str, scope: CommandScope) -> bool:
    store = find_git_folder(scope.cwd)
    return not store or not may_name_secret_blob(store, word, scope.cwd)


def _check_diff(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """With --no-index, and outside of a repository, git compares any two files and prints them."""
    if (parsed.has("no-index") or not find_git_folder(scope.cwd)) and not all(
        scope.allows_content(word) and not is_folder(join_path(scope.cwd, word)) for word in parsed.operands
    ):
        return False
    return _check_shown_objects(parsed, scope)


def _make_limit_check(limit: int) -> OperandCheck:
    return lambda parsed, scope: len(parsed.operands) <= limit and _check_revisions(parsed, scope)


_LISTING = ("list", "l", "contains", "no-contains", "merged", "no-merged", "points-at", "with", "without")


def _check_listing(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Without one of these options, `git branch NAME` and `git tag NAME` create NAME."""
    return (not parsed.operands or parsed.has(*_LISTING)) and _check_revisions(parsed, scope)


def _check_grep(parsed: ParsedOptions, scope: CommandScope) -> bool:
    paths = parsed.operands if parsed.has("e") else parsed.operands[1:]
    if not parsed.has("e") and (not parsed.operands or parsed.starts_with_glob):
        return False
    if parsed.has("h", "heading", "z", "null", "color"):
        return False  # the lines of a secret file could not be told by its name
    return all(_is_safe_revision(word, scope) and _is_no_secret_blob(word, scope) for word in paths)


def _check_reflog(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return not set(parsed.operands) & {"expire", "delete", "drop", "write", "migrate"} and _check_revisions(
        parsed, scope
    )


def _check_config(parsed: ParsedOptions, scope: CommandScope) -> bool:
    if parsed.has("get", "get-all", "get-regexp"):
        return 1 <= len(parsed.operands) <= 2
    if parsed.has("l", "list"):
        return not parsed.operands
    operands = parsed.operands[1:] if parsed.operands[:1] == ["get"] else parsed.operands
    return len(operands) == 1 and ("." in operands[0] or operands == ["list"])


def _make_first_check(*allowed: str) -> OperandCheck:
    """For commands with subcommands: the only operand is one of these."""
    return lambda parsed, scope: len(parsed.operands) == 1 and parsed.operands[0] in allowed


def _check_remote(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """`git remote show NAME` connects to the remote unless -n is given."""
    verb, rest = parsed.operands[:1], parsed.operands[1:]
    if verb == ["show"]:
        return not rest or parsed.has("n")
    return not verb or (verb == ["get-url"] and len(rest) == 1)


def _check_stash(parsed: ParsedOptions, scope: CommandScope) -> bool:
    verb, rest = parsed.operands[:1], parsed.operands[1:]
    return verb in (["list"], ["show"]) and len(rest) <= int(verb == ["show"]) and _check_revisions(parsed, scope)


def _check_hash_object(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return bool(parsed.operands) and all(scope.allows_content(word) for word in parsed.operands)


def _check_cat_file(parsed: ParsedOptions, scope: CommandScope) -> bool:
    words = parsed.operands
    if parsed.has("batch-check", "batch-all-objects", "unordered", "buffer"):
        return not words and parsed.has("batch-check")
    typed = len(words) == 2 and words[0] in ("blob", "tree", "commit", "tag") and not parsed.options
    if not typed and (len(words) != 1 or not parsed.options):
        return False
    is_shown = parsed.has("p") or words[0] == "blob"
    return _is_safe_revision(words[-1], scope) and (not is_shown or _is_no_secret_blob(words[-1], scope))


_REFS_LONG = (
    "sort= format= contains? no-contains? merged? no-merged? points-at= ignore-case omit-empty color? no-color abbrev? "
)
_DIFF = ReadOnlyCommand(
    _check_diff, _DIFF_SHORT, _DIFF_LONG + "cached staged merge-base no-index", value_pattern=_NO_SIGNATURES
)
_LOG = ReadOnlyCommand(
    _check_revisions, _DIFF_SHORT + "n:iEFPgL:", _LOG_LONG, takes_number=True, value_pattern=_NO_SIGNATURES
)
_SHOW = ReadOnlyCommand(
    _check_shown_objects, _DIFF_SHORT + "n:iEFPgL:", _LOG_LONG, takes_number=True, value_pattern=_NO_SIGNATURES
)
_DIFF_TREE = ReadOnlyCommand(
    _check_revisions,
    _DIFF_SHORT + "v",
    _DIFF_LONG + "cached no-commit-id always pretty? format= merge-base",
    value_pattern=_NO_SIGNATURES,
)
_BLAME = ReadOnlyCommand(
    _check_revisions,
    "L:lsefnwbtcpM?C?",
    "line-porcelain porcelain incremental show-name show-number show-email date= since= ignore-rev= ignore-revs-file@ "
    "abbrev= color-lines color-by-age first-parent root show-stats minimal",
)

GIT_COMMANDS: dict[str, ReadOnlyCommand] = {
    "status": ReadOnlyCommand(
        _check_revisions,
        "sbvu?z",
        "short branch porcelain? long verbose show-stash untracked-files? ignored? ahead-behind no-ahead-behind "
        "ignore-submodules? column? no-column renames no-renames find-renames? null",
    ),
    "log": _LOG,
    "whatchanged": _LOG,
    "show": _SHOW,
    "diff": _DIFF,
    "diff-tree": _DIFF_TREE,
    "diff-index": _DIFF_TREE,
    "diff-files": _DIFF_TREE,
    "branch": ReadOnlyCommand(
        _check_listing,
        "arvqli",
        "all remotes verbose show-current list column? no-column " + _REFS_LONG,
        value_pattern=_NO_SIGNATURES,
    ),
    "tag": ReadOnlyCommand(
        _check_listing, "ln?i", "list column? no-column " + _REFS_LONG, value_pattern=_NO_SIGNATURES
    ),
    "for-each-ref": ReadOnlyCommand(
        _check_revisions, "", "count= exclude= include-root-refs " + _REFS_LONG, value_pattern=_NO_SIGNATURES
    ),
    "show-ref": ReadOnlyCommand(
        _check_revisions, "qds", "heads branches tags head hash? dereference verify abbrev? quiet exists"
    ),
    "symbolic-ref": ReadOnlyCommand(_make_limit_check(1), "q", "short quiet no-recurse"),
    "rev-parse": ReadOnlyCommand(
        _check_revisions,
        "q",
        "show-toplevel abbrev-ref? short? verify quiet is-inside-work-tree is-inside-git-dir is-bare-repository "
        "is-shallow-repository show-prefix show-cdup git-dir symbolic-full-name symbolic all branches? tags? remotes? "
        "git-common-dir absolute-git-dir show-superproject-working-tree show-object-format? git-path= revs-only "
        "no-revs flags no-flags sq not default= path-format= disambiguate= since= until= after= before= glob= exclude=",
    ),
    "rev-list": ReadOnlyCommand(
        _check_revisions,
        "n:i",
        _WALK_LONG + "objects no-object-names disk-usage? header no-commit-header",
        takes_number=True,
        value_pattern=_NO_SIGNATURES,
    ),
    "ls-files": ReadOnlyCommand(
        _check_revisions,
        "cdmostkuzvfix:",
        "cached deleted modified others stage unmerged killed ignored exclude= exclude-standard full-name "
        "error-unmatch eol directory no-empty-directory deduplicate with-tree= abbrev? debug",
    ),
    "ls-tree": ReadOnlyCommand(
        _check_revisions, "drtlz", "name-only name-status long full-name full-tree abbrev? object-only format="
    ),
    "blame": _BLAME,
    "annotate": _BLAME,
    "describe": ReadOnlyCommand(
        _check_revisions,
        "",
        "tags all always long abbrev= match= exclude= first-parent contains candidates= exact-match debug",
    ),
    "shortlog": ReadOnlyCommand(
        _check_revisions,
        "snecw?",
        "summary numbered email committer group= format= " + _WALK_LONG,
        takes_number=True,
        value_pattern=_NO_SIGNATURES,
    ),
    "name-rev": ReadOnlyCommand(_check_revisions, "", "tags refs= exclude= all name-only no-undefined always"),
    "merge-base": ReadOnlyCommand(_check_revisions, "a", "all is-ancestor fork-point octopus independent"),
    "cherry": ReadOnlyCommand(_make_limit_check(3), "v", "abbrev? verbose"),
    "show-branch": ReadOnlyCommand(
        _check_revisions, "rag", "remotes all current topo-order date-order sparse more= list sha1-name no-name"
    ),
    "cat-file": ReadOnlyCommand(_check_cat_file, "ptse", "batch-check? batch-all-objects unordered buffer"),
    "count-objects": ReadOnlyCommand(has_no_operands, "vH", "verbose human-readable"),
    "grep": ReadOnlyCommand(
        _check_grep,
        "niIwlLcEFGPhHopWqvazre:A:B:C:m:",
        "line-number ignore-case word-regexp files-with-matches files-without-match name-only count heading break "
        "no-color color? show-function function-context cached full-name extended-regexp basic-regexp "
        "fixed-strings perl-regexp invert-match only-matching column quiet text max-depth= max-count= threads= and or "
        "not all-match after-context= before-context= context= null recursive no-recursive",
        takes_number=True,
    ),
    "check-ignore": ReadOnlyCommand(_check_revisions, "vnqz", "verbose non-matching no-index quiet"),
    "check-attr": ReadOnlyCommand(_check_revisions, "az", "all cached"),
    "reflog": ReadOnlyCommand(
        _check_reflog, _DIFF_SHORT + "n:iEFPg", _LOG_LONG, takes_number=True, value_pattern=_NO_SIGNATURES
    ),
    "config": ReadOnlyCommand(
        _check_config,
        "lz",
        "get get-all get-regexp list local global system worktree show-origin show-scope name-only null includes "
        "no-includes type= bool int bool-or-int path expiry-date default= all",
    ),
    "remote": ReadOnlyCommand(_check_remote, "vn", "verbose all push"),
    "submodule": ReadOnlyCommand(
        lambda parsed, scope: parsed.operands in ([], ["status"]), "q", "quiet recursive cached"
    ),
    "bisect": ReadOnlyCommand(_make_first_check("log")),
    "fsck": ReadOnlyCommand(
        has_no_operands,
        "v",
        "full no-full strict dangling no-dangling unreachable connectivity-only name-objects root tags cache "
        "no-reflogs verbose progress no-progress",
    ),
    "range-diff": ReadOnlyCommand(
        _check_revisions,
        _DIFF_SHORT,
        _DIFF_LONG + "creation-factor= no-dual-color left-only right-only",
        value_pattern=_NO_SIGNATURES,
    ),
    "hash-object": ReadOnlyCommand(_check_hash_object, "t:", "no-filters"),
    "stripspace": ReadOnlyCommand(has_no_operands, "s", "strip-comments"),
    "patch-id": ReadOnlyCommand(has_no_operands, "", "stable unstable verbatim"),
    "check-ref-format": ReadOnlyCommand(
        lambda parsed, scope: len(parsed.operands) == 1, "", "branch normalize allow-onelevel"
    ),
    "check-mailmap": ReadOnlyCommand(has_any_operands),
    "worktree": ReadOnlyCommand(_make_first_check("list"), "vz", "porcelain verbose"),
    "stash": ReadOnlyCommand(
        _check_stash,
        "pn:",
        "patch stat? name-only name-status oneline shortstat numstat format= date=",
        takes_number=True,
        value_pattern=_NO_SIGNATURES,
    ),
    "var": ReadOnlyCommand(_make_limit_check(1)),
    "notes": ReadOnlyCommand(
        lambda parsed, scope: parsed.operands[:1] in ([], ["list"], ["show"]) and _check_revisions(parsed, scope)
    ),
}

_GLOBAL_OPTIONS = split_names(
    "--no-pager -P --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs "
    "--no-replace-objects"
)
_SETTING = re.compile(
    r"color\.\w+=\w+|core\.quotepath=\w+|log\.showsignature=false|diff\.(renames|noprefix|context|algorithm)=\w+|core\.pager=(cat)?|pager\.\w+=(false|cat)?|advice\.\w+=\w+",
    re.I,
)
_HELP_CALLS = (
    ["--version"],
    ["version"],
    ["-v"],
    ["--help"],
    ["help"],
    ["help", "-a"],
    ["help", "-g"],
    ["--exec-path"],
)


def check_git(words: Sequence[str], scope: CommandScope) -> bool:
    if list(words) in _HELP_CALLS or (len(words) == 2 and words[0] in GIT_COMMANDS and words[1] == "-h"):
        return True
    folder = _find_read_folder(words, scope)
    return bool(folder) and has_safe_git_config(folder, scope.root, scope.environment.variables)


def explain_distrust(words: Sequence[str], scope: CommandScope) -> str:
    """Return why a git command that only reads needs approval in this repository, or ""."""
    folder = _find_read_folder(words, scope)
    return find_git_problem(folder, scope.root, scope.environment.variables) if folder else ""


def _find_read_folder(words: Sequence[str], scope: CommandScope) -> str:
    """Return the folder where a git command only reads, given a repository that can be trusted; else ""."""
    rest = list(words)
    while rest:
        if rest[0] in _GLOBAL_OPTIONS:
            rest.pop(0)
        elif rest[0] == "-c" and len(rest) > 1 and _SETTING.fullmatch(rest[1]):
            del rest[:2]
        elif rest[0] == "-C" and len(rest) > 1:
            folder = resolve_path(rest[1], scope.cwd)
            if not rest[1] or folder is None or not contains(scope.root, folder) or not is_folder(folder):
                return ""
            scope = scope.enter(folder)
            del rest[:2]
        else:
            break
    known = GIT_COMMANDS.get(rest[0]) if rest else None
    if rest[:1] == ["stash"] and rest[1:2] not in (["list"], ["show"]):
        return ""  # `git stash -OPTION` means `stash push`
    return scope.cwd if known is not None and known.accepts(rest[1:], scope) else ""


GIT_CHECKS: dict[str, Callable[[Sequence[str], CommandScope], bool]] = {"git": check_git}
