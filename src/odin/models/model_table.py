"""The properties of known models: the rows of `models.json`, of the refreshed catalog, and of the user's own file.

The table holds what vendors had published in November 2026. Where a vendor charges more in busy hours, it has that
price; a higher price of long prompts is in `price_steps`. A price of 0 that is not configured means unknown, not free.
Its rows are decoded on demand. The catalog is what `odin models refresh` has stored in the cache folder; its fields win
over the table, unless it is older than the table. The user's rows win over both.
"""

from collections.abc import Iterator, Mapping
from io import FileIO
from os import PathLike, fspath, sep, stat
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from odin.core.provider import ToolStyleSetting
from odin.providers.settings import ModelSettings

TableRows = Mapping[str, Mapping[str, msgspec.Raw]]
"""Rows by provider and model."""

_TABLE_PATH = f"{__file__.rpartition(sep)[0]}{sep}models.json"
_ROWS_DECODER = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])

TABLE_TIME = 1_793_491_200.0
"""When Odin's own table was written: 2026-11-01."""

MAX_CATALOG_BYTES = 16 * 1024 * 1024

_Context = Annotated[int, Meta(ge=1_000, le=100_000_000)]
_Output = Annotated[int, Meta(ge=1, le=100_000_000)]
_Price = Annotated[float, Meta(ge=0, le=100_000)]


class CatalogRow(Struct, frozen=True, omit_defaults=True):
    """What a catalog may say about a model, within plausible limits. Only the user's own files can say more."""

    context: _Context | None = None
    max_output: _Output | None = None
    price_input: _Price | None = None
    price_output: _Price | None = None
    price_cache_read: _Price | None = None
    price_cache_write: _Price | None = None
    thinking: bool | None = None
    images: bool | None = None
    tools: ToolStyleSetting = "native"


class CatalogCopy(Struct, frozen=True):
    """The catalog in the cache folder: where it comes from, and when it was fetched."""

    time: float = 0.0
    source: str = ""
    models: dict[str, dict[str, CatalogRow]] = field(default_factory=dict[str, dict[str, CatalogRow]])


class ModelTable:
    """All rows; `warning` says what is wrong with the user's file or the catalog. `catalog` is the file of the latter.

    An invalid file is skipped with a warning.
    """

    def __init__(
        self,
        own: Mapping[str, Mapping[str, ModelSettings]] | None = None,
        warning: str = "",
        catalog: PathLike[str] | None = None,
    ) -> None:
        self._overrides = own or {}
        self._warning = warning
        self._table: TableRows | None = None
        self._catalog_path = catalog
        self._catalog: CatalogCopy | None = None
        self._catalog_warning = ""

    @classmethod
    def load_with_overrides(cls, path: PathLike[str], catalog: PathLike[str] | None = None) -> "ModelTable":
        """Load the table with the user's file at `path` and the catalog, if they exist."""
        try:
            written = _read_bytes(path)
        except FileNotFoundError:
            return cls(catalog=catalog)
        except OSError as error:
            return cls(warning=f"{path} is ignored: it cannot be read ({error.strerror or error}).", catalog=catalog)
        try:
            own = msgspec.json.decode(written, type=dict[str, dict[str, ModelSettings]])
            # Field names that no row has, so that a misspelled price is reported.
            rows = _ROWS_DECODER.decode(written)
            words = {word for models in rows.values() for row in models.values() for word in msgspec.json.decode(row)}
            strange = sorted(words - set(ModelSettings.__struct_fields__))
        except (msgspec.MsgspecError, UnicodeError) as error:
            problem = f"{path} is ignored: {error}. It must map providers to models and their properties."
            return cls(warning=problem, catalog=catalog)
        warning = f"{path}: unknown entries are ignored: {', '.join(strange)}." if strange else ""
        return cls(own, warning, catalog)

    @property
    def warning(self) -> str:
        return " ".join(filter(None, (self._warning, self._catalog_warning)))

    @property
    def catalog(self) -> CatalogCopy:
        """The refreshed catalog; an empty one if there is none that can be used."""
        if self._catalog is None:
            self._catalog = self._load_catalog()
        return self._catalog

    def find_builtin(self, provider: str, model: str) -> ModelSettings | None:
        """Return the row of a model: the catalog's fields, then those of Odin's table."""
        raw = self._load_rows().get(provider, {}).get(model)
        row = None if raw is None else msgspec.json.decode(raw, type=ModelSettings)
        newer = self.catalog.models.get(provider, {}).get(model)
        if newer is None:
            return row
        known = {name: value for name, value in msgspec.structs.asdict(newer).items() if value is not None}
        return msgspec.structs.replace(row or ModelSettings(), **known)

    def find_override(self, provider: str, model: str) -> ModelSettings | None:
        return self._overrides.get(provider, {}).get(model)

    def without_builtin(self) -> "ModelTable":
        """Return the table with the user's rows only."""
        table = ModelTable(self._overrides)
        table._table = {}
        return table

    def list_models(self, provider: str) -> Iterator[str]:
        """Yield the models of one provider: those of the catalog, which has the newest first, then the others."""
        yield from dict.fromkeys(
            [
                *self.catalog.models.get(provider, {}),
                *self._load_rows().get(provider, {}),
                *self._overrides.get(provider, {}),
            ]
        )

    def _load_rows(self) -> TableRows:
        if self._table is None:
            self._table = _ROWS_DECODER.decode(_read_bytes(_TABLE_PATH))
        return self._table

    def _load_catalog(self) -> CatalogCopy:
        """Return the catalog in the cache folder. A damaged one is reported; one older than the table is not used."""
        if self._catalog_path is None:
            return CatalogCopy()
        try:
            found = msgspec.json.decode(_read_bytes(self._catalog_path, MAX_CATALOG_BYTES), type=CatalogCopy)
        except FileNotFoundError:
            return CatalogCopy()
        except (OSError, UnicodeError, msgspec.MsgspecError, RecursionError) as error:
            problem = (error.strerror if isinstance(error, OSError) else "") or error
            self._catalog_warning = (
                f"The model catalog {self._catalog_path} is ignored: {problem}. Run `odin models refresh`."
            )
            return CatalogCopy()
        return found if found.time >= TABLE_TIME else CatalogCopy()


class ModelTables:
    """The model tables of a process, by the user's file and the catalog. A table is loaded again if one has changed."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], tuple[list[tuple[int, ...]], ModelTable]] = {}

    def load(self, path: PathLike[str], catalog: PathLike[str]) -> ModelTable:
        key, marks = (fspath(path), fspath(catalog)), [_identify_version(path), _identify_version(catalog)]
        if key not in self._tables or self._tables[key][0] != marks:
            self._tables[key] = marks, ModelTable.load_with_overrides(path, catalog)
        return self._tables[key][1]


def _identify_version(path: PathLike[str]) -> tuple[int, ...]:
    """Return what differs between two versions of a file; nothing if it does not exist."""
    try:
        found = stat(path)  # noqa: PTH116
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read_bytes(path: str | PathLike[str], limit: int = -1) -> bytes:
    with FileIO(path) as file:
        return file.readall() if limit < 0 else file.read(limit)
