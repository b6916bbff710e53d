"""Questions about the history and the state of the work: status, changes, diff, log, author, branch."""

from odin.providers.offline.task import Task
from odin.providers.offline.template import Said, Table, rule

_ASK = "[(show|give|print|display|list|see|get|view) [me]|what is|what are] [the|a|all|my|our] [current|latest]"
_SINCE = "[here|recently|so far|since [the] last commit|in git|in (this|the) (repo|repository|project)]"
_DEED = "(change|changed|modify|modified|edit|edited|touch|touched|wrote|write|update|updated|committed)"
_FILE = "[the] [file] {path:file}"
_REPO = "(repo|repository|project)"
_MOST = 200


def _diff(said: Said) -> Task:
    return Task("git", how="diff", path=said.file())


def _log(said: Said) -> Task:
    path = said.file()
    count = said.number("n") if said.raw("n") else 10
    whole = path in ("git", "repo", "project")
    return Task("git", how="log", first=max(1, min(count, _MOST)), path="" if whole else path)


def _last(said: Said) -> Task:
    return Task("git", how="log", first=1, path=said.file())


def _who(said: Said) -> Task:
    return Task("git", how="who", path=said.file())


def _typed(said: Said) -> Task:
    return Task("git", how="typed", command=said.words.typed(said.clause))


def _show(said: Said) -> Task | None:
    revision = said["revision"]
    return Task("git", how="show", term=revision) if revision.replace("~", "").replace("^", "").isalnum() else None


git = Table(
    rule(Task("git", how="status"), "git status"),
    rule(Task("git", how="diff"), "git diff"),
    rule(Task("git", how="branches"), "git (branch|branches)"),
    rule(Task("git", how="changes"), "git changes"),
    rule(Task("git", how="log", first=10), "git (log|history)"),
    rule(_typed, "git {command:text}"),
    rule(
        Task("git", how="status"),
        f"{_ASK} [git|repo|repository|working tree|work tree] status [of (the|this) {_REPO}]",
        f"is (the|my) (working tree|work tree|working copy|tree|{_REPO}) (clean|dirty)",
        "(are there|do i have|is there|have i) [any] (uncommitted|unstaged|staged|untracked|pending|local) "
        "[changes?|files?|work|modifications?]",
    ),
    rule(
        Task("git", how="changes"),
        f"(what|which files?) [has|have|did|was|were|are|is] [i|we|you|been] [just|recently] {_DEED} {_SINCE}",
        f"{_ASK} [uncommitted|unstaged|local|recent|pending|git] (changes|modifications|(changed|modified) files)",
    ),
    rule(
        _diff,
        f"what [has|have] [i|we|you|been] {_DEED} in {_FILE}",
        f"{_ASK} [uncommitted|unstaged|local|recent] changes (in|to|of) {_FILE}",
        f"{_ASK} [git] (diff|diffs|difference|differences) [(of|for|in|to) {_FILE} [file]]",
        "(diff|diffs) {path:file}",
    ),
    rule(
        Task("git", how="count"),
        f"how many commits [are there|do we have|does (this|the) {_REPO} have] [in (this|the) {_REPO}]",
    ),
    rule(
        _last,
        f"{_ASK} (last|latest|previous|newest|most recent) [git] commit [message] [(to|of|for|in|on) {_FILE}]",
    ),
    rule(
        _log,
        f"{_ASK} [last|latest|recent|previous|past|newest|most recent] [{{n:number}}] [git] commits [messages] "
        f"[(to|of|for|in|on|touching) {_FILE}]",
        f"{_ASK} [git|commit|change] (log|history) [(of|for) {_FILE}]",
    ),
    rule(_show, f"{_ASK} commit {{revision}}"),
    rule(Task("git", how="show", term="HEAD"), "what (was|is|did) [there] in the (last|latest) commit [change|do]"),
    rule(
        _who,
        f"who [was the] [last] {_DEED} [to] {_FILE} [last|most recently|recently]",
        f"who (is|was) the [last] author of {_FILE}",
        f"when (was|did) {_FILE} [was] [last] {_DEED} [last]",
    ),
    rule(
        Task("git", how="branch"),
        "(what|which) [git] branch [(am i|are we|is this|is it|is checked out|is current) [on|in|at] [now]]",
        "[what is|show [me]|print|name] [the|my|our] [current|active] [git] branch [name]",
    ),
    rule(
        Task("git", how="branches"),
        f"{_ASK} [git|local] branches",
        "(what|which) branches (are there|exist|do we have|do i have)",
    ),
)
