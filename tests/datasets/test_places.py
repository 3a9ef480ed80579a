import json
import subprocess
import sys
from pathlib import Path

import pytest
from published import cifar_batches, idx_files, write_cifar_10, write_idx

import labeldp as ldp
from labeldp import datasets
from labeldp.datasets import surveys

FILES = {
    "mnist": [f"{p}-{k}-ubyte" for p in ("train", "t10k") for k in ("images-idx3", "labels-idx1")],
    "cifar-10": [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin", "data_batch_1,", "test_batch in"],
    "cifar-100": ["train.bin", "test.bin", "fine_label_names.txt", "train,", "test,", "meta"],
    "movielens-1m": ["ratings.dat"],
    "movielens-100k": ["u.data"],
}
FILES["fashion-mnist"] = FILES["kmnist"] = FILES["mnist"]
FOLDERS = {
    "mnist": ["mnist"],
    "fashion-mnist": ["fashion-mnist"],
    "kmnist": ["kmnist"],
    "cifar-10": ["cifar-10-batches-bin", "cifar-10-batches-py"],
    "cifar-100": ["cifar-100-binary", "cifar-100-python"],
    "movielens-1m": ["ml-1m"],
    "movielens-100k": ["ml-100k"],
}
SITES = {
    "mnist": "yann.lecun.com",
    "fashion-mnist": "zalandoresearch",
    "kmnist": "codh.rois.ac.jp",
    "cifar-10": "cs.toronto.edu",
    "cifar-100": "cs.toronto.edu",
    "movielens-1m": "grouplens.org",
    "movielens-100k": "grouplens.org",
}


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_files_are_listed_with_every_folder_that_was_looked_in(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDP_DATA", str(tmp_path / "environment"))
    with pytest.raises(ldp.InvalidArgument) as caught:
        datasets.load(name, data_dir=tmp_path / "given")
    message = str(caught.value)
    assert all(file in message for file in FILES[name])
    for root in (tmp_path / "given", tmp_path / "environment", Path.home() / ".cache" / "labeldp"):
        assert all(f"{root / folder} (none there)" in message for folder in FOLDERS[name])
    assert SITES[name] in message and "downloads nothing" in message


def test_a_folder_that_lacks_files_says_which(tmp_path):
    files = idx_files()
    del files["t10k-labels-idx1-ubyte"]
    write_idx(tmp_path, "mnist", files)
    with pytest.raises(ldp.InvalidArgument, match=r"mnist \(lacks t10k-labels-idx1-ubyte\)"):
        datasets.load("mnist", data_dir=tmp_path)


def test_the_given_folder_comes_first_then_the_environment_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDP_DATA", str(tmp_path / "environment"))
    write_idx(Path.home() / ".cache" / "labeldp", "mnist", idx_files(3))
    assert datasets.load("mnist", data_dir=tmp_path / "given").n_rows == 3
    write_idx(tmp_path / "environment", "mnist", idx_files(4))
    assert datasets.load("mnist", data_dir=tmp_path / "given").n_rows == 4
    assert datasets.load("mnist").n_rows == 4
    write_idx(tmp_path / "given", "mnist", idx_files(5))
    assert datasets.load("mnist", data_dir=str(tmp_path / "given")).n_rows == 5


def test_one_dataset_is_not_put_together_from_two_places(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELDP_DATA", str(tmp_path / "environment"))
    files = idx_files(4)
    write_idx(tmp_path / "environment", "mnist", {stem: files[stem] for stem in list(files)[:2]})
    write_idx(tmp_path / "given", "mnist", {stem: files[stem] for stem in list(files)[2:]})
    with pytest.raises(ldp.InvalidArgument, match="not found"):
        datasets.load("mnist", data_dir=tmp_path / "given")


def test_half_a_binary_version_does_not_hide_a_whole_python_version(tmp_path):
    write_cifar_10(tmp_path, cifar_batches(10, [2] * 6), version="python")
    (write_cifar_10(tmp_path, cifar_batches(10, [3] * 6), version="binary") / "test_batch.bin").unlink()
    assert datasets.load("cifar-10", data_dir=tmp_path).n_rows == 10


def test_a_tilde_is_home(monkeypatch):
    write_idx(Path.home() / "sets", "mnist", idx_files(6))
    assert datasets.load("mnist", data_dir="~/sets").n_rows == 6
    monkeypatch.setenv("LABELDP_DATA", "~/sets")
    assert datasets.load("mnist").n_rows == 6


@pytest.mark.parametrize("wrong", ["", 3, b"/tmp", ["a"]])
def test_data_dir_must_be_a_path(wrong):
    with pytest.raises(ldp.InvalidArgument, match="data_dir must be the path of a folder"):
        datasets.load("mnist", data_dir=wrong)


def test_an_unknown_name_lists_the_names_and_guesses():
    with pytest.raises(ldp.InvalidArgument, match=r"'mnist'.*got 'fashion_mnist'. Did you mean 'fashion-mnist'\?"):
        datasets.load("fashion_mnist")
    with pytest.raises(ldp.InvalidArgument, match=r"Did you mean 'cifar-10'\?"):
        datasets.load("CIFAR10")
    with pytest.raises(ldp.InvalidArgument, match=r"got 'iris'\.$"):
        datasets.load("iris")
    with pytest.raises(ldp.InvalidArgument, match="got int"):
        datasets.load(7)


def test_the_names_are_these():
    assert datasets.names() == (*sorted({*FOLDERS, "digits", *surveys.SURVEYS}),)
    assert set(datasets.__all__) == {"Dataset", "load", "names", "table"}


def test_importing_datasets_loads_no_heavy_library():
    code = "import labeldp.datasets, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert not {"torch", "sklearn", "scipy", "pandas", "pyarrow"} & set(json.loads(loaded))
