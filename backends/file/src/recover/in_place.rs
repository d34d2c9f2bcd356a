//! Recovery without any free space: the tail is rewritten where it is.

use std::path::Path;

use procession_core::Error;

use super::scan::{Scanned, used};
use super::{OPERATION, Recovery};
use crate::disk::{DiskFile, write_all};
use crate::errors::system;
use crate::report::RecoveryReport;

impl Recovery<'_> {
    /// Writes the unproven tail again, the same bytes at the same place, and zeros over whatever
    /// lies behind it; then syncs. A crash on the way leaves on every page what was there or what
    /// is there now, which are the same where it matters. A batch that is not whole was never
    /// acknowledged, and goes.
    pub(super) fn rewrite_in_place(
        &self,
        file: &dyn DiskFile,
        path: &Path,
        bytes: &[u8],
        scanned: &mut Scanned,
        proven: usize,
        report: &mut RecoveryReport,
    ) -> Result<(), Error> {
        if let Some(torn) = scanned.pieces.pop_if(|piece| !piece.is_whole()) {
            scanned.end = torn.at;
        }
        let (end, used) = (scanned.end, used(bytes));
        if used > end {
            report.cut_bytes = (used - end) as u64;
            report.cut_may_have_been_acknowledged = true;
        }
        let tail = scanned.pieces.iter().filter(|piece| piece.at >= proven);
        report.rewritten_records = tail.map(|piece| u64::from(piece.records)).sum();
        let zeros = vec![0; used.saturating_sub(end)];
        // Zeros first: nothing may follow the tail once it is proven.
        let written = write_all(file, &zeros, end as u64)
            .and_then(|()| write_all(file, &bytes[proven.min(end)..end], proven.min(end) as u64))
            .and_then(|()| file.sync());
        written.map_err(|e| system(OPERATION, path, e))
    }
}
