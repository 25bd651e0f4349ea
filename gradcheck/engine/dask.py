"""Items on a cluster of dask.distributed (extra `cluster`); nothing else here knows that there is dask.

A dask worker does no item itself. It unpacks the sources that came with it, each set once, and gives the item to a worker process of ours,
with the limits that hold on one machine. What comes back speaks of the paths of the machine that asked.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gradcheck._errors import GradcheckError, UsageError
from gradcheck.engine.environment import DEVICES, lacking
from gradcheck.engine.execute import Job
from gradcheck.engine.lodging import Facts, different, do, facts, leave
from gradcheck.engine.parcels import Parcel, Sender
from gradcheck.process import Died, Done, Limits
from gradcheck.suite import Suite

if TYPE_CHECKING:
    from distributed import Client, Future

Item = TypeVar("Item")

WAIT = 30.0
"""Seconds in which a scheduler must answer, and have a worker."""

_AHEAD = 2  # items handed out per thread of the cluster: one in work, one on its way
_GPU = "GPU"


class ClusterError(GradcheckError):
    """A cluster that was there and is gone. What is done is kept."""


@contextlib.contextmanager
def cluster(scheduler: str, suite: Suite, cwd: Path, *, jobs: int) -> Iterator[Cluster]:
    """The cluster of this scheduler; without one, a cluster of `jobs` workers on this machine.

    Raises:
        UsageError: dask is not installed, the scheduler does not answer or has no worker, or a worker has other versions than this process.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise UsageError(f"--engine dask needs dask.distributed ({error}): pip install 'gradcheck[cluster]'") from None
    with contextlib.ExitStack() as stack:
        address: object = scheduler
        if not scheduler:
            slots = {} if lacking("metal") else {_GPU: 1}
            options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL, "resources": slots}
            address = stack.enter_context(LocalCluster(n_workers=jobs, **options))
        try:
            client = stack.enter_context(Client(address, timeout=WAIT, set_as_default=False))
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(
                f"no dask scheduler answers at {scheduler!r} ({type(error).__name__}: {error}): start one with `dask scheduler`, "
                "or leave out --scheduler to have a cluster of this machine's cores"
            ) from error
        yield stack.enter_context(_opened(client, scheduler, Sender(suite, cwd)))


@contextlib.contextmanager
def _opened(client: Client, scheduler: str, sender: Sender) -> Iterator[Cluster]:
    try:
        client.wait_for_workers(1, timeout=WAIT)
    except TimeoutError as error:
        raise UsageError(f"the scheduler at {scheduler!r} has no worker: start some with `dask worker {scheduler}`") from error
    mine = facts()
    for worker, theirs in _facts_of(client).items():
        if said := different(theirs, mine, worker):
            raise UsageError(said)
    house = uuid.uuid4().hex
    try:
        yield Cluster(client, scheduler or "this machine's own cluster", house, mine, sender)
    finally:
        with contextlib.suppress(Exception):  # a cluster that is gone has nothing to tidy up
            client.run(leave, house, on_error="ignore")


def _facts_of(client: Client) -> Mapping[str, Facts]:
    """What each worker has. One that has no gradcheck cannot be asked by a function of ours."""
    from importlib.metadata import version

    for worker, answer in client.run(version, "gradcheck", on_error="return").items():
        if not isinstance(answer, str):
            raise UsageError(f"the dask worker {worker} has no gradcheck: install what this machine has, gradcheck {facts()['gradcheck']}")
    found: dict[str, Facts] = client.run(facts)
    return found


@dataclass(slots=True)
class Cluster:
    """A client, and what it has sent."""

    client: Client
    address: str
    house: str
    mine: Facts
    sender: Sender
    _sent: dict[str, Future] = field(default_factory=dict)
    _count: Iterator[int] = field(default_factory=itertools.count)

    def work(
        self,
        function: Callable[[Item], object],
        items: Iterable[Item],
        *,
        jobs: int,  # noqa: ARG002 - as many at a time as the cluster has threads
        limits: Limits,
        logs: Path,  # noqa: ARG002 - what an item writes stays where it ran, but for the end that is in its outcome
    ) -> Iterator[tuple[Item, Done | Died]]:
        """As `process.run_all`.

        Raises:
            ClusterError: the scheduler is gone.
            UsageError: a worker that joined later has other versions, or no worker has a GPU and an item needs one.
        """
        from distributed import as_completed

        given: dict[Any, Item] = {}
        rest, waiting = iter(items), as_completed(loop=self.client.loop)
        try:
            while True:
                room = _AHEAD * max(1, sum(self.client.nthreads().values()))
                for item in itertools.islice(rest, max(0, room - len(given))):  # workers may have gone
                    future = self._submit(function, item, limits)
                    given[future.key] = item
                    waiting.add(future)
                if not given:
                    return
                future = next(waiting)
                yield given.pop(future.key), self._outcome(future)
        finally:
            if given:
                with contextlib.suppress(Exception):
                    self.client.cancel(list(waiting.futures), force=True)

    def _submit(self, function: Callable[[Item], object], item: Item, limits: Limits) -> Future:
        resources = {_GPU: 1} if isinstance(item, Job) and item.kernel.requires in DEVICES else None
        if resources and not self._has_gpu():
            assert isinstance(item, Job)
            raise UsageError(
                f"the kernel {item.kernel.name} needs {DEVICES[item.kernel.requires]}, and no worker of {self.address} offers one: "
                "start one with `dask worker … --resources GPU=1`"
            )
        parcels = [self._sent_once(parcel) for parcel in self.sender.parcels_for(item)]
        item = self.sender.addressed(item)
        key = f"gradcheck-{self.house}-{next(self._count)}"
        return self.client.submit(do, self.house, self.mine, parcels, function, item, limits, key=key, pure=False, resources=resources)

    def _has_gpu(self) -> bool:
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return any(_GPU in worker["resources"] for worker in workers)

    def _sent_once(self, parcel: Parcel) -> Future:
        """The parcel as a value of the cluster: told to the scheduler once, and fetched once by each worker that needs it.

        It is the result of a task, and no `scatter`, so that it is made again where the worker that held it is lost.
        """
        if parcel.digest not in self._sent:
            self._sent[parcel.digest] = self.client.submit(_same, parcel, key=f"gradcheck-parcel-{parcel.digest}")
        return self._sent[parcel.digest]

    def _outcome(self, future: Future) -> Done | Died:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        try:
            outcome = future.result()
        except KilledWorker as error:
            return Died("crashed", f"the dask workers that had it were lost, one after the other: {error}", "", 0.0)
        except FutureCancelledError as error:
            raise ClusterError(
                f"lost the scheduler at {self.address} ({error}): what is done is kept, and goes on by gradcheck run --resume"
            ) from error
        finally:
            future.release()
        assert isinstance(outcome, Done | Died)
        return outcome


def _same(parcel: Parcel) -> Parcel:
    return parcel
