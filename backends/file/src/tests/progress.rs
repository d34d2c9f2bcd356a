//! The progress store: epochs, batches, compaction.

use futures::executor::block_on;
use procession_core::*;

use super::support::*;
use crate::disk::MemoryDisk;

fn claim(log: &FileLogRef<'_>, key: &Key, floor: u64) -> (u64, Progress) {
    let floor = Epoch::new(floor).unwrap();
    let (epoch, progress) =
        block_on(log.store().claim(key, floor, Some(Offset::ZERO))).unwrap().unwrap();
    (epoch.get(), progress)
}

type FileLogRef<'a> = &'a crate::FileLog;

#[test]
fn every_claim_raises_the_epoch_and_never_below_the_floor() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let key = key(&log, "s", 0);
    assert_eq!(claim(&&log, &key, 1).0, 1);
    assert_eq!(claim(&&log, &key, 1).0, 2);
    assert_eq!(claim(&&log, &key, 50).0, 50);
    assert_eq!(claim(&&log, &key, 7).0, 51);
    let last = Epoch::LAST.get();
    assert_eq!(claim(&&log, &key, last).0, last);
    let exhausted = block_on(log.store().claim(&key, Epoch::FIRST, None));
    assert_eq!(exhausted.unwrap_err().kind(), ErrorKind::Exhausted);
}

#[test]
fn a_forgotten_key_is_new_again_but_never_reuses_an_epoch() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let key = key(&log, "s", 0);
    claim(&&log, &key, 9);
    block_on(log.store().forget(&key)).unwrap();
    assert!(block_on(log.store().list()).unwrap().is_empty());
    assert!(block_on(log.store().claim(&key, Epoch::FIRST, None)).unwrap().is_none());
    crash(log, &disk, 1);
    let log = open(&disk);
    assert!(block_on(log.store().claim(&key, Epoch::FIRST, None)).unwrap().is_none());
    assert_eq!(claim(&&log, &key, 1).0, 10);
}

/// Goal: an answered commit survives any number of compactions and power cuts. Method: far more
/// commits than fit into the files, cut the power now and then.
#[test]
fn answered_commits_survive_compactions_and_power_cuts() {
    let disk = MemoryDisk::new();
    let mut answered = [0_u64; 20];
    for life in 0..12_u64 {
        disk.heal();
        let log = open(&disk);
        let store = log.store();
        let keys: Vec<Key> = (0..20).map(|i| key(&log, &format!("s{i}"), i % 3)).collect();
        let mut epochs = Vec::new();
        for (key, answered) in keys.iter().zip(&answered) {
            let (epoch, progress) = claim(&&log, key, 1);
            assert!(progress.next.get() >= *answered, "life {life}: {progress:?} {answered}");
            epochs.push(Epoch::new(epoch).unwrap());
        }
        disk.power_off_after(20 + life * 17);
        'life: for round in 0..60 {
            for i in 0..20 {
                let next = answered[i] + 1 + round % 2;
                let mut done = Ranges::default();
                done.push(Offset::new(next + 5), Offset::new(next + 9));
                let progress = Progress::with_done(Offset::new(next), done);
                let commit = Commit { key: &keys[i], epoch: epochs[i], progress: &progress };
                match block_on(store.commit(&[commit])) {
                    Ok(outcomes) if matches!(outcomes[..], [Committed::Done]) => answered[i] = next,
                    _ => break 'life,
                }
            }
        }
        drop(store);
        crash(log, &disk, life);
    }
}

#[test]
fn commits_of_a_batch_are_answered_one_by_one() {
    let disk = MemoryDisk::new();
    let log = open(&disk);
    let keys = [key(&log, "a", 0), key(&log, "b", 0), key(&log, "c", 0)];
    claim(&&log, &keys[0], 1);
    claim(&&log, &keys[1], 5);
    let progress = Progress::at(Offset::new(3));
    let batch = keys.each_ref().map(|key| Commit { key, epoch: Epoch::FIRST, progress: &progress });
    let answers = block_on(log.store().commit(&batch)).unwrap();
    assert!(
        matches!(&answers[..], [Committed::Done, Committed::Fenced(newer), Committed::Unknown(e)]
        if newer.get() == 5 && e.kind() == ErrorKind::NotFound)
    );
}
