"""The list above the composer and what is taken from it: files, commands, and earlier prompts."""

from collections.abc import Sequence

from odin.ui.completing import Choice
from odin.ui.tui.composer.draft import Draft
from odin.ui.tui.composer.history import History
from odin.ui.tui.composer.paste_area import PasteArea
from odin.ui.tui.composer.popup import Popup
from odin.ui.tui.composer.suggesting import Suggesting
from odin.ui.tui.keys import KeyTable

_FOUND = 50


class ListArea(PasteArea):
    """While an earlier prompt is being found, the text is what is sought, and the draft is laid aside."""

    def __init__(self, keys: KeyTable, popup: Popup, *, id: str | None = None) -> None:
        self.past = History()
        self.popup = popup
        self.suggesting = Suggesting(self._offer)
        self.searching = False
        self._found: Sequence[Draft] = ()
        self._aside = Draft()
        self._shown = 0
        super().__init__(keys, id=id)

    def show(self, draft: Draft) -> None:
        """This draft in the place of what is there. Nothing is offered for what nobody has typed."""
        self._shown += 1
        self.suggesting.close()
        self.load(draft)
        self.changed()

    def changed(self) -> None:
        """The text is another one; for those who say something about it."""

    def send(self) -> None:
        """Send what is written, in the usual way."""

    def pasted(self) -> None:
        self.suggesting.close()
        self.changed()
        if self.searching:
            self._find()

    def typed(self) -> None:
        """The text is another one, because of a key."""
        self.changed()
        if self.searching:
            self._find()
        else:
            row, column = self.cursor_location
            self.suggesting.update(self.document[row], column, first=row == 0)

    def _offer(self, choices: Sequence[Choice], *, again: bool = False) -> None:
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
            self._take_found()
        elif (choice := self.popup.chosen) is not None:
            self._take(choice)

    def action_choose_and_send(self) -> None:
        """The same; what is a whole command by that, or was one before, is sent."""
        choice = self.popup.chosen
        if self.searching or choice is None:
            self.action_choose()
        elif self._whole(choice):
            self.suggesting.close()
            self.send()
        else:
            self._take(choice)
            if choice.runs:
                self.send()

    def _whole(self, choice: Choice) -> bool:
        """Whether there is nothing to complete: the word is one already, or an argument that may be left out."""
        want = self.suggesting.wanted
        if want is None or self.suggesting.complete():
            return True
        return want.letters == choice.shown or (want.kind == "argument" and not want.letters)

    def _take(self, choice: Choice) -> None:
        want = self.suggesting.wanted
        if want is None:
            return
        row = self.cursor_location[0]
        self.replace(choice.insert, (row, want.start), (row, want.end))
        self.move_cursor((row, want.start + len(choice.insert)))
        self.suggesting.close()

    def choose(self, number: int) -> None:
        """Somebody clicked on it."""
        self.popup.at = number
        self.action_choose()
        self.typed()
        self.focus()

    # --- finding an earlier prompt ---

    def action_search_history(self) -> None:
        if self.searching:
            self.popup.move(1)
            return
        self._aside = self.draft
        self.searching, self.may_fold = True, False
        self.show(Draft())
        self._find()

    def end_search(self) -> None:
        """What was laid aside is here again."""
        self.searching, self.may_fold = False, True
        self.show(self._aside)

    def _find(self) -> None:
        self._found = self.past.search(self.text, _FOUND)
        self._offer([Choice(" ".join(draft.text[:300].split()), "") for draft in self._found])

    def _take_found(self) -> None:
        at = self.popup.at
        if self.popup.open and at < len(self._found):
            found = self._found[at]
            self.past.add(self._aside)
            self._aside = found
        self.end_search()
