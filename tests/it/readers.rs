//! DuckDB, Polars and pandas read the output tables. These tests need a Python with all three,
//! which GYRE_PYTHON names.

use crate::lake::{Lake, ProgramRun};
use crate::needs;
use crate::observations_worlds::{TRACK, track};

const COUNT: &str = r#"
import sys, duckdb, pandas, polars
out = sys.argv[1]
for table in sys.argv[2:]:
    n = duckdb.sql(f"SELECT count(*) FROM '{out}/{table}/*.parquet'").fetchall()[0][0]
    p = polars.read_parquet(f"{out}/{table}/").height
    q = len(pandas.read_parquet(f"{out}/{table}/part-0.parquet"))
    print(table, n, p, q)
"#;

const COUNTS: &str = r#"
lag, total = duckdb.sql(f"SELECT any_value(lag), sum(count)::BIGINT FROM '{out}/counts/*.parquet'").fetchall()[0]
width = len(polars.read_parquet(f"{out}/sources/")["dbmr_embedding"][0])
p = pandas.read_parquet(f"{out}/sources/part-0.parquet")["probability"].sum()
# In a store without links, the pointer names the folder of the tables.
duckdb.sql(f"SET VARIABLE result = (SELECT '{out}/' || folder FROM '{out}/current.json')")
m = duckdb.sql("SELECT count(*) FROM read_parquet(getvariable('result') || '/sources/*.parquet')").fetchall()[0][0]
assert m == len(pandas.read_parquet(f"{out}/sources/part-0.parquet")), m
print("lag", lag, "total", total, "width", width, "p", round(p, 12))
"#;

/// The errors of the guide by SQL: states beside estimates.
const ERRORS: &str = r#"
mse = duckdb.sql(f"SELECT test_mse FROM '{out}/fits/*.parquet' WHERE fit = 'kf'").fetchall()[0][0]
sql = duckdb.sql(f"""
    SELECT avg((e.kf_mean[1] - t.s) ** 2) FROM '{out}/estimates/*.parquet' AS e
    JOIN '{out}/../track/*.parquet' AS t USING (id, t)""").fetchall()[0][0]
assert abs(mse / sql - 1) < 1e-9, (mse, sql)
"#;

/// Runs a script after all tables of a result are counted by each program.
fn read(lake: &Lake, script: &str) -> Option<ProgramRun> {
    let python = needs::python(&["duckdb", "polars", "pandas", "pyarrow"])?;
    let tables: Vec<String> = lake.tables_of("out").into_keys().collect();
    let arguments: Vec<&str> = ["out"]
        .into_iter()
        .chain(tables.iter().map(String::as_str))
        .collect();
    let ran = lake.script(&python, &(COUNT.to_string() + script), &arguments);
    for table in tables {
        let n = lake.read(&table).len();
        ran.says(&format!("{table} {n} {n} {n}\n"));
    }
    Some(ran)
}

#[test]
fn other_programs_read_the_tables() {
    let (counts, filters) = (Lake::new(), Lake::new());
    crate::cli::small_pipeline(&counts).runs(&[]);
    track(&filters, 16, 8, 3);
    filters.runs_text(TRACK);
    if let Some(ran) = read(&counts, COUNTS) {
        ran.says("lag 1 total 597 width 2 p 1.0");
    }
    read(&filters, ERRORS);
}
