//! The guide: one page per task, each a Markdown file beside this one.
//!
//! The README of the repository is the place to begin. Pages link to each other by labels, which mean files in the
//! repository and modules here.

/// A module per page, whose links lead to the modules of other pages: a label means what its first definition says.
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
    pipeline,
    keys,
    sql,
    stores,
    methods,
    tables,
    commands,
    ranks,
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
