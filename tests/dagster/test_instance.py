"""Dagster's home: the folder that the environment names, or else one of ours with a copy of the project's file."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.project import ROOT
from varve.dagster.instance import dagster_home, embedded_storage
from varve.project import NoProject, Project

if TYPE_CHECKING:
    from varve.services.settings import Settings


@pytest.fixture
def project(settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    return settings.model_copy(update={"project": tmp_path, "home": tmp_path / "home"})


def test_a_home_that_is_named_before_anything_has_made_it_is_made_where_it_is_ours(
    project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = project.home_dir / "dagster"
    assert not ours.exists()
    monkeypatch.setenv("DAGSTER_HOME", str(ours))
    assert dagster_home(project) == ours
    assert (ours / "dagster.yaml").is_file()
    # What somebody writes there stays.
    (ours / "dagster.yaml").write_text("telemetry: {enabled: true}\n")
    assert dagster_home(project) == ours
    assert "true" in (ours / "dagster.yaml").read_text()


def test_a_folder_of_others_that_is_not_there_is_refused_with_what_to_do(
    project: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(NoProject, match=r"DAGSTER_HOME is .*elsewhere, and there is no such folder. Make it and put"):
        dagster_home(project)
    (tmp_path / "elsewhere").mkdir()
    assert dagster_home(project) == tmp_path / "elsewhere"
    monkeypatch.delenv("DAGSTER_HOME")
    assert dagster_home(project) == project.home_dir / "dagster"


def test_the_file_of_our_home_is_written_where_it_says_something_else_and_always_whole(
    project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    file = dagster_home(project) / "dagster.yaml"
    before = file.stat().st_mtime_ns, file.stat().st_ino
    dagster_home(project)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before
    (project.project / "dagster.yaml").write_text("telemetry:\n  enabled: true\n")

    def full(self: Path, text: str, **_: object) -> None:
        with self.open("w") as opened:
            opened.write(text[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space left"):
            dagster_home(project)
    assert "enabled: false" in file.read_text()
    dagster_home(project)
    assert "enabled: true" in file.read_text()
    assert [each.name for each in file.parent.glob("dagster.yaml*")] == ["dagster.yaml"]


def test_the_file_of_our_home_can_be_read_by_those_alone_who_can_read_the_project_s(
    project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    own_file = project.project / "dagster.yaml"
    own_file.write_text("storage:\n  postgres:\n    postgres_url: postgresql://dagster:password@db/dagster\n")
    # The last: as an earlier version has left it open.
    for mode in (0o600, 0o640, 0o644, 0o600):
        own_file.chmod(mode)
        assert (dagster_home(project) / "dagster.yaml").stat().st_mode & 0o777 == mode


def test_only_storage_of_ours_without_a_server_of_its_own_is_on_the_embedded_one(
    project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert embedded_storage(project) is None
    (project.project / "varve.toml").touch()
    shutil.copy(ROOT / "dagster.yaml", project.project)
    server = embedded_storage(project)
    assert server is not None
    assert server.home == Project.find(project.project).settings.home_dir
    monkeypatch.setenv("VARVE_DAGSTER_POSTGRES_URL", "postgresql://somewhere/else")
    assert embedded_storage(project) is None
