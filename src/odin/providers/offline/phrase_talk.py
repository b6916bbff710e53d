"""Greetings, help, the todo list, and follow-ups that make sense only with what came before."""

import re

from odin.providers.offline.task import Task
from odin.providers.offline.template import Said, Table, rule
from odin.providers.offline.vocabulary import looks_like_path

_LIST = "[the|my] [current] (todos|todo list)"


def _todo_shown(said: Said) -> Task | None:
    """ "show TODOs" in capitals are the markers in the code; the list is written small."""
    return None if re.search(r"\bTODOs?\b", said.clause) else Task("todo", how="show")


def _todo_added(said: Said) -> Task:
    return Task("todo", how="add", new=said["what"])


def _todo_done(said: Said) -> Task:
    return Task("todo", how="done", term=said["which"].lstrip("#"))


def _there(said: Said) -> Task:
    return Task("again", path=said["what"])


def _that_one(said: Said) -> Task:
    """A path is another place for the last task, any other word another term for it."""
    what = said["what"]
    if what.lower() == "everywhere":
        return Task("again", everywhere=True)
    return Task("again", path=what) if looks_like_path(what) else Task("again", term=what)


def _bare_path(said: Said) -> Task | None:
    return Task("again", path=said["what"]) if looks_like_path(said["what"]) else None


talk = Table(
    rule(
        Task("help", how="hello"),
        "(hi|hello|hey|yo|hiya|greetings) [there|odin]",
        "good (morning|evening|afternoon|day)",
    ),
    rule(Task("help", how="thanks"), "(thanks|thank you|thx|cheers|great|nice|perfect|ok|okay|cool|good job)"),
    rule(
        Task("help"),
        "[show] (help|usage|commands) [me]",
        "what (can|do) (you|i) (do|ask|understand)",
        "what are you able to do",
        "(who|what) are you",
        "how (do you|does this) work",
        "are you [a|an] (ai|llm|model|bot|human|person|language model) {rest:text}",
        "are you [a|an|chatgpt|claude|gpt] [ai|llm|model|bot|human|person|language model]",
        "?",
    ),
    rule(
        Task("init"),
        "(/init|init|initialize|initialise) [odin [in|for]] [the|this|my] [project|repo|repository|folder]",
        "(create|write|make|generate|renew|refresh|update) [me] [a|an|the] [new] odin.md [file] "
        "[for (this|the|my) (project|repo|repository)]",
    ),
    rule(Task("again", how="run"), "(rerun|re-run) [it|that]"),
    rule(
        Task("again"),
        "(again|once more|one more time|retry|try|repeat) [it|that]",
        "do (it|that)",
        "[do] [the] same [thing]",
    ),
    rule(Task("more"), "[show [me]] (more|the rest)", "(continue|go on|read on|keep reading|next page|next)"),
    rule(
        Task("undo"),
        "(undo|revert|roll back|rollback|take back) [it|that|this|everything]",
        "(undo|revert|roll back|rollback|take back) [the|my|your|that|this] [last|latest|recent] "
        "(changes?|edits?|replacements?|one)",
    ),
    rule(
        _todo_added,
        "(add|create|make|put|new) [a|an|another|the] [new] (todo|todo:) [item|item:] [to|for|:] {what:text}",
        "todo: {what:text}",
        "(add|put) {what:text} (to|on|onto) [the|my] (todos|todo list)",
    ),
    rule(_todo_shown, f"[show|list|see|print|what are|what is on] [me] {_LIST}"),
    rule(
        _todo_done,
        "(mark|check|tick|set|finish|complete) [off] [the] todo [number] {which} [as] [done|completed|finished|off]",
    ),
    rule(
        Task("again", everywhere=True),
        "everywhere",
        "(do|try|repeat) (it|that|this|[the] same [thing]) everywhere",
        "[the] same [thing] everywhere",
    ),
    rule(
        _there,
        "(in|within|under|inside) [the] {what} [folder|directory|file|dir]",
        "(do|try|repeat) (it|that|this|[the] same [thing]) (in|for|on|to|with|within|under|inside) [the] {what} "
        "[folder|directory|file]",
        "[the] same [thing] (in|for|on|to|with|within|under|inside) [the] {what} [folder|directory|file]",
        "(what|how) about in [the] {what} [folder|directory|file]",
    ),
    rule(_that_one, "(what|how) about [the] {what}", "for {what}"),
    rule(_bare_path, "{what} [file|folder]"),
)
