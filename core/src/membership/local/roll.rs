//! Who owns what of one subscription, and what is on its way from one member to another.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Weak;

use super::plan::plan;
use super::seat::DeskRef;
use crate::types::{LogUuid, Partition};

/// A partition of a log, whatever number a member gives that log.
pub(super) type Place = (LogUuid, Partition);

/// A member, for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId(u64);

/// The members of a subscription and the state of every partition.
///
/// ```text
///           take_up (target is this one)
///  Free ─────────────────────────────────> Held(m)
///   ^                                         │ take_up by another, whose target it is
///   │ arrived, but meant for another by now   v
///   └──────────────────────────────── Moving { from, to } ── arrived ──> Held(to)
///                                             │ `to` leaves half-way
///                                             v
///                                        Stirred(from): revoked, and nobody has taken it
/// ```
#[derive(Debug, Default)]
pub(super) struct Roll {
    members: BTreeMap<MemberId, Member>,
    places: BTreeMap<Place, Held>,
    last: u64,
}

/// The logs that a member reads, of so many partitions each, and how to reach it.
struct Member {
    logs: Vec<(LogUuid, u32)>,
    desk: DeskRef,
    /// Its run is over; it is to have nothing.
    resigned: bool,
}

#[derive(Debug)]
struct Held {
    state: State,
    target: Option<MemberId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Held(MemberId),
    Moving { from: MemberId, to: MemberId },
    Stirred(MemberId),
}

/// What a member is to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Claim these: nobody has them.
    pub(super) assigned: Vec<Place>,
    /// Take these over from their owners (which may be the member itself).
    pub(super) moves: BTreeMap<MemberId, Vec<Place>>,
}

impl Roll {
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    pub(super) fn has(&self, member: MemberId) -> bool {
        self.members.contains_key(&member)
    }

    /// How to reach a member.
    pub(super) fn desk(&self, member: MemberId) -> Option<DeskRef> {
        self.members.get(&member).map(|member| Weak::clone(&member.desk))
    }

    /// A new member that reads these logs, of so many partitions each. Says whether there is a
    /// partition for it.
    pub(super) fn join(&mut self, logs: Vec<(LogUuid, u32)>, desk: DeskRef) -> (MemberId, bool) {
        self.last += 1;
        let member = MemberId(self.last);
        for (log, partitions) in &logs {
            for partition in 0..*partitions {
                let place = (*log, Partition::new(partition));
                let free = Held { state: State::Free, target: None };
                self.places.entry(place).or_insert(free);
            }
        }
        self.members.insert(member, Member { logs, desk, resigned: false });
        self.plan();
        (member, self.places.values().any(|held| held.target == Some(member)))
    }

    /// The run of this member is over: what it has goes to the others, once no turn of it runs.
    pub(super) fn resign(&mut self, member: MemberId) {
        if let Some(member) = self.members.get_mut(&member) {
            member.resigned = true;
            self.plan();
        }
    }

    /// The member is gone, and none of its turns runs any more.
    pub(super) fn leave(&mut self, member: MemberId) {
        self.members.remove(&member);
        for held in self.places.values_mut() {
            held.state = match held.state {
                State::Held(owner) | State::Stirred(owner) if owner == member => State::Free,
                State::Moving { from, to } if to == member => {
                    if self.members.contains_key(&from) {
                        State::Stirred(from)
                    } else {
                        State::Free
                    }
                }
                // Who takes it over finds the giver gone, and has it.
                state => state,
            };
        }
        let read = |log: &LogUuid| self.members.values().any(|member| member.reads(log));
        self.places.retain(|(log, _), _| read(log));
        self.plan();
    }

    /// What this member is to do; it is on its way from here on.
    pub(super) fn take_up(&mut self, member: MemberId) -> Work {
        let mut work = Work::default();
        for (place, held) in &mut self.places {
            if held.target != Some(member) {
                continue;
            }
            match held.state {
                State::Free => {
                    held.state = State::Held(member);
                    work.assigned.push(*place);
                }
                State::Held(owner) if owner == member => {}
                State::Held(from) | State::Stirred(from) => {
                    held.state = State::Moving { from, to: member };
                    work.moves.entry(from).or_default().push(*place);
                }
                State::Moving { .. } => {}
            }
        }
        work
    }

    /// These have left their owners. Returns those that the member is to claim; the others are
    /// meant for somebody else by now.
    pub(super) fn arrived(&mut self, member: MemberId, places: &[Place]) -> Vec<Place> {
        let mut ours = Vec::new();
        for place in places {
            let Some(held) = self.places.get_mut(place) else { continue };
            if !matches!(held.state, State::Moving { to, .. } if to == member) {
                continue;
            }
            if held.target == Some(member) {
                held.state = State::Held(member);
                ours.push(*place);
            } else {
                held.state = State::Free;
            }
        }
        ours
    }

    fn plan(&mut self) {
        let active = self.members.iter().filter(|(_, member)| !member.resigned);
        let members: Vec<MemberId> = active.map(|(id, _)| *id).collect();
        let owners = self.places.iter().map(|(place, held)| (*place, held.owner())).collect();
        let may = |member: MemberId, (log, _): Place| {
            self.members.get(&member).is_some_and(|member| member.reads(&log))
        };
        let mut planned = plan(&members, &owners, may);
        for (place, held) in &mut self.places {
            held.target = planned.remove(place);
        }
    }
}

impl Member {
    fn reads(&self, log: &LogUuid) -> bool {
        self.logs.iter().any(|(l, _)| l == log)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("logs", &self.logs).finish_non_exhaustive()
    }
}

impl Held {
    /// Who has it, or is about to.
    const fn owner(&self) -> Option<MemberId> {
        match self.state {
            State::Free => None,
            State::Held(owner) | State::Stirred(owner) | State::Moving { to: owner, .. } => {
                Some(owner)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> LogUuid {
        LogUuid::from_u128(7)
    }

    fn places(work: &Work) -> usize {
        work.assigned.len()
    }

    #[test]
    fn a_second_member_takes_half_and_gives_it_back_when_it_leaves() {
        let mut roll = Roll::default();
        let (first, any) = roll.join(vec![(log(), 8)], Weak::new());
        assert!(any);
        assert_eq!(places(&roll.take_up(first)), 8);
        let (second, _) = roll.join(vec![(log(), 8)], Weak::new());
        assert_eq!(roll.take_up(first), Work::default());
        let work = roll.take_up(second);
        let moving = work.moves.get(&first).cloned().unwrap_or_default();
        assert_eq!((work.assigned.len(), moving.len()), (0, 4));
        assert_eq!(roll.arrived(second, &moving).len(), 4);
        roll.leave(second);
        assert_eq!(places(&roll.take_up(first)), 4);
    }

    #[test]
    fn what_a_member_leaves_half_way_is_taken_from_its_owner_again() {
        let mut roll = Roll::default();
        let (first, _) = roll.join(vec![(log(), 2)], Weak::new());
        roll.take_up(first);
        let (second, _) = roll.join(vec![(log(), 2)], Weak::new());
        let moving = roll.take_up(second).moves.remove(&first).unwrap_or_default();
        assert_eq!(moving.len(), 1);
        roll.leave(second);
        assert_eq!(roll.arrived(second, &moving), [], "it is gone");
        // Revoked by the second, so the first takes it over from itself.
        assert_eq!(roll.take_up(first).moves.get(&first), Some(&moving));
        assert_eq!(roll.arrived(first, &moving), moving);
    }

    #[test]
    fn what_arrives_for_another_by_now_is_free_for_that_one() {
        let mut roll = Roll::default();
        let (first, _) = roll.join(vec![(log(), 2)], Weak::new());
        roll.take_up(first);
        let (second, _) = roll.join(vec![(log(), 2)], Weak::new());
        let moving = roll.take_up(second).moves.remove(&first).unwrap_or_default();
        roll.leave(first);
        let (third, _) = roll.join(vec![(log(), 2)], Weak::new());
        let third_gets = places(&roll.take_up(third));
        let second_gets = roll.arrived(second, &moving).len() + places(&roll.take_up(second));
        assert_eq!((second_gets, third_gets + places(&roll.take_up(third))), (1, 1));
    }

    /// Goal: no partition ever has two owners, and none is forgotten. Method: random joins, leaves
    /// and arrivals beside a plain list of who was told that he owns what.
    #[test]
    fn a_partition_never_has_two_owners_and_none_is_forgotten() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..300 {
            let mut roll = Roll::default();
            let mut members: Vec<MemberId> = Vec::new();
            let mut owns: BTreeMap<Place, MemberId> = BTreeMap::new();
            let mut moves: Vec<(MemberId, MemberId, Vec<Place>)> = Vec::new();
            for _ in 0..60 {
                match random.u32(0..6) {
                    0 => members.push(roll.join(vec![(log(), 5)], Weak::new()).0),
                    1 if !members.is_empty() => {
                        let gone = members.swap_remove(random.usize(..members.len()));
                        owns.retain(|_, owner| *owner != gone);
                        moves.retain(|(to, ..)| *to != gone);
                        roll.leave(gone);
                    }
                    2 if !moves.is_empty() => {
                        let (to, from, places) = moves.swap_remove(random.usize(..moves.len()));
                        for place in &places {
                            let owner = owns.remove(place);
                            assert!(owner.is_none_or(|o| o == from), "{owner:?} was never asked");
                        }
                        for place in roll.arrived(to, &places) {
                            assert_eq!(owns.insert(place, to), None, "two owners");
                        }
                    }
                    _ if !members.is_empty() => {
                        let member = members[random.usize(..members.len())];
                        let work = roll.take_up(member);
                        for place in work.assigned {
                            assert_eq!(owns.insert(place, member), None, "two owners");
                        }
                        moves.extend(work.moves.into_iter().map(|(f, p)| (member, f, p)));
                    }
                    _ => {}
                }
            }
            // Everything comes to rest.
            for _ in 0..20 {
                for (to, _, places) in std::mem::take(&mut moves) {
                    owns.retain(|place, _| !places.contains(place));
                    for place in roll.arrived(to, &places) {
                        assert_eq!(owns.insert(place, to), None, "two owners");
                    }
                }
                for member in &members {
                    let work = roll.take_up(*member);
                    for place in work.assigned {
                        assert_eq!(owns.insert(place, *member), None, "two owners");
                    }
                    moves.extend(work.moves.into_iter().map(|(f, p)| (*member, f, p)));
                }
            }
            assert_eq!(owns.len(), if members.is_empty() { 0 } else { 5 }, "seed {seed}");
        }
    }
}
