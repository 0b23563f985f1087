"""Generates the input data of the comparison from fixed seeds. Existing files are kept."""

import argparse
import math
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write(path, tables):
    """Writes each table as one row group or, if it is longer, as several."""
    writer = None
    for table in tables:
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=1 << 20)
    writer.close()


def walks(rng, chains, states, blocks, trajectories, steps, successors, leave):
    """States by (trajectory, step) of independent metastable chains.

    The successors of a state have skewed positions inside a block, and the first ones are drawn most
    often. The block stays the same or, with probability `leave`, is drawn anew.
    """
    size = states // blocks
    position = (size * rng.random((chains * states, successors)) ** 3).astype(np.int32)
    first_state = np.repeat(np.arange(chains) * states, trajectories // chains)
    state = rng.integers(0, states, trajectories)
    path = np.empty((steps, trajectories), np.int32)
    for step in range(steps):
        path[step] = state
        choice = (successors * rng.random(trajectories) ** 2).astype(np.int64)
        leaves = rng.random(trajectories) < leave
        block = np.where(leaves, rng.integers(0, blocks, trajectories), state // size)
        state = block * size + position[first_state + state, choice]
    return path.T


def rows(path, by_time=False):
    """The table (traj_id, t, state), ordered by trajectory and time or by time alone."""
    trajectory, step = np.indices(path.shape)
    columns = {"traj_id": trajectory, "t": step, "state": path}
    return pa.table({name: (c.T if by_time else c).ravel() for name, c in columns.items()})


def chain(path, scale, steps, by_time=False, states=100_000):
    trajectories = math.ceil(10_000 * scale)
    states = walks(np.random.default_rng(1), 1, states, 10, trajectories, steps, successors=64, leave=0.01)
    write(path, [rows(states, by_time)])


def partitions(path, scale):
    """Folders part=0, part=1, … with ten trajectories each. Each folder has a separate chain."""
    parts = math.ceil(1_000 * scale)
    states = walks(np.random.default_rng(5), parts, 201, 3, 10 * parts, 5_000, successors=32, leave=0.02)
    for part in range(parts):
        folder = path / f"part={part}"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "rows.parquet", [rows(states[10 * part : 10 * part + 10])])


def velocity(x, y, t):
    """The periodically driven double gyre."""
    a, pi = 0.25 * math.sin(2 * math.pi * t), math.pi
    f, slope = a * x * x + (1 - 2 * a) * x, 2 * a * x + (1 - 2 * a)
    u = -0.25 * pi * np.sin(pi * f) * np.cos(pi * y)
    return u, 0.25 * pi * np.cos(pi * f) * np.sin(pi * y) * slope


def flow(x, y, duration=40, h=0.05):
    """The positions of the points after `duration`, by the classical Runge–Kutta method."""
    for k in range(round(duration / h)):
        t = k * h
        u1, v1 = velocity(x, y, t)
        u2, v2 = velocity(x + h / 2 * u1, y + h / 2 * v1, t + h / 2)
        u3, v3 = velocity(x + h / 2 * u2, y + h / 2 * v2, t + h / 2)
        u4, v4 = velocity(x + h * u3, y + h * v3, t + h)
        x, y = x + h / 6 * (u1 + 2 * u2 + 2 * u3 + u4), y + h / 6 * (v1 + 2 * v2 + 2 * v3 + v4)
    return x, y


def particles(nx, ny, per_box, line):
    """Rows at times 0 and 40 of the particles that start in one line of boxes."""
    rng = np.random.default_rng([2, line])
    x = (np.repeat(np.arange(nx), per_box) + rng.random(nx * per_box)) * 2 / nx
    y = (line + rng.random(x.size)) / ny
    # Single precision is fast and much finer than the noise. 8,192 points fit the cache.
    starts = [(x[k : k + 8192].astype("f4"), y[k : k + 8192].astype("f4")) for k in range(0, x.size, 8192)]
    u, v = np.concatenate([flow(*start) for start in starts], axis=1).astype("f8")

    def noisy(start, end, high):
        z = np.stack([start, end], axis=1).ravel()
        z = np.abs(z + rng.uniform(-1 / ny, 1 / ny, z.size))
        return np.minimum(np.minimum(z, 2 * high - z), np.nextafter(high, 0.0))

    trajectory = line * x.size + np.repeat(np.arange(x.size), 2)
    columns = {"traj_id": trajectory, "t": np.tile(np.array([0, 40]), x.size)}
    return pa.table(columns | {"x": noisy(x, u, 2.0), "y": noisy(y, v, 1.0)})


def double_gyre(path, scale, nx=512, ny=256):
    with multiprocessing.Pool(2) as pool:
        write(path, pool.imap(partial(particles, nx, ny, math.ceil(100 * scale)), range(ny)))


def counted(source, target, states):
    """The table (i: target, j: source, n: count), ordered by source and target."""
    pairs, n = np.unique(source * states + target, return_counts=True)
    columns = {"i": pairs % states, "j": pairs // states, "n": n}
    return pa.table({name: column.astype(np.int32) for name, column in columns.items()})


def double_gyre_counts(path, _, nx=512, ny=256):
    points = pq.read_table(path.with_name("dg512.parquet"), columns=["x", "y"])
    x, y = (column.to_numpy() for column in points.columns)
    box = (x * nx / 2).astype(np.int64) + nx * (y * ny).astype(np.int64)
    write(path, [counted(box[0::2], box[1::2], nx * ny)])


def planted(path, scale, states, draws, blocks=10):
    """Counts of `draws` transitions from each state, most of which stay inside its block.

    Block k is left with a probability from 0.02 to 0.5, so that the singular values differ. Targets
    inside a block are skewed, and the states are shuffled.
    """
    size = math.ceil(states * scale / blocks)
    states = size * blocks
    rng = np.random.default_rng(3)
    leave = np.linspace(0.02, 0.5, blocks)
    home, shuffled = rng.permutation(states) // size, rng.permutation(states)

    def table(sources):
        source = np.repeat(sources, draws)
        leaves = rng.random(source.size) < leave[home[source]]
        block = np.where(leaves, rng.integers(0, blocks, source.size), home[source])
        position = (size * rng.random(source.size) ** 1.5).astype(np.int64)
        return counted(source, shuffled[block * size + position], states)

    write(path, map(table, np.array_split(np.arange(states), math.ceil(states / 100_000))))


def ornstein_uhlenbeck(path, scale, dimension, trajectories, steps=1_000):
    """Points of stationary processes of unit variance. Five coordinates are slow, the others are white noise."""
    rng = np.random.default_rng(6)
    rho = np.zeros(dimension)
    slow = min(dimension, 5)
    rho[:slow] = np.linspace(0.9, 0.6, slow)

    def table(trajectory):
        x = rng.standard_normal((steps, dimension))
        for step in range(1, steps):
            x[step] = rho * x[step - 1] + np.sqrt(1 - rho**2) * x[step]
        lists = pa.FixedSizeListArray.from_arrays(x.ravel(), dimension)
        return pa.table({"traj_id": np.full(steps, trajectory), "t": np.arange(steps), "x": lists})

    count = math.ceil(trajectories * scale)
    batches = np.array_split(np.arange(count), math.ceil(count * steps * dimension / (1 << 24)))
    write(path, (pa.concat_tables(map(table, batch)) for batch in batches))


def torus(path, scale, points):
    """Points of S¹ × 3.5 S¹, uniform."""
    rng = np.random.default_rng(7)
    count = math.ceil(points * scale)
    u, v = rng.uniform(0, 2 * np.pi, (2, count))
    x = np.stack([np.cos(u), np.sin(u), 3.5 * np.cos(v), 3.5 * np.sin(v)], axis=1)
    lists = pa.FixedSizeListArray.from_arrays(x.ravel(), 4)
    write(path, [pa.table({"id": np.arange(count), "x": lists})])


def hidden(path, scale, states, symbols, trajectories, steps):
    """Symbols of hidden Markov models of the form of gyre's table function `hmm_world`."""
    rng = np.random.default_rng(8)
    tail = np.cumsum((1.0 + np.arange(symbols)) ** -1.5)
    own = np.cumsum((1.0 + np.arange(symbols // states)) ** -1.5)

    def table(trajectory):
        state = rng.integers(0, states, trajectory.size)
        path = np.empty((steps, trajectory.size), np.int32)
        for step in range(steps):
            u, is_own = rng.random(state.size), rng.random(state.size) < 0.9
            symbol = states * np.searchsorted(own, u * own[-1]) + state
            path[step] = np.where(is_own, symbol, np.searchsorted(tail, u * tail[-1]))
            u = rng.random(state.size)
            drawn = rng.integers(0, states, state.size)
            state = np.where(u < 0.75, state, np.where(u < 0.95, (state + 1) % states, drawn))
        ids, t = np.repeat(trajectory, steps), np.tile(np.arange(steps), trajectory.size)
        split = np.where(ids % 2 == 0, "train", "test")
        return pa.table({"traj_id": ids, "t": t, "state": path.T.ravel(), "split": split})

    count = math.ceil(trajectories * scale)
    batches = np.array_split(np.arange(count), math.ceil(count * steps / (1 << 20)))
    write(path, map(table, batches))


def filtered(path, scale, train, test, trajectories=1):
    """Rows of the toy of *Kernel Bayesian inference with posterior regularization*: one trajectory with a known
    state, and others whose observations are to be filtered."""
    rng = np.random.default_rng(9)

    def table(ids, steps, split):
        angle = rng.uniform(0, 2 * np.pi, len(ids)) + np.cumsum(0.4 + 0.2 * rng.standard_normal((steps, len(ids))), 0)
        states = np.stack([np.cos(angle.T), np.sin(angle.T)], 2)
        rows = (1 + np.sin(8 * angle.T))[..., None] * states + 0.2 * rng.standard_normal(states.shape)
        return timed(np.repeat(ids, steps), np.tile(np.arange(steps), len(ids)), states, rows, split)

    own = np.arange(math.ceil(trajectories * scale))
    write(path, [table(own, test, "test"), table(own[-1:] + 1, math.ceil(train * scale), "train")])


def moving(path, scale, trajectories, steps):
    """Two points that move on lines, of which the positions are observed."""
    rng = np.random.default_rng(10)

    def table(ids):
        speed = np.cumsum(0.1 * rng.standard_normal((len(ids), steps, 2)), 1)
        place = np.cumsum(speed + 0.1 * rng.standard_normal(speed.shape), 1)
        states = np.stack([place, speed], 3)
        rows = place + 0.5 * rng.standard_normal(place.shape)
        return timed(np.repeat(ids, steps), np.tile(np.arange(steps), len(ids)), states, rows, None)

    count = math.ceil(trajectories * scale)
    write(path, map(table, np.array_split(np.arange(count), math.ceil(count * steps / (1 << 20)))))


def timed(ids, times, states, rows, split):
    """Rows with a list of states and of observations."""
    lists = {}
    for name, values in (("y", states), ("x", rows)):
        values = values.reshape(len(ids), -1)
        lists[name] = pa.FixedSizeListArray.from_arrays(values.ravel(), values.shape[1])
    return pa.table({"traj_id": ids, "t": times, **lists, "split": pa.array([split] * len(ids), pa.string())})


DATA = {
    "chain50m.parquet": partial(chain, steps=5_000),
    "chain10m_time.parquet": partial(chain, steps=1_000, by_time=True),
    "dg512.parquet": double_gyre,
    "counts512.parquet": double_gyre_counts,
    "planted100k.parquet": partial(planted, states=100_000, draws=105),
    "planted1m.parquet": partial(planted, states=1_000_000, draws=50),
    "partitions1000": partitions,
    "ou2.parquet": partial(ornstein_uhlenbeck, dimension=2, trajectories=1_000),
    "ou512.parquet": partial(ornstein_uhlenbeck, dimension=512, trajectories=100),
    "symbols50m.parquet": partial(chain, steps=5_000, states=1_000),
    "hidden100k.parquet": partial(hidden, states=20, symbols=100_000, trajectories=10_000, steps=1_000),
    "hidden1k.parquet": partial(hidden, states=20, symbols=1_000, trajectories=10_000, steps=1_000),
    "hidden6.parquet": partial(hidden, states=6, symbols=30, trajectories=200, steps=300),
    "torus100k.parquet": partial(torus, points=100_000),
    "toy1k.parquet": partial(filtered, train=1_001, test=200),
    "toy100k.parquet": partial(filtered, train=100_001, test=1_000),
    "toy1000.parquet": partial(filtered, train=301, test=20, trajectories=1_000),
    "moving10m.parquet": partial(moving, trajectories=10_000, steps=1_000),
}


def main():
    names = {file.partition(".")[0]: file for file in DATA}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to make: {', '.join(names)}; all unless given")
    folder = os.environ.get("GYRE_BENCH_DATA", Path(__file__).resolve().parents[2] / "target/bench-data")
    parser.add_argument("--data", default=folder, metavar="FOLDER", help="the folder to write ($GYRE_BENCH_DATA, or %(default)s)")
    parser.add_argument("--scale", type=float, default=1, help="less than 1 writes less data")
    args = parser.parse_args()
    if unknown := set(args.names) - set(names):
        parser.error(f"no such data: {', '.join(unknown)}")
    folder = Path(args.data)
    folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or names:
        path, start = folder / names[name], time.perf_counter()
        if path.exists():
            print(f"{name}: exists", flush=True)
            continue
        unfinished = folder / f"unfinished-{path.name}"
        DATA[path.name](unfinished, args.scale)
        unfinished.rename(path)
        print(f"{name}: made in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
