"""LP-MST, Algorithm 3 of the paper: each stage's model is the prior of the next stage's release.

The paper prints M^(t) where its proof uses M^(t-1), which is what is done here: a prior must be known before labels are asked.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.errors import InvalidArgument
from labeldp.learning import records
from labeldp.learning.bags import bag_beliefs
from labeldp.learning.cluster_prior import ClusterPrior
from labeldp.learning.evidence import beliefs_of
from labeldp.learning.filtering import keep_likely, mean_size
from labeldp.learning.learner import Epoch, Examples, Learner
from labeldp.learning.partition import Partition, Rows, check_shares
from labeldp.learning.questions import LONGEST_NAME, Question, check_budget, name_of
from labeldp.learning.records import Record
from labeldp.learning.stored import Answer, StageFiles
from labeldp.learning.student import Pupil, together
from labeldp.mechanisms import (
    ClusterRR,
    GroupMechanism,
    LocalMechanism,
    RandomizedResponse,
    RRWithPrior,
    UnbiasedResponse,
)
from labeldp.metrics.accuracy import check_hold_out
from labeldp.vault import HistogramRelease, LabelHolder, Release
from labeldp.vault.files import Stored
from labeldp.vault.labels import Classes

Probabilities = NDArray[np.floating[Any]]


HOLD_OUT, COUNTS = "release-hold-out", "release-clusters"
OF_A_LEARNER = ("learns_from", "check", "fit", "predict_proba", "ask_once")


@dataclass
class MultiStage:
    """Release labels in stages, each with the model of the stages before it as its prior, and train on all of them.

    Parameters
    ----------
    learner : what is trained; one for all stages (each gets a copy), or a sequence of one per stage, for instance with less
        mixup in later ones.
    stages, split : how many stages, and each one's share of the rows (equal by default). One stage of the paper's mechanism is
        plain randomized response (LP-1ST).
    mechanism : from an epsilon to a mechanism: RRWithPrior is the paper's, GroupedResponse tells most.
    temperature : of the model's prior: p^(1/temperature), normalised. Below 1 it is surer of itself.
    warm_start : start each stage's training from the model of the one before.
    filter : drop rows of earlier stages whose reported label is not among the k that the model finds most likely; k is the
        mean k of this stage, "floor" (the authors' code) or "round". None keeps all. For learners from noisy labels only.
    prior, prior_weight : an external prior, (n, K) or a function of row numbers, mixed in as (1 - w) model + w prior.
    prior_source : where that prior came from, for the certificate.
    clusters : stage 0, for a curator: part of epsilon buys counts of the classes in public clusters, whose shares are the prior
        of stage 1, and which all models learn from. With all of epsilon on counts, stages=0.
    learn_counts : False for counts that are a prior and nothing else, as in the paper's Algorithm 4.
    bag_rounds : how often, after each training, a model is trained again on what its predictions and the counts of clusters
        say together (EM on the likelihood of the counts). Pays where counts are all there is.
    pupil : a student that reads other inputs. It is taught after the last stage, and between stages if it is to help asking;
        `student_` is what becomes of it, and `together` what it and the last model predict.
    hold_out : the share of the rows that is held out and released by plain randomized response, to grade models on.
    seed : of the public partition. No seed reaches privacy noise.

    Privacy
    -------
    epsilon-label-DP: every row is asked once, or once in counts and once on its own for the rest of epsilon; each question
    depends on public things and earlier answers alone.
    """

    learner: Learner | Sequence[Learner]
    stages: int = 2
    split: Sequence[float] | None = None
    mechanism: Callable[[Any], LocalMechanism] = RRWithPrior
    temperature: float = 1.0
    warm_start: bool = True
    filter: str | None = None
    prior: Any = None
    prior_weight: float = 0.5
    prior_source: str | None = None
    clusters: ClusterPrior | None = None
    learn_counts: bool = True
    bag_rounds: int = 0
    pupil: Pupil | None = None
    hold_out: float = 0.0
    seed: int = 0

    counts_: HistogramRelease | None = field(default=None, init=False, repr=False)
    releases_: list[Release] = field(default_factory=list, init=False, repr=False)
    hold_out_: Release | None = field(default=None, init=False, repr=False)
    models_: list[Learner] = field(default_factory=list, init=False, repr=False)
    student_: Learner | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.stages == 0 and self.clusters is None:
            raise InvalidArgument("stages must be at least 1; 0 are for counts of clusters that take all of epsilon.")
        checks.integer(stages=self.stages, at_least=0)
        self._shares()
        if not isinstance(self.clusters, ClusterPrior | None):
            raise InvalidArgument(f"clusters must be a ClusterPrior, got {type(self.clusters).__name__}.")
        if checks.integer(bag_rounds=self.bag_rounds, at_least=0) and self.clusters is None:
            raise InvalidArgument("bag_rounds are of counts of clusters: give clusters, or no rounds.")
        if not self.learn_counts and (self.clusters is None or self.stages == 0 or self.bag_rounds):
            raise InvalidArgument(
                "learn_counts=False is for counts of clusters that are the prior of a stage: give clusters and a stage, and no "
                "bag_rounds, which learn from counts."
            )
        if not isinstance(self.pupil, Pupil | None):
            raise InvalidArgument(f"pupil must be a Pupil, got {type(self.pupil).__name__}.")
        if self.clusters is not None and self.prior is not None:
            raise InvalidArgument("prior and clusters are two answers to one question: give one of them.")
        if not 0 < self.temperature < float("inf"):
            raise InvalidArgument(f"temperature must be a finite number > 0, got {self.temperature}.")
        checks.share(hold_out=self.hold_out, below_one=True)
        checks.share(prior_weight=self.prior_weight)
        if not callable(self.mechanism):
            raise InvalidArgument(
                "mechanism must make a mechanism from an epsilon, such as ldp.GroupedResponse itself; got "
                f"{type(self.mechanism).__name__}."
            )
        if self.filter is not None:
            checks.one_of(("floor", "round"), filter=self.filter)
            if any(learner.learns_from != "labels" for learner in self._learners()):
                raise InvalidArgument(
                    "filter drops rows by looking at their reports, which would bias the likelihood: use it with a loss on "
                    "noisy labels, or set filter=None."
                )

    def fit(
        self,
        X: Any,
        vault: LabelHolder,
        epsilon: Any,
        *,
        rows: Any = None,
        name: str | None = None,
        folder: Path | None = None,
        watch: Callable[[Record], None] | None = None,
        test: Callable[[Learner], Record] | None = None,
    ) -> MultiStage:
        """Ask the vault stage by stage and train.

        Parameters
        ----------
        X : public features, one row per row of the vault.
        rows : which rows to use; by default all that have a label. Public: never chosen by labels.
        name : under which the vault can be asked again, at no cost, after a crash; see `LabelVault.release`.
        folder : where releases and checkpoints are kept, and read back from: a stage whose release is there asks nothing.
        watch : called with a record of public figures at each stage's start and each epoch's end; and with one of kind "answer"
            when the vault has answered, before that is stored in `folder`.
        test : called with the model at each stage's end; its record of figures on public test data is passed to `watch`.
        """
        if name is not None:
            checks.text(name=name, at_most=LONGEST_NAME)
        learners = self._learners()
        first = learners[0]
        labelled, classes = first.ask_once(lambda: (vault.labelled, vault.classes))
        use = self.check(X, labelled, len(classes), epsilon, rows=rows)
        of_counts, of_stages = self._epsilons(epsilon)
        parts = Partition.of(use, self._shares(), hold_out=self.hold_out, seed=self.seed)
        if self.clusters is not None:
            first.ask_once(lambda: ClusterPrior.check_trust(vault))
        self._check_grid(of_stages, classes)
        first.ask_once(lambda: check_budget(vault, self._questions(parts, epsilon), name=name, folder=folder))
        files, named = StageFiles(folder), partial(name_of, name)

        def answered(stage: str, answer: Answer) -> Answer:
            """Tell of an answer before it is stored, so that nothing lies in the folder that nobody has noted."""
            if watch is not None and folder is not None:
                watch({"kind": "answer", "stage": stage, "entry": answer.receipt.ledger["entry"]})
            return answer

        def ask(stage: str, how: LocalMechanism, asked: Rows, priors: Callable[[], Any], source: Any) -> Release:
            def answer() -> Release:
                given = files.priors(stage, priors, about=self._about_priors())
                return answered(stage, vault.release(how, asked, priors=given, source=source, name=named(stage)))

            def ours() -> Release:
                release = files.answer(Release, stage, answer)
                _check_ours(vault, release, is_answer(release, how, asked, classes), folder, stage)
                return release

            return first.ask_once(ours)

        def count(clusters: ClusterPrior, asked: Rows, cost: Epsilon) -> HistogramRelease:
            def ours() -> HistogramRelease:
                counts = files.answer(
                    HistogramRelease, COUNTS, lambda: answered(COUNTS, clusters.ask(vault, asked, cost, named(COUNTS)))
                )
                _check_ours(vault, counts, clusters.is_answer(counts, asked, cost, classes), folder, COUNTS)
                return counts

            return first.ask_once(ours)

        self.hold_out_, self.counts_, self.student_ = None, None, None
        if len(parts.hold_out):
            self.hold_out_ = ask(HOLD_OUT, RandomizedResponse(epsilon), parts.hold_out, lambda: None, None)
        self.releases_, self.models_ = [], []
        if self.clusters is not None and of_counts is not None:
            self._count(X, count(self.clusters, _counted(parts), of_counts), learners[0], files, watch, test)
        for number, part in enumerate(parts.stages if of_stages is not None else (), start=1):
            mechanism = self.mechanism(of_stages)
            previous = self.models_[-1] if self.models_ else None
            source = self._source(previous)
            release = ask(f"release-{number}", mechanism, part, lambda p=part, m=previous: self._prior(X, p, m), source)  # type: ignore[misc]
            self._train(X, release, learners[number - 1], files, watch, test)
        self._teach(X, self.trainings + 1, files, watch)
        return self

    def refit(
        self,
        X: Any,
        releases: Sequence[Release],
        *,
        counts: HistogramRelease | None = None,
        hold_out: Release | None = None,
        folder: Path | None = None,
        watch: Callable[[Record], None] | None = None,
        test: Callable[[Learner], Record] | None = None,
    ) -> MultiStage:
        """Train again on the releases of an earlier run, stage by stage. Free: nothing is asked."""
        if len(releases) != self.stages:
            raise InvalidArgument(f"releases must be one per stage ({self.stages}), got {len(releases)}.")
        if (counts is None) != (self.clusters is None):
            raise InvalidArgument("counts must be given where there are clusters, and only there.")
        given: list[Release | HistogramRelease] = [*releases, *([] if counts is None else [counts])]
        if hold_out is not None:
            check_hold_out(hold_out)
            if any(np.isin(hold_out.rows, each.rows).any() for each in given):
                raise InvalidArgument("the hold-out's rows must be in none of the releases that are trained on.")
        learners = self._learners()
        for learner in learners:
            learner.check(X, len(given[0].classes))
        if self.pupil is not None:
            self._check_pupil(len(X), len(given[0].classes), reports_labels=True)  # if not, nothing is lost
        for learner, release in zip(learners, releases, strict=False):  # without stages, one learns from counts alone
            if learner.learns_from == "labels":
                _ = release.label_numbers  # raises, before any training, where reports are groups
        self.hold_out_, self.counts_, self.releases_, self.models_ = hold_out, None, [], []
        self.student_ = None
        files = StageFiles(folder)
        if counts is not None:
            self._count(X, counts, learners[0], files, watch, test)
        for learner, release in zip(learners, releases, strict=False):
            self._train(X, release, learner, files, watch, test)
        self._teach(X, self.trainings + 1, files, watch)
        return self

    def predict_proba(self, X: Any) -> Probabilities:
        """Return the last model's probabilities."""
        return self.model_.predict_proba(X)

    @property
    def model_(self) -> Learner:
        """The last stage's model."""
        if not self.models_:
            raise InvalidArgument("this MultiStage has not been fitted: call fit(X, vault, epsilon) first.")
        return self.models_[-1]

    # ---- one stage ---------------------------------------------------------------------------------------------------

    def _prior(self, X: Any, rows: Rows, previous: Learner | None) -> Probabilities | None:
        """Return the prior of these rows: M^(t-1) and the external one; None where both are uniform."""
        if previous is None and self.clusters is not None and self.counts_ is not None:
            return self.clusters.prior(self.counts_, rows)
        if previous is None and self.prior is None:
            return None
        external = None if self.prior is None else self._external(rows)
        if previous is None:
            assert external is not None
            return (1 - self.prior_weight) / external.shape[1] + self.prior_weight * external
        predicted = previous.predict_proba(X[rows])
        if self.pupil is not None and self.student_ is not None:
            learned = self.student_.predict_proba(self.pupil.X[rows])
            predicted = together(predicted, learned, share=self.pupil.share)
        model = tempered(predicted, self.temperature)
        return model if external is None else (1 - self.prior_weight) * model + self.prior_weight * external

    def _external(self, rows: Rows) -> Probabilities:
        given = self.prior(rows) if callable(self.prior) else np.asarray(self.prior)[rows]
        return checks.probabilities(given, len(rows), np.shape(given)[-1])

    def _about_priors(self) -> str:
        """Return what the priors on disk must have been made with to be used again."""
        external = self.prior_source
        if self.clusters is not None and self.counts_ is not None:
            external = f"{self.counts_.receipt.ledger['hash']}, {self.clusters.shares}"
        return json.dumps([self.temperature, self.prior_weight, self.prior is not None, external])

    def _source(self, previous: Learner | None) -> Any:
        """Say where the prior came from: the releases behind the model, or the caller's statement."""
        if self.prior is None:
            return [*([] if self.counts_ is None else [self.counts_]), *self.releases_] or None
        stated = self.prior_source or "an external prior, origin not stated"
        entries = [f"entry {release.receipt.ledger['entry']}" for release in self.releases_]
        model = f" and a model of the releases {', '.join(entries)}" if previous is not None else ""
        return f"{stated} (weight {self.prior_weight:g}){model}"

    def _count(
        self,
        X: Any,
        counts: HistogramRelease,
        learner: Learner,
        files: StageFiles,
        watch: Callable[[Record], None] | None,
        test: Callable[[Learner], Record] | None,
    ) -> None:
        """Take counts of clusters in; where they are all there is, train on them."""
        self.counts_ = counts
        (watch or records.nobody)(records.of_counts(counts, self.stages))
        if self.stages == 0:
            beliefs = beliefs_of(counts)
            self._fit(X, [beliefs], learner, 0, files, watch, test)

    def _train(
        self,
        X: Any,
        release: Release,
        learner: Learner,
        files: StageFiles,
        watch: Callable[[Record], None] | None,
        test: Callable[[Learner], Record] | None,
    ) -> None:
        """Train M^(t) on everything released so far."""
        previous = self.models_[-1] if self.models_ else None
        number = len(self.models_) + 1
        earlier: list[Examples] = list(self.releases_)
        k = mean_size(release, self.filter) if self.filter is not None and previous is not None else None
        if k is not None and previous is not None:
            earlier = [keep_likely(each, X, previous, k) for each in self.releases_]
        temperature = self.temperature if number > 1 else None
        filtered = records.of_filter(earlier, k) if k is not None else None
        (watch or records.nobody)(records.of_stage(number, self.stages, release, temperature, filtered))
        self.releases_.append(release)  # also where learning fails: it can be learned from again, free
        examples = [*earlier, release]
        if self.clusters is not None and self.counts_ is not None and self.learn_counts:
            examples.append(self.clusters.beliefs(self.counts_))
        self._fit(X, examples, learner, number, files, watch, test)
        if self.pupil is not None and self.pupil.first is not None and self.pupil.first <= number < self.stages:
            self._teach(X, number + 0.5, files, watch)

    def _teach(self, X: Any, number: float, files: StageFiles, watch: Callable[[Record], None] | None) -> None:
        """Teach the pupil, if there is one, what model and releases so far tell; between stages 2 and 3 it is number 2.5."""
        if self.pupil is not None:
            checkpoint = partial(files.student_checkpoint, number)
            self.student_ = self.pupil.taught(self, X, number=number, checkpoint=checkpoint, watch=watch)

    def _fit(
        self,
        X: Any,
        examples: list[Examples],
        learner: Learner,
        number: int,
        files: StageFiles,
        watch: Callable[[Record], None] | None,
        test: Callable[[Learner], Record] | None,
    ) -> None:
        """Train on examples, then on what the model and the counts of clusters say together, so many rounds."""
        tell = watch or records.nobody

        def epoch_ended(model: Learner, rounds_done: int, epoch: Epoch) -> None:
            grade = records.grade(model, X, self.hold_out_)
            done = rounds_done * epoch["epochs"] + epoch["epoch"]
            epochs = (self.bag_rounds + 1) * epoch["epochs"]
            tell({"kind": "epoch", "stage": number, **epoch, "epoch": done, "epochs": epochs, "hold_out": grade})

        model = self.models_[-1] if self.models_ and self.warm_start else None
        for rounds_done in range(self.bag_rounds + 1):
            if rounds_done:
                assert model is not None and self.counts_ is not None
                predicted = model.predict_proba(X[self.counts_.rows])
                examples = [bag_beliefs(predicted, self.counts_, self.releases_)]
            begun = copy.deepcopy(learner)
            model = begun.fit(
                X,
                examples,
                start=model,
                checkpoint=files.checkpoint(number, rounds_done),
                watch=partial(epoch_ended, begun, rounds_done) if watch is not None else None,
            )
        assert model is not None
        self.models_.append(model)
        if test is not None:
            tell({"kind": "test", "stage": number, **test(model)})

    # ---- checks ------------------------------------------------------------------------------------------------------

    def _learners(self) -> list[Learner]:
        given = list(self.learner) if isinstance(self.learner, Sequence) else [self.learner] * self.trainings
        if len(given) != self.trainings:
            raise InvalidArgument(f"learner must be one, or one per stage ({self.trainings}); got {len(given)}.")
        if strangers := [each for each in given if not all(hasattr(each, name) for name in OF_A_LEARNER)]:
            raise InvalidArgument(
                "learner must learn from releases, as TorchLearner(module) and SklearnLearner(estimator) do; got "
                f"{type(strangers[0]).__name__}."
            )
        return [copy.deepcopy(each) for each in given]

    @property
    def trainings(self) -> int:
        """How many models are trained: one per stage, or one on counts alone."""
        return max(self.stages, 1)

    def _shares(self) -> tuple[float, ...]:
        return check_shares(self.split, self.trainings)

    def _epsilons(self, epsilon: Any) -> tuple[Epsilon | None, Epsilon | None]:
        """Return what the counts of clusters cost, and what each stage's response costs; None for what is not asked."""
        if self.clusters is None:
            return None, Epsilon.of(epsilon)
        return self.clusters.split(epsilon, self.stages)

    def _questions(self, parts: Partition, epsilon: Any) -> list[Question]:
        """Return what is asked, in this order, and what it costs."""
        of_counts, of_stages = self._epsilons(epsilon)
        asked = [Question(HOLD_OUT, parts.hold_out, Epsilon.of(epsilon))] if len(parts.hold_out) else []
        if of_counts is not None:
            asked.append(Question(COUNTS, _counted(parts), of_counts))
        if of_stages is not None:
            cost = Epsilon.of(self.mechanism(of_stages).epsilon)
            asked += [Question(f"release-{number}", part, cost) for number, part in enumerate(parts.stages, start=1)]
        return asked

    def check(self, X: Any, labelled: NDArray[np.bool_], n_classes: int, epsilon: Any, *, rows: Any = None) -> Rows:
        """Raise whatever can be known to stop `fit`, with public things alone, and return the rows that it would use.

        Parameters
        ----------
        labelled : which rows have a label, as `LabelVault.labelled` says.
        """
        use = checks.rows(labelled if rows is None else rows, len(labelled))
        if not labelled[use].all():
            raise InvalidArgument("rows must all have a label; some of these are missing (which ones is public).")
        Partition.of(use, self._shares(), hold_out=self.hold_out, seed=self.seed)
        n_rows, learners = len(labelled), self._learners()
        of_counts, of_stages = self._epsilons(epsilon)
        if self.clusters is not None and of_counts is not None:
            self.clusters.check(n_rows, n_classes, of_counts)
        if of_stages is not None:
            self._check_mechanism(of_stages, n_classes)
        if self.hold_out:
            _check_law(RandomizedResponse(epsilon), n_classes)
        if (given := X.shape[0] if hasattr(X, "shape") else len(X)) != n_rows:  # a sparse table has no length
            raise InvalidArgument(f"X must have one row per label ({n_rows}), got {given}.")
        if getattr(learners[0], "needs_finite", False):
            checks.finite_rows(X, use)
        for learner in learners:
            learner.check(X, n_classes)
            if self.clusters is not None and self.learn_counts and not getattr(learner, "takes_beliefs", True):
                raise InvalidArgument(
                    "this learner cannot weigh what is believed of a row, as counts of clusters need."
                )
        if self.pupil is not None:
            whole = of_stages is None or _reports_labels(self.mechanism(of_stages), n_classes)
            self._check_pupil(n_rows, n_classes, reports_labels=whole)
        self._check_prior(use, n_rows, n_classes)
        if self.prior_source is not None:
            checks.text(prior_source=self.prior_source, at_most=5_000)
        return use

    def _check_pupil(self, n_rows: int, n_classes: int, *, reports_labels: bool) -> None:
        assert self.pupil is not None
        learns_counts = self.clusters is not None and self.learn_counts
        self.pupil.check(
            n_rows, n_classes, stages=self.stages, learns_counts=learns_counts, reports_labels=reports_labels
        )

    def _check_mechanism(self, epsilon: Epsilon, n_classes: int) -> None:
        mechanism = self.mechanism(epsilon)
        if Epsilon.of(mechanism.epsilon) > epsilon:
            raise InvalidArgument(
                f"mechanism must spend at most epsilon ({epsilon}), and the one that it made spends {mechanism.epsilon}."
            )
        _check_law(mechanism, n_classes)
        if mechanism.needs_priors and self.prior is None and self.clusters is None:
            raise InvalidArgument(f"{type(mechanism).__name__} needs a prior in the first stage too: give prior=.")
        if not _reports_labels(mechanism, n_classes) and any(
            learner.learns_from == "labels" for learner in self._learners()
        ):
            raise InvalidArgument(
                f"{type(mechanism).__name__} reports groups of labels, and this learner needs one noisy label per row. "
                "Train on the likelihood, or use a mechanism that reports single labels."
            )

    def _check_grid(self, epsilon: Epsilon | None, classes: tuple[Any, ...]) -> None:
        mechanism = None if epsilon is None else self.mechanism(epsilon)
        if isinstance(mechanism, UnbiasedResponse) and Classes.declared(classes).exact_values() != mechanism.values:
            raise InvalidArgument("UnbiasedResponse's grid (low, low + step, .. high) must be the vault's classes.")

    def _check_prior(self, rows: Rows, n_rows: int, n_classes: int) -> None:
        if self.prior is None:
            return
        if not callable(self.prior) and np.shape(self.prior) != (n_rows, n_classes):
            raise InvalidArgument(f"prior must have shape ({n_rows}, {n_classes}), got {np.shape(self.prior)}.")
        known = rows[:2] if callable(self.prior) else rows
        checks.probabilities(self._external(known), len(known), n_classes)


def _counted(parts: Partition) -> Rows:
    """Return the rows that are counted in clusters: all that stages ask."""
    return np.sort(np.concatenate(parts.stages))


def _check_law(mechanism: LocalMechanism, n_classes: int) -> None:
    """Raise where a mechanism cannot be drawn from: its parameters may be valid, and its law not be found with them."""
    mechanism.law(0, np.full(n_classes, 1 / n_classes))


def _reports_labels(mechanism: LocalMechanism, n_classes: int) -> bool:
    """Return whether each report is one label."""
    if isinstance(mechanism, GroupMechanism):
        uniform = np.full((1, n_classes), 1 / n_classes)
        return mechanism.response(uniform).groups.single_labels
    return isinstance(mechanism, ClusterRR)


def _check_ours(vault: LabelHolder, release: Stored, is_answer: bool, folder: Path | None, stage: str) -> None:
    """Raise unless a release, which may come from a file, is the vault's answer to what this run asks."""
    if not is_answer or not vault.recognises(release):
        raise InvalidArgument(
            f"the {stage} in {folder} is not this vault's answer to this question. Train on it with refit, which asks nothing; "
            "or go on with the ledger it was asked on (a vault with budget= forgets at the end of its process). "
            "Another folder asks all labels again."
        )


def is_answer(release: Release, mechanism: LocalMechanism, rows: Rows, classes: tuple[Any, ...]) -> bool:
    """Return whether a release, which may come from a file, answers this question."""
    told = release.receipt.mechanism
    asked = mechanism.parameters() | {"name": type(mechanism).__name__, "epsilon": told.get("epsilon")}
    same_epsilon = release.receipt.realised_epsilon == mechanism.realised_epsilon
    return told == asked and same_epsilon and np.array_equal(release.rows, rows) and release.classes == tuple(classes)


def tempered(probabilities: Probabilities, temperature: float) -> Probabilities:
    """Return softmax(logits / temperature) for probabilities softmax(logits)."""
    if temperature == 1:
        return probabilities
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities.astype(np.float64)) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
