"""The report of a run says what the run recorded, all of it and nothing else."""

import json
import re
import shutil
import subprocess
import sys

import example_run
import pytest

import labeldp as ldp
from labeldp import report
from labeldp.report.run import HEADINGS

NBSP = "\u00a0"


def page_of(folder, **options):
    return report.write_run(folder, **options).read_text(encoding="utf-8")


def heading_of(page):
    return re.search(r"<h1>(.*?)</h1>", page)[1]


@pytest.fixture(scope="module")
def page(finished):
    return (finished / "report.html").read_text(encoding="utf-8")


def test_the_headline_says_the_result_in_one_sentence(page, finished):
    last = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()][-2]
    assert heading_of(page) == f"{100 * last['accuracy']:.1f}{NBSP}% on public test data at epsilon{NBSP}2"


def test_every_section_is_there_once_with_its_heading(page):
    for name, heading in HEADINGS.items():
        assert page.count(f'<section id="{name}">\n<h2>{heading}</h2>') == 1


def test_nothing_is_loaded_from_anywhere(page):
    assert re.findall(r'(?:src|href)="(?!#|data:image/png)', page) == []
    assert (
        "http://" not in page
        and "https://" not in page
        and "//" not in page.replace("data:image/png;base64", "")[:5000]
    )
    assert "<script" not in page and "@import" not in page and not re.search(r"url\((?!#)", page)


def test_no_id_is_used_twice_and_every_reference_finds_its_id(page):
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', page)) <= {(i, "") for i in ids} | {("", i) for i in ids}


def test_every_recorded_number_has_its_mark(page, finished, marks_of):
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    marks = marks_of(page)
    epochs = {stage: [e for e in lines if e["kind"] == "epoch" and e["stage"] == stage] for stage in (1, 2)}
    assert marks["loss"] == {f"stage-{stage}": len(epochs[stage]) for stage in (1, 2)}
    assert marks["learning"] == {
        **{f"hold-out-stage-{stage}": len(epochs[stage]) for stage in (1, 2)},
        **{f"test-stage-{stage}": 1 for stage in (1, 2)},
    }
    stages = [line for line in lines if line["kind"] == "stage"]
    assert set(marks["candidates"]) == {f"stage-{s['stage']}-k-{k}" for s in stages for k in s["groups"]}
    assert set(marks["filtered"]) == {f"stage-{s['stage']}" for s in stages if s["filtered"]}
    assert set(marks["confusion"]) == {"cells"} | {f"{i}-{j}" for i in range(10) for j in range(10)}
    points = {"mean-1": 1, "mean-2": 4, "mean-3": 4, "mean-4": 2, "mean-5": 1}
    assert marks["epsilon"] == points  # this run, LP-1ST, LP-2ST, LabelDP-Pro, without privacy


def test_a_mark_says_its_number_when_pointed_at(page):
    assert re.search(r"<title>stage 1, epoch 3: 7\d\.\d\u00a0% ± 1\.2\u00a0%</title>", page)
    assert "<title>stage 2: " in page and "<title>Pullover taken for Coat: " in page


def test_the_certificate_is_told_query_by_query(page, promise):
    assert promise["guarantee"] in page and promise["adjacency"] in page and promise["composition"] in page
    assert "sequentially interactive local" in page and promise["ledger"]["hash"] in page
    for query in promise["queries"]:
        assert f"<td>{query['labels charged']}</td>" in page and query["mechanism"]["name"] in page
    assert "releases 3 of this ledger" in page and "labels.ledger" in page


def test_the_limits_are_stated_with_this_runs_epsilon(page):
    assert "here 46 percentage points" in page and "LabelDP-Pro has delta &gt; 0" in page
    assert "Epsilon is per label" in page and "add/remove adjacency" in page


def test_the_recipe_stands_as_it_was_given(page):
    assert example_run.RECIPE.replace('"', "&quot;") in page


def test_writing_twice_gives_the_same_bytes_whatever_the_users_style(copy_of):
    import matplotlib

    folder = copy_of()
    first = report.write_run(folder).read_bytes()
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "axes.facecolor": "red", "svg.hashsalt": None}):
        assert report.write_run(folder).read_bytes() == first
        assert matplotlib.rcParams["lines.linewidth"] == 9  # and leaves it alone
    assert not [file for file in folder.iterdir() if file.name.endswith(".tmp")]


def test_a_failed_write_leaves_the_old_report_and_no_draft(copy_of, monkeypatch):
    folder = copy_of()
    before = (folder / "report.html").read_bytes()

    def fail(*paths):
        raise OSError("disk full")

    monkeypatch.setattr("labeldp.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        report.write_run(folder)
    assert (folder / "report.html").read_bytes() == before
    assert len(list(folder.iterdir())) == 4


def test_what_is_hostile_is_only_text(tmp_path, promise):
    hostile = "</title><script>alert(1)</script>\"' onload=x $\\frac{1}{0}$ \x07\ud800 漢 &amp;"
    metrics = example_run.records(epochs=(2,))
    metrics[0]["mechanism"] = hostile
    query = promise["queries"][0] | {
        "source": hostile,
        "name": hostile,
        "mechanism": {"name": hostile, hostile: hostile},
    }
    bad = promise | {
        "guarantee": hostile,
        "unit": hostile,
        "trust": hostile,
        hostile: {hostile: hostile},
        "queries": [query],
    }
    recipe = "name = '</title><script>alert(1)</script> onload=x'\n# </pre><script>"
    folder = example_run.write(tmp_path / "run", metrics=metrics, promise=bad, recipe=recipe)
    page = page_of(folder, classes=[hostile] * 10, command=hostile)
    assert "<script" not in page and "alert(1)" in page and "onload=x" in page
    assert not re.search(r"<[^>]*\sonload=", page)  # never inside a tag
    assert "\x07" not in page and "$" in page and "漢" in page


def test_an_interrupted_run_says_how_far_it_came(copy_of, marks_of):
    lines = [json.dumps(line) for line in example_run.records()[:40]]
    folder = copy_of(metrics="\n".join(lines) + '\n{"kind": "epoch", "stage": 2, "ep')
    page = page_of(folder)
    assert "The last it recorded was epoch 7 of 40 in stage 2 of 2." in page and "not finished" in heading_of(page)
    assert marks_of(page)["loss"] == {"stage-1": 30, "stage-2": 7}


def test_a_resumed_run_counts_what_it_told_twice_once(copy_of, marks_of):
    lines = [json.dumps(line) for line in example_run.records(epochs=(4, 5))]
    page = page_of(copy_of(metrics="\n".join([*lines[:8], *lines[5:]])))
    assert marks_of(page)["loss"] == {"stage-1": 4, "stage-2": 5}


@pytest.mark.parametrize(
    ("missing", "sentences"),
    [
        (
            {"metrics": None},
            ["There is no metrics.jsonl", "No stage recorded its candidates.", "No stage was recorded."],
        ),
        ({"certificate": None}, ["There is no certificate.json", "without a certificate", "no certified figure"]),
        ({"recipe": None}, ["There is no recipe.toml", "No published points are known"]),
        ({"metrics": ""}, ["no epoch was recorded", "No figure on public test data was recorded."]),
        ({"metrics": '{"kind": "done", "seconds": 3}'}, ["Trained at epsilon", "no figure on public test data"]),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(copy_of, missing, sentences):
    page = page_of(copy_of(**missing))
    assert all(sentence in page for sentence in sentences)
    assert all(f'<section id="{name}">' in page for name in HEADINGS)


def test_a_run_without_hold_out_and_filter_says_so(copy_of, marks_of):
    metrics = [line | {"filtered": None} for line in example_run.records(epochs=(3, 3), hold_out=False)]
    page = page_of(copy_of(metrics="\n".join(map(json.dumps, metrics))))
    assert "There was no noisy hold-out." in page and "No stage filtered rows" in page
    assert set(marks_of(page)["learning"]) == {"test-stage-1", "test-stage-2"}


def test_a_loss_that_is_not_finite_is_left_out_and_counted(copy_of, marks_of):
    metrics = example_run.records(epochs=(4,))
    metrics[2]["loss"] = float("nan")
    page = page_of(copy_of(metrics="\n".join(map(json.dumps, metrics))))
    assert marks_of(page)["loss"] == {"stage-1": 3} and "Epochs without a finite loss: 1." in page


def test_a_run_judged_by_rmse_speaks_of_rmse(copy_of, marks_of):
    metrics = "\n".join(map(json.dumps, example_run.records(rmse=True, epochs=(3, 3))))
    page = page_of(copy_of(metrics=metrics, recipe=example_run.RECIPE.replace("fashion-mnist", "ml-1m")))
    assert heading_of(page) == f"RMSE 0.930 on public test data at epsilon{NBSP}2"
    assert "RMSE against epsilon" in page and "per rating, not per person" in page and "Accuracy against" not in page
    assert marks_of(page)["epsilon"] == {"mean-1": 1, "mean-2": 5, "mean-3": 5, "mean-4": 1}
    assert "The test record has no confusion matrix." in page
    assert marks_of(page)["learning"] == {"hold-out-stage-1": 3, "hold-out-stage-2": 3}  # accuracy has axes of its own
    assert marks_of(page)["learning-rmse"] == {"test-stage-1": 1, "test-stage-2": 1}


def test_noise_that_can_be_replayed_makes_a_loud_banner(copy_of):
    folder = copy_of(certificate=json.dumps(example_run.certificate(bits=ldp.InsecureBits(7))))
    page = page_of(folder)
    assert page.index('<div class="banner" role="alert"><strong>NOT PRIVATE</strong>') < page.index("<h1>")
    assert heading_of(page).endswith(", NOT PRIVATE") and "at epsilon" not in heading_of(page)
    assert "no label is protected at all" in page and "this run</span>" not in page


@pytest.mark.parametrize("value", ["true", 1, None])
def test_a_certificate_that_does_not_say_private_is_not_believed(tmp_path, promise, value):
    page = page_of(example_run.write(tmp_path / "run", metrics=None, promise=promise | {"private": value}))
    assert "<strong>NOT PRIVATE</strong>" in page


def test_a_private_run_has_no_banner(page):
    assert "NOT PRIVATE" not in page


def test_a_curator_is_not_put_into_the_table_of_local_figures(copy_of):
    page = page_of(copy_of(certificate=json.dumps(example_run.certificate(trust="curator"))))
    assert "this run (curator)" in page and "<th>this run</th>" not in page and "not the same promise" in page
    assert "aggregated them before adding noise" in page


def test_a_hundred_classes_make_a_heat_map_without_numbers(copy_of, marks_of):
    metrics = example_run.records(epochs=(2,), n_classes=100)
    page = page_of(copy_of(metrics="\n".join(map(json.dumps, metrics))))
    assert marks_of(page)["confusion"] == {"cells": 1}
    assert len(page) < 100_000


def test_classes_that_do_not_fit_are_refused(finished, tmp_path):
    with pytest.raises(ldp.InvalidArgument, match="must name the 10 classes"):
        report.write_run(finished, classes=["one", "two"])
    with pytest.raises(ldp.InvalidArgument, match="must be a run's folder"):
        report.write_run(tmp_path / "none")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("metrics", '{"kind": "epoch"}\n', "line 1, is not a complete record"),
        ("metrics", 'nonsense\n{"kind": "done"}\n', "line 1, must be a JSON object"),
        ("metrics", '{"kind": "test", "stage": 1, "accuracy": 1, "confusion": [[1, 2]]}', "line 1, is not a complete"),
        ("recipe", "name = ", "recipe.toml must be TOML"),
        ("certificate", "[1]", "certificate.json must be a JSON object"),
    ],
)
def test_damaged_files_are_named(copy_of, file, text, words):
    with pytest.raises(ldp.InvalidArgument, match=words):
        report.write_run(copy_of(**{file: text}))


def test_without_matplotlib_the_extra_is_named(finished):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from labeldp import report, MissingExtra\n"
        "try: report.write_run(sys.argv[1])\n"
        "except MissingExtra as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(finished)], check=True, capture_output=True, text=True
    ).stdout
    assert "pip install 'labeldp[report]'" in said


def test_importing_the_report_does_not_import_matplotlib():
    code = "import sys, labeldp.report; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


def test_a_stage_that_protects_nothing_is_stronger_than_any_certificate(tmp_path, promise):
    records = [record | {"private": False} if record["kind"] == "stage" else record for record in example_run.records()]
    example_run.write(tmp_path / "run", metrics=records, promise=promise)
    page = report.write_run(tmp_path / "run").read_text()
    assert "<strong>NOT PRIVATE</strong>" in page and heading_of(page).endswith(", NOT PRIVATE")


# ---------------------------------------------------------------- counts of clusters


def counts_record(stages):
    return {
        "kind": "stage", "stage": 0, "stages": stages, "rows": 1000, "charged": 1000, "mechanism": "Histogram",
        "epsilon": "0.5", "temperature": None, "groups": {}, "mean_groups": None, "clusters": 1500,
        "filtered": None, "private": True,
    }  # fmt: skip


def shown(folder):
    """Return a page's words, without tags and figures."""
    page = folder.joinpath("report.html").read_text(encoding="utf-8")
    page = re.sub(r"<(style|svg|pre).*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)).replace("\u00a0", " ")


def test_a_run_on_counts_alone_speaks_of_clusters(tmp_path):
    lines = [counts_record(0)]
    lines += [{"kind": "epoch", "stage": 0, "epoch": n, "epochs": 2, "loss": 1 / n, "hold_out": None} for n in (1, 2)]
    lines += [
        {"kind": "test", "stage": 0, "rows": 100, "accuracy": 0.8},
        {"kind": "done", "seconds": 3.0, "threads": 1},
    ]
    example_run.write(tmp_path / "run", metrics=lines, promise=example_run.certificate(trust="curator"))
    report.write_run(tmp_path / "run")
    page, words = (tmp_path / "run" / "report.html").read_text(encoding="utf-8"), shown(tmp_path / "run")
    assert "trained on counts of clusters" in words and "Clusters 1,500 1,000 labels counted at epsilon 0.5" in words
    assert "In 1,500 public clusters the label holder counted every class" in words and "by Histogram" in words
    assert "The most charged label epsilon 2 (entry 3, Histogram) = 2" in words
    assert "clusters, epoch 1: loss" in page and "after clusters: 80" in page
    assert "stage 0" not in page.lower() and "None" not in words and "No stage recorded" not in words


def test_counts_before_a_stage_are_no_stage(tmp_path, promise):
    metrics = [counts_record(2), *example_run.records()]
    example_run.write(tmp_path / "run", metrics=metrics, promise=promise)
    report.write_run(tmp_path / "run", classes=example_run.CLASSES)
    words = shown(tmp_path / "run")
    assert "2 stages of training, after counts of clusters" in words
    assert "Stages 2 RandomizedResponse, then RRWithPrior" in words and "Clusters 1,500" in words
    assert "is charged twice, for parts of epsilon" in words and "None" not in words


def test_a_run_that_was_stopped_on_counts_says_so(tmp_path, promise):
    epoch = {"kind": "epoch", "stage": 0, "epoch": 1, "epochs": 8, "loss": 1.0, "hold_out": None}
    example_run.write(tmp_path / "run", metrics=[counts_record(0), epoch], promise=promise)
    report.write_run(tmp_path / "run")
    assert "The last it recorded was epoch 1 of 8 on the counts of clusters." in shown(tmp_path / "run")


@pytest.mark.parametrize("number", [1.5, 3])
def test_a_student_that_is_taught_between_stages_or_after_them_is_called_so(copy_of, marks_of, number):
    records = [line for line in example_run.records() if line["kind"] != "done" and line.get("stage", 1) <= number]
    epoch = next(line for line in records if line["kind"] == "epoch")
    taught = [epoch | {"stage": number, "epoch": done, "epochs": 4} for done in (1, 2, 3)]
    page = page_of(copy_of(metrics="\n".join(map(json.dumps, records + taught))))
    assert marks_of(page)["loss"][f"stage-{number}"] == 3 and "<title>student, epoch 2: loss " in page
    assert "The last it recorded was epoch 3 of 4 of the student." in page


def test_a_run_on_a_subset_says_so_and_stands_in_no_published_table(page, finished, tmp_path):
    run, caveat = shutil.copytree(finished, tmp_path / "run"), "not comparable with published figures"
    recipe = f"rows = 2000\n{example_run.RECIPE}\n[student]\nmodel = 'small-conv'\n"
    (run / "recipe.toml").write_text(recipe, encoding="utf-8")
    part = page_of(run)
    assert "Fashion-MNIST (the first 2,000 training rows alone)" in part and "and a student small-conv" in part
    assert caveat in part and caveat not in page
    assert ">this run</th>" in page and ">this run</th>" not in part
