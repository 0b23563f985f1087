//! What reports say before they show anything, the names of states, and reports of results that
//! were there before.

use crate::browser::measure;
use crate::lake::{Lake, ProgramRun};

/// Two groups of letters, {a, b, c} and {x, y, z}, with rare changes between them.
const PIPELINE: &str = r#"
job = { name = "letters", output = "out", seed = 1 }
tables.rows.path = "rows.csv"
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
state = "letter"
lag = 1

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
"#;

/// 320 letters, half of them of each group.
fn letters() -> String {
    let [left, right] = ["aabbccacba", "xxyyzzxzyx"].map(|text| text.repeat(8));
    format!("{left}{right}{left}{right}")
}

fn lake(more: &str) -> Lake {
    let lake = Lake::new();
    let mut rows = "id,t,letter\n".to_string();
    for (t, letter) in letters().chars().enumerate() {
        rows += &format!("1,{t},{letter}\n");
    }
    lake.file("rows.csv", &rows);
    lake.file("p.toml", &format!("{PIPELINE}{more}"));
    lake
}

fn run(lake: &Lake, more: &[&str]) -> ProgramRun {
    lake.gyre(&[&["run", "p.toml"][..], more].concat())
        .succeeds()
}

fn page(lake: &Lake) -> String {
    lake.line("report out -o report.html").succeeds();
    lake.text("report.html")
}

/// Asserts that texts follow each other.
#[track_caller]
fn check_order(page: &str, texts: &[&str]) {
    let mut rest = page;
    for text in texts {
        let found = rest.split_once(text);
        let (_, after) = found.unwrap_or_else(|| panic!("no {text} in {rest}"));
        rest = after;
    }
}

/// Of 160 letters of the first group, 64 are a, 48 are b and 48 are c.
#[test]
fn a_page_begins_with_its_answer() {
    let lake = lake("");
    run(&lake, &[]);
    let page = page(&lake);
    let sentences = [
        "<p class=\"answer\">320 rows were read.",
        "The fits are to 319 transitions at lag 1 between 6 states.",
        "Look at dbmr (rank 2) first: it is the only fit.",
        "Of the transitions from its sets, ",
        "&nbsp;% end in their own set; by chance it would be ",
        "No fit has a warning.",
        "<div class=\"first",
        "<svg role=\"img\" aria-label=\"Transition",
        "<h3>Fits</h3>",
        "<h3>dbmr: most frequent sources of each set, with their share of the set</h3>",
        "a 40\u{a0}%, b 30\u{a0}%, c 30\u{a0}%",
        "<details>\n<summary><h3>Certificates: all ",
        " hold</h3></summary>",
        "<details id=\"run\">",
    ];
    check_order(&page, &sentences);
    assert!(!page.contains("class=\"warnings\""), "{page}");
    if let Some(measured) = measure(&lake, &lake.path("report.html"), 800) {
        let text = measured["shown"].as_str().expect("text");
        assert!(text.starts_with("letters"), "{text:.300}");
        assert!(text.contains("The run"), "{text}");
        assert!(!text.contains("peak memory"), "the run is folded: {text}");
    }
}

/// A claim of doubles shows the rounding that it allows.
#[test]
fn certificates_show_their_tolerance() {
    let lake = lake("");
    run(&lake, &[]);
    let certificates = lake.read("certificates");
    let tolerances = certificates.floats("tolerance");
    let largest = tolerances.iter().copied().fold(0.0, f64::max);
    assert!(largest > 0.0, "{tolerances:?}");
    let shown = format!(" ± <span>{largest:.0e}</span>");
    let page = page(&lake);
    assert!(page.contains(&shown), "{shown}: {page}");
}

/// The table of fits has the numbers of the table `fits`.
#[test]
fn fits_show_transitions_reference_and_sizes() {
    let lake = lake("");
    run(&lake, &[]);
    let page = page(&lake);
    let heads = [
        "<th>transitions</th>",
        "<th>log likelihood of reference</th>",
        "<th>set sizes</th>",
        "<td><bdi>319</bdi></td>",
        "<td><bdi><span>3 3</span></bdi></td>",
    ];
    check_order(&page, &heads);
}

/// Three states that are visited once are sets of their own in a partition of the input.
#[test]
fn thin_sets_are_a_warning() {
    let lake = Lake::new();
    let mut rows = "source,target,n,side\n".to_string();
    rows += "a,a,5000,0\na,b,1000,0\nb,a,1000,0\nb,b,5000,0\n";
    rows += "p,p,3,1\nq,q,2,2\n";
    lake.file("rows.csv", &rows);
    let pipeline = r#"
job = { name = "thin", output = "out" }
tables.rows.path = "rows.csv"
[transitions]
sql = "SELECT * FROM rows"
source = "source"
target = "target"
count = "n"

[[fit]]
name = "given"
method = "given"
affiliation = "side"
"#;
    let ran = lake.runs_text(pipeline);
    let warning = "sets 1 and 2 hold under 0.1 % of the transitions: high coherence and objective \
                   come from such sets, and say little";
    ran.says(&format!("  warning: given: {warning}"));
    let page = page(&lake);
    let cell = warning.replace(" %", "\u{a0}%");
    check_order(
        &page,
        &[&format!("given: {warning}"), "<th>warning</th>", &cell],
    );
    let record = lake.record();
    let thin = &record["models"][0]["fits"][0]["thin_sets"];
    assert_eq!(*thin, serde_json::json!([1, 2]));
}

/// A result that is up to date is drawn, and stays a whole result.
#[test]
fn a_result_that_is_there_is_drawn() {
    let lake = lake("");
    run(&lake, &[]);
    let file = "out/current/report.html";
    assert!(!lake.path(file).exists());
    let ran = run(&lake, &["--report"]);
    assert!(ran.out.contains("Nothing to do."), "{}", ran.out);
    assert!(ran.out.contains("report.html"), "{}", ran.out);
    let drawn = lake.text(file);
    assert!(drawn.contains("<p class=\"answer\">"), "{drawn}");
    run(&lake, &["--report"]);
    assert_eq!(lake.text(file), drawn);
    lake.line("inspect out").succeeds();
    // A page that belongs to the commit of a version stays as it is.
    run(&lake, &["--force", "--report"]);
    let drawn = lake.text(file);
    run(&lake, &["--report"]);
    assert_eq!(lake.text(file), drawn);
    lake.line("inspect out sources").succeeds();
}

/// New rows have states that the model has not seen.
#[test]
fn assignments_are_drawn() {
    let lake = lake("");
    run(&lake, &[]);
    let new = "id,t,letter\n9,0,a\n9,1,d\n9,2,a\n9,3,b\n8,0,x\n8,1,y\n8,2,x\n";
    lake.file("new.csv", new);
    let assign = "assign p.toml --model out --output new --set tables.rows.path=new.csv";
    lake.line(assign).succeeds();
    lake.line("report new -o report.html").succeeds();
    let page = lake.text("report.html");
    let texts = [
        "7 rows were read.",
        // a → d, d → a, a → b, x → y and y → x.
        "The new rows have 5 transitions of 4 states; states that are new: 1; transitions to \
         targets that the model has not seen: 1.",
        "<svg ",
        "<h3>Scores of the new rows</h3>",
    ];
    check_order(&page, &texts);
    let drawn = lake.line("report new --format svg -o pictures").succeeds();
    assert!(!drawn.out.contains(" 0 pictures"), "{}", drawn.out);
}

/// Points in a cloud say which state they are.
#[test]
fn points_have_the_names_of_their_states() {
    let lake = lake("\n[[fit]]\nname = \"svd\"\nmethod = \"svd\"\nrank = 3\n");
    run(&lake, &[]);
    let page = page(&lake);
    let counts = lake.read("sources").integers("count");
    let states = lake.read("sources").texts("letter");
    let sets = lake.read("sources").integers("svd_affiliation");
    for at in 0..states.len() {
        let (state, set, n) = (&states[at], sets[at], counts[at]);
        // States of one pixel share a tooltip.
        let tip = format!("{state}, set {set}, {n} transitions");
        assert!(page.contains(&tip), "{tip}: {page}");
    }
}
