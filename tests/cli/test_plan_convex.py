"""`labeldp plan --convex`: its figures are those of `convex.bounds`, and it refuses what belongs to the other form."""

import json
import shlex

import pytest

from labeldp.budget import Epsilon
from labeldp.cli import plan_convex
from labeldp.convex import bounds

DL = {"diameter": 2.0, "lipschitz": 1.0}
MEAN = "LP-RR-SGD (exact steps, mean of iterates)"
PROBLEM = "plan --convex --rows 100000 --classes 10 --epsilon 1"


@pytest.fixture
def shell(monkeypatch, command):
    """Run `labeldp ...`; return exit code, stdout and stderr, with single spaces."""

    def run(text, *, columns=200):
        monkeypatch.setenv("COLUMNS", str(columns))
        code, *shown = command(*shlex.split(text))
        return code, *(" ".join(each.split()) for each in shown)

    return run


@pytest.fixture
def planned(shell):
    def run(text):
        code, shown, said = shell(f"{text} --json")
        assert code == 0 and said == ""
        plan = json.loads(shown)
        return plan, {each["guarantee"]: each for each in plan["guarantees"]}

    return run


def test_the_figures_are_those_of_the_bounds(planned):
    plan, found = planned(PROBLEM)
    assert {name: each["excess_risk"] for name, each in found.items()} == {
        "no privacy (true labels)": bounds.without_privacy(100_000, **DL),
        "LP-RR-SGD (paper's steps)": bounds.lp_rr_sgd(100_000, 10, "1", **DL),
        "LP-RR-SGD (exact steps)": bounds.lp_rr_sgd(100_000, 10, "1", steps="exact", **DL),
        "LP-Normal-SGD": bounds.lp_normal_sgd(100_000, 10, "1", "1e-6", **DL),
        "no privacy (true labels, mean of iterates)": bounds.average_iterate(100_000, diameter=2.0, moment=1.0),
        MEAN: bounds.lp_rr_sgd(100_000, 10, "1", steps="exact", average=True, **DL),
        "LP-Normal-SGD (mean of iterates)": bounds.lp_normal_sgd(100_000, 10, "1", "1e-6", average=True, **DL),
        "any label DP, ERM": bounds.erm_lower(100_000, "1", delta=1e-6, dimension=100_000, **DL),
        "any label DP, population": bounds.population_lower_rate(100_000, "1", **DL),
        "DP of rows and labels": bounds.full_dp_rate(100_000, "1", delta=1e-6, dimension=100_000, **DL),
    }
    kinds = [each["kind"] for each in plan["guarantees"]]
    assert kinds == ["at most"] * 7 + ["at least", "rate", "rate"]
    assert all(each["of_the_most"] == pytest.approx(each["excess_risk"] / 2) for each in found.values())


def test_what_is_given_takes_the_place_of_what_is_assumed(planned):
    text = f"{PROBLEM} --diameter 4 --lipschitz 0.5 --delta 1e-9 --parameters 200000"
    plan, found = planned(text)
    sizes = {"diameter": 4.0, "lipschitz": 0.5}
    facts = {key: plan[key] for key in ("rows", "classes", "epsilon", "diameter", "lipschitz", "delta", "parameters")}
    assert list(facts.values()) == [100_000, 10, "1", 4.0, 0.5, "0.000000001", 200_000]
    normal = bounds.lp_normal_sgd(100_000, 10, "1", "1e-9", **sizes)
    full = bounds.full_dp_rate(100_000, "1", delta=1e-9, dimension=200_000, **sizes)
    assert found["LP-Normal-SGD"]["excess_risk"] == normal
    assert found["DP of rows and labels"]["excess_risk"] == full
    assert not any("Assumed" in sentence for sentence in plan["advice"])
    assumed = planned(PROBLEM)[0]["advice"][-1]
    assert assumed.startswith("Assumed") and "--delta 1e-6" in assumed and "--parameters 100000" in assumed


def test_a_lower_rate_that_needs_many_parameters_is_left_out_of_few(planned):
    plan, found = planned(f"{PROBLEM} --parameters 20000")
    assert "any label DP, population" not in found
    assert any("as many parameters as rows" in sentence for sentence in plan["advice"])
    lower = bounds.erm_lower(100_000, "1", delta=1e-6, dimension=20_000, **DL)
    assert found["any label DP, ERM"]["excess_risk"] == lower


def test_noise_that_no_vault_draws_for_so_many_classes_is_left_out(planned):
    plan, found = planned("plan --convex --rows 1000 --classes 5000 --epsilon 1")
    assert "LP-Normal-SGD" not in found and any("at most 4,097 classes" in sentence for sentence in plan["advice"])


def test_so_many_rows_and_not_one_fewer_bring_a_bound_down_to_a_tenth(planned):
    _, found = planned(PROBLEM)
    asked = {
        "no privacy (true labels)": lambda n: bounds.without_privacy(n, **DL),
        "LP-RR-SGD (exact steps)": lambda n: bounds.lp_rr_sgd(n, 10, "1", steps="exact", **DL),
        "LP-Normal-SGD": lambda n: bounds.lp_normal_sgd(n, 10, "1", "1e-6", **DL),
        MEAN: lambda n: bounds.lp_rr_sgd(n, 10, "1", steps="exact", average=True, **DL),
        "LP-Normal-SGD (mean of iterates)": lambda n: bounds.lp_normal_sgd(n, 10, "1", "1e-6", average=True, **DL),
    }
    for name, bound in asked.items():
        enough = found[name]["rows_for_a_tenth"]
        assert bound(enough) <= 0.2 < bound(enough - 1)
    assert found["DP of rows and labels"]["rows_for_a_tenth"] is None


@pytest.mark.parametrize("n_rows", [1, 2, 10**30])
def test_few_rows_and_very_many_are_counted_too(n_rows):
    enough = plan_convex.rows_for(0.2, bounds.without_privacy(n_rows, **DL), n_rows)
    assert enough == pytest.approx(32_161, abs=1)


def test_the_table_says_which_bounds_say_nothing(shell):
    code, table, advice = shell(PROBLEM)
    assert code == 0 and "epsilon 1 (local, per label)" in table and "p = 100,000, D = 2, L = 1" in table
    assert "LP-RR-SGD (paper's steps) at most 2.55 > 100% 33,929,351" in table
    assert "LP-RR-SGD (exact steps) at most 0.856 42.8% 2,894,584" in table
    assert "No excess risk exceeds D L = 2" in advice and "Here: LP-RR-SGD (paper's steps), LP-Normal-SGD." in advice
    assert "A rate leaves out a constant" in advice
    _, _, enough = shell("plan --convex --rows 1000000000 --classes 2 --epsilon 1")
    assert "No excess risk exceeds" not in enough


def test_the_mean_of_the_iterates_is_advised_and_compared_with_its_own_kind(planned):
    plan, found = planned(PROBLEM)
    without = found["no privacy (true labels, mean of iterates)"]["excess_risk"]
    times = f"{found[MEAN]['excess_risk'] / without:.3g} times the same bound without"
    assert plan["advice"][0].startswith(f"{MEAN} promises the most with label privacy: {times}")
    assert "average=True" in plan["advice"][0]


def test_above_epsilon_1_the_paper_has_no_steps_of_its_own(planned):
    plan, found = planned("plan --convex --rows 1000 --classes 2 --epsilon 1.1")
    assert [name for name in found if name.startswith("LP-RR-SGD")] == ["LP-RR-SGD (exact steps)", MEAN]
    assert "Above epsilon 1 the paper's steps are the exact ones." in plan["advice"]
    assert not any("Above epsilon 1" in sentence for sentence in planned(PROBLEM)[0]["advice"])


def test_equal_promises_are_said_to_be_equal():
    names = ("no privacy (true labels)", "no privacy (true labels, mean of iterates)", "LP-Normal-SGD", MEAN)
    found = [plan_convex.Promise(name, plan_convex.AT_MOST, 1.0, 0.5, 10) for name in names]
    problem = plan_convex.Problem(10, 2, Epsilon.of("1"), None, None, None, None, None)
    assert plan_convex._advice(problem, found)[0].startswith(
        f"LP-Normal-SGD and {MEAN} promise the same, which is the most"
    )


def test_gradients_that_are_closer_together_need_less_noise(planned):
    plan, found = planned(f"{PROBLEM} --sensitivity 1")
    assert found["LP-Normal-SGD"]["excess_risk"] == bounds.lp_normal_sgd(
        100_000, 10, "1", "1e-6", sensitivity=1.0, **DL
    )
    assert plan["sensitivity"] == 1.0 and not any("--sensitivity" in sentence for sentence in plan["advice"])
    assumed = planned(f"{PROBLEM} --lipschitz 3")[0]
    assert assumed["sensitivity"] == 6.0 and any("--sensitivity 3" in sentence for sentence in assumed["advice"])


def test_a_lower_bound_of_0_is_no_result(planned):
    plan, found = planned(f"{PROBLEM} --parameters 1")
    assert bounds.erm_lower(100_000, "1", delta=1e-6, dimension=1, **DL) == 0
    assert "any label DP, ERM" not in found and any("bound is as good as 0" in sentence for sentence in plan["advice"])
    assert not any("bound is as good as 0" in sentence for sentence in planned(PROBLEM)[0]["advice"])


@pytest.mark.parametrize("size", ["1e-30", "1e30"])
def test_no_size_that_is_taken_leaves_double_precision(planned, size):
    text = f"plan --convex --rows 1000 --classes 4000 --epsilon 0.000001 --delta 1e-18 --diameter {size} --lipschitz {size}"
    _, found = planned(text)
    assert all(0 < each["excess_risk"] < float("inf") for each in found.values())


def test_nothing_is_cut_off_in_a_narrow_terminal(shell):
    assert shell(PROBLEM, columns=80)[1] == shell(PROBLEM, columns=120)[1]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ("--convex --prior 0.5,0.5", 2, "--prior is for mechanisms"),
        ("--diameter 2", 2, "--diameter: only for convex learning. Add --convex"),
        ("--delta 1e-6 --parameters 3", 2, "--delta, --parameters: only for convex learning"),
        ("--convex --parameters 0", 2, "--parameters"),
        ("--convex --diameter 0", 2, "'--diameter': must be a number from 1e-30 to 1e+30, got 0."),
        ("--convex --lipschitz nan", 2, "'--lipschitz': must be a number from"),
        ("--convex --lipschitz 1e300", 2, "'--lipschitz': must be a number from"),
        ("--convex --sensitivity wide", 2, "'--sensitivity': must be a number from"),
        ("--convex --sensitivity 2.1", 1, "sensitivity must be at most 2 lipschitz = 2, got 2.1"),
        ("--convex --delta 0", 2, "delta must be from 1e-18 to below 1, got 0."),
        ("--convex --delta 1.5", 2, "delta must be from 1e-18 to below 1, got 1.5."),
        ("--convex --delta 1e-19", 2, "delta must be from 1e-18 to below 1, got 1e-19."),
        ("--convex --delta small", 2, "delta must be"),
        ("--convex --epsilon 0", 2, "epsilon must be > 0"),
        ("--epsilon 0", 2, "epsilon must be > 0"),
    ],
)
def test_what_does_not_belong_is_refused(shell, options, code, says):
    found = shell(f"plan --rows 100 --classes 2 --epsilon 1 {options}")
    assert found[:2] == (code, "") and says in found[2]


def test_an_epsilon_that_says_nothing_has_no_plan(shell):
    code, _, said = shell("plan --convex --rows 100 --classes 2 --epsilon 0.000000000001")
    assert code == 1 and "reports say nothing" in said
