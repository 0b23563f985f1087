//! Addresses of schedulers and executors.

use std::fmt;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// The address of a scheduler, `df://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if cfg!(not(feature = "cluster")) {
            let what = "this gyre was built without clusters; build it with `--features cluster`";
            return Err(what.into());
        }
        let host_and_port = text.strip_prefix("df://").and_then(|t| t.rsplit_once(':'));
        let port = host_and_port.and_then(|(_, port)| port.parse().ok());
        let host = host_and_port.map(|(host, _)| host);
        let host = host.filter(|host| !host.is_empty());
        match (host, port) {
            (Some(host), Some(port)) if !host.contains(['/', '@']) => Ok(Address {
                host: host.into(),
                port,
            }),
            _ => Err("write the address of a scheduler, such as df://host:50050".into()),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "df://{}:{}", self.host, self.port)
    }
}
