//! DuckDB, Polars and pandas read the output tables. These tests need a Python with all three,
//! which GYRE_PYTHON names.

use crate::lake::{Lake, ProgramRun};
use crate::needs;
use std::process::Command;

const SCRIPT: &str = r#"
import sys, duckdb, pandas, polars
out = sys.argv[1]
for table in ["sources", "targets", "latent", "coarse", "fits", "certificates", "restarts", "spectrum", "sets", "changes", "counts"]:
    n = duckdb.sql(f"SELECT count(*) FROM '{out}/{table}/*.parquet'").fetchall()[0][0]
    p = polars.read_parquet(f"{out}/{table}/").height
    q = len(pandas.read_parquet(f"{out}/{table}/part-0.parquet"))
    print(table, n, p, q)
lag, total = duckdb.sql(f"SELECT any_value(lag), sum(count)::BIGINT FROM '{out}/counts/*.parquet'").fetchall()[0]
width = len(polars.read_parquet(f"{out}/sources/")["dbmr_embedding"][0])
p = pandas.read_parquet(f"{out}/sources/part-0.parquet")["probability"].sum()
# In a store without links, the pointer names the folder of the tables.
duckdb.sql(f"SET VARIABLE result = (SELECT '{out}/' || folder FROM '{out}/current.json')")
m = duckdb.sql("SELECT count(*) FROM read_parquet(getvariable('result') || '/sources/*.parquet')").fetchall()[0][0]
assert m == len(pandas.read_parquet(f"{out}/sources/part-0.parquet")), m
print("lag", lag, "total", total, "width", width, "p", round(p, 12))
"#;

#[test]
fn other_programs_read_the_tables() {
    let Some(python) = needs::python(&["duckdb", "polars", "pandas", "pyarrow"]) else {
        return;
    };
    let lake = Lake::new();
    crate::cli::small_pipeline(&lake);
    lake.gyre(&["run", "p.toml"]).succeeds();
    let ran = ProgramRun::of(
        Command::new(python)
            .args(["-c", SCRIPT])
            .arg(lake.path("out"))
            .output()
            .expect("Python starts"),
    )
    .succeeds();
    for table in crate::lake::TABLES {
        let n = lake.read(table).len();
        assert!(
            ran.out.contains(&format!("{table} {n} {n} {n}\n")),
            "{}",
            ran.out
        );
    }
    assert!(
        ran.out.contains("lag 1 total 597 width 2 p 1.0"),
        "{}",
        ran.out
    );
}
