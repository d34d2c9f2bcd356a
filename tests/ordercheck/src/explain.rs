//! One event as a line for a person.

use crate::event::{Applied, Event, Parting, Place, Verdict};
use crate::report::shown;

/// Whether an event is part of the story of a group: it names the group, or it is about a
/// member, or about a partition of those given.
pub fn concerns(event: &Event, group: &[u8], partitions: &[i64]) -> bool {
    match event {
        Event::Send { group: other, .. }
        | Event::Stored { group: other, .. }
        | Event::Route { group: other, .. }
        | Event::Barrier { group: other, .. } => other == group,
        Event::Begin { place, .. }
        | Event::End { place, .. }
        | Event::Effect { place, .. }
        | Event::Part { place, .. }
        | Event::Redrive { place } => place.group == group,
        Event::Own { partition, .. }
        | Event::Drop { partition, .. }
        | Event::Reset { partition, .. }
        | Event::Commit { partition, .. }
        | Event::Trim { partition, .. } => partitions.contains(partition),
        Event::Crash { .. } | Event::Pause { .. } | Event::Resume { .. } | Event::Finish => true,
    }
}

/// The partition an event puts its group in, where it does.
pub fn partition(event: &Event) -> Option<i64> {
    match event {
        Event::Stored { partition, .. } | Event::Route { partition, .. } => Some(*partition),
        Event::Begin { place, .. } | Event::Effect { place, .. } => Some(place.partition),
        _ => None,
    }
}

/// Says in words what an event says in fields.
pub fn explain(event: &Event) -> String {
    match event {
        Event::Send { seq, result, .. } => format!("send of seq {seq}: {result:?}").to_lowercase(),
        Event::Stored { partition, offset, seq, .. } => {
            let seq = seq.map_or_else(String::new, |seq| format!(", seq {seq}"));
            format!("stored at {partition}/{offset}{seq}")
        }
        Event::Own { sub, partition, owner } => {
            format!("{} owns partition {partition} for {sub}, epoch {}", owner.member, owner.epoch)
        }
        Event::Drop { sub, partition, owner, drained } => {
            let how = if *drained { "drained" } else { "lost" };
            let (member, epoch) = (&owner.member, owner.epoch);
            format!("{member} gives partition {partition} up for {sub}, epoch {epoch}, {how}")
        }
        Event::Begin { place, attempt, owner } => {
            let (member, epoch) = (&owner.member, owner.epoch);
            format!("{} begins, attempt {attempt}, by {member}, epoch {epoch}", at(place))
        }
        Event::End { place, attempt, owner, verdict } => {
            let verdict = match verdict {
                Verdict::Ok => "ok",
                Verdict::NotOk(word) => word,
            };
            format!("{} ends {verdict}, attempt {attempt}, by {}", at(place), owner.member)
        }
        Event::Effect { place, owner, result, .. } => {
            let result = match result {
                Applied::Applied => "applied",
                Applied::Duplicate => "a duplicate",
                Applied::Fenced => "fenced",
            };
            let (member, epoch) = (&owner.member, owner.epoch);
            format!("{} effect {result}, by {member}, epoch {epoch}", at(place))
        }
        Event::Part { place, parting } => {
            let parting = match parting {
                Parting::Skip => "skipped",
                Parting::Dead => "dead",
                Parting::ParkRecord => "parked",
                Parting::ParkGroup => "parked with its group",
            };
            format!("{} {parting}", at(place))
        }
        Event::Redrive { place } => format!("{} redriven", at(place)),
        Event::Commit { sub, partition, next, done, owner, result } => {
            let result = format!("{result:?}").to_lowercase();
            let member = &owner.member;
            format!(
                "{member} commits partition {partition} for {sub} up to {next}, finished above {done:?}: {result}"
            )
        }
        Event::Reset { sub, partition, offset } => {
            format!("partition {partition} reset to {offset} for {sub}")
        }
        Event::Route { partition, epoch, .. } => {
            format!("routed to partition {partition}, routing epoch {epoch}")
        }
        Event::Barrier { epoch, .. } => format!("barrier of routing epoch {epoch}"),
        Event::Crash { member } => format!("{member} crashes"),
        Event::Pause { member } => format!("{member} stands still"),
        Event::Resume { member } => format!("{member} goes on"),
        Event::Trim { partition, offset } => format!("partition {partition} trimmed to {offset}"),
        Event::Finish => "finish".to_owned(),
    }
}

fn at(place: &Place) -> String {
    let sub = if place.sub == "main" {
        String::new()
    } else {
        format!("{} ", shown(place.sub.as_bytes()))
    };
    format!("{sub}{}/{}", place.partition, place.offset)
}
