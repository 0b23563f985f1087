//! Kalman filters against filterpy and numpy. These tests need a Python with both, which
//! GYRE_PYTHON names.

use crate::cli::integers;
use crate::lake::{Lake, floats, texts};
use crate::needs;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const PIPELINE: &str = r#"
job = { name = "systems", output = "out" }
tables.world.path = "world.parquet"
[sequences]
sql = "SELECT * FROM world"
trajectory = "id"
time = "t"
interval = 1
state = ["y1", "y2"]
observation = ["x1", "x2"]
split = "split"

[[fit]]
name = "kf"
method = "kalman"
F = [[0.9, 0.2], [-0.1, 0.8]]
H = [[1.0, 2.0], [0.5, -1.0]]
Q = [[0.3, 0.1], [0.1, 0.2]]
R = [[0.5, 0.1], [0.1, 0.4]]
x0 = [0.5, -0.5]
P0 = [[2.0, 0.3], [0.3, 1.0]]

[[fit]]
name = "fitted"
method = "kalman"

[[fit]]
name = "extended"
method = "ekf"
f = ["0.9 * y1 + 0.2 * sin(y2)", "0.8 * y2 - 0.1 * y1"]
h = ["y1 + power(y2, 2) / 10", "exp(y1 / 5) - y2"]
Q = [[0.3, 0.1], [0.1, 0.2]]
R = [[0.5, 0.1], [0.1, 0.4]]
x0 = [0.5, -0.5]
P0 = [[2.0, 0.3], [0.3, 1.0]]

[[fit]]
name = "unscented"
method = "ukf"
f = ["0.9 * y1 + 0.2 * sin(y2)", "0.8 * y2 - 0.1 * y1"]
h = ["y1 + power(y2, 2) / 10", "exp(y1 / 5) - y2"]
Q = [[0.3, 0.1], [0.1, 0.2]]
R = [[0.5, 0.1], [0.1, 0.4]]
x0 = [0.5, -0.5]
P0 = [[2.0, 0.3], [0.3, 1.0]]
alpha = 0.5
beta = 2.0
kappa = 1.0

[output]
rows = "all"
"#;

/// The argument is the folder of the pipeline. The script prints the largest differences of mean,
/// variance and log score for each fit.
const SCRIPT: &str = r#"
import sys, warnings
warnings.filterwarnings("ignore")
import numpy as np, pandas
from filterpy.kalman import ExtendedKalmanFilter, KalmanFilter, MerweScaledSigmaPoints, UnscentedKalmanFilter
folder = sys.argv[1]
world = pandas.read_parquet(f"{folder}/world.parquet").sort_values(["id", "t"])
rows = pandas.read_parquet(f"{folder}/out/estimates/part-0.parquet").sort_values(["id", "t"])
assert (rows["id"].to_numpy() == world["id"].to_numpy()).all()
Q, R = np.array([[.3, .1], [.1, .2]]), np.array([[.5, .1], [.1, .4]])
x0, P0 = np.array([.5, -.5]), np.array([[2, .3], [.3, 1]])
f = lambda y, dt=1: np.array([.9 * y[0] + .2 * np.sin(y[1]), .8 * y[1] - .1 * y[0]])
h = lambda y: np.array([y[0] + y[1] ** 2 / 10, np.exp(y[0] / 5) - y[1]])
df = lambda y: np.array([[.9, .2 * np.cos(y[1])], [-.1, .8]])
dh = lambda y: np.array([[1, y[1] / 5], [np.exp(y[0] / 5) / 5, -1]])

def linear(F, f0, H, h0, Q, R, x0, P0):
    model = KalmanFilter(2, 2)
    model.F, model.H, model.Q, model.R, model.x, model.P = F, H, Q, R, x0, P0
    # An intercept is a known input.
    model.B = np.eye(2)
    return model, lambda: model.predict(u=f0), lambda z: model.update(z - h0)

class Extended(ExtendedKalmanFilter):
    def predict_x(self, u=0):
        self.x = f(self.x)

def extended():
    model = Extended(2, 2)
    model.Q, model.R, model.x, model.P = Q, R, x0, P0
    def predict():
        model.F = df(model.x)
        model.predict()
    return model, predict, lambda z: model.update(z, dh, h)

def unscented():
    points = MerweScaledSigmaPoints(2, .5, 2., 1.)
    model = UnscentedKalmanFilter(2, 2, 1., h, f, points)
    model.Q, model.R, model.x, model.P = Q, R, x0, P0
    # filterpy places the points in predict, which comes after the first row.
    model.sigmas_f = points.sigma_points(x0, P0)
    return model, model.predict, lambda z: model.update(z)

def least_squares():
    train = world[(world["split"] == "train") & world["x1"].notna()]
    Y, X = train[["y1", "y2"]].to_numpy(), train[["x1", "x2"]].to_numpy()
    next = (np.diff(train["id"]) == 0) & (np.diff(train["t"]) == 1)
    def solve(inputs, outputs):
        A = np.column_stack([inputs, np.ones(len(inputs))])
        B = np.linalg.lstsq(A, outputs, rcond=None)[0]
        rest = outputs - A @ B
        return B[:2].T, B[2], rest.T @ rest / (len(inputs) - 3)
    F, f0, Q = solve(Y[:-1][next], Y[1:][next])
    H, h0, R = solve(Y, X)
    return F, f0, H, h0, Q, R, Y.mean(0), np.cov(Y.T)

F, H = np.array([[.9, .2], [-.1, .8]]), np.array([[1, 2], [.5, -1]])
fitted = least_squares()
filters = {
    "kf": lambda: linear(F, np.zeros(2), H, np.zeros(2), Q, R, x0, P0),
    "fitted": lambda: linear(*fitted),
    "extended": extended,
    "unscented": unscented,
}
pieces = (world["id"].diff() != 0) | (world["t"].diff() != 1)
for name, start in filters.items():
    means, variances, scores = [], [], []
    for z, is_first in zip(world[["x1", "x2"]].to_numpy(), pieces):
        if is_first:
            model, predict, update = start()
        else:
            predict()
        score = np.nan
        if not np.isnan(z).any():
            update(z)
            y, S = model.y, model.S
            score = -.5 * (y @ np.linalg.solve(S, y) + np.log(np.linalg.det(2 * np.pi * S)))
        means.append(model.x), variances.append(np.diag(model.P)), scores.append(score)
    own = lambda column: np.stack(rows[f"{name}_{column}"])
    score = rows[f"{name}_log_score"].to_numpy(float)
    assert (np.isnan(score) == np.isnan(scores)).all(), name
    assert (rows[f"{name}_was_updated"].to_numpy(bool) == ~np.isnan(scores)).all(), name
    for what, off in [
        ("mean", abs(own("mean") - means)), ("variance", abs(own("variance") - variances)),
        ("score", abs(score - scores)[~np.isnan(scores)]),
    ]:
        print(name, what, off.max())
"#;

/// Rows of a system with two coordinates. Some have no observation, and after some a row is
/// missing.
fn world(lake: &Lake) {
    let mut random = Pcg64::seed_from_u64(4);
    let mut noise = move || random.random_range(-1.0..1.0);
    let (mut ids, mut times, mut splits) = (Vec::new(), Vec::new(), Vec::new());
    let mut columns: [Vec<Option<f64>>; 4] = Default::default();
    for id in 0..6 {
        let (mut a, mut b): (f64, f64) = (noise(), noise());
        for t in 0..80 {
            let is_seen = (t + id) % 11 != 3;
            if (t + 2 * id) % 29 != 7 {
                ids.push(id);
                times.push(t);
                splits.push(if id < 4 { "train" } else { "test" });
                let x = [
                    a + 0.1 * b * b + 0.5 * noise(),
                    (a / 5.0).exp() - b + 0.4 * noise(),
                ];
                columns[0].push(Some(a));
                columns[1].push(Some(b));
                columns[2].push(is_seen.then_some(x[0]));
                columns[3].push(is_seen.then_some(x[1]));
            }
            (a, b) = (
                0.9 * a + 0.2 * b + 0.5 * noise(),
                0.8 * b - 0.1 * a + 0.5 * noise(),
            );
        }
    }
    let [y1, y2, x1, x2] = columns.map(floats);
    let splits = texts(splits);
    let columns = vec![
        ("id", integers(ids)),
        ("t", integers(times)),
        ("split", splits),
        ("y1", y1),
        ("y2", y2),
        ("x1", x1),
        ("x2", x2),
    ];
    lake.table("world.parquet", columns);
}

/// Given systems agree with filterpy, and fitted ones with numpy's least squares in filterpy.
#[test]
fn kalman_filters_agree_with_filterpy() {
    let Some(python) = needs::python(&["filterpy", "pandas", "pyarrow"]) else {
        return;
    };
    let lake = Lake::new();
    world(&lake);
    lake.runs_text(PIPELINE);
    let ran = lake.script(&python, SCRIPT, &["."]);
    assert_eq!(ran.out.lines().count(), 12, "{}", ran.out);
    for line in ran.out.lines() {
        let off = line
            .rsplit(' ')
            .next()
            .and_then(|off| off.parse::<f64>().ok());
        assert!(off.is_some_and(|off| off < 1e-8), "{}", ran.out);
    }
}

/// Filters of three sensors without known states. Each sensor fails for rows of its own.
const MEASURED: &str = r#"
job = { name = "measured", output = "out" }
tables.world.path = "world.parquet"
[sequences]
sql = "SELECT * FROM world"
trajectory = "id"
time = "t"
interval = 1
observation = ["a", "b", "c"]

[[fit]]
name = "kf"
method = "kalman"
F = [[0.9, 0.2], [-0.1, 0.8]]
H = [[1.0, 2.0], [0.5, -1.0], [0.0, 1.0]]
Q = [[0.3, 0.1], [0.1, 0.2]]
R = [[0.5, 0.1, 0.2], [0.1, 0.4, 0.0], [0.2, 0.0, 0.6]]
x0 = [0.5, -0.5]
P0 = [[2.0, 0.3], [0.3, 1.0]]

[[fit]]
name = "extended"
method = "ekf"
state = ["place", "speed"]
f = ["0.9 * place + 0.2 * sin(speed)", "0.8 * speed - 0.1 * place"]
h = ["place + power(speed, 2) / 10", "exp(place / 5) - speed", "speed"]
Q = [[0.3, 0.1], [0.1, 0.2]]
R = [[0.5, 0.1, 0.2], [0.1, 0.4, 0.0], [0.2, 0.0, 0.6]]
x0 = [0.5, -0.5]
P0 = [[2.0, 0.3], [0.3, 1.0]]

[[fit]]
name = "unscented"
method = "ukf"
f = ["0.9 * x0 + 0.2 * sin(x1)", "0.8 * x1 - 0.1 * x0"]
h = ["x0 + power(x1, 2) / 10", "exp(x0 / 5) - x1", "x1"]
Q = [[0.3, 0.1], [0.1, 0.2]]
R = [[0.5, 0.1, 0.2], [0.1, 0.4, 0.0], [0.2, 0.0, 0.6]]
x0 = [0.5, -0.5]
P0 = [[2.0, 0.3], [0.3, 1.0]]
alpha = 0.5
beta = 2.0
kappa = 1.0
"#;

/// As [`SCRIPT`], with the rows of H and R that belong to the numbers that are there.
const MISSING: &str = r#"
import numpy as np, pyarrow.parquet as parquet
from filterpy.kalman import MerweScaledSigmaPoints, UnscentedKalmanFilter
world = parquet.read_table("world.parquet").to_pydict()
rows = parquet.read_table("out/estimates/part-0.parquet").to_pydict()
assert rows["id"] == world["id"] and rows["t"] == world["t"]
assert not [name for name in rows if "known" in name], rows.keys()
Z = np.array([[np.nan if x is None else x for x in world[name]] for name in "abc"]).T
Q, R = np.array([[.3, .1], [.1, .2]]), np.array([[.5, .1, .2], [.1, .4, 0], [.2, 0, .6]])
x0, P0 = np.array([.5, -.5]), np.array([[2, .3], [.3, 1]])
F, H = np.array([[.9, .2], [-.1, .8]]), np.array([[1, 2], [.5, -1], [0, 1]])
f = lambda y, dt=1: np.array([.9 * y[0] + .2 * np.sin(y[1]), .8 * y[1] - .1 * y[0]])
h = lambda y: np.array([y[0] + y[1] ** 2 / 10, np.exp(y[0] / 5) - y[1], y[1]])
df = lambda y: np.array([[.9, .2 * np.cos(y[1])], [-.1, .8]])
dh = lambda y: np.array([[1, y[1] / 5], [np.exp(y[0] / 5) / 5, -1], [0, 1]])

def score(y, S):
    return -.5 * (y @ np.linalg.solve(S, y) + np.linalg.slogdet(2 * np.pi * S)[1])

class Gaussian:
    def __init__(self, f, df, h, dh):
        self.x, self.P, self.of = x0, P0, (f, df, h, dh)
    def predict(self):
        f, df, _, _ = self.of
        A = df(self.x)
        self.x, self.P = f(self.x), A @ self.P @ A.T + Q
    def update(self, z, there):
        _, _, h, dh = self.of
        A, noise = dh(self.x)[there], R[np.ix_(there, there)]
        y, S = z[there] - h(self.x)[there], A @ self.P @ A.T + noise
        K = self.P @ A.T @ np.linalg.inv(S)
        self.x, self.P = self.x + K @ y, self.P - K @ A @ self.P
        return score(y, S)

class Unscented:
    def __init__(self):
        points = MerweScaledSigmaPoints(2, .5, 2., 1.)
        own = self.own = UnscentedKalmanFilter(2, 3, 1., h, f, points)
        own.Q, own.R, own.x, own.P = Q, R, x0, P0
        own.sigmas_f = points.sigma_points(x0, P0)
    x, P = property(lambda self: self.own.x), property(lambda self: self.own.P)
    def predict(self):
        self.own.predict()
    def update(self, z, there):
        self.own.update(z[there], R=R[np.ix_(there, there)], hx=lambda y: h(y)[there])
        return score(self.own.y, self.own.S)

filters = {
    "kf": lambda: Gaussian(lambda y: F @ y, lambda y: F, lambda y: H @ y, lambda y: H),
    "extended": lambda: Gaussian(f, df, h, dh),
    "unscented": Unscented,
}
ids, times = np.array(world["id"]), np.array(world["t"])
pieces = np.r_[True, (np.diff(ids) != 0) | (np.diff(times) != 1)]
for name, start in filters.items():
    means, variances, scores = [], [], []
    for z, is_first in zip(Z, pieces):
        if is_first:
            model = start()
        else:
            model.predict()
        there = np.flatnonzero(np.isfinite(z))
        scores.append(model.update(z, there) if len(there) else np.nan)
        means.append(model.x), variances.append(np.diag(model.P))
    own = lambda column: np.array(rows[f"{name}_{column}"], float)
    assert (np.isnan(own("log_score")) == np.isnan(scores)).all(), name
    assert (np.array(rows[f"{name}_was_updated"]) == ~np.isnan(scores)).all(), name
    off = abs(own("log_score") - scores)
    for what, off in [
        ("mean", abs(own("mean") - means)), ("variance", abs(own("variance") - variances)),
        ("score", off[~np.isnan(off)]),
    ]:
        print(name, what, off.max())
"#;

/// Three sensors of which each fails in rows of its own.
fn measured(lake: &Lake) {
    let mut random = Pcg64::seed_from_u64(11);
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    let mut columns: [Vec<Option<f64>>; 3] = Default::default();
    for id in 0..5 {
        for t in 0..60 {
            // Gaps between rows.
            if (t + 2 * id) % 29 == 7 {
                continue;
            }
            ids.push(id);
            times.push(t);
            for column in &mut columns {
                let x = random.random_range(-2.0..2.0);
                column.push((random.random::<f64>() < 0.6).then_some(x));
            }
        }
    }
    let [a, b, c] = columns.map(floats);
    let columns = vec![
        ("id", integers(ids)),
        ("t", integers(times)),
        ("a", a),
        ("b", b),
        ("c", c),
    ];
    lake.table("world.parquet", columns);
}

/// A row is updated by the sensors that are there, and no row needs a known state.
#[test]
fn rows_with_missing_sensors_agree_with_numpy_and_filterpy() {
    let Some(python) = needs::python(&["filterpy", "pyarrow"]) else {
        return;
    };
    let lake = Lake::new();
    measured(&lake);
    lake.runs_text(MEASURED);
    let ran = lake.script(&python, MISSING, &[]);
    assert_eq!(ran.out.lines().count(), 9, "{}", ran.out);
    for line in ran.out.lines() {
        let off = line.rsplit(' ').next().expect("a number");
        let off: f64 = off.parse().expect("a number");
        assert!(off < 1e-8, "{}", ran.out);
    }
}
