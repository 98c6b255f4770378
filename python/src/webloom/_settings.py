"""Where the broker is, and who we are: from arguments, else from the environment."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import ConfigurationError

DEFAULT_BROKER = "http://127.0.0.1:55626"


@dataclass(frozen=True)
class Settings:
    """Addresses of brokers, the token, and authorities that are trusted beside the usual ones."""

    brokers: tuple[str, ...]
    token: str | None
    ca_file: str | None

    @classmethod
    def read(
        cls,
        broker: str | Sequence[str] | None = None,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> Settings:
        """Takes what is given, else `WEBLOOM_BROKER` (several addresses with commas), `WEBLOOM_TOKEN`, `WEBLOOM_CA_FILE`.

        Raises:
            ConfigurationError: an address is no `http://` or `https://` URL, or the CA file is not there.
        """
        named = broker if broker is not None else os.environ.get("WEBLOOM_BROKER") or DEFAULT_BROKER
        texts = named.split(",") if isinstance(named, str) else list(named)
        brokers = tuple(_address(text) for text in texts if text.strip())
        if not brokers:
            raise ConfigurationError("no address of a broker: set `broker` or WEBLOOM_BROKER")
        for address in brokers:
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigurationError(f"the broker's address `{address}` is not a URL: `http://host:port` is expected")
        ca = os.fspath(ca_file) if ca_file is not None else os.environ.get("WEBLOOM_CA_FILE") or None
        if ca is not None and not Path(ca).is_file():
            raise ConfigurationError(f"the CA file `{ca}` does not exist")
        return cls(brokers, token if token is not None else os.environ.get("WEBLOOM_TOKEN") or None, ca)

    def headers(self) -> dict[str, str]:
        """What goes with every call."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def tls(self) -> ssl.SSLContext:
        """The usual authorities, and those of the CA file."""
        context = ssl.create_default_context()
        if self.ca_file is not None:
            try:
                context.load_verify_locations(cafile=self.ca_file)
            except ssl.SSLError as error:
                raise ConfigurationError(f"the CA file `{self.ca_file}` holds no certificates in PEM: {error}") from None
        return context

    def uses_tls(self) -> bool:
        """Whether any address is `https://`."""
        return any(address.startswith("https:") for address in self.brokers)


def _address(text: str) -> str:
    """The address without slashes at its end. Its scheme is in lower case: it decides whether a token goes by TLS."""
    scheme, mark, rest = text.strip().rstrip("/").partition("://")
    return f"{scheme.lower()}{mark}{rest}" if mark else scheme


class Backoff:
    """Growing pauses with some chance in them, in seconds."""

    def __init__(self, first: float = 0.3, most: float = 30.0) -> None:
        self.first, self.most, self.tries = first, most, 0

    def reset(self) -> None:
        """The next pause is a short one."""
        self.tries = 0

    def next(self) -> float:
        """The next pause."""
        import random

        pause = min(self.first * 2.0 ** min(self.tries, 20), self.most)
        self.tries += 1
        return pause * random.uniform(0.5, 1.0)
