//! A producer and a consumer side by side, without any runtime: one `block_on`, one future.
//!
//! `cargo run --example no_runtime`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use procession::{FileLog, Record, Turn};

const ORDERS: u32 = 20;
const STATES: [&str; 4] = ["placed", "paid", "packed", "shipped"];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    futures::executor::block_on(async {
        let log = FileLog::open(folder.path().join("orders")).await?;

        let consumer = log.subscribe("warehouse").build()?;
        let handle = consumer.handle();
        let left = Arc::new(AtomicU32::new(ORDERS));
        let stop = handle.clone();
        let consume = consumer.run(move |turn: Turn| {
            let (left, stop) = (Arc::clone(&left), stop.clone());
            async move {
                let state = turn.record().record.payload().cloned().unwrap_or_default();
                let order = turn.group().cloned().unwrap_or_default();
                // The sequence is the record's number in its group: here, which state it is.
                let step = turn.record().sequence.map_or(0, procession::Sequence::get);
                if state != STATES[step as usize] {
                    return Err(format!("{order}: step {step} cannot be {state:?}"));
                }
                if state == "shipped" && left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    // Ends the run once this turn, and all others that run, have ended.
                    stop.request_shutdown();
                }
                Ok(())
            }
        });

        let produce = async {
            let producer = log.producer();
            for state in STATES {
                // All orders at once, each record on its way before the first is synced.
                let sends: Vec<_> = (0..ORDERS)
                    .map(|order| producer.send(Record::new(format!("order-{order}"), state)))
                    .collect();
                for sending in sends {
                    sending.await?;
                }
            }
            Ok::<_, Box<dyn Error>>(())
        };

        let (consumed, produced) = futures::join!(consume, produce);
        produced?;
        println!("{} turns, every order through every state", consumed?.turns_done);
        log.close().await?;
        Ok(())
    })
}
