# SPDX-License-Identifier: MIT
"""``python -m bridge.apply``: from a checkpoint and images to denoised images, and on from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import h5py
import mrcfile
import numpy as np
import pytest

from bridge import Network
from bridge.apply import __main__ as command
from bridge.apply import apply
from bridge.apply.__main__ import main
from bridge.data import Batches, Consecutive, Images
from bridge.data.normalization import statistics
from bridge.operations import GlobalAvgPool2d, Multiply, Sigmoid
from bridge.train.checkpoints import Progress, save
from bridge.train.settings import TrainSettings
from bridge.train.used import Used
from tests.helpers.files.image_files import write
from tests.helpers.networks.tiled_networks import conv, network, unet

#: What a checkpoint says of its data
DATA = {"inputs": "a.npy", "noise2noise": "consecutive", "batch": 2, "crop": [8, 8]}


def made_network() -> Network:
    """Three by three, and a residual of the image, so that outputs are near inputs."""
    return network([conv("1", 1, 4), conv("2", 4, 1)], keep_activations=False)


def checkpoint(path: Path, *, average: float | None = None, **data: object) -> Network:
    net = made_network()
    progress = Progress(TrainSettings(steps=3, average=average), used=Used(data=json.dumps(DATA | data)))
    if average is not None:
        progress.average = {name: np.array(one) * np.float32(0.5) for name, one in net.parameters.items()}
    save(path, net, progress)
    return net


def images(count: int = 1, size: tuple[int, int] = (40, 33)) -> np.ndarray:
    return (100 + 7 * np.random.default_rng(3).standard_normal((count, *size))).astype(np.float32)


def expected(net: Network, image: np.ndarray, mean: float, std: float) -> np.ndarray:
    """Computed whole, and mapped back."""
    x = image.astype(np.float32) - np.float32(mean)
    x /= np.float32(std)
    return net.eval().forward(np.ascontiguousarray(x[None, None]))[0, 0] * np.float32(std) + np.float32(mean)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands run, with a checkpoint and an exchange file."""
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "run.h5", normalization="image")
    made_network().save(tmp_path / "net.h5")
    return tmp_path


@pytest.mark.parametrize("ending", [".mrc", ".npy", ".h5", ".tif"])
def test_every_format(folder: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A stack, image by image, is what the network makes of each image in its own normalisation."""
    stack = images(3)
    write(folder / f"in{ending}", stack)
    assert main(["run.h5", f"in{ending}", "--output", "out", "--tile", "7,9"]) == 0
    said = capsys.readouterr()
    assert said.out == "1 of 1 files written to out\n"
    assert f"out/in{ending}: 3 x 40 x 33 pixels in" in said.err
    with Images(f"out/in{ending}") as found:
        assert len(found) == 3 and found.shape(0) == (1, 40, 33) and found.dtype(0) == np.float32
        for number, image in enumerate(stack):
            # No more rows than normalisation looks at
            wanted = expected(made_network(), image, *_statistics(image))
            assert np.array_equal(found.read(number)[0], wanted)
    assert sorted(os.listdir("out")) == ["apply.json", f"in{ending}"]


def _statistics(image: np.ndarray) -> tuple[float, float]:
    return statistics([image.astype(np.float64).ravel()])


def test_normalisation_is_that_of_training(folder: Path) -> None:
    """The same rows, and so the same two numbers, as of batches; of an image with more rows than are looked at."""
    stack = images(2, (200, 24))
    np.save("in.npy", stack)
    batch = Batches(Consecutive("in.npy"), 1, (200, 24), rotations=False, flips=False, normalization="image").at(0)
    assert main(["run.h5", "in.npy", "--output", "out", "--memory", "100kB"]) == 0
    mean, std = float(batch.mean[0]), float(batch.std[0])
    assert np.array_equal(np.load("out/in.npy")[0], expected(made_network(), stack[0], mean, std))
    assert (mean, std) != _statistics(stack[0])


@pytest.mark.parametrize(("said", "option", "numbers"), [
    ([100.0, 7.0], None, (100, 7)), (None, None, (0, 1)), ("image", "none", (0, 1)), ("image", "90,8.5", (90, 8.5))])
def test_normalisations(folder: Path, said: object, option: str | None, numbers: tuple[float, float]) -> None:
    """Of the checkpoint, unless another one is given."""
    checkpoint(folder / "one.h5", normalization=said)
    np.save("in.npy", images()[0])
    assert main(["one.h5", "in.npy", "--output", "out", *(["--normalization", option] if option else [])]) == 0
    assert np.array_equal(np.load("out/in.npy"), expected(made_network(), images()[0], *numbers))


def test_an_unknown_normalisation_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an exchange file, and of a training in Python."""
    np.save("in.npy", images()[0])
    save(folder / "python.h5", made_network(), Progress(TrainSettings(steps=1)))
    for name, words in (("net.h5", "is no checkpoint"), ("python.h5", "does not say how the inputs")):
        assert main([name, "in.npy", "--output", "out"]) == 2
        error = capsys.readouterr().err
        assert f"bridge.apply: {name}: " in error and words in error and "expected --normalization" in error
        assert not os.path.exists("out")
        assert main([name, "in.npy", "--output", f"out-{name}", "--normalization", "image"]) == 0
    for wrong in ("images", "1", "1,0", "1,nan", "a,b"):
        assert main(["net.h5", "in.npy", "--output", "out", "--normalization", wrong]) == 2
        assert f"--normalization {wrong}: expected none, image, or MEAN,STD" in capsys.readouterr().err


def test_what_is_no_exchange_file_is_said_before_an_option(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("in.npy", images()[0])
    zipfile.ZipFile("module.pt", "w").close()
    for name, words in (("missing.h5", "no such file"), ("module.pt", "file signature not found"), (".", "not a file")):
        assert main([name, "in.npy", "--output", "out"]) == 2
        error = capsys.readouterr().err
        assert f"bridge.apply: {name}: " in error and words in error and "--normalization" not in error


def test_averaged_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(folder / "averaged.h5", average=0.9, normalization=None)
    np.save("in.npy", images()[0])
    assert main(["averaged.h5", "in.npy", "--output", "out", "--average"]) == 0
    net = made_network()
    for one in net.parameters.values():
        one[...] *= 0.5
    assert np.array_equal(np.load("out/in.npy"), expected(net, images()[0], 0, 1))
    for name in ("run.h5", "net.h5"):
        assert main([name, "in.npy", "--output", "other", "--average", "--normalization", "none"]) == 2
        assert f"--average: {name} has no averaged weights" in capsys.readouterr().err


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_arrays_keep_their_dimensions(folder: Path, rank: int) -> None:
    """And an HDF5 dataset its name and its attributes."""
    array = images(2)[:, None] if rank == 4 else images(2) if rank == 3 else images()[0]
    np.save("in.npy", array)
    with h5py.File("in.h5", "w") as file:
        file["deep/images"], file["other"] = array.astype(np.float64), np.zeros((3, 3))
        file["deep/images"].attrs["pixel size"] = 0.667
    for name in ("in.npy", "in.h5:/deep/images"):
        assert main(["net.h5", name, "--output", "out", "--normalization", "none"]) == 0
    with h5py.File("out/in.h5") as file:
        assert dict(file["deep/images"].attrs) == {"pixel size": 0.667} and list(file) == ["deep"]
        found = file["deep/images"][()]
    assert found.shape == array.shape and found.dtype == np.float32
    assert np.array_equal(found, np.load("out/in.npy"))


@pytest.mark.parametrize("attributes", [
    {"xml": np.bytes_(b"x" * 100_000)}, {"table": np.zeros(10_000)}, {f"a{k}": np.zeros(1000) for k in range(20)}],
    ids=["text", "numbers", "many"])
def test_attributes_of_any_size_are_kept(folder: Path, attributes: dict[str, np.ndarray]) -> None:
    """The old format ends at 64 KiB."""
    with h5py.File("in.h5", "w", libver="latest") as file:
        file.create_dataset("images", data=images(2)).attrs.update(attributes)
    assert main(["net.h5", "in.h5", "--output", "out", "--normalization", "none"]) == 0
    with h5py.File("out/in.h5") as file:
        assert all(np.array_equal(file["images"].attrs[name], value) for name, value in attributes.items())


def test_several_channels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Become planes of TIFF, and an axis of arrays; MRC has none."""
    net = network([conv("1", 1, 3)])
    net.save("three.h5")
    for ending in (".npy", ".h5", ".tif", ".mrc"):
        write(folder / f"in{ending}", images(2))
    wanted = np.stack([apply(net, one[None]) for one in images(2)])
    assert main(["three.h5", "in.npy", "in.h5", "in.tif", "--output", "out", "--normalization", "none"]) == 0
    for ending in (".npy", ".h5", ".tif"):
        with Images(f"out/in{ending}") as found:
            assert all(np.array_equal(found.read(number), one) for number, one in enumerate(wanted)), ending
    assert main(["three.h5", "in.mrc", "--output", "out", "--normalization", "none"]) == 2
    assert "in.mrc: 3 channels would come of its images, and MRC holds one" in capsys.readouterr().err


def test_a_folder_and_its_order(folder: Path) -> None:
    """Each file by its name, beside files that are no images."""
    os.mkdir("in")
    for number in range(3):
        np.save(f"in/{number}.npy", images()[0] + np.float32(number))
    Path("in/notes.txt").write_text("no image", encoding="utf-8")
    assert main(["run.h5", "in", "--output", "out"]) == 0
    assert sorted(os.listdir("out")) == ["0.npy", "1.npy", "2.npy", "apply.json"]
    for number in range(3):
        image = np.load(f"in/{number}.npy")
        assert np.array_equal(np.load(f"out/{number}.npy"), expected(made_network(), image, *_statistics(image)))


def test_whole_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a network that cannot be computed in parts, which says so."""
    net = network([conv("1", 1, 2), GlobalAvgPool2d("mean"), Sigmoid("gate"), Multiply("2", inputs=("gate", "1")),
                   conv("3", 2, 1)])
    net.save("gated.h5")
    np.save("in.npy", images()[0] / np.float32(100))
    arguments = ["gated.h5", "in.npy", "--output", "out", "--normalization", "none"]
    assert main(arguments) == 2
    assert "in.npy: layer mean (global_avg_pool2d): it is a mean over the whole image" in capsys.readouterr().err
    assert main([*arguments, "--whole"]) == 0
    assert np.array_equal(np.load("out/in.npy"), expected(net, np.load("in.npy"), 0, 1))


@pytest.mark.parametrize(("options", "said"), [
    (["--tile", "0,4"], "--tile 0,4: expected H,W of 1 or more"), (["--tile", "4"], "--tile 4: expected H,W"),
    (["--memory", "much"], "--memory much: expected bytes, as 500MB"), (["--memory", "0"], "--memory 0: expected"),
    (["--memory", "500"], "memory: 500 bytes, expected"), (["--device", "tpu"], "tpu"),
    (["--whole", "--tile", "4,4"], "--tile and --whole: given together"),
    (["--output", "in.npy"], "--output in.npy: File exists, expected a folder"),
    (["--output", "."], "would replace input in.npy")])
def test_options_that_cannot_be(folder: Path, options: list[str], said: str,
                                capsys: pytest.CaptureFixture[str]) -> None:
    np.save("in.npy", images()[0])
    assert main(["run.h5", "in.npy", *(["--output", "out"] if "--output" not in options else []), *options]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1
    assert np.array_equal(np.load("in.npy"), images()[0])


def test_what_is_there_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --resume it is kept, if it is what would be written; and each output is of one input."""
    np.save("a.npy", images()[0])
    np.save("b.npy", images(2))
    arguments = ["run.h5", "a.npy", "b.npy", "--output", "out"]
    assert main(arguments[:2] + arguments[3:]) == 0
    before = Path("out/a.npy").stat()
    assert main(arguments) == 2
    assert "out/a.npy: exists already, expected --resume" in capsys.readouterr().err
    assert not os.path.exists("out/b.npy")
    assert main([*arguments, "--resume"]) == 0
    assert capsys.readouterr().out == "1 of 2 files written to out, 1 there already\n"
    after = Path("out/a.npy").stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert main([*arguments, "--resume"]) == 0
    assert capsys.readouterr().out == "0 of 2 files written to out, 2 there already\n"
    os.mkdir("other")
    np.save("other/a.npy", images()[0])
    assert main(["run.h5", "a.npy", "other/a.npy", "--output", "new"]) == 2
    assert "would replace output new/a.npy" in capsys.readouterr().err


@pytest.mark.parametrize(("array", "said"), [
    (images(3), "out/a.npy: is in the way: 3 images (1, 40, 33) of float32 found, expected an output of an earlier"),
    (images()[0][:7], "is in the way"), (images()[0].astype(np.uint8), "is in the way"),
    (None, "out/a.npy: empty; it is in the way")])
def test_what_is_in_the_way_is_refused(folder: Path, array: np.ndarray | None, said: str,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    """By --resume, too."""
    np.save("a.npy", images()[0])
    os.mkdir("out")
    Path("out/a.npy").write_bytes(b"")
    if array is not None:
        np.save("out/a.npy", array)
    assert main(["run.h5", "a.npy", "--output", "out", "--resume"]) == 2
    assert said in capsys.readouterr().err


def test_outputs_of_two_networks_do_not_come_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor of two normalisations."""
    for name in "ab":
        np.save(f"{name}.npy", images()[0])
    assert main(["run.h5", "a.npy", "--output", "out"]) == 0
    record = json.loads(Path("out/apply.json").read_text(encoding="utf-8"))
    assert record["normalization"] == "image" and record["network"].startswith("sha256:")
    other = made_network()
    other.parameters["1.bias"][0] += 1
    other.save("other.h5")
    for name, option, word in (("other.h5", "image", "network"), ("net.h5", "1,2", "normalization")):
        assert main([name, "a.npy", "b.npy", "--output", "out", "--resume", "--normalization", option]) == 2
        assert f"out: holds outputs of another {word}" in capsys.readouterr().err
    assert main(["net.h5", "a.npy", "b.npy", "--output", "out", "--resume", "--normalization", "image"]) == 0
    Path("out/apply.json").write_text("[1", encoding="utf-8")
    assert main(["run.h5", "b.npy", "--output", "out", "--resume"]) == 2
    assert "out/apply.json: " in capsys.readouterr().err


def test_bad_files_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All at once and before any work; or they are skipped, and the rest is done. What is found late is named, too."""
    np.save("good.npy", images()[0])
    Path("short.npy").write_bytes(Path("good.npy").read_bytes()[:1000])
    np.save("colour.npy", np.zeros((1, 3, 8, 8), np.float32))
    nan = images()[0]
    nan[30, 2] = np.nan
    np.save("nan.npy", nan)
    names = ["good.npy", "short.npy", "colour.npy", "nan.npy"]
    assert main(["run.h5", *names, "missing.npy", "--output", "out"]) == 2
    error = capsys.readouterr().err
    assert all(f"{name}: " in error for name in ("short.npy", "colour.npy", "missing.npy"))
    assert not os.path.exists("out/good.npy")
    options = ["--normalization", "none", "--tile", "8,8"]
    assert main(["run.h5", *names, "--output", "out", "--on-bad", "skip", *options]) == 2
    said = capsys.readouterr()
    assert said.out == "1 of 4 files written to out, 3 bad\n"
    for text in ("short.npy: ", "colour.npy: 3 channels found", "nan.npy: nan at channel 0, row 30, column 2"):
        assert text in said.err
    assert sorted(os.listdir("out")) == ["apply.json", "good.npy"]
    assert main(["run.h5", "nan.npy", "--output", "other", "--normalization", "none"]) == 2
    assert os.listdir("other") == ["apply.json"]


def test_sizes_that_the_network_does_not_take(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Are named with the file and the layer, or skipped."""
    network(unet()).save("unet.h5")
    np.save("even.npy", images(1, (40, 36))[0])
    np.save("odd.npy", images(1, (41, 36))[0])
    arguments = ["unet.h5", "odd.npy", "even.npy", "--output", "out", "--normalization", "image"]
    assert main(arguments) == 2
    assert "odd.npy: layer join" in capsys.readouterr().err
    assert main([*arguments, "--on-bad", "skip"]) == 2
    assert sorted(os.listdir("out")) == ["apply.json", "even.npy"]


def test_an_output_that_is_not_finite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, with the image; its file does not come to be."""
    net = made_network()
    net.parameters["2.weight"][...] = 3e38
    net.save("huge.h5")
    np.save("in.npy", images(2))
    assert main(["huge.h5", "in.npy", "--output", "out", "--normalization", "none"]) == 1
    assert "in.npy, image 0: the output is not finite in rows 0 to 40" in capsys.readouterr().err
    assert os.listdir("out") == ["apply.json"]


def test_an_interruption_leaves_no_half_file(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    """Finished outputs stay, and --resume goes on to the same bytes."""
    for name in "ab":
        np.save(f"{name}.npy", images(2))
    arguments = ["run.h5", "a.npy", "b.npy", "--tile", "16,16"]
    assert main([*arguments, "--output", "never"]) == 0
    right, calls = command.restored, [0]

    def interrupted(part: np.ndarray, mean: float, std: float) -> np.ndarray:
        calls[0] += 1
        if calls[0] == 25:
            raise KeyboardInterrupt
        return right(part, mean, std)

    with monkeypatch.context() as patch:
        patch.setattr(command, "restored", interrupted)
        assert main([*arguments, "--output", "out"]) == 130
    assert sorted(os.listdir("out")) == ["a.npy", "apply.json"]
    capsys.readouterr()
    assert main([*arguments, "--output", "out", "--resume"]) == 0
    assert capsys.readouterr().out == "1 of 2 files written to out, 1 there already\n"
    for name in "ab":
        assert Path(f"out/{name}.npy").read_bytes() == Path(f"never/{name}.npy").read_bytes()


@pytest.mark.deep
def test_killed_and_resumed(folder: Path) -> None:
    """By SIGKILL in the middle of a file: what it left is removed, and all outputs are those of one run."""
    for number in range(4):
        with mrcfile.new(f"{number}.mrc") as file:
            file.set_data(images(1, (300, 300))[0] + np.float32(number))
    arguments = [sys.executable, "-m", "bridge.apply", "run.h5", *(f"{k}.mrc" for k in range(4)), "--tile", "8,8"]
    assert subprocess.run([*arguments, "--output", "never"], check=False).returncode == 0
    out = Path("out")
    for finished in (1, 2):
        process = subprocess.Popen([*arguments, "--output", "out", "--resume"], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len([name for name in (os.listdir(out) if out.exists() else []) if name.endswith(".mrc")]) < finished:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run([*arguments, "--output", "out", "--resume"], check=False).returncode == 0
    assert sorted(os.listdir("out")) == [*(f"{k}.mrc" for k in range(4)), "apply.json"]
    for k in range(4):
        assert (out / f"{k}.mrc").read_bytes() == Path(f"never/{k}.mrc").read_bytes()
