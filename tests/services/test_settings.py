"""An error names the variable of a wrong setting, and the folder of a home that cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from varve.model.errors import ServiceUnavailable, VarveError
from varve.services.folders import writable
from varve.services.settings import Settings

WRONG = {
    "VARVE_UI_PORT": ("x", "VARVE_UI_PORT='x': Input should be a valid integer"),
    "VARVE_ATTEMPTS": ("0", "VARVE_ATTEMPTS='0': Input should be greater than or equal to 1"),
    "VARVE_SENSOR_INTERVAL_SECONDS": (
        "0",
        "VARVE_SENSOR_INTERVAL_SECONDS='0': Input should be greater than or equal to 1",
    ),
    "VARVE_COMPRESSION": ("lzma", "VARVE_COMPRESSION='lzma': Input should be 'zstd', 'snappy', 'gzip' or 'none'"),
    "VARVE_SPARK_CONF": ("{", "VARVE_SPARK_CONF is not JSON: Expecting property name"),
    "VARVE_LAKE_ROOT": (
        "hdfs:/user/x",
        "VARVE_LAKE_ROOT is neither a folder nor a URI: hdfs: is followed by one slash.",
    ),
    "VARVE_LANDING_ROOT": ("s3a:/bucket", "VARVE_LANDING_ROOT is neither a folder nor a URI: s3a: is followed by one"),
}


@pytest.mark.parametrize(("name", "text", "beginning"), [(name, *rest) for name, rest in WRONG.items()], ids=WRONG)
def test_a_setting_that_is_wrong_is_told_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, beginning: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(VarveError) as refused:
        Settings()
    assert str(refused.value).startswith(beginning)
    assert "docs/reference.md" in str(refused.value)


@pytest.mark.needs_seconds
def test_a_command_tells_a_wrong_setting_in_one_line() -> None:
    varve = Path(sys.executable).parent / "varve"
    done = subprocess.run(
        [varve, "status"], env={"VARVE_ATTEMPTS": "0"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("VarveError: VARVE_ATTEMPTS='0'")
    assert len(done.stderr.splitlines()) == 1


def test_a_home_that_cannot_be_made_is_told_by_its_folder_and_the_setting(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    unusable = {file: "File exists", file / "home": "Not a directory", Path("/proc/varve"): "No such"}
    for folder, problem in unusable.items():
        with pytest.raises(ServiceUnavailable) as refused:
            writable(folder)
        assert str(refused.value).startswith(f"the folder {folder} cannot be used: {problem}")
        assert "VARVE_HOME" in str(refused.value)
    assert writable(tmp_path / "new" / "home").is_dir()


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("lake/below", "{here}/lake/below"),
        ("/lake/", "/lake"),
        ("~/lake", f"{Path.home()}/lake"),
        ("file:/lake", "file:///lake"),
        ("file:///lake/", "file:///lake"),
        ("s3a://bucket/lake/", "s3a://bucket/lake"),
    ],
)
def test_a_root_is_told_to_a_server_whose_working_directory_is_another_one_in_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, root: str
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(lake_root=given, landing_root=given)
    assert (settings.lake, settings.landing) == (root.format(here=tmp_path),) * 2


@pytest.mark.parametrize("name", ["VARVE_UI_PORT", "VARVE_SPARK_PORT"])
@pytest.mark.parametrize("port", ["70000", "0"])
def test_a_port_that_is_none_is_told_by_its_setting(monkeypatch: pytest.MonkeyPatch, name: str, port: str) -> None:
    monkeypatch.setenv(name, port)
    with pytest.raises(VarveError, match=name):
        Settings()
