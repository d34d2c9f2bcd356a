//! The output file: one line per effect, in the order of effects.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::BoxError;
use crate::data::line;

#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    /// Opens or makes the file; a last line that a crash tore is cut off.
    pub(crate) fn open(path: &Path) -> Result<Self, BoxError> {
        let context = |error: io::Error| format!("open the output {}: {error}", path.display());
        let file =
            OpenOptions::new().read(true).append(true).create(true).open(path).map_err(context)?;
        let whole = length_of_whole_lines(&file).map_err(context)?;
        file.set_len(whole).map_err(context)?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn writer(&self) -> Result<Writer, BoxError> {
        Ok(Writer(self.file.try_clone()?))
    }

    /// Every line, from the start.
    pub(crate) fn lines(&mut self) -> Result<Vec<String>, BoxError> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(BufReader::new(&self.file));
        let lines: Result<_, _> = reader.records().map(|fields| Ok(line(&fields?))).collect();
        lines.map_err(|error: csv::Error| {
            format!("read the output {}: {error}", self.path.display()).into()
        })
    }
}

/// Up to the last line end that is not inside quotes.
fn length_of_whole_lines(file: &File) -> io::Result<u64> {
    let (mut whole, mut read, mut quoted) = (0, 0, false);
    for byte in BufReader::new(file).bytes() {
        read += 1;
        match byte? {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => whole = read,
            _ => {}
        }
    }
    Ok(whole)
}

/// Appends lines, each with one write, from any thread.
#[derive(Debug)]
pub(crate) struct Writer(File);

impl Writer {
    pub(crate) fn append(&self, mut line: String) -> io::Result<()> {
        line.push('\n');
        (&self.0).write_all(line.as_bytes())
    }
}
