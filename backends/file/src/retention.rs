//! What may go: pure decisions over what is known of segments and subscriptions.
//!
//! ```text
//!  oldest                                        active
//!  +------+------+------+------+------+------+------+
//!  | free | PIN  | free | free | kept | kept | kept |
//!  +------+------+------+------+------+------+------+
//!  '----- retention wants the room ---'  the newest bytes, or the young ones
//! ```
//!
//! A segment is wanted if enough newer ones are there, or if it is old enough. It goes if no
//! subscription has an unfinished record in it, whatever lies before it: a gap in the offsets stays.

use std::sync::Arc;
use std::time::Duration;

use procession_core::{Offset, Partition, Progress};

use crate::segments::Segment;
use crate::subscriptions::Pin;
use crate::trims::Trims;

/// What was chosen when the log was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) bytes: Option<u64>,
    pub(crate) age: Option<Duration>,
    /// Whether unfinished records go too.
    pub(crate) unfinished: bool,
    pub(crate) expire: Option<Duration>,
}

impl Rules {
    /// Whether anything is ever removed or forgotten.
    pub(crate) const fn are_on(&self) -> bool {
        self.bytes.is_some() || self.age.is_some() || self.expire.is_some()
    }

    /// After this long without a sign of life a subscription is forgotten. A live one is noted
    /// every eighth of the time, so the last sign may be an eighth older than its end.
    fn forget_after(&self) -> Option<i64> {
        self.expire.map(|expire| millis(expire).saturating_add(millis(expire) / 8))
    }

    /// A live subscription is noted again after this long.
    fn note_after(&self) -> Option<i64> {
        self.expire.map(|expire| millis(expire) / 8)
    }
}

/// How far a subscription got, in every partition that it has claimed.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) name: Arc<str>,
    /// Its last claim or commit, wall time in ms.
    pub(crate) moved: i64,
    pub(crate) live: bool,
    pub(crate) partitions: Vec<(u32, Finished)>,
}

/// Progress in a form that is quick to search.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) next: u64,
    done: Vec<(u64, u64)>,
}

impl Finished {
    pub(crate) fn of(progress: &Progress) -> Self {
        let done = progress.done.iter().map(|(from, to)| (from.get(), to.get())).collect();
        Self { next: progress.next.get(), done }
    }

    /// The lowest offset in `from..to` that is not finished.
    fn first_unfinished(&self, from: u64, to: u64) -> Option<u64> {
        let mut at = from.max(self.next);
        let next = self.done.partition_point(|(_, end)| *end <= at);
        if let Some((begin, end)) = self.done.get(next)
            && *begin <= at
        {
            // Ranges never touch: behind one there is something unfinished.
            at = *end;
        }
        (at < to).then_some(at)
    }

    /// How many offsets below `end` are not finished.
    pub(crate) fn unfinished(&self, end: u64) -> u64 {
        let done: u64 =
            self.done.iter().map(|(from, to)| (*to).min(end).saturating_sub(*from)).sum();
        end.saturating_sub(self.next).saturating_sub(done)
    }
}

impl Standing {
    /// Its lowest unfinished record in a sealed segment; `next` is the segment behind it.
    pub(crate) fn pin(&self, segment: &Segment, next: &Segment) -> Option<(Partition, Offset)> {
        self.partitions.iter().find_map(|(partition, finished)| {
            let at = *partition as usize;
            let (from, to) = (*segment.header.base.get(at)?, *next.header.base.get(at)?);
            let offset = finished.first_unfinished(from, to)?;
            Some((Partition::new(*partition), Offset::new(offset)))
        })
    }

    fn last_sign(&self, rules: &Rules, now: i64) -> i64 {
        if self.live && rules.expire.is_some() { now } else { self.moved }
    }
}

/// Names that are forgotten now.
pub(crate) fn expired(standings: &[Standing], rules: &Rules, now: i64) -> Vec<Arc<str>> {
    let Some(after) = rules.forget_after() else { return Vec::new() };
    let over = |s: &&Standing| now.saturating_sub(s.last_sign(rules, now)) >= after;
    standings.iter().filter(over).map(|s| Arc::clone(&s.name)).collect()
}

/// Names whose life must be noted again.
pub(crate) fn to_note(standings: &[Standing], rules: &Rules, now: i64) -> Vec<Arc<str>> {
    let Some(after) = rules.note_after() else { return Vec::new() };
    let due = |s: &&Standing| s.live && now.saturating_sub(s.moved) >= after;
    standings.iter().filter(due).map(|s| Arc::clone(&s.name)).collect()
}

/// What goes, and who keeps what from going.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    /// Ids, ascending.
    pub(crate) segments: Vec<u64>,
    /// With these added.
    pub(crate) trims: Trims,
    /// The lowest offsets that are left.
    pub(crate) earliest: Vec<u64>,
    pub(crate) pins: Vec<Pin>,
    /// When time alone may change the answer, wall time in ms.
    pub(crate) due: Option<i64>,
}

/// Decides over all segments, of which the last one is the active one; `now` is the log's time.
pub(crate) fn decide(
    segments: &[Arc<Segment>],
    rules: &Rules,
    standings: &[Standing],
    trims: &Trims,
    now: i64,
) -> Decision {
    let mut decision = Decision { trims: trims.clone(), ..Decision::default() };
    let mut newer: u64 = segments.iter().map(|segment| segment.size).sum();
    let mut first_left = None;
    for pair in segments.windows(2) {
        let (segment, next) = (&pair[0], &pair[1]);
        newer -= segment.size;
        // Nothing in it is younger than what came next.
        let old_at = rules.age.map(|age| next.header.log_time.saturating_add(millis(age)));
        let wanted = rules.bytes.is_some_and(|bytes| newer >= bytes)
            || old_at.is_some_and(|old_at| old_at <= now);
        if !wanted {
            first_left.get_or_insert(segment);
            decision.wake_at(old_at);
            continue;
        }
        let pinned = !rules.unfinished && decision.pin(standings, segment, next);
        if !pinned && decision.trims.add(segment.id(), segment.header.previous_end) {
            decision.segments.push(segment.id());
        } else {
            first_left.get_or_insert(segment);
        }
    }
    let first = first_left.or_else(|| segments.last());
    decision.earliest = first.map(|segment| segment.header.base.clone()).unwrap_or_default();
    for standing in standings {
        let after = if standing.live { rules.note_after() } else { rules.forget_after() };
        decision.wake_at(after.map(|after| standing.moved.saturating_add(after.max(1))));
    }
    decision
}

impl Decision {
    fn wake_at(&mut self, at: Option<i64>) {
        self.due = match (self.due, at) {
            (Some(due), Some(at)) => Some(due.min(at)),
            (due, at) => due.or(at),
        };
    }

    /// Notes who has unfinished records in a segment.
    fn pin(&mut self, standings: &[Standing], segment: &Segment, next: &Segment) -> bool {
        let before: u64 = self.pins.iter().map(|pin| pin.bytes).sum();
        for standing in standings {
            let Some((partition, offset)) = standing.pin(segment, next) else { continue };
            match self.pins.iter_mut().find(|pin| pin.subscription == standing.name) {
                Some(pin) => pin.bytes += segment.size,
                None => self.pins.push(Pin {
                    subscription: Arc::clone(&standing.name),
                    partition,
                    offset,
                    bytes: segment.size,
                }),
            }
        }
        self.pins.iter().map(|pin| pin.bytes).sum::<u64>() > before
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use procession_core::Ranges;

    use super::*;
    use crate::format::segment::SegmentHeader;
    use crate::segments::Cached;

    /// Segments of 100 bytes and ten records of one partition, one a second.
    fn segments(count: u64) -> Vec<Arc<Segment>> {
        let one = |id: u64| {
            let header = SegmentHeader {
                log: 1,
                codecs: 0,
                id,
                open_count: 1,
                log_number: 10 * (id - 1),
                log_time: 1000 * (id as i64 - 1),
                previous_end: 90,
                base: vec![10 * (id - 1)],
            };
            Arc::new(Segment::new(header, "/".into(), 90, 100, Cached::default()))
        };
        (1..=count).map(one).collect()
    }

    fn standing(name: &str, next: u64, done: &[(u64, u64)]) -> Standing {
        let mut ranges = Ranges::default();
        done.iter().for_each(|(from, to)| ranges.push(Offset::new(*from), Offset::new(*to)));
        let finished = Finished::of(&Progress::with_done(Offset::new(next), ranges));
        Standing { name: name.into(), moved: 0, live: false, partitions: vec![(0, finished)] }
    }

    fn bytes(bytes: u64) -> Rules {
        Rules { bytes: Some(bytes), ..Rules::default() }
    }

    fn goes(rules: &Rules, standings: &[Standing], now: i64) -> Vec<u64> {
        decide(&segments(5), rules, standings, &Trims::default(), now).segments
    }

    #[test]
    fn the_newest_bytes_and_the_active_segment_always_stay() {
        assert_eq!(goes(&bytes(250), &[], 0), [1, 2]);
        assert_eq!(goes(&bytes(0), &[], 0), [1, 2, 3, 4]);
        assert_eq!(goes(&bytes(400), &[], 0), [1]);
        assert_eq!(goes(&bytes(401), &[], 0), [0; 0]);
        assert_eq!(goes(&Rules::default(), &[], i64::MAX), [0; 0]);
    }

    #[test]
    fn a_segment_is_old_when_its_newest_record_must_be_and_that_moment_is_known() {
        let rules = Rules { age: Some(Duration::from_secs(10)), ..Rules::default() };
        assert_eq!(goes(&rules, &[], 12_999), [1, 2]);
        let decision = decide(&segments(5), &rules, &[], &Trims::default(), 12_999);
        assert_eq!(decision.due, Some(13_000));
        assert_eq!(decision.earliest, [20]);
        assert_eq!(goes(&rules, &[], 13_000), [1, 2, 3]);
    }

    #[test]
    fn what_a_subscription_has_not_finished_stays_and_what_is_finished_behind_it_goes() {
        let stuck = standing("stuck", 7, &[(8, 31), (32, 50)]);
        let decision = decide(&segments(5), &bytes(0), &[stuck], &Trims::default(), 0);
        assert_eq!(decision.segments, [2, 3]);
        assert_eq!(decision.earliest, [0]);
        let pin = &decision.pins[0];
        assert_eq!((&*pin.subscription, pin.offset.get(), pin.bytes), ("stuck", 7, 200));
    }

    #[test]
    fn a_range_that_ends_inside_a_segment_leaves_the_rest_of_it_unfinished() {
        let done = standing("s", 0, &[(1, 19), (25, 40)]);
        assert_eq!(goes(&bytes(0), &[done], 0), [4]);
    }

    #[test]
    fn unfinished_records_go_only_where_that_was_chosen() {
        let rules = Rules { unfinished: true, ..bytes(250) };
        assert_eq!(goes(&rules, &[standing("s", 0, &[])], 0), [1, 2]);
    }

    #[test]
    fn a_live_subscription_never_expires_and_a_quiet_one_does() {
        let rules = Rules { expire: Some(Duration::from_secs(8)), ..Rules::default() };
        let mut standing = standing("s", 0, &[]);
        let over = |standing: &Standing, now| {
            (
                expired(std::slice::from_ref(standing), &rules, now).len(),
                to_note(std::slice::from_ref(standing), &rules, now).len(),
            )
        };
        assert_eq!(over(&standing, 8999), (0, 0));
        assert_eq!(over(&standing, 9000), (1, 0));
        standing.live = true;
        assert_eq!(over(&standing, 999), (0, 0));
        assert_eq!(over(&standing, 90_000), (0, 1));
    }

    #[test]
    fn finished_ranges_do_not_count_as_lag() {
        let Standing { partitions, .. } = standing("s", 5, &[(10, 20), (30, 40)]);
        assert_eq!(partitions[0].1.unfinished(35), 35 - 5 - 10 - 5);
    }
}
