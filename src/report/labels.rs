//! Names beside points, as many as do not cover each other.

/// At most this number of names in a picture.
const MOST: usize = 8;

/// Pixels of a letter and of a line of text.
const LETTER: [f64; 2] = [7.5, 13.0];

/// The distance of a name from its point, and of two names, in pixels.
const SPACE: f64 = 4.0;

/// The points whose names can stand above them: the first ones of the list that are inside a
/// picture of `size` pixels and apart from each other. Places are in pixels from the top left.
pub(crate) fn apart(places: &[[f64; 2]], names: &[String], size: [f64; 2]) -> Vec<usize> {
    let mut boxes: Vec<[f64; 4]> = Vec::new();
    let mut kept = Vec::new();
    for (at, (place, name)) in places.iter().zip(names).enumerate() {
        let width = LETTER[0] * name.chars().count() as f64;
        let bottom = place[1] - SPACE;
        let [left, right] = [place[0] - width / 2.0, place[0] + width / 2.0];
        let own = [left, bottom - LETTER[1], right, bottom];
        let is_inside = own[0] >= 0.0 && own[1] >= 0.0 && own[2] <= size[0] && own[3] <= size[1];
        let is_free = boxes.iter().all(|other| {
            own[2] + SPACE < other[0]
                || other[2] + SPACE < own[0]
                || own[3] + SPACE < other[1]
                || other[3] + SPACE < own[1]
        });
        if !name.is_empty() && is_inside && is_free {
            boxes.push(own);
            kept.push(at);
        }
        if kept.len() == MOST {
            break;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_overlap_are_left_out() {
        let names = ["LHR", "CDG", "ATL", "EDGE", ""].map(String::from);
        let places = [
            [100.0, 100.0],
            // Ten pixels to the right of a name of 22 pixels.
            [110.0, 100.0],
            // Two lines below it.
            [100.0, 130.0],
            // Half of its name would be outside.
            [2.0, 50.0],
            [200.0, 50.0],
        ];
        assert_eq!(apart(&places, &names, [340.0, 230.0]), [0, 2]);
        assert_eq!(apart(&places[1..], &names[1..], [340.0, 230.0]), [0, 1]);
    }

    #[test]
    fn there_are_at_most_eight_names() {
        let places = (0..20).map(|k| [50.0 + 40.0 * f64::from(k), 50.0]);
        let places = places.collect::<Vec<_>>();
        let names = vec!["abc".to_string(); 20];
        assert_eq!(
            apart(&places, &names, [1000.0, 100.0]),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
    }
}
