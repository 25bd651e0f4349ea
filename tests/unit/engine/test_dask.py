"""What travels to a cluster and back, and how a cluster that cannot be used is refused. A whole run on one: tests/quality/test_cluster.py."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gradcheck import Evidence, Kernel, UsageError, WorkItem
from gradcheck.engine import lodging
from gradcheck.engine.execute import Job, Source
from gradcheck.engine.lodging import Den, different, do, facts
from gradcheck.engine.parcels import Sender
from gradcheck.engine.workers import perform
from gradcheck.process import Died, Done, Limits
from gradcheck.suite import find_op, kernel_package, load

HELLO = Path(__file__).parents[2] / "testdata" / "hello"
CASE = "leaky_scan/B2,T5,D1/f32/uniform/0"
LIMITS = Limits(60, 1 << 30)
HERE = {"gradcheck": "1 (abc)", "python": "3.12", "numpy": "2.1", "mlx": "0.32"}


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A repository on the machine that asks; a test takes it away before the other machine works."""
    shutil.copytree(HELLO, tmp_path / "asks" / "hello")
    return tmp_path / "asks" / "hello"


@pytest.fixture
def den(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Den]:
    main = sys.modules["__main__"]  # pytest, which no worker needs to import
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setenv("GRADCHECK_CACHE_DIR", str(tmp_path / "cache"))
    den = Den(tmp_path / "den")
    yield den
    den.close()
    assert not den.folder.exists()


def job(there: Path, target: str = "") -> tuple[Sender, Job]:
    """A job of the kernel `plain`, or of a stranger's, and who packs for it."""
    suite = load([there], cwd=there)
    kernel = next(kernel for kernel in find_op(suite, "leaky_scan").kernels if kernel.name == "plain")
    package, _, module = kernel_package(kernel.target, there)
    item = WorkItem("leaky_scan", target or "plain", CASE)
    source = Source((str(there),), str(there))
    sender = Sender(suite, there)
    return sender, Job(item, source, Kernel(target, target), "", "") if target else Job(item, source, kernel, str(package), module)


def done(den: Den, sender: Sender, job: Job) -> Evidence:
    """Packed here, this machine's files taken away, done there."""
    parcels = sender.parcels_for(job)
    shutil.rmtree(sender.cwd)
    outcome = den.do(parcels, perform, sender.addressed(job), LIMITS)
    assert isinstance(outcome, Done), outcome
    assert isinstance(outcome.value, Evidence)
    return outcome.value


def test_an_item_is_done_where_none_of_its_files_were(there, den):
    evidence = done(den, *job(there))
    assert (evidence.status, evidence.item.kernel) == ("measured", "plain")
    assert [m.quantity for m in evidence.measurements] == ["y", "h_T", "d h", "d x", "d a"]


@pytest.mark.parametrize("absolute", [False, True])
def test_a_strangers_file_travels_with_what_lies_beside_it(there, den, absolute):
    (there / "mine.py").write_text("from _helper import leaky_scan\n")
    shutil.copy(there / "hello" / "leaky.py", there / "_helper.py")
    target = f"{there / 'mine.py' if absolute else 'mine.py'}:leaky_scan"
    evidence = done(den, *job(there, target))
    assert (evidence.status, evidence.item.kernel) == ("measured", target)


def test_what_an_item_says_names_the_files_of_the_machine_that_asked(there, den):
    file = there / "hello" / "leaky.py"
    text = file.read_text()
    assert text.count("dy, carried = cotangents") == 1
    file.write_text(text.replace("dy, carried = cotangents", "raise LookupError(__file__)"))
    evidence = done(den, *job(there))
    assert evidence.status == "raised"
    assert f"LookupError: {file}" in evidence.detail
    assert f'File "{file}"' in evidence.detail
    assert str(den.folder) not in evidence.detail


def test_a_deadly_item_is_an_outcome_there_too_and_the_next_is_done(there, den):
    sender, good = job(there)
    (there / "mine.py").write_text("import os\n\nimport mlx.core\n\n\ndef scan(h, x, a):\n    os.abort()\n")
    bad = replace(good, kernel=Kernel("mine", "mine.py:scan"), package="", module="")
    parcels = [*sender.parcels_for(good), *sender.parcels_for(bad)]
    first, second = (den.do(parcels, perform, sender.addressed(one), LIMITS) for one in (bad, good))
    assert isinstance(first, Died)
    assert first.detail == "SIGABRT (signal 6)"
    assert isinstance(second, Done)


def test_equal_files_are_one_parcel_and_what_was_packed_is_not_read_again(there):
    sender, one = job(there)
    suites, package = sender.parcels_for(one)
    assert {Path(name).name for name, _ in suites.files} >= {"leaky_scan.py", "_draw.py", "pyproject.toml"}
    assert {Path(name).name for name, _ in package.files} >= {"leaky.py"}
    (there / "hello" / "leaky.py").write_text("")
    assert sender.parcels_for(one) == [suites, package]
    assert Sender(sender.suite, there).parcels_for(one)[0].digest == suites.digest
    assert Sender(sender.suite, there).parcels_for(one)[1].digest != package.digest


def test_other_versions_are_refused_with_both():
    said = different({**HERE, "numpy": "1.26"}, HERE, "tcp://there")
    assert "tcp://there" in said
    assert "numpy 1.26 there, 2.1 here" in said
    assert "mlx" not in said
    assert different(HERE, HERE, "tcp://there") == ""
    assert "a-suite not installed there, 3 here" in different(HERE, {**HERE, "a-suite": "3"}, "w")


def test_a_worker_that_joined_later_with_another_gradcheck_does_nothing(there):
    sender, one = job(there)
    with pytest.raises(UsageError, match=r"gradcheck .* there, 0\.0\.1 here"):
        do("house", {**facts(), "gradcheck": "0.0.1"}, sender.parcels_for(one), perform, one, LIMITS)
    assert "house" not in lodging._dens


def test_without_dask_the_extra_is_named(there, monkeypatch):
    from gradcheck.engine.dask import cluster

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'gradcheck\[cluster\]'"), cluster("", load([there], cwd=there), there, jobs=1):
        pass


@pytest.fixture
def distributed():
    return pytest.importorskip("distributed", reason="the extra `cluster` is not installed")


def test_a_scheduler_that_does_not_answer_is_named(distributed, there, monkeypatch):
    from gradcheck.engine import dask

    monkeypatch.setattr(dask, "WAIT", 1.0)
    suite = load([there], cwd=there)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(UsageError, match=address), dask.cluster(address, suite, there, jobs=1):
            pass


def test_workers_that_lack_something_are_refused(distributed, there, monkeypatch):
    from gradcheck.engine import dask

    monkeypatch.setattr(dask, "WAIT", 3.0)
    suite = load([there], cwd=there)
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as local:
        address = local.scheduler.address
        with (
            pytest.raises(UsageError, match=f"no worker: start some with `dask worker {address}`"),
            dask.cluster(address, suite, there, jobs=1),
        ):
            pass
        local.scale(1)
        with monkeypatch.context() as patch:
            patch.setattr(dask, "facts", lambda: {**HERE, "numpy": "0.1"})  # what this side has; the worker asks for its own
            patch.setattr(dask, "_facts_of", lambda client: client.run(lambda: HERE))
            with pytest.raises(UsageError, match=r"numpy 2\.1 there, 0\.1 here"), dask.cluster(address, suite, there, jobs=1):
                pass
        _, one = job(there)
        on_gpu = replace(one, kernel=replace(one.kernel, requires="metal"))
        with dask.cluster(address, suite, there, jobs=1) as found, pytest.raises(UsageError, match=r"plain needs an Apple GPU.*GPU=1"):
            list(found.work(perform, [on_gpu], jobs=1, limits=LIMITS, logs=there))
