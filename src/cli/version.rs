//! The output of `webloom --version`.

/// `0.1.0 (3ccae14 2026-11-21, x86_64-unknown-linux-gnu, SQLite 3.50.4)`. A build outside the repository has no commit, and one for tests neither.
pub fn text() -> String {
    let sqlite = crate::store::sqlite_version();
    let commit = match env!("WEBLOOM_COMMIT") {
        "" => String::new(),
        commit => format!("{commit}, "),
    };
    format!("{} ({commit}{}, SQLite {sqlite})", env!("CARGO_PKG_VERSION"), env!("WEBLOOM_TARGET"))
}
