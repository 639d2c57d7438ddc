"""A link within the landing folder is a file; one that leads out of it is refused by name, whoever has put it there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sources.test_landing import landing_dataset
from varve.model.errors import BadInput
from varve.sources.landing.inspection import inspect
from varve.sources.landing.landing import Landing

CONTENT = b"product,sold,price,on_day,at,open\nx,3,1.5,2013-01-05,2013-01-05T10:00:00Z,true\n"
DATASET = landing_dataset()


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    landing = Landing(str(tmp_path / "landing"))
    Path(landing.folder(DATASET)).mkdir(parents=True)
    (tmp_path / "secret.csv").write_bytes(CONTENT)
    (tmp_path / "landing-of-others").mkdir()
    (tmp_path / "landing-of-others" / "secret.csv").write_bytes(CONTENT)
    return landing


@pytest.mark.parametrize("target", ["../../../secret.csv", "../../../landing-of-others/secret.csv", "/etc/passwd"])
def test_a_link_out_of_the_folder_is_refused_by_name(landing: Landing, target: str) -> None:
    path = Path(landing.uri(DATASET, "2013-01-05"))
    path.symlink_to(target)
    with pytest.raises(BadInput) as refused:
        inspect(DATASET, str(path))
    error_message = str(refused.value)
    assert error_message.startswith(f"{path} ({DATASET}): a link leads out of the landing folder, to {path.resolve()}.")
    assert "Nothing was published" in error_message


def test_so_is_a_chain_of_links_and_a_folder_that_is_one(landing: Landing, tmp_path: Path) -> None:
    (Path(landing.root) / "inside.csv").symlink_to(tmp_path / "secret.csv")
    chained = Path(landing.uri(DATASET, "2013-01-05"))
    chained.symlink_to("../../inside.csv")
    with pytest.raises(BadInput, match="leads out of the landing folder"):
        inspect(DATASET, str(chained))
    elsewhere = landing_dataset()
    (Path(landing.root) / elsewhere.db).mkdir()
    (Path(landing.root) / elsewhere.db / elsewhere.table).symlink_to(tmp_path)
    with pytest.raises(BadInput, match="leads out of the landing folder"):
        inspect(elsewhere, f"{landing.folder(elsewhere)}/secret.csv")


def test_a_link_within_the_folder_is_its_file_and_the_folder_itself_may_be_one(
    landing: Landing, tmp_path: Path
) -> None:
    kept = Path(landing.root) / "kept" / "day.csv"
    kept.parent.mkdir()
    kept.write_bytes(CONTENT)
    Path(landing.uri(DATASET, "2013-01-05")).symlink_to(os.path.relpath(kept, landing.folder(DATASET)))
    (tmp_path / "way").symlink_to(landing.root)
    for root in (landing.root, str(tmp_path / "way"), f"file://{landing.root}"):
        arrival = inspect(DATASET, Landing(root).uri(DATASET, "2013-01-05"))
        assert arrival is not None
        assert arrival.size == len(CONTENT)
    assert inspect(DATASET, landing.uri(DATASET, "2013-01-06")) is None
