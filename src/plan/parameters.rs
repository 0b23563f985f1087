//! Values of a pipeline file → typed scalars of SQL.

use crate::error::{Error, Result};
use crate::plan::pipeline::argument::Argument;
use crate::store::parameter::Parameter;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use std::collections::{BTreeMap, BTreeSet};

/// The scalars of SQL parameters, by name. `key` is their key in the pipeline file.
pub(crate) fn values(
    parameters: &BTreeMap<String, Argument>,
    key: &str,
) -> Result<BTreeMap<String, ScalarValue>> {
    let value = |(name, argument): (&String, &Argument)| {
        let value = value(argument);
        let value = value.map_err(|what| Error::spec(format!("`{key}.{name}` {what}")))?;
        Ok((name.clone(), value))
    };
    parameters.iter().map(value).collect()
}

pub(crate) fn value(argument: &Argument) -> Result<ScalarValue, String> {
    match argument {
        Argument::One(parameter) => Ok(scalar(parameter)),
        Argument::Moment { moment } => {
            let has_date = moment.contains('-');
            let has_time = moment.contains(':');
            // A time zone is at the end: `Z`, or hours and minutes after a sign.
            let time = moment.rsplit(['T', 't', ' ']).next().unwrap_or(moment);
            let has_zone = has_time && time.contains(['Z', 'z', '+', '-']);
            let zone = has_zone.then(|| "+00:00".into());
            let data_type = match (has_date, has_time) {
                (true, true) => DataType::Timestamp(TimeUnit::Nanosecond, zone),
                (true, false) => DataType::Date32,
                _ => DataType::Time64(TimeUnit::Nanosecond),
            };
            ScalarValue::try_from_string(moment.clone(), &data_type).map_err(|_| {
                format!("is {moment}, which is no date or time of the years 1678 to 2261")
            })
        }
        Argument::List(list) => {
            let all: Vec<ScalarValue> = list.iter().map(value).collect::<Result<_, _>>()?;
            let types: BTreeSet<String> = all.iter().map(|v| v.data_type().to_string()).collect();
            let numbers = |v: &ScalarValue| v.data_type().is_numeric();
            let (data_type, all) = match all.first() {
                Some(first) if types.len() == 1 => (first.data_type(), all),
                // Integers and floats together become floats.
                _ if all.iter().all(numbers) => {
                    let floats = all.iter().map(|v| v.cast_to(&DataType::Float64));
                    let floats = floats.collect::<Result<_, _>>();
                    (DataType::Float64, floats.map_err(|e| e.to_string())?)
                }
                _ => return Err("must be a list of values of one type".into()),
            };
            Ok(ScalarValue::List(ScalarValue::new_list(
                &all, &data_type, true,
            )))
        }
    }
}

pub(crate) fn scalar(parameter: &Parameter) -> ScalarValue {
    match parameter {
        Parameter::Boolean(v) => ScalarValue::from(*v),
        Parameter::Integer(v) => ScalarValue::from(*v),
        Parameter::Float(v) => ScalarValue::from(*v),
        Parameter::String(v) => ScalarValue::from(v.as_str()),
    }
}
