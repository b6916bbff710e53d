"""The list above the composer and what is taken from it: files, commands, and earlier prompts."""

from collections.abc import Sequence

from odin.ui.completing import CompletionItem
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.composer.history import PromptHistory
from odin.ui.tui.composer.paste_area import PasteArea
from odin.ui.tui.composer.popup import Popup
from odin.ui.tui.composer.suggesting import ComposerCompleter
from odin.ui.tui.keys import KeyTable

_MAX_MATCHES = 50


class ListArea(PasteArea):
    """While an earlier prompt is being found, the text is what is sought, and the draft is laid aside."""

    def __init__(self, keys: KeyTable, popup: Popup, *, id: str | None = None) -> None:
        self.prompt_history = PromptHistory()
        self.popup = popup
        self.completer = ComposerCompleter(self._offer_items)
        self.searching = False
        self._history_matches: Sequence[PromptDraft] = ()
        self._saved_draft = PromptDraft()
        self._load_count = 0
        super().__init__(keys, id=id)

    def show_draft(self, draft: PromptDraft) -> None:
        """This draft in the place of what is there. Nothing is offered for what nobody has typed."""
        self._load_count += 1
        self.completer.close()
        self.load(draft)
        self.update_border()

    def update_border(self) -> None:
        """The text is another one; for those who say something about it."""

    def send(self) -> None:
        """Send what is written, in the usual way."""

    def handle_pasted(self) -> None:
        self.completer.close()
        self.update_border()
        if self.searching:
            self._find_in_history()

    def handle_typed(self) -> None:
        """The text is another one, because of a key."""
        self.update_border()
        if self.searching:
            self._find_in_history()
        else:
            row, column = self.cursor_location
            self.completer.update(self.document[row], column, first=row == 0)

    def _offer_items(self, choices: Sequence[CompletionItem], *, again: bool = False) -> None:
        if choices and self.is_mounted:
            self.popup.offer(choices, self.region, again=again)
        else:
            self.popup.close()

    # --- moving and taking ---

    def action_choose_next(self) -> None:
        self.popup.move(1)

    def action_choose_previous(self) -> None:
        self.popup.move(-1)

    def action_close_list(self) -> None:
        if self.searching:
            self.end_search()
        else:
            self.popup.close()

    def action_choose(self) -> None:
        """Take what is chosen in the list into the text."""
        if self.searching:
            self._take_match()
        elif (choice := self.popup.selected) is not None:
            self._insert_item(choice)

    def action_choose_and_send(self) -> None:
        """The same; what is a whole command by that, or was one before, is sent."""
        choice = self.popup.selected
        if self.searching or choice is None:
            self.action_choose()
        elif self._is_complete(choice):
            self.completer.close()
            self.send()
        else:
            self._insert_item(choice)
            if choice.is_runnable:
                self.send()

    def _is_complete(self, choice: CompletionItem) -> bool:
        """Whether there is nothing to complete: the word is one already, or an argument that may be left out."""
        want = self.completer.target
        if want is None or self.completer.is_complete():
            return True
        return want.letters == choice.label or (want.kind == "argument" and not want.letters)

    def _insert_item(self, choice: CompletionItem) -> None:
        want = self.completer.target
        if want is None:
            return
        row = self.cursor_location[0]
        self.replace(choice.insert, (row, want.start), (row, want.end))
        self.move_cursor((row, want.start + len(choice.insert)))
        self.completer.close()

    def choose_item(self, number: int) -> None:
        """Somebody clicked on it."""
        self.popup.at = number
        self.action_choose()
        self.handle_typed()
        self.focus()

    # --- finding an earlier prompt ---

    def action_search_history(self) -> None:
        if self.searching:
            self.popup.move(1)
            return
        self._saved_draft = self.draft
        self.searching, self.can_fold = True, False
        self.show_draft(PromptDraft())
        self._find_in_history()

    def end_search(self) -> None:
        """What was laid aside is here again."""
        self.searching, self.can_fold = False, True
        self.show_draft(self._saved_draft)

    def _find_in_history(self) -> None:
        self._history_matches = self.prompt_history.search(self.text, _MAX_MATCHES)
        self._offer_items([CompletionItem(" ".join(draft.text[:300].split()), "") for draft in self._history_matches])

    def _take_match(self) -> None:
        at = self.popup.at
        if self.popup.open and at < len(self._history_matches):
            found = self._history_matches[at]
            self.prompt_history.add(self._saved_draft)
            self._saved_draft = found
        self.end_search()
