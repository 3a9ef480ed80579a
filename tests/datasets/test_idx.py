import gzip
import struct

import numpy as np
import pytest
from published import everything_said, idx, idx_files, images, shows, write_idx

import labeldp as ldp
from labeldp import datasets

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
LABEL = 7


def load(root, name="mnist"):
    return datasets.load(name, data_dir=root)


def mirrored(stem):
    return stem.replace("-idx", ".idx")


@pytest.mark.parametrize("rename", [str, mirrored], ids=["official", "mirrored"])
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "kmnist"])
def test_every_way_of_writing_idx_reads_the_same(tmp_path, name, zipped, rename):
    files = idx_files()
    data = load(write_idx(tmp_path, name, files, zipped=zipped, rename=rename), name)
    assert data.name == name and data.n_rows == 12
    assert data.X.dtype == np.uint8 and np.array_equal(data.X, files[IMAGES][:, None])
    assert np.array_equal(data.X_test, files["t10k-images-idx3-ubyte"][:, None])
    assert data.test_labels.dtype == np.int64 and data.test_labels.tolist() == [0, 1, 2, 3]
    assert data.unprotected().label_numbers.tolist() == [LABEL] * 12
    assert type(data.X) is np.ndarray and data.X.flags.writeable  # torch.from_numpy warns of read-only arrays


def test_the_classes_are_the_publishers():
    from labeldp.datasets.idx import CLASSES

    assert CLASSES["mnist"] == CLASSES["kmnist"] == tuple(range(10))
    assert CLASSES["fashion-mnist"][0] == "T-shirt/top" and CLASSES["fashion-mnist"][9] == "Ankle boot"
    assert len(set(CLASSES["fashion-mnist"])) == 10


def test_a_gzipped_file_without_its_ending_and_a_plain_one_with_it_are_read_for_what_they_are(tmp_path):
    write_idx(tmp_path, "mnist", idx_files(), zipped=True)
    for file in (tmp_path / "mnist").glob("train-*"):
        file.rename(file.with_suffix(""))
    for file in (tmp_path / "mnist").glob("t10k-*"):
        file.write_bytes(gzip.decompress(file.read_bytes()))
    assert load(tmp_path).n_rows == 12


def test_writing_into_mapped_features_leaves_the_file_alone(tmp_path):
    data = load(write_idx(tmp_path, "mnist", idx_files()))
    before = data.X.copy()
    data.X[:] = 0
    assert np.array_equal(load(tmp_path).X, before)


def cut(content):
    return content[:-1]


def lengthen(content):
    return content + b"\0"


BREAKAGES = {
    "cut": (cut, "cut short"),
    "longer": (lengthen, "longer than its header says"),
    "header cut": (lambda content: content[:6], "cut short"),
    "empty": (lambda content: content[:0], "does not begin like one"),
    "other file": (lambda content: b"PK" + content[2:], "does not begin like one"),
    "other type": (lambda content: content[:2] + b"\x0d" + content[3:], "must hold unsigned bytes"),
    "no rows": (lambda content: content[:4] + bytes(4) + content[8:], "says that it is empty"),
    "huge claim": (lambda content: content[:4] + b"\xff" * 4 + content[8:], "cut short"),
}


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("stem", [IMAGES, LABELS, "t10k-labels-idx1-ubyte"])
@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_damaged_file_is_named_and_not_quoted(tmp_path, breakage, stem, zipped):
    damage, words = BREAKAGES[breakage]
    files = idx_files(label=LABEL)
    write_idx(tmp_path, "mnist", files | {stem: damage(idx(files[stem]))}, zipped=zipped)
    with pytest.raises(ldp.InvalidArgument, match=words) as caught:
        load(tmp_path)
    assert stem in str(caught.value) and "publisher" in str(caught.value)
    assert not shows(LABEL, everything_said(caught.value))


@pytest.mark.parametrize(
    "damage", [cut, lambda c: c[: len(c) // 2], lambda c: c[:-8] + bytes(4) + c[-4:], lambda c: c[:12]]
)
def test_a_damaged_gzip_file_is_named(tmp_path, damage):
    write_idx(tmp_path, "mnist", idx_files(), zipped=True)
    file = tmp_path / "mnist" / f"{LABELS}.gz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ldp.InvalidArgument, match="damaged or cut short") as caught:
        load(tmp_path)
    assert file.name in str(caught.value) and not shows(LABEL, everything_said(caught.value))


def test_swapped_files_are_told(tmp_path):
    files = idx_files()
    write_idx(tmp_path, "mnist", files | {IMAGES: files[LABELS], LABELS: files[IMAGES]})
    with pytest.raises(ldp.InvalidArgument, match=r"must hold images .* but holds labels .* swapped") as caught:
        load(tmp_path)
    assert not shows(LABEL, everything_said(caught.value))
    write_idx(tmp_path, "mnist", files | {LABELS: files[IMAGES]})
    with pytest.raises(ldp.InvalidArgument, match=r"must hold labels .* but holds images .* swapped"):
        load(tmp_path)
    write_idx(tmp_path, "mnist", files | {LABELS: files[LABELS].reshape(3, 4)})
    with pytest.raises(ldp.InvalidArgument, match="but holds 2 dimensions"):
        load(tmp_path)


def test_images_and_labels_must_be_as_many(tmp_path):
    write_idx(tmp_path, "mnist", idx_files() | {LABELS: np.full(11, LABEL, np.uint8)})
    with pytest.raises(ldp.InvalidArgument, match=r"12 images but .*11 labels.*same archive") as caught:
        load(tmp_path)
    assert IMAGES in str(caught.value) and LABELS in str(caught.value)
    assert not shows(LABEL, everything_said(caught.value))


def test_images_must_have_the_published_size(tmp_path):
    write_idx(tmp_path, "mnist", idx_files() | {IMAGES: images(12, shape=(27, 28))})
    with pytest.raises(ldp.InvalidArgument, match=r"28 x 28 pixels, got \(27, 28\)"):
        load(tmp_path)


def test_a_stranger_among_the_labels_is_said_of_the_whole_column(tmp_path):
    stranger = np.full(12, LABEL, np.uint8)
    stranger[5] = 99
    write_idx(tmp_path, "mnist", idx_files() | {LABELS: stranger})
    with pytest.raises(
        ldp.InvalidLabels, match="labels must all be among the declared classes; some are not"
    ) as caught:
        load(tmp_path)
    message = str(caught.value).replace(str(tmp_path), "")
    assert LABELS in message and "99" not in message and "5" not in message
    said = everything_said(caught.value)
    assert not shows(LABEL, said) and "7, 99" not in said and "7 99" not in said


def test_a_claim_of_more_than_gzip_can_hold_asks_for_no_memory(tmp_path):
    bomb = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**31, 28, 28)
    write_idx(tmp_path, "mnist", idx_files() | {IMAGES: bomb}, zipped=True)
    with pytest.raises(ldp.InvalidArgument, match="cut short"):
        load(tmp_path)
