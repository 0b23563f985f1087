//! The name of the kind of evidence in types.

/// Sequences of rows that show one symbol each.
#[derive(Clone, Default)]
pub(crate) struct SymbolsKind;
