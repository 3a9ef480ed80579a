import json
import subprocess
import sys

import numpy as np
import pytest

import labeldp as ldp


def run(*arguments, **options):
    code = "import sys; from labeldp.cli import main; sys.argv[0] = 'labeldp'; main()"
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, **options)


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ads.ledger"
    made = run("vault", "create", "--ledger", path, "--budget", "2", "--rows", "100")
    assert made.returncode == 0 and "epsilon 2 per label" in " ".join(made.stderr.split()) and made.stdout == ""
    return path


def test_a_ledger_lives_through_the_shell(ledger, tmp_path):
    vault = ldp.LabelVault(np.arange(100) % 4, classes=4, ledger=ledger)
    vault.release(ldp.RandomizedResponse("1.5")).save(tmp_path / "release")
    status = run("vault", "status", "--ledger", ledger)
    assert "has spent epsilon 1.5 of epsilon 2" in " ".join(status.stderr.split())
    facts = json.loads(run("vault", "status", "--ledger", ledger, "--json").stdout)
    assert facts["rows"] == 100 and facts["queries"] == 1 and facts["spent"]["epsilon"] == "1.5"
    verified = run("vault", "verify", "--ledger", ledger, "--receipt", tmp_path / "release.json")
    assert verified.returncode == 0 and "The receipt's charge is in it." in " ".join(verified.stderr.split())
    raised = run("vault", "raise", "--ledger", ledger, "--budget", "3", "--reason", "a second season")
    assert "raised from epsilon 2 to epsilon 3" in " ".join(raised.stderr.split())
    certificate = run("certificate", "--ledger", ledger)
    assert json.loads(certificate.stdout)["raises"][0]["reason"] == "a second season"
    assert "epsilon 1.5 for every label" in " ".join(certificate.stderr.split())


def test_an_older_copy_is_detected_from_a_receipt(ledger, tmp_path):
    import shutil

    old = tmp_path / "backup.ledger"
    shutil.copy(ledger, old)
    ldp.LabelVault(np.arange(100) % 4, classes=4, ledger=ledger).release(ldp.RandomizedResponse("1")).save(
        tmp_path / "r"
    )
    found = run("vault", "verify", "--ledger", old, "--receipt", tmp_path / "r.json")
    assert found.returncode == 1 and "older copy" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("vault", "status", "--ledger", "missing.ledger"), 1, "There is no ledger at"),
        (("vault", "create", "--budget", "1"), 2, "--ledger"),
        (("vault", "create", "--ledger", "x.ledger", "--budget", "-1"), 2, "budget must be > 0"),
        (("vault", "create", "--ledger", "no/where/x.ledger", "--budget", "1"), 1, "must exist"),
        (("plan", "--classes", "10", "--rows", "5", "--epsilon", "0"), 2, "must be > 0"),
        (("plan", "--classes", "1", "--rows", "5", "--epsilon", "1"), 2, "between 2 and 100,000"),
        (("plan", "--classes", "a", "--rows", "5", "--epsilon", "1"), 2, "at least two names"),
        (("plan", "--classes", "3", "--rows", "5", "--epsilon", "1", "--prior", "0.5,0.5"), 1, "one number per class"),
        (
            ("plan", "--classes", "2", "--rows", "5", "--epsilon", "1", "--prior", "a,b"),
            1,
            "numbers separated by commas",
        ),
        (("frobnicate",), 2, "No such command"),
        ((), 2, "Commands"),
    ],
)
def test_failures_say_what_must_hold_and_exit_accordingly(arguments, code, says, tmp_path):
    found = run(*arguments, cwd=tmp_path)
    assert found.returncode == code
    assert says in " ".join((found.stderr + (found.stdout if not arguments else "")).split())
    assert "Traceback" not in found.stderr


def test_a_plan_shows_what_each_mechanism_would_give():
    shown = run("plan", "--classes", "10", "--rows", "50000", "--epsilon", "1", "--json")
    plan = json.loads(shown.stdout)
    plain, likely, grouped = plan["mechanisms"]
    assert plain["chance_of_true_label"] == pytest.approx(np.e / (np.e + 9), abs=1e-6)
    assert likely["chance_of_true_label"] == pytest.approx(plain["chance_of_true_label"])
    assert grouped["share_of_limit"] > 0.95 > plain["share_of_limit"]
    assert any("GroupedResponse" in sentence for sentence in plan["advice"])
    table = run("plan", "--classes", "no,yes", "--rows", "1000", "--epsilon", "2")
    assert "RandomizedResponse" in table.stdout and table.returncode == 0


@pytest.mark.parametrize("prior", ["0.999,0.0005,0.0005", "0.4,0.3,0.3"])
def test_a_plan_takes_a_prior(prior):
    plan = json.loads(run("plan", "--classes", "3", "--rows", "9", "--epsilon", "1", "--prior", prior, "--json").stdout)
    sure = any("not look at the labels" in sentence for sentence in plan["advice"])
    assert sure == prior.startswith("0.999")


def test_a_plan_for_very_many_classes():
    plan = json.loads(run("plan", "--classes", "5000", "--rows", "9", "--epsilon", "0.5", "--json").stdout)
    assert plan["mechanisms"][2]["share_of_limit"] > 0.9


def test_the_standard_error_of_the_plan_is_that_of_the_release():
    plan = json.loads(run("plan", "--classes", "10", "--rows", "20000", "--epsilon", "1", "--json").stdout)
    release = ldp.LabelVault(np.zeros(20_000, dtype=int), classes=10, budget="1").release(ldp.RandomizedResponse("1"))
    rare = release.class_frequencies().standard_errors[1:].mean()
    assert plan["standard_error_of_a_share"] == pytest.approx(rare, rel=0.05)


@pytest.mark.parametrize("prior", ["1,0", "0,1"])
def test_a_plan_for_labels_that_are_known_has_nothing_to_tell(command, prior):
    code, out, _ = command("plan", "--classes", "2", "--rows", "100", "--epsilon", "1", "--prior", prior, "--json")
    assert code == 0
    assert {(each["bits_per_label"], each["share_of_limit"]) for each in json.loads(out)["mechanisms"]} == {(0.0, None)}


def test_a_plan_at_an_epsilon_of_nearly_nothing_shows_no_rounding(command):
    code, out, _ = command("plan", "--classes", "2", "--rows", "100", "--epsilon", "0.000000001", "--json")
    found = json.loads(out)["mechanisms"]
    assert code == 0 and all(each["bits_per_label"] >= 0 and each["share_of_limit"] is None for each in found)
