//! The name that was probably meant.

/// Returns the name that is most like `text`, if one is.
pub(crate) fn closest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (distance(text, name), name))
        .min()
        .filter(|(d, name)| *d <= name.len().min(text.len()).div_ceil(2))
        .map(|(_, name)| name)
}

/// Returns how many letters have to change to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_strangers_are_not() {
        let names = ["procs", "stack_size", "seed"];
        assert_eq!(closest("proc", names.into_iter()), Some("procs"));
        assert_eq!(closest("stacksize", names.into_iter()), Some("stack_size"));
        assert_eq!(closest("colour", names.into_iter()), None);
        assert_eq!((distance("", "abc"), distance("kitten", "sitting")), (3, 3));
    }
}
