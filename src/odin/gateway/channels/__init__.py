"""The channels that Odin brings, by type. Each is imported when the settings name it."""

from odin.gateway.channel import Channel, ChannelFactory, ChannelSetup


def _make_telegram(setup: ChannelSetup) -> Channel:
    from odin.gateway.channels.telegram import TelegramChannel

    return TelegramChannel(setup)


def _make_matrix(setup: ChannelSetup) -> Channel:
    from odin.gateway.channels.matrix import MatrixChannel

    return MatrixChannel(setup)


BUILT_IN: dict[str, ChannelFactory] = {"matrix": _make_matrix, "telegram": _make_telegram}
