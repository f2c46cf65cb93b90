"""Timing of device work and the file of raw samples."""

import contextlib
import gc
import json
import math
import os
import sys
import threading
import time
import traceback

import torch

WARMUPS = 3
SAMPLES = 10
FILL_US = 300.0  # device time of one sample, at the least
SPIN_GHZ = 2.0  # above any SM clock of Hopper: a spin lasts at least as long as asked


class OutOfTime(Exception):
    """A section's time budget is spent."""


class Run:
    """One run of the benchmark: its device, its clock and its file of records."""

    def __init__(self, folder, seconds, dry, started):
        self.folder, self.seconds, self.started = folder, seconds, started
        self.gpu = not dry
        self.device = torch.device("cuda" if self.gpu else "cpu")
        self.section, self.section_end = "", started + seconds
        self.records = []
        self.lock = threading.Lock()
        self.file = open(os.path.join(folder, "pytorch.jsonl"), "a")
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size if self.gpu else 1 << 16

    def left(self):
        """Seconds left of the whole run."""
        return self.started + self.seconds - time.perf_counter()

    def enter(self, section, budget):
        self.section = section
        self.section_end = time.perf_counter() + min(budget, self.left() - 3)

    def check(self):
        """Raises OutOfTime once the section's budget is spent."""
        if time.perf_counter() > self.section_end:
            raise OutOfTime(f"{self.section}: out of its time budget")

    def pick(self, real, dry):
        """A size: of the GPU run, or of the dry run on a CPU."""
        return real if self.gpu else dry

    def write(self, name, **fields):
        """Appends one record and flushes it."""
        record = {"section": self.section, "name": name, **fields}
        with self.lock:
            self.records.append(record)
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()

    def times(self, name, times_us, **fields):
        self.write(name, **fields, times_us=[round(t, 2) for t in times_us])

    def skip(self, reason):
        print(f"{self.section}: SKIPPED: {reason}", flush=True)

    @contextlib.contextmanager
    def attempt(self, name):
        """Turns a failure into a record, so that the cases after it still run."""
        self.check()
        failed = None
        try:
            yield
        except OutOfTime:
            raise
        except Exception as error:
            traceback.print_exc()
            failed = f"{type(error).__name__}: {str(error)[:300]}"
            error.__traceback__ = None
        if failed:
            self.write(name, failed=failed)
            self.free()

    def free(self):
        gc.collect()
        if self.gpu:
            try:
                torch.cuda.empty_cache()
            except RuntimeError:  # a broken CUDA context: each case after it fails and says so
                traceback.print_exc()

    def sync(self):
        if self.gpu:
            torch.cuda.synchronize()

    def normal(self, *shape, dtype=torch.bfloat16, scale=1.0):
        """A tensor of normal random numbers."""
        values = torch.randn(*shape, dtype=dtype, device=self.device)
        return values if scale == 1.0 else values.mul_(scale)

    def copies(self, size):
        """Number of operand sets of `size` bytes that exceed three times the L2 cache together."""
        return max(1, min(64, math.ceil(3 * self.l2 / size)))

    def batch(self, fn, first, count, launch_us, queued):
        """Time of `count` launches, in µs. Where `queued`, a spin on the device lets the host queue them all beforehand."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if queued and launch_us * count < 5000:
            torch.cuda._sleep(int((1.5 * launch_us * count + 20) * 1000 * SPIN_GHZ))
        begin.record()
        for i in range(count):
            fn(first + i)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000

    def samples(self, fn, number=SAMPLES, queued=True):
        """Samples of the time of one call of `fn(i)`, in µs, and the launches in each."""
        self.check()
        if not self.gpu:
            for i in range(2):
                begin = time.perf_counter()
                fn(i)
            return [(time.perf_counter() - begin) * 1e6], 1
        for i in range(WARMUPS):
            fn(i)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        fn(0)
        launch_us = (time.perf_counter() - begin) * 1e6
        torch.cuda.synchronize()
        once = self.batch(fn, 1, 4, launch_us, queued) / 4
        count = max(1, min(400, math.ceil(FILL_US / max(once, 0.5))))
        times, first = [], 5
        for _ in range(number):
            times.append(self.batch(fn, first, count, launch_us, queued) / count)
            first += count
            if times[-1] > 20_000 and len(times) >= 5 and time.perf_counter() > self.section_end:
                break
        return times, count

    def time(self, name, fn, queued=True, **fields):
        """Measures `fn(i)` and writes one record."""
        times, launches = self.samples(fn, queued=queued)
        self.times(name, times, **fields, launches=launches)


def cycle(items):
    """A function of a launch's index to an operand set."""
    return lambda i: items[i % len(items)]


def beside(run, first, second, first_us, second_us, fill_us=40_000):
    """Times, in µs, of launches on two streams, of those launches only that the other stream's work spans.

    `first` and `second` are called with an index. The times alone, in µs, give the number of launches.
    """
    counts = [max(4, min(400, math.ceil(fill_us / t))) for t in (first_us, second_us)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    base = torch.cuda.Event(enable_timing=True)
    marks = [[], []]
    torch.cuda.synchronize()
    torch.cuda._sleep(int(10_000_000 * SPIN_GHZ))
    base.record()

    def mark(side):
        event = torch.cuda.Event(enable_timing=True)
        event.record(streams[side])
        marks[side].append(event)

    for side in (0, 1):
        streams[side].wait_event(base)
        mark(side)
    done = [0, 0]
    while done != counts:
        side = 0 if done[0] * counts[1] <= done[1] * counts[0] else 1
        side = side if done[side] < counts[side] else 1 - side
        with torch.cuda.stream(streams[side]):
            (first, second)[side](done[side])
        mark(side)
        done[side] += 1
    torch.cuda.synchronize()
    at = [[base.elapsed_time(event) * 1000 for event in side] for side in marks]
    start, end = max(side[0] for side in at), min(side[-1] for side in at)
    # The first launch of each stream is the warm-up.
    return [[b - a for a, b in zip(side[1:], side[2:]) if a >= start and b <= end] for side in at]


def compiled(run, fn):
    """`fn` compiled by Inductor; traced without code generation in a dry run."""
    return torch.compile(fn, dynamic=False, backend="inductor" if run.gpu else "aot_eager")
