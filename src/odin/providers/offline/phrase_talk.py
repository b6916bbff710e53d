"""Greetings, help, the todo list, and follow-ups that make sense only with what came before."""

import re

from odin.providers.offline.task import PlannerTask
from odin.providers.offline.template import PhraseMatch, PhraseTable, make_rule
from odin.providers.offline.vocabulary import is_path_like

_TODO_LIST = "[the|my] [current] (todos|todo list)"


def _make_todo_list(said: PhraseMatch) -> PlannerTask | None:
    """ "show TODOs" in capitals are the markers in the code; the list is written small."""
    return None if re.search(r"\bTODOs?\b", said.clause) else PlannerTask("todo", variant="show")


def _make_todo_item(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("todo", variant="add", new=said["what"])


def _make_todo_done(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("todo", variant="done", term=said["which"].lstrip("#"))


def _repeat_there(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("again", path=said["what"])


def _repeat_about(said: PhraseMatch) -> PlannerTask:
    """A path is another place for the last task, any other word another term for it."""
    what = said["what"]
    if what.lower() == "everywhere":
        return PlannerTask("again", everywhere=True)
    return PlannerTask("again", path=what) if is_path_like(what) else PlannerTask("again", term=what)


def _repeat_on_path(said: PhraseMatch) -> PlannerTask | None:
    return PlannerTask("again", path=said["what"]) if is_path_like(said["what"]) else None


match_talk = PhraseTable(
    make_rule(
        PlannerTask("help", variant="hello"),
        "(hi|hello|hey|yo|hiya|greetings) [there|odin]",
        "good (morning|evening|afternoon|day)",
    ),
    make_rule(
        PlannerTask("help", variant="thanks"), "(thanks|thank you|thx|cheers|great|nice|perfect|ok|okay|cool|good job)"
    ),
    make_rule(
        PlannerTask("help"),
        "[show] (help|usage|commands) [me]",
        "what (can|do) (you|i) (do|ask|understand)",
        "what are you able to do",
        "(who|what) are you",
        "how (do you|does this) work",
        "are you [a|an] (ai|llm|model|bot|human|person|language model) {rest:text}",
        "are you [a|an|chatgpt|claude|gpt] [ai|llm|model|bot|human|person|language model]",
        "?",
    ),
    make_rule(
        PlannerTask("init"),
        "(/init|init|initialize|initialise) [odin [in|for]] [the|this|my] [project|repo|repository|folder]",
        "(create|write|make|generate|renew|refresh|update) [me] [a|an|the] [new] odin.md [file] "
        "[for (this|the|my) (project|repo|repository)]",
    ),
    make_rule(PlannerTask("again", variant="run"), "(rerun|re-run) [it|that]"),
    make_rule(
        PlannerTask("again"),
        "(again|once more|one more time|retry|try|repeat) [it|that]",
        "do (it|that)",
        "[do] [the] same [thing]",
    ),
    make_rule(
        PlannerTask("more"), "[show [me]] (more|the rest)", "(continue|go on|read on|keep reading|next page|next)"
    ),
    make_rule(
        PlannerTask("undo"),
        "(undo|revert|roll back|rollback|take back) [it|that|this|everything]",
        "(undo|revert|roll back|rollback|take back) [the|my|your|that|this] [last|latest|recent] "
        "(changes?|edits?|replacements?|one)",
    ),
    make_rule(
        _make_todo_item,
        "(add|create|make|put|new) [a|an|another|the] [new] (todo|todo:) [item|item:] [to|for|:] {what:text}",
        "todo: {what:text}",
        "(add|put) {what:text} (to|on|onto) [the|my] (todos|todo list)",
    ),
    make_rule(_make_todo_list, f"[show|list|see|print|what are|what is on] [me] {_TODO_LIST}"),
    make_rule(
        _make_todo_done,
        "(mark|check|tick|set|finish|complete) [off] [the] todo [number] {which} [as] [done|completed|finished|off]",
    ),
    make_rule(
        PlannerTask("again", everywhere=True),
        "everywhere",
        "(do|try|repeat) (it|that|this|[the] same [thing]) everywhere",
        "[the] same [thing] everywhere",
    ),
    make_rule(
        _repeat_there,
        "(in|within|under|inside) [the] {what} [folder|directory|file|dir]",
        "(do|try|repeat) (it|that|this|[the] same [thing]) (in|for|on|to|with|within|under|inside) [the] {what} "
        "[folder|directory|file]",
        "[the] same [thing] (in|for|on|to|with|within|under|inside) [the] {what} [folder|directory|file]",
        "(what|how) about in [the] {what} [folder|directory|file]",
    ),
    make_rule(_repeat_about, "(what|how) about [the] {what}", "for {what}"),
    make_rule(_repeat_on_path, "{what} [file|folder]"),
)
