//! The checker: one line at a time, each event to the rules it concerns.

mod effects;
mod end;
mod log;
mod progress;
mod records;
mod subscription;
mod turns;

use std::collections::{HashMap, HashSet};

use self::log::{Key, Log, Pos};
use self::subscription::{Standing, Sub};
use crate::event::{Event, Place};
use crate::parse::{Malformed, parse};
use crate::report::{Anomaly, Counts, Report};

/// Which of the optional rules to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// A11: how many replays one crash or handoff may cost.
    pub max_replay: Option<u64>,
    /// A12: no effect may be applied twice.
    pub dedup: bool,
    /// A14: what was never begun and lies above every commit may stay.
    pub allow_backlog: bool,
    /// A15: nothing of a group may end well after a dead record.
    pub cascade: bool,
    /// A group is one within its partition only; A8 and A9 are not judged.
    pub partition_scope: bool,
}

/// Judges a history as it is read.
#[derive(Debug, Default)]
pub struct Checker {
    options: Options,
    line: u64,
    blank: Option<u64>,
    ticket: Option<i64>,
    log: Log,
    subs: Vec<Sub>,
    sub_ids: HashMap<String, usize>,
    members: HashMap<String, u32>,
    last_crash: Option<u64>,
    /// Replays by the line of the crash or handoff they are charged to.
    charges: HashMap<u64, u64>,
    /// What turns and effects said of offsets that no line has stored yet.
    claims: HashMap<(i64, i64), Vec<records::Claim>>,
    /// The contradictions already named.
    contradicted: HashSet<(i64, i64, u32)>,
    /// How every subscription stood at `finish`, and where the log began.
    finished: Option<Finished>,
    counts: Counts,
    found: Vec<Anomaly>,
}

#[derive(Debug, Default)]
struct Finished {
    standings: Vec<HashMap<i64, Standing>>,
    trims: HashMap<i64, i64>,
}

impl Checker {
    /// A checker that has read nothing.
    pub fn new(options: Options) -> Self {
        Self { options, log: Log::new(options.partition_scope), ..Self::default() }
    }

    /// Reads the next line, without its newline.
    ///
    /// # Errors
    /// When the history is malformed here; there is no verdict then.
    pub fn line(&mut self, text: &str) -> Result<(), Malformed> {
        self.line += 1;
        // Only the very last line may be blank, and that shows when another one follows.
        if let Some(line) = self.blank {
            return Err(Malformed { line, column: None, why: "a blank line".into() });
        }
        if text.trim().is_empty() {
            self.blank = Some(self.line);
            return Ok(());
        }
        let (ticket, event) = parse(self.line, text)?;
        if let Some(before) = self.ticket.filter(|before| ticket <= *before) {
            let why = format!("the ticket {ticket} is not above {before}, the one before");
            return Err(Malformed { line: self.line, column: None, why });
        }
        self.ticket = Some(ticket);
        self.counts.events += 1;
        self.event(event)
    }

    /// Judges what only the whole history shows.
    pub fn finish(mut self) -> Report {
        self.judge_end();
        self.found.sort_by_key(|anomaly| (anomaly.lines.last().copied(), anomaly.code));
        self.counts.groups = self.log.groups.len() as u64;
        Report { anomalies: self.found, counts: self.counts }
    }

    fn event(&mut self, event: Event) -> Result<(), Malformed> {
        match event {
            Event::Send { group, seq, result } => self.send(&group, seq, result),
            Event::Stored { partition, offset, group, seq } => {
                self.stored(partition, offset, &group, seq);
            }
            Event::Route { group, partition, epoch } => {
                self.log.route(&group, partition, epoch, self.line);
            }
            Event::Barrier { group, epoch } => self.log.barrier(&group, epoch),
            Event::Trim { partition, offset } => self.trim(partition, offset),
            Event::Own { sub, partition, owner } => self.own(&sub, partition, &owner),
            Event::Drop { sub, partition, owner, drained } => {
                self.drop_ownership(&sub, partition, &owner, drained);
            }
            Event::Begin { place, attempt, owner } => self.begin(&place, attempt, &owner),
            Event::End { place, attempt, owner, verdict } => {
                return self.end(&place, attempt, &owner, verdict);
            }
            Event::Effect { place, seq, owner, result } => {
                self.effect(&place, seq, &owner, result);
            }
            Event::Part { place, parting } => self.part(&place, parting),
            Event::Redrive { place } => self.redrive(&place),
            Event::Commit { sub, partition, next, done, owner, result } => {
                self.commit(
                    &sub,
                    partition,
                    progress::Progress { next, done, line: self.line },
                    owner.epoch,
                    result,
                );
            }
            Event::Reset { sub, partition, offset } => self.reset(&sub, partition, offset),
            Event::Crash { member } => self.crash(&member),
            Event::Pause { .. } | Event::Resume { .. } => {}
            Event::Finish => self.note_finish(),
        }
        Ok(())
    }

    fn note_finish(&mut self) {
        let standings = self.subs.iter().map(Sub::standings).collect();
        let parts = self.log.partitions.iter();
        let trims = parts.map(|(partition, part)| (*partition, part.trim)).collect();
        self.finished = Some(Finished { standings, trims });
    }

    /// The subscription of that name; a new one has everything stored before it.
    fn sub(&mut self, name: &str) -> usize {
        if let Some(sub) = self.sub_ids.get(name) {
            return *sub;
        }
        self.subs.push(Sub::new(name, &self.log));
        self.sub_ids.insert(name.to_owned(), self.subs.len() - 1);
        self.subs.len() - 1
    }

    fn member(&mut self, name: &str) -> u32 {
        if let Some(member) = self.members.get(name) {
            return *member;
        }
        let member = self.members.len() as u32;
        self.members.insert(name.to_owned(), member);
        member
    }

    /// The subscription, the group and the position of a record.
    fn locate(&mut self, place: &Place) -> (usize, u32, Key, Pos) {
        let sub = self.sub(&place.sub);
        let group = self.log.group(&place.group);
        let key = self.log.key(place.partition, group);
        let pos = self.log.pos(place.partition, place.offset, group);
        (sub, group, key, pos)
    }

    fn report(
        &mut self,
        code: usize,
        group: Option<u32>,
        at: At,
        mut lines: Vec<u64>,
        why: String,
    ) {
        lines.sort_unstable();
        lines.dedup();
        let (partition, offset, sub) = match at {
            At::Log(partition, offset) => (partition, offset, None),
            At::Sub(sub, partition, offset) => (Some(partition), offset, Some(sub)),
        };
        let sub = sub.map(|sub| self.subs[sub].name.as_str()).filter(|name| *name != "main");
        let why = sub.map_or_else(|| why.clone(), |sub| format!("{why} (subscription {sub})"));
        let group = group.map(|group| self.log.groups[group as usize].name.clone());
        self.found.push(Anomaly { code, group, partition, offset, lines, why });
    }
}

/// Where an anomaly is: in the log itself, or as a subscription sees it.
enum At {
    Log(Option<i64>, Option<i64>),
    Sub(usize, i64, Option<i64>),
}
