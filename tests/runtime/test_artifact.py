"""Tests of writing artifacts and reading them, whole and damaged."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from tpuc.runtime.artifact import Artifact, _seal, write_artifact
from tpuc.runtime.errors import ArtifactError
from tpuc.runtime.manifest import Manifest, WeightInfo
from tpuc.runtime.tensor_file import ALIGNMENT, MAX_HEADER

from .sample_artifacts import WEIGHT, counter_manifest, counter_sections, simple_manifest, write_counter

HERE = Path(__file__).parent


def small_manifest(**changes: Any) -> Manifest:
    """Describes an artifact whose program is no program, but which is small."""
    return counter_manifest(**changes)


def small_sections() -> dict[str, Any]:
    return {**counter_sections(), "program/main": b"not a program, but small"}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "small.bin"
    write_artifact(path, small_manifest(), small_sections())
    return path


def split(path: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Takes a file apart: header, manifest, data."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["manifest"]), content[8 + length :]


def rebuild(path: Path, header: dict[str, Any], manifest: Any, data: bytes, *, seal: bool = True) -> None:
    """Puts a file together, with the hash of its header as it should be unless told otherwise."""
    header["__metadata__"]["manifest"] = manifest if isinstance(manifest, str) else json.dumps(manifest)
    text = json.dumps(header, separators=(",", ":")).encode()
    text = _seal(text) if seal else text
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def assert_refused(path: Path, message: str) -> ArtifactError:
    with pytest.raises(ArtifactError, match=message) as caught:
        Artifact.open(path).verify()
    assert str(path) in str(caught.value)
    return caught.value


class TestWhole:
    def test_what_was_written_is_read(self, artifact: Path) -> None:
        opened = Artifact.open(artifact)
        opened.verify()
        assert opened.manifest.model.name == "counter"
        assert bytes(opened.section("program/main")) == small_sections()["program/main"]
        np.testing.assert_array_equal(opened.weight("linear.weight"), WEIGHT)
        assert opened.initial_state("count") == 10

    def test_the_returned_manifest_is_the_one_in_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "small.bin"
        assert write_artifact(path, small_manifest(), small_sections()) == Artifact.open(path).manifest

    def test_a_weight_is_a_view_of_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "small.bin"
        big = np.arange(64, dtype=np.float32).reshape(16, 4)
        info = replace(small_manifest().weights[0], dims=(16, 4))
        write_artifact(path, small_manifest(weights=(info,)), {**small_sections(), "weights/linear.weight": big})
        opened = Artifact.open(path)
        weight = opened.weight("linear.weight")
        np.testing.assert_array_equal(weight, big)
        assert not weight.flags.owndata
        assert not weight.flags.writeable
        assert weight.ctypes.data == opened.weight("linear.weight").ctypes.data
        assert weight.ctypes.data % ALIGNMENT == 0

    def test_the_safetensors_package_opens_it(self, artifact: Path) -> None:
        with safe_open(artifact, "np") as file:
            assert set(file.keys()) == {"program/main", "state/count", "weights/linear.weight"}
            np.testing.assert_array_equal(file.get_tensor("weights/linear.weight"), WEIGHT)
            assert file.metadata()["format"] == "tpuc"

    def test_unknown_names_are_errors(self, artifact: Path) -> None:
        opened = Artifact.open(artifact)
        with pytest.raises(ArtifactError, match="no weight 'w'"):
            opened.weight("w")
        with pytest.raises(ArtifactError, match="no state 's'"):
            opened.initial_state("s")
        with pytest.raises(ArtifactError, match="no section x"):
            opened.section("x")

    def test_weights_may_come_in_pieces(self, tmp_path: Path) -> None:
        path = tmp_path / "small.bin"

        def pieces() -> Iterator[bytes]:
            for row in WEIGHT:
                yield row.tobytes()

        write_artifact(path, small_manifest(), {**small_sections(), "weights/linear.weight": pieces})
        np.testing.assert_array_equal(Artifact.open(path).weight("linear.weight"), WEIGHT)

    def test_pieces_without_a_known_size_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match="program/main is given in pieces"):
            write_artifact(
                tmp_path / "a", small_manifest(), {**small_sections(), "program/main": lambda: iter([b"program"])}
            )

    @pytest.mark.parametrize("array", [WEIGHT.T, WEIGHT.astype(np.float64), WEIGHT[:2]])
    def test_another_array_than_the_manifest_says_is_refused(self, tmp_path: Path, array: np.ndarray) -> None:
        with pytest.raises(ArtifactError, match=r"should hold linear.weight=f32\[4,3\]"):
            write_artifact(tmp_path / "a", small_manifest(), {**small_sections(), "weights/linear.weight": array})

    def test_a_manifest_that_nobody_could_read_is_not_written(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        sections = small_sections()
        del sections["state/count"]
        with pytest.raises(ArtifactError, match="the section state/count is used and not described"):
            write_artifact(path, small_manifest(), sections)
        assert not path.exists()

    def test_names_may_hold_any_text(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        name = 'Ünï "quoted" \\ ../x'
        info = WeightInfo(name=name, dtype="f32", dims=(1,), section=f"weights/{name}", origin="buffer")
        manifest = simple_manifest([], [], weights=(info,))
        write_artifact(path, manifest, {"program/main": b"p", f"weights/{name}": np.ones(1, np.float32)})
        assert Artifact.open(path).weight(name) == 1


class TestExternalWeights:
    def write(self, path: Path, weight: np.ndarray = WEIGHT) -> Manifest:
        manifest = small_manifest(weights_mode="external")
        return write_artifact(path, manifest, {**small_sections(), "weights/linear.weight": weight})

    def test_they_stand_beside_the_artifact_under_plain_names(self, tmp_path: Path) -> None:
        manifest = self.write(tmp_path / "a.bin")
        assert manifest.weights_file is not None
        with safe_open(tmp_path / manifest.weights_file, "np") as file:
            np.testing.assert_array_equal(file.get_tensor("linear.weight"), WEIGHT)
        opened = Artifact.open(tmp_path / "a.bin")
        opened.verify()
        np.testing.assert_array_equal(opened.weight("linear.weight"), WEIGHT)

    def test_an_older_artifact_finds_its_own(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a.bin")
        (tmp_path / "old.bin").write_bytes((tmp_path / "a.bin").read_bytes())
        self.write(tmp_path / "a.bin", WEIGHT + 1)
        np.testing.assert_array_equal(Artifact.open(tmp_path / "old.bin").weight("linear.weight"), WEIGHT)
        np.testing.assert_array_equal(Artifact.open(tmp_path / "a.bin").weight("linear.weight"), WEIGHT + 1)

    def test_the_same_weights_are_one_file(self, tmp_path: Path) -> None:
        assert self.write(tmp_path / "a.bin") == self.write(tmp_path / "a.bin")
        assert len(list(tmp_path.iterdir())) == 2

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        manifest = self.write(tmp_path / "a.bin")
        assert manifest.weights_file is not None
        (tmp_path / manifest.weights_file).unlink()
        opened = Artifact.open(tmp_path / "a.bin")
        with pytest.raises(ArtifactError, match=r"(?s)weights of a.bin cannot be read.*copy both"):
            opened.weight("linear.weight")

    def test_a_flipped_byte_is_found(self, tmp_path: Path) -> None:
        manifest = self.write(tmp_path / "a.bin")
        assert manifest.weights_file is not None
        path = tmp_path / manifest.weights_file
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"section weights/linear.weight is damaged") as caught:
            Artifact.open(tmp_path / "a.bin").verify()
        assert caught.value.where == str(path)


class TestBadFiles:
    """One way a file can be wrong, one error."""

    def test_no_file(self, tmp_path: Path) -> None:
        assert_refused(tmp_path / "none.bin", "no such file")

    def test_a_folder(self, tmp_path: Path) -> None:
        assert_refused(tmp_path, "a folder, not a tpuc artifact")

    def test_a_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert_refused(tmp_path / "pipe", "a special file, not a tpuc artifact")

    def test_an_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        assert_refused(tmp_path / "empty", "the file is empty")

    def test_no_permission(self, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Root may read everything, so that taking the permission away would show nothing.
        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        assert_refused(artifact, "no permission to read the file")

    @pytest.mark.parametrize(
        "content", [b"x", b"hello, this is some text", b"PK\x03\x04" + bytes(1000), b"\x7fELF" * 50]
    )
    def test_something_else(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "other").write_bytes(content)
        assert_refused(tmp_path / "other", "not a tpuc artifact")

    def test_a_safetensors_file_that_is_not_ours(self, tmp_path: Path) -> None:
        save_file({"x": np.zeros(3)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
        assert_refused(tmp_path / "model.safetensors", "a safetensors file, but not a tpuc artifact")

    def test_cut_short_anywhere(self, artifact: Path, tmp_path: Path) -> None:
        content = artifact.read_bytes()
        path = tmp_path / "cut.bin"
        for length in range(len(content)):
            path.write_bytes(content[:length])
            assert_refused(path, "empty" if length == 0 else "not a tpuc artifact" if length < 9 else "cut short")

    def test_a_flipped_bit_anywhere(self, artifact: Path, tmp_path: Path) -> None:
        content = bytearray(artifact.read_bytes())
        path = tmp_path / "flipped.bin"
        for position in range(len(content)):
            content[position] ^= 1 << position % 8
            path.write_bytes(content)
            assert_refused(path, "damaged|not |cut short|header|byte order")
            content[position] ^= 1 << position % 8

    @pytest.mark.parametrize(
        ("needle", "message"),
        [
            (b'"format":"tpuc"', "the header is damaged"),
            (b"linear.weight", "the header is damaged"),
            (b"fingerprint", "the header is damaged"),
            (WEIGHT.tobytes(), "the section weights/linear.weight is damaged"),
            (np.array(10, np.float32).tobytes(), "the section state/count is damaged"),
            (b"not a program", "the section program/main is damaged"),
        ],
    )
    def test_a_flipped_byte_is_said_to_be_where_it_is(self, artifact: Path, needle: bytes, message: str) -> None:
        content = bytearray(artifact.read_bytes())
        content[content.rindex(needle)] ^= 1
        artifact.write_bytes(content)
        assert_refused(artifact, message)

    def test_a_section_is_checked_when_it_is_read(self, artifact: Path) -> None:
        content = bytearray(artifact.read_bytes())
        content[content.rindex(b"not a program")] ^= 1
        artifact.write_bytes(content)
        opened = Artifact.open(artifact)
        with pytest.raises(ArtifactError, match="the section program/main is damaged"):
            opened.section("program/main")

    def test_a_header_without_its_hash(self, artifact: Path) -> None:
        header, manifest, data = split(artifact)
        del header["__metadata__"]["header_sha256"]
        rebuild(artifact, header, manifest, data, seal=False)
        assert_refused(artifact, "it has no hash of itself")

    def test_a_newer_version(self, artifact: Path) -> None:
        header, manifest, data = split(artifact)
        header["__metadata__"]["format_version"] = "2"
        manifest = {"producer": {"tpuc": "9.8.7"}, "something": "new"}
        rebuild(artifact, header, manifest, data)
        error = assert_refused(artifact, "format version 2, written by tpuc 9.8.7; this tpuc reads 1")
        assert error.hint is not None
        assert "Upgrade tpuc" in error.hint

    def test_a_newer_version_with_another_manifest(self, artifact: Path) -> None:
        header, _, data = split(artifact)
        header["__metadata__"]["format_version"] = "2"
        rebuild(artifact, header, "something else", data)
        assert_refused(artifact, "format version 2, written by another tpuc")

    def test_a_big_endian_header(self, artifact: Path) -> None:
        content = artifact.read_bytes()
        artifact.write_bytes(content[:8][::-1] + content[8:])
        assert_refused(artifact, "written in big-endian byte order")

    def test_a_big_endian_manifest(self, artifact: Path) -> None:
        header, manifest, data = split(artifact)
        rebuild(artifact, header, manifest | {"byte_order": "big"}, data)
        assert_refused(artifact, "in big-endian byte order")

    def test_a_missing_section(self, artifact: Path) -> None:
        header, manifest, data = split(artifact)
        last = max(header.keys() - {"__metadata__"}, key=lambda name: header[name]["data_offsets"])
        removed = header.pop(last)
        start, _ = removed["data_offsets"]
        rebuild(artifact, header, manifest, data[:start])
        assert_refused(artifact, f"the section {last} is missing")

    def test_a_section_that_the_manifest_does_not_know(self, artifact: Path) -> None:
        header, manifest, data = split(artifact)
        header["extra"] = {"dtype": "U8", "shape": [2], "data_offsets": [len(data), len(data) + 2]}
        rebuild(artifact, header, manifest, data + b"12")
        assert_refused(artifact, "the manifest does not know the section extra")

    def test_a_section_of_another_size(self, artifact: Path) -> None:
        header, manifest, data = split(artifact)
        manifest["sections"]["program/main"]["size"] += 1
        rebuild(artifact, header, manifest, data)
        assert_refused(artifact, "program/main has another size than the manifest says")

    def test_a_section_of_another_type(self, artifact: Path) -> None:
        header, manifest, data = split(artifact)
        header["weights/linear.weight"]["dtype"] = "I32"
        rebuild(artifact, header, manifest, data)
        assert_refused(artifact, "does not hold linear.weight=f32")

    def test_extra_bytes_at_the_end(self, artifact: Path) -> None:
        artifact.write_bytes(artifact.read_bytes() + b"more")
        assert_refused(artifact, "4 bytes too many")

    def test_a_header_that_is_too_large(self, artifact: Path) -> None:
        content = artifact.read_bytes()
        artifact.write_bytes(struct.pack("<Q", MAX_HEADER + 1) + content[8:])
        assert_refused(artifact, "at most 16,777,216 are read")

    def test_a_manifest_that_is_no_json(self, artifact: Path) -> None:
        header, _, data = split(artifact)
        rebuild(artifact, header, "{", data)
        assert_refused(artifact, "the manifest is not valid JSON")

    def test_a_manifest_that_does_not_fit(self, artifact: Path) -> None:
        header, manifest, data = split(artifact)
        manifest["entries"][0]["name"] = 3
        rebuild(artifact, header, manifest, data)
        assert_refused(artifact, r"manifest.entries\[0\].name: expected a text, got 3")


def test_random_damage(artifact: Path, tmp_path: Path) -> None:
    # In a process of its own: a crash would end it, a hang would outlast the time it is given, and its memory at the
    # peak is its own.
    command = [sys.executable, str(HERE / "fuzz_artifacts.py"), str(artifact), str(tmp_path / "damaged.bin"), "5000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["refused"] == 5000
    assert report["growth"] < 100 << 20


class TestWritingSafely:
    def contents(self, folder: Path) -> set[str]:
        return {path.name for path in folder.iterdir()}

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
    def test_an_interruption_leaves_the_old_artifact(self, artifact: Path, error: type[BaseException]) -> None:
        old = artifact.read_bytes()

        def pieces() -> Iterator[bytes]:
            yield WEIGHT[:2].tobytes()
            raise error

        with pytest.raises(ArtifactError if error is OSError else error):
            write_artifact(artifact, small_manifest(), {**small_sections(), "weights/linear.weight": pieces})
        assert artifact.read_bytes() == old
        assert self.contents(artifact.parent) == {artifact.name}

    def test_a_kill_leaves_the_old_artifact(self, artifact: Path) -> None:
        old = artifact.read_bytes()
        program = textwrap.dedent(
            f"""
            import sys, time
            sys.path.insert(0, {str(HERE.parent)!r})
            from runtime.test_artifact import *

            def pieces():
                yield WEIGHT[:2].tobytes()
                print("half", flush=True)
                time.sleep(600)

            sections = {{**small_sections(), "weights/linear.weight": pieces}}
            write_artifact({str(artifact)!r}, small_manifest(), sections)
            """
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "half\n"
            child.send_signal(signal.SIGKILL)
        assert artifact.read_bytes() == old
        left = self.contents(artifact.parent) - {artifact.name}
        assert [name.endswith(".tpuc-partial") for name in left] == [True]
        write_artifact(artifact, small_manifest(), small_sections())
        assert self.contents(artifact.parent) == {artifact.name}

    def test_no_room_says_how_much_is_needed(self, artifact: Path) -> None:
        # A limit on the size of files fails like a full disk does, and any user can set it.
        old = artifact.read_bytes()
        program = textwrap.dedent(
            f"""
            import resource, sys
            sys.path.insert(0, {str(HERE.parent)!r})
            from runtime.test_artifact import *

            sections = {{**small_sections(), "program/main": bytes(1 << 20)}}
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
            try:
                write_artifact({str(artifact)!r}, small_manifest(), sections)
            except ArtifactError as error:
                print(error)
            """
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        needed = int(done.stdout.split("the file: ")[1].split(" bytes")[0].replace(",", ""))
        assert (1 << 20) < needed < (1 << 20) + (1 << 13)
        assert artifact.read_bytes() == old
        assert self.contents(artifact.parent) == {artifact.name}

    @pytest.mark.parametrize("place", [lambda folder: folder / "no" / "a.bin", lambda folder: folder])
    def test_a_path_that_cannot_be_written(self, tmp_path: Path, place: Callable[[Path], Path]) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        with pytest.raises(ArtifactError, match="cannot be written"):
            write_artifact(place(folder), small_manifest(), small_sections())
        assert self.contents(tmp_path) == {"folder"}


def test_a_real_program_survives_the_file(tmp_path: Path) -> None:
    path = write_counter(tmp_path / "counter.bin")
    assert bytes(Artifact.open(path).section("program/main")) == counter_sections()["program/main"]
