"""What may be asked of git. The repository itself is judged by `gitconfig.tame`: its settings can name programs."""

import re
from collections.abc import Callable, Sequence

from odin.policy.command.gitconfig import tame
from odin.policy.command.harmless.options import Check, Known, Taken, anything, nothing
from odin.policy.command.harmless.place import Place
from odin.policy.command.shapes import named
from odin.policy.confidential import confidential
from odin.policy.paths import contains, is_folder, joined, real

_NO_SIGNATURES = r"(?s)(?!.*%[-+ ]?G)(?!.*signature).*"
"""A format with %G, also written %+G, makes git call a signature program."""

_DIFF_SHORT = "puswabWzRU:M?C?D?B?S:G:O@l:rtmc"
_DIFF_LONG = (
    "patch no-patch raw patch-with-raw patch-with-stat stat? stat-width= stat-count= shortstat numstat dirstat? "
    "cumulative summary name-only name-status compact-summary no-color color? color-moved? no-color-moved minimal "
    "patience histogram anchored= diff-algorithm= indent-heuristic no-indent-heuristic ignore-space-change "
    "ignore-all-space ignore-blank-lines ignore-space-at-eol ignore-cr-at-eol ignore-matching-lines= function-context "
    "no-renames find-renames? find-copies? find-copies-harder irreversible-delete word-diff? color-words? "
    "word-diff-regex= no-prefix default-prefix src-prefix= dst-prefix= line-prefix= full-index unified= diff-filter= "
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


def _revisions(taken: Taken, place: Place) -> bool:
    """Names of commits or paths; both must stay inside when read as a path, or git would compare any two files."""
    lines = (value.rpartition(":")[2] for value in taken.values("L"))
    return not any(map(confidential, lines)) and all(_revision(word, place) for word in taken.operands)


def _revision(word: str, place: Place) -> bool:
    return place.within(word) and not confidential(word.rpartition(":")[2])


def _diff(taken: Taken, place: Place) -> bool:
    """With --no-index git compares two files of its own accord, and shows them whatever they are."""
    if taken.has("no-index") and not all(
        place.shows(word) and not is_folder(joined(place.cwd, word)) for word in taken.operands
    ):
        return False
    return _revisions(taken, place)


def _up_to(most: int) -> Check:
    return lambda taken, place: len(taken.operands) <= most and _revisions(taken, place)


_LISTING = ("list", "l", "contains", "no-contains", "merged", "no-merged", "points-at", "with", "without")


def _listed(taken: Taken, place: Place) -> bool:
    """Without one of these options, an operand of `git branch` and `git tag` is made."""
    return (not taken.operands or taken.has(*_LISTING)) and _revisions(taken, place)


def _grep(taken: Taken, place: Place) -> bool:
    paths = taken.operands if taken.has("e") else taken.operands[1:]
    if not taken.has("e") and (not taken.operands or taken.led_by_glob):
        return False
    return all(_revision(word, place) for word in paths)


def _reflog(taken: Taken, place: Place) -> bool:
    return not set(taken.operands) & {"expire", "delete", "drop", "write", "migrate"} and _revisions(taken, place)


def _config(taken: Taken, place: Place) -> bool:
    if taken.has("get", "get-all", "get-regexp"):
        return 1 <= len(taken.operands) <= 2
    if taken.has("l", "list"):
        return not taken.operands
    operands = taken.operands[1:] if taken.operands[:1] == ["get"] else taken.operands
    return len(operands) == 1 and ("." in operands[0] or operands == ["list"])


def _first_is(*allowed: str) -> Check:
    """For commands that have commands of their own: the first operand is one of these, and no other follows."""
    return lambda taken, place: len(taken.operands) == 1 and taken.operands[0] in allowed


def _remote(taken: Taken, place: Place) -> bool:
    """To show a remote, git asks it, unless -n says not to."""
    verb, rest = taken.operands[:1], taken.operands[1:]
    if verb == ["show"]:
        return not rest or taken.has("n")
    return not verb or (verb == ["get-url"] and len(rest) == 1)


def _stash(taken: Taken, place: Place) -> bool:
    verb, rest = taken.operands[:1], taken.operands[1:]
    return verb in (["list"], ["show"]) and len(rest) <= int(verb == ["show"]) and _revisions(taken, place)


def _hashed(taken: Taken, place: Place) -> bool:
    return bool(taken.operands) and all(place.shows(word) for word in taken.operands)


def _objects(taken: Taken, place: Place) -> bool:
    words = taken.operands
    if taken.has("batch-check", "batch-all-objects", "unordered", "buffer"):
        return not words and taken.has("batch-check")
    typed = len(words) == 2 and words[0] in ("blob", "tree", "commit", "tag") and not taken.options
    return (typed or (len(words) == 1 and bool(taken.options))) and _revision(words[-1], place)


_REFS_LONG = (
    "sort= format= contains? no-contains? merged? no-merged? points-at= ignore-case omit-empty color? no-color abbrev? "
)
_DIFF = Known(_diff, _DIFF_SHORT, _DIFF_LONG + "cached staged merge-base no-index", values=_NO_SIGNATURES)
_LOG = Known(_revisions, _DIFF_SHORT + "n:iEFPgL:", _LOG_LONG, number=True, values=_NO_SIGNATURES)
_DIFF_TREE = Known(
    _revisions,
    _DIFF_SHORT + "v",
    _DIFF_LONG + "cached no-commit-id always pretty? format= merge-base",
    values=_NO_SIGNATURES,
)
_BLAME = Known(
    _revisions,
    "L:lsefnwbtcpM?C?",
    "line-porcelain porcelain incremental show-name show-number show-email date= since= ignore-rev= ignore-revs-file@ "
    "abbrev= color-lines color-by-age first-parent root show-stats minimal",
)

KNOWN: dict[str, Known] = {
    "status": Known(
        _revisions,
        "sbvu?z",
        "short branch porcelain? long verbose show-stash untracked-files? ignored? ahead-behind no-ahead-behind "
        "ignore-submodules? column? no-column renames no-renames find-renames? null",
    ),
    "log": _LOG,
    "whatchanged": _LOG,
    "show": _LOG,
    "diff": _DIFF,
    "diff-tree": _DIFF_TREE,
    "diff-index": _DIFF_TREE,
    "diff-files": _DIFF_TREE,
    "branch": Known(
        _listed,
        "arvqli",
        "all remotes verbose show-current list column? no-column " + _REFS_LONG,
        values=_NO_SIGNATURES,
    ),
    "tag": Known(_listed, "ln?i", "list column? no-column " + _REFS_LONG, values=_NO_SIGNATURES),
    "for-each-ref": Known(_revisions, "", "count= exclude= include-root-refs " + _REFS_LONG, values=_NO_SIGNATURES),
    "show-ref": Known(_revisions, "qds", "heads branches tags head hash? dereference verify abbrev? quiet exists"),
    "symbolic-ref": Known(_up_to(1), "q", "short quiet no-recurse"),
    "rev-parse": Known(
        _revisions,
        "q",
        "show-toplevel abbrev-ref? short? verify quiet is-inside-work-tree is-inside-git-dir is-bare-repository "
        "is-shallow-repository show-prefix show-cdup git-dir symbolic-full-name symbolic all branches? tags? remotes? "
        "git-common-dir absolute-git-dir show-superproject-working-tree show-object-format? git-path= revs-only "
        "no-revs flags no-flags sq not default= path-format= disambiguate= since= until= after= before= glob= exclude=",
    ),
    "rev-list": Known(
        _revisions,
        "n:i",
        _WALK_LONG + "objects no-object-names disk-usage? header no-commit-header",
        number=True,
        values=_NO_SIGNATURES,
    ),
    "ls-files": Known(
        _revisions,
        "cdmostkuzvfix:",
        "cached deleted modified others stage unmerged killed ignored exclude= exclude-standard full-name "
        "error-unmatch eol directory no-empty-directory deduplicate with-tree= abbrev? debug",
    ),
    "ls-tree": Known(_revisions, "drtlz", "name-only name-status long full-name full-tree abbrev? object-only format="),
    "blame": _BLAME,
    "annotate": _BLAME,
    "describe": Known(
        _revisions,
        "",
        "tags all always long abbrev= match= exclude= first-parent contains candidates= exact-match debug",
    ),
    "shortlog": Known(
        _revisions,
        "snecw?",
        "summary numbered email committer group= format= " + _WALK_LONG,
        number=True,
        values=_NO_SIGNATURES,
    ),
    "name-rev": Known(_revisions, "", "tags refs= exclude= all name-only no-undefined always"),
    "merge-base": Known(_revisions, "a", "all is-ancestor fork-point octopus independent"),
    "cherry": Known(_up_to(3), "v", "abbrev? verbose"),
    "show-branch": Known(
        _revisions, "rag", "remotes all current topo-order date-order sparse more= list sha1-name no-name"
    ),
    "cat-file": Known(_objects, "ptse", "batch-check? batch-all-objects unordered buffer"),
    "count-objects": Known(nothing, "vH", "verbose human-readable"),
    "grep": Known(
        _grep,
        "niIwlLcEFGPhHopWqvazre:A:B:C:m:",
        "line-number ignore-case word-regexp files-with-matches files-without-match name-only count heading break "
        "no-color color? show-function function-context cached full-name extended-regexp basic-regexp "
        "fixed-strings perl-regexp invert-match only-matching column quiet text max-depth= max-count= threads= and or "
        "not all-match after-context= before-context= context= null recursive no-recursive",
        number=True,
    ),
    "check-ignore": Known(_revisions, "vnqz", "verbose non-matching no-index quiet"),
    "check-attr": Known(_revisions, "az", "all cached"),
    "reflog": Known(_reflog, _DIFF_SHORT + "n:iEFPg", _LOG_LONG, number=True, values=_NO_SIGNATURES),
    "config": Known(
        _config,
        "lz",
        "get get-all get-regexp list local global system worktree show-origin show-scope name-only null includes "
        "no-includes type= bool int bool-or-int path expiry-date default= all",
    ),
    "remote": Known(_remote, "vn", "verbose all push"),
    "submodule": Known(lambda taken, place: taken.operands in ([], ["status"]), "q", "quiet recursive cached"),
    "bisect": Known(_first_is("log")),
    "fsck": Known(
        nothing,
        "v",
        "full no-full strict dangling no-dangling unreachable connectivity-only name-objects root tags cache "
        "no-reflogs verbose progress no-progress",
    ),
    "range-diff": Known(
        _revisions,
        _DIFF_SHORT,
        _DIFF_LONG + "creation-factor= no-dual-color left-only right-only",
        values=_NO_SIGNATURES,
    ),
    "hash-object": Known(_hashed, "t:", "no-filters"),
    "stripspace": Known(nothing, "s", "strip-comments"),
    "patch-id": Known(nothing, "", "stable unstable verbatim"),
    "check-ref-format": Known(lambda taken, place: len(taken.operands) == 1, "", "branch normalize allow-onelevel"),
    "check-mailmap": Known(anything),
    "worktree": Known(_first_is("list"), "vz", "porcelain verbose"),
    "stash": Known(
        _stash,
        "pn:",
        "patch stat? name-only name-status oneline shortstat numstat format= date=",
        number=True,
        values=_NO_SIGNATURES,
    ),
    "var": Known(_up_to(1)),
    "notes": Known(lambda taken, place: taken.operands[:1] in ([], ["list"], ["show"]) and _revisions(taken, place)),
}

_GLOBAL = named(
    "--no-pager -P --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs "
    "--no-replace-objects"
)
_SETTING = re.compile(
    r"color\.\w+=\w+|core\.quotepath=\w+|log\.showsignature=false|diff\.(renames|noprefix|context|algorithm)=\w+|core\.pager=(cat)?|pager\.\w+=(false|cat)?|advice\.\w+=\w+",
    re.I,
)
_TOLD = (["--version"], ["version"], ["-v"], ["--help"], ["help"], ["help", "-a"], ["help", "-g"], ["--exec-path"])


def git(words: Sequence[str], place: Place) -> bool:
    if list(words) in _TOLD or (len(words) == 2 and words[0] in KNOWN and words[1] == "-h"):
        return True
    rest = list(words)
    while rest:
        if rest[0] in _GLOBAL:
            rest.pop(0)
        elif rest[0] == "-c" and len(rest) > 1 and _SETTING.fullmatch(rest[1]):
            del rest[:2]
        elif rest[0] == "-C" and len(rest) > 1:
            found = real(rest[1], place.cwd)
            if not rest[1] or found is None or not contains(place.root, found) or not is_folder(found):
                return False
            place = Place(found, place.root)
            del rest[:2]
        else:
            break
    known = KNOWN.get(rest[0]) if rest else None
    if rest[:1] == ["stash"] and rest[1:2] not in (["list"], ["show"]):
        return False  # an option in front of it may mean `stash push`
    return known is not None and known.accepts(rest[1:], place) and tame(place.cwd, place.root)


GIT: dict[str, Callable[[Sequence[str], Place], bool]] = {"git": git}
