"""LP-RR-SGD: against Algorithm 5 written out row by row, its cost, its promise, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

import labeldp as ldp
from labeldp import convex
from labeldp.convex import Absolute, Ball, Box, GivenLoss, Hinge, Logistic, Simplex, Softmax, Squared, bounds
from labeldp.errors import BudgetExhausted, InvalidArgument, NotIdentifiable
from labeldp.randomness import InsecureBits

N, D_FEATURES, K = 60, 3, 4
LOSSES = {
    "softmax": Softmax(K, 1.0),
    "hinge": Hinge(K, 1.0),
    "squared": Squared([1, 2, 3, 4], 1.0),
    "absolute": Absolute([1, 2, 3, 4], 1.0),
}
SETS = {"ball": Ball(1.5), "box": Box(-1, 0.5), "simplex": Simplex(2.0)}


def problem(seed=0, n_rows=N, n_classes=K):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, D_FEATURES))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, rng.integers(n_classes, size=n_rows), rng


def vault_of(labels, classes=K, budget="8", **options):
    return ldp.LabelVault(labels, classes=classes, budget=budget, bits=InsecureBits(3), **options)


def algorithm_5(X, release, loss, space, epsilon, *, batches, k=K, start=None):
    """The paper's lines, one row at a time, from e^epsilon as a float."""
    e, dimension = math.exp(epsilon), loss.dimension(X)
    D, L = space.diameter(dimension), loss.lipschitz(space, dimension)
    w = space.middle(dimension) if start is None else start
    candidates = release.groups.assignment(np.arange(len(release))) >= 0
    for t, batch in enumerate(batches, start=1):
        estimates = []
        for i in batch:
            grads = loss.gradients(w, X[release.rows[i]][None])[0]
            g = grads[release.label_numbers[i]]
            estimates.append(
                (e + k - 1) / (e - 1) * (g - sum(grads[y] for y in np.flatnonzero(candidates[i])) / (e + k - 1))
            )
        eta = D * epsilon / (6 * k * L * math.sqrt(t))
        w = space.project(w - eta * np.mean(estimates, axis=0))
    return w


@pytest.mark.parametrize("space", SETS.values(), ids=SETS.keys())
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_it_is_algorithm_5(loss, space):
    X, labels, _ = problem()
    fit = convex.lp_rr_sgd(X, vault_of(labels), loss, space, "0.5")
    expected = algorithm_5(X, fit.release, loss, space, 0.5, batches=[[i] for i in range(N)])
    assert fit.weights == pytest.approx(expected, abs=1e-6)
    assert space.contains(fit.weights) and fit.n_steps == N and not fit.averaged


def test_with_priors_it_is_algorithm_5_over_the_candidates():
    X, labels, rng = problem(1)
    priors = rng.dirichlet(np.ones(K), size=N)
    fit = convex.lp_rr_sgd(X, vault_of(labels), Softmax(K, 1.0), Ball(1.5), "0.5", k=2, priors=priors)
    chosen = np.argsort(-priors, axis=1)[:, :2]
    assert (chosen == fit.release.label_numbers[:, None]).any(axis=1).all()
    expected = algorithm_5(X, fit.release, Softmax(K, 1.0), Ball(1.5), 0.5, batches=[[i] for i in range(N)], k=2)
    assert fit.weights == pytest.approx(expected, abs=1e-6)
    assert fit.bound(missed=0.1) == pytest.approx(fit.bound() + 0.2 * 3.0 * math.sqrt(2))


def test_rows_order_and_start_are_the_callers():
    X, labels, rng = problem(2)
    rows, order = np.arange(5, 45, 2), rng.permutation(20)
    start = Ball(1.5).project(rng.normal(size=K * D_FEATURES))
    fit = convex.lp_rr_sgd(X, vault_of(labels), Softmax(K, 1.0), Ball(1.5), "1", rows=rows, order=order, start=start)
    expected = algorithm_5(X, fit.release, Softmax(K, 1.0), Ball(1.5), 1.0, batches=[[i] for i in order], start=start)
    assert fit.release.rows.tolist() == rows.tolist()
    assert fit.weights == pytest.approx(expected, abs=1e-6)


def test_a_batch_takes_the_mean_of_its_estimates_and_larger_steps():
    """60 rows in batches of at most 7 make nine steps of 6 or 7 rows; the step follows the noise that is left."""
    X, labels, _ = problem(3)
    loss, space = Logistic(1.0), Ball(1.0)
    release = vault_of(labels % 2, classes=2).release(ldp.RandomizedResponse("0.5"))
    fit = convex.sgd_on_release(X, release, loss, space, batch_size=7)
    one = convex.sgd_on_release(X, release, loss, space)
    G, sizes = 6 * 2 / 0.5, np.diff(np.arange(10) * 60 // 9)
    assert fit.n_steps == 9 and set(sizes) == {6, 7}
    assert fit.scale == pytest.approx(2.0 / math.sqrt(1 + (G**2 - 1) / 6))
    w, at = np.zeros(D_FEATURES), 0
    for t, size in enumerate(sizes, start=1):
        rows = np.arange(at, at + size)
        g = loss.gradient(w, X[rows], release.debiased_weights(rows))
        w, at = space.project(w - fit.scale / math.sqrt(t) * g), at + size
    assert fit.weights == pytest.approx(w) and fit.moment < one.moment


def test_without_privacy_it_is_plain_sgd():
    X, labels, _ = problem(4)
    loss, space = Softmax(K, 1.0), Ball(1.5)
    fit = convex.sgd_on_release(X, ldp.LabelVault.unprotected(labels, classes=K), loss, space)
    w = np.zeros(K * D_FEATURES)
    for t in range(N):
        w = space.project(w - 3.0 / (math.sqrt(2) * math.sqrt(t + 1)) * loss.gradients(w, X[t][None])[0, labels[t]])
    assert fit.weights == pytest.approx(w)
    assert fit.bound() == pytest.approx(bounds.without_privacy(N, diameter=3.0, lipschitz=math.sqrt(2)))


def test_the_mean_of_the_iterates_is_what_is_asked_for():
    X, labels, _ = problem(5)
    release = vault_of(labels).release(ldp.RandomizedResponse("1"))
    loss, space = Softmax(K, 1.0), Ball(1.5)
    fit = convex.sgd_on_release(X, release, loss, space, average=True)
    iterates = [np.zeros(K * D_FEATURES)]
    for i in range(N - 1):
        g = loss.gradient(iterates[-1], X[i][None], release.debiased_weights([i]))
        iterates.append(space.project(iterates[-1] - fit.step_sizes[i] * g))
    assert fit.weights == pytest.approx(np.mean(iterates, axis=0))
    assert fit.bound() < convex.sgd_on_release(X, release, loss, space).bound()
    assert "mean of the iterates" in repr(fit) and "NOT PRIVATE" in repr(fit)


def test_a_release_with_prior_has_the_bound_of_its_largest_k():
    X, labels, rng = problem(7)
    release = vault_of(labels).release(ldp.RRWithPrior("1"), priors=rng.dirichlet(np.full(K, 5.0), size=N))
    assert len(set(release.sizes.tolist())) > 1
    fit = convex.sgd_on_release(X, release, Softmax(K, 1.0), Ball(1.5))
    options = {"diameter": 3.0, "lipschitz": math.sqrt(2)}
    assert fit.bound() == pytest.approx(bounds.lp_rr_sgd(N, int(release.sizes.max()), "1", **options))


def test_single_precision_features_give_nearly_the_same():
    X, labels, _ = problem(6)
    release = vault_of(labels).release(ldp.RandomizedResponse("1"))
    one, two = (convex.sgd_on_release(x, release, Softmax(K, 1.0), Ball(1.5)) for x in (X, X.astype(np.float32)))
    assert one.weights == pytest.approx(two.weights, abs=1e-5)


# ---- its cost --------------------------------------------------------------------------------------------------------


def test_every_row_is_charged_once_and_training_again_is_free():
    X, labels, _ = problem()
    vault = vault_of(labels, budget="0.7")
    fit = convex.lp_rr_sgd(X, vault, Softmax(K, 1.0), Ball(1.5), "0.7")
    assert str(vault.spent()) == "epsilon 0.7" and len(vault.certificate()["queries"]) == 1
    assert fit.release.receipt.epsilon == "0.7" and fit.release.receipt.labels_charged == N
    assert vault.recognises(fit.release)
    again = convex.sgd_on_release(X, fit.release, Softmax(K, 1.0), Ball(1.5))
    assert (again.weights == fit.weights).all() and str(vault.spent()) == "epsilon 0.7"
    with pytest.raises(BudgetExhausted):
        convex.lp_rr_sgd(X, vault, Softmax(K, 1.0), Ball(1.5), "0.7")


def test_the_same_name_asks_once():
    X, labels, _ = problem()
    vault = vault_of(labels, budget="1")
    one, two = (convex.lp_rr_sgd(X, vault, Softmax(K, 1.0), Ball(1.5), "1", name="pass") for _ in range(2))
    assert (one.weights == two.weights).all() and str(vault.spent()) == "epsilon 1"


@pytest.mark.parametrize("mechanism", [ldp.RandomizedResponse("0.7"), ldp.RRTopK("0.7", 2)])
def test_the_epsilon_of_the_transcript_is_exact(mechanism):
    """What a row contributes is a function of its report alone; some report is keep : other as likely, and none is more."""
    prior = [0.4, 0.3, 0.2, 0.1]
    laws = [mechanism.law(label, prior) for label in range(K)]
    most = max(p[report] / q[report] for p in laws for q in laws for report in p)
    assert math.log(most) <= 0.7 and math.log(most) == pytest.approx(mechanism.realised_epsilon, abs=1e-9)


def test_one_candidate_costs_nothing():
    X, labels, _ = problem()
    vault = vault_of(labels)
    fit = convex.lp_rr_sgd(X, vault, Softmax(K, 1.0), Ball(1.5), "1", k=1, priors=[0.4, 0.3, 0.2, 0.1])
    assert str(vault.spent()) == "epsilon 0" and fit.moment == fit.lipschitz


# ---- its promise -----------------------------------------------------------------------------------------------------


def population(seed=0):
    """Six points with known label chances: the population risk and its minimum are sums."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(6, 4))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points, rng.dirichlet(np.full(3, 0.3), size=6)


def excess(loss, space, points, chances, found):
    """The mean over the found parameters, against the best of a long run of subgradient steps on the population risk itself."""

    def risk(w):
        return float((chances * loss.values(w, points)).sum(axis=1).mean())

    v, least = space.middle(loss.dimension(points)), math.inf
    for t in range(1, 2000):
        least = min(least, risk(v))
        v = space.project(v - 0.5 / math.sqrt(t) * loss.gradient(v, points, chances))
    return np.mean([risk(w) for w in found]) - least


@pytest.mark.parametrize(
    "loss", [Softmax(3, 1.0), Hinge(3, 1.0), Absolute([0, 1, 2], 1.0)], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize(
    "options", [{}, {"steps": "exact"}, {"steps": "exact", "average": True, "batch_size": 8}], ids=str
)
@pytest.mark.parametrize("epsilon", ["1", "3"])
def test_the_mean_excess_risk_lies_below_the_bound(loss, options, epsilon):
    points, chances = population()
    rng, space, found = np.random.default_rng(1), Ball(1.0), []
    for seed in range(5):
        which = rng.integers(6, size=1000)
        labels = (rng.random((1000, 1)) > np.cumsum(chances[which], axis=1)).sum(axis=1).clip(0, 2)
        vault = ldp.LabelVault(labels, classes=3, budget="3", bits=InsecureBits(seed))
        fit = convex.lp_rr_sgd(points[which], vault, loss, space, epsilon, **options)
        found.append(fit.weights)
    assert -1e-3 < excess(loss, space, points, chances, found) < fit.bound()


def test_more_rows_bring_the_risk_down():
    points, chances = population()
    loss, space, rng = Softmax(3, 1.0), Ball(3.0), np.random.default_rng(1)
    found = {}
    for n in (200, 20_000):
        which = rng.integers(6, size=n)
        labels = (rng.random((n, 1)) > np.cumsum(chances[which], axis=1)).sum(axis=1).clip(0, 2)
        vault = ldp.LabelVault(labels, classes=3, budget="2", bits=InsecureBits(1))
        fit = convex.lp_rr_sgd(points[which], vault, loss, space, "2", steps="exact", batch_size=20, average=True)
        found[n] = excess(loss, space, points, chances, [fit.weights])
    assert found[20_000] < found[200] / 3 and found[20_000] < 0.02


def test_the_bound_is_that_of_the_theorem():
    X, labels, _ = problem()
    fit = convex.lp_rr_sgd(X, vault_of(labels), Softmax(K, 1.0), Ball(1.5), "0.5")
    options = {"diameter": 3.0, "lipschitz": math.sqrt(2)}
    assert fit.bound() == pytest.approx(bounds.lp_rr_sgd(N, K, "0.5", **options))
    assert fit.step_sizes == pytest.approx(3 * 0.5 / (6 * K * math.sqrt(2) * np.sqrt(np.arange(1, N + 1))))
    top = convex.lp_rr_sgd(X, vault_of(labels), Softmax(K, 1.0), Ball(1.5), "3", k=2, priors=[0.4, 0.3, 0.2, 0.1])
    assert top.bound(missed=0.3) == pytest.approx(bounds.lp_rr_sgd_top_k(N, 2, "3", missed=0.3, **options))


# ---- what it refuses, at no cost -------------------------------------------------------------------------------------

GOOD = {"loss": Softmax(K, 1.0), "parameter_set": Ball(1.5), "epsilon": "1"}


def test_the_bound_that_is_printed_says_what_labels_that_are_no_candidates_add():
    X, labels, _ = problem()
    top = convex.lp_rr_sgd(X, vault_of(labels), Softmax(K, 1.0), Ball(1.5), "3", k=2, priors=[0.4, 0.3, 0.2, 0.1])
    added = f"{top.bound(missed=1) - top.bound():.4g} times the chance that a label is no candidate"
    assert f"at most {top.bound():.4g} plus {added};" in repr(top)
    assert "candidate" not in repr(convex.lp_rr_sgd(X, vault_of(labels), Softmax(K, 1.0), Ball(1.5), "3"))


def with_nan(X):
    X[3, 1] = math.nan
    return X


def long_gradients(w, X):
    return np.full((len(X), K, 2), 1.0)


def nan_gradients(w, X):
    return np.full((len(X), K, 2), math.nan)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"X": lambda X: X * 1.1}, "at most norm_bound=1; 60 of 60 are longer"),
        ({"X": with_nan}, "X must be finite; 1 of its 60 rows"),
        ({"X": lambda X: X[:-1]}, r"one row per row of the vault \(60\), got 59"),
        ({"X": lambda X: X[:, 0]}, "one row of features per label"),
        ({"X": lambda X: X.astype(str)}, "X must be numbers"),
        ({"loss": Softmax(3, 1.0)}, r"the classes of the labels \(4\), got one for 3"),
        ({"loss": "softmax"}, "must be of labeldp.convex"),
        ({"parameter_set": 1.5}, "must be of labeldp.convex"),
        ({"parameter_set": Ball(1.0, centre=[0.0, 0.0])}, r"one entry per parameter \(12\), got 2"),
        ({"start": np.full(12, 1.0)}, "start must lie in the parameter set"),
        ({"start": np.zeros(3)}, r"shape \(12,\), got \(3,\)"),
        ({"start": np.full(12, math.nan)}, "start must be finite"),
        ({"order": np.zeros(60, dtype=int)}, "a row that is used twice voids the theorem"),
        ({"order": np.arange(59)}, "order must name each of the positions 0 .. 59 once"),
        ({"order": np.arange(60) - 1}, "order must name each"),
        ({"rows": [3, 3, 4]}, "strictly increasing"),
        ({"rows": [3, 99]}, "strictly increasing"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"steps": "large"}, "steps must be one of 'theorem', 'exact'"),
        ({"epsilon": 0}, "epsilon must be > 0"),
        ({"k": 2}, "k and priors must be given together"),
        ({"priors": [0.4, 0.3, 0.2, 0.1]}, "k and priors must be given together"),
        ({"k": 9, "priors": [0.4, 0.3, 0.2, 0.1]}, "k must be at most the number of classes"),
        ({"k": 2, "priors": np.full((60, 3), 1 / 3)}, "priors must have one row per asked row"),
        ({"loss": GivenLoss(long_gradients, 2, K, 1.0)}, "at most lipschitz_constant=1 long, got 1.41421"),
        ({"loss": GivenLoss(nan_gradients, 2, K, 1.0)}, "class_gradients must return finite numbers"),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_spent(change, said):
    X, labels, _ = problem()
    vault = vault_of(labels)
    given = GOOD | {name: value for name, value in change.items() if name != "X"}
    with pytest.raises(InvalidArgument, match=said):
        convex.lp_rr_sgd(change.get("X", lambda X: X)(X), vault, **given)
    assert str(vault.spent()) == "epsilon 0"


def test_an_epsilon_that_says_nothing_spends_nothing():
    X, labels, _ = problem()
    vault = vault_of(labels)
    with pytest.raises(NotIdentifiable):
        convex.lp_rr_sgd(X, vault, Softmax(K, 1.0), Ball(1.5), "0.000000000001")
    assert str(vault.spent()) == "epsilon 0"


def test_labels_are_no_vault_and_no_release():
    X, labels, _ = problem()
    with pytest.raises(InvalidArgument, match="vault must be a LabelVault"):
        convex.lp_rr_sgd(X, labels, **GOOD)
    with pytest.raises(InvalidArgument, match="release must be noisy labels"):
        convex.sgd_on_release(X, labels, Softmax(K, 1.0), Ball(1.5))


def test_a_release_of_more_rows_than_the_features_is_refused():
    X, labels, _ = problem()
    release = vault_of(labels).release(ldp.RandomizedResponse("1"))
    with pytest.raises(InvalidArgument, match="it has 59, too few for the release"):
        convex.sgd_on_release(X[:-1], release, Softmax(K, 1.0), Ball(1.5))


def test_gradients_that_grow_too_long_during_the_pass_stop_it_and_the_named_release_is_kept():
    def growing(w, X):
        return np.broadcast_to(np.where(w == 0, 0.5, 5.0), (len(X), K, 2)) / math.sqrt(2)

    X, labels, _ = problem()
    vault = vault_of(labels)
    with pytest.raises(InvalidArgument, match=r"lipschitz_constant=1 long, got 5.*name='pass' returns the same"):
        convex.lp_rr_sgd(X, vault, GivenLoss(growing, 2, K, 1.0), Ball(1.5), "1", name="pass")
    vault.release(ldp.RandomizedResponse("1"), name="pass")
    assert str(vault.spent()) == "epsilon 1"


def test_rows_without_a_label_are_left_out_and_may_be_of_any_size():
    X, labels, _ = problem()
    column = [None if i % 5 == 0 else int(label) for i, label in enumerate(labels)]
    vault = vault_of(column, missing="public")
    X[0] *= 7
    fit = convex.lp_rr_sgd(X, vault, Softmax(K, 1.0), Ball(1.5), "1")
    assert fit.n_steps == 48 and 0 not in fit.release.rows
