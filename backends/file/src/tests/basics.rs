//! Append, read, reopen.

use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;

#[test]
fn what_was_appended_is_read_back_in_order_and_after_a_reopen() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    for i in 0..100 {
        let receipt = stored(&log, 1, "case-7", &i.to_string());
        assert_eq!(receipt.offset, Offset::new(i));
        assert_eq!(receipt.sequence, Some(Sequence::new(i)));
        assert_eq!(receipt.durability, Durability::Synced);
    }
    let before = contents(&log, 1);
    assert_eq!(before.len(), 100);
    block_on(log.close()).unwrap();
    let log = open(&disk);
    assert!(log.recovery().clean);
    assert_eq!(contents(&log, 1), before);
    assert_eq!(stored(&log, 1, "case-7", "next").sequence, Some(Sequence::new(100)));
}

#[test]
fn a_commit_and_an_epoch_survive_a_reopen() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let (store, key) = (log.store(), key(&log, "archive", 2));
    assert!(block_on(store.claim(&key, Epoch::FIRST, None)).unwrap().is_none());
    let (epoch, progress) =
        block_on(store.claim(&key, Epoch::FIRST, Some(Offset::new(5)))).unwrap().unwrap();
    assert_eq!((epoch, progress.next), (Epoch::FIRST, Offset::new(5)));
    let progress = Progress::at(Offset::new(9));
    let commit = Commit { key: &key, epoch, progress: &progress };
    assert!(matches!(block_on(store.commit(&[commit])).unwrap()[..], [Committed::Done]));
    drop(store);
    block_on(log.close()).unwrap();
    let log = open(&disk);
    let claimed = block_on(log.store().claim(&key, Epoch::FIRST, None)).unwrap().unwrap();
    assert_eq!((claimed.0.get(), &claimed.1), (2, &progress));
    let late = block_on(log.store().commit(&[commit])).unwrap();
    assert!(matches!(late[..], [Committed::Fenced(newer)] if newer == claimed.0));
}

#[test]
fn empty_and_absent_keys_and_payloads_go_from_producer_to_turn_as_they_are() {
    let disk = MemoryDisk::new();
    let log = open_with_one_partition(&disk);
    let parts: Vec<(Option<&'static str>, Option<&'static str>)> = vec![
        (Some(""), Some("")),
        (Some(""), None),
        (None, Some("")),
        (None, None),
        (Some(""), Some("p")),
        (Some("k"), Some("")),
    ];
    let producer = Producer::builder(log.clone()).absent_key(AbsentKey::Serial).build();
    for (key, payload) in &parts {
        let record = Record::from_parts(
            key.map(Into::into),
            payload.map(Into::into),
            Headers::default(),
            None,
        );
        let receipt = block_on(producer.send(record)).unwrap();
        assert_eq!(receipt.sequence.is_some(), key.is_some());
    }
    drop(producer);
    block_on(log.close()).unwrap();
    let log = open_with_one_partition(&disk);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handled = Arc::clone(&seen);
    let run = log
        .subscribe("s")
        .absent_key(AbsentKey::Serial)
        .concurrency(1)
        .workers(1)
        .runtime(Bare)
        .until_end()
        .run(move |turn: Turn| {
            let text = |part: Option<&[u8]>| part.map(|p| String::from_utf8(p.to_vec()).unwrap());
            let record = &turn.record().record;
            let sequence = turn.record().sequence.map(Sequence::get);
            let key = text(record.key().map(AsRef::as_ref));
            handled.lock().unwrap().push((
                key,
                text(record.payload().map(AsRef::as_ref)),
                sequence,
            ));
            async { Ok::<_, Error>(()) }
        });
    assert_eq!(block_on(run).unwrap().turns_done, 6);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let mut found: Vec<_> = seen.iter().map(|(k, p, _)| (k.as_deref(), p.as_deref())).collect();
    let mut sent = parts;
    found.sort_unstable();
    sent.sort_unstable();
    assert_eq!(found, sent);
    // The empty key is a group of its own, in order; without a key there is no sequence.
    let of = |key: Option<&str>| -> Vec<Option<u64>> {
        seen.iter().filter(|(k, ..)| k.as_deref() == key).map(|(_, _, s)| *s).collect()
    };
    assert_eq!(of(Some("")), [Some(0), Some(1), Some(2)]);
    assert_eq!(of(None), [None, None]);
    assert_eq!(of(Some("k")), [Some(0)]);
}

fn open_with_one_partition(disk: &MemoryDisk) -> crate::FileLog {
    options(disk).partitions(1).open_blocking().unwrap()
}
