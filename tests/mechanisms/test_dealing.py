import numpy as np

from labeldp.mechanisms.dealing import Dealing, new_key


def splitmix64(state):
    """The published finaliser, one number at a time."""
    z = state % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_noise_is_the_documented_hash():
    key, n_classes, rows = 2**63 + 12345, 5, np.array([0, 3, 1_000_000])
    dealing = Dealing(key, rows)
    noise = dealing.exponentials(dealing.words(n_classes))
    for place, row in enumerate(rows.tolist()):
        for label in range(n_classes):
            word = splitmix64(key + (row * 3 + label // 2 + 1) * 0x9E3779B97F4A7C15)
            v = word >> 32 if label % 2 else word & 0xFFFFFFFF
            assert np.isclose(noise[place, label], -np.log((v + 0.5) / 2**32), rtol=1e-5, atol=1e-6)


def test_key_zero_means_no_noise():
    silent = Dealing(0, np.arange(3))
    assert (silent.exponentials(silent.words(4)) == 1).all()


def test_noise_looks_exponential():
    """Mean and variance of 10^6 draws, each within 6 standard errors (false alarm 2e-9)."""
    dealing = Dealing(new_key(), np.arange(10_000))
    noise = dealing.exponentials(dealing.words(100)).astype(np.float64)
    assert abs(noise.mean() - 1) < 6e-3 and abs(noise.var() - 1) < 6 * np.sqrt(8) * 1e-3
    assert noise.min() >= 0


def test_fresh_keys_differ():
    assert len({new_key() for _ in range(100)}) == 100
