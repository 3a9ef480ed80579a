"""The model of ratings: its law, its priors, what it sees of who rated what, and that it learns from noisy releases."""

import math

import numpy as np
import pytest
import torch

import labeldp as ldp
from labeldp.errors import InvalidArgument
from labeldp.features.pairs import pair_coordinates
from labeldp.learning.linear_ratings import SLOPES
from labeldp.learning.ratings import RatingSums
from labeldp.torch import TorchLearner, models
from labeldp.torch.models import ratings
from labeldp.torch.models.ratings import Ratings

INPUTS = {"kind": "ids", "sizes": [40, 30]}


def who_rated_what(rng, n_users=40, n_items=30):
    """Pairs of two circles of users, each of whom mostly rates the films of its circle."""
    pairs = np.argwhere(rng.random((n_users, n_items)) < 0.9)
    alike = pairs[:, 0] % 2 == pairs[:, 1] % 2
    return pairs[alike | (rng.random(len(pairs)) < 0.3)]


def rated(rng, pairs):
    """Ratings 1 to 5 that are higher within a circle, and higher for items with a higher number."""
    likes = np.where(pairs[:, 0] % 2 == pairs[:, 1] % 2, 0.8, -0.8) + (pairs[:, 1] % 30 - 15) / 15
    return np.clip(np.rint(3 + likes + 0.5 * rng.standard_normal(len(pairs))), 1, 5).astype(int)


def test_the_logits_are_those_of_the_formula():
    model = models.build("ratings", {"kind": "ids", "sizes": [4, 3]}, 5, seed=1).double()
    model.see(torch.tensor([[0, 2], [3, 0], [1, 1]]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    expected = []
    for user, item in ((0, 2), (3, 1)):
        z = state["users"][user], state["items"][item]
        f = [state[f"factors.{s}"][n] + z[s] @ state[f"shared_factors.{s}"] for s, n in ((0, user), (1, item))]
        b = [state[f"biases.{s}"][n] + z[s] @ state[f"shared_biases.{s}"] for s, n in ((0, user), (1, item))]
        expected.append((state["mean"] + sum(b) + f[0] @ f[1]) * np.arange(-2, 3) + state["thresholds"])
    np.testing.assert_allclose(model(torch.tensor([[0, 2], [3, 1]])).detach().numpy(), expected, rtol=1e-10)


def test_a_score_of_nothing_is_a_binomial_law_until_training_says_otherwise():
    model = Ratings(4, 3, 5)
    with torch.no_grad():
        for own in model.factors:
            own.zero_()
    shares = torch.softmax(model(torch.tensor([[0, 0]])), dim=1)[0]
    assert shares.tolist() == pytest.approx([math.comb(4, c) / 16 for c in range(5)])


def test_the_penalty_is_the_gaussian_prior_per_row():
    model = Ratings(4, 3, 5)
    variances = {"factors": (ratings.FACTOR_VARIANCE,) * 2, "biases": ratings.BIAS_VARIANCES}
    variances["shared_biases"], variances["shared_factors"] = ((each,) * 2 for each in ratings.SHARED_VARIANCES)
    log_prior = 0.0
    for name, value in model.double().named_parameters():
        kind, _, side = name.partition(".")
        if side:
            prior = torch.distributions.Normal(0.0, math.sqrt(variances[kind][int(side)]))
            log_prior += (prior.log_prob(value) - prior.log_prob(torch.zeros_like(value))).sum().item()
    assert log_prior < -1
    assert model.penalty(10).item() == pytest.approx(-log_prior / 10)
    assert model.penalty(20).item() == pytest.approx(-log_prior / 20)


def test_a_user_of_few_ratings_stays_nearer_to_the_mean():
    pairs = np.array([[0, 0]] * 400 + [[1, 0]] * 4)  # both give the highest rating to the only item
    release = ldp.LabelVault.unprotected(np.full(404, 5), classes=[1, 2, 3, 4, 5])
    learner = TorchLearner(Ratings(2, 1, 5, n_factors=1), loss="likelihood", optimizer="adam", weight_decay=0.0)
    learner.learning_rate, learner.epochs, learner.batch_size = 0.05, 60, 404
    often, seldom = learner.fit(pairs, release).module_.biases[0].tolist()
    assert 0 < seldom < 0.8 * often


def test_it_learns_tastes_from_who_rated_what_and_noisy_ratings():
    rng = np.random.default_rng(3)
    pairs = who_rated_what(rng, 120, 80)
    labels = rated(rng, pairs)
    vault = ldp.LabelVault(labels, classes=[1, 2, 3, 4, 5], budget="3", bits=ldp.InsecureBits(1))
    release = vault.release(ldp.RandomizedResponse("3"))
    learner = TorchLearner(
        models.build("ratings", {"kind": "ids", "sizes": [120, 80]}, 5),
        loss="likelihood",
        optimizer="adam",
        learning_rate=0.02,
        weight_decay=0.0,
        epochs=20,
        batch_size=512,
    )
    predicted = learner.fit(pairs, release).predict_proba(pairs) @ np.arange(1, 6)
    assert np.sqrt(np.mean((predicted - labels) ** 2)) < 0.75 * labels.std()
    inside = pairs[:, 0] % 2 == pairs[:, 1] % 2
    assert predicted[inside].mean() > predicted[~inside].mean() + 0.5


def test_what_was_seen_is_saved_with_the_model(tmp_path):
    rng = np.random.default_rng(4)
    pairs = who_rated_what(rng)
    release = ldp.LabelVault.unprotected(rated(rng, pairs), classes=[1, 2, 3, 4, 5])
    settings = {"loss": "likelihood", "optimizer": "adam", "learning_rate": 0.02, "weight_decay": 0.0, "epochs": 2}
    fitted = TorchLearner(models.build("ratings", INPUTS, 5), **settings).fit(pairs, release)
    assert fitted.module_.users.abs().sum() > 0
    fitted.save(tmp_path / "model")
    again = TorchLearner(models.build("ratings", INPUTS, 5), **settings).load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(pairs), fitted.predict_proba(pairs))


def test_anything_but_pairs_of_numbers_is_refused():
    with pytest.raises(InvalidArgument, match="pairs of user and item numbers"):
        Ratings(4, 3, 5).see(torch.zeros(2, 2))


def test_what_sums_told_is_what_the_module_predicts():
    rng = np.random.default_rng(5)
    pairs = who_rated_what(rng)
    vault = ldp.LabelVault(rated(rng, pairs), classes=[1, 2, 3, 4, 5], budget="20", trust="curator")
    coordinates = pair_coordinates(pairs, (40, 30), 64)
    sums = RatingSums(coordinates).fit(pairs, vault, "20")
    model = models.build("rating-sums", INPUTS, 5)
    assert model.factors[0].shape[1] == coordinates[0].shape[1] + SLOPES
    model.take(sums.numbers_, coordinates, low=1)
    shares = torch.softmax(model.eval()(torch.from_numpy(pairs)), dim=1).detach().numpy()
    np.testing.assert_allclose(shares @ np.arange(1, 6), sums.predict(pairs), atol=2e-3)
