"""Reading for a purpose without a model: the passages that match a question, and the gist of what was collected."""

from odin.core.passages import join_passages, passages_of, rank_passages, select_fitting, words_of
from odin.core.reading import CollectedContext, PageQuestion

ANSWER_CHARS = 3000
GIST_CHARS = 6000


def answer_from_page(question: PageQuestion, limit: int = ANSWER_CHARS) -> str:
    """The passages of a page that match the question best, in their order, each under its heading."""
    passages = passages_of(question.page)
    chosen = select_fitting(passages, rank_passages(passages, question.prompt), limit)
    if chosen:
        return f"(No model answered: these passages match the question best.)\n\n{join_passages(passages, chosen)}"
    start = question.page[: limit // 2].rstrip()
    return f"(No model answered: no passage matches the question, so this is the beginning of the page.)\n\n{start}"


def gist_of(gathered: CollectedContext, limit: int = GIST_CHARS) -> str:
    """Of every item its title and the lines that say most for the focus, else its first ones, in equal shares."""
    share = max(160, limit // max(1, len(gathered.items)))
    wanted = words_of(gathered.focus)
    told = [f"- {title}\n{_pick_lines(body, wanted, share - len(title))}" for title, body in gathered.items]
    return "\n".join(["(No model summarised this: the lines below are extracts.)", *told])


def _pick_lines(body: str, wanted: set[str], room: int) -> str:
    lines = [line.rstrip() for line in body.splitlines() if line.strip()]
    matching = {at for at, line in enumerate(lines) if wanted & words_of(line)}
    order = [*sorted(matching), *(at for at in range(len(lines)) if at not in matching)]
    chosen: list[int] = []
    for at in order:
        room -= min(len(lines[at]), 200) + 3
        if room < 0 and chosen:
            break
        chosen.append(at)
    return "\n".join(f"  {lines[at][:200]}" for at in sorted(chosen))
