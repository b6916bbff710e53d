"""The properties of known models: the rows of `models.json`, and those of the user's file of the same name, which win.

The table holds what vendors had published in November 2026. Where a vendor charges more for long prompts or busy hours,
it has the price of a short prompt in a busy hour. A price of 0 that is not configured means unknown, not free. Rows are
decoded on demand.
"""

from collections.abc import Iterator, Mapping
from io import FileIO
from os import PathLike, sep

import msgspec

from odin.providers.settings import ModelSettings

TableRows = Mapping[str, Mapping[str, msgspec.Raw]]
"""Rows by provider and model."""

_TABLE_PATH = f"{__file__.rpartition(sep)[0]}{sep}models.json"
_ROWS_DECODER = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])


class ModelTable:
    """Odin's table and the user's rows, which win; `warning` says what is wrong with the user's file."""

    def __init__(self, own: Mapping[str, Mapping[str, ModelSettings]] | None = None, warning: str = "") -> None:
        self._overrides = own or {}
        self._table: TableRows | None = None
        self.warning = warning

    @classmethod
    def load_with_overrides(cls, path: PathLike[str]) -> "ModelTable":
        """Load the table with the user's file at `path`, if it exists. An invalid file is skipped with a warning."""
        try:
            written = _bytes_of(path)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            return cls(warning=f"{path} is ignored: it cannot be read ({error.strerror or error}).")
        try:
            own = msgspec.json.decode(written, type=dict[str, dict[str, ModelSettings]])
            strange = _find_unknown_fields(_ROWS_DECODER.decode(written))
        except (msgspec.MsgspecError, UnicodeError) as error:
            return cls(warning=f"{path} is ignored: {error}. It must map providers to models and their properties.")
        warning = f"{path}: unknown entries are ignored: {', '.join(strange)}." if strange else ""
        return cls(own, warning)

    def find_builtin(self, provider: str, model: str) -> ModelSettings | None:
        row = self._load_rows().get(provider, {}).get(model)
        return None if row is None else msgspec.json.decode(row, type=ModelSettings)

    def find_override(self, provider: str, model: str) -> ModelSettings | None:
        return self._overrides.get(provider, {}).get(model)

    def without_builtin(self) -> "ModelTable":
        """Return the table with the user's rows only."""
        table = ModelTable(self._overrides)
        table._table = {}
        return table

    def list_models(self, provider: str) -> Iterator[str]:
        """Yield the models of one provider, Odin's table first."""
        yield from dict.fromkeys([*self._load_rows().get(provider, {}), *self._overrides.get(provider, {})])

    def _load_rows(self) -> TableRows:
        if self._table is None:
            self._table = _ROWS_DECODER.decode(_bytes_of(_TABLE_PATH))
        return self._table


def _bytes_of(path: str | PathLike[str]) -> bytes:
    with FileIO(path) as file:
        return file.readall()


def _find_unknown_fields(rows: TableRows) -> list[str]:
    """Return field names that no row has, so that a misspelled price is reported."""
    words = {word for models in rows.values() for row in models.values() for word in msgspec.json.decode(row)}
    return sorted(words - set(ModelSettings.__struct_fields__))
