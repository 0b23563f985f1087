"""Runs gyre and other tools in turn on the same data, compares their answers and prints a Markdown table."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Only the standard library: a child process starts with the peak memory of its parent.

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NOISE = 0.03  # largest difference of the correlations of two sets of random features
CHANCE = 0.02  # largest relative difference of the log-likelihoods of two sets of ten restarts
PAPER = {"options": 'init = "random"\npolish = false\n'}  # the algorithm of the other tools
BARE = "gyre, without counts"  # the table of counts is not written
# The clock of a task is a stage, several stages or a step of the fits. Every other stage is named: `beside` has those
# whose work the other tools do not do, or do before their clock starts.
STAGES = {"count and fit": ["count", "fit"], "fit and rows": ["fit", "rows"], "decompose": ["fit"], "partition": ["fit"]}
TABLES = ["write", "promote"]  # the other tools do not write these tables
UNTIMED = (1.0, 0.1)  # seconds, or a part of the process: its start, the plan and its end are in no stage
COUNT = {"clock": "count", "beside": ["fit"], "fits": {}, "tools": [BARE, "DuckDB window", "Polars", "NumPy"]}
SVD = {
    "clock": "decompose",
    "beside": ["count"],
    "fits": {"svd": ("svd", 10, 1)},
    "rank": 10,
    "tol": 0,
    "tools": ["PROPACK", "ARPACK"],
}
DBMR = {"clock": "partition", "beside": ["count"], "tools": ["NumPy, 2 processes"]}
# State embeddings. GEMM is the matrix products alone: no cosines, no decomposition.
STATES = {
    "clock": "fit",
    "beside": ["survey", "rows"],
    "lag": 1,
    "rank": 5,
    "tools": ["deeptime VAMP", "scikit-learn RBF", "GEMM"],
}
HMM = {"method": "spectral_hmm", "lag": 1}
# Filters: fitting is part of the measured work, unless all matrices are given.
KERNEL = {
    "clock": "fit and rows",
    "beside": ["read"],
    "method": "kernel_bayes",
    "threads": 1,
    "bandwidth": (0.35, 0.25),
    "regularisation": 1e-3,
    "keys": "",
    "tools": ["NumPy, dense"],
}
TASKS = {
    "count-lag1": COUNT | {"file": "chain50m.parquet", "lag": 1},
    "count-lag10": COUNT | {"file": "chain50m.parquet", "lag": 10},
    "count-time-ordered": COUNT
    | {"file": "chain10m_time.parquet", "lag": 1, "ordered": False, "tools": COUNT["tools"] + ["DuckDB join"]},
    "boxes": COUNT
    | {"file": "dg512.parquet", "lag": 40, "boxes": (512, 256), "tools": [BARE, "SciPy", "Polars", "DuckDB window"]},
    "svd-dg512": SVD | {"file": "counts512.parquet"},
    "svd-planted100k": SVD | {"file": "planted100k.parquet"},
    "svd-planted1m": SVD | {"file": "planted1m.parquet", "tol": 1e-6, "tools": ["ARPACK"]},
    "dbmr-dg512": DBMR | {"file": "counts512.parquet", "rank": 8, "fits": {"dbmr": ("dbmr", 8, 10)}},
    "dbmr-planted100k": DBMR | {"file": "planted100k.parquet", "rank": 10, "fits": {"dbmr": ("dbmr", 10, 10)}},
    "paper-dg512": DBMR | PAPER | {"file": "counts512.parquet", "rank": 8, "fits": {"dbmr": ("dbmr", 8, 10)}},
    "paper-planted100k": DBMR | PAPER | {"file": "planted100k.parquet", "rank": 10, "fits": {"dbmr": ("dbmr", 10, 10)}},
    "end-to-end": {
        "clock": "whole run",
        "file": "dg512.parquet",
        "lag": 40,
        "boxes": (512, 256),
        "rank": 8,
        "svd_rank": 10,
        "fits": {"dbmr": ("dbmr", 8, 10), "svd": ("svd", 10, 10)},
        "tools": ["script, ARPACK", "script, randomized SVD"],
    },
    "partitions": {
        "clock": "whole run",
        "file": "partitions1000",
        "lag": 1,
        "rank": 3,
        "fits": {"dbmr": ("dbmr", 3, 10), "svd": ("svd", 3, 1)},
        "tools": ["loop"],
    },
    "states-2d": STATES | {"file": "ou2.parquet", "features": 200, "bandwidth": 1},
    # About 80 neighbours within the radius, where the kernel is 1e-4.
    "maps-torus": {
        "clock": "fit",
        "beside": ["survey", "rows"],
        "file": "torus100k.parquet",
        "dimension": 8,
        "epsilon": 0.004,
        "tools": ["eigsh"],
    },
    "sketches-torus": {
        "clock": "fit",
        "beside": ["survey", "rows"],
        "file": "torus100k.parquet",
        "dimension": 8,
        "power": 32,
        "epsilon": 0.004,
        "tools": ["sparse products"],
    },
    "pairs": COUNT | {"file": "symbols50m.parquet", "lag": 1, "tools": ["DuckDB window"]},
    "triples": HMM
    | {
        "clock": "count",
        "beside": ["fit", "rows"],
        "file": "symbols50m.parquet",
        "rank": 1,
        "answer": "counts",
        "tools": ["DuckDB triples"],
    },
    "hmm-operators": HMM
    | {
        "clock": "count and fit",
        "beside": ["rows"],
        "file": "hidden100k.parquet",
        "rank": 20,
        "answer": "singular values",
        "tools": ["NumPy and C"],
    },
    "hmm-em": HMM
    | {
        "clock": "fit",
        "beside": ["count", "rows"],
        "file": "hidden6.parquet",
        "rank": 6,
        "split": True,
        # hmmlearn stops at a gain of 0.01 nats of all 30,000 rows.
        "keys": 'refine = "em"\ntol = 3.3e-7\n',
        "answer": "nats",
        "tools": ["hmmlearn"],
    },
    "hmm-filter": HMM
    | {
        "clock": "rows",
        "beside": ["count", "fit"],
        "file": "hidden1k.parquet",
        "rank": 20,
        "answer": "nats",
        "tools": ["C"],
    },
    "kernel-filter-kbr": KERNEL | {"file": "toy1k.parquet", "rule": "kbr", "delta": 4e-6},
    "kernel-filter-pkbr": KERNEL | {"file": "toy1k.parquet", "rule": "pkbr", "delta": 2e-3},
    "kernel-tensor": KERNEL
    | {
        "file": "toy100k.parquet",
        "rule": "kbr",
        "delta": 4e-6,
        "keys": "rank_state = 30\nrank_observation = 100\n",
        "tools": [],
    },
    "filter-parallel": KERNEL
    | {
        "clock": "rows",
        "beside": ["read", "fit"],
        "file": "toy1000.parquet",
        "rule": "pkbr",
        "delta": 2e-3,
        "threads": 2,
        "tools": ["gyre, one thread"],
    },
    "kalman": {
        "clock": "rows",
        "beside": ["read", "fit"],
        "method": "kalman",
        "file": "moving10m.parquet",
        "threads": 1,
        "tools": ["filterpy"],
    },
    "states-512d": STATES | {"file": "ou512.parquet", "features": 1000, "bandwidth": 32},
}


def pipeline(task):
    """The pipeline file of a task."""
    if task.get("epsilon"):
        radius = math.sqrt(task["epsilon"] * math.log(1e4))
        method = f"heat_sketch\"\npower = {task['power']}" if task.get("power") else 'diffusion_map"'
        return f"""[job]
name = "compare"
output = "{task["out"]}"
[tables.rows]
path = "{task["path"]}"
[points]
sql = "SELECT id, x FROM rows"
id = "id"
coordinates = "x"
[[fit]]
name = "map"
method = "{method}
dimension = {task["dimension"]}
epsilon = {task["epsilon"]}
radius = {radius}
"""
    if task.get("features"):
        keys = "".join(f"{key} = {task[key]}\n" for key in ("rank", "features", "bandwidth"))
        return f"""[job]
name = "compare"
output = "{task["out"]}"
[tables.rows]
path = "{task["path"]}"
[transitions]
sql = "SELECT traj_id, t, x FROM rows"
trajectory = "traj_id"
time = "t"
lag = {task["lag"]}
coordinates = "x"
[[fit]]
name = "states"
method = "state_embedding"
{keys}"""
    if task["method"] == "spectral_hmm":
        return f"""[job]
name = "compare"
output = "{task["out"]}"
[tables.rows]
path = "{task["path"]}"
[sequences]
sql = "SELECT traj_id, t, state{", split" if task["split"] else ""} FROM rows"
trajectory = "traj_id"
time = "t"
interval = 1
symbol = "state"
{'split = "split"' if task["split"] else ""}
[[fit]]
name = "hmm"
method = "spectral_hmm"
rank = {task["rank"]}
{task["keys"]}"""
    if task["method"] in ("kernel_bayes", "kalman"):
        if task["method"] == "kalman":
            keys = "".join(f"{name} = {value}\n" for name, value in moving().items())
        else:
            state, observation = task["bandwidth"]
            keys = f"""rule = "{task["rule"]}"
bandwidth = {{ state = {state}, observation = {observation} }}
lambda = {task["regularisation"]}
delta = {task["delta"]}
{task["keys"]}"""
        return f"""[job]
name = "compare"
output = "{task["out"]}"
[tables.rows]
path = "{task["path"]}"
[sequences]
sql = "SELECT traj_id, t, y, x, split FROM rows"
trajectory = "traj_id"
time = "t"
interval = 1
state = "y"
observation = "x"
split = "split"
[[fit]]
name = "filter"
method = "{task["method"]}"
{keys}"""
    keys = 'source = "source"\ntarget = "target"\ncount = "n"'
    columns = "j AS source, i AS target, n"
    if task["steps"]:
        keys = f'trajectory = "traj_id"\ntime = "t"\nlag = {task["lag"]}\n'
        columns = "traj_id, t, x, y" if task["boxes"] else "traj_id, t, state"
        keys += "" if task["boxes"] else 'state = "state"\n'
    if Path(task["path"]).is_dir():
        columns, keys = f"part, {columns}", f'{keys}partition_by = "part"'
    if task["boxes"]:
        nx, ny = task["boxes"]
        keys += f"bins.x = {{ bounds = [0, 2], boxes = {nx} }}\nbins.y = {{ bounds = [0, 1], boxes = {ny} }}"
    options = task.get("options", "") + (f"tolerance = {task['tol']}\n" if task.get("tol") else "")
    fits = [
        f'[[fit]]\nname = "{name}"\nmethod = "{method}"\nrank = {rank}\nrestarts = {restarts}\n{options}'
        for name, (method, rank, restarts) in task["fits"].items()
    ]
    return f"""[job]
name = "compare"
output = "{task["out"]}"
[tables.rows]
path = "{task["path"]}"
[transitions]
sql = "SELECT {columns} FROM rows"
{keys}
{"".join(fits)}"""


def moving():
    """Two points that move on lines, of which the positions are observed."""
    diagonal = [[float(i == j) for j in range(4)] for i in range(4)]
    noise = [[0.01 * x for x in row] for row in diagonal]
    steps = [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]]
    return {
        "F": [[float(x) for x in row] for row in steps],
        "H": [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]],
        "Q": noise,
        "R": [[0.25, 0.0], [0.0, 0.25]],
        "x0": [0.0, 0.0, 0.0, 0.0],
        "P0": diagonal,
    }


def touch(gigabytes=4):
    """Allocates and frees memory: virtual machines are slow to return memory that their host has reclaimed."""
    code = f"b'1' * ({gigabytes} << 30)"
    subprocess.run([sys.executable, "-c", code], check=True)


def python(task):
    """Runs tools.py in a separate process and reads its line."""
    command = [sys.executable, HERE / "tools.py", json.dumps(task)]
    threads = str(task["threads"] or os.cpu_count())
    env = os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
    return json.loads(process.stdout.splitlines()[-1])


def check_clock(task, stages, whole):
    """Fails if the stages do not add up to the process, or a stage is neither in the clock nor named as other work."""
    total = sum(stages.values())
    if not total <= whole <= total + max(UNTIMED[0], UNTIMED[1] * whole):
        shown = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in stages.items())
        sys.exit(f"the process took {whole:.2f} s, and its stages {total:.2f} s: {shown}")
    if task["clock"] == "whole run":
        return
    measured = STAGES.get(task["clock"], [task["clock"]])
    known = measured + task["beside"] + TABLES
    if missing := [stage for stage in measured if stage not in stages]:
        sys.exit(f"the run has no stage {' and '.join(missing)}, which the clock `{task['clock']}` measures")
    if other := [stage for stage in stages if stage not in known]:
        sys.exit(f"the stage {' and '.join(other)} is neither in the clock `{task['clock']}` nor in `beside` of the task")


def run_gyre(program, task):
    file = Path(task["out"]) / "compare.toml"
    file.write_text(pipeline(task))
    start = time.monotonic()
    options = ["--threads", str(task["threads"])] if task["threads"] else []
    options += ["--without", "counts"] if task["tool"] == BARE else []
    process = subprocess.Popen([program, "run", file, *options], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    whole = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    record = json.loads(next((file.parent / "runs").glob("*.json")).read_text())
    # A stage of the run or a step of its fits: the part that is measured for the other tools.
    check_clock(task, record["seconds"], whole)
    clocks = record["seconds"] | {"whole run": whole}
    clocks["count and fit"] = clocks.get("count", 0) + clocks.get("fit", 0)
    clocks["fit and rows"] = clocks.get("fit", 0) + clocks.get("rows", 0)
    for model in record["models"]:
        for fit in model["fits"]:
            steps = fit.get("steps", {}).items()
            clocks |= {step: clocks.get(step, 0) + seconds for step, seconds in steps}
    line = {"seconds": clocks[task["clock"]], "whole": whole}
    line |= {"cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss / 1024}
    if task["tool"] == BARE:
        return line | {"scale": 1, "answers": {}}
    return line | python(task | {"tool": "gyre"})


def verdict(tool, answers):
    """Compares the answers of a tool with those of all tools."""
    notes = []
    for kind, mine in answers[tool].items():
        everyone = [a[kind] for a in answers.values() if kind in a]
        models = min(map(len, everyone))  # fewer if a loop stopped early
        everyone, mine = [a[:models] for a in everyone], mine[:models]
        if kind == "counts":
            notes.append("counts equal" if everyone.count(mine) == len(everyone) else "counts **DIFFER**")
        elif kind == "singular values":
            # Approximations are too small, so the largest values are the best.
            pairs = [pair for a in everyone for values in zip(a, mine) for pair in zip(*values, strict=True)]
            short = max(theirs - own for theirs, own in pairs)
            notes.append("singular values equal" if short < 1e-8 else f"singular values **LOW** by {short:.0e}")
        elif kind == "correlations":
            # The features are random, so the values of two tools differ by chance.
            far = max(abs(theirs - own) for a in everyone for theirs, own in zip(a[0], mine[0], strict=True))
            notes.append(f"correlations within {far:.3f}" if far < NOISE else f"correlations **DIFFER** by {far:.3f}")
        elif kind == "eigenvalues":
            # The kernel of gyre has single precision.
            far = max(abs(theirs - own) for a in everyone for theirs, own in zip(a[0], mine[0], strict=True))
            notes.append("eigenvalues equal" if far < 1e-6 else f"eigenvalues **DIFFER** by {far:.0e}")
        elif kind == "energy":
            # ‖B³²G‖² of two sets of random numbers.
            far = max(abs(a[0] / mine[0] - 1) for a in everyone)
            notes.append(f"energies within {100 * far:.0f} %" if far < 0.5 else f"energies **DIFFER** by {far:.1f}")
        elif kind == "estimates":
            far = max(abs(theirs - own) for a in everyone for theirs, own in zip(a[0], mine[0], strict=True))
            notes.append(f"estimates within {far:.0e}" if far < 1e-6 else f"estimates **DIFFER** by {far:.0e}")
        elif kind == "nats":
            short = max(a[0] - mine[0] for a in everyone)
            note = f"{mine[0]:.5f} nats per symbol"
            notes.append(note if short < 1e-3 else f"{note}, **LOW** by {short:.0e}")
        elif kind == "iterations":
            notes.append(f"{mine[0]} iterations")
        else:
            short = max(sum(a) - sum(mine) for a in everyone) / models
            note = f"log-likelihood {sum(mine) / models:.5f}"
            notes.append(note if short < CHANCE * abs(sum(mine)) / models else f"{note}, **LOW** by {short:.0e}")
    return ", ".join(notes)


def table(name, runs):
    """The rows of a task, starting with gyre: medians, and the ratios to gyre's time."""
    answers = {tool: lines[-1]["answers"] for tool, lines in runs.items()}

    def median(tool, key):
        return statistics.median(line[key] for line in runs[tool])

    own, whole, clock = median("gyre", "seconds"), median("gyre", "whole"), TASKS[name]["clock"]
    for tool in runs:
        seconds, scale = median(tool, "seconds"), runs[tool][-1]["scale"]
        label = f"gyre ({clock})" if tool == "gyre" else tool
        label += f" (1/{scale:.0f} of the work × {scale:.0f})" if scale > 1 else ""
        cells = [name, label, f"{seconds:.2f}", f"{median(tool, 'whole'):.2f}" if tool.startswith("gyre") else ""]
        cells += [f"{median(tool, 'cpu'):.2f}", f"{median(tool, 'peak'):.0f}", f"{seconds / own:.2f}"]
        cells += ["" if tool.startswith("gyre") else f"{seconds / whole:.2f}", verdict(tool, answers)]
        print("|", " | ".join(cells), "|", flush=True)


def compare(name, args, results):
    """Measures all tools of a task in turn, in each repetition."""
    path = Path(args.data).resolve() / TASKS[name]["file"]
    if not path.exists():
        sys.exit(f"{path} is missing: generate it with make.py")
    task = {"boxes": None, "ordered": True, "lag": 0, "features": 0, "epsilon": 0, "power": 0}
    task |= {"method": None, "split": False, "keys": "", "answer": None, "threads": None} | TASKS[name] | {"path": str(path)}
    task["threads"] = args.threads or task["threads"]
    task["steps"] = 1 if task["boxes"] else task["lag"]  # rows between the ends of a pair
    tools = ["gyre", *task["tools"]] + ["PySpark"] * (args.spark and name == "count-lag1")
    for file in [path] if path.is_file() else path.rglob("*.parquet"):
        with open(file, "rb") as bytes:  # fills the page cache in pieces, because children start with the peak memory of this process
            while bytes.read(1 << 24):
                pass
    runs = {tool: [] for tool in tools}
    for repetition in range(args.reps):
        for tool in tools:
            touch()
            with tempfile.TemporaryDirectory(dir=args.data) as out:
                one = task | {"tool": tool, "out": str(Path(out).resolve())}
                one |= {"moving": moving()} if name == "kalman" else {}
                one |= {"threads": 1} if tool == "gyre, one thread" else {}
                try:
                    line = run_gyre(args.gyre, one) if tool.startswith("gyre") else python(one)
                except subprocess.CalledProcessError:
                    if tool == "gyre":
                        raise
                    print(f"{name}: {tool} failed", file=sys.stderr, flush=True)
                    continue
            print(f"{name}, repetition {repetition + 1}: {tool} {line['seconds']:.2f} s", file=sys.stderr, flush=True)
            runs[tool].append(line)
            results.write(json.dumps({"task": name, "tool": tool, "repetition": repetition} | line) + "\n")
            results.flush()
    table(name, {tool: lines for tool, lines in runs.items() if lines})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=[*TASKS, "all"])
    parser.add_argument("--reps", type=int, default=5, help="repetitions (%(default)s)")
    parser.add_argument("--gyre", default=ROOT / "target/release/gyre", help="the program (%(default)s)")
    folder = os.environ.get("GYRE_BENCH_DATA", ROOT / "target/bench-data")
    parser.add_argument("--data", default=folder, help="the folder of make.py ($GYRE_BENCH_DATA, or %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of gyre (all unless given)")
    parser.add_argument("--spark", action="store_true", help="also run PySpark in count-lag1")
    args = parser.parse_args()
    print("| task | tool | median s | whole run s | CPU s | peak MB | ratio to gyre | to whole run | answers |")
    print("|---|---|---|---|---|---|---|---|---|")
    Path(args.data).mkdir(parents=True, exist_ok=True)
    with open(Path(args.data) / "results.jsonl", "a") as results:
        for name in TASKS if args.task == "all" else [args.task]:
            compare(name, args, results)


if __name__ == "__main__":
    main()
