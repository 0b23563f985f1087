//! Options of stores that other machines receive.

use crate::error::{Error, Result};
use crate::store::Stores;
use crate::store::options::{Class, canonical, is_word};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The options of a pipeline, as far as other machines are told.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Told {
    pub(crate) how: BTreeMap<String, String>,
    /// Those that whoever is told must have in its own environment.
    pub(crate) own: BTreeSet<String>,
}

impl Stores {
    /// What another machine needs to know to open the same stores.
    pub fn told(&self) -> Told {
        let mut told = Told::default();
        for (key, value) in &self.0.options {
            match Class::of(key) {
                Class::How | Class::Which => {
                    told.how.insert(key.clone(), value.clone());
                }
                Class::Where => {
                    told.own.insert(key.clone());
                }
                Class::Own => (),
            }
        }
        told
    }
}

impl Told {
    /// The stores as this machine opens them.
    ///
    /// # Errors
    /// If it was told what nobody may tell it, or has no value of its own for what says where a store is.
    pub fn stores(&self) -> Result<Stores> {
        self.check(|key| {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            let mut keys = names.map(|name| name.to_ascii_lowercase());
            keys.any(|name| canonical(&name).is_some_and(|name| canonical(key) == Some(name)))
        })?;
        Ok(Stores::new(self.how.clone()))
    }

    pub(crate) fn check(&self, is_set: impl Fn(&str) -> bool) -> Result<()> {
        for (key, value) in &self.how {
            let may_be_told = match Class::of(key) {
                Class::How => true,
                Class::Which => is_word(value),
                Class::Where | Class::Own => false,
            };
            if !may_be_told {
                let message = format!("`{key}` of `[store.options]` cannot be what a task says");
                return Err(Error::spec(message));
            }
        }
        match self.own.iter().find(|key| !is_set(key)) {
            None => Ok(()),
            Some(key) => Err(Error::spec(format!(
                "`{key}` of `[store.options]` says who is shown tokens, which every executor decides for itself: start each with {} in its environment",
                key.to_uppercase()
            ))),
        }
    }
}
