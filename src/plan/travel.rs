//! Serialization of parts of a plan, for `serde(with)`.

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// SQL parameters as Arrow columns with one row.
pub(crate) mod values {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Values {
        names: Vec<String>,
        #[serde(with = "crate::read::rows::ipc::arrays")]
        columns: Vec<ArrayRef>,
    }

    pub(crate) fn serialize<S: Serializer>(
        values: &BTreeMap<String, ScalarValue>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let columns = values.values().map(ScalarValue::to_array);
        let columns = columns.collect::<Result<_, _>>();
        let values = Values {
            names: values.keys().cloned().collect(),
            columns: columns.map_err(S::Error::custom)?,
        };
        values.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, ScalarValue>, D::Error> {
        let Values { names, columns } = Values::deserialize(from)?;
        let values = names.into_iter().zip(&columns);
        let value = |(name, column): (String, &ArrayRef)| {
            let value = ScalarValue::try_from_array(column, 0);
            Ok((name, value.map_err(D::Error::custom)?))
        };
        values.map(value).collect()
    }
}

/// A shared value.
pub(crate) mod shared {
    use super::*;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        shared: &Arc<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        shared.as_ref().serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(from).map(Arc::new)
    }
}

/// A value as JSON text, because formats without types cannot hold values of several types.
pub(crate) mod json {
    use super::*;
    use serde::de::DeserializeOwned;

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(value).map_err(S::Error::custom)?;
        text.serialize(to)
    }

    pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}
