//! Store options that are sent to other machines.

use crate::error::{Error, Result};
use crate::store::Stores;
use crate::store::options::{Class, canonical, is_host_word};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The options of a pipeline that may be sent to other machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SharedOptions {
    pub(crate) values: BTreeMap<String, String>,
    /// Keys that the receiving machine must have in its own environment.
    pub(crate) local_keys: BTreeSet<String>,
}

impl Stores {
    /// The options that another machine needs to open the same stores.
    pub(crate) fn shared(&self) -> SharedOptions {
        let mut shared = SharedOptions::default();
        for (key, value) in &self.0.options {
            match Class::of(key) {
                Class::Request | Class::HostPart => {
                    shared.values.insert(key.clone(), value.clone());
                }
                Class::Endpoint => {
                    shared.local_keys.insert(key.clone());
                }
                Class::Private => (),
            }
        }
        shared
    }
}

impl SharedOptions {
    /// The stores as this machine opens them.
    ///
    /// # Errors
    /// If an option may not be set by other machines, or if an endpoint is not set in this
    /// machine's environment.
    pub(crate) fn stores(&self) -> Result<Stores> {
        self.check(|key| {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            let mut keys = names.map(|name| name.to_ascii_lowercase());
            keys.any(|name| canonical(&name).is_some_and(|name| canonical(key) == Some(name)))
        })?;
        Ok(Stores::new(self.values.clone()))
    }

    pub(crate) fn check(&self, is_set: impl Fn(&str) -> bool) -> Result<()> {
        for (key, value) in &self.values {
            let is_allowed = match Class::of(key) {
                Class::Request => true,
                Class::HostPart => is_host_word(value),
                Class::Endpoint | Class::Private => false,
            };
            if !is_allowed {
                let message = format!("a task must not set `{key}` of `[store.options]`");
                return Err(Error::spec(message));
            }
        }
        match self.local_keys.iter().find(|key| !is_set(key)) {
            None => Ok(()),
            Some(key) => Err(Error::spec(format!(
                "`{key}` of `[store.options]` decides who receives credentials, so each executor must set it itself: start each with {} in its environment",
                key.to_uppercase()
            ))),
        }
    }
}
