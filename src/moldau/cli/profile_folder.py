"""Where profiles are kept: in the folder that the system has for a user's settings.

~/.config/moldau/profiles/NAME.properties
~/.config/moldau/profile-in-use
"""

from __future__ import annotations

from pathlib import Path

import typer


def profile_folder() -> Path:
    return Path(typer.get_app_dir("moldau")) / "profiles"


def in_use_file() -> Path:
    """Holds the name of the profile that counts where none is named."""
    return Path(typer.get_app_dir("moldau")) / "profile-in-use"
