//! The events of the CSV file.

use std::collections::HashMap;
use std::path::Path;

use crate::BoxError;

/// The file, up to its first bad line.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) rows: Vec<Row>,
    /// Row numbers of each case, in file order.
    pub(crate) cases: HashMap<String, Vec<usize>>,
    /// What is wrong with the line after the last row, if anything is.
    pub(crate) problem: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) resource: String,
    pub(crate) activity: String,
    pub(crate) timestamp: String,
}

impl Row {
    /// `activity,timestamp`, quoted where CSV needs it: the payload of the record.
    pub(crate) fn event(&self) -> String {
        line([&*self.activity, &*self.timestamp])
    }
}

/// Reads the whole file; a bad line ends it, with the line's number in `problem`.
pub(crate) fn read(path: &Path, key: &str) -> Result<Data, BoxError> {
    let name = path.display();
    let mut reader =
        csv::Reader::from_path(path).map_err(|error| format!("read {name}: {error}"))?;
    let header = reader.headers().map_err(|error| format!("read {name}: {error}"))?.clone();
    let column = |wanted: &str| {
        header.iter().position(|column| column == wanted).ok_or_else(|| {
            format!("read {name}: line 1: no column \"{wanted}\" in \"{}\"", line(&header))
        })
    };
    let [case, activity, resource, timestamp] =
        [column(key)?, column("activity")?, column("resource")?, column("timestamp")?];
    let mut data = Data { rows: Vec::new(), cases: HashMap::new(), problem: None };
    for record in reader.records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let at = error.position().map_or(0, csv::Position::line);
                data.problem = Some(format!("read {name}: line {at}: {error}"));
                break;
            }
        };
        let row = Row {
            case: record[case].to_owned(),
            resource: record[resource].to_owned(),
            activity: record[activity].to_owned(),
            timestamp: record[timestamp].to_owned(),
        };
        data.cases.entry(row.case.clone()).or_default().push(data.rows.len());
        data.rows.push(row);
    }
    Ok(data)
}

/// Fields as one line of CSV, without the line's end.
pub(crate) fn line<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields.into_iter().map(str::as_bytes)).expect("writing to memory");
    let bytes = writer.into_inner().expect("flushing to memory");
    String::from_utf8(bytes).expect("made of strings").trim_end_matches('\n').to_owned()
}
