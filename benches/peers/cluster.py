"""Compares runs on a cluster of this machine with runs in one process, as Markdown tables."""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from make import DATA, planted

ROOT = Path(__file__).resolve().parents[2]
COUNT = """
[transitions]
sql = "SELECT traj_id, t, state FROM rows"
trajectory = "traj_id"
time = "t"
state = "state"
lag = 1
[[fit]]
name = "dbmr"
method = "dbmr"
rank = 1
restarts = 1
"""
PARTS = """
[transitions]
sql = "SELECT part, traj_id, t, state FROM rows"
trajectory = "traj_id"
time = "t"
state = "state"
lag = 1
partition_by = "part"
[[fit]]
name = "dbmr"
method = "dbmr"
rank = 3
restarts = 10
"""
MODEL = """
[transitions]
sql = "SELECT j AS source, i AS target, n FROM rows"
source = "source"
target = "target"
count = "n"
[[fit]]
name = "dbmr"
method = "dbmr"
rank = 8
[[fit]]
name = "svd"
method = "svd"
rank = 8
"""
PASSES = MODEL.replace("rank = 8", 'rank = 8\nrestarts = 4\ninit = "random"\npolish = false\nmax_iterations = 20', 1)
MOVES = MODEL[: MODEL.rindex("[[fit]]")]
WIDE = PASSES.replace("restarts = 4", "restarts = 1").replace("= 20", "= 3")
SMALL = """
[transitions]
sql = "SELECT * FROM rows"
time = "t"
state = "s"
lag = 1
[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
"""


def split(folder, files):
    """Writes the rows of the large table to several files, with whole trajectories."""
    if not folder.exists():
        whole = folder.with_name("chain50m.parquet")
        if not whole.exists():
            DATA[whole.name](whole, 1)
        rows = pq.read_table(whole)
        unfinished = folder.with_name(f"unfinished-{folder.name}")
        unfinished.mkdir(exist_ok=True)
        step = rows.num_rows // files
        for at in range(files):
            own = rows.slice(at * step, step if at + 1 < files else None)
            pq.write_table(own, unfinished / f"{at:03}.parquet", row_group_size=1 << 20)
        unfinished.rename(folder)
    return folder


class Cluster:
    """A scheduler and executors with one vcore each."""

    def __init__(self, gyre, executors):
        command = [gyre, "cluster", "up", "--executors", str(executors), "--vcores", "1", "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        children = (file.read_text().split() for file in Path(f"/proc/{self.process.pid}/task").glob("*/children"))
        self.pids = {"scheduler": [], "executor": []}
        for pid in (pid for some in children for pid in some):
            self.pids[Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1]].append(pid)

    def forget_peaks(self):
        for pid in (pid for pids in self.pids.values() for pid in pids):
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peaks(self):
        """Peak memory in MB of the scheduler and of the largest executor since the last reset."""
        peak = lambda pid: int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
        return [max(map(peak, pids)) * 1024 / 1e6 for pids in self.pids.values()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def cpu(pids):
    """Processor time of these processes, in seconds."""
    ticks = 0
    for pid in pids:
        # The name of a process may contain spaces. It ends at the last bracket.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def stored(folder):
    """Bytes of the files that tasks have written for other tasks."""
    return sum(file.stat().st_size for file in folder.glob("work/*/parts/*"))


def run(args, data, query, cluster=None, *options):
    """Seconds of the whole run, its record, the seconds of its rounds and stages, and its rounds of passes."""
    with tempfile.TemporaryDirectory(dir=args.data) as folder:
        out = Path(folder) / "out"
        file = Path(folder) / "cluster.toml"
        file.write_text(f'[job]\nname = "cluster"\noutput = "{out}"\n[tables.rows]\npath = "{data}"\n{query}')
        command = [args.gyre, "run", file, "-v", "--log-format", "json", *options]
        if cluster:
            command += ["--cluster", cluster.address]
            cluster.forget_peaks()
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        everyone = [process.pid, *(cluster.pids["executor"] if cluster else [])]
        steps, before, tasks, passes = [], cpu(everyone), {}, []
        for line in process.stderr:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("message") == "a round begins":
                tasks = event
            if event.get("message") == "passes made":
                passes.append(event)
            if event.get("message") not in ["a round ends", "stage done"]:
                continue
            now = cpu(everyone)
            name = "of this process" if event["message"] == "stage done" else "round"
            steps.append({"name": f"{event['stage']} ({name})", "cpu": now - before, "stored": stored(out), "event": event, "tasks": tasks})
            before, tasks = now, {}
        if process.wait() != 0:
            raise SystemExit(f"{file.read_text()}\nended with {process.returncode}")
        seconds = time.monotonic() - start
        record = json.loads(next((out / "runs").glob("*.json")).read_text())
    for step, last in zip(steps, [{"stored": 0}, *steps]):
        step["new"] = max(0, step["stored"] - last["stored"])
    return seconds, record, steps, passes, cluster.peaks() if cluster else []


def show(x):
    return x if isinstance(x, str) else f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def table(title, head, lines):
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for line in lines:
        print("|", " | ".join(map(show, line)), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    names = ["small", "count", "fit", "model", "passes", "moves", "wide"]
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"{', '.join(names)}; all unless given")
    parser.add_argument("--reps", type=int, default=3, help="repetitions (%(default)s)")
    parser.add_argument("--executors", type=int, nargs="*", default=[1, 2, 3], help="numbers of executors (%(default)s)")
    parser.add_argument("--gyre", default=ROOT / "target/release/gyre", help="the program, with the feature cluster (%(default)s)")
    folder = os.environ.get("GYRE_BENCH_DATA", ROOT / "target/bench-data")
    parser.add_argument("--data", default=folder, help="a folder for data ($GYRE_BENCH_DATA, or %(default)s)")
    args = parser.parse_args()
    folder = Path(args.data)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = args.jobs or names
    if unknown := set(wanted) - set(names):
        parser.error(f"no such job: {', '.join(unknown)}")
    jobs = []
    if "small" in wanted:
        small = folder / "small.csv"
        small.write_text("t,s\n" + "".join(f"{t},{t // 7 % 2 * 2 + t * t % 3 % 2}\n" for t in range(600)))
        jobs.append(("600 rows", small, SMALL))
    if "count" in wanted:
        jobs.append(("50 M rows counted", split(folder / "chain50m_64", 64), COUNT))
    if "fit" in wanted:
        parts = folder / "partitions1000"
        if not parts.exists():
            DATA[parts.name](parts, 1)
        jobs.append(("1,000 partitions fitted", parts, PARTS))
    if {"model", "passes", "moves"} & set(wanted):
        counts = folder / "planted-10m-nnz.parquet"
        if not counts.exists():
            planted(counts, 1, states=205_000, draws=50)
        models = [
            ("model", "one model of 10 M non-zeros", MODEL),
            ("passes", "the same, plain, by passes", PASSES),
            ("moves", "the same, DBMR alone, by passes", MOVES),
        ]
        for name, title, query in models:
            if name in wanted:
                jobs.append((title, counts, query))
    if "wide" in wanted:
        counts = folder / "planted-2m-states.parquet"
        if not counts.exists():
            planted(counts, 1, states=2_000_000, draws=3)
        jobs.append(("6 M non-zeros of 2 M states, by passes", counts, WIDE))
    found, load = {}, [os.getloadavg()[0]]
    with contextlib.ExitStack() as stack:
        # All variants run in turn, and idle processes need no time.
        clusters = {n: stack.enter_context(Cluster(args.gyre, n)) for n in args.executors}
        for _ in range(args.reps):
            for job, data, query in jobs:
                for threads in [1, 2]:
                    ran = run(args, data, query, None, "--threads", str(threads))
                    found.setdefault((job, f"local, {threads} threads"), []).append(ran)
                for n, cluster in clusters.items():
                    split = ["--split", "1000000"] if query in [PASSES, MOVES, WIDE] else []
                    ran = run(args, data, query, cluster, *split)
                    found.setdefault((job, f"{n} executors"), []).append(ran)
                load.append(os.getloadavg()[0])

    def line(job, where, runs):
        seconds = (statistics.median(record["seconds"][stage] for _, record, *_ in runs) for stage in ["count", "fit", "write"])
        rounds = [step["event"]["seconds"] for _, _, steps, *_ in runs for step in steps if step["tasks"]]
        latency = statistics.median(rounds) if rounds else ""
        peaks = [max(peaks) for peaks in zip(*(peaks for *_, peaks in runs))] or ["", ""]
        return [job, where, statistics.median(whole for whole, *_ in runs), *seconds, latency, *peaks]

    def of_steps(job, where, runs):
        for at, first in enumerate(runs[0][2]):
            same = [steps[at] for _, _, steps, *_ in runs]
            seconds, had = (statistics.median(values) for values in zip(*((s["event"]["seconds"], s["cpu"]) for s in same)))
            tasks = [first["tasks"].get(key, "") for key in ["tasks", "task_bytes"]]
            yield [job, where, first["name"], seconds, had, *tasks, first["new"] / 1e6 if first["tasks"] else ""]

    title = f"Medians of {args.reps}, each executor with one vcore; load {min(load):.1f} to {max(load):.1f}"
    head = ["job", "where", "whole s", "count s", "fit s", "write s", "a round s (p50)", "scheduler MB", "executor MB"]
    table(f"A cluster on one machine. {title}", head, (line(*of, runs) for of, runs in found.items()))
    head = ["job", "where", "step", "seconds", "CPU s", "tasks", "largest task, bytes", "left in the store MB"]
    table(f"Steps. {title}", head, (one for (job, where), runs in found.items() for one in of_steps(job, where, runs)))
    def of_passes(job, where, runs):
        """Rounds of one pass by kernel, and rounds of several restarts."""
        kinds = {}
        for event in (event for *_, passes, _ in runs for event in passes):
            kernels = event["passes"].split()
            name = kernels[0] if len(kernels) == 1 else f"{len(kernels)} at once"
            kinds.setdefault(name, []).append(event)
        for name, events in kinds.items():
            middle = (statistics.median(event[key] for event in events) for key in ["seconds", "tasks", "task_bytes", "bytes"])
            seconds, tasks, largest, size = middle
            yield [job, where, name, len(events) / len(runs), seconds, tasks, largest, size / 1e6]

    head = ["job", "where", "passes", "rounds", "seconds (p50)", "tasks", "largest task, bytes", "rows that come back, MB"]
    table(f"Rounds of passes. {title}", head, (one for (job, where), runs in found.items() for one in of_passes(job, where, runs)))
    head = ["job", "where", "fit", "iterations", "seconds"]
    fits = ((job, where, record) for (job, where), [(_, record, *_), *_] in found.items())
    largest = ((job, where, max(record["models"], key=lambda m: m["nonzeros"])) for job, where, record in fits)
    shown = ([job, where, f["name"], f["iterations"], f["seconds"]] for job, where, model in largest for f in model["fits"])
    table("Fits of the largest model, the iterations of the best restart", head, shown)


if __name__ == "__main__":
    main()
