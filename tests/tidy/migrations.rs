//! Migrations only add: what a version of the program reads and writes is also there for the one after it, whoever has migrated the tables
//! (docs/operations.md, "Upgrades"). What only takes away comes in a later version, with a reason here.

use std::path::Path;

/// The last migration before the rule.
const BEFORE: &str = "2026-11-23-160000";
/// The first migration that both databases have.
const BOTH_FROM: &str = "2026-11-23-140000";
/// Migrations that take something away: the name, the last migration of the first version that did not use it any more, and what it was.
/// `src/store/compatible_since` has the latest of these, without dashes: what knows it can use the tables.
const CONTRACTS: [(&str, &str, &str); 0] = [];

/// The statements of a file, without comments, in upper case, with single blanks.
fn statements(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let code = code.join(" ").to_uppercase();
    let plain = |statement: &str| statement.split_whitespace().collect::<Vec<_>>().join(" ");
    code.split(';').map(plain).filter(|statement| !statement.is_empty()).collect()
}

/// The table that a statement makes.
fn made(statement: &str) -> Option<&str> {
    statement.strip_prefix("CREATE TABLE ")?.split([' ', '(']).next()
}

/// What in a migration does more than add.
fn takes_away(text: &str) -> Vec<String> {
    let statements = statements(text);
    let is_new = |table: &str| statements.iter().filter_map(|statement| made(statement)).any(|made| made == table);
    let only_adds = |statement: &String| {
        let words: Vec<&str> = statement.split(' ').collect();
        match words[..] {
            ["CREATE", "TABLE" | "INDEX", ..] => true,
            // Rows of the older version could break the rule of such an index.
            ["CREATE", "UNIQUE", "INDEX", _, "ON", table, ..] => is_new(table.split('(').next().unwrap_or_default()),
            // The older version inserts rows without the new column.
            ["ALTER", "TABLE", table, "ADD", "COLUMN", ..] => {
                is_new(table) || (!statement.contains(" NOT NULL") || statement.contains(" DEFAULT ")) && !statement.contains(" UNIQUE")
            }
            ["ALTER", "TABLE", _, "ALTER", "COLUMN", _, "SET", "STORAGE", _] => true,
            // What the new columns begin with.
            ["UPDATE" | "INSERT", ..] => true,
            _ => false,
        }
    };
    statements.iter().filter(|statement| !only_adds(statement)).cloned().collect()
}

fn names(kind: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(kind);
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn migrations_only_add() {
    for kind in ["sqlite", "postgres"] {
        for name in names(kind).iter().filter(|name| name[..BEFORE.len()] > *BEFORE) {
            if CONTRACTS.iter().any(|(known, ..)| known == name) {
                continue;
            }
            let file = format!("migrations/{kind}/{name}/up.sql");
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).expect("read");
            assert_eq!(takes_away(&text), Vec::<String>::new(), "{file}");
        }
    }
    let stamps: Vec<String> = names("sqlite").iter().map(|name| name[..BEFORE.len()].to_owned()).collect();
    let since = include_str!("../../src/store/compatible_since").trim();
    assert!(stamps.iter().any(|stamp| stamp.replace('-', "") == since), "{since} is a migration");
    for (name, unused_since, what) in CONTRACTS {
        assert!(!what.is_empty() && stamps.iter().any(|stamp| name.starts_with(stamp.as_str())), "{name}");
        assert!(stamps.iter().any(|stamp| stamp == unused_since) && unused_since < name, "{unused_since}");
        assert!(unused_since.replace('-', "").as_str() <= since, "src/store/compatible_since is at least {unused_since}");
    }
}

#[test]
fn both_databases_have_the_same_migrations() {
    let of = |kind| names(kind).into_iter().filter(|name| name[..BOTH_FROM.len()] >= *BOTH_FROM).collect::<Vec<_>>();
    let (sqlite, postgres) = (of("sqlite"), of("postgres"));
    let stamps = |names: &[String]| names.iter().map(|name| name[..BOTH_FROM.len()].to_owned()).collect::<Vec<_>>();
    assert_eq!(stamps(&sqlite), stamps(&postgres));
    // The first one made all tables of PostgreSQL.
    assert_eq!(sqlite[1..], postgres[1..]);
    assert_eq!(names("postgres").len(), postgres.len());
}

#[test]
fn a_migration_that_takes_something_away_is_noticed() {
    for adds in [
        "-- DROP nothing.\nCREATE TABLE a (\n id BIGINT NOT NULL,\n PRIMARY KEY (id)\n);\nCREATE UNIQUE INDEX b ON a (id);",
        "ALTER TABLE run ADD COLUMN x BIGINT;\nALTER TABLE run ADD COLUMN y BOOLEAN NOT NULL DEFAULT FALSE; UPDATE run SET x = 1;",
        "CREATE INDEX run_x ON run (x) WHERE x IS NOT NULL;",
    ] {
        assert_eq!(takes_away(adds), Vec::<String>::new(), "{adds}");
    }
    for less in [
        "DROP TABLE run;",
        "drop index run_x;",
        "ALTER TABLE run DROP COLUMN x;",
        "ALTER TABLE run RENAME COLUMN owner TO update_by;",
        "ALTER TABLE fire RENAME TO fire_of_old;",
        "ALTER TABLE run ADD COLUMN x BIGINT NOT NULL;",
        "ALTER TABLE run ALTER COLUMN x TYPE TEXT;",
        "ALTER TABLE run ALTER COLUMN x SET NOT NULL;",
        "CREATE UNIQUE INDEX run_x ON run (x);",
        "DELETE FROM run;",
    ] {
        assert_eq!(takes_away(less).len(), 1, "{less}");
    }
}
