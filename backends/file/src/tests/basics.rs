//! Append, read, reopen.

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
