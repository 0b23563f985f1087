"""What a cluster costs on this machine, beside a run without one on as many threads, as Markdown tables."""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq

from make import DATA

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
    """The rows of the large table in so many files, trajectories whole."""
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
    """A scheduler and executors with one vcore each, and the most memory that each process has had."""

    def __init__(self, gyre, executors):
        command = [gyre, "cluster", "up", "--executors", str(executors), "--vcores", "1", "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        self.peaks, self.ended = {}, threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while not self.ended.wait(0.2):
            for child in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
                for pid in child.read_text().split():
                    try:
                        name = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1]
                        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                    except OSError:
                        continue
                    if peak:
                        self.peaks[pid] = name, int(peak[1]) * 1024 / 1e6

    def peak(self, name):
        return max(peak for of, peak in self.peaks.values() if of == name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def run(args, data, query, *options):
    """Seconds of the whole run, its record, and the seconds of each round of tasks."""
    with tempfile.TemporaryDirectory(dir=args.data) as out:
        file = Path(out) / "cluster.toml"
        file.write_text(f'[job]\nname = "cluster"\noutput = "{out}/out"\n[tables.rows]\npath = "{data}"\n{query}')
        start = time.monotonic()
        command = [args.gyre, "run", file, "-v", "--log-format", "json", *options]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, text=True)
        seconds = time.monotonic() - start
        record = json.loads(next((Path(out) / "out/runs").glob("*.json")).read_text())
        events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        rounds = [event for event in events if event["message"] == "a round ends"]
    return seconds, record["seconds"], rounds


def table(title, head, lines):
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for line in lines:
        show = (x if isinstance(x, str) else f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in line)
        print("|", " | ".join(show), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="small, count, fit; all unless given")
    parser.add_argument("--reps", type=int, default=3, help="repetitions (%(default)s)")
    parser.add_argument("--gyre", default=ROOT / "target/release/gyre", help="the program, with the feature cluster (%(default)s)")
    folder = os.environ.get("GYRE_BENCH_DATA", ROOT / "target/bench-data")
    parser.add_argument("--data", default=folder, help="a folder for data ($GYRE_BENCH_DATA, or %(default)s)")
    args = parser.parse_args()
    folder = Path(args.data)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = args.jobs or ["small", "count", "fit"]
    if unknown := set(wanted) - {"small", "count", "fit"}:
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

    def lines():
        for name, data, query in jobs:
            for threads in [1, 2]:
                found = [run(args, data, query, "--threads", str(threads)) for _ in range(args.reps)]
                yield line(name, f"local, {threads} threads", found, "", "")
        for executors in [1, 2, 3]:
            with Cluster(args.gyre, executors) as cluster:
                ran = {}
                for name, data, query in jobs:
                    on = "--cluster", cluster.address
                    ran[name] = [run(args, data, query, *on) for _ in range(args.reps)]
                for name, found in ran.items():
                    yield line(name, f"{executors} executors", found, cluster.peak("scheduler"), cluster.peak("executor"))

    def line(name, where, found, scheduler, executor):
        seconds = (statistics.median(run[key] for _, run, _ in found) for key in ["count", "fit", "write"])
        rounds = [round["seconds"] for *_, rounds in found for round in rounds]
        latency = statistics.median(rounds) if rounds else ""
        return [name, where, statistics.median(whole for whole, *_ in found), *seconds, latency, scheduler, executor]

    head = ["job", "where", "whole s", "count s", "fit s", "write s", "a round s (p50)", "scheduler MB", "executor MB"]
    table("A cluster on one machine, each executor with one vcore", head, lines())


if __name__ == "__main__":
    main()
