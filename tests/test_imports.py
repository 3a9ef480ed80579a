import json
import statistics
import subprocess
import sys

import labeldp


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_labeldp_loads_no_heavy_library():
    loaded = json.loads(run("import labeldp, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert not {"torch", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "click", "rich"} & set(loaded)


def test_importing_labeldp_takes_at_most_half_as_long_again_as_numpy():
    """Median of 5 each, interleaved in fresh processes, because the machine is shared."""
    clock = "import time; s = time.perf_counter(); import {}; print(time.perf_counter() - s)"
    numpy_times, our_times = [], []
    for _ in range(5):
        numpy_times.append(float(run(clock.format("numpy"))))
        our_times.append(float(run(clock.format("labeldp"))))
    assert statistics.median(our_times) <= 1.5 * statistics.median(numpy_times)


def test_the_public_names_are_these():
    assert set(labeldp.__all__) == EXPECTED
    for name in labeldp.__all__:
        assert getattr(labeldp, name) is not None


EXPECTED = {
    "BudgetExhausted",
    "ClusterPrior",
    "ClusterRR",
    "Epsilon",
    "GroupedResponse",
    "Guarantee",
    "HistogramRelease",
    "InsecureBits",
    "InvalidArgument",
    "InvalidLabels",
    "LabelDPError",
    "LabelHolder",
    "LabelVault",
    "Learner",
    "Ledger",
    "LedgerError",
    "MissingExtra",
    "MultiStage",
    "NormalResponse",
    "NotIdentifiable",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "Release",
    "SumRelease",
    "TrustError",
    "UnbiasedResponse",
    "VaultClosed",
    "convex",
    "create_ledger",
    "datasets",
    "features",
    "load",
    "metrics",
    "priors",
    "sklearn",
    "torch",
}


def test_help_is_quick_and_lists_only_what_exists():
    code = (
        "import time, sys; s = time.perf_counter(); sys.argv = ['labeldp', '--help']\n"
        "from labeldp.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert not {'torch', 'sklearn', 'scipy', 'pandas', 'pyarrow'} & set(sys.modules)\n"
        "print(time.perf_counter() - s)"
    )
    *text, seconds = run(code).splitlines()
    assert float(seconds) < 5  # generous: the machine is shared; the list of modules above is the real check
    from labeldp.cli.main import COMMANDS
    from labeldp.cli.main import labeldp as group

    for name in COMMANDS:
        assert any(line.strip().startswith(name) for line in text)
        assert group.get_command(None, name) is not None
