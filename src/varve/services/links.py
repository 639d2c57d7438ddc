"""Symbolic links in the landing folder: we do not follow links that lead out of it.

Behind such a link may be any file of this machine, which would be published as a partner's data. A link to another file
within the landing folder is as good as a file. Not here: what a file holds (sources/landing/inspection.py).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from varve.model.errors import NOTHING_LOST, BadInput
from varve.services.files import open_files

if TYPE_CHECKING:
    from varve.model.dataset import Dataset


def refuse_link_out(dataset: Dataset, uri: str, folder: str | None = None) -> None:
    """Raise BadInput where a file, or a folder on the way to it, is a link out of the landing folder.

    `folder` is the dataset's folder within the landing folder; default: `<db>/<table>`.
    """
    if real := leads_out(uri, folder or f"{dataset.db}/{dataset.table}"):
        raise BadInput(
            f"{uri} ({dataset}): a link leads out of the landing folder, to {real}. It was not read. {NOTHING_LOST} "
            "Put the file itself there, or set VARVE_LANDING_ROOT to the folder that holds both."
        )


def leads_out(uri: str, folder: str) -> str:
    """The real path of a file of a dataset's folder where it is outside the landing folder; "" where it is within.

    Only local folders have links.
    """
    files, path = open_files(uri)
    if "file" not in ((files.protocol,) if isinstance(files.protocol, str) else files.protocol):
        return ""
    root, _, _ = path.rpartition(f"/{folder}/")
    real, allowed = os.path.realpath(path), os.path.realpath(root or "/")
    return "" if os.path.commonpath([real, allowed]) == allowed else real
