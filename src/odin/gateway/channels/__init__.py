"""The channels that Odin brings, by type. Each is imported when the settings name it."""

from importlib.util import find_spec

from odin.core.errors import ConfigError
from odin.gateway.channel import Channel, ChannelFactory, ChannelSetup

_INSTALL_SLACK = "Slack needs a package: pip install 'odin-code[slack]'"


def explain_missing(kind: str) -> str:
    """Return what to install for channels of a type, or ""."""
    if kind == "matrix" and find_spec("vodozemac") is None:
        from odin.gateway.channels.matrix import INSTALL

        return INSTALL
    return _INSTALL_SLACK if kind == "slack" and find_spec("websockets") is None else ""


def _make_telegram(setup: ChannelSetup) -> Channel:
    from odin.gateway.channels.telegram import TelegramChannel

    return TelegramChannel(setup)


def _make_matrix(setup: ChannelSetup) -> Channel:
    from odin.gateway.channels.matrix import MatrixChannel

    return MatrixChannel(setup)


def _make_slack(setup: ChannelSetup) -> Channel:
    try:
        from odin.gateway.channels.slack import SlackChannel
    except ModuleNotFoundError as error:
        raise ConfigError(_INSTALL_SLACK) from error

    return SlackChannel(setup)


BUILT_IN: dict[str, ChannelFactory] = {
    "matrix": _make_matrix,
    "slack": _make_slack,
    "telegram": _make_telegram,
}
