"""How gyre's time and memory grow with non-zeros, rank, threads, rows and partitions, as Markdown tables."""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from make import DATA, planted, rows, walks, write

ROOT = Path(__file__).resolve().parents[2]
PAIRS = "SELECT j AS source, i AS target, n FROM rows", 'source = "source"\ntarget = "target"\ncount = "n"'
TRAJECTORIES = "SELECT part, traj_id, t, state FROM rows", 'trajectory = "traj_id"\ntime = "t"\nstate = "state"\nlag = 1'


def run(args, data, query, fits, *options):
    """Medians over several runs: seconds of the stages, seconds of the fits, and peak memory in MB."""
    records = []
    for _ in range(args.reps):
        with tempfile.TemporaryDirectory(dir=args.data) as out:
            file = Path(out) / "scaling.toml"
            fit = "".join(f'[[fit]]\nname = "{m}"\nmethod = "{m}"\nrank = {r}\nrestarts = {n}\n' for m, r, n in fits)
            file.write_text(
                f'[job]\nname = "scaling"\noutput = "{out}"\n[tables.rows]\npath = "{data}"\n'
                f'[transitions]\nsql = "{query[0]}"\n{query[1]}\n{fit}'
            )
            start = time.monotonic()
            subprocess.run([args.gyre, "run", file, *options], stdout=subprocess.DEVNULL, check=True)
            record = json.loads(next((Path(out) / "runs").glob("*.json")).read_text())
            line = record["seconds"] | {"whole": time.monotonic() - start, "MB": record["peak_memory_bytes"] / 1e6}
            line["scratch"] = (record["scratch_bytes"] or 0) / 1e6
            for model in record["models"]:
                for one in model["fits"]:
                    line[one["name"]] = line.get(one["name"], 0) + one["seconds"]
                    # One unit of work is a pass over the non-zeros: an iteration of DBMR or a matrix-vector product of the SVD.
                    line[f"{one['name']} iterations"] = one["iterations"]
            records.append(line)
    return {key: statistics.median(record[key] for record in records) for key in records[0]}


def show(x):
    """A label, or a number in three digits without an exponent."""
    return x if isinstance(x, str) else f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def table(title, head, lines):
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for line in lines:
        print("|", " | ".join(show(x) for x in line), "|", flush=True)


def counts(args, millions):
    """Planted counts with about the given number of million non-zeros, 50 per state."""
    path = Path(args.data) / f"planted-{millions}m-nnz.parquet"
    if not path.exists():
        planted(path, 1, states=20_500 * millions, draws=50)
    return path


def chain(args, parts, total=10_000_000):
    """Rows of `parts` partitions. The total number of rows does not depend on `parts`."""
    path = Path(args.data) / f"chain-{parts}-parts.parquet"
    if not path.exists():
        steps = 5_000
        states = walks(np.random.default_rng(5), 1, 10_000, 10, total // steps, steps, successors=32, leave=0.02)
        all_rows = rows(states)
        part = np.arange(all_rows.num_rows) * parts // all_rows.num_rows
        write(path, [all_rows.append_column("part", pa.array(part.astype(np.int64)))])
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    tables = ["non-zeros", "rank", "threads", "partitions", "resamples", "memory"]
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(tables)}; all unless given")
    parser.add_argument("--reps", type=int, default=3, help="repetitions (%(default)s)")
    parser.add_argument("--gyre", default=ROOT / "target/release/gyre", help="the program (%(default)s)")
    folder = os.environ.get("GYRE_BENCH_DATA", ROOT / "target/bench-data")
    parser.add_argument("--data", default=folder, help="a folder for data ($GYRE_BENCH_DATA, or %(default)s)")
    args = parser.parse_args()
    if unknown := set(args.tables) - set(tables):
        parser.error(f"no such table: {', '.join(unknown)}")
    wanted = args.tables or tables
    Path(args.data).mkdir(parents=True, exist_ok=True)
    fits = [("dbmr", 8, 10), ("svd", 8, 1)]

    head = ["", "count s", "DBMR s", "DBMR iterations of the best", "SVD s", "SVD products", "write s", "peak MB"]

    def line(label, found):
        keys = ["count", "dbmr", "dbmr iterations", "svd", "svd iterations", "write", "MB"]
        return [label, *(found[key] for key in keys)]

    if "non-zeros" in wanted:
        grown = ((f"{m} M", run(args, counts(args, m), PAIRS, fits)) for m in [1, 3, 10, 30])
        table("Non-zeros, rank 8, ten restarts of DBMR", ["non-zeros", *head[1:]], (line(*one) for one in grown))
    if "rank" in wanted:
        ranks = ((str(r), run(args, counts(args, 3), PAIRS, [("dbmr", r, 10), ("svd", r, 1)])) for r in [2, 4, 8, 16, 32])
        table("Rank, 3 M non-zeros", ["rank", *head[1:]], (line(*one) for one in ranks))
    if "threads" in wanted:
        threads = ((str(n), run(args, counts(args, 10), PAIRS, fits, "--threads", str(n))) for n in [1, 2])
        table("Threads, 10 M non-zeros", ["threads", *head[1:]], (line(*one) for one in threads))
    stages = ["count s", "fit s", "write s", "peak MB"]

    def stage(label, found):
        return [label, found["count"], found["fit"], found["write"], found["MB"]]

    if "partitions" in wanted:
        query = TRAJECTORIES[0], TRAJECTORIES[1] + '\npartition_by = "part"'
        parts = ((str(n), run(args, chain(args, n), query, [("dbmr", 8, 10)])) for n in [1, 4, 16, 64])
        title = "Partitions, 10 M rows in all, DBMR of rank 8 with ten restarts"
        table(title, ["partitions", *stages], (stage(*one) for one in parts))
    if "resamples" in wanted:
        asked = ((n, f"{TRAJECTORIES[1]}\n[validation]\nbootstrap = {n}\n") for n in [0, 10, 50])
        drawn = ((str(n), run(args, chain(args, 1), (TRAJECTORIES[0], keys), fits)) for n, keys in asked)
        table("Resamples, 10 M rows, both fits of rank 8", ["resamples", *stages], (stage(*one) for one in drawn))
    if "memory" in wanted:
        path = Path(args.data) / "chain50m.parquet"
        if not path.exists():
            DATA[path.name](path, 1)
        query = "SELECT traj_id, t, state FROM rows", TRAJECTORIES[1].replace("lag = 1", "lag = 10")
        bounds = [("none", []), *((bound, ["--memory", bound]) for bound in ["1.5GiB", "500MB", "300MB", "200MB"])]
        bounded = ((name, run(args, path, query, fits, *options)) for name, options in bounds)
        head = ["`--memory`", "count s", "fit s", "write s", "peak MB", "on disk MB"]
        table("Memory, 50 M rows, 36.7 M non-zeros, both fits of rank 8", head, ([*stage(*one), one[1]["scratch"]] for one in bounded))


if __name__ == "__main__":
    main()
