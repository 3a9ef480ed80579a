import os
import pickle

import numpy as np
import pytest
from published import (
    FINE,
    cifar_batches,
    everything_said,
    python_2,
    records,
    shows,
    write_cifar_10,
    write_cifar_100,
)

import labeldp as ldp
from labeldp import datasets
from labeldp.datasets.pickles import read

SIZES = [3, 4, 5, 6, 7, 8]
LABEL = 7


def ten(root):
    return datasets.load("cifar-10", data_dir=root)


def hundred(root):
    return datasets.load("cifar-100", data_dir=root)


def owner_of_memory(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar_10_is_five_batches_in_order(tmp_path, version):
    batches = cifar_batches(10, SIZES)
    write_cifar_10(tmp_path, batches, version=version)
    data = ten(tmp_path)
    assert data.X.shape == (25, 3, 32, 32) and data.X.dtype == np.uint8 and data.X.flags.writeable
    assert np.array_equal(data.X.reshape(25, -1), np.concatenate([pixels for pixels, _ in batches[:5]]))
    assert data.unprotected().label_numbers.tolist() == np.concatenate([labels for _, labels in batches[:5]]).tolist()
    assert data.test_labels.tolist() == list(range(8)) and data.test_labels.dtype == np.int64
    assert data.classes[0] == "airplane" and data.classes[9] == "truck"
    assert data.inputs == {"kind": "image", "shape": [3, 32, 32]}


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar_100_has_its_fine_labels_and_their_names(tmp_path, version):
    batches = cifar_batches(100, [100, 30])
    write_cifar_100(tmp_path, batches, version=version)
    data = hundred(tmp_path)
    assert data.classes == tuple(FINE)
    assert np.array_equal(data.X.reshape(100, -1), batches[0][0])
    assert data.unprotected().labels.tolist() == FINE
    assert data.test_labels.tolist() == list(range(30))


@pytest.mark.parametrize("version", ["binary", "python"])
def test_features_share_no_memory_with_labels(tmp_path, version):
    write_cifar_10(tmp_path, cifar_batches(10, SIZES), version=version)
    write_cifar_100(tmp_path, cifar_batches(100, [9, 9]), version=version)
    for data in (ten(tmp_path), hundred(tmp_path)):
        for array in (data.X, data.X_test):
            assert owner_of_memory(array).size == array.size


def test_the_binary_version_is_preferred(tmp_path):
    write_cifar_10(tmp_path, cifar_batches(10, SIZES), version="python")
    assert ten(tmp_path).n_rows == 25
    write_cifar_10(tmp_path, cifar_batches(10, [2, 2, 2, 2, 2, 2]), version="binary")
    assert ten(tmp_path).n_rows == 10


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickles_of_python_3_are_read_too(tmp_path, protocol, order):
    ((pixels, labels),) = cifar_batches(10, [6])
    folder = write_cifar_10(tmp_path, cifar_batches(10, SIZES), version="python")
    content = {"data": np.asarray(pixels, order=order), "labels": labels.tolist()}
    (folder / "test_batch").write_bytes(pickle.dumps(content, protocol))
    assert np.array_equal(ten(tmp_path).X_test.reshape(6, -1), pixels)


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c + b"\0", lambda c: c[:0]])
def test_a_binary_file_of_broken_records_is_named(tmp_path, damage):
    folder = write_cifar_10(tmp_path, cifar_batches(10, SIZES, label=LABEL), version="binary")
    file = folder / "data_batch_3.bin"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ldp.InvalidArgument, match=r"data_batch_3.bin: .*whole records of 3073 bytes") as caught:
        ten(tmp_path)
    assert not shows(LABEL, everything_said(caught.value))


@pytest.mark.parametrize("version", ["binary", "python"])
def test_a_stranger_among_the_labels_is_said_of_the_whole_column(tmp_path, version):
    batches = cifar_batches(10, SIZES, label=LABEL)
    batches[2][1][3] = 99
    write_cifar_10(tmp_path, batches, version=version)
    with pytest.raises(ldp.InvalidLabels, match="some are not") as caught:
        ten(tmp_path)
    message = str(caught.value).replace(str(tmp_path), "")
    assert "data_batch" not in message and "99" not in message  # not even which part of the column
    said = everything_said(caught.value)
    assert not shows(LABEL, said) and "7, 99" not in said and "7 99" not in said


def test_cifar_100_needs_its_names(tmp_path):
    folder = write_cifar_100(tmp_path, cifar_batches(100, [9, 9]), version="binary")
    names = folder / "fine_label_names.txt"
    names.write_text("\n".join(FINE[:99]))
    with pytest.raises(ldp.InvalidArgument, match=r"fine_label_names.txt: .*100 fine class names"):
        hundred(tmp_path)
    names.unlink()
    with pytest.raises(ldp.InvalidArgument, match=r"cifar-100-binary \(lacks fine_label_names.txt\)"):
        hundred(tmp_path)
    folder = write_cifar_100(tmp_path, cifar_batches(100, [9, 9]), version="python")
    (folder / "meta").write_bytes(python_2({b"coarse_label_names": [b"one"]}))
    with pytest.raises(ldp.InvalidArgument, match=r"meta: .*100 fine class names"):
        hundred(tmp_path)


# ---- hostile pickles -------------------------------------------------------------------------------------------------


class Attack:
    def __init__(self, call, *arguments):
        self.how = call, arguments

    def __reduce__(self):
        return self.how


def attacks(marker):
    """Each would leave a marker file, if it were run."""
    command = f"touch {marker}"
    return {
        "os.system": pickle.dumps(Attack(os.system, command)),
        "protocol 0": pickle.dumps(Attack(os.system, command), 0),
        "protocol 2": pickle.dumps({b"data": Attack(os.system, command)}, 2),
        "eval": pickle.dumps({b"data": Attack(eval, f"open({str(marker)!r}, 'w')")}),
        "INST": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "OBJ": b"(cos\nsystem\nS'" + command.encode() + b"'\no.",
        "through numpy": b"cnumpy\nos.system\n(S'" + command.encode() + b"'\ntR.",
        "dotted": b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__init__\x93.",
        "after plain data": pickle.dumps([{"labels": [LABEL] * 9}, Attack(os.system, command)]),
        "codec": b"\x80\x02c_codecs\nencode\nX\x04\x00\x00\x00aaaaX\x04\x00\x00\x00zlib\x86R.",
        "state of a stand-in": b"\x80\x02c_codecs\nencode\nN}X\x03\x00\x00\x00abcK\x01s\x86b.",
        "state of a list": b"\x80\x02]}X\x03\x00\x00\x00abcK\x01sb.",
        "an extension": b"\x80\x02\x82\x01.",
        "a persistent id": b"Pabc\n.",
        "memo bomb": b"\x80\x02}r\xff\xff\xff\xff.",
        "not a dictionary": b"\x80\x02]q\x00.",
        "no end": b"\x80\x02}q\x00",
        "empty": b"",
        "no pickle": b"<html>",
    }


@pytest.mark.parametrize("kind", attacks("x"))
def test_a_hostile_pickle_runs_nothing_and_is_refused(tmp_path, kind):
    marker = tmp_path / "marker"
    folder = write_cifar_10(tmp_path, cifar_batches(10, SIZES), version="python")
    (folder / "data_batch_2").write_bytes(attacks(marker)[kind])
    with pytest.raises(ldp.InvalidArgument, match=r"data_batch_2: this pickle .* nothing in it was run") as caught:
        ten(tmp_path)
    assert not marker.exists()
    said = everything_said(caught.value)
    assert "touch" not in said and not shows(LABEL, said)


def test_the_attacks_are_real(tmp_path):
    marker = tmp_path / "marker"
    pickle.loads(attacks(marker)["os.system"])
    assert marker.exists()


class Described:
    """An array as a hostile pickle may describe it."""

    def __init__(self, *, shape=(2, 3072), dtype="uint8", content=bytes(6144)):
        self.state = (1, shape, np.dtype(dtype), False, content)

    def __reduce__(self):
        return (*np.empty(0, np.uint8).__reduce__()[:2], self.state)


WRONG_CONTENT = {
    "object array": {b"data": np.array([[None] * 3072] * 2), b"labels": [0, 1]},
    "float array": {b"data": np.zeros((2, 3072)), b"labels": [0, 1]},
    "wide array": {b"data": Described(dtype="<u2", content=bytes(12288)), b"labels": [0, 1]},
    "huge shape": {b"data": Described(shape=(2**40, 2**40)), b"labels": [0, 1]},
    "negative shape": {b"data": Described(shape=(-2, -3072)), b"labels": [0, 1]},
    "short content": {b"data": Described(content=b"abc"), b"labels": [0, 1]},
    "three dimensions": {b"data": np.zeros((2, 3, 1024), np.uint8), b"labels": [0, 1]},
    "list of rows": {b"data": [[0] * 3072] * 2, b"labels": [0, 1]},
    "no data": {b"labels": [0, 1]},
    "no labels": {b"data": np.zeros((2, 3072), np.uint8)},
    "fewer labels": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [LABEL]},
    "text labels": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [b"7", b"7"]},
    "boolean labels": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [True, False]},
    "large labels": {b"data": np.zeros((2, 3072), np.uint8), b"labels": [2**70, 0]},
    "array of labels": {b"data": np.zeros((2, 3072), np.uint8), b"labels": np.zeros((1, 2), np.uint8)},
}


@pytest.mark.parametrize("kind", WRONG_CONTENT)
def test_a_pickle_of_anything_but_bytes_and_integers_is_refused(tmp_path, kind):
    folder = write_cifar_10(tmp_path, cifar_batches(10, SIZES), version="python")
    (folder / "data_batch_1").write_bytes(python_2(WRONG_CONTENT[kind]))
    with pytest.raises(ldp.InvalidArgument, match=r"data_batch_1: (the file must hold|this pickle)") as caught:
        ten(tmp_path)
    assert not shows(LABEL, everything_said(caught.value))


def test_a_pickle_larger_than_any_of_cifars_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr("labeldp.datasets.pickles.LARGEST_FILE", 10)
    (tmp_path / "train").write_bytes(python_2({b"data": 1, b"labels": 2}))
    with pytest.raises(ldp.InvalidArgument, match="larger than any"):
        read(tmp_path / "train")


def test_records_of_cifar_100_begin_with_the_coarse_label():
    assert records(np.zeros((1, 3072)), [3], [17])[:3] == bytes([3, 17, 0])
