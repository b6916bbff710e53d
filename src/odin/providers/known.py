"""What is known of models: the table that comes with Odin, `models.json`, and a user's file like it, which wins.

The table holds what vendors published in November 2026, and only that. Where a vendor charges more for long prompts or
busy hours, it has the price of a short prompt in a busy hour. A row is read when it is asked for.
"""

from collections.abc import Iterator, Mapping
from io import FileIO
from os import PathLike, sep

import msgspec

from odin.providers.settings import ModelSettings

TableRows = Mapping[str, Mapping[str, msgspec.Raw]]
"""By provider and model."""

_TABLE_PATH = f"{__file__.rpartition(sep)[0]}{sep}models.json"
_ROWS_DECODER = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])


class ModelTable:
    """The rows of Odin's own table, and before them those of the user's file, whose `warning` says what is wrong."""

    def __init__(self, own: Mapping[str, Mapping[str, ModelSettings]] | None = None, warning: str = "") -> None:
        self._overrides = own or {}
        self._table: TableRows | None = None
        self.warning = warning

    @classmethod
    def load_with_overrides(cls, path: PathLike[str]) -> "ModelTable":
        """With the file at `path`, if there is one. A file that cannot be used is left out and told of."""
        try:
            written = _bytes_of(path)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            return cls(warning=f"{path} cannot be read ({error.strerror or error}), so it changes no model.")
        try:
            own = msgspec.json.decode(written, type=dict[str, dict[str, ModelSettings]])
            strange = _find_unknown_fields(_ROWS_DECODER.decode(written))
        except (msgspec.MsgspecError, UnicodeError) as error:
            return cls(warning=f"{path} is left out: {error}. It maps providers to models to what is known of them.")
        said = f"{path} says {', '.join(strange)}, which means nothing there." if strange else ""
        return cls(own, said)

    def find_builtin(self, provider: str, model: str) -> ModelSettings | None:
        row = self._load_rows().get(provider, {}).get(model)
        return None if row is None else msgspec.json.decode(row, type=ModelSettings)

    def find_override(self, provider: str, model: str) -> ModelSettings | None:
        return self._overrides.get(provider, {}).get(model)

    def list_models(self, provider: str) -> Iterator[str]:
        """The models of one provider, those of the table first."""
        yield from dict.fromkeys([*self._load_rows().get(provider, {}), *self._overrides.get(provider, {})])

    def list_refs(self) -> Iterator[str]:
        """Every `provider/model` there is."""
        for provider in dict.fromkeys([*self._load_rows(), *self._overrides]):
            yield from (f"{provider}/{model}" for model in self.list_models(provider))

    def _load_rows(self) -> TableRows:
        if self._table is None:
            self._table = _ROWS_DECODER.decode(_bytes_of(_TABLE_PATH))
        return self._table


def _bytes_of(path: str | PathLike[str]) -> bytes:
    with FileIO(path) as file:
        return file.readall()


def _find_unknown_fields(rows: TableRows) -> list[str]:
    """The words of a file that no row has: a price under a wrong name must not look like one that counts."""
    words = {word for models in rows.values() for row in models.values() for word in msgspec.json.decode(row)}
    return sorted(words - set(ModelSettings.__struct_fields__))
