"""The keyring of a command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saga_engine.privacy.keyring import Keyring
    from saga_engine.settings import Settings


def keyring_for(settings: Settings) -> Keyring | None:
    """The keys that the settings name; None: nothing is sealed. Raises ``SettingInvalid``."""
    if not (settings.privacy or os.environ.get("SAGA_PRIVACY_KEYS") or os.environ.get("SAGA_PRIVACY_KEYS_FILE")):
        return None
    from saga_engine.privacy.config import keyring_of

    return keyring_of(settings)
