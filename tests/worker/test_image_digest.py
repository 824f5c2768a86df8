"""Digests of images on the batch host: asked of the runtime, or taken of a file or a folder."""

import hashlib
import os

import pytest

from dlperf_slurm.worker.image_digest import digest_folder, main


@pytest.fixture
def ask_digest(tmp_path, capsys):
    """Return a function that returns the output for an image and a command."""

    def ask(image, *command):
        assert main([str(tmp_path / "known"), str(image), *command]) == 0
        return capsys.readouterr().out.strip()

    return ask


def test_digest_of_a_file_is_that_of_its_content_read_when_it_has_changed(ask_digest, tmp_path):
    image = tmp_path / "image.sif"
    image.write_bytes(b"layers")
    first = ask_digest(image)
    assert first == f"sha256:{hashlib.sha256(b'layers').hexdigest()}"
    image.write_bytes(b"others")
    os.utime(str(image), ns=(0, 0))
    second = ask_digest(image)
    assert second != first
    # the same size and time: what is known of it is told
    image.write_bytes(b"thirds")
    os.utime(str(image), ns=(0, 0))
    assert ask_digest(image) == second
    # a runtime that does not tell
    for command in ("false", "/no/such/program", "true"):
        assert ask_digest(image, command) == second


def test_folder_has_another_digest_when_a_file_in_it_has_changed(tmp_path):
    for name in ("usr/lib/a", "usr/lib/b"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("same")
    first = digest_folder(tmp_path / "root")
    assert digest_folder(tmp_path / "root") == first
    (tmp_path / "root/usr/lib/b").write_text("longer")
    assert digest_folder(tmp_path / "root") != first


@pytest.mark.parametrize(
    ("question", "digest"),
    [
        # a runtime that keeps images itself is asked
        (["registry/pytorch:1", "echo", "sha256:0123"], "sha256:0123"),
        (["registry/pytorch:1"], ""),
        (["/no/such/file"], ""),
    ],
)
def test_image_that_is_no_file_is_asked_for(ask_digest, question, digest):
    assert ask_digest(*question) == digest
