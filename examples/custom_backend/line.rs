//! One record as one line: six fields between tabs, bytes in hex, `-` for what is absent.

use procession::{
    Error, ErrorKind, GroupKey, Headers, Offset, Record, RoutingEpoch, Stored, Timestamp,
};

pub(crate) fn write(record: &Record, offset: Offset, log_time: Timestamp) -> String {
    let bytes = |bytes: Option<&[u8]>| match bytes {
        None => "-".to_owned(),
        Some(bytes) => format!("x{}", bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    };
    let time = record.timestamp().unwrap_or(log_time).as_millis();
    format!(
        "{offset}\t{}\t{time}\t{}\t{}\t{}\n",
        log_time.as_millis(),
        bytes(record.key().map(AsRef::as_ref)),
        bytes(record.payload().map(AsRef::as_ref)),
        bytes(Some(record.headers().encoded())),
    )
}

pub(crate) fn read(line: &str) -> Result<Stored, Error> {
    parse(line).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "read a line of the log").with_hint(format!("{line:?}"))
    })
}

fn parse(line: &str) -> Option<Stored> {
    let fields: Vec<&str> = line.strip_suffix('\n')?.split('\t').collect();
    let [offset, log_time, time, key, payload, headers] = fields[..] else { return None };
    let millis = |text: &str| text.parse().ok().map(Timestamp::from_millis);
    let record = Record::from_parts(
        bytes(key)?.map(GroupKey::from),
        bytes(payload)?.map(Into::into),
        Headers::decode(bytes(headers)??.into()).ok()?,
        Some(millis(time)?),
    );
    Some(Stored {
        offset: Offset::new(offset.parse().ok()?),
        sequence: None,
        log_time: millis(log_time)?,
        routing: RoutingEpoch::new(1),
        record,
    })
}

fn bytes(field: &str) -> Option<Option<Vec<u8>>> {
    let Some(hex) = field.strip_prefix('x') else { return (field == "-").then_some(None) };
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>().map(Some)
}
