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
}

const NAMES: [(Role, &str); 10] = [
    (
        Role::Time,
        "time timestamp datetime date t ts step frame position pos seq order tick n",
    ),
    (
        Role::Trajectory,
        "trajectory traj track particle drifter buoy object session speech vehicle trip user visitor device station replica chain id",
    ),
    (
        Role::State,
        "state word page symbol token event action label cluster zone cell status letter url",
    ),
    (Role::Source, "source src from origin departure pickup"),
    (
        Role::Target,
        "target tgt to destination dest dst arrival dropoff",
    ),
    (Role::Count, "count counts n number trips"),
    (Role::Weight, "weight weights w"),
    (Role::Longitude, "longitude lon lng long"),
    (Role::Latitude, "latitude lat"),
    (Role::Coordinate, "x y z"),
];

/// How well a name fits a role, from 0 (not at all): the whole name before a word of it, and early
/// words of the list before later ones.
pub(crate) fn fit(name: &str, role: Role) -> usize {
    let known = NAMES.iter().find(|(of, _)| *of == role);
    let known = known.map_or("", |(_, names)| names).split(' ');
    let known: Vec<&str> = known.collect();
    let lower = name.to_lowercase();
    let words = words(name);
    let place = |found: usize| known.len() - found;
    let whole = known.iter().position(|known| *known == lower);
    let part = known
        .iter()
        .position(|known| words.iter().any(|w| w == known));
    match (whole, part) {
        (Some(at), _) => 100 + place(at),
        (None, Some(at)) => place(at),
        (None, None) => 0,
    }
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
    }
}
