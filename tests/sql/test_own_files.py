"""Which files of a folder are a project's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.sql.code.own_files import files_of, is_hidden

if TYPE_CHECKING:
    from pathlib import Path


def test_files_are_sorted_and_each_is_there_once_without_what_begins_with_a_dot(tmp_path: Path) -> None:
    names = ("b.sql", "a.sql", "deep/c.sql", "deep/.d.sql", ".deep/e.sql", ".ipynb_checkpoints/deeper/f.sql", "g.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".#a.sql").symlink_to("somebody@host.1:2")
    found = [path.relative_to(tmp_path).as_posix() for path in files_of(tmp_path, "**/*.sql", "*.sql")]
    assert found == ["a.sql", "b.sql", "deep/c.sql"]
    assert files_of(tmp_path / "nowhere", "*") == []


def test_a_project_in_a_hidden_folder_has_files_as_any_other(tmp_path: Path) -> None:
    folder = tmp_path / ".worktrees" / "fix"
    folder.mkdir(parents=True)
    (folder / "a.sql").touch()
    assert files_of(folder, "**/*.sql") == [folder / "a.sql"]
    assert not is_hidden(folder / "a.sql", folder)
    assert is_hidden(folder / ".b" / "a.sql", folder)
