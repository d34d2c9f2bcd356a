//! Goal: the checker and the definitions agree on histories nobody thought of.
//! Method: small random histories, judged by the checker and by a second reading of the rules
//! that keeps no state: it looks at the whole history again for every question.

mod support;

use std::collections::BTreeSet;

use procession_ordercheck::{
    Applied, Checker, Committed, Event, Options, Owner, Parting, Place, Sent, Verdict, parse,
};

/// The code, where, and the last line of the witness where both must agree on it.
type Found = BTreeSet<(usize, i64, i64, usize)>;

struct Reference {
    events: Vec<Event>,
    options: Options,
}

/// A stored record: line, partition, offset, group, seq.
type Stored<'a> = (usize, i64, i64, &'a Vec<u8>, Option<i64>);

/// A commit: next offset, finished ranges, result.
type Commit<'a> = (i64, &'a Vec<(i64, i64)>, Committed);

/// A position: rank, partition, offset.
type Pos = (i64, i64, i64);

fn before(a: Pos, b: Pos) -> bool {
    if a.1 == b.1 { a.2 < b.2 } else { a.0 < b.0 }
}

fn covers(next: i64, done: &[(i64, i64)], offset: i64) -> bool {
    offset < next || done.iter().any(|(from, to)| *from <= offset && offset < *to)
}

impl Reference {
    fn upto(&self, at: usize) -> impl DoubleEndedIterator<Item = (usize, &Event)> {
        self.events[..at].iter().enumerate()
    }

    /// The stored records before a line, each offset once.
    fn stored(&self, at: usize) -> Vec<Stored<'_>> {
        let mut seen = BTreeSet::new();
        self.upto(at)
            .filter_map(|(line, event)| match event {
                Event::Stored { partition, offset, group, seq } => seen
                    .insert((*partition, *offset))
                    .then_some((line, *partition, *offset, group, *seq)),
                _ => None,
            })
            .collect()
    }

    /// The routes of a group before a line: line, partition, epoch.
    fn routes(&self, group: &[u8], at: usize) -> Vec<(usize, i64, i64)> {
        let mut routes: Vec<(usize, i64, i64)> = Vec::new();
        for (line, event) in self.upto(at) {
            match event {
                Event::Route { group: other, partition, epoch } if other == group => {
                    routes.push((line, *partition, *epoch));
                }
                Event::Stored { partition, group: other, .. }
                    if other == group && routes.is_empty() =>
                {
                    routes.push((line, *partition, i64::MIN));
                }
                _ => {}
            }
        }
        routes
    }

    fn pos(&self, partition: i64, offset: i64, group: &[u8], at: usize) -> Pos {
        let stored = self.stored(at);
        let stored = stored.iter().find(|r| (r.1, r.2) == (partition, offset) && r.3 == group);
        // The line itself counts: a first `stored` is its own route.
        let routes = self.routes(group, stored.map_or(at, |record| record.0 + 1));
        let own = routes.iter().rev().find(|route| route.1 == partition).or_else(|| routes.last());
        let rank = own.map_or(i64::MIN, |route| route.2);
        (if self.options.partition_scope { 0 } else { rank }, partition, offset)
    }

    /// The records of the group stored before a line and earlier in it.
    fn earlier(&self, place: &Place, at: usize) -> Vec<Place> {
        let pos = self.pos(place.partition, place.offset, &place.group, at);
        let same = |partition| !self.options.partition_scope || partition == place.partition;
        let stored = self.stored(at).into_iter();
        let stored = stored.filter(|r| *r.3 == place.group && same(r.1));
        let stored = stored.filter(|r| before(self.pos(r.1, r.2, r.3, at), pos));
        stored.map(|r| Place { partition: r.1, offset: r.2, ..place.clone() }).collect()
    }

    fn same_group(&self, a: &Place, b: &Place) -> bool {
        let near = !self.options.partition_scope || a.partition == b.partition;
        a.sub == b.sub && a.group == b.group && near
    }

    fn is_at(place: &Place, sub: &str, partition: i64, offset: i64) -> bool {
        (place.sub.as_str(), place.partition, place.offset) == (sub, partition, offset)
    }

    fn closes(event: &Event, sub: &str, partition: i64, offset: i64) -> bool {
        match event {
            Event::End { place, verdict: Verdict::Ok, .. } | Event::Part { place, .. } => {
                Self::is_at(place, sub, partition, offset)
            }
            _ => false,
        }
    }

    fn terminal(&self, sub: &str, partition: i64, offset: i64, at: usize) -> bool {
        let (mut closed, mut back, mut reset, mut trimmed) = (false, false, i64::MIN, false);
        for (_, event) in self.upto(at) {
            match event {
                Event::Redrive { place } if Self::is_at(place, sub, partition, offset) => {
                    (closed, back) = (false, true);
                }
                Event::Reset { sub: s, partition: p, offset: o }
                    if (s.as_str(), *p) == (sub, partition) =>
                {
                    reset = *o;
                    back &= offset >= *o;
                }
                Event::Trim { partition: p, offset: o } if *p == partition && offset < *o => {
                    (trimmed, back) = (true, false);
                }
                event if Self::closes(event, sub, partition, offset) => {
                    (closed, back) = (true, false);
                }
                _ => {}
            }
        }
        !back && (closed || offset < reset || trimmed)
    }

    fn was_terminal(&self, sub: &str, partition: i64, offset: i64, at: usize) -> bool {
        let back = self.upto(at).any(|(_, event)| {
            matches!(event, Event::Redrive { place } if Self::is_at(place, sub, partition, offset))
        });
        back || (0..=at).any(|then| self.terminal(sub, partition, offset, then))
    }

    fn top(&self, sub: &str, partition: i64, at: usize) -> Option<i64> {
        self.upto(at)
            .filter_map(|(_, event)| match event {
                Event::Own { sub: s, partition: p, owner }
                    if (s.as_str(), *p) == (sub, partition) =>
                {
                    Some(owner.epoch)
                }
                _ => None,
            })
            .max()
    }

    fn zombie(&self, place: &Place, by: &Owner, at: usize) -> bool {
        let newer = self.upto(at).find(|(_, event)| {
            matches!(event, Event::Own { sub, partition, owner }
                if *sub == place.sub && *partition == place.partition && owner.epoch > by.epoch)
        });
        newer.is_some_and(|(newer, _)| {
            !self.upto(newer).any(|(_, event)| {
                matches!(event, Event::Drop { sub, partition, owner, drained: true }
                    if *sub == place.sub && *partition == place.partition && owner == by)
            })
        })
    }

    /// The turns open at a line: where and whose.
    fn open(&self, at: usize) -> Vec<(&Place, i64, &Owner)> {
        let mut open: Vec<(&Place, i64, &Owner)> = Vec::new();
        for (_, event) in self.upto(at) {
            match event {
                Event::Begin { place, attempt, owner } => open.push((place, *attempt, owner)),
                Event::End { place, attempt, owner, .. } => {
                    let turn = open.iter().position(|turn| *turn == (place, *attempt, owner));
                    open.remove(turn.expect("an open turn"));
                }
                Event::Crash { member } => open.retain(|turn| turn.2.member != *member),
                _ => {}
            }
        }
        open
    }

    fn judge(&self) -> Found {
        let mut found = Found::new();
        for (line, event) in self.events.iter().enumerate() {
            let mut add = |code, partition, offset| {
                found.insert((code, partition, offset, line + 1));
            };
            match event {
                Event::Begin { place, owner, .. } => self.begin(line, place, owner, &mut add),
                Event::Effect { place, owner, result: Applied::Applied, .. } => {
                    self.effect(line, place, owner, &mut add);
                }
                Event::Own { sub, partition, owner }
                    if self.top(sub, *partition, line).is_some_and(|top| owner.epoch <= top) =>
                {
                    add(7, *partition, -1);
                }
                Event::Stored { partition, group, offset, .. } if !self.options.partition_scope => {
                    let first =
                        self.stored(line).iter().all(|r| (r.1, r.2) != (*partition, *offset));
                    let last = self.routes(group, line).last().map(|route| route.1);
                    if first && last.is_some_and(|last| last != *partition) {
                        add(8, *partition, *offset);
                    }
                }
                Event::Commit { sub, partition, next, done, owner, result: Committed::Ok } => {
                    if self.top(sub, *partition, line).is_some_and(|top| owner.epoch < top) {
                        add(7, *partition, -1);
                    }
                    if self.regresses(line, sub, *partition, *next, done) {
                        add(6, *partition, -1);
                    }
                }
                Event::End { place, verdict: Verdict::Ok, .. } if self.options.cascade => {
                    let pos = |of: &Place, at| self.pos(of.partition, of.offset, &of.group, at);
                    let dead = self.upto(line).any(|(since, event)| {
                        matches!(event, Event::Part { place: other, parting: Parting::Dead }
                            if self.same_group(place, other) && before(pos(other, since), pos(place, line))
                                && !self.redriven_within(other, since, line))
                    });
                    if dead {
                        add(15, place.partition, place.offset);
                    }
                }
                _ => {}
            }
        }
        self.commits_ahead(&mut found);
        self.at_end(&mut found);
        found
    }

    fn redriven_within(&self, of: &Place, from: usize, to: usize) -> bool {
        self.events[from..to]
            .iter()
            .any(|event| matches!(event, Event::Redrive { place } if place == of))
    }

    fn begin(
        &self,
        line: usize,
        place: &Place,
        owner: &Owner,
        add: &mut impl FnMut(usize, i64, i64),
    ) {
        let (sub, partition, offset) = (place.sub.as_str(), place.partition, place.offset);
        let zombie = self.zombie(place, owner, line);
        if self.open(line).iter().any(|(other, _, by)| {
            let excused = by.member != owner.member && (zombie || self.zombie(other, by, line));
            self.same_group(place, other) && !excused
        }) {
            add(1, partition, offset);
        }
        let pos = self.pos(partition, offset, &place.group, line);
        if !zombie {
            if self
                .earlier(place, line)
                .iter()
                .any(|r| !self.was_terminal(sub, r.partition, r.offset, line))
            {
                add(3, partition, offset);
            }
            let itself = self.redriven_within(place, 0, line);
            let waits = self.upto(line).any(|(since, event)| {
                let (other, live) = match event {
                    Event::Redrive { place } => (place, true),
                    Event::Part { place, parting: Parting::ParkGroup } => (place, !itself),
                    _ => return false,
                };
                let (s, p, o) = (other.sub.as_str(), other.partition, other.offset);
                let over = match event {
                    Event::Redrive { .. } => {
                        (since + 1..=line).any(|then| self.terminal(s, p, o, then))
                    }
                    _ => {
                        let closed = |event| Self::closes(event, s, p, o);
                        self.redriven_within(other, since, line)
                            || self.events[since + 1..line].iter().any(closed)
                    }
                };
                live && !over
                    && self.same_group(place, other)
                    && before(self.pos(p, o, &other.group, since), pos)
            });
            if waits {
                add(13, partition, offset);
            }
        }
        if !self.options.partition_scope && self.unbarred(line, place) {
            add(8, partition, offset);
        }
        let causes = |at: usize| self.cause(place, at);
        if self.replays(line, place)
            && let Some(most) = self.options.max_replay
        {
            let charged = self.upto(line + 1).filter(|(at, event)| {
                matches!(event, Event::Begin { place, .. }
                    if self.replays(*at, place) && self.cause(place, *at) == causes(line))
            });
            if causes(line).is_none() || charged.count() as u64 == most + 1 {
                add(11, partition, offset);
            }
        }
    }

    fn unbarred(&self, line: usize, place: &Place) -> bool {
        let stored = self.stored(line);
        let mine = stored.iter().find(|r| (r.1, r.2) == (place.partition, place.offset));
        let Some(record) = mine.filter(|r| *r.3 == place.group) else { return false };
        let routes = self.routes(&place.group, record.0);
        let Some(route) = routes.iter().rev().find(|route| route.1 == place.partition) else {
            return false;
        };
        let elsewhere =
            stored.iter().any(|r| r.0 < route.0 && r.1 != route.1 && *r.3 == place.group);
        elsewhere && !self.upto(line).any(|(_, event)| {
            matches!(event, Event::Barrier { group, epoch } if *group == place.group && *epoch >= route.2)
        })
    }

    fn replays(&self, line: usize, place: &Place) -> bool {
        let (sub, partition, offset) = (place.sub.as_str(), place.partition, place.offset);
        let mut ended = false;
        for (_, event) in self.upto(line) {
            match event {
                Event::End { place, verdict: Verdict::Ok, .. } => {
                    ended |= Self::is_at(place, sub, partition, offset);
                }
                Event::Redrive { place } => ended &= !Self::is_at(place, sub, partition, offset),
                Event::Reset { sub: s, partition: p, offset: o } => {
                    ended &= !(s == sub && *p == partition && *o <= offset);
                }
                _ => {}
            }
        }
        ended
    }

    fn cause(&self, place: &Place, line: usize) -> Option<usize> {
        self.upto(line)
            .rev()
            .find(|(at, event)| match event {
                Event::Crash { .. } => true,
                Event::Own { sub, partition, .. } => {
                    *sub == place.sub
                        && *partition == place.partition
                        && self.top(sub, *partition, *at).is_some()
                }
                _ => false,
            })
            .map(|(at, _)| at)
    }

    fn effect(
        &self,
        line: usize,
        place: &Place,
        owner: &Owner,
        add: &mut impl FnMut(usize, i64, i64),
    ) {
        let (sub, partition, offset) = (place.sub.as_str(), place.partition, place.offset);
        if self.top(sub, partition, line).is_some_and(|top| owner.epoch < top) {
            add(7, partition, offset);
        }
        let applied = |at: usize| -> Vec<(usize, &Place)> {
            self.upto(at)
                .filter_map(|(since, event)| match event {
                    Event::Effect { place, result: Applied::Applied, .. } => Some((since, place)),
                    _ => None,
                })
                .collect()
        };
        if applied(line).iter().any(|(_, other)| Self::is_at(other, sub, partition, offset)) {
            if self.options.dedup {
                add(12, partition, offset);
            }
            return;
        }
        let inverted = applied(line).into_iter().any(|(since, other)| {
            let excused = self.upto(since).any(|(_, event)| match event {
                Event::Part { place, .. } => Self::is_at(place, sub, partition, offset),
                Event::Reset { sub: s, partition: p, offset: o } => {
                    s == sub && *p == partition && offset < *o
                }
                _ => false,
            });
            let pos = |of: &Place, at| self.pos(of.partition, of.offset, &of.group, at);
            !excused && self.same_group(place, other) && before(pos(place, line), pos(other, since))
        });
        if inverted {
            add(2, partition, offset);
        }
    }

    fn regresses(
        &self,
        line: usize,
        sub: &str,
        partition: i64,
        next: i64,
        done: &[(i64, i64)],
    ) -> bool {
        for (_, event) in self.upto(line).rev() {
            match event {
                Event::Reset { sub: s, partition: p, .. } if s == sub && *p == partition => {
                    return false;
                }
                Event::Commit {
                    sub: s,
                    partition: p,
                    next: before,
                    done: had,
                    result: Committed::Ok,
                    ..
                } if s == sub && *p == partition => {
                    let forgot = (-1..9).any(|o| covers(*before, had, o) && !covers(next, done, o));
                    return next < *before || forgot;
                }
                _ => {}
            }
        }
        false
    }

    fn commits_ahead(&self, found: &mut Found) {
        let mut named = BTreeSet::new();
        for (line, event) in self.events.iter().enumerate() {
            let Event::Commit { sub, partition, next, done, result, .. } = event else { continue };
            for (_, p, o, ..) in self.stored(line) {
                let ahead = p == *partition
                    && covers(*next, done, o)
                    && !self.was_terminal(sub, p, o, line);
                if *result != Committed::Refused && ahead && named.insert((sub, p, o)) {
                    found.insert((5, p, o, line + 1));
                }
            }
        }
    }

    fn at_end(&self, found: &mut Found) {
        let all = self.events.len();
        let stored = self.stored(all);
        for event in &self.events {
            let (place, seq) = match event {
                Event::Begin { place, .. } => (place, None),
                Event::Effect { place, seq, .. } => (place, *seq),
                _ => continue,
            };
            let held = stored.iter().find(|r| (r.1, r.2) == (place.partition, place.offset));
            if held.is_none_or(|r| *r.3 != place.group || seq.zip(r.4).is_some_and(|(a, b)| a != b))
            {
                found.insert((10, place.partition, place.offset, 0));
            }
        }
        let sends = |group: &[u8], seq: i64| -> Vec<Sent> {
            self.events
                .iter()
                .filter_map(|event| match event {
                    Event::Send { group: g, seq: s, result } if g == group && *s == seq => {
                        Some(*result)
                    }
                    _ => None,
                })
                .collect()
        };
        for (_, p, o, group, seq) in &stored {
            let sends = seq.map(|seq| sends(group, seq)).unwrap_or_default();
            if !sends.is_empty() && sends.iter().all(|sent| *sent == Sent::Fail) {
                found.insert((10, *p, *o, 0));
            }
        }
        for group in [b"a", b"b"]
            .map(|group| group.to_vec())
            .iter()
            .filter(|_| !self.options.partition_scope)
        {
            // Where each seq that was sent well is stored first.
            let firsts: Vec<(i64, Pos)> = (0..3)
                .filter_map(|seq| {
                    let copies = stored.iter().filter(|r| r.3 == group && r.4 == Some(seq));
                    let first = copies.map(|r| self.pos(r.1, r.2, group, all)).min()?;
                    sends(group, seq).contains(&Sent::Ok).then_some((seq, first))
                })
                .collect();
            let inverted = |a: &(i64, Pos)| firsts.iter().any(|b| a.0 < b.0 && before(b.1, a.1));
            if firsts.iter().any(inverted) {
                found.insert((9, -1, i64::from(group[0]), 0));
            }
        }
        let Some(finish) = self.events.iter().rposition(|event| *event == Event::Finish) else {
            return;
        };
        for event in &self.events {
            let Event::Send { group, seq, result: Sent::Ok } = event else { continue };
            if !stored.iter().any(|r| r.3 == group && r.4 == Some(*seq)) {
                found.insert((4, -1, *seq, 0));
            }
        }
        for sub in self.subs() {
            for (_, p, o, ..) in &stored {
                self.left(finish, &sub, *p, *o, found);
            }
        }
    }

    fn left(&self, finish: usize, sub: &str, partition: i64, offset: i64, found: &mut Found) {
        let mine = |s: &str, p: i64| s == sub && p == partition;
        let commits: Vec<Commit<'_>> = self
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Commit { sub: s, partition: p, next, done, result, .. }
                    if mine(s, *p) && *result != Committed::Refused =>
                {
                    Some((*next, done, *result))
                }
                _ => None,
            })
            .collect();
        let last = commits.iter().rev().find(|commit| commit.2 == Committed::Ok);
        let done = self.events.iter().any(|event| {
            Self::closes(event, sub, partition, offset)
                || matches!(event, Event::Trim { partition: p, offset: o } if *p == partition && offset < *o)
                || matches!(event, Event::Reset { sub: s, partition: p, offset: o } if mine(s, *p) && offset < *o)
        });
        if last.is_some_and(|(next, ranges, _)| covers(*next, ranges, offset)) && !done {
            found.insert((4, partition, offset, 0));
        } else if !self.terminal(sub, partition, offset, finish) {
            let begun = self.events.iter().any(|event| {
                matches!(event, Event::Begin { place, .. } if Self::is_at(place, sub, partition, offset))
            });
            let above = commits
                .iter()
                .any(|(next, ranges, _)| (offset..9).any(|o| covers(*next, ranges, o)));
            if !self.options.allow_backlog || begun || above {
                found.insert((14, partition, offset, 0));
            }
        }
    }

    fn subs(&self) -> BTreeSet<String> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Own { sub, .. }
                | Event::Drop { sub, .. }
                | Event::Commit { sub, .. }
                | Event::Reset { sub, .. } => Some(sub.clone()),
                Event::Begin { place, .. }
                | Event::End { place, .. }
                | Event::Effect { place, .. }
                | Event::Part { place, .. }
                | Event::Redrive { place } => Some(place.sub.clone()),
                _ => None,
            })
            .collect()
    }
}

const SEEDS: u64 = 30_000;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % sides
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u64) as usize]
    }

    fn history(&mut self) -> Vec<String> {
        let groups = [["a", "a", "b"], ["a", "b", "a"]];
        let partitions = 1 + self.roll(2);
        let mut stored = [0_u64, 0];
        let mut events = Vec::new();
        let mut open: Vec<String> = Vec::new();
        let setup = self.roll(5);
        let length = setup + 1 + self.roll(6);
        // A few kinds a history, so that those that need each other meet.
        let kinds: Vec<u64> = (0..4).map(|_| self.roll(25)).chain([3, 8]).collect();
        let mut epoch = 0;
        for step in 0..length {
            let p = self.roll(partitions) as usize;
            let kind = if step < setup { 0 } else { self.pick(&kinds) };
            let o = self.roll(3);
            let strange = self.roll(20) == 0 && (2..12).contains(&kind);
            let g = if strange { "b" } else { groups[p][o as usize] };
            let sub = if self.roll(8) == 0 { " s=t" } else { "" };
            let by = self.pick(&["m=x ep=1", "m=x ep=2", "m=y ep=2", "m=y ep=3"]);
            let place = format!("p={p} o={o} g={g}{sub}");
            if step == setup && self.roll(4) == 0 {
                events.push("dead p=0 o=0 g=a why=w".to_owned());
            }
            if step == setup && self.roll(6) == 0 {
                events.extend((0..2).map(|seq| format!("send g=a seq={seq} res=ok")));
            }
            events.push(match kind {
                0 | 1 if stored[p] < 3 => {
                    let g = groups[p][stored[p] as usize];
                    stored[p] += 1;
                    format!("stored p={p} o={} g={g} seq={}", stored[p] - 1, self.roll(3))
                }
                2..=6 => {
                    let turn = format!("{place} {by} a={}", 1 + self.roll(2));
                    open.push(turn.clone());
                    format!("begin {turn}")
                }
                7..=9 if !open.is_empty() => {
                    let turn = open.swap_remove(self.roll(open.len() as u64) as usize);
                    format!("end {turn} v={}", self.pick(&["ok", "ok", "transient"]))
                }
                10 | 11 => format!(
                    "effect {place} {by} res={}",
                    self.pick(&["applied", "applied", "fenced"])
                ),
                12 => format!("{} {place} why=w", self.pick(&["skip", "dead"])),
                13 => format!("park {place} why=w scope={}", self.pick(&["group", "record"])),
                14 => format!("redrive {place}"),
                15 | 16 => {
                    let done = self.pick(&["[]", "[]", "[[4,5]]", "[[3,4]]"]);
                    let result = self.pick(&["ok", "ok", "unknown", "refused"]);
                    format!("commit p={p}{sub} {by} o={o} done={done} res={result}")
                }
                17 => format!("reset p={p}{sub} o={}", self.roll(4)),
                18 => format!("trim p={p} o={}", self.roll(3)),
                19 => {
                    epoch += 1;
                    format!("{} g=a p={p} re={epoch}", self.pick(&["route", "route", "barrier"]))
                }
                20 => {
                    let member = self.pick(&["x", "y"]);
                    open.retain(|turn| !turn.contains(&format!("m={member} ")));
                    format!("crash m={member}")
                }
                21 => format!(
                    "send g={g} seq={} res={}",
                    self.roll(3),
                    self.pick(&["ok", "fail", "unknown"])
                ),
                22 => format!("drop p={p}{sub} {by} how={}", self.pick(&["drained", "lost"])),
                23 => "finish".to_owned(),
                _ => format!("own p={p}{sub} {by}"),
            });
        }
        if self.roll(2) == 0 {
            events.push("finish".to_owned());
        }
        events
    }

    fn options(&mut self) -> Options {
        Options {
            max_replay: self.pick(&[None, Some(0), Some(1)]),
            dedup: self.roll(2) == 0,
            allow_backlog: self.roll(2) == 0,
            cascade: self.roll(2) == 0,
            partition_scope: self.roll(4) == 0,
        }
    }
}

/// What the checker found, as far as both readings name it in the same way.
fn checked(options: Options, lines: &[String]) -> Found {
    let mut checker = Checker::new(options);
    for line in lines {
        checker.line(line).expect("a well-formed history");
    }
    let anomalies = checker.finish().anomalies.into_iter();
    anomalies
        .map(|anomaly| {
            let last = *anomaly.lines.last().expect("a witness") as usize;
            let offset = if anomaly.code == 6 { -1 } else { anomaly.offset.unwrap_or(-1) };
            let seq = anomaly.why.split_whitespace().find_map(|word| word.parse().ok());
            match (anomaly.code, anomaly.partition) {
                (9, _) => (9, -1, anomaly.group.map_or(-1, |group| i64::from(group[0])), 0),
                (4, None) => (4, -1, seq.unwrap_or(-1), 0),
                (code @ (4 | 10 | 14), partition) => (code, partition.unwrap_or(-1), offset, 0),
                (code, partition) => (code, partition.unwrap_or(-1), offset, last),
            }
        })
        .collect()
}

#[test]
fn both_readings_agree_on_random_histories() {
    let mut totals = [0_usize; 16];
    for seed in 1..=SEEDS {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let history = dice.history();
        let options = dice.options();
        let lines = support::lines(&history.join("\n"));
        let events =
            lines.iter().map(|line| parse(0, line).expect("a well-formed line").1).collect();
        let expected = Reference { events, options }.judge();
        let found = checked(options, &lines);
        assert_eq!(found, expected, "seed {seed}, {options:?}\n{}", history.join("\n"));
        expected.iter().for_each(|anomaly| totals[anomaly.0] += 1);
    }
    println!("seeds 1 to {SEEDS}, anomalies by code: {totals:?}");
    for (code, total) in totals.iter().enumerate().skip(1) {
        assert!(*total > 20, "A{code} was found {total} times only");
    }
}
