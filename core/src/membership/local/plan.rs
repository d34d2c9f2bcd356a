//! Who should own what: sticky and balanced.

use std::collections::BTreeMap;

/// Gives every place an owner that may have it. Owners keep what they have, except that none ends
/// with two places more than another that could take one.
///
/// `may` answers whether a member reads the log of a place; a place that nobody may have stays
/// without an owner. Deterministic; O(places x members).
pub(super) fn plan<P: Copy + Ord, M: Copy + Ord>(
    members: &[M],
    owners: &BTreeMap<P, Option<M>>,
    may: impl Fn(M, P) -> bool,
) -> BTreeMap<P, M> {
    let mut shares: BTreeMap<M, Vec<P>> = members.iter().map(|m| (*m, Vec::new())).collect();
    let mut unowned = Vec::new();
    for (place, owner) in owners {
        match owner.filter(|m| shares.contains_key(m) && may(*m, *place)) {
            Some(owner) => shares.entry(owner).or_default().push(*place),
            None => unowned.push(*place),
        }
    }
    for place in unowned {
        let least = members
            .iter()
            .filter(|m| may(**m, place))
            .min_by_key(|m| (shares.get(m).map_or(0, Vec::len), **m));
        if let Some(least) = least {
            shares.entry(*least).or_default().push(place);
        }
    }
    while let Some((from, at, to)) = move_that_balances(members, &shares, &may) {
        let place = shares.get_mut(&from).map(|share| share.remove(at));
        shares.entry(to).or_default().extend(place);
    }
    shares.into_iter().flat_map(|(m, share)| share.into_iter().map(move |p| (p, m))).collect()
}

/// The last movable place of a member that has two more than another who may have it.
fn move_that_balances<P: Copy, M: Copy + Ord>(
    members: &[M],
    shares: &BTreeMap<M, Vec<P>>,
    may: &impl Fn(M, P) -> bool,
) -> Option<(M, usize, M)> {
    let size = |m: &M| shares.get(m).map_or(0, Vec::len);
    let mut largest_first = members.to_vec();
    largest_first.sort_by_key(|m| std::cmp::Reverse(size(m)));
    let mut smallest_first = members.to_vec();
    smallest_first.sort_by_key(size);
    for from in &largest_first {
        for to in &smallest_first {
            if size(from) < size(to) + 2 {
                break;
            }
            let share = shares.get(from)?;
            if let Some(at) = share.iter().rposition(|place| may(*to, *place)) {
                return Some((*from, at, *to));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(plan: &BTreeMap<u32, u32>, members: &[u32]) -> Vec<usize> {
        members.iter().map(|m| plan.values().filter(|owner| *owner == m).count()).collect()
    }

    /// Goal: balanced and sticky, whatever comes and goes. Method: random joins and leaves.
    #[test]
    fn shares_are_equal_and_no_more_moves_than_must() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let places = random.u32(0..40);
            let mut owners: BTreeMap<u32, Option<u32>> = (0..places).map(|p| (p, None)).collect();
            let mut members: Vec<u32> = Vec::new();
            let mut last = 0;
            for _ in 0..20 {
                if members.is_empty() || random.bool() {
                    last += 1;
                    members.push(last);
                } else {
                    let gone = members.swap_remove(random.usize(..members.len()));
                    members.sort_unstable();
                    owners.values_mut().for_each(|o| *o = o.filter(|m| *m != gone));
                }
                let planned = plan(&members, &owners, |_, _| true);
                if members.is_empty() {
                    assert!(planned.is_empty());
                    continue;
                }
                assert_eq!(planned.len(), places as usize, "every place has an owner");
                let sizes = sizes(&planned, &members);
                let (least, most) = (sizes.iter().min(), sizes.iter().max());
                assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1, "{sizes:?}");
                // Nothing moves between two members that both stay, but to one that lacks it.
                let moved = owners
                    .iter()
                    .filter(|(p, owner)| owner.is_some_and(|o| planned.get(p) != Some(&o)))
                    .count();
                let share = places as usize / members.len();
                assert!(moved <= share, "{moved} moved, a share is {share}");
                for (place, owner) in &planned {
                    owners.insert(*place, Some(*owner));
                }
            }
        }
    }

    #[test]
    fn a_place_goes_only_to_who_may_have_it() {
        // Member 1 reads the even places, member 2 all of them, nobody place 100.
        let owners: BTreeMap<u32, Option<u32>> =
            (0..8).chain([100]).map(|p| (p, Some(2))).collect();
        let may = |m: u32, p: u32| p != 100 && (m == 2 || p.is_multiple_of(2));
        let planned = plan(&[1, 2], &owners, may);
        assert_eq!(sizes(&planned, &[1, 2]), [4, 4]);
        assert!(planned.iter().all(|(p, m)| may(*m, *p)));
        assert!(!planned.contains_key(&100));
    }
}
