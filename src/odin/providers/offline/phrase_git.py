"""Questions about the history and the state of the work: status, changes, diff, log, author, branch."""

from odin.providers.offline.task import PlannerTask
from odin.providers.offline.template import PhraseMatch, PhraseTable, make_rule

_ASK_PHRASE = "[(show|give|print|display|list|see|get|view) [me]|what is|what are] [the|a|all|my|our] [current|latest]"
_SINCE_PHRASE = "[here|recently|so far|since [the] last commit|in git|in (this|the) (repo|repository|project)]"
_CHANGE_VERBS = "(change|changed|modify|modified|edit|edited|touch|touched|wrote|write|update|updated|committed)"
_GIT_FILE = "[the] [file] {path:file}"
_REPO = "(repo|repository|project)"
_MAX_COMMITS = 200


def _make_diff(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("git", variant="diff", path=said.get_path())


def _make_log(said: PhraseMatch) -> PlannerTask:
    path = said.get_path()
    count = said.parse_number("n") if said.get_raw("n") else 10
    whole = path in ("git", "repo", "project")
    return PlannerTask("git", variant="log", first=max(1, min(count, _MAX_COMMITS)), path="" if whole else path)


def _make_last_commit(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("git", variant="log", first=1, path=said.get_path())


def _make_who(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("git", variant="who", path=said.get_path())


def _make_typed_git(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("git", variant="typed", command=said.words.restore_quotes(said.clause))


def _make_show(said: PhraseMatch) -> PlannerTask | None:
    revision = said["revision"]
    return (
        PlannerTask("git", variant="show", term=revision)
        if revision.replace("~", "").replace("^", "").isalnum()
        else None
    )


match_git = PhraseTable(
    make_rule(PlannerTask("git", variant="status"), "git status"),
    make_rule(PlannerTask("git", variant="diff"), "git diff"),
    make_rule(PlannerTask("git", variant="branches"), "git (branch|branches)"),
    make_rule(PlannerTask("git", variant="changes"), "git changes"),
    make_rule(PlannerTask("git", variant="log", first=10), "git (log|history)"),
    make_rule(_make_typed_git, "git {command:text}"),
    make_rule(
        PlannerTask("git", variant="status"),
        f"{_ASK_PHRASE} [git|repo|repository|working tree|work tree] status [of (the|this) {_REPO}]",
        f"is (the|my) (working tree|work tree|working copy|tree|{_REPO}) (clean|dirty)",
        "(are there|do i have|is there|have i) [any] (uncommitted|unstaged|staged|untracked|pending|local) "
        "[changes?|files?|work|modifications?]",
    ),
    make_rule(
        PlannerTask("git", variant="changes"),
        f"(what|which files?) [has|have|did|was|were|are|is] [i|we|you|been] [just|recently] {_CHANGE_VERBS} {_SINCE_PHRASE}",
        f"{_ASK_PHRASE} [uncommitted|unstaged|local|recent|pending|git] (changes|modifications|(changed|modified) files)",
    ),
    make_rule(
        _make_diff,
        f"what [has|have] [i|we|you|been] {_CHANGE_VERBS} in {_GIT_FILE}",
        f"{_ASK_PHRASE} [uncommitted|unstaged|local|recent] changes (in|to|of) {_GIT_FILE}",
        f"{_ASK_PHRASE} [git] (diff|diffs|difference|differences) [(of|for|in|to) {_GIT_FILE} [file]]",
        "(diff|diffs) {path:file}",
    ),
    make_rule(
        PlannerTask("git", variant="count"),
        f"how many commits [are there|do we have|does (this|the) {_REPO} have] [in (this|the) {_REPO}]",
    ),
    make_rule(
        _make_last_commit,
        f"{_ASK_PHRASE} (last|latest|previous|newest|most recent) [git] commit [message] [(to|of|for|in|on) {_GIT_FILE}]",
    ),
    make_rule(
        _make_log,
        f"{_ASK_PHRASE} [last|latest|recent|previous|past|newest|most recent] [{{n:number}}] [git] commits [messages] "
        f"[(to|of|for|in|on|touching) {_GIT_FILE}]",
        f"{_ASK_PHRASE} [git|commit|change] (log|history) [(of|for) {_GIT_FILE}]",
    ),
    make_rule(_make_show, f"{_ASK_PHRASE} commit {{revision}}"),
    make_rule(
        PlannerTask("git", variant="show", term="HEAD"),
        "what (was|is|did) [there] in the (last|latest) commit [change|do]",
    ),
    make_rule(
        _make_who,
        f"who [was the] [last] {_CHANGE_VERBS} [to] {_GIT_FILE} [last|most recently|recently]",
        f"who (is|was) the [last] author of {_GIT_FILE}",
        f"when (was|did) {_GIT_FILE} [was] [last] {_CHANGE_VERBS} [last]",
    ),
    make_rule(
        PlannerTask("git", variant="branch"),
        "(what|which) [git] branch [(am i|are we|is this|is it|is checked out|is current) [on|in|at] [now]]",
        "[what is|show [me]|print|name] [the|my|our] [current|active] [git] branch [name]",
    ),
    make_rule(
        PlannerTask("git", variant="branches"),
        f"{_ASK_PHRASE} [git|local] branches",
        "(what|which) branches (are there|exist|do we have|do i have)",
    ),
)
