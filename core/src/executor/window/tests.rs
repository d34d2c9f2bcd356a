use std::collections::BTreeMap;

use super::*;

fn at(offset: u64) -> Offset {
    Offset::new(offset)
}

fn ranges(progress: &Progress) -> Vec<(u64, u64)> {
    progress.done.iter().map(|(from, to)| (from.get(), to.get())).collect()
}

fn window(from: u64, offsets: impl IntoIterator<Item = u64>) -> (OffsetWindow, Vec<u32>) {
    let mut window = OffsetWindow::new(&Progress::at(at(from)));
    let slots = offsets.into_iter().map(|o| window.deliver(at(o)).unwrap()).collect();
    (window, slots)
}

/// The sample in the field report popped unfinished offsets.
#[test]
fn finishing_the_first_passes_only_the_first() {
    let (mut window, slots) = window(0, 0..5);
    window.finish(slots[0]);
    assert_eq!(window.snapshot(), Progress::at(at(1)));
}

/// Its twin never moved when it started below the first record.
#[test]
fn finishing_in_order_moves_with_every_record() {
    let (mut window, slots) = window(0, 0..5);
    for (i, slot) in slots.into_iter().enumerate() {
        window.finish(slot);
        assert_eq!(window.watermark(), at(i as u64 + 1));
    }
}

/// Offsets may be byte positions: the neighbour of one is not the next number.
#[test]
fn byte_positions_are_offsets_like_any_other() {
    let (mut window, slots) = window(0, [0, 130, 263, 300]);
    window.advance(at(411));
    window.finish(slots[0]);
    assert_eq!(window.watermark(), at(130));
    window.finish(slots[2]);
    window.finish(slots[3]);
    let snapshot = window.snapshot();
    assert_eq!((snapshot.next, ranges(&snapshot)), (at(130), vec![(131, 411)]));
    window.finish(slots[1]);
    assert_eq!(window.snapshot(), Progress::at(at(411)));
}

#[test]
fn finished_ranges_merge_across_a_gap() {
    let (mut window, slots) = window(0, [1, 5, 9, 20]);
    window.finish(slots[1]);
    window.finish(slots[2]);
    assert_eq!(ranges(&window.snapshot()), [(2, 20)]);
    assert_eq!(window.ranges(), 1);
}

#[test]
fn gaps_alone_make_no_range() {
    let (window, _) = window(0, (0..1000).map(|n| n * 2));
    assert_eq!((window.ranges(), window.snapshot().done.len()), (0, 0));
}

#[test]
fn one_stuck_record_costs_one_range_and_one_slot() {
    let (mut window, slots) = window(0, 0..1);
    for offset in 1..300_000 {
        let slot = window.deliver(at(offset)).unwrap();
        window.finish(slot);
    }
    assert_eq!((window.ranges(), window.nodes.len()), (1, 2));
    assert_eq!(ranges(&window.snapshot()), [(1, 300_000)]);
    window.finish(slots[0]);
    assert_eq!(window.snapshot(), Progress::at(at(300_000)));
}

#[test]
fn what_was_done_before_is_skipped_and_never_dropped() {
    let mut done = Ranges::default();
    done.push(at(11), at(13));
    done.push(at(20), at(30));
    let before = Progress::with_done(at(10), done);
    let mut window = OffsetWindow::new(&before);
    assert_eq!(window.snapshot(), before);
    let ten = window.deliver(at(10)).unwrap();
    assert_eq!(window.snapshot(), before);
    assert!(window.deliver(at(11)).is_none());
    assert_eq!(window.snapshot(), before);
    let thirteen = window.deliver(at(13)).unwrap();
    window.finish(ten);
    assert_eq!(window.snapshot().next, at(13));
    window.finish(thirteen);
    window.advance(at(20));
    assert_eq!(window.snapshot(), Progress::at(at(30)));
    assert!(window.deliver(at(29)).is_none());
    assert_eq!(window.snapshot(), Progress::at(at(30)));
}

#[test]
fn an_empty_stretch_moves_the_watermark_only_when_nothing_is_unfinished() {
    let (mut window, slots) = window(0, [3]);
    let version = window.version();
    window.advance(at(50));
    assert_eq!((window.watermark(), window.version()), (at(3), version));
    window.finish(slots[0]);
    assert_eq!(window.watermark(), at(50));
    window.advance(at(60));
    assert_eq!(window.watermark(), at(60));
    assert!(window.version() > version + 1);
}

/// Goal: every snapshot says of every offset that exists what a plain map says, nothing is ever
/// taken back, and the count of ranges is right. Method: random steps beside the map.
#[test]
fn agrees_with_a_plain_map() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let start = rng.u64(0..50);
        let mut done = Ranges::default();
        let mut from = start;
        for _ in 0..rng.u64(0..4) {
            from += rng.u64(1..6);
            let to = from + rng.u64(1..6);
            done.push(at(from), at(to));
            from = to;
        }
        let before = Progress::with_done(at(start), done);
        let mut window = OffsetWindow::new(&before);
        // Offset -> its slot while unfinished, None once finished.
        let mut map: BTreeMap<u64, Option<u32>> = BTreeMap::new();
        let mut fetch = start;
        for step in 0..200 {
            if rng.u8(0..3) == 0 {
                fetch += if rng.bool() { rng.u64(0..4) } else { 0 };
                if rng.u8(0..8) == 0 {
                    window.advance(at(fetch));
                } else {
                    map.insert(fetch, window.deliver(at(fetch)));
                    assert_eq!(map[&fetch].is_none(), before.covers(at(fetch)));
                    fetch += 1;
                }
            } else {
                let open: Vec<u64> =
                    map.iter().filter(|(_, slot)| slot.is_some()).map(|(o, _)| *o).collect();
                if !open.is_empty() {
                    let offset = open[rng.usize(0..open.len())];
                    window.finish(map.insert(offset, None).unwrap().unwrap());
                }
            }
            let snapshot = window.snapshot();
            let lowest = map.iter().find(|(_, slot)| slot.is_some()).map(|(o, _)| *o);
            if let Some(lowest) = lowest {
                assert_eq!(snapshot.next, at(lowest), "seed {seed} step {step}");
            }
            for (offset, slot) in &map {
                assert_eq!(snapshot.covers(at(*offset)), slot.is_none(), "seed {seed} step {step}");
            }
            for offset in fetch..fetch + 40 {
                let skipped = before.covers(at(offset));
                assert_eq!(snapshot.covers(at(offset)), skipped, "seed {seed} step {step}");
            }
            let counted = window.ranges();
            assert!((snapshot.done.len()..=snapshot.done.len() + 1).contains(&counted));
            assert_eq!(Progress::from_bytes(&snapshot.to_bytes()).unwrap(), snapshot);
        }
    }
}
