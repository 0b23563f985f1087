//! The guide: one page per task, each a Markdown file beside this one.
//!
//! The README of the repository is the place to begin. Pages link to each other by labels, which
//! stand for files in the repository and for modules here.

/// Writes one module per page. `links.txt` comes first, so that its labels lead to modules.
macro_rules! pages {
    ($($name:ident,)*) => {
        $(
            #[doc = include_str!("links.txt")]
            #[doc = include_str!(concat!(stringify!($name), ".md"))]
            pub mod $name {}
        )*
    };
}

pages! {
    own_data,
    python,
    other_programs,
    pipeline,
    keys,
    sql,
    stores,
    methods,
    points,
    sequences,
    filters,
    tables,
    columns,
    commands,
    ranks,
    report,
    trust,
    checks,
    markov,
    set_names,
    assign,
    increments,
    versions,
    memory,
    cluster,
    limits,
    changes,
}
