"""The channels that Odin brings, by type. Each is imported when the settings name it."""

from odin.core.errors import ConfigError
from odin.gateway.channel import Channel, ChannelFactory, ChannelSetup


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
        raise ConfigError(f"Slack needs the package {error.name}.", "pip install 'odin-code[slack]'") from error

    return SlackChannel(setup)


BUILT_IN: dict[str, ChannelFactory] = {
    "matrix": _make_matrix,
    "slack": _make_slack,
    "telegram": _make_telegram,
}
