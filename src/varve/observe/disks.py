"""How full the file systems are that hold something of ours."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from varve.planning.operations.conditions import DiskFacts

if TYPE_CHECKING:
    from varve.services.settings import Settings


def disks_of(settings: Settings) -> list[DiskFacts]:
    """The file systems of the home, the lake and the landing folder, each once, as this machine has them.

    Places that are URIs are left out.
    """
    places = {"home": str(settings.home_dir), "lake": settings.lake, "landing": settings.landing}
    names: dict[int, list[str]] = {}
    folders: dict[int, Path] = {}
    for name, place in places.items():
        local = place.removeprefix("file://")
        folder = None if "://" in local else _existing(Path(local))
        if folder is None:
            continue
        device = folder.stat().st_dev
        names.setdefault(device, []).append(name)
        folders.setdefault(device, folder)
    disks = []
    for device, folder in folders.items():
        usage = shutil.disk_usage(folder)
        # As df counts: what is kept for the administrator is not free.
        total = usage.used + usage.free
        disks.append(DiskFacts(", ".join(names[device]), usage.used, total, socket.gethostname()))
    return disks


def _existing(folder: Path) -> Path | None:
    return next((parent for parent in (folder, *folder.parents) if parent.is_dir()), None)
