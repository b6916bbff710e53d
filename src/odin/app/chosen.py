"""Which model a session begins or goes on with."""

from collections.abc import Sequence

from msgspec import Struct

from odin.app.models import ModelSelector
from odin.config import Config
from odin.core.errors import OdinError
from odin.core.event import Envelope, ModelChanged, SessionOpened

_RUN_SOURCES = ("flag", "ODIN_MODEL")
"""The sources of the configuration that are this run's own word."""


class InitialModel(Struct, frozen=True):
    """`chosen`: somebody named the model for this session. `warning`: the one it had cannot be had any more."""

    chosen: bool = False
    warning: str = ""


class _EarlierModel(Struct, frozen=True):
    model: str = ""
    chosen: bool = False


async def choose_initial_model(models: ModelSelector, config: Config, past: Sequence[Envelope]) -> InitialModel:
    """Connect to the model of this run: the one it names, else the one chosen in the session, else the configured one.

    Where nothing is configured either, a session goes on with the model it had, and a new one takes what is found.
    """
    if config.sources.get("model") in _RUN_SOURCES:
        await models.choose(config.model)
        return InitialModel(chosen=True)
    had = _find_earlier_model(past)
    warning = ""
    if had.model and (had.chosen or not config.model):
        try:
            await models.choose(had.model)
            return InitialModel(chosen=had.chosen)
        except OdinError as error:
            warning = f"This session was using {had.model}, which cannot be used now: {error.describe()}"
    now = await models.choose(config.model)
    return InitialModel(warning=f"{warning} It goes on with {now}." if had.chosen and warning else "")


def _find_earlier_model(past: Sequence[Envelope]) -> _EarlierModel:
    """The model of an earlier run. One that only stood in, for a failing one or for none, does not count."""
    for envelope in reversed(past):
        event = envelope.event
        if isinstance(event, ModelChanged) and not event.reason:
            return _EarlierModel(event.model, chosen=True)
        if isinstance(event, SessionOpened):
            stood_in = event.model.startswith("offline/") and not event.model_chosen
            return _EarlierModel("" if stood_in else event.model, event.model_chosen)
    return _EarlierModel()
