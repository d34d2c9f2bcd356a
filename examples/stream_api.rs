//! The turns as a stream: a loop of your own, sixteen devices side by side, each strictly in order.
//!
//! Each reading is checked against the one before it, which is only right because no other turn of
//! the same device runs meanwhile. One device is flaky: its readings are tried again, and nobody
//! else waits for it.
//!
//! `cargo run --example stream_api`

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use procession::{Delivery, Error, FileLog, GroupKey, Record, Retry};

const DEVICES: usize = 40;
const READINGS: usize = 25;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let log = FileLog::open(folder.path().join("readings.log")).await?;
    produce(&log).await?;

    let deliveries = log
        .subscribe("check")
        .runtime(procession_tokio::Tokio::current())
        .concurrency(16)
        .retry(Retry::exponential().initial(Duration::from_millis(5)))
        .until_end()
        .stream()?;
    let handle = deliveries.handle();
    // The request is made at the call; the stream then ends once all that is out has its verdict.
    ctrlc::set_handler({
        let handle = handle.clone();
        move || handle.request_shutdown()
    })?;

    let state = Mutex::new(HashMap::new());
    deliveries
        .try_for_each_concurrent(16, |delivery| async {
            let result = check(&state, &delivery).await;
            // A verdict takes effect at once: the device's next reading can come.
            delivery.finish(result)
        })
        .await?;

    let counts = handle.counts();
    let devices = state.into_inner().expect("no loop panicked").len();
    println!(
        "{} readings of {devices} devices in order, {} turns tried again",
        counts.records_done, counts.turns_failed
    );
    log.close().await?;
    Ok(())
}

async fn produce(log: &FileLog) -> Result<(), Error> {
    let producer = log.producer();
    let sends = (0..DEVICES * READINGS).map(|n| {
        let (device, reading) = (n % DEVICES, n / DEVICES);
        producer.send(Record::new(format!("device-{device:02}"), reading.to_string()))
    });
    // The order is that of the calls to `send`; awaiting them side by side changes nothing.
    futures::stream::iter(sends).buffered(1000).try_for_each(|_| async { Ok(()) }).await?;
    Ok(())
}

/// A reading must be one more than the last. What lasts does not hold up other devices.
async fn check(
    state: &Mutex<HashMap<String, u64>>,
    delivery: &Delivery,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let device =
        delivery.group().and_then(GroupKey::as_str).ok_or("a reading of no device")?.to_owned();
    let reading: u64 = std::str::from_utf8(delivery.payload())?.parse()?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    if device == "device-07" && reading.is_multiple_of(10) && delivery.attempt() < 3 {
        return Err("device-07 does not answer".into());
    }
    let mut state = state.lock().map_err(|_| "a loop panicked")?;
    let last = state.insert(device, reading);
    if last.map_or(0, |last| last + 1) == reading {
        Ok(())
    } else {
        Err(format!("{reading} after {last:?}").into())
    }
}
