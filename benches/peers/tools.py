"""One measurement of one tool in a separate process: `python tools.py TASK-IN-JSON`, see compare.py."""

import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse


class Clock:
    """Wall and CPU seconds of a `with` block, peak memory of the process until its end."""

    scale = 1  # factor from the measured work to the whole work

    def __enter__(self):
        self.before, _ = usage()
        self.start = time.monotonic()

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.start
        self.stop()

    def stop(self):
        after, self.peak = usage()
        self.cpu = after - self.before


def usage():
    """CPU seconds and peak MB of this process and of its finished children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages), max(u.ru_maxrss for u in usages) / 1024


# Counting: (source, target, n)


def duckdb_pairs(task, path):
    """The counts as an Arrow table, by a window function or by a join."""
    import duckdb

    state = "state"
    if task.boxes:
        nx, ny = task.boxes
        state = f"least(floor(x * {nx / 2}), {nx - 1})::INT + {nx} * least(floor(y * {ny}), {ny - 1})::INT"
    if task.tool == "DuckDB join":
        pairs = f"""SELECT a.state AS source, b.state AS target FROM '{path}' a JOIN '{path}' b
            ON a.traj_id = b.traj_id AND a.t + {task.steps} = b.t"""
    else:
        pairs = f"""SELECT source, lead(source, {task.steps}) OVER (PARTITION BY traj_id ORDER BY t) AS target
            FROM (SELECT traj_id, t, {state} AS source FROM '{path}') QUALIFY target IS NOT NULL"""
    return duckdb.sql(f"SELECT source, target, count(*) AS n FROM ({pairs}) GROUP BY ALL").to_arrow_table()


def duckdb_count(task, clock):
    import duckdb  # noqa: F401, not measured

    with clock:
        table = duckdb_pairs(task, task.path)
    return columns(table)


def polars_count(task, clock):
    import polars as pl

    with clock:
        source = pl.col("state")
        if task.boxes:
            nx, ny = task.boxes
            source = (pl.col("x") * (nx / 2)).cast(pl.Int32).clip(0, nx - 1)
            source += nx * (pl.col("y") * ny).cast(pl.Int32).clip(0, ny - 1)
        rows = pl.scan_parquet(task.path).select("traj_id", "t", source=source)
        target = pl.col("source").shift(-task.steps)
        if task.ordered:
            pairs = rows.with_columns(target=target, end=pl.col("traj_id").shift(-task.steps))
            pairs = pairs.filter(pl.col("end") == pl.col("traj_id"))
        else:
            pairs = rows.with_columns(target=target.over("traj_id", order_by="t")).drop_nulls("target")
        engine = "streaming" if task.ordered else "in-memory"
        table = pairs.group_by("source", "target").len("n").collect(engine=engine)
    return columns(table)


def numpy_count(task, clock):
    with clock:
        trajectory, t, state = (c.to_numpy() for c in pq.read_table(task.path).columns)
        if not task.ordered:
            order = np.lexsort((t, trajectory))
            trajectory, state = trajectory[order], state[order]
        same = trajectory[task.steps :] == trajectory[: -task.steps]
        states = int(state.max()) + 1
        pairs = state[: -task.steps][same].astype(np.int64) * states + state[task.steps :][same]
        pairs, n = np.unique(pairs, return_counts=True)
        source, target = pairs // states, pairs % states
    return source, target, n


def scipy_count(task, clock):
    """Boxes of a table with two rows per trajectory."""
    nx, ny = task.boxes
    with clock:
        x, y = (c.to_numpy() for c in pq.read_table(task.path, columns=["x", "y"]).columns)
        box = np.minimum((x * (nx / 2)).astype(np.int32), nx - 1)
        box += nx * np.minimum((y * ny).astype(np.int32), ny - 1)
        ones = np.ones(box.size // 2, np.int32)
        counts = sparse.coo_array((ones, (box[0::2], box[1::2])), shape=(nx * ny, nx * ny)).tocsr()
    counts = counts.tocoo()
    return counts.row, counts.col, counts.data


def spark_count(task, clock):
    from pyspark.sql import SparkSession, Window, functions

    options = {"spark.driver.memory": "6g", "spark.sql.shuffle.partitions": 8, "spark.ui.enabled": False}
    spark = SparkSession.builder.master("local[*]").config(map=options).getOrCreate()
    spark.range(10).count()  # starts the engine
    with clock:
        target = functions.lead("state", task.steps).over(Window.partitionBy("traj_id").orderBy("t"))
        pairs = spark.read.parquet(task.path).selectExpr("*", "state AS source").withColumn("target", target)
        pairs = pairs.where("target IS NOT NULL").groupBy("source", "target").agg(functions.count("*").alias("n"))
        pairs.write.parquet(f"{task.out}/spark")
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()
    clock.stop()  # the resources of Java, including its start, are known after its end
    return columns(pq.read_table(f"{task.out}/spark"))


# Fits


def columns(pairs):
    return [pairs[name].to_numpy() for name in ("source", "target", "n")]


def matrix(source, target, n, size=None):
    """Targets by sources."""
    return sparse.coo_array((n.astype(float), (target, source)), shape=size and (size, size)).tocsr()


def read_matrix(task):
    target, source, n = (column.to_numpy() for column in pq.read_table(task.path, columns=["i", "j", "n"]).columns)
    return matrix(source, target, n)


def normalised(counts):
    """The counts divided by the square roots of their row sums and column sums."""
    rows, cols = (sparse.diags_array(np.maximum(counts.sum(axis), 1) ** -0.5) for axis in (1, 0))
    return (rows @ counts @ cols).tocsr()


def svd(task, clock):
    from scipy.sparse.linalg import svds

    matrix = normalised(read_matrix(task))
    options = {"maxiter": 600} if task.tool == "PROPACK" else {"tol": task.tol}
    with clock:
        _, values, _ = svds(matrix, task.rank, solver=task.tool.lower(), rng=np.random.default_rng(0), **options)
    return {"singular values": [sorted(values, reverse=True)]}


def dbmr(task, clock):
    counts = read_matrix(task)
    transposed = counts.T.tocsr()
    with clock:
        labels, iterations = best_labels(counts, transposed, task.rank, processes=2)
    return {"log-likelihood": [log_likelihood(counts, labels)], "iterations": [iterations]}


def best_labels(counts, transposed, rank, processes=1, seed=0):
    """The best of ten restarts, and the iterations of all."""
    global shared  # in forked processes
    shared = counts, transposed, rank
    seeds = [(seed, k) for k in range(10)]
    if processes == 1:
        ends = map(restart, seeds)
    else:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            ends = pool.map(restart, seeds, chunksize=1)
    ends = list(ends)
    return max(ends, key=lambda end: end[0])[1], sum(end[2] for end in ends)


def restart(seed, sweeps=300):
    """DBMR from random labels of the sources until no label changes: (log-likelihood, labels, iterations)."""
    counts, transposed, rank = shared
    sources = np.arange(counts.shape[1])
    labels = np.random.default_rng(seed).integers(0, rank, sources.size)
    for sweep in range(1, sweeps + 1):
        sums = counts @ np.eye(rank)[labels]
        with np.errstate(divide="ignore"):
            scores = transposed @ np.log(sums / np.maximum(sums.sum(0), 1))
        before, labels = labels, scores.argmax(1)
        if np.array_equal(before, labels):
            break
    return scores[sources, labels].sum(), labels, sweep


def log_likelihood(counts, labels):
    from scipy.special import xlogy

    sums = counts @ np.eye(labels.max() + 1)[labels]
    return float(xlogy(sums, sums / np.maximum(sums.sum(0), 1)).sum() / counts.sum())


# From Parquet to Parquet


def script(task, clock):
    """Boxes and counts, truncated SVD and k-means of the embedding, DBMR, and one table of states."""
    import duckdb  # noqa: F401, not measured
    from scipy.sparse.linalg import svds
    from sklearn.cluster import KMeans
    from sklearn.utils.extmath import randomized_svd

    size, quick = task.boxes[0] * task.boxes[1], task.tool.endswith("randomized SVD")
    with clock:
        pairs = columns(duckdb_pairs(task, task.path))
        counts = matrix(*pairs, size)
        total = counts.sum(0)
        if quick:
            _, values, vectors = randomized_svd(normalised(counts), task.svd_rank, n_iter=7, random_state=0)
        else:
            _, values, vectors = svds(normalised(counts), task.svd_rank, rng=np.random.default_rng(0))
        embedding = vectors.T / np.sqrt(np.maximum(total, 1))[:, None]
        sets = KMeans(task.svd_rank, n_init=10, random_state=0).fit_predict(embedding)
        labels, _ = best_labels(counts, counts.T.tocsr(), task.rank, processes=2 if quick else 1)
        table = {"state": np.arange(size), "probability": total / total.sum(), "svd": sets, "dbmr": labels}
        table |= {f"v{k}": vector for k, vector in enumerate(vectors)}
        pq.write_table(pa.table(table), f"{task.out}/states.parquet")
    values = sorted(values, reverse=True)
    return {"counts": [checksum(*pairs)], "singular values": [values], "log-likelihood": [log_likelihood(counts, labels)]}


def loop(task, clock):
    """Counts, SVD and DBMR of all partitions in a loop."""
    import duckdb  # noqa: F401, not measured

    folders = [Path(task.path) / f"part={part}" for part in range(len(list(Path(task.path).iterdir())))]
    with clock:
        models = [partition(task, k, folders[k]) for k in range(min(50, len(folders)))]
        if (time.monotonic() - clock.start) / 50 * len(folders) > 300:
            clock.scale = len(folders) / 50
        else:
            models += [partition(task, k, folders[k]) for k in range(50, len(folders))]
    pairs, values, fits = zip(*models)
    fits = [log_likelihood(*fit) for fit in fits]
    return {"counts": [checksum(*p) for p in pairs], "singular values": values, "log-likelihood": fits}


def partition(task, k, folder):
    pairs = columns(duckdb_pairs(task, folder / "*.parquet"))
    states, (source, target) = np.unique(pairs[:2], return_inverse=True)
    counts = matrix(source, target, pairs[2], states.size)
    _, values, vectors = np.linalg.svd(normalised(counts).toarray())
    labels, _ = best_labels(counts, counts.T.tocsr(), task.rank, seed=k)
    table = {"state": states, "count": counts.sum(0), "dbmr": labels}
    table |= {f"v{k}": vectors[k] for k in range(task.rank)}
    pq.write_table(pa.table(table), f"{task.out}/{folder.name}.parquet")
    return pairs, values[: task.rank].tolist(), (counts, labels)


# State embeddings


def pairs_of_points(task):
    """Both ends of all pairs, as n × d arrays: the rows of a trajectory follow each other."""
    table = pq.read_table(task.path)
    trajectory = table["traj_id"].to_numpy()
    points = table["x"].combine_chunks().flatten().to_numpy().reshape(trajectory.size, -1)
    same = trajectory[task.lag :] == trajectory[: -task.lag]
    return points, points[: -task.lag][same], points[task.lag :][same]


def random_features(task, dimension):
    rng = np.random.default_rng(0)
    frequencies = rng.standard_normal((dimension, task.features)) / task.bandwidth
    phases = rng.uniform(0, 2 * np.pi, task.features)
    return frequencies, phases


def deeptime_vamp(task, clock):
    from deeptime.decomposition import VAMP

    _, start, end = pairs_of_points(task)
    frequencies, phases = random_features(task, start.shape[1])
    with clock:
        ends = [np.cos(x @ frequencies + phases) for x in (start, end)]
        model = VAMP(lagtime=task.lag, dim=task.rank, epsilon=1e-4).fit(tuple(ends)).fetch_model()
        values = model.singular_values[: task.rank - 1]
    return {"correlations": [[1.0, *values]]}


def sklearn_rbf(task, clock):
    """Random features of scikit-learn, and canonical correlations by NumPy."""
    from sklearn.kernel_approximation import RBFSampler

    _, start, end = pairs_of_points(task)
    with clock:
        sampler = RBFSampler(gamma=0.5 / task.bandwidth**2, n_components=task.features, random_state=0)
        sampler.fit(start[:1])
        a, b = (sampler.transform(x) for x in (start, end))
        a, b = a - a.mean(0), b - b.mean(0)
        roots = []
        for gram in (a.T @ a, b.T @ b):
            variances, vectors = np.linalg.eigh(gram)
            kept = variances > 1e-4 * variances[-1]
            roots.append(vectors[:, kept] / np.sqrt(variances[kept]))
        values = np.linalg.svd(roots[0].T @ (a.T @ b) @ roots[1], compute_uv=False)
    return {"correlations": [[1.0, *values[: task.rank - 1]]]}


def gemm(task, clock):
    """The matrix products of a state embedding alone: one of features, and three of Gram matrices."""
    points, start, _ = pairs_of_points(task)
    frequencies, _ = random_features(task, start.shape[1])
    with clock:
        values = points @ frequencies
        for _ in range(3):
            values.T @ values
    return {}


# Sequences


def duckdb_triples(task, clock):
    import duckdb

    with clock:
        query = f"""SELECT source, middle, last, count(*) AS n FROM (
            SELECT state AS source, lead(state, 1) OVER w AS middle, lead(state, 2) OVER w AS last
            FROM '{task.path}' WINDOW w AS (PARTITION BY traj_id ORDER BY t) QUALIFY last IS NOT NULL) GROUP BY ALL"""
        table = duckdb.sql(query).to_arrow_table()
    return [table[name].to_numpy() for name in ("source", "middle", "last", "n")]


# The loops over rows: sums of the outer products of both ends of a window, and a filter.
LOOPS = r"""
#include <math.h>
void project(long n, long k, const int *x, const double *u, const double *w, double *b) {
    for (long t = 0; t < n; t++) {
        const double *left = u + x[t + 2] * k, *right = w + x[t] * k;
        if (x[t] < 0 || x[t + 1] < 0 || x[t + 2] < 0) continue;
        double *at = b + x[t + 1] * k * k;
        for (long i = 0; i < k; i++)
            for (long j = 0; j < k; j++) at[i * k + j] += left[i] * right[j];
    }
}
double filter(long n, long k, const int *x, const double *b, const double *first, const double *share) {
    double state[256], next[256], sum = 0;
    for (long t = 0; t < n; t++) {
        if (t == 0 || x[t] < 0)
            for (long i = 0; i < k; i++) state[i] = first[i];
        if (x[t] < 0) continue;
        const double *at = b + x[t] * k * k;
        for (long i = 0; i < k; i++) {
            double dot = 0;
            for (long j = 0; j < k; j++) dot += at[i * k + j] * state[j];
            next[i] = dot;
        }
        double p = next[0];
        sum += log(0.99 * (p > 1e-12 ? p : 1e-12) + 0.01 * share[x[t]]);
        for (long i = 0; i < k; i++) state[i] = p > 1e-12 ? next[i] / p : first[i];
    }
    return sum;
}
"""


def loops(folder):
    """The compiled loops."""
    import ctypes
    import subprocess

    source, library = Path(folder) / "loops.c", Path(folder) / "loops.so"
    source.write_text(LOOPS)
    options = ["-O3", "-ffast-math", "-march=native", "-shared", "-fPIC", "-lm"]
    subprocess.run(["cc", source, *options, "-o", library], check=True)
    compiled = ctypes.CDLL(str(library))
    array = np.ctypeslib.ndpointer(flags="C")
    compiled.project.argtypes = [ctypes.c_long, ctypes.c_long, array, array, array, array]
    compiled.filter.argtypes = [ctypes.c_long, ctypes.c_long, array, array, array, array]
    compiled.filter.restype = ctypes.c_double
    return compiled


def read_symbols(task):
    """The symbols of all rows with −1 after each trajectory, which are in the order of their keys."""
    trajectory, state = (pq.read_table(task.path, columns=[name])[name].to_numpy() for name in ("traj_id", "state"))
    ends = np.flatnonzero(np.diff(trajectory)) + 1
    return np.ascontiguousarray(np.insert(state.astype(np.int32), np.append(ends, state.size), -1))


def operators(task, compiled, x):
    """The scaled spectral model of all windows: operators, first state and singular values."""
    from scipy.sparse.linalg import svds

    n = int(x.max()) + 1
    # Pairs that begin a window, so that the marginals are those of the windows.
    is_window = (x[:-2] >= 0) & (x[1:-1] >= 0) & (x[2:] >= 0)
    code, count = np.unique(x[:-2][is_window].astype(np.int64) * n + x[1:-1][is_window], return_counts=True)
    counts = matrix(code // n, code % n, count, n) / count.sum()
    q, p = counts.sum(1), counts.sum(0)
    u, values, v = svds(normalised(counts * count.sum()), task.rank, rng=np.random.default_rng(0))
    order = np.argsort(-values)
    u, values, v = u[:, order], values[order], v[order].T
    sign = np.sign(u[:, :1].sum())
    left = np.ascontiguousarray(sign * u / np.sqrt(np.maximum(q, 1e-300))[:, None])
    right = np.ascontiguousarray(sign * v / np.sqrt(np.maximum(p, 1e-300))[:, None] / values)
    b = np.zeros((n, task.rank, task.rank))
    compiled.project(x.size - 2, task.rank, x, left, right / count.sum(), b)
    return b, left.T @ p, values


def numpy_hmm(task, clock):
    compiled = loops(task.out)
    import scipy.sparse.linalg  # noqa: F401, not measured

    with clock:
        _, _, values = operators(task, compiled, read_symbols(task))
    return {"singular values": [values.tolist()]}


def c_filter(task, clock):
    """The filter alone: symbols and operators are in memory."""
    compiled, x = loops(task.out), read_symbols(task)
    b, first, _ = operators(task, compiled, x)
    rows = x[x >= 0]
    share = np.bincount(rows) / rows.size
    with clock:
        sum = compiled.filter(x.size, task.rank, x, b, np.ascontiguousarray(first / first[0]), share)
    return {"nats": [sum / rows.size]}


def hmmlearn(task, clock):
    """The best of five random starts by held-out rows, at most 100 iterations each."""
    from hmmlearn.hmm import CategoricalHMM

    table = pq.read_table(task.path)
    is_test = table["split"].to_numpy() == "test"
    trajectory, symbol = table["traj_id"].to_numpy(), table["state"].to_numpy().reshape(-1, 1)
    parts = []
    for rows in (~is_test, is_test):
        parts.append((symbol[rows], np.unique(trajectory[rows], return_counts=True)[1]))
    (x, lengths), (held_out, held_out_lengths) = parts
    best = -np.inf
    with clock:
        for seed in range(5):
            options = {"n_features": int(symbol.max()) + 1, "n_iter": 100, "random_state": seed}
            model = CategoricalHMM(task.rank, **options).fit(x, lengths)
            best = max(best, model.score(held_out, held_out_lengths) / len(held_out))
    return {"nats": [best]}


# Filters


def numpy_kernel_filter(task, clock):
    """Kernel Bayes' rule as printed, with dense matrices, for the test rows of one trajectory."""
    from scipy import linalg

    table = pq.read_table(task.path)
    is_test = table["split"].to_numpy() == "test"
    y, x = (np.stack(table[name].to_numpy()) for name in ("y", "x"))
    (state, observation), scale = task.bandwidth, task.regularisation

    def kernel(a, b, bandwidth):
        square = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
        return np.exp(-np.maximum(square, 0) / (2 * bandwidth**2))

    estimates = []
    with clock:
        (states, after), rows = (y[~is_test][:-1], y[~is_test][1:]), x[~is_test][:-1]
        ridge = len(rows) * scale * np.eye(len(rows))
        gram, moved, seen = kernel(states, states, state), kernel(states, after, state), kernel(rows, rows, observation)
        factor = linalg.cho_factor(gram + ridge)
        step = linalg.cho_solve(factor, moved @ linalg.cho_solve(factor, gram))
        weights = None
        for now in kernel(rows, x[is_test], observation).T:
            if weights is None:
                weights = linalg.solve(seen + ridge, now, assume_a="pos")
            else:
                prior = step @ (weights / weights.sum())
                if task.rule == "kbr":
                    product = prior[:, None] * seen
                    inner = product @ product + task.delta * np.eye(len(rows))
                    weights = product @ np.linalg.solve(inner, prior * now)
                else:
                    kept = np.flatnonzero(prior > 0)
                    root = np.sqrt(prior[kept])
                    inner = root[:, None] * seen[np.ix_(kept, kept)] * root + task.delta * np.eye(len(kept))
                    weights = np.zeros(len(rows))
                    weights[kept] = root * linalg.solve(inner, root * now[kept], assume_a="pos")
            estimates.append(weights @ states / weights.sum())
    return {"estimates": [np.ravel(estimates).tolist()]}


def filterpy(task, clock):
    """The first trajectories alone. The seconds are scaled to all of them."""
    from filterpy.kalman import KalmanFilter

    table = pq.read_table(task.path, columns=["traj_id", "x"], filters=pc.field("traj_id") < FILTERED)
    trajectory, x = table["traj_id"].to_numpy(), np.stack(table["x"].to_numpy())
    clock.scale = pq.ParquetFile(task.path).metadata.num_rows / len(x)
    names = {name: np.array(value) for name, value in task.moving.items()}
    means, before = [], None
    with clock:
        for own, z in zip(trajectory, x):
            if own != before:
                model, before = KalmanFilter(4, 2), own
                model.F, model.H, model.Q, model.R = (names[name] for name in "FHQR")
                model.x, model.P = names["x0"], names["P0"]
            else:
                model.predict()
            model.update(z)
            model.log_likelihood
            means.append(model.x)
    return {"estimates": [np.ravel(means[: np.searchsorted(trajectory, 1)]).tolist()]}


# Trajectories that filterpy filters.
FILTERED = 10


# Heat kernels


def heat_kernel(task):
    """The normalised kernel D^(-1/2) K D^(-1/2) with the density divided out, and its leading eigenvector."""
    from scipy.spatial import cKDTree

    points = pq.read_table(task.path)["x"].combine_chunks().flatten().to_numpy().reshape(-1, 4)
    n, tree = len(points), cKDTree(points)
    near = tree.sparse_distance_matrix(tree, np.sqrt(task.epsilon * np.log(1e4)), output_type="coo_matrix")
    kernel = sparse.csr_array((np.exp(-(near.data**2) / task.epsilon), (near.row, near.col)), (n, n))
    kernel.setdiag(1)
    density = sparse.diags_array(1 / kernel.sum(axis=1))
    kernel = density @ kernel @ density
    total = kernel.sum(axis=1)
    scale = sparse.diags_array(total**-0.5)
    return sparse.csr_array(scale @ kernel @ scale), np.sqrt(total / total.sum())


def eigsh(task, clock):
    with clock:
        kernel, _ = heat_kernel(task)
        values = sparse.linalg.eigsh(kernel, task.dimension + 1, which="LA", tol=1e-6, return_eigenvectors=True)[0]
    return {"eigenvalues": [sorted(values.tolist(), reverse=True)]}


def sparse_products(task, clock):
    with clock:
        kernel, leading = heat_kernel(task)
        rows = np.random.default_rng(0).standard_normal((len(leading), task.dimension)) / np.sqrt(task.dimension)
        rows -= np.outer(leading, leading @ rows)
        for _ in range(task.power):
            rows = kernel @ rows
    return {"energy": [float((rows**2).sum())]}


def checksum(*columns):
    """Non-zeros, transitions and a checksum over all pairs or triples and their counts, which are the last column."""
    *states, n = (np.asarray(column).astype(np.int64) for column in columns)
    code = np.zeros_like(n)
    for state in states:
        code = (code * 1_000_003 + state) % 998_244_353
    return n.size, int(n.sum()), int((n * code).sum())


def gyre(task, _):
    """The answers in the tables of a run. The log-likelihood is recomputed from the affiliations."""

    if task.method in ("kernel_bayes", "kalman"):
        rows = pq.read_table(f"{task.out}/estimates")
        rows = rows.filter(pc.equal(rows["traj_id"], pc.min(rows["traj_id"])))
        return {"estimates": [rows["filter_mean"].combine_chunks().flatten().to_pylist()]}
    if task.method == "spectral_hmm":
        if task.answer == "counts":
            table = pq.read_table(f"{task.out}/triples")
            columns = ("first_state", "middle_state", "last_state", "count")
            return {"counts": [checksum(*(table[name].to_numpy() for name in columns))]}
        if task.answer == "singular values":
            values = pq.read_table(f"{task.out}/spectrum")["value"].to_numpy()
            return {"singular values": [values[: task.rank].tolist()]}
        table = pq.read_table(f"{task.out}/trajectories")
        if "split" in table.column_names:
            table = table.filter(pc.field("split") == "test")
        return {"nats": [pc.sum(table["hmm_log_likelihood"]).as_py() / pc.sum(table["rows"]).as_py()]}
    if task.epsilon and task.power:
        rows = pq.read_table(f"{task.out}/points")["map_embedding"].combine_chunks().flatten().to_numpy()
        return {"energy": [float((rows**2).sum())]}
    if task.epsilon:
        values = pq.read_table(f"{task.out}/spectrum")["value"].to_numpy()
        return {"eigenvalues": [values[: task.dimension + 1].tolist()]}
    if task.features:
        values = pq.read_table(f"{task.out}/spectrum")["value"].to_numpy()
        return {"correlations": [values[: task.rank].tolist()]}

    def state(table, end):
        def column(name):
            return table[f"{end}_{name}" if f"{end}_{name}" in table.column_names else name].to_numpy()

        if task.boxes:
            nx, ny = task.boxes
            return (column("x") * (nx / 2)).astype(int) + nx * (column("y") * ny).astype(int)
        return column("state" if task.steps else end)

    def by_part(table, *columns):
        part = table["part"].to_numpy() if "part" in table.column_names else np.zeros(len(table))
        borders = np.flatnonzero(np.diff(part)) + 1
        return list(zip(*(np.split(column, borders) for column in columns)))

    sources, spectrum = (pq.read_table(f"{task.out}/{name}") for name in ("sources", "spectrum"))
    if task.steps:
        counts = pq.read_table(f"{task.out}/counts")
        pairs = by_part(counts, state(counts, "source"), state(counts, "target"), counts["count"].to_numpy())
        answers = {"counts": [checksum(*p) for p in pairs]}
    else:  # the input has the counts, so gyre does not write them
        counts = pq.read_table(task.path)
        pairs, answers = [tuple(counts[name].to_numpy() for name in "jin")], {}
    if "dbmr" in task.fits:
        fits = by_part(sources, state(sources, "source"), sources["dbmr_affiliation"].to_numpy())
        answers["log-likelihood"] = []
        for (source, target, n), (states, affiliation) in zip(pairs, fits):
            labels = np.zeros(max(states.max(), target.max()) + 1, int)
            labels[states] = affiliation
            answers["log-likelihood"].append(log_likelihood(matrix(source, target, n, labels.size), labels))
        if len(task.fits) == 1:
            restarts = pq.read_table(f"{task.out}/restarts")
            answers["iterations"] = [pc.sum(restarts["iterations"]).as_py()]
    if "svd" in task.fits:
        values = spectrum.filter(pc.field("fit") == "svd")["singular_value"].to_numpy()
        answers["singular values"] = values.reshape(len(pairs), -1).tolist()
    return answers


TOOLS = {
    "gyre": gyre, "DuckDB window": duckdb_count, "DuckDB join": duckdb_count, "Polars": polars_count,
    "NumPy": numpy_count, "SciPy": scipy_count, "PySpark": spark_count, "PROPACK": svd, "ARPACK": svd,
    "deeptime VAMP": deeptime_vamp, "scikit-learn RBF": sklearn_rbf, "GEMM": gemm,
    "DuckDB triples": duckdb_triples, "NumPy and C": numpy_hmm, "C": c_filter, "hmmlearn": hmmlearn,
    "eigsh": eigsh, "sparse products": sparse_products,
    "NumPy, dense": numpy_kernel_filter, "filterpy": filterpy,
    "NumPy, 2 processes": dbmr, "script, ARPACK": script, "script, randomized SVD": script, "loop": loop,
}  # fmt: skip


def main():
    task, clock = SimpleNamespace(**json.loads(sys.argv[1])), Clock()
    answers = TOOLS[task.tool](task, clock)
    answers = answers if isinstance(answers, dict) else {"counts": [checksum(*answers)]}
    line = {"answers": answers, "scale": clock.scale}
    if task.tool != "gyre":
        line |= {"seconds": clock.seconds * clock.scale, "cpu": clock.cpu * clock.scale, "peak": clock.peak}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
