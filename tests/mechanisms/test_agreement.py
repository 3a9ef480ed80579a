import numpy as np
import pytest

import labeldp as ldp
from labeldp.mechanisms.aggregate import AT_ONCE, words_reserved
from labeldp.mechanisms.agreement import Agreement
from labeldp.randomness import InsecureBits, Reserved


def test_accuracy_against_true_labels_is_answered_with_noise_and_a_charge():
    labels = np.arange(1_000) % 4
    vault = ldp.LabelVault(labels, classes=4, budget="1", trust="curator")
    answer = vault.agreement(np.zeros(1_000, dtype=int), epsilon="0.5")
    assert abs(answer.count - 250) < 60  # 30 scales: false alarm below 1e-12
    assert answer.share == answer.count / 1_000
    assert vault.spent().epsilon == "0.5"


def test_predictions_are_classes_one_per_row():
    vault = ldp.LabelVault(["a", "b"], classes=["a", "b"], budget="1", trust="curator")
    for wrong in (["a"], ["a", "c"], [0, 1], "ab", None):
        with pytest.raises(ldp.InvalidArgument):
            vault.agreement(wrong, epsilon="1")
    assert vault.spent().epsilon == "0"
    assert 0 <= vault.agreement(["a", "b"], epsilon="1").share <= 1


class Counting:
    """Counts the words that are taken of it."""

    def __init__(self):
        self.bits, self.taken = InsecureBits(0), 0

    def words(self, count):
        self.taken += count
        return self.bits.words(count)


@pytest.mark.parametrize("epsilon", ["0.001", "1", "20"])
@pytest.mark.parametrize("count", [0, 1, 7, AT_ONCE + 5])
def test_how_many_random_words_are_taken_tells_nothing_of_the_noise(epsilon, count):
    taken, noise = set(), []
    for _ in range(20 if count > 7 else 400):
        bits = Counting()
        bits.bits = InsecureBits(len(noise))
        noise.append(tuple(Agreement(epsilon).noisy(np.zeros(count, dtype=np.int64), bits)))
        taken.add(bits.taken)
    whole, rest = divmod(count, AT_ONCE)
    assert taken == {whole * words_reserved(AT_ONCE) + (words_reserved(rest) if rest else 0)}
    assert count == 0 or epsilon == "20" or len(set(noise)) > 1


def test_words_that_are_reserved_are_those_of_the_source_in_order_and_more_follow():
    source, same = InsecureBits(3), InsecureBits(3)
    first, later = same.words(10), same.words(4)
    reserved = Reserved(source, 10)
    assert reserved.words(3).tolist() == first[:3].tolist() and reserved.words(6).tolist() == first[3:9].tolist()
    assert reserved.words(4).tolist() == later.tolist()  # the tenth is left: a request is of one piece
    assert reserved.words(1).tolist() == first[9:].tolist()
    assert not reserved._words.any()
