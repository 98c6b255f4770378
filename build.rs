//! Says which state of the sources the program is made of, for `webloom --version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=WEBLOOM_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    // A program for tests names no commit: it would be compiled again after each one.
    let for_tests = std::env::var_os("CARGO_FEATURE_FAULTS").is_some();
    let commit = if for_tests { None } else { of_repository().or_else(of_package) };
    println!("cargo:rustc-env=WEBLOOM_COMMIT={}", commit.unwrap_or_default());
}

/// Commit and date, as `3ccae14 2026-11-21`, if this folder is the root of a repository.
fn of_repository() -> Option<String> {
    // The sources may lie in a folder of another repository, whose commit would say nothing about them.
    let root = std::fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()?;
    if root != std::fs::canonicalize(std::env::var_os("CARGO_MANIFEST_DIR")?).ok()? {
        return None;
    }
    // This runs again when another commit is checked out, and only then: a file that is missing would make it run each time.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["log", "-1", "--format=%h %cs"])
}

/// The commit that a published package was made of.
fn of_package() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, hash) = text.split_once("\"sha1\"")?;
    let hash: String = hash.chars().skip_while(|c| !c.is_ascii_hexdigit()).take_while(char::is_ascii_hexdigit).collect();
    (hash.len() >= 7).then(|| hash[..7].to_owned())
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
