//! The names of the output tables of a run.

macro_rules! tables {
    ($($table:ident $name:literal;)*) => {
        /// An output table of a run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Table {
            $(#[doc = concat!("The table `", $name, "`.")] $table,)*
        }

        impl Table {
            /// All tables, in the order in which they are written.
            pub const ALL: [Table; [$($name),*].len()] = [$(Table::$table),*];

            /// The name of the table's folder.
            pub fn name(self) -> &'static str {
                match self {
                    $(Table::$table => $name,)*
                }
            }
        }
    };
}

impl Table {
    /// The tables that no later command reads, so that a run may leave them out.
    pub(crate) const OPTIONAL: [&'static str; 9] = [
        "coarse",
        "certificates",
        "restarts",
        "embeddings",
        "bootstrap",
        "ranks",
        "timescales",
        "chapman_kolmogorov",
        "counts",
    ];
}

impl From<Table> for &'static str {
    fn from(table: Table) -> &'static str {
        table.name()
    }
}

tables! {
    Sources "sources";
    Targets "targets";
    Latent "latent";
    Coarse "coarse";
    Fits "fits";
    Certificates "certificates";
    Restarts "restarts";
    Spectrum "spectrum";
    Embeddings "embeddings";
    Bootstrap "bootstrap";
    Ranks "ranks";
    Sets "sets";
    Changes "changes";
    Timescales "timescales";
    ChapmanKolmogorov "chapman_kolmogorov";
    Counts "counts";
    Rows "rows";
}
