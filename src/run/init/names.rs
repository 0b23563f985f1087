//! What the name of a column says about its role.

/// A role of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Orders the rows of a trajectory.
    Time,
    /// Says to which trajectory a row belongs.
    Trajectory,
    /// The state of a row.
    State,
    /// The source of a pair.
    Source,
    /// The target of a pair.
    Target,
    /// How many transitions a pair stands for.
    Count,
    /// The weight of a pair.
    Weight,
    /// A longitude in degrees.
    Longitude,
    /// A latitude in degrees.
    Latitude,
    /// Another coordinate.
    Coordinate,
    /// What a row shows of a hidden state.
    Symbol,
    /// A number of a measurement.
    Observation,
    /// A number of a state that is known beside a measurement.
    KnownState,
    /// A coordinate that comes back to its beginning.
    Angle,
}

const NAMES: [(Role, &str); 14] = [
    (
        Role::Time,
        "time timestamp datetime date t ts epoch unixtime stamp created occurred zeit datum step frame position pos seq order tick n index idx",
    ),
    (
        Role::Trajectory,
        "trajectory traj track particle drifter buoy object session speech vehicle trip user customer account visitor patient subject person device sensor station ship vessel mmsi bike robot machine animal individual player run simulation episode walker replica replicate chain id",
    ),
    (
        Role::State,
        "state word page symbol token event action label cluster zone cell status letter url",
    ),
    (
        Role::Source,
        "source src from origin orig departure dep pickup start u",
    ),
    (
        Role::Target,
        "target tgt to destination dest dst arrival arr dropoff end v",
    ),
    (
        Role::Count,
        "count counts n number trips passengers persons people riders flights vehicles migrants visits transitions frequency freq",
    ),
    (Role::Weight, "weight weights w strength volume amount flow"),
    (
        Role::Symbol,
        "symbol observation emission token letter base residue phoneme note chord codon",
    ),
    (
        Role::Observation,
        "observation obs observed measurement measured meas noisy",
    ),
    (Role::KnownState, "true truth actual exact state"),
    (Role::Longitude, "longitude lon lng long"),
    (Role::Latitude, "latitude lat"),
    (Role::Coordinate, "x y z"),
    (
        Role::Angle,
        "angle phi psi chi omega theta dihedral torsion heading course cog bearing azimuth direction dir yaw wd phase longitude lon lng",
    ),
];

/// Words of a name that say that its numbers are a date, a measure or a key, and count nothing.
const NO_AMOUNTS: &str = "year month week day days hour hours minute minutes min second seconds sec \
    ms date time duration distance length km miles meters speed delay age price fare cost \
    altitude elevation temperature temp id key code zip index row version";

/// How well a name fits a role, from 0 (not at all): the whole name before a word of it, and early
/// words of the list before later ones.
pub(crate) fn fit(name: &str, role: Role) -> usize {
    let known = known(role);
    let lower = name.to_lowercase();
    let words = words(name);
    let place = |found: usize| known.len() - found;
    let whole = known.iter().position(|known| *known == lower);
    // `order_id` is the key of an order, and `flight_number` counts nothing.
    let says = |known: &&str| match words.iter().position(|word| word == known) {
        Some(at) => match *known {
            "order" => at + 1 == words.len(),
            "number" => at == 0,
            _ => true,
        },
        None => false,
    };
    let part = known.iter().position(says);
    match (whole, part) {
        (Some(at), _) => 100 + place(at),
        (None, Some(at)) => place(at),
        (None, None) => 0,
    }
}

fn known(role: Role) -> Vec<&'static str> {
    let known = NAMES.iter().find(|(of, _)| *of == role);
    known.map_or("", |(_, names)| names).split(' ').collect()
}

/// A name without the words of a role: `start_station_id` without `start` is `station`, `id`.
pub(crate) fn without_role(name: &str, role: Role) -> Vec<String> {
    let known = known(role);
    let mut words = words(name);
    words.retain(|word| !known.contains(&word.as_str()));
    words
}

/// Whether a name says that the numbers of its column count or weigh nothing.
pub(crate) fn is_no_amount(name: &str) -> bool {
    let words = words(name);
    let is_known = |word: &String| NO_AMOUNTS.split_whitespace().any(|known| known == word);
    words.iter().any(is_known)
}

/// The words of a name in lower case: `fromStation_id` has `from`, `station` and `id`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if c.is_alphanumeric() {
            let last = words.len() - 1;
            words[last].extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_consist_of_words() {
        assert_eq!(words("fromStation_id"), ["from", "station", "id"]);
        assert_eq!(words("TIME (s)"), ["time", "s"]);
    }

    #[test]
    fn whole_names_come_before_words_of_names() {
        assert!(fit("Time", Role::Time) > fit("start_time", Role::Time));
        assert!(fit("time", Role::Time) > fit("step", Role::Time));
        assert!(fit("source_airport", Role::Source) > 0);
        assert_eq!(fit("sourceless", Role::Source), 0);
        assert_eq!(fit("temperature", Role::Time), 0);
        assert_eq!(fit("order_id", Role::Time), 0);
        assert!(fit("last_order", Role::Time) > 0);
        assert_eq!(fit("flight_number", Role::Count), 0);
        assert!(fit("number_of_trips", Role::Count) > 0);
    }

    #[test]
    fn names_of_ends_differ_in_the_word_of_their_role() {
        let rest = without_role("start_station_id", Role::Source);
        assert_eq!(rest, ["station", "id"]);
        assert_eq!(rest, without_role("endStationId", Role::Target));
        assert!(is_no_amount("zip_code") && !is_no_amount("persons"));
    }
}
