"""Channels to people: Slack, mail, webhooks, pagers and whatever else Apprise can reach (the extra `varve[alerts]`).

The URL of a channel holds its secrets: it is never shown and never logged. Channels are known by their names.

Not here: what is said (varve/planning/operations/digest.py), and what was said before
(varve/catalog/history/alerts/messages.py).
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.services.distribution import install_command

if TYPE_CHECKING:
    from pydantic import SecretStr

    from varve.planning.operations.digest import Digest
    from varve.services.settings import Settings

_STATUS = re.compile(r"error[=: ]+(\d{3})\b")


@dataclass(frozen=True)
class Channel:
    """A channel of the settings."""

    name: str
    url: SecretStr

    def send(self, message: Digest) -> str:
        """Send a message; returns "" where the channel has taken it, else why not. Raises nothing of the channel's."""
        try:
            import apprise
        except ImportError:
            return f"Apprise is not installed here: {install_command('alerts')}"
        remarks = _Remarks()
        # Apprise's remarks may repeat parts of the URL: only the status is taken out of them.
        logger = logging.getLogger("apprise")
        propagates, level = logger.propagate, logger.level
        logger.addHandler(remarks)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        try:
            sender = apprise.Apprise()
            if not sender.add(self.url.get_secret_value()):
                return "its URL is none that Apprise knows: docs/alerts.md says how it is written"
            is_taken = sender.notify(title=message.title, body=message.body, body_format=apprise.NotifyFormat.TEXT)
        except Exception as error:  # noqa: BLE001 - a channel of somebody else must not end a tick, and may say its URL
            return f"it failed with {type(error).__name__}"
        finally:
            logger.removeHandler(remarks)
            logger.propagate = propagates
            logger.setLevel(level)
        if is_taken:
            return ""
        return f"it answered {remarks.status}" if remarks.status else "it could not be reached, or did not take it"


class _Remarks(logging.Handler):
    """Keeps the status that a service answered with."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.status = ""

    def emit(self, record: logging.LogRecord) -> None:
        if match := _STATUS.search(record.getMessage()):
            self.status = match[1]


def channels_of(settings: Settings) -> list[Channel]:
    """The channels of the settings, in order of their names."""
    return [Channel(name, url) for name, url in sorted(settings.alerts.items())]
