//! Compares soft sets with those of pyGPCCA, deeptime and the published SEBA algorithm. These tests
//! need a Python with these packages, which GYRE_PYTHON names.

use crate::lake::{Lake, Swap};
use crate::needs;

const PIPELINE: &str = r#"
job = { name = "peers", output = "out" }
tables.pairs.path = "pairs.parquet"
[transitions]
sql = "SELECT * FROM pairs"
source = "a"
target = "b"
count = "n"

[output]
tables = ["counts"]

[[fit]]
name = "gpcca"
method = "gpcca"
rank = RANK
which = "WHICH"

[[fit]]
name = "seba"
method = "svd"
clusters = "seba"
rank = RANK
"#;

/// The arguments of the script are the output and the peers. The script prints the largest
/// difference of memberships, and by how much the crispness of the peer is larger.
const SCRIPT: &str = r#"
import sys, warnings
warnings.filterwarnings("ignore")
out, peers = sys.argv[1], sys.argv[2:]
import numpy as np, pandas
from scipy.optimize import linear_sum_assignment
if "pygpcca" in peers or "pygpcca-real" in peers:
    import pygpcca
if "deeptime" in peers:
    from deeptime.markov import pcca

def read(table):
    return pandas.read_parquet(f"{out}/{table}/part-0.parquet")

counts, sources, targets = read("counts"), read("sources"), read("targets")
N = counts.pivot(index="a", columns="b", values="count").fillna(0).to_numpy()
P, p = N / N.sum(1, keepdims=True), N.sum(1) / N.sum()

def compare(name, ours, theirs):
    off = abs(ours[:, :, None] - theirs[:, None, :]).max(0)
    print(name, off[linear_sum_assignment(off)].max())

def crispness(chi):
    return np.mean([(p * x * x).sum() / (p * x).sum() for x in chi.T])

chi = np.stack(sources["gpcca_membership"])
r = chi.shape[1]
def perron(name, theirs):
    compare(name, chi, theirs)
    print(name, "crisper", crispness(theirs) - crispness(chi))
if "pygpcca" in peers:
    perron("pygpcca", pygpcca.GPCCA(P, eta=p, z="LM", method="brandts").optimize(r).memberships)
if "pygpcca-real" in peers:
    perron("pygpcca-real", pygpcca.GPCCA(P, eta=p, z="LR", method="brandts").optimize(r).memberships)
if "deeptime" in peers:
    perron("deeptime", pcca(P, r, stationary_distribution=p).memberships)

# SEBA as its paper states it (Algorithm 3.1), for states of equal weight, on both sides at once.
if "seba" in peers:
    V = np.concatenate([np.stack(t["seba_embedding"]) for t in (sources, targets)])
    V, _ = np.linalg.qr(V)
    n = len(V)
    mu, noise = 0.99 / np.sqrt(n), np.random.default_rng(0)
    for column in V.T:
        if np.ptp(column) < 1e-14:
            column += 1e-12 * (noise.random(n) - 0.5)
    R, turned = np.zeros((r, r)), np.eye(r)
    while np.linalg.norm(turned - R) > 1e-14:
        R = turned
        Z = V @ R.T
        S = np.sign(Z) * np.maximum(abs(Z) - mu, 0)
        S /= np.linalg.norm(S, axis=0)
        U, _, W = np.linalg.svd(S.T @ V)
        turned = U @ W
    S *= np.sign(S.sum(0))
    S = np.maximum(S / S.max(0), 0)
    S /= np.maximum(S.sum(1, keepdims=True), 1)
    compare("seba", np.concatenate([np.stack(t["seba_membership"]) for t in (sources, targets)]), S)
"#;

/// Runs gyre on dense counts and the script on its output. Each printed value must not exceed its
/// given bound.
fn check_peers(rows: &[Vec<i64>], rank: usize, which: &str, expected: &[(&str, f64)]) {
    let Some(python) = needs::python(&["deeptime", "pandas", "pyarrow", "pygpcca", "scipy"]) else {
        return;
    };
    let lake = Lake::new();
    let pairs = (0..)
        .zip(rows)
        .flat_map(|(a, row)| (0..).zip(row).map(move |(b, &n)| [a, b, n]));
    let pairs = pairs.filter(|pair| pair[2] > 0);
    lake.integers("pairs.parquet", ["a", "b", "n"], pairs);
    let text = PIPELINE.swap("RANK", &rank.to_string());
    lake.runs_text(&text.replace("WHICH", which));
    let names = expected.iter().map(|(name, _)| *name);
    let peers = names.filter(|name| !name.contains(' '));
    let arguments: Vec<&str> = ["out"].into_iter().chain(peers).collect();
    let ran = lake.script(&python, SCRIPT, &arguments);
    for (name, most) in expected {
        let line = ran.out.lines().find_map(|line| line.strip_prefix(name));
        let found = line.and_then(|rest| rest.trim().parse::<f64>().ok());
        assert!(found.is_some_and(|x| x <= *most), "{name}: {}", ran.out);
    }
}

/// A ring of 24 states with three wells of 6, 8 and 10 states. The counts are symmetric, so the
/// chain is reversible and all states have equal weights.
#[test]
fn three_wells_agree_with_scipy_deeptime_and_pygpcca() {
    let mut rows = vec![vec![0; 24]; 24];
    for (j, next) in (0..24).map(|j| (j, (j + 1) % 24)) {
        let count = if [5, 13, 23].contains(&j) { 1 } else { 30 };
        rows[j][next] = count;
        rows[next][j] = count;
    }
    for (j, row) in rows.iter_mut().enumerate() {
        row[j] = 100 - row.iter().sum::<i64>();
    }
    // Both peers optimise without derivatives and stop slightly below the maximum.
    let expected = [
        ("pygpcca", 1e-3),
        ("pygpcca crisper", 1e-9),
        ("deeptime", 1e-3),
        ("deeptime crisper", 1e-9),
        ("seba", 1e-8),
    ];
    check_peers(&rows, 3, "magnitude", &expected);
}

/// Four groups of two states in a cycle. The eigenvalues are complex, so there is no detailed
/// balance, and deeptime cannot be used.
#[test]
fn a_cycle_agrees_with_pygpcca() {
    let rows = [
        [9, 3, 20, 4, 0, 1, 1, 0],
        [2, 8, 14, 9, 1, 0, 0, 1],
        [0, 1, 7, 3, 16, 8, 0, 1],
        [1, 0, 2, 9, 11, 13, 1, 0],
        [2, 0, 0, 1, 8, 3, 12, 15],
        [0, 1, 1, 0, 2, 7, 18, 9],
        [13, 11, 1, 0, 0, 1, 6, 4],
        [15, 12, 0, 1, 1, 0, 3, 8],
    ];
    let rows: Vec<Vec<i64>> = rows.iter().map(|row| row.to_vec()).collect();
    let peers = [("pygpcca", 3e-3), ("pygpcca crisper", 1e-9)];
    check_peers(&rows, 4, "magnitude", &peers);
}

/// Two copies of a cycle of three groups of two states. Some complex eigenvalues are larger in
/// magnitude than the real one that separates the copies.
#[test]
fn real_parts_agree_with_pygpcca() {
    let row = |j: i64| -> Vec<i64> {
        let count = |i: i64| {
            let goes_on = i % 6 / 2 == (j % 6 / 2 + 1) % 3;
            let stays = i / 6 == j / 6;
            let count = if goes_on { 18 } else { 1 } * if stays { 8 } else { 1 };
            count + (i * i + 3 * j) % 5
        };
        (0..12).map(count).collect()
    };
    let rows: Vec<Vec<i64>> = (0..12).map(row).collect();
    let peers = [("pygpcca-real", 1e-3), ("pygpcca-real crisper", 1e-9)];
    check_peers(&rows, 2, "real", &peers);
}
