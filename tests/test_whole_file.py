import os
from pathlib import Path

import pytest

from offline_summ.whole_file import write_whole


def test_a_file_is_replaced_and_only_its_owner_may_read_it(tmp_path):
    path = tmp_path / "figures.json"
    path.write_text("old")
    path.chmod(0o644)
    write_whole(path, "図書館\n")
    assert path.read_bytes() == "図書館\n".encode()
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["figures.json"]


def test_a_file_stays_as_it_was_where_the_new_one_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["figures.json"]


def test_the_file_that_a_link_names_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "figures.json")
    write_whole(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "figures.json").read_text() == "new"


def test_a_device_is_written_to():
    write_whole(Path("/dev/null"), "new")
    assert not os.path.isfile("/dev/null")
