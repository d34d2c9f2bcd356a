//! Reading: what was asked for, budgets, ends.

use procession_core::{
    Budget, Chunk, ErrorKind, Log, Offset, Partition, Position, Stored, Timestamp, Want,
};

use super::LogFactory;
use super::tools::*;
use crate::patience::soon;

async fn read(log: &dyn Log, wants: &[Want], max: Budget) -> Vec<Chunk> {
    let chunks = soon(log.read(wants, max), "a read was never answered").await;
    let chunks = expect(chunks, "read");
    for (i, chunk) in chunks.iter().enumerate() {
        assert!(
            chunks[..i].iter().all(|other| other.partition != chunk.partition),
            "two chunks of partition {} in one read",
            chunk.partition
        );
    }
    chunks
}

const fn want(partition: Partition, from: Offset, max: Budget) -> Want {
    Want { partition, from, max }
}

fn of(chunks: &[Chunk], partition: Partition) -> &[Stored] {
    chunks.iter().find(|c| c.partition == partition).map_or(&[], |c| &c.records)
}

/// Only the partitions asked for, from the offset asked for, ascending; several in one read.
///
/// # Panics
/// If the log breaks the contract.
pub async fn reads_only_what_was_asked_for(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let records = (0..60).map(|n| ([P0, P1, P2][n % 3], numbered("a", n)));
    append(&*log, records).await;
    let (all, all_of_2) = (read_all(&*log, P1, 20).await, read_all(&*log, P2, 20).await);
    for records in [&all, &all_of_2] {
        assert!(
            records.is_sorted_by(|a, b| a.offset < b.offset),
            "\"`read` gives ascending offsets\""
        );
    }
    for (i, record) in all.iter().enumerate() {
        let chunks = read(&*log, &[want(P1, record.offset, Budget::MAX)], Budget::MAX).await;
        assert!(
            chunks.iter().all(|chunk| chunk.partition == P1),
            "asked for partition 1 only, got {chunks:?}"
        );
        let got = of(&chunks, P1);
        assert!(
            !got.is_empty() && all[i..].starts_with(got),
            "asked for partition 1 from offset {} on, got offsets {:?}",
            record.offset,
            got.iter().map(|r| r.offset.get()).collect::<Vec<_>>()
        );
    }
    let wants = [want(P2, all_of_2[3].offset, Budget::MAX), want(P1, all[7].offset, Budget::MAX)];
    let chunks = read(&*log, &wants, Budget::MAX).await;
    let (two, one) = (of(&chunks, P2), of(&chunks, P1));
    assert!(
        all_of_2[3..].starts_with(two) && all[7..].starts_with(one) && of(&chunks, P0).is_empty(),
        "two wants in one read, each from its own offset on, got {chunks:?}"
    );
    assert!(!(two.is_empty() && one.is_empty()), "at least one record for some want that has any");
}

/// Reading stops before the record that would go over, of the want or of the whole read; but a
/// first record is given, however small the budget.
///
/// # Panics
/// If the log breaks the contract.
pub async fn read_respects_its_budget_but_always_gives_one_record(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let record = || procession_core::Record::new("key", vec![1; 97]); // 100 bytes
    append(&*log, (0..10).map(|_| (P0, record()))).await;
    append(&*log, (0..10).map(|_| (P1, record()))).await;
    let first = [read_all(&*log, P0, 10).await[0].offset, read_all(&*log, P1, 10).await[0].offset];
    let budgets = [
        (Budget::new(3, u64::MAX), 3, "3 records"),
        (Budget::new(u64::MAX, 250), 2, "250 bytes, records of 100"),
        (Budget::new(u64::MAX, 300), 3, "300 bytes, records of 100"),
        (Budget::new(u64::MAX, 99), 1, "99 bytes, records of 100"),
        (Budget::new(1, 1), 1, "1 byte"),
        (Budget::ZERO, 1, "nothing"),
    ];
    for (max, most, said) in budgets {
        for (own, whole) in [(max, Budget::MAX), (Budget::MAX, max)] {
            let which = if own == max { "the want" } else { "the whole read" };
            let chunks = read(&*log, &[want(P0, first[0], own)], whole).await;
            let got = of(&chunks, P0).len();
            assert!(got > 0, "a budget of {said} for {which}: a first record is always given");
            assert!(
                got <= most,
                "a budget of {said} for {which} gave {got} records: reading stops before the \
                 record that would go over"
            );
            let next = chunks[0].next;
            let last = of(&chunks, P0)[got - 1].offset;
            let after = read_from(&*log, P0, next, 10 - got).await;
            assert!(next > last, "`next` is above the last record");
            assert_eq!(after.len(), 10 - got, "`next` must not pass a record that was not given");
        }
        let both = [want(P0, first[0], Budget::MAX), want(P1, first[1], Budget::MAX)];
        let chunks = read(&*log, &both, max).await;
        let got = of(&chunks, P0).len() + of(&chunks, P1).len();
        assert!(
            (1..=most).contains(&got),
            "a budget of {said} for a whole read of two partitions gave {got} records"
        );
    }
}

/// Following `next`, one record at a time, meets every record once and ends at the end.
///
/// # Panics
/// If the log breaks the contract.
pub async fn next_leads_to_the_end_across_gaps(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    append(&*log, (0..25).map(|n| (P1, numbered("a", n)))).await;
    read_all(&*log, P1, 25).await;
    let end = ends(&*log, Position::End).await[1];
    let mut next = ends(&*log, Position::Earliest).await[1];
    let mut met = Vec::new();
    while next < end {
        let chunks = read(&*log, &[want(P1, next, Budget::new(1, u64::MAX))], Budget::MAX).await;
        let Some(chunk) = chunks.into_iter().next() else {
            panic!(
                "nothing at {next}, below the end {end}: a want before the end yields a record, or \
                 an empty chunk whose `next` leads over the gap"
            )
        };
        let last = chunk.records.last().map(|record| record.offset);
        assert!(
            chunk.next > next && last.is_none_or(|last| chunk.next > last),
            "from {next}, last record {last:?}, `next` is {}: it is above the last record and above \
             any gap that follows it",
            chunk.next
        );
        met.extend(chunk.records);
        next = chunk.next;
    }
    assert_eq!(next, end, "`next` leads to the end, not beyond it");
    assert_eq!(numbers(&met), (0..25).collect::<Vec<_>>(), "every record once, in order");
    // "From which offset on; it need not exist": every number below the end is a place to read from.
    let first = met[0].offset.get();
    for from in first..end.get().min(first + 1_000) {
        let expected = met.iter().find(|record| record.offset.get() >= from);
        if let Some(expected) = expected {
            let got = read_from(&*log, P1, Offset::new(from), 1).await;
            assert_eq!(got[0].offset, expected.offset, "the first record at or above {from}");
        }
    }
}

/// At the end there is nothing, and no error; beyond it lies what is not yet written.
///
/// # Panics
/// If the log breaks the contract.
pub async fn reading_at_the_end_is_empty_and_beyond_it_is_not_yet_written(
    factory: &dyn LogFactory,
) {
    let log = new_log(factory).await;
    for round in 0..2 {
        let end = ends(&*log, Position::End).await[0];
        let chunks = read(&*log, &[want(P0, end, Budget::MAX)], Budget::MAX).await;
        for chunk in chunks {
            assert!(chunk.records.is_empty(), "records at the end {end}: {chunk:?}");
            assert_eq!(chunk.next, end, "nothing is known to be empty above the end");
        }
        let beyond = read_one(&*log, P0, end.after(), Budget::MAX).await;
        let error = beyond.expect_err("reading beyond the end must fail: nobody wrote there yet");
        assert_eq!(error.kind(), ErrorKind::NotYetWritten, "reading beyond the end: {error:?}");
        if round == 0 {
            append(&*log, (0..3).map(|n| (P0, numbered("a", n)))).await;
            read_all(&*log, P0, 3).await;
        }
    }
}

/// The ends of an empty and of a filled log, and the offset of a time.
///
/// # Panics
/// If the log breaks the contract.
pub async fn ends_answer_earliest_end_and_time(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    let (earliest, end) = (ends(&*log, Position::Earliest).await, ends(&*log, Position::End).await);
    assert_eq!(earliest, end, "an empty log begins where it ends");
    for n in 0..8 {
        append(&*log, [(P0, numbered("a", n)), (P2, numbered("b", n))]).await;
    }
    let all = read_all(&*log, P0, 8).await;
    read_all(&*log, P2, 8).await;
    let end = ends(&*log, Position::End).await;
    assert!(end[0] > all[7].offset, "the end lies above the highest offset that can be read");
    assert_eq!(end[1], earliest[1], "nothing was appended to partition 1");
    let earliest = ends(&*log, Position::Earliest).await;
    assert!(earliest[0] <= all[0].offset, "the lowest offset that can be read");
    assert_eq!(read_from(&*log, P0, earliest[0], 1).await[0], all[0], "the earliest record");

    let times = all.iter().map(|record| record.log_time).chain([Timestamp::from_millis(0)]);
    for time in times {
        let first = all.iter().find(|record| record.log_time >= time).expect("there is one");
        let at = ends(&*log, Position::Time(time)).await[0];
        let read = read_from(&*log, P0, at, 1).await;
        assert_eq!(
            read[0].offset, first.offset,
            "the first record that the log took at or after {time}"
        );
    }
    let late = Timestamp::from_millis(all[7].log_time.as_millis() + 3_600_000);
    assert_eq!(ends(&*log, Position::Time(late)).await, end, "no record is that late: the end");
}

/// Log time does not fall from one append to the next, across partitions, nor from one offset to
/// the next.
///
/// # Panics
/// If the log breaks the contract.
pub async fn log_time_never_falls(factory: &dyn LogFactory) {
    let log = new_log(factory).await;
    for n in 0..90 {
        append(&*log, [([P0, P1, P2][n % 3], numbered("a", n))]).await;
    }
    let mut all = Vec::new();
    for partition in [P0, P1, P2] {
        all.extend(read_all(&*log, partition, 30).await);
    }
    all.sort_by_key(number);
    let times: Vec<_> = all.iter().map(|record| record.log_time.as_millis()).collect();
    assert!(times.is_sorted(), "log time fell between two appends: {times:?}");
}
