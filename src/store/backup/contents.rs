//! What a copy of a database contains, and which files it needs.

use crate::domain::backup::{Counts, FileName};
use crate::store::dialect::{self, Conn};
use crate::store::error::StoreError;
use crate::store::results::needed_segments;
use crate::store::run_lists::open_run_numbers;
use crate::store::schema::{job, package, run};
use diesel::prelude::*;

pub(super) struct Contents {
    pub(super) schema: String,
    pub(super) counts: Counts,
    /// The files, and how many bytes of them; `None`: all.
    pub(super) needed: Vec<(FileName, Option<u64>)>,
}

impl Contents {
    pub(super) fn read(conn: &mut Conn) -> Result<Self, StoreError> {
        let segments = needed_segments(conn)?;
        // Databases of the first versions have no packages.
        let packages: Vec<String> = if dialect::has_table(conn, "package")? {
            package::table.order(package::sha256).select(package::sha256).load(conn)?
        } else {
            Vec::new()
        };
        let counts = Counts {
            jobs: job::table.filter(job::is_deleted.eq(false)).count().get_result::<i64>(conn)? as u64,
            runs: run::table.count().get_result::<i64>(conn)? as u64,
            open_runs: open_run_numbers(conn)?.len() as u64,
            results: segments.iter().map(|(_, packs, _)| packs).sum(),
            packages: packages.len() as u64,
        };
        let segments = segments.into_iter().map(|(number, _, end)| (FileName::Segment(number), Some(end)));
        let needed = segments.chain(packages.into_iter().map(|sha256| (FileName::Package(sha256), None))).collect();
        Ok(Self { schema: dialect::last_migration(conn)?, counts, needed })
    }

    pub(super) fn files(&self) -> impl Iterator<Item = FileName> + '_ {
        self.needed.iter().map(|(name, _)| name.clone())
    }
}
