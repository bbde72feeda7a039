//! Files that use each other.

use std::collections::{BTreeMap, BTreeSet};

use super::names::Uses;

/// The largest sets of files in which each uses every other one, if only by way of third ones.
pub(super) fn circles(uses: &Uses) -> BTreeSet<BTreeSet<String>> {
    let below: BTreeMap<_, _> = uses
        .keys()
        .map(|file| (file, reached_from(uses, file)))
        .collect();
    let circle_of = |file: &String| {
        let mut circle = below[file].clone();
        circle.retain(|it| below[it].contains(file));
        circle
    };
    let circles = uses.keys().map(circle_of);
    circles.filter(|it| !it.is_empty()).collect()
}

/// All files that a file uses, and those that they use. The file itself is among them if it is in a circle.
fn reached_from(uses: &Uses, file: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![file];
    while let Some(file) = next.pop() {
        for used in uses.get(file).into_iter().flat_map(|it| it.keys()) {
            if reached.insert(used.clone()) {
                next.push(used);
            }
        }
    }
    reached
}
