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
    Measurement,
    /// A number of a state that is known beside a measurement.
    KnownState,
    /// A coordinate that comes back to its beginning.
    Angle,
}

const NAMES: [(Role, &str); 14] = [
    (
        Role::Time,
        "time timestamp datetime date t ts epoch unixtime stamp created occurred zeit datum step frame position pos seq order tick n index idx number num nr year month week day hour",
    ),
    (
        Role::Trajectory,
        "trajectory traj track particle drifter buoy object session speech vehicle trip user customer account visitor patient subject person device sensor station ship vessel mmsi bike robot machine animal individual player run simulation episode walker replica replicate chain id",
    ),
    (
        Role::State,
        "state word page url symbol token event action label cluster zone cell status letter",
    ),
    (
        Role::Source,
        "source src from origin orig departure dep pickup start u sender caller follower citing parent buyer referrer",
    ),
    (
        Role::Target,
        "target tgt to destination dest dst arrival arr dropoff end v recipient receiver callee followee followed cited child seller referred",
    ),
    (
        Role::Count,
        "count counts n number trips passengers persons people riders flights vehicles migrants visits transitions frequency freq calls messages mails",
    ),
    (
        Role::Weight,
        "weight weights w strength volume amount flow probability prob",
    ),
    (
        Role::Symbol,
        "symbol observation obs emission token letter base residue phoneme note chord codon",
    ),
    (
        Role::Measurement,
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

/// Words of a name that say that its numbers are a date, a place or a key, and count nothing.
const KEY_WORDS: &str = "year month week day hour minute second date time id key code zip index row \
    version";

/// Words of a name that say that its numbers measure one event, and count nothing.
const MEASURE_WORDS: &str = "duration distance length km miles meters speed delay age price fare \
    cost altitude elevation temperature temp days hours minutes min seconds sec ms";

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
            // `move_number` orders moves.
            "number" | "num" | "nr" if role == Role::Time => at + 1 == words.len(),
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

/// Words of names of times that are no whole numbers, and their units.
const FLOAT_TIMES: &str =
    "time times timestamp t ts epoch unix unixtime stamp elapsed seconds secs";
const TIME_UNITS: &str = "s sec ms us ns ps fs min h sim";

/// Whether a name says that numbers of any kind are times: `time_ps` and `t`, not `time_to_goal`.
pub(crate) fn is_time(name: &str) -> bool {
    let words = words(name);
    let has = |list: &str, word: &String| list.split(' ').any(|known| known == word);
    words.iter().any(|word| has(FLOAT_TIMES, word))
        && words
            .iter()
            .all(|word| has(FLOAT_TIMES, word) || has(TIME_UNITS, word))
}

/// The last word of the name of a true state: `x` of `true_x`.
pub(crate) fn axis_of_truth(name: &str) -> Option<String> {
    let mut words = words(name);
    let last = words.pop()?;
    let is_true = |word: &String| ["true", "truth", "actual", "exact"].contains(&word.as_str());
    words.iter().any(is_true).then_some(last)
}

/// Things whose whole numbers are their names.
const THINGS: &str = "node vertex state id person user page city airport gene protein atom agent";

/// Whether two columns are the two ends of a pair by the last signs of their names: `node1` and
/// `node2`, `page_a` and `page_b`, or `i` and `j`. Whole numbers need a name that says what they
/// are.
pub(crate) fn are_ends(first: &str, second: &str, are_texts: bool) -> bool {
    let (first, second) = (first.to_lowercase(), second.to_lowercase());
    if (first.as_str(), second.as_str()) == ("i", "j") {
        return true;
    }
    let of = |name: &str, end: char| {
        let base = name
            .strip_suffix(end)?
            .trim_end_matches(['_', ' ', '.', '-']);
        (!base.is_empty()).then(|| base.to_string())
    };
    let ends = [('1', '2'), ('a', 'b'), ('i', 'j')].into_iter();
    let mut bases = ends.filter_map(|(a, b)| Some((of(&first, a)?, of(&second, b)?)));
    let is_thing = |base: &str| {
        let words = words(base);
        words
            .iter()
            .any(|word| THINGS.split(' ').any(|thing| thing == word))
    };
    bases.any(|(a, b)| a == b && (are_texts || is_thing(&a)))
}

/// A name without the words of a role: `start_station_id` without `start` is `station`, `id`.
pub(crate) fn without_role(name: &str, role: Role) -> Vec<String> {
    let known = known(role);
    let mut words = words(name);
    words.retain(|word| !known.contains(&word.as_str()));
    words
}

fn has_word(name: &str, list: &str) -> bool {
    let words = words(name);
    words
        .iter()
        .any(|word| list.split_whitespace().any(|known| known == word))
}

/// Whether a name says that the numbers of its column count or weigh nothing.
pub(crate) fn is_no_amount(name: &str) -> bool {
    has_word(name, KEY_WORDS) || is_measure(name)
}

/// Whether a name says that the numbers of its column measure one event.
pub(crate) fn is_measure(name: &str) -> bool {
    has_word(name, MEASURE_WORDS)
}

/// The words of a name in lower case: `fromStation_id` has `from`, `station` and `id`.
pub(crate) fn words(name: &str) -> Vec<String> {
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
        assert!(fit("move_number", Role::Time) > 0);
        assert_eq!(fit("number_of_trips", Role::Time), 0);
    }

    #[test]
    fn names_of_ends_differ_in_the_word_of_their_role() {
        let rest = without_role("start_station_id", Role::Source);
        assert_eq!(rest, ["station", "id"]);
        assert_eq!(rest, without_role("endStationId", Role::Target));
        assert!(is_no_amount("zip_code") && !is_no_amount("persons"));
        assert!(is_measure("duration_s") && !is_measure("zip_code"));
    }

    #[test]
    fn times_of_any_numbers_have_names_of_times_alone() {
        for name in ["t", "Time (s)", "elapsed_seconds", "time_ps", "timestamp"] {
            assert!(is_time(name), "{name}");
        }
        for name in ["time_to_goal", "s", "lap_time", "pos", "t_max", "x"] {
            assert!(!is_time(name), "{name}");
        }
    }

    #[test]
    fn ends_differ_in_their_last_sign() {
        for (a, b) in [("node1", "node2"), ("Page_A", "page_b"), ("i", "j")] {
            assert!(are_ends(a, b, false), "{a} {b}");
        }
        assert!(are_ends("team1", "team2", true));
        for (a, b) in [("x1", "x2"), ("node1", "state2"), ("node2", "node1")] {
            assert!(!are_ends(a, b, false), "{a} {b}");
        }
    }
}
