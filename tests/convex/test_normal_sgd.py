"""LP-Normal-SGD: against Algorithm 6 written out row by row, its spans and tables, its cost, its promise, what it refuses."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp import convex
from labeldp.budget import Guarantee
from labeldp.convex import Absolute, Ball, Box, GivenLoss, Hinge, Logistic, Simplex, Softmax, Squared, bounds
from labeldp.convex.linear import LinearLoss
from labeldp.convex.spans import OneTable, TablePerRow, orthonormal, span_of
from labeldp.errors import BudgetExhausted, InvalidArgument
from labeldp.mechanisms.normal import largest_squared_distance
from labeldp.randomness import InsecureBits
from labeldp.vault import NormalPass

N, D_FEATURES, K = 60, 3, 4
EPSILON, DELTA = "2", "1e-6"
COST = Guarantee.of(EPSILON, delta=DELTA)
UNEVEN = [0.1, 1.3, 2.0, 4.7]


def bent(w, X):
    """Gradients of log cosh of two sums less the class's two numbers: two directions; the third parameter does nothing."""
    aims = np.array([[0.0, 1.0], [1.0, -1.0], [0.3, 0.3], [-2.0, 0.5]])
    tops = np.stack([X[:, 0] * w[0] + X[:, 1] * w[1], X[:, 2] * w[0] - X[:, 0] * w[1]], axis=1)
    signs = np.tanh(tops[:, None] - aims)
    return np.stack(
        [
            signs[:, :, 0] * X[:, None, 0] + signs[:, :, 1] * X[:, None, 2],
            signs[:, :, 0] * X[:, None, 1] - signs[:, :, 1] * X[:, None, 0],
            0 * signs[:, :, 0],
        ],
        axis=2,
    ) / math.sqrt(2)


def everywhere(slope):
    """The same gradient for every row, class and w."""
    return GivenLoss(lambda _, X: np.full((len(X), K, 2), slope), 2, K, 1.0)


GIVEN = GivenLoss(bent, 3, K, 1.5)
LOSSES = {
    "softmax": Softmax(K, 1.0),
    "hinge": Hinge(K, 1.0),
    "squared": Squared(UNEVEN, 1.0),
    "evenly squared": Squared([1, 2, 3, 4, 5][:K], 1.0),
    "absolute": Absolute(UNEVEN, 1.0),
    "given": GIVEN,
}
SETS = {"ball": Ball(1.5), "box": Box(-1, 0.5), "simplex": Simplex(2.0)}


def problem(seed=0, n_rows=N, n_classes=K):
    """Rows of norms from 0 to 1, the first one 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, D_FEATURES))
    X *= np.linspace(0, 1, n_rows)[:, None] / np.linalg.norm(X, axis=1, keepdims=True)
    return X, rng.integers(n_classes, size=n_rows), rng


def vault_of(labels, classes=K, budget="8", delta="1e-4", bits=3, **options):
    return ldp.LabelVault(labels, classes=classes, budget=budget, delta=delta, bits=InsecureBits(bits), **options)


def span_for(loss, space=None, seed=0):
    space = space or Ball(1.5)
    p = loss.dimension(np.zeros((1, D_FEATURES)))
    return span_of(loss, 2 * loss.lipschitz(space, p), p, epsilon=EPSILON, delta=DELTA, seed=seed)


class Silent:
    """A pass without noise that answers for the given labels, and keeps what it was asked."""

    def __init__(self, labels, response):
        self.labels, self.response, self.asked = np.asarray(labels), response, []

    def answer(self, rows, table):
        self.response.checked(table, n_rows=len(rows), n_classes=table.shape[1])
        self.asked.append((rows, table))
        return table[np.arange(len(rows)), self.labels[rows]]


def steps(rows, x, cuts=None):
    return iter([(np.asarray(rows), x, [0, len(rows)] if cuts is None else cuts)])


# ---- the algorithm ---------------------------------------------------------------------------------------------------


def algorithm_6(X, labels, loss, space, fit, *, batches, noise, start=None):
    """The paper's lines with an SVD per row: noise[i] are the r whole numbers of the i-th row; rounding left out."""
    span, p = span_for(loss, space), loss.dimension(X)
    w = space.middle(p) if start is None else start
    for t, batch in enumerate(batches, start=1):
        estimates = []
        for i in batch:
            gradients = loss.gradients(w, X[i][None])[0]
            centred = gradients - gradients.mean(axis=0)
            furthest = max(np.linalg.norm(a - b) for a in centred for b in centred)
            _, s, basis = np.linalg.svd(centred, full_matrices=False)
            projection = basis[s > 1e-9].T @ basis[s > 1e-9]
            directions = noise_directions(span, loss, w, X[i], furthest)
            assert np.allclose(projection @ directions.T, directions.T, atol=1e-9), "noise leaves the span"
            estimates.append(gradients[labels[i]] + noise[i] @ directions)
        w = space.project(w - fit.scale / math.sqrt(t) * np.mean(estimates, axis=0))
    return w


def noise_directions(span, loss, w, x, furthest):
    """(r, p): what one lattice unit of every coordinate's noise does to the gradient. Orthogonal, and in proportion."""
    if isinstance(span, OneTable):
        directions = np.einsum("rm,d->rmd", span.back, x).reshape(len(span.back), -1)
        expected = float(span.response.grid) * np.linalg.norm(x) / loss.norm_bound
    else:
        linear, norm = isinstance(loss, LinearLoss), np.linalg.norm(x)
        vectors = loss.class_slopes(loss.scores(w, x[None])) if linear else loss.gradients(w, x[None])
        basis = orthonormal(vectors - vectors.mean(axis=1, keepdims=True), span.response.dimension)[0][0]
        if linear:
            basis = np.einsum("rm,d->rmd", basis, x / norm if norm else x).reshape(len(basis), -1)
        expected = float(span.response.grid) / span.sensitivity * furthest
        directions = basis * expected
    lengths = np.linalg.norm(directions, axis=1)
    assert ((np.abs(lengths - expected) < 2e-3 * expected + 1e-12) | (lengths < 1e-12)).all()
    return directions


@pytest.mark.parametrize("space", SETS.values(), ids=SETS.keys())
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_it_is_algorithm_6_with_the_same_noise(loss, space):
    """Exactly so in closed form; with a table per row up to rounding to the lattice, half a unit of it per coordinate."""
    X, labels, _ = problem()
    fit = convex.lp_normal_sgd(X, vault_of(labels), loss, space, EPSILON, DELTA)
    r = fit.response.dimension
    noise = fit.response.noise(N * r, InsecureBits(3)).reshape(N, r)
    expected = algorithm_6(X, labels, loss, space, fit, batches=[[i] for i in range(N)], noise=noise)
    exact = isinstance(span_for(loss), OneTable)
    assert fit.weights == pytest.approx(expected, abs=1e-9 if exact else 2e-3)
    assert space.contains(fit.weights) and fit.n_steps == N and not fit.averaged


def test_rows_order_batches_and_start_are_the_callers():
    """Within a batch the vault is asked in the order of the rows, whatever the order of the pass."""
    X, labels, rng = problem(2)
    loss, space = Softmax(K, 1.0), Ball(1.5)
    rows, order = np.arange(5, 45, 2), rng.permutation(20)
    start = space.project(rng.normal(size=K * D_FEATURES))
    fit = convex.lp_normal_sgd(
        X, vault_of(labels), loss, space, EPSILON, DELTA, rows=rows, order=order, start=start, batch_size=3
    )
    noise = np.zeros((N, K - 1))
    noise[rows] = fit.response.noise(20 * (K - 1), InsecureBits(3)).reshape(20, -1)  # all 20 are asked for at once
    batches = np.split(rows[order], (np.arange(1, 7) * 20) // 7)
    expected = algorithm_6(X, labels, loss, space, fit, batches=batches, noise=noise, start=start)
    assert fit.n_steps == 7 and fit.weights == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("loss", [Hinge(K, 1.0), GIVEN], ids=["hinge", "given"])
def test_a_batch_with_a_table_per_row_is_the_mean_of_its_rows(loss):
    X, labels, rng = problem(3)
    order = rng.permutation(N)
    fit = convex.lp_normal_sgd(X, vault_of(labels), loss, Ball(1.5), EPSILON, DELTA, order=order, batch_size=10)
    r, batches = fit.response.dimension, [np.sort(part) for part in np.split(order, 6)]
    noise = np.zeros((N, r))
    noise[np.concatenate(batches)] = fit.response.noise(N * r, InsecureBits(3)).reshape(N, r)
    expected = algorithm_6(X, labels, loss, Ball(1.5), fit, batches=batches, noise=noise)
    assert fit.weights == pytest.approx(expected, abs=2e-3)


def test_the_mean_of_the_iterates_is_what_is_asked_for():
    X, labels, _ = problem(4)
    options = {"loss": Softmax(K, 1.0), "parameter_set": Ball(1.5), "epsilon": EPSILON, "delta": DELTA}
    fit = convex.lp_normal_sgd(X, vault_of(labels), average=True, **options)
    r = fit.response.dimension
    noise = fit.response.noise(N * r, InsecureBits(3)).reshape(N, r)
    iterates = [np.zeros(K * D_FEATURES)] + [
        algorithm_6(X, labels, Softmax(K, 1.0), Ball(1.5), fit, batches=[[i] for i in range(n)], noise=noise)
        for n in range(1, N)
    ]
    assert fit.weights == pytest.approx(np.mean(iterates, axis=0), abs=1e-9)
    assert fit.bound() < convex.lp_normal_sgd(X, vault_of(labels), **options).bound()
    assert "mean of the iterates" in repr(fit) and "NOT PRIVATE" in repr(fit) and "analytic Gaussian" in repr(fit)


def test_large_batches_are_asked_in_parts(monkeypatch):
    X, labels, _ = problem(5)
    whole, parts = [], []
    for found, cells in ((whole, 2**20), (parts, 40)):
        monkeypatch.setattr("labeldp.convex.losses.CELLS", cells)
        for loss in (Softmax(K, 1.0), Hinge(K, 1.0)):
            fit = convex.lp_normal_sgd(X, vault_of(labels), loss, Ball(1.5), EPSILON, DELTA, batch_size=20)
            found.append(fit.weights)
    assert whole[0] == pytest.approx(parts[0]) and whole[1] == pytest.approx(parts[1])


# ---- spans and tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Softmax(2, 2.0), Softmax(7, 0.3), Logistic(5.0), Squared([0, 9], 1.0)], ids=repr)
def test_in_closed_form_the_table_is_undone_exactly_and_its_own_largest_distance_is_declared(loss):
    X, labels, rng = problem(1, n_classes=loss.n_classes)
    X *= loss.norm_bound
    span, w = span_for(loss), rng.normal(size=loss.dimension(X))
    assert isinstance(span, OneTable) and span.response.dimension == loss.n_classes - 1
    assert span.response.squared_sensitivity == largest_squared_distance(span.table[None])
    grid = float(span.response.grid)
    assert span.noise == pytest.approx(span.response.dimension * span.response.variance * grid**2, rel=0.01)
    for i in range(N):
        opened = Silent(labels, span.response)
        (estimate,) = span.estimates(opened, steps([i], X[i : i + 1]))
        assert estimate(w) == pytest.approx(loss.gradients(w, X[i][None])[0, labels[i]], abs=1e-11)
        assert (opened.asked[0][1] == span.table).all(), "one table for all rows, whatever w"


def test_the_closed_form_is_used_where_rounding_does_not_put_it_out_of_shape():
    assert isinstance(span_for(Softmax(50, 1.0)), OneTable)
    assert isinstance(span_for(Squared([1, 2, 3, 4, 5], 1.0)), OneTable), "five steps of 512 units"
    assert isinstance(span_for(Squared(UNEVEN, 1.0)), TablePerRow)
    for loss in (Hinge(K, 1.0), Absolute(UNEVEN, 1.0), GIVEN):
        assert isinstance(span_for(loss), TablePerRow)


def per_row(loss, dimension=K - 1, seed=0):
    closed = span_for(loss)
    response = ldp.mechanisms.NormalResponse.covering(
        math.sqrt(2) * loss.norm_bound, epsilon=EPSILON, delta=DELTA, dimension=dimension
    )
    return closed, TablePerRow(loss, math.sqrt(2) * loss.norm_bound, response, np.random.default_rng(seed))


def test_the_closed_form_is_the_general_one_for_softmax():
    """Without noise the same gradients; and noise of the same law: in the span, alike in all its directions, in proportion."""
    X, labels, rng = problem(6)
    loss = Softmax(K, 1.0)
    closed, general = per_row(loss)
    w = rng.normal(size=K * D_FEATURES)
    found = []
    for span in (closed, general):
        (estimate,) = span.estimates(Silent(labels, span.response), steps(range(N), X))
        found.append(estimate(w))
    assert found[0] == pytest.approx(found[1], abs=2 * float(general.response.grid))
    x = X[40]
    closed_noise, general_noise = (
        noise_directions(span, loss, w, x, math.sqrt(2) * np.linalg.norm(x)) * span.response.sigma
        for span in (closed, general)
    )
    covariances = closed_noise.T @ closed_noise, general_noise.T @ general_noise
    assert covariances[0] == pytest.approx(covariances[1], abs=5e-3 * np.abs(covariances[1]).max())
    assert closed.noise == pytest.approx(general.noise, rel=5e-3)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_without_noise_an_estimate_is_the_true_classs_gradient_up_to_half_a_lattice_unit_a_coordinate(loss):
    X, labels, rng = problem(7)
    span, w = span_for(loss), Ball(1.5).project(rng.normal(size=loss.dimension(X)))
    rounding = float(span.response.grid) / 2 * math.sqrt(span.response.dimension)
    for i in range(N):
        (estimate,) = span.estimates(Silent(labels, span.response), steps([i], X[i : i + 1]))
        wrong = np.linalg.norm(estimate(w) - loss.gradients(w, X[i][None])[0, labels[i]])
        assert wrong <= rounding * 1.01


@pytest.mark.parametrize("loss", [Hinge(K, 1.0), Squared(UNEVEN, 1.0), GIVEN], ids=["hinge", "squared", "given"])
def test_over_the_public_offsets_rounding_has_no_bias(loss):
    """40,000 copies of a row without noise: errors are uniform, within 7 deviations of mean 0 (chance below 1e-11 each)."""
    X, labels, rng = problem(8)
    span, copies = span_for(loss), 40_000
    w = Ball(1.5).project(rng.normal(size=loss.dimension(X)))
    for i in (20, 59):
        x, label = np.repeat(X[i : i + 1], copies, axis=0), np.full(copies, labels[i])
        opened = Silent(label, span.response)
        (estimate,) = span.estimates(opened, steps(range(copies), x))
        wrong = estimate(w) - loss.gradients(w, X[i][None])[0, labels[i]]
        deviation = float(span.response.grid) / math.sqrt(12 * copies)
        assert np.linalg.norm(wrong) < 7 * deviation * math.sqrt(span.response.dimension) + 1e-9
        tables = np.concatenate([table for _, table in opened.asked])
        constant = float(np.ptp(tables, axis=1).max()) == 0
        assert constant or len(np.unique(tables[:, labels[i]], axis=0)) > 1, "the offsets move the lattice"


@pytest.mark.parametrize("loss", [*LOSSES.values(), Logistic(1.0)], ids=[*LOSSES.keys(), "logistic"])
def test_answers_are_unbiased_with_no_more_noise_than_the_moment_says(loss):
    """20,000 copies of a row: the mean strays by more than 7 deviations with probability below 1e-11 in each coordinate."""
    X, labels, rng = problem(9, n_classes=loss.n_classes)
    span, copies, i = span_for(loss), 20_000, 59
    w = Ball(1.5).project(rng.normal(size=loss.dimension(X)))
    vault = vault_of(np.full(copies, labels[i]), classes=loss.n_classes, bits=11)
    x = np.repeat(X[i : i + 1], copies, axis=0)
    with vault.normal_pass(span.response) as opened:
        estimates = span.estimates(opened, steps(range(copies), x, cuts=list(range(0, copies + 1, 100))))
        means = np.array([estimate(w) for estimate in estimates])
    true = loss.gradients(w, X[i][None])[0, labels[i]]
    assert np.linalg.norm(means.mean(axis=0) - true) < 7 * math.sqrt(span.noise / copies)
    moment = 100 * float(((means - true) ** 2).sum(axis=1).mean())
    assert moment <= 1.5 * span.noise
    if isinstance(span, OneTable):
        assert moment == pytest.approx(span.noise, rel=0.5), "a row of the full norm has all of it"


@pytest.mark.parametrize("loss", [*LOSSES.values(), Logistic(1.0)], ids=[*LOSSES.keys(), "logistic"])
def test_nothing_outside_the_span_is_noisy(loss):
    X, labels, rng = problem(10, n_classes=loss.n_classes)
    span, w = span_for(loss), Ball(1.5).project(rng.normal(size=loss.dimension(X)))
    with vault_of(labels, classes=loss.n_classes).normal_pass(span.response) as opened:
        for i in range(N):
            (estimate,) = span.estimates(opened, steps([i], X[i : i + 1]))
            gradients = loss.gradients(w, X[i][None])[0]
            mean = gradients.mean(axis=0)
            _, s, basis = np.linalg.svd(gradients - mean, full_matrices=False)
            noisy = estimate(w) - mean
            inside = basis[s > 1e-12].T @ (basis[s > 1e-12] @ noisy)
            assert np.abs(noisy - inside).max() < 1e-9


def test_rows_whose_label_does_not_matter_have_no_noise():
    """A row of zeros, and gradients that are the same for all classes."""
    X, labels, _ = problem()
    fit = convex.lp_normal_sgd(np.zeros_like(X), vault_of(labels), Softmax(K, 1.0), Ball(1.5), EPSILON, DELTA)
    assert (fit.weights == 0).all()
    same = everywhere(0.5)
    fit = convex.lp_normal_sgd(X, vault_of(labels), same, Box(-1, 1), EPSILON, DELTA)
    assert fit.weights == pytest.approx(np.clip(-0.5 * fit.step_sizes.sum(), -1, 1) * np.ones(2))


def test_a_basis_is_orthonormal_and_leaves_out_directions_that_are_not_there():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3, 5, 40))
    vectors[1, :, 2:] = 0  # two directions
    vectors[2] = 0
    vectors -= vectors.mean(axis=1, keepdims=True)
    basis, coordinates = orthonormal(vectors, 4)
    assert coordinates @ basis == pytest.approx(vectors)
    grams = basis @ basis.swapaxes(1, 2)
    assert grams[0] == pytest.approx(np.eye(4)) and grams[1] == pytest.approx(np.diag([1.0, 1, 0, 0]))
    assert (basis[2] == 0).all() and (coordinates[2] == 0).all()


@pytest.mark.parametrize("pattern", [(1, -2, 1), (1, 0, -1), (-1, 3, -3, 1), (1, -1, -1, 1), None], ids=str)
def test_a_basis_and_its_coordinates_keep_their_signs_whatever_lapack_prefers(pattern, monkeypatch):
    """Another LAPACK: any eigenvector may have the other sign, and all have other last bits."""
    rng, eigh = np.random.default_rng(0), np.linalg.eigh
    vectors = rng.normal(size=(200, 4, 5))
    if pattern is not None:
        vectors = np.array(pattern)[:, None] * vectors[:, :1]
    vectors -= vectors.mean(axis=1, keepdims=True)

    def another(matrices):
        values, u = eigh(matrices)
        return values, u * rng.choice([-1, 1], size=(len(u), 1, u.shape[2])) + 1e-13 * rng.normal(size=u.shape)

    basis, coordinates = orthonormal(vectors, vectors.shape[1] - 1)
    monkeypatch.setattr(np.linalg, "eigh", another)
    found = orthonormal(vectors, vectors.shape[1] - 1)
    assert found[0] == pytest.approx(basis, abs=1e-9) and found[1] == pytest.approx(coordinates, abs=1e-9)


@given(seed=st.integers(0, 2**32), scale=st.integers(-320, 0), spread=st.integers(0, 12), rank=st.integers(1, 5))
@example(seed=1, scale=-161, spread=0, rank=5)
@example(seed=1, scale=-162, spread=0, rank=5)
def test_no_row_is_refused_however_small_or_flat_its_gradients_are(seed, scale, spread, rank):
    """A pass is charged for before its tables are known: every table must keep within what was declared, and say the truth."""
    rng, response = np.random.default_rng(seed), span_for(Hinge(6, 1.0)).response
    span = TablePerRow(Hinge(6, 1.0), 2 * math.sqrt(2), response, rng)
    directions = rng.normal(size=(rank, 8)) * np.logspace(0, -spread, rank)[:, None]
    vectors = (rng.normal(size=(50, 6, rank)) @ directions) * 10.0**scale
    labels = rng.integers(6, size=50)
    found = span.estimated(vectors, partial(Silent(labels, response).answer, np.arange(50)))
    size = np.linalg.norm(vectors, axis=2).max()
    assert np.abs(found - vectors[np.arange(50), labels]).max() <= size * 3e-3 + 1e-139


# ---- its cost --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Softmax(K, 1.0), Hinge(K, 1.0)], ids=["one table", "a table per row"])
def test_every_row_is_charged_once_and_answered_once(loss, monkeypatch):
    X, labels, rng = problem()
    vault, asked, original = vault_of(labels, budget="2", delta="1e-6"), [], NormalPass.answer

    def watched(self, rows, table):
        assert vault.spent() == COST, "charged before the first draw"
        asked.extend(rows.tolist())
        return original(self, rows, table)

    monkeypatch.setattr(NormalPass, "answer", watched)
    order = rng.permutation(N)
    fit = convex.lp_normal_sgd(X, vault, loss, Ball(1.5), EPSILON, DELTA, order=order, batch_size=7)
    assert sorted(asked) == list(range(N)) and vault.spent() == COST
    assert len(vault.certificate()["queries"]) == 1 and fit.receipt.labels_charged == N
    with pytest.raises(BudgetExhausted):
        convex.lp_normal_sgd(X, vault, loss, Ball(1.5), EPSILON, DELTA)
    assert len(asked) == N


def test_rows_without_a_label_are_left_out_and_may_be_of_any_size():
    X, labels, _ = problem()
    vault = vault_of([None if i % 5 == 0 else int(label) for i, label in enumerate(labels)], missing="public")
    X[5] *= 70
    fit = convex.lp_normal_sgd(X, vault, Softmax(K, 1.0), Ball(1.5), EPSILON, DELTA)
    assert fit.n_steps == 48 == fit.receipt.labels_charged


def test_a_sealed_column_is_a_holder_too():
    X, labels, _ = problem()
    vault = vault_of(labels)
    fit = convex.lp_normal_sgd(X[10:30], vault.sealed()[np.arange(10, 30)], Softmax(K, 1.0), Ball(1.5), EPSILON, DELTA)
    assert fit.n_steps == 20 and vault.spent(rows=np.arange(10)) == Guarantee(0) and vault.spent(rows=[10]) == COST


# ---- its promise -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss", [Softmax(3, 1.0), Hinge(3, 1.0), Absolute([0, 1, 2], 1.0)], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize("options", [{}, {"average": True, "batch_size": 8}], ids=str)
def test_the_mean_excess_risk_lies_below_the_bound_and_below_that_of_the_start(loss, options):
    """Six points with known label chances: the population risk is a sum, its minimum that of a long run of steps on it."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(6, 4))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    chances, space, found = rng.dirichlet(np.full(3, 0.3), size=6), Ball(1.0), []
    for seed in range(3):
        which = rng.integers(6, size=1000)
        labels = (rng.random((1000, 1)) > np.cumsum(chances[which], axis=1)).sum(axis=1).clip(0, 2)
        vault = vault_of(labels, classes=3, bits=seed)
        fit = convex.lp_normal_sgd(points[which], vault, loss, space, "8", "1e-5", **options)
        found.append(fit.weights)

    def risk(w):
        return float((chances * loss.values(w, points)).sum(axis=1).mean())

    v, least = space.middle(loss.dimension(points)), math.inf
    for t in range(1, 1000):
        least = min(least, risk(v))
        v = space.project(v - 0.5 / math.sqrt(t) * loss.gradient(v, points, chances))
    mean = np.mean([risk(w) for w in found]) - least
    assert -1e-3 < mean < min(fit.bound(), risk(space.middle(len(v))) - least)


def test_the_bound_is_that_of_the_proposition():
    X, labels, _ = problem()
    general = convex.lp_normal_sgd(X, vault_of(labels), Hinge(K, 1.0), Ball(1.5), EPSILON, DELTA)
    DL = {"diameter": 3.0, "lipschitz": math.sqrt(2)}
    assert general.bound() == pytest.approx(bounds.lp_normal_sgd(N, K, EPSILON, DELTA, **DL))
    G = math.sqrt(2 + (K - 1) * general.sigma**2)
    assert general.step_sizes == pytest.approx(3.0 / (G * np.sqrt(np.arange(1, N + 1))), rel=1e-6)
    closed = convex.lp_normal_sgd(X, vault_of(labels), Softmax(K, 1.0), Ball(1.5), EPSILON, DELTA)
    promised = bounds.lp_normal_sgd(N, K, EPSILON, DELTA, sensitivity=math.sqrt(2), **DL)
    assert 0.99 * promised < closed.bound() <= promised
    batches = convex.lp_normal_sgd(X, vault_of(labels), Hinge(K, 1.0), Ball(1.5), EPSILON, DELTA, batch_size=10)
    assert batches.moment == pytest.approx(math.sqrt(2 + (G**2 - 2) / 10), rel=1e-6)


def test_the_bound_grows_as_the_root_of_the_classes_where_lp_rr_sgds_grows_with_them():
    DL = {"diameter": 2.0, "lipschitz": 1.0}
    normal = [bounds.lp_normal_sgd(10**6, k, "1", "1e-6", **DL) for k in (101, 401)]
    response = [bounds.lp_rr_sgd(10**6, k, "1", steps="exact", **DL) for k in (101, 401)]
    assert normal[1] / normal[0] == pytest.approx(2, rel=0.02) and response[1] / response[0] > 3.5
    assert normal[1] < response[1] and normal[0] > response[0]
    with pytest.raises(InvalidArgument, match="delta must be from 1e-18 to below 1, got 0"):
        bounds.lp_normal_sgd(100, 3, "1", 0, **DL)


# ---- what it refuses, at no cost -------------------------------------------------------------------------------------

GOOD = {"loss": Softmax(K, 1.0), "parameter_set": Ball(1.5), "epsilon": EPSILON, "delta": DELTA}


def with_nan(X):
    X[3, 1] = math.nan
    return X


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"X": lambda X: X * 1.1}, "at most norm_bound=1; 6 of 60 are longer"),
        ({"X": with_nan}, "X must be finite; 1 of its 60 rows"),
        ({"X": lambda X: X[:-1]}, r"one row per row of the vault \(60\), got 59"),
        ({"loss": Softmax(3, 1.0)}, r"the classes of the labels \(4\), got one for 3"),
        ({"parameter_set": 1.5}, "must be of labeldp.convex"),
        ({"parameter_set": Ball(1.0, centre=[0.0, 0.0])}, r"one entry per parameter \(12\), got 2"),
        ({"start": np.full(12, 1.0)}, "start must lie in the parameter set"),
        ({"order": np.zeros(60, dtype=int)}, "a row that is used twice voids the theorem"),
        ({"rows": [3, 3, 4]}, "strictly increasing"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"epsilon": 0}, "epsilon must be > 0"),
        ({"delta": 0}, "delta must be from 1e-18 to below 1, got 0"),
        ({"delta": 2}, "delta must be from 1e-18 to below 1, got 2"),
        ({"delta": "1e-19"}, "delta must be from 1e-18 to below 1, got 1e-19"),
        ({"loss": everywhere(1.0)}, "lipschitz_constant=1 long, got 1.41421"),
        ({"loss": everywhere(math.nan)}, "return finite numbers"),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_spent(change, said):
    X, labels, _ = problem()
    vault = vault_of(labels)
    given = GOOD | {name: value for name, value in change.items() if name != "X"}
    with pytest.raises(InvalidArgument, match=said):
        convex.lp_normal_sgd(change.get("X", lambda X: X)(X), vault, **given)
    assert vault.spent() == Guarantee(0)


def test_a_vault_without_a_delta_budget_refuses():
    X, labels, _ = problem()
    vault = ldp.LabelVault(labels, classes=K, budget="8")
    with pytest.raises(BudgetExhausted, match=r"this budget has no delta.*LabelVault\(\.\.\., delta='1e-6'\)"):
        convex.lp_normal_sgd(X, vault, **GOOD)
    assert vault.spent() == Guarantee(0)


def test_a_delta_that_is_used_up_is_not_a_budget_without_one():
    X, labels, _ = problem()
    vault = ldp.LabelVault(labels, classes=K, budget="20", delta=DELTA)
    convex.lp_normal_sgd(X, vault, **GOOD)
    with pytest.raises(BudgetExhausted) as refused:
        convex.lp_normal_sgd(X, vault, **GOOD)
    assert "has no delta" not in str(refused.value)


def test_labels_are_no_vault():
    X, labels, _ = problem()
    with pytest.raises(InvalidArgument, match="vault must be a LabelVault"):
        convex.lp_normal_sgd(X, labels, **GOOD)


def test_gradients_that_grow_too_long_during_the_pass_stop_it_and_the_rows_stay_charged():
    def growing(w, X):
        signs = np.array([1.0, -1.0, 1.0, -1.0])[:, None]
        return np.broadcast_to(np.where(w == 0, 0.5, 5.0) * signs, (len(X), K, 2)) / math.sqrt(2)

    X, labels, _ = problem()
    vault = vault_of(labels)
    with pytest.raises(InvalidArgument, match=r"at most lipschitz_constant=1 long, got 5.*stay charged"):
        convex.lp_normal_sgd(X, vault, GivenLoss(growing, 2, K, 1.0), Ball(1.5), EPSILON, DELTA)
    assert vault.spent() == COST
